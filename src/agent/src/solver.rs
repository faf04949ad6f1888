//! What writes the replies of an attempt.

use std::sync::Arc;

use pybench_llm::{Batches, ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::{Failure, FailureKind};
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Usage};

/// Name of a solver that corrects, in ids and rows.
pub const CORRECTION: &str = "correction";

/// What writes the replies of an attempt: a model, which sees the conversation and nothing else, or a script,
/// which knows the task.
#[derive(Clone)]
pub enum Solver {
    Model(Arc<dyn ChatModel>),
    Script(Arc<dyn ScriptedSolver>),
    /// A script that continues a rejected attempt of another solver; see [`correct`](crate::correct).
    Correction(Arc<dyn ScriptedSolver>),
}

/// Writes replies from the task: deterministic, without model, network or cost.
pub trait ScriptedSolver: Send + Sync {
    /// Name in ids and rows, such as `expert`.
    fn name(&self) -> &str;

    /// The next reply in a conversation about `task`.
    ///
    /// # Errors
    /// Why there is no reply, which is a bug in pybench.
    fn reply(&self, task: &Task, sample: u32, messages: &[Message]) -> Result<String, String>;

    /// The deliberate fault in the replies of this sample, if it has one.
    fn fault(&self, _task: &Task, _sample: u32) -> Option<String> {
        None
    }
}

impl Solver {
    /// Name in ids and rows.
    pub fn name(&self) -> &str {
        match self {
            Self::Model(model) => model.name(),
            Self::Script(script) => script.name(),
            Self::Correction(_) => CORRECTION,
        }
    }

    /// The batches of the model; `None` if replies come immediately.
    pub fn batches(&self) -> Option<&Batches> {
        match self {
            Self::Model(model) => model.batches(),
            Self::Script(_) | Self::Correction(_) => None,
        }
    }

    /// Makes one attempt at a reply. `request` belongs to `task`.
    pub(crate) async fn reply(
        &self,
        task: &Task,
        request: &ChatRequest<'_>,
    ) -> Result<Reply, Failure> {
        let script = match self {
            Self::Model(model) => {
                let reply = model.reply(request).await;
                return reply.map_err(|error| chat_failure(error).of_call(request.digest()));
            }
            Self::Script(script) => script,
            Self::Correction(_) => {
                let detail = "a correction needs the attempt that it continues".to_owned();
                return Err(Failure::new(FailureKind::Internal, detail));
            }
        };
        let reply = script.reply(task, request.sample, request.messages);
        let content = reply.map_err(|why| {
            let name = script.name();
            let detail = format!("the script `{name}` has no reply: {why}");
            Failure::new(FailureKind::Internal, detail)
        })?;
        Ok(Reply {
            content,
            usage: Usage::default(),
            truncated: false,
            repetition: false,
        })
    }

    /// The deliberate fault of a script in this sample.
    pub(crate) fn fault(&self, task: &Task, sample: u32) -> Option<String> {
        match self {
            Self::Model(_) | Self::Correction(_) => None,
            Self::Script(script) => script.fault(task, sample),
        }
    }
}

/// Converts an error of a model into a failure of the endpoint, the budget, or pybench.
pub fn chat_failure(error: ChatError) -> Failure {
    let kind = match &error {
        ChatError::Budget(_) => FailureKind::Budget,
        ChatError::Internal(_) => FailureKind::Internal,
        ChatError::Deferred | ChatError::Interrupted => FailureKind::Deferred,
        _ => FailureKind::Endpoint,
    };
    Failure {
        kind,
        detail: match kind {
            FailureKind::Endpoint => format!("{}: {error}", error.kind()),
            _ => error.to_string(),
        },
        retryable: error.retryable(),
        retry_after: match error {
            ChatError::RateLimited { retry_after } => retry_after,
            _ => None,
        },
        call: None,
    }
}
