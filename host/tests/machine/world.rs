//! A machine in memory, and declarations for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_host::edge::disk::SimDisk;
use meshplan_host::edge::machine::{Applied, Machine, Recovery, Setup};
use meshplan_host::edge::system::SimSystem;
use meshplan_host::pure::confirm::Reason;
use meshplan_host::pure::target_path::TargetPath;
use meshplan_schemas::declaration::{Declaration, Mode, ModuleEntry, OnFailure};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::resource::{Ask, Content, Directory, File, Kind, Link, Probe, Resource};

/// Where the state folder is in the root.
pub(crate) const STATE: &str = "/var/lib/meshplan";

pub(crate) fn path(text: &str) -> TargetPath {
    TargetPath::parse(text).unwrap()
}

pub(crate) struct World {
    /// The whole disk.
    pub(crate) disk: SimDisk,
    /// The same, as the machine's root.
    pub(crate) root: SimDisk,
    /// The state folder.
    pub(crate) state: SimDisk,
    /// The machine beside its files.
    pub(crate) system: SimSystem,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::on(SimDisk::new())
    }

    pub(crate) fn on(disk: SimDisk) -> Self {
        let state = disk.at(&path(STATE));
        Self {
            root: disk.clone(),
            state,
            disk,
            system: SimSystem::default(),
        }
    }

    pub(crate) fn setup(&self, boot_id: &str) -> Setup {
        Setup {
            root: Arc::new(self.root.clone()),
            system: Arc::new(self.system.clone()),
            state: Arc::new(self.state.clone()),
            state_inside: Some(path(STATE)),
            boot_id: boot_id.to_owned(),
            policy_out: Some(path("/run/policy.toml")),
        }
    }

    pub(crate) fn open_under(&self, boot_id: &str) -> (Machine, Recovery) {
        Machine::open(self.setup(boot_id), 1000).unwrap()
    }

    pub(crate) fn open(&self) -> (Machine, Recovery) {
        self.open_under("boot")
    }

    pub(crate) fn machine(&self) -> Machine {
        self.open().0
    }

    /// Everything that stands there, without the state folder.
    pub(crate) fn targets(&self) -> BTreeMap<String, String> {
        let mut all = self.disk.show();
        all.retain(|at, _| !at.starts_with(STATE));
        all
    }
}

/// A reason that blames nothing.
pub(crate) fn because(words: &str) -> Reason {
    Reason::Interrupted(words.to_owned())
}

/// Applies, and confirms what it opened.
pub(crate) fn settle(machine: &mut Machine, decl: &Decl) -> Applied {
    let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    if applied.window_open() {
        machine.arm(100).unwrap();
        machine.confirm(20).unwrap();
    }
    applied
}

/// A declaration in the making.
#[derive(Clone)]
pub(crate) struct Decl {
    pub(crate) declaration: Declaration,
}

impl Decl {
    pub(crate) fn new(sequence: u64) -> Self {
        Self {
            declaration: Declaration {
                schema: 1,
                fleet: "home".parse().unwrap(),
                era: 0,
                issued_at: 0,
                must_understand: Vec::new(),
                node: "0192f0c1-0000-7000-8000-000000000001".parse().unwrap(),
                sequence,
                modules: Vec::new(),
                roles: Vec::new(),
                adopted: false,
                take: Vec::new(),
                resources: Vec::new(),
                left_out: Vec::new(),
                artifacts: Vec::new(),
                sealed: Vec::new(),
                apply_secs: 60,
                confirm_secs: 60,
                confirm_probe: None,
                on_failure: OnFailure::Revert,
                mode: Mode::Apply,
                min_host_version: None,
                urgent: false,
                again: Vec::new(),
                membership: None,
                neighbours: Vec::new(),
                manifest: None,
            },
        }
    }

    /// Adds a module; the names of its resources get the module's in front.
    pub(crate) fn with(mut self, module: &str, resources: Vec<Resource>) -> Self {
        self.declaration.modules.push(ModuleEntry {
            module: module.parse().unwrap(),
            digest: Digest::of(module.as_bytes()),
            commit: "a".repeat(40).parse().unwrap(),
            delivery: "fleet@aaaaaaaaaaaa".to_owned(),
            mode: Mode::Apply,
            after: Vec::new(),
            on_policy_change: Vec::new(),
            requires: Vec::new(),
        });
        for mut resource in resources {
            resource.name.module = module.parse().unwrap();
            self.declaration.resources.push(resource);
        }
        self
    }

    pub(crate) fn get(&self) -> Declaration {
        self.declaration.clone()
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of_value(&self.declaration).unwrap()
    }
}

fn resource(id: &str, kind: Kind) -> Resource {
    kind.into_resource(format!("x.{id}").parse().unwrap()).unwrap()
}

/// A resource of a kind that this host can read and cannot do.
pub(crate) fn reboot(id: &str) -> Resource {
    let spec = meshplan_schemas::resource::programs::Reboot { within_secs: 60 };
    resource(id, Kind::Reboot(spec))
}

pub(crate) fn file(id: &str, path: &str, text: &str) -> Resource {
    file_with(id, path, text, "0644")
}

pub(crate) fn file_with(id: &str, path: &str, text: &str, mode: &str) -> Resource {
    let spec = File {
        path: path.to_owned(),
        content: Content::Text(text.to_owned()),
        mode: mode.to_owned(),
        owner: None,
        group: None,
        restarts: Vec::new(),
        reloads: Vec::new(),
        runs: Vec::new(),
        validate: None,
    };
    resource(id, Kind::File(spec))
}

pub(crate) fn directory(id: &str, path: &str) -> Resource {
    directory_with(id, path, "0750")
}

pub(crate) fn directory_with(id: &str, path: &str, mode: &str) -> Resource {
    let spec = Directory {
        path: path.to_owned(),
        mode: mode.to_owned(),
        owner: None,
        group: None,
    };
    resource(id, Kind::Directory(spec))
}

pub(crate) fn link(id: &str, path: &str, target: &str) -> Resource {
    resource(
        id,
        Kind::Link(Link {
            path: path.to_owned(),
            target: target.to_owned(),
        }),
    )
}

pub(crate) fn probe(id: &str) -> Resource {
    resource(
        id,
        Kind::Probe(Probe {
            ask: Ask::Tcp("localhost:1".to_owned()),
            timeout_secs: 1,
        }),
    )
}
