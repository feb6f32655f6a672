//! JSON Schemas of the documents, made from the types that read them (FR-2): what editors complete and check.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{ChecksFile, FleetFile, ModuleFile, NodeFile, PlanFile, PolicyFile, RetiredFile, RotationsFile};

/// The names that [`schema`] knows.
pub const NAMES: [&str; 8] = [
    "checks",
    "fleet",
    "module",
    "node",
    "plan",
    "policy",
    "retired",
    "rotations",
];

/// The JSON Schema of a kind of document, as text that ends in a line end.
#[must_use]
pub fn schema(name: &str) -> Option<String> {
    let schema = schema_of(name)?;
    let mut text = serde_json::to_string_pretty(&schema).ok()?;
    text.push('\n');
    Some(text)
}

/// The JSON Schema of a kind of document as a value; null for a name that is none of [`NAMES`].
#[must_use]
pub fn value(name: &str) -> Value {
    schema_of(name).map(Schema::to_value).unwrap_or_default()
}

fn schema_of(name: &str) -> Option<Schema> {
    Some(match name {
        "checks" => made::<ChecksFile>(name),
        "fleet" => made::<FleetFile>(name),
        "module" => made::<ModuleFile>(name),
        "node" => made::<NodeFile>(name),
        "plan" => made::<PlanFile>(name),
        "policy" => made::<PolicyFile>(name),
        "retired" => made::<RetiredFile>(name),
        "rotations" => made::<RotationsFile>(name),
        _ => return None,
    })
}

fn made<T: JsonSchema>(name: &str) -> Schema {
    let settings = SchemaSettings::draft07().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), json!(format!("meshplan {name}")));
    schema
}

/// The schema of an optional value without its null: TOML has none, a key is left out.
fn without_null(mut schema: Schema) -> Schema {
    let is_null =
        |value: &Value| *value == json!("null") || *value == json!({ "type": "null" }) || value.is_null();
    let Some(object) = schema.as_object_mut() else {
        return schema;
    };
    for key in ["type", "enum", "anyOf"] {
        let Some(Value::Array(choices)) = object.get_mut(key) else {
            continue;
        };
        choices.retain(|choice| !is_null(choice));
        let [only] = choices.as_slice() else {
            continue;
        };
        let only = only.clone();
        if key == "type" {
            object.insert(key.to_owned(), only);
        } else if key == "anyOf" {
            return Schema::try_from(only).unwrap_or_default();
        }
    }
    schema
}

/// Builds the schema of one table.
#[derive(Debug)]
pub struct TableSchema {
    description: String,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

fn prose(doc: &str) -> String {
    doc.lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .to_owned()
}

impl TableSchema {
    /// A table without keys.
    #[must_use]
    pub fn new(doc: &str) -> Self {
        Self {
            description: prose(doc),
            properties: Map::new(),
            required: Vec::new(),
        }
    }

    /// Adds a key.
    pub fn key<T: JsonSchema>(
        &mut self,
        generator: &mut SchemaGenerator,
        key: &str,
        doc: &str,
        needed: bool,
        default: Option<Value>,
    ) {
        let mut schema = without_null(generator.subschema_for::<T>());
        schema.insert("description".into(), json!(prose(doc)));
        if let Some(default) = default {
            schema.insert("default".into(), default);
        }
        self.properties.insert(key.to_owned(), schema.to_value());
        if needed {
            self.required.push(json!(key));
        }
    }

    /// The schema.
    #[must_use]
    pub fn finish(self) -> Schema {
        let mut schema = Schema::default();
        schema.insert("type".into(), json!("object"));
        schema.insert("description".into(), json!(self.description));
        schema.insert("properties".into(), Value::Object(self.properties));
        schema.insert("additionalProperties".into(), json!(false));
        if !self.required.is_empty() {
            schema.insert("required".into(), Value::Array(self.required));
        }
        schema
    }
}
