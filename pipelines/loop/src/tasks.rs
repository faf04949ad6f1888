//! The tasks of a loop: those that are held out from all rounds, and those that a round plays.

use std::collections::HashSet;

use pybench_datasets::split::{Assignment, SplitSettings};
use pybench_datasets::split_tasks::{split_tasks, unseen};
use pybench_run::artifacts::{HELD_OUT, TASKS};
use pybench_run::{LoopChoice, RunContext, RunError};
use pybench_types::held_out::HeldOutTask;
use pybench_types::id::Digest;
use pybench_types::task::Task;

/// The tasks of a loop, split.
pub(crate) struct LoopTasks {
    /// What every student is measured on. They share no file with the others.
    pub(crate) held_out: Vec<HeldOutTask>,
    /// The tasks of each round.
    pub(crate) rounds: Vec<Vec<Task>>,
}

impl LoopTasks {
    /// Splits the tasks of the loop's run. The result depends on tasks and seed alone.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there are too few tasks for that.
    pub(crate) fn split(context: &RunContext, looped: &LoopChoice) -> Result<Self, RunError> {
        let tasks = TASKS.read_all(context.folder.root())?;
        let settings = SplitSettings {
            test_fraction: looped.held_out,
            held_out_templates: context.recipe.shard.held_out_templates,
            seed: context.recipe.seed,
            shares: context.recipe.shard.test_shares,
        };
        let rule = context.recipe.shard.held_out(context.recipe.seed);
        let split = split_tasks(&tasks, &settings, &rule);
        let count = looped.rounds as usize;
        let (mut held_out, mut rounds) = (Vec::new(), vec![Vec::new(); count]);
        let mut next = 0;
        for (task, assignment) in tasks.into_iter().zip(&split.assignments) {
            match assignment {
                Assignment::Test => {
                    let unseen = unseen(&task, &split, &rule);
                    held_out.push(HeldOutTask { unseen, task });
                }
                Assignment::Train => {
                    rounds[next % count].push(task);
                    next += 1;
                }
                Assignment::Dropped => {}
            }
        }
        if held_out.is_empty() || next < count {
            return Err(RunError::BadInput(format!(
                "{next} tasks to train on and {} held out are too few for {count} rounds: raise `query.tasks`, use more \
                 files (tasks that share a file stay together), or change `loop.held_out`",
                held_out.len()
            )));
        }
        Ok(Self { held_out, rounds })
    }

    /// Lets the round at this index, which is not the first, begin with tasks of the one before it, as many as it has tasks.
    /// Of its own tasks and those of later rounds, the last ones are left out for them. Returns the ids of the tasks that
    /// are played again, in their order.
    pub(crate) fn play_again(&mut self, at: usize, ids: &HashSet<Digest>) -> Vec<Digest> {
        let sizes: Vec<usize> = self.rounds[at..].iter().map(Vec::len).collect();
        let mut own = self.rounds.split_off(at).into_iter().flatten();
        let before = self.rounds[at - 1].iter();
        let again = before.filter(|task| ids.contains(&task.id)).take(sizes[0]);
        let again: Vec<Task> = again.cloned().collect();
        let played = again.iter().map(|task| task.id.clone()).collect();
        let left = sizes[0] - again.len();
        let round = again.into_iter().chain(own.by_ref().take(left));
        self.rounds.push(round.collect());
        for size in &sizes[1..] {
            self.rounds.push(own.by_ref().take(*size).collect());
        }
        played
    }

    /// Writes the held-out tasks where an evaluation finds them.
    pub(crate) fn write_held_out(&self, context: &RunContext) -> Result<(), RunError> {
        HELD_OUT.write(&context.folder, self.held_out.iter().map(Ok))?;
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A task that is told from others by its name.
    pub(crate) fn task(name: &str) -> Task {
        Task {
            id: Digest::of_bytes(name.as_bytes()),
            query: name.to_owned(),
            ..pybench_testing::task::task()
        }
    }

    #[test]
    fn tasks_that_are_played_again_displace_the_last_ones() {
        let round = |names: &str| -> Vec<Task> {
            let names = names.chars();
            names.map(|name| task(&name.to_string())).collect()
        };
        let mut tasks = LoopTasks {
            held_out: vec![],
            rounds: ["abc", "def", "gh"].map(round).to_vec(),
        };
        let shown = |tasks: &LoopTasks| -> Vec<String> {
            let queries = |round: &Vec<Task>| -> String {
                let queries = round.iter().map(|task| task.query.as_str());
                queries.collect()
            };
            tasks.rounds.iter().map(queries).collect()
        };
        let ids = |names: &str| -> HashSet<Digest> {
            let names = names.chars().map(|name| task(&name.to_string()).id);
            names.collect()
        };
        // `h` is not of the round before.
        let again = tasks.play_again(1, &ids("bch"));
        assert_eq!(again.len(), 2);
        assert_eq!(shown(&tasks), ["abc", "bcd", "ef"]);
        // A round has no more tasks than before.
        tasks.play_again(2, &ids("bcd"));
        assert_eq!(shown(&tasks), ["abc", "bcd", "bc"]);
    }
}
