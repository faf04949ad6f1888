//! Alternates rollout and grading until the goal of the recipe is reached or no attempt is left.
//!
//! The journal holds the outcome of every attempt. [`plan`](pybench_attempts::plan) derives the next round
//! from it, so an interrupted run continues where it stopped. A round reads what is new: its own attempts. The
//! artifacts are written once, after the last round.

use std::sync::Arc;

use pybench_attempts::AttemptStage;
use pybench_attempts::outcomes::KnownOutcomes;
use pybench_attempts::plan::{plan_with, single_round};
use pybench_grade::TrajectoryChecker;
use pybench_run::artifacts::Index;
use pybench_run::{RetryFailed, RunContext, RunError};
use pybench_types::task::Task;

/// Runs all rounds of rollout and grading.
///
/// # Errors
/// Errors of both stages.
pub(crate) async fn run(context: &RunContext) -> Result<(), RunError> {
    let tasks = pybench_rollout::tasks(context)?;
    let stage = pybench_rollout::open(context, tasks.clone()).await?;
    let checker = pybench_grade::checker(context)?;
    run_with(context, tasks, &stage, checker).await
}

/// Like [`run`], with an open stage and another checker.
///
/// # Errors
/// Errors of both stages.
pub async fn run_with(
    context: &RunContext,
    tasks: Arc<Index<Task>>,
    stage: &Arc<AttemptStage>,
    checker: Arc<dyn TrajectoryChecker>,
) -> Result<(), RunError> {
    let mut rounds = Rounds {
        context: context.clone(),
        tasks,
        stage,
        checker,
        outcomes: KnownOutcomes::new(stage),
        attempts: Vec::new(),
    };
    let ended = rounds.run().await;
    if ended.is_ok() || !rounds.attempts.is_empty() {
        rounds.write()?;
    }
    ended
}

/// The rounds of a run.
struct Rounds<'a> {
    context: RunContext,
    tasks: Arc<Index<Task>>,
    stage: &'a Arc<AttemptStage>,
    checker: Arc<dyn TrajectoryChecker>,
    outcomes: KnownOutcomes,
    /// The attempts of the rounds that have ended.
    attempts: Vec<usize>,
}

impl Rounds<'_> {
    async fn run(&mut self) -> Result<(), RunError> {
        pybench_rollout::retry(&self.context)?;
        let single = single_round(&self.context, self.stage);
        if !single {
            let journal = self.context.folder.journal();
            self.outcomes.read_journal(journal, self.stage)?;
            self.outcomes
                .read_uncounted(journal, &self.context.recipe)?;
        }
        loop {
            let plan = plan_with(&self.context, self.stage, &self.outcomes);
            let made = pybench_rollout::run_round(&self.context, self.stage, &plan).await?;
            // An earlier process may have left attempts of earlier rounds without a verdict.
            let is_first = self.attempts.is_empty();
            let attempts = if is_first {
                &plan.attempts
            } else {
                &plan.round
            };
            let items = self.stage.items_of(attempts);
            let (checker, tasks) = (self.checker.clone(), self.tasks.clone());
            pybench_grade::run_round(&self.context, checker, tasks, items).await?;
            let journal = self.context.folder.journal();
            for attempt in attempts {
                self.outcomes.read(journal, self.stage, *attempt)?;
            }
            self.attempts = plan.attempts;
            if !made || single {
                return Ok(());
            }
            // Attempts that failed in this process are retried by the next one.
            self.context.options.retry_failed = RetryFailed::None;
            self.report()?;
        }
    }

    /// Records and reports the number of rows so far.
    fn report(&self) -> Result<(), RunError> {
        let recipe = &self.context.recipe;
        let rows = self
            .outcomes
            .rows(&recipe.grade, &recipe.goal, &self.attempts);
        let journal = self.context.folder.journal();
        journal.set_metadata("accepted", &rows.into())?;
        match recipe.goal.accept {
            Some(goal) => tracing::info!("{rows} of {goal} rows accepted"),
            None => tracing::info!("{rows} rows accepted so far"),
        }
        Ok(())
    }

    /// Writes the artifacts of both stages.
    fn write(&self) -> Result<(), RunError> {
        pybench_rollout::write(&self.context, self.stage, &self.attempts)?;
        let graded = self.attempts.iter();
        let graded = graded.filter_map(|attempt| self.outcomes.graded(*attempt));
        pybench_grade::write(&self.context, &graded.collect::<Vec<_>>())
    }
}
