//! A machine in memory, for tests: units, users, groups, programs. It is strict: a program that it does not know, or
//! does not know with these arguments, could not be started.

mod nft;
mod packages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meshplan_schemas::resource::accounts::Manager;

pub use self::nft::Nft;
pub use self::packages::{Offer, Packages};
use super::{System, Turn};
use crate::edge::command::{Ended, How, cut};
use crate::edge::disk::{Disk as _, SimDisk};
use crate::edge::engine::sim::LAUNCHER;
use crate::edge::engine::{Engine, SimEngine};
use crate::pure::filter::links::Links;
use crate::pure::record::User;
use crate::pure::target_path::TargetPath;
use crate::pure::unit::Unit;
use crate::pure::unit_file::FOLDER;

/// A machine in memory; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SimSystem {
    sim: Arc<Mutex<Sim>>,
    /// Its container engine.
    pub engine: SimEngine,
}

/// What is in it. A test reads and sets it by [`SimSystem::with`].
#[derive(Debug, Default)]
pub struct Sim {
    /// The units that it has.
    pub units: BTreeMap<String, Unit>,
    /// Units that end as soon as they are started.
    pub dying: BTreeSet<String>,
    /// Units that end between two looks.
    pub weak: BTreeSet<String>,
    /// The users.
    pub users: BTreeMap<String, User>,
    /// The groups, each with its number.
    pub groups: BTreeMap<String, u32>,
    /// What the kernel has been told, by path.
    pub kernel: BTreeMap<String, String>,
    /// Its packet filter.
    pub nft: Nft,
    /// Its packages.
    pub packages: Packages,
    /// Programs of a test's own, by their whole command line, each with its exit code.
    pub programs: BTreeMap<String, i32>,
    /// Everything that changed something, in order, as words.
    pub log: Vec<String>,
    /// The disk that it reads the fleet's units from; none reads none.
    pub disk: Option<SimDisk>,
    /// The units that it has read there.
    read: BTreeSet<String>,
    /// Units that run to an end.
    oneshots: BTreeSet<String>,
    /// Whether the service manager answers nothing.
    pub is_deaf: bool,
}

impl SimSystem {
    fn lock(&self) -> MutexGuard<'_, Sim> {
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or sets what is in it.
    pub fn with<T>(&self, act: impl FnOnce(&mut Sim) -> T) -> T {
        act(&mut self.lock())
    }

    /// What changed something since the last call.
    #[must_use]
    pub fn acts(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().log)
    }
}

impl Sim {
    /// A unit that is there.
    pub fn unit(&mut self, name: &str, active: &str, boot: &str) {
        let sub = if active == "active" { "running" } else { "dead" };
        let unit = Unit {
            active: active.to_owned(),
            sub: sub.to_owned(),
            boot: boot.to_owned(),
            result: "success".to_owned(),
            ..Unit::default()
        };
        self.units.insert(name.to_owned(), unit);
    }

    /// Takes the units of the fleet's folder for what its files say.
    fn read_folder(&mut self) {
        let Some(disk) = self.disk.clone() else { return };
        let Ok(folder) = TargetPath::parse(FOLDER) else {
            return;
        };
        for name in disk.list(Some(&folder)).unwrap_or_default() {
            let text = folder.join(&name).map(|path| disk.read(&path));
            let Ok(Ok(bytes)) = text else { continue };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if text.contains("Type=oneshot\n") {
                self.oneshots.insert(name.clone());
            } else {
                self.oneshots.remove(&name);
            }
            let boot = if text.contains("[Install]") {
                "disabled"
            } else {
                "static"
            };
            match self.units.get_mut(&name) {
                Some(unit) if unit.is_enabled() != Some(true) => boot.clone_into(&mut unit.boot),
                Some(_) => {}
                None => {
                    self.unit(&name, "inactive", boot);
                    self.read.insert(name);
                }
            }
        }
        let is_there = |name: &String| {
            folder
                .join(name)
                .is_ok_and(|path| matches!(disk.stat(&path), Ok(Some(_))))
        };
        let gone: Vec<String> = self.read.iter().filter(|name| !is_there(name)).cloned().collect();
        for name in gone {
            self.read.remove(&name);
            self.units.remove(&name);
        }
    }

