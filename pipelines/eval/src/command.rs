//! The command line of `pybench-eval`: run an evaluation, fetch PyBench, audit the strict score.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use pybench_attempts::model_server;
use pybench_checks::Checker;
use pybench_datasets::decontaminate::fingerprints;
use pybench_hub::{fetch_any, until_interrupted};
use pybench_interpreter::Interpreter;
use pybench_interpreter::{InterpreterChoice, default_cache_dir};
use pybench_net::git_origin::own_checkout;
use pybench_run::cli::{self, LogArgs, Process};
use pybench_run::project::{
    check_runs_dir, default_runs_dir, find_recipe, invocation, project_root,
};
use pybench_run::run_selection::{recommend, run_argument};
use pybench_run::{
    BudgetCap, ExecutorOptions, LocalExecutor, RetryFailed, RunError, RunFolder, ServeEngine,
    WhenChanged, apply_sets,
};
use pybench_types::text::shell_word;

use super::agent::config::UpstreamConfig;
use super::audit_page;
use super::inspect_export::{self, ExportArgs};
use super::judge_and_report::{self, REPORT};
use super::record::Evaluation;
use super::report;
use super::run::artifacts::copy;
use super::run::{AgentChoice, EvalRecipe, RESULTS, Setup, dry_run, run};
use super::suite::{AuditOptions, Origin, Selection, Suite, SuiteEnv};
use super::suites::pybench::upstream::Upstream;
use super::suites::pybench::{self, PyBench, SUITE as PYBENCH};
use super::suites::{Entry, Place, SUITES, entry};
use super::terminal;

/// Label of the base model of a checkpoint.
const BASE: &str = "base";
/// Folder of recipes, relative to the project root.
const RECIPES: &str = "pipelines/recipes/eval";

/// First line of `--help`.
pub const ABOUT: &str =
    "Evaluate agents on PyBench and other benchmarks, and on the held-out tasks of the library";

/// Arguments of `pybench eval`.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EvalArgs {
    /// Subcommand; without one, run an evaluation.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of an evaluation.
    #[command(flatten)]
    pub run: RunArgs,
    /// Logging options.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Subcommands of `pybench eval`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Download the repository of a benchmark with git at the pinned commit and verify every file
    Fetch(FetchArgs),
    /// Write hashes of a benchmark's tasks and files, by which `dataset decontaminate` recognizes them
    Fingerprint(FingerprintArgs),
    /// Validate the scores of a benchmark: correct solutions must pass, null agents and incorrect solutions must fail
    Audit(AuditArgs),
    /// Run an LLM judge on recorded attempts and measure its agreement with human labels
    Judge(judge_and_report::JudgeArgs),
    /// Compare agents pairwise on the tasks they share
    Compare(judge_and_report::CompareArgs),
    /// Write the report of one or more evaluations
    Report(judge_and_report::ReportArgs),
    /// Write evaluations as logs of inspect_ai, which `inspect view` opens
    Export(ExportArgs),
}

/// What `--suite` takes.
fn suite_help() -> String {
    let names: Vec<&str> = SUITES.iter().map(|entry| entry.name).collect();
    let names = names.join(", ");
    format!("Benchmark: one of {names} [default: those of the recipe; audit: pybench]")
}

/// Options shared by `eval` and `eval audit`.
#[derive(Clone, Debug, Default, Args)]
pub struct CommonArgs {
    /// Benchmark.
    #[arg(long, value_name = "NAME", help = suite_help())]
    pub suite: Option<String>,
    /// PyBench checkout, or a folder that contains meta/task.json [default: the checkout that `fetch` made]
    #[arg(long, value_name = "DIR")]
    pub pybench: Option<PathBuf>,
    /// Name of the run folder [default: name of the recipe]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Folder that contains the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Tasks in work at the same time [default: as many as endpoint, cores and memory allow]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Run only these PyBench tasks, for example 2-51,60
    #[arg(long, value_name = "TASKS")]
    pub tasks: Option<String>,
    /// Run only so many tasks of each benchmark, drawn with the seed
    #[arg(long, value_name = "N")]
    pub max_tasks: Option<usize>,
    /// Generate new input variants with this seed, for the tasks that support it
    #[arg(long, value_name = "SEED")]
    pub regenerate: Option<u64>,
}

