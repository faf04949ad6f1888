//! Exports tasks with their checks as environments for other trainers. Each task is tested before it is
//! written: the expert must pass its checks, and an empty solution must fail.

mod export_check;
mod harbor;
mod stored_tasks;
mod tree;
mod verifiers;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use futures::StreamExt;
use pybench_run::{RunError, cores};
use pybench_types::task::Language;

use super::audit::AuditEnv;
use super::{Library, TaskKey};
use export_check::{CheckedTask, check_task};
pub use harbor::{SolvedTask, write_folders};
pub(super) use stored_tasks::StoredTasks;
use tree::Tree;
pub use verifiers::write_taskset;

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Format of the export
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    /// Output folder; it must not exist or must be empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Comma-separated template ids [default: all]
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub templates: Vec<String>,
    /// Tasks per template, with consecutive seeds; a task whose reference fails, or says that the files do not suit it, is
    /// replaced by one with a later seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub per_template: u32,
    /// Seed of the first task of each template
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Comma-separated languages of the queries, used in turn: en, zh
    #[arg(long, value_name = "LANGUAGES", value_delimiter = ',', default_value = "en,zh", value_parser = parse_language)]
    pub languages: Vec<Language>,
    /// Tasks tested in parallel [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Folder of input files for the tasks [default: the sample files of pybench]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// A Python package with a taskset for verifiers 0.4; needs `pybench interpreter serve` to run cells and
    /// `pybench library serve-rewards` to score
    Verifiers,
    /// One self-contained folder per task (image, instruction, tests, solution); does not need pybench
    Harbor,
}

/// Tests the requested tasks and writes those that pass.
///
/// # Errors
/// [`RunError::Incomplete`] if tasks were left out; the others are written.
pub async fn run(env: &AuditEnv, args: &ExportArgs) -> Result<(), RunError> {
    let tree = Tree::create(&args.out)?;
    let keys = keys(&env.library, args)?;
    let jobs = args.jobs.unwrap_or_else(cores).max(1);
    let asked = keys.len();
    let step = u64::from(args.per_template);
    let work = futures::stream::iter(keys)
        .map(|key| async move { (key.to_string(), check_task(env, key, step).await) });
    let tried: Vec<_> = work.buffered(jobs).collect().await;
    let (mut checked, mut seen, mut equal) = (Vec::new(), HashSet::new(), 0);
    for (name, result) in tried {
        match result {
            Ok(one) if !seen.insert(one.task.id.clone()) => {
                tracing::info!("{name} equals an earlier task and is left out");
                equal += 1;
            }
            Ok(one) => checked.push(one),
            Err(reason) => tracing::warn!("{name} is left out: {reason}"),
        }
    }
    write(&tree, env, args.format, &checked)?;
    let left_out = asked - equal - checked.len();
    if checked.is_empty() {
        let text = format!("none of {asked} tasks could be exported; see the warnings above");
        return Err(RunError::BadInput(text));
    }
    tree.finish()?;
    let summary = format!(
        "{} of {asked} tasks are in {}: the expert passes, an empty solution fails; {equal} duplicates",
        checked.len(),
        args.out.display()
    );
    match left_out {
        0 => {
            eprintln!("{summary}");
            Ok(())
        }
        count => Err(RunError::Incomplete(format!(
            "{summary}; {count} left out, see the warnings above"
        ))),
    }
}

/// The keys of the requested tasks, template by template; the languages alternate over all of them. A template without
/// Chinese gives English tasks.
fn keys(library: &Library, args: &ExportArgs) -> Result<Vec<TaskKey>, RunError> {
    let mut keys = Vec::new();
    for (position, template) in library.chosen(&args.templates)?.into_iter().enumerate() {
        for number in 0..args.per_template {
            let turn = (position + number as usize) % args.languages.len().max(1);
            let language = args.languages.get(turn).copied();
            let language = language.filter(|language| template.languages().contains(language));
            keys.push(TaskKey {
                template: template.name().to_owned(),
                language: language.unwrap_or(Language::En),
                seed: args.seed.wrapping_add(u64::from(number)),
            });
        }
    }
    Ok(keys)
}

fn write(
    tree: &Tree,
    env: &AuditEnv,
    format: ExportFormat,
    checked: &[CheckedTask],
) -> Result<(), RunError> {
    let store = &env.fixtures.store;
    match format {
        ExportFormat::Harbor => checked
            .iter()
            .try_for_each(|task| harbor::write(tree, &task.into(), store)),
        ExportFormat::Verifiers => verifiers::write(tree, checked, store),
    }
}

pub(super) fn parse_language(text: &str) -> Result<Language, String> {
    match text {
        "en" => Ok(Language::En),
        "zh" => Ok(Language::Zh),
        _ => Err("languages are en and zh".into()),
    }
}
