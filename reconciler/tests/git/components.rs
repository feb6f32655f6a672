//! Components beside the fleet's branch: fetched, and put together with its tree out of git's own objects (DL-1, FR-8).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::{Arc, Mutex};

use meshplan_reconciler::edge::activation::Waker;
use meshplan_reconciler::edge::health::Health;
use meshplan_reconciler::edge::mirror::{Content, EntryKind, MergedTree, Mirror, Remote, With};
use meshplan_reconciler::edge::repository::{FleetRepo as _, Made, Repository};
use meshplan_reconciler::edge::tree_reader::TreeReader;
use meshplan_reconciler::pure::compose::Expected;
use meshplan_reconciler::pure::decide::Tree;
use meshplan_reconciler::pure::parts::{Branch, Part, Parts};
use meshplan_schemas::ident::CommitId;

use super::world::World;

const FLEET: &str = "schema = 1\nfleet = \"acme\"\nbranch = \"main\"\n\n[[components]]\nrepo = \"acme/site\"\nbranch = \"site\"\n\
                     module = \"web\"\n";

fn site() -> Branch {
    Branch {
        repo: "acme/site".to_owned(),
        branch: "site".to_owned(),
    }
}

fn parts(fleet: &CommitId, site: Option<&CommitId>) -> Parts {
    let components = site.map(|commit| Part {
        of: self::site(),
        commit: commit.clone(),
    });
    Parts {
        fleet: fleet.clone(),
        components: components.into_iter().collect(),
    }
}

/// A fleet that names a component, whose branch has its own files only.
fn fleet(world: &World) -> CommitId {
    world.commit("fleet.toml", FLEET);
    world.commit("modules/web/module.toml", "description = \"x\"\n");
    world.commit("modules/web/.component/index.html", "forged");
    let fleet = world.head();
    world.push("HEAD:refs/heads/main");
    world.git(&world.work(), &["checkout", "--quiet", "--orphan", "site"]);
    world.git(&world.work(), &["rm", "--quiet", "-r", "-f", "."]);
    fleet
}

/// Pushes what stands in the work folder to the component's branch, and fetches it.
fn fetched(world: &World, mirror: &Mirror) -> CommitId {
    world.push("HEAD:refs/heads/site");
    let remote = Remote {
        branch: "site".to_owned(),
        ..world.remote()
    };
    mirror.fetch_component(&site(), &remote).unwrap().unwrap()
}

fn shown(mirror: &mut Mirror, commit: &CommitId) -> BTreeMap<String, (bool, String)> {
    let entries = mirror.read_tree(commit).unwrap().into_iter();
    let entry = |entry: meshplan_reconciler::edge::mirror::TreeEntry| {
        let Content::Bytes(bytes) = &entry.content else {
            panic!("{entry:?}")
        };
        let text = String::from_utf8_lossy(bytes).into_owned();
        let is_program = entry.kind == EntryKind::Blob { executable: true };
        (String::from_utf8(entry.path).unwrap(), (is_program, text))
    };
    entries.map(entry).collect()
}

// holds: DL-1, FR-3
#[test]
fn a_components_files_stand_in_the_folder_of_the_module_that_it_feeds_and_the_same_parts_are_the_same_tree() {
    let world = World::new();
    let fleet = fleet(&world);
    std::fs::create_dir(world.work().join("bin")).unwrap();
    std::fs::write(world.work().join("bin/run"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(world.work().join("bin/run"), Permissions::from_mode(0o755)).unwrap();
    world.commit("index.html", "one");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let commit = fetched(&world, &mirror);
    let allowed = BTreeSet::from([site()]);

    let joined = mirror.join(&parts(&fleet, Some(&commit)), &allowed).unwrap();
    assert!(joined.faults.is_empty(), "{joined:?}");
    let tree = shown(&mut mirror, &joined.commit);
    assert_eq!(
        tree["modules/web/.component/index.html"],
        (false, "one".to_owned())
    );
    assert!(tree["modules/web/.component/bin/run"].0, "{tree:?}");
    assert_eq!(tree["modules/web/module.toml"].1, "description = \"x\"\n");
    assert_eq!(tree["fleet.toml"].1, FLEET);
    let again = mirror.join(&parts(&fleet, Some(&commit)), &allowed).unwrap();
    assert_eq!(again, joined);

    // Another commit of it is other bytes in the same paths: what differs is found by comparing.
    world.git(&world.work(), &["checkout", "--quiet", "site"]);
    world.commit("index.html", "two");
    let newer = fetched(&world, &mirror);
    let newer = mirror.join(&parts(&fleet, Some(&newer)), &allowed).unwrap();
    let changed = mirror
        .read_changes(&joined.commit, &newer.commit)
        .unwrap()
        .unwrap();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].path, b"modules/web/.component/index.html");
}

