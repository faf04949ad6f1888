//! The command `pybench query`: writes tasks, and exports and imports human reviews of them.

use std::path::PathBuf;

use pybench_run::cli::{self, Process, RunArgs};
use pybench_run::{Mode, RunContext, RunError, keep_copies};

use super::{preview, review};
use pybench_run::cli::print;

pub const ABOUT: &str = "Write tasks for the crawled files of a run, from the task library or with models; \
                         export them for review and import the decisions";

/// Arguments of `pybench query`.
#[derive(Clone, Debug, clap::Parser)]
pub struct QueryArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// Do not write tasks: export the run's tasks to FILE (JSON Lines) for review
    #[arg(long, value_name = "FILE", conflicts_with_all = ["import", "preview", "dry_run"])]
    pub export: Option<PathBuf>,
    /// Import the reviewed FILE (decisions: accept, change, reject) and show what it changes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preview", "dry_run"])]
    pub import: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Errors of the stage; [`RunError::BadInput`] for a review that cannot be imported.
pub async fn run(args: &QueryArgs, process: &Process) -> Result<(), RunError> {
    let context = args.run.open(process)?;
    keep_copies(&context.folder, context.mode, run_in(args, &context)).await
}

async fn run_in(args: &QueryArgs, context: &RunContext) -> Result<(), RunError> {
    if let Some(path) = &args.export {
        return print(&review::export(context, path)?);
    }
    if let Some(path) = &args.import {
        return print(&review::import(context, path)?);
    }
    super::run(context).await?;
    if let Mode::Preview(count) = context.mode {
        print(&preview(context.folder.root(), count)?)?;
    }
    Ok(())
}

/// The entry point of the command.
pub fn main(args: QueryArgs) -> std::process::ExitCode {
    cli::main_with(args.run.log, |process| async move {
        Ok(run(&args, &process).await?)
    })
}
