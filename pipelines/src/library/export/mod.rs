//! Tasks with their checks, as environments for others' trainers. Each is proven before it is written:
//! the expert passes its checks, and who does nothing fails.

mod harbor;
mod proof;
mod tree;
mod verifiers;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use futures::StreamExt;
use pybench::run::{RunError, cores};
use pybench::task::Language;

use super::audit::Bench;
use super::command::parse_language;
use super::{Library, TaskKey};
use proof::{Proven, prove};
use tree::Tree;

/// What is exported.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// What is written
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    /// Folder to write; it must not be there, or be empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Template ids, separated by commas [default: all]
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub templates: Vec<String>,
    /// Tasks of each template, whose seeds follow one another
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub per_template: u32,
    /// Seed of the first task of each template
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Languages of the queries, taken turn about: en, zh
    #[arg(long, value_name = "LANGUAGES", value_delimiter = ',', default_value = "en,zh", value_parser = parse_language)]
    pub languages: Vec<Language>,
    /// Tasks proven at a time [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Files to write tasks for [default: data/samples in the project]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// Who reads the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A Python package, a taskset of verifiers 0.4: its tasks run in `pybench-interpreter serve` and are
    /// scored by `pybench-library serve-rewards`
    Verifiers,
    /// A folder per task that needs nothing of pybench: image, instruction, tests, solution
    Harbor,
}

/// Proves the tasks asked for and writes those that hold.
///
/// # Errors
/// [`RunError::Incomplete`] when tasks were left out; the others are written all the same.
pub async fn run(bench: &Bench, args: &ExportArgs) -> Result<(), RunError> {
    let tree = Tree::begin(&args.out)?;
    let keys = keys(&bench.library, args)?;
    let jobs = args.jobs.unwrap_or_else(cores).max(1);
    let asked = keys.len();
    let work = futures::stream::iter(keys)
        .map(|key| async move { (key.to_string(), prove(bench, key).await) });
    let tried: Vec<_> = work.buffered(jobs).collect().await;
    let (mut proven, mut seen, mut equal) = (Vec::new(), HashSet::new(), 0);
    for (name, result) in tried {
        match result {
            Ok(one) if !seen.insert(one.task.id.clone()) => {
                tracing::info!("{name} equals an earlier task and is left out");
                equal += 1;
            }
            Ok(one) => proven.push(one),
            Err(reason) => tracing::warn!("{name} is left out: {reason}"),
        }
    }
    write(&tree, bench, args.format, &proven)?;
    let left_out = asked - equal - proven.len();
    if proven.is_empty() {
        let text = format!("none of {asked} tasks could be exported; the lines above say why");
        return Err(RunError::BadInput(text));
    }
    tree.finish()?;
    let summary = format!(
        "{} of {asked} tasks are in {}: the expert passes, who does nothing fails; {equal} equal others",
        proven.len(),
        args.out.display()
    );
    match left_out {
        0 => {
            eprintln!("{summary}");
            Ok(())
        }
        count => Err(RunError::Incomplete(format!(
            "{summary}; {count} left out, for the reasons above"
        ))),
    }
}

/// The tasks asked for, template by template; languages take turns over all of them.
fn keys(library: &Library, args: &ExportArgs) -> Result<Vec<TaskKey>, RunError> {
    let mut keys = Vec::new();
    for (place, template) in library.chosen(&args.templates)?.into_iter().enumerate() {
        for number in 0..args.per_template {
            let turn = (place + number as usize) % args.languages.len().max(1);
            keys.push(TaskKey {
                template: template.name().to_owned(),
                language: args.languages.get(turn).copied().unwrap_or(Language::En),
                seed: args.seed.wrapping_add(u64::from(number)),
            });
        }
    }
    Ok(keys)
}

fn write(
    tree: &Tree,
    bench: &Bench,
    format: ExportFormat,
    proven: &[Proven],
) -> Result<(), RunError> {
    let store = &bench.fixtures.store;
    match format {
        ExportFormat::Harbor => proven
            .iter()
            .try_for_each(|task| harbor::write(tree, task, store)),
        ExportFormat::Verifiers => verifiers::write(tree, proven, store),
    }
}
