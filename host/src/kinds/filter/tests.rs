use std::collections::BTreeSet;

use meshplan_schemas::resource::containers::Protocol;
use meshplan_schemas::resource::net::Accept;

use super::*;
use crate::edge::checked::path;
use crate::edge::disk::SimDisk;
use crate::edge::observe::observe;
use crate::edge::system::SimSystem;
use crate::pure::filter::found::Stand;
use crate::pure::filter::links::{Link, Links};

struct World {
    root: SimDisk,
    state: SimDisk,
    system: SimSystem,
}

impl World {
    /// A machine with one outward link.
    fn new() -> Self {
        let world = Self {
            root: SimDisk::new(),
            state: SimDisk::new(),
            system: SimSystem::default(),
        };
        atomic::put_folder(&world.root, &path("/etc"), 0o755, Owner::default()).unwrap();
        let disk = world.root.clone();
        world.system.with(|sim| sim.disk = Some(disk));
        world.link("eth0", true);
        world
    }

    fn link(&self, name: &str, is_physical: bool) {
        let link = Link {
            index: 2,
            is_physical,
            ..Link::default()
        };
        self.system
            .with(|sim| sim.nft.links.all.insert(name.to_owned(), link));
    }

    fn without_links(&self) {
        self.system.with(|sim| sim.nft.links = Links::default());
    }

    fn reach(&self) -> Reach<'_> {
        Reach {
            root: &self.root,
            system: &self.system,
            state: &self.state,
        }
    }

    fn planned(&self, wanted: &Wanted) -> Decision {
        plan(wanted, &state(self.reach()), self.reach())
    }

    fn applied(&self, wanted: &Wanted) {
        apply(wanted, self.reach()).unwrap();
        assert_eq!(self.planned(wanted), Decision::Unchanged);
    }

    fn loaded(&self) -> Option<String> {
        self.system.with(|sim| sim.nft.table.clone())
    }

    fn ufw(&self, enabled: &str) {
        atomic::put_folder(&self.root, &path("/etc/ufw"), 0o755, Owner::default()).unwrap();
        let conf = format!("ENABLED={enabled}\n");
        let file = NewFile {
            bytes: conf.as_bytes(),
            mode: 0o644,
            owner: Owner::default(),
        };
        atomic::put_file(&self.root, &path("/etc/ufw/ufw.conf"), &file, None).unwrap();
        self.system.with(|sim| {
            sim.nft.has_ufw = true;
            sim.nft.is_ufw_loaded = enabled == "yes";
        });
    }

    fn stand_of_ufw(&self) -> Option<Stand> {
        firewalls::stands(self.reach()).unwrap().get("ufw").copied()
    }
}

fn tcp(ports: &[&str]) -> Wanted {
    let accept = Accept {
        protocol: Some(Protocol::Tcp),
        ports: ports.iter().map(|port| (*port).to_owned()).collect(),
        ..Accept::default()
    };
    let wanted = validate(&Filter { accept: vec![accept] }).unwrap();
    Wanted {
        may_retire: true,
        ..wanted
    }
}

fn said(decision: Decision) -> String {
    match decision {
        Decision::Create(why) | Decision::Update(why) | Decision::Idle(why) | Decision::Unknown(why) => why,
        other => panic!("{other:?}"),
    }
}

// holds: HK-11, HK-14
#[test]
fn it_is_loaded_whole_compared_by_what_nft_lists_and_given_back() {
    let world = World::new();
    let ssh = tcp(&["22"]);
    assert_eq!(state(world.reach()), Observed::Absent);
    let why = said(world.planned(&ssh));
    assert!(why.contains("refuses the rest on eth0"), "{why}");
    world.applied(&ssh);
    assert!(world.loaded().unwrap().contains("tcp dport { 22 } accept"));
    assert_eq!(world.system.acts(), ["load the filter"]);
    // Nothing is run for what stands.
    for _ in 0..10 {
        assert_eq!(world.planned(&ssh), Decision::Unchanged);
    }
    assert_eq!(world.system.acts(), Vec::<String>::new());
    let why = said(world.planned(&tcp(&["22", "80"])));
    assert!(
        why.contains("2 lines lost, 3 lines new") || why.contains("new"),
        "{why}"
    );
    world.applied(&tcp(&["22", "80"]));
    let said = give_back(None, world.reach()).unwrap();
    assert_eq!(said, "the machine's filter is taken away");
    assert_eq!((world.loaded(), state(world.reach())), (None, Observed::Absent));
}

