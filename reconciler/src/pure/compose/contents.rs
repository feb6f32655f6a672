//! The contents of all modules on all nodes of a tree, with the digests that deliveries go by (DL-3, DL-14), kept for
//! the next tree.
//!
//! A module whose templates do not read `node` is made once for each set of settings, however many nodes have it; what
//! nothing has changed about is not made again. Invariant: what is kept is what making it again would give, so that a
//! tree composes to the same whatever was composed before it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use meshplan_schemas::declaration::{LeftOut, Mode};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::module::Entry;
use meshplan_schemas::document::var::Var;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::{ModuleName, NodeId, NodeName};
use serde_json::json;

mod faults;

use super::artifacts::Artifacts;
use super::content::content;
use super::kinds::{self, Place};
use super::{ComposedNode, Made, left_out, node};
use crate::pure::secrets::{Scope, Secrets, Uses};
use crate::pure::template::{Budget, RenderError, Shared, Spent, Templates, is_template};
use crate::pure::validate::{Module, Record, Validated, settings};

/// A tree: what it says, and its secrets.
type OfTree<'t> = (&'t Validated, &'t Secrets);

/// What fed a module on a node: its settings, and `[vars]` where a template reads them.
type Fed = Vec<(String, Var)>;

/// What was made of one tree.
#[derive(Debug, Default)]
pub(super) struct Contents {
    modules: BTreeMap<ModuleName, OfModule>,
    nodes: HashMap<NodeId, OfNode>,
    /// What all templates took.
    spent: Spent,
}

/// What was made of one module.
#[derive(Debug)]
struct OfModule {
    templates: Arc<Templates>,
    /// Why it is left out on every node that has it.
    left_out: Option<(String, Finding)>,
    /// Its content differs from node to node by more than settings; and it hangs on what other nodes are.
    reads: Reads,
    /// The secrets that it can name.
    scope: Arc<Scope>,
    /// Those that it may use, with the digests of their values (FR-9).
    secrets: BTreeMap<String, Result<Digest, String>>,
    /// The digest of each file of the folder, by its path in it; that of the value, for a secret.
    files: Arc<BTreeMap<String, Digest>>,
    /// What its archives and bundles are made of.
    artifacts: Arc<Artifacts>,
    /// By whether it only observes, and what fed it; empty where a template reads `node`.
    made: BTreeMap<(bool, Arc<Fed>), OnNode>,
    /// What feeds it, over all its nodes: how many by each.
    fed: BTreeMap<Arc<Fed>, usize>,
}

/// What the content of a module hangs on beside its settings.
#[derive(Debug, Clone, Copy)]
struct Reads {
    /// The node that it is for.
    node: bool,
    /// All nodes.
    nodes: bool,
    /// The fleet's name and `[vars]`.
    fleet: bool,
}

impl Reads {
    fn of(module: &Module, templates: &Templates) -> Self {
        let peers = kinds::reads_the_nodes(module);
        Self {
            node: templates.read("node") || peers,
            nodes: templates.read("nodes") || peers,
            fleet: templates.read("fleet"),
        }
    }
}

/// What one module is on a node.
#[derive(Debug, Clone)]
struct OnNode {
    made: Made,
    /// What its templates took.
    spent: Spent,
}

/// What was made of one node.
#[derive(Debug)]
struct OfNode {
    record: Record,
    composed: Arc<ComposedNode>,
    fed: Vec<(ModuleName, Arc<Fed>)>,
    /// All its modules are in it, or left out of it.
    whole: bool,
    /// What templates took for it alone.
    spent: Spent,
}

/// Renderings that failed: by module and reason the first node, and how many.
type Failed = BTreeMap<(ModuleName, RenderError), (NodeName, usize)>;

/// What is taken over from another tree.
struct Carried {
    /// The modules of this tree, with what was made of them where it stands.
    contents: Contents,
    /// The modules of which nothing has changed that nodes could see.
    steady: HashSet<ModuleName>,
    /// The nodes of the other.
    nodes: HashMap<NodeId, OfNode>,
    /// What cannot be compiled; its module is none of `contents`.
    broken: Vec<Finding>,
}

/// One node made.
struct NodeMade {
    composed: ComposedNode,
    fed: Vec<(ModuleName, Arc<Fed>)>,
    whole: bool,
    spent: Spent,
}

