//! The resource kinds: one file each (HK-14).
//!
//! A kind says `validate` (is it asked for properly), `plan` (what would change), `apply`, `verify` (read back),
//! `revert` (the act that brings back what was there) and `remove`. Adding one touches its file and [`Wanted`].

pub mod action;
mod claim;
pub mod container;
pub mod directory;
pub mod file;
pub mod filter;
pub mod group;
pub mod kernel_module;
pub mod link;
pub mod network;
pub mod package;
pub mod probe;
pub mod process;
mod reach;
mod seen;
pub mod service;
pub mod sysctl;
pub mod tree;
pub mod user;
pub mod volume;

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ResourceId, ResourceName};
use meshplan_schemas::resource::Kind;
use meshplan_schemas::resource::programs::Run;
use zeroize::Zeroizing;

pub use self::claim::{around_of, claims, claims_of, is_elsewhere, stopped_while, target};
use self::file::Bytes;
use self::reach::{BOUND, put_text, run, text_of};
pub use self::reach::{Back, Reach};
pub use self::seen::Seen;
use crate::edge::accounts::{Accounts, COMING};
use crate::edge::disk::{Disk, DiskError};
use crate::edge::observe::observe;
use crate::edge::system::Turn;
pub use crate::pure::apply_plan::{Decision, Follow, Follower};
use crate::pure::container_spec::former_of;
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;
pub use crate::pure::unit_file::Around;

/// The value of a sealed content, or why it does not open and what to do.
pub type Opened = Result<Zeroizing<Vec<u8>>, String>;

/// Why a resource is not asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// Its fields cannot be: the module is refused.
    Fields(String),
    /// This machine lacks what it names: the resource fails.
    Machine(String),
}

/// A resource that was found to be asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// See [`file`].
    File(file::Wanted),
    /// See [`directory`].
    Directory(directory::Wanted),
    /// See [`link`].
    Link(link::Wanted),
    /// See [`service`].
    Service(service::Wanted),
    /// See [`process`].
    Process(process::Wanted),
    /// See [`user`].
    User(Box<user::Wanted>),
    /// See [`group`].
    Group(group::Wanted),
    /// See [`sysctl`].
    Sysctl(sysctl::Wanted),
    /// See [`kernel_module`].
    KernelModule(kernel_module::Wanted),
    /// See [`action`].
    Action(action::Wanted),
    /// See [`tree`].
    Tree(tree::Wanted),
    /// See [`container`].
    Container(Box<container::Wanted>),
    /// See [`network`].
    Network(network::Wanted),
    /// See [`volume`].
    Volume(volume::Wanted),
    /// See [`package`].
    Package(package::Wanted),
    /// See [`filter`].
    Filter(filter::Wanted),
    /// Asks, and changes nothing: judged by the agent.
    Probe,
}

/// `"0644"` as a number (FR-13).
fn mode(text: &str) -> Result<u32, Invalid> {
    let octal = (3..=5).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if octal && mode <= 0o7777 => Ok(mode),
        _ => Err(Invalid::Fields(format!(
            "the mode {:?} is not octal digits as in \"0644\"",
            text.chars().take(20).collect::<String>()
        ))),
    }
}

fn path(text: &str) -> Result<TargetPath, Invalid> {
    TargetPath::parse(text).map_err(|e| Invalid::Fields(e.to_string()))
}

/// `mode 0644 instead of 0600`, owner and group likewise; empty when they fit.
fn meta_words(wanted: (u32, crate::edge::disk::Owner), found: (u32, u32, u32)) -> Vec<String> {
    let ((mode, owner), (found_mode, uid, gid)) = (wanted, found);
    let mut words = Vec::new();
    if mode != found_mode {
        words.push(format!("mode {mode:04o} instead of {found_mode:04o}"));
    }
    let number = |wanted: u32| match wanted {
        COMING => "that comes with this change".to_owned(),
        wanted => wanted.to_string(),
    };
    if let Some(wanted) = owner.uid.filter(|wanted| *wanted != uid) {
        words.push(format!("owner {} instead of {uid}", number(wanted)));
    }
    if let Some(wanted) = owner.gid.filter(|wanted| *wanted != gid) {
        words.push(format!("group {} instead of {gid}", number(wanted)));
    }
    words
}

