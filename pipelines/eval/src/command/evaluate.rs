//! `pybench eval` without a subcommand: runs an evaluation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_hub::{fetch_any, until_interrupted};
use pybench_interpreter::default_cache_dir;
use pybench_run::cli::{self, Process};
use pybench_run::project::{invocation, project_root};
use pybench_run::run_selection::{recommend, run_argument};
use pybench_run::{BudgetCap, ExecutorOptions, RunError, RunFolder, WhenChanged};
use pybench_types::text::shell_word;

use super::common::{executor_options, named_folder, open_sandbox, open_suite, run_folder};
use super::fetch::download;
use super::recipe::{UPSTREAM_AGENT, add_checkpoints, changed_recipe};
use super::run_args::RunArgs;
use crate::judge_and_report::REPORT;
use crate::record::Evaluation;
use crate::run::artifacts::copy;
use crate::run::{AgentChoice, EvalRecipe, RESULTS, Setup, dry_run, run};
use crate::suite::Suite;
use crate::suites::entry;
use crate::suites::pybench::SUITE as PYBENCH;
use crate::{report, terminal};

/// Label of the base model of a checkpoint.
const BASE: &str = "base";

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

/// Prints what an evaluation would ask and cost. No model is asked.
pub(super) async fn print_dry_run(args: &RunArgs, process: &Process) -> Result<(), RunError> {
    let setup = open(args, process).await?;
    cli::print_beside(&process.progress, &dry_run(&setup).await?)
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
