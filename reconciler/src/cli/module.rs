//! `meshplan module new`: a module that checks, to be filled (FR-10). `meshplan module import`: one that is made from
//! what ran before (FR-14).

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::ident::{ModuleName, NodeName, RoleName};
use toml_edit::{Array, Item, Value, value};

use super::change::{Change, schema_line};
use super::exit::Exit;
use super::in_place;
use crate::pure::import::{self, FILE_BYTES, FILES_BESIDE, Form, Imported, Request};

/// Modules of a fleet repository.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with modules.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Writes modules/NAME/module.toml with a setting, a rendered file and a folder for it, to be changed.
    New {
        /// The module's name.
        name: ModuleName,
        /// A role that brings it; may be given several times.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<RoleName>,
        /// A node whose record names it; may be given several times. The record keeps its comments and its order.
        #[arg(long = "node", value_name = "NODE")]
        nodes: Vec<NodeName>,
        /// What it is for.
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// Writes modules/NAME/module.toml from a compose file (*.yml, *.yaml), a quadlet (*.container, *.volume,
    /// *.network) or a unit (*.service, *.timer), and says what it could not carry over.
    Import(Import),
}

/// A module from what ran before.
#[derive(Debug, Clone, ClapArgs)]
pub struct Import {
    /// The file; its name says what it is, and what lies beside it and belongs to it is read too.
    pub file: PathBuf,
    /// The module's name; that of the file, or of a compose file's folder, where it is left out.
    #[arg(long)]
    pub name: Option<ModuleName>,
    /// A role that brings it; may be given several times.
    #[arg(long = "role", value_name = "ROLE")]
    pub roles: Vec<RoleName>,
    /// Writes it although something could not be carried over, with comments that name what.
    #[arg(long)]
    pub partial: bool,
    /// The fleet's repository.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
}

/// Runs the command. [`Exit::Refused`] when there is such a module already, [`Exit::No`] when the fleet would not
/// check with it.
///
/// # Errors
/// A file cannot be read or written.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (name, roles, nodes, description, dir) = match &args.verb {
        Verb::New {
            name,
            roles,
            nodes,
            description,
            dir,
        } => (name, roles, nodes, description, dir),
        Verb::Import(args) => return import(args, out),
    };
    let Some(mut change) = Change::begin(dir, out)? else {
        return Ok(Exit::Usage);
    };
    let folder = format!("modules/{name}");
    if is_there(&change, &folder, out)? {
        return Ok(Exit::Refused);
    }
    change.write(
        format!("{folder}/files/{name}.conf.j2"),
        "# {{ node.name }}: kept by meshplan, changes here are undone\ngreeting = {{ settings.greeting }}\n",
    );
    let path = format!("{folder}/module.toml");
    let text = format!(
        "{}{}",
        schema_line(&path, "module"),
        module_toml(name, roles, description.as_deref())
    );
    change.write(path.as_str(), text);
    for node in nodes {
        let Some((path, text)) = with_module(&change, node, name)? else {
            writeln!(
                out,
                "there is no record of the node `{node}`: `meshplan node add {node}` makes one"
            )?;
            return Ok(Exit::No);
        };
        change.write(path, text);
    }
    let exit = change.carry_out(out)?;
    if exit == Exit::Done {
        writeln!(
            out,
            "{path}: a setting and a file to begin with; `meshplan schema module` says what else it may hold"
        )?;
        if roles.is_empty() && nodes.is_empty() {
            writeln!(
                out,
                "no node has it yet: give it `roles`, or name it in the `modules` of a record"
            )?;
        }
    }
    Ok(exit)
}

/// Says so where the module's folder has something in it.
fn is_there(change: &Change, folder: &str, out: &mut dyn Write) -> anyhow::Result<bool> {
    let below = format!("{folder}/");
    let there = change.tree().iter().any(|(path, _)| path.starts_with(&below));
    if there {
        writeln!(out, "{folder} is there already")?;
    }
    Ok(there)
}

/// FR-14. [`Exit::No`] when something could not be carried over and `--partial` was not given, or the fleet would not
/// check with the module.
fn import(args: &Import, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let file = args.file.file_name().unwrap_or_default().to_string_lossy();
    let Some(form) = Form::of(&file) else {
        writeln!(
            out,
            "{}: by its name this is no compose file (*.yml, *.yaml), no quadlet (*.container, *.volume, *.network) \
             and no unit (*.service, *.timer)",
            args.file.display()
        )?;
        return Ok(Exit::Usage);
    };
    let folder = match args.file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let source = match read_source(&args.file)? {
        Ok(source) => source,
        Err(finding) => return refuse(&[finding], out),
    };
    let whole = fs::canonicalize(folder).with_context(|| format!("cannot find {}", folder.display()))?;
    let folder_name = whole.file_name().unwrap_or_default().to_string_lossy();
    let name = args.name.clone();
    let Some(name) = name.or_else(|| import::suggested_name(form, &file, &folder_name)) else {
        writeln!(
            out,
            "the file's name gives no name for a module: say one with --name"
        )?;
        return Ok(Exit::Usage);
    };
    let Some(mut change) = Change::begin(&args.dir, out)? else {
        return Ok(Exit::Usage);
    };
    if is_there(&change, &format!("modules/{name}"), out)? {
        return Ok(Exit::Refused);
    }
    let beside = read_beside(folder, form)?;
    let request = Request {
        name: &name,
        roles: &args.roles,
        form,
        file: &file,
        folder: &folder_name,
        source: &source,
        beside: &beside,
    };
    let made = match import::import(&request) {
        Ok(made) => made,
        Err(findings) => return refuse(&findings, out),
    };
    if !made.left_out.is_empty() && !args.partial {
        let exit = refuse(&made.left_out, out)?;
        writeln!(
            out,
            "`--partial` writes the module without what is named here, and names it in comments"
        )?;
        return Ok(exit);
    }
    let path = format!("modules/{name}/module.toml");
    let text = format!("{}{}", schema_line(&path, "module"), made.module_toml);
    change.write(path.as_str(), text);
    let exit = change.carry_out(out)?;
    if exit == Exit::Done {
        report(&path, &made, args, out)?;
    }
    Ok(exit)
}

