//! The package of verifiers: as the real verifiers loads it, with both services running.

use std::collections::BTreeMap;
use std::ffi::OsStr;
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

/// The rewards that the real verifiers gives the expert and an agent that does nothing, by task. The solutions are those of
/// the same tasks as folders of Harbor. `None`, and the test is skipped, without verifiers or sessions.
fn rewards(
    harbor: &Path,
    package: &Path,
    serve_rewards: &[&OsStr],
) -> Option<BTreeMap<String, [f64; 2]>> {
    let (Some(python), Some(_)) = (verifiers(), python()) else {
        return None;
    };
    let mut serve = crate::support::pybench("interpreter");
    serve.args(["serve", "--address", "127.0.0.1:0", "--no-token"]);
    let cells = Server::start(&mut serve);
    let mut serve = library(&["serve-rewards", "--address", "127.0.0.1:0"]);
    let rewards = Server::start(serve.args(serve_rewards));
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
    println!("{said}");
    let last = String::from_utf8(output.stdout).unwrap();
    Some(serde_json::from_str(last.lines().last().unwrap()).unwrap())
}

#[test]
fn the_expert_is_rewarded_by_verifiers() {
    let (Some(harbor), Some(package)) = (exported("harbor"), exported("verifiers")) else {
        return;
    };
    let Some(found) = rewards(harbor, package, &[]) else {
        return;
    };
    assert_eq!(found.len(), 6, "{found:?}");
    assert!(found.values().all(|one| *one == [1.0, 0.0]), "{found:?}");
}

/// Composed tasks: the service has them in a folder, the package has neither references nor checks.
#[test]
fn the_expert_is_rewarded_for_composed_tasks() {
    if python().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [harbor, out] = ["harbor", "verifiers"].map(|name| folder.path().join(name));
    let mut command = crate::support::pybench("compose");
    command.args(["--count", "3", "--seed", "3", "--harbor"]);
    let output = command
        .arg(&harbor)
        .arg("--verifiers")
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let (package, stored) = (out.join("package"), out.join("rewards"));
    let rows = fs::read_to_string(package.join("pybench_library/tasks.jsonl")).unwrap();
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        assert!(row.get("reference").is_none() && row.get("checks").is_none());
        assert!(row["task"].is_null() && row["seed"].is_u64());
    }
    let flags = ["--tasks".as_ref(), stored.as_os_str()];
    let Some(found) = rewards(&harbor, &package, &flags) else {
        return;
    };
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.values().all(|one| *one == [1.0, 0.0]), "{found:?}");
    // What is no such folder is refused with the way out.
    let mut serve = library(&["serve-rewards", "--address", "127.0.0.1:0", "--tasks"]);
    let output = serve.arg(&package).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("pybench compose --verifiers DIR"), "{said}");
}
