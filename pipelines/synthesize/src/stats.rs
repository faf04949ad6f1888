//! The command `pybench stats`: the statistics table of the paper for a dataset, and plots.

use std::path::{Path, PathBuf};

use pybench_datasets::DatasetError;
use pybench_datasets::diversity::DiversitySurvey;
use pybench_datasets::samples;
use pybench_datasets::survey::Survey;
use pybench_datasets::svg::bars;
use pybench_datasets::tokens::{Bpe, TokenCounter};
use pybench_interpreter::default_cache_dir;
use pybench_run::cli::LogArgs;
use pybench_run::project::{default_runs_dir, find_run, project_root};
use pybench_run::{Journal, RunError};

use crate::status;
use crate::status::Funnel;
use pybench_run::cli::print;

/// Print statistics of a dataset (instructions, turns, tokens) and plot them; for a run, plot its funnel too
#[derive(Clone, Debug, clap::Parser)]
pub struct StatsArgs {
    /// Run (name or folder), or dataset (folder, .parquet, .jsonl or .json file)
    pub dataset: PathBuf,
    /// Tokenizer: a tokenizer.json like Llama 2's, or its folder [default: Llama 2's, if the Hugging Face
    /// cache has it]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Write plots as SVG files to FOLDER
    #[arg(long, value_name = "FOLDER")]
    pub plots: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Directory with the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Runs the command.
///
/// # Errors
/// [`RunError::BadInput`] if the dataset does not exist or has no rows, or the tokenizer or a row cannot be read.
pub fn run(args: &StatsArgs) -> Result<(), RunError> {
    let (dataset, funnel) = find(args)?;
    let counter = match &args.tokenizer {
        Some(path) => TokenCounter::Bpe(Box::new(Bpe::read(path).map_err(RunError::BadInput)?)),
        None => token_counter(),
    };
    let survey = survey(&dataset, &counter)?;
    if let Some(folder) = &args.plots {
        plots(folder, &survey, funnel.as_ref())?;
    }
    print(&match args.json {
        true => serde_json::to_string_pretty(&survey)? + "\n",
        false => format!("dataset                {}\n{survey}", dataset.display()),
    })
}

/// The tokenizer that counts unless one is named.
pub fn token_counter() -> TokenCounter {
    TokenCounter::detect(&tokenizer_dirs())
}

/// Reads the statistics of a dataset: a folder or a file.
///
/// # Errors
/// [`RunError::BadInput`] if the dataset does not exist or has no rows, or a row cannot be read.
pub fn survey(dataset: &Path, counter: &TokenCounter) -> Result<Survey, RunError> {
    let mut survey = Survey::new(counter);
    let internal = |error: DatasetError| RunError::Internal(error.to_string());
    let mut diversity = DiversitySurvey::new().map_err(internal)?;
    let read = samples::read_rows(dataset, &mut |sample| {
        survey.add(&sample, counter);
        diversity
            .add(&sample)
            .map_err(|error| samples::ReadError::Stopped(error.to_string()))
    });
    read.map_err(|error| RunError::BadInput(error.to_string()))?;
    survey.diversity = diversity.finish().map_err(internal)?;
    Ok(survey)
}

/// The dataset of the run in a folder.
pub fn dataset_of(run: &Path) -> PathBuf {
    run.join(pybench_shard::DATASET)
}

/// Finds the dataset; for a run, its dataset and its funnel.
fn find(args: &StatsArgs) -> Result<(PathBuf, Option<Funnel>), RunError> {
    let is_run = Journal::exists(&args.dataset);
    if args.dataset.exists() && !is_run {
        return Ok((args.dataset.clone(), None));
    }
    let root = project_root(Path::new("."));
    let runs_dir = args.runs_dir.clone();
    let runs_dir = runs_dir.unwrap_or_else(|| default_runs_dir(root.as_deref()));
    let folder = find_run(&args.dataset, &runs_dir)?;
    let journal = Journal::read_run(&folder)?;
    let dataset = dataset_of(&folder);
    Ok((dataset, Some(status::funnel(&journal)?)))
}

/// Folders that may contain Llama 2's tokenizer: our cache, then the Hugging Face cache.
fn tokenizer_dirs() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".cache/huggingface"));
    let hub = variable("HF_HOME").map(PathBuf::from).or(home);
    let own = variable("HF_HUB_CACHE").map(PathBuf::from);
    let hub = own.or(hub.map(|home| home.join("hub")));
    [Some(default_cache_dir().join("models")), hub]
        .into_iter()
        .flatten()
        .collect()
}

fn plots(folder: &Path, survey: &Survey, funnel: Option<&Funnel>) -> Result<(), RunError> {
    std::fs::create_dir_all(folder).map_err(RunError::io(folder.display().to_string()))?;
    let mut plots = survey.plots();
    plots.extend(funnel.map(|funnel| ("funnel.svg", plot_funnel(funnel))));
    for (name, svg) in plots {
        pybench_run::write_output(&folder.join(name), svg.as_bytes())?;
    }
    Ok(())
}

fn plot_funnel(funnel: &Funnel) -> String {
    let rows = funnel.rows.map(|(train, test)| train + test);
    let steps = [
        ("files", funnel.files),
        ("tasks", funnel.tasks),
        ("trajectories", Some(funnel.trajectories)),
        ("graded", Some(funnel.graded)),
        ("accepted", Some(funnel.accepted)),
        ("rows", rows),
    ];
    let known = steps
        .into_iter()
        .filter_map(|(name, count)| Some((name.to_owned(), count? as f64)));
    bars("From files to rows", &known.collect::<Vec<_>>(), |value| {
        format!("{value:.0}")
    })
}
