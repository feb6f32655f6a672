//! The words of a script (OP-11): a step a line, what belongs to a merge indented below it.
//!
//! It stands alone so that what a person wrote is understood, or refused with its line, before anything is played.

use std::time::Duration;

use semver::Version;

use crate::pure::rollout::words::Overrides;
use crate::pure::snapshot::Verb;

use super::EXPECTED;

/// A script that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Its steps in order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its line, from 1.
    pub line: usize,
    /// As it is written.
    pub text: String,
    /// What it does.
    pub does: Does,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Does {
    /// The first commit of the repository, and its machines.
    Fleet(FleetOf),
    /// A commit on the branch.
    Merge {
        /// Its first line.
        subject: String,
        /// Its `Allow-Removals:` line.
        allows_removals: Option<String>,
        /// What it changes.
        edits: Vec<Edit>,
    },
    /// The pull request that proposes to revert a delivery is merged, by its number.
    MergeRevert(usize),
    /// The branch is set back to a commit that it has, by its number.
    ForcePush(usize),
    /// Time passes.
    Advance(Duration),
    /// The clock is set forward or back, in seconds.
    Clock(i64),
    /// Machines are switched on or off.
    Power(Which, bool),
    /// Machines get or lose their link.
    Link(Which, bool),
    /// Machines fail what contains this text.
    Break(Which, String),
    /// Probes of machines say no from now on, whatever they run.
    Sick(Which),
    /// Probes of machines say yes and no in turns.
    Flap(Which),
    /// Machines are well again.
    Mend(Which),
    /// Machines have another version of the host.
    Version(Version, Which),
    /// The forge answers or does not.
    Forge(bool),
    /// The reconciler is killed and starts again, at once or later.
    Reconciler(Service),
    /// The reconciler dies, and its database is gone.
    LoseDatabase,
    /// It is rebuilt from the record, and the reconciler starts; a person may say that nobody is waited for.
    Recover {
        /// So said.
        force: bool,
    },
    /// A person freezes the fleet, for so long or until it is lifted.
    Freeze {
        /// How long.
        time: Option<Duration>,
        /// Why.
        why: String,
    },
    /// A person lifts that.
    Lift,
    /// Somebody approves what a delivery changes, on the forge.
    Approve(usize, String),
    /// A person's word about a delivery, by its number.
    Say {
        /// What.
        verb: Verb,
        /// Which delivery: the first merged commit is 1.
        delivery: usize,
        /// Why.
        why: String,
    },
    /// A person's word about rollouts.
    Rollout(Order),
    /// Something is shown.
    Show(Show),
    /// What a machine or a delivery waits for.
    Why(String),
}

/// A person's word about rollouts (RO-6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// One is started from a delivery, by its number.
    Start(usize, Box<Overrides>),
    /// The one in hand goes on to the release.
    Release {
        /// Past a machine that did not pass.
        force: bool,
    },
    /// The one in hand is taken back.
    Abort(String),
}

/// What the reconciler's process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Dies.
    Stop,
    /// Starts.
    Start,
    /// Dies and starts.
    Restart,
}

/// Where a fleet comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetOf {
    /// So many made-up machines, `n1` and on.
    Machines(usize),
    /// The files of a folder.
    Folder(String),
}

/// Machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// By name.
    Named(Vec<String>),
    /// Each so-and-so-manieth of all, in the order of their uuids.
    Every(usize),
}

/// A change of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The whole file.
    Write(String, String),
    /// More at its end.
    Append(String, String),
    /// Another text in place of one that is there.
    Replace(String, String, String),
    /// A file, or all below a folder.
    Remove(String),
}

/// What can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// All deliveries, a line each.
    Deliveries,
    /// One, with its stages and machines.
    Delivery(usize),
    /// The machines.
    Machines,
    /// The note of a delivery.
    Note(usize),
    /// The newest rollout: its status.
    Rollout,
    /// Its timeline.
    Timeline,
    /// The rollouts that were put away, newest first.
    Rollouts,
    /// The journal of events.
    Events,
}

/// A line that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}\n  {text}")]
pub struct ScriptError {
    /// From 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What was expected.
    pub why: String,
}

const WORDS: &str = "a step is one of: fleet, merge, merge-revert, force-push, advance, clock, power, cut-power, link, cut-link, break, sick, flap, mend, \
    version, forge, reconciler, lose-database, recover, go, go-again, hold, stop, withdraw, retry, freeze, lift, approve, start, release, abort, show, why";

