//! Runs that move between a journal in their folder and one in PostgreSQL.

use std::path::{Path, PathBuf};

use pybench_run::artifacts::Artifact;
use pybench_run::relocate::relocate;
use pybench_run::{
    Batch, BatchRequest, BudgetCap, Call, Event, ExitCode, Failure, FailureKind, Journal, Profile,
    Reservation, RunFolder, Spent, TemporalServer, Unit, UnitFailure, WhenChanged,
};
use pybench_testing::{postgres, s3};
use pybench_types::id::Digest;
use serde_json::{Value, json};

const TEN: Reservation = Reservation {
    micro_usd: 10,
    tokens: 20,
};

/// More than a page of rows.
const MANY: usize = 150;

const NUMBERS: Artifact<u32> = Artifact::new("numbers.jsonl", "a number", "count");

/// A run folder in a project of its own, and the profile of the server of this program.
struct Place {
    root: tempfile::TempDir,
    profile: PathBuf,
}

impl Place {
    /// `None`, and the test is skipped, if there is no server.
    fn new() -> Option<Self> {
        Some(Self {
            root: tempfile::tempdir().unwrap(),
            profile: postgres::profile()?,
        })
    }

    fn run(&self) -> PathBuf {
        self.root.path().join("moving")
    }

    /// Opens the run as its coordinator does.
    fn open(&self) -> RunFolder {
        RunFolder::open(&self.run(), "seed = 1\n").unwrap()
    }

    fn to_server(&self) -> bool {
        relocate(&self.run(), Some(&self.profile))
            .unwrap()
            .is_some()
    }

    /// A move to the server that is killed before its last step: the file that names the new journal is not in its place.
    fn begin_move(&self) {
        assert!(self.to_server());
        let names = ["journal.toml", "journal.move.toml"].map(|name| self.run().join(name));
        std::fs::rename(&names[0], &names[1]).unwrap();
    }

    fn to_folder(&self) -> bool {
        relocate(&self.run(), None).unwrap().is_some()
    }

    fn is_on_server(&self) -> bool {
        self.run().join("journal.toml").exists()
    }

    /// The schema that holds the journal, or that a move has begun.
    fn schema(&self, file: &str) -> String {
        let pointer = std::fs::read_to_string(self.run().join(file)).unwrap();
        let pointer: toml::Table = toml::from_str(&pointer).unwrap();
        pointer["schema"].as_str().unwrap().to_owned()
    }
}

/// Everything that a journal tells about a run.
#[derive(Debug, PartialEq)]
struct Content {
    units: Vec<Vec<Unit>>,
    failures: Vec<UnitFailure>,
    calls: Vec<Option<Call>>,
    spent: Spent,
    steps: Vec<Vec<Event>>,
    facts: Vec<(String, Value)>,
    batches: Vec<Batch>,
    lines: Vec<String>,
}

const CALLS: [&str; 5] = ["settled", "uncertain", "batched", "answered", "last"];

impl Content {
    fn of(journal: &Journal) -> Self {
        let batches = journal.all_open_batches().unwrap();
        let mut facts = journal.metadata_with_prefix("").unwrap();
        facts.retain(|(key, _)| !["moved", "shared_run"].contains(&key.as_str()));
        let stages = journal.stages().unwrap();
        Self {
            units: stages
                .iter()
                .map(|stage| journal.units(stage).unwrap())
                .collect(),
            failures: journal.failures().unwrap(),
            calls: CALLS.map(|id| journal.call(id).unwrap()).into(),
            spent: journal.spent().unwrap(),
            steps: ["open", "other"]
                .map(|name| journal.events(name).unwrap())
                .into(),
            facts,
            lines: batches
                .iter()
                .map(|batch| journal.batch_file(&batch.name).unwrap())
                .collect(),
            batches,
        }
    }
}

