//! Task folders of Harbor: the oracle passes, no-op fails.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use pybench_run::ExitCode;

use crate::library::export::fixture::{
    Container, export, export_every_template, exported, files_below, library, python, settings,
    tasks,
};

#[test]
fn the_oracle_passes_and_nobody_fails() {
    let Some(out) = exported("harbor") else {
        return;
    };
    for task in tasks(out) {
        let container = Container::new(&task);
        let (reward, said) = container.verify();
        assert_eq!(reward.as_deref(), Some("0"), "{}: {said}", task.display());
        container.solve();
        let (reward, said) = container.verify();
        assert_eq!(reward.as_deref(), Some("1"), "{}: {said}", task.display());
    }
}

/// Composed tasks are written in the same way; here one on a table, one on a text and one on a picture or sound.
#[test]
fn composed_tasks_are_exported_too() {
    if python().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tasks");
    let mut command = crate::support::pybench("compose");
    command.args(["--count", "3", "--seed", "3", "--harbor"]);
    let output = command.arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("task folders             3 in"), "{said}");
    for task in tasks(&out) {
        assert!(settings(&task)["metadata"]["operations"].as_str().is_some());
        let container = Container::new(&task);
        let (reward, said) = container.verify();
        assert_eq!(reward.as_deref(), Some("0"), "{}: {said}", task.display());
        container.solve();
        let (reward, said) = container.verify();
        assert_eq!(reward.as_deref(), Some("1"), "{}: {said}", task.display());
    }
}

/// An answer alone, or files alone, are no solution where both are asked for.
#[test]
fn half_a_solution_fails() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let task = out.join("csv-group-mean-zh-3");
    let container = Container::new(&task);
    container.solve();
    fs::remove_dir_all(container.app().join("output")).unwrap();
    let (reward, said) = container.verify();
    assert_eq!(reward.as_deref(), Some("0"), "{said}");
    assert!(said.contains("does not exist"), "{said}");
}

/// What is a link is not read: neither a file of the machine nor the verifier's own.
#[test]
fn links_are_not_followed() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let task = out.join("csv-group-mean-zh-3");
    let container = Container::new(&task);
    container.solve();
    let output = container.app().join("output");
    let result = files_below(&output).remove(0);
    let aside = container.app().join("aside");
    fs::rename(output.join(&result), &aside).unwrap();
    symlink(&aside, output.join(&result)).unwrap();
    let (reward, said) = container.verify();
    assert_eq!(reward.as_deref(), Some("0"), "{said}");
    fs::remove_dir_all(&output).unwrap();
    fs::create_dir(container.app().join("moved")).unwrap();
    fs::rename(&aside, container.app().join("moved").join(&result)).unwrap();
    symlink(container.app().join("moved"), &output).unwrap();
    assert_eq!(container.verify().0.as_deref(), Some("0"));
}

/// A reference that fails is a fault of ours: no reward is written.
#[test]
fn a_broken_task_has_no_verdict() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let copy = tempfile::tempdir().unwrap();
    let task = out.join("csv-group-mean-zh-3");
    // Another process does it: a script that this one has open for writing could not be run.
    let mut copying = std::process::Command::new("cp");
    copying.arg("-r").arg(task.join(".")).arg(copy.path());
    assert!(copying.status().unwrap().success());
    let described = copy.path().join("tests/task.json");
    let text = fs::read_to_string(&described).unwrap();
    let mut broken: serde_json::Value = serde_json::from_str(&text).unwrap();
    broken["reference"] = "raise ValueError('ours')".into();
    fs::write(&described, broken.to_string()).unwrap();
    let (reward, said) = Container::new(copy.path()).verify();
    assert_eq!(reward, None, "{said}");
    assert!(said.contains("the task is at fault"), "{said}");
}

