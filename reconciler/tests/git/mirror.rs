//! The mirror: what it fetches, keeps, reads, and how it comes out of locks, cuts and damage.

use std::fs;
use std::time::{Duration, Instant};

use meshplan_reconciler::edge::mirror::{
    Content, EntryKind, MergeError, Mirror, MirrorError, Person, Proposal, Remote,
};
use meshplan_reconciler::pure::news::Known;
use meshplan_reconciler::pure::parts::Branch;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::limits::DOCUMENT_BYTES;

use super::world::{World, at};

// holds: FG-3
#[test]
fn a_fetch_brings_the_branch_and_a_second_one_nothing() {
    let world = World::new();
    let first = world.merge("fleet.toml", "schema = 1\n");
    let mut mirror = world.mirror();
    let fetched = mirror.fetch().unwrap();
    assert_eq!((fetched.head.as_ref(), fetched.notes), (Some(&first), None));
    assert_eq!(mirror.fetch().unwrap(), fetched);
    let second = world.merge("nodes/ace.toml", "name = 1\n");
    assert_eq!(mirror.ls_remote().unwrap().head, Some(second.clone()));
    assert!(mirror.read_tree(&second).is_err(), "a look must fetch nothing");
    assert_eq!(mirror.fetch().unwrap().head, Some(second.clone()));
    let paths: Vec<_> = mirror
        .read_tree(&second)
        .unwrap()
        .into_iter()
        .map(|e| e.path)
        .collect();
    assert_eq!(paths, [b"fleet.toml".to_vec(), b"nodes/ace.toml".to_vec()]);
}

// holds: FG-3, FR-3
#[test]
fn a_tag_or_another_branch_that_is_called_main_is_not_the_branch() {
    let world = World::new();
    let main = world.merge("fleet.toml", "schema = 1\n");
    let other = world.commit("fleet.toml", "schema = 2\n");
    world.push("HEAD:refs/tags/main");
    world.push("HEAD:refs/heads/feature/main");
    world.git(
        &world.bare(),
        &["symbolic-ref", "HEAD", "refs/heads/feature/main"],
    );
    let mut mirror = world.mirror();
    assert_eq!(mirror.fetch().unwrap().head, Some(main));
    assert!(
        mirror.read_tree(&other).is_err(),
        "more was fetched than the branch"
    );
}

// holds: FG-3
#[test]
fn a_deleted_branch_is_none_and_what_was_fetched_stays() {
    let world = World::new();
    let main = world.merge("fleet.toml", "schema = 1\n");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    world.git(&world.bare(), &["update-ref", "-d", "refs/heads/main"]);
    assert_eq!(mirror.fetch().unwrap().head, None);
    assert_eq!(mirror.ls_remote().unwrap().head, None);
    assert_eq!(mirror.read_tree(&main).unwrap().len(), 1);
}

// holds: FG-3, B08
#[test]
fn which_branch_the_forge_calls_its_default_is_nobodys_business() {
    let world = World::new();
    let main = world.merge("fleet.toml", "schema = 1\n");
    let mut mirror = world.mirror();
    assert_eq!(mirror.fetch().unwrap().head.as_ref(), Some(&main));
    // Another branch becomes the default one, and then one that has no commit.
    world.git(&world.work(), &["checkout", "--quiet", "--orphan", "other"]);
    world.commit("README.md", "something else");
    world.push("HEAD:refs/heads/other");
    for default in ["refs/heads/other", "refs/heads/empty"] {
        world.git(&world.bare(), &["symbolic-ref", "HEAD", default]);
        assert_eq!(mirror.fetch().unwrap().head.as_ref(), Some(&main), "{default}");
    }
    // The branch itself goes: there is none, whatever the default one has.
    world.git(&world.bare(), &["symbolic-ref", "HEAD", "refs/heads/other"]);
    world.git(&world.bare(), &["update-ref", "-d", "refs/heads/main"]);
    assert_eq!(mirror.fetch().unwrap().head, None);
}

// holds: FG-3
#[test]
fn an_empty_repository_is_none_too() {
    let world = World::new();
    assert_eq!(world.mirror().fetch().unwrap().head, None);
}