// holds: HK-11
#[test]
fn whoever_changes_a_rule_takes_the_table_away_or_its_file_is_seen() {
    let world = World::new();
    let ssh = tcp(&["22"]);
    world.applied(&ssh);
    world
        .system
        .with(|sim| sim.nft.table = Some("table inet meshplan { }".to_owned()));
    let why = said(world.planned(&ssh));
    assert!(why.contains("its rules are others"), "{why}");
    world.applied(&ssh);
    world.system.with(|sim| sim.nft.table = None);
    let why = said(world.planned(&ssh));
    assert!(why.contains("it was gone"), "{why}");
    world.applied(&ssh);
    atomic::remove_file(&world.root, &path(FILE)).unwrap();
    assert!(matches!(world.planned(&ssh), Decision::Update(_)));
    world.applied(&ssh);
    // nft itself is another: the rules are not called changed.
    world.system.with(|sim| sim.nft.version = 9);
    let why = said(world.planned(&ssh));
    assert!(why.contains("nft is another version"), "{why}");
    world.applied(&ssh);
    // What was kept of the load is lost: it is loaded once more, and known again.
    let text = observe(&world.root, &path(FILE));
    let Observed::File { bytes, .. } = text else {
        panic!()
    };
    atomic::remove_file(&world.state, &kept(Digest::of(&bytes)).unwrap()).unwrap();
    assert!(matches!(world.planned(&ssh), Decision::Update(_)));
    world.applied(&ssh);
}

// holds: HK-11
#[test]
fn a_machine_without_an_outward_link_gets_no_filter_and_says_so_and_one_that_loses_them_loses_it() {
    let world = World::new();
    let ssh = tcp(&["22"]);
    world.without_links();
    world.link("docker0", false);
    let none = "this machine has no outward link, so it gets no filter";
    assert_eq!(world.planned(&ssh), Decision::Idle(none.to_owned()));
    apply(&ssh, world.reach()).unwrap();
    assert_eq!(world.loaded(), None);
    world.link("wlan0", true);
    world.applied(&ssh);
    assert!(world.loaded().unwrap().contains("iifname != { \"wlan0\" }"));
    // A link more: it is refused on that one too.
    world.link("eth1", true);
    let why = said(world.planned(&ssh));
    assert!(why.contains("on eth1, wlan0"), "{why}");
    world.applied(&ssh);
    world.without_links();
    let why = said(world.planned(&ssh));
    assert!(why.contains("the filter goes"), "{why}");
    apply(&ssh, world.reach()).unwrap();
    assert_eq!(world.planned(&ssh), Decision::Idle(none.to_owned()));
    assert_eq!(state(world.reach()), Observed::Absent);
}

// holds: HK-11
#[test]
fn what_nft_does_not_take_leaves_what_was_loaded_and_its_file() {
    let world = World::new();
    world.applied(&tcp(&["22"]));
    let before = (world.loaded(), observe(&world.root, &path(FILE)));
    world.system.with(|sim| sim.nft.refuses = true);
    let why = apply(&tcp(&["80"]), world.reach()).unwrap_err();
    assert!(
        why.contains("what was loaded stays") && why.contains("syntax error"),
        "{why}"
    );
    assert_eq!((world.loaded(), observe(&world.root, &path(FILE))), before);
    let names: BTreeSet<String> = world
        .root
        .list(Some(&path("/etc")))
        .unwrap()
        .into_iter()
        .collect();
    assert_eq!(
        names,
        BTreeSet::from(["meshplan-filter.nft".to_owned()]),
        "nothing is left beside"
    );
}

// holds: HK-11
#[test]
fn an_nft_that_does_not_answer_is_no_machine_without_a_filter() {
    let world = World::new();
    world.system.with(|sim| sim.nft.is_missing = true);
    assert!(matches!(state(world.reach()), Observed::Unknown(_)));
    assert!(matches!(world.planned(&tcp(&["22"])), Decision::Unknown(_)));
}

// holds: HK-11
#[test]
fn a_found_firewall_is_retired_once_the_filter_is_loaded_and_retired_again_and_given_back() {
    let world = World::new();
    world.ufw("yes");
    let ssh = tcp(&["22"]);
    let found = state(world.reach()).thing();
    let untaken = Wanted {
        may_retire: false,
        ..ssh.clone()
    };
    world.applied(&untaken);
    assert_eq!(
        world.stand_of_ufw(),
        Some(Stand::Active),
        "its module is not taken"
    );
    let why = said(world.planned(&ssh));
    assert!(why.contains("ufw, which is active, is retired"), "{why}");
    world.applied(&ssh);
    assert_eq!(
        world.system.acts(),
        ["load the filter", "load the filter", "ufw off"]
    );
    assert_eq!(world.stand_of_ufw(), Some(Stand::Retired));
    // Somebody turns it on again.
    world.ufw("yes");
    let why = said(world.planned(&ssh));
    assert!(why.contains("ufw, which is active, is retired"), "{why}");
    world.applied(&ssh);
    let said = give_back(found.as_ref(), world.reach()).unwrap();
    assert!(said.contains("ufw is active again, as it was found"), "{said}");
    assert_eq!(state(world.reach()).thing(), found);
    assert!(world.system.with(|sim| sim.nft.is_ufw_loaded));
}

