//! The reconciler dies after every write of a delivery, at each place where it can, and goes on (RO-8): whatever was lost, the
//! machines come to the same content and the deliveries to the same end.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::path::Path;

use meshplan_reconciler::simulation;

/// Where a pass can die.
const PLACES: [&str; 5] = [
    "pass-before-store",
    "store-before-commit",
    "store-after-commit",
    "pass-after-store",
    "pass-after-publish",
];

const GOOD: &str = "fleet of 3 machines
advance 1m
merge web: two, and a policy
  write modules/web/files/page two
  replace policy/base.toml 300 => 600
advance 6m
show machines
show deliveries
";

const BAD: &str = "fleet of 3 machines
advance 1m
break n3 on two
merge web: two
  write modules/web/files/page two
advance 6m
show machines
show deliveries
";

/// The policy is released already when a machine of the rest puts it back: the former one is signed forward for all.
const ABORTED: &str = "fleet of 3 machines
advance 1m
break n3 on 600
merge policy: every ten minutes
  replace policy/base.toml 300 => 600
advance 6m
show machines
show deliveries
";

/// What is the same whenever it happened: states, content, who is where. Times and numbers of orders are not.
fn essence(said: &str) -> Vec<String> {
    let shown = said.lines().skip_while(|line| *line != "> show machines");
    let without_numbers = |line: &str| {
        let words = line.split_whitespace();
        let words = words.filter(|w| !w.bytes().any(|b| b.is_ascii_digit()) || w.starts_with('n'));
        words.collect::<Vec<_>>().join(" ")
    };
    shown.map(without_numbers).collect()
}

async fn killed_everywhere(script: &str) {
    let base = Path::new(".");
    let mut out = Vec::new();
    let played = simulation::run(script, base, &mut out).await.unwrap();
    assert_eq!(played.died, 0);
    let whole = essence(&String::from_utf8(out).unwrap());
    assert!(whole.iter().any(|line| line.contains("runs")), "{whole:?}");
    for place in PLACES {
        let mut deaths = 0;
        for at in 0.. {
            fail::cfg(place, &format!("{at}*off->1*panic(killed here)->off")).unwrap();
            let mut out = Vec::new();
            let played = simulation::run(script, base, &mut out).await;
            fail::remove(place);
            let said = String::from_utf8(out).unwrap();
            let died = played
                .unwrap_or_else(|error| panic!("{place} {at}: {error}\n{said}"))
                .died;
            assert_eq!(
                essence(&said),
                whole,
                "killed at {place}, the {at}th time:\n{said}"
            );
            if died == 0 {
                break;
            }
            deaths += 1;
        }
        assert!(deaths > 3, "only {deaths} deaths at {place}");
    }
}

// holds: RO-8, SG-8
#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_dies_after_any_write_of_a_delivery_goes_on_to_the_same_end() {
    killed_everywhere(GOOD).await;
}

// holds: RO-8, DL-7
#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_dies_after_any_write_of_a_roll_back_goes_on_to_the_same_end() {
    killed_everywhere(BAD).await;
}

// holds: RO-8, RO-1
#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_dies_after_any_write_of_an_abort_of_a_policy_goes_on_to_the_same_end() {
    killed_everywhere(ABORTED).await;
}
