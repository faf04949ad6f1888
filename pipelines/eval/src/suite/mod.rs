//! What a benchmark is to an evaluation: where its files come from, its tasks, and how attempts are scored.

mod solution;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent::TurnFeedback;
use pybench_attempts::estimate::CommentSize;
use pybench_checks::Checker;
use pybench_datasets::decontaminate::BenchmarkTask;
use pybench_interpreter::Interpreter;
use pybench_llm::ChatModel;
use pybench_run::{
    ContentStore, Executor, Failure, LocalExecutor, RunError, RunFolder, Stage, UnitState,
};
use pybench_types::id::Digest;
use pybench_types::task::{Category, FileKind, Language, Task, TaskFile, TaskOrigin};
use pybench_types::trajectory::{Finding, Trajectory};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::record::Headline;
pub use pybench_net::git_origin::Origin;
pub use solution::{Solution, SolutionTurn};

/// A benchmark.
#[async_trait]
pub trait Suite: Send + Sync {
    /// Name in recipes, records and on the command line.
    fn name(&self) -> &'static str;

    /// Where its files come from, and under which license.
    fn origin(&self) -> &'static Origin;

    /// What a reader of its scores must know: how they are defined and where the authors' definition is weak.
    fn notes(&self) -> Vec<String>;

    /// Describes the selected tasks for the header of the records.
    fn describe(&self, selection: &Selection) -> String;

    /// Prepares the selected tasks.
    ///
    /// # Errors
    /// The errors of the executor; [`RunError::BadInput`] if files of the suite are invalid.
    async fn tasks(&self, env: &SuiteEnv, selection: &Selection) -> Result<TaskList, RunError>;

    /// Queries, files and tables of all tasks, by which they are recognized in training data.
    ///
    /// # Errors
    /// The errors of the executor; [`RunError::BadInput`] if files of the suite are invalid.
    async fn contents(&self, env: &SuiteEnv) -> Result<Vec<BenchmarkTask>, RunError>;

    /// Scores attempts at tasks of this suite; the results are in the order of `attempts`.
    ///
    /// # Errors
    /// The errors of the executor. Failures of a single attempt are in its result.
    async fn score(
        &self,
        env: &SuiteEnv,
        attempts: &[SuiteAttempt<'_>],
    ) -> Result<Vec<AttemptScores>, RunError>;

    /// Digest of what decides the scores besides the checker.
    fn scorer(&self) -> Digest;

    /// The reference solution of a task.
    ///
    /// # Errors
    /// The task has none.
    fn solution(&self, task: &Task) -> Result<Solution, String>;

    /// What agents are told between their turns; `None` if an attempt ends with its first answer. The suite decides
    /// whether and on what `model` comments.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if files of the suite are missing or invalid.
    fn feedback(
        &self,
        _env: &SuiteEnv,
        _model: Option<FeedbackModel>,
    ) -> Result<Option<Arc<dyn TurnFeedback>>, RunError> {
        Ok(None)
    }

    /// The length of a model's comments on attempts at a task; `None` if [`Suite::feedback`] has none on it.
    fn comment_size(&self, _task: &Task) -> Option<CommentSize> {
        None
    }

    /// The task's entry in the authors' own list, for the files that their runner writes; `None` if this suite
    /// has no such files.
    fn upstream_row(&self, _task: &str) -> Option<Value> {
        None
    }

    /// Validates the scores: references must pass, null agents and wrong answers must fail.
    ///
    /// # Errors
    /// The errors of the executor. Tasks that fail the audit are in the result.
    async fn audit(&self, env: &SuiteEnv, options: &AuditOptions) -> Result<SuiteAudit, RunError>;
}

/// A model that comments on the turns of agents in the role of a user.
#[derive(Clone)]
pub struct FeedbackModel {
    pub model: Arc<dyn ChatModel>,
    /// Whether it sees the correct solution.
    pub sees_reference: bool,
}

/// What a suite works with.
pub struct SuiteEnv {
    /// Journal and content store.
    pub folder: Arc<RunFolder>,
    /// Runs cells and unit tests.
    pub interpreter: Arc<dyn Interpreter>,
    /// Evaluates checks.
    pub checker: Checker,
    /// Runs stages.
    pub executor: LocalExecutor,
}

/// The item of each attempt in a stage, if it has one.
pub(crate) type Items = Vec<Option<String>>;

/// The result of each attempt in a stage, if it has one.
pub(crate) type StageResults<T> = Vec<Option<Result<T, Failure>>>;

impl SuiteEnv {
    /// Runs the items that are not done yet and returns the results of all. Identical attempts share an item.
    pub(crate) async fn results<T: DeserializeOwned + Clone>(
        &self,
        stage: Arc<dyn Stage>,
        items: Items,
    ) -> Result<StageResults<T>, RunError> {
        let name = stage.name();
        let todo: Vec<String> = items.iter().flatten().cloned().collect();
        self.executor.run(stage, &todo).await?;
        let mut by_item: HashMap<String, Result<T, Failure>> = HashMap::new();
        for unit in self.folder.journal().units(name)? {
            let result = match (unit.state, unit.output, unit.failure) {
                (UnitState::Done, Some(output), _) => Ok(serde_json::from_value(output)?),
                (_, _, Some(failure)) => Err(failure),
                _ => continue,
            };
            by_item.insert(unit.item, result);
        }
        let result = |item: Option<String>| item.and_then(|item| by_item.get(&item).cloned());
        Ok(items.into_iter().map(result).collect())
    }
}

/// Which tasks are run, and how their inputs are made.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// PyBench tasks, for example `2-51,60`; `None` for all.
    pub tasks: Option<String>,
    /// At most so many tasks of each suite.
    pub max_tasks: Option<usize>,
    /// Decides which tasks are drawn and how inputs are perturbed.
    pub seed: u64,
    /// Whether to perturb inputs that need no work.
    pub perturb: bool,
    /// Seed for new variants of the inputs.
    pub regenerate: Option<u64>,
}