fn report(path: &str, made: &Imported, args: &Import, out: &mut dyn Write) -> anyhow::Result<()> {
    for finding in &made.left_out {
        writeln!(out, "{}\n", finding.clone().warning().render(false))?;
    }
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let (resources, left) = (made.resources, made.left_out.len());
    writeln!(
        out,
        "{path}: {resources} resource{} from {}; {left} thing{} not carried over",
        s(resources),
        args.file.display(),
        s(left)
    )?;
    if args.roles.is_empty() {
        writeln!(
            out,
            "no node has it yet: give it `roles`, or name it in the `modules` of a record"
        )?;
    }
    Ok(())
}

fn refuse(findings: &[Finding], out: &mut dyn Write) -> anyhow::Result<Exit> {
    for finding in findings {
        writeln!(out, "{}\n", finding.render(false))?;
    }
    writeln!(out, "nothing is written")?;
    Ok(Exit::No)
}

/// The file, at most one byte more than may be imported: who reads it says that it is too large.
fn read_source(path: &Path) -> anyhow::Result<Result<Source, Finding>> {
    let cannot = || format!("cannot read {}", path.display());
    let file = fs::File::open(path).with_context(cannot)?;
    let mut bytes = Vec::new();
    file.take(u64::try_from(FILE_BYTES)? + 1)
        .read_to_end(&mut bytes)
        .with_context(cannot)?;
    Ok(Source::new(&path.display().to_string(), bytes.into()))
}

/// The files beside it that may belong to it, by name.
fn read_beside(folder: &Path, form: Form) -> anyhow::Result<BTreeMap<String, Source>> {
    let mut names = Vec::new();
    if !form.beside().is_empty() {
        let cannot = || format!("cannot read {}", folder.display());
        for entry in fs::read_dir(folder).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let fits = form
                .beside()
                .iter()
                .any(|end| name.rsplit_once('.').is_some_and(|(_, of)| of == *end));
            if fits && entry.path().is_file() {
                names.push(name);
            }
        }
    }
    names.sort();
    anyhow::ensure!(
        names.len() <= FILES_BESIDE,
        "{} files lie beside it: copy what belongs to it into a folder of its own",
        names.len()
    );
    let mut beside = BTreeMap::new();
    for name in names {
        if let Ok(source) = read_source(&folder.join(&name))? {
            beside.insert(name, source);
        }
    }
    Ok(beside)
}

fn module_toml(name: &ModuleName, roles: &[RoleName], description: Option<&str>) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let quoted = |names: &[RoleName]| {
        let names: Vec<String> = names.iter().map(|name| text(name.as_str())).collect();
        format!("[{}]", names.join(", "))
    };
    format!(
        "description = {description}
roles = {roles}                        # nodes with one of these have the module; a record can also name it

[settings.greeting]                     # a value for templates: `[vars]` of a record or of fleet.toml gives another
type = \"string\"
default = \"hello\"

[[directory]]
id = \"folder\"
path = \"/etc/{name}\"
mode = \"0755\"

[[file]]
id = \"conf\"
path = \"/etc/{name}/{name}.conf\"
source = \"files/{name}.conf.j2\"         # rendered: its name ends in .j2
mode = \"0644\"
",
        description = text(description.unwrap_or("To be said: what this is for")),
        roles = quoted(roles),
    )
}

/// The record of a node with one module more; none where the node has no record.
fn with_module(
    change: &Change,
    node: &NodeName,
    module: &ModuleName,
) -> anyhow::Result<Option<(String, String)>> {
    let file = format!("/{node}.toml");
    let record = change.tree().iter().find(|(path, _)| {
        path.starts_with("nodes/") && !path.starts_with("nodes/revoked/") && path.ends_with(&file)
    });
    let Some((path, entry)) = record else {
        return Ok(None);
    };
    let text = in_place::edit(path, &entry.bytes, |document| {
        match document.get_mut("modules") {
            Some(Item::Value(Value::Array(modules))) => in_place::push(modules, module.as_str()),
            Some(_) => anyhow::bail!("`modules` of {path} is no array"),
            // Before the first table: after it, it would be a key of that table.
            None => document["modules"] = value(std::iter::once(module.as_str()).collect::<Array>()),
        }
        Ok(())
    })?;
    Ok(Some((path.to_owned(), text)))
}
