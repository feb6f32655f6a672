//! The firewalls that a machine may have had before the host's filter (HK-11): ufw and firewalld.
//!
//! Each is asked for by its own settings and retired by its own words. What the host has done about one is a word in the
//! state folder: so a retirement that was begun is finished, and one whose command is gone is said once and asked nothing
//! of.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Back, KEPT, NAME, Reach, words};
use crate::edge::command::How;
use crate::edge::disk::{Owner, atomic};
use crate::edge::ledger::put_own;
use crate::edge::observe::observe;
use crate::edge::system::{JOB, Turn};
use crate::pure::filter::found::{Mark, On, Stand, is_enabled, stand};
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::target::Sort;
use crate::pure::target_path::TargetPath;

/// Where ufw keeps whether it is on.
const UFW_CONF: &str = "/etc/ufw/ufw.conf";
/// The unit of firewalld.
const FIREWALLD: &str = "firewalld.service";
/// systemd's own sign that it has booted the machine (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// How long a firewall may take to come or go.
const WORK: Duration = Duration::from_secs(120);

const ALL: [Firewall; 2] = [Firewall::Ufw, Firewall::Firewalld];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Firewall {
    Ufw,
    Firewalld,
}

fn path(text: &str) -> Result<TargetPath, String> {
    TargetPath::parse(text).map_err(|e| e.to_string())
}

fn run(argv: &[&str], reach: Reach<'_>) -> Result<(), String> {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    reach
        .system
        .run(&argv, WORK)
        .fault(&argv, &[])
        .map_or(Ok(()), Err)
}

impl Firewall {
    fn name(self) -> &'static str {
        match self {
            Self::Ufw => "ufw",
            Self::Firewalld => "firewalld",
        }
    }

    fn mark_path(self) -> Result<TargetPath, String> {
        path(&format!("{KEPT}/{}", self.name()))
    }

    fn mark(self, reach: Reach<'_>) -> Result<Option<Mark>, String> {
        match observe(reach.state, &self.mark_path()?) {
            Observed::Absent => Ok(None),
            Observed::File { bytes, .. } => Ok(Mark::read(&bytes)),
            Observed::Unknown(why) => Err(why),
            other => Err(format!("the mark of {} is {}", self.name(), other.word())),
        }
    }

    fn set(self, mark: Option<Mark>, reach: Reach<'_>) -> Result<(), String> {
        let at = self.mark_path()?;
        match mark {
            None => atomic::remove_file(reach.state, &at).map_err(words),
            Some(mark) => atomic::put_folder(reach.state, &path(KEPT)?, 0o700, Owner::default())
                .and_then(|()| put_own(reach.state, &at, mark.word().as_bytes()))
                .map_err(words),
        }
    }

    /// Whether it is on, now and after the next start of the machine; none where the machine has no such thing.
    fn on(self, reach: Reach<'_>) -> Result<Option<On>, String> {
        match self {
            Self::Ufw => match observe(reach.root, &path(UFW_CONF)?) {
                Observed::Absent => Ok(None),
                Observed::File { bytes, .. } => {
                    Ok(Some(On::both(is_enabled(&String::from_utf8_lossy(&bytes)))))
                }
                Observed::Unknown(why) => Err(why),
                other => Err(format!("{UFW_CONF} is {}, no file", other.word())),
            },
            Self::Firewalld => {
                if reach.root.stat(&path(BOOTED)?).map_err(words)?.is_none() {
                    return Ok(None);
                }
                let unit = reach.system.unit(FIREWALLD)?;
                Ok(unit.map(|unit| On {
                    now: unit.is_up(),
                    later: unit.is_enabled() == Some(true),
                }))
            }
        }
    }

    /// Whether its command can be run; that of firewalld is systemd.
    fn has_command(self, reach: Reach<'_>) -> bool {
        let argv = ["ufw", "--version"].map(str::to_owned);
        self == Self::Firewalld || !matches!(reach.system.run(&argv, WORK).how, How::NotStarted(_))
    }

    fn stand(self, reach: Reach<'_>) -> Result<Option<Stand>, String> {
        let (on, mark) = (self.on(reach)?, self.mark(reach)?);
        Ok(stand(on, mark, || self.has_command(reach)))
    }

    /// Turns it off, also for later starts of the machine.
    fn turn_off(self, reach: Reach<'_>) -> Result<(), String> {
        match self {
            // It takes its rules away whatever its settings say.
            Self::Ufw => run(&["ufw", "disable"], reach),
            Self::Firewalld => {
                reach.system.turn(FIREWALLD, Turn::Stop, JOB)?;
                reach.system.turn(FIREWALLD, Turn::Disable, JOB)
            }
        }
    }

    /// What turns it on again as it stood, and no more than that.
    fn turns_on(self, stood: Stand) -> &'static [&'static [&'static str]] {
        const ENABLE: &[&str] = &["systemctl", "enable", FIREWALLD];
        const START: &[&str] = &["systemctl", "start", FIREWALLD];
        match (self, stood) {
            (_, Stand::Inactive | Stand::Retired | Stand::Gone | Stand::Removed) => &[],
            (Self::Ufw, _) => &[&["ufw", "--force", "enable"]],
            (Self::Firewalld, Stand::Active) => &[ENABLE, START],
            (Self::Firewalld, Stand::Running) => &[START],
            (Self::Firewalld, Stand::Enabled) => &[ENABLE],
        }
    }

    /// The words of [`Firewall::turn_off`] for a way back.
    fn turns_off(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Ufw => &[&["ufw", "disable"]],
            Self::Firewalld => &[
                &["systemctl", "stop", FIREWALLD],
                &["systemctl", "disable", FIREWALLD],
            ],
        }
    }
}