impl Wanted {
    /// Whether it is asked for properly; `opened` is the value of its sealed content, `around`: how what else its
    /// module has is stopped and started.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn validate(
        name: &ResourceName,
        kind: &Kind,
        accounts: &Accounts,
        (opened, around): (Option<&Opened>, &BTreeMap<ResourceId, Result<Around, String>>),
    ) -> Result<Self, Invalid> {
        match kind {
            Kind::File(spec) => file::validate(spec, accounts, opened).map(Self::File),
            Kind::Directory(spec) => directory::validate(spec, accounts).map(Self::Directory),
            Kind::Link(spec) => link::validate(spec).map(Self::Link),
            Kind::Service(spec) => service::validate(spec).map(Self::Service),
            Kind::Process(spec) => process::validate(spec, around).map(Self::Process),
            Kind::User(spec) => user::validate(spec).map(Box::new).map(Self::User),
            Kind::Group(spec) => group::validate(spec).map(Self::Group),
            Kind::Sysctl(spec) => sysctl::validate(spec).map(Self::Sysctl),
            Kind::KernelModule(spec) => kernel_module::validate(spec).map(Self::KernelModule),
            Kind::Action(spec) => action::validate(name, spec).map(Self::Action),
            Kind::Archive(spec) => tree::archive(spec, accounts).map(Self::Tree),
            Kind::Bundle(spec) => tree::bundle(spec, accounts).map(Self::Tree),
            Kind::Container(spec) => container::validate(spec, opened, around)
                .map(Box::new)
                .map(Self::Container),
            Kind::Network(spec) => network::validate(spec).map(Self::Network),
            Kind::Volume(spec) => volume::validate(spec).map(Self::Volume),
            Kind::Package(spec) => package::validate(spec).map(Self::Package),
            Kind::Filter(spec) => filter::validate(spec).map(Self::Filter),
            Kind::Probe(spec) => match probe::validate(spec) {
                Ok(()) => Ok(Self::Probe),
                Err(why) => Err(Invalid::Fields(why)),
            },
            other => Err(Invalid::Fields(format!(
                "this host does not have the kind `{}` yet: nothing of the module is touched",
                other.word()
            ))),
        }
    }

    /// What it has.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        let thing = |sort, name: &str| Some(Target::Thing(sort, name.to_owned()));
        match self {
            Self::File(w) => Some(w.path.clone().into()),
            Self::Directory(w) => Some(w.path.clone().into()),
            Self::Link(w) => Some(w.path.clone().into()),
            Self::Service(w) => thing(Sort::Unit, &w.unit),
            Self::Process(w) => thing(Sort::Process, &w.name),
            Self::User(w) => thing(Sort::User, &w.spec.name),
            Self::Group(w) => thing(Sort::Group, &w.name),
            Self::Sysctl(w) => thing(Sort::Setting, &w.key),
            Self::KernelModule(w) => thing(Sort::KernelModule, &w.name),
            Self::Action(w) => Some(w.target.clone()),
            Self::Tree(w) => thing(Sort::Tree, w.path.as_str()),
            Self::Container(w) => thing(Sort::Container, &w.asked.name),
            Self::Network(w) => thing(Sort::Network, &w.asked.name),
            Self::Volume(w) => thing(Sort::Volume, &w.asked.name),
            Self::Package(w) => thing(Sort::Package, &w.name),
            Self::Filter(_) => thing(Sort::Filter, filter::NAME),
            Self::Probe => None,
        }
    }

    /// Looks at what it is made from beside its fields. `coming`: what will stand at paths when it is made, where that is
    /// not what stands there now.
    pub fn foresee(&mut self, coming: &BTreeMap<String, Bytes>, reach: Reach<'_>) {
        match self {
            Self::Container(w) => w.foresee(coming, reach),
            Self::Filter(w) => w.foresee(reach),
            _ => {}
        }
    }

    /// Has here what it is made from, before anything is touched; the id of an image that was fetched.
    ///
    /// # Errors
    /// In words: it cannot be had.
    pub fn fetch(&self, reach: Reach<'_>) -> Result<Option<String>, String> {
        match self {
            Self::Container(w) => container::fetch(w, reach),
            Self::Package(w) => package::fetch(w, reach).map(|()| None),
            _ => Ok(None),
        }
    }

    /// The digest of a file's bytes, of what a container is made from, or of the text of a filter.
    #[must_use]
    pub fn content(&self) -> Option<Digest> {
        match self {
            Self::File(w) => Some(Digest::of(&w.bytes)),
            Self::Container(w) => w.digest()?.parse().ok(),
            Self::Filter(w) => w.text,
            _ => None,
        }
    }

    /// The bytes and the number of files that it takes on the disk.
    #[must_use]
    pub fn room(&self, reach: Reach<'_>) -> (u64, u64) {
        match self {
            Self::File(w) => (w.bytes.len() as u64, 1),
            Self::Tree(w) => tree::room(w, reach),
            _ => (0, 1),
        }
    }

    /// What is restarted, reloaded or run when it changes.
    #[must_use]
    pub fn followers(&self) -> &[Follower] {
        match self {
            Self::File(w) => &w.followers,
            Self::Tree(w) => &w.followers,
            Self::Package(w) => &w.followers,
            _ => &[],
        }
    }

    /// Whether other content of the same fields waits for a window (HK-11).
    #[must_use]
    pub fn is_behind_window(&self) -> bool {
        matches!(self, Self::Filter(_))
    }

    /// Whether all that comes after it waits for it (HR-4).
    #[must_use]
    pub fn is_gate(&self) -> bool {
        matches!(self, Self::Action(_))
    }

    /// Whether it is asked to be away.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::User(w) => w.spec.absent,
            Self::Group(w) => w.is_absent,
            Self::Package(w) => w.is_absent,
            _ => false,
        }
    }

    /// Whether what was taken away does not come back with a roll-back where nothing is said (DL-7).
    #[must_use]
    pub fn stays_away(&self) -> bool {
        matches!(self, Self::User(_))
    }

    /// Why what it does cannot be undone; none where it can (HR-5).
    #[must_use]
    pub fn not_reversible(&self) -> Option<&'static str> {
        match self {
            Self::Action(_) => Some("what a step did stays"),
            Self::Process(w) if w.run == Run::Once => Some("what a run did stays"),
            Self::Container(w) if w.asked.run == Run::Once => Some("what a run did stays"),
            _ => None,
        }
    }

    /// Whether [`Wanted::plan`] would have it started.
    #[must_use]
    pub fn starts(&self, observed: &Observed) -> bool {
        match self {
            Self::Service(w) => service::starts(w, observed),
            Self::Process(w) => process::starts(w, observed),
            Self::Container(w) => container::starts(w, observed),
            Self::Action(_) => true,
            _ => false,
        }
    }

    /// What would change. `ran`: the ledger says that it was done as it is asked for now.
    #[must_use]
    pub fn plan(&self, observed: &Observed, ran: bool, reach: Reach<'_>) -> Decision {
        match self {
            Self::File(w) => file::plan(w, observed),
            Self::Directory(w) => directory::plan(w, observed),
            Self::Link(w) => link::plan(w, observed),
            Self::Service(w) => service::plan(w, observed),
            Self::Process(w) => process::plan(w, observed, ran),
            Self::User(w) => user::plan(w, observed, reach),
            Self::Group(w) => group::plan(w, observed),
            Self::Sysctl(w) => sysctl::plan(w, observed),
            Self::KernelModule(w) => kernel_module::plan(w, observed),
            Self::Action(w) => action::plan(w, ran, reach),
            Self::Tree(w) => tree::plan(w, observed, reach),
            Self::Container(w) => container::plan(w, observed, ran, reach),
            Self::Network(w) => network::plan(w, observed),
            Self::Volume(w) => volume::plan(w, observed),
            Self::Package(w) => package::plan(w, observed, reach),
            Self::Filter(w) => filter::plan(w, observed, reach),
            Self::Probe => Decision::Unchanged,
        }
    }

    /// The same, with what came with this change: numbers of users and groups, files of an environment.
    ///
    /// # Errors
    /// In words: they did not come.
    pub fn settled(&self, reach: Reach<'_>) -> Result<Self, String> {
        let mut settled = self.clone();
        let (owner, (user, group)) = match &mut settled {
            Self::File(w) => (&mut w.owner, &w.whose),
            Self::Directory(w) => (&mut w.owner, &w.whose),
            Self::Tree(w) => (&mut w.owner, &w.whose),
            Self::Container(w) => {
                w.foresee(&BTreeMap::new(), reach);
                return w.hindrance().map_or(Ok(settled), Err);
            }
            _ => return Ok(settled),
        };
        if owner.uid == Some(COMING) || owner.gid == Some(COMING) {
            let accounts = Accounts::read(reach.root).map_err(|e| e.to_string())?;
            *owner = accounts.owner(user.as_deref(), group.as_deref())?;
        }
        Ok(settled)
    }

    /// Makes it so; what was started, as it stood at the first look. `ran`: as of [`Wanted::plan`].
    ///
    /// # Errors
    /// In words.
    pub fn apply(&self, ran: bool, reach: Reach<'_>) -> Result<Option<Seen>, String> {
        let words = |e: DiskError| e.to_string();
        match self {
            Self::File(w) => file::apply(w, reach.root).map_err(words)?,
            Self::Directory(w) => directory::apply(w, reach.root).map_err(words)?,
            Self::Link(w) => link::apply(w, reach.root).map_err(words)?,
            Self::Service(w) => return service::apply(w, reach.system),
            Self::Process(w) => return process::apply(w, ran, reach),
            Self::User(w) => user::apply(w, reach)?,
            Self::Group(w) => group::apply(w, reach.system)?,
            Self::Sysctl(w) => sysctl::apply(w, reach)?,
            Self::KernelModule(w) => kernel_module::apply(w, reach)?,
            Self::Action(w) => action::apply(w, reach)?,
            Self::Tree(w) => tree::apply(w, reach)?,
            Self::Container(w) => return container::apply(w, ran, reach),
            Self::Network(w) => network::apply(w, reach.system.engine())?,
            Self::Volume(w) => volume::apply(w, reach.system.engine())?,
            Self::Package(w) => package::apply(w, reach)?,
            Self::Filter(w) => filter::apply(w, reach)?,
            Self::Probe => {}
        }
        Ok(None)
    }

    /// Reads it back: none when it is as asked.
    #[must_use]
    pub fn verify(&self, reach: Reach<'_>) -> Option<String> {
        let target = self.target()?;
        match self.plan(&state(&target, reach), true, reach) {
            Decision::Unchanged | Decision::Idle(_) => None,
            Decision::Create(why)
            | Decision::Update(why)
            | Decision::Refuse(why)
            | Decision::Unknown(why) => Some(format!("it was written and reads back otherwise: {why}")),
        }
    }

    /// Restarts, reloads or runs it, as something that it stands on changed; what was started, as it stood at the first
    /// look.
    ///
    /// # Errors
    /// In words; also where it cannot be.
    pub fn follow(&self, how: Follow, reach: Reach<'_>) -> Result<Option<Seen>, String> {
        match (self, how) {
            (Self::Service(w), Follow::Restart) => service::follow(w, Turn::Restart, reach.system),
            (Self::Service(w), Follow::Reload) => service::follow(w, Turn::Reload, reach.system),
            (Self::Process(w), Follow::Restart | Follow::Run) => process::follow(w, Turn::Restart, reach),
            (Self::Process(w), Follow::Reload) => process::follow(w, Turn::Reload, reach),
            (Self::Container(w), Follow::Restart | Follow::Run) => container::follow(w, reach),
            (Self::Action(w), Follow::Run) => action::apply(w, reach).map(|()| None),
            (_, how) => Err(format!("it is nothing that can be {}", how.word())),
        }
    }
}

