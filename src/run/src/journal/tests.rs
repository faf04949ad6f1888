use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{ExitCode, Failure, FailureKind, UnitState};

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.sqlite");
    (folder, path)
}

fn items(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const TEN: Reservation = Reservation {
    micro_usd: 10,
    tokens: 10,
};

fn cap(micro_usd: u64) -> BudgetCap {
    BudgetCap {
        micro_usd: Some(micro_usd),
        tokens: None,
    }
}

#[test]
fn outputs_are_in_item_order_regardless_of_completion_order() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.enqueue("s", items(&["b", "a", "c"])).unwrap();
    for item in ["c", "a", "b"] {
        journal.complete("s", item, &json!(item)).unwrap();
    }
    assert_eq!(journal.outputs::<String>("s").unwrap(), ["b", "a", "c"]);
    journal.enqueue("s", items(&["a", "d"])).unwrap();
    let states = journal.states("s").unwrap();
    let names: Vec<&str> = states.iter().map(|(item, _)| item.as_str()).collect();
    assert_eq!(names, ["b", "a", "c", "d"]);
}

#[test]
fn the_first_commit_wins() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.enqueue("s", items(&["a"])).unwrap();
    journal.complete("s", "a", &json!(1)).unwrap();
    journal.complete("s", "a", &json!(2)).unwrap();
    let failure = Failure::new(FailureKind::Internal, "late");
    journal.fail("s", "a", &failure, true).unwrap();
    assert_eq!(journal.outputs::<u32>("s").unwrap(), [1]);
    assert_eq!(journal.state("s", "a").unwrap(), Some(UnitState::Done));
    assert!(!journal.lease("s", "a", 0, 10).unwrap());
}

#[test]
fn a_lease_excludes_others_until_it_ends() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.enqueue("s", items(&["a"])).unwrap();
    assert!(journal.lease("s", "a", 100, 10).unwrap());
    assert!(!journal.lease("s", "a", 109, 10).unwrap());
    assert!(journal.lease("s", "a", 110, 10).unwrap());
    assert!(
        !journal.move_lease("s", "a", 110, 200).unwrap(),
        "not the holder"
    );
    assert!(journal.move_lease("s", "a", 120, 0).unwrap());
    assert!(journal.lease("s", "a", 111, 10).unwrap());
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert!(
        journal.lease("s", "a", 111, 10).unwrap(),
        "the holder has ended"
    );
    assert_eq!(journal.units("s").unwrap()[0].attempts, 4);
}

#[test]
fn the_kind_of_failure_decides_what_is_retried() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.enqueue("s", items(&["item", "endpoint"])).unwrap();
    let fail = |item: &str, kind| {
        let failure = Failure::new(kind, "no");
        journal.fail("s", item, &failure, true).unwrap();
    };
    fail("item", FailureKind::Item);
    fail("endpoint", FailureKind::Endpoint);
    journal.retry_failed("s", RetryFailed::None).unwrap();
    assert_eq!(journal.summary("s").unwrap().failed, 2);
    journal
        .retry_failed("s", RetryFailed::ExceptBadItems)
        .unwrap();
    assert_eq!(journal.state("s", "item").unwrap(), Some(UnitState::Failed));
    assert_eq!(
        journal.state("s", "endpoint").unwrap(),
        Some(UnitState::Pending)
    );
    journal.retry_failed("s", RetryFailed::All).unwrap();
    assert_eq!(journal.summary("s").unwrap().pending, 2);
    let failures = journal.failures().unwrap();
    assert_eq!(failures.len(), 2, "the reason stays visible");
    assert!(failures.iter().all(|failure| !failure.last));
}

#[test]
fn a_call_in_flight_when_the_process_is_killed_is_charged_as_uncertain() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    for id in ["in flight", "answered", "refused"] {
        journal.reserve(id, TEN, cap(100)).unwrap();
    }
    let used = Reservation {
        micro_usd: 3,
        tokens: 4,
    };
    journal.settle("answered", used, &json!("hello")).unwrap();
    journal.release("refused").unwrap();
    drop(journal);

    let journal = Journal::open(&path).unwrap();
    let state = |id: &str| journal.call(id).unwrap().map(|call| call.state);
    assert_eq!(state("in flight"), Some(CallState::Uncertain));
    assert_eq!(state("answered"), Some(CallState::Settled));
    assert_eq!(state("refused"), None);
    assert_eq!(
        journal.call("answered").unwrap().unwrap().reply,
        Some(json!("hello"))
    );
    let spent = journal.spent().unwrap();
    assert_eq!((spent.calls, spent.uncertain), (2, 1));
    assert_eq!((spent.micro_usd, spent.tokens), (13, 14));
    assert!(journal.settle("never", used, &json!(null)).is_err());
}

