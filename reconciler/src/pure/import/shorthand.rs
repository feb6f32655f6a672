//! Values that compose, Podman and systemd write in short: durations, sizes, ports, mounts, command lines.

use toml_edit::{InlineTable, Value};

/// The most ports of one range.
const RANGE: u16 = 64;
/// The longest that a document can say, in seconds: for what has no limit where it comes from.
pub(super) const FOR_EVER_SECS: i64 = 315_360_000;
/// Go's units, and compose's, in milliseconds.
pub(super) const GO: &[(&str, u64)] = &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
/// systemd.time(7)'s units, in milliseconds.
pub(super) const SYSTEMD: &[(&str, u64)] = &[
    ("ms", 1),
    ("msec", 1),
    ("s", 1000),
    ("sec", 1000),
    ("second", 1000),
    ("seconds", 1000),
    ("m", 60_000),
    ("min", 60_000),
    ("minute", 60_000),
    ("minutes", 60_000),
    ("h", 3_600_000),
    ("hr", 3_600_000),
    ("hour", 3_600_000),
    ("hours", 3_600_000),
    ("d", 86_400_000),
    ("day", 86_400_000),
    ("days", 86_400_000),
    ("w", 604_800_000),
    ("week", 604_800_000),
    ("weeks", 604_800_000),
];

/// Whose rules for quotes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    /// A POSIX shell's, as compose splits a command.
    Shell,
    /// systemd.syntax(7)'s.
    Systemd,
}

/// Whole seconds; a bare number is seconds.
pub(super) fn seconds(text: &str, units: &[(&str, u64)]) -> Result<i64, String> {
    let no = || format!("`{text}` is no duration");
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    if rest.is_empty() {
        return Err(no());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, more) = rest.split_at(digits);
        let end = more
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(more.len());
        let (unit, more) = more.split_at(end);
        let scale = match unit {
            "" => 1000,
            unit => units
                .iter()
                .find(|(name, _)| *name == unit)
                .map(|(_, scale)| *scale)
                .ok_or_else(no)?,
        };
        let part = number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(scale))
            .ok_or_else(no)?;
        millis = millis.checked_add(part).ok_or_else(no)?;
        rest = more.trim_start();
    }
    if !millis.is_multiple_of(1000) {
        return Err(format!("`{text}` is no whole number of seconds"));
    }
    i64::try_from(millis / 1000).map_err(|_| no())
}

/// Whole MiB; a bare number is bytes, units are powers of 1024.
pub(super) fn mebibytes(text: &str) -> Result<i64, String> {
    let no = || format!("`{text}` is no size");
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let scale: u64 = match unit.trim() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1024,
        "m" | "mb" | "mib" => 1024 * 1024,
        "g" | "gb" | "gib" => 1024 * 1024 * 1024,
        "t" | "tb" | "tib" => 1024 * 1024 * 1024 * 1024,
        _ => return Err(no()),
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(scale))
        .ok_or_else(no)?;
    if !bytes.is_multiple_of(1024 * 1024) || bytes == 0 {
        return Err(format!("`{text}` is no whole number of MiB"));
    }
    i64::try_from(bytes / (1024 * 1024)).map_err(|_| no())
}

