//! The syntax of systemd's files (systemd.syntax(7)), which Podman's quadlets share: sections, assignments, lines that
//! go on, and an empty value that takes back what was said before.

use meshplan_schemas::finding::{Finding, Source};

use super::draft::{Draft, Place, Resource};
use super::shorthand::{Quotes, words};

/// An assignment.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: String,
    pub(super) place: Place,
}

impl Line {
    /// `key` of `[section]`, as it is said to people.
    pub(super) fn what(&self) -> String {
        format!("`{}` of `[{}]`", self.key, self.section)
    }

    /// The value without specifiers: `%%` is a percent sign, any other depends on the machine.
    pub(super) fn text(&self) -> Result<String, String> {
        let mut text = String::new();
        let mut chars = self.value.chars();
        while let Some(c) = chars.next() {
            match (c, c == '%') {
                (_, true) => match chars.next() {
                    Some('%') => text.push('%'),
                    Some(other) => {
                        return Err(format!(
                            "`%{other}` is filled in on the machine: write what it stands for"
                        ));
                    }
                    None => text.push('%'),
                },
                (c, false) => text.push(c),
            }
        }
        Ok(text)
    }

    /// The words of the value.
    pub(super) fn words(&self) -> Result<Vec<String>, String> {
        words(&self.text()?, Quotes::Systemd)
    }

    pub(super) fn truth(&self) -> Result<bool, String> {
        match self.value.to_ascii_lowercase().as_str() {
            "1" | "yes" | "true" | "on" | "y" | "t" => Ok(true),
            "0" | "no" | "false" | "off" | "n" | "f" => Ok(false),
            other => Err(format!("`{other}` is neither yes nor no")),
        }
    }
}

/// The assignments of a file, in their order.
///
/// # Errors
/// A line is none.
pub(super) fn read(source: &Source) -> Result<Vec<Line>, Finding> {
    let mut lines: Vec<Line> = Vec::new();
    let mut section = String::new();
    let mut at = 0;
    // An assignment that goes on in the next line.
    let mut open: Option<Line> = None;
    for raw in source.text().split('\n') {
        let span = {
            let indent = raw.len() - raw.trim_start().len();
            at + indent..at + raw.trim_end().len().max(indent)
        };
        at += raw.len() + 1;
        let line = raw.trim();
        if line.starts_with(['#', ';']) || (line.is_empty() && open.is_none()) {
            continue;
        }
        let (words, goes_on) = match line.strip_suffix('\\') {
            Some(words) => (words.trim_end(), true),
            None => (line, false),
        };
        let place = Place {
            source: source.clone(),
            span: span.clone(),
        };
        let mut current = if let Some(mut former) = open.take() {
            former.value.push(' ');
            former.value.push_str(words);
            former
        } else if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        } else if let Some((key, value)) = words.split_once('=') {
            Line {
                section: section.clone(),
                key: key.trim_end().to_owned(),
                value: value.trim_start().to_owned(),
                place,
            }
        } else {
            return Err(source.error(span, "this line is neither `[Section]` nor `Key=value`"));
        };
        if current.section.is_empty() {
            return Err(source.error(span, "this stands before the first `[Section]`"));
        }
        if goes_on {
            open = Some(current);
            continue;
        }
        current.value.truncate(current.value.trim_end().len());
        end(&mut lines, current);
    }
    if let Some(line) = open {
        end(&mut lines, line);
    }
    Ok(lines)
}

fn end(lines: &mut Vec<Line>, line: Line) {
    if line.value.is_empty() {
        lines.retain(|former| (&former.section, &former.key) != (&line.section, &line.key));
    } else {
        lines.push(line);
    }
}

/// `Environment=`: assignments with quotes around each.
pub(super) fn environment(line: &Line, resource: &mut Resource, draft: &mut Draft) -> Result<(), String> {
    for word in line.words()? {
        let (name, value) = word.split_once('=').ok_or("a word of it is no `NAME=value`")?;
        draft.variable(resource, (name, value), &line.place);
    }
    Ok(())
}

/// `EnvironmentFile=`: a file of the machine that must be there.
pub(super) fn environment_file(line: &Line, resource: &mut Resource) -> Result<(), String> {
    let path = line.text()?;
    if path.starts_with('-') {
        return Err("a file that may be missing cannot be said: name one that is there".to_owned());
    }
    if !path.starts_with('/') {
        return Err(format!("`{path}` is no whole path on the machine"));
    }
    resource.push("env_files", path, &line.place);
    Ok(())
}

/// `Restart=`.
pub(super) fn restart(line: &Line, resource: &mut Resource) -> Result<(), String> {
    let word = match line.text()?.as_str() {
        "no" => "never",
        "always" => "always",
        "on-failure" => "on-failure",
        other => {
            return Err(format!(
                "meshplan has no restart `{other}`: `always`, `on-failure`, `never`"
            ));
        }
    };
    resource.set("restart", word, &line.place);
    Ok(())
}

/// `[Unit]` and `[Install]`, which say the same for services and for quadlets.
pub(super) fn around(draft: &mut Draft, line: &Line) -> Result<(), String> {
    match (line.section.as_str(), line.key.as_str()) {
        ("Unit", "Description") => {
            draft.description = Some(line.text()?);
            Ok(())
        }
        ("Unit", "Documentation") => Ok(()),
        ("Install", "WantedBy") => {
            let at_boot = ["multi-user.target", "default.target", "timers.target"];
            match line.words()?.iter().find(|word| !at_boot.contains(&word.as_str())) {
                None => Ok(()),
                Some(other) => Err(format!("what is declared starts at boot, not with `{other}`")),
            }
        }
        ("Unit", "After" | "Before" | "Wants" | "Requires" | "BindsTo" | "PartOf" | "Requisite") => Err(
            "resources are applied in the order of the document; what it needs of the machine, a `[[service]]` before \
             it says"
                .to_owned(),
        ),
        (section, _) if section.starts_with("X-") => Ok(()),
        _ => Err("meshplan has nothing for it".to_owned()),
    }
}
