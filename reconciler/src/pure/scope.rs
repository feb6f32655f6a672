//! Scopes: the parts of a tree that change apart from each other (DL-3).

use std::fmt;
use std::str::FromStr;

use meshplan_schemas::ident::{ModuleName, NameError};
use serde::{Deserialize, Serialize};

/// A scope; its text is what plans write in `covers`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// What enters the signed list.
    List,
    /// The policy of the fleet.
    Policy,
    /// One module, on every node that has it.
    Module(ModuleName),
    /// Plans, checks, trust, authors, all else of fleet.toml.
    Gate,
}

impl Scope {
    /// The module that it is; none for another scope.
    #[must_use]
    pub fn module(&self) -> Option<&ModuleName> {
        match self {
            Self::Module(name) => Some(name),
            Self::List | Self::Policy | Self::Gate => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("list"),
            Self::Policy => f.write_str("policy"),
            Self::Module(name) => write!(f, "module:{name}"),
            Self::Gate => f.write_str("gate"),
        }
    }
}

/// The text is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// Another word.
    #[error("`{0}` is no scope; scopes are `policy`, `list`, `gate` and `module:<name>`")]
    Word(String),
    /// Not a module's name.
    #[error("{0}")]
    Name(#[from] NameError),
}

impl FromStr for Scope {
    type Err = ScopeError;
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        match text {
            "list" => Ok(Self::List),
            "policy" => Ok(Self::Policy),
            "gate" => Ok(Self::Gate),
            other => match other.strip_prefix("module:") {
                Some(name) => Ok(Self::Module(name.parse()?)),
                None => Err(ScopeError::Word(other.to_owned())),
            },
        }
    }
}
impl TryFrom<String> for Scope {
    type Error = ScopeError;
    fn try_from(text: String) -> Result<Self, ScopeError> {
        text.parse()
    }
}
impl From<Scope> for String {
    fn from(scope: Scope) -> String {
        scope.to_string()
    }
}
