//! The command `pybench dataset`: deduplication, decontamination, selection, and conversion to other schemas. Each
//! subcommand writes a new dataset or a report and does not change its input.

mod benchmark;
mod decontaminate;
mod dedup;
mod formats;
mod select;
mod table_cache;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pybench_datasets::card::CardInfo;
use pybench_datasets::decontaminate::FileSearch;
use pybench_datasets::rewrite::rewrite;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::{DatasetError, Row, card, read};
use pybench_run::RunError;
use pybench_run::cli::{LogArgs, Process};
use pybench_run::project::{default_runs_dir, find_run, project_root};

pub use benchmark::items;
pub use decontaminate::{Contamination, RowVerdict, search};
pub use table_cache::TableCache;

/// Deduplicate, decontaminate, select from, export and convert datasets
#[derive(Clone, Debug, clap::Parser)]
pub struct DatasetArgs {
    #[command(subcommand)]
    pub command: DatasetCommand,
    #[command(flatten)]
    pub log: LogArgs,
}

/// The subcommands of `pybench dataset`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum DatasetCommand {
    /// Remove near duplicates
    ///
    /// Of several rows with nearly the same query and code, the row with the fewest replies is kept; on a tie, the
    /// first one.
    Dedup(dedup::DedupArgs),
    /// Remove rows that contain tasks of benchmarks
    ///
    /// Rows are recognized by identical files, by tables, and by n-grams of query and answer. Without --against, they are
    /// compared with PyBench, WikiTableQuestions, InfiAgent DA-Dev, QRData, M3ToolEval, MINT, HumanEval,
    /// MBPP, GSM8K and MMLU.
    Decontaminate(decontaminate::DecontaminateArgs),
    /// Write hashes of a benchmark's tasks and files, against which others can compare without having them
    Fingerprint(decontaminate::FingerprintArgs),
    /// Select rows by a recipe: pass rate, best of each task, caps, licenses
    Select(select::SelectArgs),
    /// Write the conversations of a dataset in another schema, as JSON lines
    Export(formats::ExportArgs),
    /// Convert JSON lines from one schema to another
    Convert(formats::ConvertArgs),
}

impl DatasetCommand {
    /// The dataset that the command reads; `None` for commands that read other files.
    pub fn source_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Dedup(args) => Some(args.source_mut()),
            Self::Decontaminate(args) => Some(args.source_mut()),
            Self::Select(args) => Some(args.source_mut()),
            Self::Export(args) => Some(args.source_mut()),
            Self::Fingerprint(_) | Self::Convert(_) => None,
        }
    }

    /// Benchmarks and folders of files that the command reads beside the dataset.
    pub fn inputs_mut(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Self::Decontaminate(args) => args.inputs_mut().collect(),
            Self::Fingerprint(args) => vec![args.benchmark_mut()],
            Self::Dedup(_) | Self::Select(_) | Self::Export(_) | Self::Convert(_) => Vec::new(),
        }
    }
}

/// The dataset argument.
#[derive(Clone, Debug, clap::Args)]
pub struct FromArgs {
    /// Dataset: a folder with data/*.parquet or *.parquet, a run folder, the name of a run, or one of them on the Hub
    /// (hf://datasets/OWNER/NAME[@REVISION]) or in a bucket (s3://, gs://, az://)
    pub dataset: PathBuf,
}

/// Output arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct ToArgs {
    /// Folder for the new dataset. Without it nothing but the report is written
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// File for a detailed report, as JSON (select) or JSON lines
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl FromArgs {
    /// The folder with the shards.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is neither a dataset nor a run with this name.
    pub fn folder(&self) -> Result<PathBuf, RunError> {
        if read::shards(&self.dataset).is_ok() {
            return Ok(self.dataset.clone());
        }
        let root = project_root(Path::new("."));
        let run = find_run(&self.dataset, &default_runs_dir(root.as_deref()));
        let run = run.map_err(|error| {
            let name = self.dataset.display();
            RunError::BadInput(format!(
                "{name}: neither a dataset (a folder with data/*.parquet or *.parquet) nor a run: {error}"
            ))
        })?;
        Ok(run.join("dataset"))
    }
}