/// How a target stands.
#[must_use]
pub fn state(target: &Target, reach: Reach<'_>) -> Observed {
    match target {
        Target::Path(path) => observe(reach.root, path),
        Target::Thing(Sort::Unit, name) => service::state(reach.system, name),
        Target::Thing(Sort::Process, name) => process::state(reach, name),
        Target::Thing(Sort::User, name) => user::state(reach, name),
        Target::Thing(Sort::Group, name) => group::state(reach.system, name),
        Target::Thing(Sort::Setting, name) => sysctl::state(reach, name),
        Target::Thing(Sort::KernelModule, name) => kernel_module::state(reach, name),
        Target::Thing(Sort::Container, name) => container::state(reach, name),
        Target::Thing(Sort::Network, name) => network::state(reach.system.engine(), name),
        Target::Thing(Sort::Volume, name) => volume::state(reach.system.engine(), name),
        Target::Thing(Sort::Package, name) => package::state(reach, name),
        Target::Thing(Sort::Filter, _) => filter::state(reach),
        // What ran is in the ledger.
        Target::Thing(Sort::Step, _) => Observed::Absent,
        Target::Thing(Sort::Tree, path) => tree::state(reach.root, path),
    }
}

/// The way back to how a thing that is no path stands. `wanted` is what will be made of it; where it is swept, it will be
/// as it was `found`. `follows`: how it follows when what it stands on changes.
///
/// # Errors
/// In words: what it takes could not be kept.
pub fn way_back(
    (sort, name): (Sort, &str),
    there: &Observed,
    (wanted, found): (Option<&Wanted>, Option<&Thing>),
    follows: Option<Follow>,
    reach: Reach<'_>,
) -> Result<Back, String> {
    let thing = there.thing();
    match (sort, wanted) {
        (Sort::Unit, Some(Wanted::Service(wanted))) => Ok(service::way_back(wanted, thing.as_ref(), follows)),
        (Sort::Unit, _) => Ok(service::way_back_of_swept(name, thing.as_ref(), found)),
        (Sort::Process, Some(Wanted::Process(wanted))) => {
            process::way_back(name, there, (Some(wanted), follows), reach)
        }
        (Sort::Process, _) => process::way_back(name, there, (None, None), reach),
        (Sort::User, Some(Wanted::User(wanted))) => user::way_back(name, there, Some(wanted), reach),
        (Sort::User, _) => user::way_back(name, there, None, reach),
        (Sort::Group, Some(Wanted::Group(wanted))) => {
            Ok(group::way_back(name, thing.as_ref(), wanted.is_absent))
        }
        (Sort::Group, _) => Ok(group::way_back(name, thing.as_ref(), found.is_none())),
        (Sort::Setting, _) => sysctl::way_back(name, there, reach),
        (Sort::KernelModule, _) => kernel_module::way_back(name, there, reach),
        (Sort::Tree, _) => tree::way_back(name, there, reach),
        (Sort::Container, Some(Wanted::Container(wanted))) => {
            container::way_back(name, there, (Some(wanted), follows), reach)
        }
        (Sort::Container, _) => container::way_back(name, there, (None, None), reach),
        (Sort::Network, _) => network::way_back(name, there, reach),
        (Sort::Package, Some(Wanted::Package(wanted))) => package::way_back(wanted, there, reach),
        (Sort::Filter, Some(Wanted::Filter(wanted))) => filter::way_back(there, Some(wanted), reach),
        (Sort::Filter, _) => filter::way_back(there, None, reach),
        (Sort::Step | Sort::Volume | Sort::Package, _) => Ok(Back::default()),
    }
}

