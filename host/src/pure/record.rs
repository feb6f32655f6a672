//! The ledger as a value: what the host wrote, under whose name, and what it found before (HR-3).
//!
//! Stands alone because deciding (`apply_plan`) and keeping (`edge::ledger`) share it. Invariant: a thing that is
//! not in the ledger is not the host's, and is never removed.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;
use serde::{Deserialize, Serialize};

use super::apply_plan::{Follow, Write};
use super::filter::found::Stand;
use super::target::Target;
use super::target_path::TargetPath;

/// The version of the ledger that this build writes and reads.
pub const LEDGER_VERSION: u32 = 1;

/// What the host keeps of its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// [`LEDGER_VERSION`].
    pub version: u32,
    /// The last confirmed declaration, none before the first.
    pub confirmed: Option<Confirmed>,
    /// A record for each resource that the host has.
    pub records: BTreeMap<ResourceName, Record>,
    /// What nothing declares and could not be removed yet, by target.
    pub orphans: BTreeMap<Target, Record>,
    /// What stands at a target and is not the host's (HR-8): the first original.
    pub held: BTreeMap<ResourceName, Held>,
    /// Folders that the host made on the way to a target; removed when they are empty again.
    pub made: BTreeSet<TargetPath>,
    /// The effective policy in use, none before the first.
    pub policy: Option<PolicyRecord>,
    /// Resources of the confirmed declaration that go only forward (DL-7).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub forward_only: BTreeSet<ResourceName>,
    /// Resources that a declaration which went back left as it had made them, or gone, for they go only forward: the
    /// confirmed one has them otherwise, and that is no drift.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ahead: BTreeSet<ResourceName>,
    /// What is still to be restarted, reloaded or run for a change that was made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub due: BTreeMap<ResourceName, Follow>,
    /// What waited for a confirm, and goes now that it is there: former containers under their other name, networks that
    /// nothing declares.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leavings: BTreeSet<Target>,
    /// Images that the host fetched, by id: they go with the last container that it had of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub fetched: BTreeSet<String>,
}

impl Ledger {
    /// Whether a thing was done as it is asked for, under whatever name.
    #[must_use]
    pub fn has_done(&self, target: &Target, asked: Digest) -> bool {
        let mut records = self.records.values().chain(self.orphans.values());
        records.any(|record| record.target.as_ref() == Some(target) && record.asked == asked)
    }

    /// Whether something of the host's is on record at a target, declared or not.
    #[must_use]
    pub fn has(&self, target: &Target) -> bool {
        let mut records = self.records.values().chain(self.orphans.values());
        records.any(|record| record.target.as_ref() == Some(target))
    }

    /// What follows a write is owed until it has followed; what the write starts afresh owes nothing more. `is_at_hand`:
    /// the module has it.
    pub fn owe_after(&mut self, write: &Write, is_at_hand: impl Fn(&ResourceName) -> bool) {
        let own = &write.record.name;
        if write.nature.starts {
            self.due.remove(own);
        }
        for follower in &write.followers {
            let name = ResourceName {
                module: own.module.clone(),
                id: follower.id.clone(),
            };
            if is_at_hand(&name) && !self.held.contains_key(&name) {
                let owed = self.due.entry(name).or_insert(follower.how);
                *owed = follower.how.max(*owed);
            }
        }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            version: LEDGER_VERSION,
            confirmed: None,
            records: BTreeMap::new(),
            orphans: BTreeMap::new(),
            held: BTreeMap::new(),
            made: BTreeSet::new(),
            policy: None,
            forward_only: BTreeSet::new(),
            ahead: BTreeSet::new(),
            due: BTreeMap::new(),
            leavings: BTreeSet::new(),
            fetched: BTreeSet::new(),
        }
    }
}

impl Ledger {
    /// A resource is as its record says. Whatever else was recorded at its target is handed over to it (HR-16); its
    /// own former target, when it moved, is an orphan (HR-6).
    pub fn take_over(&mut self, record: Record) {
        if let Some(target) = &record.target {
            self.records
                .retain(|name, other| *name == record.name || other.target.as_ref() != Some(target));
            self.orphans.remove(target);
        }
        self.held.remove(&record.name);
        let former = self.records.insert(record.name.clone(), record.clone());
        if let Some(former) = former
            && former.target != record.target
            && let Some(target) = former.target.clone()
        {
            self.orphans.insert(target, former);
        }
    }

    /// What a resource wrote at a target is gone, or no longer the host's.
    pub fn forget(&mut self, name: &ResourceName, target: Option<&Target>) {
        if let Some(target) = target {
            self.orphans.remove(target);
        }
        if self
            .records
            .get(name)
            .is_some_and(|record| record.target.as_ref() == target)
        {
            self.records.remove(name);
        }
    }

    /// What a resource wrote at a target is declared by nobody and still there.
    pub fn orphan(&mut self, name: &ResourceName, target: &Target) {
        if self
            .records
            .get(name)
            .is_some_and(|record| record.target.as_ref() == Some(target))
            && let Some(record) = self.records.remove(name)
        {
            self.orphans.insert(target.clone(), record);
        }
    }
}

