//! The subcommands that work on records: `judge`, `compare` and `report`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use pybench_hub::{fetch_source, until_interrupted};
use pybench_run::cli::Process;
use pybench_run::project::project_root;
use pybench_run::{Interrupt, RunError, default_cache_dir};

use super::endpoint::EndpointArgs;
use crate::card;
use crate::contamination::{self, TrainingSet};
use crate::judge::calibrate::{Calibration, Labels};
use pybench_checks::judge::{FORMAT, Judge};

use super::file_error::FileError;
use super::judge::calibrate;
use super::record::Evaluation;
use super::report::{self, ReportError};
use super::run::{AgentChoice, EvalRecipe, RESULTS};
use super::stats::{Measure, compare_all};
use crate::judge::{JudgeOptions, judge};
use pybench_checks::agreement::Agreement;

/// Folder of the report, inside the run folder.
pub(super) const REPORT: &str = "report";

/// Run an LLM judge on recorded attempts.
#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// Run folder of an evaluation
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Model of the judge.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// Do not show images to the judge
    #[arg(long)]
    pub blind: bool,
    /// Also compare every other agent with this one: win, tie or lose, judged in both orders
    #[arg(long, value_name = "AGENT")]
    pub against: Option<String>,
    /// CSV file of human labels with the columns task, agent and label (pass or fail), and optionally
    /// suite and seed; prints Cohen's kappa of the judge against the labels and against strict. Without
    /// --model the judge is not run
    #[arg(long, value_name = "FILE")]
    pub calibrate: Option<PathBuf>,
}

/// Compare agents pairwise.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run folders, files of records, or labels of agents in them [default agents: all except
    /// references and null agents]
    #[arg(value_name = "A B", required = true, num_args = 1..)]
    pub what: Vec<String>,
    /// Score to compare: strict, fixed, upstream or judge
    #[arg(long, default_value = "strict")]
    pub score: String,
    /// Run folder or file of records to read; required if only labels are given
    #[arg(long, value_name = "RUN")]
    pub records: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Write a report.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run folders or files of records; files that share a suite must have the same tasks, checker,
    /// environment and limits
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Folder to write the report to [default: report/ in the first run folder]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Base model of the others; the report warns if one of them is worse than it
    #[arg(long, value_name = "AGENT")]
    pub base: Option<String>,
    /// Write the change in general ability against --base to the model card (README.md) in this model
    /// folder [default: the checkpoints of the run folders]
    #[arg(long, value_name = "AGENT=DIR", requires = "base")]
    pub card: Vec<String>,
    /// Dataset that the models were trained on: a folder with data/*.parquet or *.parquet, a run folder, the name of a
    /// run, or one of them on the Hub (hf://datasets/OWNER/NAME[@REVISION]) or in a bucket (s3://, gs://, az://). The
    /// report names its rows that match tasks of the suites, and gives the scores without these tasks
    #[arg(long, value_name = "DATASET")]
    pub trained_on: Option<PathBuf>,
}

/// The file of records at `path`, which is that file or a run folder.
pub(super) fn records_path(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join(RESULTS),
        false => path.to_owned(),
    }
}

/// The content store next to a file of records.
pub(super) fn store_path(records: &Path) -> PathBuf {
    records.parent().unwrap_or(Path::new(".")).join("files")
}

pub(super) fn read(paths: &[PathBuf]) -> Result<Evaluation, RunError> {
    let parts = paths
        .iter()
        .map(|path| Evaluation::read(&records_path(path)));
    let parts = parts.collect::<Result<Vec<_>, _>>().map_err(bad)?;
    Evaluation::merge(parts).map_err(RunError::BadInput)
}

fn bad(error: FileError) -> RunError {
    RunError::BadInput(error.to_string())
}