impl Script {
    /// Understands a script. Empty lines, lines that begin with `#`, and what comes after [`EXPECTED`] are no steps.
    ///
    /// # Errors
    /// [`ScriptError`]: the first line that means nothing.
    pub fn read(text: &str) -> Result<Self, ScriptError> {
        let mut steps: Vec<Step> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            if line == EXPECTED {
                break;
            }
            let written = line.trim_end();
            if written.trim_start().is_empty() || written.trim_start().starts_with('#') {
                continue;
            }
            let fault = |why: String| ScriptError {
                line: at + 1,
                text: written.to_owned(),
                why,
            };
            if written.starts_with([' ', '\t']) {
                let last = steps.last_mut().map(|step| &mut step.does);
                let Some(Does::Merge {
                    edits,
                    allows_removals,
                    ..
                }) = last
                else {
                    return Err(fault(
                        "an indented line belongs to the `merge` above it".to_owned(),
                    ));
                };
                match edit(written.trim_start()).map_err(fault)? {
                    Line::Edit(change) => edits.push(change),
                    Line::Allow(why) => *allows_removals = Some(why),
                }
                continue;
            }
            steps.push(Step {
                line: at + 1,
                text: written.to_owned(),
                does: step(written).map_err(fault)?,
            });
        }
        Ok(Self { steps })
    }
}

/// The first word and what follows it.
fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

fn step(line: &str) -> Result<Does, String> {
    let (word, rest) = split(line);
    let delivery = || {
        let (number, why) = split(rest);
        let delivery = numbered(number)?;
        Ok::<_, String>((delivery, why.to_owned()))
    };
    let say = |verb| delivery().map(|(delivery, why)| Does::Say { verb, delivery, why });
    match word {
        "fleet" => match rest
            .strip_prefix("of ")
            .and_then(|of| of.split_whitespace().next())
        {
            Some(count) => {
                let count = count.parse().ok().filter(|n| (1..=100_000).contains(n));
                let count = count.ok_or("`fleet of N machines`, from 1 to 100000")?;
                Ok(Does::Fleet(FleetOf::Machines(count)))
            }
            None if rest.is_empty() => Err("`fleet of N machines`, or `fleet FOLDER`".to_owned()),
            None => Ok(Does::Fleet(FleetOf::Folder(rest.to_owned()))),
        },
        "merge" if !rest.is_empty() => Ok(Does::Merge {
            subject: rest.trim_matches('"').to_owned(),
            allows_removals: None,
            edits: Vec::new(),
        }),
        "force-push" => numbered(rest).map(Does::ForcePush),
        "merge-revert" => numbered(rest).map(Does::MergeRevert),
        "merge" => Err("`merge SUBJECT`, with its changes indented below it".to_owned()),
        "advance" => duration(rest).map(Does::Advance),
        "clock" => {
            let (sign, rest) = match (rest.strip_prefix('+'), rest.strip_prefix('-')) {
                (Some(rest), _) => (1, rest),
                (_, Some(rest)) => (-1, rest),
                _ => return Err("`clock +1h` or `clock -1h`".to_owned()),
            };
            let secs = i64::try_from(duration(rest)?.as_secs()).unwrap_or(i64::MAX);
            Ok(Does::Clock(sign * secs))
        }
        "power" => which(rest).map(|which| Does::Power(which, true)),
        "cut-power" => which(rest).map(|which| Does::Power(which, false)),
        "link" => which(rest).map(|which| Does::Link(which, true)),
        "cut-link" => which(rest).map(|which| Does::Link(which, false)),
        "break" => {
            let (machines, text) = rest.split_once(" on ").ok_or("`break MACHINES on TEXT`")?;
            Ok(Does::Break(which(machines)?, text.trim().to_owned()))
        }
        "sick" => which(rest).map(Does::Sick),
        "flap" => which(rest).map(Does::Flap),
        "mend" => which(rest).map(Does::Mend),
        "version" => {
            let (version, machines) = split(rest);
            let version = version
                .parse()
                .map_err(|_| "`version 1.2.3 MACHINES`".to_owned())?;
            Ok(Does::Version(version, which(machines)?))
        }
        "forge" => match rest {
            "up" => Ok(Does::Forge(true)),
            "down" => Ok(Does::Forge(false)),
            _ => Err("`forge up` or `forge down`".to_owned()),
        },
        "reconciler" => match rest {
            "stop" => Ok(Does::Reconciler(Service::Stop)),
            "start" => Ok(Does::Reconciler(Service::Start)),
            "restart" => Ok(Does::Reconciler(Service::Restart)),
            _ => Err("`reconciler stop`, `start` or `restart`".to_owned()),
        },
        "lose-database" if rest.is_empty() => Ok(Does::LoseDatabase),
        "lose-database" => Err("`lose-database`, and nothing more".to_owned()),
        "recover" if rest.is_empty() || rest == "force" => Ok(Does::Recover {
            force: rest == "force",
        }),
        "recover" => Err("`recover`, or `recover force`".to_owned()),
        "go" => say(Verb::Go),
        "go-again" => say(Verb::GoAgain),
        "hold" => say(Verb::Hold),
        "stop" => say(Verb::Stop),
        "withdraw" => say(Verb::Withdraw),
        "retry" => say(Verb::Retry),
        "freeze" => {
            let (time, why) = match rest.strip_prefix("for ").map(split) {
                Some((time, why)) => (Some(duration(time)?), why),
                None => (None, rest),
            };
            let why = why.to_owned();
            Ok(Does::Freeze { time, why })
        }
        "approve" => {
            let (delivery, by) = delivery()?;
            if by.is_empty() {
                return Err("`approve N BY`, by whom?".to_owned());
            }
            Ok(Does::Approve(delivery, by))
        }
        "lift" if rest.is_empty() => Ok(Does::Lift),
        "lift" => Err("`lift`, and nothing more".to_owned()),
        "start" => {
            let (number, with) = split(rest);
            Ok(Does::Rollout(Order::Start(
                numbered(number)?,
                Box::new(overrides(with)?),
            )))
        }
        "release" if rest.is_empty() || rest == "force" => Ok(Does::Rollout(Order::Release {
            force: rest == "force",
        })),
        "release" => Err("`release`, or `release force`".to_owned()),
        "abort" => Ok(Does::Rollout(Order::Abort(rest.to_owned()))),
        "show" => {
            let (what, number) = split(rest);
            match what {
                "deliveries" => Ok(Does::Show(Show::Deliveries)),
                "machines" => Ok(Does::Show(Show::Machines)),
                "delivery" => numbered(number).map(|n| Does::Show(Show::Delivery(n))),
                "note" => numbered(number).map(|n| Does::Show(Show::Note(n))),
                "rollout" => Ok(Does::Show(Show::Rollout)),
                "timeline" => Ok(Does::Show(Show::Timeline)),
                "rollouts" => Ok(Does::Show(Show::Rollouts)),
                "events" => Ok(Does::Show(Show::Events)),
                _ => Err(
                    "`show deliveries`, `machines`, `delivery N`, `note N`, `rollout`, `timeline`, `rollouts` or `events`"
                        .to_owned(),
                ),
            }
        }
        "why" if !rest.is_empty() => Ok(Does::Why(rest.to_owned())),
        "why" => Err("`why MACHINE`, or `why N` for a delivery".to_owned()),
        _ => Err(WORDS.to_owned()),
    }
}