impl Contents {
    /// Makes all contents of a tree. `before` is what was made of another tree, with that tree.
    ///
    /// # Errors
    /// What cannot be compiled or rendered, and the checks that fail on nodes of which all can, sorted by file and line, with
    /// the tree's warnings.
    pub(super) fn of(
        tree: OfTree<'_>,
        before: Option<(OfTree<'_>, Self)>,
    ) -> Result<(Self, Vec<Finding>), Vec<Finding>> {
        let (validated, secrets) = tree;
        let Carried {
            mut contents,
            steady,
            nodes: mut known,
            broken,
        } = Self::carried_over(tree, before);
        let mut budget = Budget::after(contents.spent);
        let shared = Shared::of(validated, contents.read_all_nodes());
        let mut failed = Failed::new();
        for record in validated.nodes() {
            let id = record.file.id.value;
            let same = known.remove(&id).filter(|node| {
                node.record.is(record) && record.modules.iter().all(|module| steady.contains(module))
            });
            let of_node = match same {
                Some(same) => {
                    budget.spend(same.spent);
                    same
                }
                None => {
                    let made = contents.make(validated, record, &shared, &mut budget, &mut failed);
                    OfNode {
                        record: record.clone(),
                        composed: Arc::new(made.composed),
                        fed: made.fed,
                        whole: made.whole,
                        spent: made.spent,
                    }
                }
            };
            for (module, fed) in &of_node.fed {
                if let Some(module) = contents.modules.get_mut(module) {
                    *module.fed.entry(Arc::clone(fed)).or_default() += 1;
                }
            }
            contents.nodes.insert(id, of_node);
        }
        contents.spent = contents.count_spent();
        let mut warnings = validated.warnings().to_vec();
        warnings.extend(validated.unsigned().cloned());
        warnings.extend(contents.dear(validated));
        let left_out = contents
            .modules
            .values()
            .filter_map(|module| module.left_out.as_ref());
        warnings.extend(left_out.map(|(_, finding)| finding.clone()));
        warnings.extend(secrets.findings());
        warnings.sort();
        if failed.is_empty() && broken.is_empty() {
            return Ok((contents, warnings));
        }
        let mut findings = contents.said(&failed);
        findings.extend(broken);
        findings.extend(contents.failing_checks(validated));
        findings.extend(warnings);
        findings.sort();
        Err(findings)
    }

    /// Composes some records of a tree, each by itself: what cannot be rendered on one keeps nothing from the others.
    ///
    /// # Errors
    /// What cannot be compiled.
    pub(super) fn of_records<'r>(
        tree: OfTree<'_>,
        records: impl Iterator<Item = &'r Record>,
    ) -> Result<Vec<Result<ComposedNode, Vec<Finding>>>, Vec<Finding>> {
        let (validated, _) = tree;
        let Carried {
            mut contents, broken, ..
        } = Self::carried_over(tree, None);
        if !broken.is_empty() {
            return Err(broken);
        }
        let shared = Shared::of(validated, contents.read_all_nodes());
        let made = records.map(|record| {
            let mut failed = Failed::new();
            let mut budget = Budget::after(Spent::default());
            let made = contents.make(validated, record, &shared, &mut budget, &mut failed);
            if failed.is_empty() {
                Ok(made.composed)
            } else {
                Err(contents.said(&failed))
            }
        });
        Ok(made.collect())
    }

