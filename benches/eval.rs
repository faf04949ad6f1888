//! `just bench eval`: as many tasks as PyBench has, with a model that answers at once and trivial cells:
//! `pybench-eval`, from the first session to the last record, against upstream's way, 16 threads with a
//! notebook kernel each; both in one run. Where the benchmark's files are, the reference solutions are timed
//! apart: their cells do real work. `--quick` takes a few tasks, to try the benchmark itself.

#[path = "rivals.rs"]
mod rivals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pybench_checks::Checker;
use pybench_eval::agent::Script;
use pybench_eval::record::Evaluation;
use pybench_eval::run::{AgentChoice, EvalRecipe, Setup, run};
use pybench_eval::suites::pybench::spec;
use pybench_eval::suites::pybench::upstream;
use pybench_eval::suites::pybench::upstream::Upstream;
use pybench_eval::suites::pybench::{PyBench, SUITE};
use pybench_interpreter::Interpreter;
use pybench_interpreter_containers::interpreter;
use pybench_run::Price;
use pybench_run::{ExecutorOptions, Interrupt, Progress, RunFolder};
use pybench_testing::endpoint::{Answer, Endpoint};
use rivals::{Result, Rivals, load};
use serde_json::json;

/// Tasks of PyBench.
const TASKS: usize = 143;
/// Threads of upstream's runner.
const THREADS: usize = 16;
const CELL: &str = "import pandas as pd\nint(pd.Series([1, 2]).sum())";

#[tokio::main]
async fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let tasks = if quick { 8 } else { TASKS };
    let ours = interpreter(&Default::default())?;
    let rivals = Rivals::new(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../benches"
    )))?;
    let cores = std::thread::available_parallelism()?.get();
    println!(
        "eval: {tasks} tasks · {} · {cores} cores · load {}",
        ours.environment(),
        load()?
    );
    trivial(&ours, 2).await?; // the page cache is warm for both
    rivals.seconds(&["sessions", "1", "1"])?;
    let mine = trivial(&ours, tasks).await?;
    let theirs = rivals.seconds(&["sessions", &tasks.to_string(), &THREADS.to_string()])?;
    let theirs = theirs.first().copied().ok_or("the rival said nothing")?;
    println!("\n| | seconds | isolated |\n| --- | --- | --- |");
    println!(
        "| `pybench-eval`: sessions, cells, a unit test of each in a session of its own, records | {mine:.2} | yes |"
    );
    println!(
        "| {THREADS} threads with nbclient: kernels and cells alone, nothing scored | {theirs:.2} | no |"
    );
    println!("\nours is {:.1} times as fast", theirs / mine);
    match upstream::find(None, Path::new(""), Some(&root())) {
        Ok(upstream) => reference(&ours, PyBench::new(upstream)?, quick).await,
        Err(_) => {
            println!("The reference solutions were not timed: the benchmark's files are not here.");
            Ok(())
        }
    }
}

/// The reference solutions of the benchmark's tasks, apart: nothing of the other side does their work.
async fn reference(interpreter: &Arc<dyn Interpreter>, bench: PyBench, quick: bool) -> Result<()> {
    let script = Script::Reference;
    let agents = BTreeMap::from([("reference".to_owned(), AgentChoice::Script { script })]);
    let mut recipe = EvalRecipe::new("reference", agents);
    recipe.tasks = quick.then(|| "11-18".to_owned());
    let (evaluation, seconds) = evaluate(interpreter, recipe, bench).await?;
    let passed = evaluation.attempts.iter();
    let passed = passed.filter(|attempt| attempt.scores.strict == Some(true));
    let ran = evaluation.attempts.iter();
    let ran = ran.filter(|attempt| attempt.trajectory.is_some()).count();
    println!(
        "\nApart: the reference solutions of the {ran} tasks of PyBench whose files are here, with their \
         cells, inputs and all scores ({} pass `strict`): {seconds:.1} s",
        passed.count()
    );
    Ok(())
}

/// Seconds of an evaluation of so many tasks: two replies each, a cell and an answer, then the score.
async fn trivial(interpreter: &Arc<dyn Interpreter>, tasks: usize) -> Result<f64> {
    let place = tempfile::tempdir()?;
    let bench = bench(place.path(), tasks)?;
    let endpoint = Endpoint::start(|request| async move {
        let asked = request["messages"].as_array().map_or(0, Vec::len);
        let cell =
            format!("Analyze: run it\n<|execute_start|>\n```python\n{CELL}\n```\n<|execute_end|>");
        Answer::Content(if asked <= 2 {
            cell
        } else {
            "Finished: 3".to_owned()
        })
    })
    .await;
    let model = AgentChoice::Openai {
        model: "m".to_owned(),
        base_url: endpoint.base_url(),
        key_env: None,
        headers: BTreeMap::new(),
        price: Some(Price::default()),
        timeout_seconds: 60,
        about: None,
    };
    let mut recipe = EvalRecipe::new("bench", BTreeMap::from([("model".to_owned(), model)]));
    recipe.rollout.reuse = false;
    let (evaluation, seconds) = evaluate(interpreter, recipe, bench).await?;
    let passed = evaluation
        .attempts
        .iter()
        .filter(|attempt| attempt.scores.upstream == Some(true));
    match passed.count() == tasks {
        true => Ok(seconds),
        false => Err("not every task came to its end".into()),
    }
}

/// The evaluation in a folder of its own, and its seconds.
async fn evaluate(
    interpreter: &Arc<dyn Interpreter>,
    recipe: EvalRecipe,
    bench: PyBench,
) -> Result<(Evaluation, f64)> {
    let place = tempfile::tempdir()?;
    let begun = Instant::now();
    let setup = Setup {
        folder: Arc::new(RunFolder::open(
            &place.path().join("run"),
            &recipe.to_toml()?,
        )?),
        recipe,
        suites: vec![Arc::new(bench)],
        checker: Checker::new(interpreter.clone())?,
        interpreter: interpreter.clone(),
        options: ExecutorOptions::default(),
        progress: Progress::hidden(),
        interrupt: Interrupt::new(),
        project_root: root(),
    };
    let evaluation = run(&setup).await?;
    Ok((evaluation, begun.elapsed().as_secs_f64()))
}

/// The project's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Tasks without inputs, each with a unit test.
fn bench(place: &Path, tasks: usize) -> Result<PyBench> {
    let data = place.join("data");
    std::fs::create_dir_all(data.join("meta"))?;
    std::fs::create_dir_all(data.join("unit_test"))?;
    let rows: Vec<_> = (1..=tasks)
        .map(|n| json!({"index": n.to_string(), "user": format!("add {n}")}))
        .collect();
    std::fs::write(data.join("meta/task.json"), json!(rows).to_string())?;
    let tests = (1..=tasks).map(|n| {
        format!("def test_task_{n}(trajectory):\n    assert '3' in trajectory[-1]['content']\n\n")
    });
    std::fs::write(data.join("unit_test/tests.py"), tests.collect::<String>())?;
    let specs: Vec<_> = (1..=tasks)
        .map(|n| {
            let text = "category = 'math'\nstatus = 'judge'\nreason = 'a benchmark of the benchmark'\noutputs = []\n";
            (format!("{n:03}.toml"), format!("index = {n}\n{text}"))
        })
        .collect();
    let specs = spec::load(
        specs
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str())),
    )?;
    Ok(PyBench {
        name: SUITE,
        specs: Arc::new(specs),
        upstream: Arc::new(Upstream::open(place)?),
    })
}
