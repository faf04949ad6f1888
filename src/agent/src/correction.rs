//! Corrections on the path of a student: its turns up to the first failing one stay as context, and a script or another
//! model continues.
//!
//! As in DAgger (Ross et al., 2011) the script or model says what to do in a state that the student reached itself. The
//! state is restored as a fork of the session would be: the student's cells run again, with the same seed, and every
//! observation must be the same. A person who edits a turn continues in the same way ([`fork`]).

use std::sync::Arc;

use async_trait::async_trait;
use pybench_interpreter::Session;
use pybench_llm::{Batches, ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::{Failure, Price};
use pybench_types::observation::Observation;
use pybench_types::task::{Language, Task};
use pybench_types::trajectory::{Corrected, Message, Role, Trajectory, Turn, Usage};

use crate::react::solve_after;
use crate::{
    AttemptResult, AttemptSpec, CORRECTION, ScriptedSolver, Solver, Step, TurnLog, observation_text,
};

/// What is wrong with the last turn of a context, or with what came after it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Flaw {
    /// The last cell raised this exception.
    Error(String),
    /// The last cell was stopped.
    Stopped,
    /// The last reply has no code that could be run.
    Malformed,
    /// The last reply is the same as the one before.
    Repeated,
    /// No turn failed, but the outcome is wrong: the turns from the first result on are left out.
    Outcome,
}

/// What begins the line of an observation that shows the final answer.
const ANSWER: &str = "answer:";

/// Exceptions about a name that is not there.
const MISNAMED: [&str; 2] = ["KeyError", "FileNotFoundError"];

/// The turns that a correction keeps, and why it corrects. A failing turn is kept with its observation, so that the
/// model learns to repair what it sees. Where no turn fails, the first turn with a result counts as wrong: it is left out
/// with all that follow. If no turn has a result, or the attempt ends with another answer than the one that it shows, only
/// the last turn is left out. `outputs` are the files that the task asks for.
fn context<'a>(student: &'a Trajectory, outputs: &[String]) -> (&'a [Turn], Flaw) {
    let turns = &student.turns;
    for (at, turn) in turns.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &turns[before]);
        if let Some(flaw) = flaw(turn, before) {
            return (&turns[..=at], flaw);
        }
    }
    let last = turns.len().saturating_sub(1);
    let result = turns.iter().position(|turn| has_result(turn, outputs));
    let wrong = result.filter(|at| !is_restated(&turns[*at], turns));
    (&turns[..wrong.unwrap_or(last)], Flaw::Outcome)
}

/// Whether the attempt ends with another answer than the one that `turn` shows, which may be right.
fn is_restated(turn: &Turn, turns: &[Turn]) -> bool {
    let texts: Vec<_> = turn.observations().map(observation_text).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut shown = lines.filter_map(|line| line.strip_prefix(ANSWER));
    let end = turns
        .last()
        .filter(|end| end.observations().next().is_none());
    let says = |shown: &str, end: &Turn| end.reply.contains(shown.trim());
    matches!((shown.next_back(), end), (Some(shown), Some(end)) if !says(shown, end))
}

/// Whether a turn shows the final answer or names a file that the task asks for.
fn has_result(turn: &Turn, outputs: &[String]) -> bool {
    let shows = |seen: &Observation| {
        let text = observation_text(seen);
        text.lines().any(|line| line.starts_with(ANSWER))
    };
    let writes = |cell: &str| outputs.iter().any(|path| cell.contains(path.as_str()));
    turn.observations().any(shows) || turn.cells().any(writes)
}

