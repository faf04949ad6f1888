//! The score `upstream` agrees with running upstream's tests by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pybench_eval::agent::Script;
use pybench_eval::record::{Evaluation, Outcome};
use pybench_eval::run::{AgentChoice, RESULTS, run};
use pybench_eval::suites::Place;
use pybench_eval::suites::pybench::PyBench;
use pybench_eval::suites::pybench::spec::TaskStatus;
use pybench_interpreter::{Interpreter, default_cache_dir, environment_python};
use pybench_testing::skip;
use serde_json::{Map, Value};

use crate::fixture::{SuiteFixture, foreign, of, others, recipe, script, setup, tools};

/// Runs tests like upstream: in the folder of the outputs, each in a process of its own.
const PROGRAM: &str = "
import json, os, sys
sys.path.append('absent')
import tests
verdicts = {}
for index, messages in json.load(open('messages.json')).items():
    child = os.fork()
    if child == 0:
        try:
            getattr(tests, 'test_task_' + index)(messages)
            os._exit(0)
        except BaseException:
            os._exit(1)
    verdicts[index] = {0: True, 1: False}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
json.dump(verdicts, open('verdicts.json', 'w'))
";

/// The verdicts of upstream's tests on the artifacts of an agent, by task.
fn by_hand(tests: &Path, data: &Path, outputs: &Path, tasks: &[String]) -> BTreeMap<String, bool> {
    let folder = tempfile::tempdir().unwrap();
    let link = |from: &Path, name: &str| {
        std::os::unix::fs::symlink(fs::canonicalize(from).unwrap(), folder.path().join(name))
            .unwrap();
    };
    link(data, "data");
    link(tests, "tests.py");
    fs::create_dir_all(outputs.join("output")).unwrap();
    link(&outputs.join("output"), "output");
    fs::create_dir(folder.path().join("absent")).unwrap();
    fs::create_dir(folder.path().join("absent/mutagen")).unwrap();
    fs::write(folder.path().join("absent/mutagen/__init__.py"), "").unwrap();
    let stub = "class MP3:\n    def __init__(self, *_):\n        raise ImportError('absent')\n";
    fs::write(folder.path().join("absent/mutagen/mp3.py"), stub).unwrap();
    let mut messages = Map::new();
    for line in fs::read_to_string(outputs.join("trajectory.jsonl"))
        .unwrap()
        .lines()
    {
        let line: Value = serde_json::from_str(line).unwrap();
        let task = line["index"].as_str().unwrap().to_owned();
        if tasks.contains(&task) {
            messages.insert(task, line["messages"].clone());
        }
    }
    let messages = Value::Object(messages).to_string();
    fs::write(folder.path().join("messages.json"), messages).unwrap();
    let mut command = Command::new(environment_python().unwrap());
    command
        .args(["-W", "ignore", "-c", PROGRAM])
        .current_dir(folder.path())
        .env("MPLBACKEND", "agg");
    let said = command.output().unwrap();
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{errors}");
    let verdicts = fs::read(folder.path().join("verdicts.json")).unwrap();
    serde_json::from_slice(&verdicts).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_score_agrees_with_the_tests_run_by_hand() {
    let Some(interpreter) = tools() else { return };
    let fixture = SuiteFixture::new();
    others(&fixture.path("theirs"));
    let recipe = recipe("t", &[("theirs", foreign(&fixture.path("theirs")))]);
    let setup = setup(&fixture, "run", fixture.bench(), recipe, &interpreter);
    let evaluation = run(&setup).await.unwrap();
    let bench = fixture.path("bench/data");
    let tests = bench.join("unit_test/tests.py");
    let indexes: Vec<String> = (1..=22).map(|index| index.to_string()).collect();
    let by_hand = by_hand(&tests, &bench, &fixture.path("theirs"), &indexes);
    let (mut compared, mut passed) = (0, 0);
    for index in &indexes {
        let attempt = of(&evaluation, "theirs", index);
        assert_eq!(attempt.outcome, Outcome::Ran, "{index}");
        let theirs = by_hand[index];
        // Upstream's folder is never empty; a task alone sees only its own outputs.
        if index != "21" {
            assert_eq!(
                attempt.scores.upstream,
                Some(theirs),
                "{index}: {:?}",
                attempt.checks
            );
        }
        compared += 1;
        passed += usize::from(theirs);
    }
    assert!(
        compared >= 20 && passed >= 10 && passed < compared,
        "{passed} of {compared}"
    );
    assert_eq!(
        of(&evaluation, "theirs", "23").scores.upstream,
        None,
        "no test of that number"
    );
    assert_eq!(
        of(&evaluation, "theirs", "7").scores.fixed,
        Some(false),
        "alone it has no output of another"
    );
    let absent = of(&evaluation, "theirs", "24");
    assert!(
        matches!(&absent.outcome, Outcome::NotRun { reason } if reason.contains("data/absent.csv"))
    );
    let read = Evaluation::read(&fixture.path("run").join(RESULTS)).unwrap();
    assert_eq!(read, evaluation);
}

/// PyBench with upstream's tests: what a variable names, or what `eval fetch` downloaded. A variable that names something else
/// is a failure where tests are required.
fn real_bench() -> Option<PyBench> {
    let place = Place {
        cache: &default_cache_dir(),
        project: Some(Path::new(pybench_testing::ROOT)),
        pybench: None,
        pybench_tasks: None,
    };
    let problem = match PyBench::find(&place) {
        Ok(bench) if bench.upstream.tests().is_some() => return Some(bench),
        Ok(_) => "PYBENCH_UPSTREAM names no checkout with upstream's tests".to_owned(),
        Err(error) => error.to_string(),
    };
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match ["PYBENCH_DATA", "PYBENCH_UPSTREAM"].into_iter().any(is_set) {
        true => skip::missing_tool(problem),
        false => skip::unavailable(problem),
    }
    None
}

/// The benchmark without its strict checks, which are not compared here.
fn without_checks(bench: &PyBench) -> PyBench {
    let mut specs = (*bench.specs).clone();
    for spec in specs.values_mut() {
        spec.checks.clear();
        if spec.status == TaskStatus::Headline {
            spec.status = TaskStatus::Judge("only upstream's tests are compared".to_owned());
        }
    }
    PyBench {
        specs: Arc::new(specs),
        ..bench.clone()
    }
}

/// The benchmark with an incorrect solution of each task as its solution.
fn mutated(bench: &PyBench) -> PyBench {
    let mut specs = (*bench.specs).clone();
    for spec in specs.values_mut() {
        let mutant = spec.mutants.first().zip(spec.solution.as_ref());
        let changed = mutant.map(|(mutant, solution)| mutant.apply(solution).unwrap());
        spec.solution = changed;
    }
    PyBench {
        specs: Arc::new(specs),
        ..bench.clone()
    }
}

/// Lets scripts solve tasks, grades their artifacts as those of another system, and compares with the tests run by hand. Returns
/// how many attempts were compared, and how many of them passed.
async fn compare(
    name: &str,
    bench: &PyBench,
    tasks: &str,
    scripts: &[Script],
    interpreter: &Arc<dyn Interpreter>,
) -> (usize, usize) {
    let fixture = SuiteFixture::new();
    let recipe_of = |name: &str, agents: Vec<(&str, AgentChoice)>| {
        let mut recipe = recipe(name, &agents);
        recipe.tasks = Some(tasks.to_owned());
        recipe.perturb = false;
        recipe
    };
    let solvers = scripts.iter().map(|one| (one.name(), script(*one)));
    let solved = recipe_of("solved", solvers.collect());
    let made = setup(&fixture, "made", bench.clone(), solved, interpreter);
    run(&made).await.unwrap();
    drop(made);
    let left = |agent: &str| fixture.path("made/upstream").join(agent);
    let others = scripts.iter().map(|one| one.name());
    let others = others.map(|agent| (agent, foreign(&left(agent))));
    let graded = recipe_of("graded", others.collect());
    let graded = setup(&fixture, "graded", bench.clone(), graded, interpreter);
    let evaluation = run(&graded).await.unwrap();
    let tests = &bench.upstream.tests().unwrap().path;
    let data = bench.upstream.task_file().ancestors().nth(2).unwrap();
    let (mut compared, mut passed) = (0, 0);
    for agent in scripts.iter().map(|one| one.name()) {
        let attempts = evaluation.attempts.iter();
        let attempts = attempts.filter(|attempt| attempt.agent == agent && attempt.ran());
        let names: Vec<String> = attempts.clone().map(|a| a.task.clone()).collect();
        let by_hand = by_hand(tests, data, &left(agent), &names);
        for attempt in attempts {
            let theirs = by_hand[&attempt.task];
            assert_eq!(
                attempt.scores.upstream,
                Some(theirs),
                "{name}, {agent}, {}: {:?}",
                attempt.task,
                attempt.checks
            );
            compared += 1;
            passed += usize::from(theirs);
        }
    }
    eprintln!("{name}: {compared} compared, {passed} of them passed");
    (compared, passed)
}

/// The same with the real benchmark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_score_agrees_with_the_real_tests_run_by_hand() {
    const TASKS: &str =
        "5,7,12,14-16,18-22,27-28,67-68,78,80-82,85-86,92-93,100,115,134-136,138,140";
    // Some of each kind of test.
    const SOME: &str = "12,14,22,27,67,78,85,93,100";
    let Some(bench) = real_bench() else { return };
    let Some(interpreter) = tools() else { return };
    let bench = without_checks(&bench);
    let both = [Script::Reference, Script::DoNothing];
    let (compared, _) = compare("all tasks", &bench, TASKS, &both, &interpreter).await;
    assert!(compared >= 40, "{compared}");
    let null = Script::NULL
        .into_iter()
        .filter(|script| *script != Script::DoNothing);
    let null: Vec<_> = null.collect();
    let (compared, _) = compare("null agents", &bench, SOME, &null, &interpreter).await;
    assert!(compared >= 24, "{compared}");
    let wrong = mutated(&bench);
    let (compared, passed) =
        compare("mutants", &wrong, SOME, &[Script::Reference], &interpreter).await;
    assert!(compared >= 6 && passed < compared, "{passed} of {compared}");
}

/// The test above runs again in a process of its own, where variables name what is not PyBench.
#[test]
fn a_variable_that_does_not_name_pybench_is_a_failure_where_tests_are_required() {
    let folder = tempfile::tempdir().unwrap();
    for variable in ["PYBENCH_DATA", "PYBENCH_UPSTREAM"] {
        let test = "upstream::the_upstream_score_agrees_with_the_real_tests_run_by_hand";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        command
            .env_remove("PYBENCH_DATA")
            .env_remove("PYBENCH_SKIPS");
        command.env(variable, folder.path());
        command.env("PYBENCH_REQUIRE_ALL", "tools");
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!output.status.success(), "{variable}: {said}");
        assert!(said.contains("PYBENCH_REQUIRE_ALL=tools is set"), "{said}");
    }
}
