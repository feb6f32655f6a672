//! `plan` and `diff`: what the newest declaration would change on this machine. Both change nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::line_diff::{Diff, diff as lines_of};
use meshplan_schemas::resource::Kind;
use serde_json::json;

use super::exit::Exit;
use super::look::{failed, look, machine};
use super::words::would;
use super::{Answer, Failure, Place};
use crate::edge::disk::{Disk, RealDisk};
use crate::pure::orders::Orders;
use crate::pure::target_path::TargetPath;

pub(super) fn plan(place: &Place) -> Result<Answer, Failure> {
    let Some(declaration) = newest(place)? else {
        return Ok(nothing());
    };
    let changes = machine(place)?.plan(&declaration).map_err(|e| failed(e.into()))?;
    let mut words = format!("declaration {}:\n", declaration.sequence);
    for change in &changes {
        let what = if change.what.is_empty() {
            String::new()
        } else {
            format!(": {}", change.what)
        };
        // Writing to a text does not fail.
        let _written = writeln!(
            words,
            "  {} ({}) {}{what}",
            change.name,
            change.kind,
            would(change.outcome)
        );
        if !change.restarts.is_empty() {
            let _written = writeln!(words, "    and with it {}", change.restarts.join(", "));
        }
    }
    if changes.is_empty() {
        words.push_str("  nothing would change\n");
    }
    let listed: Vec<_> = changes
        .iter()
        .map(|c| {
            json!({
                "name": c.name, "kind": c.kind, "outcome": c.outcome, "what": c.what, "restarts": c.restarts,
            })
        })
        .collect();
    Ok(Answer {
        exit: Exit::Done,
        words,
        json: json!({ "sequence": declaration.sequence, "changes": listed }),
    })
}

pub(super) fn diff(place: &Place) -> Result<Answer, Failure> {
    let orders = look(place)?.orders;
    let secret = secret_paths(&orders);
    let Some(declaration) = orders.declaration.or(orders.confirmed).map(|kept| kept.payload) else {
        return Ok(nothing());
    };
    let root = RealDisk::open(&place.root).map_err(|e| failed(e.into()))?;
    let mut words = String::new();
    let mut listed = Vec::new();
    for resource in &declaration.resources {
        let Ok(Kind::File(file)) = resource.read() else {
            continue;
        };
        if secret.contains(&file.path) {
            // Writing to a text does not fail.
            let _written = writeln!(words, "{} ({}): a secret, not shown", file.path, resource.name);
            listed.push(json!({ "name": resource.name, "path": file.path, "why": "a secret, not shown" }));
            continue;
        }
        let Ok(declared) = file.content.bytes() else {
            continue;
        };
        let found = match found(&root, &file.path) {
            Ok(found) => found,
            Err(why) => {
                // Writing to a text does not fail.
                let _written = writeln!(words, "{} ({}): {why}", file.path, resource.name);
                listed.push(json!({ "name": resource.name, "path": file.path, "why": why }));
                continue;
            }
        };
        if found.as_deref() == Some(&declared[..]) {
            continue;
        }
        let text = match lines_of(found.as_deref().unwrap_or_default(), &declared) {
            Diff::Lines(text) => text,
            Diff::Binary => "  the content differs and is no text\n".to_owned(),
        };
        let there = if found.is_none() { ", not there yet" } else { "" };
        let _written = writeln!(words, "{} ({}{there})\n{text}", file.path, resource.name);
        listed.push(json!({ "name": resource.name, "path": file.path, "diff": text }));
    }
    if listed.is_empty() {
        words.push_str("no declared file differs from the one on the machine\n");
    }
    Ok(Answer {
        exit: Exit::Done,
        words,
        json: json!({ "sequence": declaration.sequence, "files": listed }),
    })
}

fn newest(place: &Place) -> Result<Option<Declaration>, Failure> {
    let orders = look(place)?.orders;
    Ok(orders.declaration.or(orders.confirmed).map(|kept| kept.payload))
}

fn nothing() -> Answer {
    Answer {
        exit: Exit::Done,
        words: "nothing is declared for this machine yet\n".to_owned(),
        json: json!({ "sequence": null }),
    }
}

/// Where secrets stand, or may stand still: what any order that is kept has sealed.
fn secret_paths(orders: &Orders) -> BTreeSet<String> {
    let kept = [&orders.declaration, &orders.trying, &orders.confirmed].into_iter();
    let resources = kept.flatten().flat_map(|kept| &kept.payload.resources);
    let sealed = resources.filter(|resource| resource.sealed().is_some());
    sealed
        .filter_map(|resource| Some(resource.spec.get("path")?.as_str()?.to_owned()))
        .collect()
}

/// The bytes at a path; none when nothing is there.
fn found(root: &RealDisk, path: &str) -> Result<Option<Vec<u8>>, String> {
    let path = TargetPath::parse(path).map_err(|e| e.to_string())?;
    match root.stat(&path).map_err(|e| e.to_string())? {
        None => Ok(None),
        Some(_) => root.read(&path).map(Some).map_err(|e| e.to_string()),
    }
}
