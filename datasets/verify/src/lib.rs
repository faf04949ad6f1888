//! Verifies a dataset by re-executing its rows.
//!
//! Every row is checked against its stored hashes, and the splits are compared with each other. The selected rows are
//! re-executed: their replies are replayed through the agent loop in a new session with the recorded limits and seed.
//! This produces prompts, cells, observations, output files and check outcomes again, which are compared with the row
//! (`docs/proof.md`). Results are kept in a journal, so an interrupted command continues where it stopped.

mod files;
mod location;
mod replay;
mod report;
mod stage;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_checks::Checker;
use pybench_datasets::dataset::FILES_DIR;
use pybench_datasets::row_hashes::{self, DatasetDigest};
use pybench_datasets::split_check::{SplitCheck, SplitLeaks};
use pybench_datasets::{Row, RowFile, card, read};
use pybench_files::read_regular;
use pybench_interpreter::{InterpreterChoice, default_cache_dir};
use pybench_profile::PictureIndex;
use pybench_run::cli::{LogArgs, Process};
use pybench_run::{
    ContentStore, Executor, ExecutorOptions, LocalExecutor, RetryFailed, RunError, RunFolder,
};
use pybench_types::id::Digest;

use location::DatasetLocation;
pub use replay::{DiffReason, ReplayDiff};
pub use report::Report;
use stage::VerifyStage;

/// Rows in memory at a time.
const CHUNK: usize = 500;

/// Maximum size of a card, in bytes.
const MAX_CARD_BYTES: u64 = 16 << 20;

/// Maximum size of a picture that is compared with those of other splits, in bytes.
const MAX_PICTURE_BYTES: u64 = 64 << 20;

/// Verify a dataset: check the hashes of every row and the split, re-execute rows and compare the results
///
/// Rows are re-executed cell by cell in the Python environment of this machine. Observations, output files and check
/// outcomes are compared with the dataset. The result is written to the dataset's card and to proof.json.
#[derive(Clone, Debug, clap::Parser)]
pub struct VerifyArgs {
    /// Dataset: a folder with data/*.parquet or *.parquet, a run folder, the name of a run, a dataset on the Hub
    /// ([hf://datasets/]OWNER/NAME[@REVISION]), or a run or dataset in a bucket (s3://, gs://, az://)
    pub dataset: PathBuf,
    /// Share of rows to re-execute: 5%, 0.05 or all. The choice depends only on the digests of the rows
    #[arg(long, value_name = "SHARE", default_value = "all", value_parser = share)]
    pub sample: f64,
    /// Additional folder with input files, named by their BLAKE3; can be repeated. Those of a run or dataset in a bucket are found
    /// there
    #[arg(long, value_name = "DIR")]
    pub files: Vec<PathBuf>,
    /// Do not download anything, neither datasets from the Hub nor missing input files from their origins
    #[arg(long)]
    pub offline: bool,
    /// Folder for downloads, kept for later commands [default: the cache folder]
    #[arg(long, value_name = "DIR")]
    pub downloads: Option<PathBuf>,
    /// Do not write the result to the dataset's card and proof.json. Never written for copies of datasets from the Hub or a bucket
    #[arg(long)]
    pub no_stamp: bool,
    /// Ignore earlier results and re-execute all selected rows
    #[arg(long)]
    pub again: bool,
    /// Number of rows to execute in parallel [default: number of cores]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Folder for results, kept for later commands [default: the cache folder]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub log: LogArgs,
}

