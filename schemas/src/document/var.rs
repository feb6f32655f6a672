//! `[vars]`: values that people give to settings and templates.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::read::{At, Read, Reader};
use crate::limits::NAME_BYTES;

/// One value. A number with a point is none: what is signed holds integers only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Var {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// True or false.
    Flag(bool),
    /// Several.
    List(Vec<Var>),
}

impl std::fmt::Display for Var {
    /// As a person would say it: texts without quotes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            other => f.write_str(&serde_json::to_string(other).map_err(|_| std::fmt::Error)?),
        }
    }
}

impl Read for Var {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(Self::Text(text.to_string())),
            DeValue::Boolean(flag) => Some(Self::Flag(*flag)),
            DeValue::Integer(_) => reader.integer(value).map(Self::Number),
            DeValue::Array(_) => reader.array(value).map(Self::List),
            _ => {
                reader.wrong_type(
                    value,
                    "a text, a whole number, true or false, or an array of them",
                );
                None
            }
        }
    }
}
impl JsonSchema for Var {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Var".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer", "boolean", "array"] })
    }
}

/// Named values, each with its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vars(pub BTreeMap<String, At<Var>>);

impl Read for Vars {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let pairs = reader.map(value, |key| {
            let fits = !key.is_empty() && key.len() <= NAME_BYTES && !key.chars().any(char::is_control);
            if fits {
                Ok(key.to_owned())
            } else {
                Err(format!("expected 1 to {NAME_BYTES} characters"))
            }
        })?;
        Some(Self(
            pairs.into_iter().map(|(key, value)| (key.value, value)).collect(),
        ))
    }
    fn missing() -> Option<Self> {
        Some(Self::default())
    }
}
impl JsonSchema for Vars {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Vars".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<Var>();
        json_schema!({ "type": "object", "additionalProperties": value })
    }
}
