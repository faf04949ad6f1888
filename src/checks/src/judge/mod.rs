//! The LLM judge of the paper. It gives pass or fail for a trajectory and its files, and win, tie or lose
//! against another agent's attempt, asked in both orders.
//!
//! The judge's verdict is reported next to the scores and never changes them. An abstention, or a judge that
//! cannot be reached, is a missing value.

mod case;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pybench_llm::{ChatError, ChatModel, ChatRequest, PICTURE_TOKENS};
use pybench_run::{Interrupt, Urgency};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role, Sampling, Trajectory, Usage};

pub use case::Case;
use case::{PAIR, PASS, Question, max_question_size};

/// Maximum characters of a stored reason.
pub const MAX_REASON: usize = 2_000;

use pybench_profile::preview::Store;
use pybench_types::text::cut;

/// Journal name of the judge's calls.
pub const FORMAT: &str = "judge";
/// Maximum tokens of a reply.
const MAX_REPLY: u32 = 700;
/// Maximum attempts per reply.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum wait between two attempts.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// After this many consecutive failures the judge counts as down and gets no more calls.
const MAX_FAILURES: u32 = 5;

/// Maximum token usage of one judgment, for a query of `query` bytes. Assumes one token per byte.
pub fn max_usage(query: usize, sees: bool) -> Usage {
    let (bytes, pictures) = max_question_size(query, sees);
    Usage {
        prompt_tokens: bytes as u64 + pictures as u64 * PICTURE_TOKENS,
        completion_tokens: MAX_REPLY.into(),
    }
}

/// An LLM judge.
pub struct Judge {
    model: Arc<dyn ChatModel>,
    /// Whether pictures are attached to questions.
    pub sees: bool,
    sampling: Sampling,
    /// Ends the waits before further attempts; then no question is asked.
    interrupt: Interrupt,
    /// Consecutive failures; at [`MAX_FAILURES`] the judge counts as down.
    consecutive_failures: AtomicU32,
}

impl Judge {
    /// Creates a judge from a model, which handles journal and budget. `sees` attaches pictures to questions.
    pub fn new(model: Arc<dyn ChatModel>, sees: bool, interrupt: Interrupt) -> Self {
        Self {
            model,
            sees,
            sampling: Sampling {
                temperature: 0.0,
                top_p: 1.0,
                max_tokens: MAX_REPLY,
            },
            interrupt,
            consecutive_failures: AtomicU32::new(0),
        }
    }

    /// Digest of the prompts and of `sees`.
    pub fn prompts(&self) -> Digest {
        Digest::of_json(&(PASS, PAIR, self.sees))
    }

    /// The reply to a question. Temporary failures of the endpoint are retried; a judge that is down gets no calls. An outage of
    /// the journal or the store is not: units that meet one have many attempts of their own.
    async fn ask(&self, question: &Question) -> Result<String, ChatError> {
        let messages = [Message::new(Role::User, &question.text)];
        let key = key(question);
        let request = ChatRequest {
            key: &key,
            sample: 0,
            messages: &messages,
            sampling: &self.sampling,
            stop: &[],
            pictures: &question.pictures,
        };
        for attempt in 1.. {
            if self.interrupt.requested() {
                return Err(ChatError::Interrupted);
            }
            if self.consecutive_failures.load(Ordering::Relaxed) >= MAX_FAILURES {
                return Err(ChatError::Connection(
                    "the judge failed too often and is not called again".to_owned(),
                ));
            }
            match self.model.reply(&request).await {
                Ok(reply) => {
                    self.consecutive_failures.store(0, Ordering::Relaxed);
                    return Ok(reply.content);
                }
                Err(error) => {
                    self.record_failure(&error);
                    let is_outage = matches!(error, ChatError::Outage(_));
                    if attempt >= MAX_ATTEMPTS || is_outage || !error.retryable() {
                        return Err(error);
                    }
                    let pause = tokio::time::sleep(backoff(&error, attempt));
                    tokio::select! { () = pause => {}, () = self.interrupt.wait(Urgency::Finish) => {} }
                }
            }
        }
        Err(ChatError::Internal("no attempt left".to_owned()))
    }