/// Run an evaluation.
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// Recipe: path of a file, or the name of one that comes with pybench [default: default]
    #[arg(value_name = "RECIPE")]
    pub recipe: Option<PathBuf>,
    /// Common options.
    #[command(flatten)]
    pub common: CommonArgs,
    /// PyBench's own YAML configuration, instead of a recipe (upstream flag)
    #[arg(long = "config_path", value_name = "FILE", conflicts_with = "recipe")]
    pub config_path: Option<PathBuf>,
    /// Task list, a task.json (upstream flag)
    #[arg(long = "task_path", value_name = "FILE")]
    pub task_path: Option<PathBuf>,
    /// File to write the trajectories to; output/ and Cells/ are written next to it (upstream flag)
    #[arg(long = "output_path", value_name = "FILE", requires = "config_path")]
    pub output_path: Option<PathBuf>,
    /// Grade trajectories from another system: a trajectory.jsonl, a run folder or a Parquet shard
    #[arg(long, value_name = "PATH", conflicts_with_all = ["recipe", "config_path"])]
    pub trajectories: Option<PathBuf>,
    /// Folder that contains their output/ [default: the folder of the trajectories]
    #[arg(long, value_name = "DIR", requires = "trajectories")]
    pub outputs: Option<PathBuf>,
    /// Maximum cost in US dollars; requires models with a known price [default: budget of the recipe]
    #[arg(long, value_name = "DOLLARS")]
    pub usd: Option<f64>,
    /// Maximum number of tokens [default: budget of the recipe]
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
    /// Download the benchmarks of the recipe that are not on this machine, as `fetch` does
    #[arg(long)]
    pub fetch: bool,
    /// Override a key of the recipe, such as rollout.samples=4; can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Keep the journal of a new run in the PostgreSQL server that FILE names, and its files in the bucket that FILE names
    /// [default: in the run folder]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Print the number of attempts and the expected calls, tokens and cost without calling a model, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// If the recipe has changed, delete the run and start over [default: only if nothing was paid for]
    #[arg(long)]
    pub start_over: bool,
}

/// Download the files of a benchmark.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Benchmark
    #[arg(long, value_name = "NAME", default_value = PYBENCH)]
    pub suite: String,
    /// Folder to check out into [default: a folder in the cache]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Repository to clone [default: the authors' repository]
    #[arg(long, value_name = "URL")]
    pub repository: Option<String>,
}

/// Write the fingerprints of a benchmark.
#[derive(Debug, Args)]
pub struct FingerprintArgs {
    /// Benchmark
    #[arg(long, value_name = "NAME", default_value = PYBENCH)]
    pub suite: String,
    /// PyBench checkout, or a folder that contains meta/task.json [default: the checkout that `fetch` made]
    #[arg(long, value_name = "DIR")]
    pub pybench: Option<PathBuf>,
    /// File for the fingerprints
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Validate the scores.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Common options.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Check only the correct solutions; skip null agents and mutants
    #[arg(long)]
    pub quick: bool,
    /// Seed for perturbed inputs
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the results to this file as a Markdown table
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write the page of the whole benchmark, docs/suite-audits/SUITE.md in the project
    #[arg(long, conflicts_with_all = ["quick", "tasks", "max_tasks", "regenerate"])]
    pub write: bool,
}

/// Runs the command and returns the exit code of the process.
pub fn main(args: EvalArgs) -> std::process::ExitCode {
    cli::main_with(args.log, |process| async move {
        Ok(run_command(args, process).await?)
    })
}

/// Runs the selected subcommand; without one, an evaluation.
///
/// # Errors
/// The errors of [`run`] and [`audit`]; [`RunError::Incomplete`] if a task fails the audit.
pub async fn run_command(args: EvalArgs, process: Process) -> Result<(), RunError> {
    match args.command {
        None if args.run.dry_run => {
            let setup = open(&args.run, &process).await?;
            cli::print_beside(&process.progress, &dry_run(&setup).await?)
        }
        None => evaluate(args.run, &process).await.map(|_| ()),
        Some(Command::Fetch(args)) => fetch_suite(&args).await,
        Some(Command::Fingerprint(args)) => write_fingerprints(&args, &process).await,
        Some(Command::Audit(args)) => run_audit(&args, &process).await,
        Some(Command::Judge(args)) => judge_and_report::run_judge(&args, &process.interrupt).await,
        Some(Command::Compare(args)) => judge_and_report::run_compare(&args),
        Some(Command::Report(args)) => judge_and_report::run_report(&args, &process).await,
        Some(Command::Export(args)) => inspect_export::run_export(&args),
    }
}

