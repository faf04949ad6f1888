//! Human review of tasks, the manual edit of the paper: exports tasks as JSON Lines and imports the
//! decisions to accept, change or reject them.
//!
//! Decisions are stored in the journal under the id that the task had when it was written, so they apply
//! again each time the stage rewrites its artifact.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use pybench_run::run_selection::stage_command;
use pybench_run::{Journal, RunContext, RunError};
use pybench_types::check::CheckSpec;
use pybench_types::id::Digest;
use pybench_types::task::{SourceFile, Task};
use pybench_types::text::{shell_word, visible};
use serde::{Deserialize, Serialize};

use super::writer::rules;
use pybench_run::artifacts::{Artifact, FILES, TASKS};
use pybench_types::task::MAX_QUERY;

use super::diff;

/// The tasks before review; written once a decision exists.
const WRITTEN: Artifact<Task> = Artifact::new("tasks.written.jsonl", "a task", "query");
/// Maximum size of a review file.
const MAX_BYTES: u64 = 256 << 20;
/// Prefix of the journal keys of decisions; the task id follows.
const DECISION_PREFIX: &str = "review/";
/// Maximum number of problems in one error message.
const MAX_SHOWN: usize = 20;

/// The decision on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Keep the task unchanged.
    Accept,
    /// Replace its query, outputs, reference and checks with those of the line.
    Change,
    /// Drop the task.
    Reject,
}

/// A decision with the task that it makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewLine {
    /// Id of the task before review; do not edit.
    pub task: Digest,
    pub decision: Decision,
    /// Context for the reviewer; ignored on import.
    #[serde(default)]
    pub about: BTreeMap<String, String>,
    pub query: String,
    /// Files that the query requests.
    pub outputs: Vec<String>,
    /// Python code that computes the expected results.
    pub reference: String,
    pub checks: Vec<CheckSpec>,
    /// Names that a changed query introduces itself, such as columns of a result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub makes: Vec<String>,
    /// Free text of the reviewer; ignored on import.
    #[serde(default)]
    pub note: String,
}

/// The tasks and files of the reviewed run, by id.
struct ReviewedRun<'a> {
    tasks: HashMap<&'a Digest, &'a Task>,
    files: HashMap<&'a Digest, &'a SourceFile>,
}

impl ReviewedRun<'_> {
    /// Names in a changed query that the files do not contain and that the original query did not use
    /// either. Empty if a file was derived from crawled ones, because its profile is unknown.
    fn unknown(&self, line: &ReviewLine, task: &Task) -> Vec<String> {
        let named = task.files.iter().map(|file| {
            let known = self.files.get(&file.id)?;
            Some(SourceFile {
                name: file.name.clone(),
                ..(*known).clone()
            })
        });
        let Some(files) = named.collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        let files: Vec<&SourceFile> = files.iter().collect();
        let before = rules::unknown(&task.query, &task.outputs, &[], &files);
        let mut now = rules::unknown(&line.query, &line.outputs, &line.makes, &files);
        now.retain(|problem| !before.contains(problem));
        now
    }
}

impl ReviewLine {
    /// The line that is exported for an undecided task.
    fn of(task: &Task) -> Self {
        let files: Vec<_> = task.files.iter().map(|file| file.name.as_str()).collect();
        let about = [
            ("keyword", task.keyword.clone()),
            ("category", format!("{:?}", task.category).to_lowercase()),
            ("language", format!("{:?}", task.language).to_lowercase()),
            ("files", files.join(", ")),
        ];
        Self {
            task: task.id.clone(),
            decision: Decision::Accept,
            about: about.map(|(key, value)| (key.to_owned(), value)).into(),
            query: task.query.clone(),
            outputs: task.outputs.clone(),
            reference: task.reference.clone(),
            checks: task.checks.clone(),
            makes: Vec::new(),
            note: String::new(),
        }
    }