/// A declaration by number and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// Its sequence.
    pub sequence: u64,
    /// The digest of its payload.
    pub digest: Digest,
}

/// The host's record of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Whose.
    pub name: ResourceName,
    /// The kind's word.
    pub kind: String,
    /// What it has; none for a probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The digest of the kind's fields as they were asked for.
    pub asked: Digest,
    /// The digest of a file's bytes as they were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
    /// It is asked to be away: what comes there later is nobody's here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_absence: bool,
    /// What stood at the target before the host first wrote there.
    pub found: Found,
}

/// What stood at a target before the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// Nothing: it goes when it is no longer declared.
    Nothing,
    /// This: it comes back when the resource is no longer declared.
    Thing(Thing),
    /// Nobody knows, as the ledger was lost: nothing is removed on its word (HR-15).
    Unknown,
}

/// A thing, whole: of a path content by digest (its bytes are a blob), mode and owner; of another sort what the host
/// can bring back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thing {
    /// A regular file.
    File {
        /// The digest of its bytes.
        content: Digest,
        /// Its permission bits.
        mode: u32,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// A folder.
    Directory {
        /// Its permission bits.
        mode: u32,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// A symbolic link.
    Link {
        /// What it points at.
        target: String,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// A folder that is put in place whole; the folder itself.
    Tree {
        /// Nothing is in it.
        is_empty: bool,
        /// Its permission bits.
        mode: u32,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// A unit of the service manager.
    Unit {
        /// Its state, as the manager says it: `active`, `inactive`, `failed`.
        active: String,
        /// Whether it starts at boot, as the manager says it: `enabled`, `disabled`, `masked`, `static`.
        boot: String,
    },
    /// A process: its units.
    Process {
        /// The `.service`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service: Option<Part>,
        /// The `.timer`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<Part>,
    },
    /// A user.
    User(User),
    /// A group.
    Group {
        /// Its number.
        gid: u32,
        /// Who is in it beside those whose primary group it is.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        members: Vec<String>,
    },
    /// A setting of the kernel.
    Setting {
        /// Its value, its parts with one blank between them.
        value: String,
        /// The line of the file that sets it at boot, none where the host has no such file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_boot: Option<String>,
    },
    /// A module of the kernel.
    KernelModule {
        /// It is in the kernel, as a part of it or loaded.
        loaded: bool,
        /// What the host's files say of it at boot: to load it, and its options.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        at_boot: Vec<String>,
    },
    /// A package of the machine's package manager.
    Package {
        /// Its version, as its manager says it.
        version: String,
    },
    /// A container.
    Container(Box<Container>),
    /// A network of containers.
    Network {
        /// Its addresses, where they are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subnet: Option<String>,
        /// It has no way out.
        is_internal: bool,
        /// The containers in it, running or not, by name.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        users: BTreeSet<String>,
    },
    /// A volume of containers.
    Volume,
    /// The machine's filter.
    Filter {
        /// The digest of the file from which it is loaded at a start of the machine; none where there is no such file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<Digest>,
        /// How its table stands.
        table: FilterTable,
        /// The firewalls that the machine had before, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        firewalls: BTreeMap<String, Stand>,
    },
}

impl Thing {
    /// Whether it does something where it stands. A firewall that is installed and off does not.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        match self {
            Self::Filter {
                file,
                table,
                firewalls,
            } => {
                file.is_some()
                    || *table != FilterTable::Absent
                    || firewalls.values().any(|stand| stand.is_active())
            }
            _ => true,
        }
    }
}

/// How the table of the machine's filter stands in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterTable {
    /// There is none.
    Absent,
    /// As it was listed when it was loaded from its file.
    AsLoaded,
    /// Otherwise, and by another version of nft.
    OtherWords,
    /// Otherwise.
    Other,
}

/// A container, as far as the host can bring it back: the container itself, and whether it ran. No value of its
/// environment is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// The image that it was asked for with.
    pub image: String,
    /// The image that it has.
    pub image_id: String,
    /// The digest of what it was made from; none where the host did not make it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// Its state, as the engine says it: `running`, `exited`.
    pub status: String,
    /// The networks that it is in.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub networks: BTreeSet<String>,
    /// The units that start it by a timer: `.service` and `.timer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<Box<Thing>>,
}

/// A unit of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The text of its file, none where the unit is not from one that the host could have written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// As of [`Thing::Unit`].
    pub active: String,
    /// As of [`Thing::Unit`].
    pub boot: String,
}

/// A user, as the system's database has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// The number of its primary group.
    pub gid: u32,
    /// Its further groups, in order.
    pub groups: Vec<String>,
    /// The name of the person.
    pub comment: String,
    /// The home folder.
    pub home: String,
    /// The login shell.
    pub shell: String,
    /// The lines of its `authorized_keys`; none where there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
}

/// A thing that is held (HR-8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Where.
    pub target: Target,
    /// The first original; its bytes are a blob of `originals/`.
    pub original: Thing,
}

/// The policy in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// The epoch that brought the bytes.
    pub epoch: u64,
    /// The digest of the policy file's bytes.
    pub digest: Digest,
}
