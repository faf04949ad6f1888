//! Edits over a session that prints each cell and how many ran before it.

mod bounds;
mod by_model;
mod saving;
mod subjects;
mod undo;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pybench_agent::{Format, PybenchFormat};
use pybench_grade::TrajectoryChecker;
use pybench_interpreter::{
    Collected, Interpreter, InterpreterError, InterruptHandle, Session, SessionSpec,
};
use pybench_run::{ContentStore, ExitCode, Failure, Filter, Journal, RunError};
use pybench_testing::task::task;
use pybench_types::human_edit::Lineage;
use pybench_types::observation::{Observation, Output};
use pybench_types::task::Task;
use pybench_types::trajectory::{End, Finding, Outcome, Sampling, Trajectory, Turn, Usage};

use super::fork::{Fork, Phase};
use super::forks::{EditPlace, Forks};
use super::plan::{ForkRequest, Plan};
use super::subject::SavePlace;
use super::written::WrittenTurn;
use crate::model_choice::ModelPlace;
use crate::saved_edits::SaveRequest;
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
        let models = ModelPlace {
            root: folder.path().to_owned(),
            recipe: folder.path().join("agents.toml"),
            runs_dir: folder.path().join("no-runs"),
            history: folder.path().join("chat"),
            may_name: true,
        };
        let place = EditPlace {
            models,
            replies: folder.path().join("replies"),
            drafts: folder.path().join("drafts"),
        };
        let models = Arc::new(SharedModels::new(folder.path().to_owned()));
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

async fn closed(bench: &Bench) {
    for _ in 0..3000 {
        if bench.open.load(Ordering::SeqCst) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the session is still open");
}
