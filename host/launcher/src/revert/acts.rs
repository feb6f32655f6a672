//! The journal's frozen vocabulary, read and done: each act puts one thing into the state that it names (HR-14).
//!
//! Every act looks first and does nothing where the state is there, so it may be repeated after any cut.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::json::{self, Value};
use super::tree::{Meta, Tree};
use super::{LOOK_EVERY, VERSION};
use crate::container::SILENT;

/// Where root's programs are.
const PROGRAMS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One act, and on what.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Whether it is in the state folder and not in the machine's tree.
    own: bool,
    /// A path; of a program that runs, what it is about.
    target: String,
    act: Act,
}

#[derive(Debug, PartialEq, Eq)]
enum Act {
    Remove,
    PutFile {
        blob: String,
        meta: Meta,
    },
    PutLink {
        to: String,
        uid: u32,
        gid: u32,
    },
    PutDirectory(Meta),
    RemoveTree {
        made: String,
        mark: String,
    },
    PutTree {
        from: String,
        made: String,
    },
    Run {
        argv: Vec<String>,
        accepts: Vec<i64>,
        timeout_secs: u32,
    },
}

/// The acts of a journal; one that this build does not know, in words.
pub(super) fn read(path: &Path) -> Result<Vec<Result<Entry, String>>, String> {
    let journal = json::read_file(path)?;
    if journal.field("version").and_then(Value::number) != Some(VERSION) {
        return Err(format!(
            "{} is of a version that this launcher does not know",
            path.display()
        ));
    }
    let acts = journal.field("acts").and_then(Value::list);
    let acts = acts.ok_or_else(|| format!("{} has no acts", path.display()))?;
    Ok(acts
        .iter()
        .map(|act| entry(act).ok_or_else(|| format!("an act that this launcher does not know: {act:?}")))
        .collect())
}

fn entry(value: &Value) -> Option<Entry> {
    let own = match value.field("place")?.text()? {
        "root" => false,
        "state" => true,
        _ => return None,
    };
    let act = value.field("act")?;
    let act = match act {
        Value::Text(word) if word == "remove" => Act::Remove,
        Value::Object(fields) => match fields.as_slice() {
            [(word, fields)] => act_of(word, fields)?,
            _ => return None,
        },
        _ => return None,
    };
    let target = value.field("path")?.text()?.to_owned();
    Some(Entry { own, target, act })
}

fn act_of(word: &str, fields: &Value) -> Option<Act> {
    let number = |name| u32::try_from(fields.field(name)?.number()?).ok();
    let text = |name| fields.field(name)?.text().map(str::to_owned);
    let meta = || {
        Some(Meta {
            mode: number("mode")?,
            uid: number("uid")?,
            gid: number("gid")?,
        })
    };
    Some(match word {
        "put_file" => Act::PutFile {
            blob: text("blob")?,
            meta: meta()?,
        },
        "put_link" => Act::PutLink {
            to: text("target")?,
            uid: number("uid")?,
            gid: number("gid")?,
        },
        "put_directory" => Act::PutDirectory(meta()?),
        "remove_tree" => Act::RemoveTree {
            made: text("made")?,
            mark: text("mark")?,
        },
        "put_tree" => Act::PutTree {
            from: text("from")?,
            made: text("made")?,
        },
        "run" => Act::Run {
            argv: fields
                .field("argv")?
                .list()?
                .iter()
                .map(|word| word.text().map(str::to_owned))
                .collect::<Option<_>>()?,
            accepts: match fields.field("accepts") {
                None => Vec::new(),
                Some(codes) => codes.list()?.iter().map(Value::number).collect::<Option<_>>()?,
            },
            timeout_secs: number("timeout_secs")?,
        },
        _ => return None,
    })
}

/// Container engines that were found not to answer: each act on one would wait for it, and hold up those behind it.
#[derive(Debug, Default)]
pub(super) struct Silent(Vec<Vec<String>>);

