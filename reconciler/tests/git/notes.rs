//! Notes as git itself reads them: appended, capped, fanned out, packed.

use std::collections::BTreeMap;
use std::fs;

use meshplan_reconciler::edge::mirror::NOTES_REF;
use meshplan_reconciler::edge::notes::{Appended, PushOutcome, SignedText, read_all_in};
use meshplan_reconciler::pure::note;
use meshplan_schemas::envelope::Signer as _;
use meshplan_schemas::ident::CommitId;

use super::world::{Journal, World, at, signer};

fn commit(n: usize) -> CommitId {
    // Spread as real ids are.
    let digest = meshplan_schemas::digest::Digest::of(n.to_string().as_bytes()).hex();
    digest.get(..40).unwrap().parse().unwrap()
}

fn show(world: &World, folder: &std::path::Path, commit: &CommitId) -> String {
    world.git(folder, &["notes", "--ref=mesh-plan", "show", commit.as_str()]) + "\n"
}

// holds: DL-9, DL-10
#[test]
fn git_reads_what_is_appended_and_finds_no_fault() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    let (one, two) = (journal.block(&head), journal.block(&head));
    assert_eq!(notes.append(std::slice::from_ref(&one), at()).unwrap().written, 1);
    assert_eq!(
        notes.append(&[one.clone(), two.clone()], at()).unwrap().written,
        1
    );
    let tip = world.git(&world.mirror_path(), &["rev-parse", NOTES_REF]);
    assert_eq!(
        notes.append(&[two.clone(), one.clone()], at()).unwrap(),
        Appended::default()
    );
    assert_eq!(
        world.git(&world.mirror_path(), &["rev-parse", NOTES_REF]),
        tip,
        "a repetition made a commit"
    );
    let expected = format!("{}\n{}", one.text, two.text);
    assert_eq!(show(&world, &world.mirror_path(), &head), expected);
    assert_eq!(notes.read(&head).unwrap(), Some(expected.clone()));
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    assert_eq!(notes.push(at()), PushOutcome::NothingToDo);
    assert_eq!(show(&world, &world.bare(), &head), expected);
    world.git(&world.bare(), &["fsck", "--strict"]);
    world.git(&world.mirror_path(), &["fsck", "--strict"]);
    let log = world.git(&world.bare(), &["log", "--notes=mesh-plan", "-1", "main"]);
    assert!(
        log.contains("(new) -> proposed (announced) by forge: the commit is known"),
        "{log}"
    );
    assert_eq!(
        mirror.fetch().unwrap().notes.map(|id| id.to_string()).as_deref(),
        Some(&*world.git(&world.bare(), &["rev-parse", NOTES_REF]))
    );
    assert_eq!(
        read_all_in(&world.bare(), NOTES_REF).unwrap(),
        BTreeMap::from([(head, expected)])
    );
}

// holds: DL-10
#[test]
fn a_batch_over_many_commits_is_one_commit_of_the_ref() {
    let world = World::new();
    let mirror = world.mirror();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    let blocks: Vec<SignedText> = (0..300).map(|n| journal.block(&commit(n % 100))).collect();
    assert_eq!(notes.append(&blocks, at()).unwrap().written, 300);
    assert_eq!(
        world.git(&world.mirror_path(), &["rev-list", "--count", NOTES_REF]),
        "1"
    );
    let all = notes.read_all().unwrap();
    assert_eq!(all.len(), 100);
    let signer = signer();
    let keys = [(signer.key_id(), signer.public())];
    assert_eq!(note::verify(&all, &keys, None), []);
    let listed = world.git(&world.mirror_path(), &["notes", "--ref=mesh-plan", "list"]);
    assert_eq!(listed.lines().count(), 100);
    world.git(&world.mirror_path(), &["fsck", "--strict"]);
}