#[test]
fn the_budget_holds_across_restarts() {
    let (_folder, path) = scratch();
    for round in 0..5 {
        let journal = Journal::open(&path).unwrap();
        let reserved = journal.reserve(&format!("{round}"), TEN, cap(35));
        match (round, reserved) {
            (0..3, Ok(())) => {}
            (3.., Err(ReserveError::OverBudget(text))) => {
                assert!(text.contains("35 allowed"), "{text}");
            }
            (_, other) => panic!("round {round}: {other:?}"),
        }
    }
}

#[test]
fn threads_together_never_exceed_the_budget() {
    let (_folder, path) = scratch();
    let journal = Arc::new(Journal::open(&path).unwrap());
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                let reserve =
                    |call: &u32| journal.reserve(&format!("{thread}/{call}"), TEN, cap(250));
                (0..10).filter(|call| reserve(call).is_ok()).count()
            })
        })
        .collect();
    let granted: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(granted, 25);
    assert_eq!(journal.spent().unwrap().micro_usd, 250);
}

#[test]
fn the_totals_equal_the_sum_of_the_calls() {
    let (_folder, path) = scratch();
    for round in 0..4 {
        let journal = Journal::open(&path).unwrap();
        for call in 0..10 {
            let id = format!("{round}/{call}");
            journal.reserve(&id, TEN, BudgetCap::default()).unwrap();
            let used = Reservation {
                micro_usd: call,
                tokens: 2,
            };
            match call % 4 {
                0 => journal.settle(&id, used, &json!(call)).unwrap(),
                1 => journal.release(&id).unwrap(),
                2 => journal.mark_uncertain(&id).unwrap(),
                _ => {}
            }
        }
    }
    let journal = Journal::open(&path).unwrap();
    let summed = journal.lock().query_row(
        "SELECT COUNT(*), SUM(state = 'uncertain'), SUM(micro_usd), SUM(tokens) FROM call",
        [],
        |row| {
            Ok(Spent {
                calls: row.get(0)?,
                uncertain: row.get(1)?,
                micro_usd: row.get(2)?,
                tokens: row.get(3)?,
            })
        },
    );
    assert_eq!(journal.spent().unwrap(), summed.unwrap());
}

#[test]
fn huge_reservations_do_not_wrap_around() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.reserve("a", TEN, cap(100)).unwrap();
    let huge = Reservation {
        micro_usd: u64::MAX,
        tokens: 0,
    };
    assert!(matches!(
        journal.reserve("b", huge, cap(100)),
        Err(ReserveError::OverBudget(_))
    ));
}

#[test]
fn huge_charges_neither_lose_the_reply_nor_break_the_totals() {
    const MOST: u64 = super::calls::MAX_AMOUNT;
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    let charges = [5_000_000_000_000_000_000, 1 << 63, u64::MAX, u64::MAX];
    for (call, amount) in charges.into_iter().enumerate() {
        let (id, used) = (
            call.to_string(),
            Reservation {
                micro_usd: amount,
                tokens: amount,
            },
        );
        let reserved = if call == 3 { used } else { TEN };
        journal
            .reserve(&id, reserved, BudgetCap::default())
            .unwrap();
        journal.settle(&id, used, &json!("paid")).unwrap();
        let reply = journal.call(&id).unwrap().unwrap().reply;
        assert_eq!(reply, Some(json!("paid")), "{amount}");
    }
    let spent = journal.spent().unwrap();
    assert_eq!((spent.tokens, spent.micro_usd), (4 * MOST, 4 * MOST));
    let reader = Journal::open_read_only(&path).unwrap();
    assert_eq!(reader.spent().unwrap(), spent);
}

#[test]
fn totals_that_an_older_version_broke_are_summed_again() {
    const MOST: u64 = super::calls::MAX_AMOUNT;
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    for id in ["a", "b", "c"] {
        journal.reserve(id, TEN, BudgetCap::default()).unwrap();
    }
    let huge = "UPDATE call SET tokens = 5000000000000000000 WHERE id <> 'c'";
    journal.lock().execute(huge, []).unwrap();
    journal.spent().expect("a total that can be read");
    drop(journal);

    let journal = Journal::open(&path).unwrap();
    let spent = journal.spent().unwrap();
    assert_eq!((spent.tokens, spent.micro_usd), (2 * MOST + 10, 30));
    journal.settle("a", TEN, &json!(null)).unwrap();
    assert_eq!(journal.spent().unwrap().tokens, MOST + 20);
}

