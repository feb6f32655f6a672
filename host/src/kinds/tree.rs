//! Archives and bundles (HK-4): a folder that is put in place whole, out of the artifacts of this machine.
//!
//! One kind for both, as they differ only in what they are made of. What was unpacked is known by its shape (names, modes,
//! owners, lengths, times), so that a look costs no more than a walk. A folder in which somebody else has something is
//! never replaced.

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceId;
use meshplan_schemas::resource::bundles::{Archive, Bundle};
use meshplan_schemas::resource::programs::Run;
use meshplan_schemas::resource::{Kind, Resource};
use serde_json::json;

use super::{Back, Decision, Follow, Follower, Invalid, Reach};
use crate::edge::accounts::Accounts;
use crate::edge::artifacts::Artifacts;
use crate::edge::disk::{Disk, DiskError, Owner, Sort as Standing, atomic};
use crate::edge::tree::{self, Shape, Was};
use crate::edge::unpack::{How, Unpacking};
use crate::pure::inverse::{Act, Place, UndoAct, When};
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target::Target;
use crate::pure::target_path::TargetPath;
use crate::pure::unit_file;

/// A tree that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where.
    pub path: TargetPath,
    /// What it is made of.
    pub made_of: MadeOf,
    /// Whose all of it is.
    pub owner: Owner,
    /// The same by name.
    pub whose: (Option<String>, Option<String>),
    /// What is restarted when it changes.
    pub followers: Vec<Follower>,
    /// The ledger has a tree of the host's at the path: what stands there otherwise is not the host's to replace.
    pub is_on_record: bool,
}

/// What a tree is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeOf {
    /// Of an archive, unpacked so.
    Archive(Digest, How),
    /// Of the files of this list.
    List(Digest),
}

impl MadeOf {
    fn words(self) -> &'static str {
        match self {
            Self::Archive(..) => "the archive",
            Self::List(_) => "the bundle",
        }
    }
}

impl Wanted {
    /// What the shape of the unpacked tree hangs on.
    fn content(&self) -> Result<Digest, String> {
        let owner = (self.owner.uid, self.owner.gid);
        let content = match self.made_of {
            MadeOf::Archive(digest, how) => {
                json!({ "archive": digest, "packing": how.packing, "strip": how.strip, "setuid": how.allow_setuid,
                        "owner": owner })
            }
            MadeOf::List(digest) => json!({ "list": digest, "owner": owner }),
        };
        Digest::of_value(&content).map_err(|e| e.to_string())
    }
}

fn wanted(
    path: &str,
    made_of: MadeOf,
    whose: (Option<String>, Option<String>),
    accounts: &Accounts,
    restarts: &[ResourceId],
) -> Result<Wanted, Invalid> {
    let owner = accounts.owner(whose.0.as_deref(), whose.1.as_deref());
    Ok(Wanted {
        path: super::path(path)?,
        made_of,
        owner: owner.map_err(Invalid::Machine)?,
        whose,
        followers: (restarts.iter())
            .map(|id| Follower {
                id: id.clone(),
                how: Follow::Restart,
            })
            .collect(),
        is_on_record: false,
    })
}

/// Checks the fields of an archive.
///
/// # Errors
/// [`Invalid`].
pub fn archive(spec: &Archive, accounts: &Accounts) -> Result<Wanted, Invalid> {
    let how = How {
        packing: spec.packing,
        strip: spec.strip,
        allow_setuid: spec.allow_setuid,
    };
    let whose = (spec.owner.clone(), spec.group.clone());
    let made_of = MadeOf::Archive(spec.sha256, how);
    wanted(&spec.path, made_of, whose, accounts, &spec.restarts)
}

/// Checks the fields of a bundle.
///
/// # Errors
/// [`Invalid`].
pub fn bundle(spec: &Bundle, accounts: &Accounts) -> Result<Wanted, Invalid> {
    let whose = (spec.owner.clone(), spec.group.clone());
    wanted(
        &spec.path,
        MadeOf::List(spec.tree),
        whose,
        accounts,
        &spec.restarts,
    )
}

