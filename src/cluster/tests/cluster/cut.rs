//! Connections to PostgreSQL that are cut at any moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pybench_run::{BudgetCap, CallState, ExitCode, Reservation, UnitState};
use pybench_testing::postgres;
use serde_json::json;

use crate::journal::Place;
use crate::places::PostgresPlace;

const TEN: Reservation = Reservation {
    micro_usd: 10,
    tokens: 10,
};

/// Ends every connection of the schema's journals.
fn cut(place: &PostgresPlace) -> u32 {
    let ended = postgres::sql(&format!(
        "SELECT COUNT(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_locks
         WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
         AND (classid::bigint << 32) | objid::bigint = hashtextextended('{}', 0)",
        place.schema
    ));
    ended.parse().unwrap()
}

#[test]
fn a_cut_connection_is_made_again_and_nothing_happens_twice() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let journal = place.open();
    let cap = BudgetCap {
        micro_usd: Some(10_000),
        tokens: None,
    };
    let (done, cuts) = (AtomicBool::new(false), 0);
    let cuts = std::thread::scope(|scope| {
        let cutting = scope.spawn(|| {
            let mut cuts = cuts;
            while !done.load(Ordering::Relaxed) {
                cuts += cut(&place);
                std::thread::sleep(Duration::from_millis(3));
            }
            cuts
        });
        for number in 0..150_u64 {
            let item = format!("item-{number}");
            journal.enqueue("s", [&item]).unwrap();
            assert!(journal.lease("s", &item, 0, 100).unwrap(), "{item}");
            journal.append(&item, 0, &json!(number)).unwrap();
            journal.reserve(&item, TEN, cap).unwrap();
            let used = Reservation {
                micro_usd: number % 10,
                tokens: 1,
            };
            journal.settle(&item, used, &json!(number)).unwrap();
            journal.append(&item, 1, &json!("reply")).unwrap();
            assert!(journal.move_lease("s", &item, 100, 200).unwrap());
            assert_eq!(journal.events(&item).unwrap().len(), 2);
            journal.complete("s", &item, &json!(number)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        cutting.join().unwrap()
    });
    assert!(cuts > 3, "the connection was cut {cuts} times");
    let expected: Vec<u64> = (0..150).collect();
    assert_eq!(journal.outputs::<u64>("s").unwrap(), expected);
    let units = journal.units("s").unwrap();
    assert!(
        units
            .iter()
            .all(|unit| unit.attempts == 1 && unit.state == UnitState::Done)
    );
    let spent = journal.spent().unwrap();
    assert_eq!((spent.calls, spent.uncertain, spent.tokens), (150, 0, 150));
    assert_eq!(spent.micro_usd, (0..150).map(|n| n % 10).sum::<u64>());
    eprintln!("the connection was cut {cuts} times");
}

#[test]
fn a_journal_in_use_is_a_conflict() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let first = place.open();
    first.reserve("a/0", TEN, BudgetCap::default()).unwrap();
    let error = place.try_open().unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Conflict);
    assert!(
        error.to_string().contains("in use by another process"),
        "{error}"
    );
    let state = first.call("a/0").unwrap().unwrap().state;
    assert_eq!(state, CallState::InFlight, "the other one changed nothing");
}

/// A process that was cut off while another one took over does not write.
#[test]
fn a_process_that_lost_the_journal_is_refused() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let first = place.open();
    assert_eq!(cut(&place), 1);
    let second = place.open();
    drop(second);
    let error = first.set_metadata("key", &json!(1)).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Conflict);
    assert!(
        error.to_string().contains("another process has opened"),
        "{error}"
    );
}