/// Gives a thing that is no path back as it was found, or takes it away where nothing was there; says what was done.
///
/// # Errors
/// In words: "cannot, because".
pub fn give_back(
    (sort, name): (Sort, &str),
    found: Option<&Thing>,
    reach: Reach<'_>,
) -> Result<String, String> {
    match sort {
        Sort::Unit => service::give_back(name, found, reach.system),
        Sort::Process => process::give_back(name, found, reach),
        Sort::User => user::give_back(name, found, reach),
        Sort::Group => group::give_back(name, found, reach.system),
        Sort::Setting => sysctl::give_back(name, found, reach),
        Sort::KernelModule => kernel_module::give_back(name, found, reach),
        Sort::Container => container::give_back(name, reach),
        Sort::Network => Ok(format!("network {name} goes with the confirm")),
        Sort::Volume => Ok(format!("volume {name} stays")),
        Sort::Package => Ok(format!("package {name} stays")),
        Sort::Filter => filter::give_back(found, reach),
        Sort::Step => Ok("what the step did stays".to_owned()),
        Sort::Tree => tree::give_back(name, found, reach),
    }
}

/// What of a swept target waits for the confirm.
#[must_use]
pub fn leaving_of_swept(target: &Target) -> Option<Target> {
    match target {
        Target::Thing(Sort::Network, _) => Some(target.clone()),
        other => leaving(other),
    }
}

/// What of a target waits for the confirm once it was made anew (HR-14); none where nothing does.
#[must_use]
pub fn leaving(target: &Target) -> Option<Target> {
    match target {
        Target::Thing(Sort::Container, name) => Some(Target::Thing(Sort::Container, former_of(name))),
        _ => None,
    }
}

/// Takes away what waited for a confirm that is there; of the images that the host `fetched` the id of one that is gone.
///
/// # Errors
/// In words; it is tried again.
pub fn clear(
    target: &Target,
    fetched: &BTreeSet<String>,
    reach: Reach<'_>,
) -> Result<Option<String>, String> {
    let engine = reach.system.engine();
    match target {
        Target::Thing(Sort::Container, name) => container::clear(name, fetched, engine),
        Target::Thing(Sort::Network, name) => network::clear(name, engine).map(|()| None),
        _ => Ok(None),
    }
}

/// Removes what a resource of this kind wrote at a path.
///
/// # Errors
/// The disk; "cannot, because" for a folder that is not empty.
pub fn remove(kind: &str, disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    match kind {
        "directory" => directory::remove(disk, path),
        "link" => link::remove(disk, path),
        _ => file::remove(disk, path),
    }
}
