//! A machine of its own for each test: a folder as root, its host a member of a fleet whose keys the test has.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use meshplan_host::edge::identity::Identity;
use meshplan_host::edge::link::{DIRECT, Membership};
use meshplan_schemas::declaration::{Declaration, Mode, ModuleContent, ModuleEntry, OnFailure};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Payload, Signer as _, SoftSigner, seal};
use meshplan_schemas::epoch::{Epoch, Phase, Targeting};
use meshplan_schemas::fleet_list::{Author, FleetHead, Leaf, ListSettings, ProvenLeaf, UpdateClass};
use meshplan_schemas::ident::{KeyId, NodeId};
use meshplan_schemas::merkle;
use meshplan_schemas::resource::{Ask, Content, File, Kind, Probe};
use meshplan_schemas::session::LinkSecret;

/// Every wait ends by then.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const NODE: NodeId = NodeId(uuid::Uuid::from_u128(1));

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
}

/// The author of the fleet.
pub(crate) fn author() -> SoftSigner {
    SoftSigner::new(Some(KeyId("dana".into())), &[1; 32]).unwrap()
}
/// The reconciler's link key.
pub(crate) fn reconciler_secret() -> LinkSecret {
    LinkSecret::from_bytes(&[2; 32]).unwrap()
}
pub(crate) fn text<P: Payload>(payload: &P) -> String {
    String::from_utf8(seal(payload, &author()).unwrap()).unwrap()
}
fn commit() -> meshplan_schemas::ident::CommitId {
    "0".repeat(40).parse().unwrap()
}

impl World {
    /// A machine that was enrolled: keys, first list, own record, membership. Nobody answers at its address unless
    /// another is given.
    pub(crate) fn enrolled(address: &str) -> Self {
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir_all(world.state()).unwrap();
        let identity = Identity::load_or_make(&world.state()).unwrap();
        let (transport_key, signing_key) = identity.public();
        let leaf = Leaf {
            id: NODE,
            name: "ace".parse().unwrap(),
            transport_key,
            signing_key,
            next_transport_key: None,
            next_signing_key: None,
            rotations: vec![],
            address: None,
            lifeline: false,
            valid_to: 0,
            update_class: UpdateClass::Required,
            pinned: false,
        };
        let bytes = leaf.bytes().unwrap();
        let authors = vec![Author {
            id: author().key_id(),
            key: author().public(),
        }];
        let head = FleetHead {
            schema: 1,
            fleet: "shop".parse().unwrap(),
            era: 0,
            issued_at: 1,
            must_understand: vec![],
            revision: 1,
            previous: None,
            commit: commit(),
            authors: authors.clone(),
            roots: vec![],
            threshold: 1,
            root_threshold: 0,
            reconcilers: vec![],
            rotations: vec![],
            records_root: Digest(merkle::root(&[merkle::leaf_hash(&bytes)])),
            records_count: 1,
            wrapped_root: None,
            timestamp_keys: authors,
            revoked: vec![],
            oldest_accepted: 0,
            settings: ListSettings {
                left_behind_grace_secs: 0,
                lifeline_secs: 0,
                require_trusted_clock_for_scheduled_activation: false,
            },
        };
        let proof = ProvenLeaf {
            leaf: String::from_utf8(bytes).unwrap(),
            revision: 1,
            index: 0,
            path: vec![],
        };
        let membership = Membership {
            link: DIRECT.into(),
            fleet: "shop".parse().unwrap(),
            node: NODE,
            name: "ace".parse().unwrap(),
            addresses: vec![address.into()],
            reconciler_key: reconciler_secret().public(),
        };
        world.put("trust.json", &text(&head));
        world.put("record.json", &serde_json::to_string(&proof).unwrap());
        world.put("membership.json", &serde_json::to_string(&membership).unwrap());
        world
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }
    pub(crate) fn state(&self) -> PathBuf {
        self.root().join("var/lib/meshplan")
    }
    pub(crate) fn put(&self, name: &str, text: &str) {
        std::fs::write(self.state().join(name), text).unwrap();
    }
    pub(crate) fn file(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root().join(path)).ok()
    }
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshplan-host"));
        command.arg("--root").arg(self.root()).args(arguments);
        command.env_remove("MESHPLAN_STATE_DIR").stdin(Stdio::null());
        command
    }
    /// The exit code and what was printed.
    pub(crate) fn say(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command(arguments).output().unwrap();
        said(&output)
    }
    /// What a command prints as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let (_, words) = self.say(&[arguments, &["--json"]].concat());
        serde_json::from_str(&words).unwrap_or_else(|e| panic!("{e}: {words}"))
    }
    pub(crate) fn run(&self, arguments: &[&str]) -> Host {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.root().join("host.log"))
            .unwrap();
        let mut command = self.command(&[&["run"], arguments].concat());
        Host(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
    pub(crate) fn log(&self) -> String {
        self.file("host.log").unwrap_or_default()
    }
}

