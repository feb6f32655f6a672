//! An act's orders and blocks, signed: the bytes that the store keeps and hosts read.

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Payload, SignError, Signer, seal};
use meshplan_schemas::ident::{CommitId, NodeId};

use super::{PassError, Signers, TERM};
use crate::edge::store::act::Signed;
use crate::edge::store::journal::SignedBlock;
use crate::edge::store::orders::{OrderKind, SignedOrder};
use crate::pure::act::{Act, Order};
use crate::pure::{journal, note};

impl Signers {
    /// Signs all that an act orders, then writes and signs its blocks.
    pub(super) fn sign(&self, act: &mut Act) -> Result<Signed, PassError> {
        let author = &*self.author;
        let mut signed = Signed {
            epochs_standing: act.standing.clone().unwrap_or_default(),
            ..Signed::default()
        };
        for order in &act.orders {
            signed.orders.push(match order {
                Order::Epoch { epoch } => sealed(
                    epoch,
                    author,
                    OrderKind::Epoch,
                    epoch.epoch,
                    None,
                    epoch.issued_at,
                    &epoch.commit,
                )?,
                Order::Head { head, .. } => sealed(
                    head,
                    author,
                    OrderKind::Head,
                    head.revision,
                    None,
                    head.issued_at,
                    &head.commit,
                )?,
                Order::Declaration { declaration: d } => {
                    let commit = d.modules.first().map(|m| &m.commit);
                    let mut order = sealed_for(
                        d,
                        author,
                        OrderKind::Declaration,
                        d.sequence,
                        Some(d.node),
                        d.issued_at,
                    )?;
                    order.commit = commit.cloned();
                    order
                }
            });
        }
        let heads = signed.orders.iter().filter(|o| o.kind == OrderKind::Head);
        let heads = heads.map(|o| (o.number, o.envelope.clone())).collect();
        journal::write(act, TERM, &heads);
        for block in &act.blocks {
            let signature = author.sign(&note::signed_bytes(&block.text))?;
            let text = note::seal(&block.text, &author.key_id(), &signature);
            signed.blocks.push(SignedBlock {
                mark: block.mark.clone(),
                commit: block.commit.clone(),
                text,
            });
        }
        Ok(signed)
    }
}

fn sealed<P: Payload>(
    payload: &P,
    signer: &dyn Signer,
    kind: OrderKind,
    number: u64,
    node: Option<NodeId>,
    issued_at: i64,
    commit: &CommitId,
) -> Result<SignedOrder, PassError> {
    let mut order = sealed_for(payload, signer, kind, number, node, issued_at)?;
    order.commit = Some(commit.clone());
    Ok(order)
}

pub(super) fn sealed_for<P: Payload>(
    payload: &P,
    signer: &dyn Signer,
    kind: OrderKind,
    number: u64,
    node: Option<NodeId>,
    issued_at: i64,
) -> Result<SignedOrder, PassError> {
    let envelope = seal(payload, signer)?;
    let digest = Digest::of_value(payload).map_err(|e| SignError(e.to_string()))?;
    Ok(SignedOrder {
        kind,
        number,
        node,
        digest,
        envelope: String::from_utf8(envelope).map_err(|e| SignError(e.to_string()))?,
        commit: None,
        issued_at: Timestamp::from_second(issued_at).unwrap_or(Timestamp::UNIX_EPOCH),
    })
}