/// `canary=n2,n3 role=edge confirm=90 watch=300`, each where it is wanted.
fn overrides(text: &str) -> Result<Overrides, String> {
    const FORM: &str =
        "`start N canary=NAME,NAME role=ROLE confirm=SECS watch=SECS`, each where it is wanted";
    let mut overrides = Overrides::default();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or(FORM)?;
        let secs = || value.parse().map(Some).map_err(|_| FORM.to_owned());
        match key {
            "canary" => {
                let names: Result<_, _> = value.split(',').map(str::parse).collect();
                overrides.canary_nodes = names.map_err(|_| FORM)?;
            }
            "role" => {
                let names: Result<_, _> = value.split(',').map(str::parse).collect();
                overrides.canary_roles = names.map_err(|_| FORM)?;
            }
            "confirm" => overrides.confirm_secs = secs()?,
            "watch" => overrides.release_watch_secs = secs()?,
            _ => return Err(FORM.to_owned()),
        }
    }
    Ok(overrides)
}

fn numbered(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| "a delivery is named by its number: the first merged commit is 1".to_owned())
}

fn which(text: &str) -> Result<Which, String> {
    if let Some(every) = text.strip_prefix("every ") {
        let every: usize = every
            .trim()
            .parse()
            .map_err(|_| "`every N`, as `every 100`".to_owned())?;
        return Ok(Which::Every(every.max(1)));
    }
    let names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if names.is_empty() {
        return Err("which machines? names, or `every N`".to_owned());
    }
    Ok(Which::Named(names))
}

