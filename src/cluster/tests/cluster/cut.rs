//! Connections to PostgreSQL that are cut at any moment.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use pybench_run::{
    BudgetCap, CallState, ExitCode, PostgresServer, PostgresTables, Reservation, SqlValue,
    UnitState,
};
use pybench_testing::faults::CuttingProxy;
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

/// A server goes on with a statement whose client is gone; here two of them wait for rows that another process has locked.
#[test]
fn what_a_cut_connection_was_doing_is_over_before_it_is_repeated() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let port = postgres::address().unwrap().port;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let proxy = CuttingProxy::start(server, Duration::from_secs(1 << 20), 7);
    let place = place.through(proxy.port());
    let (journal, schema) = (place.open(), &place.schema);
    journal.enqueue("s", ["a"]).unwrap();
    assert!(journal.lease("s", "a", 0, 100).unwrap());
    // Until the journal has the key, or for a minute.
    let lock = format!(
        "BEGIN; SELECT 1 FROM {schema}.spent FOR UPDATE; SELECT 1 FROM {schema}.unit FOR UPDATE;
         DO $$ BEGIN FOR step IN 1..1200 LOOP
             EXIT WHEN EXISTS (SELECT 1 FROM {schema}.fact WHERE key = 'go'); PERFORM pg_sleep(0.05);
         END LOOP; END $$; COMMIT"
    );
    let lockers = format!(
        "SELECT pid FROM pg_stat_activity
         WHERE query LIKE '%{schema}.spent FOR UPDATE%' AND pid <> pg_backend_pid() AND wait_event = 'PgSleep'"
    );
    let blocked = format!(
        "SELECT waiting.pid FROM pg_stat_activity AS waiting, pg_stat_activity AS locker
         WHERE locker.query LIKE '%{schema}.spent FOR UPDATE%' AND locker.pid <> pg_backend_pid()
         AND locker.pid = ANY(pg_blocking_pids(waiting.pid))"
    );
    let pids = |query: &str| -> Vec<String> {
        let pids = postgres::sql(query);
        pids.lines().map(str::to_owned).collect()
    };
    std::thread::scope(|scope| {
        let locker = scope.spawn(|| postgres::sql(&lock));
        while pids(&lockers).is_empty() {
            assert!(!locker.is_finished(), "the rows were not locked");
        }
        let reserving = scope.spawn(|| journal.reserve("a/0", TEN, BudgetCap::default()));
        let moving = scope.spawn(|| journal.move_lease("s", "a", 100, 200));
        // Both wait; then both are cut, and wait again.
        let mut cut = Vec::new();
        for _ in 0..2 {
            let waiting = loop {
                let mut waiting = pids(&blocked);
                waiting.retain(|pid| !cut.contains(pid));
                if waiting.len() == 2 {
                    break waiting;
                }
                assert!(!locker.is_finished(), "{waiting:?} wait for the rows");
            };
            if cut.is_empty() {
                proxy.cut_all();
                cut = waiting;
            }
        }
        postgres::sql(&format!("INSERT INTO {schema}.fact VALUES ('go', '1')"));
        reserving.join().unwrap().unwrap();
        assert!(moving.join().unwrap().unwrap(), "the lease is its own");
    });
    assert_eq!(journal.spent().unwrap().calls, 1);
    assert_eq!(journal.leased_until("s", "a").unwrap(), Some(200));
    assert!(proxy.cuts() >= 2);
}

/// Two transactions that wait for each other's row: the server gives one of them up.
#[test]
fn a_transaction_that_is_given_up_is_repeated() {
    let Some(server) = postgres::address() else {
        return;
    };
    let create = "CREATE TABLE IF NOT EXISTS number (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
         INSERT INTO number VALUES ('a', 0), ('b', 0) ON CONFLICT DO NOTHING";
    let open = || PostgresTables::open(&server, "given_up", create).unwrap();
    let (tables, both_have_one) = ([open(), open()], Barrier::new(2));
    let tries = AtomicU32::new(0);
    let add_to = |tables: &PostgresTables, rows: [&str; 2]| {
        let is_first = AtomicBool::new(true);
        let added = tables.transaction(|sql| {
            tries.fetch_add(1, Ordering::Relaxed);
            let add = "UPDATE number SET value = value + 1 WHERE name = $1";
            sql.rows(add, &[SqlValue::Text(rows[0])])?;
            if is_first.swap(false, Ordering::Relaxed) {
                both_have_one.wait();
            }
            sql.rows(add, &[SqlValue::Text(rows[1])])?;
            Ok(())
        });
        added.unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| add_to(&tables[0], ["a", "b"]));
        scope.spawn(|| add_to(&tables[1], ["b", "a"]));
    });
    // The repetition may be first again.
    assert!(tries.load(Ordering::Relaxed) >= 3);
    let values = postgres::sql("SELECT value FROM given_up.number ORDER BY name");
    assert_eq!(values.lines().collect::<Vec<_>>(), ["2", "2"]);
}

/// After a failover, a connection may lead to a server that only reads.
#[test]
fn a_server_that_only_reads_is_waited_for() {
    let Some(address) = postgres::address() else {
        return;
    };
    postgres::sql("CREATE DATABASE failover");
    let server = PostgresServer {
        database: "failover".to_owned(),
        ..address
    };
    let create = "CREATE TABLE IF NOT EXISTS number (value BIGINT NOT NULL)";
    let tables = PostgresTables::open(&server, "numbers", create).unwrap();
    postgres::sql("ALTER DATABASE failover SET default_transaction_read_only = on");
    postgres::sql(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'failover'",
    );
    let tries = AtomicU32::new(0);
    let added = tables.transaction(|sql| {
        if tries.fetch_add(1, Ordering::Relaxed) == 2 {
            // Connections that are made from now on.
            postgres::sql("ALTER DATABASE failover RESET default_transaction_read_only");
        }
        sql.rows("INSERT INTO number VALUES (1)", &[])?;
        Ok(())
    });
    added.unwrap();
    assert_eq!(tries.load(Ordering::Relaxed), 4);
}

/// The first try may have counted units whose offers it has deleted.
#[test]
fn a_count_of_offers_that_was_repeated_says_so() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let journal = place.open();
    journal.enqueue("s", ["a", "b"]).unwrap();
    let items = ["a", "b"].map(str::to_owned);
    journal.offer("1", "s", &items).unwrap();
    journal.complete("s", "a", &json!(1)).unwrap();
    assert_eq!(cut(&place), 1);
    for is_partial in [true, false] {
        let counts = journal.sweep_offers("1").unwrap();
        assert_eq!((counts.is_partial, counts.open), (is_partial, 1));
    }
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
