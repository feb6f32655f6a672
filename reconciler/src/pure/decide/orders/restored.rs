//! What a roll-back brings back on one machine: the proven content, but for what goes only forward (DL-7).
//!
//! | resource | after the roll-back |
//! | --- | --- |
//! | ordinary | as it is proven |
//! | forward-only, which the newer content has | as the newer content has it |
//! | forward-only, which the newer content took away | gone |
//! | a user whose keys the newer content took away | as it is proven, without those keys |
//!
//! All modules that go back on the machine are looked at together: a thing may have moved from one to another. Invariant:
//! no place on the machine has two owners in what is restored, and no resource names one that is not there, for a host
//! refuses both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::declaration::{Mode, ModuleContent};
use meshplan_schemas::ident::{ModuleName, ResourceId, ResourceName};
use meshplan_schemas::resource::{Resource, reversal};
use serde_json::Value;

/// Fields that name resources of the same module, which must be there.
const NAMING: [&str; 4] = ["restarts", "reloads", "runs", "while_stopped"];

/// One module on a machine that goes back. None is "not there".
#[derive(Debug, Clone)]
pub(super) struct Way {
    /// What is proven.
    pub(super) former: Option<Arc<ModuleContent>>,
    /// What it was given.
    pub(super) newer: Option<Arc<ModuleContent>>,
}

/// What one module goes back to, where that is not what is proven.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Restored {
    /// The content.
    pub(super) content: ModuleContent,
    /// The resources that do not go back.
    pub(super) stays: BTreeSet<ResourceName>,
}

/// Whether anything of a content may go only forward. Most has nothing, and is not looked at more closely.
pub(super) fn may_stay(content: &ModuleContent) -> bool {
    let may = |resource: &Resource| resource.forward_only == Some(true) || resource.kind == "user";
    content.resources.iter().any(may)
}

/// The modules of a machine that do not go back as a whole. `went_forward` says whether the machine did what the newer
/// content asks of a resource, as far as can be told: what it never did is not kept.
pub(super) fn restored(
    ways: &BTreeMap<ModuleName, Way>,
    went_forward: impl Fn(&ResourceName) -> bool,
) -> BTreeMap<ModuleName, Restored> {
    let sides = Sides::of(ways);
    let mut kept: BTreeSet<&ResourceName> = BTreeSet::new();
    for newer in sides.newer.by_name.values() {
        let former = sides.former.same_as(newer);
        if reversal::goes_only_forward(former, Some(newer)) && went_forward(&newer.name) {
            kept.insert(&newer.name);
        }
    }
    let mut gone: BTreeSet<&ResourceName> = BTreeSet::new();
    for former in sides.former.by_name.values() {
        let goes = sides.newer.same_as(former).is_none() && reversal::goes_only_forward(Some(former), None);
        if goes && went_forward(&former.name) {
            gone.insert(&former.name);
        }
    }
    let taken: BTreeSet<String> = (kept.iter())
        .filter_map(|name| sides.newer.by_name.get(name))
        .map(|resource| resource.place())
        .collect();
    let changed = ways.iter().filter_map(|(name, way)| {
        let restored = sides.module(way, &kept, &gone, &taken)?;
        Some((name.clone(), restored))
    });
    changed.collect()
}

/// The resources of one side, by name and by place.
#[derive(Default)]
struct Side<'w> {
    by_name: BTreeMap<&'w ResourceName, &'w Resource>,
    by_place: BTreeMap<String, &'w Resource>,
}

impl<'w> Side<'w> {
    fn of(contents: impl Iterator<Item = &'w ModuleContent>) -> Self {
        let mut side = Self::default();
        for resource in contents.flat_map(|content| &content.resources) {
            side.by_name.insert(&resource.name, resource);
            side.by_place.insert(resource.place(), resource);
        }
        side
    }

    /// What is a resource of the other side here: by its name, or at its place under another name.
    fn same_as(&self, resource: &Resource) -> Option<&'w Resource> {
        let by_name = self.by_name.get(&resource.name);
        by_name.or_else(|| self.by_place.get(&resource.place())).copied()
    }
}

struct Sides<'w> {
    former: Side<'w>,
    newer: Side<'w>,
}

