//! An evaluation: tasks are prepared, agents try them, the tries are scored, records are written.
//!
//! Every step is a stage of units in the run's journal, so that the same command goes on wherever it was
//! stopped, and the records are equal then.

mod agents;
pub mod artefacts;
mod attempts;
pub mod foreign;
mod library;
pub(in crate::eval) mod parquet;
mod questions;
pub mod recipe;
mod scores;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use pybench::grade::Checker;
use pybench::id::Digest;
use pybench::interpreter::Interpreter;
use pybench::llm::Teacher;
use pybench::run::{
    Executor, ExecutorOptions, Failure, Interrupt, LocalExecutor, Progress, RunError, RunFolder,
    Stage,
};
use pybench::trajectory::Trajectory;
use serde_json::{Value, json};

use super::bench::Bench;
use super::record::{Evaluation, Frozen};
use crate::rollout::{self, RolloutStage};
use agents::{Checkpoint, Member, Player};
use questions::Question;
pub use recipe::{AgentChoice, EvalRecipe};

/// The file of records in the run folder.
pub const RESULTS: &str = "results.jsonl";

/// What an evaluation works with.
pub struct Setup {
    /// What is asked.
    pub recipe: EvalRecipe,
    /// Journal, content store, artefacts.
    pub folder: Arc<RunFolder>,
    /// The benchmark, where its files are.
    pub bench: Option<Bench>,
    /// Runs cells and tests.
    pub interpreter: Arc<dyn Interpreter>,
    /// Evaluates checks.
    pub checker: Checker,
    /// How units are executed.
    pub options: ExecutorOptions,
    /// Bars or lines.
    pub progress: Progress,
    /// Ctrl-C.
    pub interrupt: Interrupt,
    /// Relative paths of the recipe start here.
    pub project_root: PathBuf,
}

impl Setup {
    fn executor(&self, at_once: RangeInclusive<usize>) -> LocalExecutor {
        let mut options = self.options.clone();
        if self.recipe.rollout.concurrency == 0 {
            options.concurrency = options.concurrency.max(*at_once.start());
        }
        options.concurrency = options.concurrency.min(*at_once.end()).max(1);
        let (progress, interrupt) = (self.progress.clone(), self.interrupt.clone());
        LocalExecutor::new(self.folder.clone(), options, progress, interrupt)
    }

    /// Do every item of a stage that is not done yet.
    async fn execute(&self, stage: Arc<dyn Stage>, items: &[String]) -> Result<(), RunError> {
        self.executor(1..=usize::MAX).run(stage, items).await?;
        Ok(())
    }
}

/// One try of one agent at one question.
struct Try {
    /// Place in the list of agents.
    agent: usize,
    /// Place in the list of questions.
    question: usize,
    sample: u32,
    result: Result<Arc<Trajectory>, Failure>,
    seconds: f64,
}

/// Runs the evaluation and writes [`RESULTS`], and upstream's artefacts for every agent under
/// `upstream/<agent>/`.
///
/// # Errors
/// As the executor: interrupted, budget, refused key; [`RunError::BadInput`] where the recipe asks for what
/// is not there. Failed units are records of their own, no errors.
pub async fn run(setup: &Setup) -> Result<Evaluation, RunError> {
    let asked = questions::ask(setup).await?;
    let members = agents::members(setup).await?;
    let mut tries = Vec::new();
    for (agent, member) in members.iter().enumerate() {
        tries.extend(try_all(setup, agent, member, &asked.questions).await?);
    }
    let scored = scores::score(setup, &asked.questions, &tries).await?;
    let attempts = attempts::attempts(setup, &asked, &members, &tries, scored)?;
    let evaluation = Evaluation::new(frozen(setup, &asked.questions, &members), attempts);
    let path = setup.folder.root().join(RESULTS);
    evaluation
        .write(&path)
        .map_err(|error| RunError::Internal(error.to_string()))?;
    for (agent, member) in members.iter().enumerate() {
        let own = tries
            .iter()
            .filter(|one| one.agent == agent && one.sample == 0);
        let root = setup.folder.root().join("upstream").join(&member.label);
        artefacts::write(&root, setup, &asked.questions, own)?;
    }
    Ok(evaluation)
}

async fn try_all(
    setup: &Setup,
    agent: usize,
    member: &Member,
    questions: &[Question],
) -> Result<Vec<Try>, RunError> {
    let stage = match &member.player {
        Player::Teacher(teacher) => {
            let stage = stage(setup, member, questions, teacher.clone());
            play(setup, member, &stage).await?;
            stage
        }
        Player::Checkpoint(checkpoint) => served(setup, member, questions, checkpoint).await?,
        Player::Trajectories { path, outputs } => {
            return foreign::read(setup, agent, path, outputs.as_deref(), questions);
        }
    };
    tries(setup, agent, questions, &stage)
}