    /// What of another tree can be taken over.
    fn carried_over((validated, secrets): OfTree<'_>, before: Option<(OfTree<'_>, Self)>) -> Carried {
        let (before, mut former) = before.unzip();
        let before = before.map(|(validated, _)| validated);
        let same_fleet = before.is_some_and(|b| {
            b.fleet().fleet == validated.fleet().fleet && b.fleet_vars() == validated.fleet_vars()
        });
        let same_nodes = before.is_some_and(|b| {
            let (old, new) = (b.nodes(), validated.nodes());
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| old.is(new))
        });
        let mut broken = Vec::new();
        let mut contents = Self::default();
        let mut steady = HashSet::new();
        for (name, module) in validated.modules() {
            let same = before
                .and_then(|b| b.modules().get(name))
                .is_some_and(|b| b.is(module));
            let known = former
                .as_mut()
                .and_then(|former| former.modules.remove(name))
                .filter(|_| same);
            let scope = Arc::new(secrets.within(name));
            let used = scope.state(&uses(module));
            let (templates, files, artifacts, made) = match known {
                Some(known) => {
                    let reads = known.reads;
                    let stands =
                        (same_fleet || !reads.fleet) && (same_nodes || !reads.nodes) && known.secrets == used;
                    // Settings come from the fleet's `[vars]` too; a content that was made is found by their values.
                    if stands && (same_fleet || module.file.settings.0.is_empty()) {
                        steady.insert(name.clone());
                    }
                    let made = if stands { known.made } else { BTreeMap::new() };
                    (known.templates, known.files, known.artifacts, made)
                }
                None => match Templates::compile(module) {
                    Ok(templates) => {
                        let files = module.files.iter().map(|(path, bytes)| {
                            let of_value = secrets.source_digest(&format!("modules/{name}/{path}"));
                            (path.clone(), of_value.unwrap_or_else(|| Digest::of(bytes)))
                        });
                        let artifacts = Arc::new(Artifacts::of(module));
                        (
                            Arc::new(templates),
                            Arc::new(files.collect()),
                            artifacts,
                            BTreeMap::new(),
                        )
                    }
                    Err(more) => {
                        broken.extend(more);
                        continue;
                    }
                },
            };
            let of_module = OfModule {
                left_out: left_out::reason(name, module),
                scope,
                secrets: used,
                reads: Reads::of(module, &templates),
                templates,
                files,
                artifacts,
                made,
                fed: BTreeMap::new(),
            };
            contents.modules.insert(name.clone(), of_module);
        }
        let nodes = former.map(|former| former.nodes).unwrap_or_default();
        let made = contents.modules.values().flat_map(|module| module.made.values());
        contents.spent = made.map(|on_node| on_node.spent).sum();
        Carried {
            contents,
            steady,
            nodes,
            broken,
        }
    }

    /// The node composed.
    pub(super) fn composed(&self, id: NodeId) -> Option<&Arc<ComposedNode>> {
        self.nodes.get(&id).map(|node| &node.composed)
    }

    /// Makes the contents of one node anew, in a tree of which nothing else has changed: the node, and the modules whose
    /// sources it changes. None where the whole tree must be made: a template reads all nodes, or something failed.
    pub(super) fn renew(
        &mut self,
        (validated, _): OfTree<'_>,
        record: &Record,
    ) -> Option<(Arc<ComposedNode>, Vec<ModuleName>)> {
        if self.read_all_nodes() {
            return None;
        }
        let shared = Shared::of(validated, false);
        let mut failed = Failed::new();
        let mut budget = Budget::after(self.spent);
        let made = self.make(validated, record, &shared, &mut budget, &mut failed);
        if !failed.is_empty() {
            return None;
        }
        self.spent += made.spent;
        let composed = Arc::new(made.composed);
        let new = OfNode {
            record: record.clone(),
            composed: Arc::clone(&composed),
            fed: made.fed,
            whole: made.whole,
            spent: made.spent,
        };
        let mut fed_anew = Vec::new();
        for (module, fed) in &new.fed {
            let of_module = self.modules.get_mut(module)?;
            let count = of_module.fed.entry(Arc::clone(fed)).or_default();
            *count += 1;
            if *count == 1 {
                fed_anew.push(module.clone());
            }
        }
        let old = self.nodes.insert(record.file.id.value, new)?;
        self.spent -= old.spent;
        for (module, fed) in &old.fed {
            let of_module = self.modules.get_mut(module)?;
            let count = of_module.fed.get_mut(fed)?;
            *count -= 1;
            if *count == 0 {
                of_module.fed.remove(fed);
                of_module.forget_unused();
                fed_anew.push(module.clone());
            }
        }
        Some((composed, fed_anew))
    }

    fn count_spent(&mut self) -> Spent {
        self.modules.values_mut().for_each(OfModule::forget_unused);
        let made = self.modules.values().flat_map(|module| module.made.values());
        let made = made.map(|on_node| on_node.spent);
        made.chain(self.nodes.values().map(|node| node.spent)).sum()
    }

    fn read_all_nodes(&self) -> bool {
        self.modules.values().any(|module| module.reads.nodes)
    }

    /// The modules of a node. What cannot be rendered is missing here and stands in `failed`.
    fn make(
        &mut self,
        validated: &Validated,
        record: &Record,
        shared: &Shared,
        budget: &mut Budget,
        failed: &mut Failed,
    ) -> NodeMade {
        let (mut modules, mut left_out, mut all_fed, mut spent) =
            (BTreeMap::new(), Vec::new(), Vec::new(), Spent::default());
        let mut whole = true;
        for name in record.modules.iter() {
            let (Some(module), Some(of_module)) = (validated.modules().get(name), self.modules.get_mut(name))
            else {
                whole = false;
                continue;
            };
            if let Some((reason, _)) = &of_module.left_out {
                left_out.push(LeftOut {
                    module: name.clone(),
                    reason: reason.clone(),
                });
                continue;
            }
            let resolved: Vec<(&str, Option<&Var>)> =
                settings::resolve(&module.file, validated.fleet_vars(), &record.file.vars).collect();
            let own = of_module.reads.node;
            let fed = of_module.shared(fed(&resolved, record, own));
            all_fed.push((name.clone(), Arc::clone(&fed)));
            let observe = module.file.mode == Mode::Observe || record.file.mode == Mode::Observe;
            let key = (observe, fed);
            if !own && let Some(on_node) = of_module.made.get(&key) {
                modules.insert(name.clone(), on_node.made.clone());
                continue;
            }
            let context = |secret| shared.context(record, &resolved, secret);
            let before = budget.spent();
            let (templates, scope) = (&of_module.templates, &of_module.scope);
            let place = Place {
                validated,
                name,
                module,
                record,
                artifacts: &of_module.artifacts,
            };
            let made = content(place, observe, scope, |path| {
                templates.render(path, context, budget, scope)
            });
            let mut took = budget.spent();
            took -= before;
            match made.map(|filled| (Digest::of_value(&filled.content), filled)) {
                Ok((Ok(digest), filled)) => {
                    let made = (digest, Arc::new(filled));
                    modules.insert(name.clone(), made.clone());
                    if own {
                        spent += took;
                    } else {
                        of_module.made.insert(key, OnNode { made, spent: took });
                    }
                }
                // What a module's content holds can always be written; it would be missing on the node.
                Ok((Err(_), _)) => {}
                // Not the tree's fault: the module is left out, the others go on (FR-8).
                Err(error) if error.is_closed() => left_out.push(LeftOut {
                    module: name.clone(),
                    reason: error.message,
                }),
                Err(error) => {
                    whole = false;
                    let first = failed.entry((name.clone(), error));
                    first.or_insert_with(|| (record.name.clone(), 0)).1 += 1;
                }
            }
        }
        NodeMade {
            composed: node(record, modules, left_out),
            fed: all_fed,
            whole,
            spent,
        }
    }

    /// The digest of a module's folder and of what feeds it: another node with the same settings does not change it,
    /// another value does.
    pub(super) fn source(
        &self,
        (validated, _): OfTree<'_>,
        name: &ModuleName,
    ) -> Result<Option<Digest>, serde_json::Error> {
        let (Some(module), Some(of_module)) = (validated.modules().get(name), self.modules.get(name)) else {
            return Ok(None);
        };
        let fleet_vars: BTreeMap<&str, &Var> = (validated.fleet_vars().0.iter())
            .filter(|_| of_module.reads.fleet)
            .map(|(name, at)| (name.as_str(), &at.value))
            .collect();
        let fed: Vec<&Fed> = of_module.fed.keys().map(AsRef::as_ref).collect();
        let mut source = json!({
            "document": Digest::of(module.source.text().as_bytes()),
            "files": *of_module.files,
            "fleet_vars": fleet_vars,
            "fed": fed,
        });
        let secrets: BTreeMap<&String, Option<&Digest>> = (of_module.secrets.iter())
            .map(|(name, state)| (name, state.as_ref().ok()))
            .collect();
        if let Some(source) = source.as_object_mut() {
            if !secrets.is_empty() {
                source.insert("secrets".to_owned(), serde_json::to_value(secrets)?);
            }
            if !module.programs.is_empty() {
                source.insert("programs".to_owned(), serde_json::to_value(&module.programs)?);
            }
        }
        Digest::of_value(&source).map(Some)
    }
}

