//! The program `meshplan-launcher`: starts the host (SU-1).

fn main() {}
