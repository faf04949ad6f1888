//! Python's `datasets.load_dataset` and pyarrow read our shards.

use pybench_testing::rows as common;
use std::path::{Path, PathBuf};
use std::process::Command;

use pybench_datasets::shards::{self, ShardSettings};
use pybench_datasets::split::SplitSettings;
use pybench_datasets::{Row, dataset, schema};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role};
use serde_json::{Value, json};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

/// Python with the package `datasets`. `None`, with a message, if it cannot be installed.
fn python() -> Option<PathBuf> {
    pybench_testing::python::environment("datasets")
}

fn load(python: &Path, folder: &Path, scratch: &Path) -> Value {
    let output = Command::new(python)
        .arg(format!("{TESTS}/open.py"))
        .arg(folder)
        .env("HF_HOME", scratch)
        .env("HF_DATASETS_CACHE", scratch.join("datasets"))
        .env("HF_HUB_OFFLINE", "1")
        .env("HF_DATASETS_OFFLINE", "1")
        .env("HF_HUB_DISABLE_TELEMETRY", "1")
        .env("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
        .output()
        .expect("python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "there are no warnings");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The row as `datasets` returns it. `held_out` and `unseen` are set by the split.
fn expected(row: &Row, held_out: bool, unseen: &str) -> Value {
    let row = &Row {
        held_out_template: held_out,
        unseen: unseen.to_owned(),
        ..row.clone()
    };
    let messages = row.messages.iter();
    let messages: Vec<_> = messages
        .map(|m| json!({"role": m.role, "content": m.content, "weight": weight(m)}))
        .collect();
    let files = row.files.iter().map(|f| {
        json!({"name": f.name, "blake3": f.blake3, "license": f.license, "origin": f.origin, "kind": f.kind, "derived_from": f.derived_from})
    });
    let outputs = row.outputs.iter();
    let outputs = outputs
        .map(|o| json!({"path": o.path, "blake3": o.blake3, "content": o.content, "size": o.size}));
    let checks = row
        .checks
        .iter()
        .map(|c| json!({"subject": c.subject, "outcome": c.outcome}));
    let (sampling, tokens) = (&row.sampling, &row.tokens);
    json!({
        "messages": messages,
        "tools": null,
        "tool_choices": "auto",
        "task_id": row.task_id,
        "trajectory_id": row.trajectory_id,
        "category": row.category,
        "subcategory": row.subcategory,
        "keyword": row.keyword,
        "template": row.template,
        "task_license": row.task_license,
        "task_source": row.task_source,
        "held_out_template": held_out,
        "operations": row.operations,
        "pairs": row.pairs,
        "wordings": row.wordings,
        "difficulty": row.difficulty,
        "renamed": row.renamed,
        "unseen": unseen,
        "language": row.language,
        "query": row.query,
        "files": files.collect::<Vec<_>>(),
        "teacher": row.teacher,
        "student": row.student,
        "provenance": row.provenance,
        "sampling": {
            "temperature": sampling.temperature, "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens, "sample": row.sample,
        },
        "seed": row.seed,
        "environment": row.environment,
        "interpreter": serde_json::to_string(&row.interpreter).unwrap(),
        "format": row.format,
        "attempts": row.attempts,
        "turns": row.turns,
        "tokens": {
            "prompt": tokens.prompt, "completion": tokens.completion,
            "counted_by": tokens.counted_by.name(),
        },
        "outputs": outputs.collect::<Vec<_>>(),
        "checks": checks.collect::<Vec<_>>(),
        "checker": row.checker,
        "grading": serde_json::to_string(&row.grading).unwrap(),
        "proof": pybench_datasets::row_hashes::RowHashes::of(row),
    })
}

/// The weight of a message as the dataset has it.
fn weight(message: &Message) -> Option<u8> {
    (message.role == Role::Assistant).then_some(u8::from(message.trained))
}

/// Marks the first reply as context.
fn context(row: &mut Row) {
    let mut messages = row.messages.iter_mut();
    if let Some(reply) = messages.find(|message| message.role == Role::Assistant) {
        reply.trained = false;
    }
}

#[test]
fn load_dataset_returns_the_rows() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dataset");
    let mut rows = common::rows(120);
    for row in rows.iter_mut().step_by(3) {
        context(row);
        row.provenance = Some("human-edited".to_owned());
    }
    let split = SplitSettings {
        test_fraction: 0.2,
        held_out_templates: 2,
        seed: 7,
        shares: None,
    };
    let shards = ShardSettings {
        shard_rows: 50,
        row_group_rows: 10,
        ..ShardSettings::default()
    };
    let written = dataset::write(&path, rows.clone(), &split, &shards, &common::about()).unwrap();

    let loaded = load(&python, &path, folder.path());
    use pybench_datasets::split::Assignment;
    for (name, assignment) in [("train", Assignment::Train), ("test", Assignment::Test)] {
        let here = rows
            .iter()
            .zip(&written.split.assignments)
            .filter(|(_, a)| **a == assignment);
        let expected: Vec<Value> = here
            .map(|(row, _)| {
                let held_out = written.split.held_out.contains(&row.template);
                let unseen = match (assignment, held_out) {
                    (Assignment::Test, true) => "template",
                    (Assignment::Test, false) => "files",
                    _ => "",
                };
                expected(row, held_out, unseen)
            })
            .collect();
        assert!(!expected.is_empty(), "{name} is empty");
        assert_eq!(loaded[name]["rows"], Value::from(expected), "{name}");
        let columns: Vec<Value> = schema()
            .fields()
            .iter()
            .map(|f| f.name().as_str().into())
            .collect();
        assert_eq!(loaded[name]["columns"], Value::from(columns));
        // The card says the same, or `datasets` would have refused it.
        let stated = &loaded[name]["stated"];
        assert_eq!(
            stated["num_examples"],
            loaded[name]["rows"].as_array().unwrap().len()
        );
        assert!(stated["num_bytes"].as_u64().unwrap() > 1_000, "{stated}");
        assert_eq!(stated["same_features"], true);
    }
}

/// Reads every shard with pyarrow and prints the id and a checksum of the long texts of each row.
const CHECKSUMS: &str = "
import json, sys, zlib
from pyarrow import parquet

found = []
for path in sys.argv[1:]:
    for row in parquet.read_table(path, columns=['trajectory_id', 'query', 'messages']).to_pylist():
        texts = [row['query']] + [message['content'] for message in row['messages']]
        found.append([row['trajectory_id'], zlib.crc32(''.join(texts).encode())])
    parquet.read_table(path)
json.dump(found, sys.stdout)
";

/// With content-defined chunking pyarrow could not read about one in two hundred row groups.
#[test]
fn pyarrow_reads_all_of_many_row_groups() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut rows = common::rows(2200);
    for (number, row) in rows.iter_mut().enumerate() {
        // Long random texts, so that content-defined chunking would split often.
        let noise = (0..80 + number % 400).map(|i| Digest::of_json(&(number, i)).to_string());
        row.query.extend(noise);
    }
    let settings = ShardSettings {
        shard_rows: 1100,
        row_group_rows: 10,
        zstd_level: 1,
        ..ShardSettings::default()
    };
    let paths = shards::write(folder.path(), "train", &rows, &settings).unwrap();
    let output = Command::new(python)
        .args(["-c", CHECKSUMS])
        .args(&paths)
        .output()
        .expect("python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let found: Vec<(Digest, u32)> = serde_json::from_slice(&output.stdout).expect("JSON");
    let expected = rows.iter().map(|row| {
        let mut crc = flate2::Crc::new();
        crc.update(row.query.as_bytes());
        row.messages
            .iter()
            .for_each(|message| crc.update(message.content.as_bytes()));
        (row.trajectory_id.clone(), crc.sum())
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
}
