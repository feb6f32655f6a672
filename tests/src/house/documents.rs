//! The documents as data: the commands in their `sh` blocks and the links between them.

use super::SourceFile;

/// A command that a document tells a reader to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// File and line.
    pub place: String,
    /// `meshplan` or `meshplan-host`.
    pub program: String,
    /// What follows, without redirections, pipes and `&`.
    pub arguments: Vec<String>,
}

/// What stands for a `$VARIABLE` or `$(command)` of a document: a text that passes for a commit id.
pub const STAND_IN: &str = "0123456789abcdef0123456789abcdef01234567";

/// The `meshplan` and `meshplan-host` commands in the fenced `sh` blocks of a document, those in `$(...)` too;
/// continued lines are joined.
#[must_use]
pub fn commands(page: &SourceFile) -> Vec<Command> {
    let mut found = Vec::new();
    for (line, text) in shell_blocks(&page.text).into_iter().flatten() {
        for part in substitutions(&text)
            .into_iter()
            .chain([text])
            .flat_map(|t| split_commands(&t))
        {
            // `A=b program ...`, `until program ...`: what stands before the program is the shell's.
            let mut words = words(&part)
                .into_iter()
                .skip_while(|w| is_assignment(w) || KEYWORDS.contains(&w.as_str()));
            let Some(program) = words.next() else { continue };
            let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
            if name == "meshplan" || name == "meshplan-host" {
                found.push(Command {
                    place: format!("{}:{line}", page.path),
                    program: name,
                    arguments: words.collect(),
                });
            }
        }
    }
    found
}

const KEYWORDS: [&str; 8] = ["if", "then", "else", "while", "until", "do", "!", "exec"];

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// The `sh` blocks of a document: for each its lines with their numbers. A line that ends in `\` goes on in the next;
/// empty lines and comments are left out.
#[must_use]
pub fn shell_blocks(text: &str) -> Vec<Vec<(usize, String)>> {
    let mut blocks: Vec<Vec<(usize, String)>> = Vec::new();
    let (mut in_block, mut in_shell, mut continued) = (false, false, false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(language) = line.strip_prefix("```") {
            in_block = !in_block;
            in_shell = in_block && language == "sh";
            continued = false;
            if in_shell {
                blocks.push(Vec::new());
            }
            continue;
        }
        let Some(block) = blocks.last_mut().filter(|_| in_shell) else {
            continue;
        };
        let (body, goes_on) = line
            .strip_suffix('\\')
            .map_or((line, false), |body| (body.trim_end(), true));
        match block.last_mut() {
            Some((_, joined)) if continued => {
                joined.push(' ');
                joined.push_str(body);
            }
            _ if body.is_empty() || body.starts_with('#') => {}
            _ => block.push((number + 1, body.to_owned())),
        }
        continued = goes_on;
    }
    blocks
}

/// What stands in each `$(...)` of a line.
fn substitutions(line: &str) -> Vec<String> {
    line.split("$(")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap_or_default().to_owned())
        .collect()
}

/// Splits at `|`, `&`, `;` and before ` #`, outside quotes and `$(...)`.
fn split_commands(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut quote, mut depth, mut before) = (None, 0_usize, ' ');
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, '#') if before == ' ' => break,
            (None, '|' | '&' | ';') if depth == 0 => {
                parts.push(String::new());
                before = ' ';
                continue;
            }
            _ => {}
        }
        before = c;
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// The words of one command; redirections end it.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let (mut quote, mut depth) = (None, 0_usize);
    for c in command.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '(') => {
                depth += 1;
                word.get_or_insert_default().push(c);
            }
            (None, c) if c.is_whitespace() && depth == 0 => words.extend(word.take()),
            (None, '>' | '<') if depth == 0 && word.as_deref().is_none_or(|w| w == "2") => return words,
            (_, c) => {
                depth = if c == ')' { depth.saturating_sub(1) } else { depth };
                word.get_or_insert_default().push(c);
            }
        }
    }
    words.extend(word);
    words
        .into_iter()
        .map(|w| if w.contains('$') { STAND_IN.to_owned() } else { w })
        .collect()
}

/// The targets of `[text](target)` links in a document that point into the repository, without their `#anchor`.
#[must_use]
pub fn links(page: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in page.text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        for rest in line.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            let target = target.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target.to_owned());
            }
        }
    }
    found
}
