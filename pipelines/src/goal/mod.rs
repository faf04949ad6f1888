//! What a run works towards: rollout and grading in turns, until as many rows are there as were asked
//! for, or nothing is left to try.
//!
//! Neither stage calls the other. The journal holds what came of every try; [`plan`](mod@plan) says from
//! that, and from nothing else, which tries come next, so that a run that was killed goes on where it was.

mod choose;
mod plan;

use std::collections::{HashMap, HashSet};

use pybench::run::{Goal, Mode, RetryFailed, RunContext, RunError, UnitState};
use pybench::trajectory::{Trajectory, Verdict};

pub use choose::{CHOICES, Traits, choose, holds};
pub use plan::{Course, Fate, Plan, plan};

use crate::rollout::RolloutStage;
use crate::{grade, rollout};

/// Rollout and grading in turns.
///
/// # Errors
/// Those of both stages.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    let stage = rollout::open(context).await?;
    let examiner = grade::examiner(context)?;
    let mut context = context.clone();
    loop {
        let went_on = rollout::wave(&context, &stage).await?;
        grade::run_with(&context, examiner.clone()).await?;
        if !went_on || in_one(&context, &stage) {
            return Ok(());
        }
        // What failed in this process waits for the next one.
        context.options.retry_failed = RetryFailed::None;
        tell(&context)?;
    }
}

fn tell(context: &RunContext) -> Result<(), RunError> {
    let accepted = context.folder.journal().fact("accepted")?;
    let accepted = accepted.and_then(|count| count.as_u64()).unwrap_or(0);
    match context.recipe.goal.accept {
        Some(asked) => tracing::info!("{accepted} of {asked} rows"),
        None => tracing::info!("{accepted} rows so far"),
    }
    Ok(())
}

/// Whether every try is made whatever comes of the others.
fn in_one(context: &RunContext, stage: &RolloutStage) -> bool {
    let goal = &context.recipe.goal;
    let rungs = stage.courses().iter().map(Vec::len).max();
    goal.accept.is_none() && goal.enough == 0 && rungs.unwrap_or(0) <= 1
}

/// The plan of a run, from what its journal holds.
///
/// # Errors
/// Failures of the journal.
pub fn plan_of(context: &RunContext, stage: &RolloutStage) -> Result<Plan, RunError> {
    if in_one(context, stage) || context.mode != Mode::Full {
        let all: Vec<usize> = (0..stage.tries().len()).collect();
        return Ok(Plan {
            wave: all.clone(),
            tries: all,
        });
    }
    let known = Known::of(context)?;
    let item = |at: usize| stage.tries()[at].id.as_str();
    let rows = |tries: &[usize]| Ok(known.rows(context, tries.iter().map(|at| item(*at))));
    plan(
        stage.courses(),
        &context.recipe.goal,
        |at| known.fate(item(at)),
        rows,
    )
}

/// What is known of tries, by item.
struct Known {
    failed: HashSet<String>,
    graded: HashMap<String, (Traits, Verdict)>,
}

impl Known {
    fn of(context: &RunContext) -> Result<Self, RunError> {
        let journal = context.folder.journal();
        let mut failed = HashSet::new();
        let mut verdicts: HashMap<String, Verdict> = HashMap::new();
        for unit in journal.units(grade::STAGE)? {
            match (unit.state, unit.output) {
                (UnitState::Done, Some(output)) => {
                    verdicts.insert(unit.item, serde_json::from_value(output)?);
                }
                (UnitState::Failed, _) => drop(failed.insert(unit.item)),
                _ => {}
            }
        }
        let mut graded = HashMap::new();
        for unit in journal.units(rollout::STAGE)? {
            match (unit.state, unit.output) {
                (UnitState::Done, Some(output)) => {
                    if let Some(verdict) = verdicts.remove(&unit.item) {
                        let trajectory: Trajectory = serde_json::from_value(output)?;
                        graded.insert(unit.item, (Traits::of(&trajectory), verdict));
                    }
                }
                (UnitState::Failed, _) => drop(failed.insert(unit.item)),
                _ => {}
            }
        }
        Ok(Self { failed, graded })
    }

    fn fate(&self, item: &str) -> Option<Fate> {
        match self.graded.get(item) {
            Some((_, verdict)) if verdict.accepted => Some(Fate::Accepted),
            Some(_) => Some(Fate::Rejected),
            None => self.failed.contains(item).then_some(Fate::Failed),
        }
    }

    /// Rows that these tries give.
    fn rows<'a>(&self, context: &RunContext, items: impl Iterator<Item = &'a str>) -> usize {
        let graded: Vec<_> = items.filter_map(|item| self.graded.get(item)).collect();
        let traits: Vec<&Traits> = graded.iter().map(|(traits, _)| traits).collect();
        let mut verdicts: Vec<Verdict> = graded.iter().map(|(_, v)| v.clone()).collect();
        let goal: &Goal = &context.recipe.goal;
        choose(&context.recipe.grade, goal, &traits, &mut verdicts);
        verdicts.iter().filter(|verdict| verdict.accepted).count()
    }
}
