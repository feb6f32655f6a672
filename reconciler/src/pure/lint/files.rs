//! Rules of files: modes on the machines, and what git does not store.

use std::ops::Range;

use meshplan_schemas::document::module::{FileResource, ModuleFile};
use meshplan_schemas::finding::{Finding, Source};

use super::Subject;

/// Parts of a path or an id that mean that its content is nobody else's business.
const PRIVATE: [&str; 7] = [
    "secret",
    "password",
    "private",
    "token",
    "credential",
    "id_rsa",
    "id_ed25519",
];
/// How the names of files of private keys end.
const PRIVATE_ENDS: [&str; 4] = [".key", ".pem", ".p12", ".jks"];
/// What a private key of any tool has in its text.
const PRIVATE_TEXT: &str = "PRIVATE KEY-----";

fn modules<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (&'a Source, &'a ModuleFile)> {
    subject
        .validated
        .modules()
        .values()
        .map(|module| (&module.source, &module.file))
}

/// What "others" may do, by an octal mode.
fn others(mode: &str) -> Option<u32> {
    mode.chars().last()?.to_digit(8)
}

/// The mode that a file with this text has on machines.
fn mode<'f>(file: &'f FileResource, text: &str) -> &'f str {
    let left_out = if holds_a_secret(file, text) {
        "0600"
    } else {
        "0644"
    };
    file.mode.as_ref().map_or(left_out, |at| at.value.0.as_str())
}

/// Whether the sticky bit is set: in such a folder nobody removes what is another's.
fn sticky(mode: &str) -> bool {
    let digits: Vec<u32> = mode.chars().filter_map(|digit| digit.to_digit(8)).collect();
    digits.len() > 3 && digits[digits.len() - 4] & 1 == 1
}

pub(super) fn world_writable(subject: &Subject<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (source, module) in modules(subject) {
        let mut say = |path: &str, span: &Range<usize>, mode: &str| {
            if others(mode).is_some_and(|bits| bits & 2 == 2) {
                let why = format!("every user of a machine can write `{path}`: its mode is {mode}");
                let help = "take the `w` from others, and name the `group` that needs it";
                found.push(source.error(span.clone(), why).help(help));
            }
        };
        for file in &module.files {
            say(&file.path.value.0, &file.path.span, mode(file, ""));
        }
        for directory in module
            .directories
            .iter()
            .filter(|directory| !sticky(&directory.mode.0))
        {
            say(&directory.path.value.0, &directory.path.span, &directory.mode.0);
        }
    }
    found
}

pub(super) fn private_readable(subject: &Subject<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for module in subject.validated.modules().values() {
        for file in &module.file.files {
            let bytes = file
                .source
                .as_ref()
                .and_then(|path| module.files.get(&path.value.0));
            let text = bytes
                .and_then(|bytes| std::str::from_utf8(bytes).ok())
                .unwrap_or_default();
            let mode = mode(file, text);
            let readable = others(mode).is_some_and(|bits| bits & 4 == 4);
            if readable && looks_private(file, text) {
                let path = &file.path;
                let why = format!(
                    "every user of a machine can read `{}`, and it looks private: its mode is {}",
                    path.value, mode
                );
                let help = "give it `mode = \"0600\"`, or \"0640\" and the `group` that reads it";
                found.push(module.source.error(path.span.clone(), why).help(help));
            }
        }
    }
    found
}

fn looks_private(file: &FileResource, text: &str) -> bool {
    let path = file.path.value.0.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    // A public half may be read by all.
    if name.ends_with(".pub") || name.ends_with(".crt") {
        return false;
    }
    PRIVATE.iter().any(|word| name.contains(word))
        || PRIVATE_ENDS.iter().any(|end| name.ends_with(end))
        || text.contains(PRIVATE_TEXT)
        || holds_a_secret(file, text)
}

fn holds_a_secret(file: &FileResource, text: &str) -> bool {
    file.secret.is_some() || text.contains("secret(")
}

pub(super) fn ignored(subject: &Subject<'_>) -> Vec<Finding> {
    (subject.ignored.iter())
        .map(|path| {
            let why = "git ignores this file: it is checked here, and the reconciler will never see it";
            let help = "change `.gitignore`, `git add --force` the file, or take it away";
            Finding::of_file(path, why).help(help)
        })
        .collect()
}
