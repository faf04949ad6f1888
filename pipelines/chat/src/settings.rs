//! The agent, limits and task of a conversation.

use pybench_eval::run::AgentChoice;
use pybench_interpreter::InterpreterChoice;
use pybench_run::{Budget, Rollout, RunError};
use pybench_types::task::Task;
use pybench_types::text::line;
use serde::{Deserialize, Serialize};

use crate::sandbox::ForeignCells;

/// What a conversation was begun with. It is saved, so that the conversation can go on in another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name of the agent, for people.
    pub label: String,
    /// The model, as recipes of evaluations describe it. API keys are named by their variables.
    pub agent: AgentChoice,
    /// Message format, sampling, and the number of replies to a message.
    #[serde(default)]
    pub rollout: Rollout,
    /// The sandbox that runs the cells.
    #[serde(default)]
    pub interpreter: InterpreterChoice,
    /// Limits on the cost of the conversation.
    #[serde(default)]
    pub budget: Budget,
    /// The task that the conversation is about, if it can be graded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<Task>>,
}

impl Settings {
    /// Checks that an agent of this machine may work on a task of other people, whose cells need a sandbox.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if they run without one.
    pub fn check_for_task(&self) -> Result<(), RunError> {
        let origin = format!("agent `{}`", line(&self.label));
        let of_task = ForeignCells {
            origin: &origin,
            advice: "begin a conversation about a task of a run with an agent that has a sandbox",
        };
        of_task.check(&self.interpreter, &[&self.interpreter])
    }
}
