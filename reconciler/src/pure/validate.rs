//! Holds the documents of a tree against each other: every reference, every uniqueness, every range that needs more
//! than one document (FR-1, FR-5). Only this stage makes a [`Validated`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::document::var::Vars;
use meshplan_schemas::document::{FleetDoc, ModuleFile, NodeFile, PlanDoc};
use meshplan_schemas::finding::{Finding, Source, did_you_mean};
use meshplan_schemas::ident::{ModuleName, NodeName, PlanName, RoleName};
use meshplan_schemas::policy::FleetPolicy;

use super::assertions::{self, Assertion};
use super::parse::{Documents, ModuleFolder};

mod alone;
mod checks;
mod fleet;
mod kinds;
mod modules;
mod nodes;
mod not_yet;
mod plan_keys;
mod plans;
mod policies;
mod roles;
mod rotations;
mod sections;
pub(super) mod settings;

pub(super) use kinds::packing;

/// A tree whose documents fit each other.
#[derive(Debug, Clone)]
pub struct Validated {
    fleet: FleetDoc,
    fleet_vars: Vars,
    nodes: Vec<Record>,
    identities: nodes::Identities,
    revoked: Vec<Digest>,
    policy: FleetPolicy,
    modules: BTreeMap<ModuleName, Module>,
    plans: BTreeMap<PlanName, PlanDoc>,
    checks: Vec<Assertion>,
    warnings: Vec<Finding>,
    retired: BTreeMap<SecretName, String>,
    unsigned: Option<Finding>,
}

/// A node that is a member or will be: not revoked.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its name.
    pub name: NodeName,
    /// Its record.
    pub file: Arc<NodeFile>,
    /// Where the record stands.
    pub source: Source,
    /// All its modules: those of the record and those that its roles bring, by name.
    pub modules: Arc<BTreeSet<ModuleName>>,
}

/// A module and the files of its folder.
#[derive(Debug, Clone)]
pub struct Module {
    /// What it says.
    pub file: ModuleFile,
    /// Where it stands.
    pub source: Source,
    /// The other files of the folder, by their path in it.
    pub files: BTreeMap<String, Arc<[u8]>>,
    /// Those of them that can be run.
    pub programs: BTreeSet<String>,
}

impl Validated {
    /// fleet.toml.
    #[must_use]
    pub fn fleet(&self) -> &FleetDoc {
        &self.fleet
    }
    /// `[vars]` of fleet.toml.
    #[must_use]
    pub fn fleet_vars(&self) -> &Vars {
        &self.fleet_vars
    }
    /// The records that are not revoked, in the order of their names.
    #[must_use]
    pub fn nodes(&self) -> &[Record] {
        &self.nodes
    }
    /// Digests of the text of the uuids and keys of revoked records, sorted (SG-3).
    #[must_use]
    pub fn revoked(&self) -> &[Digest] {
        &self.revoked
    }
    /// Policy.
    #[must_use]
    pub fn policy(&self) -> &FleetPolicy {
        &self.policy
    }
    /// The modules.
    #[must_use]
    pub fn modules(&self) -> &BTreeMap<ModuleName, Module> {
        &self.modules
    }
    /// The plans.
    #[must_use]
    pub fn plans(&self) -> &BTreeMap<PlanName, PlanDoc> {
        &self.plans
    }
    /// These records, with one module alone: as another tree has it, with the settings that the other fleet gives it.
    /// Whether it fits these records nobody has checked. None where the other tree has no such module.
    #[must_use]
    pub(super) fn with_module_of(self, mut other: Self, name: &ModuleName) -> Option<Self> {
        let module = other.modules.remove(name)?;
        Some(Self {
            modules: BTreeMap::from([(name.clone(), module)]),
            fleet_vars: other.fleet_vars,
            warnings: Vec::new(),
            ..self
        })
    }
    /// The assertions of `checks/`, in the order of their files (FR-11).
    #[must_use]
    pub fn checks(&self) -> &[Assertion] {
        &self.checks
    }
    /// Secrets whose former values are spent, and why (DL-7).
    #[must_use]
    pub fn retired(&self) -> &BTreeMap<SecretName, String> {
        &self.retired
    }
    /// What is worth saying and stops nothing.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }
    /// Why nothing of this tree may be signed although nothing in it is wrong: it has what this version checks and
    /// cannot carry out. None for every tree that may be an order.
    #[must_use]
    pub fn unsigned(&self) -> Option<&Finding> {
        self.unsigned.as_ref()
    }
}

