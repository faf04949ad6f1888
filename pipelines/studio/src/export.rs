//! A site for a static host: the leaderboards, a page for each task of the evaluations, and chosen trajectories.
//!
//! The pages are made here and have no scripts, so that the site needs neither the app nor a server, and the same data give the
//! same bytes. Whatever comes from models or files is escaped and scrubbed like the rows of a dataset.

mod choice;
mod content;
mod index_page;
mod site;
mod task_pages;
mod trajectory_page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pybench_run::{NewFolder, RunError};
use pybench_types::text::count;

use crate::results::results_now;
use crate::sources::Sources;
use choice::Choice;
use site::{CONTENTS, Site};

/// Write leaderboards, task pages and chosen trajectories as a site for a static host
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    /// Evaluation (name or folder) [default: all evaluations]
    #[arg(value_name = "WHAT")]
    pub what: Option<PathBuf>,
    /// Folder for the site; an earlier export in it is replaced
    #[arg(long = "static", value_name = "DIR")]
    pub out: PathBuf,
    /// Trajectories of the site: NAME/NUMBER, or NAME?FILTERS as in the address of a list; may be repeated
    #[arg(long, value_name = "NAME/NUMBER")]
    pub trajectories: Vec<String>,
    /// Directory with the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
}

/// Numbers of the chosen trajectories, by name of their run or dataset.
type Chosen = BTreeMap<String, BTreeSet<u64>>;

/// Writes the site; returns what to print.
///
/// # Errors
/// [`RunError::BadInput`] if a choice is none, or the folder has something else; the data cannot be read, or the site cannot be
/// written.
pub(crate) fn run(args: &ExportArgs, sources: &Sources) -> Result<String, RunError> {
    check_replaceable(&args.out)?;
    let mut chosen = Chosen::new();
    for text in &args.trajectories {
        let choice = Choice::parse(text)?;
        let numbers = choice.numbers(sources)?;
        chosen.entry(choice.name).or_default().extend(numbers);
    }
    let io = |error| RunError::io(args.out.display().to_string())(error);
    // `.` has no folder above it.
    let out = std::path::absolute(&args.out).map_err(io)?;
    let folder = NewFolder::new(&out).map_err(io)?;
    let mut site = Site::new(folder.path())?;
    let tasks = task_pages::write(&mut site, sources, &chosen)?;
    let trajectories = trajectory_page::write_all(&mut site, sources, &chosen)?;
    let results = results_now(sources);
    for problem in &results.problems {
        tracing::warn!("{problem}; this evaluation is not part of the site");
    }
    index_page::write(&mut site, &results, &tasks, &trajectories)?;
    let scrubbed = site.finish(&results)?;
    let _lock = lock_beside(&out);
    if out.exists() {
        fs::remove_dir_all(&out).map_err(io)?;
    }
    folder.finish().map_err(io)?;
    Ok(format!(
        "{}: {} leaderboards, {} task pages, {} trajectories{scrubbed}\n",
        args.out.join("index.html").display(),
        results.leaderboards.len(),
        count(tasks.len() as u64),
        count(trajectories.len() as u64),
    ))
}

/// Waits until no other export replaces a folder beside this one; `None` where the file system has no locks.
fn lock_beside(out: &Path) -> Option<File> {
    let parent = File::open(out.parent()?).ok()?;
    parent.lock().ok()?;
    Some(parent)
}

/// Fails unless `out` is missing, empty or an earlier export.
fn check_replaceable(out: &Path) -> Result<(), RunError> {
    let mut entries = match fs::read_dir(out) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(RunError::io(out.display().to_string())(error)),
    };
    match entries.next().is_none() || out.join(CONTENTS).is_file() {
        true => Ok(()),
        false => Err(RunError::BadInput(format!(
            "--static {}: the folder is not empty and is no export of the studio (it has no {CONTENTS}); give another folder",
            out.display()
        ))),
    }
}

#[cfg(test)]
mod tests;
