//! The orders on disk, as exact text, each whole or not at all (SG-12, HR-15).
//!
//! It stands alone because a host acts on nothing else after a restart. A file that is damaged or lost is unknown:
//! it is told, left out, and asked for again by the first word of the next session.

use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::Payload;
use meshplan_schemas::fleet_list::{Leaf, ProvenLeaf};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::checked::{self, Found, path};
use super::disk::{Disk, DiskError, Owner, atomic};
use super::enrol::{RECORD_FILE, TRUST_FILE};
use crate::pure::known_bad::KnownBad;
use crate::pure::orders::{Kept, Orders, Slot};
use crate::pure::standing::{STANDING_VERSION, Standing};
use crate::pure::target_path::TargetPath;

const FOLDER: &str = "/orders";
const STANDING: &str = "/standing.json";
const KNOWN_BAD: &str = "/known-bad.json";

/// The file of a place.
#[must_use]
pub fn file(slot: Slot) -> TargetPath {
    let name = match slot {
        Slot::Head => "head".to_owned(),
        Slot::FormerHead => "head.former".to_owned(),
        Slot::Record => "record".to_owned(),
        Slot::Timestamp => "timestamp".to_owned(),
        Slot::Epoch(digest) => format!("epoch-{}", digest.hex()),
        Slot::Declaration => "declaration".to_owned(),
        Slot::Trying => "declaration.trying".to_owned(),
        Slot::Confirmed => "declaration.confirmed".to_owned(),
    };
    path(&format!("{FOLDER}/{name}"))
}

/// Makes the folder.
///
/// # Errors
/// [`DiskError`].
pub fn prepare(disk: &dyn Disk) -> Result<(), DiskError> {
    atomic::put_folder(disk, &path(FOLDER), 0o700, Owner::default())
}

/// Keeps a text.
///
/// # Errors
/// [`DiskError`]; then the place holds what it held.
pub fn keep(disk: &dyn Disk, slot: Slot, text: &str) -> Result<(), DiskError> {
    checked::write(disk, &file(slot), text)
}

/// Empties a place.
///
/// # Errors
/// [`DiskError`].
pub fn drop_slot(disk: &dyn Disk, slot: Slot) -> Result<(), DiskError> {
    atomic::remove_file(disk, &file(slot))
}

/// Everything that is whole, and a sentence for each file that is not.
#[must_use]
pub fn load(disk: &dyn Disk) -> (Orders, Vec<String>) {
    let mut broken = Vec::new();
    let mut text = |slot: Slot| match checked::read(disk, &file(slot)) {
        Found::Missing => None,
        Found::Whole(text) => Some(text),
        Found::Broken(why) => {
            broken.push(why);
            None
        }
    };
    let (head, former_head) = (text(Slot::Head), text(Slot::FormerHead));
    let (record, timestamp) = (text(Slot::Record), text(Slot::Timestamp));
    let declaration = text(Slot::Declaration);
    let (trying, confirmed) = (text(Slot::Trying), text(Slot::Confirmed));
    let names = disk.list(Some(&path(FOLDER))).unwrap_or_default();
    let digests = names.iter().filter_map(|name| {
        format!("sha256:{}", name.strip_prefix("epoch-")?)
            .parse::<Digest>()
            .ok()
    });
    let epochs: Vec<String> = digests.filter_map(|digest| text(Slot::Epoch(digest))).collect();
    let mut orders = Orders {
        head: read(head, &mut broken),
        former_head: read(former_head, &mut broken),
        record: record.and_then(|text| opened(&text, &mut broken)),
        timestamp: read(timestamp, &mut broken),
        declaration: read(declaration, &mut broken),
        trying: read(trying, &mut broken),
        confirmed: read(confirmed, &mut broken),
        ..Orders::default()
    };
    for text in epochs {
        if let Some(epoch) = read(Some(text), &mut broken) {
            orders.epochs.insert(epoch.digest, epoch);
        }
    }
    (orders, broken)
}

fn read<P: Payload>(text: Option<String>, broken: &mut Vec<String>) -> Option<Kept<P>> {
    match Kept::read(text?) {
        Ok(kept) => Some(kept),
        Err(why) => {
            broken.push(format!(
                "an order that was kept cannot be read by this build: {why}"
            ));
            None
        }
    }
}

fn opened(text: &str, broken: &mut Vec<String>) -> Option<(ProvenLeaf, Leaf)> {
    let read = || -> Result<_, serde_json::Error> {
        let proof: ProvenLeaf = serde_json::from_str(text)?;
        let leaf: Leaf = serde_json::from_str(&proof.leaf)?;
        Ok((proof, leaf))
    };
    match read() {
        Ok(record) => Some(record),
        Err(e) => {
            broken.push(format!("the own record: {e}"));
            None
        }
    }
}

/// What enrolment has left, as exact texts: the first head, and the record with its proof. They were verified there
/// against the token's authors.
#[must_use]
pub fn enrolled(disk: &dyn Disk) -> (Option<String>, Option<String>) {
    let text = |name: &str| {
        let bytes = disk.read(&path(&format!("/{name}"))).ok()?;
        String::from_utf8(bytes).ok()
    };
    (
        text(TRUST_FILE),
        text(RECORD_FILE).map(|t| t.trim_end().to_owned()),
    )
}

