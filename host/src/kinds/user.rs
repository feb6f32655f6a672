//! A user (HK-2), through the system's own tools, with its `authorized_keys`.
//!
//! Only what is asked for is compared and changed. A user that is removed keeps its home folder, and does not come back
//! with a roll-back; nor do keys that were taken away (DL-7).

use std::collections::BTreeSet;

use meshplan_schemas::resource::accounts;

use super::group::{GONE, account_name, account_number, entry};
use super::{Back, Decision, Invalid, Reach, run};
use crate::edge::disk::{DiskError, NewFile, Owner, atomic};
use crate::edge::observe::observe;
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::record::{Thing, User};
use crate::pure::target::Sort;
use crate::pure::target_path::TargetPath;

/// A user that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What is asked for.
    pub spec: accounts::User,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &accounts::User) -> Result<Wanted, Invalid> {
    account_name(&spec.name)?;
    account_number(spec.uid)?;
    for group in spec.group.iter().chain(&spec.groups) {
        account_name(group)?;
    }
    for text in [&spec.home, &spec.shell, &spec.comment].into_iter().flatten() {
        if text.contains(':') || text.chars().any(char::is_control) {
            return Err(Invalid::Fields(format!(
                "user {}: {text:?} holds a colon or a control character, which the user database cannot keep",
                spec.name
            )));
        }
    }
    for path in [&spec.home, &spec.shell].into_iter().flatten() {
        super::path(path)?;
    }
    let keys = spec.authorized_keys.iter().flatten();
    if let Some(bad) = keys.into_iter().find(|key| key.chars().any(char::is_control)) {
        return Err(Invalid::Fields(format!(
            "user {}: the key {bad:?} is more than a line",
            spec.name
        )));
    }
    Ok(Wanted { spec: spec.clone() })
}

/// How it stands.
#[must_use]
pub fn state(reach: Reach<'_>, name: &str) -> Observed {
    match look(reach, name) {
        Err(why) => Observed::Unknown(why),
        Ok(None) => Observed::Absent,
        Ok(Some(user)) => Observed::Is(Thing::User(user)),
    }
}

fn look(reach: Reach<'_>, name: &str) -> Result<Option<User>, String> {
    let Some(line) = entry(reach.system, "passwd", name)? else {
        return Ok(None);
    };
    let fields: Vec<&str> = line.split(':').collect();
    let (&[_, _, uid, gid, comment, home, shell], true) = (fields.as_slice(), fields.len() == 7) else {
        return Err(format!("the user database says {line:?}"));
    };
    let number = |text: &str| {
        text.parse()
            .map_err(|_| format!("the user database says {line:?}"))
    };
    // Not all groups of the machine: there may be more than a command may say.
    let argv = ["id", "-nG", name].map(str::to_owned);
    let ended = reach.system.run(&argv, super::BOUND);
    if let Some(why) = ended.fault(&argv, &[]) {
        return Err(format!("the groups of {name} cannot be told: {why}"));
    }
    let primary = entry(reach.system, "group", gid)?;
    let primary = primary.as_deref().and_then(|line| line.split(':').next());
    let names = ended.said.split_whitespace();
    let groups: BTreeSet<&str> = names.filter(|group| Some(*group) != primary).collect();
    let keys = match key_file(home) {
        None => None,
        Some(path) => match observe(reach.root, &path) {
            Observed::File { bytes, .. } => Some(
                String::from_utf8_lossy(&bytes)
                    .lines()
                    .map(str::to_owned)
                    .collect(),
            ),
            Observed::Unknown(why) => return Err(why),
            _ => None,
        },
    };
    Ok(Some(User {
        uid: number(uid)?,
        gid: number(gid)?,
        groups: groups.into_iter().map(str::to_owned).collect(),
        comment: comment.to_owned(),
        home: home.to_owned(),
        shell: shell.to_owned(),
        keys,
    }))
}

