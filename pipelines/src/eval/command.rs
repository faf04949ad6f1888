//! `pybench-eval`: run an evaluation, get the benchmark, audit the strict score.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use pybench::grade::Checker;
use pybench::interpreter::Interpreter;
use pybench::run::cli::{LogArgs, Process};
use pybench::run::project::{default_runs_dir, project_root};
use pybench::run::{
    ExecutorOptions, InterpreterChoice, LocalExecutor, RetryFailed, RunError, RunFolder,
    default_cache_dir,
};

use super::after;
use super::agent::config::Config;
use super::agent::served;
use super::audit::{Audit, Row, audit, markdown, summary};
use super::bench::prepare::Changes;
use super::bench::spec::TaskSpec;
use super::bench::{Bench, fetch, upstream};
use super::general;
use super::record::Evaluation;
use super::report;
use super::run::artefacts::copy;
use super::run::recipe::ranges;
use super::run::{AgentChoice, EvalRecipe, RESULTS, Setup, run};
use super::terminal;

/// The folder of the report in the run folder.
pub(super) const REPORT: &str = "report";
/// Label of the model that a checkpoint started from.
const BASE: &str = "base";
/// Folder of recipes, relative to the project root.
const RECIPES: &str = "pipelines/recipes/eval";

/// Evaluate agents on PyBench and on the held-out tasks of the library
#[derive(Debug, Parser)]
#[command(name = "pybench-eval", bin_name = "pybench-eval", version)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EvalArgs {
    /// What to do; without one of these: run an evaluation.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The evaluation.
    #[command(flatten)]
    pub run: RunArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Get the upstream repository by git, at the pinned commit, every blob verified
    Fetch(FetchArgs),
    /// Prove the strict score: right solutions pass, idle agents and wrong solutions fail
    Audit(AuditArgs),
    /// Ask an LLM judge about recorded attempts, and how far it agrees with people
    Judge(after::JudgeArgs),
    /// Compare agents on the same tasks, as pairs
    Compare(after::CompareArgs),
    /// Write the report of one or several evaluations
    Report(after::ReportArgs),
    /// Ask a model HumanEval+, MBPP+, GSM8K or MMLU, from files of yours
    General(general::command::GeneralArgs),
}

/// Where things lie.
#[derive(Clone, Debug, Default, Args)]
pub struct PlaceArgs {
    /// A checkout of the benchmark, or a folder with meta/task.json [default: what `fetch` got]
    #[arg(long, value_name = "DIR")]
    pub pybench: Option<PathBuf>,
    /// Name of the run folder [default: the recipe's name]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Where run folders lie [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Units at a time [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Only these tasks of the benchmark, such as 2-51,60
    #[arg(long, value_name = "TASKS")]
    pub tasks: Option<String>,
    /// Other variants of the inputs by this seed, for the tasks that allow it
    #[arg(long, value_name = "SEED")]
    pub regenerate: Option<u64>,
}

/// What to evaluate.
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// Recipe: a file, or a name in pipelines/recipes/eval [default: default]
    #[arg(value_name = "RECIPE")]
    pub recipe: Option<PathBuf>,
    /// Where things lie.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Upstream's flag: its YAML configuration, instead of a recipe
    #[arg(long = "config_path", value_name = "FILE", conflicts_with = "recipe")]
    pub config_path: Option<PathBuf>,
    /// Upstream's flag: the list of tasks
    #[arg(long = "task_path", value_name = "FILE")]
    pub task_path: Option<PathBuf>,
    /// Upstream's flag: where the trajectories go; output/ and Cells/ are left beside it
    #[arg(long = "output_path", value_name = "FILE", requires = "config_path")]
    pub output_path: Option<PathBuf>,
    /// Grade what another system did: its trajectory.jsonl or a run folder
    #[arg(long, value_name = "PATH", conflicts_with_all = ["recipe", "config_path"])]
    pub trajectories: Option<PathBuf>,
    /// The folder that holds their output/ [default: beside the trajectories]
    #[arg(long, value_name = "DIR", requires = "trajectories")]
    pub outputs: Option<PathBuf>,
    /// Most dollars [default: the recipe's budget]; needs models whose price is known
    #[arg(long, value_name = "DOLLARS")]
    pub usd: Option<f64>,
    /// Most tokens [default: the recipe's budget]
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
}