/// The secrets that a module may use: its document's, and those that its templates ask for.
fn uses(module: &Module) -> Uses {
    let mut uses = Uses::default();
    let named = module.file.entries().into_iter().flat_map(|entry| match entry {
        Entry::File(file) => file.secret.iter().collect(),
        Entry::Container(container) => container.env_secrets.iter().collect(),
        _ => Vec::new(),
    });
    uses.names.extend(named.map(|at| at.value.0.clone()));
    let templates = module.files.iter().filter(|(path, _)| is_template(path));
    for text in templates.filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok()) {
        uses.add_calls(text);
    }
    uses
}

/// What feeds a module on a node.
fn fed(resolved: &[(&str, Option<&Var>)], record: &Record, own: bool) -> Fed {
    let mut fed: Fed = (resolved.iter())
        .filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?.clone())))
        .collect();
    if own {
        let vars = record.file.vars.0.iter();
        fed.extend(vars.map(|(name, at)| (name.clone(), at.value.clone())));
    }
    fed
}

impl OfModule {
    /// The same, shared with the nodes that it feeds already.
    fn shared(&self, fed: Fed) -> Arc<Fed> {
        match self.fed.get_key_value(&fed) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(fed),
        }
    }

    /// Forgets what was made for values that no node has any more.
    fn forget_unused(&mut self) {
        let fed = &self.fed;
        self.made.retain(|(_, of), _| fed.contains_key(of));
    }
}

impl Record {
    /// Whether it is the very record that the other is, with the same modules.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.modules == other.modules
    }
}

impl Module {
    /// Whether it is what the other is, to the byte.
    fn is(&self, other: &Self) -> bool {
        self.source.text() == other.source.text()
            && self.files == other.files
            && self.programs == other.programs
    }
}
