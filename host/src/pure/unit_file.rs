//! The text of the units of a process (HK-6), as systemd.service(5) and systemd.timer(5) have it.
//!
//! Stands alone because it is the whole of what a process asks of the service manager, and because its quoting is a
//! door: what a fleet writes into a field must stay in that field.

use std::fmt::Write as _;

use meshplan_schemas::artifact::path_fault;
use meshplan_schemas::resource::programs::{Opening, Process, Restart, Run};

/// What systemd reads where the fleet's units are.
pub const FOLDER: &str = "/etc/systemd/system";

/// What tells a unit of the host's from others.
pub const MADE_BY: &str = "# Made by meshplan; what is changed here is put right.";

/// Something that is stopped around a run, and how (HK-9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Around {
    /// A unit of the service manager.
    Unit(String),
    /// By programs.
    Argv {
        /// What stops it; none where it is only after the run that something is done.
        stop: Option<Vec<String>>,
        /// What starts it again.
        start: Vec<String>,
    },
}

/// The process with its files of the bundle named by where they stand: `./x` is one (HK-6).
///
/// # Errors
/// In words: it names such a file and has no bundle, or one that is not in it.
pub fn in_bundle(process: &Process, bundle: Option<&str>) -> Result<Process, String> {
    let mut process = process.clone();
    for word in &mut process.command {
        let Some(inside) = word.strip_prefix("./") else {
            continue;
        };
        let Some(bundle) = bundle else {
            return Err(format!(
                "`{word}` is a file of its bundle, and it has no `bundle`"
            ));
        };
        if let Some(why) = path_fault(inside) {
            return Err(format!("`{word}` {why}"));
        }
        *word = format!("{bundle}/{inside}");
    }
    Ok(process)
}

/// The text of the `.service`.
#[must_use]
pub fn service(process: &Process, while_stopped: &[Around]) -> String {
    let mut text = Text::new("Unit");
    if let Some(build) = &process.build {
        // So that another build is another unit, and takes its place.
        text.line("# Build", &build.to_string());
    }
    text.line("Description", &format!("{} of the fleet", escaped(&process.name)));
    text.section("Service");
    let is_daemon = process.run == Run::Daemon;
    text.line("Type", if is_daemon { "exec" } else { "oneshot" });
    text.line("ExecStart", &words(&process.command));
    // The restart is armed before the first stop: systemd runs it whatever became of the run.
    for line in commands("stop", while_stopped.iter()) {
        text.line("ExecStartPre", &format!("+{line}"));
    }
    let back = commands("start", while_stopped.iter().rev());
    for (at, line) in back.iter().enumerate() {
        // One that fails does not keep the next from being started.
        let goes_on = if at + 1 < back.len() { "-" } else { "" };
        text.line("ExecStopPost", &format!("{goes_on}+{line}"));
    }
    for (key, value) in [
        ("User", &process.user),
        ("Group", &process.group),
        ("WorkingDirectory", &process.working_directory),
    ] {
        if let Some(value) = value {
            text.line(key, &escaped(value));
        }
    }
    for (name, value) in &process.env.0 {
        text.line("Environment", &word(&format!("{name}={value}")));
    }
    for path in &process.env_files {
        text.line("EnvironmentFile", &escaped(path));
    }
    let restart = match process.restart {
        _ if !is_daemon => "no",
        Restart::Always => "always",
        Restart::OnFailure => "on-failure",
        Restart::Never => "no",
    };
    text.line("Restart", restart);
    text.line("TimeoutStartSec", &process.timeout_secs.to_string());
    text.line("TimeoutStopSec", &process.stop_secs.to_string());
    let limits = &process.limits;
    for (key, value) in [
        ("MemoryMax", limits.memory_mib.map(|mib| format!("{mib}M"))),
        (
            "CPUQuota",
            limits.cpu_percent.map(|percent| format!("{percent}%")),
        ),
        ("TasksMax", limits.tasks.map(|tasks| tasks.to_string())),
        ("LimitNOFILE", limits.open_files.map(|files| files.to_string())),
    ] {
        if let Some(value) = value {
            text.line(key, &value);
        }
    }
    for (opening, key, value) in [
        (Opening::Privileges, "NoNewPrivileges", "yes"),
        (Opening::System, "ProtectSystem", "full"),
        (Opening::Tmp, "PrivateTmp", "yes"),
    ] {
        if !process.open.contains(&opening) {
            text.line(key, value);
        }
    }
    if is_daemon {
        text.section("Install");
        text.line("WantedBy", "multi-user.target");
    }
    text.0
}

