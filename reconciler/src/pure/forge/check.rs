//! The preview on a pull request: its comment, and the status `meshplan/check` (DL-8).

use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::CommitId;

use super::{
    CHECK_CONTEXT, COMMENT_CHARS, CommitStatus, DESCRIPTION_CHARS, PREVIEW_MARKER, Said, StatusState, cut,
    fenced,
};
use crate::pure::compose::{Composed, ComposedNode};
use crate::pure::decide::after_secs;
use crate::pure::preview::Preview;
use crate::pure::preview::outcome::Outcome;
use crate::pure::preview::text::headline;
use crate::pure::snapshot::Nodes;

/// How many characters are kept for what stands around the preview.
const AROUND_CHARS: usize = 2_000;

/// Which merge was previewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Of<'p> {
    /// The pull request.
    pub number: u64,
    /// What it would be merged into, by name.
    pub branch: &'p str,
    /// The commit of that.
    pub base: &'p CommitId,
    /// The commit that would be merged.
    pub head: &'p CommitId,
    /// Names of machines that it would change, that are required, and that are not heard now.
    pub absent: &'p [String],
}

/// The comment.
#[must_use]
pub fn comment(of: &Of<'_>, outcome: &Outcome) -> Said {
    let (base, head) = (of.base.short(), of.head.short());
    let lead = match outcome {
        Outcome::Preview(preview) if preview.is_nothing() => "Merged, this changes nothing on any machine.",
        Outcome::Preview(_) => "What merging this would do:",
        Outcome::Refused { .. } => "This cannot be delivered as it is.",
        Outcome::Conflicts(_) => "This cannot be merged as it is.",
    };
    let text = outcome.text(
        of.branch,
        &format!("#{}", of.number),
        COMMENT_CHARS - AROUND_CHARS,
    );
    let mut notes = Vec::new();
    if !of.absent.is_empty() {
        let (shown, more) = (of.absent.len().min(10), of.absent.len().saturating_sub(10));
        let names = of.absent.get(..shown).unwrap_or_default().join(", ");
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        notes.push(format!("Required and not heard now: `{names}`{more}."));
    }
    if let Outcome::Preview(preview) = outcome
        && preview.secrets_not_opened > 0
    {
        notes.push(format!(
            "No secret was opened for this ({} in the tree): one that is encrypted anew counts as changed.",
            preview.secrets_not_opened
        ));
    }
    notes.push(format!(
        "`{head}` merged into `{}` at `{base}`; `meshplan preview {base} {head}` prints the same in a clone.",
        of.branch
    ));
    Said {
        number: of.number,
        marker: PREVIEW_MARKER.to_owned(),
        body: format!(
            "{PREVIEW_MARKER}\n{lead}\n\n{}\n{}\n",
            fenced(&text),
            notes.join("\n")
        ),
    }
}

/// The status of the head.
#[must_use]
pub fn status(of: &Of<'_>, outcome: &Outcome) -> CommitStatus {
    let (state, description) = match outcome {
        Outcome::Preview(preview) => (StatusState::Success, told(preview)),
        Outcome::Refused { what, findings } => {
            (StatusState::Failure, format!("{what}: {}", errors(findings)))
        }
        Outcome::Conflicts(paths) => {
            let first = paths.first().map_or("", String::as_str);
            let conflicts = match paths.len() {
                1 => format!("a conflict in {first}"),
                count => format!("{count} conflicts, the first in {first}"),
            };
            (StatusState::Failure, conflicts)
        }
    };
    CommitStatus {
        repo: None,
        commit: of.head.clone(),
        context: CHECK_CONTEXT.to_owned(),
        state,
        description: cut(&description.replace(char::is_control, " "), DESCRIPTION_CHARS),
    }
}

/// A preview in one line, with the former checks that fail first: whoever merges it must give a word for them.
fn told(preview: &Preview) -> String {
    let failing: Vec<&str> = preview
        .failing_checks()
        .map(|check| check.name.as_str())
        .collect();
    match failing.as_slice() {
        [] => headline(preview),
        [only] => format!(
            "it takes away or changes the check `{only}`, which fails then; {}",
            headline(preview)
        ),
        [first, more @ ..] => format!(
            "it takes away or changes the check `{first}` and {} more, which fail then; {}",
            more.len(),
            headline(preview)
        ),
    }
}

/// The required machines that a merge would change and that are not heard now, or are paused: what the delivery would wait for or pass by
/// (DL-19).
#[must_use]
pub fn absent(preview: &Preview, after: &Composed, heard: &Nodes, now: Timestamp) -> Vec<String> {
    let changed = |node: &&Arc<ComposedNode>| preview.nodes_changed.contains(&node.name);
    let is_heard = |node: &&Arc<ComposedNode>| {
        let state = heard.get(&node.id);
        if state.is_some_and(|state| state.paused().is_some()) {
            return false;
        }
        let at = state.and_then(|state| state.heard_at);
        // One that was never heard from is in no gate (DL-6).
        at.is_none_or(|at| now < after_secs(at, after.fleet.present_secs))
    };
    let awaited = after
        .nodes
        .values()
        .filter(|node| node.update_class == UpdateClass::Required);
    let mut names: Vec<String> = awaited
        .filter(changed)
        .filter(|node| !is_heard(node))
        .map(|node| node.name.to_string())
        .collect();
    names.sort();
    names
}

fn errors(findings: &[Finding]) -> String {
    let errors: Vec<&Finding> = findings.iter().filter(|f| f.is_error()).collect();
    let Some(first) = errors.first() else {
        return "no error is told".to_owned();
    };
    let place = match (first.file.as_str(), first.line) {
        ("", _) => String::new(),
        (file, 0) => format!("{file}: "),
        (file, line) => format!("{file}:{line}: "),
    };
    match errors.len() {
        1 => format!("{place}{}", first.message),
        count => format!("{count} errors, the first {place}{}", first.message),
    }
}

#[cfg(test)]
mod tests;
