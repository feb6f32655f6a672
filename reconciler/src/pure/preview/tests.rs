//! Previews of edits to generated fleets.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::modules::How;
use super::text::{PREVIEW_CHARS, lines};
use super::*;
use crate::pure::compose::compose_tree;
use crate::pure::example::generate;
use crate::pure::source_tree::{EntryKind, SourceTree};

type Files = Vec<(String, Vec<u8>)>;

fn compose(files: &Files) -> Composed {
    let entries = files.iter().map(|(path, bytes)| {
        let bytes: Arc<[u8]> = Arc::from(bytes.as_slice());
        (path.clone().into_bytes(), EntryKind::Blob, bytes)
    });
    let (tree, findings) = SourceTree::from_entries(entries.collect());
    assert_eq!(findings, []);
    match compose_tree(&tree, None, None) {
        Ok(composed) => composed,
        Err(error) => panic!("{error:#?}"),
    }
}

/// Replaces text in the one file that ends so.
fn edit(files: &Files, file: &str, from: &str, to: &str) -> Files {
    let mut files = files.clone();
    let (_, bytes) = files.iter_mut().find(|(path, _)| path.ends_with(file)).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    *bytes = text.replace(from, to).into_bytes();
    files
}

fn of(before: &Files, after: &Files) -> Preview {
    preview(Some(&compose(before)), &compose(after)).unwrap()
}

fn text(preview: &Preview) -> String {
    lines(preview).into_iter().map(|line| line.text + "\n").collect()
}

/// An edit of a generated fleet, by number; none changes what a fleet without it has.
fn edited(files: &Files, which: usize) -> Files {
    match which {
        0 => files.clone(),
        1 => edit(files, "base/files/motd", "kept", "looked after"),
        2 => edit(files, "host/files/hosts.j2", "site =", "place ="),
        3 => edit(files, "n00001.toml", "site = \"", "site = \"new-"),
        4 => edit(files, "policy/base.toml", "300", "60"),
        5 => edit(files, "roles/web.toml", "splay_secs", "retry_min_secs"),
        6 => edit(files, "plans/default.toml", "\"25%\"", "2"),
        7 => edit(files, "fleet.toml", "example.net", "example.org"),
        8 => edit(
            files,
            "fleet.toml",
            "[vars]",
            "[config_mgmt]\nconfirm_secs = 90\n[vars]",
        ),
        9 => edit(files, "n00000.toml", "\"host\"", ""),
        10 => files
            .iter()
            .filter(|(path, _)| !path.ends_with("n00002.toml"))
            .cloned()
            .collect(),
        11 => edit(files, "base/module.toml", "0750", "0755"),
        12 => edit(files, "dns/module.toml", "localhost:8080", "localhost:53"),
        13 => edit(
            files,
            "n00003.toml",
            "[vars]",
            "update_class = \"best_effort\"\n[vars]",
        ),
        14 => edit(
            files,
            "base/module.toml",
            "[[directory]]",
            "[[directory]]\nmode = \"0750\"\nid = \"more\"\npath = \"/var/more\"\n[[directory]]",
        ),
        _ => edit(
            files,
            "base/module.toml",
            "[[file]]",
            "mode = \"observe\"\n[[file]]",
        ),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // holds: DL-8
    #[test]
    fn equal_trees_change_nothing_and_what_is_not_named_has_equal_digests(
        nodes in 5_usize..12, seed in any::<u64>(), first in 0_usize..16, second in 0_usize..16
    ) {
        let files = generate(nodes, seed);
        let before = edited(&files, first);
        // Some edits exclude each other: the second is of the fleet as it was.
        let after = edited(&files, second);
        let same = of(&before, &before);
        prop_assert!(same.is_nothing(), "{same:?}");
        // A small made-up fleet may have a role that no record carries: a warning of the tree, and no change.
        prop_assert!(text(&same).starts_with("nothing changes in the fleet generated\n"), "{}", text(&same));

        let (old, new) = (compose(&before), compose(&after));
        let preview = preview(Some(&old), &new).unwrap();
        prop_assert_eq!(preview.is_nothing(), first == second, "{:?}", preview);
        let named: BTreeSet<_> = preview
            .modules
            .iter()
            .flat_map(|group| group.nodes.iter().map(|node| (node.clone(), group.module.clone())))
            .collect();
        for node in old.nodes.values() {
            let Some(is) = new.nodes.get(&node.id) else { continue };
            for module in node.modules.keys().chain(is.modules.keys()) {
                let digest = |node: &crate::pure::compose::ComposedNode| node.modules.get(module).map(|(d, _)| *d);
                let differs = digest(node) != digest(is);
                prop_assert_eq!(differs, named.contains(&(node.name.clone(), module.clone())));
            }
        }
        prop_assert_eq!(old.policy_digest != new.policy_digest, !preview.policy.is_empty());
        if preview.members.is_empty() && preview.fleet_file.is_empty() {
            prop_assert_eq!(old.list_digest, new.list_digest);
        }
        if preview.plans.is_empty() && preview.fleet_file.is_empty() {
            prop_assert_eq!(old.gate_digest, new.gate_digest);
        }
    }
}

// holds: DL-8
#[test]
fn an_equal_change_is_shown_once_and_what_is_unlike_the_rest_comes_first() {
    let files = generate(12, 1);
    let after = edit(&files, "hosts.j2", "site = ", "place = ");
    let after = edit(&after, "n00004.toml", "site = \"", "site = \"new-");
    let preview = of(&files, &after);
    assert_eq!(
        preview.modules.len(),
        5,
        "one a site, and one of the node that moved: {preview:#?}"
    );
    assert_eq!(preview.modules[0].nodes, ["n00004".parse().unwrap()]);
    let counts: Vec<_> = preview.modules.iter().map(|group| group.nodes.len()).collect();
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 12);
    let unlike = preview.modules.iter().find(|group| group.unlike).unwrap();
    assert!(unlike.nodes.contains(&unlike.shown));
    let line = format!("name = {}.example.net", unlike.shown);
    assert!(unlike.resources[0].texts[0].lines.contains(&line), "{unlike:?}");

    let preview = of(&files, &edit(&files, "base/files/motd", "kept", "looked after"));
    assert_eq!(preview.modules.len(), 1);
    let said = text(&preview);
    assert!(said.contains("module base changes on all 12 nodes\n"), "{said}");
    assert!(said.contains("- This machine is kept by meshplan.\n"), "{said}");
    assert!(
        said.contains("+ This machine is looked after by meshplan.\n"),
        "{said}"
    );
}