/// How those that the machine has, or had, stand, by name.
///
/// # Errors
/// In words: one could not be asked.
pub fn stands(reach: Reach<'_>) -> Result<BTreeMap<String, Stand>, String> {
    let mut all = BTreeMap::new();
    for firewall in ALL {
        if let Some(stand) = firewall.stand(reach)? {
            all.insert(firewall.name().to_owned(), stand);
        }
    }
    Ok(all)
}

/// Retires those that are active. What is begun is marked before, and finished by whoever comes later.
///
/// # Errors
/// In words: one does not go.
pub(super) fn retire(reach: Reach<'_>) -> Result<(), String> {
    for firewall in ALL {
        match firewall.stand(reach)? {
            Some(stand) if stand.is_active() => {
                firewall.set(Some(Mark::Retiring), reach)?;
                let done = firewall.turn_off(reach);
                done.map_err(|why| format!("{} is not retired: {why}", firewall.name()))?;
                firewall.set(Some(Mark::Retired), reach)?;
            }
            Some(Stand::Gone) => firewall.set(Some(Mark::Removed), reach)?,
            _ => {}
        }
    }
    Ok(())
}

/// The way back to how they stand: those that are active come back, and what is marked of each is as it was.
///
/// # Errors
/// In words: what is marked could not be kept.
pub(super) fn way_back(
    stands: &BTreeMap<String, Stand>,
    back: &mut Back,
    reach: Reach<'_>,
) -> Result<(), String> {
    for firewall in ALL {
        let Some(stand) = stands.get(firewall.name()) else {
            continue;
        };
        for argv in firewall.turns_on(*stand) {
            back.run(When::First, (Sort::Filter, NAME), argv, &[]);
        }
        back.state_path(firewall.mark_path()?, reach)?;
    }
    Ok(())
}

/// The way back of a change that turns the retired on again: they are off again, last of all.
pub(super) fn off_again(stands: &BTreeMap<String, Stand>, back: &mut Back, reach: Reach<'_>) {
    for firewall in ALL {
        let is_retired = stands.get(firewall.name()) == Some(&Stand::Retired);
        // One whose command is gone does not come back either.
        if is_retired && firewall.has_command(reach) {
            for argv in firewall.turns_off() {
                back.run(When::Last, (Sort::Filter, NAME), argv, &[]);
            }
        }
    }
}

/// What became of those that were found active.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// On again, as they were found.
    pub(super) again: Vec<&'static str>,
    /// Their command is gone.
    pub(super) gone: Vec<&'static str>,
}

/// Turns on again those that were found active and that the host has retired, or begun to.
///
/// # Errors
/// In words.
pub(super) fn give_back(found: &BTreeMap<String, Stand>, reach: Reach<'_>) -> Result<Given, String> {
    let mut given = Given::default();
    for firewall in ALL {
        let found = found.get(firewall.name()).filter(|stand| stand.is_active());
        if let (Some(found), Some(now)) = (found, firewall.stand(reach)?) {
            let is_the_hosts = matches!(firewall.mark(reach)?, Some(Mark::Retiring | Mark::Retired));
            match now {
                Stand::Gone | Stand::Removed => given.gone.push(firewall.name()),
                Stand::Retired if !firewall.has_command(reach) => given.gone.push(firewall.name()),
                // Also one that is on by its own word: its retirement may have been cut in the midst.
                _ if is_the_hosts => {
                    for argv in firewall.turns_on(*found) {
                        run(argv, reach)?;
                    }
                    given.again.push(firewall.name());
                }
                _ => {}
            }
        }
        firewall.set(None, reach)?;
    }
    Ok(given)
}
