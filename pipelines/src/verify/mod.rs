//! Verify: whether the rows of a dataset are what they say.
//!
//! Every row is checked against its own hashes. Those asked for are run again: their replies are
//! replayed through the agent's own loop into a fresh session of the recorded bounds and seed, so that
//! prompts, cells, observations, output files and checks all come about anew; then they are compared
//! (`docs/proof.md`). Works are units in a journal of their own: a repeated command goes on.

mod again;
mod files;
mod place;
mod report;
mod stage;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench::grade::Checker;
use pybench::id::Digest;
use pybench::run::cli::{LogArgs, Process};
use pybench::run::{
    ContentStore, Executor, ExecutorOptions, InterpreterChoice, LocalExecutor, RetryFailed,
    RunError, RunFolder, default_cache_dir,
};
use pybench_datasets::dataset::FILES;
use pybench_datasets::proof::{self, Root};
use pybench_datasets::{Row, card, read};

pub use again::{Findings, Reason};
use place::Place;
pub use report::Report;
use stage::VerifyStage;

/// Rows held at a time.
const CHUNK: usize = 500;

/// Check a dataset against itself: hashes of every row, and a sample of rows run again, cell by cell,
/// in the environment that is here; observations, output files and checks are compared.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "pybench-verify", bin_name = "pybench-verify", version)]
pub struct VerifyArgs {
    /// Dataset: a folder with data/*.parquet, a folder of shards, a run folder, the name of a run, or one of the
    /// Hub, [hf://datasets/]OWNER/NAME[@REVISION]
    pub dataset: PathBuf,
    /// Share of the rows to run again, chosen by their digests: 5%, 0.05 or all
    #[arg(long, value_name = "SHARE", default_value = "all", value_parser = share)]
    pub sample: f64,
    /// More folders with files under their BLAKE3; may be given several times
    #[arg(long, value_name = "DIR")]
    pub files: Vec<PathBuf>,
    /// Fetch nothing: neither a dataset of the Hub, nor files that are nowhere on this machine from their origins
    #[arg(long)]
    pub offline: bool,
    /// Where downloads are kept between commands [default: the cache]
    #[arg(long, value_name = "DIR")]
    pub downloads: Option<PathBuf>,
    /// Do not write the result into the dataset's card and its proof.json; datasets of the Hub never get it
    #[arg(long)]
    pub no_stamp: bool,
    /// Forget earlier results, and run every row again
    #[arg(long)]
    pub again: bool,
    /// Rows at a time [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Where results are kept between commands [default: the cache]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Logging.
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
        _ => Err("expected a share above 0 up to 1, such as 5%, 0.05 or all".to_owned()),
    }
}

/// What a first look at all rows found.
struct Survey {
    /// Rows.
    rows: usize,
    /// Digest of all of them.
    digest: Digest,
    /// What is wrong with rows by themselves, by digest.
    flawed: BTreeMap<Digest, Vec<String>>,
    /// The rows to run again.
    chosen: Vec<Digest>,
    /// Carried files whose bytes are not those of their names.
    changed_files: Vec<String>,
}

/// Verify a dataset, print what came of it, and stamp it into the card.
///
/// # Errors
/// [`RunError::Incomplete`] when a row is not as it was written, the card names another digest, or rows
/// could not be run; [`RunError::BadInput`] for what is no dataset; [`RunError::Environment`] when there
/// is no interpreter.
pub async fn run(args: &VerifyArgs, process: &Process) -> Result<(), RunError> {
    let place = Place::find(args, process).await?;
    let folder = place.folder.clone();
    let share = args.sample;
    let survey = tokio::task::spawn_blocking(move || survey(&folder, share)).await;
    let survey = survey.map_err(|error| RunError::Internal(error.to_string()))??;
    let choice = InterpreterChoice::default();
    let interpreter = pybench::interpreter::interpreter(&choice)
        .map_err(|error| RunError::Environment(error.to_string()))?;
    let checker = Checker::new(interpreter.clone())
        .map_err(|error| RunError::Environment(error.to_string()))?;
    let state = state(args, &survey, interpreter.environment(), &checker)?;
    let work = Arc::new(again::Verifier {
        files: files::Files::new(&state, &place.stores, args)?,
        interpreter,
        checker,
        today: crate::crawl::clock::now()[..10].to_owned(),
    });
    let results = examine(args, process, &place, &survey, &state, work).await?;
    let report = Report::new(args.sample, &survey, results, card_digest(&place.folder));
    if !args.no_stamp && place.of_hub.is_none() {
        report.stamp(&place.folder)?;
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_string(),
    };
    process.progress.suspend(|| {
        print!("{text}");
        if let (Some(commit), false) = (&place.of_hub, args.json) {
            println!(
                "{} at {commit}, in {}",
                args.dataset.display(),
                place.folder.display()
            );
        }
    });
    report.judge()
}

