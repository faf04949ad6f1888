//! Tests that every database of the history must pass.

use pybench_eval::run::AgentChoice;
use rusqlite::Connection;

use super::*;

/// An empty history, which can be opened several times.
trait TestDatabase {
    fn open(&self) -> History;
}

struct Folder(tempfile::TempDir);

impl TestDatabase for Folder {
    fn open(&self) -> History {
        History::open(self.0.path()).unwrap()
    }
}

/// A schema of the test server.
struct Schema {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl TestDatabase for Schema {
    fn open(&self) -> History {
        let server = pybench_testing::postgres::address().unwrap();
        let backend = PostgresHistory::open(&server, self.name).unwrap();
        History {
            backend: Box::new(backend),
            ..History::open(self.folder.path()).unwrap()
        }
    }
}

/// What has to hold for each database.
type Test = fn(&dyn TestDatabase);

/// The tests, and names of schemas for them.
const TESTS: [(&str, Test); 3] = [
    ("chat_saved", what_is_saved_is_there_for_another_process),
    ("chat_found", conversations_are_found_by_their_first_digits),
    ("chat_limits", limits_hold_for_calls_that_did_not_end),
];

#[test]
fn sqlite_passes() {
    for (_, test) in TESTS {
        test(&Folder(tempfile::tempdir().unwrap()));
    }
}

#[test]
fn postgres_passes() {
    if pybench_testing::postgres::address().is_none() {
        return;
    }
    for (name, test) in TESTS {
        let folder = tempfile::tempdir().unwrap();
        test(&Schema { folder, name });
    }
}

fn settings() -> Settings {
    Settings {
        label: "m".to_owned(),
        agent: AgentChoice::Human {},
        rollout: Default::default(),
        interpreter: Default::default(),
        budget: Default::default(),
        task: None,
    }
}

fn begin(history: &History) -> String {
    let id = new_id();
    history.begin(&id, &settings()).unwrap();
    id
}

fn message(text: &str) -> Entry {
    Entry::Message {
        text: text.to_owned(),
    }
}

fn what_is_saved_is_there_for_another_process(database: &dyn TestDatabase) {
    let history = database.open();
    let id = begin(&history);
    history
        .append(&id, 0, &message("First\u{1b}[31m\nline"))
        .unwrap();
    history.append(&id, 1, &Entry::Rewind { keep: 0 }).unwrap();
    history.append(&id, 2, &message("Second")).unwrap();
    let other = database.open();
    let saved = other.read(&id).unwrap();
    assert_eq!((saved.settings, saved.entries.len()), (settings(), 3));
    let listed = other.list().unwrap();
    assert_eq!((&listed[0].id, &*listed[0].title), (&id, "First␛[31m line"));
    // What both continue is saved once.
    let error = other.append(&id, 2, &message("Third")).unwrap_err();
    assert!(matches!(error, RunError::Conflict(_)), "{error}");
    assert!(error.to_string().contains(&id));
    assert_eq!(history.read(&id).unwrap().entries[2], message("Second"));
}

fn conversations_are_found_by_their_first_digits(database: &dyn TestDatabase) {
    let history = database.open();
    assert!(matches!(history.find(None), Err(RunError::BadInput(_))));
    let first = begin(&history);
    let second = begin(&history);
    history.append(&second, 0, &message("a")).unwrap();
    assert_eq!(history.find(Some(&first)).unwrap(), first);
    assert_eq!(history.find(Some(&second[..11])).unwrap(), second);
    for digits in ["", "x", "%"] {
        let error = history.find(Some(digits)).unwrap_err();
        assert!(matches!(error, RunError::BadInput(_)), "{digits:?}");
    }
    assert!(matches!(history.read("x"), Err(RunError::BadInput(_))));
}

fn limits_hold_for_calls_that_did_not_end(database: &dyn TestDatabase) {
    let history = database.open();
    let id = begin(&history);
    let of = |tokens| Reservation {
        micro_usd: 10 * tokens,
        tokens,
    };
    let cap = BudgetCap {
        micro_usd: None,
        tokens: Some(100),
    };
    let call = history.reserve(&id, of(60), cap).unwrap();
    let error = history.reserve(&id, of(60), cap).unwrap_err();
    assert!(matches!(error, RunError::Budget(_)), "{error}");
    history.settle(&call, of(20)).unwrap();
    let lost = history.reserve(&id, of(60), cap).unwrap();
    let spent = history.spending(&id).unwrap();
    assert_eq!((spent.calls, spent.uncertain), (2, 1));
    assert_eq!((spent.tokens, spent.micro_usd), (80, 800));
    history.release(&lost).unwrap();
    history.reserve(&id, of(80), cap).unwrap();
    let dollars = BudgetCap {
        micro_usd: Some(1_000),
        tokens: None,
    };
    assert!(history.reserve(&id, of(1), dollars).is_err());
}

#[test]
fn files_of_a_newer_version_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    drop(History::open(folder.path()).unwrap());
    let path = folder.path().join("history.sqlite");
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    let error = History::open(folder.path()).err().unwrap();
    assert!(error.to_string().contains("newer version"), "{error}");
}
