//! Judges a vector from its files alone.

use meshplan_schemas::fleet_list::Author;
use meshplan_schemas::ident::{FleetName, KeyId};
use meshplan_schemas::judge::{self, Judged, Known, Refusal};
use meshplan_schemas::key::KeyError;

use crate::make::{Keys, NamedKey, Verdict};

pub(crate) fn judge(keys: &Keys, envelope: &[u8]) -> Verdict {
    let (Ok(authors), Ok(timestamp_keys)) = (named(&keys.authors), named(&keys.timestamp_keys)) else {
        return crate::make::refused(&["key"]);
    };
    let fleet: FleetName = keys.fleet.parse().unwrap();
    let version = keys.version.parse().unwrap();
    let known = Known {
        fleet: &fleet,
        node: keys.node,
        authors: &authors,
        threshold: keys.threshold,
        timestamp_keys: &timestamp_keys,
        marks: &keys.marks,
        in_force: &keys.in_force,
        version: &version,
        trusted_now: keys.trusted_now,
    };
    match keys.judged_as.as_str() {
        "epoch" => verdict(judge::epoch(envelope, &known)),
        "declaration" => verdict(judge::declaration(envelope, &known)),
        "fleet-list" => verdict(judge::fleet_head(envelope, &known)),
        "timestamp" => verdict(judge::timestamp(envelope, &known)),
        "report" => {
            let own: Vec<_> = authors.iter().map(|a| a.key).collect();
            verdict(judge::report(envelope, &fleet, keys.node.unwrap(), &own))
        }
        other => unreachable!("no kind of order: {other}"),
    }
}

fn named(keys: &[NamedKey]) -> Result<Vec<Author>, KeyError> {
    keys.iter()
        .map(|named| {
            Ok(Author {
                id: KeyId(named.id.clone()),
                key: named.key.parse()?,
            })
        })
        .collect()
}

fn verdict<P>(judged: Result<Judged<P>, Vec<Refusal>>) -> Verdict {
    match judged {
        Ok(judged) => Verdict {
            taken: true,
            duplicate: judged.duplicate,
            in_force: judged.in_force,
            codes: vec![],
        },
        Err(reasons) => Verdict {
            codes: reasons.iter().map(|reason| reason.code().to_owned()).collect(),
            ..Verdict::default()
        },
    }
}