impl ToArgs {
    /// Check that the output is not the input.
    fn check_differs_from(&self, from: &Path) -> Result<(), RunError> {
        let same = |out: &PathBuf| match (out.canonicalize(), from.canonicalize()) {
            (Ok(out), Ok(from)) => out == from,
            _ => false,
        };
        match self.out.as_ref().filter(|out| same(out)) {
            None => Ok(()),
            Some(out) => Err(RunError::BadInput(format!(
                "--out {} is the input dataset; choose another folder",
                out.display()
            ))),
        }
    }
}

/// Run the command and print its summary.
///
/// # Errors
/// [`RunError::BadInput`] for an invalid dataset, recipe or benchmark; I/O errors.
pub async fn run(args: DatasetArgs, process: &Process) -> Result<(), RunError> {
    let work = move || match args.command {
        DatasetCommand::Dedup(args) => dedup::run(&args),
        DatasetCommand::Decontaminate(args) => decontaminate::run(&args),
        DatasetCommand::Fingerprint(args) => decontaminate::fingerprint(&args),
        DatasetCommand::Select(args) => select::run(&args),
        DatasetCommand::Export(args) => formats::export(&args),
        DatasetCommand::Convert(args) => formats::convert(&args),
    };
    let text = tokio::task::spawn_blocking(work).await;
    let text = text.map_err(|error| RunError::Internal(error.to_string()))??;
    process.progress.suspend(|| print!("{text}"));
    Ok(())
}

/// Convert the error for the command line.
pub fn to_run_error(error: DatasetError) -> RunError {
    match error {
        DatasetError::Io { context, source } => RunError::Io { context, source },
        other => RunError::BadInput(other.to_string()),
    }
}

/// Card information for a dataset derived from `from` by `command`.
fn derived_card(from: &Path, command: &str, read: usize, kept: usize) -> CardInfo {
    let card = std::fs::read_to_string(from.join("README.md")).unwrap_or_default();
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    let source = match card::digest(&card) {
        Some(digest) => format!("{name} ({digest})"),
        None => name.into_owned(),
    };
    let teacher = card.split_once("**Teacher: ");
    let teacher = teacher.and_then(|(_, rest)| rest.split(".**").next());
    CardInfo {
        title: card::title(&card).unwrap_or("pybench dataset").to_owned(),
        teacher: teacher
            .unwrap_or("see the column teacher")
            .trim_matches('`')
            .to_owned(),
        endpoint_command: String::new(),
        recipe: format!("# From {source}\n{command}\n"),
        funnel: vec![
            ("rows read".into(), read as u64),
            ("rows kept".into(), kept as u64),
        ],
        ..CardInfo::default()
    }
}

/// Writes the rows of a dataset for which `keep(number, row)` holds, with this card, and returns a line with the folder and
/// its digest.
fn copy_rows(
    from: &Path,
    to: &Path,
    info: &CardInfo,
    keep: impl Fn(usize, &Row) -> bool,
) -> Result<String, RunError> {
    let (settings, files) = (ShardSettings::default(), file_search(from)?);
    let written = rewrite(from, to, keep, &settings, info, &files).map_err(to_run_error)?;
    Ok(format!("{}: {}\n", to.display(), written.digest))
}

/// Writes a copy of a dataset with `rows` rows without those in `left_out`, which are numbered from 0, and returns a line with
/// the folder and its digest. The card of the copy names the command that made it.
///
/// # Errors
/// Invalid shards; errors of the disk.
pub fn without_rows(
    from: &Path,
    to: &Path,
    command: &str,
    (rows, left_out): (usize, &HashSet<usize>),
) -> Result<String, RunError> {
    let info = derived_card(from, command, rows, rows - left_out.len());
    copy_rows(from, to, &info, |row, _| !left_out.contains(&row))
}

/// Compares the input files of a dataset with the known benchmarks.
///
/// # Errors
/// The folder of the files cannot be opened.
pub fn file_search(dataset: &Path) -> Result<FileSearch, RunError> {
    FileSearch::of_dataset(dataset, pybench_profile::content)
}

/// Write a report to a file.
fn write_report(path: &Path, text: &str) -> Result<(), RunError> {
    pybench_run::write_output(path, text.as_bytes())
}