impl Selection {
    /// At most `max_tasks` of `tasks`, drawn with the seed, in their order. A smaller number draws a subset.
    pub fn draw<T>(&self, tasks: Vec<T>, name: impl Fn(&T) -> String) -> Vec<T> {
        let Some(max) = self.max_tasks.filter(|max| *max < tasks.len()) else {
            return tasks;
        };
        let rank = |task: &T| Digest::of_json(&(self.seed, name(task)));
        let mut ranks: Vec<Digest> = tasks.iter().map(rank).collect();
        ranks.sort();
        let limit = &ranks[max];
        let drawn = tasks.into_iter().filter(|task| rank(task) < *limit);
        drawn.collect()
    }
}

/// Parses a list of task numbers and ranges such as `2-51,60`.
///
/// # Errors
/// The text is not such a list.
pub fn parse_task_ranges(text: &str) -> Result<BTreeSet<u32>, String> {
    let mut found = BTreeSet::new();
    for part in text.split(',') {
        let (low, high) = part
            .trim()
            .split_once('-')
            .unwrap_or((part.trim(), part.trim()));
        match (low.trim().parse::<u32>(), high.trim().parse::<u32>()) {
            (Ok(low), Ok(high)) if low <= high && high <= 10_000 => found.extend(low..=high),
            _ => {
                return Err(format!(
                    "`{part}` is not a task number or range; expected a list such as `2-51,60`"
                ));
            }
        }
    }
    Ok(found)
}

/// A task of an evaluation.
pub struct EvalTask {
    /// Name of the suite in records.
    pub suite: String,
    /// Name of the task in the suite.
    pub name: String,
    pub task: Arc<Task>,
    /// Category or level in records.
    pub category: String,
    pub headline: Headline,
    /// Whether the inputs are the published ones, which the authors' own tests require.
    pub published: bool,
}

/// A task that cannot be run, with the reason.
pub struct UnavailableTask {
    /// Name of the suite in records.
    pub suite: String,
    /// Name of the task in the suite.
    pub name: String,
    pub category: String,
    pub prompt: String,
    pub reason: String,
}

/// The tasks of an evaluation.
#[derive(Default)]
pub struct TaskList {
    pub available: Vec<EvalTask>,
    pub unavailable: Vec<UnavailableTask>,
}

/// An attempt at a task of a suite.
#[derive(Clone, Copy)]
pub struct SuiteAttempt<'a> {
    pub task: &'a EvalTask,
    /// Index in the list of agents.
    pub agent: usize,
    pub sample: u32,
    /// `None` if the attempt failed for reasons of ours.
    pub trajectory: Option<&'a Arc<Trajectory>>,
}

