//! `pybench loop` as a whole: a student behind HTTP that fails, corrections, training by a stand-in for the trainer, a
//! second round with what was trained, and kills in between.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::support::endpoint::{Answer, Endpoint, completion};
use crate::support::fixture::{
    ExpertServer, FREE, RunFixture, code, find_task, interpreter_is_here, openai,
};
use crate::support::kill::kill_after;
use pybench_agent::{Format, PybenchFormat};
use pybench_datasets::{Row, read, row_hashes};
use pybench_run::{ExitCode, Journal};
use pybench_testing::load_dataset::load_dataset;
use pybench_testing::postgres;
use pybench_testing::program::write_program;
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Role};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

/// Replaces `pybench-train`: `serve` says where the endpoint of the test is, `run RECIPE --out FOLDER` keeps the recipe
/// as its model.
const TRAINER: &str = "#!/bin/sh
case \"$*\" in
    serve*--check*) exit 0;;
    serve*) echo URL; exec sleep 600;;
    check*) exit 0;;
esac
sleep 0.1
out=$4
if grep -q '^stages' \"$2\"; then
    mkdir -p \"$4/sft/model\"
    out=$4/dpo
fi
mkdir -p \"$out/model\"
cp \"$2\" \"$out/model/config.json\"
echo '{}' >\"$out/results.json\"
echo '{\"step\": 1, \"tokens\": 150, \"trained\": 100.0}' >\"$out/metrics.jsonl\"
";

const ROUND: &str = "data/runs/t-round";

fn recipe(student: &str, looped: &str) -> String {
    format!(
        "name = 't'\nseed = 7\nteacher = {student}\n\n[[crawl.sources]]\nsource = 'local'\npath = 'files'\n\
         license = 'CC0-1.0'\n\n[query]\ntasks = 12\ntemplate_share = 0.5\n\
         keywords = ['rotate image', 'derivative', 'integral']\n\n[[escalation]]\nkind = 'correction'\n\n\
         [rollout]\nreuse = false\n\n[shard]\nheld_out_templates = 0\n\n[loop]\n{looped}\n"
    )
}

/// Knows half of the tasks. At the others it divides by zero and gives up; once trained, it knows all of them.
async fn student(tasks: Arc<OnceLock<Vec<Task>>>) -> Endpoint {
    let expert = Arc::new(ExpertServer::new());
    Endpoint::start(move |request| {
        let answer = answer(tasks.get().unwrap(), &expert, &request);
        std::future::ready(answer)
    })
    .await
}

fn answer(tasks: &[Task], expert: &ExpertServer, request: &Value) -> Answer {
    let messages: Vec<Message> = serde_json::from_value(request["messages"].clone()).unwrap();
    let task = find_task(tasks, &messages);
    let at = tasks.iter().position(|other| other.id == task.id).unwrap();
    // Neighbors are of different keywords.
    if (at / 2) % 2 == 0 || request["model"] != "m" {
        return expert.answer(tasks, request);
    }
    let replied = messages.iter().any(|m| m.role == Role::Assistant);
    Answer::Content(match replied {
        false => PybenchFormat.write_step("I try.", "1 / 0"),
        true => "Finished:\nI do not know.".to_owned(),
    })
}

/// A project with the program and the stand-in beside it.
struct Project(RunFixture);

impl Project {
    fn new(server: &Endpoint, looped: &str) -> Self {
        let fixture = RunFixture::bare(&recipe(&openai(&server.base_url(), FREE), looped));
        crate::support::put_program(&fixture.path("pybench"));
        let script = TRAINER.replace("URL", &server.base_url());
        write_program(&fixture.path("pybench-train"), &script);
        let train =
            "name = 'x'\nmodel = 'base'\n[train]\nmax_seq_len = 2048\n[agent_eval]\nrecipe = 'e'\n";
        std::fs::write(fixture.path("train.toml"), train).unwrap();
        Self(fixture)
    }

    fn program(&self, command: &str, args: &[&str]) -> Command {
        let mut program = Command::new(self.0.path("pybench"));
        program.arg(command).args(args);
        program.args(["--runs-dir", "data/runs"]);
        let root = self.0.path("t.toml");
        program.current_dir(root.parent().unwrap());
        program.env_remove("PYBENCH_ROOT");
        program
    }