// holds: DL-1
#[test]
fn new_commits_come_oldest_first_along_first_parents() {
    let world = World::new();
    let first = world.merge("a", "1");
    world.git(&world.work(), &["checkout", "--quiet", "-b", "side"]);
    let side = world.commit("b", "2");
    world.git(&world.work(), &["checkout", "--quiet", "main"]);
    let direct = world.commit("c", "3");
    world.git(
        &world.work(),
        &["merge", "--quiet", "--no-ff", "-m", "Merge side", "side"],
    );
    let merge = world.head();
    world.push("HEAD:refs/heads/main");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let lineage = mirror.first_parent_since(Some(&first), &merge).unwrap();
    let ids: Vec<_> = lineage.commits.iter().map(|c| &c.id).collect();
    assert_eq!(ids, [&direct, &merge]);
    assert_eq!(lineage.known, Known::Behind);
    assert_eq!(lineage.head.parents, [direct.clone(), side.clone()]);
    assert_eq!(
        (
            lineage.commits[0].subject.as_str(),
            lineage.commits[0].author.as_str()
        ),
        ("c: changed", "Dana")
    );
    assert_eq!(
        mirror.first_parent_since(Some(&merge), &merge).unwrap().commits,
        []
    );
    // Known by the other parent: nothing was dropped.
    let sideways = mirror.first_parent_since(Some(&side), &merge).unwrap();
    assert_eq!(sideways.known, Known::Behind);
    assert_eq!(sideways.commits.last().unwrap().id, merge);
    let fresh = mirror.first_parent_since(None, &merge).unwrap();
    assert_eq!(
        (fresh.commits.len(), fresh.known, &fresh.head.id),
        (0, Known::None, &merge)
    );
}

// holds: FG-3, B08
#[test]
fn a_rewritten_branch_is_followed_and_said_to_be_rewritten() {
    let world = World::new();
    let first = world.merge("a", "1");
    let second = world.merge("b", "2");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    mirror.keep(&second).unwrap();
    world.git(&world.work(), &["commit", "--quiet", "--amend", "-m", "amended"]);
    world.push("+HEAD:refs/heads/main");
    let amended = world.head();
    assert_eq!(mirror.fetch().unwrap().head, Some(amended.clone()));
    let lineage = mirror.first_parent_since(Some(&second), &amended).unwrap();
    assert_eq!(lineage.known, Known::Aside);
    assert_eq!(
        lineage.commits.iter().map(|c| &c.id).collect::<Vec<_>>(),
        [&amended]
    );
    // Set back to an older commit.
    world.git(
        &world.work(),
        &["push", "--quiet", "origin", &format!("+{first}:refs/heads/main")],
    );
    assert_eq!(mirror.fetch().unwrap().head, Some(first.clone()));
    let back = mirror.first_parent_since(Some(&amended), &first).unwrap();
    assert_eq!(back.known, Known::Aside);
    assert_eq!((back.commits.len(), &back.head.id), (0, &first));
    // A commit that the mirror never saw.
    let never: CommitId = "1".repeat(40).parse().unwrap();
    // Of what waited the branch does not have these any more.
    let waited = [&first, &second, &amended, &never].map(Clone::clone).into();
    assert_eq!(
        mirror.not_behind(&waited, &first).unwrap(),
        [second.clone(), amended.clone(), never.clone()].into()
    );
    assert_eq!(
        mirror.not_behind(&waited, &amended).unwrap(),
        [second.clone(), never.clone()].into()
    );
    let back = mirror.first_parent_since(Some(&never), &first).unwrap();
    assert_eq!(
        (back.known, back.commits.len(), &back.head.id),
        (Known::Missing, 0, &first)
    );
}

// holds: DL-10
#[test]
fn a_kept_commit_outlives_its_branch_with_one_ref_for_each_end() {
    let world = World::new();
    let first = world.merge("a", "1");
    let second = world.merge("b", "2");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    mirror.keep(&first).unwrap();
    mirror.keep(&second).unwrap();
    mirror.keep(&first).unwrap();
    let kept = || {
        world.git(
            &world.mirror_path(),
            &["for-each-ref", "--format=%(refname)", "refs/meshplan/keep"],
        )
    };
    assert_eq!(kept(), format!("refs/meshplan/keep/{second}"));
    world.git(&world.work(), &["commit", "--quiet", "--amend", "-m", "amended"]);
    world.push("+HEAD:refs/heads/main");
    mirror.fetch().unwrap();
    mirror.keep(&world.head()).unwrap();
    assert_eq!(kept().lines().count(), 2);
    world.git(&world.mirror_path(), &["gc", "--quiet", "--prune=now"]);
    assert_eq!(mirror.read_tree(&second).unwrap().len(), 2);
}

