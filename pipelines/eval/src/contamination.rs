//! Compares a training set with the suites of an evaluation: which rows match which tasks, and the scores without these
//! tasks.
//!
//! A benchmark that the program has fingerprints of is compared as a whole. The records add what the agents saw of the
//! evaluated tasks: the input files and tables of these benchmarks, and the prompts of all suites, in which near duplicates
//! are found. The result depends on the records and the dataset only, not on what this machine has downloaded.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use pybench_dataset_tools::{FromArgs, RowVerdict, TableCache, search};
use pybench_datasets::card;
use pybench_datasets::dataset::FILES_DIR;
use pybench_datasets::decontaminate::fingerprints::{KNOWN_SUITES, known_tasks};
use pybench_datasets::decontaminate::{
    BenchmarkIndex, BenchmarkTask, MatchKind, NearDuplicates, SuiteQuestion,
};
use pybench_run::RunError;
use pybench_types::id::Digest;
use serde::Serialize;

use crate::record::{Attempt, Evaluation, task_order};
use crate::stats::{AgentSummary, summarize, whole_suite};

/// A training set, compared with every suite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingSet {
    /// Name of its folder, or of its run.
    pub dataset: String,
    /// Digest of all rows, from its card.
    pub digest: Option<String>,
    pub rows: usize,
    /// Number of rows that match a task of any suite.
    pub matching_rows: usize,
    /// Number of its input files that were not found, so that only their digests were compared.
    pub unseen_files: usize,
    /// The suites in the records, and all benchmarks with fingerprints.
    pub suites: Vec<SuiteContamination>,
}

/// The rows that match tasks of one suite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuiteContamination {
    pub suite: String,
    /// Whether all of its tasks were compared, by fingerprints.
    pub fingerprints: bool,
    /// Number of tasks in the records.
    pub evaluated: usize,
    /// Number of tasks whose prompts are in the records; MinHash is computed for these.
    pub prompts: usize,
    /// Number of input files in the records that were not found, so that only their digests were compared.
    pub unread_inputs: usize,
    /// Number of rows that match.
    pub rows: usize,
    /// Number of rows by kind of match. A row can have several.
    pub by: BTreeMap<MatchKind, usize>,
    /// All matches, in the order of the rows.
    pub matches: Vec<RowMatch>,
    /// The evaluated tasks that a row matches.
    pub matched_tasks: Vec<String>,
    /// The results on the other tasks. Empty if no evaluated task is matched.
    pub without_matched: Vec<AgentSummary>,
}

/// A row of the training set and a task that it matches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowMatch {
    /// Number of the row, from 0.
    pub row: usize,
    /// Id of its trajectory.
    pub trajectory: String,
    /// Name of the task in the suite; `file` for a file of the benchmark.
    pub task: String,
    pub by: MatchKind,
    /// Common share of word sequences, or of the rows of a table.
    pub share: f64,
    /// Description of what they have in common.
    pub evidence: String,
}

/// Compares a dataset with the suites. `stores` are the content stores of the records, and `dataset` is a dataset's folder,
/// a run folder or the name of a run.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such dataset or a shard is invalid; I/O errors.
pub fn training_set(
    evaluation: &Evaluation,
    stores: &[PathBuf],
    dataset: &Path,
) -> Result<TrainingSet, RunError> {
    let folder = FromArgs {
        dataset: dataset.to_owned(),
    }
    .folder()?;
    let attempts = first_attempts(evaluation);
    let mut inputs = TableCache::new(stores)?;
    let mut tasks = known_tasks();
    tasks.extend(
        attempts
            .iter()
            .map(|attempt| recorded(attempt, &mut inputs)),
    );
    let questions = attempts.iter().map(|attempt| SuiteQuestion {
        suite: &attempt.suite,
        index: &attempt.task,
        text: &attempt.prompt,
    });
    let near = NearDuplicates::new(&questions.collect::<Vec<_>>());
    let mut files = vec![folder.join(FILES_DIR)];
    files.extend(folder.parent().map(|run| run.join("files")));
    let found = search(&folder, BenchmarkIndex::new(tasks), &near, &files)?;
    let card = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    let known = KNOWN_SUITES.iter().map(|suite| suite.name);
    let suites: BTreeSet<&str> = attempts.iter().map(|a| &*a.suite).chain(known).collect();
    let of_suite = |suite| of_suite(suite, &attempts, &found.verdicts, evaluation, &inputs);
    Ok(TrainingSet {
        dataset: name(dataset),
        digest: card::digest(&card).map(str::to_owned),
        rows: found.rows,
        matching_rows: found.contaminated,
        unseen_files: found.unseen_files,
        suites: suites.into_iter().map(of_suite).collect(),
    })
}

/// The name of a dataset: that of its run, or else of its folder or address.
pub(crate) fn name(dataset: &Path) -> String {
    let last = dataset.file_name().unwrap_or(dataset.as_os_str());
    let parent = dataset.parent().and_then(Path::file_name);
    match (last.to_str(), parent) {
        // The folder of a run's dataset.
        (Some("dataset"), Some(run)) => run.to_string_lossy().into_owned(),
        _ => last.to_string_lossy().into_owned(),
    }
}

/// The first attempt at each task.
fn first_attempts(evaluation: &Evaluation) -> Vec<&Attempt> {
    let mut seen = HashSet::new();
    let attempts = evaluation.attempts.iter();
    let first = attempts.filter(|attempt| seen.insert((&attempt.suite, &attempt.task)));
    first.collect()
}