/// Where its keys are; none for a home that is no plain path.
fn key_file(home: &str) -> Option<TargetPath> {
    TargetPath::parse(&format!("{home}/.ssh/authorized_keys")).ok()
}

/// One thing that differs: the option of useradd and usermod, the value, and in words.
struct Differs {
    option: &'static str,
    value: String,
    words: String,
}

/// What differs from what is asked for, but for the keys. A group by name is known by its number.
fn differs(spec: &accounts::User, user: &User, gid: Option<u32>) -> Vec<Differs> {
    let mut all = Vec::new();
    let mut add = |option, value: String, is: String, noun: &str| {
        if value != is {
            let words = format!("{noun} {value} instead of {is}");
            all.push(Differs { option, value, words });
        }
    };
    if let Some(uid) = spec.uid {
        add("--uid", uid.to_string(), user.uid.to_string(), "number");
    }
    match (&spec.group, gid) {
        (Some(_), Some(gid)) => add("--gid", gid.to_string(), user.gid.to_string(), "primary group"),
        // Made by this same change.
        (Some(group), None) => add("--gid", group.clone(), user.gid.to_string(), "primary group"),
        (None, _) => {}
    }
    if !spec.groups.is_empty() {
        let wanted: BTreeSet<&str> = spec.groups.iter().map(String::as_str).collect();
        let wanted: Vec<&str> = wanted.into_iter().collect();
        add("--groups", wanted.join(","), user.groups.join(","), "groups");
    }
    if let Some(home) = &spec.home {
        add("--home", home.clone(), user.home.clone(), "home");
    }
    if let Some(shell) = &spec.shell {
        add("--shell", shell.clone(), user.shell.clone(), "shell");
    }
    if let Some(comment) = &spec.comment {
        add("--comment", comment.clone(), user.comment.clone(), "name");
    }
    all
}

/// How the keys differ, in words; empty where they do not, or are not asked for.
fn keys_differ(spec: &accounts::User, keys: Option<&Vec<String>>) -> String {
    let Some(wanted) = &spec.authorized_keys else {
        return String::new();
    };
    let none = Vec::new();
    let is = keys.unwrap_or(&none);
    if wanted == is {
        return String::new();
    }
    let fresh = wanted.iter().filter(|key| !is.contains(key)).count();
    let lost = is.iter().filter(|key| !wanted.contains(key)).count();
    format!("authorized keys: {lost} taken away, {fresh} new")
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed, reach: Reach<'_>) -> Decision {
    let spec = &wanted.spec;
    let name = &spec.name;
    match observed {
        Observed::Absent if spec.absent => Decision::Unchanged,
        Observed::Absent => {
            let keys = keys_differ(spec, None);
            let keys = if keys.is_empty() {
                keys
            } else {
                format!("; {keys}")
            };
            Decision::Create(format!("user {name} is new{keys}"))
        }
        Observed::Is(Thing::User(_)) if spec.absent => {
            Decision::Update(format!("user {name} is removed, its home folder stays"))
        }
        Observed::Is(Thing::User(user)) => {
            let gid = match primary(spec, reach) {
                Ok(gid) => gid,
                Err(why) => return Decision::Unknown(format!("user {name}: {why}")),
            };
            let mut words: Vec<String> = differs(spec, user, gid).into_iter().map(|d| d.words).collect();
            words.push(keys_differ(spec, user.keys.as_ref()));
            words.retain(|word| !word.is_empty());
            match words.as_slice() {
                [] => Decision::Unchanged,
                words => Decision::Update(format!("user {name}: {}", words.join("; "))),
            }
        }
        Observed::Unknown(why) => Decision::Unknown(format!("user {name}: {why}")),
        other => Decision::Unknown(format!("user {name} is {}", other.word())),
    }
}

