//! The ReAct loop: reply, cell, observation, until the model ends or the turns are used up.

use serde::{Deserialize, Serialize};

use super::{Format, Parsed};
use crate::interpreter::{InterpreterError, Observation, Output, Session};
use crate::llm::{ChatRequest, Reply, Teacher, TeacherError};
use crate::run::{Failure, FailureKind};
use crate::task::Task;
use crate::trajectory::{End, Message, Ran, Role, Sampling, Turn};

/// One try at a task.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// What is asked.
    pub task: &'a Task,
    /// Sample number.
    pub sample: u32,
    /// Who replies.
    pub teacher: &'a dyn Teacher,
    /// How messages are framed.
    pub format: &'a dyn Format,
    /// Sampling parameters.
    pub sampling: &'a Sampling,
    /// Most replies.
    pub max_turns: u32,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Solved {
    /// The conversation in full.
    pub messages: Vec<Message>,
    /// The turns.
    pub turns: Vec<Turn>,
    /// How it ended.
    pub end: End,
    /// Expert only: the fault put in on purpose.
    pub fault: Option<String>,
}

/// One step, as it is remembered before the next one starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// The teacher replied.
    Reply {
        /// The reply as it came.
        reply: Reply,
    },
    /// The cell of the reply before was executed.
    Observation {
        /// What it did.
        observation: Observation,
    },
}

/// Remembers the steps of one trajectory over restarts.
pub trait TurnLog: Send + Sync {
    /// The steps remembered, in order.
    fn steps(&self) -> Result<Vec<Step>, Failure>;

    /// Remember the step at that position (from 0); it is safe once this returns.
    fn append(&self, position: u64, step: &Step) -> Result<(), Failure>;

    /// Forget every step: the trajectory starts anew.
    fn clear(&self) -> Result<(), Failure>;
}

/// Solves a task in a fresh session. Remembered steps come first: replies are not asked for again,
/// and their cells are replayed, so that the session holds their variables.
///
/// Errors are failures of ours, never a verdict on the model: [`FailureKind::Endpoint`],
/// [`FailureKind::Budget`], [`FailureKind::Interpreter`]; [`FailureKind::Replay`] when a replayed
/// cell gave another observation: every step is forgotten then, and another attempt starts anew;
/// [`FailureKind::Deferred`] when the next reply comes with a batch.
/// A reply that breaks the format is the model's own doing: it is told so, and goes on.
pub async fn solve(
    job: &Job<'_>,
    session: &mut dyn Session,
    log: &dyn TurnLog,
) -> Result<Solved, Failure> {
    let mut memory = Memory::open(log)?;
    let mut messages = job.format.opening(job.task);
    let (mut turns, mut fault) = (Vec::new(), None);
    let mut end = End::MaxTurns;
    for _ in 0..job.max_turns {
        let reply = memory.reply(job, &messages).await?;
        let text = job.format.tidy(&reply.content, reply.truncated);
        messages.push(Message::new(Role::Assistant, text.clone()));
        fault = fault.or(reply.fault);
        let parsed = job.format.parse(&text);
        let done = match &parsed {
            Parsed::Answer(_) => Some(End::Finished),
            Parsed::Unfinished(_) => Some(End::NoAnswer),
            _ => None,
        };
        let mut ran = memory.run(job, session, parsed.asked()).await?.into_iter();
        let first = ran.next();
        let turn = Turn {
            cell: first.as_ref().and_then(|ran| ran.cell.clone()),
            observation: first.map(|ran| ran.observation),
            more: ran.collect(),
            usage: reply.usage,
            reply: text,
        };
        messages.extend(turn.observations().map(|seen| job.format.observe(seen)));
        turns.push(turn);
        if let Some(done) = done {
            end = done;
            break;
        }
    }
    memory.finish()?;
    Ok(Solved {
        messages,
        turns,
        end,
        fault,
    })
}

/// What a model that broke the format is told in place of an observation.
fn explain(why: &str, format: &dyn Format) -> Observation {
    let text = format!("No code was run: {why}. {}\n", format.rule());
    Observation {
        outputs: vec![Output::Stream {
            name: "stderr".to_owned(),
            text,
        }],
        ..Observation::default()
    }
}

