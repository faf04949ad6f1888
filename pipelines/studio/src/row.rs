//! A trajectory as a line of the list.

mod log;

use std::collections::HashSet;

use pybench_eval::record::{Attempt, Outcome as AttemptOutcome};
use pybench_show::query;
use pybench_types::task::{Task, TaskOrigin};
use pybench_types::text::{cut, line};
use pybench_types::trajectory::{Outcome, OutputFile, Trajectory, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::prices::{Prices, cost_of};
use crate::record::Record;

pub(crate) use self::log::query as log_query;
#[cfg(test)]
pub(crate) use self::log::tests as log_tests;

/// Maximum number of characters of a query in the list.
const MAX_QUERY: usize = 300;
/// Maximum number of characters of any other text in the list.
const MAX_TEXT: usize = 120;
/// Maximum number of types of input files in the list.
const MAX_KINDS: usize = 40;

/// A trajectory in the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Row {
    /// Position in the source, from 1.
    pub(crate) number: u64,
    /// Id of the trajectory or the row, if it has one.
    pub(crate) id: String,
    /// Id of the task; in an evaluation `suite/task`. Empty in a dataset without the column `task_id`.
    pub(crate) task: String,
    pub(crate) category: String,
    pub(crate) keyword: String,
    /// Name of the template or the suite, or how the task was made.
    pub(crate) origin: String,
    /// Types of the input files, each once.
    pub(crate) kinds: Vec<String>,
    pub(crate) language: String,
    /// Model, or agent of an evaluation.
    pub(crate) teacher: String,
    pub(crate) format: String,
    /// `accepted`, `rejected`, or empty if it is not graded.
    pub(crate) verdict: String,
    /// The first filter that rejected it, or the first failed check of an evaluation, with its subject.
    pub(crate) rejected_by: String,
    /// Every filter or check that it did not pass, each once.
    pub(crate) failed_checks: Vec<String>,
    /// The scores of an evaluation: `passed`, `failed`, or empty if they do not apply.
    pub(crate) upstream: String,
    pub(crate) fixed: String,
    pub(crate) strict: String,
    /// How it ended; `not_run` or `infrastructure` for an attempt without a result.
    pub(crate) end: String,
    /// The exception that its first failing cell raised.
    pub(crate) error: String,
    pub(crate) turns: u64,
    /// Tokens of all calls; 0 if they are unknown.
    pub(crate) tokens: u64,
    /// Cost of all calls in millionths of a US dollar; `None` if tokens or price are unknown.
    pub(crate) micro_usd: Option<u64>,
    /// The start of the query.
    pub(crate) query: String,
}

impl Row {
    /// The line of a record.
    pub(crate) fn new(number: u64, record: &Record) -> Self {
        match record {
            Record::Run {
                trajectory,
                task,
                verdict,
            } => Self {
                number,
                ..of_trajectory(trajectory, task.as_deref(), verdict.as_ref())
            },
            Record::Evaluation {
                attempt,
                trajectory,
                ..
            } => Self {
                number,
                ..of_attempt(attempt, trajectory.as_deref())
            },
            Record::Dataset {
                format,
                messages,
                metadata,
                kinds,
                tokens,
                ..
            } => {
                let column = |name: &str| text(metadata.get(name).map_or("", |value| value));
                let replies = messages.iter().filter(|message| is_reply(message));
                Self {
                    number,
                    id: match column("trajectory_id") {
                        id if id.is_empty() => column("id"),
                        id => id,
                    },
                    task: column("task_id"),
                    category: column("category"),
                    keyword: column("keyword"),
                    origin: column("template"),
                    kinds: file_types(kinds.iter().cloned()),
                    language: column("language"),
                    teacher: column("teacher"),
                    format: text(format),
                    end: column("end"),
                    turns: replies.count() as u64,
                    tokens: *tokens,
                    query: messages
                        .iter()
                        .find_map(query)
                        .map(short)
                        .unwrap_or_default(),
                    ..Self::default()
                }
            }
            Record::Log { head, sample } => Self {
                number,
                ..log::row(head, sample)
            },
        }
    }

    /// Sets what it did not pass.
    fn with_failed(mut self, names: impl Iterator<Item = String>) -> Self {
        let mut known = HashSet::new();
        let new = names.filter(|name| known.insert(name.clone()));
        self.failed_checks = new.collect();
        self.rejected_by = self.failed_checks.first().cloned().unwrap_or_default();
        self
    }
}

