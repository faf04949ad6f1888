//! General ability beside the benchmark: HumanEval+, MBPP+, GSM8K and MMLU, from files that the user
//! has. What a model lost against the one it was tuned from is then seen.
//!
//! Programs run in our interpreter. Expected values come from the file's own solution, run in a session
//! of its own; the candidate's session holds inputs alone, and the host compares. One question, one
//! reply: pass@1.

mod answer;
pub mod card;
pub mod command;
mod evalplus;
mod load;
mod program;

use std::sync::Arc;

use futures::StreamExt;
use pybench::id::Digest;
use pybench::interpreter::Interpreter;
use pybench::llm::{ChatRequest, Reply, Teacher, TeacherError};
use pybench::task::{Category, Task};
use pybench::trajectory::{Message, Role, Sampling};

use load::load_as;
pub use load::{Item, Question, Set, load};
pub use program::{Inputs, Program, run_program};

use super::bare::bare_task;
use super::record::{Attempt, Check, Headline, Outcome, Score, Scores};

/// Attempts at one reply.
const ATTEMPTS: u32 = 3;

/// Who is asked, and with what programs run.
pub struct Examination {
    /// Label of the agent.
    pub agent: String,
    /// Writes the replies, and keeps the books.
    pub teacher: Arc<dyn Teacher>,
    /// Runs programs.
    pub interpreter: Arc<dyn Interpreter>,
    /// How replies are sampled.
    pub sampling: Sampling,
    /// Questions at a time.
    pub concurrency: usize,
}

/// Ask every item of a set. HumanEval and MBPP give two records each: the base tests, and those of
/// EvalPlus; where the file does not tell them apart, one. Failures of ours are records without a score.
pub async fn examine(set: &Set, by: &Examination) -> Vec<Attempt> {
    let asked = futures::stream::iter(&set.items).map(|item| examine_one(set, item, by));
    let attempts = asked
        .buffered(by.concurrency.max(1))
        .collect::<Vec<_>>()
        .await;
    attempts.into_iter().flatten().collect()
}

async fn examine_one(set: &Set, item: &Item, by: &Examination) -> Vec<Attempt> {
    let reply = match ask(item, by).await {
        Ok(reply) => reply,
        Err(error) => return unscored(set, item, by, &error.to_string()),
    };
    let scores = match &item.question {
        Question::Program(program) => {
            match run_program(program, &reply.content, &*by.interpreter).await {
                Ok(found) => found,
                Err(failure) => return unscored(set, item, by, &failure),
            }
        }
        Question::Number(expected) => vec![one(answer::number(&reply.content), expected)],
        Question::Letter(expected) => vec![one(answer::letter(&reply.content), expected)],
    };
    let suites = set.suites(item).into_iter().zip(scores);
    suites
        .map(|(suite, found)| record(&suite, item, by, &reply, found))
        .collect()
}

/// Whether it passed, what was expected, and what was there.
pub(crate) type Found = (bool, String, String);

fn one(found: Option<String>, expected: &str) -> Found {
    let passed = found.as_deref() == Some(expected);
    (
        passed,
        expected.to_owned(),
        found.unwrap_or_else(|| "no answer".to_owned()),
    )
}

async fn ask(item: &Item, by: &Examination) -> Result<Reply, TeacherError> {
    let messages = [Message::new(Role::User, item.prompt())];
    let task = task(&messages[0].content);
    let request = ChatRequest {
        task: &task,
        sample: 0,
        messages: &messages,
        sampling: &by.sampling,
        stop: &[],
        pictures: &[],
    };
    let mut last = TeacherError::Internal("not asked".to_owned());
    for attempt in 0..ATTEMPTS {
        match by.teacher.reply(&request).await {
            Ok(reply) => return Ok(reply),
            Err(error) if !error.retryable() => return Err(error),
            Err(error) => last = error,
        }
        tokio::time::sleep(std::time::Duration::from_millis(200 << attempt)).await;
    }
    Err(last)
}

/// A task that stands for a question: calls are kept in the journal under its id.
fn task(prompt: &str) -> Task {
    bare_task(prompt, Category::Software, "general")
}

fn unscored(set: &Set, item: &Item, by: &Examination, failure: &str) -> Vec<Attempt> {
    let outcome = Outcome::Infrastructure {
        failure: failure.to_owned(),
    };
    let suites = set.suites(item).into_iter();
    suites
        .map(|suite| blank(&suite, item, by, outcome.clone()))
        .collect()
}

fn blank(suite: &str, item: &Item, by: &Examination, outcome: Outcome) -> Attempt {
    Attempt {
        agent: by.agent.clone(),
        suite: suite.to_owned(),
        task: item.id.clone(),
        category: item.category.clone(),
        clusters: Vec::new(),
        seed: 0,
        outcome,
        scores: Scores::default(),
        headline: Headline::default(),
        checks: Vec::new(),
        judgement: None,
        turns: 0,
        max_turns: 1,
        tokens_in: 0,
        tokens_out: 0,
        micro_usd: 0,
        seconds: 0.0,
        prompt: item.prompt(),
        inputs: Vec::new(),
        trajectory: None,
        outputs: Vec::new(),
    }
}

fn record(suite: &str, item: &Item, by: &Examination, reply: &Reply, found: Found) -> Attempt {
    let (passed, expected, actual) = found;
    let price = by.teacher.price();
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
        micro_usd: price.map_or(0, |price| price.micro_usd(reply.usage)),
        ..blank(suite, item, by, Outcome::Ran)
    }
}

/// Digest of the files that were asked, for the header of the records.
pub fn digest(sets: &[Set]) -> Digest {
    Digest::of_json(
        &sets
            .iter()
            .map(|set| (&set.name, &set.digest))
            .collect::<Vec<_>>(),
    )
}

/// Name of a set by that of its file or repository: `humaneval`, `mbpp`, `gsm8k` or `mmlu` must stand in it.
pub fn name_of(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    ["humaneval", "mbpp", "gsm8k", "mmlu"]
        .into_iter()
        .find(|known| name.contains(known))
}

#[cfg(test)]
#[path = "general_tests.rs"]
mod tests;
