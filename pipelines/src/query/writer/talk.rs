//! A conversation with one model, whose answers are read or asked for once more.

use std::sync::Arc;

use pybench::agent::teacher_failure;
use pybench::llm::{ChatRequest, Reserves, Teacher, Vector};
use pybench::run::{Failure, FailureKind, RunContext, RunError, TeacherChoice, WriterChoice};
use pybench::task::{Category, Task};
use pybench::trajectory::{Message, Role, Sampling};

use super::answer::{self, Answer};
use super::prompt;
use crate::eval::bare::bare_task;
use crate::rollout::teacher::{Speech, embeddings as embeddings_at, one};

/// Name under which these calls stand in the journal.
pub(super) const FORMAT: &str = "query";
/// Tokens of an opinion.
const MOST_OPINION: u32 = 600;

/// A model and how it is sampled.
#[derive(Clone)]
pub(super) struct Speaker {
    teacher: Arc<dyn Teacher>,
    sampling: Sampling,
}

impl Speaker {
    /// Who it is.
    pub(super) fn name(&self) -> &str {
        self.teacher.name()
    }
}

/// The models that write and check.
#[derive(Clone)]
pub(super) struct Models {
    /// Writes, revises, proposes checks.
    pub(super) generator: Speaker,
    /// Says whether the keyword is needed.
    pub(super) keyword: Speaker,
    /// Says whether the files support a query.
    pub(super) content: Speaker,
    /// Says where queries stand, to find near duplicates.
    embeddings: Option<Arc<dyn Teacher>>,
}

impl Models {
    /// Those that the recipe names. They share the run's budget; a model that is named twice is one.
    ///
    /// # Errors
    /// As of any teacher: no key, no such model.
    pub(super) fn of<'w>(
        context: &RunContext,
        writer: &'w WriterChoice,
        reserves: &Arc<Reserves>,
    ) -> Result<Self, RunError> {
        let speech = Speech::plain(FORMAT);
        let mut known: Vec<(&'w TeacherChoice, Arc<dyn Teacher>)> = Vec::new();
        let mut speaker =
            |choice: &'w TeacherChoice, sampling: &Sampling| -> Result<Speaker, RunError> {
                let earlier = known.iter().find(|(other, _)| *other == choice);
                let teacher = match earlier {
                    Some((_, teacher)) => teacher.clone(),
                    None => one(context, choice, &speech, reserves)?,
                };
                known.push((choice, teacher.clone()));
                let sampling = sampling.clone();
                Ok(Speaker { teacher, sampling })
            };
        let embeddings = writer.embeddings.iter();
        let embeddings = embeddings.map(|e| embeddings_at(context, &e.endpoint, FORMAT, reserves));
        let embeddings = embeddings.collect::<Result<Vec<_>, _>>()?.pop();
        let strict = opinion_sampling();
        let keyword = writer.keyword_checker.as_ref();
        let content = writer.content_checker.as_ref();
        Ok(Self {
            generator: speaker(&writer.generator, &writer.sampling)?,
            keyword: speaker(keyword.unwrap_or(&writer.generator), &strict)?,
            content: speaker(content.unwrap_or(&writer.generator), &strict)?,
            embeddings,
        })
    }

    /// Where a query stands, for recipes that ask; `sample` as of [`Talk::new`].
    ///
    /// # Errors
    /// Failures of the endpoint, the budget or the journal.
    pub(super) async fn place(&self, query: &str, sample: u32) -> Result<Option<Vector>, Failure> {
        let Some(embeddings) = &self.embeddings else {
            return Ok(None);
        };
        let request = ChatRequest {
            task: &bare_task(query, Category::Text, FORMAT),
            sample,
            messages: &[Message::new(Role::User, query)],
            // It writes nothing.
            sampling: &Sampling {
                temperature: 0.0,
                top_p: 1.0,
                max_tokens: 0,
            },
            stop: &[],
            pictures: &[],
        };
        let reply = embeddings.reply(&request).await.map_err(teacher_failure)?;
        let vector = Vector::try_from(reply.content);
        let broken = |why| Failure::new(FailureKind::Internal, format!("an embedding: {why}"));
        vector.map(Some).map_err(broken)
    }
}

/// How checkers are sampled.
pub(super) fn opinion_sampling() -> Sampling {
    Sampling {
        temperature: 0.0,
        top_p: 1.0,
        max_tokens: MOST_OPINION,
    }
}

/// A conversation. Its calls stand in the journal under the question and their number, so that a unit that
/// is done again pays for none of them.
pub(super) struct Talk<'a> {
    speaker: &'a Speaker,
    task: Task,
    sample: u32,
    messages: Vec<Message>,
}

impl<'a> Talk<'a> {
    /// Begins with that question; `sample` tells conversations apart that begin alike: two units that asked
    /// the same at the same time would be in each other's way in the journal.
    pub(super) fn new(speaker: &'a Speaker, question: String, sample: u32) -> Self {
        Self {
            speaker,
            task: bare_task(&question, Category::Text, FORMAT),
            sample,
            messages: vec![Message::new(Role::User, question)],
        }
    }

    /// Says something before the next answer.
    pub(super) fn say(&mut self, text: String) {
        self.messages.push(Message::new(Role::User, text));
    }

    /// The next answer. One that cannot be read is asked for once more; the inner error says what was wrong
    /// with both: the model abstains, which is no verdict.
    ///
    /// # Errors
    /// Failures of the endpoint, the budget or the journal.
    pub(super) async fn answer<T: Answer>(&mut self) -> Result<Result<T, String>, Failure> {
        let first = match self.reply().await? {
            Ok(answer) => return Ok(Ok(answer)),
            Err(why) => why,
        };
        self.say(prompt::again(&first)?);
        Ok(match self.reply().await? {
            Ok(answer) => Ok(answer),
            Err(second) => Err(format!("{first}; asked once more: {second}")),
        })
    }

    async fn reply<T: Answer>(&mut self) -> Result<Result<T, String>, Failure> {
        let request = ChatRequest {
            task: &self.task,
            sample: self.sample,
            messages: &self.messages,
            sampling: &self.speaker.sampling,
            stop: &[],
            pictures: &[],
        };
        let reply = self.speaker.teacher.reply(&request).await;
        let reply = reply.map_err(teacher_failure)?;
        let read = answer::read(&reply.content);
        self.messages
            .push(Message::new(Role::Assistant, reply.content));
        Ok(match (read, reply.truncated) {
            (Err(why), true) => Err(format!("{why} (it was cut off: be shorter)")),
            (read, _) => read,
        })
    }
}