// holds: DL-10
#[test]
fn notes_that_git_wrote_at_its_own_depth_are_read_kept_and_moved_when_touched() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut commits = vec![head.clone()];
    for i in 0..300 {
        commits.push(world.commit("a", &i.to_string()));
    }
    world.push("HEAD:refs/heads/main");
    // Flat for the first ones, one level of folders for the rest: as git chooses.
    for (i, commit) in commits.iter().enumerate() {
        if i == 3 || i == 300 {
            world.push("+refs/notes/mesh-plan:refs/notes/mesh-plan");
            let mut mirror = world.mirror();
            mirror.fetch().unwrap();
            let mut notes = mirror.notes().unwrap();
            let block = Journal::default().block(&head);
            notes.append(std::slice::from_ref(&block), at()).unwrap();
            let text = notes.read(&head).unwrap().unwrap();
            assert!(
                text.starts_with("words of 0\n\n") && text.ends_with(&block.text),
                "{text}"
            );
            assert_eq!(show(&world, &world.mirror_path(), &head), text);
            assert_eq!(notes.read_all().unwrap().len(), i);
            let listed = world.git(&world.mirror_path(), &["notes", "--ref=mesh-plan", "list"]);
            assert_eq!(listed.lines().count(), i);
            world.git(&world.mirror_path(), &["fsck", "--strict"]);
            let (a, b) = (head.as_str().get(..2).unwrap(), head.as_str().get(2..4).unwrap());
            let path = format!("{NOTES_REF}:{a}/{b}/{}", head.as_str().get(4..).unwrap());
            world.git(&world.mirror_path(), &["cat-file", "-e", &path]);
            drop((mirror, notes));
            fs::remove_dir_all(world.mirror_path()).unwrap();
        }
        world.git(
            &world.work(),
            &[
                "notes",
                "--ref=mesh-plan",
                "add",
                "-m",
                &format!("words of {i}"),
                commit.as_str(),
            ],
        );
    }
}

// holds: DL-10
#[test]
fn a_thousand_flat_notes_are_put_in_folders_once() {
    let world = World::new();
    let mirror = world.mirror();
    let repo = world.mirror_path();
    let blob = {
        let file = world.dir.path().join("text");
        fs::write(&file, "words\n").unwrap();
        world.git(&repo, &["hash-object", "-w", file.to_str().unwrap()])
    };
    let listing = world.dir.path().join("listing");
    fs::write(
        &listing,
        (0..1000)
            .map(|n| format!("100644 blob {blob}\t{}\n", commit(n)))
            .collect::<String>(),
    )
    .unwrap();
    let script = format!("git mktree <{}", listing.display());
    let out = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(&repo)
        .output()
        .unwrap();
    let tree = String::from_utf8(out.stdout).unwrap().trim().to_owned();
    let tip = world.git(&repo, &["commit-tree", "-m", "flat", &tree]);
    world.git(&repo, &["update-ref", NOTES_REF, &tip]);
    let mut notes = mirror.notes().unwrap();
    notes
        .append(&[Journal::default().block(&commit(5))], at())
        .unwrap();
    assert_eq!(notes.read_all().unwrap().len(), 1000);
    let top = world.git(&repo, &["ls-tree", NOTES_REF]);
    assert!(top.lines().all(|line| line.contains(" tree ")), "{top}");
    assert_eq!(
        world
            .git(&repo, &["notes", "--ref=mesh-plan", "list"])
            .lines()
            .count(),
        1000
    );
}

// holds: DL-10
#[test]
fn bytes_that_are_no_text_are_kept() {
    let world = World::new();
    let head = world.merge("a", "1");
    let file = world.dir.path().join("bytes");
    fs::write(&file, b"caf\xe9\n").unwrap();
    world.git(
        &world.work(),
        &["notes", "--ref=mesh-plan", "add", "-F", file.to_str().unwrap()],
    );
    world.push("refs/notes/mesh-plan");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let block = Journal::default().block(&head);
    let mut notes = mirror.notes().unwrap();
    notes.append(std::slice::from_ref(&block), at()).unwrap();
    assert_eq!(
        notes.append(std::slice::from_ref(&block), at()).unwrap().written,
        0
    );
    let out = world.try_git(
        &world.mirror_path(),
        &["notes", "--ref=mesh-plan", "show", head.as_str()],
    );
    assert_eq!(out.stdout, [b"caf\xe9\n\n", block.text.as_bytes()].concat());
}