/// The cost of a trajectory of a run; `None` for other records, and if tokens or price are unknown.
pub(crate) fn cost(record: &Record, prices: &Prices) -> Option<u64> {
    match record {
        Record::Run { trajectory, .. } => {
            let price = prices.get(&trajectory.teacher)?;
            cost_of(price, trajectory.usage())
        }
        Record::Evaluation { .. } | Record::Dataset { .. } | Record::Log { .. } => None,
    }
}

fn of_trajectory(trajectory: &Trajectory, task: Option<&Task>, verdict: Option<&Verdict>) -> Row {
    let of_task = |text: fn(&Task) -> String| task.map(text).unwrap_or_default();
    let observations = || trajectory.turns.iter().flat_map(|turn| turn.observations());
    let error = observations().find_map(|seen| seen.error.as_ref());
    Row {
        id: trajectory.id.as_str().to_owned(),
        task: trajectory.task.as_str().to_owned(),
        category: of_task(|task| name(&task.category)),
        keyword: of_task(|task| text(&task.keyword)),
        origin: of_task(origin),
        kinds: task.map(kinds).unwrap_or_default(),
        language: of_task(|task| name(&task.language)),
        teacher: text(&trajectory.teacher),
        format: text(&trajectory.format),
        verdict: verdict.map(verdict_name).unwrap_or_default().to_owned(),
        end: name(&json!(trajectory.end)["end"]),
        error: error.map(|error| text(&error.ename)).unwrap_or_default(),
        turns: trajectory.turns.len() as u64,
        tokens: trajectory.usage().total(),
        query: of_task(|task| short(&task.query)),
        ..Row::default()
    }
    .with_failed(verdict.into_iter().flat_map(failed_findings))
}

fn of_attempt(attempt: &Attempt, trajectory: Option<&Trajectory>) -> Row {
    let base = trajectory.map(|trajectory| of_trajectory(trajectory, None, None));
    let base = base.unwrap_or_default();
    let failed = attempt.checks.iter().filter(|check| !check.passed);
    Row {
        task: text(&format!("{}/{}", attempt.suite, attempt.task)),
        category: text(&attempt.category),
        keyword: text(attempt.keyword.as_deref().unwrap_or_default()),
        origin: text(&attempt.suite),
        kinds: file_types(attempt.inputs.iter().filter_map(extension)),
        // The model that the trajectory names may be the same for two agents.
        teacher: text(&attempt.agent),
        upstream: score_name(attempt.scores.upstream).to_owned(),
        fixed: score_name(attempt.scores.fixed).to_owned(),
        strict: score_name(attempt.scores.strict).to_owned(),
        end: match attempt.outcome {
            AttemptOutcome::Ran => base.end,
            AttemptOutcome::NotRun { .. } => "not_run".to_owned(),
            AttemptOutcome::Infrastructure { .. } => "infrastructure".to_owned(),
        },
        turns: attempt.turns.into(),
        tokens: attempt.tokens_in.saturating_add(attempt.tokens_out),
        micro_usd: attempt.micro_usd,
        query: short(&attempt.prompt),
        ..base
    }
    .with_failed(failed.map(|check| text(&check.name)))
}

/// The extension of a file's name.
fn extension(file: &OutputFile) -> Option<String> {
    let (_, extension) = file.path.rsplit_once('.')?;
    Some(extension.to_ascii_lowercase())
}

fn score_name(score: Option<bool>) -> &'static str {
    match score {
        None => "",
        Some(true) => "passed",
        Some(false) => "failed",
    }
}

fn is_reply(message: &pybench_types::trajectory::Message) -> bool {
    message.role == pybench_types::trajectory::Role::Assistant
}

/// A value that is text in JSON, as that text.
fn name(value: &impl Serialize) -> String {
    text(json!(value).as_str().unwrap_or_default())
}

pub(crate) fn text(value: &str) -> String {
    line(&cut(value, MAX_TEXT))
}

pub(crate) fn short(query: &str) -> String {
    line(&cut(query, MAX_QUERY))
}

fn kinds(task: &Task) -> Vec<String> {
    file_types(task.files.iter().map(|file| name(&file.kind)))
}