impl Silent {
    /// The words of a program that name an engine, where it acts on one: `meshplan-launcher container SOCKET`.
    fn engine_of(argv: &[String]) -> Option<&[String]> {
        let engine = argv.get(..3)?;
        (engine.get(1)? == "container").then_some(engine)
    }

    fn has(&self, argv: &[String]) -> bool {
        Self::engine_of(argv).is_some_and(|engine| self.0.iter().any(|silent| silent == engine))
    }

    fn note(&mut self, argv: &[String], code: Option<i32>) {
        if let Some(engine) = Self::engine_of(argv)
            && code == Some(i32::from(SILENT))
        {
            self.0.push(engine.to_vec());
        }
    }
}

/// Does an act.
pub(super) fn act(
    entry: &Entry,
    (root, state): (&Tree, &Tree),
    root_path: &Path,
    silent: &mut Silent,
) -> Result<(), String> {
    let (tree, path) = (if entry.own { state } else { root }, entry.target.as_str());
    match &entry.act {
        Act::Remove => tree.remove(path),
        Act::PutFile { blob, meta } => {
            let name = blob.strip_prefix("sha256:").unwrap_or(blob);
            let bytes = state.read(&format!("/window/blobs/{name}"))?;
            tree.put_file(path, &bytes, *meta)
        }
        Act::PutLink { to, uid, gid } => tree.put_link(path, to, *uid, *gid),
        Act::PutDirectory(meta) => tree.put_directory(path, *meta),
        // Where no mark says that the host put a tree there, what stands there is somebody's.
        Act::RemoveTree { made, mark } => match state.stands(mark)? {
            true => tree.remove_tree(path, made),
            false => tree.clear_tree(path, made),
        },
        Act::PutTree { from, made } => tree.put_tree(path, from, made),
        Act::Run {
            argv,
            accepts,
            timeout_secs,
        } => {
            if root_path != Path::new("/") {
                return Err(format!("{path}: below --root no program of the machine is run"));
            }
            if silent.has(argv) {
                return Err(format!("{path}: the container engine does not answer"));
            }
            let ended = run(argv, *timeout_secs).and_then(|status| {
                silent.note(argv, status.code());
                ended_well(status, accepts)
            });
            ended.map_err(|why| format!("{path}: `{}` {why}", argv.join(" ")))
        }
    }
}

