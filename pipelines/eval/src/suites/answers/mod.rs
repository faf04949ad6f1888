//! Benchmarks whose scores depend on the final answer alone: questions on files, each with a comparison of its own.

mod audit;
mod contents;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_datasets::decontaminate::BenchmarkTask;
use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::task::{Category, Task};
use pybench_types::trajectory::{End, Finding, Mismatch, Outcome, Trajectory};
use serde::de::DeserializeOwned;

pub(super) use contents::table;

use crate::record::Headline;
use crate::suite::{
    AttemptScores, AuditOptions, EvalTask, Origin, ScoreVerdict, Selection, Solution, Suite,
    SuiteAttempt, SuiteAudit, SuiteEnv, TaskList, UnavailableTask, benchmark_task, name_in,
    task_file,
};

/// Maximum size of a file of a benchmark, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// A question of a benchmark.
pub trait Question: Send + Sync + std::panic::RefUnwindSafe {
    /// Name in the suite.
    fn name(&self) -> String;

    /// Category or level in records.
    fn category(&self) -> String;

    /// What the agent is asked.
    fn prompt(&self) -> String;

    /// What the authors ask, without what our prompt says about files and the form of the answer: the question alone, and
    /// with what belongs to it.
    fn texts(&self) -> Vec<String>;

    /// The files that the agent finds in `data/`, by name.
    ///
    /// # Errors
    /// A file is missing or invalid.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String>;

    /// The contents of files as the authors publish them, if they differ from [`Question::files`].
    ///
    /// # Errors
    /// A file is missing.
    fn published_files(&self) -> Result<Vec<Vec<u8>>, String> {
        Ok(Vec::new())
    }

    /// The correct answer as a reply.
    fn reference(&self) -> String;

    /// What a correct answer must state, for readers.
    fn expected(&self) -> String;

    /// Whether a reply is correct by the authors' evaluator; `None` if it leaves the question out.
    fn upstream(&self, reply: &str) -> Option<bool>;

    /// Whether a reply is correct by the strict comparison.
    ///
    /// # Errors
    /// Why it is not.
    fn strict(&self, reply: &str) -> Result<(), String>;

    /// Incorrect replies that resemble the correct one, with what is wrong about them. One that equals the reference
    /// is left out of the audit.
    fn mutants(&self) -> Vec<(&'static str, String)>;
}

/// A benchmark of questions.
pub struct AnswerSuite {
    pub name: &'static str,
    /// Name in prose.
    pub title: &'static str,
    pub origin: &'static Origin,
    pub notes: &'static [&'static str],
    /// Changes whenever a score of an answer changes.
    pub version: u32,
    pub category: Category,
    pub questions: Vec<Arc<dyn Question>>,
    /// Replies that ignore the question and are correct as often as possible.
    pub constants: fn(&[&dyn Question]) -> Vec<String>,
}

impl AnswerSuite {
    fn selected(&self, selection: &Selection) -> Vec<&dyn Question> {
        let questions = self.questions.iter().map(AsRef::as_ref).collect();
        selection.draw(questions, |question| question.name())
    }

    /// The replies that the audit scores, by question, for suites that have to execute them before.
    ///
    /// # Errors
    /// A file of a question is missing or invalid.
    pub(super) fn audited_replies(
        &self,
        options: &AuditOptions,
    ) -> Result<Vec<(String, Vec<String>)>, RunError> {
        audit::replies(self, options).map_err(RunError::BadInput)
    }

    fn task(&self, env: &SuiteEnv, question: &dyn Question) -> Result<EvalTask, String> {
        let (name, category) = (question.name(), question.category());
        let mut files = Vec::new();
        for (file, bytes) in question.files()? {
            let origin = format!("{}#{file}", self.name);
            let stored = task_file(&file, &bytes, &origin, env.folder.store());
            files.push(stored.map_err(|error| error.to_string())?);
        }
        let kind = (self.category, &*category);
        let task = benchmark_task((self.name, &name), kind, &question.prompt(), files);
        Ok(EvalTask {
            suite: self.name.to_owned(),
            name,
            task: Arc::new(task),
            category,
            headline: headline(question),
            published: true,
        })
    }
}

#[async_trait]
impl Suite for AnswerSuite {
    fn name(&self) -> &'static str {
        self.name
    }

    fn origin(&self) -> &'static Origin {
        self.origin
    }

    fn notes(&self) -> Vec<String> {
        self.notes.iter().map(|note| (*note).to_owned()).collect()
    }

    fn describe(&self, selection: &Selection) -> String {
        describe(self.title, self.questions.len(), selection)
    }

    async fn tasks(&self, env: &SuiteEnv, selection: &Selection) -> Result<TaskList, RunError> {
        let mut list = TaskList::default();
        for question in self.selected(selection) {
            match self.task(env, question) {
                Ok(task) => list.available.push(task),
                Err(reason) => list.unavailable.push(UnavailableTask {
                    suite: self.name.to_owned(),
                    name: question.name(),
                    category: question.category(),
                    prompt: question.prompt(),
                    reason,
                }),
            }
        }
        Ok(list)
    }

    async fn contents(&self, _: &SuiteEnv) -> Result<Vec<BenchmarkTask>, RunError> {
        Ok(contents::of_questions(self.name, &self.questions))
    }

    async fn score(
        &self,
        _: &SuiteEnv,
        attempts: &[SuiteAttempt<'_>],
    ) -> Result<Vec<AttemptScores>, RunError> {
        let questions = self.questions.iter().map(|one| (one.name(), one.as_ref()));
        let questions: HashMap<String, &dyn Question> = questions.collect();
        let score = |attempt: &SuiteAttempt<'_>| {
            let question = questions.get(&attempt.task.name)?;
            let scores = scores(*question, reply(attempt.trajectory?));
            Some(AttemptScores {
                strict: scores.strict.filter(|_| attempt.task.headline.counts),
                ..scores
            })
        };
        let scores = attempts.iter().map(|one| score(one).unwrap_or_default());
        Ok(scores.collect())
    }

    fn scorer(&self) -> Digest {
        scorer(self.name, self.origin, self.version)
    }

    fn solution(&self, task: &Task) -> Result<Solution, String> {
        let name = name_in(self.name, task).ok_or("the task belongs to another suite")?;
        let question = self.questions.iter().find(|one| one.name() == name);
        let question = question.ok_or_else(|| format!("{} has no task {name}", self.name))?;
        Ok(Solution {
            answer: question.reference(),
            turns: Vec::new(),
        })
    }

    async fn audit(&self, _: &SuiteEnv, options: &AuditOptions) -> Result<SuiteAudit, RunError> {
        audit::audit(self, options)
    }
}