/// Types of files, each once and as a short text.
fn file_types(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut kinds: Vec<String> = names.map(|name| text(&name)).collect();
    kinds.sort();
    kinds.dedup();
    kinds.truncate(MAX_KINDS);
    kinds
}

/// Where a task is from: the template, the operations, the model, the set or the benchmark.
fn origin(task: &Task) -> String {
    text(match &task.origin {
        TaskOrigin::Library { template, .. } => template,
        TaskOrigin::Composed { skeleton, .. } => skeleton,
        TaskOrigin::Writer { generator, .. } => generator,
        TaskOrigin::TaskSet { set, .. } => set,
        TaskOrigin::Benchmark { suite, .. } => suite,
    })
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict.accepted {
        true => "accepted",
        false => "rejected",
    }
}

/// The findings that are no pass.
fn failed_findings(verdict: &Verdict) -> impl Iterator<Item = String> {
    let findings = verdict.findings.iter();
    let failed = findings.filter(|finding| finding.outcome != Outcome::Pass);
    failed.map(|finding| text(&format!("{} {}", finding.filter, finding.subject)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_failed_and_is_short() {
        let id = "0".repeat(64);
        let observation = json!({"outputs": [], "stopped": null, "error":
            {"ename": "Key\nError", "evalue": "x", "traceback": ""}});
        let usage = json!({"prompt_tokens": 5, "completion_tokens": 2});
        let turn = json!({"reply": "r", "cell": "c", "observation": observation, "usage": usage});
        let finding = |filter: &str, outcome: &str| json!({"filter": filter, "subject": "s", "outcome": outcome, "detail": ""});
        let record = json!({"run": {
            "task": null,
            "verdict": {"trajectory": id, "accepted": false, "checker": "c",
                "findings": [finding("format", "pass"), finding("check", "unproven"), finding("outputs", "fail"),
                    finding("check", "fail")]},
            "trajectory": {
                "id": id, "task": id, "teacher": "m".repeat(500), "sampling": {}, "sample": 0, "seed": 1,
                "environment": "e", "format": "pybench", "messages": [], "turns": [turn, turn], "outputs": [],
                "end": {"end": "max_turns"}},
        }});
        let record: Record = serde_json::from_value(record).unwrap();
        let row = Row::new(7, &record);
        assert_eq!((row.number, row.turns, row.tokens), (7, 2, 14));
        assert_eq!((&*row.verdict, &*row.rejected_by), ("rejected", "check s"));
        assert_eq!(row.failed_checks, ["check s", "outputs s"]);
        assert_eq!((&*row.end, &*row.error), ("max_turns", "Key Error"));
        assert!(row.teacher.chars().count() < 150 && row.query.is_empty());
    }

    #[test]
    fn a_line_of_an_attempt_has_its_scores() {
        let attempt = json!({
            "agent": "a", "suite": "s", "task": "7", "category": "chart", "seed": 0, "turns": 3, "max_turns": 10,
            "outcome": {"outcome": "ran"}, "scores": {"strict": false, "fixed": true}, "prompt": "Draw.",
            "tokens_in": 5, "tokens_out": 2,
            "checks": [
                {"score": "fixed", "name": "first", "passed": true},
                {"score": "strict", "name": "second", "passed": false}],
            "inputs": [{"path": "data/a.CSV", "id": "0".repeat(64), "size": 1}],
        });
        let of = |attempt: &serde_json::Value| {
            let record =
                json!({"evaluation": {"attempt": attempt, "trajectory": null, "problem": ""}});
            Row::new(1, &serde_json::from_value(record).unwrap())
        };
        let row = of(&attempt);
        assert_eq!((&*row.task, &*row.origin, &*row.teacher), ("s/7", "s", "a"));
        assert_eq!(
            (&*row.upstream, &*row.fixed, &*row.strict),
            ("", "passed", "failed")
        );
        assert_eq!(row.rejected_by, "second");
        assert_eq!(row.kinds, ["csv"]);
        assert_eq!((row.turns, row.tokens), (3, 7));
        let mut failed = attempt;
        failed["outcome"] = json!({"outcome": "infrastructure", "failure": "no sandbox"});
        failed["scores"] = json!({});
        assert_eq!(of(&failed).end, "infrastructure");
    }
}
