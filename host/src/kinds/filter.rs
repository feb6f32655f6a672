//! The machine's filter (HK-11): a table of nftables of the host's own, loaded whole, and a file from which each start of
//! the machine loads it again.
//!
//! How nft lists the table right after the load is kept by the digest of the file; that is what it is compared with, so that
//! whoever changes a rule is seen, and a change of how nft writes is none of the rules'. A firewall that was found is
//! retired once the table is loaded, and comes back before the table goes.
//! Invariant: no other table is touched, and at no moment is there less of a filter than before or after.

pub mod firewalls;

use std::collections::BTreeMap;
use std::time::Duration;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::resource::net::Filter;
use serde::{Deserialize, Serialize};

use super::{Back, Decision, Invalid, Reach};
use crate::edge::checked;
use crate::edge::command::{Ended, How};
use crate::edge::disk::{Disk, DiskError, NewFile, Owner, atomic};
use crate::edge::observe::observe;
use crate::pure::filter::found::{self, Stand};
use crate::pure::filter::{AWAY, FAMILY, Rules, TABLE, listing};
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::outcome::lines_lost_and_new;
use crate::pure::record::{FilterTable, Found, Ledger, Thing};
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;

/// The name of the only one that a machine has.
pub const NAME: &str = "machine";
/// From where a start of the machine loads it; a unit of the host's package does.
pub const FILE: &str = "/etc/meshplan-filter.nft";
/// In the state folder: what nft listed after each load, and how it stands with found firewalls.
const KEPT: &str = "/filter";
/// How long nft may take.
const ANSWER: Duration = Duration::from_secs(60);
/// The most that one word of a command line takes, with room for the rest of it (execve(2): 128 KiB).
const WORD_BYTES: usize = 120 * 1024;

/// A filter that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What it accepts.
    pub rules: Rules,
    /// A found firewall may be retired: its module is taken, or nothing was there before the fleet.
    pub may_retire: bool,
    /// The digest of what it comes to on this machine now; none where it has no outward link.
    pub text: Option<Digest>,
    /// How the firewalls stood that were found when the host first loaded a filter.
    pub found: BTreeMap<String, Stand>,
}

/// How what was confirmed stands after [`keep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It was in force.
    Stands,
    /// It was not, and is again.
    LoadedAgain,
    /// Its file is another, or gone.
    Lost,
}

impl Wanted {
    /// Looks at the links, on which its text depends.
    pub fn foresee(&mut self, reach: Reach<'_>) {
        let outward = reach.system.links().map(|links| links.outward());
        // Why it cannot be told is said by the plan.
        self.text = (outward.ok())
            .filter(|outward| !outward.is_empty())
            .and_then(|outward| self.rules.text(&outward).ok())
            .map(|text| Digest::of(text.as_bytes()));
    }

    /// Reads how the firewalls were found.
    pub fn recall(&mut self, ledger: &Ledger) {
        let target = Target::Thing(Sort::Filter, NAME.to_owned());
        let mut records = ledger.records.values().chain(ledger.orphans.values());
        let own = records.find(|record| record.target.as_ref() == Some(&target));
        if let Some(Found::Thing(Thing::Filter { firewalls, .. })) = own.map(|record| &record.found) {
            self.found.clone_from(firewalls);
        }
    }
}

/// What nft listed after a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    /// The digest of the listing without what changes by itself.
    shape: Digest,
    /// The version of nft.
    nft: String,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &Filter) -> Result<Wanted, Invalid> {
    let rules = Rules::of(spec).map_err(Invalid::Fields)?;
    Ok(Wanted {
        rules,
        may_retire: false,
        text: None,
        found: BTreeMap::new(),
    })
}

fn words(e: DiskError) -> String {
    e.to_string()
}

fn file() -> Result<TargetPath, String> {
    TargetPath::parse(FILE).map_err(|e| e.to_string())
}

fn kept(file: Digest) -> Result<TargetPath, String> {
    let hex = file.to_string().replace("sha256:", "");
    TargetPath::parse(&format!("{KEPT}/{hex}")).map_err(|e| e.to_string())
}

