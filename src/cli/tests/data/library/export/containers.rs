//! Task folders of Harbor in real containers: an image is built from the exported Dockerfile, and the solution and the
//! verifier run in it with the commands and users of Harbor 0.26.
//!
//! Two things are replaced. The base image `python:3.11-slim-bookworm` is this machine's own system, and `apt-get` and
//! `pip install` do not run: `/usr` and the Python environment that set-up made are mounted instead. Harbor itself,
//! which needs Python 3.12, does not run either.

use std::fs;
use std::path::{Path, PathBuf};

use pybench_testing::podman::{Container, HostSystem, Podman};
use sha2::{Digest as _, Sha256};

use crate::library::export::fixture::{
    export_every_template, exported, files_below, python, settings, tasks,
};

/// One task whose check draws a chart again from what the image's Python recorded, and one whose check runs a program
/// of the agent as another user.
const SAMPLE: [&str; 2] = ["cli-text-filter-", "plot-bar-mean-"];

#[test]
fn the_oracle_passes_and_no_op_fails_in_a_container() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let sample = |task: &PathBuf| {
        let name = task.file_name().unwrap().to_str().unwrap();
        SAMPLE.iter().any(|start| name.starts_with(start))
    };
    let mut sample: Vec<_> = tasks(out).into_iter().filter(sample).collect();
    assert_eq!(sample.len(), SAMPLE.len());
    let folder = tempfile::tempdir().unwrap();
    sample.extend(composed(&folder.path().join("composed"), 2));
    check_rewards(&sample, |_| ());
}

#[test]
#[ignore = "takes minutes; `just audit` runs it"]
fn every_template_in_a_container() {
    if python().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tasks");
    export_every_template(&out);
    let mut all = tasks(&out);
    all.extend(composed(&folder.path().join("composed"), 20));
    let passed = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tasks-in-containers");
    fs::create_dir_all(&passed).unwrap();
    let record = |task: &Path| passed.join(digest(task));
    all.retain(|task| !record(task).exists());
    eprintln!("{} tasks have not passed yet", all.len());
    check_rewards(&all, |task| fs::write(record(task), "").unwrap());
}

/// Digest of the names and bytes of a task's files, as hexadecimal digits: what passed once does not run again.
fn digest(task: &Path) -> String {
    let mut digest = Sha256::new();
    // A changed test tries all of them again.
    digest.update(include_bytes!("containers.rs"));
    for name in files_below(task) {
        let content = fs::read(task.join(&name)).unwrap();
        digest.update(format!("{name}\n{}\n", content.len()));
        digest.update(content);
    }
    format!("{:x}", digest.finalize())
}

/// So many composed tasks.
fn composed(out: &Path, count: usize) -> Vec<PathBuf> {
    let mut command = crate::support::pybench("compose");
    command.args(["--count", &count.to_string(), "--seed", "3", "--harbor"]);
    let output = command.arg(out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let tasks = tasks(out);
    assert_eq!(tasks.len(), count);
    tasks
}

/// Checks that each task gives no reward for nothing and the reward 1 for its solution, two tasks at a time, and tells
/// `passed` of each that does.
fn check_rewards(tasks: &[PathBuf], passed: impl Fn(&Path) + Sync) {
    let Some(system) = HostSystem::find() else {
        return;
    };
    let check = |tasks: &[PathBuf]| -> Vec<String> {
        let failures = tasks.iter().filter_map(|task| {
            let rewards = rewards(&system, task);
            let expected = Ok(["0".to_owned(), "1".to_owned()]);
            if rewards == expected {
                passed(task);
                return None;
            }
            Some(format!("{}: {rewards:?}", task.display()))
        });
        failures.collect()
    };
    let (first, second) = tasks.split_at(tasks.len() / 2);
    let failures = std::thread::scope(|scope| {
        let first = scope.spawn(|| check(first));
        [check(second), first.join().unwrap()].concat()
    });
    drop(system);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(Podman::find().unwrap().left(), [""; 0]);
    eprintln!("{} tasks: no-op gives 0, the solution gives 1", tasks.len());
}

/// The rewards of doing nothing and of the solution, each in a new container.
fn rewards(system: &HostSystem, task: &Path) -> Result<[String; 2], String> {
    let environment = task.join("environment");
    let dockerfile = fs::read_to_string(environment.join("Dockerfile")).unwrap();
    let image = system.build(&on_host_system(&dockerfile, system.base()), &environment)?;
    let trial = |solve: bool| -> Result<String, String> {
        let container = image.start()?;
        let logs = "mkdir -p /logs/agent /logs/verifier && chmod 777 /logs/agent /logs/verifier";
        container.exec("root", logs)?;
        if solve {
            run_script(
                &container,
                task,
                "solution/solve.sh",
                "/logs/agent/oracle.txt",
            )?;
        }
        run_script(
            &container,
            task,
            "tests/test.sh",
            "/logs/verifier/test-stdout.txt",
        )?;
        let reward = container.exec("root", "cat /logs/verifier/reward.txt")?;
        Ok(reward.trim().to_owned())
    };
    Ok([trial(false)?, trial(true)?])
}

/// Copies the folder of a script into the container and runs the script as the user that the task names.
fn run_script(
    container: &Container<'_>,
    task: &Path,
    script: &str,
    log: &str,
) -> Result<(), String> {
    let (folder, _) = script.split_once('/').unwrap();
    let section = if folder == "tests" {
        "verifier"
    } else {
        "agent"
    };
    let settings = settings(task);
    let user = settings[section]["user"].as_str().unwrap();
    container.upload(&task.join(folder), &format!("/{folder}"))?;
    container.exec(
        user,
        &format!("/{script} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"),
    )?;
    Ok(())
}

/// The Dockerfile with another base image, which has what its `apt-get` and `pip` would install.
fn on_host_system(dockerfile: &str, base: &str) -> String {
    let dockerfile = dockerfile.replace("\\\n", " ");
    let installs = |line: &str| {
        ["FROM python:", "RUN apt-get ", "RUN pip install "]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let (replaced, kept): (Vec<_>, Vec<_>) = dockerfile.lines().partition(|line| installs(line));
    assert_eq!(
        replaced.len(),
        3,
        "the Dockerfile changed; replace what it installs here: {replaced:#?}"
    );
    format!("FROM {base}\n{}\n", kept.join("\n"))
}
