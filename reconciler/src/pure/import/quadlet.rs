//! Podman's quadlets (podman-systemd.unit(5)): a container with the volumes and networks that lie beside it.

use meshplan_schemas::finding::{Finding, Source};

use super::Request;
use super::compose::health;
use super::draft::{Draft, Place, Resource};
use super::shorthand::{self, GO};
use super::systemd::{self, Line};

/// The capabilities that Podman gives to a container.
const GIVEN: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// What is known once all lines are read.
#[derive(Default)]
struct Seen {
    added: Vec<String>,
    dropped: Vec<String>,
    caps: Option<Place>,
    user: Option<(String, Place)>,
    group: Option<(String, Place)>,
    health: Option<(String, Place)>,
    times: Vec<(&'static str, i64)>,
}

struct Quadlet<'a> {
    request: &'a Request<'a>,
    draft: Draft,
    /// Volumes and networks by the name in the file, with their ids.
    shared: Vec<(String, String)>,
}

pub(super) fn read(request: &Request<'_>) -> Result<Draft, Finding> {
    let mut quadlet = Quadlet {
        request,
        draft: Draft::default(),
        shared: Vec::new(),
    };
    if request.file.ends_with(".container") {
        quadlet.container()?;
    } else {
        quadlet.of_file(request.file, request.source)?;
    }
    Ok(quadlet.draft)
}

