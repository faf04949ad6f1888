//! The package of verifiers: as the real verifiers plays it, with both services running.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pybench_testing::endpoint::Endpoint;
use pybench_testing::program::write_program;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::library::export::expert_model;
use crate::library::export::fixture::{Server, exported, files_below, key, library, python, tasks};

/// Of the exported templates, those with the most for the package to hand over: a model file, the record of a chart, that of
/// a word cloud.
const PLAYED: [&str; 3] = ["model-price", "plot-bar-mean", "word-cloud"];

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

/// The two services that a package needs.
struct Services {
    cells: Server,
    rewards: Server,
}

impl Services {
    /// Starts both, the second with more flags.
    fn start(serve_rewards: &[&OsStr]) -> Self {
        let mut serve = crate::support::pybench("interpreter");
        serve.args(["serve", "--address", "127.0.0.1:0", "--no-token"]);
        let cells = Server::start(&mut serve);
        let mut serve = library(&["serve-rewards", "--address", "127.0.0.1:0"]);
        let rewards = Server::start(serve.args(serve_rewards));
        Self { cells, rewards }
    }
}

/// Lets a program import an exported package. Bytecode goes to a folder of its own: tests share the folder of the export,
/// and compiling verifiers takes seconds.
fn import_package<'a>(command: &'a mut Command, package: &Path) -> &'a mut Command {
    let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verifiers-bytecode");
    command
        .env("PYTHONPATH", package)
        .env("PYTHONPYCACHEPREFIX", compiled)
        .env_remove("PYTHONDONTWRITEBYTECODE")
}

/// `vf-eval` in a folder of its own.
struct VfEval<'a> {
    program: PathBuf,
    package: &'a Path,
    services: Services,
    model: Endpoint,
    folder: TempDir,
}

impl<'a> VfEval<'a> {
    fn new(python: &Path, package: &'a Path, model: Endpoint) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The chat program names its packages for uv to install; verifiers' Python has them.
        let uv = format!(
            "#!/bin/sh\ncase \"$*\" in\n*--help*) echo --script ;;\n'python find '*) echo '{}' ;;\nesac\n",
            python.display()
        );
        write_program(&folder.path().join("uv"), &uv);
        Self {
            program: python.with_file_name("vf-eval"),
            package,
            services: Services::start(&[]),
            model,
            folder,
        }
    }

    /// The rewards that a model gets for these tasks, by task.
    async fn rewards(&self, model: &str, tasks: &[String]) -> BTreeMap<String, f64> {
        let folder = self.folder.path();
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .env("HOME", folder)
            .env("LANG", "C.UTF-8")
            .current_dir(folder)
            .stdin(Stdio::null())
            .args(["pybench-library", "--no-push", "--no-rich"])
            .args(["--env.agent.runtime.type", "subprocess"])
            .args(["--env.agent.max-turns", "10"])
            .args(["--env.taskset.task.interpreter", &self.services.cells.url])
            .args(["--env.taskset.task.scorer", &self.services.rewards.url])
            .args(["--client.base-url", &self.model.base_url()])
            .args(["-m", model, "--run.name", model, "-o", "."])
            .arg("--select.include.names")
            .args(tasks);
        import_package(&mut command, self.package);
        let output = tokio::process::Command::from(command).output().await;
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let episodes = fs::read_to_string(folder.join(model).join("traces.jsonl")).unwrap();
        let reward = |episode: &str| {
            let episode: Value = serde_json::from_str(episode).unwrap();
            let trace = &episode["traces"][0];
            assert_eq!(trace["errors"], json!([]), "{said}");
            let name = trace["task"]["data"]["name"].as_str().unwrap();
            let score = trace["rewards"]["checks"]["score"].as_f64();
            (name.to_owned(), score.unwrap())
        };
        episodes.lines().map(reward).collect()
    }
}

/// A model that sends the expert's cells and answer over HTTP solves every task; one that calls no tool solves none.
#[tokio::test(flavor = "multi_thread")]
async fn vf_eval_rewards_a_scripted_model() {
    let (Some(harbor), Some(package)) = (exported("harbor"), exported("verifiers")) else {
        return;
    };
    let Some(python) = verifiers() else {
        return;
    };
    let model = expert_model::start(harbor, package).await;
    let eval = VfEval::new(&python, package, model);
    let names = tasks(harbor).into_iter();
    let names = names.map(|task| task.file_name().unwrap().to_str().unwrap().to_owned());
    let played = |name: &String| PLAYED.iter().any(|template| name.starts_with(template));
    let names: Vec<String> = names.filter(played).collect();
    let found = eval.rewards(expert_model::EXPERT, &names).await;
    assert_eq!(found.len(), PLAYED.len(), "{found:?}");
    assert!(found.values().all(|reward| *reward == 1.0), "{found:?}");
    // One task is enough: each rollout starts processes that import verifiers, which takes seconds.
    let found = eval.rewards("idle", &names[..1]).await;
    assert_eq!(found, BTreeMap::from([(names[0].clone(), 0.0)]));
}

/// The rewards that verifiers' own scoring gives the expert and an agent that does nothing, by task, without a model: a
/// script calls the tool. The solutions are those of the same tasks as folders of Harbor. `None`, and the test is skipped,
/// without verifiers or sessions.
fn scored_by_script(
    harbor: &Path,
    package: &Path,
    serve_rewards: &[&OsStr],
) -> Option<BTreeMap<String, [f64; 2]>> {
    let (Some(python), Some(_)) = (verifiers(), python()) else {
        return None;
    };
    let services = Services::start(serve_rewards);
    let driver =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/library/export/drive_verifiers.py");
    let mut command = Command::new(python);
    command
        .arg(driver)
        .arg(harbor)
        .args([&services.cells.url, &services.rewards.url])
        .env_remove("PYBENCH_TOKEN");
    let output = import_package(&mut command, package).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    println!("{said}");
    let last = String::from_utf8(output.stdout).unwrap();
    Some(serde_json::from_str(last.lines().last().unwrap()).unwrap())
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
    let Some(found) = scored_by_script(&harbor, &package, &flags) else {
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
