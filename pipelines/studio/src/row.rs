//! What is shown of a trajectory.

use pybench_show::{TrajectoryRecord, query};
use pybench_types::task::{Task, TaskOrigin};
use pybench_types::text::{cut, line};
use pybench_types::trajectory::{Outcome, Role, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum number of characters of a query in the list.
const MAX_QUERY: usize = 300;

/// A trajectory in the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Position in the source, from 1.
    pub number: u64,
    /// Id of the trajectory or the row, if it has one.
    pub id: String,
    pub category: String,
    pub keyword: String,
    /// Name of the template, or how the task was made.
    pub origin: String,
    pub language: String,
    pub teacher: String,
    pub format: String,
    /// `accepted`, `rejected`, or empty if it is not graded.
    pub verdict: String,
    /// The first filter that rejected it, with its subject.
    pub rejected_by: String,
    /// How it ended.
    pub end: String,
    pub turns: u64,
    /// Tokens of all calls; 0 if they are unknown.
    pub tokens: u64,
    /// The start of the query.
    pub query: String,
}

/// A trajectory with everything that its page shows, as the run or the dataset has it.
pub struct Record {
    pub row: Row,
    /// `{"messages", "trajectory", "task", "verdict"}`; the last three are absent in rows of datasets.
    pub view: Value,
    /// The texts to search in, by role.
    pub texts: [(Role, String); 3],
}

impl Record {
    /// Describes a trajectory or row.
    pub fn new(number: u64, record: &TrajectoryRecord) -> Self {
        let messages = record.messages();
        let text = |wanted: fn(Role) -> bool| {
            let texts = messages.iter().filter(|message| wanted(message.role));
            texts
                .map(|message| &*message.content)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let texts = [
            (Role::User, text(|role| role == Role::User)),
            (Role::Assistant, text(|role| role == Role::Assistant)),
            (Role::Tool, text(|role| role == Role::Tool)),
        ];
        Self {
            row: row(number, record),
            view: view(record),
            texts,
        }
    }
}

fn row(number: u64, record: &TrajectoryRecord) -> Row {
    let empty = Row {
        number,
        id: record.id().unwrap_or_default().to_owned(),
        category: String::new(),
        keyword: String::new(),
        origin: String::new(),
        language: String::new(),
        teacher: String::new(),
        format: record.format(),
        verdict: String::new(),
        rejected_by: String::new(),
        end: String::new(),
        turns: 0,
        tokens: 0,
        query: String::new(),
    };
    match record {
        TrajectoryRecord::Trajectory {
            trajectory,
            task,
            verdict,
        } => {
            let of_task = |text: fn(&Task) -> String| task.as_deref().map(text).unwrap_or_default();
            let verdict = verdict.as_ref();
            Row {
                category: of_task(|task| task.category.name().to_owned()),
                keyword: of_task(|task| line(&task.keyword)),
                origin: of_task(origin),
                language: of_task(|task| name(&task.language)),
                query: of_task(|task| short(&task.query)),
                teacher: line(&trajectory.teacher),
                verdict: verdict.map(verdict_name).unwrap_or_default().to_owned(),
                rejected_by: verdict.and_then(rejected_by).unwrap_or_default(),
                end: name(&json!(trajectory.end)["end"]),
                turns: trajectory.turns.len() as u64,
                tokens: trajectory.usage().total(),
                ..empty
            }
        }
        TrajectoryRecord::Row { sample } => {
            let column = |name: &str| line(sample.metadata(name).unwrap_or_default());
            Row {
                category: column("category"),
                keyword: column("keyword"),
                origin: column("template"),
                language: column("language"),
                teacher: column("teacher"),
                end: column("end"),
                turns: sample.turns() as u64,
                query: sample
                    .messages
                    .iter()
                    .find_map(query)
                    .map(short)
                    .unwrap_or_default(),
                ..empty
            }
        }
    }
}

/// A value that is text in JSON, as its name.
fn name(value: &impl Serialize) -> String {
    json!(value).as_str().unwrap_or_default().to_owned()
}

fn short(query: &str) -> String {
    line(&cut(query, MAX_QUERY))
}

/// Where a task is from: the template, the operations, the model, the set or the benchmark.
fn origin(task: &Task) -> String {
    line(match &task.origin {
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

/// The first finding that is no pass.
fn rejected_by(verdict: &Verdict) -> Option<String> {
    let mut findings = verdict.findings.iter();
    let finding = findings.find(|finding| finding.outcome != Outcome::Pass)?;
    Some(line(&format!("{} {}", finding.filter, finding.subject)))
}

fn view(record: &TrajectoryRecord) -> Value {
    match record {
        TrajectoryRecord::Trajectory {
            trajectory,
            task,
            verdict,
        } => json!({
            "messages": trajectory.messages, "trajectory": trajectory, "task": task, "verdict": verdict,
        }),
        TrajectoryRecord::Row { sample } => {
            json!({"messages": sample.messages, "location": sample.location})
        }
    }
}