/// How the node stood; a broken or newer file is unknown, with its sentence.
#[must_use]
pub fn load_standing(disk: &dyn Disk) -> (Standing, Option<String>) {
    let (standing, broken): (Option<Standing>, _) = value(disk, STANDING);
    match standing {
        Some(standing) if standing.version == STANDING_VERSION => (standing, broken),
        Some(other) => (
            Standing::default(),
            Some(format!("{STANDING} is of version {}", other.version)),
        ),
        None => (Standing::default(), broken),
    }
}

/// Writes how the node stands.
///
/// # Errors
/// [`DiskError`].
pub fn save_standing(disk: &dyn Disk, standing: &Standing) -> Result<(), DiskError> {
    save(disk, STANDING, standing)
}

/// What failed here; a broken file is unknown, with its sentence.
#[must_use]
pub fn load_known_bad(disk: &dyn Disk) -> (KnownBad, Option<String>) {
    let (known_bad, broken) = value(disk, KNOWN_BAD);
    (known_bad.unwrap_or_default(), broken)
}

/// Writes what failed here.
///
/// # Errors
/// [`DiskError`].
pub fn save_known_bad(disk: &dyn Disk, known_bad: &KnownBad) -> Result<(), DiskError> {
    save(disk, KNOWN_BAD, known_bad)
}

fn value<T: DeserializeOwned>(disk: &dyn Disk, name: &str) -> (Option<T>, Option<String>) {
    match checked::read(disk, &path(name)) {
        Found::Missing => (None, None),
        Found::Broken(why) => (None, Some(why)),
        Found::Whole(text) => match serde_json::from_str(&text) {
            Ok(value) => (Some(value), None),
            Err(e) => (None, Some(format!("{name} cannot be read by this build: {e}"))),
        },
    }
}

fn save<T: Serialize>(disk: &dyn Disk, name: &str, value: &T) -> Result<(), DiskError> {
    let text = serde_json::to_string(value).unwrap_or_default();
    checked::write(disk, &path(name), &text)
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::epoch::Targeting;

    use super::super::disk::SimDisk;
    use super::*;
    use crate::pure::known_bad::Entry;
    use crate::pure::sample;

    fn kept() -> SimDisk {
        let disk = SimDisk::new();
        prepare(&disk).unwrap();
        let (head, proof) = sample::head(1, &[1]);
        let epoch = sample::kept(&sample::epoch(3, "", Targeting::everyone(), vec![]));
        let declaration = sample::text(&sample::declaration(5, &[]));
        for (slot, text) in [
            (Slot::Head, sample::text(&head)),
            (Slot::Record, serde_json::to_string(&proof).unwrap()),
            (Slot::Timestamp, sample::text(&sample::timestamp(500, 2000))),
            (Slot::Epoch(epoch.digest), epoch.text.clone()),
            (Slot::Declaration, declaration.clone()),
            (Slot::Confirmed, declaration),
        ] {
            keep(&disk, slot, &text).unwrap();
        }
        disk
    }

    #[test]
    fn what_was_kept_comes_back_as_the_exact_text() {
        let (orders, broken) = load(&kept());
        assert_eq!(broken, Vec::<String>::new());
        assert_eq!(orders.newest_epoch().unwrap().payload.epoch, 3);
        assert_eq!(orders.record.as_ref().unwrap().1.id, sample::NODE);
        let confirmed = orders.confirmed.unwrap();
        assert_eq!(confirmed.text, sample::text(&sample::declaration(5, &[])));
        assert_eq!(orders.declaration.unwrap().digest, confirmed.digest);
        assert_eq!(orders.trying, None);
    }

    // holds: HR-15
    #[test]
    fn a_file_that_is_cut_or_noise_is_told_and_left_out_and_the_others_stand() {
        let (whole, _) = load(&kept());
        for slot in [
            Slot::Head,
            Slot::Record,
            Slot::Timestamp,
            Slot::Declaration,
            Slot::Confirmed,
        ] {
            for noise in [&b""[..], b"{\"payload\":", &[0xff; 64]] {
                let disk = kept();
                disk.plant(&file(slot), noise, 0o600);
                let (orders, broken) = load(&disk);
                assert_eq!(broken.len(), 1, "{slot:?}: {broken:?}");
                assert!(broken[0].contains(file(slot).as_str()), "{}", broken[0]);
                assert_ne!(orders, whole);
                let held = orders.held_marks(0);
                assert_eq!(held.sequence.is_none(), slot == Slot::Declaration);
                assert_eq!(held.revision.is_none(), matches!(slot, Slot::Head | Slot::Record));
            }
        }
    }

    // holds: DL-14
    #[test]
    fn what_failed_here_is_on_disk_and_a_cut_at_any_act_leaves_the_old_or_the_new() {
        let disk = SimDisk::new();
        let mut memory = KnownBad::default();
        let entry = Entry {
            component: "web".into(),
            why: "no".into(),
            at: 1,
        };
        memory.remember(sample::digest("one"), entry.clone());
        save_known_bad(&disk, &memory).unwrap();
        disk.begin();
        memory.remember(sample::digest("two"), entry);
        save_known_bad(&disk, &memory).unwrap();
        for acts in 0..=disk.acts() {
            for cut in disk.cuts_after(acts) {
                let (found, broken) = load_known_bad(&cut);
                assert_eq!(broken, None);
                assert!(found.len() == 1 || found.len() == 2);
            }
        }
        assert_eq!(load_known_bad(&disk), (memory, None));
    }
}
