//! One resource before and after, whatever its kind: fields with old and new value, texts line by line.
//!
//! It reads the fields as data and not by kind, so that a kind which is new shows its changes from its first day.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::line_diff::{Mark, marked, render};
use meshplan_schemas::resource::{Content, Resource, reversal};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::How;

/// The most lines that are shown of one text.
const TEXT_LINES: usize = 60;
/// The most characters that are shown of one line or value.
const SHOWN_CHARS: usize = 240;
/// What says that no roll-back brings the former state back; it has a place of its own in a preview.
const MARKS: [&str; 2] = ["not_reversible", "forward_only"];
/// What is shown of a secret, or of a text with secrets in it: that it changes, never what (FR-9).
const SECRET: &str = "[secret]";
/// The same, where it is another after.
const ANOTHER_SECRET: &str = "[secret], changed";
/// Fields that name what follows a change.
const THEN: [&str; 3] = ["restarts", "reloads", "runs"];

/// What becomes of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceChange {
    /// The resource.
    pub name: ResourceName,
    /// Its kind, after; before where it goes.
    pub kind: String,
    /// What of the machine it is.
    pub target: Option<String>,
    /// What becomes of it.
    pub how: How,
    /// Fields that change.
    pub fields: Vec<FieldChange>,
    /// Texts that change.
    pub texts: Vec<TextChange>,
    /// What follows on the node: `restarts web.server`.
    pub then: Vec<String>,
    /// It goes, and this resource has its target after: no removal (FR-12).
    pub taken_by: Option<ResourceName>,
    /// Why no roll-back brings it back, where that is so.
    pub lasting: Option<String>,
}

/// A field with its old and its new value as JSON; none: it is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// The keys that lead to it, joined by dots.
    pub key: String,
    /// Before.
    pub before: Option<String>,
    /// After.
    pub after: Option<String>,
}

/// A text, line by line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TextChange {
    /// The field.
    pub key: String,
    /// Lines after `-`, `+` or two spaces.
    pub lines: String,
    /// How many lines are lost.
    pub lost: usize,
    /// How many are new.
    pub new: usize,
    /// How many lines of the comparison are not shown.
    pub cut: usize,
}

/// The change, and a text that is the same for equal changes; none where there is none.
pub(super) fn change(old: Option<&Resource>, new: Option<&Resource>) -> Option<(ResourceChange, String)> {
    let resource = new.or(old)?;
    if old == new {
        return None;
    }
    let how = match (old, new) {
        (None, _) => How::New,
        (_, None) => How::Gone,
        _ => How::Changed,
    };
    let mut change = ResourceChange {
        name: resource.name.clone(),
        kind: resource.kind.clone(),
        target: target(resource),
        how,
        fields: Vec::new(),
        texts: Vec::new(),
        then: then(resource),
        taken_by: None,
        lasting: lasting(old, new),
    };
    let mut key = String::new();
    if how != How::Gone {
        if let (Some(old), Some(new)) = (old, new)
            && old.kind != new.kind
        {
            change.fields.push(FieldChange {
                key: "kind".to_owned(),
                before: Some(old.kind.clone()),
                after: Some(new.kind.clone()),
            });
        }
        compare(&mut change, old, new, &mut key);
    }
    let same = format!(
        "{} {} {:?} {how:?} {:?} {:?} {key}\n",
        change.name, change.kind, change.target, change.fields, change.then
    );
    Some((change, same))
}

/// Fills in fields and texts; adds the lines that differ to `key`, but not the lines of what is new as a whole.
fn compare(change: &mut ResourceChange, old: Option<&Resource>, new: Option<&Resource>, key: &mut String) {
    let (mut was, mut is) = (Fields::of(old), Fields::of(new));
    let names: BTreeSet<String> = was.texts.keys().chain(is.texts.keys()).cloned().collect();
    for name in names {
        let (was, is) = (was.texts.remove(&name), is.texts.remove(&name));
        if was == is {
            continue;
        }
        let text = text(
            &name,
            was.as_deref().unwrap_or_default(),
            is.as_deref().unwrap_or_default(),
        );
        if change.how == How::Changed {
            key.push_str(&text.1);
        }
        change.texts.push(text.0);
    }
    let names: BTreeSet<String> = was.sealed.keys().chain(is.sealed.keys()).cloned().collect();
    for name in names {
        let change_of = match (was.sealed.get(&name), is.sealed.get(&name)) {
            (Some(was), Some(is)) if was == is => continue,
            (Some(_), Some(_)) => (Some(SECRET), Some(ANOTHER_SECRET)),
            (was, is) => (was.map(|_| SECRET), is.map(|_| SECRET)),
        };
        change.fields.push(FieldChange {
            key: name,
            before: change_of.0.map(str::to_owned),
            after: change_of.1.map(str::to_owned),
        });
    }
    let names: BTreeSet<String> = was.plain.keys().chain(is.plain.keys()).cloned().collect();
    for name in names {
        // What the target is, and what follows, is said already.
        let said = change.how == How::New
            && (name == "path" || THEN.contains(&name.as_str()) || MARKS.contains(&name.as_str()));
        let (before, after) = (was.plain.remove(&name), is.plain.remove(&name));
        if before != after && !said {
            change.fields.push(FieldChange {
                key: name,
                before: before.map(|value| cut(&value)),
                after: after.map(|value| cut(&value)),
            });
        }
    }
}