// holds: DL-8
#[test]
fn what_a_merge_would_make_is_read_with_the_files_of_components_that_another_mirror_has() {
    let world = World::new();
    let fleet = fleet(&world);
    world.commit("index.html", "one");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let commit = fetched(&world, &mirror);
    world.git(
        &world.work(),
        &["checkout", "--quiet", "-b", "pull", fleet.as_str()],
    );
    world.commit("modules/web/module.toml", "description = \"y\"\n");
    let head: CommitId = world.head();
    world.push("HEAD:refs/pull/1/head");

    let folder = tempfile::tempdir().unwrap();
    let mut pulls = Mirror::open(&folder.path().join("pulls"), world.remote()).unwrap();
    pulls.fetch_pulls(&[(1, "refs/pull/1/head".to_owned())]).unwrap();
    let objects = mirror.path().join("objects");
    let (parts, allowed) = (parts(&fleet, Some(&commit)), BTreeSet::from([site()]));
    let with = With {
        objects: &objects,
        parts: &parts,
        allowed: &allowed,
    };
    let text = |entries: &[meshplan_reconciler::edge::mirror::TreeEntry], path: &str| {
        let entry = entries.iter().find(|entry| entry.path == path.as_bytes())?;
        match &entry.content {
            Content::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            other => panic!("{other:?}"),
        }
    };
    let (page, module) = ("modules/web/.component/index.html", "modules/web/module.toml");
    let base = pulls.read_base(&fleet, Some(with)).unwrap();
    assert_eq!(text(&base, page).as_deref(), Some("one"));
    let MergedTree::Tree(merged) = pulls.read_merge(&fleet, &head, Some(with)).unwrap() else {
        panic!("they do not conflict");
    };
    assert_eq!(text(&merged, page).as_deref(), Some("one"));
    assert_eq!(text(&merged, module).as_deref(), Some("description = \"y\"\n"));
    // Without them it is as it was, and what was read before went nowhere.
    let MergedTree::Tree(alone) = pulls.read_merge(&fleet, &head, None).unwrap() else {
        panic!("they do not conflict");
    };
    assert_eq!(text(&alone, page).as_deref(), Some("forged"));
}

// holds: DL-1, FR-8
#[test]
fn a_component_that_may_not_be_carried_leaves_the_reason_in_its_place() {
    let world = World::new();
    let fleet = fleet(&world);
    world.commit("index.html", "one");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let good = fetched(&world, &mirror);
    let allowed = BTreeSet::from([site()]);
    let mut why = |parts: &Parts, allowed: &BTreeSet<Branch>| {
        let joined = mirror.join(parts, allowed).unwrap();
        let tree = shown(&mut mirror, &joined.commit);
        assert!(
            !tree.contains_key("modules/web/.component/index.html"),
            "{tree:?}"
        );
        (
            tree["modules/web/.component-fault"].1.clone(),
            joined.faults.len(),
        )
    };
    let (said, faults) = why(&parts(&fleet, Some(&good)), &BTreeSet::new());
    assert!(
        said.contains("does not allow the component acme/site (site)"),
        "{said}"
    );
    assert_eq!(faults, 1);
    let (said, faults) = why(&parts(&fleet, None), &allowed);
    assert_eq!(said, "no commit of the component acme/site (site) is known yet");
    assert_eq!(faults, 0);

    let work = world.work();
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    type Spoil = fn(&std::path::Path, &str);
    let spoils: [(&str, Spoil); 4] = [
        ("link is a symbolic link", |work, _| {
            symlink("index.html", work.join("link")).unwrap();
        }),
        ("big is a git-lfs pointer", |work, lfs| {
            std::fs::write(work.join("big"), lfs).unwrap();
        }),
        ("index.html differs from INDEX.html only by case", |work, _| {
            std::fs::write(work.join("INDEX.html"), "").unwrap();
        }),
        ("more than 1 MiB of files", |work, _| {
            std::fs::write(work.join("large"), vec![0; 2 << 20]).unwrap();
        }),
    ];
    let bounded = {
        world.git(&work, &["checkout", "--quiet", "-B", "main", fleet.as_str()]);
        world.commit("fleet.toml", &format!("{FLEET}\n[limits]\nbundle_mib = 1\n"));
        world.push("HEAD:refs/heads/main");
        mirror.fetch().unwrap();
        world.head()
    };
    for (expected, spoil) in spoils {
        world.git(
            &work,
            &["checkout", "--quiet", "--force", "-B", "site", good.as_str()],
        );
        spoil(&work, lfs);
        world.git(&work, &["add", "--all"]);
        world.git(&work, &["commit", "--quiet", "-m", "spoilt"]);
        world.git(
            &work,
            &["push", "--quiet", "--force", "origin", "HEAD:refs/heads/site"],
        );
        let bad = fetched(&world, &mirror);
        let joined = mirror.join(&parts(&bounded, Some(&bad)), &allowed).unwrap();
        let tree = shown(&mut mirror, &joined.commit);
        let said = &tree["modules/web/.component-fault"].1;
        assert!(said.contains(expected), "{expected}: {said}");
        assert_eq!(joined.faults.get(&bad), Some(said));
        world.git(&work, &["clean", "--quiet", "-f", "-d"]);
    }
}

