//! The grade stage: decides by executed checks which trajectories become dataset rows.
//!
//! Each trajectory is a unit of work whose output is its [`Verdict`]. Filters that compare trajectories, such
//! as duplicates, run afterward in item order, so the result does not depend on which unit finished first.
//! Trajectories and tasks are read when needed; memory holds only the features that selection and reports use.

mod consistent;
mod early_ends;
mod filters;
mod llm_judge;
mod sandboxed;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent::{self as agent, Format};
use pybench_attempts::AttemptItems;
use pybench_attempts::outcomes::is_wrong_task;
use pybench_checks::count_rejection;
use pybench_checks::faults::FaultReport;
use pybench_checks::selection::{TrajectoryFeatures, select};
use pybench_interpreter::Interpreter;
use pybench_run::artifacts::stage::{GRADE, ROLLOUT};
use pybench_run::artifacts::{Index, TASKS, TRAJECTORIES, VERDICTS};
use pybench_run::left_out_tasks;
use pybench_run::{
    ContentStore, Failure, FailureKind, Filter, FoldedLog, Items, Journal, RunContext, RunError,
    RunFolder, Stage, StageSummary, UnitState,
};
use pybench_types::id::{CompactDigest, Digest};
use pybench_types::task::Task;
use pybench_types::trajectory::{Finding, Opinion, Outcome, Trajectory, Verdict};
use serde_json::Value;

pub use consistent::unsupported;
use early_ends::EarlyEnds;
pub use filters::GradeCase;
pub use llm_judge::{JudgeReport, JudgeTally};

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

/// Creates the checker, which runs in sessions of this interpreter and reads the files of tasks and trajectories from `store`.
///
/// # Errors
/// [`RunError::Environment`] if the interpreter cannot run.
pub fn checker_in(
    interpreter: Arc<dyn Interpreter>,
    store: ContentStore,
) -> Result<Arc<dyn TrajectoryChecker>, RunError> {
    Ok(Arc::new(sandboxed::SandboxedChecker::new(
        interpreter,
        store,
    )?))
}

/// The verdict of the checks and of the filters that need only the trajectory. No judge is asked.
///
/// # Errors
/// Infrastructure failures; never a verdict on the trajectory.
pub async fn decide(
    case: &GradeCase<'_>,
    filters: &[Filter],
    checker: &dyn TrajectoryChecker,
) -> Result<Verdict, Failure> {
    let findings = findings(case, filters, checker).await?;
    Ok(verdict(case.trajectory, findings, None, checker))
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
    let root = context.folder.root();
    let mut features = Vec::new();
    let trajectories = TRAJECTORIES.index(root, |trajectory| {
        features.push(TrajectoryFeatures::of(trajectory));
        Ok(trajectory.id.to_string())
    })?;
    let items: Vec<CompactDigest> = features.iter().map(|features| features.id).collect();
    let tasks = TASKS.index(root, |task| Ok(task.id.to_string()))?;
    let trajectories = TrajectorySource::Artifact(trajectories);
    grade(context, checker, (Arc::new(tasks), trajectories), &items).await?;
    let journal = context.folder.journal();
    let mut graded = Vec::new();
    for features in &features {
        let id = Digest::from(features.id);
        let verdict: Option<Verdict> = journal.output(GRADE, id.as_str())?;
        graded.extend(verdict.map(|verdict| (features, verdict.accepted)));
    }
    write(context, &graded)
}

/// Grades the attempts with these items that are done, and writes no artifact.
///
/// # Errors
/// As [`run_with`].
pub async fn run_round(
    context: &RunContext,
    checker: Arc<dyn TrajectoryChecker>,
    tasks: Arc<Index<Task>>,
    items: AttemptItems<'_>,
) -> Result<(), RunError> {
    let journal = context.folder.journal();
    let mut done: Vec<CompactDigest> = Vec::with_capacity(items.len());
    for item in items.digests() {
        let state = journal.state(ROLLOUT, Digest::from(item).as_str())?;
        done.extend((state == Some(UnitState::Done)).then_some(item));
    }
    let source = TrajectorySource::Journal(context.folder.clone());
    grade(context, checker, (tasks, source), &done).await
}

