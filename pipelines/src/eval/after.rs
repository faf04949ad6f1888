//! What is done with records: `judge`, `compare`, `report`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use pybench::run::RunError;
use pybench::run::project::project_root;

use super::command::REPORT;
use super::endpoint::EndpointArgs;
use super::general::card;
use super::judge::{Calibration, FORMAT, Judge, JudgeOptions, Labels, calibrate, judge};
use super::lines::FileError;
use super::record::{AgentKind, Evaluation};
use super::report::{self, ReportError};
use super::run::{AgentChoice, EvalRecipe, RESULTS};
use super::stats::{Agreement, Measure, compare_all};

/// What to judge, and by whom.
#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// Run folder of an evaluation
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The judge; without a model only --calibrate is done
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// Show it no pictures
    #[arg(long)]
    pub blind: bool,
    /// Compare every other agent with this one: win, tie, lose, in both orders
    #[arg(long, value_name = "AGENT")]
    pub against: Option<String>,
    /// Labels of people (columns task, agent, label; suite and seed where needed): prints kappa of the
    /// judge against them and against strict
    #[arg(long, value_name = "FILE")]
    pub calibrate: Option<PathBuf>,
}

/// What to compare.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run folders, files of records, or labels of agents in them; without labels: every agent that
    /// competes
    #[arg(value_name = "A B", required = true, num_args = 1..)]
    pub what: Vec<String>,
    /// What is counted: strict, fixed, upstream, judge
    #[arg(long, default_value = "strict")]
    pub score: String,
    /// Where the agents are, when only labels are given
    #[arg(long, value_name = "RUN")]
    pub records: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What to report.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run folders or files of records; several must agree in all that defines the scores
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Folder of the report [default: report/ in the first run folder]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The model that the others were tuned from: what they lost against it is flagged
    #[arg(long, value_name = "AGENT")]
    pub base: Option<String>,
    /// Say on the card (README.md) of an agent's model folder what it lost against --base in general ability
    /// [default: the checkpoints of the run folders]
    #[arg(long, value_name = "AGENT=DIR", requires = "base")]
    pub card: Vec<String>,
}

/// The file of records that a path stands for.
fn records(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join(RESULTS),
        false => path.to_owned(),
    }
}

/// The content store beside a file of records.
fn store(records: &Path) -> PathBuf {
    records.parent().unwrap_or(Path::new(".")).join("files")
}

fn read(paths: &[PathBuf]) -> Result<Evaluation, RunError> {
    let parts = paths.iter().map(|path| Evaluation::read(&records(path)));
    let parts = parts.collect::<Result<Vec<_>, _>>().map_err(bad)?;
    Evaluation::merge(parts).map_err(RunError::BadInput)
}

fn bad(error: FileError) -> RunError {
    RunError::BadInput(error.to_string())
}

/// Writes the report.
///
/// # Errors
/// [`RunError::BadInput`] for records that cannot be read or do not belong together, and for a folder
/// that holds something else.
pub fn reported(args: &ReportArgs) -> Result<(), RunError> {
    let evaluation = read(&args.runs)?;
    let stores: Vec<_> = args.runs.iter().map(|run| store(&records(run))).collect();
    let beside = |run: &PathBuf| records(run).with_file_name(REPORT);
    let out = args.out.clone().or_else(|| args.runs.first().map(beside));
    let out = out.unwrap_or_else(|| PathBuf::from(REPORT));
    if let Some(base) = &args.base
        && !evaluation.frozen.agents.contains_key(base)
    {
        return Err(unknown(base, &evaluation));
    }
    let options = report::Options {
        base: args.base.clone(),
    };
    report::write(&evaluation, &stores, &out, &options).map_err(|error| match error {
        ReportError::Render(text) => RunError::Internal(text),
        other => RunError::BadInput(other.to_string()),
    })?;
    println!("{}", out.join("index.html").display());
    match &args.base {
        Some(base) => put_on_cards(&evaluation, base, &cards(args)?),
        None => Ok(()),
    }
}