    fn record_failure(&self, error: &ChatError) {
        let more = match error {
            ChatError::Unauthorized(_) | ChatError::NotFound(_) | ChatError::Budget(_) => {
                MAX_FAILURES
            }
            ChatError::Interrupted | ChatError::Deferred | ChatError::Outage(_) => 0,
            // A rejected request or an unreadable answer does not mean that others fail too.
            ChatError::Rejected(_) | ChatError::RateLimited { .. } => 0,
            ChatError::Malformed(_) | ChatError::TooLarge(_) => 0,
            _ => 1,
        };
        // The counter cannot overflow: at MAX_FAILURES there are no more calls.
        self.consecutive_failures.fetch_add(more, Ordering::Relaxed);
    }

    /// Judges a trajectory: pass or fail, and the reason. `None` if the judge abstains or its answer cannot
    /// be parsed. `stores` contain the output files.
    ///
    /// # Errors
    /// Errors of the chat model.
    pub async fn opinion(
        &self,
        query: &str,
        trajectory: &Trajectory,
        stores: &[PathBuf],
    ) -> Result<(Option<bool>, String), ChatError> {
        let mut store = Store::new(stores, PathBuf::new());
        let outputs = trajectory.outputs.clone();
        let case = Case::new(
            query,
            Ok(trajectory.clone()),
            &outputs,
            &mut store,
            self.sees,
        );
        self.passed(&case).await
    }

    /// Name of the model.
    pub fn name(&self) -> &str {
        self.model.name()
    }

    /// Judges a case: pass or fail, and the reason. `None` if the judge abstains or its answer cannot be
    /// parsed.
    ///
    /// # Errors
    /// Errors of the chat model.
    pub async fn passed(&self, case: &Case) -> Result<(Option<bool>, String), ChatError> {
        let reply = self.ask(&case.question().map_err(internal)?).await?;
        let passed = match verdict(&reply).as_deref() {
            Some("PASS") => Some(true),
            Some("FAIL") => Some(false),
            _ => None,
        };
        Ok((passed, cut(&reply, MAX_REASON)))
    }

    /// Compares two attempts in both orders: `own` first, then `other` first. `None` if the judge abstains
    /// or its answer cannot be parsed.
    ///
    /// # Errors
    /// Errors of the chat model.
    pub async fn preferences(
        &self,
        own: &Case,
        other: &Case,
    ) -> Result<(Option<String>, Option<String>), ChatError> {
        let first = self.ask(&own.against(other).map_err(internal)?).await?;
        let second = self.ask(&other.against(own).map_err(internal)?).await?;
        Ok((verdict(&first), verdict(&second)))
    }
}

fn internal(error: minijinja::Error) -> ChatError {
    ChatError::Internal(format!("cannot render the prompt of the judge: {error:#}"))
}

fn backoff(error: &ChatError, attempt: u32) -> Duration {
    let requested = match error {
        ChatError::RateLimited { retry_after } => *retry_after,
        _ => None,
    };
    let exponential = Duration::from_millis(200 << attempt.min(8));
    requested.unwrap_or(exponential).min(MAX_WAIT)
}

/// The word after `VERDICT:` on the last line.
fn verdict(reply: &str) -> Option<String> {
    let last = reply.trim_end().lines().next_back()?;
    let plain = last
        .trim_matches(|c: char| c.is_whitespace() || "*_`#.".contains(c))
        .to_uppercase();
    let word = plain.strip_prefix("VERDICT:")?;
    Some(
        word.trim_matches(|c: char| !c.is_ascii_alphabetic())
            .to_owned(),
    )
}

/// Calls are journaled under the digest of the question.
fn key(question: &Question) -> Digest {
    let text = Digest::of_bytes(question.text.as_bytes());
    if question.pictures.is_empty() {
        return text;
    }
    let shown = question.pictures.iter().map(|p| Digest::of_bytes(&p.bytes));
    Digest::of_json(&(text, shown.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_must_be_the_last_line() {
        for (reply, expected) in [
            ("Because.\nVERDICT: PASS", Some("PASS")),
            ("**Verdict: fail.**\n", Some("FAIL")),
            ("VERDICT: PASS\nBut I doubt it.", None),
            ("VERDICT: PASS or FAIL", Some("PASS OR FAIL")),
            ("PASS", None),
            ("", None),
        ] {
            assert_eq!(verdict(reply).as_deref(), expected, "{reply}");
        }
    }
}
