//! `pybench-eval general`: the user's files, one model, records that a report takes beside others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use pybench::id::Digest;
use pybench::run::{RunError, default_cache_dir};
use pybench::trajectory::Sampling;

use super::{Examination, Set, digest, examine, load, load_as, name_of};
use crate::eval::endpoint::EndpointArgs;
use crate::eval::record::{Agent, AgentKind, Evaluation, Frozen};
use crate::eval::stats::{Measure, summarise};
use crate::hub::HubFile;

/// Largest file that is fetched, bytes.
const MOST_BYTES: u64 = 1 << 30;

/// What to ask, and whom.
#[derive(Debug, Args)]
pub struct GeneralArgs {
    /// HumanEvalPlus.jsonl, MbppPlus.jsonl (also .gz), gsm8k….jsonl, a CSV file or a folder of MMLU, any of them
    /// as .parquet; or a file of the Hub: hf://datasets/OWNER/NAME@REVISION/PATH#sha256=DIGEST
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
    /// The model that is asked.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// Its label in the records, as in the evaluation that they are to stand beside
    #[arg(long, value_name = "LABEL")]
    pub agent: String,
    /// The first items of each set only
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Where the records go
    #[arg(long, value_name = "FILE", default_value = "general.jsonl")]
    pub out: PathBuf,
}

/// Asks, scores, writes the records, prints pass@1 with its interval.
///
/// # Errors
/// [`RunError::BadInput`] for files that cannot be read; as [`EndpointArgs::open`]; a machine without
/// a sandbox. Questions that could not be asked or scored are records without a score.
pub async fn main(args: &GeneralArgs) -> Result<(), RunError> {
    let bad = |text: String| RunError::BadInput(text);
    let mut sets = Vec::new();
    for file in &args.files {
        sets.push(set(file).await?);
    }
    for set in &mut sets {
        set.items.truncate(args.limit.unwrap_or(usize::MAX));
    }
    let interpreter = pybench::interpreter::interpreter(&Default::default());
    let interpreter = interpreter.map_err(|error| RunError::Environment(error.to_string()))?;
    let teacher = args
        .endpoint
        .open(&args.out.with_extension("books"), "general")?;
    let by = Examination {
        agent: args.agent.clone(),
        teacher: Arc::new(teacher),
        interpreter,
        sampling: Sampling {
            temperature: 0.0,
            top_p: 1.0,
            max_tokens: 2_048,
        },
        concurrency: args.endpoint.jobs,
    };
    let mut attempts = Vec::new();
    for set in &sets {
        attempts.extend(examine(set, &by).await);
    }
    let evaluation = Evaluation::new(frozen(args, &sets, &by), attempts);
    evaluation
        .write(&args.out)
        .map_err(|error| bad(error.to_string()))?;
    print(&evaluation);
    println!("records: {}", args.out.display());
    Ok(())
}

/// The set in a file of this machine, or of the Hub.
async fn set(file: &str) -> Result<Set, RunError> {
    let bad = |error: &dyn std::fmt::Display| RunError::BadInput(error.to_string());
    if !file.starts_with("hf://") {
        return load(Path::new(file)).map_err(|error| bad(&error));
    }
    let remote = HubFile::parse(file).map_err(|error| bad(&error))?;
    let name = name_of(file);
    let name = name.ok_or_else(|| {
        bad(&format!(
            "{file}: expected humaneval, mbpp, gsm8k or mmlu in it"
        ))
    })?;
    let path = remote.fetch(&default_cache_dir(), MOST_BYTES).await?;
    load_as(name, &path).map_err(|error| bad(&error))
}

fn frozen(args: &GeneralArgs, sets: &[Set], by: &Examination) -> Frozen {
    let names: Vec<_> = sets.iter().map(|set| set.name.clone()).collect();
    let model = args.endpoint.model.as_deref().unwrap_or_default();
    let agent = Agent {
        kind: AgentKind::Model,
        about: format!("{model}, asked once, temperature 0"),
        format: String::new(),
        sampling: Some(by.sampling.clone()),
    };
    let prompts = sets
        .iter()
        .flat_map(|set| set.items.iter().map(super::Item::prompt));
    Frozen {
        task_set: names.join(", "),
        tasks: digest(sets),
        checker: super::program::digest().to_string(),
        environment: by.interpreter.environment().to_owned(),
        prompts: Digest::of_json(&prompts.collect::<Vec<_>>()).to_string(),
        limits: BTreeMap::from([("items".to_owned(), args.limit.unwrap_or(0) as u64)]),
        agents: [(args.agent.clone(), agent)].into(),
    }
}

fn print(evaluation: &Evaluation) {
    for summary in summarise(evaluation) {
        if let Some(found) = summary.measure(Measure::Upstream) {
            let (rate, interval) = (found.overall.rate, found.overall.interval);
            println!(
                "{}: pass@1 {:.1} % [{:.1}, {:.1}] of {}, {} without a score",
                summary.suite,
                rate * 100.0,
                interval.low * 100.0,
                interval.high * 100.0,
                found.overall.tasks,
                found.bounds.missing
            );
        }
    }
}
