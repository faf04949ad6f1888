//! General benchmarks: HumanEval+, MBPP+, GSM8K and MMLU. They show whether a tuned model lost ability
//! compared with its base model.
//!
//! Each question gets one reply (pass@1). Programs run in the sandbox: the reference solution of the file
//! computes the expected values in one session, the candidate runs in another session that contains only the
//! inputs, and the host compares.

mod answer;
pub mod card;
pub mod command;
mod evalplus;
mod item;
mod load;
mod program;

use std::sync::Arc;

use futures::StreamExt;
use pybench_interpreter::Interpreter;
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::{Interrupt, Urgency};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role, Sampling};

use load::load_as;
pub use load::{Expected, Item, QuestionSet, load};
pub use program::{Inputs, Program, run_program};

use super::record::{Attempt, Check, Outcome, Score, Scores};

/// Maximum number of attempts to get a reply.
const MAX_ATTEMPTS: u32 = 3;

/// Configuration of an evaluation on general benchmarks.
pub struct GeneralEval {
    /// Label of the agent.
    pub agent: String,
    /// Model to evaluate.
    pub model: Arc<dyn ChatModel>,
    /// Runs programs.
    pub interpreter: Arc<dyn Interpreter>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Concurrent questions.
    pub concurrency: usize,
    /// Ends the waits before further attempts; then no question is asked.
    pub interrupt: Interrupt,
}

/// Asks and scores every question of a set. A HumanEval or MBPP question gives two records, for the original
/// tests and for those of EvalPlus, or one if the file does not distinguish them. Infrastructure failures give
/// records without a score.
pub async fn run_set(set: &QuestionSet, config: &GeneralEval) -> Vec<Attempt> {
    let asked = futures::stream::iter(&set.items).map(|item| run_item(set, item, config));
    let attempts = asked
        .buffered(config.concurrency.max(1))
        .collect::<Vec<_>>()
        .await;
    attempts.into_iter().flatten().collect()
}

async fn run_item(set: &QuestionSet, item: &Item, config: &GeneralEval) -> Vec<Attempt> {
    let reply = match ask(item, config).await {
        Ok(reply) => reply,
        Err(error) => return unscored(set, item, config, &error.to_string()),
    };
    let scores = match &item.expected {
        Expected::Program(program) => {
            match run_program(program, &reply.content, &*config.interpreter).await {
                Ok(found) => found,
                Err(failure) => return unscored(set, item, config, &failure),
            }
        }
        Expected::Number(expected) => {
            vec![compare_answer(answer::number(&reply.content), expected)]
        }
        Expected::Letter(expected) => {
            vec![compare_answer(answer::letter(&reply.content), expected)]
        }
    };
    let suites = set.suites(item).into_iter().zip(scores);
    suites
        .map(|(suite, found)| record(&suite, item, config, &reply, found))
        .collect()
}

/// (passed, expected, actual).
pub(crate) type AnswerCheck = (bool, String, String);

fn compare_answer(found: Option<String>, expected: &str) -> AnswerCheck {
    let passed = found.as_deref() == Some(expected);
    (
        passed,
        expected.to_owned(),
        found.unwrap_or_else(|| "no answer".to_owned()),
    )
}

async fn ask(item: &Item, config: &GeneralEval) -> Result<Reply, ChatError> {
    let messages = [Message::new(Role::User, item.prompt())];
    let request = ChatRequest {
        key: &Digest::of_bytes(messages[0].content.as_bytes()),
        sample: 0,
        messages: &messages,
        sampling: &config.sampling,
        stop: &[],
        pictures: &[],
    };
    let mut last = ChatError::Internal("no request was made".to_owned());
    for attempt in 0..MAX_ATTEMPTS {
        if config.interrupt.requested() {
            return Err(ChatError::Interrupted);
        }
        match config.model.reply(&request).await {
            Ok(reply) => return Ok(reply),
            Err(error) if !error.retryable() => return Err(error),
            Err(error) => last = error,
        }
        let pause = tokio::time::sleep(std::time::Duration::from_millis(200 << attempt));
        tokio::select! { () = pause => {}, () = config.interrupt.wait(Urgency::Finish) => {} }
    }
    Err(last)
}

fn unscored(set: &QuestionSet, item: &Item, config: &GeneralEval, failure: &str) -> Vec<Attempt> {
    let outcome = Outcome::Infrastructure {
        failure: failure.to_owned(),
    };
    let suites = set.suites(item).into_iter();
    suites
        .map(|suite| blank(&suite, item, config, outcome.clone()))
        .collect()
}

fn blank(suite: &str, item: &Item, config: &GeneralEval, outcome: Outcome) -> Attempt {
    let place = (suite, item.id.as_str(), item.category.as_str());
    Attempt::without_results(&config.agent, place, 1, &item.prompt(), outcome)
}

fn record(
    suite: &str,
    item: &Item,
    config: &GeneralEval,
    reply: &Reply,
    found: AnswerCheck,
) -> Attempt {
    let (passed, expected, actual) = found;
    let price = config.model.price();
    Attempt {
        scores: Scores {
            upstream: Some(passed),
            ..Scores::default()
        },
        checks: vec![Check::new(
            Score::Upstream,
            "answer",
            passed,
            &expected,
            &actual,
        )],
        turns: 1,
        tokens_in: reply.usage.prompt_tokens,
        tokens_out: reply.usage.completion_tokens,
        micro_usd: price.map(|price| price.micro_usd(reply.usage)),
        ..blank(suite, item, config, Outcome::Ran)
    }
}

/// Digest of all files, for the header of the records.
pub fn digest(sets: &[QuestionSet]) -> Digest {
    Digest::of_json(
        &sets
            .iter()
            .map(|set| (&set.name, &set.digest))
            .collect::<Vec<_>>(),
    )
}

/// The benchmark that a file or repository name contains: `humaneval`, `mbpp`, `gsm8k` or `mmlu`.
pub fn name_of(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    ["humaneval", "mbpp", "gsm8k", "mmlu"]
        .into_iter()
        .find(|known| name.contains(known))
}

#[cfg(test)]
#[path = "general_tests.rs"]
mod tests;