/// Results of one attempt; `None` if a score does not apply to it.
#[derive(Default)]
pub struct AttemptScores {
    pub upstream: Option<Result<ScoreVerdict, Failure>>,
    pub fixed: Option<Result<ScoreVerdict, Failure>>,
    pub strict: Option<Result<Vec<Finding>, Failure>>,
}

/// Verdict of a score that the authors define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoreVerdict {
    /// What was checked: `test_task_2`, `answer`.
    pub check: String,
    pub passed: bool,
    /// What passes.
    pub expected: String,
    /// What was found instead; may be empty if it passed.
    pub found: String,
}

/// Options of an audit.
#[derive(Clone, Debug, Default)]
pub struct AuditOptions {
    /// Which tasks are audited.
    pub selection: Selection,
    /// Check only the correct solutions: no null agents, no mutants.
    pub quick: bool,
}

/// Result of an audit.
pub struct SuiteAudit {
    /// The results as JSON.
    pub json: Value,
    /// The results as a Markdown table.
    pub markdown: String,
    /// One paragraph.
    pub summary: String,
    /// What is wrong, by task.
    pub problems: Vec<(String, String)>,
}

/// A task of a benchmark whose checks are its own: `query` on `files`.
pub fn benchmark_task(
    (suite, index): (&str, &str),
    (category, subcategory): (Category, &str),
    query: &str,
    files: Vec<TaskFile>,
) -> Task {
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category,
        subcategory: subcategory.to_owned(),
        keyword: subcategory.to_owned(),
        language: language(query),
        query: query.to_owned(),
        files,
        held_out: Vec::new(),
        outputs: Vec::new(),
        reference: String::new(),
        checks: Vec::new(),
        origin: TaskOrigin::Benchmark {
            suite: suite.to_owned(),
            index: index.to_owned(),
        },
    };
    task.id = task.compute_id();
    task
}

/// The name of a task in the suite `suite`; `None` for tasks of other suites.
pub fn name_in<'a>(suite: &str, task: &'a Task) -> Option<&'a str> {
    match &task.origin {
        TaskOrigin::Benchmark { suite: of, index } if of == suite => Some(index),
        _ => None,
    }
}

/// Stores a file and describes it for a task; its kind follows from its name.
///
/// # Errors
/// The content store cannot be written.
pub fn task_file(
    name: &str,
    bytes: &[u8],
    origin: &str,
    store: &ContentStore,
) -> Result<TaskFile, RunError> {
    let extension = name
        .rsplit_once('.')
        .map_or("", |(_, end)| end)
        .to_lowercase();
    let kind = match extension.as_str() {
        "jpg" => Some(FileKind::Jpeg),
        "xls" => Some(FileKind::Xlsx),
        other => FileKind::ALL.into_iter().find(|kind| kind.name() == other),
    };
    Ok(TaskFile {
        name: name.to_owned(),
        id: store.put(bytes)?,
        kind: kind.unwrap_or(FileKind::Txt),
        origin: origin.to_owned(),
        license: None,
        derived_from: None,
        format: None,
    })
}

/// The language of a query, by its characters.
pub fn language(query: &str) -> Language {
    let chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    match query.chars().any(chinese) {
        true => Language::Zh,
        false => Language::En,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_ranges_are_parsed() {
        assert_eq!(
            parse_task_ranges("2-4, 3,9")
                .unwrap()
                .into_iter()
                .collect::<Vec<_>>(),
            [2, 3, 4, 9]
        );
        for text in ["", "a", "5-", "1-99999999", "-"] {
            assert!(parse_task_ranges(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_smaller_draw_is_a_subset_in_order() {
        let draw = |max: usize| {
            let selection = Selection {
                max_tasks: Some(max),
                seed: 7,
                ..Selection::default()
            };
            selection.draw((0..100).collect(), |n: &i32| n.to_string())
        };
        let (few, many) = (draw(10), draw(40));
        assert_eq!((few.len(), many.len(), draw(100).len()), (10, 40, 100));
        assert!(many.is_sorted() && few.iter().all(|n| many.contains(n)));
        assert_ne!(few, (0..10).collect::<Vec<_>>());
    }
}