/// Describes the selected tasks of a benchmark that has `all` of them.
pub(super) fn describe(title: &str, all: usize, selection: &Selection) -> String {
    match selection.max_tasks.filter(|max| *max < all) {
        Some(max) => format!(
            "{title}, {max} of {all} tasks drawn with seed {}",
            selection.seed
        ),
        None => title.to_owned(),
    }
}

/// Digest of what decides the scores.
pub(super) fn scorer(name: &str, origin: &Origin, version: u32) -> Digest {
    Digest::of_json(&(name, origin.commit, version))
}

/// A question that a copy of its prompt answers does not count in `strict`.
fn headline(question: &dyn Question) -> Headline {
    match question.strict(&question.prompt()) {
        Err(_) => Headline::default(),
        Ok(()) => Headline {
            counts: false,
            reason: Some("a copy of the prompt is a correct answer".to_owned()),
        },
    }
}

/// The reply that is scored: the last message, unless it was cut off by a limit.
pub(super) fn reply(trajectory: &Trajectory) -> &str {
    match trajectory.end {
        End::Finished | End::NoAnswer => trajectory.answer(),
        End::MaxTurns | End::Repetition | End::NoCode => "",
    }
}

fn scores(question: &dyn Question, reply: &str) -> AttemptScores {
    let upstream = question.upstream(reply).map(|passed| ScoreVerdict {
        check: "answer".to_owned(),
        passed,
        expected: question.expected(),
        found: if passed { String::new() } else { tail(reply) },
    });
    let strict = question.strict(reply);
    let finding = Finding {
        filter: "check".to_owned(),
        subject: "answer".to_owned(),
        outcome: match strict {
            Ok(()) => Outcome::Pass,
            Err(_) => Outcome::Fail,
        },
        mismatch: strict.is_err().then(|| Mismatch {
            place: String::new(),
            expected: question.expected(),
            found: tail(reply),
        }),
        detail: strict.err().unwrap_or_default(),
    };
    AttemptScores {
        upstream: upstream.map(Ok),
        fixed: None,
        strict: Some(Ok(vec![finding])),
    }
}

/// The end of a reply, where the answer stands.
fn tail(reply: &str) -> String {
    let skip = reply.chars().count().saturating_sub(500);
    reply.chars().skip(skip).collect()
}

/// Reads a file of a benchmark.
///
/// # Errors
/// It is missing, larger than 256 MiB or not a plain file below `root`.
pub(super) fn read(root: &Path, path: &str) -> Result<Vec<u8>, String> {
    let plain = |part| matches!(part, std::path::Component::Normal(_));
    if !Path::new(path).components().all(plain) {
        return Err(format!("`{path}` is not a path in the repository"));
    }
    let file = root.join(path);
    let bytes = pybench_files::read_regular(&file, MAX_FILE);
    bytes.map_err(|error| format!("{}: {error}", file.display()))
}

/// Reads a text of a benchmark.
///
/// # Errors
/// As [`read`]; the file is not UTF-8.
pub(super) fn read_text(root: &Path, path: &str) -> Result<String, String> {
    let text = String::from_utf8(read(root, path)?);
    text.map_err(|_| format!("{}: the file is not UTF-8", root.join(path).display()))
}

/// Reads a file of a benchmark with one JSON value per line.
///
/// # Errors
/// As [`read_text`]; a line is not such a value.
pub(super) fn json_lines<T: DeserializeOwned>(root: &Path, path: &str) -> Result<Vec<T>, String> {
    parse_json_lines(&read_text(root, path)?, &root.join(path))
}

/// Parses one JSON value per line; `path` is for messages.
///
/// # Errors
/// A line is not such a value.
pub(super) fn parse_json_lines<T: DeserializeOwned>(
    text: &str,
    path: &Path,
) -> Result<Vec<T>, String> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let parse = |(number, line): (usize, &str)| {
        let parsed = serde_json::from_str(line);
        parsed.map_err(|error| format!("{}:{}: {error}", path.display(), number + 1))
    };
    lines.map(parse).collect()
}

/// The most frequent reference answers of a benchmark.
pub(super) fn frequent(questions: &[&dyn Question]) -> Vec<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for question in questions {
        *counts.entry(question.reference()).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
        .into_iter()
        .take(50)
        .map(|(answer, _)| answer)
        .collect()
}