async fn grade(
    context: &RunContext,
    checker: Arc<dyn TrajectoryChecker>,
    (tasks, trajectories): (Arc<Index<Task>>, TrajectorySource),
    items: &Vec<CompactDigest>,
) -> Result<(), RunError> {
    let stage = GradeStage::new(context, checker, (tasks, trajectories))?;
    let judge = context.recipe.grade.judge.as_ref();
    let executor = context.shared_executor(judge.map(|judge| &judge.teacher).into_iter());
    let summary = executor.run(Arc::new(stage), items).await?;
    report_failures(&context.folder, &summary)
}

/// The stage as a worker runs it: trajectories are read from the journal.
///
/// # Errors
/// [`RunError::Environment`] if the interpreter cannot run; [`RunError::BadInput`] if there are no tasks.
pub fn stage(context: &RunContext) -> Result<Arc<dyn Stage>, RunError> {
    let tasks = TASKS.index(context.folder.root(), |task| Ok(task.id.to_string()))?;
    let source = TrajectorySource::Journal(context.folder.clone());
    let stage = GradeStage::new(context, checker(context)?, (Arc::new(tasks), source))?;
    Ok(Arc::new(stage))
}

/// Chooses among graded trajectories, given in item order and each with whether its findings pass. Writes
/// `verdicts.jsonl` and the journal entries `accepted`, `rejected` (by filter), `ended_early`, `judge` and `faults`.
///
/// # Errors
/// The journal cannot be read, or the file cannot be written.
pub fn write(context: &RunContext, graded: &[(&TrajectoryFeatures, bool)]) -> Result<(), RunError> {
    let (folder, recipe) = (&context.folder, &context.recipe);
    let journal = folder.journal();
    let uncounted = left_out_tasks::uncounted(journal, recipe)?;
    let graded_attempts = graded.iter().copied();
    let selection = select(&recipe.grade, &recipe.goal, &uncounted, graded_attempts);
    let mut summary = VerdictSummary::new(graded);
    let verdicts = graded.iter().enumerate().filter_map(|(at, (features, _))| {
        let id = Digest::from(features.id);
        let mut verdict: Verdict = match journal.output(GRADE, id.as_str()).transpose()? {
            Ok(verdict) => verdict,
            Err(error) => return Some(Err(error)),
        };
        selection.apply(at, &mut verdict);
        summary.add(features, &verdict);
        Some(Ok(verdict))
    });
    VERDICTS.write(folder, verdicts)?;
    summary.record(journal)
}

/// What the journal and the log say of all verdicts.
struct VerdictSummary {
    accepted: usize,
    rejected: BTreeMap<String, u64>,
    early_ends: EarlyEnds,
    /// Whether any trajectory has a planted fault.
    planted: bool,
    faults: FaultReport,
    judge: JudgeTally,
}

impl VerdictSummary {
    fn new(graded: &[(&TrajectoryFeatures, bool)]) -> Self {
        Self {
            accepted: 0,
            rejected: BTreeMap::new(),
            early_ends: EarlyEnds::default(),
            planted: graded.iter().any(|(features, _)| features.fault.is_some()),
            faults: FaultReport::default(),
            judge: JudgeTally::default(),
        }
    }

    fn add(&mut self, features: &TrajectoryFeatures, verdict: &Verdict) {
        self.accepted += usize::from(verdict.accepted);
        count_rejection(&mut self.rejected, verdict);
        self.early_ends.add(&features.end);
        self.judge.add(Some(features), verdict);
        match self.planted {
            true => self.faults.add(features, verdict),
            false => self.faults.count(false, verdict),
        }
    }

    fn record(self, journal: &Journal) -> Result<(), RunError> {
        journal.set_metadata("accepted", &self.accepted.into())?;
        journal.set_metadata("rejected", &serde_json::to_value(self.rejected)?)?;
        if let Some(report) = self.early_ends.report() {
            tracing::info!("{report}");
            journal.set_metadata("ended_early", &report.into())?;
        }
        if let Some(report) = self.judge.report() {
            tracing::info!("{report}");
            journal.set_metadata("judge", &report.to_string().into())?;
        }
        if self.faults.planted > 0 {
            journal.set_metadata("faults", &self.faults.to_string().into())?;
            report_faults(&self.faults);
        }
        Ok(())
    }
}

