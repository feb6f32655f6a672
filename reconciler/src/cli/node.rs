//! `meshplan node`: records of a fleet repository: a new one with an identity of its own, the table of all, one with
//! everything that comes to it and from where (FR-5, FR-10).

use std::io::Write;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::finding::{Finding, did_you_mean};
use meshplan_schemas::ident::{ModuleName, NodeId, NodeName, RoleName};
use serde_json::json;
use toml_edit::{Array, DocumentMut, value};
use uuid::Uuid;

use super::change::{Change, schema_line};
use super::exit::Exit;
use super::{check, table};
use crate::pure::compose::{Composed, ComposedNode, TreeError};
use crate::pure::node_view::{self, NodeView};
use crate::pure::parse::parse;
use crate::pure::validate::validate;

/// Records of nodes.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with records.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Writes nodes/NAME.toml with a fresh uuid and no keys: invited, not yet enrolled.
    Add {
        /// The node's name.
        name: NodeName,
        /// Roles, in the order in which their policy is laid over the base.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<RoleName>,
        /// Modules, beside those that the roles bring.
        #[arg(long = "module", value_name = "MODULE")]
        modules: Vec<ModuleName>,
        /// A folder below nodes/ for the record, as `ams/rack-2`.
        #[arg(long, value_name = "FOLDER")]
        folder: Option<String>,
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// Lists the nodes: roles, modules, class, enrolled or invited.
    List {
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Of a commit, by any name that git knows, instead of the files of the folder.
        #[arg(long, value_name = "COMMIT")]
        commit: Option<String>,
    },
    /// Shows a node: its record, its modules, settings and policy, and where each comes from.
    Show {
        /// The node's name.
        name: NodeName,
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Of a commit, by any name that git knows, instead of the files of the folder.
        #[arg(long, value_name = "COMMIT")]
        commit: Option<String>,
    },
}

/// Runs the command. [`Exit::Refused`] when there is such a record already, [`Exit::No`] when the tree does not
/// check or has no such node.
///
/// # Errors
/// The tree cannot be read, or a record cannot be written.
pub fn run(args: &Args, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.verb {
        Verb::Add {
            name,
            roles,
            modules,
            folder,
            dir,
        } => {
            let Some(change) = Change::begin(dir, out)? else {
                return Ok(Exit::Usage);
            };
            add(change, name, (roles, modules), folder.as_deref(), out)
        }
        Verb::List { dir, commit } => {
            let (tree, of_paths) = check::read(dir, commit.as_deref())?;
            match check::compose_with(&tree, of_paths) {
                Ok(composed) => list(&composed, json, out),
                Err(error) => refused(&error, out),
            }
        }
        Verb::Show { name, dir, commit } => {
            let (tree, of_paths) = check::read(dir, commit.as_deref())?;
            let errors = of_paths.into_iter().filter(Finding::is_error);
            let (documents, findings) = parse(&tree);
            let errors: Vec<Finding> = errors
                .chain(findings.into_iter().filter(Finding::is_error))
                .collect();
            let validated = match validate(documents) {
                Ok(validated) if errors.is_empty() => validated,
                Ok(_) => return refused(&TreeError::Findings(errors), out),
                Err(more) => return refused(&TreeError::Findings([errors, more].concat()), out),
            };
            let Some(view) = node_view::view(&validated, name) else {
                let names = validated.nodes().iter().map(|record| record.name.as_str());
                let hint = did_you_mean(name.as_str(), names).unwrap_or_default();
                writeln!(out, "there is no node `{name}` {hint}")?;
                return Ok(Exit::No);
            };
            show(&view, json, out)
        }
    }
}

/// Says what is wrong with a tree that a question is asked of.
fn refused(error: &TreeError, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let TreeError::Findings(findings) = error {
        for finding in findings.iter().filter(|f| f.is_error()) {
            writeln!(out, "{}\n", finding.render(false))?;
        }
    }
    writeln!(out, "refused: {error}")?;
    Ok(Exit::No)
}

fn add(
    mut change: Change,
    name: &NodeName,
    (roles, modules): (&[RoleName], &[ModuleName]),
    folder: Option<&str>,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let path = match folder.map(|folder| folder.trim_matches('/')) {
        None | Some("") => format!("nodes/{name}.toml"),
        Some(folder)
            if folder
                .split('/')
                .all(|part| part.parse::<RoleName>().is_ok() && part != "revoked") =>
        {
            format!("nodes/{folder}/{name}.toml")
        }
        Some(folder) => {
            writeln!(
                out,
                "`{folder}` is no folder for records: its parts are names as roles have them"
            )?;
            return Ok(Exit::Usage);
        }
    };
    let file = format!("/{name}.toml");
    let there = (change.tree().iter()).map(|(path, _)| path).find(|path| {
        path.starts_with("nodes/") && !path.starts_with("nodes/revoked/") && path.ends_with(&file)
    });
    if let Some(there) = there {
        writeln!(out, "{there} is there already: a node's name is unique")?;
        return Ok(Exit::Refused);
    }
    let id = NodeId(Uuid::new_v4());
    change.write(
        path.as_str(),
        schema_line(&path, "node") + &record(id, roles, modules),
    );
    let exit = change.carry_out(out)?;
    if exit == Exit::Done {
        writeln!(out, "{path}: {id} (short id {})", id.short())?;
        writeln!(
            out,
            "commit it, merge it, then `meshplan fleet invite {name}` makes its invitation"
        )?;
    }
    Ok(exit)
}

