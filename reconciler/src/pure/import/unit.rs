//! A service of systemd as a process: a daemon, or a scheduled one where a timer stands beside it (HK-6).

use meshplan_schemas::finding::{Finding, Source};

use super::Request;
use super::draft::{Draft, Place, Resource};
use super::shorthand::{self, FOR_EVER_SECS, SYSTEMD};
use super::systemd::{self, Line};

/// systemd's own limit for a start and a stop, in seconds.
const SYSTEMD_SECS: i64 = 90;

/// What is known once all lines are read.
#[derive(Default)]
struct Seen {
    oneshot: Option<Place>,
    restart: Option<Place>,
    privileges: bool,
    system: bool,
    tmp: bool,
}

pub(super) fn read(request: &Request<'_>) -> Result<Draft, Finding> {
    let (stem, end) = request.file.rsplit_once('.').unwrap_or((request.file, ""));
    let mut draft = Draft::default();
    let (service, timer) = if end == "timer" {
        let timer = systemd::read(request.source)?;
        let named = timer
            .iter()
            .rfind(|line| line.section == "Timer" && line.key == "Unit");
        let name = named.map_or_else(|| format!("{stem}.service"), |line| line.value.clone());
        let Some(service) = request.beside.get(&name) else {
            let message = format!("the service `{name}` that this timer starts is not beside it");
            let finding = Finding::of_file(request.source.file(), message);
            return Err(finding.help("import a timer from the folder that its service lies in"));
        };
        (service, Some((request.source, timer)))
    } else {
        let timer = match request.beside.get(&format!("{stem}.timer")) {
            Some(timer) => Some((timer, systemd::read(timer)?)),
            None => None,
        };
        (request.source, timer)
    };
    let stem = file_stem(service);
    if stem.contains('@') {
        let message = "a template of units makes many: write one out, with its name in place of `%i`";
        return Err(Finding::of_file(service.file(), message));
    }
    let place = Place {
        source: service.clone(),
        span: 0..0,
    };
    let id = draft.id_for(&stem, "process");
    let mut process = Resource::new("process", id.clone(), &place);
    if id != stem {
        process.set("name", stem, &place);
    }
    let mut seen = Seen::default();
    for line in systemd::read(service)? {
        let carried = if line.section == "Service" {
            carry(&line, &mut process, &mut seen, &mut draft)
        } else {
            systemd::around(&mut draft, &line)
        };
        if let Err(why) = carried {
            draft.leave(&line.place, &line.what(), &why);
        }
    }
    let scheduled = timer.is_some();
    if let Some((_, lines)) = timer {
        schedule(&mut draft, &mut process, &lines);
    }
    finish(&mut draft, process, seen, scheduled, &place);
    Ok(draft)
}

fn file_stem(source: &Source) -> String {
    let file = source.file().rsplit('/').next().unwrap_or_default();
    file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned()
}

fn carry(line: &Line, process: &mut Resource, seen: &mut Seen, draft: &mut Draft) -> Result<(), String> {
    let place = &line.place;
    match line.key.as_str() {
        "Type" => match line.text()?.as_str() {
            "simple" | "exec" => {}
            "oneshot" => seen.oneshot = Some(place.clone()),
            other => {
                return Err(format!(
                    "meshplan runs a program that stays in front, not `{other}`"
                ));
            }
        },
        "ExecStart" => {
            if process.has("command") {
                return Err("a process has one command, and has one already".to_owned());
            }
            process.list("command", command(line)?, place);
        }
        "User" => process.set("user", line.text()?, place),
        "Group" => process.set("group", line.text()?, place),
        "WorkingDirectory" => {
            let path = line.text()?;
            if path.starts_with(['~', '-']) {
                return Err("say the whole path of a folder that is there".to_owned());
            }
            process.set("working_directory", path, place);
        }
        "Environment" => systemd::environment(line, process, draft)?,
        "EnvironmentFile" => systemd::environment_file(line, process)?,
        "Restart" => {
            systemd::restart(line, process)?;
            seen.restart = Some(place.clone());
        }
        "TimeoutStartSec" => process.set("timeout_secs", time(line)?, place),
        "TimeoutStopSec" => process.set("stop_secs", time(line)?, place),
        "TimeoutSec" => {
            process.set("timeout_secs", time(line)?, place);
            process.set("stop_secs", time(line)?, place);
        }
        // That there is no limit is what is meant where none is said.
        "MemoryMax" | "TasksMax" if line.value == "infinity" => {}
        "MemoryMax" => {
            let mib = shorthand::mebibytes(&line.text()?)?;
            process.pair("limits", "memory_mib", mib, place);
        }
        "CPUQuota" => {
            // A percent sign here is no specifier.
            let percent = line.value.trim_end_matches('%').trim().parse::<i64>();
            let percent = percent.map_err(|_| "it is no whole number of hundredths".to_owned())?;
            process.pair("limits", "cpu_percent", percent, place);
        }
        "TasksMax" => process.pair("limits", "tasks", number(line)?, place),
        "LimitNOFILE" => process.pair("limits", "open_files", number(line)?, place),
        "NoNewPrivileges" => seen.privileges = line.truth()?,
        "PrivateTmp" => seen.tmp = line.truth()?,
        "ProtectSystem" => {
            seen.system = matches!(line.value.as_str(), "full" | "strict") || line.truth()?;
        }
        "StandardOutput" | "StandardError" if matches!(line.value.as_str(), "journal" | "inherit") => {}
        "ExecStartPre" => {
            return Err(
                "a `[[process]]` with `run = \"once\"` before it, or its `prepares`, does that".to_owned(),
            );
        }
        _ => return Err("a process of meshplan has nothing for it".to_owned()),
    }
    Ok(())
}

