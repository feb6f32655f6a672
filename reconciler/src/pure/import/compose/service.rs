//! A service of a compose file as a container.

use super::super::draft::{Place, Resource};
use super::super::shorthand::{self, FOR_EVER_SECS, GO, Mount, Quotes};
use super::{Compose, Key, Node, Value, several, table, text, truth};

/// The capabilities that Docker gives to a container.
const GIVEN: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Keys that a container of meshplan cannot have, each with what to do instead.
const NOT: &[(&str, &str)] = &[
    (
        "build",
        "meshplan runs images that are built: build it elsewhere, push it, and name it with `image`",
    ),
    (
        "deploy",
        "where and how often it runs is said by roles and plans, what it may take by `limits`",
    ),
    (
        "secrets",
        "`meshplan secret set` keeps a value, `[[file]]` with `secret` or `env_secrets` brings it",
    ),
    (
        "configs",
        "a `[[file]]` brings the content, and a mount puts it into the container",
    ),
    (
        "env_file",
        "its files are not read here: write the values into `env`, keep them in a secret that `env_secrets` names, or \
         name files of the machine with `env_files`",
    ),
    (
        "privileged",
        "it does not exist: name the capabilities and devices that it needs",
    ),
    (
        "extends",
        "what it takes from elsewhere is not read: write it out",
    ),
    (
        "profiles",
        "which node has it is said by roles: make a module of its own",
    ),
];

/// What is collected over several keys before it can be said.
#[derive(Default)]
struct Caps {
    added: Vec<String>,
    dropped: Vec<String>,
    place: Option<Place>,
}

struct Service<'c, 'a> {
    compose: &'c mut Compose<'a>,
    key: &'c Key,
    resource: Resource,
    caps: Caps,
    /// Whether it says itself what networks it has.
    networked: bool,
}

pub(super) fn read(compose: &mut Compose<'_>, key: &Key, node: &Node, id: String) {
    let place = compose.place(&key.span);
    let entries = match table(node) {
        Ok(entries) => entries,
        Err(why) => return compose.leave(&key.span, &format!("the service `{}`", key.text), &why),
    };
    let mut resource = Resource::new("container", id.clone(), &place);
    if id != key.text {
        resource.set("name", key.text.as_str(), &place);
    }
    let mut service = Service {
        compose,
        key,
        resource,
        caps: Caps::default(),
        networked: false,
    };
    for (key, node) in entries {
        if let Err(why) = service.carry(key, node) {
            service.leave(&service.compose.place(&key.span), &key.text, &why);
        }
    }
    service.finish(&place);
}

impl Service<'_, '_> {
    fn leave(&mut self, place: &Place, key: &str, why: &str) {
        let what = format!("`{key}` of the service `{}`", self.key.text);
        self.compose.draft.leave(place, &what, why);
    }