/// Writes the report, and updates the model cards if `--base` is given.
///
/// # Errors
/// [`RunError::BadInput`] for records that cannot be read or merged, and for an output folder that
/// contains something other than a report; those of the Hub and of buckets.
pub async fn run_report(args: &ReportArgs, process: &Process) -> Result<(), RunError> {
    let evaluation = read(&args.runs)?;
    let stores: Vec<_> = args
        .runs
        .iter()
        .map(|run| store_path(&records_path(run)))
        .collect();
    let default_out = |run: &PathBuf| records_path(run).with_file_name(REPORT);
    let out = args
        .out
        .clone()
        .or_else(|| args.runs.first().map(default_out));
    let out = out.unwrap_or_else(|| PathBuf::from(REPORT));
    if let Some(base) = &args.base
        && !evaluation.fingerprint.agents.contains_key(base)
    {
        return Err(unknown(base, &evaluation));
    }
    let options = report::Options {
        base: args.base.clone(),
        training_set: match &args.trained_on {
            Some(dataset) => Some(compare_with(dataset, &evaluation, &stores, process).await?),
            None => None,
        },
    };
    report::write(&evaluation, &stores, &out, &options).map_err(|error| match error {
        ReportError::Render(text) => RunError::Internal(text),
        other => RunError::BadInput(other.to_string()),
    })?;
    println!("{}", out.join("index.html").display());
    match &args.base {
        Some(base) => update_cards(&evaluation, base, &model_folders(args)?),
        None => Ok(()),
    }
}

/// Compares a dataset, here or at an address, with the suites of an evaluation.
async fn compare_with(
    dataset: &Path,
    evaluation: &Evaluation,
    stores: &[PathBuf],
    process: &Process,
) -> Result<TrainingSet, RunError> {
    let cache = default_cache_dir();
    let copy = until_interrupted(process, fetch_source(dataset, &cache)).await??;
    let folder = copy.as_deref().unwrap_or(dataset);
    let compared = contamination::training_set(evaluation, stores, folder)?;
    Ok(TrainingSet {
        // A copy has another name.
        dataset: contamination::name(dataset),
        ..compared
    })
}

/// The model folder of each agent: from `--card`, else from the checkpoints in the recipes of the runs.
fn model_folders(args: &ReportArgs) -> Result<BTreeMap<String, PathBuf>, RunError> {
    let given = args.card.iter().map(|card| match card.split_once('=') {
        Some((label, folder)) => Ok((label.to_owned(), PathBuf::from(folder))),
        None => Err(RunError::BadInput(format!(
            "--card {card}: expected AGENT=DIR, the label of an agent and its model folder"
        ))),
    });
    let given = given.collect::<Result<BTreeMap<_, _>, _>>()?;
    if !given.is_empty() {
        return Ok(given);
    }
    let root = project_root(Path::new(".")).unwrap_or_default();
    let recipes = args.runs.iter().map(|run| run.join("recipe.toml"));
    let recipes = recipes.filter_map(|path| EvalRecipe::load(&path).ok());
    let agents = recipes.flat_map(|recipe| recipe.agents);
    let folders = agents.filter_map(|(label, choice)| match choice {
        AgentChoice::Checkpoint { model, .. } => Some((label, root.join(model))),
        _ => None,
    });
    // A model may also be a name in the trainer's catalog, which has no folder to write to.
    Ok(folders.filter(|(_, folder)| folder.is_dir()).collect())
}

/// Writes the comparison with the base model to the card of every other model.
fn update_cards(
    evaluation: &Evaluation,
    base: &str,
    cards: &BTreeMap<String, PathBuf>,
) -> Result<(), RunError> {
    for (label, folder) in cards.iter().filter(|(label, _)| *label != base) {
        if !evaluation.fingerprint.agents.contains_key(label) {
            return Err(unknown(label, evaluation));
        }
        if let Some(section) = card::section(evaluation, base, label) {
            println!("{}", card::write(folder, &section)?.display());
        }
    }
    Ok(())
}

fn unknown(label: &str, evaluation: &Evaluation) -> RunError {
    let known: Vec<_> = evaluation.fingerprint.agents.keys().cloned().collect();
    RunError::BadInput(format!(
        "`{label}` is neither a path nor an agent in these records; agents: {}",
        known.join(", ")
    ))
}

