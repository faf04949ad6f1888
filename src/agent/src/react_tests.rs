use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::*;
use crate::memory_log::MemoryLog;
use crate::{PybenchFormat, ScriptedSolver, observation_text};
use pybench_interpreter::{Collected, InterpreterError, InterruptHandle};
use pybench_llm::{ChatError, ChatModel};
use pybench_run::Price;
use pybench_testing::task::task;

const FORMAT: PybenchFormat = PybenchFormat;

/// Replies with its lines in order, or fails.
#[derive(Default)]
struct Scripted {
    lines: Mutex<VecDeque<Result<Reply, ChatError>>>,
    seen: Mutex<Vec<usize>>,
}

impl Scripted {
    fn new(lines: impl IntoIterator<Item = Result<String, ChatError>>) -> Arc<Self> {
        let reply = |content| Reply {
            content,
            usage: Default::default(),
            truncated: false,
            repetition: false,
        };
        let lines = lines.into_iter().map(|line| line.map(reply)).collect();
        Arc::new(Self {
            lines: Mutex::new(lines),
            ..Self::default()
        })
    }
}

#[async_trait]
impl ChatModel for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }
    fn price(&self) -> Option<Price> {
        None
    }
    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        self.seen.lock().unwrap().push(request.messages.len());
        let line = self.lines.lock().unwrap().pop_front();
        line.unwrap_or(Err(ChatError::Internal("no line left".into())))
    }
}

/// Echoes each cell, with a number that a cell `random` changes; fails on `crash`.
struct Echo {
    cells: Vec<String>,
    noise: u32,
}

#[async_trait]
impl Session for Echo {
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        if code == "crash" {
            return Err(InterpreterError::Protocol("gone".into()));
        }
        self.cells.push(code.to_owned());
        let noise = if code == "random" { self.noise } else { 0 };
        let text = format!("{code} {noise} {}\n", self.cells.len());
        Ok(Observation {
            outputs: vec![Output::Stream {
                name: "stdout".into(),
                text,
            }],
            ..Observation::default()
        })
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

fn step(cell: &str) -> Result<String, ChatError> {
    Ok(FORMAT.write_step("Analyse: a", cell))
}

fn answer(text: &str) -> Result<String, ChatError> {
    Ok(FORMAT.write_answer(text))
}

async fn run(
    teacher: &Arc<Scripted>,
    log: &MemoryLog,
    noise: u32,
) -> (Result<AttemptResult, Failure>, Vec<String>) {
    run_solver(&Solver::Model(teacher.clone()), log, noise, None).await
}

async fn run_solver(
    solver: &Solver,
    log: &MemoryLog,
    noise: u32,
    feedback: Option<&dyn TurnFeedback>,
) -> (Result<AttemptResult, Failure>, Vec<String>) {
    let (task, sampling) = (task(), Sampling::default());
    let attempt = AttemptSpec {
        task: &task,
        sample: 0,
        solver,
        format: &FORMAT,
        sampling: &sampling,
        max_turns: 4,
        max_identical_turns: Some(3),
        code_within_tokens: Some(40),
        feedback,
    };
    let mut session = Echo {
        cells: vec![],
        noise,
    };
    (solve(&attempt, &mut session, log).await, session.cells)
}

#[tokio::test]
async fn cells_and_answers_become_turns() {
    let log = MemoryLog::default();
    let teacher = Scripted::new([step("x = 1"), step("x"), answer("2")]);
    let (solved, cells) = run(&teacher, &log, 0).await;
    let solved = solved.unwrap();
    assert_eq!(solved.end, End::Finished);
    assert_eq!(cells, ["x = 1", "x"]);
    let roles: Vec<_> = solved.messages.iter().map(|m| m.role).collect();
    use Role::*;
    assert_eq!(
        roles,
        [System, User, Assistant, User, Assistant, User, Assistant]
    );
    let observed = &solved.messages[3].content;
    assert_eq!(
        observed,
        "[INFO]This is a Code Interpreter Message:\nx = 1 0 1\n"
    );
    assert_eq!(log.0.lock().unwrap().len(), 5, "every step is recorded");
}

/// Runs the query of the task as a cell, then has no reply. Sample 0 has a fault.
struct OneCell;

impl ScriptedSolver for OneCell {
    fn name(&self) -> &str {
        "one-cell"
    }
    fn reply(&self, task: &Task, _: u32, messages: &[Message]) -> Result<String, String> {
        match messages.iter().any(|m| m.role == Role::Assistant) {
            false => Ok(FORMAT.write_step("", &task.query)),
            true => Err("only one cell".to_owned()),
        }
    }
    fn fault(&self, task: &Task, sample: u32) -> Option<String> {
        (sample == 0).then(|| task.keyword.clone())
    }
}

#[tokio::test]
async fn a_script_knows_the_task() {
    let solver = Solver::Script(Arc::new(OneCell));
    let (solved, cells) = run_solver(&solver, &MemoryLog::default(), 0, None).await;
    assert_eq!(cells, [task().query]);
    let failure = solved.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Internal);
    assert!(failure.detail.contains("`one-cell` has no reply: only one"));
    assert!(!failure.retryable);
    let log = MemoryLog::default();
    run(&Scripted::new([answer("2")]), &log, 0).await.0.unwrap();
    let (solved, _) = run_solver(&solver, &log, 0, None).await;
    assert_eq!(solved.unwrap().fault, Some(task().keyword));
}