/// A run in the middle of its work: units in each state, calls in each state that outlives a process, steps of two
/// trajectories, batches, decisions of people, and text that a database may change.
fn fill(folder: &RunFolder) {
    let journal = folder.journal();
    let text = "ü\u{0}\r\n'\"\\ \u{1F600} %s $1 ?1";
    let mut items: Vec<String> = (0..MANY).map(|n| format!("item-{n}")).collect();
    items.push("Ä 'quoted'".to_owned());
    journal.enqueue("s", &items).unwrap();
    journal.enqueue("rollout", ["open", "by hand"]).unwrap();
    for item in items.iter().take(100) {
        assert!(journal.lease("s", item, 100, 50).unwrap());
        journal
            .complete("s", item, &json!({"item": item, "text": text}))
            .unwrap();
    }
    let failure = Failure::new(FailureKind::Endpoint, text).of_call(Digest::of_bytes(b"call"));
    journal.fail("s", "item-100", &failure, true).unwrap();
    journal.fail("s", "item-101", &failure, false).unwrap();
    let by_hand = json!({"teacher": "human"});
    journal.complete("rollout", "by hand", &by_hand).unwrap();
    for position in 0..MANY as u64 {
        journal
            .append("open", position, &json!([position, text]))
            .unwrap();
    }
    journal.append("other", 0, &Value::Null).unwrap();

    let cap = BudgetCap::default();
    for id in ["settled", "uncertain"] {
        journal.reserve(id, TEN, cap).unwrap();
    }
    let used = Reservation {
        micro_usd: 3,
        tokens: 1 << 40,
    };
    journal
        .settle("settled", used, &json!({ "reply": text }))
        .unwrap();
    journal.mark_uncertain("uncertain").unwrap();
    for id in ["batched", "answered", "last"] {
        let request = BatchRequest {
            teacher: "m",
            request: &Digest::of_bytes(id.as_bytes()),
            line: "{\"line\": 1}",
        };
        journal.queue_for_batch(id, TEN, cap, request).unwrap();
    }
    let queued = [["answered", "batched"].map(str::to_owned).to_vec()];
    journal.create_batches("m", &queued).unwrap();
    let name = journal.open_batches("m").unwrap()[0].name.clone();
    journal.batch_uploaded(&name, "file").unwrap();
    journal.batch_requested(&name).unwrap();
    journal.settle("answered", TEN, &json!(1)).unwrap();
    journal
        .create_batches("m", &[vec!["last".to_owned()]])
        .unwrap();
    journal.set_metadata("review/task", &json!("good")).unwrap();
    for number in 0..MANY {
        let key = format!("fact/{number}");
        journal
            .set_metadata(&key, &json!({"key": key, "text": text}))
            .unwrap();
    }
    NUMBERS.write(folder, [1, 2, 3].map(Ok)).unwrap();
}

/// A folder with such a run, and its content.
fn filled(place: &Place) -> Content {
    let folder = place.open();
    fill(&folder);
    let content = Content::of(folder.journal());
    assert_eq!(content.units.len(), 2);
    assert_eq!(content.batches.len(), 2);
    content
}

fn content(run: &Path) -> Content {
    Content::of(&Journal::read_run(run).unwrap())
}

#[test]
fn a_run_moves_there_and_back_and_nothing_is_lost() {
    let Some(place) = Place::new() else {
        return;
    };
    let expected = filled(&place);
    for round in 0..2 {
        assert!(place.to_server());
        assert!(place.is_on_server());
        assert_eq!(content(&place.run()), expected, "round {round}");
        assert!(!place.to_server(), "it is there");
        // What works on it there finds it whole, and goes on.
        let folder = place.open();
        assert_eq!(Content::of(folder.journal()), expected);
        assert!(folder.workers().is_some());
        drop(folder);
        assert!(place.to_folder());
        assert!(!place.is_on_server());
        assert_eq!(content(&place.run()), expected, "round {round}");
        assert!(!place.to_folder());
        assert_eq!(NUMBERS.read_all(&place.run()).unwrap(), [1, 2, 3]);
    }
    // The next batch comes after the others, and the next unit too.
    assert!(place.to_server());
    let folder = place.open();
    let journal = folder.journal();
    let request = BatchRequest {
        teacher: "m",
        request: &Digest::of_bytes(b"next"),
        line: "{}",
    };
    journal
        .queue_for_batch("next", TEN, BudgetCap::default(), request)
        .unwrap();
    journal
        .create_batches("m", &[vec!["next".to_owned()]])
        .unwrap();
    let waves: Vec<u64> = journal
        .open_batches("m")
        .unwrap()
        .iter()
        .map(|batch| batch.wave)
        .collect();
    assert_eq!(waves, [1, 2, 3]);
    journal.enqueue("s", ["next"]).unwrap();
    let last = journal.units("s").unwrap().pop().unwrap();
    assert_eq!(
        (last.item.as_str(), last.position),
        ("next", MANY as u64 + 1)
    );
}

#[test]
fn the_old_place_is_marked_and_refused() {
    let Some(place) = Place::new() else {
        return;
    };
    drop(filled(&place));
    assert!(place.to_server());
    let pointer = place.run().join("journal.toml");
    let kept = std::fs::read(&pointer).unwrap();
    // As in a copy of the folder that was made before.
    std::fs::remove_file(&pointer).unwrap();
    let error = RunFolder::open(&place.run(), "seed = 1\n").unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Conflict);
    assert!(
        error
            .to_string()
            .contains("was moved to schema run_moving_"),
        "{error}"
    );
    std::fs::write(&pointer, kept).unwrap();

    let stale = std::fs::read(&pointer).unwrap();
    assert!(place.to_folder());
    std::fs::write(&pointer, stale).unwrap();
    for error in [
        RunFolder::open(&place.run(), "seed = 1\n").unwrap_err(),
        RunFolder::join(&place.run(), &place.profile).unwrap_err(),
        Journal::join_run(&place.run()).unwrap_err(),
    ] {
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        assert!(error.to_string().contains("journal.sqlite"), "{error}");
    }
}