async fn fetch_suite(args: &FetchArgs) -> Result<(), RunError> {
    let origin = entry(&args.suite).map_err(RunError::BadInput)?.origin;
    let cached = || origin.checkout_dir(&default_cache_dir());
    let folder = args.into.clone().unwrap_or_else(cached);
    let repository = args.repository.as_deref().unwrap_or(origin.repository);
    download(origin, repository, &folder).await?;
    if args.suite == PYBENCH {
        print_missing(&folder)?;
    }
    Ok(())
}

/// Prints the license of a benchmark and downloads its files.
async fn download(origin: &Origin, repository: &str, folder: &Path) -> Result<(), RunError> {
    println!("{repository}\nlicense: {}", origin.license);
    origin.fetch(repository, folder).await?;
    let (shown, commit) = (folder.display(), origin.commit);
    println!("{shown}: commit {commit}, all files verified");
    Ok(())
}

/// Downloads the benchmarks of a recipe that are not on this machine. Those for which the user names a checkout are left
/// alone.
async fn fetch_missing(args: &RunArgs, recipe: &EvalRecipe, root: &Path) -> Result<(), RunError> {
    for name in &recipe.suites {
        let entry = entry(name).map_err(RunError::BadInput)?;
        let task_path = args.task_path.as_deref();
        let is_here = open_suite(entry, &args.common, task_path, Some(root)).is_ok();
        let is_named = named_folder(&args.common, name, entry.origin).is_some();
        if !is_here && !is_named {
            let folder = entry.origin.checkout_dir(&default_cache_dir());
            download(entry.origin, entry.origin.repository, &folder).await?;
        }
    }
    Ok(())
}

/// The folder with the files of a benchmark that the user named.
fn named_folder(common: &CommonArgs, name: &str, origin: &Origin) -> Option<PathBuf> {
    match origin.cache == pybench::ORIGIN.cache {
        true => common.pybench.clone(),
        false => own_checkout(name),
    }
}

/// Prints the inputs that the checkout lacks.
fn print_missing(folder: &Path) -> Result<(), RunError> {
    let suite = PyBench::new(Upstream::open(folder)?)?;
    for (path, tasks) in suite.missing() {
        let tasks: Vec<_> = tasks.iter().map(u32::to_string).collect();
        println!(
            "missing: {path} (needed by task {}, which will not run)",
            tasks.join(", ")
        );
    }
    Ok(())
}

/// Opens the files of a benchmark.
fn open_suite(
    entry: &Entry,
    common: &CommonArgs,
    task_path: Option<&Path>,
    root: Option<&Path>,
) -> Result<Arc<dyn Suite>, RunError> {
    (entry.open)(&Place {
        cache: &default_cache_dir(),
        project: root,
        pybench: common.pybench.as_deref(),
        pybench_tasks: task_path,
    })
}

/// Opens the benchmarks of a recipe.
fn open_suites(
    args: &RunArgs,
    recipe: &EvalRecipe,
    root: &Path,
) -> Result<Vec<Arc<dyn Suite>>, RunError> {
    let mut suites = Vec::new();
    for name in &recipe.suites {
        let entry = entry(name).map_err(RunError::BadInput)?;
        let can_skip = name == PYBENCH && recipe.library.is_some() && args.common.pybench.is_none();
        match open_suite(entry, &args.common, args.task_path.as_deref(), Some(root)) {
            Ok(suite) => suites.push(suite),
            Err(error) if can_skip => tracing::warn!("{error}; PyBench tasks are skipped"),
            Err(error) => return Err(error),
        }
    }
    Ok(suites)
}

struct Sandbox {
    interpreter: Arc<dyn Interpreter>,
    checker: Checker,
}

fn open_sandbox(choice: &InterpreterChoice) -> Result<Sandbox, RunError> {
    let environment = |text: String| RunError::Environment(text);
    let interpreter = pybench_interpreter_containers::paced(choice)
        .map_err(|error| environment(error.to_string()))?;
    for warning in interpreter.warnings() {
        tracing::warn!("{warning}");
    }
    let checker =
        Checker::new(interpreter.clone()).map_err(|error| environment(error.to_string()))?;
    Ok(Sandbox {
        interpreter,
        checker,
    })
}

/// The run folder that the arguments select, or the one called `name`.
fn run_folder(common: &CommonArgs, root: Option<&Path>, name: &str) -> Result<PathBuf, RunError> {
    let name = common.run.as_deref().unwrap_or(name);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(RunError::BadInput(format!(
            "--run {name:?}: a run name may contain only letters, digits, `-`, `_` and `.`, and must not start with `.`"
        )));
    }
    let runs = common
        .runs_dir
        .clone()
        .unwrap_or_else(|| default_runs_dir(root));
    check_runs_dir(&runs)?;
    Ok(runs.join(name))
}

