//! `secret("name")` in a template: a value that can be written out, and shows itself nowhere else (FR-8, FR-9).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Kwargs, Object, ObjectRepr, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use crate::pure::secrets::{NoSecret, Scope, Secret};

/// The function that a template calls, and what it was called for.
#[derive(Debug)]
pub(super) struct SecretFunction {
    scope: Arc<Scope>,
    asked: Mutex<Asked>,
}

/// What a template asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// By the name that content knows each by.
    pub(super) used: BTreeMap<String, Secret>,
    /// The first that was not to be had, in words without a value.
    pub(super) lacking: Option<NoSecret>,
}

impl SecretFunction {
    pub(super) fn new(scope: &Arc<Scope>) -> Arc<Self> {
        Arc::new(Self {
            scope: Arc::clone(scope),
            asked: Mutex::default(),
        })
    }

    pub(super) fn asked(&self) -> Asked {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn get(&self, name: &str) -> Result<Value, NoSecret> {
        let (known_as, secret) = self.scope.get(name)?;
        if std::str::from_utf8(secret.value()).is_err() {
            return Err(NoSecret::Unknown(format!(
                "the secret `{name}` is no text: a file with `secret = \"{name}\"` carries it byte for byte"
            )));
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.used.insert(known_as.to_owned(), secret.clone());
        Ok(Value::from_object(Shown(secret.clone())))
    }
}

impl Object for SecretFunction {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let (name, rest): (&str, Kwargs) = from_args(args)?;
        rest.assert_all_used()?;
        self.get(name).map_err(|lacking| {
            let why = match &lacking {
                NoSecret::Unknown(why) | NoSecret::Closed(why) => why.clone(),
            };
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.lacking.get_or_insert(lacking);
            Error::new(ErrorKind::InvalidOperation, why)
        })
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret")
    }
}

/// A value in a template.
#[derive(Debug)]
struct Shown(Secret);

impl Object for Shown {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It was found to be text when it was asked for.
        f.write_str(std::str::from_utf8(self.0.value()).unwrap_or_default())
    }
}
