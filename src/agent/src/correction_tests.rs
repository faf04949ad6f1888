use std::sync::Mutex;

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

/// An answer as [`Echo`] shows that of the cell `answer: 3` as the first, second or third one.
const SHOWN: &str = "3 1, 3 2 or 3 3";

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
    corrected_by(&Solver::Correction(Arc::new(Expert)), student, log, noise).await
}

async fn corrected_by(
    solver: &Solver,
    student: &Trajectory,
    log: &MemoryLog,
    noise: &'static str,
) -> (Result<AttemptResult, Failure>, Vec<String>) {
    let (task, sampling) = (task(), Sampling::default());
    let spec = AttemptSpec {
        task: &task,
        sample: 0,
        solver,
        format: &FORMAT,
        sampling: &sampling,
        max_turns: 4,
        max_identical_turns: Some(2),
        code_within_tokens: None,
        feedback: None,
    };
    let mut session = Echo {
        noise,
        ..Echo::default()
    };
    let result = correct(&spec, student, &mut session, log).await;
    (result, session.cells)
}

#[test]
fn the_context_ends_with_the_first_failing_turn_or_before_the_first_result() {
    let (a, b) = (step("a"), step("b"));
    let (shown, saved) = (step("answer: 3"), step("save('./output/a.csv')"));
    let outputs = ["output/a.csv".to_owned()];
    let (fail, answer) = (step("fail"), FORMAT.write_answer(SHOWN));
    let other = FORMAT.write_answer("4");
    let error = Flaw::Error("KeyError".into());
    let open = "```python\nx";
    for (replies, kept, flaw) in [
        (vec![&*a, &fail, &b, &answer], 2, error.clone()),
        (vec![&fail, &fail, &answer], 1, error),
        (vec![&a, &b, &answer], 2, Flaw::Outcome),
        (vec![&answer], 0, Flaw::Outcome),
        (vec![&a, open, &answer], 2, Flaw::Malformed),
        (vec![&a, &b, &b, &b], 3, Flaw::Repeated),
        (vec![&a, &b, &shown, &b, &answer], 2, Flaw::Outcome),
        (vec![&a, &saved, &b, &answer], 1, Flaw::Outcome),
        (vec![&shown, &answer], 0, Flaw::Outcome),
        // The answer is not the one that was shown.
        (vec![&a, &shown, &other], 2, Flaw::Outcome),
        // It ran out of turns.
        (vec![&a, &b], 1, Flaw::Outcome),
        (vec![], 0, Flaw::Outcome),
    ] {
        let student = attempt(&replies);
        let (turns, found) = context(&student, &outputs);
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
async fn a_script_says_nothing_of_a_wrong_outcome() {
    let student = attempt(&[&step("a"), &step("answer: 3"), &FORMAT.write_answer(SHOWN)]);
    let (result, cells) = corrected(&student, &MemoryLog::default(), "").await;
    assert_eq!(cells, ["a", "look", "compute"]);
    let first = &result.unwrap().turns[1].reply;
    assert!(first.starts_with("I look.\n"), "{first}");
}

#[test]
fn a_script_rejects_the_turn_that_failed_and_a_model_the_next_one() {
    let (a, fail, answer) = (step("a"), step("fail"), FORMAT.write_answer(SHOWN));
    let student = attempt(&[&a, &fail, &answer]);
    let looks = FORMAT.write_step("I look.", "look");
    let of = |student: &Trajectory, kept, first: &str| {
        let contrast = contrast(student, (&[], Language::En), kept, first)?;
        Some((contrast.turn, contrast.better))
    };
    let flaw = Flaw::Error("KeyError".into());
    let remarked = with_remark(&remark(&flaw, false, Language::En), &looks);
    assert_eq!(of(&student, 2, &remarked), Some((1, looks.clone())));
    assert_eq!(of(&student, 2, &looks), Some((2, looks.clone())));
    assert_eq!(of(&student, 1, &remarked), None);
    // Without the failing turn, the script would have looked first.
    let misnamed = attempt(&[&fail, &a, &answer]);
    assert_eq!(of(&misnamed, 1, &remarked), None);
    assert_eq!(of(&misnamed, 1, &looks), Some((1, looks.clone())));
    // The first result of a wrong outcome is rejected; neither the only turn nor an end is.
    let shown = step("answer: 3");
    let student = attempt(&[&a, &shown, &answer]);
    assert_eq!(of(&student, 1, &looks), Some((1, looks.clone())));
    assert_eq!(of(&attempt(&[&shown, &answer]), 0, &looks), None);
    assert_eq!(of(&attempt(&[&a, &answer]), 1, &looks), None);
}

#[test]
fn a_remark_can_be_taken_out() {
    for reply in ["I look.\ncell", "Analyse: I look."] {
        let remarked = with_remark("It failed.", reply);
        assert_eq!(without_remark("It failed.", &remarked).unwrap(), reply);
        assert_eq!(without_remark("It failed.", reply), None);
    }
}

/// Answers at once, and says whether it begins or resumes.
struct Resumes;

impl ScriptedSolver for Resumes {
    fn name(&self) -> &str {
        "resumes"
    }
    fn reply(&self, _: &Task, _: u32, _: &[Message]) -> Result<String, String> {
        Ok(FORMAT.write_answer("begins"))
    }
    fn resume(&self, _: &Task, _: u32, _: &[Message]) -> Result<String, String> {
        Ok(FORMAT.write_answer("resumes"))
    }
}

#[tokio::test]
async fn a_script_resumes_where_the_student_has_seen_the_files() {
    let (a, fail, answer) = (step("a"), step("fail"), FORMAT.write_answer("3"));
    let open = "```python\nx";
    for (replies, expected) in [
        (vec![&*a, &a, &answer], "resumes"),
        // It fails with a `KeyError`.
        (vec![&fail, &answer], "resumes"),
        (vec![open, &answer], "begins"),
        (vec![&answer], "begins"),
    ] {
        let student = attempt(&replies);
        let script = Solver::Correction(Arc::new(Resumes));
        let (result, _) = corrected_by(&script, &student, &MemoryLog::default(), "").await;
        let last = result.unwrap().turns.pop().unwrap().reply;
        assert!(last.ends_with(expected), "{last}");
    }
}

/// A model that computes once and answers with the number of messages that it saw first. It keeps what it saw.
#[derive(Default)]
struct Teacher(Mutex<Vec<Vec<Message>>>);

#[async_trait]
impl ChatModel for Teacher {
    fn name(&self) -> &str {
        "openai:teacher"
    }
    fn price(&self) -> Option<Price> {
        None
    }
    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let mut seen = self.0.lock().unwrap();
        seen.push(request.messages.to_vec());
        let content = match seen.len() {
            1 => step("compute"),
            _ => FORMAT.write_answer(&seen[0].len().to_string()),
        };
        Ok(Reply {
            content,
            usage: Usage {
                prompt_tokens: 5,
                completion_tokens: 5,
            },
            truncated: false,
            repetition: false,
        })
    }
}

#[tokio::test]
async fn a_model_continues_what_it_sees_as_its_own() {
    let fail = step("fail");
    let student = attempt(&[&step("a"), &fail, &fail, &FORMAT.write_answer("3")]);
    let model = Arc::new(Teacher::default());
    let teacher = Solver::Model(model.clone());
    let (result, cells) = corrected_by(&teacher, &student, &MemoryLog::default(), "").await;
    let result = result.unwrap();
    assert_eq!(cells, ["a", "fail", "compute"]);
    let note = note(&Flaw::Error("KeyError".into()), 2);
    let prompts = model.0.lock().unwrap();
    for prompt in prompts.iter() {
        assert_eq!(prompt[0].content, format!("{}\n\n{note}", FORMAT.system()));
        let kept = result.messages.iter().zip(prompt).skip(1);
        for (kept, seen) in kept {
            assert_eq!((kept.role, &kept.content), (seen.role, &seen.content));
        }
    }
    assert_eq!(prompts.len(), 2);
    assert_eq!(result.messages[0].content, FORMAT.system());
    let opening = FORMAT.initial_messages(&task()).len();
    let answer = format!("Finished:\n{}", opening + 4);
    assert_eq!(result.turns.last().unwrap().reply, answer);
    let replies = result.messages.iter();
    let replies = replies.filter(|m| m.role == Role::Assistant);
    let trained: Vec<bool> = replies.map(|m| m.trained).collect();
    assert_eq!(trained, [false, false, true, true]);
    assert_eq!(result.corrects.unwrap().turns, 2);
    let paid: Vec<u64> = result.turns.iter().map(|turn| turn.usage.total()).collect();
    assert_eq!(paid, [0, 0, 10, 10]);
}

/// A model that always gives this reply.
struct Stuck(String);

#[async_trait]
impl ChatModel for Stuck {
    fn name(&self) -> &str {
        "openai:stuck"
    }
    fn price(&self) -> Option<Price> {
        None
    }
    async fn reply(&self, _: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        Ok(Reply {
            content: self.0.clone(),
            usage: Usage::default(),
            truncated: false,
            repetition: false,
        })
    }
}

#[tokio::test]
async fn equal_replies_of_the_student_do_not_count_as_repeated() {
    let (a, b) = (step("a"), step("b"));
    let student = attempt(&[&a, &b, &b, &b]);
    let teacher = Solver::Model(Arc::new(Stuck(b)));
    let (result, cells) = corrected_by(&teacher, &student, &MemoryLog::default(), "").await;
    let result = result.unwrap();
    assert_eq!(cells, ["a", "b", "b", "b", "b"]);
    assert_eq!((result.end, result.turns.len()), (End::Repetition, 5));
    assert_eq!(result.corrects.unwrap().turns, 3);
}

#[tokio::test]
async fn a_model_that_has_to_begin_reads_no_note() {
    let student = attempt(&[&FORMAT.write_answer("3")]);
    let model = Arc::new(Teacher::default());
    let teacher = Solver::Model(model.clone());
    let (result, _) = corrected_by(&teacher, &student, &MemoryLog::default(), "").await;
    result.unwrap();
    let prompts = model.0.lock().unwrap();
    assert_eq!(prompts[0], FORMAT.initial_messages(&task()));
}

#[test]
fn notes_differ_by_what_went_wrong_and_have_a_limit() {
    let flaws = [
        Flaw::Error("KeyError".into()),
        Flaw::Stopped,
        Flaw::Malformed,
        Flaw::Repeated,
        Flaw::Outcome,
    ];
    let notes = flaws.map(|flaw| note(&flaw, 100));
    for (at, one) in notes.iter().enumerate() {
        assert!(one.len() + 2 <= MAX_CORRECTION_NOTE, "{}", one.len());
        assert!(!notes[..at].contains(one), "{one}");
    }
    let messages = [Message::new(Role::User, "q")];
    let advised = Advised {
        model: Arc::new(Teacher::default()),
        note: "n".into(),
    };
    let expected = [
        Message::new(Role::System, "n"),
        Message::new(Role::User, "q"),
    ];
    assert_eq!(advised.advise(&messages), expected);
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
