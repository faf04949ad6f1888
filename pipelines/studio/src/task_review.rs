//! Decisions of people on tasks before they are solved, and paid: those of `pybench query --import`, made on a page.

use std::path::Path;

use pybench_run::RunError;
use pybench_synthesize::task_review::{self, Decision, ReviewLine};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::review::name_problem;

/// Where the name of the person is kept in a line of the review.
const REVIEWER: &str = "reviewer";
/// Tasks of a page, unless the query says, and at most.
const DEFAULT_PAGE: u64 = 20;
const MAX_PAGE: u64 = 100;
/// Maximum number of characters of a comment.
const MAX_COMMENT: usize = 10_000;
/// Maximum number of names that a query introduces.
const MAX_NAMES: usize = 100;

/// What is asked of the tasks.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TaskQuery {
    /// Number of tasks before the page.
    pub(crate) from: u64,
    /// Tasks of the page, at most 100; 0 for 20.
    pub(crate) count: u64,
    /// Only tasks that are `undecided`, `accepted`, `changed` or `rejected`; empty for all.
    pub(crate) decision: String,
}

/// A part of the tasks of a run, in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TaskQueue {
    /// Number of tasks that match.
    pub(crate) total: u64,
    /// Numbers of all tasks, by decision.
    pub(crate) undecided: u64,
    pub(crate) accepted: u64,
    pub(crate) changed: u64,
    pub(crate) rejected: u64,
    pub(crate) tasks: Vec<TaskView>,
}

/// A task as it was written, and the decision on it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TaskView {
    /// Position in the run, from 1.
    pub(crate) number: u64,
    pub(crate) id: String,
    pub(crate) category: String,
    pub(crate) keyword: String,
    pub(crate) language: String,
    pub(crate) query: String,
    /// Names of the input files.
    pub(crate) files: Vec<String>,
    pub(crate) outputs: Vec<String>,
    /// Code that computes the expected results.
    pub(crate) reference: String,
    /// The checks, as JSON.
    pub(crate) checks: String,
    pub(crate) review: Option<TaskReview>,
}

/// What a person decided on a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskReview {
    pub(crate) reviewer: String,
    pub(crate) decision: TaskDecision,
    /// The wording, if it is changed.
    pub(crate) query: String,
    /// Names that a changed wording introduces itself, such as columns of a result.
    pub(crate) makes: Vec<String>,
    pub(crate) comment: String,
}

/// The decision on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskDecision {
    /// It stays as it was written.
    Accept,
    /// Its wording is replaced.
    Change,
    /// It is dropped.
    Reject,
}

impl From<Decision> for TaskDecision {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Accept => Self::Accept,
            Decision::Change => Self::Change,
            Decision::Reject => Self::Reject,
        }
    }
}

impl From<TaskDecision> for Decision {
    fn from(decision: TaskDecision) -> Self {
        match decision {
            TaskDecision::Accept => Self::Accept,
            TaskDecision::Change => Self::Change,
            TaskDecision::Reject => Self::Reject,
        }
    }
}

impl From<&ReviewLine> for TaskReview {
    fn from(line: &ReviewLine) -> Self {
        Self {
            reviewer: line.about.get(REVIEWER).cloned().unwrap_or_default(),
            decision: line.decision.into(),
            query: line.query.clone(),
            makes: line.makes.clone(),
            comment: line.note.clone(),
        }
    }
}

impl TaskReview {
    /// Why it cannot be saved, whatever the task is.
    fn problem(&self) -> Option<String> {
        if let Some(problem) = name_problem("reviewer", &self.reviewer) {
            return Some(problem);
        }
        if self.comment.chars().count() > MAX_COMMENT {
            return Some(format!("`comment` has more than {MAX_COMMENT} characters"));
        }
        (self.makes.len() > MAX_NAMES).then(|| format!("`makes` has more than {MAX_NAMES} names"))
    }

    /// Writes it into the line of a task.
    fn fill(&self, line: &mut ReviewLine) {
        line.decision = self.decision.into();
        line.note.clone_from(&self.comment);
        let reviewer = self.reviewer.clone();
        line.about.insert(REVIEWER.to_owned(), reviewer);
        if self.decision == TaskDecision::Change {
            self.query.trim().clone_into(&mut line.query);
            line.makes.clone_from(&self.makes);
        }
    }
}

impl TaskView {
    fn new(number: u64, task: &Task, line: Option<&ReviewLine>) -> Self {
        let name = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            number,
            id: task.id.to_string(),
            category: name(json!(task.category)),
            keyword: task.keyword.clone(),
            language: name(json!(task.language)),
            query: task.query.clone(),
            files: task.files.iter().map(|file| file.name.clone()).collect(),
            outputs: task.outputs.clone(),
            reference: task.reference.clone(),
            checks: serde_json::to_string_pretty(&task.checks).unwrap_or_default(),
            review: line.map(TaskReview::from),
        }
    }
}

