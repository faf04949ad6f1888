//! The outcomes of a run's attempts, as far as planning and selection need them.

use std::collections::{BTreeSet, HashSet};

use pybench_checks::selection::{Selection, TrajectoryFeatures, select};
use pybench_run::artifacts::stage::{GRADE, ROLLOUT};
use pybench_run::left_out_tasks;
use pybench_run::{
    FailureKind, Goal, Grade, Journal, Recipe, RunError, StageSummary, UnitFailure, UnitState,
};
use pybench_types::id::{CompactDigest, Digest};
use pybench_types::trajectory::{Trajectory, Verdict};

use crate::AttemptStage;

/// Whether a unit failed because the reference of its task did: a failure of the task, not of the attempt.
pub fn is_wrong_task(unit: &UnitFailure) -> bool {
    unit.last && unit.stage == GRADE && unit.failure.kind == FailureKind::Item
}

/// The tasks of a run whose own reference failed while an attempt was graded.
///
/// # Errors
/// The journal cannot be read.
pub fn wrong_tasks(journal: &Journal) -> Result<BTreeSet<Digest>, RunError> {
    let mut wrong = BTreeSet::new();
    for unit in journal
        .failures()?
        .iter()
        .filter(|unit| is_wrong_task(unit))
    {
        let trajectory: Option<Trajectory> = journal.output(ROLLOUT, &unit.item)?;
        wrong.extend(trajectory.map(|trajectory| trajectory.task));
    }
    Ok(wrong)
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The grader accepted it.
    Accepted,
    /// The grader rejected it.
    Rejected,
    /// It failed for a reason other than the model, for example an endpoint or sandbox error.
    Failed,
}

/// Outcomes by the number of the attempt. Each attempt is read once.
pub struct KnownOutcomes {
    /// For each attempt: 0 if its outcome is unknown, 1 if it failed, otherwise 2 plus the index in `graded`.
    states: Vec<u32>,
    graded: Vec<GradedAttempt>,
    /// Tasks whose rows do not count toward the goal.
    uncounted: HashSet<CompactDigest>,
}

/// A graded attempt, and whether its findings pass.
struct GradedAttempt {
    features: TrajectoryFeatures,
    accepted: bool,
}

impl KnownOutcomes {
    /// No outcome is known.
    pub fn new(stage: &AttemptStage) -> Self {
        Self {
            states: vec![0; stage.len()],
            graded: Vec::new(),
            uncounted: HashSet::new(),
        }
    }

    /// Reads the tasks whose rows do not count toward the goal of the recipe.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn read_uncounted(&mut self, journal: &Journal, recipe: &Recipe) -> Result<(), RunError> {
        self.uncounted = left_out_tasks::uncounted(journal, recipe)?;
        Ok(())
    }

    /// Reads the outcomes of all attempts.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn read_journal(
        &mut self,
        journal: &Journal,
        stage: &AttemptStage,
    ) -> Result<(), RunError> {
        if journal.summary(ROLLOUT)? == StageSummary::default() {
            return Ok(());
        }
        (0..stage.len()).try_for_each(|attempt| self.read(journal, stage, attempt))
    }

    /// Reads the outcome of an attempt, if it is not known to be graded.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn read(
        &mut self,
        journal: &Journal,
        stage: &AttemptStage,
        attempt: usize,
    ) -> Result<(), RunError> {
        if self.states[attempt] >= 2 {
            return Ok(());
        }
        let item = stage.id(attempt);
        let verdict: Option<Verdict> = journal.output(GRADE, item.as_str())?;
        let trajectory: Option<Trajectory> = match &verdict {
            Some(_) => journal.output(ROLLOUT, item.as_str())?,
            None => None,
        };
        self.states[attempt] = 0;
        if let (Some(verdict), Some(trajectory)) = (verdict, trajectory) {
            self.states[attempt] = 2 + self.graded.len() as u32;
            self.graded.push(GradedAttempt {
                features: TrajectoryFeatures::of(&trajectory),
                accepted: verdict.accepted,
            });
            return Ok(());
        }
        for stage in [ROLLOUT, GRADE] {
            if journal.state(stage, item.as_str())? == Some(UnitState::Failed) {
                self.states[attempt] = 1;
            }
        }
        Ok(())
    }

    /// The outcome of an attempt; `None` if it is not graded yet.
    pub fn outcome(&self, attempt: usize) -> Option<AttemptOutcome> {
        match (self.states[attempt], self.graded(attempt)) {
            (_, Some((_, true))) => Some(AttemptOutcome::Accepted),
            (_, Some((_, false))) => Some(AttemptOutcome::Rejected),
            (1, None) => Some(AttemptOutcome::Failed),
            _ => None,
        }
    }

    /// The features of a graded attempt, and whether its findings pass.
    pub fn graded(&self, attempt: usize) -> Option<(&TrajectoryFeatures, bool)> {
        let index = self.states[attempt].checked_sub(2)?;
        let graded = self.graded.get(index as usize)?;
        Some((&graded.features, graded.accepted))
    }

    /// The number of dataset rows that these attempts give, as far as they count toward the goal.
    pub fn rows(&self, grade: &Grade, goal: &Goal, attempts: &[usize]) -> usize {
        self.select(grade, goal, attempts).rows
    }

    /// Which of the graded ones of these attempts become rows.
    pub fn select(&self, grade: &Grade, goal: &Goal, attempts: &[usize]) -> Selection {
        let graded = attempts.iter().filter_map(|attempt| self.graded(*attempt));
        select(grade, goal, &self.uncounted, graded)
    }
}