// holds: FR-12
#[test]
fn what_goes_is_a_removal_unless_another_resource_has_its_target() {
    let files = generate(4, 1);
    let motd = "[[file]]\nid = \"motd\"\npath = \"/etc/motd\"\nsource = \"files/motd\"\n";
    let gone = edit(&files, "base/module.toml", motd, "");
    let preview = of(&files, &gone);
    assert_eq!(preview.removals.len(), 1);
    assert_eq!(preview.removals[0].target.as_deref(), Some("/etc/motd"));
    assert_eq!(preview.removals[0].nodes.len(), 4);
    assert!(text(&preview).contains("Removals (1)\n  - file base.motd /etc/motd on 4 nodes: n00000,"));

    let moved = edit(
        &gone,
        "host/module.toml",
        "[[file]]",
        "[[file]]\nid = \"hello\"\npath = \"/etc/motd\"\ncontent = \"\"\n[[file]]",
    );
    let preview = of(&files, &moved);
    assert_eq!(preview.removals, []);
    assert!(
        text(&preview).contains("host.hello has it from here on: it stays"),
        "{}",
        text(&preview)
    );
}

// holds: DL-8
#[test]
fn the_walk_is_that_of_the_plan_with_its_numbers_resolved() {
    let files = generate(8, 1);
    let preview = of(&files, &edit(&files, "base/files/motd", "kept", "looked after"));
    let walk = preview.walk.clone().unwrap();
    assert_eq!(walk.plan, Some("default".parse().unwrap()));
    assert_eq!(walk.machines, 8);
    let stages: Vec<_> = walk
        .stages
        .iter()
        .map(|s| (s.name.as_str(), s.machines, s.waves))
        .collect();
    assert_eq!(stages, [("canary", 1, 1), ("rest", 7, 7)]);
    assert!(
        walk.stages[0].nodes.is_none(),
        "a hash of a commit that is not made yet chooses"
    );
    assert!(walk.stages[1].nodes.is_none(), "nor is it known who is left");
    let said = text(&preview);
    assert!(
        said.contains("1. canary: 1 machine, chosen by hash when it starts\n"),
        "{said}"
    );
    assert!(
        said.contains("3 healthy looks 50s apart within 10m; failed or silent: roll-back\n"),
        "{said}"
    );

    let named = edit(
        &files,
        "plans/default.toml",
        "share = \"1%\"",
        "nodes = [\"n00003\"]",
    );
    let after = edit(&named, "base/files/motd", "kept", "looked after");
    let walk = of(&named, &after).walk.unwrap();
    assert_eq!(walk.stages[0].nodes, Some(vec!["n00003".parse().unwrap()]));
    let after = edit(&named, "n00005.toml", "site = \"", "site = \"new-");
    let walk = of(&named, &after).walk.unwrap();
    assert_eq!(walk.machines, 1);
    assert!(
        walk.stages[0]
            .line
            .as_ref()
            .unwrap()
            .contains("n00005 goes first instead"),
        "{walk:?}"
    );
}

