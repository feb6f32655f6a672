//! The program `meshplan`.

fn main() {}