/// Runs a program to its end, or to its bound.
fn run(argv: &[String], timeout_secs: u32) -> Result<ExitStatus, String> {
    let (program, arguments) = argv.split_first().ok_or("names no program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", PROGRAMS)
        .env("LC_ALL", "C.UTF-8")
        .current_dir("/")
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("cannot be started: {e}"))?;
    let until = Instant::now() + Duration::from_secs(timeout_secs.into());
    loop {
        let ended = child
            .try_wait()
            .map_err(|e| format!("cannot be waited for: {e}"))?;
        if let Some(status) = ended {
            return Ok(status);
        }
        if Instant::now() >= until {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // With all that it started; it is reaped below.
                let _ended = kill_process_group(group, Signal::KILL);
            }
            child.wait().map_err(|e| format!("cannot be waited for: {e}"))?;
            return Err(format!("did not end within {timeout_secs} s"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn ended_well(status: ExitStatus, accepts: &[i64]) -> Result<(), String> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) if accepts.contains(&i64::from(code)) => Ok(()),
        _ => Err(format!("ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(act: &str) -> Option<Entry> {
        let text = format!("{{\"name\":\"web.x\",\"place\":\"root\",\"path\":\"/p\",\"act\":{act}}}");
        entry(&json::parse(&text).unwrap())
    }

    // holds: HR-13
    #[test]
    fn the_frozen_vocabulary_is_read_and_what_is_not_in_it_is_refused() {
        let meta = Meta {
            mode: 420,
            uid: 1,
            gid: 2,
        };
        let known = [
            ("\"remove\"", Act::Remove),
            (
                "{\"put_file\":{\"blob\":\"sha256:ab\",\"mode\":420,\"uid\":1,\"gid\":2}}",
                Act::PutFile {
                    blob: "sha256:ab".to_owned(),
                    meta,
                },
            ),
            (
                "{\"put_link\":{\"target\":\"../x\",\"uid\":1,\"gid\":2}}",
                Act::PutLink {
                    to: "../x".to_owned(),
                    uid: 1,
                    gid: 2,
                },
            ),
            (
                "{\"put_directory\":{\"mode\":420,\"uid\":1,\"gid\":2}}",
                Act::PutDirectory(meta),
            ),
            (
                "{\"remove_tree\":{\"made\":\"n\",\"mark\":\"/m\"}}",
                Act::RemoveTree {
                    made: "n".to_owned(),
                    mark: "/m".to_owned(),
                },
            ),
            (
                "{\"put_tree\":{\"from\":\"o\",\"made\":\"n\"}}",
                Act::PutTree {
                    from: "o".to_owned(),
                    made: "n".to_owned(),
                },
            ),
            (
                "{\"run\":{\"argv\":[\"true\"],\"accepts\":[3],\"timeout_secs\":9}}",
                Act::Run {
                    argv: vec!["true".to_owned()],
                    accepts: vec![3],
                    timeout_secs: 9,
                },
            ),
            (
                "{\"run\":{\"argv\":[\"true\"],\"timeout_secs\":9}}",
                Act::Run {
                    argv: vec!["true".to_owned()],
                    accepts: vec![],
                    timeout_secs: 9,
                },
            ),
        ];
        for (text, act) in known {
            assert_eq!(read_one(text).map(|entry| entry.act), Some(act), "{text}");
        }
        for unknown in [
            "\"fly\"",
            "7",
            "{\"put_file\":{\"blob\":\"sha256:ab\",\"mode\":420,\"uid\":1}}",
            "{\"put_directory\":{\"mode\":-1,\"uid\":1,\"gid\":2}}",
            "{\"run\":{\"argv\":[1],\"timeout_secs\":9}}",
            "{\"remove\":{},\"put_link\":{}}",
        ] {
            assert_eq!(read_one(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_program_of_the_way_back_ends_well_or_says_how_it_ended_and_is_bounded() {
        let argv = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let ends = |words: &[&str], accepts: &[i64]| {
            run(&argv(words), 9).and_then(|status| ended_well(status, accepts))
        };
        assert_eq!(ends(&["true"], &[]), Ok(()));
        assert_eq!(ends(&["sh", "-c", "exit 4"], &[4]), Ok(()));
        assert!(ends(&["sh", "-c", "exit 4"], &[5]).unwrap_err().contains("4"));
        assert!(ends(&["/none/at/all"], &[]).unwrap_err().contains("started"));
        let slow = run(&argv(&["sh", "-c", "sleep 600 & sleep 600"]), 0);
        assert_eq!(slow.unwrap_err(), "did not end within 0 s");
        assert!(ends(&[], &[]).is_err());
    }

    // holds: HR-13, HR-14
    #[test]
    fn an_engine_that_does_not_answer_is_asked_once_in_a_walk() {
        let argv = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut silent = Silent::default();
        silent.note(&argv("l container /s remove web"), Some(1));
        silent.note(&argv("systemctl stop x y"), Some(i32::from(SILENT)));
        assert!(!silent.has(&argv("l container /s remove web")));
        silent.note(&argv("l container /s remove web"), Some(i32::from(SILENT)));
        for (words, is_silent) in [
            ("l container /s start db", true),
            ("l container /other start db", false),
            ("systemctl start db", false),
            ("true", false),
        ] {
            assert_eq!(silent.has(&argv(words)), is_silent, "{words}");
        }
    }
}
