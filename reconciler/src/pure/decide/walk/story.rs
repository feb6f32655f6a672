//! What happened so far, in words: the note's trailers, the summary of a stage (DL-5, DL-9, DL-10).

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::NodeId;

use crate::pure::decide::classes;
use crate::pure::delivery::{Delivery, LeftBehind, MachineRun, StageRun, VerdictWord, Walk};
use crate::pure::scope::Scope;

/// So many machines are named in a sentence; the rest is counted.
const NAMED: usize = 10;

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
        fact("Stage", format!("{}: {}", stage.name, summary(walk, stage)));
        // A stage of a few machines names each; a larger one those that differ from its summary (DL-10).
        let few = stage.machines.len() <= 10;
        for (id, machine) in &stage.machines {
            let class = classes::of(walk, id);
            let (word, reason) = match &machine.verdict {
                Some(verdict) if few || verdict.word != VerdictWord::Passed => {
                    (word(verdict.word), verdict.reason.as_str())
                }
                None if few && class != UpdateClass::Required => (TOLD, not_confirmed(machine)),
                _ => continue,
            };
            let class = match class {
                UpdateClass::Required => String::new(),
                other => format!(" ({})", classes::word(other)),
            };
            let scopes = scopes.join(", ");
            fact(
                "Machine",
                format!("{scopes} on {}{class}: {word}, {reason}", machine.name),
            );
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

/// A machine that is not awaited and has no verdict.
const TOLD: &str = "told";

/// The word for where a machine of a walk stands.
#[must_use]
pub fn standing(walk: &Walk, id: &NodeId, machine: &MachineRun) -> &'static str {
    match &machine.verdict {
        Some(verdict) => word(verdict.word),
        None if classes::of(walk, id) == UpdateClass::Required => "open",
        None => TOLD,
    }
}

/// What the last look at a machine without a verdict saw.
#[must_use]
pub fn not_confirmed(machine: &MachineRun) -> &str {
    if machine.last.is_empty() {
        "not confirmed yet"
    } else {
        &machine.last
    }
}

/// When a machine that is left behind follows, in words.
#[must_use]
pub fn follows(left: &LeftBehind) -> String {
    match (left.pinned, left.follows, left.sequence) {
        (true, ..) => "pinned, it does not follow".to_owned(),
        (_, Some(follows), _) => format!("it follows at {}", follows.at),
        (_, None, 0) => "it gets this later".to_owned(),
        (_, None, sequence) => format!("followed with sequence {sequence}"),
    }
}

/// Who is left behind what was accepted, as the note's trailers.
pub(super) fn left_behind(delivery: &Delivery) -> Vec<(String, String)> {
    let left = &delivery.left_behind;
    let named = left.values().take(NAMED);
    let mut said: Vec<String> = named
        .map(|entry| format!("{}: {}", entry.name, follows(entry)))
        .collect();
    if left.len() > NAMED {
        said.push(format!("and {} more", left.len() - NAMED));
    }
    said.into_iter()
        .map(|value| ("Left-Behind".to_owned(), value))
        .collect()
}

/// What a roll-back left as it is, as the note's trailers.
pub(super) fn stays(walk: &Walk) -> Vec<(String, String)> {
    let said = walk.stays.iter().map(|(name, machines)| {
        let machines = match machines {
            1 => "1 machine".to_owned(),
            n => format!("{n} machines"),
        };
        let value = format!("{name} on {machines}: it goes only forward and is left as it is");
        ("Stays".to_owned(), value)
    });
    said.collect()
}

/// What a roll-back does not restore because it needs a retired value: the sentence, and the note's trailers (DL-7).
pub(super) fn spent(walk: &Walk) -> (String, Vec<(String, String)>) {
    let said = walk.spent.iter().map(|(name, spent)| {
        let modules: Vec<String> = spent.kept.keys().map(ToString::to_string).collect();
        let machines: BTreeSet<&NodeId> = spent.kept.values().flatten().collect();
        let machines = match machines.len() {
            1 => "1 machine".to_owned(),
            n => format!("{n} machines"),
        };
        let words = format!(
            "the former content of {} needs a value of the secret `{name}` that is retired ({}), and is not restored on \
             {machines}",
            modules.join(", "),
            spent.why
        );
        (name.to_string(), words)
    });
    let said: Vec<(String, String)> = said.collect();
    let words: Vec<&str> = said.iter().map(|(_, words)| words.as_str()).collect();
    let reason = format!(
        "{}; what is there stays: merge a commit that mends it",
        words.join("; ")
    );
    let facts = said
        .iter()
        .map(|(name, _)| ("Retired-Value".to_owned(), name.clone()));
    (reason, facts.collect())
}

/// What a roll-back left as it is, behind a sentence that says what it brought back; nothing as a rule.
pub(in crate::pure::decide) fn but_for(walk: &Walk) -> String {
    let mut names: Vec<String> = walk.stays.keys().take(NAMED).map(ToString::to_string).collect();
    match walk.stays.len().saturating_sub(NAMED) {
        0 if names.is_empty() => return String::new(),
        0 => {}
        more => names.push(format!("{more} more")),
    }
    format!("; forward-only, left as it is: {}", names.join(", "))
}

/// A few names, and how many more there are.
pub(super) fn few<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How a walk ended well, in a sentence.
pub(super) fn over(delivery: &Delivery, ordered: usize, told: usize) -> String {
    let late = delivery
        .walk
        .as_ref()
        .map(classes::stragglers)
        .unwrap_or_default();
    let late: Vec<&str> = late.into_iter().map(|m| m.name.as_str()).collect();
    let left: Vec<&str> = delivery.left_behind.values().map(|l| l.name.as_str()).collect();
    let short = delivery
        .walk
        .as_ref()
        .map(classes::fell_short)
        .unwrap_or_default();
    let short: Vec<&str> = short.into_iter().map(|m| m.name.as_str()).collect();
    let passed = ordered - late.len() - short.len();
    let who = match (late.is_empty(), short.is_empty()) {
        (_, false) => "passed".to_owned(),
        (true, true) => "every machine of the plan passed".to_owned(),
        (false, true) => "every machine that is awaited passed".to_owned(),
    };
    let mut said = match (ordered, told) {
        (0, 0) => "accepted; no machine is changed by it".to_owned(),
        (0, told) => format!("{told} new or absent machines get it when they are heard from"),
        (_, 0) => format!("{who}: {passed}"),
        (_, told) => format!("{who}: {passed}; {told} more get it when heard from"),
    };
    if !short.is_empty() {
        said.push_str(&format!("; did not pass and were left: {}", few(&short)));
    }
    if !late.is_empty() {
        said.push_str(&format!("; told and not confirmed: {}", few(&late)));
    }
    if !left.is_empty() {
        said.push_str(&format!("; left behind: {}", few(&left)));
    }
    said
}

/// `2 passed, 1 silent, 3 open`.
#[must_use]
pub fn summary(walk: &Walk, stage: &StageRun) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, machine) in &stage.machines {
        *counts.entry(standing(walk, id, machine)).or_default() += 1;
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
