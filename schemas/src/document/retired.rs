//! `secrets/retired.toml`: secrets whose former values never go back to a machine (DL-7).

use super::read::{At, table};
use super::texts::{Line, SecretName};

table! {
    /// Secrets whose former values are spent, as they are written: `secrets/retired.toml`.
    pub struct RetiredFile;
    /// The secrets.
    "retired" retired: Vec<At<RetiredSecret>>,
}

table! {
    /// A secret of which only the value in this tree may be used: content that needs a former one is not restored.
    pub struct RetiredSecret;
    /// The secret's name.
    "name" name: At<SecretName>,
    /// Why, in the words that a held roll-back is said with.
    "why" why: Line,
}
