//! The tasks of a loop: those that are held out from all rounds, and those that a round plays.

use pybench_datasets::split::{Assignment, SplitSettings};
use pybench_datasets::split_tasks::{split_tasks, unseen};
use pybench_run::artifacts::{HELD_OUT, TASKS};
use pybench_run::{LoopChoice, RunContext, RunError};
use pybench_types::held_out::HeldOutTask;
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

    /// Writes the held-out tasks where an evaluation finds them.
    pub(crate) fn write_held_out(&self, context: &RunContext) -> Result<(), RunError> {
        HELD_OUT.write(&context.folder, self.held_out.iter().map(Ok))?;
        Ok(())
    }
}
