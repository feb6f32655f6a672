//! The program `meshplan-host`.

fn main() {}
