//! A run of a package manager, with what may help it tried once each: a lock is waited for, a manager that was ended in its
//! midst is brought to rest, a stale index is renewed.

use std::time::Duration;

use super::{ANSWER, FETCH, Reach};
use crate::edge::command::{Ended, How, cut};
use crate::pure::packages::{Argv, Fault, Index, LOCK_SECS, Tool};

/// Between two looks whether a lock is free.
const PAUSE: Duration = Duration::from_secs(5);

/// What has been tried.
#[derive(Debug, Default)]
struct Tried {
    freed: bool,
    settled: bool,
    renewed: bool,
    /// Why the index could not be renewed.
    unrenewed: Option<(Fault, String)>,
}

/// Runs it until it has done `what`; `is_rolling`: the index is not renewed.
///
/// # Errors
/// In words: what is wrong, and what to do.
pub(super) fn attempt(
    (tool, is_rolling): (&dyn Tool, bool),
    argv: &Argv,
    (what, bound): (&str, Duration),
    reach: Reach<'_>,
) -> Result<(), String> {
    let is_done = |code: i32, _: &str| code == 0 || tool.accepts().contains(&code);
    let mut tried = Tried::default();
    loop {
        // A lock that is left of before the start is freed before it is waited for.
        let waits = tried.freed || tool.free().is_none();
        let (fault, ended) = match patiently((tool, &is_done), argv, (bound, waits), reach) {
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        match (fault, tool.settle(), tool.free(), tool.renew()) {
            (Fault::Locked, _, Some(free), _) if !tried.freed => {
                tried.freed = true;
                let _free = reach.system.run(&free, ANSWER);
            }
            (Fault::Interrupted, Some(settle), ..) if !tried.settled => {
                tried.settled = true;
                // How it ended is seen by the next try.
                let _settled = reach.system.run(&settle, bound);
            }
            (fault, _, _, Some(renew)) if fault.may_be_the_index() && !is_rolling && !tried.renewed => {
                tried.renewed = true;
                let renewed = patiently((tool, &is_done), &renew, (FETCH, true), reach);
                tried.unrenewed = renewed.err().map(|(fault, ended)| (fault, ended.said));
            }
            (fault, ..) => return Err(explained(tool, (fault, ended), tried, what, (argv, reach))),
        }
    }
}

/// All that it says in a trial of `what`; a lock is waited for.
///
/// # Errors
/// In words: it did not end as a trial does, and so does not say what would come.
pub(super) fn trial(tool: &dyn Tool, argv: &Argv, what: &str, reach: Reach<'_>) -> Result<String, String> {
    let is_trial = |code: i32, said: &str| tool.is_trial(code, said);
    match patiently((tool, &is_trial), argv, (ANSWER, true), reach) {
        Ok(said) => Ok(said),
        Err(failure) => Err(explained(tool, failure, Tried::default(), what, (argv, reach))),
    }
}

/// In words; an index that could not be renewed is the first cause.
fn explained(
    tool: &dyn Tool,
    (fault, ended): (Fault, Ended),
    tried: Tried,
    what: &str,
    (argv, reach): (&Argv, Reach<'_>),
) -> String {
    let index = index(tool, reach);
    match (tried.unrenewed, ended.how) {
        (Some((cause, said)), _) if cause != Fault::Other => index.explain(cause, what, &said),
        (_, How::Exited(_)) => index.explain(fault, what, &ended.said),
        (_, _) if fault == Fault::Locked => index.explain(fault, what, &ended.said),
        (_, how) => {
            let ended = Ended { how, ..ended };
            let why = ended.fault(argv, &[]).unwrap_or_default();
            format!(
                "{what}: {why}; the next try brings {} to rest first",
                tool.manager()
            )
        }
    }
}

/// Whether a run that ended with this code and these words has done what it was for.
type Done<'a> = &'a dyn Fn(i32, &str) -> bool;

/// Runs it, again while another program holds the lock where that is waited for: all that it said; or what is wrong, by all
/// that it said, and how it ended, with the last of that.
fn patiently(
    (tool, is_done): (&dyn Tool, Done<'_>),
    argv: &Argv,
    (bound, waits): (Duration, bool),
    reach: Reach<'_>,
) -> Result<String, (Fault, Ended)> {
    let tries = LOCK_SECS / PAUSE.as_secs();
    let mut tried = 0;
    loop {
        let ended = reach.system.list(argv, bound);
        let code = match ended.how {
            How::Exited(code) if is_done(code, &ended.said) => return Ok(ended.said),
            How::Exited(code) => code,
            How::Signalled(_) | How::TimedOut | How::TooLarge | How::NotStarted(_) => -1,
        };
        let fault = tool.fault(code, &ended.said);
        let is_busy = fault == Fault::Locked && matches!(ended.how, How::Exited(_));
        if !(waits && is_busy) || tried >= tries {
            let said = cut(&ended.said);
            return Err((fault, Ended { said, ..ended }));
        }
        tried += 1;
        reach.system.rest(PAUSE);
    }
}

/// The date of the index, for words.
fn index(tool: &dyn Tool, reach: Reach<'_>) -> Index {
    let seconds = |argv: &[&str]| {
        let argv: Argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let said = reach.system.run(&argv, ANSWER).said;
        said.lines()
            .filter_map(|line| line.trim().parse::<i64>().ok())
            .max()
    };
    Index {
        manager: tool.manager(),
        changed_at: seconds(&[&["stat", "-c", "%Y"], tool.index()].concat()),
        now: seconds(&["date", "+%s"]),
        remedy: tool.remedy(),
    }
}
