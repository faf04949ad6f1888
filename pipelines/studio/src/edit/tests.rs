//! Edits over a session that prints each cell and how many ran before it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pybench_agent::{Format, PybenchFormat};
use pybench_grade::TrajectoryChecker;
use pybench_interpreter::{
    Collected, Interpreter, InterpreterError, InterruptHandle, Session, SessionSpec,
};
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::{ContentStore, ExitCode, Failure, Filter, Journal, Price, RunError};
use pybench_show::TrajectorySource;
use pybench_testing::endpoint::{Answer, Endpoint};
use pybench_testing::task::task;
use pybench_types::human_edit::{AuthorKind, HUMAN_EDITED, Lineage};
use pybench_types::observation::{Observation, Output};
use pybench_types::task::Task;
use pybench_types::trajectory::{End, Finding, Outcome, Role, Sampling, Trajectory, Turn, Usage};
use serde_json::{Value, json};

use super::continuation::{Continuation, ContinueRequest};
use super::fork::{Fork, Phase};
use super::forks::{Forks, MAX_FORKS};
use super::models::ModelPlace;
use super::plan::{ForkRequest, MAX_TURNS, Plan};
use super::session::MAX_COPIES;
use super::subject::{SavePlace, Subject};
use super::written::WrittenTurn;
use crate::saved_edits::{self, SaveRequest};
use crate::shared_models::SharedModels;
use crate::sources::{Sources, What};

const FORMAT: PybenchFormat = PybenchFormat;
const LONG: Duration = Duration::from_secs(600);

/// Starts sessions of [`Echo`] and counts those that are open, and the cells that they ran.
#[derive(Clone)]
struct Echoes {
    noise: &'static str,
    can_fork: bool,
    open: Arc<AtomicUsize>,
    cells: Arc<AtomicUsize>,
}

struct Echo {
    ran: usize,
    kind: Echoes,
}

impl Echo {
    fn start(kind: &Echoes, ran: usize) -> Box<dyn Session> {
        kind.open.fetch_add(1, Ordering::SeqCst);
        let kind = kind.clone();
        Box::new(Self { ran, kind })
    }
}

fn observed(code: &str, ran: usize, noise: &str) -> Observation {
    Observation {
        outputs: vec![Output::Stream {
            name: "stdout".into(),
            text: format!("{code} {ran}{noise}\n"),
        }],
        ..Observation::default()
    }
}