/// A model that is served for as long as it has something to play: not at all where all of it is played.
async fn served(
    setup: &Setup,
    member: &Member,
    questions: &[Question],
    checkpoint: &Checkpoint,
) -> Result<Arc<Timed>, RunError> {
    let absent = checkpoint.teacher(setup, member.format, None)?;
    let played = stage(setup, member, questions, absent);
    let results = rollout::results(setup.folder.journal())?;
    let ended = |one: &rollout::Try| matches!(results.get(one.id.as_str()), Some(Ok(_)));
    if played.stage.tries().iter().all(ended) {
        return Ok(played);
    }
    let server = checkpoint.serve().await?;
    let teacher = checkpoint.teacher(setup, member.format, Some(&server))?;
    let stage = stage(setup, member, questions, teacher);
    play(setup, member, &stage).await?;
    server.end().await;
    Ok(stage)
}

fn stage(
    setup: &Setup,
    member: &Member,
    questions: &[Question],
    teacher: Arc<dyn Teacher>,
) -> Arc<Timed> {
    let tasks = questions.iter().map(|question| question.task.clone());
    let crew = member.crew(setup, teacher);
    Arc::new(Timed {
        stage: RolloutStage::with(setup.folder.clone(), tasks.collect(), crew),
        folder: setup.folder.clone(),
    })
}

async fn play(setup: &Setup, member: &Member, stage: &Arc<Timed>) -> Result<(), RunError> {
    let executor = setup.executor(member.at_once.clone());
    executor.run(stage.clone(), &stage.stage.items()).await?;
    Ok(())
}

/// What became of every try.
fn tries(
    setup: &Setup,
    agent: usize,
    questions: &[Question],
    stage: &Timed,
) -> Result<Vec<Try>, RunError> {
    let mut results = rollout::results(setup.folder.journal())?;
    let places: BTreeMap<&Digest, usize> = questions
        .iter()
        .enumerate()
        .map(|(at, q)| (&q.task.id, at))
        .collect();
    let mut tries = Vec::new();
    for one in stage.stage.tries() {
        let Some(result) = results.remove(one.id.as_str()) else {
            continue;
        };
        let seconds = setup.folder.journal().fact(&fact(one.id.as_str()))?;
        tries.push(Try {
            agent,
            question: places.get(&one.task.id).copied().unwrap_or_default(),
            sample: one.sample,
            result: result.map(Arc::new),
            seconds: seconds.and_then(|value| value.as_f64()).unwrap_or_default(),
        });
    }
    Ok(tries)
}

/// A rollout whose wall time is remembered.
struct Timed {
    stage: RolloutStage,
    folder: Arc<RunFolder>,
}

fn fact(item: &str) -> String {
    format!("seconds/{item}")
}

#[async_trait]
impl Stage for Timed {
    fn name(&self) -> &'static str {
        self.stage.name()
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let begun = Instant::now();
        let output = self.stage.run(item).await?;
        let seconds = json!(begun.elapsed().as_secs_f64());
        self.folder.journal().set_fact(&fact(item), &seconds)?;
        Ok(output)
    }
}

/// Everything that defines the scores.
fn frozen(setup: &Setup, questions: &[Question], members: &[Member]) -> Frozen {
    let (limits, recipe) = (&setup.recipe.interpreter.limits, &setup.recipe);
    let tasks: Vec<_> = questions
        .iter()
        .map(|q| (&q.suite, &q.name, &q.task.id))
        .collect();
    let prompts: BTreeMap<_, _> = members
        .iter()
        .map(|member| (&member.label, member.prompt()))
        .collect();
    let tests = setup
        .bench
        .as_ref()
        .and_then(|bench| bench.upstream.tests());
    let checker = (
        setup.checker.digest(),
        tests.map(|tests| &tests.digest),
        super::score::unit::REPAIRED,
    );
    Frozen {
        task_set: questions::name(setup),
        tasks: Digest::of_json(&tasks),
        checker: Digest::of_json(&checker).to_string(),
        environment: setup.interpreter.environment().to_owned(),
        prompts: Digest::of_json(&prompts).to_string(),
        limits: BTreeMap::from([
            ("max_turns".to_owned(), recipe.rollout.max_turns.into()),
            ("cell_seconds".to_owned(), limits.cell_seconds),
            ("memory_mib".to_owned(), limits.memory_mib),
            ("output_chars".to_owned(), limits.output_chars as u64),
            ("output_files".to_owned(), limits.output_files as u64),
            ("output_mib".to_owned(), limits.output_mib),
        ]),
        agents: members
            .iter()
            .map(|member| (member.label.clone(), member.card()))
            .collect(),
    }
}