/// The fields of a resource: texts of several lines apart.
#[derive(Default)]
struct Fields {
    texts: BTreeMap<String, String>,
    plain: BTreeMap<String, String>,
    /// Values that are sealed: what is said of them, and by what they differ.
    sealed: BTreeMap<String, Digest>,
}

impl Fields {
    fn of(resource: Option<&Resource>) -> Self {
        let mut fields = Self::default();
        let Some(Value::Object(spec)) = resource.map(|r| &r.spec) else {
            return fields;
        };
        for (key, value) in spec {
            match content(key, value) {
                Some(Ok(text)) => {
                    fields.texts.insert(key.clone(), text);
                }
                Some(Err(bytes)) => {
                    let digest = Digest::of(&bytes);
                    let said = format!("{} bytes that are no text, {digest}", bytes.len());
                    fields.plain.insert(key.clone(), said);
                }
                None if (key == "content" || key == "env_sealed")
                    && resource.is_some_and(|r| r.sealed().is_some()) =>
                {
                    fields.sealed.extend(
                        resource
                            .and_then(Resource::sealed)
                            .map(|value| (key.clone(), value)),
                    );
                }
                None => fields.leaf(key, value),
            }
        }
        fields.marks(resource);
        fields
    }

    fn marks(&mut self, resource: Option<&Resource>) {
        let Some(resource) = resource else { return };
        let mut mark = |key: &str, value: String| self.plain.insert(key.to_owned(), value);
        if let Some(forward_only) = resource.forward_only {
            mark("forward_only", forward_only.to_string());
        }
        if let Some(why) = &resource.not_reversible {
            mark("not_reversible", format!("{why:?}"));
        }
    }

    fn leaf(&mut self, key: &str, value: &Value) {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                for (name, value) in inner {
                    self.leaf(&format!("{key}.{name}"), value);
                }
            }
            Value::String(text) if text.contains('\n') => {
                self.texts.insert(key.to_owned(), text.clone());
            }
            other => {
                self.plain.insert(key.to_owned(), other.to_string());
            }
        }
    }
}

/// The content of a file: a text, or bytes that are none; none where the field is something else.
fn content(key: &str, value: &Value) -> Option<Result<String, Vec<u8>>> {
    if key != "content" {
        return None;
    }
    let bytes = Content::deserialize(value).ok()?.bytes().ok()?;
    Some(String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes))
}

/// The comparison as it is shown, and the lines that differ alone.
fn text(key: &str, old: &str, new: &str) -> (TextChange, String) {
    let marked = marked(old, new);
    let count = |mark: Mark| marked.iter().filter(|(m, _)| *m == mark).count();
    let mut differ = String::new();
    for (mark, line) in marked.iter().filter(|(mark, _)| *mark != Mark::Kept) {
        // Writing into a text cannot fail.
        let _ = write!(differ, "{}{line}\u{0}", mark.sign());
    }
    let rendered = render(&marked);
    let all = rendered.lines().count();
    let lines: Vec<String> = rendered.lines().take(TEXT_LINES).map(cut).collect();
    let change = TextChange {
        key: key.to_owned(),
        cut: all - lines.len(),
        lines: lines.join("\n"),
        lost: count(Mark::Lost),
        new: count(Mark::New),
    };
    (change, differ)
}

/// Why no roll-back brings back what becomes of it: in the words of the module, or as the rule has it (DL-7).
fn lasting(old: Option<&Resource>, new: Option<&Resource>) -> Option<String> {
    let why = [old, new]
        .into_iter()
        .flatten()
        .find_map(|r| r.not_reversible.as_ref());
    if let Some(why) = why {
        return Some(cut(&format!("its module says `not_reversible`: {why}")));
    }
    let is_marked = |resource: &Resource| resource.forward_only == Some(true);
    if [old, new].into_iter().flatten().any(is_marked) {
        return Some("its module says `forward_only`: a roll-back leaves it as it is then".to_owned());
    }
    if reversal::goes_only_forward(old, new) {
        return Some("a user that was removed stays removed".to_owned());
    }
    let keys = old
        .zip(new)
        .and_then(|(old, new)| reversal::without_removed_keys(old, new));
    if keys.is_some() {
        return Some("authorized keys that were removed stay removed".to_owned());
    }
    reversal::may_not_come_back(new).map(str::to_owned)
}

fn then(resource: &Resource) -> Vec<String> {
    let mut then = Vec::new();
    for word in THEN {
        let ids = resource.spec.get(word).and_then(Value::as_array);
        for id in ids.into_iter().flatten().filter_map(Value::as_str) {
            then.push(format!("{word} {}.{id}", resource.name.module));
        }
    }
    then
}

/// What of the machine a resource is (HR-6).
pub(super) fn target(resource: &Resource) -> Option<String> {
    match resource.read() {
        Ok(kind) => kind.target().map(str::to_owned),
        Err(_) => resource
            .spec
            .get("path")
            .and_then(Value::as_str)
            .map(str::to_owned),
    }
}

/// A line or value, no longer than is shown.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{} ...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
