//! The reference pages of the documents, made from the types that read them (FR-16): every key with its type, its
//! default and its meaning, a table of the page for each table of the document.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::published;

/// Each document with the place where it stands in a fleet repo.
pub const PLACES: [(&str, &str); 8] = [
    ("checks", "checks/<name>.toml"),
    ("fleet", "fleet.toml"),
    ("module", "modules/<module>/module.toml"),
    ("node", "nodes/**/<name>.toml"),
    ("plan", "plans/<plan>.toml"),
    ("policy", "policy/base.toml, policy/roles/<role>.toml"),
    ("retired", "secrets/retired.toml"),
    ("rotations", "rotations.toml"),
];

/// The page of a document as Markdown; none for a name that is none of [`published::NAMES`].
#[must_use]
pub fn page(name: &str) -> Option<String> {
    let (_, place) = PLACES.iter().find(|(of, _)| *of == name)?;
    let schema = published::value(name);
    let mut text = format!(
        "<!-- Made from the types by `MESHPLAN_BLESS=1 cargo nextest run -E 'test(reference_pages)'`: change those. -->\n\
         # `{place}`\n\n{}\n\n\
         `meshplan schema {name}` prints the same for editors. A key that is not listed here is an error.\n",
        words(&schema)
    );
    table(&schema, "", &mut text);
    Some(text)
}

/// The index of all pages.
#[must_use]
pub fn index() -> String {
    let mut text =
        "<!-- Made from the types, like the pages that it names. -->\n# The documents of a fleet repo\n\n"
            .to_owned();
    for (name, place) in PLACES {
        let schema = published::value(name);
        let _ = writeln!(text, "- [`{place}`]({name}.md): {}", words(&schema));
    }
    text
}

fn words(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// A table of the document, then those in it.
fn table(schema: &Value, path: &str, text: &mut String) {
    let none = Map::new();
    let keys = schema["properties"].as_object().unwrap_or(&none);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    text.push_str("\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
    for (key, of) in keys {
        let default = match (&of["default"], required.contains(&key.as_str())) {
            (_, true) => "needed".to_owned(),
            (Value::Null, false) => String::new(),
            (default, false) => format!("`{}`", cell(&default.to_string())),
        };
        let _ = writeln!(
            text,
            "| `{key}` | {} | {default} | {} |",
            cell(&type_of(of)),
            cell(words(of))
        );
    }
    for (key, of) in keys {
        let inner = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        let (of, heading) = match (of["items"].is_object(), of["additionalProperties"].is_object()) {
            (true, _) => (&of["items"], format!("[[{inner}]]")),
            (false, true) => (&of["additionalProperties"], format!("[{inner}.<name>]")),
            (false, false) => (of, format!("[{inner}]")),
        };
        if of["properties"].is_object() {
            let _ = write!(text, "\n## `{heading}`\n\n{}\n", words(of));
            table(of, heading.trim_matches(['[', ']']), text);
        }
    }
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn type_of(schema: &Value) -> String {
    if let Some(choices) = schema["anyOf"].as_array() {
        let words: Vec<String> = choices.iter().map(type_of).collect();
        return words.join(", or ");
    }
    if !schema["const"].is_null() {
        return format!("`{}`", schema["const"]);
    }
    if let Some(choices) = schema["enum"].as_array() {
        let words: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        return format!("one of {}", words.join(", "));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(only) => vec![only],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let words: Vec<String> = types.into_iter().map(|word| one_type(word, schema)).collect();
    if words.is_empty() {
        "a value".to_owned()
    } else {
        words.join(", or ")
    }
}

fn one_type(word: &str, schema: &Value) -> String {
    match word {
        "string" => match schema["pattern"].as_str() {
            Some(pattern) => format!("text, `{pattern}`"),
            None => "text".to_owned(),
        },
        "integer" => match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
            (Some(min), Some(max)) => format!("whole number, {min} to {max}"),
            (Some(min), None) => format!("whole number, {min} or more"),
            _ => "whole number".to_owned(),
        },
        "boolean" => "true or false".to_owned(),
        "array" if schema["items"]["properties"].is_object() => "tables".to_owned(),
        "array" if schema["items"].is_object() => format!("array of: {}", type_of(&schema["items"])),
        "array" => "array".to_owned(),
        "object" if schema["properties"].is_object() => "table".to_owned(),
        "object" if schema["additionalProperties"]["properties"].is_object() => "tables by name".to_owned(),
        "object" if schema["additionalProperties"].is_object() => {
            format!("table of free keys: {}", type_of(&schema["additionalProperties"]))
        }
        "object" => "table of free keys".to_owned(),
        other => other.to_owned(),
    }
}