/// Runs nft; what it said.
fn nft(arguments: &[&str], reach: Reach<'_>) -> Result<String, String> {
    let argv: Vec<String> = (["nft"].iter().chain(arguments))
        .map(|word| (*word).to_owned())
        .collect();
    let ended: Ended = reach.system.list(&argv, ANSWER);
    match ended.how {
        How::Exited(0) => Ok(ended.said),
        _ => Err(ended.fault(&argv, &[]).unwrap_or_default()),
    }
}

/// The listing of the host's own table; none where there is none.
fn listed(reach: Reach<'_>) -> Result<Option<String>, String> {
    match listing::has_own_table(&nft(&["-j", "list", "tables"], reach)?)? {
        false => Ok(None),
        true => nft(&["-j", "list", "table", FAMILY, TABLE], reach).map(Some),
    }
}

/// What is kept of a load of this file.
fn kept_of(file: Digest, state: &dyn Disk) -> Result<Option<Listed>, String> {
    match checked::read(state, &kept(file)?) {
        checked::Found::Whole(text) => Ok(serde_json::from_str(&text).ok()),
        // It is loaded anew then, and kept again.
        checked::Found::Missing | checked::Found::Broken(_) => Ok(None),
    }
}

/// How it stands.
#[must_use]
pub fn state(reach: Reach<'_>) -> Observed {
    match stands(reach) {
        Err(why) => Observed::Unknown(why),
        Ok((None, FilterTable::Absent, firewalls)) if firewalls.is_empty() => Observed::Absent,
        Ok((file, table, firewalls)) => Observed::Is(Thing::Filter {
            file,
            table,
            firewalls,
        }),
    }
}

type Stands = (Option<Digest>, FilterTable, BTreeMap<String, Stand>);

fn stands(reach: Reach<'_>) -> Result<Stands, String> {
    let file = text(reach)?.map(|text| Digest::of(text.as_bytes()));
    let table = match (listed(reach)?, file) {
        (None, _) => FilterTable::Absent,
        (Some(_), None) => FilterTable::Other,
        (Some(now), Some(file)) => match kept_of(file, reach.state)? {
            Some(then) if then.shape == listing::shape(&now)? => FilterTable::AsLoaded,
            Some(then) if then.nft != listing::version(&now) => FilterTable::OtherWords,
            _ => FilterTable::Other,
        },
    };
    Ok((file, table, firewalls::stands(reach)?))
}

