//! The ReAct loop: reply, cell, observation, until the model finishes or reaches the turn limit.

use serde::{Deserialize, Serialize};

use super::{Feedback, Format, Parsed, Solver, TurnContext, TurnFeedback};
use pybench_interpreter::Session;
use pybench_llm::{ChatRequest, Reply};
use pybench_run::{Failure, FailureKind, interpreter_failure};
use pybench_types::observation::{Observation, Output};
use pybench_types::task::Task;
use pybench_types::trajectory::{CellRun, Corrected, End, Message, Role, Sampling, Turn};

/// One attempt at a task.
#[derive(Clone, Copy)]
pub struct AttemptSpec<'a> {
    pub task: &'a Task,
    /// Sample number.
    pub sample: u32,
    /// What writes the replies.
    pub solver: &'a Solver,
    /// Message format.
    pub format: &'a dyn Format,
    pub sampling: &'a Sampling,
    /// Maximum number of replies.
    pub max_turns: u32,
    /// The attempt ends after this many equal replies in a row; those of a recorded attempt that it continues do not
    /// count.
    pub max_identical_turns: Option<u32>,
    /// The attempt ends with a reply of so many tokens that has begun neither code nor an answer.
    pub code_within_tokens: Option<u32>,
    /// Gives feedback between the turns; `None` if the attempt ends with its first answer.
    pub feedback: Option<&'a dyn TurnFeedback>,
}

impl AttemptSpec<'_> {
    /// Whether the last replies are equal, as many as are allowed.
    fn is_stuck(&self, turns: &[Turn]) -> bool {
        let Some((count, last)) = self.max_identical_turns.zip(turns.last()) else {
            return false;
        };
        let equal = turns
            .iter()
            .rev()
            .take_while(|turn| turn.reply == last.reply);
        equal.count() >= count as usize
    }

    /// Why the attempt ends with this reply although its task is not done.
    fn early_end(&self, reply: &Reply) -> Option<End> {
        if reply.repetition {
            return Some(End::Repetition);
        }
        let limit = u64::from(self.code_within_tokens?);
        let openings = self.format.openings();
        let is_late = reply.usage.completion_tokens >= limit && !openings.is_empty();
        (is_late && !begins(&reply.content, openings)).then_some(End::NoCode)
    }
}

/// Whether the text contains one of the openings, in capital or small letters.
fn begins(text: &str, openings: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    openings
        .iter()
        .any(|opening| text.contains(&opening.to_ascii_lowercase()))
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptResult {
    /// The full conversation.
    pub messages: Vec<Message>,
    pub turns: Vec<Turn>,
    pub end: End,
    /// The deliberate fault of a script.
    pub fault: Option<String>,
    /// The attempt that this one corrects.
    pub corrects: Option<Corrected>,
}

/// One step, recorded before the next one starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// The model replied; the reply is stored verbatim.
    Reply { reply: Reply },
    /// The cell of the previous reply was executed.
    Observation { observation: Observation },
    /// Feedback was given after the turn.
    Feedback { feedback: Feedback },
}

/// Records the steps of one trajectory, so that a restarted process can continue it.
pub trait TurnLog: Send + Sync {
    /// The recorded steps, in order.
    fn steps(&self) -> Result<Vec<Step>, Failure>;

    /// Records the step at `position` (from 0); it is durable once this returns.
    fn append(&self, position: u64, step: &Step) -> Result<(), Failure>;

    /// Deletes all steps, so that the trajectory starts over.
    fn clear(&self) -> Result<(), Failure>;

