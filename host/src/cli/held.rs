//! `held` and `take MODULE`: what stands at a declared place and is not the host's (HR-8, HR-12).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt as _;

use anyhow::Context as _;
use meshplan_schemas::ident::ModuleName;
use meshplan_schemas::report::ResourceLine;
use serde_json::json;

use super::exit::Exit;
use super::look::{look, machine};
use super::{Answer, Failure, Place};
use crate::edge::agent::{REQUESTS, TAKE};
use crate::edge::identity::keep;

pub(super) fn held(place: &Place) -> Result<Answer, Failure> {
    look(place)?;
    let held = machine(place)?.held();
    let mut modules: BTreeMap<&ModuleName, Vec<&ResourceLine>> = BTreeMap::new();
    for line in &held {
        modules.entry(&line.name.module).or_default().push(line);
    }
    let mut words = String::new();
    for (module, lines) in &modules {
        // Writing to a text does not fail.
        let _written = writeln!(words, "{module} is assigned and not taken:\n{}", listed(lines));
    }
    if held.is_empty() {
        words.push_str("nothing is held\n");
    } else {
        words.push_str("ask to take a module over with `meshplan-host take MODULE`\n");
    }
    Ok(Answer {
        exit: Exit::Done,
        words,
        json: json!({ "held": held }),
    })
}

pub(super) fn take(place: &Place, module: &str) -> Result<Answer, Failure> {
    let module: ModuleName = module
        .parse()
        .with_context(|| format!("`{module}` is no module's name"))
        .map_err(|e| Failure::new(Exit::Usage, e))?;
    look(place)?;
    let held = machine(place)?.held();
    let lines: Vec<&ResourceLine> = held.iter().filter(|l| l.name.module == module).collect();
    if lines.is_empty() {
        return Err(Failure::new(
            Exit::No,
            anyhow::anyhow!(
                "nothing of `{module}` is held on this machine; `meshplan-host held` lists what is"
            ),
        ));
    }
    let folder = place.state_dir().join(REQUESTS);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .and_then(|()| keep(&folder.join(format!("{TAKE}{module}")), b"\n"))
        .context("the request cannot be written; run this as root")
        .map_err(|e| Failure::new(Exit::Internal, e))?;
    let words = format!(
        "{module} would take over:\n{}the next report asks for it; it is done once the change of the record is merged\n",
        listed(&lines)
    );
    Ok(Answer {
        exit: Exit::Done,
        words,
        json: json!({ "module": module, "held": lines }),
    })
}

fn listed(lines: &[&ResourceLine]) -> String {
    lines
        .iter()
        .map(|line| format!("  {}: {}\n", line.name, line.reason))
        .collect()
}
