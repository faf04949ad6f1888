//! What the executor relies on: when Temporal delivers a unit, and when it does not.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pybench_cluster::Cluster;
use pybench_run::shared::{Delivery, DeliveryEnd, Round, UnitQueue};
use pybench_temporal::TemporalQueue;
use pybench_testing::{postgres, temporal};

use crate::{numbered, queue, round};

/// The next unit, if there is one within the time.
async fn take(queue: &TemporalQueue, round: &Round, seconds: u64) -> Option<Box<dyn Delivery>> {
    let until = Instant::now() + Duration::from_secs(seconds);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let taken = tokio::time::timeout(left, queue.take(round)).await;
        if let Ok(Some(delivery)) = taken.map(|taken| taken.unwrap()) {
            return Some(delivery);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_done_is_never_delivered_again() {
    let Some(server) = temporal::server() else {
        return;
    };
    let (queue, round) = (queue(&server, "run_done", 5).await, round("1", "a"));
    let items = numbered(1);
    // Putting it twice starts one activity.
    assert!(queue.put(&round, &items).await.unwrap().is_empty());
    assert!(queue.put(&round, &items).await.unwrap().is_empty());
    let delivery = take(&queue, &round, 20).await.unwrap();
    assert_eq!(delivery.item(), "item-0");
    assert!(
        queue.put(&round, &items).await.unwrap().is_empty(),
        "it is open"
    );
    delivery.end(DeliveryEnd::Done).await;
    assert_eq!(queue.put(&round, &items).await.unwrap(), items);
    let next = crate::round("2", "a");
    assert_eq!(
        queue.put(&next, &items).await.unwrap(),
        items,
        "nor in a later round"
    );
    assert!(take(&queue, &round, 3).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_has_failed_can_be_put_again() {
    let Some(server) = temporal::server() else {
        return;
    };
    let (queue, round) = (queue(&server, "run_failed", 5).await, round("1", "a"));
    let items = numbered(1);
    queue.put(&round, &items).await.unwrap();
    let delivery = take(&queue, &round, 20).await.unwrap();
    let failed = DeliveryEnd::Closed("server: 500".to_owned());
    delivery.end(failed).await;
    assert!(
        take(&queue, &round, 3).await.is_none(),
        "Temporal does not retry it"
    );
    assert!(queue.put(&round, &items).await.unwrap().is_empty());
    let delivery = take(&queue, &round, 20).await.unwrap();
    delivery.end(DeliveryEnd::Done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_after_a_failure_is_kept() {
    let Some(server) = temporal::server() else {
        return;
    };
    let (queue, round) = (queue(&server, "run_wait", 30).await, round("1", "a"));
    queue.put(&round, &numbered(1)).await.unwrap();
    for wait in [Duration::from_secs(4), Duration::ZERO] {
        let delivery = take(&queue, &round, 20).await.unwrap();
        let since = Instant::now();
        delivery.end(DeliveryEnd::Again(wait)).await;
        let delivery = take(&queue, &round, 20).await.unwrap();
        assert!(since.elapsed() >= wait, "{:?}", since.elapsed());
        delivery.end(DeliveryEnd::Again(Duration::ZERO)).await;
    }
    take(&queue, &round, 20)
        .await
        .unwrap()
        .end(DeliveryEnd::Done)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_process_loses_its_unit_and_one_that_beats_does_not() {
    let Some(server) = temporal::server() else {
        return;
    };
    let (queue, round) = (queue(&server, "run_silent", 2).await, round("1", "a"));
    queue.put(&round, &numbered(1)).await.unwrap();
    // A killed process answers nothing.
    std::mem::forget(take(&queue, &round, 20).await.unwrap());
    let since = Instant::now();
    let delivery = take(&queue, &round, 20).await.unwrap();
    let silent = since.elapsed();
    assert!(
        silent >= Duration::from_secs(1) && silent < Duration::from_secs(15),
        "{silent:?}"
    );
    let beats = async {
        for turn in 0.. {
            delivery.beat(turn);
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    };
    tokio::select! {
        () = beats => {}
        other = take(&queue, &round, 6) => assert!(other.is_none(), "the unit is in work"),
    }
    delivery.end(DeliveryEnd::Done).await;
    assert_eq!(queue.put(&round, &numbered(1)).await.unwrap(), numbered(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_unit_is_given_back_at_once() {
    let Some(server) = temporal::server() else {
        return;
    };
    let (queue, round) = (queue(&server, "run_dropped", 60).await, round("1", "a"));
    queue.put(&round, &numbered(1)).await.unwrap();
    drop(take(&queue, &round, 20).await.unwrap());
    // Long before the heartbeat timeout.
    take(&queue, &round, 20)
        .await
        .unwrap()
        .end(DeliveryEnd::Done)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_and_another_run_take_nothing() {
    let Some(server) = temporal::server() else {
        return;
    };
    let (own, version) = (queue(&server, "run_version", 5).await, round("1", "a"));
    own.put(&version, &numbered(1)).await.unwrap();
    assert!(take(&own, &round("1", "b"), 3).await.is_none());
    let other = queue(&server, "run_version_2", 5).await;
    assert!(take(&other, &version, 3).await.is_none());
    take(&own, &version, 20)
        .await
        .unwrap()
        .end(DeliveryEnd::Done)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_goes_on_in_another_version() {
    let Some(server) = temporal::server() else {
        return;
    };
    let queue = queue(&server, "run_continued", 30).await;
    let [first, second] = ["a", "b"].map(|version| round(version, version));
    let items = numbered(2);
    queue.put(&first, &items).await.unwrap();
    // One unit is in work, the other one waits.
    let in_work = take(&queue, &first, 20).await.unwrap();
    assert!(queue.put(&second, &items).await.unwrap().is_empty());
    let mut taken = BTreeSet::new();
    for _ in &items {
        let delivery = take(&queue, &second, 20).await.unwrap();
        taken.insert(delivery.item().to_owned());
        delivery.end(DeliveryEnd::Done).await;
    }
    assert_eq!(taken, BTreeSet::from_iter(items.iter().cloned()));
    in_work.end(DeliveryEnd::Again(Duration::ZERO)).await;
    assert!(take(&queue, &first, 3).await.is_none(), "it is gone");
    assert_eq!(queue.put(&first, &items).await.unwrap().len(), 2);
}

/// Waits until Temporal's list, which lags behind, has this many open activities.
async fn wait_for_open(queue: &TemporalQueue, count: usize) {
    let until = Instant::now() + Duration::from_secs(20);
    while queue.open().await.unwrap() != count {
        assert!(Instant::now() < until, "there are never {count}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_cleared_run_is_left() {
    let Some(server) = temporal::server() else {
        return;
    };
    let own = queue(&server, "run_cleared", 30).await;
    let other = queue(&server, "run_cleared_2", 30).await;
    let (round, items) = (round("1", "a"), numbered(20));
    for queue in [&own, &other] {
        queue.put(&round, &items).await.unwrap();
        wait_for_open(queue, items.len()).await;
    }
    let in_work = take(&own, &round, 20).await.unwrap();
    own.clear().await.unwrap();
    assert_eq!(own.open().await.unwrap(), 0);
    assert_eq!(other.open().await.unwrap(), items.len(), "of another run");
    in_work.end(DeliveryEnd::Done).await;
    assert!(take(&own, &round, 3).await.is_none());
    // The run can go on.
    assert!(own.put(&round, &items).await.unwrap().is_empty());
    assert!(take(&own, &round, 20).await.is_some());
    other.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn units_survive_a_restart_of_the_server() {
    let Some(programs) = temporal::programs() else {
        return;
    };
    let folder = postgres::folder();
    let cluster = Cluster::new(&folder.join("cluster")).unwrap();
    let server = cluster
        .start_temporal(&programs, None, None)
        .unwrap()
        .server;
    let again = cluster.start_temporal(&programs, Some(server.clone()), None);
    assert_eq!(again.unwrap().server, server, "it runs already");
    let (queue, round) = (queue(&server, "run_restart", 5).await, round("1", "a"));
    let items = numbered(20);
    queue.put(&round, &items).await.unwrap();
    take(&queue, &round, 20)
        .await
        .unwrap()
        .end(DeliveryEnd::Done)
        .await;
    // A unit that is in work meanwhile.
    let delivery = take(&queue, &round, 20).await.unwrap();
    cluster.down(&programs, false).unwrap();
    let restarted = cluster.start_temporal(&programs, Some(server.clone()), None);
    assert_eq!(restarted.unwrap().server, server, "its port stays");
    drop(delivery);
    let mut left = BTreeSet::new();
    while left.len() < 19 {
        let delivery = take(&queue, &round, 40).await.unwrap();
        assert!(
            left.insert(delivery.item().to_owned()),
            "{} twice",
            delivery.item()
        );
        delivery.end(DeliveryEnd::Done).await;
    }
    let done = queue.put(&round, &items).await.unwrap();
    assert_eq!(done.len(), 20);
    cluster.down(&programs, true).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
