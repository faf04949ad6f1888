//! `pybench run`: what is done with a run as a whole.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use pybench_run::RunError;
use pybench_run::cli::{self, LogArgs};
use pybench_run::project::{default_runs_dir, find_run, is_in_bucket, project_root};
use pybench_run::relocate::{Relocation, relocate};

/// Move a run to a cluster and back, or fetch the copy in its bucket
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Move(MoveArgs),
    Fetch(FetchArgs),
}

/// Copy a run from its bucket to this machine, and print its folder
///
/// A run whose profile names a bucket is copied there when it ends: artifacts, dataset, report and journal. `status`, `show`,
/// `verify` and `publish` read it by its address; other programs, such as the trainer, need a folder.
#[derive(Debug, Args)]
struct FetchArgs {
    /// Run (s3://BUCKET/PREFIX/NAME, or gs://…)
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
        RunCommand::Move(args) => cli::main_with(args.log, |_| async move { Ok(move_run(&args)?) }),
        RunCommand::Fetch(args) => cli::main_with(args.log, |_| async move { Ok(fetch(&args)?) }),
    }
}

fn fetch(args: &FetchArgs) -> Result<(), RunError> {
    if !is_in_bucket(&args.run) {
        return Err(RunError::BadInput(format!(
            "{}: expected s3://BUCKET/PREFIX/NAME or gs://BUCKET/PREFIX/NAME",
            args.run.display()
        )));
    }
    let folder = find_run(&args.run, Path::new("."))?;
    cli::print(&format!("{}\n", folder.display()))
}

fn move_run(args: &MoveArgs) -> Result<(), RunError> {
    let runs_dir = args.runs_dir.clone();
    let runs_dir =
        runs_dir.unwrap_or_else(|| default_runs_dir(project_root(Path::new(".")).as_deref()));
    let root = find_run(&args.run, &runs_dir)?;
    let moved = relocate(&root, args.destination.profile.as_deref())?;
    cli::print(&text(&root, moved.as_ref()))
}

fn text(root: &Path, moved: Option<&Relocation>) -> String {
    let Some(Relocation { from, to, size }) = moved else {
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