#[async_trait::async_trait]
impl Interpreter for Echoes {
    async fn start(&self, _: SessionSpec) -> Result<Box<dyn Session>, InterpreterError> {
        Ok(Echo::start(self, 0))
    }
    fn environment(&self) -> &str {
        "e"
    }
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait::async_trait]
impl Session for Echo {
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        if code == "sleep" {
            tokio::time::sleep(LONG).await;
        }
        self.ran += 1;
        self.kind.cells.fetch_add(1, Ordering::SeqCst);
        Ok(observed(code, self.ran, self.kind.noise))
    }
    async fn fork(&mut self) -> Result<Box<dyn Session>, InterpreterError> {
        match self.kind.can_fork {
            true => Ok(Echo::start(&self.kind, self.ran)),
            false => Err(InterpreterError::Fork("made for a test".to_owned())),
        }
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

impl Drop for Echo {
    fn drop(&mut self) {
        self.kind.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Accepts the answer 2.
struct WantsTwo;

#[async_trait::async_trait]
impl TrajectoryChecker for WantsTwo {
    async fn check(&self, _: &Task, trajectory: &Trajectory) -> Result<Vec<Finding>, Failure> {
        let outcome = match trajectory.answer().ends_with('2') {
            true => Outcome::Pass,
            false => Outcome::Fail,
        };
        Ok(vec![Finding {
            filter: "check".into(),
            subject: "number".into(),
            outcome,
            detail: String::new(),
            mismatch: None,
        }])
    }
    fn digest(&self) -> &str {
        "c"
    }
}

/// Looks twice, and gives a wrong answer.
fn recorded() -> Trajectory {
    let turn = |reply: String, observation: Option<Observation>| Turn {
        cell: FORMAT
            .parse(&reply)
            .cells()
            .first()
            .and_then(|cell| cell.clone().ok()),
        reply,
        observation,
        more: Vec::new(),
        usage: Usage {
            prompt_tokens: 9,
            completion_tokens: 9,
        },
    };
    let (task, sampling) = (task().id, Sampling::default());
    let id = Trajectory::compute_id(&task, "m", &sampling, "pybench", 0);
    Trajectory {
        seed: id.seed(),
        id,
        task,
        teacher: "m".into(),
        sampling,
        sample: 0,
        environment: "e".into(),
        format: "pybench".into(),
        messages: Vec::new(),
        turns: vec![
            turn(
                FORMAT.write_step("I look.", "a"),
                Some(observed("a", 1, "")),
            ),
            turn(
                FORMAT.write_step("I count.", "b"),
                Some(observed("b", 2, "")),
            ),
            turn(FORMAT.write_answer("3"), None),
        ],
        outputs: Vec::new(),
        end: End::Finished,
        fault: None,
        corrects: None,
    }
}

/// A run with that trajectory, and the edits of it.
struct Bench {
    folder: tempfile::TempDir,
    sources: Sources,
    forks: Arc<Forks>,
    open: Arc<AtomicUsize>,
    cells: Arc<AtomicUsize>,
}

impl Bench {
    fn new(lease: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("runs/r");
        std::fs::create_dir_all(&run).unwrap();
        let journal = Journal::open(&run.join("journal.sqlite")).unwrap();
        let item = [recorded().id.to_string()];
        journal.enqueue("rollout", &item).unwrap();
        let output = serde_json::to_value(recorded()).unwrap();
        journal.complete("rollout", &item[0], &output).unwrap();
        let what = What::Runs(folder.path().join("runs"));
        let place = ModelPlace {
            root: folder.path().to_owned(),
            recipe: folder.path().join("agents.toml"),
            runs_dir: folder.path().join("no-runs"),
            replies: folder.path().join("replies"),
            drafts: folder.path().join("drafts"),
        };
        let models = Arc::new(SharedModels::new(place.root.clone()));
        Self {
            sources: Sources::new(what, folder.path().join("cache")),
            forks: Arc::new(Forks::with_lease(place, models, lease)),
            open: Arc::default(),
            cells: Arc::default(),
            folder,
        }
    }

    fn plan(&self, turn: u32, noise: &'static str) -> Plan {
        self.plan_in(turn, noise, true)
    }

    fn plan_in(&self, turn: u32, noise: &'static str, can_fork: bool) -> Plan {
        let store = ContentStore::open(&self.folder.path().join("runs/r/files")).unwrap();
        let recorded = recorded();
        Plan {
            task: task(),
            format: &FORMAT,
            lineage: Lineage {
                trajectory: recorded.id.clone(),
                turn,
                editor: "ann".into(),
                saved_at: 0,
                authors: Vec::new(),
            },
            is_rejected: true,
            session: SessionSpec::default(),
            interpreter: Arc::new(Echoes {
                noise,
                can_fork,
                open: self.open.clone(),
                cells: self.cells.clone(),
            }),
            checker: Arc::new(WantsTwo),
            filters: vec![Filter::Format, Filter::Finished, Filter::Check],
            store,
            saved_in: SavePlace::Source,
            recorded,
        }
    }

    fn begin(&self, plan: Plan, turns: Vec<WrittenTurn>) -> Result<Option<Arc<Fork>>, RunError> {
        self.begin_or_resume(plan, turns, false)
    }

    fn begin_or_resume(
        &self,
        plan: Plan,
        turns: Vec<WrittenTurn>,
        resume: bool,
    ) -> Result<Option<Arc<Fork>>, RunError> {
        let request = ForkRequest {
            trajectory: plan.recorded.id.to_string(),
            turn: plan.lineage.turn,
            editor: "ann".into(),
            turns,
            resume,
        };
        self.forks.begin("r".into(), plan, request)
    }

    fn save(&self, fork: &Fork, repair: bool, pair: bool) -> Result<(), RunError> {
        let opened = self.sources.open("r").unwrap().unwrap();
        fork.save(&opened, SaveRequest { repair, pair })
    }
}

fn cell(text: &str, code: &str) -> WrittenTurn {
    WrittenTurn {
        text: text.into(),
        cells: vec![code.into()],
        ..WrittenTurn::default()
    }
}

fn answer(text: &str) -> WrittenTurn {
    WrittenTurn {
        text: text.into(),
        ..WrittenTurn::default()
    }
}

fn as_recorded(number: u32) -> WrittenTurn {
    WrittenTurn {
        recorded: Some(number),
        ..WrittenTurn::default()
    }
}

async fn until(fork: &Fork, phase: Phase) {
    for _ in 0..3000 {
        if fork.view().phase == phase {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never {phase:?}: {:?}", fork.view());
}

fn text_of(error: RunError) -> String {
    assert_eq!(error.exit_code(), ExitCode::BadInput, "{error}");
    error.to_string()
}

#[tokio::test]
async fn an_edited_turn_runs_in_the_restored_state_and_is_saved_when_the_checks_accept_it() {
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    let view = fork.view();
    let cells: Vec<&[String]> = view.recorded.iter().map(|turn| &*turn.cells).collect();
    assert_eq!(cells, [&["b".to_owned()][..], &[]]);
    assert_eq!((view.turns.len(), view.recorded[1].text.as_str()), (0, "3"));
    assert!(text_of(bench.save(&fork, true, true).unwrap_err()).contains("no verdict yet"));

    fork.send(0, vec![cell("I count again.", "better")])
        .unwrap();
    until(&fork, Phase::Waiting).await;
    let shown = serde_json::to_value(fork.view().turns).unwrap();
    // One cell ran before it.
    assert_eq!(shown[0]["cells"][0]["outputs"][0]["text"], "better 2\n");
    let stale = fork.send(0, vec![answer("2")]).unwrap_err();
    assert_eq!(stale.exit_code(), ExitCode::Conflict);
    fork.send(1, vec![as_recorded(3)]).unwrap();
    until(&fork, Phase::Checked).await;
    assert!(!fork.view().verdict.unwrap().accepted);
    let refused = text_of(bench.save(&fork, true, true).unwrap_err());
    assert!(refused.contains("do not accept"), "{refused}");

    // The same turns with another answer.
    let turns = [&fork.view().written[..1], &[answer("2")]].concat();
    let fork = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&fork, Phase::Checked).await;
    assert!(text_of(bench.save(&fork, false, false).unwrap_err()).contains("`pair`"));
    bench.save(&fork, true, false).unwrap();
    bench.save(&fork, false, true).unwrap();
    let info = fork.view().saved.unwrap();
    assert!(info.repair && info.pair, "{info:?}");
    // Another page saves the same turns.
    let turns = fork.view().written;
    let again = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&again, Phase::Checked).await;
    bench.save(&again, true, false).unwrap();
    let info = again.view().saved.unwrap();
    assert!(info.repair && info.pair, "{info:?}");
    let run = bench.folder.path().join("runs/r");
    assert_eq!(
        saved_edits::edits_of(&run, recorded().id.as_str()).unwrap(),
        std::slice::from_ref(&info)
    );
    assert_eq!(saved_edits::edits_of(&run, "x").unwrap(), []);
    let edit = saved_edits::edit(&run, recorded().id.as_str(), &info.id)
        .unwrap()
        .unwrap();
    let trajectory = edit.trajectory;
    assert!(
        trajectory.teacher.starts_with(HUMAN_EDITED),
        "{}",
        trajectory.teacher
    );
    assert_eq!(
        (trajectory.seed, &*trajectory.environment),
        (recorded().seed, "e")
    );
    let replies = trajectory
        .messages
        .iter()
        .filter(|m| m.role == Role::Assistant);
    let trained: Vec<bool> = replies.map(|reply| reply.trained).collect();
    assert_eq!(trained, [false, true, true]);
    let corrects = trajectory.corrects.unwrap();
    assert_eq!((&*corrects.student, corrects.turns), ("m", 1));

    let pairs = saved_edits::preferences(&run).unwrap();
    let pair: Value = serde_json::from_str(pairs.trim()).unwrap();
    let message = |text: String| json!([{"role": "assistant", "content": text}]);
    assert_eq!(
        pair["chosen"],
        message(FORMAT.write_step("I count again.", "better"))
    );
    assert_eq!(
        pair["rejected"],
        message(FORMAT.write_step("I count.", "b"))
    );
    let prompt = pair["prompt"].as_array().unwrap();
    assert!(
        prompt.last().unwrap()["content"]
            .as_str()
            .unwrap()
            .contains("a 1")
    );
}

/// The text that the cell of a turn of the edit printed.
fn printed(fork: &Fork, turn: usize) -> String {
    let shown = serde_json::to_value(fork.view().turns).unwrap();
    let text = &shown[turn]["cells"][0]["outputs"][0]["text"];
    text.as_str().unwrap().to_owned()
}

/// Waits until the session was copied after this number of turns.
async fn until_copied(fork: &Fork, turns: usize) {
    for _ in 0..3000 {
        if fork.view().copied.contains(&turns) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never copied: {:?}", fork.view());
}

async fn run_turn(fork: &Fork, after: usize, code: &str) {
    until(fork, Phase::Waiting).await;
    until_copied(fork, after).await;
    fork.send(after, vec![cell("I go on.", code)]).unwrap();
    until(fork, Phase::Waiting).await;
}

#[tokio::test]
async fn another_try_and_undo_run_no_cell_again() {
    let bench = Bench::new(LONG);
    let cells = || bench.cells.load(Ordering::SeqCst);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    run_turn(&fork, 0, "x").await;
    run_turn(&fork, 1, "y").await;
    until_copied(&fork, 2).await;
    // One was replayed.
    assert_eq!(cells(), 3);

    // The last turn is undone, and the next one is another.
    fork.back(1).unwrap();
    assert_eq!(fork.view().written.len(), 1);
    run_turn(&fork, 1, "z").await;
    assert_eq!(
        (printed(&fork, 0), printed(&fork, 1)),
        ("x 2\n".to_owned(), "z 3\n".to_owned())
    );
    assert_eq!(cells(), 4);
    // Everything is undone.
    fork.back(0).unwrap();
    run_turn(&fork, 0, "better").await;
    assert_eq!(printed(&fork, 0), "better 2\n");
    assert_eq!(cells(), 5);
    // Also after a verdict.
    fork.send(1, vec![answer("3")]).unwrap();
    until(&fork, Phase::Checked).await;
    fork.back(1).unwrap();
    until(&fork, Phase::Waiting).await;
    fork.send(1, vec![answer("2")]).unwrap();
    until(&fork, Phase::Checked).await;
    assert!(fork.view().verdict.unwrap().accepted);
    assert_eq!(cells(), 5);
    let ahead = fork.back(3).unwrap_err();
    assert_eq!(ahead.exit_code(), ExitCode::Conflict);

    bench.forks.close(&fork.id);
    closed(&bench).await;
}

#[tokio::test]
async fn the_copies_of_an_edit_are_bounded() {
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    for after in 0..5 {
        run_turn(&fork, after, "x").await;
    }
    until_copied(&fork, 5).await;
    assert_eq!(fork.view().copied, [0, 4, 5]);
    assert_eq!(bench.open.load(Ordering::SeqCst), MAX_COPIES + 1);
    // The turns that have no copy of their own run again from the first one.
    let before = bench.cells.load(Ordering::SeqCst);
    fork.back(3).unwrap();
    until(&fork, Phase::Waiting).await;
    assert_eq!(bench.cells.load(Ordering::SeqCst), before + 3);
    assert_eq!(printed(&fork, 2), "x 4\n");
}

#[tokio::test]
async fn where_a_session_cannot_be_copied_the_cells_run_again() {
    let bench = Bench::new(LONG);
    let plan = bench.plan_in(2, "", false);
    let fork = bench.begin(plan, Vec::new()).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    fork.send(0, vec![cell("I go on.", "x")]).unwrap();
    until(&fork, Phase::Waiting).await;
    fork.back(0).unwrap();
    until(&fork, Phase::Waiting).await;
    fork.send(0, vec![cell("I go on.", "y")]).unwrap();
    until(&fork, Phase::Waiting).await;
    assert_eq!(printed(&fork, 0), "y 2\n");
    assert!(fork.view().copied.is_empty());
    assert_eq!(bench.cells.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn turns_that_are_not_saved_are_there_when_the_page_is_loaded_again() {
    let bench = Bench::new(LONG);
    let again = || {
        let fork = bench.begin_or_resume(bench.plan(2, ""), Vec::new(), true);
        fork.unwrap().unwrap()
    };
    let fork = again();
    run_turn(&fork, 0, "x").await;
    run_turn(&fork, 1, "y").await;
    bench.forks.close(&fork.id);
    let fork = again();
    until(&fork, Phase::Waiting).await;
    assert_eq!(
        (fork.view().written.len(), printed(&fork, 1)),
        (2, "y 3\n".to_owned())
    );
    fork.back(1).unwrap();
    bench.forks.close(&fork.id);
    // Another turn is another edit.
    let other = bench.begin_or_resume(bench.plan(1, ""), Vec::new(), true);
    assert_eq!(other.unwrap().unwrap().view().written, []);
    let fork = again();
    assert_eq!(fork.view().written.len(), 1);
    until(&fork, Phase::Waiting).await;
    fork.send(1, vec![answer("2")]).unwrap();
    until(&fork, Phase::Checked).await;
    // What is saved is in the run.
    bench.save(&fork, true, false).unwrap();
    bench.forks.close(&fork.id);
    assert_eq!(again().view().written, []);
}

/// The run of the bench, with its task.
fn run_with_task(bench: &Bench) -> PathBuf {
    let run = bench.folder.path().join("runs/r");
    std::fs::write(run.join("tasks.jsonl"), json!(task()).to_string() + "\n").unwrap();
    run.canonicalize().unwrap()
}

/// Finds what a row of a dataset in this folder needs.
fn find_row(bench: &Bench, dataset: &Path, runs_dir: &Path) -> Result<Subject, RunError> {
    std::fs::create_dir_all(dataset).unwrap();
    let row = json!({"messages": [
        {"role": "user", "content": "Count."}, {"role": "assistant", "content": "2"}]});
    std::fs::write(dataset.join("train.jsonl"), row.to_string()).unwrap();
    let source = TrajectorySource::Dataset(dataset.to_owned());
    let what = What::One {
        name: "d".into(),
        source,
    };
    let sources = Sources::new(what, bench.folder.path().join("cache"));
    let opened = sources.open("d").unwrap().unwrap();
    let record = json!({"dataset": {
        "location": "train.jsonl:1", "format": "pybench", "metadata": {"trajectory_id": recorded().id}, "kinds": [],
        "files": [], "messages": []}});
    Subject::find(&opened, serde_json::from_value(record).unwrap(), runs_dir)
}

#[test]
fn a_row_is_edited_in_the_run_that_made_it() {
    let bench = Bench::new(LONG);
    let (folder, none) = (bench.folder.path(), bench.folder.path().join("none"));
    let elsewhere = folder.join("elsewhere/d");
    let problem = |found: Result<Subject, RunError>| text_of(found.err().unwrap());
    let found = find_row(&bench, &elsewhere, &folder.join("runs"));
    assert!(problem(found).contains("the task of this trajectory"));

    let run = run_with_task(&bench);
    let found = find_row(&bench, &run.join("dataset"), &none).unwrap();
    assert_eq!(found.saved_in, SavePlace::Run(run));
    assert_eq!(
        (found.recorded.id, found.task.id),
        (recorded().id, task().id)
    );
    let runs = folder.join("runs");
    let found = find_row(&bench, &elsewhere, &runs).unwrap();
    assert_eq!(found.saved_in, SavePlace::Run(runs.join("r")));
    let found = find_row(&bench, &elsewhere, &none);
    assert!(problem(found).contains("has the recorded trajectory of this row"));
}

#[test]
fn an_attempt_at_a_task_of_a_library_is_edited_and_not_saved() {
    let bench = Bench::new(LONG);
    let evaluation = bench.folder.path().join("runs/e");
    std::fs::create_dir_all(&evaluation).unwrap();
    crate::evaluation::tests::write(&evaluation, &[("a", "1", Some(false))]);
    let recipe = "name = 'e'\nlibrary = 'data/runs/r'\n[agents.a]\nkind = 'openai'\nmodel = 'm'\nbase_url = 'http://h/v1'\n";
    std::fs::write(evaluation.join("recipe.toml"), recipe).unwrap();
    let opened = bench.sources.open("e").unwrap().unwrap();
    let find = || {
        let attempt = json!({
            "agent": "a", "suite": "library", "task": "7", "category": "chart", "seed": 0, "turns": 3, "max_turns": 10,
            "outcome": {"outcome": "ran"}, "scores": {"strict": false}});
        let record =
            json!({"evaluation": {"attempt": attempt, "trajectory": recorded(), "problem": ""}});
        Subject::find(
            &opened,
            serde_json::from_value(record).unwrap(),
            Path::new("none"),
        )
    };
    let problem = text_of(find().err().unwrap());
    assert!(problem.contains("`library`"), "{problem}");
    run_with_task(&bench);
    let found = find().unwrap();
    assert_eq!((found.task.id, found.is_rejected), (task().id, true));
    assert_eq!(found.saved_in, SavePlace::Nowhere);
}

#[tokio::test]
async fn an_edit_is_saved_in_the_run_of_its_row_or_not_at_all() {
    let bench = Bench::new(LONG);
    let run = bench.folder.path().join("runs/r");
    for saved_in in [SavePlace::Nowhere, SavePlace::Run(run.clone())] {
        let plan = Plan {
            saved_in: saved_in.clone(),
            ..bench.plan(3, "")
        };
        let fork = bench.begin(plan, vec![answer("2")]).unwrap().unwrap();
        until(&fork, Phase::Checked).await;
        let view = fork.view();
        assert!(view.verdict.unwrap().accepted);
        let saved = bench.save(&fork, true, false);
        let edits = saved_edits::edits_of(&run, recorded().id.as_str()).unwrap();
        if saved_in == SavePlace::Nowhere {
            assert!(text_of(saved.unwrap_err()).contains(&view.unsaved));
            assert!(view.unsaved.contains("evaluation") && edits.is_empty());
        } else {
            saved.unwrap();
            assert_eq!((&*view.unsaved, view.saved_in.as_deref()), ("", Some("r")));
            assert_eq!(edits.len(), 1);
        }
    }
}

#[tokio::test]
async fn a_pair_needs_a_rejected_side_and_another_reply() {
    let bench = Bench::new(LONG);
    let accepted = Plan {
        is_rejected: false,
        ..bench.plan(3, "")
    };
    let fork = bench.begin(accepted, vec![answer("2")]).unwrap().unwrap();
    until(&fork, Phase::Checked).await;
    assert!(text_of(bench.save(&fork, false, true).unwrap_err()).contains("worse side"));
    let turns = vec![as_recorded(2), answer("2")];
    let fork = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&fork, Phase::Checked).await;
    assert!(text_of(bench.save(&fork, true, true).unwrap_err()).contains("two replies"));
    bench.save(&fork, true, false).unwrap();
}

#[tokio::test]
async fn cells_that_do_not_repeat_end_the_edit_with_the_reason() {
    let bench = Bench::new(LONG);
    let fork = bench
        .begin(bench.plan(2, "!"), Vec::new())
        .unwrap()
        .unwrap();
    until(&fork, Phase::Failed).await;
    let problem = fork.view().problem;
    assert!(problem.contains("do not repeat"), "{problem}");
    // Nothing is replayed before the first turn.
    let fork = bench
        .begin(bench.plan(1, "!"), Vec::new())
        .unwrap()
        .unwrap();
    until(&fork, Phase::Waiting).await;
}

#[tokio::test]
async fn an_edit_that_was_left_frees_its_session() {
    let bench = Bench::new(LONG);
    // Even while a cell runs.
    let turns = vec![cell("I wait.", "sleep")];
    let fork = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&fork, Phase::Running).await;
    assert_eq!(bench.open.load(Ordering::SeqCst), 1);
    bench.forks.close(&fork.id);
    assert!(bench.forks.get(&fork.id).is_none());
    closed(&bench).await;

    let bench = Bench::new(Duration::from_secs(2));
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    // It lives while somebody asks for it.
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(bench.forks.get(&fork.id).is_some());
    }
    closed(&bench).await;
    assert!(bench.forks.get(&fork.id).is_none());
}

async fn closed(bench: &Bench) {
    for _ in 0..3000 {
        if bench.open.load(Ordering::SeqCst) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the session is still open");
}

#[tokio::test]
async fn edits_and_their_turns_are_bounded() {
    let bench = Bench::new(LONG);
    let mut open = Vec::new();
    for _ in 0..MAX_FORKS {
        open.push(bench.begin(bench.plan(1, ""), Vec::new()).unwrap().unwrap());
    }
    assert!(
        bench
            .begin(bench.plan(1, ""), Vec::new())
            .unwrap()
            .is_none()
    );
    bench.forks.close(&open[0].id);
    assert!(
        bench
            .begin(bench.plan(1, ""), Vec::new())
            .unwrap()
            .is_some()
    );
    until(&open[1], Phase::Waiting).await;
    let many = vec![cell("Look.", "a"); MAX_TURNS as usize + 1];
    let error = text_of(open[1].send(0, many).unwrap_err());
    assert!(error.contains("at most 64 turns"), "{error}");
    let error = text_of(open[1].send(0, vec![as_recorded(4)]).unwrap_err());
    assert!(error.contains("turns 1 to 3"), "{error}");
    assert_eq!(open[1].view().written, []);
}

/// Sends these replies, then writes for ever.
struct Scripted(Mutex<VecDeque<String>>);

#[async_trait::async_trait]
impl ChatModel for Scripted {
    fn name(&self) -> &str {
        "helper"
    }
    fn price(&self) -> Option<Price> {
        Some(Price {
            prompt: 1.0,
            completion: 1.0,
        })
    }
    async fn reply(&self, _: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let next = self.0.lock().unwrap().pop_front();
        let Some(content) = next else {
            return std::future::pending().await;
        };
        Ok(Reply {
            content,
            usage: Usage {
                prompt_tokens: 10,
                completion_tokens: 5,
            },
            truncated: false,
            repetition: false,
        })
    }
}

/// A request for one turn.
fn one_turn() -> ContinueRequest {
    ContinueRequest {
        after: 0,
        agent: "a".into(),
        turns: 1,
        tokens: 1_000_000,
        usd: Some(5.0),
    }
}

fn by_model(replies: &[String], request: &ContinueRequest) -> Result<Continuation, RunError> {
    let agent = json!({"kind": "openai", "model": "m", "base_url": "http://h/v1"});
    let settings = json!({"label": "a", "agent": agent});
    let settings = serde_json::from_value(settings).unwrap();
    let replies = replies.iter().cloned().collect();
    Continuation::new(&settings, Arc::new(Scripted(Mutex::new(replies))), request)
}

#[tokio::test]
async fn a_model_continues_within_its_limits_and_its_turns_are_known_as_its_own() {
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    let note = || fork.view().continuation.unwrap().note;
    until(&fork, Phase::Waiting).await;
    fork.send(0, vec![cell("I count again.", "better")])
        .unwrap();
    until(&fork, Phase::Waiting).await;
    let step = FORMAT.write_step("I go on.", "more");
    let stale = fork.continue_by(0, by_model(&[], &one_turn()).unwrap());
    assert_eq!(stale.unwrap_err().exit_code(), ExitCode::Conflict);
    fork.continue_by(1, by_model(&[step], &one_turn()).unwrap())
        .unwrap();
    until(&fork, Phase::Waiting).await;
    assert!(note().contains("1 turns"), "{}", note());
    let view = fork.view();
    let shown = view.continuation.unwrap();
    assert_eq!(
        (shown.turns, shown.tokens, shown.micro_usd, shown.working),
        (1, 15, Some(15), false)
    );
    assert_eq!(view.turns[1].completion_tokens, Some(5));

    // It writes for ever.
    fork.continue_by(2, by_model(&[], &one_turn()).unwrap())
        .unwrap();
    assert_eq!(fork.view().phase, Phase::Running);
    fork.stop();
    until(&fork, Phase::Waiting).await;
    assert!(note().contains("stopped"), "{}", note());
    for (request, expected) in [
        (
            ContinueRequest {
                tokens: 10,
                ..one_turn()
            },
            "tokens, and 10 of 10",
        ),
        (
            ContinueRequest {
                usd: Some(0.0),
                ..one_turn()
            },
            "may cost",
        ),
    ] {
        let never = [FORMAT.write_answer("2")];
        fork.continue_by(2, by_model(&never, &request).unwrap())
            .unwrap();
        until(&fork, Phase::Waiting).await;
        assert!(note().contains(expected), "{}", note());
    }

    let answer = [FORMAT.write_answer("2")];
    fork.continue_by(2, by_model(&answer, &one_turn()).unwrap())
        .unwrap();
    until(&fork, Phase::Checked).await;
    bench.save(&fork, true, true).unwrap();
    let view = fork.view();
    let info = view.saved.unwrap();
    assert_eq!(info.models, ["helper"]);
    let run = bench.folder.path().join("runs/r");
    let edit = saved_edits::edit(&run, recorded().id.as_str(), &info.id)
        .unwrap()
        .unwrap();
    let kinds: Vec<AuthorKind> = edit.lineage.authors.iter().map(|one| one.kind).collect();
    assert_eq!(
        kinds,
        [AuthorKind::Human, AuthorKind::Model, AuthorKind::Model]
    );
    let teacher = edit.trajectory.teacher;
    assert!(teacher.ends_with("+helper"), "{teacher}");

    // It is begun again with the same turns, without the model.
    let again = bench
        .begin(bench.plan(2, ""), view.written)
        .unwrap()
        .unwrap();
    until(&again, Phase::Checked).await;
    bench.save(&again, true, false).unwrap();
    assert_eq!(again.view().saved.unwrap().id, info.id);
    // Only the studio says what a model wrote.
    let forged = WrittenTurn {
        model: Some("0".repeat(64)),
        ..WrittenTurn::default()
    };
    let error = bench
        .begin(bench.plan(2, ""), vec![forged])
        .err()
        .map(text_of);
    assert!(error.unwrap().contains("does not have the reply"));
}

#[tokio::test]
async fn no_turn_is_taken_back_while_a_model_writes() {
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    fork.send(0, vec![cell("I count again.", "better")])
        .unwrap();
    until(&fork, Phase::Waiting).await;
    // It writes for ever.
    fork.continue_by(1, by_model(&[], &one_turn()).unwrap())
        .unwrap();
    let refused = fork.back(0).unwrap_err();
    assert_eq!(refused.exit_code(), ExitCode::Conflict);
    assert!(refused.to_string().contains("stop it"), "{refused}");
    assert_eq!(fork.view().written.len(), 1);
    fork.stop();
    until(&fork, Phase::Waiting).await;
    fork.back(0).unwrap();
    until(&fork, Phase::Waiting).await;
    assert_eq!(fork.view().written, []);
    // Its answer ends its work.
    let answer = [FORMAT.write_answer("2")];
    fork.continue_by(0, by_model(&answer, &one_turn()).unwrap())
        .unwrap();
    until(&fork, Phase::Checked).await;
    fork.back(0).unwrap();
    until(&fork, Phase::Waiting).await;
    assert_eq!(fork.view().written, []);
}

#[test]
fn limits_of_a_model_are_checked() {
    for (request, expected) in [
        (
            ContinueRequest {
                turns: 0,
                ..one_turn()
            },
            "`turns`",
        ),
        (
            ContinueRequest {
                tokens: 0,
                ..one_turn()
            },
            "`tokens`",
        ),
        (
            ContinueRequest {
                usd: Some(f64::NAN),
                ..one_turn()
            },
            "`usd`",
        ),
    ] {
        let error = by_model(&[], &request).err().map(text_of).unwrap();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_the_recipe_goes_on_in_the_format_of_the_recorded_trajectory() {
    let endpoint = Endpoint::start(|request| async move {
        let has_seen = request["messages"].to_string().contains("better 2");
        let answer = if has_seen { "2" } else { "unseen" };
        Answer::Content(FORMAT.write_answer(answer))
    })
    .await;
    let bench = Bench::new(LONG);
    let recipe = format!(
        "name = 't'\n[agents.m]\nkind = 'openai'\nmodel = 'm'\nbase_url = '{}'\n[rollout]\nformat = 'tools'\n",
        endpoint.base_url()
    );
    std::fs::write(bench.folder.path().join("agents.toml"), recipe).unwrap();
    assert_eq!(bench.forks.models().list().agents, ["m"]);
    let turns = vec![cell("I count again.", "better")];
    let fork = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    let request = |agent: &str| ContinueRequest {
        after: 1,
        agent: agent.into(),
        usd: None,
        ..one_turn()
    };
    let unknown = bench.forks.continue_by(&fork, &request("n")).await;
    assert!(text_of(unknown.unwrap_err()).contains("(agents: m)"));
    // The price of the model is unknown.
    let paid = ContinueRequest {
        usd: Some(1.0),
        ..request("m")
    };
    let refused = bench.forks.continue_by(&fork, &paid).await;
    assert!(text_of(refused.unwrap_err()).contains("`usd`"));
    bench.forks.continue_by(&fork, &request("m")).await.unwrap();
    until(&fork, Phase::Checked).await;
    let view = fork.view();
    assert!(view.verdict.unwrap().accepted);
    let shown = view.continuation.unwrap();
    assert_eq!(
        (shown.turns, shown.micro_usd, shown.working),
        (1, None, false)
    );
}