    fn carry(&mut self, key: &Key, node: &Node) -> Result<(), String> {
        let place = self.compose.place(&key.span);
        match key.text.as_str() {
            "image" => {
                let image = shorthand::image(&text(node)?);
                self.resource.set("image", image, &place);
            }
            "container_name" => self.container_name(&text(node)?, &place),
            "command" => self.argv("command", node, &place)?,
            "entrypoint" => self.argv("entrypoint", node, &place)?,
            "environment" => self.pairs("env", key, node),
            "labels" => self.pairs("labels", key, node),
            "sysctls" => self.pairs("sysctls", key, node),
            "volumes" => self.each(key, node, Self::volume),
            "ports" => self.each(key, node, Self::port),
            "networks" => self.networks(key, node)?,
            "network_mode" => match text(node)?.as_str() {
                "host" => {
                    self.networked = true;
                    self.resource.set("host_network", true, &place);
                }
                "bridge" => self.networked = true,
                other => return Err(format!("meshplan has no network mode `{other}`")),
            },
            "restart" => match text(node)?.as_str() {
                "no" | "false" => self.resource.set("restart", "never", &place),
                // One that somebody stopped by hand would be drift.
                "always" | "unless-stopped" => self.resource.set("restart", "always", &place),
                "on-failure" => self.resource.set("restart", "on-failure", &place),
                other => return Err(format!("meshplan has no restart `{other}`")),
            },
            "healthcheck" => self.healthcheck(node, &place)?,
            "user" => self.resource.set("user", text(node)?, &place),
            "cap_add" => self.caps.added = self.caps(node, &place)?,
            "cap_drop" => self.caps.dropped = self.caps(node, &place)?,
            "devices" => self.each(key, node, Self::device),
            "tmpfs" => self.each(key, node, Self::tmpfs),
            "extra_hosts" => self.hosts(key, node),
            "shm_size" => {
                let mib = shorthand::mebibytes(&text(node)?)?;
                self.resource.set("shm_mib", mib, &place);
            }
            "stop_grace_period" => {
                let secs = shorthand::seconds(&text(node)?, GO)?;
                self.resource.set("stop_secs", secs, &place);
            }
            "init" => {
                if truth(node)? {
                    self.resource.set("init", true, &place);
                }
            }
            "mem_limit" => {
                let mib = shorthand::mebibytes(&text(node)?)?;
                self.resource.pair("limits", "memory_mib", mib, &place);
            }
            "pids_limit" => {
                let tasks = text(node)?
                    .parse::<i64>()
                    .map_err(|_| "it is no number".to_owned())?;
                self.resource.pair("limits", "tasks", tasks, &place);
            }
            "logging" => logging(node)?,
            // It has an effect on nobody: containers of one network reach all ports of each other.
            "expose" => {}
            // Read where the order is made.
            "depends_on" => {}
            "privileged" | "tty" | "stdin_open" | "read_only" if truth(node) == Ok(false) => {}
            extension if extension.starts_with("x-") => {}
            other => {
                let known = NOT.iter().find(|(name, _)| *name == other);
                let why = known.map_or("a container of meshplan has nothing for it", |(_, why)| why);
                return Err(why.to_owned());
            }
        }
        Ok(())
    }

    /// Carries each item of a list over; what is wrong with one is said at its place.
    fn each(&mut self, key: &Key, node: &Node, carry: fn(&mut Self, &Node, &Place) -> Result<(), String>) {
        for item in several(node) {
            let place = self.compose.place(&item.span);
            if let Err(why) = carry(self, item, &place) {
                self.leave(&place, &key.text, &why);
            }
        }
    }

    fn pairs(&mut self, to: &'static str, key: &Key, node: &Node) {
        let what = format!("`{}` of the service `{}`", key.text, self.key.text);
        self.compose.named(&mut self.resource, to, node, &what);
    }

    /// The others reach it by the name of its service, and a container has one name here.
    fn container_name(&mut self, name: &str, place: &Place) {
        if self.compose.several && name != self.key.text {
            let why = format!(
                "the others reach it as `{}`, and a container has one name here: it keeps that",
                self.key.text
            );
            self.leave(place, "container_name", &why);
        } else {
            self.resource.set("name", name, place);
        }
    }

    fn argv(&mut self, key: &'static str, node: &Node, place: &Place) -> Result<(), String> {
        if node.is_null() {
            return Ok(());
        }
        let words = match &node.value {
            Value::List(list) => list.iter().map(text).collect::<Result<Vec<_>, _>>()?,
            _ => shorthand::words(&text(node)?, Quotes::Shell)?,
        };
        self.resource.list(key, words, place);
        Ok(())
    }

    fn volume(&mut self, node: &Node, place: &Place) -> Result<(), String> {
        let mount = match &node.value {
            Value::Table(entries) => {
                let mut kind = String::new();
                let mut mount = Mount {
                    from: String::new(),
                    target: String::new(),
                    read_only: false,
                };
                for (key, node) in entries {
                    match key.text.as_str() {
                        "type" => kind = text(node)?,
                        "source" => mount.from = text(node)?,
                        "target" => mount.target = text(node)?,
                        "read_only" => mount.read_only = truth(node)?,
                        other => return Err(format!("a mount of meshplan has nothing for `{other}`")),
                    }
                }
                match kind.as_str() {
                    "tmpfs" => {
                        self.resource.push("tmpfs", mount.target, place);
                        return Ok(());
                    }
                    "bind" | "volume" if !mount.from.is_empty() => {}
                    "volume" => {
                        return Err("the volume has no name: it would be lost with the container".to_owned());
                    }
                    other => return Err(format!("meshplan has no mount of the type `{other}`")),
                }
                shorthand::check_from(&mount.from)?;
                mount
            }
            _ => shorthand::mount(&text(node)?)?,
        };
        let volume = if mount.from.starts_with('/') {
            None
        } else {
            let id = self.compose.volumes.get(&mount.from).cloned();
            Some(id.ok_or_else(|| format!("there is no volume `{}` in this file", mount.from))?)
        };
        self.resource
            .push("mounts", mount.value(volume.as_deref()), place);
        Ok(())
    }

