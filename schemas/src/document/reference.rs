//! References from one resource to another: an id of the same module, or `<module>.<id>`.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use toml::Spanned;
use toml::de::DeValue;

use super::read::{Read, Reader};
use crate::ident::{ModuleName, NameError, ResourceId, ResourceName};

/// A resource, of the same module where none is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The module; none: the one that says it.
    pub module: Option<ModuleName>,
    /// The id in it.
    pub id: ResourceId,
}

impl Reference {
    /// The whole name, said in this module.
    #[must_use]
    pub fn within(&self, module: &ModuleName) -> ResourceName {
        ResourceName {
            module: self.module.clone().unwrap_or_else(|| module.clone()),
            id: self.id.clone(),
        }
    }
}

impl FromStr for Reference {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Ok(match text.rsplit_once('.') {
            Some((module, id)) => Self {
                module: Some(module.parse()?),
                id: id.parse()?,
            },
            None => Self {
                module: None,
                id: text.parse()?,
            },
        })
    }
}
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.module {
            Some(module) => write!(f, "{module}.{}", self.id),
            None => self.id.fmt(f),
        }
    }
}
impl Read for Reference {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.parsed(value, Self::from_str)
    }
}
impl JsonSchema for Reference {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reference".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([a-z0-9_][a-z0-9._-]*\\.)?[a-z0-9_][a-z0-9_-]*$" })
    }
}
