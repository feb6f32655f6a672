//! What all templates of a tree may take together.

use crate::pure::example::generate;
use crate::pure::parse::parse;
use crate::pure::secrets::{Secrets, Unopened};
use crate::pure::source_tree::{EntryKind, SourceTree};
use crate::pure::validate::validate;

use super::*;

// holds: FR-8
#[test]
fn the_templates_of_a_tree_have_steps_and_bytes_together() {
    let entries = generate(2, 1).into_iter().map(|(path, bytes)| {
        let bytes: Arc<[u8]> = bytes.into();
        (path.into_bytes(), EntryKind::Blob, bytes)
    });
    let (tree, _) = SourceTree::from_entries(entries.collect());
    let validated = validate(parse(&tree).0).unwrap();
    let (name, module) = validated
        .modules()
        .iter()
        .find(|(name, _)| name.as_str() == "host")
        .unwrap();
    let templates = Templates::compile(module).unwrap();
    let secrets = Arc::new(Secrets::of(&tree, &(Arc::new(Unopened) as Arc<_>)).within(name));
    let shared = Shared::of(&validated, false);
    let record = &validated.nodes()[0];
    let render = |budget: &mut Budget| {
        templates.render(
            "files/hosts.j2",
            |secret| shared.context(record, &[], secret),
            budget,
            &secrets,
        )
    };

    let mut budget = Budget::after(Spent::default());
    let bytes = render(&mut budget).unwrap().bytes.len();
    let once = budget.spent();
    assert_eq!(once.bytes, bytes);
    assert!(once.steps > 5, "{once:?}");
    render(&mut budget).unwrap();
    assert_eq!(budget.spent().steps, 2 * once.steps, "each rendering counts");

    // To the last step, and not one more.
    let but = |steps: u64| Spent {
        bytes: 0,
        steps: TEMPLATE_TREE_FUEL - steps,
    };
    render(&mut Budget::after(but(once.steps))).unwrap();
    let error = render(&mut Budget::after(but(once.steps - 1))).unwrap_err();
    assert_eq!(
        error.message,
        "all templates of the tree together do more than 1000000000 steps of work"
    );
    assert!(!error.is_closed());
    // What fails is not free of charge, and where nothing is left nothing is begun.
    let mut spent = Budget::after(but(once.steps - 1));
    render(&mut spent).unwrap_err();
    assert_eq!(spent.spent().steps, TEMPLATE_TREE_FUEL + 1);
    render(&mut spent).unwrap_err();
    assert_eq!(spent.spent().steps, TEMPLATE_TREE_FUEL + 1);
    let full = Spent {
        bytes: TEMPLATE_TREE_BYTES - bytes + 1,
        steps: 0,
    };
    let mut spent = Budget::after(full);
    let error = render(&mut spent).unwrap_err();
    assert!(spent.spent().steps >= once.steps, "{:?}", spent.spent());
    assert!(
        error
            .message
            .starts_with("all templates of the tree together put out more than"),
        "{error:?}"
    );
}