    fn turn(&mut self, name: &str, turn: Turn) -> Result<(), String> {
        let is_oneshot = self.oneshots.contains(name);
        let dies = self.dying.contains(name);
        let Some(unit) = self.units.get_mut(name) else {
            return Err(format!("Unit {name} not found."));
        };
        if turn == Turn::Reset && unit.active != "failed" {
            return Ok(());
        }
        if unit.is_masked() && matches!(turn, Turn::Start | Turn::Restart) {
            return Err(format!("Unit {name} is masked."));
        }
        let (active, sub) = match turn {
            Turn::Start | Turn::Restart if dies => ("failed", "failed"),
            Turn::Start | Turn::Restart if is_oneshot => ("inactive", "dead"),
            Turn::Start | Turn::Restart => ("active", "running"),
            Turn::Stop | Turn::Reset => ("inactive", "dead"),
            Turn::Reload => (unit.active.as_str(), unit.sub.as_str()),
            Turn::Enable | Turn::Unmask | Turn::Disable | Turn::Mask => {
                let boot = match turn {
                    Turn::Enable => "enabled",
                    Turn::Mask => "masked",
                    _ => "disabled",
                };
                boot.clone_into(&mut unit.boot);
                (unit.active.as_str(), unit.sub.as_str())
            }
        };
        let (active, sub) = (active.to_owned(), sub.to_owned());
        if matches!(turn, Turn::Start | Turn::Restart) {
            unit.main_pid += 1;
        }
        (unit.active, unit.sub) = (active, sub);
        self.log.push(format!("{} {name}", turn.word()));
        if dies && is_oneshot && turn == Turn::Start {
            return Err(format!("start {name}: the job ended as `failed`"));
        }
        Ok(())
    }

    /// The exit code and what is said.
    fn run(&mut self, argv: &[&str]) -> Option<(i32, String)> {
        let line = argv.join(" ");
        if let Some(code) = self.programs.get(&line) {
            let code = *code;
            self.log.push(line);
            return Some((code, String::new()));
        }
        match argv {
            ["getent", "passwd", name] => Some(match self.users.get(*name) {
                None => (2, String::new()),
                Some(user) => (0, passwd(name, user)),
            }),
            ["getent", "group", key] => {
                let is_it = |(name, gid): &(&String, &u32)| name == key || gid.to_string() == *key;
                Some(match self.groups.iter().find(is_it) {
                    None => (2, String::new()),
                    Some((name, gid)) => (0, format!("{name}:x:{gid}:")),
                })
            }
            ["id", "-nG", name] => {
                let user = self.users.get(*name)?;
                let of = |gid: &u32| self.groups.iter().find(|(_, one)| *one == gid);
                let primary = of(&user.gid).map_or_else(|| user.gid.to_string(), |(name, _)| name.clone());
                let all: Vec<String> = std::iter::once(primary).chain(user.groups.clone()).collect();
                Some((0, all.join(" ")))
            }
            ["systemctl", "daemon-reload"] => {
                self.log.push(line);
                self.read_folder();
                Some((0, String::new()))
            }
            ["systemctl", word, name] => {
                let turns = [
                    Turn::Start,
                    Turn::Stop,
                    Turn::Restart,
                    Turn::Reload,
                    Turn::Enable,
                    Turn::Disable,
                    Turn::Mask,
                    Turn::Unmask,
                    Turn::Reset,
                ];
                let turn = turns.into_iter().find(|turn| turn.word() == *word)?;
                Some(match self.turn(name, turn) {
                    Ok(()) => (0, String::new()),
                    Err(why) => (5, why),
                })
            }
            [
                "useradd" | "usermod" | "groupadd" | "groupmod",
                options @ ..,
                name,
            ] => {
                let code = self.account(argv[0], options, name)?;
                self.log.push(line);
                Some((code, String::new()))
            }
            ["userdel", name] => {
                let was = self.users.remove(*name);
                if was
                    .as_ref()
                    .is_some_and(|user| self.groups.get(*name) == Some(&user.gid))
                {
                    self.groups.remove(*name);
                }
                self.log.push(line);
                Some((if was.is_some() { 0 } else { 6 }, String::new()))
            }
            ["groupdel", name] => {
                let was = self.groups.remove(*name);
                self.log.push(line);
                Some((if was.is_some() { 0 } else { 6 }, String::new()))
            }
            ["sh", "-c", script, "sh", path, value] if *script == crate::kinds::sysctl::SET => {
                self.kernel.insert((*path).to_owned(), (*value).to_owned());
                self.log.push(format!("{path} = {value}"));
                Some((0, String::new()))
            }
            _ => {
                let ran = self.nft.run(argv, self.disk.as_ref());
                let (code, said, acted) = ran.or_else(|| self.packages.run(argv))?;
                self.log.extend(acted);
                Some((code, said))
            }
        }
    }