// holds: DL-10
#[test]
fn a_note_above_the_cap_is_named_and_its_old_detail_replaced() {
    let world = World::new();
    let mirror = world.mirror();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    let on = commit(1);
    let mut last = Appended::default();
    for _ in 0..30 {
        let mut block = note::blocks(&journal.block(&on).text)[0].block.clone();
        for machine in 0..40 {
            block.trailers.push((
                "Machine".to_owned(),
                format!("web on n{machine}: failed, unit nginx is not active"),
            ));
        }
        let text = block.text();
        let signature = signer().sign(&note::signed_bytes(&text)).unwrap();
        let text = note::seal(&text, &signer().key_id(), &signature);
        last = notes
            .append(
                &[SignedText {
                    commit: on.clone(),
                    text,
                }],
                at(),
            )
            .unwrap();
    }
    assert_eq!(last.over, std::slice::from_ref(&on));
    let limit = meshplan_schemas::limits::NOTE_BYTES;
    let elisions = note::elide(&notes.read(&on).unwrap().unwrap(), limit);
    for elision in &elisions {
        let text = elision.new.text();
        let signature = signer().sign(&note::signed_bytes(&text)).unwrap();
        let signed = note::seal(&text, &signer().key_id(), &signature);
        notes.replace(&on, elision, &signed, at()).unwrap();
        assert!(
            notes.replace(&on, elision, &signed, at()).is_err(),
            "it was replaced twice"
        );
    }
    let now = notes.read(&on).unwrap().unwrap();
    assert!(now.len() <= limit, "{}", now.len());
    assert_eq!(note::blocks(&now).len(), 30);
    let history = world.git(&world.mirror_path(), &["log", "--oneline", NOTES_REF]);
    assert_eq!(
        history.lines().count(),
        30 + elisions.len(),
        "the bytes stay in the history"
    );
}

// holds: DL-10
#[test]
fn packing_keeps_every_object_and_the_number_of_files_down() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    for n in 0..1001 {
        notes.append(&[journal.block(&commit(n))], at()).unwrap();
    }
    let counted = world.git(&world.mirror_path(), &["count-objects", "-v"]);
    let loose: usize = counted
        .lines()
        .next()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(loose < 100, "{counted}");
    world.git(&world.mirror_path(), &["fsck", "--strict"]);
    assert_eq!(notes.read_all().unwrap().len(), 1001);
    assert_eq!(mirror.read_tree(&head).unwrap().len(), 1);
    let signer = signer();
    assert_eq!(
        note::verify(
            &notes.read_all().unwrap(),
            &[(signer.key_id(), signer.public())],
            None
        ),
        []
    );
}

// holds: FG-3, DL-10
#[test]
fn a_mirror_that_is_replaced_takes_its_unpushed_notes_along() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    notes.append(&[journal.block(&head)], at()).unwrap();
    drop(notes);
    drop(mirror);
    // The branch's ref leads nowhere: damage, though the notes are whole.
    fs::write(
        world.mirror_path().join("refs/meshplan/remote/head"),
        "1".repeat(40) + "\n",
    )
    .unwrap();
    let mut mirror = world.mirror();
    let mut notes = mirror.notes().unwrap();
    mirror.fetch().unwrap();
    assert!(world.dir.path().join("state/mirror.broken").exists());
    assert_eq!(notes.read_all().unwrap().len(), 1);
    notes.append(&[journal.block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    assert_eq!(note::blocks(&show(&world, &world.bare(), &head)).len(), 2);
}
