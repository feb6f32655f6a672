use super::*;

use jiff::SignedDuration;
use proptest::prelude::*;
use tempfile::TempDir;

/// Notes down the keys of each call, and does what it is told.
#[derive(Default)]
struct Double {
    calls: Mutex<Vec<Vec<String>>>,
    /// Rows with these keys do not work.
    broken: Mutex<Vec<String>>,
    retry_after: Option<Duration>,
    /// Until when it is too early for all.
    early: Mutex<Option<Timestamp>>,
}

impl Double {
    fn carrier(self: &Arc<Self>) -> Carrier {
        let double = Arc::clone(self);
        Arc::new(move |rows: Vec<OutboxRow>| {
            let keys = rows.iter().map(|r| r.key.clone()).collect();
            double.calls.lock().unwrap().push(keys);
            let (broken, early) = (double.broken.lock().unwrap(), double.early.lock().unwrap());
            let (rows, early): (Vec<_>, BTreeMap<_, _>) = match *early {
                Some(until) => (Vec::new(), rows.into_iter().map(|r| (r.id, until)).collect()),
                None => (rows, BTreeMap::new()),
            };
            let (open, done): (Vec<_>, Vec<_>) = rows.into_iter().partition(|r| broken.contains(&r.key));
            let trouble = (!open.is_empty()).then(|| Trouble {
                why: "the forge is down".to_owned(),
                retry_after: double.retry_after,
            });
            let done = done.into_iter().map(|r| r.id).collect();
            Box::pin(async move { Carried { done, early, trouble } })
        })
    }

    fn calls(&self) -> Vec<Vec<String>> {
        self.calls.lock().unwrap().clone()
    }
}

async fn world() -> (TempDir, Store, Waker) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(&folder.path().join("meshplan.db"), Clock::default())
        .await
        .unwrap();
    (folder, store, Waker::default())
}

fn outbox(store: &Store, waker: &Waker, double: &Arc<Double>) -> Outbox {
    Outbox::new(store.clone(), waker.clone(), Clock::default(), Duration::ZERO)
        .carrier("notes", double.carrier())
}

// holds: FG-4, DL-10
#[tokio::test]
async fn all_rows_of_a_kind_that_are_due_are_one_call_and_done_ones_never_come_again() {
    let (_folder, store, waker) = world().await;
    let double = Arc::new(Double::default());
    let outbox = outbox(&store, &waker, &double);
    for key in ["1", "2", "3"] {
        store.queue_outward("notes", key, "c").await.unwrap();
    }
    assert_eq!(outbox.run_due().await.unwrap(), None);
    assert_eq!(outbox.run_due().await.unwrap(), None);
    assert_eq!(double.calls(), [["1", "2", "3"]]);
    assert!(store.outbox_open().await.unwrap().is_empty());
}

// holds: DL-10
#[tokio::test]
async fn a_kind_that_rests_is_one_batch_when_it_has_rested() {
    let (_folder, store, waker) = world().await;
    let double = Arc::new(Double::default());
    let rest = Duration::from_millis(300);
    let outbox = outbox(&store, &waker, &double).resting("notes", rest);
    store.queue_outward("notes", "1", "c").await.unwrap();
    let began = Clock::default().now();
    assert_eq!(outbox.run_due().await.unwrap(), None);
    for key in ["2", "3"] {
        store.queue_outward("notes", key, "c").await.unwrap();
        let next = outbox.run_due().await.unwrap().expect("it rests");
        assert!(next.duration_since(began) >= SignedDuration::from_millis(300));
    }
    assert_eq!(double.calls(), [["1"]]);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while outbox.run_due().await.unwrap().is_some() {
        assert!(std::time::Instant::now() < deadline, "it rests for ever");
        tokio::task::yield_now().await;
    }
    assert_eq!(double.calls(), [vec!["1"], vec!["2", "3"]]);
}

