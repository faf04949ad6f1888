//! Grade: decides by executed checks which trajectories become rows.
//!
//! Each trajectory is a unit of work whose artefact is its [`Verdict`]; the filters that need
//! nothing but the trajectory run there. Duplicates are found afterwards, in item order, so that
//! the outcome does not depend on which unit ended first.

mod consistent;
mod faults;
mod filters;
mod sound;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::agent::{self, Format};
use pybench::id::Digest;
use pybench::run::{
    ContentStore, Executor, Failure, FailureKind, Filter, RunContext, RunError, RunFolder, Stage,
};
use pybench::task::Task;
use pybench::trajectory::{Finding, Outcome, Trajectory, Verdict};
use serde_json::Value;

pub use consistent::unsupported;
pub use faults::{FaultReport, fault_report};
pub use filters::Case;

/// Name of the stage in the journal.
pub const STAGE: &str = "grade";
/// What this stage writes: a verdict per line, in item order.
pub const VERDICTS: &str = "verdicts.jsonl";

/// Runs the checks of a task on what a trajectory left behind, away from the agent.
#[async_trait]
pub trait Examiner: Send + Sync {
    /// A finding per check. An error is a failure of ours, never a verdict.
    async fn examine(&self, task: &Task, trajectory: &Trajectory) -> Result<Vec<Finding>, Failure>;

    /// Digest of the checker's source and environment.
    fn digest(&self) -> &str;
}

/// Grades every trajectory of the run with an examiner; writes `verdicts.jsonl` and the facts
/// `accepted`, `rejected` (by filter) and `faults`.
pub async fn run_with(context: &RunContext, examiner: Arc<dyn Examiner>) -> Result<(), RunError> {
    let folder = &context.folder;
    let trajectories: Vec<Trajectory> = folder.journal().outputs("rollout")?;
    let items: Vec<String> = trajectories.iter().map(|t| t.id.to_string()).collect();
    let tasks = read_tasks(folder)?;
    let stage = GradeStage {
        tasks: tasks
            .into_iter()
            .map(|task| (task.id.clone(), task))
            .collect(),
        trajectories: items.iter().cloned().zip(trajectories.clone()).collect(),
        filters: context.recipe.grade.filters.clone(),
        format: agent::format(context.recipe.rollout.format),
        store: folder.store().clone(),
        examiner,
    };
    context.executor().run(Arc::new(stage), &items).await?;
    let mut verdicts = verdicts_in_order(folder, &items)?;
    if context.recipe.grade.filters.contains(&Filter::Duplicate) {
        mark_duplicates(&trajectories, &mut verdicts);
    }
    finish(folder, &trajectories, &verdicts)
}

/// The tasks of a run, in item order.
pub(crate) fn read_tasks(folder: &RunFolder) -> Result<Vec<Task>, RunError> {
    read_lines(folder, "tasks.jsonl")
}