/// Why a tree is no [`Validated`].
#[derive(Debug)]
pub(super) struct Refused {
    /// Everything that is wrong between its documents; warnings are among it.
    pub(super) findings: Vec<Finding>,
    /// Its modules, records and checks in whose own documents nothing is wrong, so that what only composing finds is said
    /// together with the rest (FR-1); none without a fleet.toml that could be read.
    pub(super) sound: Option<Box<Validated>>,
}

/// Holds the documents of a tree against each other.
///
/// # Errors
/// Everything that is wrong between them, sorted by file and line; warnings are among it. Empty where a document
/// could not be read at all, which [`super::parse::parse`] has said.
pub fn validate(documents: Documents) -> Result<Validated, Vec<Finding>> {
    validate_after(documents, &[]).map_err(|refused| refused.findings)
}

/// The same; `of_documents` is what reading them has said.
pub(super) fn validate_after(documents: Documents, of_documents: &[Finding]) -> Result<Validated, Refused> {
    let mut findings = Vec::new();
    let names = Names::of(&documents);
    let fleet = fleet::check(&documents, &mut findings);
    let memberships = nodes::memberships(&documents);
    let identities = nodes::check(&documents, &names, &mut findings);
    modules::check(&documents, &names, &mut findings);
    modules::check_targets(&documents, &memberships, &mut findings);
    kinds::takeovers(&documents, &memberships, &mut findings);
    settings::check(&documents, &memberships, &mut findings);
    sections::check(&documents, &names, &mut findings);
    rotations::check(&documents, &names, &mut findings);
    checks::check(&documents, &names, &mut findings);
    not_yet::check(&documents, &mut findings);
    let policy = policies::check(&documents, &names, &mut findings);
    let plans = plans::check(&documents, &names, fleet.as_ref(), &mut findings);
    if !documents.broken {
        roles::warn(&documents, &names, &mut findings);
    }
    let unsigned = not_yet::unsigned(&documents);
    findings.sort();
    findings.dedup();
    let refused = documents.broken || findings.iter().any(Finding::is_error);
    let Some(fleet) = fleet else {
        findings.extend(unsigned);
        findings.sort();
        let sound = None;
        return Err(Refused { findings, sound });
    };
    let wrong: BTreeSet<String> = (findings.iter().chain(of_documents))
        .filter(|finding| finding.is_error())
        .map(|finding| finding.file.clone())
        .collect();
    let fleet_vars = documents
        .fleet
        .and_then(|d| d.read)
        .map(|f| f.vars)
        .unwrap_or_default();
    let revoked = nodes::revoked(&documents.nodes);
    let of_policy = wrong.iter().any(|file| file.starts_with("policy/"));
    let assertions = (documents.checks.values())
        .filter(|document| !wrong.contains(document.source.file()))
        .filter_map(|document| Some(assertions::of_document(&document.source, document.read.as_ref()?)))
        .flatten()
        .filter(|check| !(of_policy && check.says.is_of_policy()))
        .collect();
    let mut nodes: Vec<Record> = (documents.nodes.into_iter().zip(memberships))
        .filter(|(node, _)| !wrong.contains(node.document.source.file()))
        .filter_map(|(node, modules)| {
            let read = node.document.read.as_ref();
            Some(Record {
                name: node.name.clone(),
                file: Arc::clone(read.filter(|file| !node.in_revoked && !file.revoked)?),
                source: node.document.source.clone(),
                modules,
            })
        })
        .collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let modules = (documents.modules.into_iter())
        .filter(|(name, folder)| is_sound(name, folder, &wrong))
        .filter_map(|(name, folder)| {
            let document = folder.document?;
            let module = Module {
                file: document.read?,
                source: document.source,
                files: folder.files,
                programs: folder.programs,
            };
            Some((name, module))
        })
        .collect();
    let retired = documents.retired.and_then(|document| document.read);
    let retired = retired.into_iter().flat_map(|file| file.retired);
    let retired = retired.map(|at| (at.value.name.value, at.value.why.0));
    let warnings = if refused {
        Vec::new()
    } else {
        std::mem::take(&mut findings)
    };
    let validated = Validated {
        retired: retired.collect(),
        fleet,
        fleet_vars,
        nodes,
        identities,
        revoked,
        policy,
        modules,
        plans,
        checks: assertions,
        warnings,
        unsigned: unsigned.clone().filter(|_| !refused),
    };
    if !refused {
        return Ok(validated);
    }
    findings.extend(unsigned);
    findings.sort();
    let sound = Some(Box::new(validated));
    Err(Refused { findings, sound })
}