fn command(line: &Line) -> Result<Vec<String>, String> {
    if let Some(sign) = line.value.chars().next().filter(|c| "-@:+!|".contains(*c)) {
        return Err(format!("a command of meshplan has no `{sign}` before it"));
    }
    let words = line.words()?;
    if words.iter().any(|word| word.contains('$')) {
        return Err("systemd fills in what begins with `$`, meshplan does not: write it out".to_owned());
    }
    match words.first() {
        Some(program) if program.starts_with('/') => Ok(words),
        _ => Err("the program is an absolute path".to_owned()),
    }
}

fn time(line: &Line) -> Result<i64, String> {
    match line.value.as_str() {
        "infinity" => Ok(FOR_EVER_SECS),
        text => shorthand::seconds(text, SYSTEMD),
    }
}

fn number(line: &Line) -> Result<i64, String> {
    let text = line.text()?;
    text.parse::<i64>()
        .map_err(|_| format!("`{text}` is no whole number"))
}

fn schedule(draft: &mut Draft, process: &mut Resource, lines: &[Line]) {
    process.forget("calendar");
    for line in lines {
        let carried = match (line.section.as_str(), line.key.as_str()) {
            ("Timer", "Unit") | ("Unit", "Description") => Ok(()),
            ("Timer", "OnCalendar" | "OnUnitActiveSec")
                if process.has("calendar") || process.has("every_secs") =>
            {
                Err("a process has one schedule: the first is kept".to_owned())
            }
            ("Timer", "OnCalendar") => line
                .text()
                .map(|calendar| process.set("calendar", calendar, &line.place)),
            ("Timer", "OnUnitActiveSec") => {
                time(line).map(|secs| process.set("every_secs", secs, &line.place))
            }
            ("Timer", _) => Err("a schedule of meshplan has nothing for it".to_owned()),
            _ => systemd::around(draft, line),
        };
        if let Err(why) = carried {
            draft.leave(&line.place, &line.what(), &why);
        }
    }
}

/// What systemd means where nobody says: written out, for meshplan means other things.
fn finish(draft: &mut Draft, mut process: Resource, seen: Seen, scheduled: bool, place: &Place) {
    if scheduled {
        process.set("run", "scheduled", place);
        if process.has("restart")
            && let Some(place) = &seen.restart
        {
            process.forget("restart");
            draft.leave(
                place,
                "`Restart` of `[Service]`",
                "a scheduled process runs again when its time comes",
            );
        }
    } else if let Some(place) = &seen.oneshot {
        process.forget("restart");
        process.set("run", "once", place);
        let why = "without a timer it runs at each boot, and `once` runs once for each build of it";
        draft.leave(place, "`Type=oneshot` of `[Service]`", why);
    } else if !process.has("restart") {
        process.set("restart", "never", place);
    }
    let ends = scheduled || seen.oneshot.is_some();
    for (key, secs) in [
        ("timeout_secs", if ends { FOR_EVER_SECS } else { SYSTEMD_SECS }),
        ("stop_secs", SYSTEMD_SECS),
    ] {
        if !process.has(key) {
            process.set(key, secs, place);
        }
    }
    let open = [
        ("privileges", seen.privileges),
        ("system", seen.system),
        ("tmp", seen.tmp),
    ];
    for (word, _) in open.iter().filter(|(_, hardened)| !hardened) {
        process.push("open", *word, place);
    }
    if !process.has("command") {
        let what = format!("the service `{}`", process.id);
        draft.leave(place, &what, "without a command there is nothing to run");
    } else if scheduled && !process.has("calendar") && !process.has("every_secs") {
        let what = format!("the timer of the service `{}`", process.id);
        draft.leave(
            place,
            &what,
            "without `OnCalendar` or `OnUnitActiveSec` it never runs",
        );
    } else {
        draft.resources.push(process);
    }
}