/// The steps so far: first those remembered, then new ones.
struct Memory<'a> {
    log: &'a dyn TurnLog,
    remembered: std::vec::IntoIter<Step>,
    position: u64,
}

impl<'a> Memory<'a> {
    fn open(log: &'a dyn TurnLog) -> Result<Self, Failure> {
        Ok(Self {
            log,
            remembered: log.steps()?.into_iter(),
            position: 0,
        })
    }

    async fn reply(&mut self, job: &Job<'_>, messages: &[Message]) -> Result<Reply, Failure> {
        match self.next() {
            Some(Step::Reply { reply }) => return Ok(reply),
            Some(Step::Observation { .. }) => {
                return Err(self.start_anew("an observation where a reply was expected"));
            }
            None => {}
        }
        let stop = job.format.stop();
        let request = ChatRequest {
            task: job.task,
            sample: job.sample,
            messages,
            sampling: job.sampling,
            stop: &stop,
            pictures: &[],
        };
        let reply = job.teacher.reply(&request).await.map_err(teacher_failure)?;
        self.remember(Step::Reply {
            reply: reply.clone(),
        })?;
        Ok(reply)
    }

    /// Runs the cells of a reply in order, the later ones also where an earlier one failed: the model
    /// asked for all of them without having seen any.
    async fn run(
        &mut self,
        job: &Job<'_>,
        session: &mut dyn Session,
        asked: Vec<Result<String, &'static str>>,
    ) -> Result<Vec<Ran>, Failure> {
        let mut ran = Vec::with_capacity(asked.len());
        for cell in asked {
            let observation = match &cell {
                Ok(cell) => self.observation(session, cell).await?,
                Err(why) => explain(why, job.format),
            };
            let cell = cell.ok();
            ran.push(Ran { cell, observation });
        }
        Ok(ran)
    }

    async fn observation(
        &mut self,
        session: &mut dyn Session,
        cell: &str,
    ) -> Result<Observation, Failure> {
        let remembered = self.next();
        let observation = session.execute(cell).await.map_err(interpreter_failure)?;
        match remembered {
            None => self.remember(Step::Observation {
                observation: observation.clone(),
            })?,
            Some(Step::Observation { observation: was }) if was == observation => {}
            Some(Step::Observation { .. }) => {
                return Err(self.start_anew("a replayed cell gave another observation"));
            }
            Some(Step::Reply { .. }) => {
                return Err(self.start_anew("a reply where an observation was expected"));
            }
        }
        Ok(observation)
    }

    /// Steps left over say that another version of the loop wrote them.
    fn finish(mut self) -> Result<(), Failure> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(self.start_anew("steps after the end")),
        }
    }

    fn next(&mut self) -> Option<Step> {
        let step = self.remembered.next()?;
        self.position += 1;
        Some(step)
    }

    fn remember(&mut self, step: Step) -> Result<(), Failure> {
        self.log.append(self.position, &step)?;
        self.position += 1;
        Ok(())
    }

    fn start_anew(&self, why: &str) -> Failure {
        if let Err(failure) = self.log.clear() {
            return failure;
        }
        let at = self.position.saturating_sub(1);
        Failure::new(
            FailureKind::Replay,
            format!("step {at}: {why}; the sample starts anew"),
        )
        .retryable()
    }
}

/// A failure of a teacher: the endpoint's, the budget's or ours.
pub fn teacher_failure(error: TeacherError) -> Failure {
    let kind = match &error {
        TeacherError::Budget(_) => FailureKind::Budget,
        TeacherError::Internal(_) | TeacherError::NoScript(_) => FailureKind::Internal,
        TeacherError::Deferred => FailureKind::Deferred,
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
            TeacherError::RateLimited { retry_after } => retry_after,
            _ => None,
        },
    }
}

/// A failure of the sandbox. A tool that is missing does not come back by trying again.
pub fn interpreter_failure(error: InterpreterError) -> Failure {
    let failure = Failure::new(FailureKind::Interpreter, error.to_string());
    match error {
        InterpreterError::Unavailable(_) => failure,
        _ => failure.retryable(),
    }
}

#[cfg(test)]
#[path = "react_tests.rs"]
mod tests;