/// Runs two cells and answers. The reply with this number is a mistake.
struct Slips(Option<usize>);

impl ScriptedSolver for Slips {
    fn name(&self) -> &str {
        "slips"
    }
    fn reply(&self, _: &Task, _: u32, messages: &[Message]) -> Result<String, String> {
        let replies = messages.iter().filter(|m| m.role == Role::Assistant);
        match replies.count() {
            2 => answer("2"),
            number => step(&number.to_string()),
        }
        .map_err(|error| error.to_string())
    }
    fn mistake(&self, _: &Task, _: u32) -> Option<usize> {
        self.0
    }
}

#[tokio::test]
async fn a_deliberate_mistake_is_not_trained() {
    for (mistake, expected) in [
        (Some(0), [false, true, true]),
        (Some(1), [true, false, true]),
        (None, [true, true, true]),
    ] {
        let solver = Solver::Script(Arc::new(Slips(mistake)));
        let (solved, _) = run_solver(&solver, &MemoryLog::default(), 0, None).await;
        let messages = solved.unwrap().messages;
        let replies = messages.iter().filter(|m| m.role == Role::Assistant);
        let trained: Vec<bool> = replies.map(|m| m.trained).collect();
        assert_eq!(trained, expected);
        assert!(messages.iter().filter(|m| !m.trained).count() <= 1);
    }
}

#[tokio::test]
async fn the_kinds_of_ends_are_distinguished() {
    let just_talk = Scripted::new([Ok("I think it is 2.".to_owned())]);
    let (solved, _) = run(&just_talk, &MemoryLog::default(), 0).await;
    assert_eq!(solved.unwrap().end, End::NoAnswer);

    let tireless = Scripted::new((0..9).map(|n| step(&n.to_string())));
    let (solved, cells) = run(&tireless, &MemoryLog::default(), 0).await;
    let solved = solved.unwrap();
    assert_eq!((solved.end, cells.len()), (End::MaxTurns, 4));
    assert!(solved.turns[3].observation.is_some(), "the last cell runs");
}

/// The end of an attempt that begins with a reply of so many tokens, and the number of its cells.
async fn end_after(content: &str, tokens: u64) -> (Option<End>, usize) {
    let teacher = Scripted::new([Ok(content.to_owned()), step("1")]);
    if let Ok(reply) = &mut teacher.lines.lock().unwrap()[0] {
        reply.usage.completion_tokens = tokens;
    }
    let (solved, cells) = run(&teacher, &MemoryLog::default(), 0).await;
    (solved.ok().map(|solved| solved.end), cells.len())
}

#[tokio::test]
async fn a_long_reply_without_code_ends_the_attempt() {
    assert_eq!(end_after("I think", 40).await, (Some(End::NoCode), 0));
    assert_eq!(end_after("", 40).await, (Some(End::NoCode), 0));
    assert_eq!(end_after("I think", 39).await, (Some(End::NoAnswer), 0));
    assert_eq!(
        end_after("**FINISHED**: 3", 40).await,
        (Some(End::Finished), 0)
    );
    // A cell that never closes has begun: the model is told, and goes on until it has no more to say.
    assert_eq!(end_after("```python\n1", 40).await, (None, 1));
}

#[test]
fn every_reply_with_code_or_an_answer_has_an_opening() {
    for choice in pybench_run::FormatChoice::ALL {
        let format = crate::format(choice);
        let replies = [format.write_step("", "1"), format.write_answer("1")];
        for reply in replies {
            assert!(super::begins(&reply, format.openings()), "{reply}");
        }
        assert!(!super::begins("Let me see.", format.openings()));
    }
}

