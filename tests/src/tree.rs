//! The fleet repository that the worlds start from: three nodes, one module, one plan, a second between looks.
//!
//! `meshplan init` has made fleet.toml with the fleet's author; these files stand beside it.

/// The nodes; the first is the plan's canary.
pub const NODES: [&str; 3] = ["ace", "bob", "cas"];

/// The page that the module brings to each node, by its path on the node.
pub const PAGE: &str = "srv/web/index.html";

/// The rendered file.
pub const CONF: &str = "etc/web/web.conf";

/// A word that the module's probe does not bear in the page.
pub const BROKEN: &str = "broken";

/// The files, with their text.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = FILES
        .iter()
        .map(|(p, t)| ((*p).to_owned(), (*t).to_owned()))
        .collect();
    for (number, node) in NODES.iter().enumerate() {
        let record = format!(
            "id = \"0192f0c1-0000-7000-8000-00000000000{number}\"\nroles = [\"web\"]\n\n[vars]\nsite = \"ams\"\n"
        );
        files.push((format!("nodes/{node}.toml"), record));
    }
    files
}

/// What fleet.toml gets beside what `init` wrote: windows and intervals for tests.
pub const SHORT_TIMES: &str = r#"
heartbeat_secs = 2

[config_mgmt]
confirm_secs = 6
canary_deadline_secs = 30
release_watch_secs = 30
"#;

const FILES: &[(&str, &str)] = &[
    ("policy/base.toml", "[qos]\nartifact_kib_per_sec = 2000\n"),
    ("policy/roles/web.toml", "[qos]\napply_cpu_weight = 50\n"),
    (
        "plans/default.toml",
        r#"covers = ["*"]

[[stage]]
name = "canary"
nodes = ["ace"]
healthy = { times = 2, every_secs = 1, within_secs = 30 }
failed = "roll-back"
silent = "roll-back"

[[stage]]
name = "rest"
rest = true
healthy = { times = 1, every_secs = 1, within_secs = 30 }
failed = "roll-back"
silent = "roll-back"
"#,
    ),
    (
        "modules/web/module.toml",
        r#"description = "A page, its settings, and a probe that reads it"
roles = ["web"]

[settings.port]
type = "integer"
default = 8080

[[directory]]
id = "root"
path = "/srv/web"
mode = "0755"

[[file]]
id = "page"
path = "/srv/web/index.html"
source = "files/index.html"
mode = "0644"

[[file]]
id = "conf"
path = "/etc/web/web.conf"
source = "files/web.conf.j2"
mode = "0644"

[[link]]
id = "current"
path = "/srv/current"
target = "web"

[[probe]]
id = "readable"
command = ["sh", "-c", "! grep -q broken \"$MESHPLAN_ROOT/srv/web/index.html\""]
timeout_secs = 5
"#,
    ),
    ("modules/web/files/index.html", "<p>one</p>\n"),
    (
        "modules/web/files/web.conf.j2",
        "name = {{ node.name }}\nsite = {{ node.vars.site }}\nport = {{ settings.port }}\n",
    ),
];