    /// Asked before each new request to the model: an error ends the attempt here, and its steps stay for the next one.
    fn may_continue(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Solves a task in a fresh session. Recorded steps are replayed first: replies are taken from the log, and their
/// cells are executed again to restore the variables of the session. A model whose reply violates the format is
/// told so and continues. Feedback that does not accept an answer lets the attempt go on.
///
/// # Errors
/// Infrastructure failures, never a verdict on the model: [`FailureKind::Endpoint`], [`FailureKind::Budget`],
/// [`FailureKind::Interpreter`]; [`FailureKind::Replay`] if a replayed cell gave a different observation, in
/// which case all steps are deleted and the next attempt starts over; [`FailureKind::Deferred`] if the next
/// reply is pending in a batch.
pub async fn solve(
    attempt: &AttemptSpec<'_>,
    session: &mut dyn Session,
    log: &dyn TurnLog,
) -> Result<AttemptResult, Failure> {
    solve_after(attempt, 0, session, log).await
}

/// As [`solve`], of an attempt whose first `kept` turns are those of another one, which the log has.
pub(crate) async fn solve_after(
    attempt: &AttemptSpec<'_>,
    kept: usize,
    session: &mut dyn Session,
    log: &dyn TurnLog,
) -> Result<AttemptResult, Failure> {
    let mut steps = StepLog::open(log)?;
    let mut messages = attempt.format.initial_messages(attempt.task);
    let opening = messages.len();
    let mut turns = Vec::new();
    let mut end = End::MaxTurns;
    for number in 1..=attempt.max_turns {
        let reply = steps.reply(attempt, &messages).await?;
        let text = attempt.format.truncate(&reply.content, reply.truncated);
        messages.push(Message::new(Role::Assistant, text.clone()));
        let parsed = attempt.format.parse(&text);
        let early = attempt.early_end(&reply);
        let done = match (&early, &parsed) {
            (Some(early), _) => Some(early.clone()),
            (None, Parsed::Answer(_)) => Some(End::Finished),
            (None, Parsed::Unfinished(_)) => Some(End::NoAnswer),
            _ => None,
        };
        let cells = match early {
            Some(_) => Vec::new(),
            None => parsed.cells(),
        };
        let mut runs = steps.run(attempt, session, cells).await?.into_iter();
        let first = runs.next();
        let turn = Turn {
            cell: first.as_ref().and_then(|run| run.cell.clone()),
            observation: first.map(|run| run.observation),
            more: runs.collect(),
            usage: reply.usage,
            reply: text,
        };
        messages.extend(turn.observations().map(|seen| attempt.format.observe(seen)));
        turns.push(turn);
        let own = turns.get(kept..).unwrap_or_default();
        let stuck = attempt.is_stuck(own).then_some(End::Repetition);
        let feedback = match attempt.feedback {
            Some(source) if !done.as_ref().is_some_and(End::is_early) => {
                let context = TurnContext {
                    task: attempt.task,
                    sample: attempt.sample,
                    messages: &messages,
                    opening,
                    turns: &turns,
                    is_answer: done.is_some(),
                };
                Some(steps.feedback(source, &context).await?)
            }
            _ => None,
        };
        match feedback {
            Some(feedback) if !feedback.ends && number < attempt.max_turns && stuck.is_none() => {
                messages.push(Message::new(Role::User, feedback.message));
            }
            Some(_) => {
                end = done.or(stuck).unwrap_or(End::MaxTurns);
                break;
            }
            None => {
                if let Some(done) = done.or(stuck) {
                    end = done;
                    break;
                }
            }
        }
    }
    steps.finish()?;
    leave_out_mistake(attempt, &mut messages);
    Ok(AttemptResult {
        messages,
        turns,
        end,
        fault: attempt.solver.fault(attempt.task, attempt.sample),
        corrects: None,
    })
}

/// Takes the deliberate mistake of a script out of training; its repair stays in.
fn leave_out_mistake(attempt: &AttemptSpec<'_>, messages: &mut [Message]) {
    let mut replies = messages
        .iter_mut()
        .filter(|message| message.role == Role::Assistant);
    let mistake = attempt.solver.mistake(attempt.task, attempt.sample);
    if let Some(reply) = mistake.and_then(|at| replies.nth(at)) {
        reply.trained = false;
    }
}

/// The observation for a reply that violates the format.
pub fn format_error(why: &str, format: &dyn Format) -> Observation {
    let text = format!("No code was run: {why}. {}\n", format.format_hint());
    Observation {
        outputs: vec![Output::Stream {
            name: "stderr".to_owned(),
            text,
        }],
        ..Observation::default()
    }
}

/// Replays recorded steps, then records new ones.
struct StepLog<'a> {
    log: &'a dyn TurnLog,
    recorded: std::vec::IntoIter<Step>,
    position: u64,
}

impl<'a> StepLog<'a> {
    fn open(log: &'a dyn TurnLog) -> Result<Self, Failure> {
        Ok(Self {
            log,
            recorded: log.steps()?.into_iter(),
            position: 0,
        })
    }

