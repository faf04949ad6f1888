//! Show: one trajectory as a person reads it, in the terminal or as a notebook.

mod find;
mod render;

use std::path::{Path, PathBuf};

use pybench::agent::{convert, format_named};
use pybench::run::cli::LogArgs;
use pybench::run::project::{default_runs_dir, project_root};
use pybench::run::{ContentStore, FormatChoice, RunError};
use pybench::task::Task;
use pybench::trajectory::{Message, Trajectory};
use serde_json::json;

use crate::notebook::Notebook;
use crate::status::print;
pub use find::{Found, Shelf};
pub(crate) use render::{Look, render};

/// Show a trajectory: of a run, or a row of a dataset; without WHICH, list what there is.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "pybench-show", bin_name = "pybench-show", version)]
pub struct ShowArgs {
    /// A run (name or folder), a dataset's folder, or a .parquet, .jsonl or .json file
    pub place: PathBuf,
    /// The beginning of an id, or a row number from 1
    pub which: Option<String>,
    /// Show it in another message format
    #[arg(long, value_name = "FORMAT", value_parser = ["pybench", "codeact", "tools"])]
    pub format: Option<String>,
    /// Show the system prompt too
    #[arg(long)]
    pub system: bool,
    /// Write it there as notebook.ipynb, with the task's files in data/; without WHICH, a folder for each
    #[arg(long, value_name = "FOLDER")]
    pub notebook: Option<PathBuf>,
    /// Where run folders lie [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Shows, lists or exports.
///
/// # Errors
/// [`RunError::BadInput`] where there is no such place or trajectory, where a prefix means several, and
/// where the other format cannot say what is to be shown.
pub fn run(args: &ShowArgs) -> Result<(), RunError> {
    let root = project_root(Path::new("."));
    let runs_dir = args.runs_dir.clone();
    let runs_dir = runs_dir.unwrap_or_else(|| default_runs_dir(root.as_deref()));
    let shelf = Shelf::open(&args.place, &runs_dir)?;
    match (&args.which, &args.notebook) {
        (None, None) => print(&shelf.list()?),
        (None, Some(folder)) => {
            let mut written = 0_usize;
            shelf.each(&mut |found| {
                written += 1;
                let name = found.name();
                export(&found, &shelf, &folder.join(name)).map(|_| ())
            })?;
            print(&format!(
                "{written} notebooks in {}\n{HASH_SEED}",
                folder.display()
            ))
        }
        (Some(which), Some(folder)) => {
            let path = export(&shelf.find(which)?, &shelf, folder)?;
            print(&format!("{}\n{HASH_SEED}", path.display()))
        }
        (Some(which), None) => show(&shelf.find(which)?, args),
    }
}

/// Sessions fix it, and a notebook cannot.
const HASH_SEED: &str = "start Jupyter in that folder with PYTHONHASHSEED=0, as sessions have it: sets of texts print in the same order then\n";

fn show(found: &Found, args: &ShowArgs) -> Result<(), RunError> {
    let look = Look {
        system: args.system,
        colour: std::io::IsTerminal::is_terminal(&std::io::stdout()),
        most: usize::MAX,
    };
    let messages = match &args.format {
        None => found.messages().to_vec(),
        Some(name) => in_format(found, name)?,
    };
    print(&render(&found.head(), &messages, &found.tail(), &look))
}

fn in_format(found: &Found, name: &str) -> Result<Vec<Message>, RunError> {
    let format = |name: &str| {
        format_named(name)
            .ok_or_else(|| RunError::BadInput(format!("no format is called `{name}`")))
    };
    let converted = convert(found.messages(), format(&found.format())?, format(name)?);
    let converted = converted.map_err(|error| RunError::BadInput(error.to_string()))?;
    for (message, what) in &converted.reworded {
        tracing::warn!("message {message}: {what} in other words than the format writes it");
    }
    Ok(converted.messages)
}

/// Writes `notebook.ipynb` and the inputs it needs; returns its path.
///
/// # Errors
/// What cannot be read or written.
pub fn export(found: &Found, shelf: &Shelf, folder: &Path) -> Result<PathBuf, RunError> {
    let book = match found {
        Found::Trajectory {
            trajectory, task, ..
        } => {
            if let (Some(task), Some(store)) = (task, shelf.store()) {
                lay_out(task, &store, folder)?;
            }
            Notebook::runnable(trajectory).end(about(trajectory))
        }
        Found::Row { sample } => {
            let format = format_named(sample.format())
                .unwrap_or(pybench::agent::format(FormatChoice::Pybench));
            let book = Notebook::of_messages(&sample.messages, format);
            let book =
                book.map_err(|error| RunError::BadInput(format!("{}: {error}", sample.place)))?;
            book.end(json!({"place": sample.place, "trajectory": sample.id()}))
        }
    };
    make(&folder.join("output"))?;
    let path = folder.join("notebook.ipynb");
    put(&path, format!("{book:#}\n").as_bytes())?;
    Ok(path)
}

fn about(trajectory: &Trajectory) -> serde_json::Value {
    json!({
        "trajectory": trajectory.id, "task": trajectory.task, "teacher": trajectory.teacher,
        "format": trajectory.format, "seed": trajectory.seed, "environment": trajectory.environment,
        "hash_seed": 0,
    })
}

fn lay_out(task: &Task, store: &ContentStore, folder: &Path) -> Result<(), RunError> {
    let data = folder.join("data");
    make(&data)?;
    for file in &task.files {
        // A name of the run folder: `crawl` made it safe, and this does not rely on that.
        let name = Path::new(&file.name).file_name().unwrap_or_default();
        put(&data.join(name), &store.get(&file.id)?)?;
    }
    Ok(())
}

fn make(folder: &Path) -> Result<(), RunError> {
    std::fs::create_dir_all(folder).map_err(RunError::io(folder.display().to_string()))
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    std::fs::write(path, bytes).map_err(RunError::io(path.display().to_string()))
}