pub(crate) fn said(output: &Output) -> (i32, String) {
    let words = [&output.stdout[..], &output.stderr[..]].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8(words).unwrap(),
    )
}

/// A host that runs; dropped, it is gone.
pub(crate) struct Host(pub(crate) Child);

impl Host {
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
    /// SIGTERM, and its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut code = None;
        poll("the host's end", || {
            code = self.0.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }
}
impl Drop for Host {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Asks for a condition until it holds.
pub(crate) fn poll(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A declaration of one module `web` with a file; with a probe that looks into it for a word, when there is one.
pub(crate) fn declaration(sequence: u64, content: &str, probe_for: Option<&str>) -> Declaration {
    let file = Kind::File(File {
        path: "/etc/web.conf".into(),
        content: Content::Text(content.into()),
        mode: "0644".into(),
        owner: None,
        group: None,
        restarts: vec![],
        reloads: vec![],
        runs: vec![],
        validate: None,
    });
    let mut resources = vec![file.into_resource("web.conf".parse().unwrap()).unwrap()];
    if let Some(word) = probe_for {
        let script = format!("grep -q {word} etc/web.conf || {{ echo {word} is not there; exit 1; }}");
        let probe = Kind::Probe(Probe {
            ask: Ask::Command(vec!["sh".into(), "-c".into(), script]),
            timeout_secs: 5,
        });
        resources.push(probe.into_resource("web.says".parse().unwrap()).unwrap());
    }
    let content = ModuleContent {
        module: "web".parse().unwrap(),
        mode: Mode::Apply,
        after: vec![],
        on_policy_change: vec![],
        requires: vec![],
        secrets: Default::default(),
        resources: resources.clone(),
    };
    Declaration {
        schema: 1,
        fleet: "shop".parse().unwrap(),
        era: 0,
        issued_at: 1,
        must_understand: vec![],
        node: NODE,
        sequence,
        modules: vec![ModuleEntry {
            module: "web".parse().unwrap(),
            digest: Digest::of_value(&content).unwrap(),
            commit: commit(),
            delivery: "fleet@000000000000".into(),
            mode: Mode::Apply,
            after: vec![],
            on_policy_change: vec![],
            requires: vec![],
        }],
        roles: vec![],
        adopted: false,
        take: vec![],
        resources,
        left_out: vec![],
        artifacts: vec![],
        sealed: Vec::new(),
        apply_secs: 60,
        confirm_secs: 60,
        confirm_probe: None,
        on_failure: OnFailure::Revert,
        mode: Mode::Apply,
        min_host_version: None,
        urgent: false,
        again: vec![],
        membership: None,
        neighbours: vec![],
        manifest: None,
    }
}

pub(crate) fn epoch(number: u64, reconcile_secs: u32) -> Epoch {
    Epoch {
        schema: 1,
        fleet: "shop".parse().unwrap(),
        era: 0,
        issued_at: 1,
        must_understand: vec![],
        epoch: number,
        author: KeyId("dana".into()),
        targeting: Targeting::everyone(),
        min_daemon_version: None,
        confirm_secs: 60,
        confirm_probe: None,
        policy: format!("[base.scheduler]\nreconcile_secs = {reconcile_secs}\n"),
        in_force: vec![],
        watch_until: None,
        rollout_id: "r1".into(),
        phase: Phase::Release,
        urgent: false,
        again: vec![],
        manifest: None,
        commit: commit(),
    }
}
