//! A preview as lines for people, bounded: what is cut is counted (DL-8).
//!
//! Lines carry what they are and no colours, so that a terminal can colour them and a pipe has the plain text.
//! Control characters of texts that were compared are shown escaped: a file of the fleet cannot speak to a terminal.

use meshplan_schemas::ident::NodeName;

use super::modules::How;
use super::{Group, KeyChange, Preview, ResourceChange, WalkPreview};
use crate::pure::delivery::OnTrouble;

/// The most characters of a preview, line ends counted (DL-8).
pub const PREVIEW_CHARS: usize = 60_000;
/// The most characters of each part but the changes of modules, which have what the others leave.
const PART_CHARS: usize = 5_000;
/// How many characters are kept for the line that counts what was cut.
const CUT_CHARS: usize = 200;
/// The most names of nodes in one line.
const NAMES: usize = 10;

/// What a line is, for whoever colours it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The head of a part.
    Head,
    /// Something that is new.
    New,
    /// Something that goes.
    Gone,
    /// Something that is another.
    Changed,
    /// What a reader must not miss.
    Warn,
    /// All else.
    Plain,
}

/// One line, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is.
    pub style: Style,
    /// The text.
    pub text: String,
}

fn line(style: Style, text: impl Into<String>) -> Line {
    let text = text.into();
    let text = if text.chars().any(|c| c.is_control() && c != '\t') {
        text.chars()
            .map(|c| match c {
                '\t' => "\t".to_owned(),
                c if c.is_control() => c.escape_default().to_string(),
                c => c.to_string(),
            })
            .collect()
    } else {
        text
    };
    Line { style, text }
}

/// One part: its head, and blocks of lines of which the last may be cut.
struct Part {
    head: Option<String>,
    blocks: Vec<Vec<Line>>,
    /// What one block is called where several are cut.
    word: &'static str,
}

impl Part {
    fn new(head: impl Into<String>, word: &'static str, blocks: Vec<Vec<Line>>) -> Self {
        Self {
            head: Some(head.into()),
            blocks,
            word,
        }
    }

    /// The lines, no more than so many characters together.
    fn within(self, chars: usize) -> Vec<Line> {
        if self.blocks.is_empty() {
            return Vec::new();
        }
        let mut out = vec![line(Style::Plain, "")];
        out.extend(self.head.map(|head| line(Style::Head, head)));
        let room = chars.saturating_sub(CUT_CHARS);
        let mut used: usize = out.iter().map(size).sum();
        let (mut cut_lines, mut cut_blocks) = (0_usize, 0_usize);
        for block in self.blocks {
            let full = cut_lines + cut_blocks > 0;
            if full {
                cut_blocks += 1;
                continue;
            }
            let whole = block.len();
            let mut shown = 0;
            for line in block {
                used += size(&line);
                if used > room {
                    break;
                }
                out.push(line);
                shown += 1;
            }
            match (shown, whole - shown) {
                (_, 0) => {}
                (0, _) => cut_blocks += 1,
                (_, left) => cut_lines += left,
            }
        }
        let lines = (cut_lines > 0).then(|| format!("{cut_lines} more lines of this one"));
        let blocks = (cut_blocks > 0).then(|| format!("{cut_blocks} more {}", self.word));
        let cut: Vec<String> = lines.into_iter().chain(blocks).collect();
        if !cut.is_empty() {
            out.push(line(Style::Warn, format!("  not shown: {}", cut.join(", "))));
        }
        out
    }
}

fn size(line: &Line) -> usize {
    line.text.chars().count() + 1
}

/// The preview as lines, at most [`PREVIEW_CHARS`] characters together.
#[must_use]
pub fn lines(preview: &Preview) -> Vec<Line> {
    lines_within(preview, PREVIEW_CHARS)
}

/// The preview as lines, at most so many characters together.
#[must_use]
pub fn lines_within(preview: &Preview, chars: usize) -> Vec<Line> {
    let mut head = vec![line(Style::Head, headline(preview))];
    if preview.is_nothing() {
        head.extend(warnings(preview).within(PART_CHARS));
        return head;
    }
    let before = [lasting(preview), removals(preview), left_out(preview)];
    let after = [
        policy(preview),
        members(preview),
        keys("fleet.toml", &preview.fleet_file),
        plans(preview),
        checks(preview),
        walk(preview),
        warnings(preview),
    ];
    let before: Vec<Line> = before
        .into_iter()
        .flat_map(|part| part.within(PART_CHARS))
        .collect();
    let after: Vec<Line> = after
        .into_iter()
        .flat_map(|part| part.within(PART_CHARS))
        .collect();
    let used: usize = head.iter().chain(&before).chain(&after).map(size).sum();
    let changes = modules(preview).within(chars.saturating_sub(used));
    head.extend(before);
    head.extend(changes);
    head.extend(after);
    head
}