/// The text of the `.timer`; none for what is not scheduled.
#[must_use]
pub fn timer(process: &Process) -> Option<String> {
    if process.run != Run::Scheduled {
        return None;
    }
    let mut text = Text::new("Unit");
    text.line(
        "Description",
        &format!("The schedule of {} of the fleet", escaped(&process.name)),
    );
    text.section("Timer");
    if let Some(calendar) = &process.schedule.calendar {
        text.line("OnCalendar", &escaped(calendar));
        // A run that a switched-off machine missed is made up for.
        text.line("Persistent", "yes");
    }
    if let Some(secs) = process.schedule.every_secs {
        text.line("OnActiveSec", &secs.to_string());
        text.line("OnUnitActiveSec", &secs.to_string());
    }
    text.section("Install");
    text.line("WantedBy", "timers.target");
    Some(text.0)
}

struct Text(String);

impl Text {
    fn new(section: &str) -> Self {
        Self(format!("{MADE_BY}\n[{section}]\n"))
    }
    fn section(&mut self, name: &str) {
        // To write into a text cannot fail.
        let _written = writeln!(self.0, "\n[{name}]");
    }
    fn line(&mut self, key: &str, value: &str) {
        let _written = writeln!(self.0, "{key}={value}");
    }
}

/// A command line: every word quoted, nothing in it expanded by systemd.
fn words(argv: &[String]) -> String {
    let quoted: Vec<String> = argv.iter().map(|text| word(&text.replace('$', "$$"))).collect();
    quoted.join(" ")
}

