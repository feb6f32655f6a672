//! `meshplan schema`: the JSON Schema of a kind of document, for editors (FR-2).

use std::io::Write;

use clap::Args as ClapArgs;
use meshplan_schemas::document::published;
use meshplan_schemas::finding::did_you_mean;

use super::exit::Exit;

/// Prints the JSON Schema of a kind of document; without a name the names.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// checks, fleet, module, node, plan, policy, retired or rotations.
    pub name: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// Nothing can be written to `out`.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Some(name) = &args.name else {
        for name in published::NAMES {
            writeln!(out, "{name}")?;
        }
        return Ok(Exit::Done);
    };
    if let Some(schema) = published::schema(name) {
        out.write_all(schema.as_bytes())?;
        return Ok(Exit::Done);
    }
    let hint = did_you_mean(name, published::NAMES).unwrap_or_else(|| published::NAMES.join(", "));
    writeln!(out, "there is no document `{name}`: {hint}")?;
    Ok(Exit::Usage)
}
