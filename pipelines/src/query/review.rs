//! The paper's manual edit: tasks go out as lines to be accepted, changed or rejected, and come back.
//!
//! Decisions are facts of the journal, by the id that a task had when it was written, so that they hold
//! whenever the stage writes its artefact anew.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use pybench::grade::CheckSpec;
use pybench::id::Digest;
use pybench::run::{Journal, RunContext, RunError};
use pybench::task::{SourceFile, Task};
use pybench::text::visible;
use serde::{Deserialize, Serialize};

use super::writer::{MOST_QUERY, rules};
use super::{FILES, TASKS, diff, read_lines, task_lines};

/// The tasks as they were written, once there are decisions.
const WRITTEN: &str = "tasks.written.jsonl";
/// Largest file of decisions.
const MOST_BYTES: u64 = 256 << 20;
/// Before the id in the key of a decision's fact.
const FACT: &str = "review/";
/// Problems shown at once.
const MOST_SHOWN: usize = 20;

/// What is decided on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It stays as it was written.
    Accept,
    /// It becomes what the line says.
    Change,
    /// It is left out.
    Reject,
}

/// One line of a review.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Id of the task as it was written; not to be edited.
    pub task: Digest,
    /// What is decided.
    pub decision: Decision,
    /// What the task is about; for people.
    #[serde(default)]
    pub about: BTreeMap<String, String>,
    /// What the user asks.
    pub query: String,
    /// Files that the query asks for.
    pub outputs: Vec<String>,
    /// Python that computes what is expected.
    pub reference: String,
    /// What is compared.
    pub checks: Vec<CheckSpec>,
    /// Names in a changed query that it introduces itself, such as columns of a result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub makes: Vec<String>,
    /// For people.
    #[serde(default)]
    pub note: String,
}

/// What a review is about.
struct Run<'a> {
    tasks: HashMap<&'a Digest, &'a Task>,
    files: HashMap<&'a Digest, &'a SourceFile>,
}

impl Run<'_> {
    /// What a changed query names and what is not there, beyond what the one before it did. Of files that
    /// were made from crawled ones nothing is known, and nothing is said.
    fn unknown(&self, line: &Line, task: &Task) -> Vec<String> {
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

impl Line {
    /// The line of a task as it was written.
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

    /// The task as decided.
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

    /// What is wrong with it, and the way out.
    fn problem(&self, task: &Task, run: &Run<'_>) -> Option<String> {
        match (self.decision, self.differs(task)) {
            (Decision::Reject, _) | (Decision::Accept, false) => return None,
            (Decision::Accept, true) => {
                return Some("the line was edited: set its decision to `change`".to_owned());
            }
            (Decision::Change, false) => {
                return Some("nothing was changed: set the decision to `accept`".to_owned());
            }
            (Decision::Change, true) => {}
        }
        let characters = self.query.trim().chars().count();
        if !(1..=MOST_QUERY).contains(&characters) {
            return Some(format!(
                "query: {characters} characters; 1 to {MOST_QUERY} are expected"
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
                "query: {problem} (what the query makes itself belongs into `makes`)"
            ));
        }
        if self.checks.is_empty() && !task.checks.is_empty() {
            return Some("checks: none is left; reject the task, or keep one".to_owned());
        }
        let path = |check: &CheckSpec| {
            let value = serde_json::to_value(check).unwrap_or_default();
            value["path"].as_str().map(str::to_owned)
        };
        let mut paths = self.checks.iter().filter_map(path);
        let lost = paths.find(|path| !self.outputs.contains(path))?;
        Some(format!(
            "checks: one looks at `{lost}`, which is not among the outputs: change or remove it"
        ))
    }
}

/// The tasks as people decided on them; as they were written where nobody did.
pub(super) fn reviewed(context: &RunContext, tasks: Vec<Task>) -> Result<Vec<Task>, RunError> {
    let decisions = decisions(context.folder.journal())?;
    if decisions.is_empty() {
        return Ok(tasks);
    }
    context
        .folder
        .write(WRITTEN, task_lines(&tasks)?.as_bytes())?;
    let decided = |task: Task| match decisions.get(&task.id) {
        Some(line) => line.apply(&task),
        None => Some(task),
    };
    Ok(tasks.into_iter().filter_map(decided).collect())
}

fn decisions(journal: &Journal) -> Result<HashMap<Digest, Line>, RunError> {
    let facts = journal.facts(FACT)?.into_iter();
    let lines = facts.map(|(_, value)| {
        let line: Line = serde_json::from_value(value)?;
        Ok((line.task.clone(), line))
    });
    lines.collect()
}

fn written(context: &RunContext) -> Result<Vec<Task>, RunError> {
    let root = context.folder.root();
    let paths = [root.join(WRITTEN), root.join(TASKS)];
    match paths.iter().find(|path| path.exists()) {
        Some(path) => read_lines(path),
        None => Err(RunError::BadInput(format!(
            "{} is not there: `pybench query` writes it",
            paths[1].display()
        ))),
    }
}

/// Writes every task of the run as a line, with what was decided before; what to tell the user.
///
/// # Errors
/// [`RunError::BadInput`] where the run has no tasks; failures of the disk.
pub fn export(context: &RunContext, path: &Path) -> Result<String, RunError> {
    let tasks = written(context)?;
    let decisions = decisions(context.folder.journal())?;
    let mut lines = String::new();
    for task in &tasks {
        let line = decisions.get(&task.id).cloned();
        lines += &serde_json::to_string(&line.unwrap_or_else(|| Line::of(task)))?;
        lines.push('\n');
    }
    std::fs::write(path, lines).map_err(RunError::io(path.display().to_string()))?;
    Ok(format!(
        "{} tasks in {}: set `decision` to accept, change or reject, then `--import` it\n",
        tasks.len(),
        path.display()
    ))
}

/// Takes the decisions of a file over, all or none; shows what they change.
///
/// # Errors
/// [`RunError::BadInput`] names every line that cannot be taken over, and the way out.
pub fn import(context: &RunContext, path: &Path) -> Result<String, RunError> {
    let tasks = written(context)?;
    let files: Vec<SourceFile> = read_lines(&context.folder.root().join(FILES))?;
    let run = Run {
        tasks: tasks.iter().map(|task| (&task.id, task)).collect(),
        files: files.iter().map(|file| (&file.id, file)).collect(),
    };
    let lines = read(path, &run)?;
    let journal = context.folder.journal();
    let mut text = String::new();
    let mut counts = [0; 3];
    for line in &lines {
        journal.set_fact(
            &format!("{FACT}{}", line.task),
            &serde_json::to_value(line)?,
        )?;
        counts[line.decision as usize] += 1;
        if let Some(task) = run.tasks.get(&line.task) {
            show(&mut text, line, task);
        }
    }
    let left = super::finish(context, tasks.clone())?;
    let [accepted, changed, rejected] = counts;
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{accepted} accepted, {changed} changed, {rejected} rejected; {left} tasks in the run"
    );
    Ok(text)
}