/// How it stands: the folder itself.
#[must_use]
pub fn state(root: &dyn Disk, path: &str) -> Observed {
    let path = match TargetPath::parse(path) {
        Ok(path) => path,
        Err(e) => return Observed::Unknown(e.to_string()),
    };
    match root.stat(&path) {
        Err(e) => Observed::Unknown(e.to_string()),
        Ok(None) => Observed::Absent,
        Ok(Some(stat)) if stat.sort == Standing::Directory => match root.list(Some(&path)) {
            Err(e) => Observed::Unknown(e.to_string()),
            Ok(names) => Observed::Is(Thing::Tree {
                is_empty: names.is_empty(),
                mode: stat.mode,
                uid: stat.uid,
                gid: stat.gid,
            }),
        },
        Ok(Some(_)) => Observed::Other(format!("{path} is no folder")),
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed, reach: Reach<'_>) -> Decision {
    let Wanted { path, made_of, .. } = wanted;
    match observed {
        Observed::Absent => Decision::Create(format!("{path} is new, out of {}", made_of.words())),
        Observed::Is(Thing::Tree { .. }) => compare(wanted, reach).unwrap_or_else(Decision::Unknown),
        Observed::Unknown(why) => Decision::Unknown(why.clone()),
        other => Decision::Refuse(format!("{path}: {}", other.word())),
    }
}

fn compare(wanted: &Wanted, reach: Reach<'_>) -> Result<Decision, String> {
    let Wanted { path, made_of, .. } = wanted;
    let words = |e: DiskError| e.to_string();
    let is = Shape::of(reach.root, path).map_err(words)?;
    if let Some(unpacked) = tree::shape_of(reach.state, path, wanted.content()?).map_err(words)? {
        match is.differs(&unpacked) {
            None => return Ok(Decision::Unchanged),
            Some(how) if wanted.is_on_record => {
                return Ok(Decision::Update(format!(
                    "{path} is not what was unpacked: {how}"
                )));
            }
            Some(_) => {}
        }
    }
    if wanted.is_on_record && tree::is_ours(reach.state, path).map_err(words)? {
        return Ok(Decision::Update(format!(
            "{path} is replaced by {}",
            made_of.words()
        )));
    }
    if is.is_empty() {
        return Ok(Decision::Update(format!(
            "{path} is filled out of {}",
            made_of.words()
        )));
    }
    Ok(Decision::Refuse(format!(
        "{path} is a folder in which {} files and folders are that the host did not put there: nothing of it is \
         touched; move it away, or give another path",
        is.len()
    )))
}

/// Makes it so.
///
/// # Errors
/// In words; then what stood there stands there.
pub fn apply(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    let words = |e: DiskError| e.to_string();
    let Reach { root, state, .. } = reach;
    let (path, coming) = (&wanted.path, tree::coming(&wanted.path));
    if let Decision::Refuse(why) | Decision::Unknown(why) =
        plan(wanted, &self::state(root, path.as_str()), reach)
    {
        return Err(why);
    }
    let now = match root.stat(path).map_err(words)? {
        Some(_) => Some(Shape::of(root, path).map_err(words)?),
        None => None,
    };
    atomic::remove_tree(root, &coming).map_err(words)?;
    let made = unpack(wanted, &coming, reach).and_then(|()| {
        let shape = Shape::of(root, &coming).map_err(words)?;
        tree::keep_shape(state, path, (wanted.content()?, &shape), now.as_ref()).map_err(words)?;
        let was = if now.is_some() { Was::There } else { Was::Away };
        tree::swap_in(root, path, was).map_err(|e| {
            if was == Was::Away {
                // What came meanwhile is not the host's, and no way back takes it away.
                let _forgotten = tree::forget(state, path);
            }
            words(e)
        })
    });
    if made.is_err() {
        // The first fault is the one to tell; the next writer clears what this cannot.
        let _cleared = atomic::remove_tree(root, &coming);
    }
    made
}

fn unpack(wanted: &Wanted, coming: &TargetPath, reach: Reach<'_>) -> Result<(), String> {
    let artifacts = Artifacts(reach.state);
    let mut unpacking = Unpacking::new(reach.root, coming, wanted.owner)?;
    match wanted.made_of {
        MadeOf::Archive(digest, how) => unpacking.archive(artifacts.open(digest)?, how),
        MadeOf::List(digest) => unpacking.list(&artifacts.list(digest)?, artifacts),
    }
}

/// The bytes and the number of files that it takes on the disk, as far as that is known before it is unpacked.
#[must_use]
pub fn room(wanted: &Wanted, reach: Reach<'_>) -> (u64, u64) {
    match wanted.made_of {
        // What it unpacks to is bounded by the room that there is.
        MadeOf::Archive(..) => (0, 1),
        MadeOf::List(digest) => Artifacts(reach.state)
            .list(digest)
            .map_or((0, 1), |list| list.room()),
    }
}

/// The way back to how it stands.
///
/// # Errors
/// In words: the path is none.
pub fn way_back(path: &str, there: &Observed, reach: Reach<'_>) -> Result<Back, String> {
    let path = TargetPath::parse(path).map_err(|e| e.to_string())?;
    let mut back = Back::default();
    for folder in atomic::missing_folders(reach.root, &path) {
        back.path_to(folder, &Observed::Absent);
    }
    let made = tree::coming(&path).file_name().to_owned();
    let act = match there {
        Observed::Absent => UndoAct::RemoveTree {
            made,
            mark: tree::kept(&path).to_string(),
        },
        _ => UndoAct::PutTree {
            from: tree::leaving(&path).file_name().to_owned(),
            made,
        },
    };
    back.acts.push(Act {
        when: When::Paths,
        place: Place::Root,
        target: Target::Path(path),
        act,
    });
    Ok(back)
}

/// Takes it away, or leaves the folder as it was found, without anything in it; says what was done.
///
/// # Errors
/// In words.
pub fn give_back(path: &str, found: Option<&Thing>, reach: Reach<'_>) -> Result<String, String> {
    let words = |e: DiskError| e.to_string();
    let path = TargetPath::parse(path).map_err(|e| e.to_string())?;
    tree::take_out(reach.root, &path).map_err(words)?;
    if let Some(Thing::Tree { mode, uid, gid, .. }) = found {
        let owner = Owner {
            uid: Some(*uid),
            gid: Some(*gid),
        };
        atomic::put_folder(reach.root, &path, *mode, owner).map_err(words)?;
        return Ok(format!("{path} is empty again, as it was found"));
    }
    Ok(format!("{path} is removed with all that was in it"))
}

/// A process with the files of its bundle named by where they stand (HK-6); `trees` are those of its module.
///
/// # Errors
/// In words: it has none, or names a file that is in none.
pub fn in_its_bundle(kind: Kind, trees: &BTreeMap<ResourceId, String>) -> Result<Kind, String> {
    let Kind::Process(spec) = kind else {
        return Ok(kind);
    };
    let tree =
        match &spec.bundle {
            None => None,
            Some(id) => Some(trees.get(id).ok_or_else(|| {
                format!("`bundle` names {id}, which is no bundle or archive of the module")
            })?),
        };
    unit_file::in_bundle(&spec, tree.map(String::as_str)).map(Kind::Process)
}

/// The path of a tree that other resources of a module may name; none where there is none.
#[must_use]
pub fn path_of(kind: &Kind) -> Option<String> {
    match kind {
        Kind::Archive(_) | Kind::Bundle(_) => kind.target().map(str::to_owned),
        _ => None,
    }
}

/// The daemons of a module whose programs are in a tree: they go on with what is there, so they are restarted when it is put
/// in place anew.
pub fn run_out_of<'a>(
    tree: &'a ResourceId,
    resources: &'a [&Resource],
) -> impl Iterator<Item = Follower> + 'a {
    resources
        .iter()
        .filter_map(move |resource| match resource.read() {
            Ok(Kind::Process(spec)) if spec.run == Run::Daemon && spec.bundle.as_ref() == Some(tree) => {
                Some(Follower {
                    id: resource.name.id.clone(),
                    how: Follow::Restart,
                })
            }
            _ => None,
        })
}
