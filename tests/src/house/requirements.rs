//! Requirement ids: the design pages define them (`**EP-2**`), tests hold them (`// holds: EP-2, RO-4`), and a list
//! says which are held by no test yet. The list may only shrink.

use std::collections::{BTreeMap, BTreeSet};

use super::SourceFile;

/// An id, with where it stands.
pub type Places = BTreeMap<String, Vec<String>>;

/// The ids that pages define: each `**XX-n` at which a bold text begins.
#[must_use]
pub fn defined(pages: &[SourceFile]) -> Places {
    let mut found = Places::new();
    for page in pages {
        for (number, line) in page.text.lines().enumerate() {
            for bold in line.split("**").skip(1).step_by(2) {
                if let Some(id) = ids(bold)
                    .into_iter()
                    .next()
                    .filter(|id| bold.starts_with(id.as_str()))
                {
                    found
                        .entry(id)
                        .or_default()
                        .push(format!("{}:{}", page.path, number + 1));
                }
            }
        }
    }
    found
}

/// The ids that `// holds:` lines name.
#[must_use]
pub fn held(sources: &[SourceFile]) -> Places {
    let mut found = Places::new();
    for file in sources {
        for (number, line) in file.text.lines().enumerate() {
            let Some(named) = line.trim_start().strip_prefix("// holds:") else {
                continue;
            };
            for id in ids(named) {
                found
                    .entry(id)
                    .or_default()
                    .push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    found
}

/// Every `XX-n` in a text, in order.
fn ids(text: &str) -> Vec<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .filter(|word| is_id(word))
        .map(str::to_owned)
        .collect()
}

fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(page, number)| {
        page.len() == 2
            && page.chars().all(|c| c.is_ascii_uppercase())
            && !number.is_empty()
            && number.chars().all(|c| c.is_ascii_digit())
    })
}

/// What differs between the list of uncovered ids and the tests, in sentences.
#[must_use]
pub fn faults(defined: &Places, held: &Places, uncovered: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let listed: BTreeSet<&String> = uncovered.iter().collect();
    let sorted: Vec<&String> = listed.iter().copied().collect();
    if uncovered.iter().collect::<Vec<_>>() != sorted {
        faults.push("the list is not sorted, or names an id twice".to_owned());
    }
    for id in &sorted {
        if !defined.contains_key(*id) {
            faults.push(format!("the list names {id}, which no design page defines"));
        }
        if let Some(places) = held.get(*id) {
            faults.push(format!(
                "the list names {id}, which is held now: {}",
                places.join(", ")
            ));
        }
    }
    for id in defined.keys() {
        if !held.contains_key(id) && !listed.contains(id) {
            faults.push(format!(
                "no test holds {id} ({}) and the list does not name it",
                defined[id].join(", ")
            ));
        }
    }
    for (id, places) in held {
        if !defined.contains_key(id) {
            faults.push(format!(
                "{} holds {id}, which no design page defines",
                places.join(", ")
            ));
        }
    }
    faults
}

/// The list with what is held now taken out; it never gains an id by itself.
#[must_use]
pub fn shrunk(uncovered: &[String], held: &Places) -> Vec<String> {
    let left: BTreeSet<&String> = uncovered.iter().filter(|id| !held.contains_key(*id)).collect();
    left.into_iter().cloned().collect()
}
