//! The package of verifiers: as the real verifiers loads it, with both services running.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::library::export::fixture::{Server, exported, files_below, key, library, python, tasks};

/// A Python with verifiers 0.4; `None`, and the test is skipped, if it cannot be installed.
fn verifiers() -> Option<PathBuf> {
    let named = std::env::var_os("PYBENCH_VERIFIERS").map(PathBuf::from);
    named.or_else(|| pybench_testing::python::environment("verifiers"))
}

#[test]
fn the_package_holds_prompts_and_no_checks() {
    let Some(out) = exported("verifiers") else {
        return;
    };
    let mut paths = files_below(out);
    paths.retain(|path| !path.starts_with("pybench_library/files/"));
    insta::assert_snapshot!(paths.join("\n"));
    let rows = fs::read_to_string(out.join("pybench_library/tasks.jsonl")).unwrap();
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 6);
    for row in &rows {
        assert!(row.get("reference").is_none() && row.get("checks").is_none());
        for file in row["files"].as_array().unwrap() {
            let id = file["id"].as_str().unwrap();
            let bytes = fs::read(out.join("pybench_library/files").join(id)).unwrap();
            assert_eq!(blake3::hash(&bytes).to_hex().as_str(), id);
        }
    }
    let mut row = rows[1].clone();
    row["system_prompt"] = "…".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&row).unwrap());
}

/// The same flags make the same tasks, whatever the format.
#[test]
fn both_formats_name_the_same_tasks() {
    let (Some(harbor), Some(package)) = (exported("harbor"), exported("verifiers")) else {
        return;
    };
    let rows = fs::read_to_string(package.join("pybench_library/tasks.jsonl")).unwrap();
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let keys: Vec<_> = rows.iter().map(|row| row["task"].clone()).collect();
    let others: Vec<_> = tasks(harbor).iter().map(|task| key(task)).collect();
    assert_eq!(keys, others);
}

/// The rewards that the real verifiers gives the expert and an agent that does nothing.
#[test]
fn the_expert_is_rewarded_by_verifiers() {
    let (Some(harbor), Some(package)) = (exported("harbor"), exported("verifiers")) else {
        return;
    };
    let (Some(python), Some(_)) = (verifiers(), python()) else {
        return;
    };
    let mut serve = crate::support::pybench("interpreter");
    serve.args(["serve", "--address", "127.0.0.1:0", "--no-token"]);
    let cells = Server::start(&mut serve);
    let rewards = Server::start(&mut library(&["serve-rewards", "--address", "127.0.0.1:0"]));
    let driver =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/library/export/drive_verifiers.py");
    let output = Command::new(python)
        .arg(driver)
        .args([harbor.as_os_str(), cells.url.as_ref(), rewards.url.as_ref()])
        .env("PYTHONPATH", package)
        .env_remove("PYBENCH_TOKEN")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let last = String::from_utf8(output.stdout).unwrap();
    let found: BTreeMap<String, [f64; 2]> =
        serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!(found.len(), 6, "{found:?}");
    for (name, rewards) in found {
        assert_eq!(rewards, [1.0, 0.0], "{name}: {said}");
    }
}