/// The text of a fresh record.
fn record(id: NodeId, roles: &[RoleName], modules: &[ModuleName]) -> String {
    let mut document = DocumentMut::new();
    document["id"] = value(id.to_string());
    let list = |names: Vec<&str>| value(names.into_iter().collect::<Array>());
    document["roles"] = list(roles.iter().map(RoleName::as_str).collect());
    document["modules"] = list(modules.iter().map(ModuleName::as_str).collect());
    document.to_string()
}

fn list(composed: &Composed, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut nodes: Vec<&ComposedNode> = composed.nodes.values().map(AsRef::as_ref).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    if json {
        let rows: Vec<_> = nodes
            .iter()
            .map(|node| {
                json!({
                    "name": node.name, "id": node.id, "roles": node.roles, "modules": node.modules.keys().collect::<Vec<_>>(),
                    "update_class": node.update_class, "pinned": node.pinned, "enrolled": node.enrolled,
                })
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(Exit::Done);
    }
    if nodes.is_empty() {
        writeln!(out, "no nodes: `meshplan node add NAME` makes a record")?;
        return Ok(Exit::Done);
    }
    let rows = nodes.iter().map(|node| {
        let class = class(node.update_class, node.pinned);
        vec![
            node.name.to_string(),
            words(node.roles.iter()),
            words(node.modules.keys()),
            class,
            state(node.enrolled).to_owned(),
        ]
    });
    writeln!(
        out,
        "{}",
        table::of(&["name", "roles", "modules", "class", "state"], rows)
    )?;
    Ok(Exit::Done)
}

fn show(view: &NodeView, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(view)?)?;
        return Ok(Exit::Done);
    }
    writeln!(out, "{} ({}), {}", view.name, view.record, state(view.enrolled))?;
    writeln!(out, "  id            {} (short id {})", view.id, view.short_id)?;
    writeln!(out, "  roles         {}", or_none(words(view.roles.iter())))?;
    writeln!(out, "  update_class  {}", class(view.update_class, view.pinned))?;
    if let Some(address) = &view.address {
        writeln!(out, "  address       {address}")?;
    }
    if view.adopted {
        writeln!(
            out,
            "  adopted       keeps what it found until its module is taken"
        )?;
    }
    for (name, value) in &view.vars {
        writeln!(out, "  vars.{name} = {}", serde_json::to_string(value)?)?;
    }
    writeln!(out, "\nmodules")?;
    for module in &view.modules {
        let by_roles = module.by_roles.iter().map(|role| format!("the role {role}"));
        let by: Vec<String> = module
            .by_record
            .then(|| "its record".to_owned())
            .into_iter()
            .chain(by_roles)
            .collect();
        writeln!(out, "  {}, by {}", module.module, by.join(" and "))?;
        let lines = module.settings.iter().map(|setting| {
            let value = setting
                .value
                .as_ref()
                .map_or_else(|| Ok("none".to_owned()), serde_json::to_string)?;
            Ok((format!("    {} = {value}", setting.name), setting.from.as_str()))
        });
        sided(&lines.collect::<anyhow::Result<Vec<_>>>()?, out)?;
    }
    if view.modules.is_empty() {
        writeln!(out, "  none")?;
    }
    writeln!(out, "\npolicy")?;
    let lines: Vec<(String, &str)> = view
        .policy
        .iter()
        .map(|value| (format!("  {} = {}", value.key, value.value), value.file.as_str()))
        .collect();
    sided(&lines, out)?;
    if lines.is_empty() {
        writeln!(out, "  none")?;
    }
    Ok(Exit::Done)
}

/// Lines with the place that each comes from in a column of their own.
fn sided(lines: &[(String, &str)], out: &mut dyn Write) -> anyhow::Result<()> {
    let width = lines
        .iter()
        .map(|(line, _)| line.chars().count())
        .max()
        .unwrap_or(0);
    for (line, from) in lines {
        writeln!(out, "{line:width$}  # {from}")?;
    }
    Ok(())
}

fn words<'n>(names: impl Iterator<Item = &'n (impl ToString + 'n)>) -> String {
    names.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}

fn state(enrolled: bool) -> &'static str {
    if enrolled { "enrolled" } else { "invited" }
}

fn class(class: meshplan_schemas::fleet_list::UpdateClass, pinned: bool) -> String {
    use meshplan_schemas::fleet_list::UpdateClass;
    let word = match class {
        UpdateClass::Required => "required",
        UpdateClass::BestEffort => "best_effort",
        UpdateClass::LeftBehind => "left_behind",
    };
    if pinned {
        format!("{word}, pinned")
    } else {
        word.to_owned()
    }
}
