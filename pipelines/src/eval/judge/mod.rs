//! The LLM judge of the paper: pass or fail against request, trajectory and files, and win, tie or
//! lose against another agent's attempt, asked in both orders.
//!
//! A verdict is one opinion beside the scores. An abstention is a missing value; so is a judge that
//! could not be reached. Neither touches another score.

mod calibrate;
mod case;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use pybench::id::Digest;
use pybench::llm::{ChatRequest, PICTURE_TOKENS, Teacher, TeacherError};
use pybench::task::{Category, Task};
use pybench::trajectory::{Message, Role, Sampling, Trajectory, Usage};

pub use calibrate::{Calibration, Labels, calibrate};
use case::{Case, PAIR, PASS, Question, longest};

use super::bare::bare_task;
use super::record::{Attempt, Duel, Evaluation, Judgement, MOST_SHOWN, cut};
use super::report::show::Store;

/// Name under which calls of the judge stand in a journal.
pub const FORMAT: &str = "judge";
/// Tokens of an opinion.
const MOST_REPLY: u32 = 700;
/// Attempts at one reply.
const ATTEMPTS: u32 = 3;
/// Longest wait between two of them.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// After so many failures in a row the judge is down, and is asked no more.
const DOWN: u32 = 5;

/// What one opinion on a trajectory takes at most, for a request of so many bytes: a token is a byte at least.
pub(crate) fn most(query: usize, sees: bool) -> Usage {
    let (bytes, pictures) = longest(query, sees);
    Usage {
        prompt_tokens: bytes as u64 + pictures as u64 * PICTURE_TOKENS,
        completion_tokens: MOST_REPLY.into(),
    }
}

/// A judge.
pub struct Judge {
    teacher: Arc<dyn Teacher>,
    sees: bool,
    sampling: Sampling,
    /// Failures in a row; [`DOWN`] or more: it is asked no more.
    failed: AtomicU32,
}

/// What is asked of a judge.
#[derive(Clone, Debug, Default)]
pub struct JudgeOptions {
    /// Label of the agent that the others are compared with.
    pub against: Option<String>,
    /// Questions at a time.
    pub concurrency: usize,
}

/// What came of asking.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Asked {
    /// Attempts with a verdict.
    pub judged: usize,
    /// Attempts on which the judge abstained.
    pub abstained: usize,
    /// Questions without an answer, by what failed.
    pub failures: BTreeMap<String, usize>,
}

impl Judge {
    /// A judge that answers through `teacher`, which keeps books and budget; `sees`: whether pictures
    /// are shown to it.
    pub fn new(teacher: Arc<dyn Teacher>, sees: bool) -> Self {
        Self {
            teacher,
            sees,
            sampling: Sampling {
                temperature: 0.0,
                top_p: 1.0,
                max_tokens: MOST_REPLY,
            },
            failed: AtomicU32::new(0),
        }
    }

    /// Digest of its prompts and of whether it sees.
    pub fn prompts(&self) -> Digest {
        Digest::of_json(&(PASS, PAIR, self.sees))
    }

    /// The reply to a question. Failures that may pass are tried again; a judge that is down is left
    /// alone.
    async fn ask(&self, question: &Question) -> Result<String, TeacherError> {
        let messages = [Message::new(Role::User, &question.text)];
        let task = task(question);
        let request = ChatRequest {
            task: &task,
            sample: 0,
            messages: &messages,
            sampling: &self.sampling,
            stop: &[],
            pictures: &question.pictures,
        };
        for attempt in 1.. {
            if self.failed.load(Ordering::Relaxed) >= DOWN {
                return Err(TeacherError::Connection("the judge is down".to_owned()));
            }
            match self.teacher.reply(&request).await {
                Ok(reply) => {
                    self.failed.store(0, Ordering::Relaxed);
                    return Ok(reply.content);
                }
                Err(error) => {
                    self.count(&error);
                    if attempt >= ATTEMPTS || !error.retryable() {
                        return Err(error);
                    }
                    tokio::time::sleep(wait(&error, attempt)).await;
                }
            }
        }
        Err(TeacherError::Internal("no attempt left".to_owned()))
    }

    fn count(&self, error: &TeacherError) {
        let more = match error {
            TeacherError::Unauthorized(_) | TeacherError::Budget(_) => DOWN,
            // One request that is refused, or one answer that cannot be read, says nothing of others.
            TeacherError::Rejected(_) | TeacherError::RateLimited { .. } => 0,
            TeacherError::Malformed(_) | TeacherError::TooLarge(_) => 0,
            _ => 1,
        };
        // It cannot overflow: above DOWN nobody asks any more.
        self.failed.fetch_add(more, Ordering::Relaxed);
    }

