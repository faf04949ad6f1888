//! Which tries come next. A run with a goal goes in waves: tries are made, graded, and what came of them
//! says which ones are made then.
//!
//! A wave follows from the fates of all earlier ones and from nothing else: not from time, order of
//! completion or how often the run was interrupted. So the plan is never stored: it is found again by
//! going through its waves from the start, until one has a try whose fate is not known.

use pybench::run::Goal;

/// Fewest tries of a wave towards a number of rows, so that the last few are not sought one by one.
const FEWEST: usize = 8;

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its checks hold.
    Accepted,
    /// They do not.
    Rejected,
    /// It failed, and not for the model's doing.
    Failed,
}

/// What may be tried at one task: per teacher, from the first to the strongest, its samples. Tries are
/// numbered over all tasks.
pub type Course = Vec<Vec<usize>>;

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Every try of the waves so far, the next one included, ascending.
    pub tries: Vec<usize>,
    /// The next wave, in the order of its tasks; empty when the goal is reached or nothing is left.
    pub wave: Vec<usize>,
}

/// A task under way.
#[derive(Clone, Copy, Default)]
struct State {
    rung: usize,
    /// Samples taken of the rung.
    taken: usize,
    /// Tries of the task.
    made: usize,
    accepted: usize,
    failed: bool,
}

impl State {
    /// The tries that the task asks for now.
    fn next(&self, course: &[Vec<usize>], goal: &Goal) -> (Self, Vec<usize>) {
        let enough = goal.enough as usize;
        let mut state = *self;
        if state.failed || (enough > 0 && state.accepted >= enough) {
            return (state, Vec::new());
        }
        let in_rung = |rung: usize| course.get(rung).map_or(0, Vec::len);
        if state.taken >= in_rung(state.rung) && state.accepted == 0 {
            (state.rung, state.taken) = (state.rung + 1, 0);
        }
        let left = in_rung(state.rung).saturating_sub(state.taken);
        let count = match enough {
            0 => left,
            enough => left.min(enough - state.accepted),
        };
        let tries = course.get(state.rung).map_or(&[][..], Vec::as_slice);
        let tries = tries[state.taken.min(tries.len())..].iter().take(count);
        let tries: Vec<usize> = tries.copied().collect();
        state.taken += count;
        state.made += count;
        (state, tries)
    }

    fn learn(&mut self, fate: Fate) {
        self.accepted += usize::from(fate == Fate::Accepted);
        self.failed |= fate == Fate::Failed;
    }
}

/// The plan of a run. `fate` is `None` for a try that is not made and graded yet; `rows` says how many
/// rows tries give.
///
/// # Errors
/// Those of `rows`.
pub fn plan<E>(
    courses: &[Course],
    goal: &Goal,
    fate: impl Fn(usize) -> Option<Fate>,
    rows: impl Fn(&[usize]) -> Result<usize, E>,
) -> Result<Plan, E> {
    let mut states = vec![State::default(); courses.len()];
    let mut tries: Vec<usize> = Vec::new();
    loop {
        let need = match goal.accept {
            Some(asked) => asked.saturating_sub(rows(&tries)?),
            None => usize::MAX,
        };
        let wave = next_wave(courses, goal, &mut states, need);
        let mut items: Vec<usize> = wave.iter().map(|(_, item)| *item).collect();
        items.sort_unstable();
        tries.extend(&items);
        tries.sort_unstable();
        if items.is_empty() || items.iter().any(|item| fate(*item).is_none()) {
            return Ok(Plan { tries, wave: items });
        }
        for (task, item) in wave {
            if let Some(fate) = fate(item) {
                states[task].learn(fate);
            }
        }
    }
}

