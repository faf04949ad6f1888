//! The examples of docs/train-elsewhere.md load an export as the document says.

use std::process::Command;

use pybench_datasets::dataset;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::split::SplitSettings;
use pybench_testing::{ROOT, rows};

use crate::support;

const DOCUMENT: &str = "docs/train-elsewhere.md";

/// Runs the example of a tool on an export made by the document's command, up to its first batches.
fn the_example_trains_what_the_assistant_says(tool: &str) {
    let Some(python) = pybench_testing::python::with_torch("train-elsewhere", "python") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let dataset = folder.path().join("dataset");
    let split = SplitSettings {
        test_fraction: 0.3,
        held_out_templates: 0,
        seed: 1,
        shares: None,
    };
    let shards = ShardSettings::default();
    dataset::write(&dataset, rows::rows(60), &split, &shards, &rows::about()).unwrap();
    let document = std::fs::read_to_string(format!("{ROOT}/{DOCUMENT}")).unwrap();
    let line = document
        .lines()
        .find(|line| line.starts_with("pybench dataset export"));
    let words: Vec<_> = line.unwrap().split(' ').skip(2).collect();
    let words = words.iter().map(|&word| match word {
        "quickstart" => dataset.as_os_str(),
        word => word.as_ref(),
    });
    let exported = support::pybench("dataset")
        .args(words)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(exported.status.success(), "{exported:?}");
    let run = Command::new(python)
        .arg(format!("{ROOT}/src/cli/tests/datasets/train_elsewhere.py"))
        .args([&format!("{ROOT}/{DOCUMENT}"), tool])
        .current_dir(folder.path())
        .env("HF_HOME", folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{stderr}");
    let last = String::from_utf8_lossy(&run.stdout);
    assert!(
        last.ends_with(&format!("{tool}: 8 rows\n")),
        "{last}{stderr}"
    );
}

#[test]
fn trl() {
    the_example_trains_what_the_assistant_says("TRL");
}

#[test]
fn axolotl() {
    the_example_trains_what_the_assistant_says("Axolotl");
}

#[test]
fn torchtune() {
    the_example_trains_what_the_assistant_says("torchtune");
}

#[test]
fn unsloth() {
    the_example_trains_what_the_assistant_says("Unsloth");
}
