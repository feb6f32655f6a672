//! Walks what is imported: what a person reads, and the module that it becomes, are held to the letter; each such
//! module checks.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use meshplan_reconciler::cli::Cli;
use meshplan_reconciler::cli::exit::Exit;

fn meshplan(arguments: &[&str]) -> (Exit, String) {
    let cli = match Cli::try_parse_from(std::iter::once(&"meshplan").chain(arguments)) {
        Ok(cli) => cli,
        Err(error) => panic!("{error}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut out = Vec::new();
    let exit = runtime.block_on(cli.run(&mut out)).unwrap();
    (exit, String::from_utf8(out).unwrap())
}

/// A fleet with a node that gets whatever is imported.
fn fleet(home: &Path) -> String {
    let dir = home.join("fleet").to_str().unwrap().to_owned();
    let (exit, said) = meshplan(&["init", &dir, "--fleet", "home"]);
    assert_eq!(exit, Exit::Done, "{said}");
    let (exit, said) = meshplan(&[
        "node", "add", "ace", "--role", "edge", "--role", "imported", "--dir", &dir,
    ]);
    assert_eq!(exit, Exit::Done, "{said}");
    dir
}

/// The file of a folder that is imported: of a unit and its timer, the unit.
fn input(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let ends = |end: &str| {
        files
            .iter()
            .find(|file| file.extension().is_some_and(|of| of == end))
    };
    let found = ["yaml", "container", "service"].into_iter().find_map(ends);
    found
        .unwrap_or_else(|| panic!("{} has nothing to import", folder.display()))
        .clone()
}

// The first half of FR-14: the id is held when `node adopt` is there, too.
#[test]
fn what_is_imported_becomes_a_module_that_checks_and_everything_else_is_said() {
    let museum = Path::new("tests/imports");
    let bless = std::env::var_os("MESHPLAN_BLESS").is_some();
    let mut differing = Vec::new();
    let mut count = 0;
    let mut folders: Vec<PathBuf> = fs::read_dir(museum)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    for folder in folders.iter().filter(|path| path.is_dir()) {
        count += 1;
        let home = tempfile::tempdir().unwrap();
        let dir = fleet(home.path());
        let file = input(folder);
        let arguments = [
            "module",
            "import",
            file.to_str().unwrap(),
            "--name",
            "imported",
            "--role",
            "imported",
            "--dir",
            &dir,
        ];
        let made = Path::new(&dir).join("modules/imported/module.toml");
        let (exit, said) = meshplan(&arguments);
        assert_eq!(exit == Exit::Done, made.exists(), "{}: {said}", folder.display());
        if exit != Exit::Done {
            assert_eq!(exit, Exit::No, "{}: {said}", folder.display());
            let partial: Vec<&str> = arguments.iter().copied().chain(["--partial"]).collect();
            let (exit, again) = meshplan(&partial);
            assert_eq!(exit == Exit::Done, made.exists(), "{}: {again}", folder.display());
        }
        let text = fs::read_to_string(&made).unwrap_or_default();
        if made.exists() {
            let (exit, checked) = meshplan(&["check", &dir]);
            assert_eq!(exit, Exit::Done, "{}: {checked}\n{text}", folder.display());
            assert!(checked.contains("0 warnings"), "{}: {checked}", folder.display());
        }
        for (name, now) in [("expected.txt", &said), ("module.toml", &text)] {
            let path = folder.join(name);
            let expected = fs::read_to_string(&path).unwrap_or_default();
            if *now != expected {
                differing.push(format!("== {}\n{now}", path.display()));
                if bless && now.is_empty() {
                    fs::remove_file(&path).unwrap();
                } else if bless {
                    fs::write(&path, now).unwrap();
                }
            }
        }
    }
    assert!(count >= 10, "only {count} things were imported");
    assert!(
        !fs::read_to_string(museum.join("compose_left_out/expected.txt"))
            .unwrap()
            .contains("correct-horse"),
        "a secret was printed"
    );
    assert!(bless || differing.is_empty(), "{}", differing.join("\n"));
}

// The first half of FR-14: the id is held when `node adopt` is there, too.
#[test]
fn a_module_that_is_there_is_not_written_over_and_a_file_that_is_nothing_is_said() {
    let home = tempfile::tempdir().unwrap();
    let dir = fleet(home.path());
    let unit = "tests/imports/unit_with_timer/backup.timer";
    let (exit, said) = meshplan(&["module", "import", unit, "--dir", &dir]);
    assert_eq!(exit, Exit::Done, "{said}");
    let (exit, said) = meshplan(&["module", "import", unit, "--dir", &dir]);
    assert_eq!(
        (exit, said.as_str()),
        (Exit::Refused, "modules/backup is there already\n")
    );
    let (exit, said) = meshplan(&["module", "import", "Cargo.toml", "--dir", &dir]);
    assert_eq!(exit, Exit::Usage);
    assert!(said.contains("by its name this is no compose file"), "{said}");
}
