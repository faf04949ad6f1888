//! The grade stage: decides by executed checks which trajectories become dataset rows.
//!
//! Each trajectory is a unit of work whose output is its [`Verdict`]. Filters that compare trajectories, such
//! as duplicates, run afterward in item order, so the result does not depend on which unit finished first.
//! Trajectories and tasks are read when needed; memory holds only the features that selection uses.

mod consistent;
mod filters;
mod llm_judge;
mod sandboxed;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent::{self as agent, Format};
use pybench_checks::faults::{FaultReport, fault_report};
use pybench_checks::rejections;
use pybench_checks::selection::{TrajectoryFeatures, choose};
use pybench_run::artifacts::stage::GRADE;
use pybench_run::artifacts::{Index, TASKS, TRAJECTORIES, VERDICTS};
use pybench_run::{
    Executor, Failure, FailureKind, Filter, RunContext, RunError, RunFolder, Stage, StageSummary,
};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{Finding, Outcome, Trajectory, Verdict};
use serde_json::Value;

pub use consistent::unsupported;
pub use filters::GradeCase;
pub use llm_judge::{JudgeReport, judge_report};

/// For `--help`.
pub const ABOUT: &str =
    "Decide which trajectories of a run become dataset rows, by executing their checks";

/// Checks the results of a trajectory outside the agent's sandbox.
#[async_trait]
pub trait TrajectoryChecker: Send + Sync {
    /// Returns one finding per requested output (filter `outputs`: the file exists and opens as its type) and
    /// per check (filter `check`).
    ///
    /// # Errors
    /// Infrastructure failures; never a verdict on the trajectory.
    async fn check(&self, task: &Task, trajectory: &Trajectory) -> Result<Vec<Finding>, Failure>;

    /// Digest of the checker's sources and environment.
    fn digest(&self) -> &str;
}

/// Grades every trajectory of the run with the checker, in sessions of the recipe's interpreter.
///
/// # Errors
/// As [`run_with`]; [`RunError::Environment`] if the interpreter cannot run.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    run_with(context, checker(context)?).await
}

/// Creates the checker, which runs in sessions of the recipe's interpreter.
///
/// # Errors
/// [`RunError::Environment`] if the interpreter cannot run.
pub fn checker(context: &RunContext) -> Result<Arc<dyn TrajectoryChecker>, RunError> {
    Ok(Arc::new(sandboxed::SandboxedChecker::of(context)?))
}

/// Grades every trajectory of the run with the given checker. Writes `verdicts.jsonl` and the journal entries
/// `accepted`, `rejected` (by filter) and `faults`.
///
/// # Errors
/// [`RunError::Environment`] if no trajectory could be graded; errors of the run folder.
pub async fn run_with(
    context: &RunContext,
    checker: Arc<dyn TrajectoryChecker>,
) -> Result<(), RunError> {
    let folder = &context.folder;
    let mut features = Vec::new();
    let trajectories = TRAJECTORIES.index(folder.root(), |trajectory| {
        features.push(TrajectoryFeatures::of(trajectory));
        Ok(trajectory.id.to_string())
    })?;
    let items: Vec<String> = features.iter().map(|f| f.id.to_string()).collect();
    let stage = GradeStage {
        tasks: TASKS.index(folder.root(), |task| Ok(task.id.to_string()))?,
        trajectories,
        filters: context.recipe.grade.filters.clone(),
        format: agent::format(context.recipe.rollout.format),
        checker,
        judge: llm_judge::LlmJudge::of(context)?,
    };
    let summary = context.executor().run(Arc::new(stage), &items).await?;
    let verdicts = folder.journal().outputs_of(GRADE, &items);
    let mut verdicts: Vec<Verdict> = verdicts.collect::<Result<_, _>>()?;
    report_failures(folder, &summary, verdicts.len())?;
    let by_id: HashMap<&Digest, &TrajectoryFeatures> =
        features.iter().map(|f| (&f.id, f)).collect();
    let graded = verdicts.iter().filter_map(|v| by_id.get(&v.trajectory));
    let graded: Vec<&TrajectoryFeatures> = graded.copied().collect();
    choose(
        &context.recipe.grade,
        &context.recipe.goal,
        &graded,
        &mut verdicts,
    );
    finish(folder, &features, &verdicts)
}

