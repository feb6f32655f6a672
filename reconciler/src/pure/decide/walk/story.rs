//! What happened so far, in words: the note's trailers, the summary of a stage (DL-5, DL-9, DL-10).

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::pure::delivery::{Delivery, StageRun, VerdictWord};
use crate::pure::scope::Scope;

/// What happened so far, as the note's trailers: numbers, then stages, then machines that say more (DL-9, DL-10).
pub(in crate::pure::decide) fn story(delivery: &Delivery) -> Vec<(String, String)> {
    let Some(walk) = &delivery.walk else {
        return Vec::new();
    };
    let mut facts = Vec::new();
    let mut fact = |key: &str, value: String| facts.push((key.to_owned(), value));
    if walk.epoch > 0 {
        fact("Epoch", walk.epoch.to_string());
    }
    if walk.revision > 0 {
        fact("List-Revision", walk.revision.to_string());
    }
    if walk.sequence > 0 {
        fact("Sequence", walk.sequence.to_string());
    }
    for line in &walk.lines {
        fact("Remark", line.clone());
    }
    let scopes: Vec<String> = delivery
        .legs
        .iter()
        .filter_map(|leg| match &leg.scope {
            Scope::Module(name) => Some(name.to_string()),
            Scope::Policy => Some("policy".to_owned()),
            Scope::List | Scope::Gate => None,
        })
        .collect();
    for stage in walk.stages.iter().filter(|s| !s.machines.is_empty()) {
        fact("Stage", format!("{}: {}", stage.name, summary(stage)));
        // A stage of a few machines names each; a larger one those that differ from its summary (DL-10).
        let few = stage.machines.len() <= 10;
        for machine in stage.machines.values() {
            let Some(verdict) = &machine.verdict else { continue };
            if few || verdict.word != VerdictWord::Passed {
                let word = word(verdict.word);
                fact(
                    "Machine",
                    format!(
                        "{} on {}: {word}, {}",
                        scopes.join(", "),
                        machine.name,
                        verdict.reason
                    ),
                );
            }
        }
    }
    if let Some(cause) = &walk.abort_cause {
        fact(
            "Abort-Cause",
            format!(
                "{} ({}) in {}: {}",
                cause.name, cause.node_id_short, cause.phase, cause.reason
            ),
        );
    }
    facts
}

/// `2 passed, 1 silent, 3 open`.
#[must_use]
pub fn summary(stage: &StageRun) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for machine in stage.machines.values() {
        *counts
            .entry(machine.verdict.as_ref().map_or("open", |v| word(v.word)))
            .or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    if parts.is_empty() {
        "not started".to_owned()
    } else {
        parts.join(", ")
    }
}

/// The word of a verdict.
#[must_use]
pub fn word(verdict: VerdictWord) -> &'static str {
    match verdict {
        VerdictWord::Passed => "passed",
        VerdictWord::Sent => "sent",
        VerdictWord::Failed => "failed",
        VerdictWord::Silent => "silent",
    }
}

/// `2m32s`.
#[must_use]
pub fn in_words(duration: SignedDuration) -> String {
    let secs = duration.as_secs().max(0);
    match (secs / 3600, secs / 60 % 60, secs % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, s) => format!("{h}h{m:02}m{s:02}s"),
    }
}
