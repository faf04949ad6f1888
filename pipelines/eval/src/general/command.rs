//! `pybench-eval general`: evaluates one model on general benchmarks and writes records that can be merged
//! into a report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use pybench_interpreter::default_cache_dir;
use pybench_run::{Interrupt, RunError};
use pybench_types::id::Digest;
use pybench_types::trajectory::Sampling;

use super::{GeneralEval, QuestionSet, digest, load, load_as, name_of, run_set};
use crate::endpoint::EndpointArgs;
use crate::record::{Agent, AgentKind, EvalFingerprint, Evaluation};
use crate::stats::{Measure, summarize};
use pybench_hub::HubFile;

/// Maximum size of a downloaded file, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Evaluate a model on general benchmarks.
#[derive(Debug, Args)]
pub struct GeneralArgs {
    /// Benchmark files: HumanEvalPlus.jsonl or MbppPlus.jsonl (also .gz), gsm8k….jsonl, a CSV file or folder of
    /// MMLU, any of these as .parquet, or hf://datasets/OWNER/NAME@REVISION/PATH#sha256=DIGEST. The name must
    /// contain humaneval, mbpp, gsm8k or mmlu
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
    /// The model to evaluate.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// Label of the model in the records; use the same label as in the evaluation to merge with
    #[arg(long, value_name = "LABEL")]
    pub agent: String,
    /// Use only the first N questions of each benchmark
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// File to write the records to
    #[arg(long, value_name = "FILE", default_value = "general.jsonl")]
    pub out: PathBuf,
}

/// Asks the questions, scores the replies, writes the records and prints pass@1 with its interval.
///
/// # Errors
/// [`RunError::BadInput`] for files that cannot be read; the errors of [`EndpointArgs::open`];
/// [`RunError::Environment`] without a sandbox. Questions that could not be asked or scored become records
/// without a score.
pub async fn main(args: &GeneralArgs, interrupt: &Interrupt) -> Result<(), RunError> {
    let bad = |text: String| RunError::BadInput(text);
    let mut sets = Vec::new();
    for file in &args.files {
        sets.push(load_file(file).await?);
    }
    for set in &mut sets {
        set.items.truncate(args.limit.unwrap_or(usize::MAX));
    }
    let interpreter = pybench_interpreter_containers::paced(&Default::default());
    let interpreter = interpreter.map_err(|error| RunError::Environment(error.to_string()))?;
    let model = args
        .endpoint
        .open(&args.out.with_extension("books"), "general", interrupt)?;
    let config = GeneralEval {
        agent: args.agent.clone(),
        model: Arc::new(model),
        interpreter,
        sampling: Sampling {
            temperature: 0.0,
            top_p: 1.0,
            max_tokens: 2_048,
        },
        concurrency: args.endpoint.concurrency(),
        interrupt: interrupt.clone(),
    };
    let mut attempts = Vec::new();
    for set in &sets {
        attempts.extend(run_set(set, &config).await);
        // The replies are journaled; records without a score would be wrong.
        if interrupt.requested() {
            return Err(RunError::Interrupted);
        }
    }
    let evaluation = Evaluation::new(fingerprint(args, &sets, &config), attempts);
    evaluation
        .write(&args.out)
        .map_err(|error| bad(error.to_string()))?;
    print(&evaluation);
    println!("records: {}", args.out.display());
    Ok(())
}

/// Loads a benchmark from a local file or from the Hub.
async fn load_file(file: &str) -> Result<QuestionSet, RunError> {
    let bad = |error: &dyn std::fmt::Display| RunError::BadInput(error.to_string());
    if !file.starts_with("hf://") {
        return load(Path::new(file)).map_err(|error| bad(&error));
    }
    let remote = HubFile::parse(file).map_err(|error| bad(&error))?;
    let name = name_of(file);
    let name = name.ok_or_else(|| {
        bad(&format!(
            "{file}: unknown benchmark; the address must contain humaneval, mbpp, gsm8k or mmlu"
        ))
    })?;
    let path = remote.fetch(&default_cache_dir(), MAX_BYTES).await?;
    load_as(name, &path).map_err(|error| bad(&error))
}

fn fingerprint(args: &GeneralArgs, sets: &[QuestionSet], config: &GeneralEval) -> EvalFingerprint {
    let names: Vec<_> = sets.iter().map(|set| set.name.clone()).collect();
    let model = args.endpoint.model.as_deref().unwrap_or_default();
    let agent = Agent {
        kind: AgentKind::Model,
        about: format!("{model}, one reply per question, temperature 0"),
        format: String::new(),
        sampling: Some(config.sampling.clone()),
    };
    let prompts = sets
        .iter()
        .flat_map(|set| set.items.iter().map(super::Item::prompt));
    EvalFingerprint {
        suites: Default::default(),
        task_set: names.join(", "),
        tasks: digest(sets),
        checker: super::program::digest().to_string(),
        environment: config.interpreter.environment().to_owned(),
        prompts: Digest::of_json(&prompts.collect::<Vec<_>>()).to_string(),
        limits: BTreeMap::from([("items".to_owned(), args.limit.unwrap_or(0) as u64)]),
        agents: [(args.agent.clone(), agent)].into(),
    }
}

fn print(evaluation: &Evaluation) {
    for summary in summarize(evaluation) {
        if let Some(found) = summary.measure(Measure::Upstream) {
            let (rate, interval) = (found.overall.rate, found.overall.interval);
            println!(
                "{}: pass@1 {:.1} % [{:.1}, {:.1}] on {} questions, {} without a score",
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