/// Tasks that were tried least come first, then the earlier ones; as many tries as rows are missing.
fn next_wave(
    courses: &[Course],
    goal: &Goal,
    states: &mut [State],
    need: usize,
) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..courses.len()).collect();
    order.sort_by_key(|task| states[*task].made);
    let most = match need {
        0 => 0,
        need => need.max(FEWEST),
    };
    let mut wave = Vec::new();
    for task in order {
        if wave.len() >= most {
            break;
        }
        let (state, tries) = states[task].next(&courses[task], goal);
        if !tries.is_empty() {
            states[task] = state;
            wave.extend(tries.into_iter().map(|item| (task, item)));
        }
    }
    wave
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// `tasks` tasks, each with `rungs` teachers of `samples` samples.
    fn courses(tasks: usize, rungs: usize, samples: usize) -> Vec<Course> {
        let mut next = 0..;
        let mut some = |count| next.by_ref().take(count).collect::<Vec<usize>>();
        (0..tasks)
            .map(|_| (0..rungs).map(|_| some(samples)).collect())
            .collect()
    }

    /// Goes on until the plan is empty; returns the waves.
    fn waves(courses: &[Course], goal: &Goal, fate: impl Fn(usize) -> Fate) -> Vec<Vec<usize>> {
        let mut known: BTreeMap<usize, Fate> = BTreeMap::new();
        let mut waves = Vec::new();
        loop {
            let rows = |tries: &[usize]| {
                let accepted = |item: &&usize| known.get(*item) == Some(&Fate::Accepted);
                Ok::<_, Infallible>(tries.iter().filter(accepted).count())
            };
            let plan = plan(courses, goal, |item| known.get(&item).copied(), rows).unwrap();
            if plan.wave.is_empty() {
                return waves;
            }
            known.extend(plan.wave.iter().map(|item| (*item, fate(*item))));
            waves.push(plan.wave);
        }
    }

    #[test]
    fn without_a_goal_everything_is_one_wave() {
        let all: Vec<usize> = (0..12).collect();
        let goal = Goal::default();
        assert_eq!(waves(&courses(4, 1, 3), &goal, |_| Fate::Rejected), [all]);
    }

    #[test]
    fn samples_stop_once_enough_are_accepted() {
        let goal = Goal {
            enough: 1,
            ..Goal::default()
        };
        // Task 0 has samples 0..3, task 1 has 3..6; sample 4 is the only good one.
        let fate = |item| {
            if item == 4 {
                Fate::Accepted
            } else {
                Fate::Rejected
            }
        };
        let made = waves(&courses(2, 1, 3), &goal, fate);
        assert_eq!(made, [vec![0, 3], vec![1, 4], vec![2]]);
        let goal = Goal {
            enough: 2,
            ..Goal::default()
        };
        let made = waves(&courses(1, 1, 5), &goal, |item| {
            if item == 0 {
                Fate::Rejected
            } else {
                Fate::Accepted
            }
        });
        assert_eq!(made, [vec![0, 1], vec![2]]);
    }

    #[test]
    fn what_a_teacher_fails_goes_on_to_a_stronger_one() {
        let made = waves(&courses(2, 2, 2), &Goal::default(), |item| {
            // The first task is solved at once, the second by the stronger teacher.
            if item == 1 || item == 6 {
                Fate::Accepted
            } else {
                Fate::Rejected
            }
        });
        assert_eq!(made, [vec![0, 1, 4, 5], vec![6, 7]]);
        let made = waves(&courses(1, 3, 1), &Goal::default(), |_| Fate::Failed);
        assert_eq!(
            made,
            [vec![0]],
            "a failure of ours is no reason to ask a stronger one"
        );
    }

    proptest! {
        #[test]
        fn a_goal_is_reached_and_work_stops_there(
            tasks in 1_usize..60, rungs in 1_usize..3, samples in 1_usize..4, enough in 0_u32..3,
            accept in 1_usize..40, good in proptest::collection::vec(any::<bool>(), 540),
        ) {
            let courses = courses(tasks, rungs, samples);
            let goal = Goal { accept: Some(accept), enough, ..Goal::default() };
            let fate = |item: usize| if good[item] { Fate::Accepted } else { Fate::Rejected };
            let waves = waves(&courses, &goal, fate);
            let made: Vec<usize> = waves.concat();
            let mut distinct = made.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), made.len(), "nothing is tried twice");
            let accepted = |wave: &[usize]| wave.iter().filter(|item| good[**item]).count();
            let total = accepted(&made);
            if let Some((_, before)) = waves.split_last() {
                prop_assert!(accepted(&before.concat()) < accept, "it went on with the goal reached");
            }
            if total < accept {
                // Every task came to its end.
                for course in &courses {
                    let of: Vec<_> = course.concat().into_iter().filter(|item| made.contains(item)).collect();
                    let accepted = accepted(&of);
                    let done = of.len() == course.concat().len() || accepted > 0;
                    prop_assert!(done, "a task was given up");
                }
            }
            if enough > 0 {
                for course in &courses {
                    let of: Vec<_> = course.concat().into_iter().filter(|item| made.contains(item)).collect();
                    prop_assert!(accepted(&of) <= enough as usize);
                }
            }
        }
    }
}
