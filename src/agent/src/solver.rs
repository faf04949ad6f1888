//! What writes the replies of an attempt.

use std::sync::Arc;

use pybench_llm::{Batches, ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::{Failure, FailureKind};
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Usage};

/// Name of a solver that corrects, in ids and rows.
pub const CORRECTION: &str = "correction";

/// What writes the replies of an attempt: a model, which sees the conversation and, in [`correct`](crate::correct), a
/// note, or a script, which knows the task.
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

    /// The next reply after turns of another solver, which have shown the files of `task`; `messages` are those that
    /// follow. It does not begin with a look at the files where it need not.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    fn resume(&self, task: &Task, sample: u32, messages: &[Message]) -> Result<String, String> {
        self.reply(task, sample, messages)
    }

    /// The deliberate fault in the replies of this sample, if it has one.
    fn fault(&self, _task: &Task, _sample: u32) -> Option<String> {
        None
    }

    /// The number, from 0, of the reply that is a deliberate mistake, which the next reply repairs; `None` if this sample
    /// has none. The reply with the mistake is not trained.
    fn mistake(&self, _task: &Task, _sample: u32) -> Option<usize> {
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

    /// The number of the reply with the deliberate mistake that a script repairs in this sample.
    pub(crate) fn mistake(&self, task: &Task, sample: u32) -> Option<usize> {
        match self {
            Self::Model(_) | Self::Correction(_) => None,
            Self::Script(script) => script.mistake(task, sample),
        }
    }
}

/// Converts an error of a model into a failure of the endpoint, the budget, or pybench.
pub fn chat_failure(error: ChatError) -> Failure {
    let kind = match &error {
        ChatError::Budget(_) => FailureKind::Budget,
        ChatError::Outage(_) => return Failure::of_outage(error.to_string()),
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
        outage: false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_outage_is_no_failure_of_the_endpoint() {
        let failure = chat_failure(ChatError::Outage("the journal is away".to_owned()));
        assert_eq!(failure, Failure::of_outage("the journal is away"));
        assert!(failure.outage && failure.retryable);
        let retry_after = Some(Duration::from_secs(3));
        let limited = chat_failure(ChatError::RateLimited { retry_after });
        assert_eq!(limited.kind, FailureKind::Endpoint);
        assert_eq!(limited.retry_after, retry_after);
        assert!(limited.retryable && !limited.outage);
        let internal = chat_failure(ChatError::Internal("a bug".to_owned()));
        assert_eq!(internal, Failure::new(FailureKind::Internal, "a bug"));
    }
}
