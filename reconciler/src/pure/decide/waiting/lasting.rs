//! What a roll-back of a delivery would not bring back, said when its gate is decided (DL-7, HR-5).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::ModuleContent;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::resource::{Resource, reversal};

use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::Delivery;
use crate::pure::scope::Scope;

/// A resource that changes, and why that lasts.
type Lasting = (ResourceName, String);

/// The facts for the note: each such resource with the number of machines on which it changes.
pub(super) fn facts(draft: &Draft<'_>, delivery: &Delivery, tree: &Composed) -> Vec<(String, String)> {
    let contents = &draft.known.contents.modules;
    // Machines that change alike are compared once.
    let mut alike: BTreeMap<(Option<Digest>, Option<Digest>), BTreeSet<Lasting>> = BTreeMap::new();
    let mut found: BTreeMap<Lasting, usize> = BTreeMap::new();
    for leg in &delivery.legs {
        let Scope::Module(module) = &leg.scope else {
            continue;
        };
        for (id, change) in &leg.nodes {
            let lasting = alike.entry((change.before, change.after)).or_insert_with(|| {
                let of_tree = tree.nodes.get(id).and_then(|node| node.modules.get(module));
                let after = of_tree.filter(|(digest, _)| change.after == Some(*digest));
                let before = change.before.and_then(|digest| contents.get(&digest));
                changed(before.map(AsRef::as_ref), after.map(|(_, made)| &made.content))
            });
            for one in &*lasting {
                *found.entry(one.clone()).or_default() += 1;
            }
        }
    }
    let said = |((name, why), machines): (Lasting, usize)| {
        let machines = match machines {
            1 => "1 machine".to_owned(),
            n => format!("{n} machines"),
        };
        (
            "Not-Reversible".to_owned(),
            format!("{name} on {machines}: {why}"),
        )
    };
    found.into_iter().map(said).collect()
}

fn changed(before: Option<&ModuleContent>, after: Option<&ModuleContent>) -> BTreeSet<Lasting> {
    fn by_name(content: Option<&ModuleContent>) -> BTreeMap<&ResourceName, &Resource> {
        let resources = content.iter().flat_map(|content| &content.resources);
        resources.map(|resource| (&resource.name, resource)).collect()
    }
    let (was, is) = (by_name(before), by_name(after));
    let names: BTreeSet<&ResourceName> = was.keys().chain(is.keys()).copied().collect();
    let lasting = names.into_iter().filter_map(|name| {
        let (was, is) = (was.get(name).copied(), is.get(name).copied());
        let why = why(was, is).filter(|_| was != is)?;
        Some((name.clone(), why))
    });
    lasting.collect()
}

fn why(was: Option<&Resource>, is: Option<&Resource>) -> Option<String> {
    let own = is.or(was)?.not_reversible.clone();
    own.or_else(|| {
        reversal::goes_only_forward(was, is).then(|| "it goes only forward, a roll-back leaves it".to_owned())
    })
    .or_else(|| reversal::may_not_come_back(is).map(str::to_owned))
}
