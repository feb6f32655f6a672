//! `verify [FILE|-]`: judges an envelope as this host would, or checks what is on the machine. Takes nothing in.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use meshplan_schemas::envelope::Envelope;
use meshplan_schemas::limits::ENVELOPE_BYTES;
use meshplan_schemas::report::Marks;
use serde_json::json;

use super::exit::Exit;
use super::look::{failed, look, machine};
use super::words::would;
use super::{Answer, Failure, Place};
use crate::edge::boot;
use crate::edge::checked;
use crate::edge::clock::Clock;
use crate::edge::machine::Order;
use crate::pure::admit::{Admission, Bench, Source, admit};

pub(super) fn envelope(place: &Place, file: &Path, clock: Clock) -> Result<Answer, Failure> {
    let look = look(place)?;
    let text = read(file).map_err(|e| Failure::new(Exit::Usage, e))?;
    // A file of the state folder carries its own seal behind the envelope.
    let text = checked::unseal(&text).unwrap_or(&text);
    let version = boot::version();
    let none = Marks::default();
    let marks = look.marks.as_ref().map_or(&none, |m| &m.marks);
    let beside_marks = look.marks.as_ref().and_then(|m| m.anchor.as_ref());
    let anchor = look.orders.anchor(beside_marks);
    let admission = admit(
        text,
        &Bench {
            fleet: &look.membership.fleet,
            node: look.membership.node,
            version: &version,
            marks,
            marks_lost: look.marks.is_none(),
            anchor: anchor.as_ref(),
            orders: &look.orders,
            source: Source::Hand,
            now: clock.now().as_second(),
            trusted_now: None,
        },
    );
    let signers: Vec<String> = Envelope::read(text.as_bytes())
        .map(|e| e.signatures.iter().map(|s| s.key_id.to_string()).collect())
        .unwrap_or_default();
    let (exit, what, reasons) = match &admission {
        Admission::Refused(refused) => {
            let number = refused.number.map(|n| format!(" {n}")).unwrap_or_default();
            let reasons = refused
                .reasons
                .iter()
                .map(|r| (r.code(), r.to_string()))
                .collect();
            (Exit::Refused, format!("{}{number}", refused.order), reasons)
        }
        Admission::Duplicate => (
            Exit::Done,
            "an order that this host has already".to_owned(),
            vec![],
        ),
        Admission::Head(h) => (Exit::Done, format!("fleet list {}", h.payload.revision), vec![]),
        Admission::Timestamp(t) => (
            Exit::Done,
            format!("timestamp of list {}", t.payload.revision),
            vec![],
        ),
        Admission::Epoch(e) => (Exit::Done, format!("epoch {}", e.payload.epoch), vec![]),
        Admission::Declaration(d) => {
            let (sequence, count) = (d.payload.sequence, d.payload.resources.len());
            (
                Exit::Done,
                format!("declaration {sequence} with {count} resources"),
                vec![],
            )
        }
    };
    let mut words = format!("{what}, signed by {}\n", signers.join(", "));
    if reasons.is_empty() {
        words.push_str("this host would take it\n");
    }
    for (_, reason) in &reasons {
        words = format!("{words}refused: {reason}\n");
    }
    let listed: Vec<_> = reasons
        .iter()
        .map(|(code, reason)| json!({ "code": code, "reason": reason }))
        .collect();
    Ok(Answer {
        exit,
        words,
        json: json!({ "what": what, "signed_by": signers, "taken": reasons.is_empty(), "reasons": listed }),
    })
}

/// Whether the state folder is whole and the machine is as declared: as the last confirmed declaration says, or the one
/// that awaits its confirm.
pub(super) fn state(place: &Place) -> Result<Answer, Failure> {
    let look = look(place)?;
    let mut words = String::new();
    for broken in &look.broken {
        words = format!("{words}damaged: {broken}\n");
    }
    let mut differs = Vec::new();
    let machine = machine(place)?;
    let waits = matches!(
        machine.window().map(|w| &w.order),
        Some(Order::Declaration { .. })
    );
    let (declared, as_it) = match (&look.orders.trying, &look.orders.confirmed) {
        (Some(trying), _) if waits => (Some(trying), ", which awaits its confirm, says"),
        (_, confirmed) => (confirmed.as_ref(), " says"),
    };
    if let Some(declared) = declared {
        let changes = machine.plan(&declared.payload).map_err(|e| failed(e.into()))?;
        for change in changes {
            words = format!(
                "{words}{} {}: {}\n",
                change.name,
                would(change.outcome),
                change.what
            );
            differs.push(json!({ "name": change.name, "what": change.what }));
        }
    }
    let whole = look.broken.is_empty() && differs.is_empty();
    if whole {
        words = match declared {
            Some(declared) => format!(
                "the state folder is whole, and the machine is as declaration {}{as_it}\n",
                declared.payload.sequence
            ),
            None => "the state folder is whole; no declaration was confirmed yet\n".to_owned(),
        };
    }
    Ok(Answer {
        exit: if whole { Exit::Done } else { Exit::No },
        words,
        json: json!({ "whole": whole, "damaged": look.broken, "differs": differs }),
    })
}

fn read(file: &Path) -> anyhow::Result<String> {
    let limit = u64::try_from(ENVELOPE_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|f| f.take(limit).read_to_string(&mut text))
    }
    .with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text)
}
