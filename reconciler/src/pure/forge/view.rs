//! A delivery on its pull request: the comment, and the status `meshplan/delivery` of its commit (DL-11).

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::{
    COMMENT_CHARS, CommitStatus, DELIVERY_CONTEXT, DESCRIPTION_CHARS, Said, StatusState, VIEW_MARKER, cut,
    fenced, plain,
};
use crate::pure::page::{DeliveryView, MachineView, StageView};

/// How many characters are kept for what stands around stages and story.
const AROUND_CHARS: usize = 4_000;
/// The most characters of the stages; the story has what they leave.
const STAGES_CHARS: usize = 20_000;
/// A stage of more machines names only those that have not passed.
const NAMED: usize = 12;

/// A word of a person on the pull request, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Who.
    pub by: String,
    /// What.
    pub word: String,
    /// What came of it; none yet.
    pub answer: Option<String>,
}

/// The status of the commit.
#[must_use]
pub fn status(commit: &CommitId, state: State, code: Code, reason: &str) -> CommitStatus {
    let said = match (state, code) {
        // What was superseded is in the newer one; nothing of it went wrong.
        (State::Delivered | State::Superseded, _) => StatusState::Success,
        (State::Failed, Code::Internal) => StatusState::Error,
        (State::RolledBack | State::Failed | State::Withdrawn, _) => StatusState::Failure,
        (State::Proposed | State::Held | State::Delivering | State::RollingBack, _) => StatusState::Pending,
    };
    let reason = reason.replace(char::is_control, " ");
    CommitStatus {
        repo: None,
        commit: commit.clone(),
        context: DELIVERY_CONTEXT.to_owned(),
        state: said,
        description: cut(&format!("{state} ({code}): {}", reason.trim()), DESCRIPTION_CHARS),
    }
}

/// The comment.
#[must_use]
pub fn comment(number: u64, view: &DeliveryView, words: &[Answered]) -> Said {
    let mut text = format!(
        "{VIEW_MARKER}\n**{}** (`{}`) since {}: {}\n\n`{}`\n",
        view.state,
        view.code,
        view.since.strftime("%F %TZ"),
        plain(&view.reason),
        view.name,
    );
    if let Some(cause) = &view.abort_cause {
        text.push_str(&format!("\nCause: {}\n", plain(cause)));
    }
    text.push_str(&answer(view));
    let stages = stages(view);
    if !stages.is_empty() {
        text.push_str(&format!("\n{}", fenced(&stages)));
    }
    for said in words.iter().rev().take(10).rev() {
        let answer = said
            .answer
            .as_deref()
            .unwrap_or("taken down, the next pass answers");
        text.push_str(&format!(
            "\n- {} said {}: {}",
            plain(&said.by),
            plain(&said.word),
            plain(answer)
        ));
    }
    if !words.is_empty() {
        text.push('\n');
    }
    let left = COMMENT_CHARS - AROUND_CHARS - text.chars().count().min(COMMENT_CHARS - AROUND_CHARS);
    text.push_str(&format!(
        "\nThe record, as `git log --notes=mesh-plan` shows it:\n\n{}",
        fenced(&story(view, left))
    ));
    if !view.state.is_final() {
        text.push_str(
            "\nPeople who may write here can say `/plans go`, `hold`, `stop`, `withdraw` or `retry` in a comment of its own line.\n",
        );
    }
    Said {
        number,
        marker: VIEW_MARKER.to_owned(),
        body: text,
    }
}

/// What it waits for, as `meshplan why` says it. Of a walk on its way the stages say what is looked at: each look would be an
/// edit.
fn answer(view: &DeliveryView) -> String {
    let Some(why) = &view.why else {
        return String::new();
    };
    let mut said = Vec::new();
    if view.state != State::Delivering {
        said.push(format!("Waits for: {}", plain(&why.waits_for)));
    }
    said.push(format!("Rule: {}", plain(&why.rule)));
    said.push(format!("Next: {}", plain(&why.next)));
    said.extend(why.deadline.map(|at| format!("Until: {}", at.strftime("%F %TZ"))));
    said.extend(
        why.command
            .iter()
            .map(|command| format!("Command: {}", plain(command))),
    );
    format!(
        "\n{}\n",
        said.iter()
            .map(|line| format!("- {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    )
}

/// The stages with their machines: all of a small one, of a large one those that have not passed.
fn stages(view: &DeliveryView) -> String {
    let mut lines = Vec::new();
    for stage in &view.stages {
        let mark = if stage.current { ">" } else { " " };
        lines.push(format!("{mark} {}: {}", stage.name, stage.summary));
        lines.extend(machines(stage));
    }
    lines.extend(
        view.left_behind
            .iter()
            .map(|machine| format!("  {}", machine.line())),
    );
    lines.extend(view.remarks.iter().map(|remark| format!("  remark: {remark}")));
    if !view.outstanding.is_empty() {
        lines.push(format!("  not back yet: {}", view.outstanding.join(", ")));
    }
    lines.extend(view.skipped.iter().map(|skipped| format!("  {skipped}")));
    shortened(&lines, STAGES_CHARS, Keep::First)
}

fn machines(stage: &StageView) -> impl Iterator<Item = String> + '_ {
    let all = stage.machines.len() <= NAMED;
    let told =
        move |machine: &&MachineView| all || !matches!(machine.word.as_str(), "passed" | "sent" | "open");
    stage
        .machines
        .iter()
        .filter(told)
        // How often an open one was healthy so far is no news: each look would be an edit.
        .map(|machine| match machine.word.as_str() {
            "open" => format!("    {} open", machine.name),
            _ => format!("    {}", machine.line()),
        })
}

fn story(view: &DeliveryView, chars: usize) -> String {
    let lines: Vec<String> = view
        .story
        .iter()
        .flat_map(|block| block.lines())
        .map(str::to_owned)
        .collect();
    shortened(&lines, chars, Keep::Last)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    First,
    Last,
}

/// As many lines as fit, the first ones or the last ones; what is left out is counted.
fn shortened(lines: &[String], chars: usize, keep: Keep) -> String {
    let size = |line: &String| line.chars().count() + 1;
    if lines.iter().map(size).sum::<usize>() <= chars {
        return lines.join("\n");
    }
    let mut left = chars.saturating_sub(100);
    let mut fits = |line: &&String| {
        let fits = size(line) <= left;
        left = left.saturating_sub(size(line));
        fits
    };
    let mut kept: Vec<&String> = match keep {
        Keep::First => lines.iter().take_while(&mut fits).collect(),
        Keep::Last => lines.iter().rev().take_while(&mut fits).collect(),
    };
    let cut = format!(
        "not shown: {} more lines; `meshplan deliveries show` has them",
        lines.len() - kept.len()
    );
    match keep {
        Keep::First => kept.push(&cut),
        Keep::Last => {
            kept.push(&cut);
            kept.reverse();
        }
    }
    let texts: Vec<&str> = kept.into_iter().map(String::as_str).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests;