    /// Its opinion of a trajectory; `None` where it abstains or its answer cannot be read. `stores` hold
    /// the files that were left.
    pub(crate) async fn opinion(
        &self,
        query: &str,
        trajectory: &Trajectory,
        stores: &[PathBuf],
    ) -> Result<(Option<bool>, String), TeacherError> {
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

    /// Who judges.
    pub(crate) fn name(&self) -> &str {
        self.teacher.name()
    }

    async fn passed(&self, case: &Case) -> Result<(Option<bool>, String), TeacherError> {
        let reply = self.ask(&case.question().map_err(internal)?).await?;
        let passed = match verdict(&reply).as_deref() {
            Some("PASS") => Some(true),
            Some("FAIL") => Some(false),
            _ => None,
        };
        Ok((passed, cut(&reply, MOST_SHOWN)))
    }

    /// Both orders; who is preferred in both wins.
    async fn duel(&self, own: &Case, other: &Case) -> Result<Duel, TeacherError> {
        let first = self.ask(&own.against(other).map_err(internal)?).await?;
        let second = self.ask(&other.against(own).map_err(internal)?).await?;
        let said = (verdict(&first), verdict(&second));
        Ok(match (said.0.as_deref(), said.1.as_deref()) {
            (Some("A"), Some("B")) => Duel::Win,
            (Some("B"), Some("A")) => Duel::Lose,
            (Some("A" | "B" | "TIE"), Some("A" | "B" | "TIE")) => Duel::Tie,
            _ => Duel::Abstained,
        })
    }
}

fn internal(error: minijinja::Error) -> TeacherError {
    TeacherError::Internal(format!("the judge's prompt: {error:#}"))
}

fn wait(error: &TeacherError, attempt: u32) -> Duration {
    let asked = match error {
        TeacherError::RateLimited { retry_after } => *retry_after,
        _ => None,
    };
    let grown = Duration::from_millis(200 << attempt.min(8));
    asked.unwrap_or(grown).min(LONGEST_WAIT)
}

/// The word after `VERDICT:` on the last line; anything else is none.
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

/// A task that stands for a question: calls are kept in the journal under its id.
fn task(question: &Question) -> Task {
    let mut task = bare_task(&question.text, Category::Text, FORMAT);
    if !question.pictures.is_empty() {
        let shown = question.pictures.iter().map(|p| Digest::of_bytes(&p.bytes));
        task.id = Digest::of_json(&(&task.id, shown.collect::<Vec<_>>()));
    }
    task
}

/// Judge every attempt that ran and has no verdict of this judge yet, and compare it with that of
/// another agent where one is named. What fails stays missing; no other field of a record changes.
pub async fn judge(
    evaluation: &Evaluation,
    stores: &[PathBuf],
    judge: &Judge,
    options: &JudgeOptions,
) -> (Evaluation, Asked) {
    let asked = Mutex::new(Asked::default());
    let judged = futures::stream::iter(&evaluation.attempts)
        .map(|attempt| judge_one(attempt, evaluation, stores, judge, options, &asked))
        .buffered(options.concurrency.max(1))
        .collect::<Vec<_>>()
        .await;
    let asked = asked.into_inner().unwrap_or_else(PoisonError::into_inner);
    (Evaluation::new(evaluation.frozen.clone(), judged), asked)
}

async fn judge_one(
    attempt: &Attempt,
    evaluation: &Evaluation,
    stores: &[PathBuf],
    judge: &Judge,
    options: &JudgeOptions,
    asked: &Mutex<Asked>,
) -> Attempt {
    let mut attempt = attempt.clone();
    let name = judge.teacher.name();
    // Verdicts of another judge, or to other prompts, must not stand among these.
    let same = |j: &Judgement| j.judge == name && j.prompts == judge.prompts();
    attempt.judgement = attempt.judgement.take().filter(same);
    if !attempt.ran() {
        return attempt;
    }
    let case = |of: &Attempt| Case::of(of, &mut Store::new(stores, PathBuf::new()), judge.sees);
    let own = case(&attempt);
    let opponent = opponent(&attempt, evaluation, options);
    if attempt.judgement.is_none() {
        match judge.passed(&own).await {
            Ok((passed, reason)) => {
                attempt.judgement = Some(Judgement {
                    judge: name.to_owned(),
                    prompts: judge.prompts(),
                    passed,
                    reason,
                    duels: BTreeMap::new(),
                });
            }
            Err(error) => failed(asked, &error),
        }
    }
    if let Some(judgement) = &mut attempt.judgement {
        let fresh = |other: &&Attempt| !judgement.duels.contains_key(&other.agent);
        if let Some(other) = opponent.filter(fresh) {
            match judge.duel(&own, &case(other)).await {
                Ok(duel) => {
                    judgement.duels.insert(other.agent.clone(), duel);
                }
                Err(error) => failed(asked, &error),
            }
        }
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        match judgement.passed {
            Some(_) => asked.judged += 1,
            None => asked.abstained += 1,
        }
    }
    attempt
}

fn failed(asked: &Mutex<Asked>, error: &TeacherError) {
    let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    *asked.failures.entry(error.kind().to_owned()).or_default() += 1;
}

/// The attempt of the other agent at the same task: with the same seed, or its first.
fn opponent<'a>(
    attempt: &Attempt,
    evaluation: &'a Evaluation,
    options: &JudgeOptions,
) -> Option<&'a Attempt> {
    let label = options
        .against
        .as_ref()
        .filter(|label| **label != attempt.agent)?;
    let same = |a: &&Attempt| {
        a.agent == *label && a.suite == attempt.suite && a.task == attempt.task && a.ran()
    };
    let others = evaluation.attempts.iter().filter(same);
    others
        .clone()
        .find(|a| a.seed == attempt.seed)
        .or(others.clone().next())
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