/// Where to.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Folder of the checkout [default: in the cache]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// The repository
    #[arg(long, value_name = "URL", default_value = fetch::REPOSITORY)]
    pub repository: String,
}

/// What to audit.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Where things lie.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Right solutions only
    #[arg(long)]
    pub quick: bool,
    /// Seed of changed inputs
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Write the rows as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the rows as a table
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// Does what the command line asks.
///
/// # Errors
/// As [`run`] and [`audit`]; [`RunError::Incomplete`] when the audit finds a task that does not hold.
pub async fn main(args: EvalArgs, process: Process) -> Result<(), RunError> {
    match args.command {
        None => evaluate(args.run, &process).await.map(|_| ()),
        Some(Command::Fetch(args)) => get(&args).await,
        Some(Command::Audit(args)) => prove(&args, &process).await,
        Some(Command::Judge(args)) => after::judged(&args).await,
        Some(Command::Compare(args)) => after::compared(&args),
        Some(Command::Report(args)) => after::reported(&args),
        Some(Command::General(args)) => general::command::main(&args).await,
    }
}

async fn get(args: &FetchArgs) -> Result<(), RunError> {
    let folder = args
        .into
        .clone()
        .unwrap_or_else(|| fetch::place(&default_cache_dir()));
    fetch::fetch(&args.repository, fetch::COMMIT, &folder).await?;
    let bench = Bench::new(upstream::Upstream::open(&folder)?)?;
    println!(
        "{}: commit {}, every file is what its blob says",
        folder.display(),
        fetch::COMMIT
    );
    for (path, tasks) in bench.missing() {
        let tasks: Vec<_> = tasks.iter().map(u32::to_string).collect();
        println!("missing: {path} (task {}, not run)", tasks.join(", "));
    }
    Ok(())
}

/// The benchmark, where it is.
fn bench(place: &PlaceArgs, root: Option<&Path>) -> Result<Bench, RunError> {
    let fetched = fetch::place(&default_cache_dir());
    Bench::new(upstream::find(place.pybench.as_deref(), &fetched, root)?)
}

struct Tools {
    interpreter: Arc<dyn Interpreter>,
    checker: Checker,
}

fn tools(choice: &InterpreterChoice) -> Result<Tools, RunError> {
    let environment = |text: String| RunError::Environment(text);
    let interpreter = pybench::interpreter::interpreter(choice)
        .map_err(|error| environment(error.to_string()))?;
    for warning in interpreter.warnings() {
        tracing::warn!("{warning}");
    }
    let checker =
        Checker::new(interpreter.clone()).map_err(|error| environment(error.to_string()))?;
    Ok(Tools {
        interpreter,
        checker,
    })
}

fn folder(
    place: &PlaceArgs,
    root: Option<&Path>,
    name: &str,
    recipe: &str,
) -> Result<Arc<RunFolder>, RunError> {
    let name = place.run.as_deref().unwrap_or(name);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(RunError::BadInput(format!(
            "--run {name:?}: expected letters, digits, `-` or `_`"
        )));
    }
    let runs = place
        .runs_dir
        .clone()
        .unwrap_or_else(|| default_runs_dir(root));
    Ok(Arc::new(RunFolder::open(&runs.join(name), recipe)?))
}

fn options(place: &PlaceArgs, base: ExecutorOptions) -> ExecutorOptions {
    ExecutorOptions {
        concurrency: place.jobs.unwrap_or(base.concurrency).max(1),
        retry_failed: RetryFailed::Ours,
        ..base
    }
}