    fn output(&self, command: &str, args: &[&str]) -> Output {
        self.program(command, args).output().unwrap()
    }

    fn start(&self) -> Child {
        let mut looped = self.program("loop", &["t.toml"]);
        looped.process_group(0).spawn().unwrap()
    }

    /// Writes the tasks, so that the endpoint knows them.
    fn write_tasks(&self, known: &OnceLock<Vec<Task>>) {
        for stage in ["crawl", "query"] {
            let written = self.output(stage, &["t.toml"]);
            assert!(written.status.success(), "{written:?}");
        }
        known.set(self.0.lines("tasks.jsonl")).unwrap();
    }

    fn rows(&self, round: u32) -> Vec<Row> {
        let dataset = self.0.path(&format!("{ROUND}-{round}/dataset"));
        let rows = read::dataset(&dataset).unwrap();
        rows.map(|row| row.unwrap().1).collect()
    }

    fn report(&self) -> Value {
        let text = std::fs::read(self.0.path("data/runs/t/report.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// What must not depend on kills: datasets, tasks, reports, and what was trained.
    fn results(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for folder in ["t-round-1/dataset", "t-round-2/dataset"] {
            collect(&self.0.path("data/runs").join(folder), &mut files);
        }
        for file in [
            "t-round-1/preferences.jsonl",
            "t-round-1/preferences.parquet",
            "t/report.json",
            "t/held_out.jsonl",
            "t-round-1/trajectories.jsonl",
            "t-round-2/trajectories.jsonl",
        ] {
            let path = self.0.path("data/runs").join(file);
            files.insert(file.into(), std::fs::read(path).unwrap());
        }
        let root = self.0.path("data/runs");
        let relative = |path: PathBuf| path.strip_prefix(&root).map(Path::to_owned).unwrap_or(path);
        files
            .into_iter()
            .map(|(path, bytes)| (relative(path), bytes))
            .collect()
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, files),
            false => drop(files.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
}

const LOOP: &str = "rounds = 2\ntrain = 'train.toml'\nheld_out = 0.3";

#[tokio::test(flavor = "multi_thread")]
async fn a_student_is_corrected_trained_and_measured() {
    if !interpreter_is_here() {
        return;
    }
    let tasks = Arc::new(OnceLock::new());
    let server = student(tasks.clone()).await;
    let project = Project::new(&server, LOOP);
    project.write_tasks(&tasks);

    let dry = project.output("loop", &["t.toml", "--dry-run"]);
    let text = String::from_utf8(dry.stdout).unwrap();
    assert_eq!(dry.status.code(), Some(0), "{text}");
    for line in [
        "2 rounds",
        "round 2: ",
        "attempts left",
        "training           train.toml",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
    assert_eq!(server.call_count(), 0);

    let output = project.output("loop", &["t.toml"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{stderr}");
    let report = project.report();
    let first = &report["rounds"][0];
    assert_eq!(first["played"]["student"], "openai:m");
    let count = |value: &Value| value.as_u64().unwrap();
    let played = &first["played"];
    assert!(
        count(&played["solved"]) > 0 && count(&played["corrected"]) > 0,
        "{report:#}"
    );
    assert_eq!(played["taught"], 0);
    let (before, after) = (&report["before"], &first["measured"]);
    assert!(
        before["passed"].as_u64() < after["passed"].as_u64(),
        "{report:#}"
    );
    assert_eq!(
        after["passed"], after["tasks"],
        "what was trained knows everything"
    );
    assert_eq!(first["trained_tokens"], 100);
    for measured in [before, after] {
        assert!(count(&measured["misnamed"]) <= count(&measured["tasks"]));
    }
    check_sets(&project, before);
    check_sets(&project, after);
    check_rows(&project.rows(1), played);
    check_preferences(&project, played);

    // The second round plays other tasks, with the student that the first one trained.
    let model = "data/runs/t-round-1-train/model";
    let second = &report["rounds"][1]["played"];
    assert_eq!(second["student"], format!("checkpoint:{model}"));
    assert_eq!(
        (count(&second["corrected"]), &second["solved"]),
        (0, &second["tasks"])
    );
    let of_round = |round| project.rows(round).into_iter().map(|row| row.task_id);
    assert!(of_round(2).all(|task| of_round(1).all(|other| other != task)));
    let trained = std::fs::read_to_string(
        project
            .0
            .path("data/runs/t-round-2-train/model/config.json"),
    );
    let trained: toml::Table = trained.unwrap().parse().unwrap();
    assert!(trained["model"].as_str().unwrap().ends_with(model));
    assert_eq!(
        trained["data"].as_array().unwrap().len(),
        2,
        "the rows of both rounds"
    );
    assert!(!trained.contains_key("agent_eval"));

    for (command, args, words) in [
        ("status", vec!["t-round-1"], "accepted"),
        ("status", vec!["t"], "loop t of 2 rounds"),
        (
            "show",
            vec!["t-round-1", "5"],
            "assistant (context, not trained)",
        ),
        ("status", vec!["t-round-1-eval"], "student"),
    ] {
        let output = project.output(command, &args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains(words),
            "{command} {args:?}: {text} {output:?}"
        );
    }
    // What corrections show happens again: the student's cells, then the expert's.
    let mut verify = Command::new(project.0.path("pybench"));
    verify.args([
        "verify",
        "data/runs/t-round-1/dataset",
        "--no-stamp",
        "--offline",
    ]);
    verify
        .current_dir(project.0.path(""))
        .env_remove("PYBENCH_ROOT");
    let output = verify.output().unwrap();
    assert_eq!(code(&output), Some(0), "{output:?}");
    let calls = server.call_count();
    assert_eq!(code(&project.output("loop", &["t.toml"])), Some(0));
    let dry = project.output("loop", &["t.toml", "--dry-run"]);
    let text = String::from_utf8(dry.stdout).unwrap();
    for line in [
        "2 rounds (2 done)",
        "3 evaluations (3 done)",
        "round 1: 4 tasks, done",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
    assert_eq!(server.call_count(), calls, "nothing is left to do");
}

/// The pairs in Parquet are those of the JSON lines.
fn check_parquet(project: &Project, pairs: &[Value]) {
    let path = project.0.path(&format!("{ROUND}-1/preferences.parquet"));
    let Some(loaded) = load_dataset("parquet", &path) else {
        return;
    };
    let columns = ["prompt", "chosen", "rejected", "tools", "task_id"];
    assert_eq!(loaded["columns"], json!(columns));
    let mut expected = pairs.to_vec();
    for pair in &mut expected {
        pair["tools"] = Value::Null;
    }
    assert_eq!(loaded["rows"], Value::Array(expected));
}

/// Each held-out task counts in the set that its line of `held_out.jsonl` names.
fn check_sets(project: &Project, measured: &Value) {
    let mut expected = BTreeMap::<String, u64>::new();
    for held_out in project.0.lines::<Value>("held_out.jsonl") {
        let unseen = held_out["unseen"].as_str().unwrap().to_owned();
        *expected.entry(unseen).or_default() += 1;
    }
    let sets = measured["unseen"].as_object().unwrap().iter();
    let tasks = sets.map(|(name, set)| (name.clone(), set["tasks"].as_u64().unwrap()));
    assert_eq!(tasks.collect::<BTreeMap<_, _>>(), expected);
}

/// A pair begins before the turn that failed: nothing of it is in the prompt, nor in the reply that is better.
fn check_preferences(project: &Project, played: &Value) {
    let path = project.0.path(&format!("{ROUND}-1/preferences.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    let pairs: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(pairs.len() as u64, played["corrected"].as_u64().unwrap());
    assert_eq!(pairs.len() as u64, played["preferences"].as_u64().unwrap());
    check_parquet(project, &pairs);
    for pair in &pairs {
        let content = |side: &str| pair[side][0]["content"].as_str().unwrap().to_owned();
        assert!(content("rejected").contains("1 / 0"), "{pair:#}");
        assert!(!pair.to_string().contains("ZeroDivisionError"), "{pair:#}");
        assert!(
            pair["prompt"]
                .as_array()
                .unwrap()
                .iter()
                .all(|m| m["weight"].is_null())
        );
    }
}

/// Corrections keep the student's failing turn as context, and the hashes of their rows hold.
fn check_rows(rows: &[Row], played: &Value) {
    let corrected: Vec<&Row> = rows.iter().filter(|row| row.student.is_some()).collect();
    assert_eq!(
        corrected.len() as u64,
        played["corrected"].as_u64().unwrap()
    );
    for row in rows {
        assert_eq!(row_hashes::problems(row), Vec::<String>::new());
        let replies = row.messages.iter().filter(|m| m.role == Role::Assistant);
        let trained: Vec<bool> = replies.clone().map(|m| m.trained).collect();
        if row.student.is_none() {
            assert!(trained.iter().all(|trained| *trained));
            continue;
        }
        assert_eq!(row.student.as_deref(), Some("openai:m"));
        assert!(
            !trained[0] && trained[1..].iter().all(|trained| *trained),
            "{trained:?}"
        );
        let replies: Vec<&str> = replies.map(|m| m.content.as_str()).collect();
        assert!(replies[0].contains("1 / 0"));
        assert!(replies[1].contains("ZeroDivisionError"), "{}", replies[1]);
        assert!(replies.last().unwrap().starts_with("Finished:"));
    }
}

/// A loop whose journals are in PostgreSQL has these results.
fn check_in_postgresql(server: &Endpoint, expected: &BTreeMap<PathBuf, Vec<u8>>) {
    let Some(profile) = postgres::profile() else {
        return;
    };
    let remote = Project::new(server, LOOP);
    let profile = profile.to_str().unwrap();
    let output = remote.output("loop", &["t.toml", "--profile", profile]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert!(remote.results() == *expected, "other results");
    for run in ["t", "t-round-1", "t-round-1-eval", "t-round-2"] {
        let folder = remote.0.path("data/runs").join(run);
        assert!(folder.join("journal.toml").is_file(), "{run}");
        assert!(!folder.join("journal.sqlite").exists(), "{run}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_kills_nor_postgresql_change_a_loop() {
    if !interpreter_is_here() {
        return;
    }
    let tasks = Arc::new(OnceLock::new());
    let server = student(tasks.clone()).await;
    let undisturbed = Project::new(&server, LOOP);
    undisturbed.write_tasks(&tasks);
    let begun = Instant::now();
    assert!(undisturbed.start().wait().unwrap().success());
    let whole = begun.elapsed();
    let expected = undisturbed.results();
    check_in_postgresql(&server, &expected);

    let seed = rand::random::<u64>();
    eprintln!("seed of the moments: {seed}; an undisturbed loop took {whole:?}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let killed = Project::new(&server, LOOP);
    let mut kills = 0;
    for _ in 0..2 {
        let moment = whole.mul_f64(rng.random_range(0.05..0.6));
        match kill_after(killed.start(), moment) {
            Some(status) => {
                assert!(status.success(), "{status} after {kills} kills");
                break;
            }
            None => kills += 1,
        }
    }
    assert!(killed.start().wait().unwrap().success());
    assert!(kills > 0, "it was over before the first kill");
    for (path, bytes) in killed.results() {
        let same = expected.get(&path) == Some(&bytes);
        assert!(same, "{path:?} differs after {kills} kills");
    }
    assert_eq!(killed.results().len(), expected.len());
}

/// A trainer that notes its process id and takes an hour.
const SLOW_TRAINER: &str = "#!/bin/sh
case \"$*\" in
    serve*--check* | check*) exit 0;;
esac
mkdir -p \"$4\"
sleep 3600 &
trap 'kill $!; echo >\"$4/stopped\"; exit 130' TERM
echo $$ >\"$4/pid.new\"
mv \"$4/pid.new\" \"$4/pid\"
wait
";

/// Waits for something that another process does; the limit only ends a test that hangs.
fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(900), "not {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trainer_ends_with_its_loop() {
    if !interpreter_is_here() {
        return;
    }
    let tasks = Arc::new(OnceLock::new());
    let server = student(tasks.clone()).await;
    let project = Project::new(&server, LOOP);
    project.write_tasks(&tasks);
    write_program(&project.0.path("pybench-train"), SLOW_TRAINER);
    let out = project.0.path(&format!("{ROUND}-1-train"));
    let (pid, stopped) = (out.join("pid"), out.join("stopped"));
    for signal in [Signal::KILL, Signal::TERM] {
        let _ = std::fs::remove_file(&pid);
        let _ = std::fs::remove_file(&stopped);
        let mut looped = project.start();
        wait_for("training", || pid.is_file());
        // The loop alone, not its process group.
        kill_process(Pid::from_child(&looped), signal).unwrap();
        let status = looped.wait().unwrap();
        let interrupted = Some(ExitCode::Interrupted as i32);
        assert_eq!(
            status.code(),
            interrupted.filter(|_| signal == Signal::TERM)
        );
        wait_for("stopped", || stopped.is_file());
        let pid = std::fs::read_to_string(&pid).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        wait_for("ended", || test_kill_process(pid).is_err());
    }
}

/// Tokens in the journals of the loop's runs.
fn tokens_of_runs(project: &Project) -> Vec<u64> {
    let folders = std::fs::read_dir(project.0.path("data/runs")).unwrap();
    let journals = folders.map(|entry| Journal::of_run(&entry.unwrap().path()).unwrap());
    let spent = journals.flatten().map(|journal| journal.spent().unwrap());
    spent.map(|spent| spent.tokens).collect()
}

/// The reply of [`student`], for which the endpoint counts 2,000 tokens.
fn expensive_answer(tasks: &[Task], expert: &ExpertServer, request: &Value) -> Answer {
    let Answer::Content(content) = answer(tasks, expert, request) else {
        panic!("no content");
    };
    let mut body = completion(&content);
    body["usage"] = json!({"prompt_tokens": 1900, "completion_tokens": 100, "total_tokens": 2000});
    Answer::Bytes(body.to_string().into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_holds_for_all_rounds() {
    if !interpreter_is_here() {
        return;
    }
    let tasks = Arc::new(OnceLock::<Vec<Task>>::new());
    let (known, expert) = (tasks.clone(), ExpertServer::new());
    let server = Endpoint::start(move |request| {
        let answer = expensive_answer(known.get().unwrap(), &expert, &request);
        std::future::ready(answer)
    })
    .await;
    let whole = Project::new(&server, LOOP);
    whole.write_tasks(&tasks);
    let looped = |project: &Project, limit: u64| {
        let budget = format!("budget.tokens={limit}");
        let output = project.output("loop", &["t.toml", "--set", &budget]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (code(&output), error)
    };
    let enough = 20_000_000;
    let (end, error) = looped(&whole, enough);
    assert_eq!(end, Some(0), "{error}");
    let spent = tokens_of_runs(&whole);
    // Enough for each of the runs, with what its last calls reserve, but not for all of them.
    let limit = spent.iter().max().unwrap() + 20_000;
    assert!(limit + 20_000 < spent.iter().sum(), "{spent:?}");

    let project = Project::new(&server, LOOP);
    let (end, error) = looped(&project, limit);
    assert_eq!(end, Some(ExitCode::Budget as i32), "{error}");
    assert!(
        error.contains("`[budget]` holds for all runs of a loop together"),
        "{error}"
    );
    let spent = tokens_of_runs(&project);
    assert!(spent.iter().sum::<u64>() <= limit, "{spent:?}");
    assert!(spent.iter().filter(|spent| **spent > 0).count() > 1);
    let dry = project.output("loop", &["t.toml", "--dry-run"]);
    let text = String::from_utf8(dry.stdout).unwrap();
    assert!(text.contains("3 evaluations (1 done)"), "{text}");
    let left: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("attempts left"))
        .collect();
    assert!(
        left[0] != left[1],
        "the round that began is not counted: {text}"
    );
    // Nothing more is spent until the budget is raised.
    assert_eq!(looped(&project, limit).0, Some(ExitCode::Budget as i32));
    assert_eq!(tokens_of_runs(&project), spent);
    assert_eq!(looped(&project, enough).0, Some(0));
    assert_eq!(project.report(), whole.report());
}

/// The pairs are a second stage of the recipe of each round. A round without pairs trains on those of the rounds before.
#[tokio::test(flavor = "multi_thread")]
async fn pairs_are_trained_after_the_rows() {
    if !interpreter_is_here() {
        return;
    }
    let tasks = Arc::new(OnceLock::new());
    let server = student(tasks.clone()).await;
    let preference = format!("{LOOP}\n[loop.preference]\nlearning_rate = 5e-7");
    let project = Project::new(&server, &preference);
    project.write_tasks(&tasks);
    let dry = project.output("loop", &["t.toml", "--dry-run"]);
    let text = String::from_utf8(dry.stdout).unwrap();
    let line = "then DPO           on the preference pairs of all rounds so far: beta 0.1, learning rate 5e-7, 1 epochs";
    assert!(text.contains(line), "{text}");
    let output = project.output("loop", &["t.toml"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{stderr}");
    for round in [1, 2] {
        let path = format!("{ROUND}-{round}-train/dpo/model/config.json");
        let recipe = std::fs::read_to_string(project.0.path(&path)).unwrap();
        let recipe: toml::Table = recipe.parse().unwrap();
        let stage = &recipe["stage"]["dpo"];
        assert_eq!(stage["dpo"]["beta"].as_float(), Some(0.1));
        assert_eq!(stage["optimizer"]["learning_rate"].as_float(), Some(5e-7));
        assert_eq!(stage["train"]["num_epochs"].as_float(), Some(1.0));
        assert_eq!(stage["train"]["curriculum"].as_str(), Some("random"));
        let pairs = stage["data"].as_array().unwrap();
        // The student of the second round needs no corrections.
        assert_eq!(pairs.len(), 1, "{recipe}");
        let file = pairs[0]["path"].as_str().unwrap();
        assert!(file.ends_with("t-round-1/preferences.jsonl"), "{file}");
        assert_eq!(recipe["data"].as_array().unwrap().len(), round);
    }
    let second = &project.report()["rounds"][1]["played"];
    assert_eq!(
        second["student"],
        "checkpoint:data/runs/t-round-1-train/dpo/model"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_loop_says_why() {
    let tasks = Arc::new(OnceLock::new());
    let server = student(tasks.clone()).await;
    let refused = |project: &Project, recipe: &str, exit: ExitCode, words: &str| {
        std::fs::write(project.0.path("t.toml"), recipe).unwrap();
        let output = project.output("loop", &["t.toml"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), Some(exit as i32), "{error}");
        assert!(error.contains(words), "{words} is missing in {error}");
    };
    let student = openai(&server.base_url(), FREE);
    let bad = ExitCode::BadInput;
    let project = Project::new(&server, LOOP);
    let whole = recipe(&student, LOOP);
    let without = whole.split("[loop]").next().unwrap();
    refused(&project, without, bad, "has no section [loop]");
    let expert = recipe("{ kind = 'expert' }", LOOP);
    refused(&project, &expert, bad, "the student of `[loop]` has");
    let misplaced = recipe("{ kind = 'correction' }", LOOP);
    refused(&project, &misplaced, bad, "can only be the first entry");
    let untrained = recipe(&student, "rounds = 2\n[loop.preference]\nbeta = 0.2");
    refused(
        &project,
        &untrained,
        bad,
        "pairs are trained after `loop.train`",
    );
    if !interpreter_is_here() {
        return;
    }
    let project = Project::new(&server, LOOP);
    project.write_tasks(&tasks);
    let missing = recipe(&student, &LOOP.replace("train.toml", "missing.toml"));
    let other = Project::new(&server, LOOP);
    refused(
        &other,
        &missing,
        bad,
        "there is no training recipe missing.toml",
    );
    let unusable = Project::new(&server, LOOP);
    let refuses = "#!/bin/sh\ncase \"$1\" in check) exit 3;; esac\nexit 1\n";
    write_program(&unusable.0.path("pybench-train"), refuses);
    let words = "the trainer cannot use train.toml in a round (exit status: 3)";
    refused(&unusable, &whole, bad, words);
    let crawled = unusable.0.path("data/runs/t/files.jsonl");
    assert!(!crawled.exists(), "nothing is done before the check");
    let fails = Project::new(&server, LOOP);
    write_program(
        &fails.0.path("pybench-train"),
        "#!/bin/sh\ncase \"$*\" in serve* | check*) exit 0;; esac\nexit 3\n",
    );
    refused(
        &fails,
        &whole,
        bad,
        "training of round 1 ended with exit status: 3",
    );
    let begun = Instant::now();
    refused(&fails, &whole, bad, "training of round 1");
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "only the training is repeated"
    );
}