/// The commands that stop, or start, in this order: one for units that follow each other.
fn commands<'a>(what: &str, around: impl Iterator<Item = &'a Around>) -> Vec<String> {
    let mut lines: Vec<(bool, String)> = Vec::new();
    for one in around {
        match (one, lines.last_mut()) {
            (Around::Unit(unit), Some((true, line))) => {
                line.push(' ');
                line.push_str(&word(unit));
            }
            (Around::Unit(unit), _) => lines.push((true, format!("systemctl {what} {}", word(unit)))),
            (Around::Argv { stop, start }, _) => {
                let argv = if what == "stop" {
                    stop.as_ref()
                } else {
                    Some(start)
                };
                lines.extend(argv.map(|argv| (false, words(argv))));
            }
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

/// A word in double quotes, as systemd.syntax(7) reads them.
fn word(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '%' => quoted.push_str("%%"),
            c if c.is_control() => {
                let _written = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A value that is no command line: nothing in it expanded.
fn escaped(text: &str) -> String {
    text.replace('%', "%%")
}

/// What keeps a process from being written as units; none where nothing does.
#[must_use]
pub fn unwritable(process: &Process) -> Option<String> {
    let plain = [&process.user, &process.group, &process.working_directory];
    let plain = plain.into_iter().flatten().chain(&process.env_files);
    let texts = plain
        .chain(std::iter::once(&process.name))
        .chain(&process.schedule.calendar);
    for text in texts {
        // A backslash at its end would join it with the next line.
        if text.is_empty() || text.ends_with('\\') || text.chars().any(char::is_control) {
            return Some(format!(
                "{text:?} is empty, more than a line, or ends with a backslash"
            ));
        }
    }
    let commands = process.command.iter().find(|text| text.contains('\0'));
    if process
        .command
        .first()
        .is_none_or(|program| !program.starts_with('/'))
        || commands.is_some()
    {
        return Some("its program is no absolute path, or a NUL is in its command".to_owned());
    }
    let component = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let name = &process.name;
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !name.chars().all(component)
        || name.len() > 63
    {
        return Some(format!(
            "{name:?} is no name of a process: letters, digits, `_`, `.` and `-`, 63 at most"
        ));
    }
    let schedule = &process.schedule;
    let is_scheduled = process.run == Run::Scheduled;
    if is_scheduled != (schedule.calendar.is_some() != schedule.every_secs.is_some()) {
        return Some("a scheduled process has a calendar or an interval, and no other has either".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(change: serde_json::Value) -> Process {
        let mut spec = serde_json::json!({
            "name": "web", "command": ["/usr/bin/web"], "run": "daemon", "restart": "always",
            "timeout_secs": 300, "stop_secs": 30, "witness": "none",
        });
        spec.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    // holds: HK-6
    #[test]
    fn a_daemon_is_hardened_where_it_is_not_opened_and_starts_at_boot() {
        let text = service(
            &process(serde_json::json!({
                "user": "web", "env": { "A": "x y" }, "env_files": ["/etc/web.env"], "open": ["tmp"],
                "limits": { "memory_mib": 64, "cpu_percent": 50 },
            })),
            &[],
        );
        for line in [
            "Type=exec",
            "ExecStart=\"/usr/bin/web\"",
            "User=web",
            "Environment=\"A=x y\"",
            "EnvironmentFile=/etc/web.env",
            "Restart=always",
            "TimeoutStartSec=300",
            "TimeoutStopSec=30",
            "MemoryMax=64M",
            "CPUQuota=50%",
            "NoNewPrivileges=yes",
            "ProtectSystem=full",
            "WantedBy=multi-user.target",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("PrivateTmp"), "{text}");
        assert_eq!(timer(&process(serde_json::json!({}))), None);
    }

    // holds: HK-6, HK-9
    #[test]
    fn a_scheduled_one_is_a_oneshot_with_a_timer_and_starts_again_what_it_stopped() {
        let process = process(serde_json::json!({ "run": "scheduled", "schedule": { "calendar": "daily" } }));
        let text = service(
            &process,
            &["a.service", "b.service"].map(|unit| Around::Unit(unit.to_owned())),
        );
        assert!(
            text.contains("Type=oneshot\n") && text.contains("Restart=no\n"),
            "{text}"
        );
        assert!(
            !text.contains("[Install]"),
            "its timer starts it, and nothing else: {text}"
        );
        assert!(
            text.contains("ExecStartPre=+systemctl stop \"a.service\" \"b.service\"\n"),
            "{text}"
        );
        assert!(
            text.contains("ExecStopPost=+systemctl start \"b.service\" \"a.service\"\n"),
            "{text}"
        );
        let timer = timer(&process).unwrap();
        assert!(
            timer.contains("OnCalendar=daily\n") && timer.contains("WantedBy=timers.target\n"),
            "{timer}"
        );
    }

    // holds: HK-6
    #[test]
    fn what_a_fleet_writes_into_a_field_stays_in_it() {
        let text = service(
            &process(serde_json::json!({
                "command": ["/bin/sh", "-c", "echo \"$HOME\" 50% \\x\nExecStartPre=/bin/evil"],
                "env": { "A": "1\nUser=root" },
            })),
            &[],
        );
        assert!(
            !text
                .lines()
                .any(|line| line.starts_with("User=") || line.starts_with("ExecStartPre=")),
            "{text}"
        );
        let line = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        assert_eq!(
            line,
            r#"ExecStart="/bin/sh" "-c" "echo \"$$HOME\" 50%% \\x\nExecStartPre=/bin/evil""#
        );
        for bad in [
            serde_json::json!({ "user": "web\nUser=root" }),
            serde_json::json!({ "working_directory": "/x\n[Service]" }),
            serde_json::json!({ "env_files": ["/x\\"] }),
            serde_json::json!({ "name": "../x" }),
            serde_json::json!({ "name": "-x" }),
            serde_json::json!({ "command": ["web"] }),
            serde_json::json!({ "command": [] }),
            serde_json::json!({ "run": "scheduled" }),
            serde_json::json!({ "schedule": { "every_secs": 5 } }),
        ] {
            assert!(unwritable(&process(bad.clone())).is_some(), "{bad} was taken");
        }
        assert_eq!(unwritable(&process(serde_json::json!({}))), None);
    }
}
