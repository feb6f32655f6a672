//! A module while it is made: resources whose every value knows the place that it comes from.
//!
//! What a value may be is not said here a second time: the draft is written, read as the document that it will be, and
//! what is refused there is left out and said at the place that it came from.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use meshplan_schemas::document::ModuleFile;
use meshplan_schemas::document::read;
use meshplan_schemas::finding::{Finding, Source};
use toml_edit::Value;

use super::shorthand;

/// Where something stands in what is imported.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) source: Source,
    pub(super) span: Range<usize>,
}

/// A module while it is made.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) description: Option<String>,
    pub(super) resources: Vec<Resource>,
    /// What could not be carried over.
    pub(super) left_out: Vec<Finding>,
    ids: BTreeSet<String>,
}

/// A resource while it is made.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) kind: &'static str,
    pub(super) id: String,
    place: Place,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: &'static str,
    form: Form,
    items: Vec<Item>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    List,
    Table,
}

#[derive(Debug)]
struct Item {
    name: String,
    value: Value,
    place: Place,
}

/// What of the draft a line is: a resource, an entry of it, an item of that.
type Owner = (usize, Option<(usize, Option<usize>)>);

impl Place {
    /// That something at this place cannot be carried over, and why.
    pub(super) fn left(&self, what: &str, why: &str) -> Finding {
        let message = format!("{what} cannot be carried over: {why}");
        self.source.error(self.span.clone(), message)
    }
}

impl Draft {
    /// Says what cannot be carried over.
    pub(super) fn leave(&mut self, place: &Place, what: &str, why: &str) {
        self.left_out.push(place.left(what, why));
    }

    /// A variable of the environment, unless it is one that no repository should hold in clear: it is named then, and
    /// its value is not.
    pub(super) fn variable(&mut self, resource: &mut Resource, (name, value): (&str, &str), place: &Place) {
        if !shorthand::is_secret(name, value) {
            resource.pair("env", name, value, place);
            return;
        }
        let what = format!("the variable `{name}` of the {} `{}`", resource.kind, resource.id);
        let why = "by its name it is a secret, and everybody who reads the repository would read it";
        let help =
            "keep it with `meshplan secret set`, as a file with `NAME=value`, and name that in `env_secrets`";
        let mut finding = place.left(&what, why).help(help);
        finding.source = finding.source.replace(value, "...");
        self.left_out.push(finding);
    }

    /// An id for this name that no resource has yet.
    pub(super) fn id_for(&mut self, name: &str, kind: &str) -> String {
        let id = shorthand::id(name);
        let more = (2..).map(|number| format!("{id}-{kind}-{number}"));
        let all = [id.clone(), format!("{id}-{kind}")].into_iter().chain(more);
        let mut free = all.skip_while(|id| self.ids.contains(id));
        let id = free.next().unwrap_or(id);
        self.ids.insert(id.clone());
        id
    }

    /// Takes out what the document would not take, and says it.
    pub(super) fn judge(&mut self) {
        loop {
            let (text, owners) = self.lines();
            let Ok(source) = Source::new("module.toml", text.as_bytes().into()) else {
                return;
            };
            let mut findings = Vec::new();
            let _: Option<ModuleFile> = read::document(&source, &mut findings);
            let mut gone: BTreeSet<Owner> = BTreeSet::new();
            for finding in findings.iter().filter(|finding| finding.is_error()) {
                let line = usize::try_from(finding.line).unwrap_or_default();
                let Some(Some(owner)) = line.checked_sub(1).and_then(|line| owners.get(line)) else {
                    continue;
                };
                if gone.insert(*owner) {
                    self.say(*owner, finding);
                }
            }
            if gone.is_empty() {
                return;
            }
            // From the back, so that what is before keeps its number; what goes whole goes once.
            for (resource, part) in gone.iter().rev().copied() {
                let whole = part.is_some() && gone.contains(&(resource, None));
                let in_entry = |(entry, item): (usize, Option<usize>)| {
                    item.is_some() && gone.contains(&(resource, Some((entry, None))))
                };
                if whole || part.is_some_and(in_entry) {
                    continue;
                }
                match part {
                    None => drop(self.resources.remove(resource)),
                    Some((entry, None)) => drop(self.resources[resource].entries.remove(entry)),
                    Some((entry, Some(item))) => {
                        let entries = &mut self.resources[resource].entries;
                        entries[entry].items.remove(item);
                        if entries[entry].items.is_empty() || entries[entry].form == Form::One {
                            entries.remove(entry);
                        }
                    }
                }
            }
        }
    }

    fn say(&mut self, (resource, part): Owner, finding: &Finding) {
        let resource = &self.resources[resource];
        let (what, place) = match part {
            None => (
                format!("the {} `{}`", resource.kind, resource.id),
                &resource.place,
            ),
            Some((entry, item)) => {
                let entry = &resource.entries[entry];
                let item = entry.items.get(item.unwrap_or_default());
                (
                    format!("`{}` of the {} `{}`", entry.key, resource.kind, resource.id),
                    item.map_or(&resource.place, |item| &item.place),
                )
            }
        };
        let said = place
            .left(&what, &finding.message)
            .maybe_help(finding.help.clone());
        self.left_out.push(said);
    }