/// Published ports: `[address:]host:container[/protocol]`, with ranges.
pub(super) fn ports(text: &str) -> Result<Vec<Value>, String> {
    let (numbers, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let (before, container) = numbers
        .rsplit_once(':')
        .ok_or("the machine's port is chosen by chance: say which, as `8080:80`")?;
    let (address, host) = match before.rsplit_once(':') {
        Some((address, host)) => (Some(address.trim_start_matches('[').trim_end_matches(']')), host),
        None => (None, before),
    };
    if host.is_empty() {
        return Err("the machine's port is chosen by chance: say which, as `8080:80`".to_owned());
    }
    let (host, container) = (range(host)?, range(container)?);
    if host.1 - host.0 != container.1 - container.0 {
        return Err(format!("the two ranges of `{text}` are not equally long"));
    }
    if host.1 - host.0 >= RANGE {
        return Err(format!(
            "`{text}` is more than {RANGE} ports: give the container `host_network` instead"
        ));
    }
    Ok((host.0..=host.1)
        .zip(container.0..=container.1)
        .map(|(host, container)| port(host, container, protocol, address))
        .collect())
}

/// A published port as the document has it.
pub(super) fn port(host: u16, container: u16, protocol: &str, address: Option<&str>) -> Value {
    let mut table = InlineTable::new();
    table.insert("host", i64::from(host).into());
    if container != host {
        table.insert("container", i64::from(container).into());
    }
    if protocol != "tcp" {
        table.insert("protocol", protocol.into());
    }
    // All addresses is what is meant where none is said.
    if let Some(address) = address.filter(|address| *address != "0.0.0.0") {
        table.insert("address", address.into());
    }
    Value::InlineTable(table)
}

fn range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err(format!("`{text}` is no port")),
    }
}

/// What is mounted into a container.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// A path of the machine, or the name of a volume.
    pub(super) from: String,
    pub(super) target: String,
    pub(super) read_only: bool,
}

/// A mount as `from:target[:options]`.
pub(super) fn mount(text: &str) -> Result<Mount, String> {
    let mut parts = text.split(':');
    let (Some(from), Some(target)) = (parts.next(), parts.next()) else {
        return Err("the volume has no name: it would be lost with the container".to_owned());
    };
    let mut read_only = false;
    for option in parts.next().unwrap_or_default().split(',') {
        match option {
            "" | "rw" => {}
            "ro" => read_only = true,
            other => return Err(format!("a mount has no option `{other}`")),
        }
    }
    if parts.next().is_some() {
        return Err("expected `from:target` or `from:target:ro`".to_owned());
    }
    let mount = Mount {
        from: from.to_owned(),
        target: target.to_owned(),
        read_only,
    };
    check_from(&mount.from).map(|()| mount)
}

/// Where it comes from: a path of the machine is absolute.
pub(super) fn check_from(from: &str) -> Result<(), String> {
    if from.starts_with(['.', '~']) {
        return Err(format!(
            "`{from}` lies beside what is imported: say the whole path on the machine, and bring its content with a \
             `[[file]]`"
        ));
    }
    Ok(())
}

impl Mount {
    /// As the document has it; `volume` is the id of the volume, where it is one.
    pub(super) fn value(&self, volume: Option<&str>) -> Value {
        let mut table = InlineTable::new();
        match volume {
            Some(volume) => table.insert("volume", volume.into()),
            None => table.insert("source", self.from.as_str().into()),
        };
        table.insert("target", self.target.as_str().into());
        if self.read_only {
            table.insert("read_only", true.into());
        }
        Value::InlineTable(table)
    }
}

