//! `just bench scale`: peak memory and time per task of a run, at two sizes. Rollout, grading, sharding and the report
//! are the real ones, with journal, executor, rounds and artifacts; model, sandbox and checker are scripted and reply at once.
//! Each size runs in a process of its own.

#[path = "scale/scripted.rs"]
mod scripted;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use pybench_agent::Solver;
use pybench_attempts::{AttemptStage, RolloutConfig};
use pybench_interpreter::SessionSpec;
use pybench_run::artifacts::{FILES, TASKS};
use pybench_run::{Recipe, RunContext, RunError, RunFolder};
use pybench_types::task::SourceFile;
use serde::{Deserialize, Serialize};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Every fifth attempt fails its check, so that a goal needs several rounds.
const RECIPE: &str = "name = \"scale\"\nseed = 7\n[crawl]\nfile_mib = 1\ntotal_mib = 1\nsources = []\n\
                      [query]\ntasks = 1\n[teacher]\nkind = \"expert\"\n[grade]\nat_least = 0\n[goal]\naccept = 1\n";

#[derive(Parser)]
struct Args {
    /// Numbers of tasks
    #[arg(default_values_t = [10_000, 100_000])]
    tasks: Vec<usize>,
    /// Rows to make, as a share of the tasks; 1 makes all attempts in one round, without a goal
    #[arg(long, default_value_t = 0.75)]
    goal: f64,
    /// Where the run folders go [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,
    /// Run in this process
    #[arg(long, hide = true)]
    alone: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct Measured {
    tasks: usize,
    rows: usize,
    /// Seconds and peak memory in MiB after each part.
    rounds: (f64, f64),
    shard: (f64, f64),
}

impl Measured {
    fn per_task(&self) -> f64 {
        1e3 * (self.rounds.0 + self.shard.0) / self.tasks as f64
    }

    fn peak(&self) -> f64 {
        self.rounds.1.max(self.shard.1)
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let temporary = tempfile::tempdir()?;
    let place = args.place.as_deref().unwrap_or(temporary.path());
    if args.alone {
        for tasks in &args.tasks {
            let measured = run(place, *tasks, args.goal)?;
            println!("{}", serde_json::to_string(&measured)?);
        }
        return Ok(());
    }
    let cores = std::thread::available_parallelism()?.get();
    println!("scale: goal {} · {cores} cores\n", args.goal);
    println!(
        "| tasks | rows | rollout and grading | peak so far | sharding and report | peak memory | time per task |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    let mut all = Vec::new();
    for tasks in &args.tasks {
        let measured = apart(place, *tasks, args.goal)?;
        println!(
            "| {tasks} | {} | {:.1} s | {:.0} MiB | {:.1} s | {:.0} MiB | {:.2} ms |",
            measured.rows,
            measured.rounds.0,
            measured.rounds.1,
            measured.shard.0,
            measured.peak(),
            measured.per_task()
        );
        all.push(measured);
    }
    if let [first, .., last] = &all[..] {
        println!(
            "\npeak memory {:.2} ×, time per task {:.2} ×",
            last.peak() / first.peak(),
            last.per_task() / first.per_task()
        );
    }
    Ok(())
}

/// Measures one size in a process of its own.
fn apart(place: &Path, tasks: usize, goal: f64) -> Result<Measured> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--alone", &tasks.to_string(), "--goal", &goal.to_string()]);
    let ended = child.arg("--place").arg(place).output()?;
    if !ended.status.success() {
        return Err(String::from_utf8_lossy(&ended.stderr).into());
    }
    Ok(serde_json::from_slice(&ended.stdout)?)
}

#[tokio::main]
async fn run(place: &Path, tasks: usize, goal: f64) -> Result<Measured> {
    let root = place.join(format!("run-{tasks}"));
    let context = context(&root, tasks, goal)?;
    prepare(&context, tasks)?;
    let started = Instant::now();
    rounds(&context).await?;
    let rounds = (started.elapsed().as_secs_f64(), peak_mib()?);
    let started = Instant::now();
    pybench_shard::run(&context).await?;
    pybench_synthesize::status::funnel(context.folder.journal())?;
    let shard = (started.elapsed().as_secs_f64(), peak_mib()?);
    let rows = ["train_rows", "test_rows"].map(|name| context.folder.journal().metadata(name));
    let mut written = 0;
    for rows in rows {
        written += rows?.and_then(|rows| rows.as_u64()).unwrap_or_default() as usize;
    }
    drop(context);
    fs::remove_dir_all(&root)?;
    Ok(Measured {
        tasks,
        rows: written,
        rounds,
        shard,
    })
}

fn context(root: &Path, tasks: usize, goal: f64) -> Result<RunContext> {
    let mut recipe: Recipe = toml::from_str(RECIPE)?;
    recipe.goal.accept = (goal < 1.0).then_some((tasks as f64 * goal) as usize);
    let folder = RunFolder::open(root, RECIPE)?;
    Ok(RunContext::new(Arc::new(folder), recipe))
}

/// Writes what crawl and query would have written.
fn prepare(context: &RunContext, tasks: usize) -> Result<()> {
    FILES.write(
        &context.folder,
        std::iter::empty::<std::result::Result<SourceFile, RunError>>(),
    )?;
    for file in 0..scripted::FILES {
        let content = scripted::content(file);
        context.folder.store().put(content.as_bytes())?;
    }
    let tasks = (0..tasks).map(|number| Ok(scripted::task(number)));
    TASKS.write(&context.folder, tasks)?;
    Ok(())
}

async fn rounds(context: &RunContext) -> Result<()> {
    let tasks = pybench_rollout::tasks(context)?;
    let config = RolloutConfig {
        rollout: context.recipe.rollout.clone(),
        session: SessionSpec::default(),
        format: pybench_agent::format(context.recipe.rollout.format),
        teacher: Solver::Model(Arc::new(scripted::Model)),
        teacher_mix: Vec::new(),
        escalation: Vec::new(),
        seed: 0,
        interpreter: Arc::new(scripted::Sandbox),
        feedback: None,
    };
    let stage = AttemptStage::from_config(context.folder.clone(), tasks.clone(), config);
    let checker = Arc::new(scripted::Checker);
    pybench_synthesize::scheduler::run_with(context, tasks, &Arc::new(stage), checker).await?;
    Ok(())
}

fn peak_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next());
    Ok(kib.ok_or("no VmHWM")?.parse::<f64>()? / 1024.0)
}