#[test]
fn steps_have_no_gaps_and_cannot_be_replaced() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.append("t", 0, &json!("a")).unwrap();
    assert!(journal.append("t", 2, &json!("c")).is_err());
    assert!(journal.append("t", 0, &json!("b")).is_err());
    journal.append("t", 1, &json!("b")).unwrap();
    journal.append("u", 0, &json!("x")).unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    let payloads: Vec<_> = journal
        .events("t")
        .unwrap()
        .into_iter()
        .map(|e| e.payload)
        .collect();
    assert_eq!(payloads, [json!("a"), json!("b")]);
    journal.clear_events("t").unwrap();
    assert!(journal.events("t").unwrap().is_empty());
    assert_eq!(journal.events("u").unwrap().len(), 1);
}

#[test]
fn the_output_of_a_unit_replaces_its_steps() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.enqueue("s", ["t", "u"]).unwrap();
    journal.append("t", 0, &json!("a")).unwrap();
    journal.append("u", 0, &json!("b")).unwrap();
    journal.complete("s", "t", &json!(["a"])).unwrap();
    assert!(journal.events("t").unwrap().is_empty());
    assert_eq!(journal.events("u").unwrap().len(), 1);
    // A unit that is done stays as it is.
    journal.append("t", 0, &json!("c")).unwrap();
    journal.complete("s", "t", &json!(["c"])).unwrap();
    assert_eq!(journal.events("t").unwrap().len(), 1);
    let output: Option<Vec<String>> = journal.output("s", "t").unwrap();
    assert_eq!(output, Some(vec!["a".to_owned()]));
}

#[test]
fn pending_items_and_outputs_come_in_order() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    let all = ["d", "a", "c", "b"];
    journal.enqueue("s", all).unwrap();
    journal.enqueue("other", ["z"]).unwrap();
    assert_eq!(journal.pending("s", all).unwrap(), (vec![0, 1, 2, 3], 0));
    journal.complete("s", "a", &json!(1)).unwrap();
    journal.complete("s", "d", &json!(2)).unwrap();
    journal.complete("other", "z", &json!(3)).unwrap();
    let repeated = ["b", "a", "b", "d", "c"];
    assert_eq!(journal.pending("s", repeated).unwrap(), (vec![0, 4], 2));
    let mut seen = Vec::new();
    let collected = journal.each_output("s", |item, output: u32| {
        seen.push((item.to_owned(), output));
        Ok(())
    });
    collected.unwrap();
    assert_eq!(seen, [("d".to_owned(), 2), ("a".to_owned(), 1)]);
}

#[test]
fn a_journal_in_use_can_be_read() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.set_metadata("seconds/crawl", &json!(1.5)).unwrap();
    journal.reserve("a", TEN, BudgetCap::default()).unwrap();
    let reader = Journal::open_read_only(&path).unwrap();
    assert_eq!(
        reader.metadata_with_prefix("seconds/").unwrap(),
        [("crawl".to_owned(), json!(1.5))]
    );
    assert_eq!(
        reader.spent().unwrap().uncertain,
        0,
        "reading changes nothing"
    );
    assert!(reader.set_metadata("x", &json!(1)).is_err());
    drop(journal);
    let reader = Journal::open_read_only(&path).unwrap();
    assert_eq!(reader.spent().unwrap().calls, 1);
}

#[test]
fn a_read_only_copy_can_be_read() {
    let (folder, path) = scratch();
    drop(Journal::open(&path).unwrap());
    let odd = folder.path().join("odd ?#%é.sqlite");
    std::fs::copy(&path, &odd).unwrap();
    let connection = Connection::open_with_flags(
        immutable_uri(&odd),
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
    )
    .unwrap();
    check_readable(&connection).unwrap();
}

#[test]
fn a_full_disk_is_an_environment_error() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    // SQLite reports a full disk if the file may not grow.
    journal
        .lock()
        .pragma_update(None, "max_page_count", 1)
        .unwrap();
    let big = json!("x".repeat(1 << 20));
    let error = journal.set_metadata("big", &big).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Environment);
    assert!(error.to_string().contains("free some space"), "{error}");
}

fn queue(journal: &Journal, call: &str, line: &str) -> Result<(), ReserveError> {
    let digest = pybench_types::id::Digest::of_bytes(call.as_bytes());
    let request = BatchRequest {
        teacher: "t",
        request: &digest,
        line,
    };
    journal.queue_for_batch(call, TEN, cap(30), request)
}

