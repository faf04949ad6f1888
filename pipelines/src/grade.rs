//! Grade: decides by executed checks which trajectories become rows.
//!
//! Each trajectory is a unit of work whose artefact is its [`Verdict`]; the filters that need
//! nothing but the trajectory run there. Duplicates are found afterwards, in item order, so that
//! the outcome does not depend on which unit ended first.

mod consistent;
mod examiner;
pub(crate) use examiner::check_failure;
mod faults;
mod filters;
mod opinion;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::agent::{self, Format};
use pybench::id::Digest;
use pybench::run::{
    Executor, Failure, FailureKind, Filter, RunContext, RunError, RunFolder, Stage, StageSummary,
};
use pybench::task::Task;
use pybench::trajectory::{Finding, Outcome, Trajectory, Verdict};
use serde_json::Value;

pub use consistent::unsupported;
pub use faults::{FaultReport, fault_report};
pub use filters::Case;
pub use opinion::{JudgeReport, judge_report};

use crate::goal::{Traits, choose};

/// For `--help`.
pub const ABOUT: &str = "Decide by executed checks which trajectories of a run become rows";
/// Name of the stage in the journal.
pub const STAGE: &str = "grade";
/// What rollout wrote.
pub(crate) const TRAJECTORIES: &str = "trajectories.jsonl";
/// What this stage writes: a verdict per line, in item order.
pub const VERDICTS: &str = "verdicts.jsonl";

/// Looks at what a trajectory left behind, away from the agent.
#[async_trait]
pub trait Examiner: Send + Sync {
    /// A finding per output asked for (filter `outputs`: it is there and opens as its type) and per
    /// check (filter `check`). An error is a failure of ours, never a verdict.
    async fn examine(&self, task: &Task, trajectory: &Trajectory) -> Result<Vec<Finding>, Failure>;

    /// Digest of the checker's source and environment.
    fn digest(&self) -> &str;
}

/// Grades every trajectory of the run with the checker, whose sessions the recipe's interpreter
/// starts; see [`run_with`]. [`RunError::Environment`] when there is no interpreter.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    run_with(context, examiner(context)?).await
}

/// The checker, in sessions of the recipe's interpreter.
pub(crate) fn examiner(context: &RunContext) -> Result<Arc<dyn Examiner>, RunError> {
    Ok(Arc::new(examiner::Sandboxed::of(context)?))
}

/// Grades every trajectory of the run with an examiner; writes `verdicts.jsonl` and the facts
/// `accepted`, `rejected` (by filter) and `faults`.
pub async fn run_with(context: &RunContext, examiner: Arc<dyn Examiner>) -> Result<(), RunError> {
    let folder = &context.folder;
    let trajectories: Vec<Trajectory> = read_lines(folder, TRAJECTORIES)?;
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
        examiner,
        judging: opinion::Judging::of(context)?,
    };
    let summary = context.executor().run(Arc::new(stage), &items).await?;
    let mut verdicts = verdicts_in_order(folder, &items)?;
    report_failures(folder, &summary, verdicts.len())?;
    let graded: HashMap<&Digest, &Trajectory> = trajectories.iter().map(|t| (&t.id, t)).collect();
    let graded = verdicts.iter().filter_map(|v| graded.get(&v.trajectory));
    let traits: Vec<Traits> = graded.map(|t| Traits::of(t)).collect();
    let traits: Vec<&Traits> = traits.iter().collect();
    choose(
        &context.recipe.grade,
        &context.recipe.goal,
        &traits,
        &mut verdicts,
    );
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
    if let Some(report) = judge_report(trajectories, verdicts) {
        tracing::info!("{report}");
        journal.set_fact("judge", &report.to_string().into())?;
    }
    let faults = fault_report(trajectories, verdicts);
    journal.set_fact("faults", &faults.to_string().into())?;
    report_faults(&faults);
    Ok(())
}

/// Failures of ours are told; where nothing could be graded, that is the end.
fn report_failures(
    folder: &RunFolder,
    summary: &StageSummary,
    graded: usize,
) -> Result<(), RunError> {
    if summary.failed == 0 {
        return Ok(());
    }
    let units = folder.journal().units(STAGE)?;
    let first = units.into_iter().find_map(|unit| unit.failure);
    let why = first.map_or_else(String::new, |failure| failure.detail);
    let failed = summary.failed;
    if graded == 0 {
        return Err(RunError::Environment(format!(
            "none of {failed} trajectories could be graded: {why}"
        )));
    }
    tracing::warn!(
        "{failed} trajectories could not be graded (first: {why}); the same command tries them again"
    );
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

/// Grades one trajectory per unit.
struct GradeStage {
    tasks: HashMap<Digest, Task>,
    trajectories: HashMap<String, Trajectory>,
    filters: Vec<Filter>,
    format: &'static dyn Format,
    examiner: Arc<dyn Examiner>,
    judging: Option<opinion::Judging>,
}

impl GradeStage {
    async fn findings(&self, case: &Case<'_>) -> Result<Vec<Finding>, Failure> {
        let needed = [Filter::Outputs, Filter::Check];
        let examined = match self.filters.iter().any(|filter| needed.contains(filter)) {
            true => self.examiner.examine(case.task, case.trajectory).await?,
            false => Vec::new(),
        };
        let of = |name: &str| {
            examined
                .iter()
                .filter(|f| f.filter == name)
                .cloned()
                .collect()
        };
        let findings = self.filters.iter().flat_map(|filter| match filter {
            Filter::Format => filters::format(case),
            Filter::Finished => filters::finished(case),
            Filter::Outputs => of("outputs"),
            Filter::Check => of("check"),
            Filter::Consistent => filters::consistent(case),
            // The one has an opinion, the other needs the verdicts of the trajectories before it.
            Filter::Judge | Filter::Duplicate => Vec::new(),
        });
        Ok(findings.collect())
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
        };
        let mut findings = self.findings(&case).await?;
        let mut opinion = None;
        if let Some(judging) = &self.judging {
            opinion = judging.opinion(task, trajectory).await?;
            let said = opinion.as_ref();
            findings.extend(said.and_then(|said| judging.finding(task, said)));
        }
        let verdict = Verdict {
            trajectory: trajectory.id.clone(),
            accepted: findings.iter().all(|f| f.outcome == Outcome::Pass),
            findings,
            opinion,
            checker: self.examiner.digest().to_owned(),
        };
        serde_json::to_value(verdict).map_err(|error| failure(error.to_string()))
    }
}

fn failure(detail: String) -> Failure {
    Failure::new(FailureKind::Internal, detail)
}