/// What a merge would do, in one line.
#[must_use]
pub fn headline(preview: &Preview) -> String {
    let fleet = &preview.fleet;
    if preview.is_nothing() {
        return format!("nothing changes in the fleet {fleet}");
    }
    let nodes = match (preview.nodes_before, preview.nodes_after) {
        (before, after) if before == after => counted(after, "node"),
        (before, after) => format!("{before} -> {}", counted(after, "node")),
    };
    let changed = match preview.nodes_changed.len() {
        0 => "no node changes".to_owned(),
        1 => format!("{} changes", preview.nodes_changed[0]),
        count => format!("{count} of them change"),
    };
    format!("the fleet {fleet}: {nodes}, {changed}")
}

fn modules(preview: &Preview) -> Part {
    let all = preview.nodes_after;
    let blocks: Vec<_> = preview
        .modules
        .iter()
        .map(|group| group_lines(group, all))
        .collect();
    Part::new(format!("Changes on nodes ({})", blocks.len()), "changes", blocks)
}

fn group_lines(group: &Group, all: usize) -> Vec<Line> {
    let (style, verb) = match group.how {
        How::New => (Style::New, "comes to"),
        How::Gone => (Style::Gone, "goes from"),
        How::Changed => (Style::Changed, "changes on"),
    };
    let on = if group.nodes.len() == all && all > 1 {
        format!("all {all} nodes")
    } else {
        nodes(&group.nodes)
    };
    let mut out = vec![line(style, format!("module {} {verb} {on}", group.module))];
    if group.unlike {
        let same = "the same change, in content that differs from node to node";
        out.push(line(
            Style::Plain,
            format!("  {same}; shown as on {}", group.shown),
        ));
    }
    out.extend(
        group
            .facts
            .iter()
            .map(|fact| line(Style::Changed, format!("  {fact}"))),
    );
    for resource in &group.resources {
        resource_lines(resource, &mut out);
    }
    out
}

fn resource_lines(resource: &ResourceChange, out: &mut Vec<Line>) {
    let (style, sign) = match resource.how {
        How::New => (Style::New, '+'),
        How::Gone => (Style::Gone, '-'),
        How::Changed => (Style::Changed, '~'),
    };
    let target = resource
        .target
        .as_ref()
        .map(|target| format!(" {target}"))
        .unwrap_or_default();
    out.push(line(
        style,
        format!("  {sign} {} {}{target}", resource.kind, resource.name.id),
    ));
    if let Some(owner) = &resource.taken_by {
        out.push(line(
            Style::Plain,
            format!("      {owner} has it from here on: it stays"),
        ));
    }
    for field in &resource.fields {
        let text = match (&field.before, &field.after) {
            (None, Some(after)) => format!("      {} = {after}", field.key),
            (Some(before), None) => format!("      {} = {before} goes", field.key),
            (before, after) => format!(
                "      {} {} -> {}",
                field.key,
                before.as_deref().unwrap_or("none"),
                after.as_deref().unwrap_or("none")
            ),
        };
        out.push(line(Style::Plain, text));
    }
    for text in &resource.texts {
        for shown in text.lines.lines() {
            let style = match shown.chars().next() {
                Some('+') => Style::New,
                Some('-') => Style::Gone,
                _ => Style::Plain,
            };
            out.push(line(style, format!("      {shown}")));
        }
        if text.cut > 0 {
            let more = format!(
                "      {} more lines; in all {} lost, {} new",
                text.cut, text.lost, text.new
            );
            out.push(line(Style::Plain, more));
        }
    }
    if !resource.then.is_empty() {
        out.push(line(
            Style::Changed,
            format!("      then {}", resource.then.join(", ")),
        ));
    }
}

fn checks(preview: &Preview) -> Part {
    let blocks: Vec<Vec<Line>> = (preview.checks.iter())
        .map(|check| {
            let (style, sign, how) = match check.how {
                How::New => (Style::New, '+', "is new"),
                How::Gone => (Style::Gone, '-', "goes"),
                How::Changed => (Style::Changed, '~', "is another"),
            };
            let text = format!("  {sign} `{}` ({}) {how}", check.name, check.place);
            let mut block = vec![line(style, text)];
            block.extend(check.fails.as_ref().map(|why| {
                let text = format!("      as it was, {why}; the delivery waits for a go");
                line(Style::Warn, text)
            }));
            block
        })
        .collect();
    Part::new(format!("Checks ({})", blocks.len()), "checks", blocks)
}