    /// The document with one item a line, and what each line is.
    fn lines(&self) -> (String, Vec<Option<Owner>>) {
        let mut text = String::new();
        let mut owners = Vec::new();
        let mut line = |words: &str, owner: Owner| {
            text.push_str(words);
            text.push('\n');
            owners.push(Some(owner));
        };
        for (at, resource) in self.resources.iter().enumerate() {
            line(&format!("[[{}]]", resource.kind), (at, None));
            line(&format!("id = {}", quoted(&resource.id)), (at, None));
            for (number, entry) in resource.ordered() {
                let owner = |item| (at, Some((number, item)));
                match entry.form {
                    Form::One => {
                        let value = entry
                            .items
                            .first()
                            .map(|item| plain(&item.value))
                            .unwrap_or_default();
                        line(&format!("{} = {value}", entry.key), owner(Some(0)));
                    }
                    Form::List => {
                        line(&format!("{} = [", entry.key), owner(None));
                        for (item, value) in entry.items.iter().enumerate() {
                            line(&format!("{},", plain(&value.value)), owner(Some(item)));
                        }
                        line("]", owner(None));
                    }
                    Form::Table => {
                        line(&format!("[{}.{}]", resource.kind, entry.key), owner(None));
                        for (item, value) in entry.items.iter().enumerate() {
                            let words = format!("{} = {}", key(&value.name), plain(&value.value));
                            line(&words, owner(Some(item)));
                        }
                    }
                }
            }
        }
        (text, owners)
    }

    /// The resources as they are written for people.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for resource in &self.resources {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "\n[[{}]]\nid = {}", resource.kind, quoted(&resource.id));
            for (_, entry) in resource.ordered() {
                let values: Vec<String> = entry.items.iter().map(|item| plain(&item.value)).collect();
                let _ = match entry.form {
                    Form::One => writeln!(text, "{} = {}", entry.key, values.concat()),
                    Form::List => {
                        let line = format!("{} = [{}]", entry.key, values.join(", "));
                        if line.len() <= 100 && (values.len() < 2 || !line.contains('{')) {
                            writeln!(text, "{line}")
                        } else {
                            let values = values.join(",\n    ");
                            writeln!(text, "{} = [\n    {values},\n]", entry.key)
                        }
                    }
                    Form::Table => {
                        let _ = writeln!(text, "\n[{}.{}]", resource.kind, entry.key);
                        let pairs = entry.items.iter().zip(&values);
                        for (item, value) in pairs {
                            let _ = writeln!(text, "{} = {value}", key(&item.name));
                        }
                        Ok(())
                    }
                };
            }
        }
        text
    }
}

impl Resource {
    pub(super) fn new(kind: &'static str, id: impl Into<String>, place: &Place) -> Self {
        Self {
            kind,
            id: id.into(),
            place: place.clone(),
            entries: Vec::new(),
        }
    }

    fn entry(&mut self, key: &'static str, form: Form) -> &mut Vec<Item> {
        let at = match self.entries.iter().position(|entry| entry.key == key) {
            Some(at) => at,
            None => {
                let items = Vec::new();
                self.entries.push(Entry { key, form, items });
                self.entries.len() - 1
            }
        };
        &mut self.entries[at].items
    }

    /// Whether it says something about this.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Takes back what it says about this.
    pub(super) fn forget(&mut self, key: &str) {
        self.entries.retain(|entry| entry.key != key);
    }

    /// A value; what stood there before is replaced.
    pub(super) fn set(&mut self, key: &'static str, value: impl Into<Value>, place: &Place) {
        self.forget(key);
        self.push_form(key, Form::One, String::new(), value.into(), place);
    }

    /// A value that is added to a list.
    pub(super) fn push(&mut self, key: &'static str, value: impl Into<Value>, place: &Place) {
        self.push_form(key, Form::List, String::new(), value.into(), place);
    }

    /// A list as a whole, empty or not; what stood there before is replaced.
    pub(super) fn list(&mut self, key: &'static str, values: Vec<String>, place: &Place) {
        self.forget(key);
        self.entry(key, Form::List);
        for value in values {
            self.push(key, value, place);
        }
    }

    /// A value of a table, by its name; a former one of this name is replaced.
    pub(super) fn pair(&mut self, key: &'static str, name: &str, value: impl Into<Value>, place: &Place) {
        self.entry(key, Form::Table).retain(|item| item.name != name);
        self.push_form(key, Form::Table, name.to_owned(), value.into(), place);
    }

    fn push_form(&mut self, key: &'static str, form: Form, name: String, value: Value, place: &Place) {
        let place = place.clone();
        self.entry(key, form).push(Item { name, value, place });
    }

    /// Tables come last: after a table's head, a plain key would be the table's.
    fn ordered(&self) -> Vec<(usize, &Entry)> {
        let mut entries: Vec<_> = self.entries.iter().enumerate().collect();
        entries.sort_by_key(|(_, entry)| entry.form == Form::Table);
        entries
    }
}

/// A value as TOML, on one line.
fn plain(value: &Value) -> String {
    match value {
        // The writer would take a literal of several lines for a text with line ends.
        Value::String(text) => quoted(text.value()),
        other => other.to_string().trim().to_owned(),
    }
}

/// A text as a TOML basic string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn key(name: &str) -> String {
    let bare = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if bare { name.to_owned() } else { quoted(name) }
}