impl<'w> Sides<'w> {
    fn of(ways: &'w BTreeMap<ModuleName, Way>) -> Self {
        // Where the newer content is only looked at nothing was done, and what was there is there still.
        let acts = |way: &&Way| way.newer.as_ref().is_none_or(|newer| newer.mode == Mode::Apply);
        let former = ways.values().filter(acts).filter_map(|way| way.former.as_deref());
        let newer = ways.values().filter(acts).filter_map(|way| way.newer.as_deref());
        Self {
            former: Side::of(former),
            newer: Side::of(newer),
        }
    }

    fn module(
        &self,
        way: &Way,
        kept: &BTreeSet<&ResourceName>,
        gone: &BTreeSet<&ResourceName>,
        taken: &BTreeSet<String>,
    ) -> Option<Restored> {
        let mut stays = BTreeSet::new();
        let mut resources: Vec<Resource> = Vec::new();
        for former in way.former.iter().flat_map(|content| &content.resources) {
            if gone.contains(&former.name) {
                stays.insert(former.name.clone());
            } else if kept.contains(&former.name) {
                resources.extend(self.newer.by_name.get(&former.name).map(|newer| (*newer).clone()));
            } else if !taken.contains(&former.place()) {
                let newer = self.newer.same_as(former);
                let fewer = newer.and_then(|newer| reversal::without_removed_keys(former, newer));
                stays.extend(fewer.iter().map(|resource| resource.name.clone()));
                resources.push(fewer.unwrap_or_else(|| former.clone()));
            }
        }
        let mut before: Option<&ResourceName> = None;
        for newer in way.newer.iter().flat_map(|content| &content.resources) {
            if kept.contains(&newer.name) {
                if self.former.same_as(newer) != Some(newer) {
                    stays.insert(newer.name.clone());
                }
                if !resources.iter().any(|resource| resource.name == newer.name) {
                    // Behind what stands before it in the newer content, as far as that is there.
                    let place = before.and_then(|name| resources.iter().position(|r| r.name == *name));
                    resources.insert(place.map_or(0, |at| at + 1), newer.clone());
                }
            }
            if resources.iter().any(|resource| resource.name == newer.name) {
                before = Some(&newer.name);
            }
        }
        let content = match (&way.former, &way.newer) {
            (Some(former), _) if former.resources != resources => (**former).clone(),
            (None, Some(newer)) if !resources.is_empty() => ModuleContent {
                // It has been applied: it waits for nobody, and modules that it would wait for may be gone.
                after: Vec::new(),
                ..(**newer).clone()
            },
            _ => return None,
        };
        Some(Restored {
            content: fitted(content, resources),
            stays,
        })
    }
}