fn lasting(preview: &Preview) -> Part {
    let blocks = preview.not_reversible.iter().map(|found| {
        let text = format!(
            "  {} on {}: {}",
            found.resource,
            counted(found.nodes, "node"),
            found.why
        );
        vec![line(Style::Warn, text)]
    });
    Part::new("What no roll-back brings back", "resources", blocks.collect())
}

fn removals(preview: &Preview) -> Part {
    let blocks = preview.removals.iter().map(|removal| {
        let target = removal
            .target
            .as_ref()
            .map(|target| format!(" {target}"))
            .unwrap_or_default();
        let text = format!(
            "  - {} {}{target} on {}",
            removal.kind,
            removal.resource,
            nodes(&removal.nodes)
        );
        vec![line(Style::Gone, text)]
    });
    let count = preview.removals.len();
    Part::new(format!("Removals ({count})"), "removals", blocks.collect())
}

fn left_out(preview: &Preview) -> Part {
    let blocks = preview.left_out.iter().map(|left| {
        let text = format!("  {} on {}: {}", left.module, nodes(&left.nodes), left.reason);
        vec![line(Style::Warn, text)]
    });
    Part::new(
        "Left out, and kept as it is on the nodes",
        "modules",
        blocks.collect(),
    )
}

fn policy(preview: &Preview) -> Part {
    let mut blocks = Vec::new();
    let mut last = None;
    for change in &preview.policy {
        let mut block = Vec::new();
        if last != Some(&change.role) {
            let file = match &change.role {
                None => "policy/base.toml".to_owned(),
                Some(role) => format!("policy/roles/{role}.toml"),
            };
            block.push(line(Style::Plain, format!("  {file}")));
            last = Some(&change.role);
        }
        block.push(key_line(&change.key, "    "));
        blocks.push(block);
    }
    let on = counted(preview.policy_nodes, "node");
    if blocks.is_empty() && preview.policy_nodes > 0 {
        let text = "  no key changes: roles, `adopted` or `take` of their records do";
        blocks.push(vec![line(Style::Plain, text)]);
    }
    Part::new(format!("Policy, another on {on}"), "keys", blocks)
}

fn members(preview: &Preview) -> Part {
    let blocks = preview.members.iter().map(|member| {
        let text = match member.nodes.len() {
            0 => format!("  {}", member.change),
            _ => format!("  {}: {}", nodes(&member.nodes), member.change),
        };
        vec![line(Style::Changed, text)]
    });
    Part::new("Fleet list", "changes", blocks.collect())
}

fn keys(head: &str, keys: &[KeyChange]) -> Part {
    let blocks = keys.iter().map(|key| vec![key_line(key, "  ")]);
    Part::new(head, "keys", blocks.collect())
}

fn key_line(key: &KeyChange, indent: &str) -> Line {
    let short = |value: &String| match value.char_indices().nth(200) {
        Some((at, _)) => format!("{} ...", value.get(..at).unwrap_or_default()),
        None => value.clone(),
    };
    match (&key.before, &key.after) {
        (None, Some(after)) => line(Style::New, format!("{indent}{} = {}", key.key, short(after))),
        (Some(before), None) => line(
            Style::Gone,
            format!("{indent}{} = {} goes", key.key, short(before)),
        ),
        (before, after) => {
            let text = |value: &Option<String>| value.as_ref().map_or_else(|| "none".to_owned(), short);
            let text = format!("{indent}{} {} -> {}", key.key, text(before), text(after));
            line(Style::Changed, text)
        }
    }
}

fn plans(preview: &Preview) -> Part {
    let blocks = preview.plans.iter().map(|plan| {
        let (style, verb) = match plan.how {
            How::New => (Style::New, "is new"),
            How::Gone => (Style::Gone, "goes"),
            How::Changed => (Style::Changed, "changes"),
        };
        let head = line(style, format!("  plans/{}.toml {verb}", plan.plan));
        let keys = plan.keys.iter().map(|key| key_line(key, "    "));
        std::iter::once(head).chain(keys).collect()
    });
    Part::new("Deploy plans", "plans", blocks.collect())
}