/// Opens the run folder of an evaluation. A dry run changes none of another recipe.
fn open_run_folder(
    args: &RunArgs,
    root: &Path,
    recipe: &EvalRecipe,
) -> Result<Arc<RunFolder>, RunError> {
    let folder = run_folder(&args.common, Some(root), &recipe.name)?;
    let text = recipe.to_toml()?;
    let changed = match args.start_over {
        true => WhenChanged::StartOver,
        false => WhenChanged::StartOverIfFree,
    };
    let profile = args.profile.as_deref();
    let opened = match args.dry_run {
        true => RunFolder::open_for_dry_run_in_profile(&folder, &text, profile),
        false => RunFolder::open_in_profile(&folder, &text, &changed, profile),
    };
    Ok(Arc::new(opened?))
}

fn executor_options(common: &CommonArgs, base: ExecutorOptions) -> ExecutorOptions {
    ExecutorOptions {
        concurrency: common.jobs.or(base.concurrency),
        retry_failed: RetryFailed::ExceptBadItems,
        ..base
    }
}

async fn run_audit(args: &AuditArgs, process: &Process) -> Result<(), RunError> {
    let name = match args.common.suite.as_deref() {
        None => "eval-audit".to_owned(),
        Some(suite) => format!("audit-{suite}"),
    };
    let (suite, env) = open_suite_env(&args.common, &name, process)?;
    let options = AuditOptions {
        selection: Selection {
            tasks: args.common.tasks.clone(),
            max_tasks: args.common.max_tasks,
            seed: args.seed,
            perturb: true,
            regenerate: args.common.regenerate,
        },
        quick: args.quick,
    };
    let audit = suite.audit(&env, &options).await?;
    if let Some(path) = &args.json {
        write_file(path, &(serde_json::to_string_pretty(&audit.json)? + "\n"))?;
    }
    if let Some(path) = &args.markdown {
        write_file(path, &format!("{}\n\n{}", audit.summary, audit.markdown))?;
    }
    if args.write {
        let named = named_folder(&args.common, suite.name(), suite.origin());
        let checkout = audit_page::Checkout {
            is_verified: named.is_none(),
            folder: named.unwrap_or_else(|| suite.origin().checkout_dir(&default_cache_dir())),
        };
        let page = audit_page::render(suite.name(), suite.origin(), &audit, &checkout);
        let root = project_root(Path::new(".")).unwrap_or_default();
        write_file(&root.join(audit_page::path(suite.name())), &page)?;
    }
    process.progress.suspend(|| println!("{}", audit.summary));
    for (task, problem) in &audit.problems {
        tracing::warn!("task {task}: {problem}");
    }
    match audit.problems.len() {
        0 => Ok(()),
        count => Err(RunError::Incomplete(format!(
            "{count} tasks failed the audit; see the warnings above"
        ))),
    }
}

/// Opens the suite that the arguments name, or PyBench, and a run folder called `name` for its stages.
fn open_suite_env(
    common: &CommonArgs,
    name: &str,
    process: &Process,
) -> Result<(Arc<dyn Suite>, SuiteEnv), RunError> {
    let root = project_root(Path::new("."));
    let entry = entry(common.suite.as_deref().unwrap_or(PYBENCH)).map_err(RunError::BadInput)?;
    let suite = open_suite(entry, common, None, root.as_deref())?;
    let sandbox = open_sandbox(&InterpreterChoice::default())?;
    let root = run_folder(common, root.as_deref(), name)?;
    let folder = Arc::new(RunFolder::open(&root, &format!("name = \"{name}\"\n"))?);
    let options = executor_options(common, ExecutorOptions::default());
    let (progress, interrupt) = (process.progress.clone(), process.interrupt.clone());
    let env = SuiteEnv {
        executor: LocalExecutor::new(folder.clone(), options, progress, interrupt),
        folder,
        interpreter: sandbox.interpreter,
        checker: sandbox.checker,
    };
    Ok((suite, env))
}