/// The suite whose fingerprints this suite has.
fn fingerprinted(suite: &str) -> Option<&'static str> {
    let name = whole_suite(suite);
    let known = KNOWN_SUITES.iter().find(|known| known.name == name);
    known.map(|known| known.name)
}

/// What the records know of a task. Fingerprints have the questions of benchmarks without what our prompts add, so only
/// files are new; of any other suite only the prompts are compared, because its input files are not part of the tasks.
fn recorded(attempt: &Attempt, inputs: &mut TableCache) -> BenchmarkTask {
    let mut task = BenchmarkTask {
        suite: attempt.suite.clone(),
        index: attempt.task.clone(),
        ..BenchmarkTask::default()
    };
    if fingerprinted(&attempt.suite).is_none() {
        task.query.clone_from(&attempt.prompt);
        return task;
    }
    for file in &attempt.inputs {
        task.files.push(file.id.clone());
        task.tables
            .extend(inputs.get(&file.id, &file.path).cloned());
    }
    task
}

fn of_suite(
    suite: &str,
    attempts: &[&Attempt],
    verdicts: &[RowVerdict],
    evaluation: &Evaluation,
    inputs: &TableCache,
) -> SuiteContamination {
    let own: Vec<&&Attempt> = attempts.iter().filter(|a| a.suite == suite).collect();
    let evaluated: HashSet<&str> = own.iter().map(|attempt| &*attempt.task).collect();
    let matches = row_matches(suite, &evaluated, verdicts);
    let matched: HashSet<&str> = matches.iter().map(|m| &*m.task).collect();
    let mut matched_tasks: Vec<String> = own
        .iter()
        .map(|attempt| attempt.task.clone())
        .filter(|task| matched.contains(&**task))
        .collect();
    matched_tasks.sort_by(|a, b| task_order(a, b));
    let rows = |keep: &dyn Fn(&RowMatch) -> bool| {
        let kept = matches.iter().filter(|one| keep(one));
        kept.map(|one| one.row).collect::<HashSet<_>>().len()
    };
    let kinds: BTreeSet<MatchKind> = matches.iter().map(|one| one.by).collect();
    let unread: HashSet<&Digest> = own
        .iter()
        .flat_map(|attempt| &attempt.inputs)
        .filter(|file| inputs.is_missing(&file.id))
        .map(|file| &file.id)
        .collect();
    SuiteContamination {
        suite: suite.to_owned(),
        fingerprints: fingerprinted(suite).is_some(),
        evaluated: evaluated.len(),
        prompts: own.iter().filter(|a| !a.prompt.trim().is_empty()).count(),
        unread_inputs: unread.len(),
        rows: rows(&|_| true),
        by: kinds
            .into_iter()
            .map(|kind| (kind, rows(&|one| one.by == kind)))
            .collect(),
        without_matched: match matched_tasks.is_empty() {
            true => Vec::new(),
            false => without(evaluation, suite, &matched),
        },
        matches,
        matched_tasks,
    }
}

/// The matches with tasks of a suite: of the suite itself, and of the suite that it is a subset of.
fn row_matches(suite: &str, evaluated: &HashSet<&str>, verdicts: &[RowVerdict]) -> Vec<RowMatch> {
    let task_of = |name: &str| -> Option<String> {
        let within = |suite: &str| name.strip_prefix(suite)?.strip_prefix('/');
        let whole = || fingerprinted(suite).and_then(within);
        let in_subset = || whole().filter(|task| evaluated.contains(task));
        within(suite).or_else(in_subset).map(str::to_owned)
    };
    let mut matches = Vec::new();
    for verdict in verdicts.iter().filter(|verdict| verdict.contaminated) {
        // The most serious hit comes first. A task can be known by several texts and files.
        let mut seen = HashSet::new();
        for hit in verdict.hits.iter().filter(|hit| hit.contaminated) {
            let Some(task) = task_of(&hit.task) else {
                continue;
            };
            if seen.insert((task.clone(), hit.by)) {
                matches.push(RowMatch {
                    row: verdict.row,
                    trajectory: verdict.trajectory.clone(),
                    task,
                    by: hit.by,
                    share: hit.share,
                    evidence: hit.evidence.clone(),
                });
            }
        }
    }
    matches
}

/// The results on the tasks of a suite that no row matches.
fn without(evaluation: &Evaluation, suite: &str, matched: &HashSet<&str>) -> Vec<AgentSummary> {
    let kept = |attempt: &&Attempt| attempt.suite == suite && !matched.contains(&*attempt.task);
    let attempts = evaluation.attempts.iter().filter(kept).cloned().collect();
    summarize(&Evaluation::new(evaluation.fingerprint.clone(), attempts))
}

impl SuiteContamination {
    /// What was compared, in words.
    pub fn compared(&self) -> String {
        let prompts = format!("the prompts of {} evaluated tasks", self.prompts);
        match (self.fingerprints, self.prompts) {
            (true, 0) => "the whole benchmark by its fingerprints (n-grams, files, tables). Near duplicates were not \
                          searched: the records have no question of this benchmark"
                .to_owned(),
            (true, _) => format!(
                "the whole benchmark by its fingerprints (n-grams, files, tables); {prompts} (MinHash)"
            ),
            (false, 0) => "nothing: there are no fingerprints of this suite, and the records have no prompts".to_owned(),
            (false, _) => format!("{prompts} (n-grams, MinHash); there are no fingerprints of this suite"),
        }
    }
}

#[cfg(test)]
#[path = "contamination_tests.rs"]
mod tests;
