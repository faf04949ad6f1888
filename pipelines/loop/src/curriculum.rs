//! Which tasks of a round the next one plays again: those that the student passes in some of its samples only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use pybench_run::artifacts::{TRAJECTORIES, VERDICTS};
use pybench_run::{CurriculumChoice, LoopChoice, RunContext, RunError};
use pybench_types::id::Digest;

use crate::report::Report;
use crate::round_dir;
use crate::tasks::LoopTasks;

/// Samples of a task that passed, and all of them.
type Samples = (u32, u32);

/// Applies what earlier calls of [`draw`] have journaled.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn restore(context: &RunContext, tasks: &mut LoopTasks) -> Result<(), RunError> {
    for number in 2..=tasks.rounds.len() {
        if let Some(again) = journaled(context, number)? {
            tasks.play_again(number - 1, &again);
        }
    }
    Ok(())
}

/// Lets round `number` begin with tasks of the round before it, and returns their number. The choice is journaled.
///
/// # Errors
/// The attempts of the round before it cannot be read; the journal cannot be written.
pub(crate) fn draw(
    context: &RunContext,
    number: u32,
    looped: &LoopChoice,
    (tasks, report): (&mut LoopTasks, &Report),
) -> Result<usize, RunError> {
    let before = report.rounds.last();
    let (Some(choice), Some(before)) = (&looped.curriculum, before) else {
        return Ok(0);
    };
    let at = number as usize - 1;
    if let Some(again) = journaled(context, number as usize)? {
        return Ok(again.len());
    }
    let samples = samples(&round_dir(context, number - 1), &before.played.student)?;
    let chosen = chosen(choice, &samples);
    let again = tasks.play_again(at, &chosen);
    let ids: Vec<&str> = again.iter().map(Digest::as_str).collect();
    let journal = context.folder.journal();
    journal.set_metadata_synced(&key(number as usize), &ids.into())?;
    tracing::info!(
        "round {number}: {} of its tasks were passed in some samples of the round before",
        again.len()
    );
    Ok(again.len())
}

fn key(number: usize) -> String {
    format!("again/{number}")
}

/// The tasks that round `number` plays again, if that was decided.
fn journaled(context: &RunContext, number: usize) -> Result<Option<HashSet<Digest>>, RunError> {
    let ids = context.folder.journal().metadata(&key(number))?;
    Ok(ids.map(serde_json::from_value).transpose()?)
}

/// The student's attempts in the run of a round, by task.
fn samples(round: &Path, student: &str) -> Result<BTreeMap<Digest, Samples>, RunError> {
    let mut accepted = HashMap::new();
    for verdict in VERDICTS.read(round)? {
        let verdict = verdict?;
        accepted.insert(verdict.trajectory, verdict.accepted);
    }
    let mut samples: BTreeMap<Digest, Samples> = BTreeMap::new();
    for trajectory in TRAJECTORIES.read(round)? {
        let trajectory = trajectory?;
        if trajectory.teacher != student {
            continue;
        }
        if let Some(passed) = accepted.get(&trajectory.id) {
            let (passes, all) = samples.entry(trajectory.task).or_default();
            *passes += u32::from(*passed);
            *all += 1;
        }
    }
    Ok(samples)
}

/// The tasks whose pass rate is between the bounds.
fn chosen(choice: &CurriculumChoice, samples: &BTreeMap<Digest, Samples>) -> HashSet<Digest> {
    let between = |(passes, all): &Samples| {
        let rate = f64::from(*passes) / f64::from(*all);
        choice.above < rate && rate < choice.below
    };
    let chosen = samples.iter().filter(|task| between(task.1));
    chosen.map(|(task, _)| task.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_between_the_bounds_are_chosen() {
        let id = |name: &str| Digest::of_bytes(name.as_bytes());
        let samples = [("never", 0), ("once", 1), ("often", 3), ("always", 4)];
        let samples = samples.map(|(name, passes)| (id(name), (passes, 4)));
        let samples = BTreeMap::from(samples);
        let all = CurriculumChoice::default();
        let expected = HashSet::from([id("once"), id("often")]);
        assert_eq!(chosen(&all, &samples), expected);
        let easy = CurriculumChoice {
            above: 0.25,
            below: 1.0,
        };
        assert_eq!(chosen(&easy, &samples), HashSet::from([id("often")]));
    }
}
