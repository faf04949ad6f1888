//! What the subcommands share: options, a benchmark, a sandbox and a run folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use pybench_checks::Checker;
use pybench_interpreter::{Interpreter, InterpreterChoice, default_cache_dir};
use pybench_net::git_origin::own_checkout;
use pybench_run::cli::Process;
use pybench_run::project::{check_runs_dir, default_runs_dir, project_root};
use pybench_run::{ExecutorOptions, LocalExecutor, RetryFailed, RunError, RunFolder};

use crate::suite::{Origin, Suite, SuiteEnv};
use crate::suites::pybench::{self, SUITE as PYBENCH};
use crate::suites::{Entry, Place, SUITES, entry};

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

/// What `--suite` takes.
fn suite_help() -> String {
    let names: Vec<&str> = SUITES.iter().map(|entry| entry.name).collect();
    let names = names.join(", ");
    format!("Benchmark: one of {names} [default: those of the recipe; audit: pybench]")
}

/// The folder with the files of a benchmark that the user named.
pub(super) fn named_folder(common: &CommonArgs, name: &str, origin: &Origin) -> Option<PathBuf> {
    match origin.cache == pybench::ORIGIN.cache {
        true => common.pybench.clone(),
        false => own_checkout(name),
    }
}

/// Opens the files of a benchmark.
pub(super) fn open_suite(
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

pub(super) struct Sandbox {
    pub(super) interpreter: Arc<dyn Interpreter>,
    pub(super) checker: Checker,
}

pub(super) fn open_sandbox(choice: &InterpreterChoice) -> Result<Sandbox, RunError> {
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
pub(super) fn run_folder(
    common: &CommonArgs,
    root: Option<&Path>,
    name: &str,
) -> Result<PathBuf, RunError> {
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

pub(super) fn executor_options(common: &CommonArgs, base: ExecutorOptions) -> ExecutorOptions {
    ExecutorOptions {
        concurrency: common.jobs.or(base.concurrency),
        retry_failed: RetryFailed::ExceptBadItems,
        ..base
    }
}

/// Opens the suite that the arguments name, or PyBench, and a run folder called `name` for its stages.
pub(super) fn open_suite_env(
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

pub(super) fn write_file(path: &Path, text: &str) -> Result<(), RunError> {
    pybench_run::write_output(path, text.as_bytes())
}
