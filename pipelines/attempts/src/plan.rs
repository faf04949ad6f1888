//! Plans which attempts come next. A run with a goal works in rounds: make attempts, grade them, and use
//! the outcomes to choose the attempts of the next round.
//!
//! A round depends only on the outcomes of all earlier rounds, not on time, order of completion or how
//! often the run was interrupted. So the plan is never stored: it is recomputed by replaying the rounds
//! from the start, up to the first round with an attempt whose outcome is not in the journal.

use std::convert::Infallible;
use std::ops::Range;

use pybench_run::{Goal, Mode, RunContext, RunError};

use crate::outcomes::{AttemptOutcome, KnownOutcomes};
use crate::{AttemptStage, Ladders};

/// Minimum attempts of a round toward a number of rows. It keeps the last missing rows from needing one
/// round each.
const MIN_ROUND: usize = 8;

/// The attempts that a run has made or makes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// All attempts of the rounds so far, including the next round, ascending.
    pub attempts: Vec<usize>,
    /// The next round, ascending; empty if the goal is reached or no attempt is left.
    pub round: Vec<usize>,
}

/// The progress of one task.
#[derive(Clone, Copy, Default)]
struct TaskState {
    level: usize,
    /// Samples planned on the current level.
    taken: usize,
    /// Attempts planned over all levels.
    made: usize,
    accepted: usize,
    failed: bool,
}

impl TaskState {
    /// The attempts that the task needs next, and the state after planning them.
    fn next(&self, task: usize, ladders: &Ladders, goal: &Goal) -> (Self, Range<usize>) {
        let enough = goal.enough as usize;
        let mut state = *self;
        if state.failed || (enough > 0 && state.accepted >= enough) {
            return (state, 0..0);
        }
        let in_level = |level: usize| ladders.level(task, level).len();
        if state.taken >= in_level(state.level) && state.accepted == 0 {
            (state.level, state.taken) = (state.level + 1, 0);
        }
        let left = in_level(state.level).saturating_sub(state.taken);
        let count = match enough {
            0 => left,
            enough => left.min(enough - state.accepted),
        };
        let first = ladders.level(task, state.level).start + state.taken;
        let attempts = first..first + count;
        state.taken += count;
        state.made += count;
        (state, attempts)
    }

    fn record(&mut self, outcome: AttemptOutcome) {
        self.accepted += usize::from(outcome == AttemptOutcome::Accepted);
        self.failed |= outcome == AttemptOutcome::Failed;
    }
}

/// Computes the plan of a run. `outcome` returns `None` for an attempt that is not graded yet; `rows`
/// returns how many dataset rows a list of attempts gives.
///
/// # Errors
/// Errors of `rows`.
pub fn plan<E>(
    ladders: &Ladders,
    goal: &Goal,
    outcome: impl Fn(usize) -> Option<AttemptOutcome>,
    rows: impl Fn(&[usize]) -> Result<usize, E>,
) -> Result<Plan, E> {
    let mut states = vec![TaskState::default(); ladders.tasks];
    let mut attempts: Vec<usize> = Vec::new();
    loop {
        let need = match goal.accept {
            Some(requested) => requested.saturating_sub(rows(&attempts)?),
            None => usize::MAX,
        };
        let round = next_round(ladders, goal, &mut states, need);
        let mut items: Vec<usize> = round.iter().map(|(_, item)| *item).collect();
        items.sort_unstable();
        attempts.extend(&items);
        attempts.sort_unstable();
        if items.is_empty() || items.iter().any(|item| outcome(*item).is_none()) {
            return Ok(Plan {
                attempts,
                round: items,
            });
        }
        for (task, item) in round {
            if let Some(outcome) = outcome(item) {
                states[task].record(outcome);
            }
        }
    }
}

/// The next round: about as many attempts as rows are missing. Tasks with the fewest attempts come first,
/// in task order among equals.
fn next_round(
    ladders: &Ladders,
    goal: &Goal,
    states: &mut [TaskState],
    need: usize,
) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..ladders.tasks).collect();
    order.sort_by_key(|task| states[*task].made);
    let limit = match need {
        0 => 0,
        need => need.max(MIN_ROUND),
    };
    let mut round = Vec::new();
    for task in order {
        if round.len() >= limit {
            break;
        }
        let (state, attempts) = states[task].next(task, ladders, goal);
        if !attempts.is_empty() {
            states[task] = state;
            round.extend(attempts.map(|item| (task, item)));
        }
    }
    round
}

/// Whether the run needs only one round: every attempt is made regardless of the other outcomes.
pub fn single_round(context: &RunContext, stage: &AttemptStage) -> bool {
    let goal = &context.recipe.goal;
    goal.accept.is_none() && goal.enough == 0 && stage.ladders().levels <= 1
}

/// Computes the plan of a run from the outcomes in its journal.
///
/// # Errors
/// The journal cannot be read.
pub fn plan_run(context: &RunContext, stage: &AttemptStage) -> Result<Plan, RunError> {
    let mut known = KnownOutcomes::new(stage);
    if !single_round(context, stage) && context.mode == Mode::Full {
        let journal = context.folder.journal();
        known.read_journal(journal, stage)?;
        known.read_uncounted(journal, &context.recipe)?;
    }
    Ok(plan_with(context, stage, &known))
}