    fn port(&mut self, node: &Node, place: &Place) -> Result<(), String> {
        let ports = match &node.value {
            Value::Table(entries) => {
                let (mut target, mut published) = (None, None);
                let (mut protocol, mut address) = ("tcp".to_owned(), None);
                for (key, node) in entries {
                    match key.text.as_str() {
                        "target" => target = Some(text(node)?),
                        "published" => published = Some(text(node)?),
                        "protocol" => protocol = text(node)?,
                        "host_ip" => address = Some(text(node)?),
                        "name" | "app_protocol" => {}
                        "mode" if text(node)? == "host" => {}
                        other => return Err(format!("a port of meshplan has nothing for `{other}`")),
                    }
                }
                let chance = "the machine's port is chosen by chance: say which with `published`";
                let host = published.ok_or(chance)?;
                let target = target.ok_or("it has no `target`")?;
                let number = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no port"));
                let port = shorthand::port(number(&host)?, number(&target)?, &protocol, address.as_deref());
                vec![port]
            }
            _ => shorthand::ports(&text(node)?)?,
        };
        for port in ports {
            self.resource.push("ports", port, place);
        }
        Ok(())
    }

    fn networks(&mut self, key: &Key, node: &Node) -> Result<(), String> {
        self.networked = true;
        let mut names = Vec::new();
        match &node.value {
            Value::Table(entries) => {
                for (name, inner) in entries {
                    for (option, _) in table(inner)? {
                        let place = self.compose.place(&option.span);
                        let why = format!("meshplan has nothing for its `{}`", option.text);
                        self.leave(&place, &key.text, &why);
                    }
                    names.push((name.text.clone(), name.span.clone()));
                }
            }
            _ => {
                for item in several(node) {
                    names.push((text(item)?, item.span.clone()));
                }
            }
        }
        for (name, span) in names {
            let place = self.compose.place(&span);
            match self.compose.network(&name, &span) {
                Ok(id) => self.resource.push("networks", id, &place),
                Err(why) => self.leave(&place, &key.text, &why),
            }
        }
        Ok(())
    }

    fn healthcheck(&mut self, node: &Node, place: &Place) -> Result<(), String> {
        let mut command = None;
        let mut times = Vec::new();
        for (key, node) in table(node)? {
            match key.text.as_str() {
                "test" => {
                    command = Some(match &node.value {
                        Value::List(list) => {
                            let words = list.iter().map(text).collect::<Result<Vec<_>, _>>()?;
                            match words.split_first() {
                                Some((first, rest)) if first == "CMD" => rest.to_vec(),
                                Some((first, [line])) if first == "CMD-SHELL" => shorthand::shell(line),
                                Some((first, _)) if first == "NONE" => {
                                    return Err("the check of an image cannot be taken away".to_owned());
                                }
                                _ => return Err("`test` begins with CMD, CMD-SHELL or NONE".to_owned()),
                            }
                        }
                        _ => shorthand::shell(&text(node)?),
                    });
                }
                "interval" => times.push(("every_secs", shorthand::seconds(&text(node)?, GO)?)),
                "timeout" => times.push(("timeout_secs", shorthand::seconds(&text(node)?, GO)?)),
                "start_period" => times.push(("start_secs", shorthand::seconds(&text(node)?, GO)?)),
                "retries" => {
                    let retries = text(node)?
                        .parse()
                        .map_err(|_| "`retries` is no number".to_owned())?;
                    times.push(("retries", retries));
                }
                "disable" if truth(node)? => {
                    return Err("the check of an image cannot be taken away".to_owned());
                }
                "disable" => {}
                other => return Err(format!("a health check of meshplan has nothing for `{other}`")),
            }
        }
        let command = command.ok_or("it says times for the check of the image: say the command, too")?;
        health(&mut self.resource, command, &times, place);
        Ok(())
    }