#[tokio::test]
async fn an_attempt_that_repeats_itself_ends() {
    let within = Scripted::new([step("0"), step("1")]);
    if let Ok(reply) = &mut within.lines.lock().unwrap()[1] {
        (reply.truncated, reply.repetition) = (true, true);
    }
    let (solved, cells) = run(&within, &MemoryLog::default(), 0).await;
    assert_eq!(solved.unwrap().end, End::Repetition);
    assert_eq!(cells, ["0"], "what came before the repetition is not run");

    let again = Scripted::new(["0", "1", "0", "0", "0"].map(step));
    let (solved, cells) = run(&again, &MemoryLog::default(), 0).await;
    assert_eq!((solved.unwrap().end, cells.len()), (End::MaxTurns, 4));

    let stuck = Scripted::new(["1", "0", "0", "0"].map(step));
    let (solved, cells) = run(&stuck, &MemoryLog::default(), 0).await;
    assert_eq!((solved.unwrap().end, cells.len()), (End::Repetition, 4));
}

#[tokio::test]
async fn a_malformed_reply_is_explained_and_the_run_continues() {
    let broken = Ok("<|execute_start|>\n```python\nx".to_owned());
    let mut lines = vec![broken, Ok(String::new()), answer("2")];
    // The first reply was cut at the token limit; otherwise the stop sequence closed it.
    let teacher = Scripted::new(lines.drain(..));
    if let Some(Ok(first)) = teacher.lines.lock().unwrap().front_mut() {
        first.truncated = true;
    }
    let (solved, cells) = run(&teacher, &MemoryLog::default(), 0).await;
    let solved = solved.unwrap();
    assert_eq!(solved.end, End::Finished);
    assert!(cells.is_empty());
    for (turn, word) in [(0, "never closes"), (1, "empty")] {
        let told = solved.turns[turn].observation.as_ref().unwrap();
        assert!(observation_text(told).contains(word), "{told:?}");
        assert_eq!(solved.turns[turn].cell, None);
    }
}

#[tokio::test]
async fn infrastructure_failures_keep_their_kind() {
    let wait = Some(std::time::Duration::from_secs(7));
    let cases = [
        (Err(ChatError::Timeout), FailureKind::Endpoint, true),
        (
            Err(ChatError::RateLimited { retry_after: wait }),
            FailureKind::Endpoint,
            true,
        ),
        (
            Err(ChatError::Unauthorized("no".into())),
            FailureKind::Endpoint,
            false,
        ),
        (
            Err(ChatError::Budget("gone".into())),
            FailureKind::Budget,
            false,
        ),
        (
            Err(ChatError::Internal("x".into())),
            FailureKind::Internal,
            false,
        ),
        (step("crash"), FailureKind::Interpreter, true),
    ];
    for (line, kind, retryable) in cases {
        let (solved, _) = run(&Scripted::new([line.clone()]), &MemoryLog::default(), 0).await;
        let failure = solved.unwrap_err();
        assert_eq!((failure.kind, failure.retryable), (kind, retryable));
        if let Err(error @ ChatError::RateLimited { .. }) = line {
            assert_eq!(failure.retry_after, wait);
            assert!(failure.detail.starts_with(error.kind()));
        }
    }
}

#[tokio::test]
async fn an_interrupted_attempt_resumes_at_any_step() {
    let script = || [step("a"), step("b"), answer("c")];
    let whole = run(&Scripted::new(script()), &MemoryLog::default(), 0).await;
    let whole = whole.0.unwrap();
    let full = MemoryLog::default();
    run(&Scripted::new(script()), &full, 0).await.0.unwrap();
    let steps = full.steps().unwrap();
    for kept in 0..=steps.len() {
        let log = MemoryLog(Mutex::new(steps[..kept].to_vec()));
        let replied = kept.div_ceil(2);
        let rest = Scripted::new(script().into_iter().skip(replied));
        let (solved, cells) = run(&rest, &log, 0).await;
        assert_eq!(solved.unwrap(), whole, "{kept} steps kept");
        assert_eq!(cells, ["a", "b"], "a fresh session runs every cell");
        assert_eq!(log.steps().unwrap(), steps);
        assert_eq!(rest.seen.lock().unwrap().len(), 3 - replied);
    }
}