/// The number of the primary group that is asked for; none where no group is, or where it is not there.
fn primary(spec: &accounts::User, reach: Reach<'_>) -> Result<Option<u32>, String> {
    match &spec.group {
        None => Ok(None),
        Some(group) => match super::group::state(reach.system, group) {
            Observed::Is(Thing::Group { gid, .. }) => Ok(Some(gid)),
            Observed::Unknown(why) => Err(why),
            _ => Ok(None),
        },
    }
}

/// Makes it so.
///
/// # Errors
/// In words.
pub fn apply(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    let spec = &wanted.spec;
    let name = spec.name.as_str();
    let there = look(reach, name)?;
    match &there {
        None if spec.absent => return Ok(()),
        Some(_) if spec.absent => return run(reach.system, &["userdel", name], &[GONE]),
        None => {
            let nobody = User {
                uid: u32::MAX,
                gid: u32::MAX,
                groups: Vec::new(),
                comment: String::new(),
                home: String::new(),
                shell: String::new(),
                keys: None,
            };
            let fields = differs(spec, &nobody, primary(spec, reach)?);
            let mut argv = vec!["useradd"];
            argv.push(if spec.system {
                "--no-create-home"
            } else {
                "--create-home"
            });
            argv.extend(spec.system.then_some("--system"));
            // useradd makes a group of the user's name, and refuses where there is one.
            if spec.group.is_none() && entry(reach.system, "group", name)?.is_some() {
                argv.extend(["--gid", name]);
            }
            for field in &fields {
                // The same word means another thing to useradd.
                argv.push(if field.option == "--home" {
                    "--home-dir"
                } else {
                    field.option
                });
                argv.push(&field.value);
            }
            argv.push(name);
            run(reach.system, &argv, &[])?;
        }
        Some(user) => {
            let fields = differs(spec, user, primary(spec, reach)?);
            if !fields.is_empty() {
                let mut argv = vec!["usermod"];
                argv.extend(fields.iter().flat_map(|field| [field.option, &field.value]));
                argv.push(name);
                run(reach.system, &argv, &[])?;
            }
        }
    }
    let Some(keys) = &spec.authorized_keys else {
        return Ok(());
    };
    let user = look(reach, name)?.ok_or_else(|| format!("user {name} was made and is not there"))?;
    if user.keys.as_ref() == Some(keys) || (keys.is_empty() && user.keys.is_none()) {
        return Ok(());
    }
    put_keys(&user, keys, reach)
}

fn put_keys(user: &User, keys: &[String], reach: Reach<'_>) -> Result<(), String> {
    let path = key_file(&user.home).ok_or_else(|| format!("the home {:?} is no plain path", user.home))?;
    let folder = path.parent().ok_or("the keys have no folder")?;
    let owner = Owner {
        uid: Some(user.uid),
        gid: Some(user.gid),
    };
    let words = |e: DiskError| e.to_string();
    if reach.root.stat(&folder).map_err(words)?.is_none() {
        atomic::put_folder(reach.root, &folder, 0o700, owner).map_err(words)?;
    }
    let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
    let file = NewFile {
        bytes: text.as_bytes(),
        mode: 0o600,
        owner,
    };
    atomic::put_file(reach.root, &path, &file, None).map_err(words)
}