// holds: DL-8, DL-15
#[test]
fn a_change_of_the_plan_is_walked_by_the_stages_and_waits_for_the_gates_of_before() {
    let files = generate(8, 1);
    let before = edit(
        &files,
        "plans/default.toml",
        "share = \"1%\"",
        "nodes = [\"n00003\"]",
    );
    let strict = edit(&before, "plans/default.toml", "covers", "approvals = 2\ncovers");
    let after = edit(&before, "plans/default.toml", "n00003", "n00005");
    let after = edit(&after, "base/files/motd", "kept", "looked after");
    let preview = of(&strict, &after);
    let walk = preview.walk.clone().unwrap();
    assert_eq!(walk.stages[0].nodes, Some(vec!["n00003".parse().unwrap()]));
    assert!(walk.gate.contains(&"2 approvals".to_owned()), "{:?}", walk.gate);
    let said = text(&preview);
    assert!(
        said.contains("the stages are those of the plan default as it was before\n"),
        "{said}"
    );
    let same = of(&before, &edit(&before, "base/files/motd", "kept", "looked after"));
    assert_eq!(same.walk.unwrap().lines, [""; 0]);
}

// holds: DL-8
#[test]
fn policy_is_shown_with_old_and_new_value_for_base_and_for_each_role() {
    let files = generate(6, 1);
    let after = edit(&files, "policy/base.toml", "300", "60");
    let after = edit(&after, "roles/edge.toml", "= 1", "= 9");
    let said = text(&of(&files, &after));
    assert!(
        said.contains("  policy/base.toml\n    scheduler.reconcile_secs 300 -> 60\n"),
        "{said}"
    );
    assert!(
        said.contains("  policy/roles/edge.toml\n    scheduler.splay_secs 1 -> 9\n"),
        "{said}"
    );
    assert!(said.contains("Policy, another on 6 nodes\n"), "{said}");
}

#[test]
fn nodes_that_come_and_go_are_said_in_words() {
    let files = generate(6, 1);
    let mut after = edited(&files, 10);
    let id = "0192f0c1-0000-4000-8000-00000000abcd";
    after.push((
        "nodes/new.toml".to_owned(),
        format!("id = \"{id}\"\nroles = [\"edge\"]\n").into_bytes(),
    ));
    let preview = of(&files, &after);
    let said = text(&preview);
    assert!(
        said.starts_with("the fleet generated: 6 nodes, 2 of them change\n"),
        "{said}"
    );
    assert!(
        said.contains("  n00002: removed: no order reaches it any more\n"),
        "{said}"
    );
    assert!(
        said.contains("  new: added, invited, not yet enrolled\n"),
        "{said}"
    );
    let first = super::preview(None, &compose(&files)).unwrap();
    assert!(first.modules.iter().all(|group| group.how == How::New));
}

// holds: DL-8
#[test]
fn what_is_too_long_is_cut_and_counted() {
    let files = generate(40, 1);
    let long: String = (0..2000)
        .map(|n| format!("line {n} of {{{{ node.name }}}}\n"))
        .collect();
    let after = edit(&files, "hosts.j2", "name =", &format!("{long}name ="));
    let preview = of(&files, &after);
    let lines = lines(&preview);
    let chars: usize = lines.iter().map(|line| line.text.chars().count() + 1).sum();
    assert!(chars <= PREVIEW_CHARS, "{chars}");
    let said = text(&preview);
    assert!(
        said.contains("1940 more lines; in all 0 lost, 2000 new") || said.contains("more lines; in all"),
        "{said}"
    );
    assert!(said.contains("  not shown: "), "{said}");
    assert!(
        said.contains("Walked by the plan default"),
        "what is short is not cut for what is long:\n{said}"
    );
}