// holds: DL-1, FR-3
#[test]
fn a_component_that_stands_for_any_number_of_empty_folders_is_not_carried() {
    let world = World::new();
    let fleet = fleet(&world);
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let bomb = world.bomb("");
    world.git(&world.work(), &["reset", "--quiet", "--soft", bomb.as_str()]);
    let commit = fetched(&world, &mirror);
    let joined = mirror
        .join(&parts(&fleet, Some(&commit)), &BTreeSet::from([site()]))
        .unwrap();
    let said = &joined.faults[&commit];
    assert!(said.contains("more than 100000 files and folders"), "{said}");
    let tree = shown(&mut mirror, &joined.commit);
    assert_eq!(tree["modules/web/.component-fault"].1, *said);
}

// holds: DL-1
#[test]
fn one_components_name_may_begin_with_all_of_anothers() {
    let world = World::new();
    fleet(&world);
    world.commit("index.html", "one");
    let mirror = world.mirror();
    let commit = fetched(&world, &mirror);
    let remote = Remote {
        branch: "site".to_owned(),
        ..world.remote()
    };
    let longer = Branch {
        repo: "acme/site/site".to_owned(),
        branch: "main".to_owned(),
    };
    assert_eq!(mirror.fetch_component(&longer, &remote).unwrap(), Some(commit));
}

// holds: DL-1, FR-8
#[test]
fn whatever_a_component_brings_is_no_fault_of_the_fleets_tree() {
    let world = World::new();
    let authors =
        "\n[[authors]]\nid = \"example\"\nkey = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n";
    let bundle = "[[bundle]]\nid = \"site\"\npath = \"/srv/site\"\nsource = \"component\"\n";
    let record = "id = \"0192f0c1-0000-7000-8000-000000000001\"\nmodules = [\"web\"]\n";
    world.commit("fleet.toml", &format!("{FLEET}{authors}"));
    world.commit("modules/web/module.toml", bundle);
    world.commit("nodes/ace.toml", record);
    let fleet = world.head();
    world.push("HEAD:refs/heads/main");
    world.git(&world.work(), &["checkout", "--quiet", "--orphan", "site"]);
    world.git(&world.work(), &["rm", "--quiet", "-r", "-f", "."]);
    // A template that is none, a document that is none and too large for one, what looks like a secret.
    world.commit("page.j2", "{% if %}");
    world.commit("module.toml", &"x".repeat(2 << 20));
    world.commit("secrets/key.age", "none");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let site_at = fetched(&world, &mirror);
    let joined = mirror
        .join(&parts(&fleet, Some(&site_at)), &BTreeSet::from([site()]))
        .unwrap();
    assert!(joined.faults.is_empty(), "{joined:?}");
    let mut reader = TreeReader::new(Expected::default());
    let entries = reader.read(&mut mirror, &joined.commit).unwrap();
    let tree = match reader.compose(&joined.commit, entries) {
        Tree::Composed(tree) => tree,
        Tree::Invalid(why) | Tree::Gone(why) => panic!("{why}"),
    };
    let node = tree.nodes.values().next().unwrap();
    assert!(node.left_out.is_empty(), "{:?}", node.left_out);
}

