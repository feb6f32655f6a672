//! Policy: its sections, the merge, the effective policy of a node (FR-6, FR-7).
//!
//! In an epoch policy is one TOML text for everybody: `[base.<section>]` and `[roles.<role>.<section>]` (SG-2).

use std::collections::BTreeMap;

use toml::Table;

use crate::document::{PolicyFile, read};
use crate::finding::{Finding, Source};
use crate::ident::RoleName;

/// The only sections that exist (FR-6).
pub const SECTIONS: [&str; 4] = ["scheduler", "link_monitor", "qos", "traversal"];

/// Why a policy text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No TOML, or not of the form of an epoch's policy.
    #[error("{0}")]
    Form(String),
    /// A section that is no policy.
    #[error("`{0}` is not policy; the sections are scheduler, link_monitor, qos, traversal")]
    NotPolicy(String),
}

/// The policy of the fleet: base and overlays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FleetPolicy {
    /// `policy/base.toml`.
    pub base: Table,
    /// `policy/roles/<role>.toml`.
    pub roles: BTreeMap<RoleName, Table>,
}

/// Reads the text that an epoch carries.
///
/// # Errors
/// [`PolicyError`].
pub fn parse(text: &str) -> Result<FleetPolicy, PolicyError> {
    let mut table: Table = toml::from_str(text).map_err(|e| PolicyError::Form(e.to_string()))?;
    let mut policy = FleetPolicy::default();
    let section = |value: Option<toml::Value>, name: &str| match value {
        None => Ok(Table::new()),
        Some(toml::Value::Table(t)) => Ok(t),
        Some(_) => Err(PolicyError::Form(format!("`{name}` must be a table"))),
    };
    policy.base = section(table.remove("base"), "base")?;
    for (role, overlay) in section(table.remove("roles"), "roles")? {
        let name: RoleName = role
            .parse()
            .map_err(|e| PolicyError::Form(format!("role `{role}`: {e}")))?;
        policy.roles.insert(name, section(Some(overlay), &role)?);
    }
    if let Some(other) = table.keys().next() {
        return Err(PolicyError::NotPolicy(other.clone()));
    }
    for overlay in std::iter::once(&policy.base).chain(policy.roles.values()) {
        if let Some(other) = overlay.keys().find(|k| !SECTIONS.contains(&k.as_str())) {
            return Err(PolicyError::NotPolicy(other.clone()));
        }
    }
    Ok(policy)
}

/// The typed sections of one policy text: of a document, or the effective policy of a node.
///
/// # Errors
/// Everything in it that is no policy, with its place; `name` is the file that findings name.
pub fn sections(name: &str, text: &str) -> Result<PolicyFile, Vec<Finding>> {
    let source = Source::new(name, text.as_bytes().into()).map_err(|finding| vec![finding])?;
    let mut findings = Vec::new();
    let file = read::document(&source, &mut findings);
    findings.sort();
    file.filter(|_| findings.is_empty()).ok_or(findings)
}

impl FleetPolicy {
    /// The text that an epoch carries: the same bytes for the same policy.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.insert("base".into(), self.base.clone().into());
        if !self.roles.is_empty() {
            let roles: Table = self
                .roles
                .iter()
                .map(|(r, t)| (r.to_string(), t.clone().into()))
                .collect();
            table.insert("roles".into(), roles.into());
        }
        // A table of TOML values always has a text; sorted by key, as `toml::Table` is.
        toml::to_string(&table).unwrap_or_default()
    }

    /// The effective policy of a node: base, then the overlays in the order of its roles; tables merge key by key,
    /// arrays and scalars replace (FR-6).
    #[must_use]
    pub fn effective(&self, roles: &[RoleName]) -> Table {
        let mut out = self.base.clone();
        for overlay in roles.iter().filter_map(|role| self.roles.get(role)) {
            merge(&mut out, overlay);
        }
        out
    }

    /// The text of [`FleetPolicy::effective`]: what the host writes to its policy file.
    #[must_use]
    pub fn effective_text(&self, roles: &[RoleName]) -> String {
        toml::to_string(&self.effective(roles)).unwrap_or_default()
    }
}

fn merge(under: &mut Table, over: &Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => merge(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: FR-6, SG-5
    #[test]
    fn what_is_not_policy_is_refused_at_the_top_and_in_overlays() {
        for bad in [
            "[base.identity]\n",
            "[roles.edge.peers]\n",
            "[auth]\n",
            "[base.mesh]\n",
            "base = 1\n",
            "x",
        ] {
            assert!(parse(bad).is_err(), "{bad:?} was taken for policy");
        }
        assert!(parse("[base.qos]\n[roles.edge.qos]\n").is_ok());
        assert!(parse("").is_ok());
    }

    // holds: FR-6
    #[test]
    fn overlays_merge_key_by_key_in_the_order_of_the_roles_and_arrays_replace() {
        let text = "[base.qos]\na = 1\nlist = [1, 2]\n[base.qos.extra]\nx = 1\n\
                    [roles.one.qos]\na = 2\nlist = [3]\n[roles.two.qos]\na = 3\n[roles.two.qos.extra]\ny = 2\n";
        let policy = parse(text).unwrap();
        let roles = |names: &[&str]| {
            names
                .iter()
                .map(|n| n.parse().unwrap())
                .collect::<Vec<RoleName>>()
        };
        let both = policy.effective_text(&roles(&["one", "two"]));
        assert_eq!(both, "[qos]\na = 3\nlist = [3]\n\n[qos.extra]\nx = 1\ny = 2\n");
        let turned = policy.effective(&roles(&["two", "one"]));
        assert_eq!(turned["qos"]["a"], toml::Value::Integer(2));
    }

    #[test]
    fn sections_have_types_and_extra_is_free() {
        let text = "[scheduler]\nreconcile_secs = 5\n[scheduler.extra]\nanything = { goes = 1.5 }\n";
        let file = sections("policy.toml", text).unwrap();
        assert_eq!(file.scheduler.unwrap().reconcile_secs.unwrap().0, 5);
        let findings = sections("policy.toml", "[qos]\nx = 1\n[mesh]\n").unwrap_err();
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn the_text_comes_back_the_same() {
        let text = parse("[roles.b.qos]\na=1\n[base.scheduler]\nz=1\na=2\n")
            .unwrap()
            .text();
        assert_eq!(parse(&text).unwrap().text(), text);
    }
}