#[test]
fn text_of_a_fleet_cannot_speak_to_a_terminal() {
    let files = generate(4, 1);
    let said = text(&of(
        &files,
        &edit(&files, "base/files/motd", "kept", "\u{1b}[2Jkept\r"),
    ));
    assert!(!said.contains('\u{1b}') && !said.contains('\r'), "{said}");
    assert!(said.contains("\\u{1b}[2Jkept"), "{said}");
}

// holds: DL-8, UC-1
#[test]
fn who_is_only_told_and_who_is_left_behind_is_said_with_the_stages() {
    let class =
        |files: &Files, node: &str, lines: &str| edit(files, node, "[vars]", &format!("{lines}\n[vars]"));
    let files = generate(8, 1);
    let files = class(&files, "n00003.toml", "update_class = \"best_effort\"");
    let files = class(&files, "n00004.toml", "update_class = \"left_behind\"");
    let files = class(
        &files,
        "n00005.toml",
        "update_class = \"left_behind\"\npinned = true",
    );
    let preview = of(&files, &edit(&files, "base/files/motd", "kept", "looked after"));
    let walk = preview.walk.clone().unwrap();
    assert_eq!(walk.machines, 6);
    let told: Vec<_> = walk.stages.iter().map(|s| (s.machines, s.best_effort)).collect();
    assert_eq!(told, [(1, 0), (5, 1)]);
    let said = text(&preview);
    assert!(
        said.contains("1 of them best effort: told and not awaited\n"),
        "{said}"
    );
    assert!(
        said.contains("left behind, in no stage: 2 nodes: n00004, n00005\n"),
        "{said}"
    );

    let policy = edit(&files, "policy/base.toml", "300", "60");
    let newer = edit(
        &policy,
        "fleet.toml",
        "[vars]",
        "[config_mgmt]\nmin_daemon_version = \"1.2.0\"\n[vars]",
    );
    let said = text(&of(&files, &newer));
    assert!(
        said.contains("needs hosts of version 1.2.0: a required machine with an older one counts as failed"),
        "{said}"
    );
}

fn with_check(files: &Files, text: &str) -> Files {
    let mut files = files.clone();
    files.push(("checks/motd.toml".to_owned(), text.as_bytes().to_vec()));
    files
}

// holds: FR-11, DL-8
#[test]
fn a_check_that_goes_or_is_another_is_shown_and_asked_of_the_tree_after() {
    const CHECK: &str = "[[check]]\nname = \"everybody is greeted\"\nhas = \"base.motd\"\n";
    let files = generate(4, 1);
    let before = with_check(&files, CHECK);
    let motd = "[[file]]\nid = \"motd\"\npath = \"/etc/motd\"\nsource = \"files/motd\"\n";
    let without = edit(&files, "base/module.toml", motd, "");

    // It goes, with what it is about.
    let preview = of(&before, &without);
    assert_eq!(preview.checks.len(), 1);
    assert_eq!(preview.failing_checks().count(), 1);
    let said = text(&preview);
    assert!(
        said.contains(
            "Checks (1)\n  - `everybody is greeted` (checks/motd.toml:2) goes\n      as it was, the check `everybody is \
             greeted` fails: n00003 has no `base.motd`, and so on 3 more; the delivery waits for a go\n"
        ),
        "{said}"
    );

    // It becomes one that holds: as it was it fails.
    let weaker = CHECK.replace("base.motd", "base.state");
    let preview = of(&before, &with_check(&without, &weaker));
    assert_eq!((preview.checks.len(), preview.checks[0].how), (1, How::Changed));
    assert_eq!(preview.failing_checks().count(), 1);

    // It goes and would hold; it comes; it only moves to another file.
    let preview = of(&before, &files);
    assert_eq!(
        (preview.checks[0].how, preview.failing_checks().count()),
        (How::Gone, 0)
    );
    let preview = of(&files, &before);
    assert_eq!(
        (preview.checks[0].how, preview.failing_checks().count()),
        (How::New, 0)
    );
    let mut moved = files.clone();
    moved.push(("checks/other.toml".to_owned(), CHECK.as_bytes().to_vec()));
    assert!(of(&before, &moved).is_nothing());
}