// holds: DL-1, DL-12
#[test]
fn a_component_that_the_tree_names_no_more_may_be_gone_with_its_repository() {
    let world = World::new();
    let named = fleet(&world);
    world.git(
        &world.work(),
        &["checkout", "--quiet", "-B", "main", named.as_str()],
    );
    world.commit("fleet.toml", "schema = 1\nfleet = \"acme\"\nbranch = \"main\"\n");
    world.push("HEAD:refs/heads/main");
    let retired = world.head();
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let gone: CommitId = "0123456789012345678901234567890123456789".parse().unwrap();
    let allowed = BTreeSet::from([site()]);
    let joined = mirror.join(&parts(&retired, Some(&gone)), &allowed).unwrap();
    assert_eq!((&joined.commit, &joined.of), (&retired, &vec![retired.clone()]));
    // Where the configuration does not allow it any more, it is a fault; where it does, it must be there.
    let joined = mirror
        .join(&parts(&named, Some(&gone)), &BTreeSet::new())
        .unwrap();
    assert_eq!(joined.faults.len(), 1);
    assert!(mirror.join(&parts(&named, Some(&gone)), &allowed).is_err());
}

// holds: DL-1, DL-2
#[test]
fn a_tree_that_is_kept_is_that_of_the_parts_that_are_asked_for() {
    let world = World::new();
    let authors =
        "\n[[authors]]\nid = \"example\"\nkey = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n";
    let bundle = "[[bundle]]\nid = \"site\"\npath = \"/srv/site\"\nsource = \"component\"\n";
    let record = "id = \"0192f0c1-0000-7000-8000-000000000001\"\nmodules = [\"web\"]\n";
    world.commit("fleet.toml", &format!("{FLEET}{authors}"));
    world.commit("modules/web/module.toml", bundle);
    let before = world.head();
    world.commit("nodes/ace.toml", record);
    let fleet = world.head();
    world.push("HEAD:refs/heads/main");
    world.git(&world.work(), &["checkout", "--quiet", "--orphan", "site"]);
    world.git(&world.work(), &["rm", "--quiet", "-r", "-f", "."]);
    world.commit("index.html", "one");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let good = fetched(&world, &mirror);
    symlink("index.html", world.work().join("link")).unwrap();
    world.commit("index.html", "two");
    let bad = fetched(&world, &mirror);
    let remote = world.remote();
    let waker = Waker::default;
    let mut repository = Repository::new(
        Arc::new(Mutex::new(mirror)),
        "fleet",
        Expected::default(),
        60,
        waker(),
        waker(),
    )
    .with_components(BTreeMap::from([(site(), remote)]));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let health = Health::default();
    let made = |commit: &CommitId, site: Option<&CommitId>, is_open| Made {
        commit: commit.clone(),
        parts: parts(&fleet, site),
        is_open,
    };
    let mut left_out = |made: &Made| match runtime.block_on(repository.tree(made, &health)).unwrap() {
        Tree::Composed(tree) => Ok(tree.nodes.values().map(|node| node.left_out.len()).sum::<usize>()),
        Tree::Invalid(why) | Tree::Gone(why) => Err(why),
    };
    // The fleet's commit becomes known once more, now with the component's in its tree.
    assert_eq!(left_out(&made(&fleet, None, true)), Ok(1));
    assert_eq!(left_out(&made(&fleet, Some(&good), true)), Ok(0));
    assert_eq!(left_out(&made(&fleet, Some(&good), false)), Ok(0));
    // One that may not be carried is no order; when it is over its tree is one without the module.
    let why = left_out(&made(&bad, Some(&bad), true)).unwrap_err();
    assert!(why.contains("is a symbolic link"), "{why}");
    assert_eq!(left_out(&made(&bad, Some(&bad), false)), Ok(1));
    assert!(left_out(&made(&bad, Some(&bad), true)).is_err());

    let from = Made {
        commit: before.clone(),
        parts: parts(&before, None),
        is_open: false,
    };
    let mut brought = |of: &Made| {
        let brought = runtime.block_on(repository.brought(&from, of, &health));
        brought.unwrap().len()
    };
    assert_eq!(brought(&made(&fleet, None, true)), 1);
    assert_eq!(brought(&made(&fleet, Some(&good), true)), 2);
}
