//! Keeps the values of secrets out of what commands say (HR-11).
//!
//! It stands alone, and is one for the process, because no caller of a command may forget it: values are added where they
//! are opened, and the command runner takes them out of all output before anybody has it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use data_encoding::{BASE64, HEXLOWER};
use zeroize::Zeroizing;

/// What takes a value's place.
const HIDDEN: &str = "[secret]";
/// Shorter values, and shorter lines of longer ones, are not looked for: they are in every text.
const SHORTEST: usize = 4;
/// So many texts are looked for; those that were added first are forgotten.
const MOST: usize = 4096;

static TEXTS: Mutex<Vec<Zeroizing<String>>> = Mutex::new(Vec::new());

fn texts() -> MutexGuard<'static, Vec<Zeroizing<String>>> {
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks for a value from now on: as it is, line by line, in base64 and in hexadecimal digits.
pub fn hide(value: &[u8]) {
    let whole = value.trim_ascii();
    let mut forms = Vec::new();
    if let Ok(text) = std::str::from_utf8(whole) {
        forms.push(Zeroizing::new(text.to_owned()));
        let lines = text.lines().map(str::trim).filter(|line| line.len() < text.len());
        forms.extend(lines.map(|line| Zeroizing::new(line.to_owned())));
    }
    for bytes in [whole, value] {
        forms.push(Zeroizing::new(BASE64.encode(bytes)));
        forms.push(Zeroizing::new(HEXLOWER.encode(bytes)));
    }
    let mut texts = texts();
    for form in forms.into_iter().filter(|form| form.len() >= SHORTEST) {
        if !texts.contains(&form) {
            texts.push(form);
        }
    }
    let over = texts.len().saturating_sub(MOST);
    texts.drain(..over);
}

/// Whether anything is looked for.
#[must_use]
pub fn hides_any() -> bool {
    !texts().is_empty()
}

/// A text without the values that were added.
#[must_use]
pub fn scrubbed(text: String) -> String {
    let texts = texts();
    let mut found: Vec<&str> = texts
        .iter()
        .map(|hidden| hidden.as_str())
        .filter(|hidden| text.contains(hidden))
        .collect();
    // The longest first: a value may be a part of another.
    found.sort_by_key(|hidden| std::cmp::Reverse(hidden.len()));
    found
        .into_iter()
        .fold(text, |text, hidden| text.replace(hidden, HIDDEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HR-11
    #[test]
    fn a_value_is_taken_out_however_it_is_written() {
        hide(b"zq-hunter-0815\n");
        hide(b"zq-first line\nzq-second = line\n");
        for said in [
            "login with zq-hunter-0815 failed".to_owned(),
            format!("Authorization: Basic {}", BASE64.encode(b"zq-hunter-0815")),
            HEXLOWER.encode(b"zq-hunter-0815\n"),
            "line 2: zq-second = line: no such key".to_owned(),
        ] {
            let scrubbed = scrubbed(said);
            assert!(scrubbed.contains(HIDDEN), "{scrubbed}");
            assert!(
                !scrubbed.contains("0815") && !scrubbed.contains("zq-"),
                "{scrubbed}"
            );
        }
        assert_eq!(scrubbed("nothing of it".to_owned()), "nothing of it");
    }
}
