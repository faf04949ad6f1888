//! `pybench dataset`: outputs are written as a whole, and wrong arguments are refused.

use std::fs;
use std::path::Path;
use std::process::Output;

use pybench_datasets::shards::{self, ShardSettings};
use pybench_run::ExitCode;
use pybench_testing::rows as common;
use serde_json::{Value, json};

use crate::support::fixture::code;

fn dataset(args: &[&str], folder: &Path) -> Output {
    let mut command = crate::support::pybench("dataset");
    command.args(args).current_dir(folder).output().unwrap()
}

fn refused(output: &Output, reason: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output), Some(ExitCode::BadInput as i32), "{stderr}");
    assert!(stderr.contains(reason), "{stderr}");
}

fn succeeded(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output), Some(0), "{stderr}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_file_can_be_converted_onto_itself() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        r#"{"messages": [{"role": "user", "content": "q", "name": "Ann"}], "source": "web"}"#;
    let path = folder.path().join("rows.jsonl");
    fs::write(&path, format!("{line}\n{line}\n")).unwrap();
    let convert = |to: &str| {
        let args = [
            "convert",
            "rows.jsonl",
            "--from",
            "openai",
            "--to",
            to,
            "--out",
        ];
        dataset(&[&args[..], &["rows.jsonl"]].concat(), folder.path())
    };
    let report = succeeded(&convert("code-feedback"));
    for lost in [
        "2  lost column \"source\"",
        "2  lost field \"name\" of messages",
    ] {
        assert!(report.contains(lost), "{report}");
    }
    let converted = fs::read_to_string(&path).unwrap();
    let rows = converted
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let expected = json!({"id": "", "messages": [{"role": "user", "content": "q"}]});
    assert_eq!(rows.collect::<Vec<Value>>(), [expected.clone(), expected]);
    // A failed conversion leaves the file as it is.
    fs::write(&path, format!("{line}\n{{}}\n")).unwrap();
    let failed = convert("openai");
    refused(&failed, "rows.jsonl:2: messages: missing");
    assert!(fs::read_to_string(&path).unwrap().starts_with(line));
}

#[test]
fn an_export_replaces_sessions_and_needs_an_existing_split() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d/data");
    fs::create_dir_all(&data).unwrap();
    shards::write(&data, "train", &common::rows(4), &ShardSettings::default()).unwrap();
    let export = |out: &str, more: &[&str]| {
        let args = ["export", "d", "--to", "traces", "--out", out];
        dataset(&[&args[..], more].concat(), folder.path())
    };
    let missing = export("sessions", &["--split", "test"]);
    refused(&missing, "the dataset has no split test; it has train");
    assert!(!folder.path().join("sessions").exists());
    for rows in ["4", "3"] {
        succeeded(&export("sessions", &["--split", "train", "--rows", rows]));
        let written = fs::read_dir(folder.path().join("sessions")).unwrap();
        assert_eq!(written.count().to_string(), rows);
    }
    refused(&export("d", &[]), "d contains data, which is no session");
    assert!(data.is_dir());
}

#[test]
fn an_export_writes_a_file_for_each_split_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d/data");
    fs::create_dir_all(&data).unwrap();
    let rows = common::rows(5);
    for (split, rows) in [("train", &rows[..3]), ("test", &rows[3..])] {
        shards::write(&data, split, rows, &ShardSettings::default()).unwrap();
    }
    let export = |args: &str| {
        let args = format!("export d {args}");
        let args: Vec<_> = args.split(' ').collect();
        succeeded(&dataset(&args, folder.path()))
    };
    let printed = export("--to sharegpt --out rows.jsonl");
    for line in [
        "       3  conversations as conversations in rows-train.jsonl\n",
        "       2  conversations as conversations in rows-test.jsonl\n",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    let lines = |name: &str| {
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        text.lines().count()
    };
    assert_eq!(
        (lines("rows-train.jsonl"), lines("rows-test.jsonl")),
        (3, 2)
    );
    assert!(!folder.path().join("rows.jsonl").exists());
    let printed = export("--to openai --split test --out test.jsonl");
    assert!(printed.contains("2  conversations as openai in test.jsonl"));
    assert_eq!(lines("test.jsonl"), 2);
    // What was exported can be read back.
    let stats = crate::support::pybench("stats")
        .arg("rows-train.jsonl")
        .current_dir(folder.path())
        .output()
        .unwrap();
    succeeded(&stats);
}

/// `eval report` compares the training set of a model with the suites.
/// A wrong address is refused as an address before anything is asked for; a path would only be missing.
#[test]
fn benchmarks_and_files_may_be_at_addresses() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, reason) in [
        (
            &["decontaminate", "set", "--against", "s3://bucket"][..],
            "expected s3://BUCKET/PATH",
        ),
        (
            &["decontaminate", "set", "--files", "az://container"][..],
            "expected s3://BUCKET/PATH",
        ),
        (
            &["fingerprint", "hf://o", "--out", "f"][..],
            "expected hf://",
        ),
    ] {
        refused(&dataset(arguments, folder.path()), reason);
    }
}

#[test]
fn a_report_names_the_rows_of_the_training_set_that_match_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("set/data");
    fs::create_dir_all(&data).unwrap();
    let question = "List the three harbors with the largest number of boats in winter, and state how many boats each of \
                    them had in the summer before";
    let mut rows = common::rows(4);
    rows.push(common::row_with_query(4, format!("Please: {question}.")));
    shards::write(&data, "train", &rows, &ShardSettings::default()).unwrap();
    let header = json!({
        "task_set": "t", "tasks": "0".repeat(64), "checker": "c", "environment": "e", "prompts": "p", "limits": {},
        "agents": {"m": {"kind": "model", "about": "a model"}}
    });
    let attempt = |task: &str, prompt: &str| {
        json!({
            "agent": "m", "suite": "library", "task": task, "category": "text", "seed": 0, "outcome": {"outcome": "ran"},
            "scores": {"strict": true}, "turns": 1, "max_turns": 2, "prompt": prompt
        })
    };
    let lines = [
        header,
        attempt("ab12", question),
        attempt("cd34", "Draw a map of the coast."),
    ];
    let lines = lines.map(|line| line.to_string()).join("\n") + "\n";
    fs::write(folder.path().join("records.jsonl"), lines).unwrap();
    let report = |dataset: &str| {
        let mut command = crate::support::pybench("eval");
        command.args([
            "report",
            "records.jsonl",
            "--out",
            "report",
            "--trained-on",
            dataset,
        ]);
        command.current_dir(folder.path()).output().unwrap()
    };
    succeeded(&report("set"));
    let markdown = fs::read_to_string(folder.path().join("report/report.md")).unwrap();
    for part in [
        "1 of 5 rows of set match tasks of these suites.",
        "| m | library | strict | 100.0 [34.2–100.0] (n = 2) | 100.0 [20.7–100.0] (n = 1) |",
        "### Rows that match library",
    ] {
        assert!(markdown.contains(part), "{part} is not in {markdown}");
    }
    refused(&report("nowhere"), "nowhere: neither a dataset");
    refused(&report("hf://datasets/o"), "expected [hf://datasets/]");
}