    /// The task after the decision; `None` if it is rejected.
    fn apply(&self, task: &Task) -> Option<Task> {
        match self.decision {
            Decision::Accept => Some(task.clone()),
            Decision::Reject => None,
            Decision::Change => {
                let mut task = task.clone();
                task.query.clone_from(&self.query);
                task.outputs.clone_from(&self.outputs);
                task.reference.clone_from(&self.reference);
                task.checks.clone_from(&self.checks);
                task.id = task.compute_id();
                Some(task)
            }
        }
    }

    fn differs(&self, task: &Task) -> bool {
        let own = (&self.query, &self.outputs, &self.reference, &self.checks);
        own != (&task.query, &task.outputs, &task.reference, &task.checks)
    }

    /// Why the line cannot be imported, and how to fix it.
    fn problem(&self, task: &Task, run: &ReviewedRun<'_>) -> Option<String> {
        match (self.decision, self.differs(task)) {
            (Decision::Reject, _) | (Decision::Accept, false) => return None,
            (Decision::Accept, true) => {
                return Some(
                    "the line was edited, but its decision is `accept`: set it to `change`"
                        .to_owned(),
                );
            }
            (Decision::Change, false) => {
                return Some(
                    "the decision is `change`, but nothing was edited: set it to `accept`"
                        .to_owned(),
                );
            }
            (Decision::Change, true) => {}
        }
        let characters = self.query.trim().chars().count();
        if !(1..=MAX_QUERY).contains(&characters) {
            return Some(format!(
                "query: has {characters} characters; 1 to {MAX_QUERY} are allowed"
            ));
        }
        if let Some(problem) = rules::outputs(&self.query, &self.outputs)
            .into_iter()
            .next()
        {
            return Some(format!("outputs: {problem}"));
        }
        if let Some(problem) = run.unknown(self, task).into_iter().next() {
            return Some(format!(
                "query: {problem} (list names that the query introduces itself in `makes`)"
            ));
        }
        if self.checks.is_empty() && !task.checks.is_empty() {
            return Some(
                "checks: the list is empty; keep at least one check, or reject the task".to_owned(),
            );
        }
        let path = |check: &CheckSpec| {
            let value = serde_json::to_value(check).unwrap_or_default();
            value["path"].as_str().map(str::to_owned)
        };
        let mut paths = self.checks.iter().filter_map(path);
        let unknown = paths.find(|path| !self.outputs.contains(path))?;
        Some(format!(
            "checks: a check reads `{unknown}`, which is not in `outputs`: change or remove the check"
        ))
    }
}

/// Applies the decisions to these tasks. Tasks without a decision stay unchanged.
pub(super) fn reviewed(context: &RunContext, tasks: Vec<Task>) -> Result<Vec<Task>, RunError> {
    let decisions = decisions(context.folder.journal())?;
    if decisions.is_empty() {
        return Ok(tasks);
    }
    WRITTEN.write(&context.folder, tasks.iter().map(Ok))?;
    let decided = |task: Task| match decisions.get(&task.id) {
        Some(line) => line.apply(&task),
        None => Some(task),
    };
    Ok(tasks.into_iter().filter_map(decided).collect())
}

/// Whether a reviewer has decided on any task.
pub(super) fn has_decisions(journal: &Journal) -> Result<bool, RunError> {
    Ok(!journal.metadata_with_prefix(DECISION_PREFIX)?.is_empty())
}

fn decisions(journal: &Journal) -> Result<HashMap<Digest, ReviewLine>, RunError> {
    let entries = journal.metadata_with_prefix(DECISION_PREFIX)?.into_iter();
    let lines = entries.map(|(_, value)| {
        let line: ReviewLine = serde_json::from_value(value)?;
        Ok((line.task.clone(), line))
    });
    lines.collect()
}

fn written(root: &Path) -> Result<Vec<Task>, RunError> {
    match WRITTEN.exists(root) {
        true => WRITTEN.read_all(root),
        false => TASKS.read_all(root),
    }
}