fn finish(
    folder: &RunFolder,
    features: &[TrajectoryFeatures],
    verdicts: &[Verdict],
) -> Result<(), RunError> {
    VERDICTS.write(folder, verdicts.iter().map(Ok))?;
    let journal = folder.journal();
    let accepted = verdicts.iter().filter(|verdict| verdict.accepted).count();
    journal.set_metadata("accepted", &accepted.into())?;
    journal.set_metadata("rejected", &serde_json::to_value(rejections(verdicts))?)?;
    if let Some(report) = judge_report(features, verdicts) {
        tracing::info!("{report}");
        journal.set_metadata("judge", &report.to_string().into())?;
    }
    let faults = fault_report(features, verdicts);
    journal.set_metadata("faults", &faults.to_string().into())?;
    report_faults(&faults);
    Ok(())
}

/// Warns about trajectories that could not be graded; an error if none could be graded.
fn report_failures(
    folder: &RunFolder,
    summary: &StageSummary,
    graded: usize,
) -> Result<(), RunError> {
    if summary.failed == 0 {
        return Ok(());
    }
    let units = folder.journal().units(GRADE)?;
    let first = units.into_iter().find_map(|unit| unit.failure);
    let why = first.map_or_else(String::new, |failure| failure.detail);
    let failed = summary.failed;
    if graded == 0 {
        return Err(RunError::Environment(format!(
            "none of {failed} trajectories could be graded; first failure: {why}"
        )));
    }
    tracing::warn!(
        "{failed} trajectories could not be graded (first failure: {why}); run the same command again to \
         retry them"
    );
    Ok(())
}

fn report_faults(faults: &FaultReport) {
    if faults.planted == 0 {
        return;
    }
    tracing::info!("{faults}");
    for (id, fault) in &faults.missed {
        tracing::warn!(
            "{}: accepted despite the planted fault `{fault}`",
            id.short()
        );
    }
    for (id, reason) in &faults.wronged {
        tracing::warn!("{}: rejected without a planted fault: {reason}", id.short());
    }
}

/// Grades one trajectory per unit.
struct GradeStage {
    tasks: Index<Task>,
    trajectories: Index<Trajectory>,
    filters: Vec<Filter>,
    format: &'static dyn Format,
    checker: Arc<dyn TrajectoryChecker>,
    judge: Option<llm_judge::LlmJudge>,
}

impl GradeStage {
    async fn findings(&self, case: &GradeCase<'_>) -> Result<Vec<Finding>, Failure> {
        let needed = [Filter::Outputs, Filter::Check];
        let checked = match self.filters.iter().any(|filter| needed.contains(filter)) {
            true => self.checker.check(case.task, case.trajectory).await?,
            false => Vec::new(),
        };
        let of = |name: &str| {
            checked
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
            // The judge is called separately; duplicates need the verdicts of earlier trajectories.
            Filter::Judge | Filter::Duplicate => Vec::new(),
        });
        Ok(findings.collect())
    }
}

#[async_trait]
impl Stage for GradeStage {
    fn name(&self) -> &'static str {
        GRADE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let missing =
            |what: &str| failure(format!("{what} of trajectory {item} is not in the run"));
        let trajectory = self.trajectories.get(item)?;
        let trajectory = trajectory.ok_or_else(|| missing("the record"))?;
        let task = self.tasks.get(trajectory.task.as_str())?;
        let task = task.ok_or_else(|| missing("the task"))?;
        let case = GradeCase {
            task: &task,
            trajectory: &trajectory,
            format: self.format,
        };
        let mut findings = self.findings(&case).await?;
        let mut opinion = None;
        if let Some(judge) = &self.judge {
            opinion = judge.opinion(&task, &trajectory).await?;
            let given = opinion.as_ref();
            findings.extend(given.and_then(|given| judge.finding(&task, given)));
        }
        let verdict = Verdict {
            trajectory: trajectory.id.clone(),
            accepted: findings.iter().all(|f| f.outcome == Outcome::Pass),
            findings,
            opinion,
            checker: self.checker.digest().to_owned(),
        };
        serde_json::to_value(verdict).map_err(|error| failure(error.to_string()))
    }
}

fn failure(detail: String) -> Failure {
    Failure::new(FailureKind::Internal, detail)
}