/// Where results are kept: of these rows, in this environment, by this checker and this version.
fn state(
    args: &VerifyArgs,
    survey: &Survey,
    environment: &str,
    checker: &Checker,
) -> Result<Arc<RunFolder>, RunError> {
    let version = env!("CARGO_PKG_VERSION");
    let key = Digest::of_json(&(&survey.digest, environment, checker.digest(), version));
    let root = match &args.state {
        Some(root) => root.clone(),
        None => default_cache_dir().join("verify").join(key.short()),
    };
    if args.again && root.join("journal.sqlite").exists() {
        // A lock says that nobody is at work there.
        drop(RunFolder::open(&root, &recipe(&key))?);
        std::fs::remove_dir_all(&root).map_err(RunError::io(root.display().to_string()))?;
    }
    Ok(Arc::new(RunFolder::open(&root, &recipe(&key))?))
}

fn recipe(key: &Digest) -> String {
    format!("verify = \"{key}\"\n")
}

/// Look at every row once: hashes, the digest of all, and which are to be run again.
fn survey(folder: &Path, share: f64) -> Result<Survey, RunError> {
    let (mut root, mut rows) = (Root::default(), 0);
    let (mut flawed, mut digests) = (BTreeMap::new(), Vec::new());
    for row in read::dataset(folder).map_err(bad)? {
        let (split, row) = row.map_err(bad)?;
        let digest = proof::row_digest(&row);
        root.add(&split, &digest);
        rows += 1;
        let flaws = proof::flaws(&row);
        if !flaws.is_empty() {
            flawed.insert(digest.clone(), flaws);
        }
        digests.push(digest);
    }
    digests.sort();
    digests.dedup();
    let count = (share * digests.len() as f64).ceil() as usize;
    digests.truncate(count.max(1));
    Ok(Survey {
        changed_files: files::changed(&folder.join(FILES))?,
        rows,
        digest: root.digest(),
        flawed,
        chosen: digests,
    })
}

fn bad(error: pybench_datasets::DatasetError) -> RunError {
    RunError::BadInput(error.to_string())
}

fn card_digest(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.join("README.md")).ok()?;
    card::digest(&text).map(str::to_owned)
}

/// Run the chosen rows again, a chunk at a time; those with flaws need not be.
async fn examine(
    args: &VerifyArgs,
    process: &Process,
    place: &Place,
    survey: &Survey,
    state: &Arc<RunFolder>,
    work: Arc<again::Verifier>,
) -> Result<HashMap<Digest, Result<Findings, String>>, RunError> {
    let base = ExecutorOptions::default();
    let options = ExecutorOptions {
        concurrency: args.jobs.unwrap_or(base.concurrency).max(1),
        retry_failed: RetryFailed::Ours,
        ..base
    };
    let (progress, interrupt) = (process.progress.clone(), process.interrupt.clone());
    let executor = LocalExecutor::new(state.clone(), options, progress, interrupt);
    let mut wanted: std::collections::HashSet<&Digest> = survey
        .chosen
        .iter()
        .filter(|digest| !survey.flawed.contains_key(digest))
        .collect();
    let mut chunk: HashMap<String, Row> = HashMap::new();
    let mut rows = read::dataset(&place.folder).map_err(bad)?;
    let mut items = Vec::new();
    loop {
        let next = rows.next().transpose().map_err(bad)?;
        let last = next.is_none();
        if let Some((_, row)) = next {
            let digest = proof::row_digest(&row);
            if wanted.remove(&digest) {
                items.push(digest.to_string());
                chunk.insert(digest.to_string(), row);
            }
        }
        if chunk.len() >= CHUNK || (last && !chunk.is_empty()) {
            let stage = VerifyStage::new(std::mem::take(&mut chunk), work.clone());
            executor
                .run(Arc::new(stage), &std::mem::take(&mut items))
                .await?;
        }
        if last {
            break;
        }
    }
    stage::results(state, &survey.chosen)
}

/// A content store for reading; one that is not there is empty.
fn store(root: &Path) -> Result<ContentStore, RunError> {
    ContentStore::open(root)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_read_in_every_usual_form() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.25"), Ok(0.25));
        assert_eq!(share("all"), Ok(1.0));
        for wrong in ["0", "-1", "101%", "x", "", "NaN"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
