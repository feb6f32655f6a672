//! The program as it is started. That this test is here makes cargo build `meshplan-host` before any test of the
//! workspace runs: the whole-program tests start it.

use std::process::Command;

#[test]
fn the_program_says_its_name_and_version() {
    let said = Command::new(env!("CARGO_BIN_EXE_meshplan-host"))
        .arg("--version")
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    let expected = format!("meshplan-host {}", env!("CARGO_PKG_VERSION"));
    assert!(
        String::from_utf8_lossy(&said.stdout).starts_with(&expected),
        "{said:?}"
    );
}
