//! What travels beside a declaration: fetched before it is begun, over the session, gone on with after a cut.

use meshplan_schemas::artifact::{FileList, Listed};
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::{Digest, canonical};
use meshplan_schemas::limits::PIECE_BYTES;
use meshplan_schemas::report::DeclarationState;
use meshplan_schemas::resource::Kind;
use meshplan_schemas::resource::bundles::Bundle;

use super::linked::Fleet;
use super::world::{declaration, poll, text};

/// A declaration with a bundle of these files, whose artifacts the reconciler has.
fn with_bundle(fleet: &Fleet, sequence: u64, files: &[(&str, &[u8])]) -> Declaration {
    let listed = |(path, bytes): &(&str, &[u8])| {
        let listed = Listed {
            sha256: fleet.reconciler.keep(bytes),
            size_bytes: bytes.len() as u64,
            executable: false,
        };
        ((*path).to_owned(), listed)
    };
    let list = canonical(&FileList {
        files: files.iter().map(listed).collect(),
    });
    let list = list.unwrap();
    let bundle = Bundle {
        path: "/srv/site".to_owned(),
        tree: fleet.reconciler.keep(&list),
        list_bytes: list.len() as u64,
        owner: None,
        group: None,
        restarts: vec![],
    };
    let resource = Kind::Bundle(bundle)
        .into_resource("web.site".parse().unwrap())
        .unwrap();
    let mut declaration = declaration(sequence, "hello\n", None);
    declaration.artifacts = resource.artifact().into_iter().collect();
    declaration.resources.push(resource);
    // Another content of the module.
    declaration.modules[0].digest = Digest::of_value(&declaration.resources).unwrap();
    declaration
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

// holds: HK-4, HK-15, HR-14
#[test]
fn a_bundle_is_fetched_before_its_order_is_begun_and_a_cut_goes_on_where_it_was() {
    let fleet = Fleet::new();
    let host = fleet.run();
    let big = noise(3 * PIECE_BYTES as usize + 17);
    // The list, then two pieces of the large file.
    fleet.reconciler.cut_after(3);
    let order = with_bundle(
        &fleet,
        1,
        &[("big", &big), ("empty", b""), ("sub/small", b"small")],
    );
    fleet.reconciler.order(text(&order));
    fleet.until_state(1, DeclarationState::Confirmed);
    let site = |name: &str| std::fs::read(fleet.world.root().join("srv/site").join(name)).unwrap();
    assert_eq!(
        (site("big"), site("empty"), site("sub/small")),
        (big.clone(), vec![], b"small".to_vec())
    );
    let asked = fleet.reconciler.fetched();
    let of_big: Vec<u64> = asked
        .iter()
        .filter(|(of, _)| *of == Digest::of(&big))
        .map(|(_, at)| *at)
        .collect();
    let piece = u64::from(PIECE_BYTES);
    // What was asked for when the session ended is asked for again, nothing else.
    assert_eq!(of_big, [0, piece, 2 * piece, 2 * piece, 3 * piece]);

    // The next version costs its list and the files that are new.
    let before = fleet.reconciler.fetched().len();
    let order = with_bundle(&fleet, 2, &[("big", &big), ("sub/other", b"other")]);
    fleet.reconciler.order(text(&order));
    fleet.until_state(2, DeclarationState::Confirmed);
    assert_eq!(fleet.reconciler.fetched().len() - before, 2);
    assert!(fleet.world.file("srv/site/sub/small").is_none());
    assert_eq!(fleet.world.file("srv/site/sub/other").as_deref(), Some("other"));
    // What neither of the last two orders names goes with the one after them.
    let order = with_bundle(&fleet, 3, &[("a", b"a")]);
    fleet.reconciler.order(text(&order));
    fleet.until_state(3, DeclarationState::Confirmed);
    let kept = fleet
        .world
        .state()
        .join("artifacts")
        .join(Digest::of(b"small").hex());
    poll("the end of what nobody names", || {
        !kept.exists() && !kept.with_extension("former").exists()
    });
    assert_eq!(host.stop(), Some(0));
}

// holds: HK-15, HR-14
#[test]
fn an_order_whose_artifacts_cannot_be_had_is_not_begun_and_says_why() {
    let fleet = Fleet::new();
    let host = fleet.run();
    let mut order = with_bundle(&fleet, 1, &[("a", b"a")]);
    order.resources.last_mut().unwrap().spec["tree"] = Digest::of(b"elsewhere").to_string().into();
    order.artifacts[0].sha256 = Digest::of(b"elsewhere");
    fleet.reconciler.order(text(&order));
    let report = fleet.until_state(1, DeclarationState::Reverted);
    let why = report.declaration.unwrap().reason;
    assert!(
        why.contains("web.site") && why.contains("does not have its artifact"),
        "{why}"
    );
    assert!(fleet.world.file("etc/web.conf").is_none(), "nothing was touched");

    // A restart in the middle of a fetch goes on with it.
    let big = noise(2 * PIECE_BYTES as usize);
    fleet.reconciler.cut_after(2);
    let order = with_bundle(&fleet, 2, &[("big", &big)]);
    fleet.reconciler.order(text(&order));
    poll("a part of it", || {
        let part = fleet
            .world
            .state()
            .join("artifacts")
            .join(format!("{}.part", Digest::of(&big).hex()));
        std::fs::metadata(part).is_ok_and(|part| part.len() > 0)
    });
    host.kill();
    let host = fleet.run();
    fleet.until_state(2, DeclarationState::Confirmed);
    assert_eq!(
        fleet.world.file("srv/site/big").map(|text| text.len()),
        None,
        "it is no text"
    );
    assert_eq!(
        std::fs::read(fleet.world.root().join("srv/site/big")).unwrap(),
        big
    );
    assert_eq!(host.stop(), Some(0));
}
