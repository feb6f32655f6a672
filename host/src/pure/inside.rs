//! What may stand inside a tree that is unpacked (HK-4).
//!
//! Stands alone because an archive is somebody's input: each name is judged here before it reaches the disk. Invariant:
//! what was let in, in this order, cannot stand outside of the folder, nor be reached over a link of the same archive.

use std::collections::BTreeSet;

use meshplan_schemas::artifact::{folders, path_fault};

/// Judges the names of one archive.
#[derive(Debug, Default)]
pub struct Gate {
    strip: usize,
    /// What was let in and is no folder.
    leaves: BTreeSet<String>,
    /// Those of them that are links.
    links: BTreeSet<String>,
}

/// What an entry of an archive is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sort {
    /// A folder.
    Folder,
    /// A file, with the permission bits that it is packed with.
    File(u32),
    /// A symbolic link, and where it points.
    Link(String),
    /// Something that no archive may bring, in a word or two.
    Other(&'static str),
}

impl Gate {
    /// A gate that drops so many leading parts of each name.
    #[must_use]
    pub fn new(strip: u32) -> Self {
        Self {
            strip: usize::try_from(strip).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }

    /// The path at which an entry is to stand; none where nothing of its name is left.
    ///
    /// # Errors
    /// Why the whole archive is refused, in a sentence.
    pub fn enter(&mut self, name: &str, sort: &Sort) -> Result<Option<String>, String> {
        let shown = || name.chars().take(200).collect::<String>();
        let refused = |why: &str| format!("the archive is refused: {:?} {why}", shown());
        // Before anything is stripped: what is dropped may not hide where a name leads.
        let plain = name.strip_prefix("./").unwrap_or(name);
        let plain = plain.strip_suffix('/').unwrap_or(plain);
        if matches!(plain, "" | ".") && *sort == Sort::Folder {
            return Ok(None);
        }
        if let Some(why) = path_fault(plain) {
            return Err(refused(why));
        }
        if let Sort::Other(what) = sort {
            return Err(refused(&format!("is {what}, which is not unpacked")));
        }
        let kept: Vec<&str> = plain.split('/').skip(self.strip).collect();
        if kept.is_empty() {
            return Ok(None);
        }
        let path = kept.join("/");
        if let Some(link) = folders(&path).find(|folder| self.links.contains(*folder)) {
            return Err(refused(&format!("stands behind the link {link:?}")));
        }
        if let Some(file) = folders(&path).find(|folder| self.leaves.contains(*folder)) {
            return Err(refused(&format!("stands below the file {file:?}")));
        }
        if *sort == Sort::Folder && !self.leaves.contains(&path) {
            return Ok(Some(path));
        }
        if !self.leaves.insert(path.clone()) {
            return Err(refused("stands in it twice"));
        }
        if let Sort::Link(target) = sort {
            if let Some(why) = link_fault(&path, target) {
                return Err(refused(&format!("is a link to {target:?}, which {why}")));
            }
            self.links.insert(path.clone());
        }
        Ok(Some(path))
    }
}

/// Why a link may not point there; none where it stays inside. Upwards it may go only first, and no further than to the
/// folder itself: behind another link `..` is not where it seems.
fn link_fault(path: &str, target: &str) -> Option<&'static str> {
    if target.is_empty() || target.contains('\0') {
        return Some("is no path");
    }
    if target.starts_with('/') {
        return Some("is absolute");
    }
    let mut room = folders(path).count();
    let mut went_down = false;
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if went_down => return Some("goes up again after it went down"),
            ".." => match room.checked_sub(1) {
                Some(less) => room = less,
                None => return Some("leaves the folder"),
            },
            _ => went_down = true,
        }
    }
    None
}

/// The permission bits that a packed file gets.
///
/// # Errors
/// It has setuid or setgid and may not.
pub fn mode(path: &str, packed: u32, allow_setuid: bool) -> Result<u32, String> {
    let special = packed & 0o6000;
    if special != 0 && !allow_setuid {
        return Err(format!(
            "the archive is refused: {path:?} is setuid or setgid; `allow_setuid = true` lets it"
        ));
    }
    Ok(packed & 0o777 | special)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Sort = Sort::File(0o644);

    fn link(to: &str) -> Sort {
        Sort::Link(to.to_owned())
    }

    // holds: HK-4
    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        for bad in ["/etc/passwd", "../x", "a/../../x", "a/../b", "a//b", "", "a\0b"] {
            assert!(Gate::new(0).enter(bad, &FILE).is_err(), "{bad:?} was let in");
            // Nor is it hidden by what is stripped.
            assert!(Gate::new(1).enter(bad, &FILE).is_err(), "{bad:?} was let in");
        }
        let mut gate = Gate::new(0);
        assert_eq!(gate.enter("./a/b", &FILE), Ok(Some("a/b".to_owned())));
        assert_eq!(gate.enter("./", &Sort::Folder), Ok(None));
        assert_eq!(gate.enter("a/", &Sort::Folder), Ok(Some("a".to_owned())));
    }

    // holds: HK-4
    #[test]
    fn leading_parts_are_dropped_and_what_has_no_more_is_passed_over() {
        let mut gate = Gate::new(1);
        assert_eq!(gate.enter("web-1.0/", &Sort::Folder), Ok(None));
        assert_eq!(
            gate.enter("web-1.0/bin/run", &FILE),
            Ok(Some("bin/run".to_owned()))
        );
        assert_eq!(gate.enter("README", &FILE), Ok(None));
    }

    // holds: HK-4
    #[test]
    fn links_stay_inside_and_nothing_is_written_behind_one() {
        let mut gate = Gate::new(0);
        for (at, to) in [
            ("a/l", "../b"),
            ("l", "a/b"),
            ("a/b/m", "../.."),
            ("n", "./x/./y"),
        ] {
            assert!(gate.enter(at, &link(to)).is_ok(), "{at} -> {to}");
        }
        for (at, to) in [
            ("o", "/etc"),
            ("o", "../x"),
            ("a/o", "../../x"),
            // Over a link that lies deep and points at the top, this is outside.
            ("a/p", "b/m/../x"),
            ("o", ""),
        ] {
            assert!(gate.enter(at, &link(to)).is_err(), "{at} -> {to} was let in");
        }
        assert!(
            gate.enter("l/file", &FILE)
                .unwrap_err()
                .contains("behind the link")
        );
        assert!(gate.enter("l/x/y", &Sort::Folder).is_err());
    }

    // holds: HK-4
    #[test]
    fn nothing_stands_twice_nor_below_a_file_and_devices_are_refused() {
        let mut gate = Gate::new(0);
        gate.enter("a", &FILE).unwrap();
        assert!(gate.enter("a", &FILE).is_err());
        assert!(gate.enter("a/b", &FILE).is_err());
        assert!(gate.enter("a", &Sort::Folder).is_err());
        assert!(
            gate.enter("d", &Sort::Other("a device"))
                .unwrap_err()
                .contains("a device")
        );
    }

    // holds: HK-4
    #[test]
    fn setuid_is_refused_unless_it_is_allowed() {
        assert_eq!(mode("x", 0o100_755, false), Ok(0o755));
        assert!(mode("x", 0o4755, false).is_err() && mode("x", 0o2755, false).is_err());
        assert_eq!(mode("x", 0o4755, true), Ok(0o4755));
        assert_eq!(mode("x", 0o1777, false), Ok(0o777));
    }
}