async fn write_fingerprints(args: &FingerprintArgs, process: &Process) -> Result<(), RunError> {
    let common = CommonArgs {
        suite: Some(args.suite.clone()),
        pybench: args.pybench.clone(),
        ..CommonArgs::default()
    };
    let (suite, env) = open_suite_env(&common, "eval-fingerprint", process)?;
    let tasks = suite.contents(&env).await?;
    let text = fingerprints::write(&tasks);
    write_file(&args.out, &text)?;
    let (out, bytes) = (args.out.display(), text.len());
    let line = format!(
        "{out}: {} texts of {}, {bytes} bytes",
        tasks.len(),
        suite.name()
    );
    process.progress.suspend(|| println!("{line}"));
    Ok(())
}

/// The recipe, as the arguments change it.
fn changed_recipe(args: &RunArgs, root: Option<&Path>) -> Result<EvalRecipe, RunError> {
    let mut recipe = load_recipe(args, root)?;
    if !args.set.is_empty() {
        let (name, text) = (format!("{} with --set", recipe.name), recipe.to_toml()?);
        recipe = EvalRecipe::parse(&name, &apply_sets(&name, &text, &args.set)?)?;
    }
    recipe.tasks = args.common.tasks.clone().or(recipe.tasks);
    recipe.max_tasks = args.common.max_tasks.or(recipe.max_tasks);
    if let Some(name) = &args.common.suite {
        entry(name).map_err(RunError::BadInput)?;
        recipe.suites = vec![name.clone()];
    }
    recipe.regenerate = args.common.regenerate.or(recipe.regenerate);
    recipe.budget.usd = args.usd.or(recipe.budget.usd);
    recipe.budget.tokens = args.tokens.or(recipe.budget.tokens);
    Ok(recipe)
}

/// Opens the recipe, the suite, the sandbox and the run folder that the arguments describe.
async fn open(args: &RunArgs, process: &Process) -> Result<Setup, RunError> {
    let root = project_root(Path::new("."));
    let mut recipe = changed_recipe(args, root.as_deref())?;
    let root = root.unwrap_or_else(|| PathBuf::from("."));
    if args.fetch {
        fetch_missing(args, &recipe, &root).await?;
    }
    if recipe.checkpoints {
        add_checkpoints(&mut recipe, &root);
    }
    let sandbox = open_sandbox(&recipe.interpreter)?;
    let base = ExecutorOptions {
        concurrency: recipe.rollout.fixed_concurrency(),
        budget: BudgetCap::of(&recipe.budget),
        attempts: recipe.rollout.attempts.max(1),
        unit_limit: Some(recipe.rollout.unit_limit()),
        time_budget: recipe.budget.time(),
        ..ExecutorOptions::default()
    };
    // The folder keeps the recipe as it was given, with addresses.
    let folder = open_run_folder(args, &root, &recipe)?;
    fetch_agents(&mut recipe, process).await?;
    Ok(Setup {
        folder,
        options: executor_options(&args.common, base),
        suites: open_suites(args, &recipe, &root)?,
        recipe,
        interpreter: sandbox.interpreter,
        checker: sandbox.checker,
        progress: process.progress.clone(),
        interrupt: process.interrupt.clone(),
        project_root: root,
    })
}

/// Replaces files of agents in buckets and on the Hub by their copies in the machine's cache.
async fn fetch_agents(recipe: &mut EvalRecipe, process: &Process) -> Result<(), RunError> {
    let cache = default_cache_dir();
    for agent in recipe.agents.values_mut() {
        let paths: Vec<&mut PathBuf> = match agent {
            AgentChoice::Config { path, .. } => vec![path],
            AgentChoice::Trajectories { path, outputs } => {
                std::iter::once(path).chain(outputs).collect()
            }
            _ => continue,
        };
        for path in paths {
            let copy = until_interrupted(process, fetch_any(path, &cache)).await??;
            if let Some(copy) = copy {
                *path = copy;
            }
        }
    }
    Ok(())
}

/// Runs the evaluation described by the arguments, writes its report and prints the scores.
///
/// # Errors
/// The errors of [`run`].
pub async fn evaluate(args: RunArgs, process: &Process) -> Result<Evaluation, RunError> {
    let setup = open(&args, process).await?;
    let evaluation = run(&setup).await?;
    if let Some(path) = &args.output_path {
        copy(
            &setup.folder.root().join("upstream").join(UPSTREAM_AGENT),
            path,
        )?;
    }
    let root = setup.folder.root();
    let (records, report_dir) = (root.join(RESULTS), root.join(REPORT));
    let base = setup
        .recipe
        .agents
        .contains_key(BASE)
        .then(|| BASE.to_owned());
    report::write(
        &evaluation,
        &[root.join("files")],
        &report_dir,
        &report::Options {
            base,
            ..report::Options::default()
        },
    )
    .map_err(|error| RunError::Internal(error.to_string()))?;
    let (shown, page) = (records.display(), report_dir.join("index.html"));
    let text = format!(
        "{}\n{}records: {shown}\nreport: {}\n{}",
        terminal::table(&evaluation),
        terminal::fingerprint(&evaluation),
        page.display(),
        next_steps(root, &evaluation)
    );
    process.progress.suspend(|| print!("{text}"));
    Ok(evaluation)
}

