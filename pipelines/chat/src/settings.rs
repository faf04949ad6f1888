//! The agent, limits and task of a conversation.

use pybench_eval::run::AgentChoice;
use pybench_interpreter::{InterpreterChoice, Tier};
use pybench_run::{Budget, Rollout, RunError};
use pybench_types::task::Task;
use serde::{Deserialize, Serialize};

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
    /// Checks that the cells of a conversation, which other people may have begun, run in a sandbox: when it goes on, they
    /// run again.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if they run without one.
    pub fn check_sandbox(&self) -> Result<(), RunError> {
        match self.interpreter.tier {
            Tier::Unsandboxed => Err(RunError::BadInput(
                "the conversation is from a shared history, and its cells run without a sandbox (`interpreter.tier`); begin a \
                 new one"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }
}
