//! `pybench-query`: write tasks, and let people look at them.

use std::path::PathBuf;

use pybench::run::cli::{Process, RunArgs};
use pybench::run::{Mode, RunError};

use super::{preview, review};
use crate::status::print;

/// Write tasks for the crawled files of a run, from the task library or by models; take them out for
/// review and back
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "pybench-query", bin_name = "pybench-query", version)]
pub struct QueryArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunArgs,
    /// Write nothing: put the tasks of the run into FILE, a line each, to be accepted, changed or rejected
    #[arg(long, value_name = "FILE", conflicts_with_all = ["import", "preview", "dry_run"])]
    pub export: Option<PathBuf>,
    /// Take the decisions of FILE over into the run, and show what they change
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preview", "dry_run"])]
    pub import: Option<PathBuf>,
}

/// Does what the arguments ask for.
///
/// # Errors
/// Those of the stage; [`RunError::BadInput`] for a review that cannot be taken over.
pub async fn run(args: &QueryArgs, process: &Process) -> Result<(), RunError> {
    let context = args.run.open(process)?;
    if let Some(path) = &args.export {
        return print(&review::export(&context, path)?);
    }
    if let Some(path) = &args.import {
        return print(&review::import(&context, path)?);
    }
    super::run(&context).await?;
    if let Mode::Preview(count) = context.mode {
        print(&preview(context.folder.root(), count)?)?;
    }
    Ok(())
}