/// Why this turn fails visibly. The last turn of a trajectory has no observation and does not.
fn flaw(turn: &Turn, before: Option<&Turn>) -> Option<Flaw> {
    for (cell, observation) in turn.cell_runs() {
        let Some(observation) = observation else {
            continue;
        };
        match (cell, &observation.error, observation.stopped) {
            (None, ..) => return Some(Flaw::Malformed),
            (_, Some(error), _) => return Some(Flaw::Error(error.ename.clone())),
            (_, _, Some(_)) => return Some(Flaw::Stopped),
            _ => {}
        }
    }
    let repeated = before.is_some_and(|before| before.reply == turn.reply);
    (repeated && turn.observations().next().is_some()).then_some(Flaw::Repeated)
}

/// Whether the student knows what is in the files: a cell ran, or failed only because it misnamed a file or a column.
fn has_seen_files(turns: &[Turn], flaw: &Flaw) -> bool {
    let ran = |(cell, observation): (Option<&str>, Option<&Observation>)| {
        let fine = observation.is_some_and(|seen| seen.error.is_none() && seen.stopped.is_none());
        cell.is_some() && fine
    };
    let is_name = |name: &String| MISNAMED.contains(&name.as_str());
    let misnamed = matches!(flaw, Flaw::Error(name) if is_name(name));
    misnamed || turns.iter().any(|turn| turn.cell_runs().any(ran))
}

/// Continues the attempt of a student with the solver of `spec`, from its first failing turn on. A script begins with
/// the files, and with a remark about a turn that failed; a model sees the conversation as its own, and a note in the system
/// prompt that the result does not have. The rest is as in [`fork`].
///
/// # Errors
/// As [`fork`].
pub async fn correct(
    spec: &AttemptSpec<'_>,
    student: &Trajectory,
    session: &mut dyn Session,
    log: &dyn TurnLog,
) -> Result<AttemptResult, Failure> {
    let (turns, flaw) = context(student, &spec.task.outputs);
    let solver = match spec.solver {
        Solver::Script(script) | Solver::Correction(script) => {
            let messages = turns.iter().map(|turn| 1 + turn.observations().count());
            let opening = spec.format.initial_messages(spec.task).len();
            Solver::Script(Arc::new(Continuation {
                script: script.clone(),
                skip: opening + messages.sum::<usize>(),
                remark: remark(&flaw, turns.is_empty(), spec.task.language),
                resumes: has_seen_files(turns, &flaw),
            }))
        }
        Solver::Model(model) if turns.is_empty() => Solver::Model(model.clone()),
        Solver::Model(model) => Solver::Model(Arc::new(Advised {
            model: model.clone(),
            note: note(&flaw, turns.len()),
        })),
    };
    let spec = AttemptSpec {
        solver: &solver,
        ..*spec
    };
    fork(&spec, student, turns.len(), session, log).await
}

/// Continues a recorded attempt after its first `keep` turns with the solver of `spec`, which may send `max_turns` replies
/// more; only these count for `max_identical_turns`. The replies that are kept are context: they are not trained.
/// `session` is fresh and has the seed of the recorded one.
///
/// # Errors
/// As [`solve`](crate::solve); [`FailureKind::Replay`](pybench_run::FailureKind::Replay) if the recorded cells do not give
/// the same observations again.
pub async fn fork(
    spec: &AttemptSpec<'_>,
    recorded: &Trajectory,
    keep: usize,
    session: &mut dyn Session,
    log: &dyn TurnLog,
) -> Result<AttemptResult, Failure> {
    let turns = recorded.turns.get(..keep).unwrap_or(&recorded.turns);
    record(turns, log)?;
    let spec = AttemptSpec {
        max_turns: spec.max_turns + turns.len() as u32,
        ..*spec
    };
    let mut solved = solve_after(&spec, turns.len(), session, log).await?;
    let replies = solved.messages.iter_mut();
    let replies = replies.filter(|message| message.role == Role::Assistant);
    for reply in replies.take(turns.len()) {
        reply.trained = false;
    }
    solved.corrects = Some(Corrected {
        student: recorded.teacher.clone(),
        turns: turns.len() as u32,
    });
    Ok(solved)
}