// holds: FR-3
#[test]
fn a_tree_is_read_as_git_has_it() {
    let world = World::new();
    std::os::unix::fs::symlink("/etc/shadow", world.work().join("link")).unwrap();
    fs::write(world.work().join("tool"), "x").unwrap();
    world.git(&world.work(), &["add", "-A"]);
    world.git(&world.work(), &["update-index", "--chmod=+x", "tool"]);
    let module = "1".repeat(40);
    world.git(
        &world.work(),
        &[
            "update-index",
            "--add",
            "--cacheinfo",
            &format!("160000,{module},sub"),
        ],
    );
    fs::write(world.work().join("big.toml"), "x".repeat(DOCUMENT_BYTES + 1)).unwrap();
    fs::create_dir_all(world.work().join("modules/web")).unwrap();
    fs::write(
        world.work().join("modules/web/big"),
        "x".repeat(DOCUMENT_BYTES + 1),
    )
    .unwrap();
    fs::create_dir_all(world.work().join("nodes")).unwrap();
    let odd = std::ffi::OsStr::new("nodes/a\u{308}\n.toml");
    fs::write(world.work().join(odd), "x").unwrap();
    world.git(&world.work(), &["add", "big.toml", "modules", "nodes"]);
    world.git(&world.work(), &["commit", "--quiet", "-m", "all kinds"]);
    world.push("HEAD:refs/heads/main");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let tree = mirror.read_tree(&world.head()).unwrap();
    let of = |path: &str| tree.iter().find(|e| e.path == path.as_bytes()).unwrap();
    assert_eq!(of("link").kind, EntryKind::Symlink);
    assert!(matches!(&of("link").content, Content::Bytes(b) if **b == *b"/etc/shadow"));
    assert_eq!(of("tool").kind, EntryKind::Blob { executable: true });
    assert_eq!(of("sub").kind, EntryKind::Submodule);
    assert_eq!(
        of("big.toml").content,
        Content::TooLarge {
            bytes: DOCUMENT_BYTES as u64 + 1
        }
    );
    assert!(matches!(&of("modules/web/big").content, Content::Bytes(b) if b.len() == DOCUMENT_BYTES + 1));
    assert!(tree.iter().any(|e| e.path == odd.as_encoded_bytes()));
    assert_eq!(mirror.read_tree(&world.head()).unwrap(), tree);
}

// holds: FR-3
#[test]
fn a_small_tree_that_stands_for_a_billion_files_is_refused() {
    let world = World::new();
    let blob = world.git(&world.work(), &["hash-object", "-w", "/dev/null"]);
    let mut tree = String::new();
    for i in 0..20 {
        tree.push_str(&format!("100644 blob {blob}\tf{i}\n"));
    }
    let mut id = world.mktree(&tree);
    for _ in 0..8 {
        let listing: String = (0..16).map(|i| format!("040000 tree {id}\td{i}\n")).collect();
        id = world.mktree(&listing);
    }
    let commit = world.git(&world.work(), &["commit-tree", "-m", "bomb", &id]);
    world.push(&format!("{commit}:refs/heads/main"));
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let error = mirror.read_tree(&commit.parse().unwrap()).unwrap_err();
    assert!(matches!(error, MirrorError::Tree { .. }), "{error}");
    assert!(error.to_string().contains("more than 500000 files"), "{error}");
}

// holds: FR-3
#[test]
fn a_small_tree_that_stands_for_any_number_of_empty_folders_is_refused() {
    let world = World::new();
    let hash = |content: &str| {
        std::fs::write(world.work().join("leaf"), content).unwrap();
        world.git(&world.work(), &["hash-object", "-w", "leaf"])
    };
    let full = world.bomb(&format!("100644 blob {}\tf\n", hash("1")));
    let void = world.bomb(&format!("100644 blob {}\tf\n", hash("")));
    let bomb = world.bomb("");
    for (commit, branch) in [(&bomb, "main"), (&full, "full"), (&void, "void")] {
        world.push(&format!("{commit}:refs/heads/{branch}"));
    }
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let error = mirror.read_tree(&bomb).unwrap_err();
    assert!(matches!(error, MirrorError::Tree { .. }), "{error}");
    assert!(error.to_string().contains("more than 500000 files"), "{error}");
    for (branch, commit) in [("full", &full), ("void", &void)] {
        let of = Branch {
            repo: "acme/fleet".to_owned(),
            branch: branch.to_owned(),
        };
        let remote = Remote {
            branch: branch.to_owned(),
            ..world.remote()
        };
        assert_eq!(
            mirror.fetch_component(&of, &remote).unwrap().as_ref(),
            Some(commit)
        );
    }
    assert_eq!(mirror.read_changes(&full, &void).unwrap(), None);
}