fn read(path: &Path, run: &Run<'_>) -> Result<Vec<Line>, RunError> {
    let shown = path.display();
    let bad = |text: String| RunError::BadInput(format!("{shown}: {text}"));
    let file = std::fs::File::open(path).map_err(|error| bad(error.to_string()))?;
    let mut text = String::new();
    let size = file.take(MOST_BYTES + 1).read_to_string(&mut text);
    if size.map_err(|error| bad(error.to_string()))? as u64 > MOST_BYTES {
        return Err(bad(format!("larger than {MOST_BYTES} bytes")));
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
            problems.truncate(MOST_SHOWN);
            if count > MOST_SHOWN {
                problems.push(format!("… and {} more", count - MOST_SHOWN));
            }
            problems.push("nothing was taken over".to_owned());
            Err(RunError::BadInput(problems.join("\n")))
        }
    }
}

fn check(line: &str, run: &Run<'_>, seen: &mut HashSet<Digest>) -> Result<Line, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| {
        format!("not a line of a review: {error}; `--export` shows what one looks like")
    })?;
    let short = line.task.short();
    let Some(task) = run.tasks.get(&line.task) else {
        return Err(format!("no task {short} in this run: export it anew"));
    };
    if !seen.insert(line.task.clone()) {
        return Err(format!("task {short} has two lines: remove one"));
    }
    match line.problem(task, run) {
        Some(problem) => Err(problem),
        None => Ok(line),
    }
}

/// What a decision changes; nothing of what is accepted.
fn show(text: &mut String, line: &Line, task: &Task) {
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
    fn a_changed_query_names_what_is_there() {
        let file = crate::library::tests::cars("cars.csv");
        let mut task = crate::eval::bare::bare_task("q", pybench::task::Category::Chart, "t");
        task.query = "Add a column \"ratio\" to cars.csv and print it.".to_owned();
        task.files.push(pybench::task::TaskFile {
            name: file.name.clone(),
            id: file.id.clone(),
            kind: file.kind,
            origin: String::new(),
            licence: None,
        });
        let run = Run {
            tasks: HashMap::from([(&task.id, &task)]),
            files: HashMap::from([(&file.id, &file)]),
        };
        let said = |query: &str, makes: &[&str]| {
            let mut line = Line::of(&task);
            line.decision = Decision::Change;
            line.query = query.to_owned();
            line.makes = makes.iter().map(|name| (*name).to_owned()).collect();
            line.problem(&task, &run)
        };
        // What the query before it named was looked at when it was written.
        assert_eq!(said("Print the column \"ratio\" of cars.csv.", &[]), None);
        let columns = "Print the column \"quotient\" of cars.csv.";
        let refused = said(columns, &[]).unwrap();
        assert!(
            refused.contains("`quotient`") && refused.contains("`makes`"),
            "{refused}"
        );
        assert_eq!(said(columns, &["quotient"]), None);
        let refused = said("Print everything in lorries.csv.", &[]).unwrap();
        assert!(refused.contains("`lorries.csv`"), "{refused}");
        let other = Run {
            files: HashMap::new(),
            ..run
        };
        assert!(other.unknown(&Line::of(&task), &task).is_empty());
    }

    #[test]
    fn fuzz_any_line_is_taken_or_refused() {
        let task = crate::eval::bare::bare_task("q", pybench::task::Category::Text, "t");
        let run = Run {
            tasks: HashMap::from([(&task.id, &task)]),
            files: HashMap::new(),
        };
        let good = serde_json::to_string(&Line::of(&task)).unwrap();
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