    fn caps(&mut self, node: &Node, place: &Place) -> Result<Vec<String>, String> {
        self.caps.place = Some(place.clone());
        several(node).into_iter().map(text).collect()
    }

    fn device(&mut self, node: &Node, place: &Place) -> Result<(), String> {
        let device = shorthand::device(&text(node)?)?;
        self.resource.push("devices", device, place);
        Ok(())
    }

    fn tmpfs(&mut self, node: &Node, place: &Place) -> Result<(), String> {
        let path = text(node)?;
        if path.contains(':') {
            return Err("meshplan has no options for a folder in memory".to_owned());
        }
        self.resource.push("tmpfs", path, place);
        Ok(())
    }

    fn hosts(&mut self, key: &Key, node: &Node) {
        let mut hosts = Vec::new();
        match &node.value {
            Value::Table(entries) => {
                let host = |(key, node): &(Key, Node)| {
                    (
                        key.span.clone(),
                        text(node).map(|address| (key.text.clone(), address)),
                    )
                };
                hosts.extend(entries.iter().map(host));
            }
            _ => {
                for item in several(node) {
                    let host = text(item).and_then(|line| shorthand::host(&line));
                    hosts.push((item.span.clone(), host));
                }
            }
        }
        for (span, host) in hosts {
            let place = self.compose.place(&span);
            match host.and_then(|(name, address)| shorthand::host_value(&name, &address)) {
                Ok(host) => self.resource.push("hosts", host, &place),
                Err(why) => self.leave(&place, &key.text, &why),
            }
        }
    }

    fn finish(mut self, place: &Place) {
        if let Some(place) = self.caps.place.take() {
            match shorthand::capabilities(GIVEN, &self.caps.added, &self.caps.dropped) {
                Ok(names) => self.resource.list("capabilities", names, &place),
                Err(why) => {
                    let key = if self.caps.dropped.is_empty() {
                        "cap_add"
                    } else {
                        "cap_drop"
                    };
                    self.leave(&place, key, &why);
                }
            }
        }
        if self.compose.completed.contains(&self.key.text) {
            // The next one waits for its end.
            self.resource.forget("restart");
            self.resource.set("run", "once", place);
            self.resource.set("timeout_secs", FOR_EVER_SECS, place);
        } else if !self.resource.has("restart") {
            self.resource.set("restart", "never", place);
        }
        if !self.networked
            && let Ok(id) = self.compose.network("default", &self.key.span)
        {
            self.resource.push("networks", id, place);
        }
        if self.resource.has("image") {
            self.compose.draft.resources.push(self.resource);
        } else {
            let what = format!("the service `{}`", self.key.text);
            self.compose
                .draft
                .leave(place, &what, "without `image` there is nothing to run");
        }
    }
}

/// A health check, with the times that compose and Podman mean where none is said.
pub(in crate::pure::import) fn health(
    resource: &mut Resource,
    command: Vec<String>,
    times: &[(&str, i64)],
    place: &Place,
) {
    let command: toml_edit::Array = command.into_iter().collect();
    resource.pair("healthcheck", "command", command, place);
    if !times.iter().any(|(key, _)| *key == "timeout_secs") {
        resource.pair("healthcheck", "timeout_secs", 30, place);
    }
    for (key, value) in times {
        resource.pair("healthcheck", key, *value, place);
    }
}

fn logging(node: &Node) -> Result<(), String> {
    let entries = table(node)?;
    let journald =
        |(key, node): &(Key, Node)| key.text == "driver" && text(node).as_deref() == Ok("journald");
    if entries.iter().all(journald) {
        Ok(())
    } else {
        Err("what a container says goes to the machine's journal".to_owned())
    }
}