/// What one does with an evaluation.
fn next_steps(root: &Path, evaluation: &Evaluation) -> String {
    let (run, pybench) = (run_argument(root), invocation());
    let folder = shell_word(&root.to_string_lossy());
    let mut steps = vec![(
        format!("{pybench} show {run} 1"),
        "read an attempt, with its checks",
    )];
    let agents = evaluation.fingerprint.agents.values();
    if agents.filter(|agent| agent.kind.competes()).count() > 1 {
        steps.push((
            format!("{pybench} eval compare {folder}"),
            "test whether the agents differ",
        ));
    }
    steps.push((
        format!("{pybench} eval report {folder} OTHER-RUN"),
        "one report of several evaluations",
    ));
    recommend(&steps)
}

/// Adds the newest checkpoint of `just train` and its base model as agents; warns if one is missing.
fn add_checkpoints(recipe: &mut EvalRecipe, root: &Path) {
    if model_server::program().is_none() {
        tracing::warn!(
            "`pybench-train` was not found, so no checkpoint and no base model are evaluated; {}",
            model_server::HOW_TO_BUILD
        );
        return;
    }
    let checkpoint = model_server::newest(&default_runs_dir(Some(root)));
    let base = match &checkpoint {
        Some((_, folder)) => model_server::base_of(folder),
        None => model_server::base_of_recipe(root, DEFAULT_TRAINING_RECIPE),
    };
    match &checkpoint {
        Some((run, folder)) => tracing::info!("checkpoint: {run}, {}", folder.display()),
        None => {
            tracing::warn!(
                "no checkpoint found: only the base model is evaluated; run `{} train` to make one",
                invocation()
            )
        }
    }
    let checkpoint = checkpoint.map(|(run, folder)| {
        let about = format!("checkpoint of the training run `{run}`");
        ("checkpoint", folder.display().to_string(), about)
    });
    let base = base.map(|name| {
        (
            "base",
            name.clone(),
            format!("`{name}`, base model of the training run"),
        )
    });
    for (label, model, about) in checkpoint.into_iter().chain(base) {
        let choice = AgentChoice::Checkpoint {
            model,
            base: false,
            dtype: None,
            engine: ServeEngine::default(),
            about: Some(about),
        };
        recipe.agents.entry(label.to_owned()).or_insert(choice);
    }
}

/// Training recipe whose base model is evaluated if nothing has been trained yet.
const DEFAULT_TRAINING_RECIPE: &str = "smollm2";
/// Label of the agent that PyBench's own configuration describes.
const UPSTREAM_AGENT: &str = "model";

fn load_recipe(args: &RunArgs, root: Option<&Path>) -> Result<EvalRecipe, RunError> {
    let single_agent = |name: &str, label: &str, choice| {
        EvalRecipe::new(name, BTreeMap::from([(label.to_owned(), choice)]))
    };
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(RunError::io(path.display().to_string()))
    };
    if let Some(path) = &args.config_path {
        // Reject a literal API key before anything is written.
        UpstreamConfig::read(path, |name| std::env::var(name).ok())?;
        let choice = AgentChoice::Config {
            path: absolute(path)?,
            price: None,
        };
        return Ok(single_agent("eval-config", UPSTREAM_AGENT, choice));
    }
    if let Some(path) = &args.trajectories {
        let choice = AgentChoice::Trajectories {
            path: absolute(path)?,
            outputs: args.outputs.as_ref().map(absolute).transpose()?,
        };
        // Other systems ran on the published inputs.
        return Ok(EvalRecipe {
            perturb: false,
            ..single_agent("eval-trajectories", "foreign", choice)
        });
    }
    let recipe = args.recipe.as_deref().unwrap_or(Path::new("default"));
    EvalRecipe::load(&find_recipe(recipe, RECIPES, root)?)
}

fn write_file(path: &Path, text: &str) -> Result<(), RunError> {
    pybench_run::write_output(path, text.as_bytes())
}
