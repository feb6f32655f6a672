//! Pushes of the notes ref against somebody who pushes too, a forge that says no, and one that is away.

use std::path::Path;

use meshplan_reconciler::edge::mirror::{Mirror, NOTES_REF};
use meshplan_reconciler::edge::notes::PushOutcome;
use meshplan_reconciler::pure::note;

use super::world::{Journal, World, at};

fn other(world: &World, name: &str) -> Mirror {
    Mirror::open(&world.dir.path().join(name), world.remote()).unwrap()
}

fn note_at_the_forge(world: &World, commit: &str) -> String {
    world.git(&world.bare(), &["notes", "--ref=mesh-plan", "show", commit])
}

// holds: DL-10
#[test]
fn a_push_that_comes_second_takes_in_the_first_and_nothing_is_lost() {
    let world = World::new();
    let head = world.merge("a", "1");
    let (mut ours, mut theirs) = (world.mirror(), other(&world, "other"));
    ours.fetch().unwrap();
    theirs.fetch().unwrap();
    let mut journal = Journal::default();
    let (one, two) = (journal.block(&head), journal.block(&head));
    let (mut our_notes, mut their_notes) = (ours.notes().unwrap(), theirs.notes().unwrap());
    their_notes.append(&[two], at()).unwrap();
    assert_eq!(their_notes.push(at()), PushOutcome::Pushed);
    our_notes.append(&[one], at()).unwrap();
    assert_eq!(our_notes.push(at()), PushOutcome::Pushed);
    let note = note_at_the_forge(&world, head.as_str()) + "\n";
    let numbers: Vec<_> = note::blocks(&note).iter().map(|b| b.block.number).collect();
    assert_eq!(numbers, [1, 2]);
    // Never by force: what the first pushed is still in the history.
    assert_eq!(world.git(&world.bare(), &["rev-list", "--count", NOTES_REF]), "3");
    theirs.fetch().unwrap();
    assert_eq!(their_notes.push(at()), PushOutcome::NothingToDo);
    assert_eq!(their_notes.read(&head).unwrap(), Some(note));
}

// holds: DL-10
#[test]
fn words_that_a_person_pushed_meanwhile_are_kept() {
    let world = World::new();
    let head = world.merge("a", "1");
    let second = world.merge("b", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    notes.append(&[journal.block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    let work = world.work();
    world.git(
        &work,
        &["fetch", "--quiet", "origin", "refs/notes/*:refs/notes/*"],
    );
    world.git(
        &work,
        &[
            "notes",
            "--ref=mesh-plan",
            "append",
            "-m",
            "well done",
            head.as_str(),
        ],
    );
    world.git(
        &work,
        &[
            "notes",
            "--ref=mesh-plan",
            "add",
            "-m",
            "mine alone",
            second.as_str(),
        ],
    );
    world.push("refs/notes/mesh-plan");
    notes.append(&[journal.block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    let note = note_at_the_forge(&world, head.as_str());
    assert!(note.contains("well done"), "{note}");
    assert_eq!(note::blocks(&(note + "\n")).len(), 2);
    assert_eq!(note_at_the_forge(&world, second.as_str()), "mine alone");
}

/// A hook that lets somebody else win `times` times, by moving the ref while our push is being looked at.
fn rival(world: &World, times: usize) {
    let counter = world.dir.path().join("counter");
    let script = format!(
        r#"unset GIT_QUARANTINE_PATH
n=$(cat {counter} 2>/dev/null || echo 0)
test "$n" -ge {times} && exit 0
echo $((n + 1)) >{counter}
export GIT_AUTHOR_NAME=r GIT_AUTHOR_EMAIL=r GIT_COMMITTER_NAME=r GIT_COMMITTER_EMAIL=r
unset GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
old=$(git rev-parse -q --verify {NOTES_REF})
tree=$(git rev-parse -q --verify {NOTES_REF}^{{tree}} || git mktree </dev/null)
new=$(git commit-tree $tree ${{old:+-p $old}} -m "rival $n")
git update-ref {NOTES_REF} $new $old
exit 0"#,
        counter = counter.display(),
    );
    world.hook("pre-receive", &script);
}

// holds: DL-10, B10
#[test]
fn a_ref_that_moves_under_a_push_is_met_by_trying_again() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    rival(&world, 3);
    let mut notes = mirror.notes().unwrap();
    notes.append(&[Journal::default().block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    let log = world.git(&world.bare(), &["log", "--format=%s", NOTES_REF]);
    assert_eq!(log.matches("rival").count(), 3, "{log}");
    assert_eq!(
        note::blocks(&(note_at_the_forge(&world, head.as_str()) + "\n")).len(),
        1
    );
}

// holds: DL-10, B10
#[test]
fn a_ref_that_always_moves_is_given_up_for_now() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    rival(&world, 1000);
    let mut notes = mirror.notes().unwrap();
    notes.append(&[Journal::default().block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Moved);
    let tries: usize = std::fs::read_to_string(world.dir.path().join("counter"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!((3..20).contains(&tries), "{tries} tries");
}

// holds: DL-10, B10
#[test]
fn a_hook_that_says_no_is_quoted_and_not_asked_again() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let counter = world.dir.path().join("counter");
    // With the very words that a moved ref has in English: words decide nothing.
    world.hook(
        "pre-receive",
        &format!(
            "echo x >>{}\necho 'fetch first: non-fast-forward, cannot lock ref' >&2\nexit 1",
            counter.display()
        ),
    );
    let mut notes = mirror.notes().unwrap();
    notes.append(&[Journal::default().block(&head)], at()).unwrap();
    let outcome = notes.push(at());
    assert!(matches!(outcome, PushOutcome::Refused { .. }), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(counter).unwrap().lines().count(), 1);
    std::fs::remove_file(world.bare().join("hooks/pre-receive")).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
}

// holds: DL-10, FG-4, B10
#[test]
fn a_forge_that_is_away_is_unreachable_and_gets_all_when_it_is_back() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    let away = world.dir.path().join("away");
    std::fs::rename(world.bare(), &away).unwrap();
    for _ in 0..3 {
        notes.append(&[journal.block(&head)], at()).unwrap();
        let outcome = notes.push(at());
        assert!(matches!(outcome, PushOutcome::Unreachable { .. }), "{outcome:?}");
    }
    std::fs::rename(away, world.bare()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    assert_eq!(
        note::blocks(&(note_at_the_forge(&world, head.as_str()) + "\n")).len(),
        3
    );
}

// holds: DL-10
#[test]
fn a_record_that_somebody_deleted_at_the_forge_is_pushed_again() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    notes.append(&[Journal::default().block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    world.git(&world.bare(), &["update-ref", "-d", NOTES_REF]);
    assert_eq!(mirror.fetch().unwrap().notes, None);
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    assert_eq!(
        note::blocks(&(note_at_the_forge(&world, head.as_str()) + "\n")).len(),
        1
    );
}

// holds: DL-10
#[test]
fn a_note_that_somebody_removed_at_the_forge_comes_back() {
    let world = World::new();
    let head = world.merge("a", "1");
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    notes.append(&[Journal::default().block(&head)], at()).unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    remove_note(&world, &world.bare(), head.as_str());
    mirror.fetch().unwrap();
    assert_eq!(notes.push(at()), PushOutcome::Pushed);
    assert_eq!(
        note::blocks(&(note_at_the_forge(&world, head.as_str()) + "\n")).len(),
        1
    );
}

fn remove_note(world: &World, repo: &Path, commit: &str) {
    world.git(repo, &["notes", "--ref=mesh-plan", "remove", commit]);
}