// holds: DL-11
#[tokio::test]
async fn what_comes_too_early_waits_without_a_trouble_and_takes_the_newer_body() {
    let (_folder, store, waker) = world().await;
    let double = Arc::new(Double::default());
    let until = Clock::default()
        .now()
        .checked_add(SignedDuration::from_millis(300))
        .unwrap();
    *double.early.lock().unwrap() = Some(until);
    let outbox = outbox(&store, &waker, &double);
    store.queue_outward("notes", "1", "first").await.unwrap();
    let next = outbox.run_due().await.unwrap().expect("it is due later");
    assert!(next.duration_since(until).abs() < SignedDuration::from_millis(1));
    store.queue_outward("notes", "1", "second").await.unwrap();
    let open = store.outbox_open().await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].body.as_str(), open[0].attempts, open[0].error.as_deref()),
        ("second", 0, None)
    );
    *double.early.lock().unwrap() = None;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while outbox.run_due().await.unwrap().is_some() {
        assert!(std::time::Instant::now() < deadline, "it waits for ever");
        tokio::task::yield_now().await;
    }
    assert!(store.outbox_open().await.unwrap().is_empty());
}

// holds: FG-4
#[tokio::test]
async fn what_did_not_work_waits_is_seen_and_is_tried_again() {
    let (_folder, store, waker) = world().await;
    let double = Arc::new(Double::default());
    double.broken.lock().unwrap().push("2".to_owned());
    let outbox = outbox(&store, &waker, &double);
    for key in ["1", "2"] {
        store.queue_outward("notes", key, "c").await.unwrap();
    }
    let before = Clock::default().now();
    let next = outbox.run_due().await.unwrap().expect("it is due again");
    assert!(next > before, "at once");
    outbox.run_due().await.unwrap();
    assert_eq!(double.calls().len(), 1, "it was not due yet");
    let open = store.outbox_open().await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].key.as_str(), open[0].attempts, open[0].error.as_deref()),
        ("2", 1, Some("the forge is down"))
    );

    double.broken.lock().unwrap().clear();
    let stop = CancellationToken::new();
    let running = async {
        tokio::join!(outbox.run(&stop), async {
            while !store.outbox_open().await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            stop.cancel();
        })
    };
    tokio::time::timeout(Duration::from_secs(20), running)
        .await
        .expect("it was never tried again");
    assert_eq!(double.calls()[1], ["2"]);
}

// holds: FG-4
#[tokio::test]
async fn who_asks_for_a_longer_wait_gets_it() {
    let (_folder, store, waker) = world().await;
    let double = Arc::new(Double {
        broken: Mutex::new(vec!["1".to_owned()]),
        retry_after: Some(Duration::from_secs(900)),
        ..Double::default()
    });
    store.queue_outward("notes", "1", "c").await.unwrap();
    let before = Clock::default().now();
    let next = outbox(&store, &waker, &double).run_due().await.unwrap().unwrap();
    let wait = next.duration_since(before).as_secs();
    assert!((899..=901).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_kind_that_nobody_carries_stays_and_says_so_and_holds_up_no_other() {
    let (_folder, store, waker) = world().await;
    let double = Arc::new(Double::default());
    let outbox = outbox(&store, &waker, &double);
    store.queue_outward("comment", "1", "c").await.unwrap();
    store.queue_outward("notes", "1", "c").await.unwrap();
    outbox.run_due().await.unwrap();
    assert_eq!(double.calls().len(), 1);
    let open = store.outbox_open().await.unwrap();
    assert_eq!(
        open[0].error.as_deref(),
        Some("this build does not know how to carry out `comment`")
    );
}

// holds: DL-10
#[tokio::test]
async fn what_is_queued_while_it_runs_is_carried_when_woken() {
    let (_folder, store, waker) = world().await;
    let double = Arc::new(Double::default());
    let outbox = outbox(&store, &waker, &double);
    let stop = CancellationToken::new();
    let queueing = async {
        store.queue_outward("notes", "1", "c").await.unwrap();
        waker.wake();
        while double.calls().is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(outbox.run(&stop), queueing) };
    tokio::time::timeout(Duration::from_secs(20), both)
        .await
        .expect("it was never carried out");
}

proptest! {
    // holds: FG-4
    #[test]
    fn a_wait_is_between_half_of_and_the_whole_of_its_doubling(attempts in 0_u64..1000, random: u32) {
        let whole = Duration::from_secs(1 << attempts.min(16)).min(LONGEST_WAIT);
        let wait = backoff(attempts, random);
        prop_assert!(wait >= whole / 2, "{wait:?}");
        prop_assert!(wait <= whole, "{wait:?}");
    }
}