/// `90s`, `10m`, `1h30m`, `2d`.
fn duration(text: &str) -> Result<Duration, String> {
    let mut secs: u64 = 0;
    let mut digits = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => 0,
        };
        let number: u64 = digits.parse().unwrap_or(0);
        if unit == 0 || digits.is_empty() {
            secs = 0;
            break;
        }
        digits.clear();
        secs = secs.saturating_add(number.saturating_mul(unit));
    }
    if secs == 0 || !digits.is_empty() || secs > 400 * 86_400 {
        return Err("a time is written as 90s, 10m, 1h30m or 2d, at most 400 days".to_owned());
    }
    Ok(Duration::from_secs(secs))
}

enum Line {
    Edit(Edit),
    Allow(String),
}

fn edit(line: &str) -> Result<Line, String> {
    const FORMS: &str = "`write PATH TEXT`, `append PATH TEXT`, `replace PATH OLD => NEW`, `remove PATH`, or `allow-removals REASON`";
    let (word, rest) = split(line);
    if word == "allow-removals" && !rest.is_empty() {
        return Ok(Line::Allow(rest.to_owned()));
    }
    let (path, text) = split(rest);
    if path.is_empty() {
        return Err(FORMS.to_owned());
    }
    let (path, text) = (path.to_owned(), text.replace("\\n", "\n"));
    let edit = match word {
        "write" => Edit::Write(path, format!("{text}\n")),
        "append" => Edit::Append(path, format!("{text}\n")),
        "replace" => {
            let (old, new) = text.split_once(" => ").ok_or(FORMS)?;
            Edit::Replace(path, old.to_owned(), new.to_owned())
        }
        "remove" if text.is_empty() => Edit::Remove(path),
        _ => return Err(FORMS.to_owned()),
    };
    Ok(Line::Edit(edit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_understood_and_what_is_below_the_line_is_none() {
        let text = "# a story\nfleet of 3 machines\n\nmerge \"web: two\"\n  write a/b one\\ntwo\n  replace c x => y z\n  remove d/\n\
                    \x20 allow-removals it is gone\nadvance 1h30m\nclock -1h\nbreak n1 n2 on bad text\nbreak every 100 on bad\n\
                    go-again 2 because\nshow note 1\nreconciler restart\n---- what happens\nnonsense\n";
        let script = Script::read(text).unwrap();
        let does: Vec<&Does> = script.steps.iter().map(|step| &step.does).collect();
        assert_eq!(does.len(), 9);
        assert_eq!((script.steps[0].line, script.steps[2].line), (2, 9));
        assert_eq!(
            *does[1],
            Does::Merge {
                subject: "web: two".into(),
                allows_removals: Some("it is gone".into()),
                edits: vec![
                    Edit::Write("a/b".into(), "one\ntwo\n".into()),
                    Edit::Replace("c".into(), "x".into(), "y z".into()),
                    Edit::Remove("d/".into()),
                ],
            }
        );
        assert_eq!(*does[2], Does::Advance(Duration::from_secs(5400)));
        assert_eq!(*does[3], Does::Clock(-3600));
        let named = Which::Named(vec!["n1".into(), "n2".into()]);
        assert_eq!(*does[4], Does::Break(named, "bad text".into()));
        assert_eq!(*does[5], Does::Break(Which::Every(100), "bad".into()));
    }

    #[test]
    fn what_means_nothing_is_refused_with_its_line_and_what_was_expected() {
        for (text, why) in [
            ("fleet of 3\nmarge x\n", "line 2: a step is one of"),
            ("  write a b\n", "line 1: an indented line belongs to"),
            ("merge a\n  wrote x y\n", "line 2: `write PATH TEXT`"),
            ("advance 10\n", "line 1: a time is written as"),
            ("advance 10x\n", "line 1: a time is written as"),
            ("go x\n", "line 1: a delivery is named by its number"),
            ("show\n", "line 1: `show deliveries`"),
            ("fleet of 0 machines\n", "line 1: `fleet of N machines`"),
            ("cut-power\n", "line 1: which machines?"),
            ("version n1\n", "line 1: `version 1.2.3 MACHINES`"),
        ] {
            let said = Script::read(text).unwrap_err().to_string();
            assert!(said.starts_with(why), "{text:?} gave {said}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}") {
            let _read = Script::read(&text);
        }
    }
}
