//! Values of secrets on their way into declarations: sealed to each node's key of today, right before they are signed
//! (FR-9).
//!
//! What was decided names values by their digests alone. Invariant: a declaration that leaves here has a sealed value for
//! each that it names; a module whose value is not to be had is left out of it, with the reason (FR-8).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::{Declaration, LeftOut};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, NodeId};
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::resource::Resource;
use meshplan_schemas::sealed::Place;

use super::{Engine, PassError};
use crate::edge::mesh::Links;
use crate::edge::repository::FleetRepo;
use crate::edge::store::StoreError;
use crate::pure::act::{Act, Order};
use crate::pure::secrets::{OpensSecrets as _, Secret};

/// Values by digest; an error says why one is not to be had.
type Values = BTreeMap<Digest, Result<Secret, String>>;

impl<R: FleetRepo, L: Links> Engine<R, L> {
    /// Seals what the declarations of an act name. What comes back is to be stored with it.
    pub(super) async fn seal_values(&self, act: &mut Act) -> Result<BTreeMap<Digest, Vec<u8>>, PassError> {
        let values = self.values(act).await?;
        if !values.is_empty() {
            let keys = self.keys(act).await?;
            let mut failed = BTreeSet::new();
            for order in &mut act.orders {
                if let Order::Declaration { declaration } = order {
                    failed.extend(seal(declaration, keys.get(&declaration.node), &values));
                }
            }
            match failed.first() {
                Some(why) => self.health.set("secrets", why.clone()),
                None => self.health.clear("secrets"),
            }
        }
        let mut closed = BTreeMap::new();
        for (digest, secret) in &act.values {
            if self.store.secret_value(*digest).await?.is_none() {
                let file = self.vault.close(secret).map_err(PassError::Close)?;
                closed.insert(*digest, file);
            }
        }
        Ok(closed)
    }

    /// The values that declarations of an act name.
    async fn values(&self, act: &Act) -> Result<Values, StoreError> {
        let mut values = Values::new();
        for digest in act.orders.iter().flat_map(named) {
            if values.contains_key(&digest) {
                continue;
            }
            let value = match act.values.get(&digest) {
                Some(secret) => Ok(secret.clone()),
                None => match self.store.secret_value(digest).await? {
                    None => Err("a value that it needs is not kept any more".to_owned()),
                    Some(file) => self.vault.open(&file).and_then(|secret| {
                        let same = secret.digest() == digest;
                        same.then_some(secret)
                            .ok_or_else(|| "a value that it needs is not what was kept".to_owned())
                    }),
                },
            };
            values.insert(digest, value);
        }
        Ok(values)
    }

    /// The transport keys of the nodes that an act declares something to, as the list has them once it is stored.
    async fn keys(&self, act: &Act) -> Result<BTreeMap<NodeId, TransportKey>, StoreError> {
        let newest = act.orders.iter().rev().find_map(|order| match order {
            Order::Head { leaves, .. } => Some(leaves),
            _ => None,
        });
        if let Some(leaves) = newest {
            return Ok(leaves.iter().map(|leaf| (leaf.id, leaf.transport_key)).collect());
        }
        let mut keys = BTreeMap::new();
        let Some(head) = self.store.newest_head().await? else {
            return Ok(keys);
        };
        for order in &act.orders {
            if let Order::Declaration { declaration } = order
                && let Some(stored) = self.store.leaf_of(head.number, declaration.node).await?
            {
                keys.insert(declaration.node, stored.leaf.transport_key);
            }
        }
        Ok(keys)
    }
}

fn named(order: &Order) -> impl Iterator<Item = Digest> {
    let resources = match order {
        Order::Declaration { declaration } => declaration.resources.as_slice(),
        Order::Epoch { .. } | Order::Head { .. } => &[],
    };
    resources.iter().flat_map(named_by)
}

/// The values that a resource names: its content, and what that was made of.
fn named_by(resource: &Resource) -> impl Iterator<Item = Digest> {
    resource
        .sealed()
        .into_iter()
        .chain(resource.hides.iter().copied())
}

/// Fills in the sealed values; says what is left out for want of one.
fn seal(declaration: &mut Declaration, key: Option<&TransportKey>, values: &Values) -> Vec<String> {
    let mut left_out: BTreeMap<ModuleName, String> = BTreeMap::new();
    let mut sealed = Vec::new();
    let place = Place::of(declaration);
    let resources = declaration.resources.iter();
    for (name, digest) in resources.flat_map(|r| named_by(r).map(|digest| (&r.name, digest))) {
        let made = match (key, values.get(&digest)) {
            (Some(key), Some(Ok(secret))) => place
                .seal(key, name, digest, secret.value())
                .map_err(|e| e.to_string()),
            (_, Some(Err(why))) => Err(why.clone()),
            (None, _) | (_, None) => Err("the fleet list has no key of this node yet".to_owned()),
        };
        match made {
            Ok(value) => sealed.push(value),
            Err(why) => {
                let why = format!("the secret value of {name} cannot be sealed: {why}");
                left_out.entry(name.module.clone()).or_insert(why);
            }
        }
    }
    sealed.retain(|value| !left_out.contains_key(&value.resource.module));
    declaration.sealed = sealed;
    declaration
        .modules
        .retain(|entry| !left_out.contains_key(&entry.module));
    declaration
        .resources
        .retain(|resource| !left_out.contains_key(&resource.name.module));
    let said = left_out.values().cloned().collect();
    let left_out = left_out.into_iter();
    declaration
        .left_out
        .extend(left_out.map(|(module, reason)| LeftOut { module, reason }));
    said
}