async fn prove(args: &AuditArgs, process: &Process) -> Result<(), RunError> {
    let root = project_root(Path::new("."));
    let bench = bench(&args.place, root.as_deref())?;
    let specs = wanted(&bench, args.place.tasks.as_deref())?;
    let tools = tools(&InterpreterChoice::default())?;
    let folder = folder(
        &args.place,
        root.as_deref(),
        "eval-audit",
        "name = \"eval-audit\"\n",
    )?;
    let options = options(&args.place, ExecutorOptions::default());
    let (progress, interrupt) = (process.progress.clone(), process.interrupt.clone());
    let executor = LocalExecutor::new(folder.clone(), options, progress, interrupt);
    let work = Audit {
        bench,
        folder,
        interpreter: tools.interpreter,
        checker: tools.checker,
        changes: Changes {
            seed: args.place.regenerate.unwrap_or(args.seed),
            perturb: true,
            regenerate: args.place.regenerate.is_some(),
        },
        quick: args.quick,
    };
    let rows = audit(work, &specs, &executor, tell).await?;
    if let Some(path) = &args.json {
        put(path, &(serde_json::to_string_pretty(&rows)? + "\n"))?;
    }
    if let Some(path) = &args.markdown {
        put(path, &format!("{}\n\n{}", summary(&rows), markdown(&rows)))?;
    }
    process.progress.suspend(|| println!("{}", summary(&rows)));
    let unsound: Vec<_> = rows.iter().filter(|row| !row.holds()).collect();
    for row in &unsound {
        tracing::warn!("task {}: {}", row.index, row.problems().join("; "));
    }
    match unsound.len() {
        0 => Ok(()),
        count => Err(RunError::Incomplete(format!("{count} tasks do not hold"))),
    }
}

fn tell(row: &Row) {
    match row.holds() {
        true => tracing::info!("task {}: holds", row.index),
        false => tracing::warn!("task {}: {}", row.index, row.problems().join("; ")),
    }
}

fn wanted(bench: &Bench, tasks: Option<&str>) -> Result<Vec<TaskSpec>, RunError> {
    let wanted = tasks.map(ranges).transpose().map_err(RunError::BadInput)?;
    let chosen = bench
        .specs
        .values()
        .filter(|spec| wanted.as_ref().is_none_or(|set| set.contains(&spec.index)));
    Ok(chosen.cloned().collect())
}

/// Runs the evaluation that the arguments ask for.
///
/// # Errors
/// As [`run`].
pub async fn evaluate(args: RunArgs, process: &Process) -> Result<Evaluation, RunError> {
    let root = project_root(Path::new("."));
    let mut recipe = recipe(&args, root.as_deref())?;
    recipe.tasks = args.place.tasks.clone().or(recipe.tasks);
    recipe.regenerate = args.place.regenerate.or(recipe.regenerate);
    recipe.budget.usd = args.usd.or(recipe.budget.usd);
    recipe.budget.tokens = args.tokens.or(recipe.budget.tokens);
    let root = root.unwrap_or_else(|| PathBuf::from("."));
    if recipe.checkpoints {
        add_checkpoints(&mut recipe, &root);
    }
    let bench = match (recipe.pybench, bench(&args.place, Some(&root))) {
        (false, _) => None,
        (true, Ok(bench)) => Some(bench),
        (true, Err(error)) if recipe.library.is_some() && args.place.pybench.is_none() => {
            tracing::warn!("{error}; its tasks are left out");
            None
        }
        (true, Err(error)) => return Err(error),
    };
    let bench = match (bench, &args.task_path) {
        (Some(bench), Some(path)) => Some(Bench {
            upstream: Arc::new((*bench.upstream).clone().with_tasks(path)?),
            ..bench
        }),
        (bench, _) => bench,
    };
    let tools = tools(&recipe.interpreter)?;
    let base = ExecutorOptions {
        attempts: recipe.rollout.attempts.max(1),
        ..ExecutorOptions::default()
    };
    let asked = recipe.rollout.concurrency;
    let base = match asked {
        0 => base,
        concurrency => ExecutorOptions {
            concurrency,
            ..base
        },
    };
    let setup = Setup {
        folder: folder(&args.place, Some(&root), &recipe.name, &recipe.to_toml()?)?,
        options: options(&args.place, base),
        recipe,
        bench,
        interpreter: tools.interpreter,
        checker: tools.checker,
        progress: process.progress.clone(),
        interrupt: process.interrupt.clone(),
        project_root: root,
    };
    let evaluation = run(&setup).await?;
    if let Some(path) = &args.output_path {
        copy(
            &setup.folder.root().join("upstream").join(UPSTREAM_AGENT),
            path,
        )?;
    }
    let root = setup.folder.root();
    let (records, pages) = (root.join(RESULTS), root.join(REPORT));
    let base = setup
        .recipe
        .agents
        .contains_key(BASE)
        .then(|| BASE.to_owned());
    report::write(
        &evaluation,
        &[root.join("files")],
        &pages,
        &report::Options { base },
    )
    .map_err(|error| RunError::Internal(error.to_string()))?;
    let (shown, page) = (records.display(), pages.join("index.html"));
    let text = format!(
        "{}\n{}records: {shown}\nreport: {}\n",
        terminal::table(&evaluation),
        terminal::frozen(&evaluation),
        page.display()
    );
    process.progress.suspend(|| print!("{text}"));
    Ok(evaluation)
}