// holds: HK-11
#[test]
fn a_firewall_that_was_found_off_stays_off_and_one_that_somebody_turned_off_is_not_turned_on() {
    let world = World::new();
    world.ufw("no");
    let found = state(world.reach()).thing();
    world.applied(&tcp(&["22"]));
    assert_eq!(world.stand_of_ufw(), Some(Stand::Inactive));
    give_back(found.as_ref(), world.reach()).unwrap();
    assert_eq!(world.stand_of_ufw(), Some(Stand::Inactive));
    assert!(!world.system.acts().contains(&"ufw on".to_owned()));
}

// holds: HK-11
#[test]
fn a_retirement_that_was_begun_is_finished() {
    let world = World::new();
    world.ufw("yes");
    world.applied(&tcp(&["22"]));
    // A cut in its midst: its settings say off, its rules stand, and the mark is the one of before.
    put_mark(&world, "retiring\n");
    world.system.with(|sim| sim.nft.is_ufw_loaded = true);
    assert_eq!(world.stand_of_ufw(), Some(Stand::Active));
    world.applied(&tcp(&["22"]));
    assert!(!world.system.with(|sim| sim.nft.is_ufw_loaded));
    assert_eq!(world.stand_of_ufw(), Some(Stand::Retired));
}

fn put_mark(world: &World, word: &str) {
    crate::edge::ledger::put_own(&world.state, &path("/filter/ufw"), word.as_bytes()).unwrap();
}

// holds: HK-11
#[test]
fn one_whose_command_is_gone_is_recorded_as_removed_said_once_and_asked_nothing_of() {
    let world = World::new();
    world.ufw("yes");
    let ssh = tcp(&["22"]);
    let found = state(world.reach()).thing();
    world.system.with(|sim| sim.nft.has_ufw = false);
    let why = said(world.planned(&ssh));
    assert!(why.contains("ufw is recorded as removed"), "{why}");
    world.applied(&ssh);
    assert_eq!(world.stand_of_ufw(), Some(Stand::Removed));
    for _ in 0..3 {
        assert_eq!(world.planned(&ssh), Decision::Unchanged, "it is said once");
    }
    give_back(found.as_ref(), world.reach()).unwrap();
    assert!(world.system.acts().iter().all(|act| !act.contains("ufw")));
}

// holds: HK-11, HR-14
#[test]
fn the_way_back_brings_the_former_rules_the_found_firewall_and_what_was_marked() {
    let world = World::new();
    world.ufw("yes");
    let there = state(world.reach());
    let back = way_back(&there, Some(&foreseen(&world, &["22"])), world.reach()).unwrap();
    let ran: Vec<String> = (back.acts.iter())
        .filter_map(|act| match &act.act {
            crate::pure::inverse::UndoAct::Run { argv, .. } => Some(argv.join(" ")),
            _ => None,
        })
        .collect();
    // The found firewall first, so that the machine is never without.
    assert_eq!(ran, ["ufw --force enable".to_owned(), format!("nft {AWAY}")]);
    assert!(
        back.acts
            .iter()
            .any(|act| act.target.to_string() == "/filter/ufw")
    );
    world.applied(&tcp(&["22"]));
    let back = way_back(
        &state(world.reach()),
        Some(&foreseen(&world, &["22"])),
        world.reach(),
    )
    .unwrap();
    let of_file = |act: &&crate::pure::inverse::Act| act.target.to_string() == FILE;
    assert_eq!(back.acts.iter().filter(of_file).count(), 1);
    assert!(
        back.blobs
            .values()
            .any(|bytes| String::from_utf8_lossy(bytes).contains("dport { 22 }"))
    );
    let last = back.acts.last().unwrap();
    let load = crate::pure::inverse::UndoAct::run(&["nft", "-f", FILE], &[]);
    assert_eq!((last.when, &last.act), (When::Last, &load));
    // A table of that name that has no file is kept in words.
    atomic::remove_file(&world.root, &path(FILE)).unwrap();
    let back = way_back(
        &state(world.reach()),
        Some(&foreseen(&world, &["22"])),
        world.reach(),
    )
    .unwrap();
    let last = back.acts.last().unwrap();
    let crate::pure::inverse::UndoAct::Run { argv, .. } = &last.act else {
        panic!()
    };
    assert!(argv[1].starts_with(AWAY) && argv[1].contains("dport { 22 }"));
}

fn foreseen(world: &World, ports: &[&str]) -> Wanted {
    let mut wanted = tcp(ports);
    wanted.foresee(world.reach());
    wanted
}

