//! The published JSON Schemas as an editor uses them: Taplo, which the editors' TOML plug-ins are made of, completes and
//! checks by the `#:schema` line of a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use meshplan_schemas::document::published;
use scenarios::house::{files, workspace};
use scenarios::skip::skip;

/// Whether Taplo is here; `./test` installs it.
fn taplo_is_here() -> Result<bool> {
    // It says its version and ends as if it had failed.
    let found = Command::new("taplo").arg("--version").output();
    let here = found.is_ok_and(|said| said.stdout.starts_with(b"taplo "));
    if !here {
        skip("the schemas in an editor", "no taplo (npm install @taplo/cli)")?;
    }
    Ok(here)
}

/// What Taplo says about files, and whether it takes all of them.
fn check(schema: Option<&Path>, documents: &[PathBuf]) -> Result<(bool, String)> {
    let schema = schema.map(|path| format!("--schema=file://{}", path.display()));
    let said = Command::new("taplo")
        .args(["check", "--colors=never", "--no-auto-config"])
        .args(schema)
        .args(documents)
        .output()?;
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    // A file that it does not look at is no file that it takes.
    let looked = format!("total={}", documents.len());
    ensure!(
        text.contains(&looked),
        "{} files were given: {text}",
        documents.len()
    );
    Ok((said.status.success(), text.into_owned()))
}

fn schema(name: &str) -> PathBuf {
    workspace().join(format!("schemas/json/{name}.json"))
}

fn sample(name: &str) -> PathBuf {
    workspace().join(format!("schemas/tests/samples/{name}.toml"))
}

// holds: FR-2
#[test]
fn an_editor_takes_every_sample_and_every_example() -> Result<()> {
    if !taplo_is_here()? {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let examples = files(&workspace().join("examples"), "toml")?;
    let mut paths: Vec<PathBuf> = (examples.iter())
        .map(|file| workspace().join("examples").join(&file.path))
        .collect();
    // One call for all: the program takes seconds to start.
    for name in published::NAMES {
        let path = dir.path().join(format!("{name}.toml"));
        let text = fs::read_to_string(sample(name))?;
        fs::write(&path, format!("#:schema {}\n{text}", schema(name).display()))?;
        paths.push(path);
    }
    ensure!(paths.len() > 30, "only {} documents were found", paths.len());
    let (taken, said) = check(None, &paths)?;
    ensure!(taken, "{said}");
    Ok(())
}

// holds: FR-2
#[test]
fn an_editor_finds_a_misspelt_key_and_a_wrong_value_in_every_document() -> Result<()> {
    if !taplo_is_here()? {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let mut bad = Vec::new();
    let mut put = |name: String, text: String| -> Result<()> {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().context("a file stands in a folder")?)?;
        fs::write(&path, text)?;
        bad.push(path);
        Ok(())
    };
    for name in published::NAMES {
        let head = format!("#:schema {}\n", schema(name).display());
        let sample = fs::read_to_string(sample(name))?;
        put(format!("{name}.toml"), format!("{head}unheard_of = 1\n{sample}"))?;
        // The last table of the sample, however deep, has a key that it does not know.
        put(
            format!("{name}-deep.toml"),
            format!(
                "{head}{}\nunheard_of = {{ a = 1 }}\n",
                with_known_end(name, &sample)
            ),
        )?;
    }
    for (name, wrong) in [
        ("fleet", "schema = \"1\"\n"),
        ("node", "pinned = 1\n"),
        ("plan", "covers = \"everything\"\n"),
        ("policy", "[qos]\napply_cpu_weight = 10001\n"),
        ("module", "mode = \"aply\"\n"),
        ("checks", "[[check]]\nnode = \"ace\"\n"),
        ("rotations", "[[rotations]]\nid = \"mesh\"\n"),
        ("retired", "[[retired]]\nname = \"db\"\n"),
    ] {
        put(
            format!("{name}-wrong.toml"),
            format!("#:schema {}\n{wrong}", schema(name).display()),
        )?;
    }
    // The examples' own lines: a path from the file to the schema.
    for file in files(&workspace().join("examples"), "toml")? {
        let (line, rest) = file.text.split_once('\n').context("an example has lines")?;
        put(
            format!("examples/{}", file.path),
            format!("{line}\nunheard_of = 1\n{rest}"),
        )?;
    }
    for name in published::NAMES {
        let folder = dir.path().join("schemas/json");
        fs::create_dir_all(&folder)?;
        fs::copy(schema(name), folder.join(format!("{name}.json")))?;
    }
    let (taken, said) = check(None, &bad)?;
    ensure!(!taken, "all of it was taken: {said}");
    for path in &bad {
        let told = format!(
            "invalid file error=schema validation failed path=\"{}\"",
            path.display()
        );
        ensure!(said.contains(&told), "{} was taken: {said}", path.display());
    }
    Ok(())
}

/// The sample without what comes after its last table with known keys: `[vars]` takes any.
fn with_known_end(name: &str, sample: &str) -> String {
    let end = if name == "fleet" || name == "node" {
        "[vars]"
    } else {
        "\0"
    };
    sample.split(end).next().unwrap_or_default().to_owned()
}

// holds: FR-13
#[test]
fn an_editor_takes_an_instant_with_an_offset_as_the_reader_does() -> Result<()> {
    if !taplo_is_here()? {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("node.toml");
    let record = fs::read_to_string(sample("node"))?;
    let written = record.replace("valid_to = 0", "valid_to = 2026-10-06T10:00:00+02:00");
    ensure!(written != record, "the sample has no valid_to");
    fs::write(&path, written)?;
    let (taken, said) = check(Some(&schema("node")), &[path])?;
    ensure!(taken, "{said}");
    Ok(())
}