/// The way back to how it stands. Keys that are taken away stay away.
///
/// # Errors
/// In words: the file of its keys could not be kept.
pub fn way_back(
    name: &str,
    there: &Observed,
    wanted: Option<&Wanted>,
    reach: Reach<'_>,
) -> Result<Back, String> {
    let mut back = Back::default();
    let it = (Sort::User, name);
    let Some(Thing::User(user)) = there.thing() else {
        back.run(When::Last, it, &["userdel", name], &[GONE]);
        // Where it is the last of a group of its own name, userdel takes that along.
        if let Observed::Is(Thing::Group { gid, .. }) = super::group::state(reach.system, name) {
            let argv = ["groupadd", "--gid", &gid.to_string(), name];
            back.run(When::Last, it, &argv, &[9]);
        }
        return Ok(back);
    };
    let removes = wanted.is_none_or(|wanted| wanted.spec.absent);
    if removes {
        // Exit code 9: the name is there already.
        let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
        let argv = ["useradd", "--no-create-home", "--uid", &uid, "--gid", &gid, name];
        back.run(When::Last, it, &argv, &[9]);
    }
    let changes: Option<BTreeSet<&str>> = match wanted.filter(|_| !removes) {
        Some(wanted) => {
            let changes = differs(&wanted.spec, &user, primary(&wanted.spec, reach)?);
            Some(changes.into_iter().map(|change| change.option).collect())
        }
        None => None,
    };
    let mut fields = account_fields(&user);
    fields.retain(|(option, _)| changes.as_ref().is_none_or(|changes| changes.contains(option)));
    if let Some(argv) = usermod(&fields, name) {
        back.run(When::Last, it, &argv, &[]);
    }
    let keys = wanted.and_then(|wanted| wanted.spec.authorized_keys.as_ref());
    let (Some(new), Some(path)) = (keys, key_file(&user.home)) else {
        return Ok(back);
    };
    match (observe(reach.root, &path), &user.keys) {
        (Observed::File { mode, uid, gid, .. }, Some(keys)) => {
            let kept = keys.iter().filter(|key| new.contains(key));
            let kept: String = kept.map(|key| format!("{key}\n")).collect();
            let bytes = kept.into_bytes();
            back.path_to(
                path,
                &Observed::File {
                    bytes,
                    mode,
                    uid,
                    gid,
                },
            );
        }
        _ => back.path(path, reach)?,
    }
    Ok(back)
}

/// The command that sets fields; none where there is nothing to set.
fn usermod<'a>(fields: &'a [(&'static str, String)], name: &'a str) -> Option<Vec<&'a str>> {
    let options = fields
        .iter()
        .flat_map(|(option, value)| [*option, value.as_str()]);
    let argv = std::iter::once("usermod").chain(options).chain([name]);
    (!fields.is_empty()).then(|| argv.collect())
}

/// All that usermod can bring back.
fn account_fields(user: &User) -> Vec<(&'static str, String)> {
    vec![
        ("--uid", user.uid.to_string()),
        ("--gid", user.gid.to_string()),
        ("--groups", user.groups.join(",")),
        ("--home", user.home.clone()),
        ("--shell", user.shell.clone()),
        ("--comment", user.comment.clone()),
    ]
}

