//! The command `pybench show`: shows a trajectory in the terminal or exports it as a notebook.

mod find;
mod render;

use std::path::{Path, PathBuf};

use pybench_agent::{convert, format_named};
use pybench_run::cli::LogArgs;
use pybench_run::project::{bucket_address, default_runs_dir, project_root};
use pybench_run::{ContentStore, FormatChoice, RunError, files_at};
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Trajectory};
use serde_json::json;

pub use find::{TrajectoryRecord, TrajectorySource, query};
use pybench_agent::notebook::Notebook;
use pybench_run::cli::print;
pub use render::{RenderOptions, render};

/// Show a trajectory of a run, dataset or log of inspect_ai, or export it as a notebook; without WHICH, list all
#[derive(Clone, Debug, clap::Parser)]
pub struct ShowArgs {
    /// Run (name or folder), dataset (folder, .parquet, .jsonl or .json file), or log of inspect_ai (.eval or .json file, or a
    /// folder of them)
    pub source: PathBuf,
    /// Row number from 1, or a trajectory id or its first eight characters or more
    pub which: Option<String>,
    /// Convert the messages to another message format
    #[arg(long, value_name = "FORMAT", value_parser = ["pybench", "pybench_short", "codeact", "tools", "code_interpreter"])]
    pub format: Option<String>,
    /// Also show the system prompt
    #[arg(long)]
    pub system: bool,
    /// Write FOLDER/notebook.ipynb, with the task's files in FOLDER/data; without WHICH, one subfolder each
    #[arg(long, value_name = "FOLDER")]
    pub notebook: Option<PathBuf>,
    /// Directory with the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Maximum size of an input file that is read from a bucket, in bytes.
const MAX_INPUT_BYTES: u64 = 1 << 30;

/// Runs the command. `asked` is the source as it was typed: where it is an address in a bucket, `args` has the copy.
///
/// # Errors
/// [`RunError::BadInput`] if the source or trajectory does not exist, a prefix is ambiguous, or the messages
/// cannot be converted to the format.
pub fn run(args: &ShowArgs, asked: &Path) -> Result<(), RunError> {
    let root = project_root(Path::new("."));
    let runs_dir = args.runs_dir.clone();
    let runs_dir = runs_dir.unwrap_or_else(|| default_runs_dir(root.as_deref()));
    let source = TrajectorySource::open(&args.source, &runs_dir)?;
    match (&args.which, &args.notebook) {
        (None, None) => print(&source.list()?),
        (None, Some(folder)) => {
            let (inputs, mut written) = (inputs(&source, asked, &runs_dir)?, 0_usize);
            source.each(&mut |record| {
                written += 1;
                let name = record.name();
                export(&record, inputs.as_ref(), &folder.join(name)).map(|_| ())
            })?;
            print(&format!(
                "{written} notebooks in {}\n{HASH_SEED}",
                folder.display()
            ))
        }
        (Some(which), Some(folder)) => {
            let inputs = inputs(&source, asked, &runs_dir)?;
            let path = export(&source.find(which)?, inputs.as_ref(), folder)?;
            print(&format!("{}\n{HASH_SEED}", path.display()))
        }
        (Some(which), None) => show(&source.find(which)?, args),
    }
}

/// The input files of the tasks of a run: those in its folder, and those in its bucket if the folder is a copy from there.
fn inputs(
    source: &TrajectorySource,
    asked: &Path,
    runs_dir: &Path,
) -> Result<Option<ContentStore>, RunError> {
    let Some(store) = source.store() else {
        return Ok(None);
    };
    let remote = match bucket_address(asked, runs_dir) {
        Some(address) => files_at(&address)?,
        None => None,
    };
    Ok(Some(store.with_remote(remote)))
}

/// Sessions set PYTHONHASHSEED; a notebook cannot set it for its own process.
const HASH_SEED: &str = "start Jupyter in that folder with PYTHONHASHSEED=0, so that sets of strings print in the same order as in the session\n";

fn show(record: &TrajectoryRecord, args: &ShowArgs) -> Result<(), RunError> {
    let options = RenderOptions {
        system: args.system,
        color: std::io::IsTerminal::is_terminal(&std::io::stdout()),
        max_chars: usize::MAX,
    };
    let messages = match &args.format {
        None => record.messages().to_vec(),
        Some(name) => in_format(record, name)?,
    };
    print(&render(&record.head(), &messages, &record.tail(), &options))
}

fn in_format(record: &TrajectoryRecord, name: &str) -> Result<Vec<Message>, RunError> {
    let format = |name: &str| {
        format_named(name)
            .ok_or_else(|| RunError::BadInput(format!("unknown message format `{name}`")))
    };
    let converted = convert(record.messages(), format(&record.format())?, format(name)?);
    let converted = converted.map_err(|error| RunError::BadInput(error.to_string()))?;
    for (message, what) in &converted.reworded {
        tracing::warn!("message {message}: {what} is worded differently than in this format");
    }
    Ok(converted.messages)
}

/// Writes `notebook.ipynb` and the input files of the task, which are in `inputs`, to `folder`; returns the path of the notebook.
///
/// # Errors
/// A file cannot be read or written.
pub fn export(
    record: &TrajectoryRecord,
    inputs: Option<&ContentStore>,
    folder: &Path,
) -> Result<PathBuf, RunError> {
    let book = match record {
        TrajectoryRecord::Trajectory {
            trajectory, task, ..
        } => {
            if let (Some(task), Some(store)) = (task, inputs) {
                write_inputs(task, store, folder)?;
            }
            Notebook::runnable(trajectory).end(about(trajectory))
        }
        TrajectoryRecord::Row { sample } => {
            let format = format_named(sample.format())
                .unwrap_or(pybench_agent::format(FormatChoice::Pybench));
            let book = Notebook::of_messages(&sample.messages, format);
            let book =
                book.map_err(|error| RunError::BadInput(format!("{}: {error}", sample.location)))?;
            book.end(json!({"place": sample.location, "trajectory": sample.id()}))
        }
        TrajectoryRecord::Log {
            sample, messages, ..
        } => {
            let book = Notebook::of_messages(messages, pybench_agent::format(FormatChoice::Tools));
            let name = sample.name();
            let book = book.map_err(|error| RunError::BadInput(format!("{name}: {error}")))?;
            book.end(json!({"place": name, "trajectory": sample.uuid}))
        }
    };
    create_dir(&folder.join("output"))?;
    let path = folder.join("notebook.ipynb");
    write_file(&path, format!("{book:#}\n").as_bytes())?;
    Ok(path)
}

fn about(trajectory: &Trajectory) -> serde_json::Value {
    json!({
        "trajectory": trajectory.id, "task": trajectory.task, "teacher": trajectory.teacher,
        "format": trajectory.format, "seed": trajectory.seed, "environment": trajectory.environment,
        "hash_seed": 0,
    })
}

fn write_inputs(task: &Task, store: &ContentStore, folder: &Path) -> Result<(), RunError> {
    let data = folder.join("data");
    create_dir(&data)?;
    for file in &task.files {
        // `crawl` sanitized the name, but do not rely on that.
        let name = Path::new(&file.name).file_name().unwrap_or_default();
        store.fetch_remote(&file.id, MAX_INPUT_BYTES)?;
        write_file(&data.join(name), &store.get(&file.id)?)?;
    }
    Ok(())
}

fn create_dir(folder: &Path) -> Result<(), RunError> {
    std::fs::create_dir_all(folder).map_err(RunError::io(folder.display().to_string()))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    pybench_run::write_output(path, bytes)
}
