//! What is done with a whole dataset: near duplicates, contamination by a benchmark, selection, and
//! other schemas. Each makes a new dataset or a report; none changes what it reads.

mod benchmark;
mod decontaminate;
mod dedup;
mod exchange;
mod select;

use std::path::{Path, PathBuf};

use pybench::run::RunError;
use pybench::run::cli::{LogArgs, Process};
use pybench::run::project::{default_runs_dir, find_run, project_root};
use pybench_datasets::card::About;
use pybench_datasets::{DatasetError, card, read};

pub use benchmark::items;
pub use decontaminate::{Contamination, Verdict, search};

/// Work on whole datasets.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "pybench-dataset", bin_name = "pybench-dataset", version)]
pub struct DatasetArgs {
    /// What.
    #[command(subcommand)]
    pub what: What,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What is done.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum What {
    /// Leave near duplicates out
    Dedup(dedup::DedupArgs),
    /// Leave out what is a task of a benchmark
    Decontaminate(decontaminate::DecontaminateArgs),
    /// Take rows by a recipe: pass rates, best of k, caps, licences
    Select(select::SelectArgs),
    /// Write conversations in another schema
    Export(exchange::ExportArgs),
    /// Read conversations of another schema, and write them in a third
    Convert(exchange::ConvertArgs),
}

/// A dataset: a folder with data/*.parquet, a folder of shards, a run folder, or the name of a run.
#[derive(Clone, Debug, clap::Args)]
pub struct FromArgs {
    /// Dataset: a folder with data/*.parquet, a run folder, or the name of a run
    pub dataset: PathBuf,
}

/// Where a new dataset goes.
#[derive(Clone, Debug, clap::Args)]
pub struct ToArgs {
    /// Folder of the new dataset; without it only the report is made
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// File for the report, as JSON lines or JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl FromArgs {
    /// The folder with the shards.
    pub(crate) fn folder(&self) -> Result<PathBuf, RunError> {
        if read::shards(&self.dataset).is_ok() {
            return Ok(self.dataset.clone());
        }
        let root = project_root(Path::new("."));
        let run = find_run(&self.dataset, &default_runs_dir(root.as_deref()));
        let run = run.map_err(|error| {
            let asked = self.dataset.display();
            RunError::BadInput(format!(
                "{asked}: neither a dataset (a folder with data/*.parquet or *.parquet) nor a run: {error}"
            ))
        })?;
        Ok(run.join("dataset"))
    }
}

impl ToArgs {
    /// That the new dataset is not the old one.
    fn apart_from(&self, from: &Path) -> Result<(), RunError> {
        let same = |out: &PathBuf| match (out.canonicalize(), from.canonicalize()) {
            (Ok(out), Ok(from)) => out == from,
            _ => false,
        };
        match self.out.as_ref().filter(|out| same(out)) {
            None => Ok(()),
            Some(out) => Err(RunError::BadInput(format!(
                "--out {} is the dataset itself; name another folder",
                out.display()
            ))),
        }
    }
}

/// Do it.
///
/// # Errors
/// [`RunError::BadInput`] for what is no dataset, recipe or benchmark; failures of the disk.
pub async fn run(args: DatasetArgs, process: &Process) -> Result<(), RunError> {
    let work = move || match args.what {
        What::Dedup(args) => dedup::run(&args),
        What::Decontaminate(args) => decontaminate::run(&args),
        What::Select(args) => select::run(&args),
        What::Export(args) => exchange::export(&args),
        What::Convert(args) => exchange::convert(&args),
    };
    let text = tokio::task::spawn_blocking(work).await;
    let text = text.map_err(|error| RunError::Internal(error.to_string()))??;
    process.progress.suspend(|| print!("{text}"));
    Ok(())
}

/// As programs tell it.
pub(crate) fn bad(error: DatasetError) -> RunError {
    match error {
        DatasetError::Io { context, source } => RunError::Io { context, source },
        other => RunError::BadInput(other.to_string()),
    }
}

/// What the card of a dataset says that was made from another: where it is from, and by what.
fn about(from: &Path, command: &str, read: usize, kept: usize) -> About {
    let card = std::fs::read_to_string(from.join("README.md")).unwrap_or_default();
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    let source = match card::digest(&card) {
        Some(digest) => format!("{name} ({digest})"),
        None => name.into_owned(),
    };
    let teacher = card.split_once("**Teacher: ");
    let teacher = teacher.and_then(|(_, rest)| rest.split(".**").next());
    About {
        title: card::title(&card).unwrap_or("pybench dataset").to_owned(),
        teacher: teacher
            .unwrap_or("as its rows say")
            .trim_matches('`')
            .to_owned(),
        endpoint_command: String::new(),
        recipe: format!("# From {source}\n{command}\n"),
        funnel: vec![
            ("rows read".into(), read as u64),
            ("rows kept".into(), kept as u64),
        ],
        rejected: Vec::new(),
        faults: String::new(),
    }
}

/// Write a report, whole.
fn put(path: &Path, text: &str) -> Result<(), RunError> {
    std::fs::write(path, text).map_err(RunError::io(path.display().to_string()))
}