/// The content with these resources, none of which names one that is not among them.
fn fitted(content: ModuleContent, mut resources: Vec<Resource>) -> ModuleContent {
    let here: BTreeSet<ResourceId> = resources
        .iter()
        .map(|resource| resource.name.id.clone())
        .collect();
    let names_here: BTreeSet<String> = resources
        .iter()
        .map(|resource| resource.name.to_string())
        .collect();
    let is_here = |id: &Value| {
        id.as_str()
            .is_some_and(|id| here.iter().any(|there| there.as_str() == id))
    };
    for spec in resources
        .iter_mut()
        .filter_map(|resource| resource.spec.as_object_mut())
    {
        for key in NAMING {
            if let Some(ids) = spec.get_mut(key).and_then(Value::as_array_mut) {
                ids.retain(is_here);
                if ids.is_empty() {
                    spec.remove(key);
                }
            }
        }
        // What a thing takes over from is declared by nobody.
        if let Some(names) = spec.get_mut("replaces").and_then(Value::as_array_mut) {
            names.retain(|name| !name.as_str().is_some_and(|name| names_here.contains(name)));
            if names.is_empty() {
                spec.remove("replaces");
            }
        }
    }
    let on_policy_change = content.on_policy_change.iter();
    let on_policy_change = on_policy_change
        .filter(|id| here.contains(*id))
        .cloned()
        .collect();
    ModuleContent {
        on_policy_change,
        resources,
        ..content
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(name: &str, path: &str, restarts: &[&str]) -> Resource {
        let mut spec = json!({ "path": path, "content": { "text": "x" }, "mode": "0644" });
        if !restarts.is_empty() {
            spec["restarts"] = json!(restarts);
        }
        Resource {
            name: name.parse().unwrap(),
            kind: "file".to_owned(),
            spec,
            forward_only: None,
            not_reversible: None,
            hides: Vec::new(),
        }
    }

    fn forward(name: &str, path: &str, restarts: &[&str]) -> Resource {
        Resource {
            forward_only: Some(true),
            ..file(name, path, restarts)
        }
    }

    fn content(mode: Mode, resources: Vec<Resource>) -> Arc<ModuleContent> {
        Arc::new(ModuleContent {
            module: resources[0].name.module.clone(),
            mode,
            after: vec!["base".parse().unwrap()],
            on_policy_change: vec!["server".parse().unwrap(), "schema".parse().unwrap()],
            requires: Vec::new(),
            secrets: Default::default(),
            resources,
        })
    }

    type Side = Option<Arc<ModuleContent>>;

    fn ways(of: Vec<(&str, Side, Side)>) -> BTreeMap<ModuleName, Way> {
        of.into_iter()
            .map(|(name, former, newer)| (name.parse().unwrap(), Way { former, newer }))
            .collect()
    }

    fn names(restored: &BTreeMap<ModuleName, Restored>, module: &str) -> Vec<String> {
        let content = &restored[&module.parse::<ModuleName>().unwrap()].content;
        content.resources.iter().map(|r| r.name.to_string()).collect()
    }

    // holds: DL-7
    #[test]
    fn what_stays_stands_where_it_stood_and_names_only_what_is_there() {
        let apply = |resources| Some(content(Mode::Apply, resources));
        let former = vec![
            file("web.first", "/first", &[]),
            file("web.last", "/last", &["first"]),
        ];
        let newer = vec![
            file("web.first", "/first", &[]),
            forward("web.schema", "/schema", &["server", "first"]),
            file("web.server", "/server", &[]),
            file("web.last", "/last", &["server"]),
        ];
        let ways = ways(vec![("web", apply(former), apply(newer))]);
        let restored = restored(&ways, |_| true);
        assert_eq!(names(&restored, "web"), ["web.first", "web.schema", "web.last"]);
        let content = &restored.values().next().unwrap().content;
        assert_eq!(content.resources[1].spec["restarts"], json!(["first"]));
        assert_eq!(
            content.resources[2].spec["restarts"],
            json!(["first"]),
            "as it is proven"
        );
        let on_policy_change: Vec<&str> = content.on_policy_change.iter().map(|id| id.as_str()).collect();
        assert_eq!(on_policy_change, ["schema"]);
    }

    // holds: DL-7, HR-6
    #[test]
    fn a_thing_that_moved_is_the_same_thing_and_has_one_owner() {
        let apply = |resources| Some(content(Mode::Apply, resources));
        // From an ordinary resource to a marked one of another module: that keeps it.
        let former = || apply(vec![file("web.a", "/x", &[]), file("web.b", "/b", &[])]);
        let db = |resources| apply(resources);
        let moved = ways(vec![
            ("web", former(), apply(vec![file("web.b", "/b", &[])])),
            (
                "db",
                db(vec![file("db.own", "/own", &[])]),
                db(vec![file("db.own", "/own", &[]), forward("db.x", "/x", &[])]),
            ),
        ]);
        let restored = restored(&moved, |_| true);
        assert_eq!(names(&restored, "web"), ["web.b"]);
        assert_eq!(names(&restored, "db"), ["db.own", "db.x"]);

        // From a marked one to an ordinary one: what it became stays, under its new name.
        let moved = ways(vec![(
            "web",
            apply(vec![forward("web.a", "/x", &[])]),
            apply(vec![file("web.c", "/x", &["c"])]),
        )]);
        assert_eq!(names(&super::restored(&moved, |_| true), "web"), ["web.c"]);
    }

    // holds: DL-7
    #[test]
    fn what_is_left_of_a_module_that_came_waits_for_nobody_and_what_is_only_looked_at_did_nothing() {
        let newer = |mode| {
            let resources = vec![
                file("web.conf", "/conf", &[]),
                forward("web.schema", "/schema", &[]),
            ];
            Some(content(mode, resources))
        };
        let came = ways(vec![("web", None, newer(Mode::Apply))]);
        let restored = restored(&came, |_| true);
        assert_eq!(names(&restored, "web"), ["web.schema"]);
        assert_eq!(restored.values().next().unwrap().content.after, []);
        let looked_at = ways(vec![("web", None, newer(Mode::Observe))]);
        assert!(super::restored(&looked_at, |_| true).is_empty());
        assert!(super::restored(&came, |_| false).is_empty(), "it never did it");
    }
}