#[test]
fn a_task_folder_looks_so() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let names: Vec<_> = tasks(out).iter().map(|task| file_name(task)).collect();
    insta::assert_snapshot!(names.join("\n"));
    let task = out.join("csv-group-mean-zh-3");
    let mut paths = files_below(&task);
    paths.retain(|path| !path.starts_with("tests/checker/") || path.ends_with("/checker.py"));
    insta::assert_snapshot!(paths.join("\n"));
    let read = |path: &str| fs::read_to_string(task.join(path)).unwrap();
    insta::assert_snapshot!(read("task.toml"));
    insta::assert_snapshot!(read("instruction.md"));
    let english = out.join("cli-text-filter-en-3");
    insta::assert_snapshot!(fs::read_to_string(english.join("instruction.md")).unwrap());
    assert!(read("environment/Dockerfile").ends_with("WORKDIR /app\nCOPY data /app/data\n"));
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// What is held out, the reference and the answer are nowhere that the agent sees.
#[test]
fn the_image_holds_no_secrets() {
    let Some(out) = exported("harbor") else {
        return;
    };
    for task in tasks(out) {
        let held_out = task.join("tests/held_out");
        for path in files_below(&task.join("environment")) {
            let bytes = fs::read(task.join("environment").join(&path)).unwrap();
            for secret in files_below(&held_out) {
                assert_ne!(bytes, fs::read(held_out.join(secret)).unwrap(), "{path}");
            }
            assert!(
                !path.contains("answer") && !path.contains("task.json"),
                "{path}"
            );
        }
        assert_eq!(settings(&task)["agent"]["user"].as_str(), Some("agent"));
    }
    let held_out = out.join("model-price-zh-3/tests/held_out");
    assert!(
        held_out.read_dir().unwrap().count() > 0,
        "one task holds rows out"
    );
}

#[test]
fn what_cannot_be_exported_is_said() {
    if python().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let code = |output: &std::process::Output| output.status.code();
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let out = folder.path().join("out");
    let unknown = export("harbor", &out, &["--templates", "csv-group-men"]);
    assert_eq!(code(&unknown), Some(ExitCode::BadInput as i32));
    assert!(
        said(&unknown).contains("did you mean `csv-group-mean`?"),
        "{}",
        said(&unknown)
    );
    let there = export("harbor", folder.path().parent().unwrap(), &[]);
    assert_eq!(code(&there), Some(ExitCode::Conflict as i32));
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let data = data.to_str().unwrap();
    let unfit = ["--templates", "csv-group-mean", "--data", data];
    let unfit = export("harbor", &out, &unfit);
    assert_eq!(code(&unfit), Some(ExitCode::BadInput as i32));
    assert!(
        said(&unfit).contains("no file given fits"),
        "{}",
        said(&unfit)
    );
    assert!(!out.exists());
    let partly = [
        "--templates",
        "csv-group-mean,math-derivative",
        "--data",
        data,
    ];
    let partly = export("harbor", &out, &partly);
    assert_eq!(
        code(&partly),
        Some(ExitCode::Incomplete as i32),
        "{}",
        said(&partly)
    );
    assert_eq!(tasks(&out).len(), 1);
}

/// A template whose expert is wrong is not handed on.
#[test]
fn an_unsound_template_is_left_out() {
    if python().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(pybench_testing::ROOT).join("pipelines/library/templates/math");
    let text = fs::read_to_string(root.join("math-derivative.toml")).unwrap();
    let (above, code) = text.split_once("[reference]").unwrap();
    let wrong = code.replacen("'''\n", "'''\nraise RuntimeError('unsound')\n", 1);
    assert_ne!(wrong, code);
    let path = folder.path().join("templates/math/math-derivative.toml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{above}[reference]{wrong}")).unwrap();
    let out = folder.path().join("out");
    let own = folder.path().to_str().unwrap();
    let mut command = library(&["--library", own, "export", "--format", "harbor", "--out"]);
    let output = command.arg(&out).output().unwrap();
    assert_eq!(output.status.code(), Some(ExitCode::BadInput as i32));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("unsound"), "{said}");
    assert!(!out.exists());
}

/// Every template of the library, which takes minutes.
#[test]
#[ignore = "minutes; `cargo test -p pybench --test data -- --ignored every`"]
fn every_template_passes_as_a_folder() {
    if python().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    export_every_template(&out);
    let mut wrong = Vec::new();
    for task in tasks(&out) {
        let container = Container::new(&task);
        let (before, _) = container.verify();
        container.solve();
        let (after, said) = container.verify();
        if (before.as_deref(), after.as_deref()) != (Some("0"), Some("1")) {
            wrong.push(format!(
                "{}: {before:?}, {after:?}\n{said}",
                file_name(&task)
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
