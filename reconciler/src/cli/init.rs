//! `meshplan init`: a fleet's repository that checks and could be served (FR-10).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args as ClapArgs;
use meshplan_schemas::document::published;
use meshplan_schemas::fleet_list::Author;
use meshplan_schemas::ident::FleetName;

use super::exit::Exit;

/// Makes a fleet's repository in a folder: fleet.toml, a plan, a module, a role, policy, a README, a CI file.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// The folder; made when it is not there.
    pub dir: PathBuf,
    /// The fleet's name.
    #[arg(long)]
    pub fleet: FleetName,
    /// The branch whose merges are orders.
    #[arg(long, default_value = "main")]
    pub branch: String,
}

/// Files whose text is the same for every fleet: path and text.
const FILES: [(&str, &str); 8] = [
    ("README.md", include_str!("init/README.md")),
    ("nodes/README.md", include_str!("init/nodes_README.md")),
    ("policy/base.toml", include_str!("init/policy_base.toml")),
    ("policy/roles/edge.toml", include_str!("init/policy_role.toml")),
    ("plans/default.toml", include_str!("init/plan.toml")),
    ("modules/base/module.toml", include_str!("init/module.toml")),
    ("modules/base/files/motd.j2", include_str!("init/motd.j2")),
    (".forgejo/workflows/meshplan.yml", include_str!("init/ci.yml")),
];

/// Writes the repository; `author` is the public half of the key that will sign, which stays outside.
/// [`Exit::Refused`] when the folder has a fleet.toml already; no file that is there is written over.
///
/// # Errors
/// A file cannot be written.
pub fn run(args: &Args, author: &Author, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let dir = &args.dir;
    if dir.join("fleet.toml").exists() {
        writeln!(out, "{} is a fleet's repository already", dir.display())?;
        return Ok(Exit::Refused);
    }
    // fleet.toml comes last: a run that was cut short can be run again.
    for name in published::NAMES {
        let schema = published::schema(name).unwrap_or_default();
        write(dir, &format!(".meshplan/schemas/{name}.json"), &schema)?;
    }
    for (path, text) in FILES {
        write(dir, path, &text.replace("FLEET", args.fleet.as_str()))?;
    }
    write(dir, "fleet.toml", &fleet_toml(&args.fleet, &args.branch, author))?;
    writeln!(
        out,
        "{}: the fleet {}, signed for by {}",
        dir.display(),
        args.fleet,
        author.id
    )?;
    writeln!(
        out,
        "next: `meshplan node add NAME --role edge --dir {}`, then commit",
        dir.display()
    )?;
    Ok(Exit::Done)
}

fn write(dir: &Path, path: &str, text: &str) -> anyhow::Result<()> {
    let path = dir.join(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => file
            .write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e).with_context(|| format!("cannot make {}", path.display())),
    }
}

fn fleet_toml(fleet: &FleetName, branch: &str, author: &Author) -> String {
    let branch = toml::Value::String(branch.to_owned());
    format!(
        "#:schema .meshplan/schemas/fleet.json
schema = 1
fleet = \"{fleet}\"
branch = {branch}

[[authors]]                             # who may sign orders; the private half stays with the reconciler
id = \"{}\"
key = \"{}\"

[config_mgmt]
confirm_secs = 60                       # how long a node has to prove that it still reaches home

[vars]
site = \"home\"                           # templates read it as `fleet.vars.site`
",
        author.id, author.key
    )
}
