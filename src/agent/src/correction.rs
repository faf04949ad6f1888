//! Corrections on the path of a student: its turns up to the first failing one stay as context, and a script continues.
//!
//! As in DAgger (Ross et al., 2011) the script says what to do in a state that the student reached itself. The state is
//! restored as a fork of the session would be: the student's cells run again, with the same seed, and every observation
//! must be the same. A person who edits a turn continues in the same way ([`fork`]).

use std::sync::Arc;

use pybench_interpreter::Session;
use pybench_llm::Reply;
use pybench_run::Failure;
use pybench_types::observation::Observation;
use pybench_types::task::{Language, Task};
use pybench_types::trajectory::{Corrected, Message, Role, Trajectory, Turn, Usage};

use crate::{AttemptResult, AttemptSpec, CORRECTION, ScriptedSolver, Solver, Step, TurnLog, solve};

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
    /// No turn failed, but the outcome is wrong: the student's last turn is left out.
    Outcome,
}

/// The turns that a correction keeps, and why it corrects. A failing turn is kept with its observation, so that the
/// model learns to repair what it sees; where no turn fails, the last one is left out, because the answer in it, or the
/// lack of one, is the first thing that is known to be wrong.
fn context(student: &Trajectory) -> (&[Turn], Flaw) {
    let turns = &student.turns;
    for (at, turn) in turns.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &turns[before]);
        if let Some(flaw) = flaw(turn, before) {
            return (&turns[..=at], flaw);
        }
    }
    (&turns[..turns.len().saturating_sub(1)], Flaw::Outcome)
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

/// Continues the attempt of a student with a script, from its first failing turn on. `spec` has the solver that is named in
/// the result; the rest is as in [`fork`].
///
/// # Errors
/// As [`fork`].
pub async fn correct(
    spec: &AttemptSpec<'_>,
    script: &Arc<dyn ScriptedSolver>,
    student: &Trajectory,
    session: &mut dyn Session,
    log: &dyn TurnLog,
) -> Result<AttemptResult, Failure> {
    let (turns, flaw) = context(student);
    let messages = turns.iter().map(|turn| 1 + turn.observations().count());
    let opening = spec.format.initial_messages(spec.task).len();
    let solver = Solver::Script(Arc::new(Continuation {
        script: script.clone(),
        skip: opening + messages.sum::<usize>(),
        remark: remark(&flaw, turns.is_empty(), spec.task.language),
    }));
    let spec = AttemptSpec {
        solver: &solver,
        // The student may have sent equal replies.
        max_identical_turns: None,
        ..*spec
    };
    fork(&spec, student, turns.len(), session, log).await
}

/// Continues a recorded attempt after its first `keep` turns with the solver of `spec`, which may send `max_turns` replies
/// more. The replies that are kept are context: they are not trained. `session` is fresh and has the seed of the recorded
/// one.
///
/// # Errors
/// As [`solve`]; [`FailureKind::Replay`](pybench_run::FailureKind::Replay) if the recorded cells do not give the same
/// observations again.
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
    let mut solved = solve(&spec, session, log).await?;
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

/// Records the turns as the first steps of the trajectory, so that [`solve`] replays them. A process that was killed
/// may have recorded some of them.
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
}

impl ScriptedSolver for Continuation {
    fn name(&self) -> &str {
        CORRECTION
    }

    fn reply(&self, task: &Task, sample: u32, messages: &[Message]) -> Result<String, String> {
        let own = messages.get(self.skip..).unwrap_or_default();
        let reply = self.script.reply(task, sample, own)?;
        Ok(match own.is_empty() && !self.remark.is_empty() {
            true => with_remark(&self.remark, &reply),
            false => reply,
        })
    }
}

/// The reply with the remark at the beginning of its thought.
fn with_remark(remark: &str, reply: &str) -> String {
    const LABEL: &str = "Analyse:";
    match reply.strip_prefix(LABEL) {
        Some(rest) => format!("{LABEL} {remark} {}", rest.trim_start()),
        None => format!("{remark} {reply}"),
    }
}

/// What the expert says first, after what it sees.
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
        (Language::En, Flaw::Outcome) => {
            "Before I finish I go through the task once more, step by step.".into()
        }
        (Language::Zh, Flaw::Error(name)) => {
            format!("上一段代码报错 {name}，我回到数据重新处理。")
        }
        (Language::Zh, Flaw::Stopped) => "上一段代码被中止，我换一种做法。".into(),
        (Language::Zh, Flaw::Malformed) => "上一条回复没有可运行的代码，我把它写成代码块。".into(),
        (Language::Zh, Flaw::Repeated) => "我在重复同样的步骤，重新开始。".into(),
        (Language::Zh, Flaw::Outcome) => "结束之前，我再按步骤核对一遍。".into(),
    }
}

#[cfg(test)]
#[path = "correction_tests.rs"]
mod tests;