    async fn reply(
        &mut self,
        attempt: &AttemptSpec<'_>,
        messages: &[Message],
    ) -> Result<Reply, Failure> {
        match self.next() {
            Some(Step::Reply { reply }) => return Ok(reply),
            Some(_) => {
                return Err(self.start_over("another step where a reply was expected"));
            }
            None => {}
        }
        self.log.may_continue()?;
        let stop = attempt.format.stop();
        let request = ChatRequest {
            key: &attempt.task.id,
            sample: attempt.sample,
            messages,
            sampling: attempt.sampling,
            stop: &stop,
            pictures: &[],
        };
        let reply = attempt.solver.reply(attempt.task, &request).await?;
        self.record(Step::Reply {
            reply: reply.clone(),
        })?;
        Ok(reply)
    }

    /// Runs the cells of a reply in order, even after a failed one, because the model requested all of them
    /// before seeing any result.
    async fn run(
        &mut self,
        attempt: &AttemptSpec<'_>,
        session: &mut dyn Session,
        cells: Vec<Result<String, &'static str>>,
    ) -> Result<Vec<CellRun>, Failure> {
        let mut runs = Vec::with_capacity(cells.len());
        for cell in cells {
            let observation = match &cell {
                Ok(cell) => self.observation(session, cell).await?,
                Err(why) => format_error(why, attempt.format),
            };
            let cell = cell.ok();
            runs.push(CellRun { cell, observation });
        }
        Ok(runs)
    }

    async fn observation(
        &mut self,
        session: &mut dyn Session,
        cell: &str,
    ) -> Result<Observation, Failure> {
        let recorded = self.next();
        let observation = session.execute(cell).await.map_err(interpreter_failure)?;
        match recorded {
            None => self.record(Step::Observation {
                observation: observation.clone(),
            })?,
            Some(Step::Observation { observation: was }) if was == observation => {}
            Some(Step::Observation { .. }) => {
                return Err(self.start_over("a replayed cell gave a different observation"));
            }
            Some(_) => {
                return Err(self.start_over("another step where an observation was expected"));
            }
        }
        Ok(observation)
    }

    async fn feedback(
        &mut self,
        source: &dyn TurnFeedback,
        context: &TurnContext<'_>,
    ) -> Result<Feedback, Failure> {
        match self.next() {
            Some(Step::Feedback { feedback }) => return Ok(feedback),
            Some(_) => {
                return Err(self.start_over("another step where feedback was expected"));
            }
            None => {}
        }
        let feedback = source.after_turn(context).await?;
        self.record(Step::Feedback {
            feedback: feedback.clone(),
        })?;
        Ok(feedback)
    }

    /// Ends the replay; remaining steps mean that another version of the loop wrote the log.
    fn finish(mut self) -> Result<(), Failure> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(self.start_over("steps after the end")),
        }
    }

    fn next(&mut self) -> Option<Step> {
        let step = self.recorded.next()?;
        self.position += 1;
        Some(step)
    }

    fn record(&mut self, step: Step) -> Result<(), Failure> {
        self.log.append(self.position, &step)?;
        self.position += 1;
        Ok(())
    }

    fn start_over(&self, why: &str) -> Failure {
        if let Err(failure) = self.log.clear() {
            return failure;
        }
        let at = self.position.saturating_sub(1);
        Failure::new(
            FailureKind::Replay,
            format!("step {at}: {why}; the sample starts over"),
        )
        .retryable()
    }
}

#[cfg(test)]
#[path = "react_tests.rs"]
mod tests;