/// An artefact of JSON lines.
pub(crate) fn read_lines<T: serde::de::DeserializeOwned>(
    folder: &RunFolder,
    name: &str,
) -> Result<Vec<T>, RunError> {
    let path = folder.root().join(name);
    let text = std::fs::read_to_string(&path).map_err(RunError::io(path.display().to_string()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// The stage's verdicts in the order of the items, whatever was graded in earlier runs.
fn verdicts_in_order(folder: &RunFolder, items: &[String]) -> Result<Vec<Verdict>, RunError> {
    let done: Vec<Verdict> = folder.journal().outputs(STAGE)?;
    let mut by_item: HashMap<String, Verdict> = done
        .into_iter()
        .map(|verdict| (verdict.trajectory.to_string(), verdict))
        .collect();
    Ok(items
        .iter()
        .filter_map(|item| by_item.remove(item))
        .collect())
}

fn finish(
    folder: &RunFolder,
    trajectories: &[Trajectory],
    verdicts: &[Verdict],
) -> Result<(), RunError> {
    let mut lines = String::new();
    for verdict in verdicts {
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{}", serde_json::to_string(verdict)?);
    }
    folder.write(VERDICTS, lines.as_bytes())?;
    let journal = folder.journal();
    let accepted = verdicts.iter().filter(|verdict| verdict.accepted).count();
    journal.set_fact("accepted", &accepted.into())?;
    journal.set_fact("rejected", &serde_json::to_value(rejections(verdicts))?)?;
    let faults = fault_report(trajectories, verdicts);
    journal.set_fact("faults", &faults.to_string().into())?;
    report_faults(&faults);
    Ok(())
}

fn report_faults(faults: &FaultReport) {
    if faults.planted == 0 {
        return;
    }
    tracing::info!("{faults}");
    for (id, fault) in &faults.missed {
        tracing::warn!("{}: the fault `{fault}` was not noticed", id.short());
    }
    for (id, reason) in &faults.wronged {
        tracing::warn!("{}: no fault, but rejected: {reason}", id.short());
    }
}

/// Trajectories that each filter rejected, in the order in which filters appear. One that several
/// filters reject counts for each.
pub fn rejections(verdicts: &[Verdict]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for verdict in verdicts {
        let failed = verdict
            .findings
            .iter()
            .filter(|f| f.outcome != Outcome::Pass);
        let filters: HashSet<&str> = failed.map(|f| f.filter.as_str()).collect();
        for filter in filters {
            *counts.entry(filter.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// The first reason for which a trajectory was rejected: `check table output/a.csv: …`.
pub fn first_reason(verdict: &Verdict) -> Option<String> {
    let failed = verdict
        .findings
        .iter()
        .find(|f| f.outcome != Outcome::Pass)?;
    let (filter, subject, detail) = (&failed.filter, &failed.subject, &failed.detail);
    Some(format!("{filter} {subject}: {detail}"))
}

/// Rejects trajectories whose messages equal an earlier accepted one's.
fn mark_duplicates(trajectories: &[Trajectory], verdicts: &mut [Verdict]) {
    let by_id: HashMap<&Digest, &Trajectory> = trajectories.iter().map(|t| (&t.id, t)).collect();
    let mut first: HashMap<Digest, Digest> = HashMap::new();
    for verdict in verdicts.iter_mut().filter(|verdict| verdict.accepted) {
        let Some(trajectory) = by_id.get(&verdict.trajectory) else {
            continue;
        };
        let messages = Digest::of_json(&trajectory.messages);
        let finding = match first.get(&messages) {
            None => {
                first.insert(messages, verdict.trajectory.clone());
                filters::passed("duplicate", "messages")
            }
            Some(earlier) => {
                verdict.accepted = false;
                let why = format!("the same conversation as {}", earlier.short());
                filters::failed("duplicate", "messages", &why)
            }
        };
        verdict.findings.push(finding);
    }
}

/// Grades one trajectory per unit.
struct GradeStage {
    tasks: HashMap<Digest, Task>,
    trajectories: HashMap<String, Trajectory>,
    filters: Vec<Filter>,
    format: &'static dyn Format,
    store: ContentStore,
    examiner: Arc<dyn Examiner>,
}

impl GradeStage {
    async fn findings(&self, case: &Case<'_>) -> Result<Vec<Finding>, Failure> {
        let mut findings = Vec::new();
        for filter in &self.filters {
            findings.extend(match filter {
                Filter::Format => filters::format(case),
                Filter::Finished => filters::finished(case),
                Filter::Outputs => filters::outputs(case).map_err(internal)?,
                Filter::Check => self.examiner.examine(case.task, case.trajectory).await?,
                Filter::Consistent => filters::consistent(case),
                // Needs the verdicts of the trajectories before it.
                Filter::Duplicate => Vec::new(),
            });
        }
        Ok(findings)
    }
}

#[async_trait]
impl Stage for GradeStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let missing =
            |what: &str| failure(format!("{what} of trajectory {item} is not in the run"));
        let trajectory = self
            .trajectories
            .get(item)
            .ok_or_else(|| missing("the record"))?;
        let task = self
            .tasks
            .get(&trajectory.task)
            .ok_or_else(|| missing("the task"))?;
        let case = Case {
            task,
            trajectory,
            format: self.format,
            store: &self.store,
        };
        let findings = self.findings(&case).await?;
        let verdict = Verdict {
            trajectory: trajectory.id.clone(),
            accepted: findings.iter().all(|f| f.outcome == Outcome::Pass),
            findings,
            checker: self.examiner.digest().to_owned(),
        };
        serde_json::to_value(verdict).map_err(|error| failure(error.to_string()))
    }
}

fn internal(error: RunError) -> Failure {
    failure(error.to_string())
}

fn failure(detail: String) -> Failure {
    Failure {
        kind: FailureKind::Internal,
        detail,
        retryable: false,
        retry_after: None,
    }
}