/// Computes the plan of a run from known outcomes.
pub fn plan_with(context: &RunContext, stage: &AttemptStage, known: &KnownOutcomes) -> Plan {
    if single_round(context, stage) || context.mode != Mode::Full {
        let all: Vec<usize> = (0..stage.len()).collect();
        return Plan {
            round: all.clone(),
            attempts: all,
        };
    }
    let (grade, goal) = (&context.recipe.grade, &context.recipe.goal);
    let rows = |attempts: &[usize]| Ok::<_, Infallible>(known.rows(grade, goal, attempts));
    let planned = plan(stage.ladders(), goal, |at| known.outcome(at), rows);
    planned.unwrap_or_else(|never| match never {})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Ladders for `tasks` tasks with `levels` teachers and `samples` samples each.
    fn ladders(tasks: usize, levels: usize, samples: usize) -> Ladders {
        Ladders {
            tasks,
            levels,
            samples,
        }
    }

    /// All possible attempts at each task.
    fn of_tasks(ladders: &Ladders) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..ladders.attempts()).collect();
        all.chunks(ladders.levels * ladders.samples)
            .map(<[usize]>::to_vec)
            .collect()
    }

    /// Runs plans until one is empty; returns the rounds.
    fn rounds(
        ladders: &Ladders,
        goal: &Goal,
        outcome: impl Fn(usize) -> AttemptOutcome,
    ) -> Vec<Vec<usize>> {
        let mut known: BTreeMap<usize, AttemptOutcome> = BTreeMap::new();
        let mut rounds = Vec::new();
        loop {
            let rows = |attempts: &[usize]| {
                let accepted = |item: &&usize| known.get(*item) == Some(&AttemptOutcome::Accepted);
                Ok::<_, Infallible>(attempts.iter().filter(accepted).count())
            };
            let plan = plan(ladders, goal, |item| known.get(&item).copied(), rows).unwrap();
            if plan.round.is_empty() {
                return rounds;
            }
            known.extend(plan.round.iter().map(|item| (*item, outcome(*item))));
            rounds.push(plan.round);
        }
    }

    #[test]
    fn without_a_goal_there_is_one_round() {
        let all: Vec<usize> = (0..12).collect();
        let goal = Goal::default();
        assert_eq!(
            rounds(&ladders(4, 1, 3), &goal, |_| AttemptOutcome::Rejected),
            [all]
        );
    }

    #[test]
    fn samples_stop_once_enough_are_accepted() {
        let goal = Goal {
            enough: 1,
            ..Goal::default()
        };
        // Task 0 has samples 0..3, task 1 has 3..6; sample 4 is the only good one.
        let outcome = |item| {
            if item == 4 {
                AttemptOutcome::Accepted
            } else {
                AttemptOutcome::Rejected
            }
        };
        let made = rounds(&ladders(2, 1, 3), &goal, outcome);
        assert_eq!(made, [vec![0, 3], vec![1, 4], vec![2]]);
        let goal = Goal {
            enough: 2,
            ..Goal::default()
        };
        let made = rounds(&ladders(1, 1, 5), &goal, |item| {
            if item == 0 {
                AttemptOutcome::Rejected
            } else {
                AttemptOutcome::Accepted
            }
        });
        assert_eq!(made, [vec![0, 1], vec![2]]);
    }

    #[test]
    fn tasks_that_a_teacher_fails_go_to_a_stronger_one() {
        let made = rounds(&ladders(2, 2, 2), &Goal::default(), |item| {
            // The first teacher solves the first task, the stronger teacher the second.
            if item == 1 || item == 6 {
                AttemptOutcome::Accepted
            } else {
                AttemptOutcome::Rejected
            }
        });
        assert_eq!(made, [vec![0, 1, 4, 5], vec![6, 7]]);
        let made = rounds(&ladders(1, 3, 1), &Goal::default(), |_| {
            AttemptOutcome::Failed
        });
        assert_eq!(
            made,
            [vec![0]],
            "an infrastructure failure does not escalate"
        );
    }

    proptest! {
        #[test]
        fn planning_stops_when_the_goal_is_reached(
            tasks in 1_usize..60, levels in 1_usize..3, samples in 1_usize..4, enough in 0_u32..3,
            accept in 1_usize..40, good in proptest::collection::vec(any::<bool>(), 540),
        ) {
            let ladders = ladders(tasks, levels, samples);
            let goal = Goal { accept: Some(accept), enough, ..Goal::default() };
            let outcome = |item: usize| if good[item] { AttemptOutcome::Accepted } else { AttemptOutcome::Rejected };
            let rounds = rounds(&ladders, &goal, outcome);
            let made: Vec<usize> = rounds.concat();
            let mut distinct = made.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), made.len(), "an attempt was planned twice");
            let accepted = |round: &[usize]| round.iter().filter(|item| good[**item]).count();
            let total = accepted(&made);
            if let Some((_, before)) = rounds.split_last() {
                prop_assert!(accepted(&before.concat()) < accept, "a round was planned after the goal was reached");
            }
            if total < accept {
                // No attempt is left for any task.
                for ladder in of_tasks(&ladders) {
                    let of: Vec<_> = ladder.iter().copied().filter(|item| made.contains(item)).collect();
                    let accepted = accepted(&of);
                    let done = of.len() == ladder.len() || accepted > 0;
                    prop_assert!(done, "a task was abandoned");
                }
            }
            if enough > 0 {
                for ladder in of_tasks(&ladders) {
                    let of: Vec<_> = ladder.into_iter().filter(|item| made.contains(item)).collect();
                    prop_assert!(accepted(&of) <= enough as usize);
                }
            }
        }
    }
}
