//! What a roll-back leaves as it is (DL-7): resources marked `forward_only`, and where nothing is said removals of users
//! and of authorized keys.
//!
//! It stands alone because three must answer alike: the reconciler that orders the former content, the host that undoes
//! a window, and the preview that says so beforehand.

use std::collections::BTreeSet;

use super::{Kind, Resource, accounts::User};

/// Whether what became of a resource never goes back. `former` is the resource before, `newer` after; none is "not there".
///
/// A mark on either side counts: taking it away is a change of its own, which is delivered first. Of a user without a mark
/// only the removal counts, unless the newest word about it is `forward_only = false`.
#[must_use]
pub fn goes_only_forward(former: Option<&Resource>, newer: Option<&Resource>) -> bool {
    let is_marked = |resource: Option<&Resource>| resource.is_some_and(|r| r.forward_only == Some(true));
    if is_marked(former) || is_marked(newer) {
        return true;
    }
    let stands = |resource: Option<&Resource>| resource.and_then(user).is_some_and(|user| !user.absent);
    !may_go_back(former, newer) && stands(former) && !stands(newer)
}

/// A former user as a roll-back brings it back: without the authorized keys that the newer one no longer has. None where
/// no key was taken away, or where they may come back.
#[must_use]
pub fn without_removed_keys(former: &Resource, newer: &Resource) -> Option<Resource> {
    if may_go_back(Some(former), Some(newer)) {
        return None;
    }
    let (mut was, is) = (user(former)?, user(newer)?);
    let (had, has) = (was.authorized_keys.take()?, is.authorized_keys?);
    let has: BTreeSet<&str> = has.iter().map(|line| key_of(line)).collect();
    let kept: Vec<String> = had
        .iter()
        .filter(|line| has.contains(key_of(line)))
        .cloned()
        .collect();
    if kept.len() == had.len() {
        return None;
    }
    was.authorized_keys = Some(kept);
    let spec = serde_json::to_value(was).ok()?;
    Some(Resource {
        spec,
        ..former.clone()
    })
}

/// What becomes of a resource that may not come back, though a roll-back tries (HK-3, HR-5); none where all of it does.
#[must_use]
pub fn may_not_come_back(newer: Option<&Resource>) -> Option<&'static str> {
    match newer?.read() {
        Ok(Kind::Package(package)) if package.absent || package.version.is_some() => Some(
            "a version that it takes away comes back only where the machine's repositories still have it",
        ),
        _ => None,
    }
}

/// The newest word about it is that it may.
fn may_go_back(former: Option<&Resource>, newer: Option<&Resource>) -> bool {
    newer.or(former).and_then(|resource| resource.forward_only) == Some(false)
}

fn user(resource: &Resource) -> Option<User> {
    match resource.read() {
        Ok(Kind::User(user)) => Some(user),
        _ => None,
    }
}

/// The key of a line of `authorized_keys`, without options and comment: the word in base64, which for every kind of key
/// begins with the length of its name (RFC 4253, section 6.6). The whole line where it has none.
fn key_of(line: &str) -> &str {
    line.split_whitespace()
        .find(|word| word.starts_with("AAAA"))
        .unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(kind: &str, spec: serde_json::Value, forward_only: Option<bool>) -> Resource {
        Resource {
            name: "base.it".parse().unwrap(),
            kind: kind.to_owned(),
            spec,
            forward_only,
            not_reversible: None,
            hides: Vec::new(),
        }
    }

    fn alice(absent: bool, keys: &[&str], forward_only: Option<bool>) -> Resource {
        let spec = json!({ "name": "alice", "absent": absent, "authorized_keys": keys });
        resource("user", spec, forward_only)
    }

    // holds: DL-7
    #[test]
    fn a_mark_on_either_side_counts_and_nothing_else_of_an_ordinary_resource() {
        let link = |mark| resource("link", json!({ "path": "/x", "target": "y" }), mark);
        let (plain, marked, free) = (link(None), link(Some(true)), link(Some(false)));
        for (former, newer, expected) in [
            (None, Some(&plain), false),
            (Some(&plain), None, false),
            (Some(&plain), Some(&free), false),
            (None, Some(&marked), true),
            (Some(&marked), None, true),
            (Some(&marked), Some(&free), true),
            (Some(&plain), Some(&marked), true),
        ] {
            assert_eq!(goes_only_forward(former, newer), expected, "{former:?} {newer:?}");
        }
    }

    // holds: DL-7
    #[test]
    fn a_user_that_was_removed_stays_so_unless_the_newest_word_is_that_it_may_come_back() {
        let there = alice(false, &[], None);
        let gone = alice(true, &[], None);
        assert!(goes_only_forward(Some(&there), None));
        assert!(goes_only_forward(Some(&there), Some(&gone)));
        assert!(
            !goes_only_forward(Some(&gone), Some(&there)),
            "a user that was made goes again"
        );
        assert!(!goes_only_forward(None, Some(&there)));
        assert!(!goes_only_forward(
            Some(&there),
            Some(&alice(false, &["k"], None))
        ));
        let free = alice(true, &[], Some(false));
        assert!(!goes_only_forward(Some(&there), Some(&free)));
        assert!(!goes_only_forward(Some(&alice(false, &[], Some(false))), None));
    }

    // holds: DL-7
    #[test]
    fn keys_that_were_removed_do_not_come_back_with_their_user() {
        let former = alice(
            false,
            &["ssh-ed25519 AAAAone bob", "ssh-ed25519 AAAAtwo eve"],
            None,
        );
        let newer = alice(
            false,
            &["restrict ssh-ed25519 AAAAone bob@lab", "ssh-ed25519 AAAAthree"],
            None,
        );
        let back = without_removed_keys(&former, &newer).unwrap();
        assert_eq!(
            back.spec["authorized_keys"],
            json!(["ssh-ed25519 AAAAone bob"]),
            "the key with another comment is the same key"
        );
        let more = alice(
            false,
            &[
                "ssh-ed25519 AAAAone",
                "ssh-ed25519 AAAAtwo",
                "ssh-ed25519 AAAAthree",
            ],
            None,
        );
        assert_eq!(without_removed_keys(&former, &more), None);
        let free = alice(false, &[], Some(false));
        assert_eq!(without_removed_keys(&former, &free), None);
    }

    // holds: HK-3, HR-5
    #[test]
    fn a_package_that_goes_or_changes_its_version_may_not_come_back() {
        let package = |spec| resource("package", spec, None);
        let says = |spec| may_not_come_back(Some(&package(spec))).is_some();
        assert!(says(json!({ "name": "web", "absent": true })));
        assert!(says(json!({ "name": "web", "version": "1.0" })));
        assert!(!says(json!({ "name": "web" })));
        assert_eq!(may_not_come_back(Some(&alice(true, &[], None))), None);
        assert_eq!(may_not_come_back(None), None);
    }
}