/// Prints the comparison of every pair of agents.
///
/// # Errors
/// [`RunError::BadInput`] for records that cannot be read, unknown labels, and agents that share no
/// task.
pub fn run_compare(args: &CompareArgs) -> Result<(), RunError> {
    let measure = Measure::from_name(&args.score).ok_or_else(|| {
        RunError::BadInput(format!(
            "--score {}: expected strict, fixed, upstream or judge",
            args.score
        ))
    })?;
    let (paths, labels): (Vec<_>, Vec<_>) = args.what.iter().partition(|w| Path::new(w).exists());
    let mut runs: Vec<PathBuf> = paths.into_iter().map(PathBuf::from).collect();
    runs.extend(args.records.iter().cloned());
    if runs.is_empty() {
        return Err(RunError::BadInput(
            "no records to compare: give a run folder, or --records RUN".to_owned(),
        ));
    }
    let evaluation = read(&runs)?;
    if let Some(label) = labels
        .iter()
        .find(|l| !evaluation.fingerprint.agents.contains_key(**l))
    {
        return Err(unknown(label, &evaluation));
    }
    let agents: Vec<String> = match labels.is_empty() {
        false => labels.into_iter().cloned().collect(),
        true => {
            let all = evaluation
                .fingerprint
                .agents
                .iter()
                .filter(|(_, agent)| agent.kind.competes());
            all.map(|(label, _)| label.clone()).collect()
        }
    };
    let mut suites: Vec<_> = evaluation
        .attempts
        .iter()
        .map(|a| a.suite.clone())
        .collect();
    suites.dedup();
    let pairs = suites
        .iter()
        .flat_map(|suite| compare_all(&evaluation, suite, measure, &agents));
    let pairs: Vec<_> = pairs.collect();
    if pairs.is_empty() {
        return Err(RunError::BadInput(format!(
            "nothing to compare: no two of the {} agents have a {} score on the same task",
            agents.len(),
            measure.name()
        )));
    }
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&pairs)?),
        false => {
            let titles = report::Titles::new(&evaluation);
            for pair in &pairs {
                println!("{}", report::markdown::sentence(pair, &titles));
            }
        }
    }
    Ok(())
}

/// Runs the judge, writes its verdicts to the records and prints a summary.
///
/// # Errors
/// [`RunError::BadInput`] for records or labels that cannot be read, [`RunError::Endpoint`] for an API
/// key that is not set; [`RunError::Interrupted`] after Ctrl-C, when what was judged is written. An unreachable judge
/// is not an error: its verdicts stay missing.
pub async fn run_judge(args: &JudgeArgs, interrupt: &Interrupt) -> Result<(), RunError> {
    let path = records_path(&args.run);
    let mut evaluation = Evaluation::read(&path).map_err(bad)?;
    if let Some(label) = &args.against
        && !evaluation.fingerprint.agents.contains_key(label)
    {
        return Err(unknown(label, &evaluation));
    }
    if args.endpoint.model.is_some() {
        let model = path.with_file_name("judge");
        let model = args.endpoint.open(&model, FORMAT, interrupt)?;
        let llm_judge = Judge::new(Arc::new(model), !args.blind, interrupt.clone());
        let options = JudgeOptions {
            against: args.against.clone(),
            concurrency: args.endpoint.concurrency(),
        };
        let (judged, counts) = judge(&evaluation, &[store_path(&path)], &llm_judge, &options).await;
        judged.write(&path).map_err(bad)?;
        if interrupt.requested() {
            return Err(RunError::Interrupted);
        }
        evaluation = judged;
        println!(
            "{} attempts judged, {} abstentions",
            counts.judged, counts.abstained
        );
        for (failure, count) in &counts.failures {
            println!(
                "{count} judge calls failed: {failure} (their verdicts stay missing; run the same command again to retry)"
            );
        }
    }
    if let Some(labels) = &args.calibrate {
        let labels = Labels::read(labels).map_err(|error| RunError::BadInput(error.to_string()))?;
        print_calibration(&calibrate(&evaluation, &labels));
    }
    Ok(())
}

fn print_calibration(calibration: &Calibration) {
    let print = |name: &str, agreement: &Option<Agreement>| match agreement {
        None => println!("{name}: no attempts rated by both"),
        Some(a) => {
            let kappa = a.kappa.map_or(
                "undefined (one rater gave the same rating to every attempt)".to_owned(),
                |k| format!("{k:.3}"),
            );
            let interval = a
                .interval
                .map_or(String::new(), |i| format!(" [{:.3}, {:.3}]", i.low, i.high));
            println!(
                "{name}: kappa {kappa}{interval}, agreement {:.1} % of {}",
                a.agree * 100.0,
                a.items
            );
        }
    };
    print("judge vs. human labels", &calibration.judge_human);
    print("judge vs. strict", &calibration.judge_strict);
    print("strict vs. human labels", &calibration.strict_human);
    if calibration.unknown > 0 {
        println!(
            "{} labels are for attempts that are not in the records",
            calibration.unknown
        );
    }
}
