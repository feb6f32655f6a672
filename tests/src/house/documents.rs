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

/// The `meshplan` and `meshplan-host` commands in the fenced `sh` blocks of a document, continued lines joined.
#[must_use]
pub fn commands(page: &SourceFile) -> Vec<Command> {
    let mut found = Vec::new();
    for (line, text) in shell_lines(&page.text) {
        for part in split_commands(&text) {
            // `A=b program ...`: assignments before the program are the shell's.
            let mut words = words(&part).into_iter().skip_while(|w| is_assignment(w));
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

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// The lines of `sh` blocks with their numbers; a line that ends in `\` goes on in the next; comments are left out.
fn shell_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let (mut in_block, mut in_shell, mut continued) = (false, false, false);
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start();
        if let Some(language) = fence.strip_prefix("```") {
            in_block = !in_block;
            in_shell = in_block && language.trim() == "sh";
            continued = false;
            continue;
        }
        if !in_shell {
            continue;
        }
        let (body, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(body) => (body, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, joined)) if continued => {
                joined.push(' ');
                joined.push_str(body.trim());
            }
            _ => lines.push((number + 1, body.trim().to_owned())),
        }
        continued = goes_on;
    }
    lines.retain(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
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