/// The tasks of the run in `root` before review, in order, each with the decision on it.
///
/// # Errors
/// [`RunError::BadInput`] if the run has no tasks or no journal.
pub fn tasks(root: &Path) -> Result<Vec<(Task, Option<ReviewLine>)>, RunError> {
    let tasks = written(root)?;
    let mut decisions = decisions(&Journal::read_run(root)?)?;
    let decided = tasks.into_iter().map(|task| {
        let line = decisions.remove(&task.id);
        (task, line)
    });
    Ok(decided.collect())
}

/// Decides on a task of the run in `root`, checked as [`import`] checks it, while another process may work on the run.
/// `change` gets the former decision, or the line of an undecided task. The decision is on the disk when this returns, and
/// applies when the stage writes its artifact the next time.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such task, or the decision cannot be imported; [`RunError::Conflict`] if the journal
/// was replaced meanwhile.
pub fn decide(
    root: &Path,
    id: &Digest,
    change: impl FnOnce(&mut ReviewLine),
) -> Result<(Task, ReviewLine), RunError> {
    let tasks = written(root)?;
    let files = FILES.read_all(root)?;
    let run = ReviewedRun {
        tasks: tasks.iter().map(|task| (&task.id, task)).collect(),
        files: files.iter().map(|file| (&file.id, file)).collect(),
    };
    let task = *run.tasks.get(id).ok_or_else(|| {
        let short = id.short();
        RunError::BadInput(format!("this run has no task {short}; reload the page"))
    })?;
    let key = format!("{DECISION_PREFIX}{id}");
    let journal = Journal::join_run(root)?;
    let former = journal.metadata(&key)?;
    let former: Option<ReviewLine> = former.map(serde_json::from_value).transpose()?;
    let mut line = former.unwrap_or_else(|| ReviewLine::of(task));
    change(&mut line);
    if line.decision == Decision::Accept {
        line = ReviewLine {
            about: line.about,
            note: line.note,
            ..ReviewLine::of(task)
        };
    }
    if let Some(problem) = line.problem(task, &run) {
        return Err(RunError::BadInput(problem));
    }
    let value = serde_json::to_value(&line)?;
    journal.set_metadata_synced(&key, &value)?;
    // A run that is started over has another journal, and one that is being moved is refused.
    match Journal::join_run(root)?.metadata(&key)? {
        Some(saved) if saved == value => Ok((task.clone(), line)),
        _ => Err(RunError::Conflict(
            "the decision was not saved: the run was started over, or somebody decided on the same task at this moment; reload \
             the page and decide again"
                .to_owned(),
        )),
    }
}

/// Exports every task of the run as one line, with earlier decisions. Returns a message for the user.
///
/// # Errors
/// [`RunError::BadInput`] if the run has no tasks; errors of writing the file.
pub fn export(context: &RunContext, path: &Path) -> Result<String, RunError> {
    let tasks = written(context.folder.root())?;
    let decisions = decisions(context.folder.journal())?;
    let mut lines = String::new();
    for task in &tasks {
        let line = decisions.get(&task.id).cloned();
        lines += &serde_json::to_string(&line.unwrap_or_else(|| ReviewLine::of(task)))?;
        lines.push('\n');
    }
    pybench_run::write_output(path, lines.as_bytes())?;
    Ok(format!(
        "{} tasks in {}: set `decision` to accept, change or reject, then run:\n{} --import {}\n",
        tasks.len(),
        path.display(),
        stage_command(context.folder.root(), "query"),
        shell_word(&path.to_string_lossy())
    ))
}

