//! What a solver is told between its turns, besides what its cells printed.

use async_trait::async_trait;
use pybench_run::Failure;
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Turn};
use serde::{Deserialize, Serialize};

/// Gives feedback during an attempt: whether an answer is accepted, and what the solver reads before it goes on.
#[async_trait]
pub trait TurnFeedback: Send + Sync {
    /// Whether attempts at this task get feedback. Without it, an attempt ends with its first answer.
    fn applies(&self, task: &Task) -> bool;

    /// Feedback after a turn.
    ///
    /// # Errors
    /// Infrastructure failures, never a verdict on the solver.
    async fn after_turn(&self, context: &TurnContext<'_>) -> Result<Feedback, Failure>;
}

/// The attempt after a turn.
#[derive(Clone, Copy)]
pub struct TurnContext<'a> {
    pub task: &'a Task,
    /// Sample number.
    pub sample: u32,
    /// The conversation so far. It ends with the reply of the last turn and the observations of its cells.
    pub messages: &'a [Message],
    /// Number of messages before the first reply.
    pub opening: usize,
    pub turns: &'a [Turn],
    /// Whether the last turn is an answer, marked as the format requires or not.
    pub is_answer: bool,
}

/// Feedback after a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    /// Whether the attempt ends here. Otherwise it goes on even after an answer.
    pub ends: bool,
    /// What the solver reads next, if the attempt goes on.
    pub message: String,
}