#[test]
fn a_move_that_was_killed_is_repeated_or_given_up() {
    let Some(place) = Place::new() else {
        return;
    };
    let expected = filled(&place);
    place.begin_move();
    let begun = place.schema("journal.move.toml");
    let error = RunFolder::open(&place.run(), "seed = 1\n").unwrap_err();
    assert!(
        error.to_string().contains("its move was interrupted"),
        "{error}"
    );
    // Half of a copy, with rows that are wrong.
    postgres::sql(&format!(
        "DELETE FROM {begun}.unit WHERE item > 'item-3'; DELETE FROM {begun}.event;
         UPDATE {begun}.fact SET value = '0'"
    ));
    assert!(place.to_server());
    assert_eq!(place.schema("journal.toml"), begun, "the same schema");
    assert_eq!(content(&place.run()), expected);

    // A move that is given up leaves the run where it is, and nothing elsewhere.
    assert!(place.to_folder());
    place.begin_move();
    let begun = place.schema("journal.move.toml");
    assert!(!place.to_folder());
    let left =
        format!("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '{begun}'");
    assert_eq!(postgres::sql(&left), "0");
    assert_eq!(Content::of(place.open().journal()), expected);
}

#[test]
fn a_run_that_is_worked_on_does_not_move() {
    let Some(place) = Place::new() else {
        return;
    };
    drop(filled(&place));
    let folder = place.open();
    let error = relocate(&place.run(), Some(&place.profile)).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Conflict);
    drop(folder);
    assert!(place.to_server());
    let worker = RunFolder::join(&place.run(), &place.profile).unwrap();
    worker.journal().beat("{\"name\":\"w\"}", 60).unwrap();
    let error = relocate(&place.run(), None).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Conflict);
    assert!(
        error
            .to_string()
            .contains("workers that have joined the run: 1"),
        "{error}"
    );
    // Others may still join.
    drop(RunFolder::join(&place.run(), &place.profile).unwrap());
    worker.journal().leave().unwrap();
    assert!(place.to_folder());
}

/// Files and artifacts go to the bucket, and come back to a folder that has lost them.
#[test]
fn files_move_with_the_run() {
    let (Some(server), Some(place)) = (s3::server(), Place::new()) else {
        return;
    };
    let mut settings = Profile::load(&place.profile).unwrap();
    settings.store = Some(server);
    let profile = place.root.path().join("p.toml");
    std::fs::write(&profile, toml::to_string(&settings).unwrap()).unwrap();

    let folder = place.open();
    let id = folder.store().put(b"abc").unwrap();
    NUMBERS.write(&folder, [1, 2, 3].map(Ok)).unwrap();
    drop(folder);
    assert!(relocate(&place.run(), Some(&profile)).unwrap().is_some());
    std::fs::remove_dir_all(place.run().join("files")).unwrap();
    std::fs::remove_file(NUMBERS.path(&place.run())).unwrap();
    let folder = RunFolder::open_in_profile(
        &place.run(),
        "seed = 1\n",
        &WhenChanged::default(),
        Some(&profile),
    );
    assert_eq!(folder.unwrap().store().get(&id).unwrap(), b"abc");

    std::fs::remove_dir_all(place.run().join("files")).unwrap();
    assert!(place.to_folder());
    let folder = place.open();
    assert_eq!(folder.store().get(&id).unwrap(), b"abc");
    assert_eq!(NUMBERS.read_all(folder.root()).unwrap(), [1, 2, 3]);
}

/// What a run has left in its queue is removed after it has started over or was moved.
#[test]
fn the_queue_that_a_run_leaves_is_known() {
    let Some(place) = Place::new() else {
        return;
    };
    let mut settings = Profile::load(&place.profile).unwrap();
    settings.temporal = Some(TemporalServer::default());
    let profile = place.root.path().join("p.toml");
    std::fs::write(&profile, toml::to_string(&settings).unwrap()).unwrap();
    let open = |recipe: &str| {
        let changed = WhenChanged::StartOver;
        RunFolder::open_in_profile(&place.run(), recipe, &changed, Some(&profile)).unwrap()
    };

    let folder = open("seed = 1\n");
    assert_eq!(folder.left_queue(), None);
    let first = folder.queue().unwrap().clone();
    drop(folder);
    let folder = open("seed = 2\n");
    assert_eq!(folder.left_queue(), Some(&first));
    let second = folder.queue().unwrap().clone();
    assert_ne!(first.run, second.run);
    drop(folder);
    let moved = relocate(&place.run(), None).unwrap().unwrap();
    assert_eq!(moved.left_queue, Some(second));
}
