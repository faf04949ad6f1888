//! A person in the place of the model: the loop asks for a reply and waits until one is sent, or until the person lets a
//! model write it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pybench_agent::{Step, TurnLog};
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::{Failure, FailureKind, Price, Reservation};
use pybench_types::human_edit::{HUMAN_EDITED, TurnAuthor};
use tokio::sync::Notify;

use super::continuation::{Continuation, ContinuationView};
use super::drafts::Draft;
use super::model_replies::{ModelReplies, ModelReply};
use super::session::Sessions;
use super::written::{SentTurn, WrittenTurn};

/// How long a turn that was sent waits for a copy of the session that is not complete.
const PATIENCE: Duration = Duration::from_secs(2);

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
    /// The turns of the edit, and who wrote each.
    written: Vec<WrittenTurn>,
    authors: Vec<TurnAuthor>,
    /// The last model that the person let write turns.
    continuation: Option<Arc<Continuation>>,
    /// What the calls of those before it cost.
    spent: Reservation,
    /// Whether it goes on.
    continues: bool,
    /// Whether the recorded turns were replayed: the loop has asked for a reply.
    replayed: bool,
    /// Whether the loop waits for a reply.
    waiting: bool,
    /// Whether another conversation takes its place.
    left: bool,
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
    /// One that will send these turns first.
    pub(crate) fn beginning_with(turns: Vec<SentTurn>) -> Self {
        let conversation = Self::default();
        conversation.lock().add(turns);
        conversation
    }

    /// One that will send these turns first, in the place of this one, whose models count toward the budget.
    pub(crate) fn again_with(&self, turns: Vec<SentTurn>) -> Self {
        let spent = self.lock().spent_so_far();
        let again = Self::beginning_with(turns);
        again.lock().spent = spent;
        again
    }

    /// Takes no further turns, since another conversation takes its place; `false` while a model writes, whose turns and costs
    /// would be lost.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.lock();
        state.left = !state.continues;
        state.left
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

    /// The turns of the edit.
    pub(crate) fn written(&self) -> Vec<WrittenTurn> {
        self.lock().written.clone()
    }

    /// Who wrote each of them.
    pub(crate) fn authors(&self) -> Vec<TurnAuthor> {
        self.lock().authors.clone()
    }

    /// The last model that the person let write turns.
    pub(crate) fn continuation(&self) -> Option<ContinuationView> {
        let state = self.lock();
        let continuation = state.continuation.as_ref()?;
        Some(continuation.view(state.continues))
    }

    /// Sends turns; `false` if there are not `after` turns before them, or the loop does not wait for one.
    pub(crate) fn send(&self, after: usize, turns: Vec<SentTurn>) -> bool {
        let mut state = self.lock();
        if !state.waits_after(after) || turns.is_empty() {
            return false;
        }
        state.waiting = false;
        state.add(turns);
        self.sent.notify_one();
        true
    }

    /// Lets a model write the next turns; `false` as in [`send`](Self::send).
    pub(crate) fn continue_by(&self, after: usize, mut continuation: Continuation) -> bool {
        let mut state = self.lock();
        if !state.waits_after(after) {
            return false;
        }
        state.spent = state.spent_so_far();
        continuation.count(state.spent);
        (state.waiting, state.continues) = (false, true);
        state.continuation = Some(Arc::new(continuation));
        self.sent.notify_one();
        true
    }

    /// Stops the model that writes turns; nothing happens if none does.
    pub(crate) fn stop(&self) {
        if let Some(continuation) = &self.lock().continuation {
            continuation.stop();
        }
    }

    /// What comes next.
    fn take(&self) -> Next {
        let mut state = self.lock();
        state.replayed = true;
        if let Some(reply) = state.queue.pop_front() {
            return Next::Reply(reply);
        }
        let model = state.continuation.clone().filter(|_| state.continues);
        state.waiting = model.is_none();
        let after = state.written.len();
        model.map_or(Next::Person { after }, Next::Model)
    }

    /// Adds a turn of a model, whose reply the loop gets at once.
    fn add_model_turn(&self, id: String, model: &str) {
        let mut state = self.lock();
        state.written.push(WrittenTurn {
            model: Some(id),
            ..WrittenTurn::default()
        });
        state.authors.push(TurnAuthor::model(model));
    }

    /// Lets the person write again.
    fn end_continuation(&self, note: String) {
        let mut state = self.lock();
        state.continues = false;
        if let Some(continuation) = &state.continuation {
            continuation.end(note);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the loop gets next.
enum Next {
    Reply(Reply),
    /// The next reply of a model.
    Model(Arc<Continuation>),
    /// The person has not sent a reply after this number of turns.
    Person {
        after: usize,
    },
}

impl State {
    fn waits_after(&self, after: usize) -> bool {
        self.waiting && !self.left && self.written.len() == after
    }

    /// What the calls of all models cost.
    fn spent_so_far(&self) -> Reservation {
        let last = self.continuation.as_ref();
        let last = last.map(|last| last.spent()).unwrap_or_default();
        Reservation {
            micro_usd: self.spent.micro_usd.saturating_add(last.micro_usd),
            tokens: self.spent.tokens.saturating_add(last.tokens),
        }
    }

    fn add(&mut self, turns: Vec<SentTurn>) {
        for turn in turns {
            self.queue.push_back(turn.reply);
            self.written.push(turn.written);
            self.authors.push(turn.author);
        }
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
pub(crate) struct Person {
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) replies: Arc<ModelReplies>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) draft: Draft,
}

impl Person {
    /// The next reply of a model; `None` if the person writes again.
    async fn ask(&self, continuation: &Continuation, request: &ChatRequest<'_>) -> Option<Reply> {
        let kept = match continuation.next(request).await {
            Ok(reply) => self.keep(continuation, reply),
            Err(note) => Err(note),
        };
        match kept {
            Ok(reply) => Some(reply),
            Err(note) => {
                self.conversation.end_continuation(note);
                None
            }
        }
    }

    /// Writes a reply to the disk before it counts.
    fn keep(&self, continuation: &Continuation, reply: Reply) -> Result<Reply, String> {
        let kept = ModelReply {
            model: continuation.model().to_owned(),
            reply,
        };
        let id = self.replies.put(&kept).map_err(|error| error.to_string())?;
        self.conversation
            .add_model_turn(id.to_string(), &kept.model);
        self.draft.keep(&self.conversation.written());
        Ok(kept.reply)
    }

    /// Waits until the person has sent a turn after the first `after` ones. Meanwhile, the session is copied.
    async fn wait(&self, after: usize) {
        let sent = self.conversation.sent.notified();
        let copy = self.sessions.copy(after);
        tokio::pin!(sent, copy);
        tokio::select! {
            () = &mut sent => {
                // Without the copy, another try from here runs the turns before it again.
                let _ = tokio::time::timeout(PATIENCE, copy).await;
            }
            () = &mut copy => sent.await,
        }
    }
}

#[async_trait::async_trait]
impl ChatModel for Person {
    fn name(&self) -> &str {
        HUMAN_EDITED
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        loop {
            match self.conversation.take() {
                Next::Reply(reply) => return Ok(reply),
                Next::Model(continuation) => {
                    if let Some(reply) = self.ask(&continuation, request).await {
                        return Ok(reply);
                    }
                }
                Next::Person { after } => self.wait(after).await,
            }
        }
    }
}
