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
use crate::pure::filter::found::{Mark, Stand, is_enabled, stand};
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

    /// Whether it is on, now or at the next start of the machine; none where the machine has no such thing.
    fn is_on(self, reach: Reach<'_>) -> Result<Option<bool>, String> {
        match self {
            Self::Ufw => match observe(reach.root, &path(UFW_CONF)?) {
                Observed::Absent => Ok(None),
                Observed::File { bytes, .. } => Ok(Some(is_enabled(&String::from_utf8_lossy(&bytes)))),
                Observed::Unknown(why) => Err(why),
                other => Err(format!("{UFW_CONF} is {}, no file", other.word())),
            },
            Self::Firewalld => {
                if reach.root.stat(&path(BOOTED)?).map_err(words)?.is_none() {
                    return Ok(None);
                }
                let unit = reach.system.unit(FIREWALLD)?;
                Ok(unit.map(|unit| unit.is_up() || unit.is_enabled() == Some(true)))
            }
        }
    }

    /// Whether its command can be run; that of firewalld is systemd.
    fn has_command(self, reach: Reach<'_>) -> bool {
        let argv = ["ufw", "--version"].map(str::to_owned);
        self == Self::Firewalld || !matches!(reach.system.run(&argv, WORK).how, How::NotStarted(_))
    }

    fn stand(self, reach: Reach<'_>) -> Result<Option<Stand>, String> {
        let (is_on, mark) = (self.is_on(reach)?, self.mark(reach)?);
        Ok(stand(is_on, mark, || self.has_command(reach)))
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

    /// What turns it on again.
    fn on(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Ufw => &[&["ufw", "--force", "enable"]],
            Self::Firewalld => &[
                &["systemctl", "enable", FIREWALLD],
                &["systemctl", "start", FIREWALLD],
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
            Some(Stand::Active) => {
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
        if *stand == Stand::Active {
            for argv in firewall.on() {
                back.run(When::First, (Sort::Filter, NAME), argv, &[]);
            }
        }
        back.state_path(firewall.mark_path()?, reach)?;
    }
    Ok(())
}

/// Turns on again those that were found active and that the host has retired; their names.
///
/// # Errors
/// In words.
pub(super) fn give_back(
    found: &BTreeMap<String, Stand>,
    reach: Reach<'_>,
) -> Result<Vec<&'static str>, String> {
    let mut again = Vec::new();
    for firewall in ALL {
        let stands = firewall.stand(reach)?;
        if found.get(firewall.name()) == Some(&Stand::Active) && stands == Some(Stand::Retired) {
            for argv in firewall.on() {
                run(argv, reach)?;
            }
            again.push(firewall.name());
        }
        firewall.set(None, reach)?;
    }
    Ok(again)
}