/// Imports the decisions of a file, all or none. Returns a text that shows what they change.
///
/// # Errors
/// [`RunError::BadInput`] lists every line that cannot be imported, and how to fix it.
pub fn import(context: &RunContext, path: &Path) -> Result<String, RunError> {
    let tasks = written(context.folder.root())?;
    let files = FILES.read_all(context.folder.root())?;
    let run = ReviewedRun {
        tasks: tasks.iter().map(|task| (&task.id, task)).collect(),
        files: files.iter().map(|file| (&file.id, file)).collect(),
    };
    let lines = read(path, &run)?;
    let journal = context.folder.journal();
    let mut text = String::new();
    let mut counts = [0; 3];
    for line in &lines {
        journal.set_metadata(
            &format!("{DECISION_PREFIX}{}", line.task),
            &serde_json::to_value(line)?,
        )?;
        counts[line.decision as usize] += 1;
        if let Some(task) = run.tasks.get(&line.task) {
            describe_decision(&mut text, line, task);
        }
    }
    let remaining = super::finish(context, tasks.clone())?;
    let [accepted, changed, rejected] = counts;
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{accepted} accepted, {changed} changed, {rejected} rejected; {remaining} tasks in the run"
    );
    Ok(text)
}

fn read(path: &Path, run: &ReviewedRun<'_>) -> Result<Vec<ReviewLine>, RunError> {
    let shown = path.display();
    let bad = |text: String| RunError::BadInput(format!("{shown}: {text}"));
    let file = std::fs::File::open(path).map_err(|error| bad(error.to_string()))?;
    let mut text = String::new();
    let size = file.take(MAX_BYTES + 1).read_to_string(&mut text);
    if size.map_err(|error| bad(error.to_string()))? as u64 > MAX_BYTES {
        return Err(bad(format!("the file is larger than {MAX_BYTES} bytes")));
    }
    let (mut lines, mut problems, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let numbered = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    for (number, line) in numbered {
        match check(line, run, &mut seen) {
            Ok(line) => lines.push(line),
            Err(problem) => problems.push(format!("{shown}:{}: {problem}", number + 1)),
        }
    }
    match problems.len() {
        0 => Ok(lines),
        count => {
            problems.truncate(MAX_SHOWN);
            if count > MAX_SHOWN {
                problems.push(format!("… and {} more", count - MAX_SHOWN));
            }
            problems.push("nothing was imported".to_owned());
            Err(RunError::BadInput(problems.join("\n")))
        }
    }
}

fn check(
    line: &str,
    run: &ReviewedRun<'_>,
    seen: &mut HashSet<Digest>,
) -> Result<ReviewLine, String> {
    let line: ReviewLine = serde_json::from_str(line)
        .map_err(|error| format!("invalid review line: {error}; `--export` writes valid ones"))?;
    let short = line.task.short();
    let Some(task) = run.tasks.get(&line.task) else {
        return Err(format!(
            "this run has no task {short}: export the tasks again"
        ));
    };
    if !seen.insert(line.task.clone()) {
        return Err(format!("task {short} is listed twice: remove one line"));
    }
    match line.problem(task, run) {
        Some(problem) => Err(problem),
        None => Ok(line),
    }
}

/// Appends what a decision changes; nothing for an accepted task.
fn describe_decision(text: &mut String, line: &ReviewLine, task: &Task) {
    let short = line.task.short();
    // Writing to a String cannot fail.
    match line.decision {
        Decision::Accept => {}
        Decision::Reject => {
            let _ = writeln!(text, "── {short} · rejected\n{}\n", visible(&task.query));
        }
        Decision::Change => {
            let query = visible(&diff::words(&task.query, &line.query));
            let _ = writeln!(text, "── {short} · changed\n{query}");
            let json =
                |checks: &[CheckSpec]| serde_json::to_string_pretty(checks).unwrap_or_default();
            for (old, new) in [
                (task.outputs.join("\n"), line.outputs.join("\n")),
                (task.reference.clone(), line.reference.clone()),
                (json(&task.checks), json(&line.checks)),
            ] {
                text.push_str(&visible(&diff::lines(&old, &new)));
            }
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_query_may_only_use_known_names() {
        let file = pybench_testing::files::cars("cars.csv");
        let mut task = pybench_testing::task::task();
        task.query = "Add a column \"ratio\" to cars.csv and print it.".to_owned();
        task.files.push(pybench_types::task::TaskFile {
            name: file.name.clone(),
            id: file.id.clone(),
            kind: file.kind,
            origin: String::new(),
            license: None,
            derived_from: None,
            format: None,
        });
        let run = ReviewedRun {
            tasks: HashMap::from([(&task.id, &task)]),
            files: HashMap::from([(&file.id, &file)]),
        };
        let problem_of = |query: &str, makes: &[&str]| {
            let mut line = ReviewLine::of(&task);
            line.decision = Decision::Change;
            line.query = query.to_owned();
            line.makes = makes.iter().map(|name| (*name).to_owned()).collect();
            line.problem(&task, &run)
        };
        // Names in the original query were checked when it was written.
        assert_eq!(
            problem_of("Print the column \"ratio\" of cars.csv.", &[]),
            None
        );
        let columns = "Print the column \"quotient\" of cars.csv.";
        let refused = problem_of(columns, &[]).unwrap();
        assert!(
            refused.contains("`quotient`") && refused.contains("`makes`"),
            "{refused}"
        );
        assert_eq!(problem_of(columns, &["quotient"]), None);
        let refused = problem_of("Print everything in lorries.csv.", &[]).unwrap();
        assert!(refused.contains("`lorries.csv`"), "{refused}");
        let other = ReviewedRun {
            files: HashMap::new(),
            ..run
        };
        assert!(other.unknown(&ReviewLine::of(&task), &task).is_empty());
    }

    #[test]
    fn decisions_of_a_page_are_checked_as_imported_ones_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let task = Task {
            query: "Print the mean.".to_owned(),
            ..pybench_testing::task::task()
        };
        let line = |value: &Task| serde_json::to_string(value).unwrap() + "\n";
        std::fs::write(WRITTEN.path(root), line(&task)).unwrap();
        std::fs::write(FILES.path(root), "").unwrap();
        Journal::open(&root.join("journal.sqlite")).unwrap();
        let word = |decision: Decision, query: &str| {
            decide(root, &task.id, |line| {
                line.decision = decision;
                line.query = query.to_owned();
                line.note = "n".to_owned();
            })
        };
        let refused =
            |decision: Decision, query: &str| word(decision, query).unwrap_err().to_string();
        assert!(refused(Decision::Change, "").contains("query"));
        assert!(refused(Decision::Change, &task.query).contains("nothing was edited"));
        assert!(tasks(root).unwrap()[0].1.is_none());
        let (_, changed) = word(Decision::Change, "Print the median.").unwrap();
        assert_eq!(
            tasks(root).unwrap(),
            [(task.clone(), Some(changed.clone()))]
        );
        assert_eq!(changed.apply(&task).unwrap().query, "Print the median.");
        // Accepted, the task is as it was written.
        let (_, accepted) = word(Decision::Accept, "Print nothing.").unwrap();
        assert_eq!(
            (&*accepted.query, &*accepted.note),
            ("Print the mean.", "n")
        );
        let other = decide(root, &Digest::of_bytes(b"x"), |_| ()).unwrap_err();
        assert!(other.to_string().contains("no task"), "{other}");
    }

    #[test]
    fn fuzz_any_line_is_imported_or_refused() {
        let task = Task {
            query: String::new(),
            ..pybench_testing::task::task()
        };
        let run = ReviewedRun {
            tasks: HashMap::from([(&task.id, &task)]),
            files: HashMap::new(),
        };
        let good = serde_json::to_string(&ReviewLine::of(&task)).unwrap();
        assert!(check(&good, &run, &mut HashSet::new()).is_ok());
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let _ = check(&text, &run, &mut HashSet::new());
            let query = serde_json::to_string(&text).unwrap_or_default();
            let changed = good.replace("\"query\":\"\"", &format!("\"query\":{query}"));
            let changed = changed.replace("accept", "change");
            if let Ok(line) = check(&changed, &run, &mut HashSet::new()) {
                assert!(line.apply(&task).is_some_and(|new| new.id != task.id));
            }
        });
    }
}