fn share(text: &str) -> Result<f64, String> {
    let parsed = match (text, text.strip_suffix('%')) {
        ("all", _) => Some(1.0),
        (_, Some(percent)) => percent.trim().parse().ok().map(|p: f64| p / 100.0),
        (plain, None) => plain.parse().ok(),
    };
    match parsed {
        Some(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("expected a share above 0 and at most 1, such as 5%, 0.05 or all".to_owned()),
    }
}

/// Result of reading all rows once.
struct DatasetScan {
    rows: usize,
    /// Digest of all rows.
    digest: Digest,
    /// Inconsistent rows: digest and problems.
    inconsistent: BTreeMap<Digest, Vec<String>>,
    /// Digests of the rows to re-execute.
    selected: Vec<Digest>,
    /// Included files whose contents do not match their names.
    changed_files: Vec<String>,
    /// What rows of different splits have in common.
    leaks: SplitLeaks,
}

/// Verify a dataset, print the report, and write the result to the card.
///
/// # Errors
/// [`RunError::Incomplete`] if a row was changed, the card states another digest, splits share a file, or rows could
/// not be executed; [`RunError::BadInput`] if there is no such dataset; [`RunError::Environment`] if there is no
/// interpreter.
pub async fn run(args: &VerifyArgs, process: &Process) -> Result<(), RunError> {
    let location = DatasetLocation::find(args, process).await?;
    let (folder, stores) = (location.folder.clone(), location.stores.clone());
    let share = args.sample;
    let scan = tokio::task::spawn_blocking(move || scan(&folder, &stores, share)).await;
    let scan = scan.map_err(|error| RunError::Internal(error.to_string()))??;
    let choice = InterpreterChoice::default();
    let interpreter = pybench_interpreter_containers::paced(&choice)
        .map_err(|error| RunError::Environment(error.to_string()))?;
    let checker = Checker::new(interpreter.clone())
        .map_err(|error| RunError::Environment(error.to_string()))?;
    let state = state(args, &scan, interpreter.environment(), &checker)?;
    let verifier = Arc::new(replay::Verifier {
        files: files::InputFiles::new(&state, &location, args)?,
        interpreter,
        checker,
        today: pybench_types::clock::now()[..10].to_owned(),
    });
    let results = re_execute(args, process, &location, &scan, &state, verifier).await?;
    let report = Report::new(args.sample, &scan, results, card_digest(&location.folder));
    if !args.no_stamp && !location.is_copy {
        report.stamp(&location.folder)?;
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_string(),
    };
    process.progress.suspend(|| {
        print!("{text}");
        if let (Some(commit), false) = (&location.hub_commit, args.json) {
            println!(
                "{} at {commit}, in {}",
                args.dataset.display(),
                location.folder.display()
            );
        }
    });
    report.result()
}

/// The run folder for results. It depends on the rows, the environment, the checker and this version.
fn state(
    args: &VerifyArgs,
    scan: &DatasetScan,
    environment: &str,
    checker: &Checker,
) -> Result<Arc<RunFolder>, RunError> {
    let version = env!("CARGO_PKG_VERSION");
    let key = Digest::of_json(&(&scan.digest, environment, checker.digest(), version));
    let root = match &args.state {
        Some(root) => root.clone(),
        None => default_cache_dir().join("verify").join(key.short()),
    };
    if args.again && root.join("journal.sqlite").exists() {
        // Opening takes the lock: this fails if another process uses the folder.
        drop(RunFolder::open(&root, &recipe(&key))?);
        std::fs::remove_dir_all(&root).map_err(RunError::io(root.display().to_string()))?;
    }
    Ok(Arc::new(RunFolder::open(&root, &recipe(&key))?))
}

fn recipe(key: &Digest) -> String {
    format!("verify = \"{key}\"\n")
}

/// Read every row once: check its hashes, compute the digest of all rows, compare the splits, and select rows to
/// re-execute. Pictures are compared if they are in `stores`.
fn scan(folder: &Path, stores: &[PathBuf], share: f64) -> Result<DatasetScan, RunError> {
    let stores = stores.iter().map(|root| store(root));
    let stores = stores.collect::<Result<Vec<_>, _>>()?;
    let read_file = |id: &Digest| {
        let read = |store: &ContentStore| read_regular(&store.path(id), MAX_PICTURE_BYTES).ok();
        let mut found = stores.iter().filter_map(read);
        found.find(|bytes| Digest::of_bytes(bytes) == *id)
    };
    let (mut split_check, mut index) = (
        SplitCheck::new().map_err(bad_input)?,
        PictureIndex::default(),
    );
    let (mut digest_of_all, mut rows) = (DatasetDigest::default(), 0);
    let (mut inconsistent, mut digests) = (BTreeMap::new(), Vec::new());
    for row in read::dataset(folder).map_err(bad_input)? {
        let (split, row) = row.map_err(bad_input)?;
        let digest = row_hashes::row_digest(&row);
        digest_of_all.add(&split, &digest);
        rows += 1;
        let problems = row_hashes::problems(&row);
        if !problems.is_empty() {
            inconsistent.insert(digest.clone(), problems);
        }
        let pictures = row.files.iter().map(RowFile::as_task_file);
        let pictures = pictures.filter_map(|file| index.key(&file, read_file));
        let added = split_check.add(&split, &row, &digest, pictures);
        added.map_err(bad_input)?;
        digests.push(digest);
    }
    digests.sort();
    digests.dedup();
    let count = (share * digests.len() as f64).ceil() as usize;
    digests.truncate(count.max(1));
    Ok(DatasetScan {
        changed_files: files::changed_files(&folder.join(FILES_DIR))?,
        rows,
        digest: digest_of_all.digest(),
        inconsistent,
        selected: digests,
        leaks: split_check.finish().map_err(bad_input)?,
    })
}

fn bad_input(error: pybench_datasets::DatasetError) -> RunError {
    RunError::BadInput(error.to_string())
}

fn card_digest(folder: &Path) -> Option<String> {
    card::digest(&read_card(folder)?).map(str::to_owned)
}

/// The text of the card; `None` if there is no readable one.
fn read_card(folder: &Path) -> Option<String> {
    let bytes = read_regular(&folder.join("README.md"), MAX_CARD_BYTES).ok()?;
    String::from_utf8(bytes).ok()
}

/// Re-execute the selected rows in chunks. Inconsistent rows are skipped.
async fn re_execute(
    args: &VerifyArgs,
    process: &Process,
    location: &DatasetLocation,
    scan: &DatasetScan,
    state: &Arc<RunFolder>,
    verifier: Arc<replay::Verifier>,
) -> Result<HashMap<Digest, Result<ReplayDiff, String>>, RunError> {
    let base = ExecutorOptions::default();
    let options = ExecutorOptions {
        concurrency: args.jobs.or(base.concurrency),
        retry_failed: RetryFailed::ExceptBadItems,
        ..base
    };
    let (progress, interrupt) = (process.progress.clone(), process.interrupt.clone());
    let executor = LocalExecutor::new(state.clone(), options, progress, interrupt);
    let mut remaining: std::collections::HashSet<&Digest> = scan
        .selected
        .iter()
        .filter(|digest| !scan.inconsistent.contains_key(digest))
        .collect();
    let mut chunk: HashMap<String, Row> = HashMap::new();
    let mut rows = read::dataset(&location.folder).map_err(bad_input)?;
    let mut items = Vec::new();
    loop {
        let next = rows.next().transpose().map_err(bad_input)?;
        let last = next.is_none();
        if let Some((_, row)) = next {
            let digest = row_hashes::row_digest(&row);
            if remaining.remove(&digest) {
                items.push(digest.to_string());
                chunk.insert(digest.to_string(), row);
            }
        }
        if chunk.len() >= CHUNK || (last && !chunk.is_empty()) {
            let stage = VerifyStage::new(std::mem::take(&mut chunk), verifier.clone());
            executor
                .run(Arc::new(stage), &std::mem::take(&mut items))
                .await?;
        }
        if last {
            break;
        }
    }
    stage::results(state, &scan.selected)
}

/// Open a content store for reading. A missing store is empty.
fn store(root: &Path) -> Result<ContentStore, RunError> {
    ContentStore::open(root)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_parsed_in_all_formats() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.25"), Ok(0.25));
        assert_eq!(share("all"), Ok(1.0));
        for wrong in ["0", "-1", "101%", "x", "", "NaN"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
