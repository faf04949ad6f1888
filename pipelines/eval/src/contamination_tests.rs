use pybench_run::ContentStore;
use pybench_types::trajectory::OutputFile;

use super::*;
use crate::record::AgentKind;
use crate::record::tests::{attempt, fingerprint};
use crate::report::{self, Options};
use pybench_datasets::Row;
use pybench_datasets::decontaminate::Hit;
use pybench_datasets::shards::{self, ShardSettings};
use pybench_testing::rows::{row_with_query, rows};
use serde_json::{Value, json};

const QUESTION: &str = "Which harbor of the northern coast received the largest number of fishing boats during the last three winters, and in \
     which week did the fewest of them leave again";
const PROMPT: &str = "Write a function that takes a list of harbors with their boats and returns the names of all harbors that have more \
     boats in winter than in summer, sorted by the difference";

fn table_bytes() -> Vec<u8> {
    let line = |n: usize| format!("harbor {n},{},{}\n", 31 * n % 977, 57 * n % 1013);
    let lines: String = (0..60).map(line).collect();
    format!("harbor,winter,summer\n{lines}").into_bytes()
}

/// A store with a table, which two tasks of a benchmark read; suites with and without fingerprints.
struct Fixture {
    root: tempfile::TempDir,
    evaluation: Evaluation,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = ContentStore::open(&root.path().join("eval/files")).unwrap();
        let id = store.put(&table_bytes()).unwrap();
        let input = OutputFile {
            path: "data/harbors.csv".into(),
            size: table_bytes().len() as u64,
            id,
        };
        let mut attempts = Vec::new();
        let mut add = |suite: &str, task: &str, prompt: &str, passed: bool| {
            for agent in ["tuned", "base"] {
                let mut one = attempt(agent, task, 0, passed);
                one.suite = suite.to_owned();
                one.prompt = prompt.to_owned();
                if suite == "qrdata" {
                    one.inputs = vec![input.clone()];
                }
                attempts.push(one);
            }
        };
        add("wikitablequestions", "nu-1", QUESTION, true);
        add(
            "wikitablequestions",
            "nu-2",
            "Who built the oldest of the lighthouses?",
            false,
        );
        add("qrdata", "3", "How many boats?", true);
        add("qrdata", "4", "How many harbors?", true);
        add("library", "ab12", PROMPT, true);
        add(
            "library",
            "cd34",
            "Draw the boats of each harbor as bars, sorted by name.",
            false,
        );
        let agents = [("tuned", AgentKind::Model), ("base", AgentKind::Model)];
        Self {
            evaluation: Evaluation::new(fingerprint(&agents), attempts),
            root,
        }
    }

    fn stores(&self) -> Vec<PathBuf> {
        vec![self.root.path().join("eval/files")]
    }

    fn dataset(&self, rows: &[Row]) -> PathBuf {
        let folder = self.root.path().join("set");
        std::fs::create_dir_all(folder.join("data")).unwrap();
        shards::write(
            &folder.join("data"),
            "train",
            rows,
            &ShardSettings::default(),
        )
        .unwrap();
        folder
    }

    fn compare(&self, rows: &[Row]) -> TrainingSet {
        let folder = self.dataset(rows);
        training_set(&self.evaluation, &self.stores(), &folder).unwrap()
    }
}

fn suite<'a>(set: &'a TrainingSet, name: &str) -> &'a SuiteContamination {
    set.suites.iter().find(|suite| suite.suite == name).unwrap()
}

fn matched(suite: &SuiteContamination) -> Vec<(usize, &str, MatchKind)> {
    let matches = suite.matches.iter();
    matches.map(|one| (one.row, &*one.task, one.by)).collect()
}

/// Five rows that have nothing to do with the suites, and one of each kind of match.
fn planted() -> Vec<Row> {
    let mut planted = rows(5);
    planted.push(row_with_query(
        5,
        QUESTION.replace("fishing boats", "sailing boats"),
    ));
    planted.push(row_with_query(
        6,
        format!("Hello! {PROMPT}. Thank you, and use no library that must be installed."),
    ));
    let mut with_file = row_with_query(7, "Sum the numbers of the table, and print them.".into());
    with_file.files[0].blake3 = Digest::of_bytes(&table_bytes());
    planted.push(with_file);
    planted
}

#[test]
fn planted_rows_are_named_by_suite_with_the_rule() {
    let fixture = Fixture::new();
    let set = fixture.compare(&planted());
    assert_eq!((set.rows, set.matching_rows), (8, 3), "{set:#?}");
    let wiki = suite(&set, "wikitablequestions");
    assert_eq!(matched(wiki), [(5, "nu-1", MatchKind::NearDuplicate)]);
    assert_eq!(wiki.matched_tasks, ["nu-1"]);
    // An input file is that of both tasks.
    let qrdata = suite(&set, "qrdata");
    assert_eq!(
        matched(qrdata),
        [(7, "3", MatchKind::File), (7, "4", MatchKind::File)]
    );
    assert_eq!((qrdata.rows, qrdata.unread_inputs), (1, 0));
    let library = suite(&set, "library");
    assert!(!library.fingerprints);
    assert_eq!(library.by[&MatchKind::Query], 1);
    assert_eq!(library.matched_tasks, ["ab12"]);
    // Benchmarks that were not run are compared too.
    let pybench = suite(&set, "pybench");
    assert!(pybench.fingerprints && pybench.evaluated == 0 && pybench.matches.is_empty());
    assert!(
        pybench
            .compared()
            .contains("Near duplicates were not searched")
    );
    for one in set.suites.iter().flat_map(|suite| &suite.matches) {
        assert!(one.trajectory.len() == 64, "{one:?}");
    }
}