/// Whether nothing of a module's own folder is wrong, nor the values that fleet.toml gives it.
fn is_sound(name: &ModuleName, folder: &ModuleFolder, wrong: &BTreeSet<String>) -> bool {
    let prefix = format!("modules/{name}/");
    if wrong.iter().any(|file| file.starts_with(&prefix)) {
        return false;
    }
    let file = folder
        .document
        .as_ref()
        .and_then(|document| document.read.as_ref());
    file.is_some_and(|file| file.settings.0.is_empty() || !wrong.contains("fleet.toml"))
}

/// Every name that another document may refer to.
struct Names {
    nodes: BTreeSet<NodeName>,
    modules: BTreeSet<ModuleName>,
    /// Roles that a record carries, with the first place.
    carried: BTreeMap<RoleName, (usize, std::ops::Range<usize>)>,
    /// Roles that an overlay or a module names.
    meant: BTreeSet<RoleName>,
    /// Roles that a plan, a check, a private network or a rotation names.
    spoken_of: BTreeSet<RoleName>,
    /// Some document could not be read, so that the roles are not all known.
    partial: bool,
}

impl Names {
    fn of(documents: &Documents) -> Self {
        let mut carried = BTreeMap::new();
        let mut nodes = BTreeSet::new();
        for (at, node) in documents.nodes.iter().enumerate() {
            let revoked = node.in_revoked || node.document.read.as_ref().is_some_and(|file| file.revoked);
            if revoked {
                continue;
            }
            nodes.insert(node.name.clone());
            for role in node.document.read.iter().flat_map(|file| &file.roles) {
                carried
                    .entry(role.value.clone())
                    .or_insert_with(|| (at, role.span.clone()));
            }
        }
        let of_modules = (documents.modules.values())
            .filter_map(|folder| folder.document.as_ref()?.read.as_ref())
            .flat_map(|file| file.roles.iter().map(|role| role.value.clone()));
        Self {
            nodes,
            modules: documents.modules.keys().cloned().collect(),
            carried,
            meant: documents.overlays.keys().cloned().chain(of_modules).collect(),
            spoken_of: roles::spoken_of(documents),
            partial: documents.broken,
        }
    }

    fn knows_role(&self, role: &RoleName) -> bool {
        self.partial || self.carried.contains_key(role) || self.meant.contains(role)
    }

    fn module(&self, source: &Source, name: &ModuleName, span: &std::ops::Range<usize>) -> Option<Finding> {
        (!self.modules.contains(name)).then(|| {
            let known = self.modules.iter().map(ModuleName::as_str);
            (source.error(span.clone(), format!("there is no module `{name}`"))).help(
                did_you_mean(name.as_str(), known)
                    .unwrap_or_else(|| format!("make `modules/{name}/module.toml`")),
            )
        })
    }

    fn node(&self, source: &Source, name: &NodeName, span: &std::ops::Range<usize>) -> Option<Finding> {
        (!self.nodes.contains(name)).then(|| {
            let known = self.nodes.iter().map(NodeName::as_str);
            (source.error(span.clone(), format!("there is no node `{name}`"))).help(
                did_you_mean(name.as_str(), known)
                    .unwrap_or_else(|| format!("`meshplan node add {name}` makes its record")),
            )
        })
    }

    fn role(&self, source: &Source, role: &RoleName, span: &std::ops::Range<usize>) -> Option<Finding> {
        (!self.knows_role(role)).then(|| {
            let known = self.carried.keys().chain(&self.meant).map(RoleName::as_str);
            let message = format!("there is no role `{role}`: no record, overlay or module names it");
            source
                .error(span.clone(), message)
                .maybe_help(did_you_mean(role.as_str(), known))
        })
    }
}