/// Gives it back as it was found, and says what was done.
///
/// # Errors
/// In words.
pub fn give_back(name: &str, found: Option<&Thing>, reach: Reach<'_>) -> Result<String, String> {
    let Some(Thing::User(user)) = found else {
        run(reach.system, &["userdel", name], &[GONE])?;
        return Ok(format!("user {name} is removed, its home folder stays"));
    };
    let is = look(reach, name)?
        .map(|is| account_fields(&is))
        .unwrap_or_default();
    let mut fields = account_fields(user);
    fields.retain(|field| !is.contains(field));
    if let Some(argv) = usermod(&fields, name) {
        run(reach.system, &argv, &[])?;
    }
    Ok(format!(
        "user {name} is as it was found, but for its authorized keys"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;
    use crate::edge::system::SimSystem;
    use crate::pure::inverse::UndoAct;

    fn spec(name: &str) -> accounts::User {
        serde_json::from_value(serde_json::json!({ "name": name })).unwrap()
    }

    struct World {
        disk: SimDisk,
        system: SimSystem,
    }

    impl World {
        fn new() -> Self {
            let world = Self {
                disk: SimDisk::new(),
                system: SimSystem::default(),
            };
            let _home = world.disk.at(&TargetPath::parse("/home/alice").unwrap());
            world
        }
        fn reach(&self) -> Reach<'_> {
            Reach {
                root: &self.disk,
                system: &self.system,
                state: &self.disk,
            }
        }
        fn apply(&self, spec: &accounts::User) {
            apply(&validate(spec).unwrap(), self.reach()).unwrap();
        }
        fn plan(&self, spec: &accounts::User) -> Decision {
            plan(
                &validate(spec).unwrap(),
                &state(self.reach(), &spec.name),
                self.reach(),
            )
        }
        fn keys(&self) -> Option<Vec<String>> {
            match state(self.reach(), "alice").thing() {
                Some(Thing::User(user)) => user.keys,
                _ => None,
            }
        }
    }

    // holds: HK-2
    #[test]
    fn what_the_user_database_cannot_keep_is_refused() {
        let with = |change: fn(&mut accounts::User)| {
            let mut spec = spec("alice");
            change(&mut spec);
            validate(&spec)
        };
        assert!(with(|_| ()).is_ok());
        assert!(with(|s| s.comment = Some("a:b".to_owned())).is_err());
        assert!(with(|s| s.home = Some("home/alice".to_owned())).is_err());
        assert!(with(|s| s.shell = Some("/bin/sh\n/bin/evil".to_owned())).is_err());
        assert!(with(|s| s.groups = vec!["a,b".to_owned()]).is_err());
        assert!(with(|s| s.authorized_keys = Some(vec!["a\nb".to_owned()])).is_err());
        assert!(with(|s| s.name = "root:0".to_owned()).is_err());
    }

    // holds: HK-2, HK-14
    #[test]
    fn it_is_made_changed_only_in_what_is_asked_and_removed() {
        let world = World::new();
        world.system.with(|sim| {
            sim.groups
                .extend([("media".to_owned(), 5), ("sudo".to_owned(), 6)]);
        });
        let mut alice = spec("alice");
        alice.groups = vec!["sudo".to_owned(), "media".to_owned()];
        alice.shell = Some("/bin/bash".to_owned());
        assert!(matches!(world.plan(&alice), Decision::Create(_)));
        world.apply(&alice);
        assert_eq!(world.plan(&alice), Decision::Unchanged);
        // Somebody's own affair, which is not asked for.
        world
            .system
            .with(|sim| sim.users.get_mut("alice").unwrap().comment = "Alice".to_owned());
        assert_eq!(world.plan(&alice), Decision::Unchanged);
        alice.group = Some("media".to_owned());
        alice.groups = vec!["sudo".to_owned()];
        assert!(matches!(world.plan(&alice), Decision::Update(_)));
        world.apply(&alice);
        assert_eq!(world.plan(&alice), Decision::Unchanged);
        alice.absent = true;
        world.apply(&alice);
        world.apply(&alice);
        assert_eq!(world.plan(&alice), Decision::Unchanged);
        assert_eq!(
            world.system.acts(),
            [
                "useradd --create-home --groups media,sudo --shell /bin/bash alice",
                "usermod --gid 5 --groups sudo alice",
                "userdel alice"
            ]
        );
    }

    // holds: DL-7, HK-2
    #[test]
    fn keys_that_were_taken_away_do_not_come_back_with_the_way_back() {
        let world = World::new();
        let mut alice = spec("alice");
        alice.authorized_keys = Some(vec!["k1 bob".to_owned(), "k2 eve".to_owned()]);
        world.apply(&alice);
        assert_eq!(world.keys(), alice.authorized_keys);
        assert_eq!(world.plan(&alice), Decision::Unchanged);
        let there = state(world.reach(), "alice");
        alice.authorized_keys = Some(vec!["k1 bob".to_owned(), "k3 kim".to_owned()]);
        let wanted = validate(&alice).unwrap();
        let back = way_back("alice", &there, Some(&wanted), world.reach()).unwrap();
        let blobs: Vec<String> = (back.blobs.values())
            .map(|bytes| String::from_utf8(bytes.clone()).unwrap())
            .collect();
        assert_eq!(blobs, ["k1 bob\n"]);
        let runs = back.acts.iter().any(|act| matches!(act.act, UndoAct::Run { .. }));
        assert!(!runs, "nothing but its keys changes: {:?}", back.acts);
    }
}