/// Agents with the folders of their models: as given, else the checkpoints that the run folders name.
fn cards(args: &ReportArgs) -> Result<BTreeMap<String, PathBuf>, RunError> {
    let given = args.card.iter().map(|card| match card.split_once('=') {
        Some((label, folder)) => Ok((label.to_owned(), PathBuf::from(folder))),
        None => Err(RunError::BadInput(format!(
            "--card {card}: expected AGENT=DIR"
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
    // A name of the trainer's catalogue is no folder.
    Ok(folders.filter(|(_, folder)| folder.is_dir()).collect())
}

/// Tells on the card of every model but the base what became of its general ability.
fn put_on_cards(
    evaluation: &Evaluation,
    base: &str,
    cards: &BTreeMap<String, PathBuf>,
) -> Result<(), RunError> {
    for (label, folder) in cards.iter().filter(|(label, _)| *label != base) {
        if !evaluation.frozen.agents.contains_key(label) {
            return Err(unknown(label, evaluation));
        }
        if let Some(section) = card::section(evaluation, base, label) {
            println!("{}", card::write(folder, &section)?.display());
        }
    }
    Ok(())
}

fn unknown(label: &str, evaluation: &Evaluation) -> RunError {
    let known: Vec<_> = evaluation.frozen.agents.keys().cloned().collect();
    RunError::BadInput(format!(
        "`{label}` is neither a run nor an agent of these records; they have: {}",
        known.join(", ")
    ))
}

/// Prints every pair of agents.
///
/// # Errors
/// [`RunError::BadInput`] for records that cannot be read, labels that they do not have, and agents
/// that share no task.
pub fn compared(args: &CompareArgs) -> Result<(), RunError> {
    let measure = Measure::named(&args.score).ok_or_else(|| {
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
            "no records: name a run folder, or give --records RUN".to_owned(),
        ));
    }
    let evaluation = read(&runs)?;
    if let Some(label) = labels
        .iter()
        .find(|l| !evaluation.frozen.agents.contains_key(**l))
    {
        return Err(unknown(label, &evaluation));
    }
    let competes = |kind: AgentKind| !matches!(kind, AgentKind::Reference | AgentKind::Null);
    let agents: Vec<String> = match labels.is_empty() {
        false => labels.into_iter().cloned().collect(),
        true => {
            let all = evaluation
                .frozen
                .agents
                .iter()
                .filter(|(_, agent)| competes(agent.kind));
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
            "{} agents, no pair of which shares a task with a value of {}",
            agents.len(),
            measure.name()
        )));
    }
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&pairs)?),
        false => pairs
            .iter()
            .for_each(|pair| println!("{}", report::markdown::sentence(pair))),
    }
    Ok(())
}

/// Asks the judge, keeps its verdicts in the records, and prints what came of it.
///
/// # Errors
/// [`RunError::BadInput`] for records and labels that cannot be read, [`RunError::Endpoint`] for a key
/// that is not set. A judge that is down is no error: its verdicts are missing.
pub async fn judged(args: &JudgeArgs) -> Result<(), RunError> {
    let path = records(&args.run);
    let mut evaluation = Evaluation::read(&path).map_err(bad)?;
    if let Some(label) = &args.against
        && !evaluation.frozen.agents.contains_key(label)
    {
        return Err(unknown(label, &evaluation));
    }
    if args.endpoint.model.is_some() {
        let teacher = args.endpoint.open(&path.with_file_name("judge"), FORMAT)?;
        let by = Judge::new(Arc::new(teacher), !args.blind);
        let options = JudgeOptions {
            against: args.against.clone(),
            concurrency: args.endpoint.jobs,
        };
        let (with, asked) = judge(&evaluation, &[store(&path)], &by, &options).await;
        with.write(&path).map_err(bad)?;
        evaluation = with;
        println!(
            "{} attempts judged, {} abstentions",
            asked.judged, asked.abstained
        );
        for (failure, count) in &asked.failures {
            println!(
                "{count} questions without an answer: {failure} (missing values; run again to ask again)"
            );
        }
    }
    if let Some(labels) = &args.calibrate {
        let labels = Labels::read(labels).map_err(|error| RunError::BadInput(error.to_string()))?;
        print_calibration(&calibrate(&evaluation, &labels));
    }
    Ok(())
}

fn print_calibration(found: &Calibration) {
    let say = |name: &str, agreement: &Option<Agreement>| match agreement {
        None => println!("{name}: nothing that both rated"),
        Some(a) => {
            let kappa = a.kappa.map_or(
                "not defined (one of them says the same of all)".to_owned(),
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
    say("judge against people", &found.judge_human);
    say("judge against strict", &found.judge_strict);
    say("strict against people", &found.strict_human);
    if found.unknown > 0 {
        println!(
            "{} labels are of attempts that the records do not hold",
            found.unknown
        );
    }
}
