//! Conversations with a model. An answer that cannot be parsed is requested once more.

use std::sync::Arc;

use pybench_agent::chat_failure;
use pybench_llm::{BudgetLedger, ChatModel, ChatRequest, Embedder, Metered, Vector};
use pybench_run::{Failure, ModelChoice, RunContext, RunError, WriterChoice};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role, Sampling};

use super::answer::{self, ModelAnswer};
use super::prompt;
use pybench_attempts::request_options::RequestOptions;
use pybench_attempts::teacher::{self, chat_model};

/// Journal name of these calls.
pub(super) const FORMAT: &str = "query";
/// Maximum tokens of a checker's answer.
const MAX_OPINION: u32 = 600;

/// A model and its sampling parameters.
#[derive(Clone)]
pub(super) struct ModelHandle {
    chat: Arc<dyn ChatModel>,
    sampling: Sampling,
}

impl ModelHandle {
    pub(super) fn name(&self) -> &str {
        self.chat.name()
    }
}

/// The models that write and check.
#[derive(Clone)]
pub(super) struct Models {
    /// Writes, revises, proposes checks.
    pub(super) generator: ModelHandle,
    /// Decides whether a query needs its keyword.
    pub(super) keyword: ModelHandle,
    /// Decides whether the files support a query.
    pub(super) content: ModelHandle,
    /// Embeds queries to find near duplicates.
    embedder: Option<Arc<Metered<Embedder>>>,
}

impl Models {
    /// Builds the models that the recipe names. They share the run's budget; a model that is named twice is
    /// built once.
    ///
    /// # Errors
    /// Errors of building a model, such as a missing key.
    pub(super) fn of<'w>(
        context: &RunContext,
        writer: &'w WriterChoice,
        ledger: &Arc<BudgetLedger>,
    ) -> Result<Self, RunError> {
        let request_options = RequestOptions::plain(FORMAT);
        let mut known: Vec<(&'w ModelChoice, Arc<dyn ChatModel>)> = Vec::new();
        let mut model =
            |choice: &'w ModelChoice, sampling: &Sampling| -> Result<ModelHandle, RunError> {
                let earlier = known.iter().find(|(other, _)| *other == choice);
                let chat = match earlier {
                    Some((_, chat)) => chat.clone(),
                    None => chat_model(context, choice, &request_options, ledger)?,
                };
                known.push((choice, chat.clone()));
                let sampling = sampling.clone();
                Ok(ModelHandle { chat, sampling })
            };
        let embedder = writer.embeddings.as_ref();
        let embedder = embedder.map(|e| teacher::embedder(context, &e.endpoint, FORMAT, ledger));
        let embedder = embedder.transpose()?.map(Arc::new);
        let checker = checker_sampling();
        let keyword = writer.keyword_checker.as_ref();
        let content = writer.content_checker.as_ref();
        Ok(Self {
            generator: model(&writer.generator, &writer.sampling)?,
            keyword: model(keyword.unwrap_or(&writer.generator), &checker)?,
            content: model(content.unwrap_or(&writer.generator), &checker)?,
            embedder,
        })
    }

    /// The embedding of a query; `None` if the recipe names no embedding endpoint. `sample` as in
    /// [`Dialogue::new`].
    ///
    /// # Errors
    /// Failures of the endpoint, the budget or the journal.
    pub(super) async fn embed(&self, query: &str, sample: u32) -> Result<Option<Vector>, Failure> {
        let Some(embedder) = &self.embedder else {
            return Ok(None);
        };
        let vector = embedder.embed(query, sample).await;
        let call = || Digest::of_bytes(query.as_bytes());
        vector
            .map(Some)
            .map_err(|error| chat_failure(error).of_call(call()))
    }
}

/// Sampling parameters of the checkers.
pub(super) fn checker_sampling() -> Sampling {
    Sampling {
        temperature: 0.0,
        top_p: 1.0,
        max_tokens: MAX_OPINION,
    }
}

/// A conversation with a model. Its calls are journaled under the first question and their number, so a
/// unit that runs again does not pay for them twice.
pub(super) struct Dialogue<'a> {
    model: &'a ModelHandle,
    /// Digest of the first question.
    key: Digest,
    sample: u32,
    messages: Vec<Message>,
}

impl<'a> Dialogue<'a> {
    /// Starts with `question`. `sample` distinguishes conversations with the same first question, which
    /// would otherwise share their journal entries.
    pub(super) fn new(model: &'a ModelHandle, question: String, sample: u32) -> Self {
        Self {
            model,
            key: Digest::of_bytes(question.as_bytes()),
            sample,
            messages: vec![Message::new(Role::User, question)],
        }
    }

    /// Adds a user message before the next answer.
    pub(super) fn add_message(&mut self, text: String) {
        self.messages.push(Message::new(Role::User, text));
    }

    /// The next answer. An answer that cannot be parsed is requested once more. If the second one fails too,
    /// the model abstains, and the inner error describes both problems.
    ///
    /// # Errors
    /// Failures of the endpoint, the budget or the journal.
    pub(super) async fn answer<T: ModelAnswer>(&mut self) -> Result<Result<T, String>, Failure> {
        let first = match self.reply().await? {
            Ok(answer) => return Ok(Ok(answer)),
            Err(why) => why,
        };
        self.add_message(prompt::again(&first)?);
        Ok(match self.reply().await? {
            Ok(answer) => Ok(answer),
            Err(second) => Err(format!("{first}; after a second request: {second}")),
        })
    }

    async fn reply<T: ModelAnswer>(&mut self) -> Result<Result<T, String>, Failure> {
        let request = ChatRequest {
            key: &self.key,
            sample: self.sample,
            messages: &self.messages,
            sampling: &self.model.sampling,
            stop: &[],
            pictures: &[],
        };
        let reply = self.model.chat.reply(&request).await;
        let reply = reply.map_err(|error| chat_failure(error).of_call(request.digest()))?;
        let read = answer::read(&reply.content);
        self.messages
            .push(Message::new(Role::Assistant, reply.content));
        Ok(match (read, reply.truncated) {
            (Err(why), true) => Err(format!("{why} (it was cut off: be shorter)")),
            (read, _) => read,
        })
    }
}
