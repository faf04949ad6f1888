//! A page for each task of the evaluations: its prompt, and every attempt with its scores and checks.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use pybench_eval::record::task_order;
use pybench_eval::run::RESULTS;
use pybench_run::RunError;
use pybench_types::text::line;
use serde::Serialize;

use super::Chosen;
use super::content::{task_path, trajectory_path, view, word};
use super::site::Site;
use crate::index::ListQuery;
use crate::sources::{Opened, Sources};
use crate::view::{EvaluationView, View};

/// Rows of the list that are read at a time.
const ROWS: u64 = 500;

/// A task in the table of the first page.
#[derive(Serialize)]
pub(super) struct TaskLine {
    href: String,
    /// `suite/task`.
    name: String,
    category: String,
    attempts: usize,
}

/// Suite and task, in the order of reports.
#[derive(PartialEq, Eq)]
struct TaskKey {
    suite: String,
    task: String,
}

impl Ord for TaskKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_suite = self.suite.cmp(&other.suite);
        by_suite.then_with(|| task_order(&self.task, &other.task))
    }
}

impl PartialOrd for TaskKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The page of a task.
#[derive(Serialize)]
struct TaskPage {
    title: String,
    category: String,
    prompt: String,
    attempts: Vec<AttemptPart>,
}

#[derive(Serialize)]
struct AttemptPart {
    run: String,
    agent: String,
    /// From 1.
    sample: u64,
    turns: u64,
    scores: Vec<ScorePart>,
    notes: Vec<String>,
    checks: Vec<CheckPart>,
    /// Of the trajectory, if it is part of the site.
    href: Option<String>,
}

#[derive(Serialize)]
struct ScorePart {
    score: String,
    result: &'static str,
}

#[derive(Serialize)]
struct CheckPart {
    score: String,
    name: String,
    result: &'static str,
    expected: String,
    found: String,
}

/// Writes the pages; returns the lines of the table.
///
/// # Errors
/// An evaluation cannot be read, or a page cannot be written.
pub(super) fn write(
    site: &mut Site,
    sources: &Sources,
    chosen: &Chosen,
) -> Result<Vec<TaskLine>, RunError> {
    let mut pages = BTreeMap::<TaskKey, TaskPage>::new();
    for (name, folder) in sources.run_folders() {
        if !folder.join(RESULTS).is_file() {
            continue;
        }
        if let Some(opened) = sources.open_whole(&name)? {
            read(&mut pages, &name, &opened, chosen)?;
        }
    }
    let mut lines = Vec::new();
    for (key, page) in pages {
        let path = task_path(&key.suite, &key.task);
        site.page(&path, "task.html", &page)?;
        lines.push(TaskLine {
            href: path,
            name: page.title,
            category: page.category,
            attempts: page.attempts.len(),
        });
    }
    Ok(lines)
}

/// Adds the attempts of an evaluation to the pages.
fn read(
    pages: &mut BTreeMap<TaskKey, TaskPage>,
    name: &str,
    opened: &Opened,
    chosen: &Chosen,
) -> Result<(), RunError> {
    let chosen = chosen.get(name);
    let mut from = 0;
    loop {
        let query = ListQuery {
            from,
            count: ROWS,
            ..ListQuery::default()
        };
        let page = opened.page(query)?;
        for row in &page.rows {
            let Some(mut view) = view(opened, row.number)? else {
                continue;
            };
            let Some(evaluation) = view.evaluation.take() else {
                continue;
            };
            let is_chosen = chosen.is_some_and(|numbers| numbers.contains(&row.number));
            let href = is_chosen.then(|| format!("../../{}", trajectory_path(name, row.number)));
            add(pages, name, view, evaluation, href);
        }
        from += ROWS;
        if from >= page.total {
            return Ok(());
        }
    }
}

fn add(
    pages: &mut BTreeMap<TaskKey, TaskPage>,
    run: &str,
    view: View,
    evaluation: EvaluationView,
    href: Option<String>,
) {
    let key = TaskKey {
        suite: evaluation.suite.clone(),
        task: evaluation.task.clone(),
    };
    let page = pages.entry(key).or_insert_with(|| TaskPage {
        title: line(&format!("{}/{}", evaluation.suite, evaluation.task)),
        category: view.row.category.clone(),
        prompt: view.query,
        attempts: Vec::new(),
    });
    let scores = evaluation.scores.into_iter().map(|score| ScorePart {
        score: score.score,
        result: word(score.passed),
    });
    let checks = evaluation.checks.into_iter().map(|check| CheckPart {
        score: check.score,
        name: check.name,
        result: word(check.passed),
        expected: check.expected,
        found: check.found,
    });
    page.attempts.push(AttemptPart {
        run: line(run),
        agent: line(&evaluation.agent),
        sample: evaluation.seed + 1,
        turns: view.row.turns,
        scores: scores.collect(),
        notes: evaluation.notes,
        checks: checks.collect(),
        href,
    });
}
