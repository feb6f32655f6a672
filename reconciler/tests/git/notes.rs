//! Notes as git itself reads them: appended, capped, fanned out, packed.

use std::collections::BTreeMap;
use std::fs;

use meshplan_reconciler::edge::mirror::NOTES_REF;
use meshplan_reconciler::edge::notes::{Appended, PushOutcome, SignedText, record_in};
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
        record_in(&world.bare()).unwrap(),
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

/// Commits and notes on them as git's own code writes them, all at once.
fn history_with_notes(world: &World, count: usize) -> Vec<CommitId> {
    let mut script = String::new();
    for n in 1..=count {
        script.push_str(&format!(
            "commit refs/heads/main\nmark :{n}\ncommitter a <a> {n} +0000\ndata 1\nx\n"
        ));
    }
    script.push_str("commit refs/notes/mesh-plan\ncommitter a <a> 1 +0000\ndata 1\nx\n");
    for n in 1..=count {
        let words = format!("words of {n}\n");
        script.push_str(&format!("N inline :{n}\ndata {}\n{words}\n", words.len()));
    }
    let file = world.dir.path().join("script");
    fs::write(&file, script).unwrap();
    let command = format!("git fast-import --quiet <{}", file.display());
    let status = std::process::Command::new("sh")
        .args(["-c", &command])
        .current_dir(world.bare())
        .status()
        .unwrap();
    assert!(status.success());
    let ids = world.git(&world.bare(), &["rev-list", "--reverse", "main"]);
    ids.lines().map(|id| id.parse().unwrap()).collect()
}

// holds: DL-10
#[test]
fn notes_that_git_wrote_at_its_own_depth_are_read_kept_and_moved_when_touched() {
    // Flat for few, one level of folders for more: as git chooses.
    for (count, depth) in [(3, 40), (500, 38)] {
        let world = World::new();
        let commits = history_with_notes(&world, count);
        let top = world.git(&world.bare(), &["ls-tree", "-r", "--name-only", NOTES_REF]);
        assert!(
            top.lines()
                .all(|path| path.rsplit('/').next().unwrap().len() == depth),
            "{top}"
        );
        let mut mirror = world.mirror();
        mirror.fetch().unwrap();
        let mut notes = mirror.notes().unwrap();
        let on = &commits[1];
        let block = Journal::default().block(on);
        notes.append(std::slice::from_ref(&block), at()).unwrap();
        let text = notes.read(on).unwrap().unwrap();
        assert_eq!(text, format!("words of 2\n\n{}", block.text));
        assert_eq!(show(&world, &world.mirror_path(), on), text);
        assert_eq!(notes.read_all().unwrap().len(), count);
        let listed = world.git(&world.mirror_path(), &["notes", "--ref=mesh-plan", "list"]);
        assert_eq!(listed.lines().count(), count);
        world.git(&world.mirror_path(), &["fsck", "--strict"]);
        let (a, b) = (on.as_str().get(..2).unwrap(), on.as_str().get(2..4).unwrap());
        let path = format!("{NOTES_REF}:{a}/{b}/{}", on.as_str().get(4..).unwrap());
        world.git(&world.mirror_path(), &["cat-file", "-e", &path]);
        // And git writes on what we wrote.
        let words = [
            "notes",
            "--ref=mesh-plan",
            "append",
            "-m",
            "and more",
            on.as_str(),
        ];
        world.git(&world.mirror_path(), &words);
        assert!(notes.read(on).unwrap().unwrap().ends_with("and more\n"));
        assert_eq!(notes.read_all().unwrap().len(), count);
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
    for n in 0..520 {
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
    assert!(loose < 200, "{counted}");
    world.git(&world.mirror_path(), &["fsck", "--strict"]);
    assert_eq!(notes.read_all().unwrap().len(), 520);
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

// holds: FG-3, DL-10
#[test]
fn damage_that_the_journal_meets_is_repaired_by_the_next_fetch() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    notes.append(&[journal.block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    drop((notes, mirror));
    // A folder of the notes that a power cut left empty.
    let first = head.as_str().get(..2).unwrap();
    let id = world.git(
        &world.mirror_path(),
        &["rev-parse", &format!("{NOTES_REF}:{first}")],
    );
    let (a, b) = id.split_at(2);
    let object = world.mirror_path().join("objects").join(a).join(b);
    fs::remove_file(&object).unwrap();
    fs::write(&object, "").unwrap();
    let mut mirror = world.mirror();
    let mut notes = mirror.notes().unwrap();
    let block = journal.block(&head);
    let error = notes.append(std::slice::from_ref(&block), at()).unwrap_err();
    assert!(
        error.to_string().contains("the next fetch replaces it"),
        "{error}"
    );
    mirror.fetch().unwrap();
    notes.append(&[block], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    assert_eq!(note::blocks(&show(&world, &world.bare(), &head)).len(), 2);
}
