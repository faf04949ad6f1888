use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::memory_log::MemoryLog;
use crate::{Format, PybenchFormat};
use pybench_interpreter::{Collected, InterpreterError, InterruptHandle};
use pybench_run::FailureKind;
use pybench_testing::task::task;
use pybench_types::id::Digest;
use pybench_types::observation::{CellError, Output};
use pybench_types::trajectory::{End, Sampling};

const FORMAT: PybenchFormat = PybenchFormat;

/// Prints each cell and how many ran before it; a cell that begins with `fail` raises.
#[derive(Default)]
struct Echo {
    cells: Vec<String>,
    noise: &'static str,
}

impl Echo {
    fn run(&mut self, code: &str) -> Observation {
        self.cells.push(code.to_owned());
        let text = format!("{code} {}{}\n", self.cells.len(), self.noise);
        let error = code.starts_with("fail").then(|| CellError {
            ename: "KeyError".into(),
            evalue: "'x'".into(),
            traceback: "KeyError: 'x'".into(),
        });
        Observation {
            outputs: vec![Output::Stream {
                name: "stdout".into(),
                text,
            }],
            error,
            ..Observation::default()
        }
    }
}

#[async_trait]
impl Session for Echo {
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        Ok(self.run(code))
    }
    fn interrupt_handle(&self) -> InterruptHandle {
        InterruptHandle::new().0
    }
    async fn read_outputs(&mut self) -> Result<Collected, InterpreterError> {
        Ok(Collected::default())
    }
    async fn close(self: Box<Self>) -> Result<(), InterpreterError> {
        Ok(())
    }
}

/// Looks, computes, and answers with the last line that it saw.
struct Expert;

impl ScriptedSolver for Expert {
    fn name(&self) -> &str {
        "expert"
    }

    fn reply(&self, _: &Task, _: u32, messages: &[Message]) -> Result<String, String> {
        let seen: Vec<&str> = messages
            .iter()
            .filter_map(|message| FORMAT.parse_observation(message))
            .collect();
        Ok(match seen.as_slice() {
            [] => FORMAT.write_step("I look.", "look"),
            [_] => FORMAT.write_step("I compute.", "compute"),
            [.., last] => FORMAT.write_answer(last.trim()),
        })
    }
}

/// The attempt of a student that writes these replies.
fn attempt(replies: &[&str]) -> Trajectory {
    let mut session = Echo::default();
    let turn = |reply: &&str| {
        let cells = FORMAT.parse(reply).cells();
        let cell = cells.first().and_then(|cell| cell.clone().ok());
        let malformed = cells.first().is_some_and(Result::is_err);
        Turn {
            reply: (*reply).to_owned(),
            observation: match &cell {
                Some(cell) => Some(session.run(cell)),
                None => malformed.then(Observation::default),
            },
            cell,
            more: Vec::new(),
            usage: Usage {
                prompt_tokens: 9,
                completion_tokens: 9,
            },
        }
    };
    Trajectory {
        id: Digest::of_bytes(b"a"),
        task: task().id,
        teacher: "openai:student".into(),
        sampling: Sampling::default(),
        sample: 0,
        seed: 1,
        environment: String::new(),
        format: "pybench".into(),
        messages: Vec::new(),
        turns: replies.iter().map(turn).collect(),
        outputs: Vec::new(),
        end: End::Finished,
        fault: None,
        corrects: None,
    }
}

fn step(cell: &str) -> String {
    FORMAT.write_step("Analyse: a", cell)
}

async fn corrected(
    student: &Trajectory,
    log: &MemoryLog,
    noise: &'static str,
) -> (Result<AttemptResult, Failure>, Vec<String>) {
    let (task, sampling) = (task(), Sampling::default());
    let script: Arc<dyn ScriptedSolver> = Arc::new(Expert);
    let solver = Solver::Correction(script.clone());
    let spec = AttemptSpec {
        task: &task,
        sample: 0,
        solver: &solver,
        format: &FORMAT,
        sampling: &sampling,
        max_turns: 4,
        max_identical_turns: None,
        feedback: None,
    };
    let mut session = Echo {
        noise,
        ..Echo::default()
    };
    let result = correct(&spec, &script, student, &mut session, log).await;
    (result, session.cells)
}

#[test]
fn the_context_ends_with_the_first_failing_turn_or_before_the_wrong_answer() {
    let (a, b) = (step("a"), step("b"));
    let (fail, answer) = (step("fail"), FORMAT.write_answer("3"));
    let error = Flaw::Error("KeyError".into());
    let open = "```python\nx";
    for (replies, kept, flaw) in [
        (vec![&*a, &fail, &b, &answer], 2, error.clone()),
        (vec![&fail, &fail, &answer], 1, error),
        (vec![&a, &b, &answer], 2, Flaw::Outcome),
        (vec![&answer], 0, Flaw::Outcome),
        (vec![&a, open, &answer], 2, Flaw::Malformed),
        (vec![&a, &b, &b, &b], 3, Flaw::Repeated),
        // It ran out of turns.
        (vec![&a, &b], 1, Flaw::Outcome),
        (vec![], 0, Flaw::Outcome),
    ] {
        let student = attempt(&replies);
        let (turns, found) = context(&student);
        assert_eq!((turns.len(), found), (kept, flaw), "{replies:?}");
    }
}

#[tokio::test]
async fn a_script_continues_after_the_failing_turn_in_the_same_state() {
    let student = attempt(&[&step("a"), &step("fail"), &FORMAT.write_answer("3")]);
    let (result, cells) = corrected(&student, &MemoryLog::default(), "").await;
    let result = result.unwrap();
    assert_eq!(cells, ["a", "fail", "look", "compute"]);
    assert_eq!(result.end, End::Finished);
    assert_eq!(result.turns.last().unwrap().reply, "Finished:\ncompute 4");
    let trained = result.messages.iter();
    let trained = trained.filter(|m| m.role == Role::Assistant);
    let trained: Vec<bool> = trained.map(|m| m.trained).collect();
    assert_eq!(trained, [false, false, true, true, true]);
    let first = &result.turns[2].reply;
    let remark = "The last cell failed with KeyError, so I go back to the data. I look.\n";
    assert!(first.starts_with(remark), "{first}");
    let corrects = Corrected {
        student: "openai:student".into(),
        turns: 2,
    };
    assert_eq!(result.corrects, Some(corrects));
    let paid = result.turns.iter().map(|turn| turn.usage);
    assert!(paid.eq([Usage::default(); 5]), "the student has paid");
}

#[tokio::test]
async fn a_kill_at_any_step_changes_nothing() {
    let student = attempt(&[&step("a"), &step("fail"), &FORMAT.write_answer("3")]);
    let log = MemoryLog::default();
    let whole = corrected(&student, &log, "").await.0.unwrap();
    let steps = log.steps().unwrap();
    assert_eq!(steps.len(), 9);
    assert_eq!(crate::live_turns(&steps, &FORMAT), whole.turns);
    for kept in 0..steps.len() {
        let log = MemoryLog(Mutex::new(steps[..kept].to_vec()));
        assert_eq!(
            corrected(&student, &log, "").await.0.unwrap(),
            whole,
            "{kept}"
        );
    }
}

#[tokio::test]
async fn cells_that_do_not_repeat_are_a_failure_of_replay() {
    let student = attempt(&[&step("a"), &step("fail"), &FORMAT.write_answer("3")]);
    let failure = corrected(&student, &MemoryLog::default(), "!").await.0;
    assert_eq!(failure.unwrap_err().kind, FailureKind::Replay);
}
