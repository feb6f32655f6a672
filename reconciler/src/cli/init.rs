//! `meshplan init`: a fleet's repository that checks, and what its reconciler stands on (FR-10, OP-6).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use meshplan_schemas::document::published;
use meshplan_schemas::ident::FleetName;

use super::exit::Exit;
use crate::config::ForgeKind;
use crate::edge::foundation::{self, Foundation, Spec};

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
    /// The reconciler's state folder, outside the repository: keys, passphrase, configuration. Left out, it stands
    /// beside the repository and is called after it.
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// Where the reconciler will listen, and hosts find it.
    #[arg(long, default_value = "127.0.0.1:7946")]
    pub addr: SocketAddr,
    /// Where git fetches from; becomes the remote `origin`.
    #[arg(long, default_value = "http://127.0.0.1:7980/fleet.git")]
    pub forge_url: String,
    /// The repository's name, as deliveries are called after it.
    #[arg(long, default_value = "fleet")]
    pub repo: String,
    /// The kind of forge that the repository will be at: its CI runs `meshplan check`. A bare repository has none.
    #[arg(long, value_name = "KIND", default_value = "forgejo")]
    pub forge: ForgeKind,
}

/// Files whose text is the same for every fleet: path and text.
const FILES: [(&str, &str); 7] = [
    ("README.md", include_str!("init/README.md")),
    ("nodes/README.md", include_str!("init/nodes_README.md")),
    ("policy/base.toml", include_str!("init/policy_base.toml")),
    ("policy/roles/edge.toml", include_str!("init/policy_role.toml")),
    ("plans/default.toml", include_str!("init/plan.toml")),
    ("modules/base/module.toml", include_str!("init/module.toml")),
    ("modules/base/files/motd.j2", include_str!("init/motd.j2")),
];

/// The CI file of a forge, where it looks for one: path and text.
fn ci(forge: ForgeKind) -> Option<(&'static str, &'static str)> {
    Some(match forge {
        ForgeKind::Forgejo => (
            ".forgejo/workflows/meshplan.yml",
            include_str!("init/ci_forgejo.yml"),
        ),
        ForgeKind::Github => (
            ".github/workflows/meshplan.yml",
            include_str!("init/ci_github.yml"),
        ),
        ForgeKind::Gitlab => (".gitlab-ci.yml", include_str!("init/ci_gitlab.yml")),
        ForgeKind::Bare => return None,
    })
}

/// Writes the repository and what its reconciler stands on. [`Exit::Refused`] when the folder has a fleet.toml already.
///
/// # Errors
/// A file cannot be written, or the state folder has a reconciler's state already.
pub fn run(args: &Args, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let dir = &args.dir;
    if dir.join("fleet.toml").exists() {
        writeln!(out, "{} is a fleet's repository already", dir.display())?;
        return Ok(Exit::Refused);
    }
    let foundation = foundation::lay(&Spec {
        state: state_of(args)?,
        fleet: args.fleet.clone(),
        branch: args.branch.clone(),
        address: args.addr,
        forge_url: args.forge_url.clone(),
        repo: args.repo.clone(),
        poll_secs: 60,
    })?;
    write_tree(dir, args, &foundation)?;
    let committed = commit(dir, &args.branch, &args.forge_url);
    if json {
        let made = serde_json::json!({
            "dir": dir, "config": foundation.config, "author": foundation.author, "committed": committed.is_ok(),
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&made)?)?;
        return Ok(Exit::Done);
    }
    writeln!(
        out,
        "{}: the fleet {}, signed for by {}",
        dir.display(),
        args.fleet,
        foundation.author.id
    )?;
    writeln!(
        out,
        "{}: the reconciler's configuration, its keys beside it; keep a copy",
        foundation.config.display()
    )?;
    if let Err(error) = committed {
        writeln!(out, "the files are written and not committed: {error:#}")?;
    }
    writeln!(
        out,
        "next: `git -C {} push origin {}`",
        dir.display(),
        args.branch
    )?;
    writeln!(
        out,
        "      `meshplan serve --config {}`",
        foundation.config.display()
    )?;
    writeln!(
        out,
        "      `meshplan --config {} fleet invite NAME --role edge`",
        foundation.config.display()
    )?;
    Ok(Exit::Done)
}

/// The state folder: as given, or beside the repository and called after it.
fn state_of(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(state) = &args.state {
        return Ok(state.clone());
    }
    let dir = std::path::absolute(&args.dir)?;
    let name = dir
        .file_name()
        .context("the repository's folder has no name; say --state")?;
    let mut name = name.to_owned();
    name.push("-state");
    Ok(dir.with_file_name(name))
}

/// Writes the tree, with the public halves of the keys, whose private ones stay outside. No file that is there is
/// written over; fleet.toml comes last, so that a run that was cut short can be run again.
fn write_tree(dir: &Path, args: &Args, foundation: &Foundation) -> anyhow::Result<()> {
    for name in published::NAMES {
        let schema = published::schema(name).unwrap_or_default();
        write(dir, &format!(".meshplan/schemas/{name}.json"), &schema)?;
    }
    for (path, text) in FILES.into_iter().chain(ci(args.forge)) {
        write(dir, path, &text.replace("FLEET", args.fleet.as_str()))?;
    }
    write(dir, "fleet.toml", &fleet_toml(args, foundation))
}

/// Makes the folder a git repository with one commit and its remote, by git itself, in its user's name. A folder
/// that is one already is left to its owner.
fn commit(dir: &Path, branch: &str, remote: &str) -> anyhow::Result<()> {
    if dir.join(".git").exists() {
        return Ok(());
    }
    let git = |arguments: &[&str]| -> anyhow::Result<()> {
        let said = Command::new("git")
            .current_dir(dir)
            .args(arguments)
            .output()
            .context("git cannot be started")?;
        if !said.status.success() {
            bail!(
                "git {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&said.stderr).trim()
            );
        }
        Ok(())
    };
    git(&["init", "--quiet", &format!("--initial-branch={branch}")])?;
    git(&["remote", "add", "origin", remote])?;
    git(&["add", "."])?;
    git(&["commit", "--quiet", "--message", "the fleet"])
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

fn fleet_toml(args: &Args, foundation: &Foundation) -> String {
    let (fleet, author, recipient) = (&args.fleet, &foundation.author, &foundation.recipient);
    let branch = toml::Value::String(args.branch.clone());
    format!(
        "#:schema .meshplan/schemas/fleet.json
schema = 1
fleet = \"{fleet}\"
branch = {branch}

[[authors]]                             # who may sign orders; the private half stays with the reconciler
id = \"{}\"
key = \"{}\"

[secrets]
recipient = \"{recipient}\" # `meshplan secret set` encrypts to it

[config_mgmt]
confirm_secs = 60                       # how long a node has to prove that it still reaches home

[vars]
site = \"home\"                           # templates read it as `fleet.vars.site`
",
        author.id, author.key
    )
}
