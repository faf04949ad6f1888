//! A person in the place of the model: the loop asks for a reply and waits until one is sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pybench_agent::{Step, TurnLog};
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::{Failure, FailureKind, Price};
use pybench_types::human_edit::HUMAN_EDITED;
use tokio::sync::Notify;

/// The steps of an edit that is open, and the replies that the loop has not taken yet.
#[derive(Default)]
pub(crate) struct Conversation {
    state: Mutex<State>,
    sent: Notify,
}

#[derive(Default)]
struct State {
    steps: Vec<Step>,
    queue: VecDeque<Reply>,
    /// Whether the recorded turns were replayed: the loop has asked for a reply.
    replayed: bool,
    /// Whether the loop waits for a reply.
    waiting: bool,
}

/// What the loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It runs the cells of the recorded turns.
    Replaying,
    Waiting,
    Running,
}

impl Conversation {
    /// One that will send these replies first.
    pub(crate) fn beginning_with(replies: Vec<Reply>) -> Self {
        let conversation = Self::default();
        conversation.lock().queue = replies.into();
        conversation
    }

    pub(crate) fn activity(&self) -> Activity {
        let state = self.lock();
        match (state.replayed, state.waiting) {
            (false, _) => Activity::Replaying,
            (true, true) => Activity::Waiting,
            (true, false) => Activity::Running,
        }
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.lock().steps.clone()
    }

    /// Sends replies; `false` if the loop does not wait for one.
    pub(crate) fn send(&self, replies: Vec<Reply>) -> bool {
        let mut state = self.lock();
        if !state.waiting || replies.is_empty() {
            return false;
        }
        state.waiting = false;
        state.queue.extend(replies);
        self.sent.notify_one();
        true
    }

    /// The next reply; `None` if the person has not sent one.
    fn take(&self) -> Option<Reply> {
        let mut state = self.lock();
        state.replayed = true;
        let reply = state.queue.pop_front();
        state.waiting = reply.is_none();
        reply
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnLog for Conversation {
    fn steps(&self) -> Result<Vec<Step>, Failure> {
        Ok(self.lock().steps.clone())
    }

    fn append(&self, position: u64, step: &Step) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.steps.len() as u64 != position {
            let detail = format!("step {position} of an edit is out of order");
            return Err(Failure::new(FailureKind::Internal, detail));
        }
        state.steps.push(step.clone());
        Ok(())
    }

    fn clear(&self) -> Result<(), Failure> {
        self.lock().steps.clear();
        Ok(())
    }
}

/// The person as a model.
pub(crate) struct Person(pub(crate) Arc<Conversation>);

#[async_trait::async_trait]
impl ChatModel for Person {
    fn name(&self) -> &str {
        HUMAN_EDITED
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, _: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        loop {
            if let Some(reply) = self.0.take() {
                return Ok(reply);
            }
            self.0.sent.notified().await;
        }
    }
}