#[tokio::test]
async fn a_replay_that_differs_starts_over() {
    let log = MemoryLog::default();
    let first = Scripted::new([step("random"), Err(ChatError::Timeout)]);
    run(&first, &log, 1).await.0.unwrap_err();
    assert_eq!(log.steps().unwrap().len(), 2);

    let second = Scripted::new([]);
    let failure = run(&second, &log, 2).await.0.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Replay);
    assert!(failure.retryable);
    assert!(
        log.steps().unwrap().is_empty(),
        "old and new steps are not mixed"
    );
    assert!(
        second.seen.lock().unwrap().is_empty(),
        "no request was sent"
    );

    let third = Scripted::new([step("random"), answer("2")]);
    let (solved, _) = run(&third, &log, 2).await;
    assert!(solved.unwrap().messages[3].content.contains("random 2"));
}

#[tokio::test]
async fn inconsistent_steps_start_over() {
    let observation = Step::Observation {
        observation: Observation::default(),
    };
    let log = MemoryLog(Mutex::new(vec![observation.clone()]));
    let failure = run(&Scripted::new([]), &log, 0).await.0.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Replay);

    let log = MemoryLog::default();
    run(&Scripted::new([answer("2")]), &log, 0).await.0.unwrap();
    log.0.lock().unwrap().push(observation);
    let failure = run(&Scripted::new([]), &log, 0).await.0.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Replay);
    assert!(log.steps().unwrap().is_empty());
}

/// Accepts answers that contain `right`, and counts how often it is asked.
#[derive(Default)]
struct Judge(std::sync::atomic::AtomicUsize);

#[async_trait]
impl TurnFeedback for Judge {
    fn applies(&self, _: &Task) -> bool {
        true
    }

    async fn after_turn(&self, context: &TurnContext<'_>) -> Result<Feedback, Failure> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(context.opening, 2);
        let last = &context.turns.last().unwrap().reply;
        Ok(Feedback {
            ends: context.is_answer && last.contains("right"),
            message: format!(
                "turn {}, answer: {}",
                context.turns.len(),
                context.is_answer
            ),
        })
    }
}

async fn run_judged(teacher: &Arc<Scripted>, log: &MemoryLog, judge: &Judge) -> AttemptResult {
    let solver = Solver::Model(teacher.clone());
    let (solved, _) = run_solver(&solver, log, 0, Some(judge)).await;
    solved.unwrap()
}

#[tokio::test]
async fn feedback_lets_an_attempt_go_on_after_an_answer() {
    let log = MemoryLog::default();
    let judge = Judge::default();
    let teacher = Scripted::new([answer("wrong"), step("x"), answer("right"), answer("never")]);
    let solved = run_judged(&teacher, &log, &judge).await;
    assert_eq!((&solved.end, solved.turns.len()), (&End::Finished, 3));
    use Role::*;
    let roles: Vec<_> = solved.messages.iter().map(|m| m.role).collect();
    assert_eq!(
        roles,
        [
            System, User, Assistant, User, Assistant, User, User, Assistant
        ]
    );
    assert_eq!(solved.messages[3].content, "turn 1, answer: true");
    assert_eq!(solved.messages[6].content, "turn 2, answer: false");
    assert_eq!(judge.0.into_inner(), 3);
    // A replay takes the feedback from the log.
    let judge = Judge::default();
    let again = run_judged(&Scripted::new([]), &log, &judge).await;
    assert_eq!(again, solved);
    assert_eq!(judge.0.into_inner(), 0);
}

#[tokio::test]
async fn an_attempt_with_feedback_ends_at_its_turn_limit_and_when_it_repeats_itself() {
    let judge = Judge::default();
    let teacher = Scripted::new(["a", "b", "c", "d"].map(answer));
    let solved = run_judged(&teacher, &MemoryLog::default(), &judge).await;
    // The last reply is an answer, which is scored.
    assert_eq!((solved.end, solved.turns.len()), (End::Finished, 4));
    let teacher = Scripted::new(["a", "b", "c", "d"].map(step));
    let solved = run_judged(&teacher, &MemoryLog::default(), &judge).await;
    assert_eq!((solved.end, solved.turns.len()), (End::MaxTurns, 4));
    let teacher = Scripted::new([step("a"), step("a"), step("a"), step("a")]);
    let solved = run_judged(&teacher, &MemoryLog::default(), &judge).await;
    assert_eq!((solved.end, solved.turns.len()), (End::Repetition, 3));
}