// holds: FG-3
#[test]
fn lock_files_of_a_killed_process_are_removed_at_the_start() {
    let world = World::new();
    world.merge("a", "1");
    world.mirror().fetch().unwrap();
    let locks = [
        "packed-refs.lock",
        "HEAD.lock",
        "config.lock",
        "refs/meshplan/remote/head.lock",
        "refs/notes/mesh-plan.lock",
        "objects/pack/multi-pack-index.lock",
        "objects/pack/pack_git2_half",
    ];
    for lock in locks {
        let path = world.mirror_path().join(lock);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let second = world.merge("b", "2");
    let mut mirror = world.mirror();
    assert_eq!(mirror.fetch().unwrap().head, Some(second));
    for lock in locks {
        assert!(!world.mirror_path().join(lock).exists(), "{lock} is still there");
    }
}

// holds: FG-3
#[test]
fn a_lock_of_a_live_git_is_waited_for() {
    let world = World::new();
    world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let second = world.merge("b", "2");
    let lock = world.mirror_path().join("refs/meshplan/remote/head.lock");
    fs::write(&lock, "").unwrap();
    let freed = std::thread::spawn({
        let lock = lock.clone();
        move || {
            std::thread::sleep(Duration::from_millis(300));
            fs::remove_file(lock).unwrap();
        }
    });
    let since = Instant::now();
    assert_eq!(mirror.fetch().unwrap().head, Some(second));
    assert!(since.elapsed() >= Duration::from_millis(250), "it did not wait");
    freed.join().unwrap();
}

// holds: FG-3
#[test]
fn a_second_process_is_told_who_is_there() {
    let world = World::new();
    let first = world.mirror();
    let error =
        Mirror::open_within(&world.mirror_path(), world.remote(), Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, MirrorError::Busy(_)), "{error}");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(first);
    world.mirror();
}

// holds: FG-3
#[test]
fn a_cut_pack_leads_to_a_fresh_copy_beside_the_broken_one() {
    let world = World::new();
    world.merge("a", "1");
    let head = world.merge("b", &"some text\n".repeat(1000));
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    drop(mirror);
    let packs = world.mirror_path().join("objects/pack");
    let pack = fs::read_dir(packs)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "pack"))
        .unwrap();
    let bytes = fs::read(&pack).unwrap();
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, &bytes[..bytes.len() / 2]).unwrap();
    let mut mirror = world.mirror();
    assert_eq!(mirror.fetch().unwrap().head, Some(head.clone()));
    assert_eq!(mirror.read_tree(&head).unwrap().len(), 2);
    world.git(&world.mirror_path(), &["fsck", "--strict"]);
    assert!(world.dir.path().join("state/mirror.broken").exists());
}

// holds: FG-3
#[test]
fn objects_that_vanish_while_it_runs_are_fetched_again() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    fs::remove_dir_all(world.mirror_path().join("objects")).unwrap();
    fs::create_dir_all(world.mirror_path().join("objects/pack")).unwrap();
    drop(mirror);
    let mut mirror = world.mirror();
    assert_eq!(mirror.fetch().unwrap().head, Some(head.clone()));
    assert_eq!(mirror.read_tree(&head).unwrap().len(), 1);
}

// holds: FG-3
#[test]
fn a_folder_that_is_no_repository_any_more_is_set_aside() {
    let world = World::new();
    let head = world.merge("a", "1");
    world.mirror().fetch().unwrap();
    fs::remove_file(world.mirror_path().join("HEAD")).unwrap();
    let mut mirror = world.mirror();
    assert_eq!(mirror.fetch().unwrap().head, Some(head));
}

// holds: FG-3
#[test]
fn while_the_remote_is_away_a_damaged_mirror_keeps_what_it_has() {
    let world = World::new();
    let head = world.merge("a", "1");
    world.mirror().fetch().unwrap();
    let notes = world.mirror_path().join("refs/notes/mesh-plan");
    fs::create_dir_all(notes.parent().unwrap()).unwrap();
    fs::write(notes, "1".repeat(40) + "\n").unwrap();
    let mut mirror = world.mirror();
    fs::rename(world.bare(), world.dir.path().join("away")).unwrap();
    mirror.fetch().unwrap_err();
    assert_eq!(mirror.read_tree(&head).unwrap().len(), 1);
    fs::rename(world.dir.path().join("away"), world.bare()).unwrap();
    mirror.fetch().unwrap();
    assert_eq!(mirror.read_tree(&head).unwrap().len(), 1);
}