#[test]
fn batches_survive_a_restart_and_queued_calls_do_not() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    for (call, line) in [("b", "b\u{e9}"), ("a", "a"), ("c", "c")] {
        queue(&journal, call, line).unwrap();
    }
    assert!(matches!(
        queue(&journal, "d", ""),
        Err(ReserveError::OverBudget(_))
    ));
    let queued = [
        ("a".to_owned(), 1),
        ("b".to_owned(), 3),
        ("c".to_owned(), 1),
    ];
    assert_eq!(
        journal.queued_calls("t").unwrap(),
        queued,
        "by id, with lengths in bytes"
    );
    assert_eq!(journal.queued_calls("other").unwrap(), []);
    journal.create_batches("t", &[items(&["a", "b"])]).unwrap();
    drop(journal);

    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.call("c").unwrap(), None, "it was never sent");
    assert_eq!(journal.spent().unwrap().micro_usd, 20);
    let batches = journal.open_batches("t").unwrap();
    let [batch] = &batches[..] else {
        panic!("{batches:?}")
    };
    assert_eq!((batch.wave, batch.requests, batch.asked), (1, 2, false));
    assert_eq!(journal.batch_file(&batch.name).unwrap(), "a\nb\u{e9}\n");
    journal.batch_uploaded(&batch.name, "file").unwrap();
    journal.batch_requested(&batch.name).unwrap();
    journal.batch_created(&batch.name, "remote").unwrap();
    journal
        .settle("a", Reservation::default(), &json!(1))
        .unwrap();
    drop(journal);

    let journal = Journal::open(&path).unwrap();
    let after = journal.all_open_batches().unwrap();
    let ids = (
        after[0].file.as_deref(),
        after[0].asked,
        after[0].remote.as_deref(),
    );
    assert_eq!(ids, (Some("file"), true, Some("remote")));
    assert_eq!(journal.batch_calls(&batch.name).unwrap(), ["a", "b"]);
    let pending = journal.pending_calls(&batch.name).unwrap();
    assert_eq!(
        (pending.len(), pending[0].call.as_str(), pending[0].reserved),
        (1, "b", TEN)
    );
    assert_eq!(
        journal.call("b").unwrap().unwrap().request,
        Some(pending[0].request.clone())
    );
    assert!(journal.has_batched_calls().unwrap());
    journal.mark_uncertain("b").unwrap();
    journal.close_batch(&batch.name).unwrap();
    assert!(!journal.has_batched_calls().unwrap());
    assert_eq!(
        (
            journal.all_open_batches().unwrap(),
            journal.spent().unwrap().uncertain
        ),
        (vec![], 1)
    );
    queue(&journal, "e", "e").unwrap();
    journal.create_batches("t", &[items(&["e"])]).unwrap();
    let next = journal.open_batches("t").unwrap();
    assert_eq!(next[0].wave, 2);
    journal.discard_batch(&next[0].name).unwrap();
    assert_eq!(
        (
            journal.call("e").unwrap(),
            journal.all_open_batches().unwrap()
        ),
        (None, vec![])
    );
    assert!(journal.batch_created("unknown", "x").is_err());
}

#[test]
fn a_journal_that_lost_paid_calls_is_refused() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    let pay = |journal: &Journal, id: &str| {
        journal.reserve(id, TEN, cap(100)).unwrap();
        journal.settle(id, TEN, &json!("reply")).unwrap();
        journal.settle(id, TEN, &json!("the same call")).unwrap();
    };
    pay(&journal, "a");
    // A copy of the journal as it is now, before more calls.
    journal
        .lock()
        .execute("VACUUM INTO ?1", [format!("{}.old", path.display())])
        .unwrap();
    pay(&journal, "b");
    pay(&journal, "c");
    journal.reserve("in flight", TEN, cap(100)).unwrap();
    drop(journal);
    drop(Journal::open(&path).unwrap());
    std::fs::rename(path.with_extension("sqlite.old"), &path).unwrap();
    for _ in 0..2 {
        let error = Journal::open(&path).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::BadInput);
        let text = error.to_string();
        assert!(text.contains("lost 2 of 3 paid calls"), "{text}");
    }
    let calls = path.with_extension("calls");
    std::fs::remove_file(&calls).unwrap();
    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.spent().unwrap().calls, 1);
    pay(&journal, "b");
    assert_eq!(
        std::fs::read_to_string(calls).unwrap(),
        format!("{:019}\n", 2)
    );
}

#[test]
fn a_synced_statement_leaves_the_connection_as_it_was() {
    let (_folder, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    let level = |connection: &Connection| -> rusqlite::Result<i64> {
        connection.query_row("PRAGMA synchronous", [], |row| row.get(0))
    };
    let (normal, full) = (1, 2);
    assert_eq!(level(&journal.lock()), Ok(normal));
    assert_eq!(synced(&journal.lock(), level), Ok(full));
    let failed = synced(&journal.lock(), |connection| {
        connection.execute("nonsense", [])
    });
    assert!(failed.is_err());
    assert_eq!(level(&journal.lock()), Ok(normal));
}
