//! What a benchmark of questions is recognized by in training data.

use std::collections::HashSet;
use std::sync::Arc;

use pybench_datasets::decontaminate::{BenchmarkTask, Table, is_short};
use pybench_files::sniff::{Sniffed, sniff};
use pybench_types::id::Digest;

use super::Question;

/// The texts of the questions, and their files with the first question that has each.
pub(super) fn of_questions(suite: &str, questions: &[Arc<dyn Question>]) -> Vec<BenchmarkTask> {
    let (mut tasks, mut seen) = (Vec::new(), HashSet::new());
    for question in questions {
        let index = question.name();
        let task = || BenchmarkTask {
            suite: suite.to_owned(),
            index: index.clone(),
            ..BenchmarkTask::default()
        };
        let mut texts = question.texts().into_iter();
        let query = texts.next().unwrap_or_default();
        // A longer question is recognized by itself, whatever stands beside it.
        let is_recognized = !is_short(&query);
        let mut first = BenchmarkTask { query, ..task() };
        add_files(&mut first, question.as_ref(), &mut seen);
        tasks.push(first);
        let texts = texts.filter(|_| !is_recognized);
        tasks.extend(texts.map(|query| BenchmarkTask { query, ..task() }));
    }
    tasks
}

fn add_files(task: &mut BenchmarkTask, question: &dyn Question, seen: &mut HashSet<Digest>) {
    let files = question.files();
    let published = question.published_files();
    for problem in [files.as_ref().err(), published.as_ref().err()]
        .into_iter()
        .flatten()
    {
        tracing::warn!(
            "{}/{}: {problem}; its files are left out",
            task.suite,
            task.index
        );
    }
    for (name, bytes) in files.unwrap_or_default() {
        let id = Digest::of_bytes(&bytes);
        if seen.insert(id.clone()) {
            task.files.push(id);
            task.tables.extend(table(&name, &bytes));
        }
    }
    for bytes in published.unwrap_or_default() {
        let id = Digest::of_bytes(&bytes);
        if seen.insert(id.clone()) {
            task.files.push(id);
        }
    }
}

/// A file as a table, if it is one.
pub(in crate::suites) fn table(name: &str, bytes: &[u8]) -> Option<Table> {
    match sniff(name, bytes) {
        Sniffed::File(kind) | Sniffed::Broken(kind, _) => pybench_profile::content(kind, bytes),
        Sniffed::Archive(_) | Sniffed::Unknown(_) => None,
    }
}