impl Quadlet<'_> {
    /// A volume or network that lies in a file; its id.
    fn of_file(&mut self, file: &str, source: &Source) -> Result<String, Finding> {
        if let Some((_, id)) = self.shared.iter().find(|(name, _)| name == file) {
            return Ok(id.clone());
        }
        let (stem, end) = file.rsplit_once('.').unwrap_or((file, ""));
        let (kind, section, named) = if end == "volume" {
            ("volume", "Volume", "VolumeName")
        } else {
            ("network", "Network", "NetworkName")
        };
        let place = Place {
            source: source.clone(),
            span: 0..0,
        };
        let id = self.draft.id_for(stem, kind);
        let mut resource = Resource::new(kind, id.clone(), &place);
        resource.set("name", format!("systemd-{stem}"), &place);
        for line in systemd::read(source)? {
            let key = line.key.as_str();
            let carried = match (line.section.as_str(), key) {
                ("Unit", "Description") => Ok(()),
                (of, _) if of != section => systemd::around(&mut self.draft, &line),
                (_, key) if key == named => line.text().map(|name| resource.set("name", name, &line.place)),
                (_, "Label") => label(&line, &mut resource),
                ("Network", "Internal") => line.truth().map(|internal| {
                    if internal {
                        resource.set("internal", true, &line.place);
                    }
                }),
                ("Network", "Subnet") if !resource.has("subnet") => line
                    .text()
                    .map(|subnet| resource.set("subnet", subnet, &line.place)),
                (_, "Driver") if matches!(line.value.as_str(), "bridge" | "local") => Ok(()),
                _ => Err(format!("a {kind} of meshplan has nothing for it")),
            };
            if let Err(why) = carried {
                self.draft.leave(&line.place, &line.what(), &why);
            }
        }
        self.draft.resources.push(resource);
        self.shared.push((file.to_owned(), id.clone()));
        Ok(id)
    }

    /// The id of a volume or network that is named by its file beside this one.
    fn beside(&mut self, file: &str) -> Result<String, String> {
        let Some(source) = self.request.beside.get(file) else {
            return Err(format!("`{file}` is not beside this file"));
        };
        self.of_file(file, source).map_err(|finding| finding.to_string())
    }

    /// The id of a volume that is named by its name on the machine.
    fn volume(&mut self, name: &str, place: &Place) -> String {
        if let Some((_, id)) = self.shared.iter().find(|(known, _)| known == name) {
            return id.clone();
        }
        let id = self.draft.id_for(name, "volume");
        let mut resource = Resource::new("volume", id.clone(), place);
        resource.set("name", name, place);
        self.draft.resources.push(resource);
        self.shared.push((name.to_owned(), id.clone()));
        id
    }

    fn container(&mut self) -> Result<(), Finding> {
        let source = self.request.source;
        let place = Place {
            source: source.clone(),
            span: 0..0,
        };
        let stem = self.request.file.trim_end_matches(".container");
        let id = self.draft.id_for(stem, "container");
        let mut container = Resource::new("container", id, &place);
        container.set("name", format!("systemd-{stem}"), &place);
        let mut seen = Seen::default();
        for line in systemd::read(source)? {
            let carried = match (line.section.as_str(), line.key.as_str()) {
                ("Container", _) => self.carry(&line, &mut container, &mut seen),
                ("Service", "Restart") => systemd::restart(&line, &mut container),
                ("Service", _) => Err("what runs here is a container, not a service".to_owned()),
                _ => systemd::around(&mut self.draft, &line),
            };
            if let Err(why) = carried {
                self.draft.leave(&line.place, &line.what(), &why);
            }
        }
        self.finish(container, seen, &place);
        Ok(())
    }

    fn carry(&mut self, line: &Line, container: &mut Resource, seen: &mut Seen) -> Result<(), String> {
        let place = &line.place;
        match line.key.as_str() {
            "Image" => container.set("image", shorthand::image(&line.text()?), place),
            "ContainerName" => container.set("name", line.text()?, place),
            "Exec" => container.list("command", line.words()?, place),
            "Entrypoint" => container.list("entrypoint", line.words()?, place),
            "Environment" => systemd::environment(line, container, &mut self.draft)?,
            "EnvironmentFile" => systemd::environment_file(line, container)?,
            "Label" => label(line, container)?,
            "Volume" => {
                let mount = shorthand::mount(&line.text()?)?;
                let volume = if mount.from.starts_with('/') {
                    None
                } else if mount.from.ends_with(".volume") {
                    Some(self.beside(&mount.from)?)
                } else {
                    Some(self.volume(&mount.from, place))
                };
                container.push("mounts", mount.value(volume.as_deref()), place);
            }
            "PublishPort" => {
                for port in shorthand::ports(&line.text()?)? {
                    container.push("ports", port, place);
                }
            }
            "Network" => match line.text()?.as_str() {
                "host" => container.set("host_network", true, place),
                "bridge" => {}
                file if file.ends_with(".network") => {
                    let id = self.beside(file)?;
                    container.push("networks", id, place);
                }
                other => return Err(format!("`{other}` is no network that lies beside this file")),
            },
            "User" => seen.user = Some((line.text()?, place.clone())),
            "Group" => seen.group = Some((line.text()?, place.clone())),
            "AddCapability" => {
                seen.added.extend(line.words()?);
                seen.caps = Some(place.clone());
            }
            "DropCapability" => {
                seen.dropped.extend(line.words()?);
                seen.caps = Some(place.clone());
            }
            "AddDevice" => container.push("devices", shorthand::device(&line.text()?)?, place),
            "Tmpfs" => {
                let path = line.text()?;
                if path.contains(':') {
                    return Err("meshplan has no options for a folder in memory".to_owned());
                }
                container.push("tmpfs", path, place);
            }
            "ShmSize" => container.set("shm_mib", shorthand::mebibytes(&line.text()?)?, place),
            "StopTimeout" => container.set("stop_secs", shorthand::seconds(&line.text()?, GO)?, place),
            "RunInit" => {
                if line.truth()? {
                    container.set("init", true, place);
                }
            }
            "Sysctl" => {
                for word in line.words()? {
                    let pair = word.split_once('=').ok_or("expected `name=value`")?;
                    container.pair("sysctls", pair.0, pair.1, place);
                }
            }
            "AddHost" => {
                let (name, address) = shorthand::host(&line.text()?)?;
                container.push("hosts", shorthand::host_value(&name, &address)?, place);
            }
            "LogDriver" if line.value == "journald" => {}
            "HealthCmd" => seen.health = Some((line.text()?, place.clone())),
            "HealthInterval" => seen
                .times
                .push(("every_secs", shorthand::seconds(&line.text()?, GO)?)),
            "HealthTimeout" => seen
                .times
                .push(("timeout_secs", shorthand::seconds(&line.text()?, GO)?)),
            "HealthStartPeriod" => seen
                .times
                .push(("start_secs", shorthand::seconds(&line.text()?, GO)?)),
            "HealthRetries" => {
                let retries = line.text()?.parse();
                seen.times.push((
                    "retries",
                    retries.map_err(|_| "it is no whole number".to_owned())?,
                ));
            }
            "Secret" => {
                return Err(
                    "`meshplan secret set` keeps a value, `[[file]]` with `secret` or `env_secrets` brings it"
                        .to_owned(),
                );
            }
            "ReadOnly" | "NoNewPrivileges" if line.truth() == Ok(false) => {}
            _ => return Err("a container of meshplan has nothing for it".to_owned()),
        }
        Ok(())
    }

    fn finish(&mut self, mut container: Resource, seen: Seen, place: &Place) {
        if !container.has("restart") {
            container.set("restart", "never", place);
        }
        match (seen.user, seen.group) {
            (Some((user, place)), None) => container.set("user", user, &place),
            (Some((user, place)), Some((group, _))) => {
                container.set("user", format!("{user}:{group}"), &place);
            }
            (None, Some((_, place))) => {
                self.draft.leave(
                    &place,
                    "`Group` of `[Container]`",
                    "a group is said with its user, as `uid:gid`",
                );
            }
            (None, None) => {}
        }
        if let Some(place) = seen.caps {
            match shorthand::capabilities(GIVEN, &seen.added, &seen.dropped) {
                Ok(names) => container.list("capabilities", names, &place),
                Err(why) => {
                    let what = "`AddCapability`, `DropCapability` of `[Container]`";
                    self.draft.leave(&place, what, &why);
                }
            }
        }
        match seen.health {
            Some((line, place)) if line == "none" => {
                let why = "the check of an image cannot be taken away";
                self.draft.leave(&place, "`HealthCmd` of `[Container]`", why);
            }
            Some((line, place)) => health(&mut container, shorthand::shell(&line), &seen.times, &place),
            None if !seen.times.is_empty() => {
                let why = "they are times for the check of the image: say the command, too";
                self.draft.leave(place, "`Health...` of `[Container]`", why);
            }
            None => {}
        }
        if container.has("image") {
            self.draft.resources.push(container);
        } else {
            let what = format!("the container `{}`", container.id);
            self.draft
                .leave(place, &what, "without `Image` there is nothing to run");
        }
    }
}

fn label(line: &Line, resource: &mut Resource) -> Result<(), String> {
    for word in line.words()? {
        let (name, value) = word.split_once('=').unwrap_or((word.as_str(), ""));
        resource.pair("labels", name, value, &line.place);
    }
    Ok(())
}