/// Records the turns as the first steps of the trajectory, so that [`solve_after`] replays them. A process that was
/// killed may have recorded some of them.
fn record(turns: &[Turn], log: &dyn TurnLog) -> Result<(), Failure> {
    let recorded = log.steps()?.len();
    let steps = turns.iter().flat_map(steps).enumerate();
    for (position, step) in steps.skip(recorded) {
        log.append(position as u64, &step)?;
    }
    Ok(())
}

/// The steps of one turn. What the reply cost is on the account of the student's attempt.
fn steps(turn: &Turn) -> Vec<Step> {
    let reply = Step::Reply {
        reply: Reply {
            content: turn.reply.clone(),
            usage: Usage::default(),
            // The reply is complete: nothing must be appended.
            truncated: true,
            repetition: false,
        },
    };
    let executed = turn.cell_runs();
    let observed = executed.filter_map(|(cell, observation)| cell.and(observation));
    let observation = |observation: &Observation| Step::Observation {
        observation: observation.clone(),
    };
    std::iter::once(reply)
        .chain(observed.map(observation))
        .collect()
}

/// A script that begins after `skip` messages, with a remark about what went wrong.
struct Continuation {
    script: Arc<dyn ScriptedSolver>,
    skip: usize,
    remark: String,
    /// Whether the files have been seen in the messages before.
    resumes: bool,
}

impl ScriptedSolver for Continuation {
    fn name(&self) -> &str {
        CORRECTION
    }

    fn reply(&self, task: &Task, sample: u32, messages: &[Message]) -> Result<String, String> {
        let own = messages.get(self.skip..).unwrap_or_default();
        let reply = match self.resumes {
            true => self.script.resume(task, sample, own)?,
            false => self.script.reply(task, sample, own)?,
        };
        Ok(match own.is_empty() && !self.remark.is_empty() {
            true => with_remark(&self.remark, &reply),
            false => reply,
        })
    }
}

/// A reply of a student, and a better one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contrast {
    /// The number of the student's turn, from 0; both replies have the turns before it as context.
    pub turn: usize,
    /// The better reply.
    pub better: String,
}

/// The reply of the student that a correction rejects. The correction keeps `kept` turns and begins with the reply `first`;
/// `outputs` and `language` are those of the task.
///
/// A script rejects the turn that failed, since it would have written its reply without its remark in that place. A model
/// has seen the failure, so it rejects what the student did after it. After a wrong outcome, the reply with the first
/// result is rejected, but never one that ends the attempt: the student would learn not to finish.
pub fn contrast(
    student: &Trajectory,
    (outputs, language): (&[String], Language),
    kept: usize,
    first: &str,
) -> Option<Contrast> {
    let (turns, flaw) = context(student, outputs);
    // A recorded correction may have kept other turns.
    if turns.len() != kept {
        return None;
    }
    let next = student.turns.get(kept);
    if flaw == Flaw::Outcome {
        let ran = next?.observations().next().is_some();
        return (ran && kept > 0).then(|| Contrast {
            turn: kept,
            better: first.to_owned(),
        });
    }
    let better = without_remark(&remark(&flaw, false, language), first);
    let before = turns.get(..kept.saturating_sub(1)).unwrap_or_default();
    if better.is_some() && has_seen_files(before, &Flaw::Outcome) != has_seen_files(turns, &flaw) {
        // Without the failing turn, the script would have looked at the files first.
        return None;
    }
    match better {
        Some(better) => Some(Contrast {
            turn: kept.checked_sub(1)?,
            better,
        }),
        None => next.map(|_| Contrast {
            turn: kept,
            better: first.to_owned(),
        }),
    }
}

/// What the formats with an analysis begin a reply with.
const LABEL: &str = "Analyse:";

/// The reply with the remark at the beginning of its thought.
fn with_remark(remark: &str, reply: &str) -> String {
    match reply.strip_prefix(LABEL) {
        Some(rest) => format!("{LABEL} {remark} {}", rest.trim_start()),
        None => format!("{remark} {reply}"),
    }
}