/// A part of the tasks of the run in a folder.
///
/// # Errors
/// [`RunError::BadInput`] if the query is invalid, or the run has no tasks.
pub(crate) fn queue(folder: &Path, query: &TaskQuery) -> Result<TaskQueue, RunError> {
    let wanted = match &*query.decision {
        "" => None,
        "undecided" => Some(None),
        "accepted" => Some(Some(Decision::Accept)),
        "changed" => Some(Some(Decision::Change)),
        "rejected" => Some(Some(Decision::Reject)),
        other => {
            return Err(RunError::BadInput(format!(
                "`decision` is `{other}`; expected undecided, accepted, changed or rejected"
            )));
        }
    };
    let tasks = task_review::tasks(folder)?;
    let decision = |line: &Option<ReviewLine>| line.as_ref().map(|line| line.decision);
    let count = |which: Option<Decision>| {
        let decided = tasks.iter().filter(|(_, line)| decision(line) == which);
        decided.count() as u64
    };
    let numbered = (1..).zip(&tasks);
    let matching: Vec<(u64, &(Task, Option<ReviewLine>))> = numbered
        .filter(|(_, (_, line))| wanted.is_none_or(|wanted| decision(line) == wanted))
        .collect();
    let most = match query.count {
        0 => DEFAULT_PAGE,
        most => most.min(MAX_PAGE),
    };
    let page = matching
        .iter()
        .skip(usize::try_from(query.from).unwrap_or(usize::MAX))
        .take(most as usize);
    Ok(TaskQueue {
        total: matching.len() as u64,
        undecided: count(None),
        accepted: count(Some(Decision::Accept)),
        changed: count(Some(Decision::Change)),
        rejected: count(Some(Decision::Reject)),
        tasks: page
            .map(|(number, (task, line))| TaskView::new(*number, task, line.as_ref()))
            .collect(),
    })
}

/// Saves a decision on a task. It is on the disk when this returns.
///
/// # Errors
/// [`RunError::BadInput`] if it cannot be saved, or `pybench query --import` would refuse it; [`RunError::Conflict`] if the
/// journal was replaced meanwhile.
pub(crate) fn save(
    folder: &Path,
    task: &Digest,
    review: &TaskReview,
) -> Result<TaskReview, RunError> {
    if let Some(problem) = review.problem() {
        return Err(RunError::BadInput(problem));
    }
    let (_, line) = task_review::decide(folder, task, |line| review.fill(line))?;
    Ok(TaskReview::from(&line))
}

#[cfg(test)]
mod tests {
    use pybench_run::Journal;
    use pybench_run::artifacts::{FILES, TASKS};

    use super::*;

    /// A run with three tasks.
    fn run() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let task = |number: u8| {
            let task = Task {
                id: Digest::of_bytes(&[number]),
                query: format!("Print the mean of {number} numbers."),
                ..pybench_testing::task::task()
            };
            serde_json::to_string(&task).unwrap()
        };
        let tasks = [1, 2, 3].map(task).join("\n");
        std::fs::write(TASKS.path(folder.path()), tasks + "\n").unwrap();
        std::fs::write(FILES.path(folder.path()), "").unwrap();
        Journal::open(&folder.path().join("journal.sqlite")).unwrap();
        folder
    }

    fn review(decision: TaskDecision, query: &str) -> TaskReview {
        TaskReview {
            reviewer: "ann".into(),
            decision,
            query: query.into(),
            makes: Vec::new(),
            comment: "why".into(),
        }
    }

    #[test]
    fn decided_tasks_leave_the_queue() {
        let folder = run();
        let folder = folder.path();
        let id = |number: u8| Digest::of_bytes(&[number]);
        let of = |decision: &str| {
            let query = TaskQuery {
                decision: decision.into(),
                ..TaskQuery::default()
            };
            let found = queue(folder, &query).unwrap();
            let numbers: Vec<u64> = found.tasks.iter().map(|task| task.number).collect();
            (found, numbers)
        };
        assert_eq!(of("undecided").1, [1, 2, 3]);
        save(folder, &id(2), &review(TaskDecision::Reject, "")).unwrap();
        let changed = review(TaskDecision::Change, "Print the median of 3 numbers.");
        assert_eq!(save(folder, &id(3), &changed).unwrap(), changed);
        assert_eq!(of("undecided").1, [1]);
        let (found, numbers) = of("");
        assert_eq!(
            (numbers, found.undecided, found.changed, found.rejected),
            (vec![1, 2, 3], 1, 1, 1)
        );
        assert_eq!(found.tasks[2].review, Some(changed));
        let next = TaskQuery {
            from: 1,
            count: 1,
            ..TaskQuery::default()
        };
        assert_eq!(queue(folder, &next).unwrap().tasks[0].number, 2);
        let unknown = TaskQuery {
            decision: "x".into(),
            ..TaskQuery::default()
        };
        assert!(queue(folder, &unknown).is_err());
    }

    #[test]
    fn what_import_refuses_is_refused() {
        let folder = run();
        let bad = |review: &TaskReview| {
            let saved = save(folder.path(), &Digest::of_bytes(&[1]), review);
            saved.unwrap_err().to_string()
        };
        let same = review(TaskDecision::Change, "Print the mean of 1 numbers.");
        assert!(bad(&same).contains("nothing was edited"), "{}", bad(&same));
        let nobody = TaskReview {
            reviewer: "a/b".into(),
            ..review(TaskDecision::Accept, "")
        };
        assert!(bad(&nobody).contains("`reviewer`"));
    }
}
