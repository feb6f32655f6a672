//! What of the machine's filter only a window may bring: other links, another text, a found firewall that comes back.

use meshplan_host::edge::disk::{Disk as _, NewFile, Owner, atomic};
use meshplan_host::edge::machine::{End, Machine};
use meshplan_host::pure::agent::Basis;
use meshplan_host::pure::filter::links::Link;
use meshplan_schemas::report::Outcome;
use serde_json::json;

use crate::filters::{change, filter, is_ufw_on, loaded, machine, with_ufw, world};
use crate::things::{outcomes, reason};
use crate::world::{Decl, World, because, file, path, settle};

/// A physical device more.
fn another_device(world: &World) {
    let wlan0 = Link {
        index: 3,
        is_physical: true,
        ..Link::default()
    };
    world
        .system
        .with(|sim| sim.nft.links.all.insert("wlan0".to_owned(), wlan0));
}

// holds: HK-11, HR-5
#[test]
fn what_the_filter_comes_to_on_other_links_waits_for_a_window_and_what_was_confirmed_stays_in_force() {
    let world = world();
    let mut machine = machine(&world);
    settle(&mut machine, &change(1, &["22"]));
    let confirmed = loaded(&world);
    assert_eq!(world.system.acts(), ["load the filter"]);
    another_device(&world);
    let look = |machine: &mut Machine, at| machine.repair(&change(1, &["22"]).get(), at).unwrap();
    let line = |of: Outcome| vec![("net.filter".to_owned(), of)];
    let seen = look(&mut machine, 30);
    assert!(seen.end == End::Converged && !seen.failed, "{seen:?}");
    assert_eq!(outcomes(&seen), line(Outcome::Kept));
    let why = reason(&seen, "net.filter");
    assert!(
        why.contains("goes with the next order") && why.contains("on eth0, wlan0"),
        "{why}"
    );
    assert_eq!(
        (loaded(&world), world.system.acts()),
        (confirmed.clone(), Vec::new())
    );
    // Somebody takes it away: what was confirmed comes back, and no more than three times within an hour.
    for at in 31..34 {
        world.system.with(|sim| sim.nft.table = None);
        let seen = look(&mut machine, at);
        assert_eq!(outcomes(&seen), line(Outcome::DriftRepaired));
        assert_eq!(seen.end, End::Repaired);
        assert_eq!(loaded(&world), confirmed);
    }
    world.system.with(|sim| sim.nft.table = None);
    let seen = look(&mut machine, 34);
    assert_eq!(
        (outcomes(&seen), loaded(&world)),
        (line(Outcome::Kept), String::new())
    );
    look(&mut machine, 9000);
    assert_eq!(loaded(&world), confirmed);
    // Its file is gone as well: nothing that nobody confirmed takes its place.
    let file = path("/etc/meshplan-filter.nft");
    let text = world.root.read(&file).unwrap();
    atomic::remove_file(&world.root, &file).unwrap();
    let seen = look(&mut machine, 9001);
    assert!(
        seen.failed && outcomes(&seen) == line(Outcome::Failed),
        "{seen:?}"
    );
    let text = NewFile {
        bytes: &text,
        mode: 0o600,
        owner: Owner::default(),
    };
    atomic::put_file(&world.root, &file, &text, None).unwrap();
    // A ledger made anew makes no drift of it.
    let same = change(1, &["22"]);
    machine
        .rebuild(&same.get(), same.digest(), Basis::Confirmed)
        .unwrap();
    assert_eq!(outcomes(&look(&mut machine, 9002)), line(Outcome::Kept));
    assert_eq!(loaded(&world), confirmed);

    let next = change(2, &["22"]);
    let applied = machine.apply(&next.get(), next.digest(), 9010).unwrap();
    assert!(
        applied.window_open() && loaded(&world).contains("wlan0"),
        "{applied:?}"
    );
    machine.revert(&because("no"), 9020).unwrap();
    assert_eq!(loaded(&world), confirmed);
    let applied = settle(&mut machine, &change(3, &["22"]));
    assert_eq!(outcomes(&applied), line(Outcome::Updated));
    let confirmed = loaded(&world);
    assert!(confirmed.contains("wlan0"));
    // And it is the one that drift is told by.
    world.system.with(|sim| sim.nft.table = None);
    let repaired = machine.repair(&change(3, &["22"]).get(), 20000).unwrap();
    assert_eq!(outcomes(&repaired), line(Outcome::DriftRepaired));
    assert_eq!(loaded(&world), confirmed);
}

// holds: HK-11
#[test]
fn without_an_outward_link_the_filter_stays_until_an_order_gives_the_found_firewall_back_first() {
    let world = world();
    with_ufw(&world);
    let mut machine = machine(&world);
    settle(&mut machine, &change(1, &["22"]));
    let confirmed = loaded(&world);
    assert!(!is_ufw_on(&world));
    assert_eq!(world.system.acts(), ["load the filter", "ufw off"]);
    world.system.with(|sim| sim.nft.links.all.clear());
    let seen = machine.repair(&change(1, &["22"]).get(), 30).unwrap();
    assert_eq!(outcomes(&seen), [("net.filter".to_owned(), Outcome::Kept)]);
    assert_eq!(
        (loaded(&world), world.system.acts()),
        (confirmed.clone(), Vec::new())
    );
    let next = change(2, &["22"]);
    machine.apply(&next.get(), next.digest(), 40).unwrap();
    assert_eq!(world.system.acts(), ["ufw on", "the filter goes"]);
    // Nobody confirms: not both of them are in force then.
    machine.revert(&because("no"), 50).unwrap();
    assert_eq!(world.system.acts(), ["load the filter", "ufw off"]);
    assert!(!is_ufw_on(&world) && loaded(&world) == confirmed);
    settle(&mut machine, &change(3, &["22"]));
    assert!(is_ufw_on(&world) && loaded(&world).is_empty());
    let seen = machine.repair(&change(3, &["22"]).get(), 60).unwrap();
    assert_eq!(outcomes(&seen), [("net.filter".to_owned(), Outcome::Skipped)]);
}

// holds: HK-11, HR-6
#[test]
fn the_file_of_the_filter_is_no_other_resource_s() {
    let world = world();
    let mut machine = machine(&world);
    let ports = json!([{ "protocol": "tcp", "ports": ["22"] }]);
    let own = file("own", "/etc/meshplan-filter.nft", "flush ruleset\n");
    let decl = Decl::new(1).with("net", vec![filter(&ports), own]);
    let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    let End::NotBegun { why } = applied.end else {
        panic!("{applied:?}")
    };
    assert!(why.contains("both name /etc/meshplan-filter.nft"), "{why}");
}