/// Warns about trajectories that could not be graded; an error if none could be graded. Those of wrong tasks are
/// not graded, but no failures of this stage.
fn report_failures(folder: &RunFolder, summary: &StageSummary) -> Result<(), RunError> {
    if summary.failed == 0 {
        return Ok(());
    }
    let failures = folder.journal().failures()?;
    let (wrong, failures): (Vec<_>, Vec<_>) = failures
        .into_iter()
        .filter(|unit| unit.stage == GRADE && unit.last)
        .partition(is_wrong_task);
    if let Some(unit) = wrong.first() {
        let (count, why) = (wrong.len(), &unit.failure.detail);
        tracing::warn!("{count} trajectories have tasks that cannot be graded (first: {why})");
    }
    let Some(first) = failures.first() else {
        return Ok(());
    };
    let (failed, why) = (failures.len(), &first.failure.detail);
    if summary.done == 0 {
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
    tracing::info!("{faults}");
    for (id, fault) in &faults.missed {
        tracing::warn!(
            "{}: accepted despite the planted fault `{fault}`",
            id.short()
        );
    }
    let wronged = FoldedLog::new("grade: rejected without a planted fault");
    for (id, reason) in &faults.wronged {
        if wronged.is_new(reason) {
            tracing::warn!("{}: rejected without a planted fault: {reason}", id.short());
        }
    }
}

/// Where the trajectories are read from.
enum TrajectorySource {
    Artifact(Index<Trajectory>),
    /// The outputs of rollout, while no artifact is written.
    Journal(Arc<RunFolder>),
}

impl TrajectorySource {
    fn get(&self, item: &str) -> Result<Option<Trajectory>, RunError> {
        match self {
            Self::Artifact(index) => index.get(item),
            Self::Journal(folder) => folder.journal().output(ROLLOUT, item),
        }
    }
}

/// Grades one trajectory per unit.
struct GradeStage {
    tasks: Arc<Index<Task>>,
    trajectories: TrajectorySource,
    filters: Vec<Filter>,
    format: &'static dyn Format,
    checker: Arc<dyn TrajectoryChecker>,
    judge: Option<llm_judge::LlmJudge>,
}

impl GradeStage {
    fn new(
        context: &RunContext,
        checker: Arc<dyn TrajectoryChecker>,
        (tasks, trajectories): (Arc<Index<Task>>, TrajectorySource),
    ) -> Result<Self, RunError> {
        Ok(Self {
            tasks,
            trajectories,
            filters: context.recipe.grade.filters.clone(),
            format: agent::format(context.recipe.rollout.format),
            checker,
            judge: llm_judge::LlmJudge::of(context)?,
        })
    }
}

/// The findings of these filters, but for those of the judge and of duplicates.
async fn findings(
    case: &GradeCase<'_>,
    filters: &[Filter],
    checker: &dyn TrajectoryChecker,
) -> Result<Vec<Finding>, Failure> {
    let needed = [Filter::Outputs, Filter::Check];
    let checked = match filters.iter().any(|filter| needed.contains(filter)) {
        true => checker.check(case.task, case.trajectory).await?,
        false => Vec::new(),
    };
    let of = |name: &str| {
        checked
            .iter()
            .filter(|f| f.filter == name)
            .cloned()
            .collect()
    };
    let findings = filters.iter().flat_map(|filter| match filter {
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

fn verdict(
    trajectory: &Trajectory,
    findings: Vec<Finding>,
    opinion: Option<Opinion>,
    checker: &dyn TrajectoryChecker,
) -> Verdict {
    Verdict {
        trajectory: trajectory.id.clone(),
        accepted: findings.iter().all(|f| f.outcome == Outcome::Pass),
        findings,
        opinion,
        checker: checker.digest().to_owned(),
    }
}

#[async_trait]
impl Stage for GradeStage {
    fn name(&self) -> &'static str {
        GRADE
    }

    fn version(&self) -> String {
        self.checker.digest().to_owned()
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
        let mut findings = findings(&case, &self.filters, self.checker.as_ref()).await?;
        let mut opinion = None;
        if let Some(judge) = &self.judge {
            opinion = judge.opinion(&task, &trajectory).await?;
            let given = opinion.as_ref();
            findings.extend(given.and_then(|given| judge.finding(&task, given)));
        }
        let verdict = verdict(&trajectory, findings, opinion, self.checker.as_ref());
        serde_json::to_value(verdict).map_err(|error| failure(error.to_string()))
    }
}

fn failure(detail: String) -> Failure {
    Failure::new(FailureKind::Internal, detail)
}