fn person() -> Person {
    Person {
        name: "Ann".to_owned(),
        email: "ann@acme.test".to_owned(),
    }
}

fn proposal<'p>(branch: &'p str, contents: &'p [u8], author: &'p Person) -> Proposal<'p> {
    Proposal {
        branch,
        path: "nodes/edge/ace.toml",
        contents,
        message: "nodes: ace asks to be admitted",
        author,
        at: at(),
    }
}

// holds: FG-5
#[test]
fn a_proposed_file_is_a_branch_and_merging_it_is_a_merge_commit() {
    let world = World::new();
    let main = world.merge("fleet.toml", "schema = 1\n");
    let mut mirror = world.mirror();
    let ann = person();
    let proposed = mirror
        .propose_file(&proposal("admit/ace", b"x = 1\n", &ann))
        .unwrap();
    assert_eq!(
        mirror
            .propose_file(&proposal("admit/ace", b"x = 1\n", &ann))
            .unwrap(),
        proposed
    );
    assert_eq!(
        world.git(&world.bare(), &["rev-parse", "refs/heads/admit/ace"]),
        proposed.as_str()
    );
    assert_eq!(world.git(&world.bare(), &["rev-parse", "main"]), main.as_str());
    let again = mirror
        .propose_file(&proposal("admit/ace", b"x = 2\n", &ann))
        .unwrap();
    assert_eq!(
        world.git(&world.bare(), &["rev-parse", "admit/ace~1"]),
        proposed.as_str()
    );
    let moved = {
        world.git(&world.work(), &["pull", "--quiet"]);
        world.merge("other", "1")
    };
    let merged = mirror.merge_branch("admit/ace", &ann, at()).unwrap();
    assert_eq!(
        world.git(&world.bare(), &["log", "-1", "--format=%P %an <%ae> %s", "main"]),
        format!("{moved} {again} Ann <ann@acme.test> Merge branch 'admit/ace'")
    );
    assert_eq!(
        world.git(&world.bare(), &["show", "main:nodes/edge/ace.toml"]),
        "x = 2"
    );
    assert_eq!(mirror.merge_branch("admit/ace", &ann, at()).unwrap(), merged);
    assert_eq!(mirror.fetch().unwrap().head, Some(merged));
}

// holds: FG-5
#[test]
fn a_merge_that_cannot_be_made_says_why_and_changes_nothing() {
    let world = World::new();
    world.merge("fleet.toml", "schema = 1\n");
    let mut mirror = world.mirror();
    let ann = person();
    mirror
        .propose_file(&proposal("admit/ace", b"x = 1\n", &ann))
        .unwrap();
    let main = world.merge("nodes/edge/ace.toml", "x = 2\n");
    let conflict = mirror.merge_branch("admit/ace", &ann, at()).unwrap_err();
    assert!(
        matches!(&conflict, MergeError::Conflict { paths, .. } if paths == &["nodes/edge/ace.toml"]),
        "{conflict}"
    );
    let nowhere = mirror.merge_branch("admit/bob", &ann, at()).unwrap_err();
    assert!(
        nowhere.to_string().contains("has no branch `admit/bob`"),
        "{nowhere}"
    );
    for name in ["main", "a b", "../x", ""] {
        let error = mirror.merge_branch(name, &ann, at()).unwrap_err();
        assert!(matches!(error, MergeError::Name(_)), "{name:?}: {error}");
    }
    assert_eq!(world.git(&world.bare(), &["rev-parse", "main"]), main.as_str());
}

// holds: FG-5
#[test]
fn a_forge_that_takes_no_push_to_the_branch_is_quoted() {
    let world = World::new();
    world.merge("fleet.toml", "schema = 1\n");
    let mut mirror = world.mirror();
    let ann = person();
    mirror
        .propose_file(&proposal("admit/ace", b"x = 1\n", &ann))
        .unwrap();
    world.hook("update", "test \"$1\" != refs/heads/main");
    let error = mirror.merge_branch("admit/ace", &ann, at()).unwrap_err();
    assert!(matches!(error, MergeError::Refused { .. }), "{error}");
}