/// The programs of a way back, in order.
fn programs(back: &Back) -> Vec<String> {
    let mut acts: Vec<_> = back.acts.iter().collect();
    acts.sort_by_key(|act| act.when);
    let ran = acts.into_iter().filter_map(|act| match &act.act {
        crate::pure::inverse::UndoAct::Run { argv, .. } => Some(argv.join(" ")),
        _ => None,
    });
    ran.collect()
}

// holds: HK-11
#[test]
fn a_found_firewall_comes_back_also_where_its_retirement_was_cut_and_is_said_where_it_cannot() {
    for is_still_on in [true, false] {
        let world = World::new();
        world.ufw("yes");
        let found = state(world.reach()).thing();
        world.applied(&tcp(&["22"]));
        put_mark(&world, "retiring\n");
        if is_still_on {
            world.ufw("yes");
        }
        let said = give_back(found.as_ref(), world.reach()).unwrap();
        assert!(said.contains("ufw is active again, as it was found"), "{said}");
        assert!(world.system.with(|sim| sim.nft.is_ufw_loaded));
        assert_eq!(world.stand_of_ufw(), Some(Stand::Active));
    }
    // Its module was never taken: it was on all the time, and nothing is done to it.
    let world = World::new();
    world.ufw("yes");
    let found = state(world.reach()).thing();
    world.applied(&Wanted {
        may_retire: false,
        ..tcp(&["22"])
    });
    let said = give_back(found.as_ref(), world.reach()).unwrap();
    assert_eq!(said, "the machine's filter is taken away");
    assert!(world.system.acts().iter().all(|act| !act.contains("ufw")));
    // Its command went, after it was retired or before.
    for is_retired in [true, false] {
        let world = World::new();
        world.ufw("yes");
        let found = state(world.reach()).thing();
        if is_retired {
            world.applied(&tcp(&["22"]));
        }
        world.system.with(|sim| sim.nft.has_ufw = false);
        if !is_retired {
            world.applied(&tcp(&["22"]));
        }
        let said = give_back(found.as_ref(), world.reach()).unwrap();
        assert!(
            said.contains("ufw, which was found active, could not come back"),
            "{said}"
        );
        assert_eq!(world.loaded(), None);
    }
}

// holds: HK-11
#[test]
fn firewalld_comes_back_as_it_stood_and_no_more_than_that() {
    const UNIT: &str = "firewalld.service";
    let stood = [
        ("active", "enabled", vec!["enable", "start"]),
        ("active", "disabled", vec!["start"]),
        ("inactive", "enabled", vec!["enable"]),
    ];
    for (active, boot, words) in stood {
        let world = World::new();
        for folder in ["/run", "/run/systemd", "/run/systemd/system"] {
            atomic::put_folder(&world.root, &path(folder), 0o755, Owner::default()).unwrap();
        }
        world.system.with(|sim| sim.unit(UNIT, active, boot));
        let there = state(world.reach());
        let back = way_back(&there, Some(&foreseen(&world, &["22"])), world.reach()).unwrap();
        let mut expected: Vec<String> = words
            .iter()
            .map(|word| format!("systemctl {word} {UNIT}"))
            .collect();
        expected.push(format!("nft {AWAY}"));
        assert_eq!(programs(&back), expected);
        world.applied(&tcp(&["22"]));
        let stands = || {
            let unit = world.system.with(|sim| sim.units[UNIT].clone());
            (unit.active, unit.boot)
        };
        assert_eq!(stands(), ("inactive".to_owned(), "disabled".to_owned()));
        give_back(there.thing().as_ref(), world.reach()).unwrap();
        assert_eq!(stands(), (active.to_owned(), boot.to_owned()));
    }
}

// holds: HK-11, HR-14
#[test]
fn the_way_back_of_an_undeclare_turns_the_retired_off_again_last_of_all() {
    let world = World::new();
    world.ufw("yes");
    world.applied(&tcp(&["22"]));
    let load = format!("nft -f {FILE}");
    let of = |wanted| programs(&way_back(&state(world.reach()), wanted, world.reach()).unwrap());
    assert_eq!(of(None), [load.clone(), "ufw disable".to_owned()]);
    let other = foreseen(&world, &["80"]);
    assert_eq!(
        of(Some(&other)),
        std::slice::from_ref(&load),
        "other ports give nothing back"
    );
    world.without_links();
    let none = foreseen(&world, &["80"]);
    assert_eq!(of(Some(&none)), [load.clone(), "ufw disable".to_owned()]);
    // One that is gone does not come back, and is asked nothing of.
    world.system.with(|sim| sim.nft.has_ufw = false);
    assert_eq!(of(None), [load]);
}