fn walk(preview: &Preview) -> Part {
    let Some(walk) = &preview.walk else {
        return Part::new("", "", Vec::new());
    };
    let mut blocks = Vec::new();
    let legs: Vec<String> = walk
        .legs
        .iter()
        .map(|leg| match leg.machines {
            0 => leg.scope.to_string(),
            count => format!("{} on {}", leg.scope, counted(count, "machine")),
        })
        .collect();
    blocks.push(vec![line(Style::Plain, format!("  legs: {}", legs.join("; ")))]);
    if !walk.gate.is_empty() {
        blocks.push(vec![line(
            Style::Plain,
            format!("  waits for: {}", walk.gate.join("; ")),
        )]);
    }
    if walk.machines == 0 {
        let text = "  no enrolled machine changes: there is nothing to wait for";
        blocks.push(vec![line(Style::Plain, text)]);
    } else {
        let said = walk
            .lines
            .iter()
            .map(|said| line(Style::Warn, format!("  {said}")));
        blocks.extend(said.map(|line| vec![line]));
        blocks.extend(stages(walk));
        let text = format!(
            "  takes {} of looks where all goes well, {} at most",
            duration(walk.at_least_secs),
            duration(walk.at_most_secs)
        );
        blocks.push(vec![line(Style::Plain, text)]);
    }
    if let Some(needed) = &walk.min_daemon_version {
        let text = format!(
            "  needs hosts of version {needed}: a required machine with an older one counts as failed"
        );
        blocks.push(vec![line(Style::Warn, text)]);
    }
    if !walk.left_behind.is_empty() {
        let text = format!("  left behind, in no stage: {}", nodes(&walk.left_behind));
        blocks.push(vec![line(Style::Plain, text)]);
    }
    let plan = match &walk.plan {
        Some(plan) => format!("the plan {plan} (plans/{plan}.toml)"),
        None => "the built-in plan".to_owned(),
    };
    Part::new(format!("Walked by {plan}"), "stages", blocks)
}

fn stages(walk: &WalkPreview) -> Vec<Vec<Line>> {
    let mut blocks = Vec::new();
    for (at, stage) in walk.stages.iter().enumerate() {
        let which = match &stage.nodes {
            Some(names) if !names.is_empty() => nodes(names),
            _ => match stage.machines {
                0 => "no machine".to_owned(),
                count => format!("{}, chosen by hash when it starts", counted(count, "machine")),
            },
        };
        let waves = match stage.waves {
            0 | 1 => String::new(),
            count => format!(" in {count} waves"),
        };
        let told = match stage.best_effort {
            0 => String::new(),
            count if count == stage.machines => ", best effort: told and not awaited".to_owned(),
            count => format!(", {count} of them best effort: told and not awaited"),
        };
        let looks = match stage.times {
            0 => "told, not awaited".to_owned(),
            1 => format!("1 healthy look within {}", duration(u64::from(stage.within_secs))),
            times => format!(
                "{times} healthy looks {} apart within {}",
                duration(u64::from(stage.every_secs)),
                duration(u64::from(stage.within_secs))
            ),
        };
        let tolerate = match stage.tolerate {
            0 => String::new(),
            count => format!("; {count} may fail"),
        };
        let trouble = if stage.failed == stage.silent {
            format!("failed or silent: {}", word(stage.failed))
        } else {
            format!("failed: {}, silent: {}", word(stage.failed), word(stage.silent))
        };
        let text = format!("  {}. {}: {which}{waves}{told}", at + 1, stage.name);
        let mut block = vec![line(Style::Plain, text)];
        block.push(line(Style::Plain, format!("       {looks}; {trouble}{tolerate}")));
        block.extend(
            stage
                .line
                .iter()
                .map(|said| line(Style::Warn, format!("       {said}"))),
        );
        blocks.push(block);
    }
    blocks
}

fn warnings(preview: &Preview) -> Part {
    let blocks = preview.warnings.iter().map(|finding| {
        let help = finding
            .help
            .iter()
            .map(|help| line(Style::Plain, format!("      {help}")));
        std::iter::once(line(Style::Warn, format!("  {finding}")))
            .chain(help)
            .collect()
    });
    Part::new("Warnings", "warnings", blocks.collect())
}

fn word(trouble: OnTrouble) -> &'static str {
    match trouble {
        OnTrouble::RollBack => "roll-back",
        OnTrouble::Hold => "hold",
        OnTrouble::Leave => "leave",
    }
}

/// How many, and which; of many the first few.
fn nodes(names: &[NodeName]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES).map(NodeName::as_str).collect();
    match names.len() {
        1 => shown.join(""),
        count if count > NAMES => {
            format!("{count} nodes: {} and {} more", shown.join(", "), count - NAMES)
        }
        count => format!("{count} nodes: {}", shown.join(", ")),
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Seconds as a person says them.
fn duration(secs: u64) -> String {
    match secs {
        0..120 => format!("{secs}s"),
        _ if secs.is_multiple_of(3600) => format!("{}h", secs / 3600),
        120..3600 if secs.is_multiple_of(60) => format!("{}m", secs / 60),
        120..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        _ => format!("{}h{:02}m", secs / 3600, secs % 3600 / 60),
    }
}
