//! Modules that compose only with what this version does not carry yet: they are left out of declarations with the
//! reason, the others go on (FR-8, HR-7).

use std::ops::Range;

use meshplan_schemas::document::module::{BundleSource, Entry};
use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::ModuleName;

use crate::pure::source_tree::{COMPONENT_FAULT, COMPONENT_FILES};
use crate::pure::validate::Module;

/// Why a module is left out on every node that has it, and the place that says so; none when it is not.
pub(super) fn reason(name: &ModuleName, module: &Module) -> Option<(String, Finding)> {
    let not_carried = first_need(module);
    let not_carried = not_carried.map(|(needs, span)| {
        (
            format!("{needs}, which this version does not carry to nodes yet"),
            span,
        )
    });
    let (reason, span) = not_carried.or_else(|| no_component(module))?;
    let message = format!("the module `{name}` is left out on every node: {reason}");
    let finding = module.source.error(span.clone(), message);
    Some((reason, finding.warning()))
}

fn first_need(module: &Module) -> Option<(String, &Range<usize>)> {
    let secret =
        |at: &meshplan_schemas::document::read::At<meshplan_schemas::document::texts::SecretName>| {
            format!(
                "it needs the secret `{}` as the environment of a program",
                at.value
            )
        };
    module.file.entries().into_iter().find_map(|entry| match entry {
        Entry::Process(r) => r.env_secrets.first().map(|at| (secret(at), &at.span)),
        Entry::Archive(r) if r.source.is_none() => Some((
            "it needs an archive that is named by its digest alone".to_owned(),
            &r.path.span,
        )),
        _ => None,
    })
}

/// Why a module has nothing of its component, where it needs that.
fn no_component(module: &Module) -> Option<(String, &Range<usize>)> {
    let mut bundles = module.file.bundles.iter();
    let bundle = bundles.find(|bundle| bundle.source.value == BundleSource::Component)?;
    if module.files.keys().any(|path| path.starts_with(COMPONENT_FILES)) {
        return None;
    }
    let why = match module.files.get(COMPONENT_FAULT) {
        Some(why) => String::from_utf8_lossy(why).into_owned(),
        None => "no commit of its component is known here: the reconciler puts it in".to_owned(),
    };
    Some((why, &bundle.source.span))
}