/// The text of the file.
fn text(reach: Reach<'_>) -> Result<Option<String>, String> {
    match observe(reach.root, &file()?) {
        Observed::Absent => Ok(None),
        Observed::File { bytes, .. } => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Observed::Unknown(why) => Err(why),
        other => Err(format!("{FILE} is {}, no file", other.word())),
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed, reach: Reach<'_>) -> Decision {
    let (file, table, firewalls) = match observed {
        Observed::Absent => (None, FilterTable::Absent, BTreeMap::new()),
        Observed::Is(Thing::Filter {
            file,
            table,
            firewalls,
        }) => (*file, *table, firewalls.clone()),
        Observed::Unknown(why) => return Decision::Unknown(format!("the machine's filter: {why}")),
        other => return Decision::Unknown(format!("the machine's filter is {}", other.word())),
    };
    let outward = match reach.system.links() {
        Ok(links) => links.outward(),
        Err(why) => return Decision::Unknown(format!("the machine's links: {why}")),
    };
    let is_there = file.is_some() || table != FilterTable::Absent;
    if outward.is_empty() {
        let none = "this machine has no outward link, so it gets no filter";
        return match is_there {
            false => Decision::Idle(none.to_owned()),
            true => Decision::Update(format!("the filter goes: {none}")),
        };
    }
    let text = match wanted.rules.text(&outward) {
        Ok(text) => text,
        Err(why) => return Decision::Unknown(why),
    };
    let links = outward.into_iter().collect::<Vec<_>>().join(", ");
    let mut does = Vec::new();
    if file != Some(Digest::of(text.as_bytes())) {
        let lines = match self::text(reach) {
            Ok(Some(former)) => format!(" ({})", lines_lost_and_new(former.as_bytes(), text.as_bytes())),
            _ => String::new(),
        };
        does.push(format!(
            "the filter accepts what is declared and refuses the rest on {links}{lines}"
        ));
    } else {
        match table {
            FilterTable::AsLoaded => {}
            FilterTable::Absent => does.push(format!("the filter is loaded again, on {links}: it was gone")),
            FilterTable::Other => does.push("the filter is loaded anew: its rules are others".to_owned()),
            FilterTable::OtherWords => {
                does.push(
                    "the filter is loaded anew: nft is another version, and lists it otherwise".to_owned(),
                );
            }
        }
    }
    let about_found = found::words(&firewalls);
    if wanted.may_retire {
        does.extend(about_found);
    } else if !does.is_empty() {
        does.extend(
            about_found
                .into_iter()
                .map(|words| format!("once its module is taken, {words}")),
        );
    }
    match (does.as_slice(), is_there) {
        ([], _) => Decision::Unchanged,
        (does, false) => Decision::Create(does.join("; ")),
        (does, true) => Decision::Update(does.join("; ")),
    }
}

/// Makes it so.
///
/// # Errors
/// In words: nft does not take it, and then what was loaded is loaded still; or a firewall is not retired.
pub fn apply(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    let outward = reach.system.links()?.outward();
    if outward.is_empty() {
        // Before it goes, so that the machine is never without either.
        firewalls::give_back(&wanted.found, reach)?;
        return take_away(reach);
    }
    let text = wanted.rules.text(&outward)?;
    let (file, digest) = (file()?, Digest::of(text.as_bytes()));
    let former = self::text(reach)?.map(|text| Digest::of(text.as_bytes()));
    put(&text, &file, reach)?;
    load(digest, former, reach)?;
    match wanted.may_retire {
        true => firewalls::retire(reach),
        false => Ok(()),
    }
}

/// Has the file that was confirmed in force, where it stands as it was `recorded`; it does not look at the links.
///
/// # Errors
/// In words: it could not be told, or not be loaded.
pub fn keep(recorded: Option<Digest>, reach: Reach<'_>) -> Result<Kept, String> {
    let (file, table, _) = stands(reach)?;
    match (file, table) {
        (_, FilterTable::AsLoaded) => Ok(Kept::Stands),
        (None, FilterTable::Absent) if recorded.is_none() => Ok(Kept::Stands),
        (Some(digest), _) if file == recorded => {
            load(digest, file, reach)?;
            Ok(Kept::LoadedAgain)
        }
        _ => Ok(Kept::Lost),
    }
}

/// Loads the file, and keeps how nft lists it.
fn load(digest: Digest, former: Option<Digest>, reach: Reach<'_>) -> Result<(), String> {
    nft(&["-f", FILE], reach)?;
    let now = listed(reach)?.ok_or_else(|| "it was loaded, and is not there".to_owned())?;
    let then = Listed {
        shape: listing::shape(&now)?,
        nft: listing::version(&now),
    };
    keep_listed(digest, former, &then, reach.state)
}

/// Writes the file, once nft has found nothing wrong with it.
fn put(text: &str, path: &TargetPath, reach: Reach<'_>) -> Result<(), String> {
    let file = NewFile {
        bytes: text.as_bytes(),
        mode: 0o600,
        owner: Owner::default(),
    };
    let beside = atomic::beside(path);
    atomic::clear_beside(reach.root, path).map_err(words)?;
    reach.root.create(&beside, &file).map_err(words)?;
    let checked = nft(&["-c", "-f", beside.as_str()], reach);
    if let Err(why) = checked {
        atomic::clear_beside(reach.root, path).map_err(words)?;
        return Err(format!(
            "nft does not take the filter, and what was loaded stays: {why}"
        ));
    }
    reach
        .root
        .rename(&beside, path)
        .and_then(|()| reach.root.sync_parent(path))
        .map_err(words)
}

/// Keeps what a load was listed as. Of former loads only that of the way back stays, which is the one before.
fn keep_listed(
    file: Digest,
    former: Option<Digest>,
    listed: &Listed,
    state: &dyn Disk,
) -> Result<(), String> {
    let folder = TargetPath::parse(KEPT).map_err(|e| e.to_string())?;
    atomic::put_folder(state, &folder, 0o700, Owner::default()).map_err(words)?;
    let text = serde_json::to_string(listed).map_err(|e| e.to_string())?;
    let own = kept(file)?;
    checked::write(state, &own, &text).map_err(words)?;
    let former = former.map(kept).transpose()?;
    for name in state.list(Some(&folder)).map_err(words)? {
        let at = folder.join(&name).map_err(|e| e.to_string())?;
        let is_load = name.len() == own.as_str().len() - KEPT.len() - 1;
        if is_load && at != own && Some(&at) != former.as_ref() {
            atomic::remove_file(state, &at).map_err(words)?;
        }
    }
    Ok(())
}

/// Has the table and its file away.
fn take_away(reach: Reach<'_>) -> Result<(), String> {
    nft(&[AWAY], reach)?;
    atomic::remove_file(reach.root, &file()?).map_err(words)
}

/// The way back to how it stands. `wanted` is what will be made of it; none where it is swept.
///
/// # Errors
/// In words: what is loaded could not be kept.
pub fn way_back(there: &Observed, wanted: Option<&Wanted>, reach: Reach<'_>) -> Result<Back, String> {
    let mut back = Back::default();
    let target = (Sort::Filter, NAME);
    let (file, table, firewalls) = match there.thing() {
        Some(Thing::Filter {
            file,
            table,
            firewalls,
        }) => (file, table, firewalls),
        _ => (None, FilterTable::Absent, BTreeMap::new()),
    };
    // First of all, so that the machine is never without either.
    firewalls::way_back(&firewalls, &mut back, reach)?;
    back.path(self::file()?, reach)?;
    match (table, file) {
        (FilterTable::Absent, _) => back.run(When::First, target, &["nft", AWAY], &[]),
        // What somebody changed in it since is not what was declared.
        (_, Some(_)) => back.run(When::Last, target, &["nft", "-f", FILE], &[]),
        (_, None) => {
            let text = nft(&["-s", "list", "table", FAMILY, TABLE], reach)?;
            let text = format!("{AWAY}; {text}");
            if text.len() > WORD_BYTES {
                return Err(format!(
                    "the table {FAMILY} {TABLE} is too large to be kept, and the host did not load it: `nft delete table \
                     {FAMILY} {TABLE}`"
                ));
            }
            back.run(When::Last, target, &["nft", &text], &[]);
        }
    }
    // Where the filter goes the retired come back: once the filter is in force again they are off again.
    if table != FilterTable::Absent && wanted.is_none_or(|wanted| wanted.text.is_none()) {
        firewalls::off_again(&firewalls, &mut back, reach);
    }
    Ok(back)
}

/// Has it away, once what was found is in force again; says what was done.
///
/// # Errors
/// In words.
pub fn give_back(found: Option<&Thing>, reach: Reach<'_>) -> Result<String, String> {
    let given = match found {
        Some(Thing::Filter { firewalls, .. }) => firewalls::give_back(firewalls, reach)?,
        _ => firewalls::Given::default(),
    };
    take_away(reach)?;
    let mut words = "the machine's filter is taken away".to_owned();
    if !given.again.is_empty() {
        let names = given.again.join(", ");
        words.push_str(&format!(", and {names} is active again, as it was found"));
    }
    if !given.gone.is_empty() {
        let names = given.gone.join(", ");
        words.push_str(&format!(
            "; {names}, which was found active, could not come back, as its command is gone: install it, or let \
             something else refuse traffic"
        ));
    }
    Ok(words)
}

#[cfg(test)]
#[path = "filter/tests.rs"]
mod tests;
