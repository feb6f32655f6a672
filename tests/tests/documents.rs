//! The documents that lead a reader by the hand, followed by a shell: the commands as they stand, one block after the
//! other, in a folder and on ports of their own.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use scenarios::house::{documents::shell_blocks, workspace};
use scenarios::program::{Said, clean, path};
use scenarios::world::free_port;

/// What a reader does after a merge: waits until it has come to its end. A command that fails ends the shell.
const SHELL: &str = r#"
settle() {
  for _ in $(seq 600); do
    if meshplan deliveries show "$(git -C fleet rev-parse HEAD)" --json 2>/dev/null |
      grep -qE '"(delivered|rolled-back)"'; then return; fi
    sleep 0.2
  done
  echo 'the delivery never came to its end' >&2
  return 1
}
set -euo pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
"#;

/// Runs the blocks of a document; gives all that they printed.
fn follow(page: &str, home: &Path) -> Result<String> {
    let text = fs::read_to_string(workspace().join(page))?;
    let mut script = SHELL.to_owned();
    let mut serves = false;
    for (_, line) in shell_blocks(&text).iter().flatten() {
        // The programs are built already, beside this test.
        if line.starts_with("cargo ") || line.starts_with("export PATH=") {
            continue;
        }
        script.push_str(line);
        script.push('\n');
        serves |= line.starts_with("meshplan serve");
        if serves && line.contains(" push ") {
            script.push_str("settle\n");
        }
    }
    let script = script
        .replace("/tmp/try", &home.join("try").to_string_lossy())
        .replace("127.0.0.1:7980", &free_port()?.to_string())
        .replace("127.0.0.1:7946", &free_port()?.to_string());
    let programs = path("meshplan")?
        .parent()
        .context("a program lies in a folder")?
        .to_owned();
    let search = format!("{}:{}", programs.display(), std::env::var("PATH")?);
    // Ended before the runner ends the test, so that what it said is seen.
    let mut bash = clean("timeout", home);
    bash.env("PATH", search).args(["200", "bash", "-c", &script]);
    let said = Said::of(bash)?;
    ensure!(said.code == Some(0), "{page}: {}{}", said.out, said.err);
    Ok(format!("{}{}", said.out, said.err))
}

// holds: OP-9
#[test]
fn whoever_follows_the_readme_by_hand_has_three_machines_a_change_and_its_story_in_git() -> Result<()> {
    let home = tempfile::tempdir()?;
    let said = follow("README.md", home.path())?;
    for words in [
        "ace says hello\nbea says hello\ncid says hello\n",
        "delivered (done)",
    ] {
        ensure!(said.contains(words), "{words:?} was not seen:\n{said}");
    }
    Ok(())
}

// holds: OP-9
#[test]
fn whoever_follows_the_tutorial_sees_both_stories() -> Result<()> {
    let home = tempfile::tempdir()?;
    let said = follow("docs/tutorial.md", home.path())?;
    for words in ["delivered (done)", "-> rolled-back"] {
        ensure!(said.contains(words), "{words:?} was not seen:\n{said}");
    }
    let greetings = said
        .matches("ace says hello\nbea says hello\ncid says hello\n")
        .count();
    ensure!(
        greetings == 2,
        "the machines said hello {greetings} times, not after each change:\n{said}"
    );
    ensure!(
        !home.path().join("try").exists(),
        "the last step does not clean up"
    );
    Ok(())
}

// holds: FR-10
#[test]
fn whoever_follows_the_page_of_the_fleet_repository_sees_what_it_says() -> Result<()> {
    let home = tempfile::tempdir()?;
    let said = follow("docs/fleet-repo.md", home.path())?;
    for words in [
        "did you mean `base`?",
        "`build` of the service `web` cannot be carried over: meshplan runs images that are built",
        "modules/shop/module.toml: 4 resources from ../shop/compose.yaml; 1 thing not carried over",
        "module web comes to",
        "secrets/db-password.age: new; only the reconciler can open it",
        "the fleet generated composes: 300 nodes",
    ] {
        ensure!(said.contains(words), "{words:?} was not seen:\n{said}");
    }
    ensure!(!said.contains("correct horse"), "a value was printed:\n{said}");
    Ok(())
}