/// What `just train` made last and the model it started from, where they are; says what is missing.
fn add_checkpoints(recipe: &mut EvalRecipe, root: &Path) {
    if served::program().is_none() {
        tracing::warn!(
            "no checkpoint and no base: `pybench-train` is not built; `just train` makes both"
        );
        return;
    }
    let made = served::newest(&default_runs_dir(Some(root)));
    let base = match &made {
        Some((run, _)) => served::base_of(root, run),
        None => served::base_of(root, TRAINED),
    };
    match &made {
        Some((run, folder)) => tracing::info!("checkpoint: {run}, {}", folder.display()),
        None => {
            tracing::warn!("no checkpoint: `just train` makes one; its base is evaluated alone")
        }
    }
    let made = made.map(|(run, folder)| {
        let about = format!("what the training run `{run}` made");
        ("checkpoint", folder.display().to_string(), about)
    });
    let base = base.map(|name| {
        (
            "base",
            name.clone(),
            format!("`{name}`, what the training starts from"),
        )
    });
    for (label, model, about) in made.into_iter().chain(base) {
        let choice = AgentChoice::Checkpoint {
            model,
            base: false,
            about: Some(about),
        };
        recipe.agents.entry(label.to_owned()).or_insert(choice);
    }
}

/// The recipe of the trainer whose base stands in where nothing was trained.
const TRAINED: &str = "smollm2";
/// Label of the agent that upstream's flags name.
const UPSTREAM_AGENT: &str = "model";

fn recipe(args: &RunArgs, root: Option<&Path>) -> Result<EvalRecipe, RunError> {
    let one = |name: &str, label: &str, choice| {
        EvalRecipe::new(name, BTreeMap::from([(label.to_owned(), choice)]))
    };
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(RunError::io(path.display().to_string()))
    };
    if let Some(path) = &args.config_path {
        // A key in it is refused before anything is made.
        Config::read(path, |name| std::env::var(name).ok())?;
        let choice = AgentChoice::Config {
            path: absolute(path)?,
            price: None,
        };
        return Ok(one("eval-config", UPSTREAM_AGENT, choice));
    }
    if let Some(path) = &args.trajectories {
        let choice = AgentChoice::Trajectories {
            path: absolute(path)?,
            outputs: args.outputs.as_ref().map(absolute).transpose()?,
        };
        // What others did, they did on the published inputs.
        return Ok(EvalRecipe {
            perturb: false,
            ..one("eval-trajectories", "foreign", choice)
        });
    }
    let asked = args.recipe.as_deref().unwrap_or(Path::new("default"));
    let named = asked.extension().is_none() && asked.components().count() == 1;
    match (named, root) {
        (true, Some(root)) => {
            EvalRecipe::load(&root.join(RECIPES).join(asked).with_extension("toml"))
        }
        _ => EvalRecipe::load(asked),
    }
}

fn put(path: &Path, text: &str) -> Result<(), RunError> {
    std::fs::write(path, text).map_err(RunError::io(path.display().to_string()))
}