#[test]
fn a_table_is_found_in_another_file_of_the_training_set() {
    let fixture = Fixture::new();
    let mut text = String::from_utf8(table_bytes()).unwrap();
    text += "a further harbor,1,2\n";
    let mut row = row_with_query(7, "Sum the numbers of the table, and print them.".into());
    row.files[0].blake3 = Digest::of_bytes(text.as_bytes());
    let folder = fixture.dataset(&[row]);
    let store = ContentStore::open(&folder.join("files")).unwrap();
    store.put(text.as_bytes()).unwrap();
    let set = training_set(&fixture.evaluation, &fixture.stores(), &folder).unwrap();
    let tasks = &suite(&set, "qrdata").matched_tasks;
    assert_eq!(tasks, &["3", "4"], "{set:#?}");
    // Without the store of the records only digests are compared, and the report says so.
    let set = training_set(&fixture.evaluation, &[], &folder).unwrap();
    let qrdata = suite(&set, "qrdata");
    assert_eq!((qrdata.unread_inputs, qrdata.matches.len()), (1, 0));
}

#[test]
fn rows_of_other_subjects_match_nothing() {
    let set = Fixture::new().compare(&rows(40));
    assert_eq!((set.rows, set.matching_rows), (40, 0), "{set:#?}");
    assert!(
        set.suites
            .iter()
            .all(|suite| suite.without_matched.is_empty())
    );
}

#[test]
fn tasks_of_a_subset_match_with_their_benchmark() {
    let hit = |task: &str| Hit {
        task: task.to_owned(),
        by: MatchKind::Query,
        share: 1.0,
        evidence: String::new(),
        contaminated: true,
    };
    let verdict = RowVerdict {
        row: 2,
        trajectory: "t".into(),
        contaminated: true,
        hits: vec![
            hit("da-dev/5"),
            hit("da-dev/6"),
            hit("da-dev/5"),
            hit("qrdata/5"),
        ],
    };
    let tasks = |suite: &str, evaluated: &[&str]| {
        let evaluated = evaluated.iter().copied().collect();
        let matches = row_matches(suite, &evaluated, std::slice::from_ref(&verdict));
        matches.into_iter().map(|one| one.task).collect::<Vec<_>>()
    };
    assert_eq!(tasks("da-dev-verified", &["5", "7"]), ["5"]);
    assert_eq!(tasks("da-dev", &[]), ["5", "6"]);
    assert_eq!(tasks("library", &["5"]), [""; 0]);
}

#[test]
fn the_report_has_the_rows_and_the_scores_without_the_matched_tasks() {
    let fixture = Fixture::new();
    let set = fixture.compare(&planted());
    let out = fixture.root.path().join("report");
    let options = Options {
        training_set: Some(set),
        ..Options::default()
    };
    report::write(&fixture.evaluation, &fixture.stores(), &out, &options).unwrap();
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("report.json")).unwrap();
    let suites = json["training_set"]["suites"].as_array().unwrap();
    let wiki = suites
        .iter()
        .find(|suite| suite["suite"] == "wikitablequestions")
        .unwrap();
    assert_eq!(wiki["matches"][0]["row"], 5);
    assert_eq!(wiki["by"], json!({"near_duplicate": 1}));
    assert_eq!(
        wiki["without_matched"][0]["measures"][2]["overall"]["rate"],
        0.0
    );
    let markdown = read("report.md");
    for part in [
        "3 of 8 rows of set match tasks of these suites.",
        "| wikitablequestions | 1 | near duplicate 1 | 1 of 2 |",
        "| pybench | 0 |  | not evaluated |",
        "| tuned | wikitablequestions | strict | 50.0 [9.5–90.5] (n = 2) | 0.0 [0.0–79.3] (n = 1) |",
        "| tuned | qrdata | strict | 100.0 [34.2–100.0] (n = 2) | no task is left |",
        "## Over suites: strict",
        "an identical file",
    ] {
        assert!(markdown.contains(part), "{part} is not in {markdown}");
    }
    let index = read("index.html");
    for part in [
        "<h2>Training set</h2>",
        "Rows that match qrdata",
        "no task is left",
        "<th>macro</th>",
    ] {
        assert!(index.contains(part), "{part} is not in {index}");
    }
    // Without a training set there is no such section.
    report::write(
        &fixture.evaluation,
        &fixture.stores(),
        &out,
        &Options::default(),
    )
    .unwrap();
    assert!(!read("report.md").contains("Training set"));
}

#[test]
fn a_dataset_that_is_not_there_is_refused() {
    let fixture = Fixture::new();
    let error = training_set(&fixture.evaluation, &[], Path::new("/no/such/set")).unwrap_err();
    assert!(matches!(error, RunError::BadInput(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("/no/such/set: neither a dataset"),
        "{error}"
    );
}

/// Datasets are compared with every benchmark that `eval` has.
#[test]
fn every_benchmark_has_fingerprints() {
    for entry in crate::suites::SUITES {
        assert!(fingerprinted(entry.name).is_some(), "{}", entry.name);
    }
    assert_eq!(fingerprinted("library"), None);
}