/// The reply that [`with_remark`] was given; `None` if there is no such remark.
fn without_remark(remark: &str, reply: &str) -> Option<String> {
    let labeled = reply.strip_prefix(LABEL);
    match labeled.and_then(|thought| thought.trim_start().strip_prefix(remark)) {
        Some(rest) => Some(format!("{LABEL} {}", rest.trim_start())),
        None => reply
            .strip_prefix(remark)
            .map(|rest| rest.trim_start().to_owned()),
    }
}

/// What the expert says first, after what it sees. Empty where it sees no failure.
fn remark(flaw: &Flaw, is_first: bool, language: Language) -> String {
    if is_first {
        return String::new();
    }
    match (language, flaw) {
        (Language::En, Flaw::Error(name)) => {
            format!("The last cell failed with {name}, so I go back to the data.")
        }
        (Language::En, Flaw::Stopped) => "The last cell was stopped, so I try another way.".into(),
        (Language::En, Flaw::Malformed) => {
            "My last reply had no code that could be run, so I write it as a code block.".into()
        }
        (Language::En, Flaw::Repeated) => {
            "I repeat myself without getting further, so I start again.".into()
        }
        (Language::Zh, Flaw::Error(name)) => {
            format!("上一段代码报错 {name}，我回到数据重新处理。")
        }
        (Language::Zh, Flaw::Stopped) => "上一段代码被中止，我换一种做法。".into(),
        (Language::Zh, Flaw::Malformed) => "上一条回复没有可运行的代码，我把它写成代码块。".into(),
        (Language::Zh, Flaw::Repeated) => "我在重复同样的步骤，重新开始。".into(),
        (_, Flaw::Outcome) => String::new(),
    }
}

/// Maximum length in bytes of the note that a model which corrects reads in each prompt.
pub const MAX_CORRECTION_NOTE: usize = 512;

/// A model that reads a note at the end of the system prompt. The conversation is kept without it, since a student that
/// is trained on the conversation has no such note.
struct Advised {
    model: Arc<dyn ChatModel>,
    note: String,
}

impl Advised {
    /// The messages with the note.
    fn advise(&self, messages: &[Message]) -> Vec<Message> {
        let mut messages = messages.to_vec();
        match messages.first_mut() {
            Some(first) if first.role == Role::System => {
                first.content = format!("{}\n\n{}", first.content, self.note);
            }
            _ => messages.insert(0, Message::new(Role::System, self.note.clone())),
        }
        messages
    }
}

#[async_trait]
impl ChatModel for Advised {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn price(&self) -> Option<Price> {
        self.model.price()
    }

    fn batches(&self) -> Option<&Batches> {
        self.model.batches()
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let messages = self.advise(request.messages);
        let request = ChatRequest {
            messages: &messages,
            ..*request
        };
        self.model.reply(&request).await
    }
}

/// What a model that corrects is told about the student's turns. It does not have the findings of the checks, which may
/// name the expected values: the model would write these without having computed them.
fn note(flaw: &Flaw, turns: usize) -> String {
    let what = match flaw {
        Flaw::Error(_) => "The code of the last of them raised an exception.",
        Flaw::Stopped => "The code of the last of them was stopped before it ended.",
        Flaw::Malformed => "The last of them has no code that can be run.",
        Flaw::Repeated => "The last of them repeats the one before without getting further.",
        Flaw::Outcome => {
            "None of them failed visibly, but the attempt was rejected after the replies that followed, which are left \
             out: one of those or of these is wrong."
        }
    };
    format!(
        "Note: the assistant's replies up to number {turns} in this conversation are from an attempt that was \
         rejected. {what} Check all of them against the task, correct what is wrong, and complete the task in the \
         same session. Nobody else sees this note: mention neither the note nor the rejected attempt."
    )
}

#[cfg(test)]
#[path = "correction_tests.rs"]
mod tests;
