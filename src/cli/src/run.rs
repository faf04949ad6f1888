//! `pybench run`: what is done with a run as a whole.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use pybench_hub::{fetch_any, until_interrupted};
use pybench_run::cli::{self, LogArgs, Process};
use pybench_run::project::{default_runs_dir, find_run, is_in_bucket, project_root};
use pybench_run::relocate::{Relocation, relocate};
use pybench_run::shared::retry_failed;
use pybench_run::{FailureKind, Journal, RunError, default_cache_dir};

/// Move a run to a cluster and back, fetch its copy from a bucket, retry failed units
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Move(MoveArgs),
    Fetch(FetchArgs),
    Retry(RetryArgs),
}

/// Try failed units again, also while other processes work on the run
///
/// If workers have joined the run and its coordinator is at that stage, they take the units now; otherwise the command that made
/// the run makes them when it is repeated.
#[derive(Debug, Args)]
struct RetryArgs {
    /// Run (name or folder)
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Folder that contains the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    runs_dir: Option<PathBuf>,
    /// Only units of this stage, such as rollout
    #[arg(long, value_name = "STAGE")]
    stage: Option<String>,
    /// Only units with this kind of failure: item, interpreter, endpoint, budget, replay or internal
    #[arg(long, value_name = "KIND", value_parser = kind_of)]
    kind: Option<FailureKind>,
    #[command(flatten)]
    log: LogArgs,
}

fn kind_of(name: &str) -> Result<FailureKind, String> {
    serde_json::from_value(serde_json::Value::from(name))
        .map_err(|_| "expected item, interpreter, endpoint, budget, replay or internal".to_owned())
}

/// Copy a run, files or a model from a bucket or the Hub to this machine, and print the path of the copy
///
/// A run whose profile names a bucket is copied there when it ends: artifacts, dataset, report and journal. Commands of pybench
/// read it by its address; other programs need a folder. What is here already is not downloaded again.
#[derive(Debug, Args)]
struct FetchArgs {
    /// Run, file or folder (s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, or
    /// hf://[datasets/]OWNER/NAME[@REVISION][/PATH])
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

/// Move the journal and the files of a run to where a profile says, or into its folder
///
/// No process may work on the run. The next command continues it at the new place, and the dataset has the same bytes. The
/// old journal stays, marked as moved. If the command is killed, repeat it.
#[derive(Debug, Args)]
struct MoveArgs {
    /// Run to move (name or folder)
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Folder that contains the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    runs_dir: Option<PathBuf>,
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Destination {
    /// File that says where the journal and the files are to be
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Keep the journal in the run folder
    #[arg(long)]
    local: bool,
}

/// Runs the command.
pub(crate) fn main(args: RunArgs) -> ExitCode {
    match args.command {
        RunCommand::Move(args) => {
            cli::main_with(args.log, |_| async move { Ok(move_run(&args).await?) })
        }
        RunCommand::Fetch(args) => cli::main_with(args.log, |process| async move {
            Ok(fetch(&args, &process).await?)
        }),
        RunCommand::Retry(args) => cli::main_with(args.log, |_| async move { Ok(retry(&args)?) }),
    }
}

/// The run folder that the arguments select.
fn folder_of(run: &Path, runs_dir: Option<&Path>) -> Result<PathBuf, RunError> {
    let default = || default_runs_dir(project_root(Path::new(".")).as_deref());
    find_run(run, &runs_dir.map_or_else(default, Path::to_owned))
}

/// As [`folder_of`], for a command that changes the run.
fn own_folder_of(run: &Path, runs_dir: Option<&Path>) -> Result<PathBuf, RunError> {
    match is_in_bucket(run) || runs_dir.is_some_and(is_in_bucket) {
        true => Err(RunError::BadInput(
            "the copy of a run in a bucket is for reading: give the name or the folder of the run"
                .to_owned(),
        )),
        false => folder_of(run, runs_dir),
    }
}

fn retry(args: &RetryArgs) -> Result<(), RunError> {
    let root = own_folder_of(&args.run, args.runs_dir.as_deref())?;
    let journal = Journal::join_run(&root)?;
    let retried = retry_failed(&journal, args.stage.as_deref(), args.kind)?;
    if retried.is_empty() {
        return cli::print("no unit has failed that way\n");
    }
    let lines = retried.iter().map(|retried| {
        let when = match retried.offered {
            true => "offered to the processes that work on the stage",
            false => "made by the command that made the run, when it is repeated",
        };
        format!("{}: units: {}, {when}\n", retried.stage, retried.units)
    });
    cli::print(&lines.collect::<String>())
}

async fn fetch(args: &FetchArgs, process: &Process) -> Result<(), RunError> {
    let cache = default_cache_dir();
    let fetching = fetch_any(&args.run, &cache);
    match until_interrupted(process, fetching).await?? {
        Some(copy) => cli::print(&format!("{}\n", copy.display())),
        None => Err(RunError::BadInput(format!(
            "{}: expected s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or \
             hf://[datasets/]OWNER/NAME[@REVISION][/PATH]",
            args.run.display()
        ))),
    }
}

async fn move_run(args: &MoveArgs) -> Result<(), RunError> {
    let root = own_folder_of(&args.run, args.runs_dir.as_deref())?;
    let moved = relocate(&root, args.destination.profile.as_deref())?;
    let left_queue = moved.as_ref().and_then(|moved| moved.left_queue.as_ref());
    if let Some(queue) = left_queue
        && let Err(error) = pybench_temporal::clear(queue).await
    {
        tracing::warn!("activities of the run may be left at its old place: {error}");
    }
    cli::print(&text(&root, moved.as_ref()))
}

fn text(root: &Path, moved: Option<&Relocation>) -> String {
    let Some(Relocation { from, to, size, .. }) = moved else {
        return format!("{} is there already\n", root.display());
    };
    format!(
        "{} has its journal in {to} now\nunits: {}, calls: {}, steps of trajectories in work: {}\n\
         the old one stays, marked as moved: {from}\n",
        root.display(),
        size.units,
        size.calls,
        size.steps
    )
}
