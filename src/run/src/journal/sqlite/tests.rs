use std::path::PathBuf;

use super::super::backend::CallStore;
use super::super::calls::MAX_AMOUNT;
use super::super::{BudgetCap, Reservation, Spent};
use super::*;
use crate::ExitCode;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.sqlite");
    (folder, path)
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
fn units_are_added_without_a_look_at_all_others() {
    let (_folder, path) = scratch();
    // A journal of an older version gets the index when it is opened.
    let journal = SqliteJournal::open(&path).unwrap();
    journal.execute("DROP INDEX unit_by_position", []).unwrap();
    drop(journal);
    let journal = SqliteJournal::open(&path).unwrap();
    let explain = format!("EXPLAIN QUERY PLAN {}", units::NEXT_POSITION);
    let plan = journal
        .lock()
        .query_row(&explain, ["s"], |row| row.get::<_, String>(3));
    let plan = plan.unwrap();
    assert!(plan.contains("INDEX unit_by_position"), "{plan}");
}

#[test]
fn the_totals_equal_the_sum_of_the_calls() {
    let (_folder, path) = scratch();
    for round in 0..4 {
        let journal = SqliteJournal::open(&path).unwrap();
        for call in 0..10 {
            let id = format!("{round}/{call}");
            journal
                .reserve(&id, TEN, BudgetCap::default(), None)
                .unwrap();
            let used = Reservation {
                micro_usd: call,
                tokens: 2,
            };
            match call % 4 {
                0 => journal.settle(&id, used, "1").unwrap(),
                1 => journal.release(&id).unwrap(),
                2 => journal.mark_uncertain(&id).unwrap(),
                _ => {}
            }
        }
    }
    let journal = SqliteJournal::open(&path).unwrap();
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
fn totals_that_an_older_version_broke_are_summed_again() {
    let (_folder, path) = scratch();
    let journal = SqliteJournal::open(&path).unwrap();
    for id in ["a", "b", "c"] {
        journal
            .reserve(id, TEN, BudgetCap::default(), None)
            .unwrap();
    }
    let huge = "UPDATE call SET tokens = 5000000000000000000 WHERE id <> 'c'";
    journal.lock().execute(huge, []).unwrap();
    journal.spent().expect("a total that can be read");
    drop(journal);

    let journal = SqliteJournal::open(&path).unwrap();
    let spent = journal.spent().unwrap();
    assert_eq!((spent.tokens, spent.micro_usd), (2 * MAX_AMOUNT + 10, 30));
    journal.settle("a", TEN, "null").unwrap();
    assert_eq!(journal.spent().unwrap().tokens, MAX_AMOUNT + 20);
}

#[test]
fn a_read_only_copy_can_be_read() {
    let (folder, path) = scratch();
    drop(SqliteJournal::open(&path).unwrap());
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
    let journal = SqliteJournal::open(&path).unwrap();
    // SQLite reports a full disk if the file may not grow.
    journal
        .lock()
        .pragma_update(None, "max_page_count", 1)
        .unwrap();
    let big = "x".repeat(1 << 20);
    let error = journal.set_metadata("big", &big, false).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Environment);
    assert!(error.to_string().contains("free some space"), "{error}");
}

#[test]
fn a_journal_that_lost_paid_calls_is_refused() {
    let (_folder, path) = scratch();
    let journal = SqliteJournal::open(&path).unwrap();
    let pay = |journal: &SqliteJournal, id: &str| {
        journal.reserve(id, TEN, cap(100), None).unwrap();
        journal.settle(id, TEN, "\"reply\"").unwrap();
        journal.settle(id, TEN, "\"the same call\"").unwrap();
    };
    pay(&journal, "a");
    // A copy of the journal as it is now, before more calls.
    journal
        .lock()
        .execute("VACUUM INTO ?1", [format!("{}.old", path.display())])
        .unwrap();
    pay(&journal, "b");
    pay(&journal, "c");
    journal.reserve("in flight", TEN, cap(100), None).unwrap();
    drop(journal);
    drop(SqliteJournal::open(&path).unwrap());
    std::fs::rename(path.with_extension("sqlite.old"), &path).unwrap();
    for _ in 0..2 {
        let error = SqliteJournal::open(&path).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::BadInput);
        let text = error.to_string();
        assert!(text.contains("lost 2 of 3 paid calls"), "{text}");
    }
    let calls = path.with_extension("calls");
    std::fs::remove_file(&calls).unwrap();
    let journal = SqliteJournal::open(&path).unwrap();
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
    let journal = SqliteJournal::open(&path).unwrap();
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