    fn account(&mut self, program: &str, options: &[&str], name: &str) -> Option<i32> {
        let mut options = options.iter();
        let mut given: BTreeMap<&str, &str> = BTreeMap::new();
        while let Some(option) = options.next() {
            match *option {
                "--system" | "--create-home" | "--no-create-home" | "--no-user-group" => {}
                "--uid" | "--gid" | "--groups" | "--home-dir" | "--home" | "--shell" | "--comment" => {
                    given.insert(option, options.next()?);
                }
                _ => return None,
            }
        }
        let number = |text: &&str| text.parse::<u32>().ok();
        if program.starts_with("group") {
            if (program == "groupadd") == self.groups.contains_key(name) {
                return Some(9);
            }
            let next = 900 + u32::try_from(self.groups.len()).ok()?;
            let gid = given.get("--gid").and_then(number).unwrap_or(next);
            self.groups.insert(name.to_owned(), gid);
            return Some(0);
        }
        if (program == "useradd") == self.users.contains_key(name) {
            return Some(9);
        }
        let next = 1000 + u32::try_from(self.users.len()).ok()?;
        let mut user = self.users.get(name).cloned().unwrap_or_else(|| User {
            uid: next,
            gid: next,
            groups: Vec::new(),
            comment: String::new(),
            home: format!("/home/{name}"),
            shell: "/bin/sh".to_owned(),
            keys: None,
        });
        if program == "useradd" && !given.contains_key("--gid") {
            // A group of its own, which must be new.
            if self.groups.contains_key(name) {
                return Some(9);
            }
            self.groups.insert(name.to_owned(), user.gid);
        }
        for (option, value) in given {
            match option {
                "--uid" => user.uid = number(&value)?,
                "--gid" => user.gid = number(&value).or_else(|| self.groups.get(value).copied())?,
                "--groups" => {
                    let names = value.split(',').filter(|name| !name.is_empty());
                    user.groups = names.map(str::to_owned).collect();
                }
                "--home-dir" | "--home" => value.clone_into(&mut user.home),
                "--shell" => value.clone_into(&mut user.shell),
                _ => value.clone_into(&mut user.comment),
            }
        }
        self.users.insert(name.to_owned(), user);
        Some(0)
    }
}

fn passwd(name: &str, user: &User) -> String {
    let User {
        uid,
        gid,
        comment,
        home,
        shell,
        ..
    } = user;
    format!("{name}:x:{uid}:{gid}:{comment}:{home}:{shell}")
}

impl System for SimSystem {
    fn run(&self, argv: &[String], bound: Duration) -> Ended {
        let ended = self.list(argv, bound);
        let said = cut(&ended.said);
        Ended { said, ..ended }
    }

    fn list(&self, argv: &[String], _bound: Duration) -> Ended {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let ran = match words.strip_prefix(&LAUNCHER) {
            Some(words) => self.engine.undo_now(words),
            None => self.lock().run(&words),
        };
        match ran {
            Some((code, said)) => Ended {
                how: How::Exited(code),
                said,
            },
            None => Ended {
                how: How::NotStarted(format!(
                    "this machine in memory does not know `{}`",
                    words.join(" ")
                )),
                said: String::new(),
            },
        }
    }

    fn managers(&self) -> Vec<Manager> {
        self.lock().packages.managers.clone()
    }

    fn unit(&self, unit: &str) -> Result<Option<Unit>, String> {
        let sim = self.lock();
        if sim.is_deaf {
            return Err("the service manager did not answer".to_owned());
        }
        Ok(sim.units.get(unit).cloned())
    }

    fn turn(&self, unit: &str, turn: Turn, _bound: Duration) -> Result<(), String> {
        let mut sim = self.lock();
        if sim.is_deaf {
            return Err("the service manager did not answer".to_owned());
        }
        sim.turn(unit, turn)
    }

    fn read_units(&self) -> Result<(), String> {
        let mut sim = self.lock();
        sim.log.push("read units".to_owned());
        sim.read_folder();
        Ok(())
    }

    fn kernel(&self, path: &str) -> Result<Option<String>, String> {
        let sim = self.lock();
        Ok(sim.kernel.get(path).or_else(|| sim.nft.legacy.get(path)).cloned())
    }

    fn links(&self) -> Result<Links, String> {
        Ok(self.lock().nft.links.clone())
    }

    fn engine(&self) -> &dyn Engine {
        &self.engine
    }

    fn rest(&self, _time: Duration) {
        self.engine.rest();
        let mut sim = self.lock();
        let weak = sim.weak.clone();
        for name in weak {
            if let Some(unit) = sim.units.get_mut(&name) {
                (unit.active, unit.sub) = ("failed".to_owned(), "failed".to_owned());
            }
        }
    }
}
