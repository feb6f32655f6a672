//! `journal`: the last events on this machine.

use std::fmt::Write as _;

use anyhow::Context as _;

use super::exit::Exit;
use super::words::instant_text;
use super::{Answer, Failure, Place};
use crate::edge::journal::Journal;

pub(super) fn journal(place: &Place, count: usize) -> Result<Answer, Failure> {
    let lines = Journal::at(&place.state_dir())
        .last(count)
        .context("the journal cannot be read")
        .map_err(|e| Failure::new(Exit::Internal, e))?;
    let mut words = String::new();
    for line in &lines {
        let number = line.entry.number.map(|n| format!(" {n}")).unwrap_or_default();
        let text = if line.entry.words.is_empty() {
            String::new()
        } else {
            format!(": {}", line.entry.words)
        };
        // Writing to a text does not fail.
        let _written = writeln!(
            words,
            "{} {}{number}{text}",
            instant_text(line.at),
            line.entry.event
        );
    }
    if lines.is_empty() {
        words.push_str("nothing has happened here yet\n");
    }
    Ok(Answer {
        exit: Exit::Done,
        words,
        json: serde_json::to_value(&lines).unwrap_or_default(),
    })
}