/// The words of a command line.
pub(super) fn words(text: &str, quotes: Quotes) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut inside: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (inside, c) {
            (Some('\''), '\\') if quotes == Quotes::Shell => word.get_or_insert_default().push('\\'),
            (_, '\\') => {
                let next = chars.next().ok_or("it ends with a backslash")?;
                let escaped = match (quotes, inside, next) {
                    (Quotes::Shell, Some('"'), '"' | '\\' | '$' | '`') | (Quotes::Shell, None, _) => next,
                    (Quotes::Shell, ..) => {
                        word.get_or_insert_default().push('\\');
                        next
                    }
                    (Quotes::Systemd, _, 'n') => '\n',
                    (Quotes::Systemd, _, 't') => '\t',
                    (Quotes::Systemd, _, 's') => ' ',
                    (Quotes::Systemd, _, '\\' | '"' | '\'') => next,
                    (Quotes::Systemd, ..) => return Err(format!("the escape `\\{next}` is not understood")),
                };
                word.get_or_insert_default().push(escaped);
            }
            (Some(open), c) if c == open => inside = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                inside = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if inside.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

/// A name as an id of a resource has it.
pub(super) fn id(name: &str) -> String {
    let id: String = name
        .to_ascii_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(48)
        .collect();
    let id = id.trim_matches('-');
    if id.is_empty() {
        "unnamed".to_owned()
    } else {
        id.to_owned()
    }
}

/// An image with its tag: where none is said, it is `latest`.
pub(super) fn image(text: &str) -> String {
    let last = text.rsplit('/').next().unwrap_or_default();
    if text.contains('@') || last.contains(':') {
        text.to_owned()
    } else {
        format!("{text}:latest")
    }
}

/// The command of a health check that is one line for a shell.
pub(super) fn shell(line: &str) -> Vec<String> {
    ["/bin/sh", "-c", line].map(str::to_owned).to_vec()
}

/// The capabilities of a container, exactly: what the runtime gives, with what is added, without what is dropped.
pub(super) fn capabilities(
    given: &[&str],
    added: &[String],
    dropped: &[String],
) -> Result<Vec<String>, String> {
    let bare = |name: &String| {
        let upper = name.trim().to_ascii_uppercase();
        upper.strip_prefix("CAP_").unwrap_or(&upper).to_owned()
    };
    let added: Vec<String> = added.iter().map(bare).collect();
    let dropped: Vec<String> = dropped.iter().map(bare).collect();
    if added.iter().any(|name| name == "ALL") {
        return Err("all of them is `privileged` by another name: say which it needs".to_owned());
    }
    let all = dropped.iter().any(|name| name == "ALL");
    let kept = given
        .iter()
        .map(|name| (*name).to_owned())
        .filter(|name| !all && !dropped.contains(name));
    let mut capabilities: Vec<String> = kept.chain(added).collect();
    capabilities.sort();
    capabilities.dedup();
    if capabilities.is_empty() {
        return Err(
            "a container without any capability cannot be said: name the ones that it may keep".to_owned(),
        );
    }
    Ok(capabilities)
}

/// A device that has the same path inside.
pub(super) fn device(text: &str) -> Result<String, String> {
    let mut parts = text.split(':');
    let path = parts.next().unwrap_or_default();
    if !path.starts_with("/dev/") {
        return Err(format!("`{path}` is no path below /dev"));
    }
    if parts
        .next()
        .is_some_and(|inside| inside != path && inside != "rwm")
        || parts.next().is_some_and(|rights| rights != "rwm")
    {
        return Err("a device has the same path inside, and can be read, written and made".to_owned());
    }
    Ok(path.to_owned())
}

/// A name with its address, as `name:address` or `name=address`.
pub(super) fn host(line: &str) -> Result<(String, String), String> {
    let at = line.find(['=', ':']).ok_or("expected `name:address`")?;
    let (name, address) = line.split_at(at);
    Ok((name.to_owned(), address.get(1..).unwrap_or_default().to_owned()))
}

/// A further name in the hosts file as the document has it.
pub(super) fn host_value(name: &str, address: &str) -> Result<Value, String> {
    let address = address.trim_start_matches('[').trim_end_matches(']');
    if address != "host-gateway" && address.parse::<core::net::IpAddr>().is_err() {
        return Err(format!("`{address}` is no address"));
    }
    let mut table = InlineTable::new();
    table.insert("name", name.into());
    table.insert("address", address.into());
    Ok(Value::InlineTable(table))
}

/// Whether a variable of this name holds what nobody should read in a repository.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let words = [
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "SECRET",
        "TOKEN",
        "CREDENTIAL",
    ];
    let ends = ["_PASS", "_PWD", "_KEY", "APIKEY"];
    // What ends so names a file that holds it.
    let elsewhere = name.ends_with("_FILE") || name.ends_with("_PATH");
    let sounds = words.iter().any(|word| name.contains(word)) || ends.iter().any(|end| name.ends_with(end));
    sounds && !elsewhere && !value.is_empty()
}
