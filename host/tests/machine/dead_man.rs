//! When the dead man of a window is armed and put away (HR-13); one that only remembers stands for the machine's.

use std::sync::{Arc, Mutex};

use crate::world::{self, Decl, World, because, file};
use meshplan_host::edge::deadline::DeadMan;
use meshplan_host::edge::machine::{Machine, Recovered, Window, WindowState};

/// What it was told, and how the machine stood at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Armed {
        state: WindowState,
        secs: u64,
        done: bool,
    },
    Disarmed {
        undecided: bool,
    },
}

/// Remembers; refuses to arm where it is told to.
struct Remembers {
    world: World,
    told: Arc<Mutex<Vec<Told>>>,
    refuses: bool,
}

impl DeadMan for Remembers {
    fn arm(&self, window: &Window, secs: u64) -> Result<(), String> {
        self.told.lock().unwrap().push(Told::Armed {
            state: window.state,
            secs,
            done: self.world.targets().contains_key("/f"),
        });
        if self.refuses {
            return Err("nobody".to_owned());
        }
        Ok(())
    }
    fn disarm(&self) -> Result<(), String> {
        let shown = self.world.disk.show();
        let has = |name: &str| shown.keys().any(|at| at.ends_with(name));
        let undecided = has("/window/window.json") && !has("/window/verdict.json");
        self.told.lock().unwrap().push(Told::Disarmed { undecided });
        Ok(())
    }
}

fn with_dead_man(world: &World, machine: &mut Machine, refuses: bool) -> Arc<Mutex<Vec<Told>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    machine.tell_dead_man(Box::new(Remembers {
        world: World::on(world.disk.clone()),
        told: Arc::clone(&told),
        refuses,
    }));
    told
}

fn heard(told: &Arc<Mutex<Vec<Told>>>) -> Vec<Told> {
    std::mem::take(&mut *told.lock().unwrap())
}

fn one() -> Decl {
    Decl::new(1).with("web", vec![file("f", "/f", "one\n")])
}

// holds: HR-13
#[test]
fn the_dead_man_is_there_before_the_first_change_and_gone_when_the_window_is() {
    let applying = |secs, done| Told::Armed {
        state: WindowState::Applying,
        secs,
        done,
    };
    let waiting = |secs| Told::Armed {
        state: WindowState::AwaitingConfirm,
        secs,
        done: true,
    };
    let gone = || Told::Disarmed { undecided: false };
    for confirms in [true, false] {
        let world = World::new();
        let mut machine = world.machine();
        let told = with_dead_man(&world, &mut machine, false);
        assert_eq!(heard(&told), [gone()], "one of before is put away");
        machine.tell_time(|| 12);
        assert!(
            machine
                .apply(&one().get(), one().digest(), 10)
                .unwrap()
                .window_open()
        );
        // Sixty seconds from ten, at twelve.
        assert_eq!(heard(&told), [applying(58, false)]);
        machine.arm(100).unwrap();
        assert_eq!(heard(&told), [waiting(88)]);
        machine.arm(200).unwrap();
        assert_eq!(heard(&told), [], "the deadline is set once");
        if confirms {
            machine.confirm(20).unwrap();
        } else {
            machine.revert(&because("so"), 20).unwrap();
        }
        assert_eq!(heard(&told), [gone()]);
        assert_eq!(machine.unguarded(), None);
    }
}

// holds: HR-13, HR-2
#[test]
fn what_changes_nothing_needs_none_and_a_window_of_this_boot_keeps_the_one_it_has() {
    let world = World::new();
    let mut machine = world.machine();
    world::settle(&mut machine, &one());
    let told = with_dead_man(&world, &mut machine, false);
    heard(&told);
    assert!(
        machine
            .apply(&one().get(), one().digest(), 30)
            .unwrap()
            .converged()
    );
    assert_eq!(heard(&told), []);

    let two = Decl::new(2).with("web", vec![file("f", "/f", "two\n")]);
    machine.apply(&two.get(), two.digest(), 40).unwrap();
    machine.arm(100).unwrap();
    drop(machine);
    let (mut machine, recovery) = world.open();
    assert!(matches!(recovery.window, Recovered::StillOpen(_)));
    let told = with_dead_man(&world, &mut machine, false);
    assert_eq!(heard(&told), []);
    machine.confirm(50).unwrap();
    assert_eq!(heard(&told), [Told::Disarmed { undecided: false }]);
}

// holds: HR-13
#[test]
fn a_machine_without_one_applies_as_before_and_says_so_once() {
    let world = World::new();
    let mut machine = world.machine();
    let _told = with_dead_man(&world, &mut machine, true);
    world::settle(&mut machine, &one());
    assert_eq!(machine.unguarded().as_deref(), Some("nobody"));
    let two = Decl::new(2).with("web", vec![file("f", "/f", "two\n")]);
    world::settle(&mut machine, &two);
    assert_eq!(machine.unguarded(), None, "said already");
    assert!(world.targets()["/f"].contains("two"), "{:?}", world.targets());
}
