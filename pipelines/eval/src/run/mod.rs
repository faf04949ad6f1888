//! Runs an evaluation: prepares the tasks, runs the agents, scores their attempts and writes the records.
//!
//! Every step is a stage of units in the journal of the run, so an interrupted run continues when the same
//! command runs again, and gives the same records.

mod agents;
pub mod artifacts;
mod dry_run;
mod feedback;
pub mod import;
mod library;
pub mod recipe;
mod records;
mod scores;
mod shown;
mod tasks;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use pybench_agent::{Solver, TurnFeedback};
use pybench_checks::Checker;
use pybench_interpreter::{Interpreter, Limits};
use pybench_run::{
    Executor, ExecutorOptions, Failure, Interrupt, LocalExecutor, Progress, Rollout, RunError,
    RunFolder, Stage,
};
use pybench_types::id::Digest;
use pybench_types::trajectory::Trajectory;
use serde_json::{Value, json};

use super::record::{EvalFingerprint, Evaluation, SuiteSource};
use super::suite::{EvalTask, Suite, SuiteEnv};
use agents::{AgentBackend, AgentSpec, Checkpoint};
pub use dry_run::dry_run;
pub use library::unseen_of;
use pybench_attempts::AttemptStage;
pub use recipe::{AgentChoice, EvalRecipe};

/// Name of the file of records in the run folder.
pub const RESULTS: &str = "results.jsonl";

/// Environment of an evaluation.
pub struct Setup {
    /// The recipe.
    pub recipe: EvalRecipe,
    /// Run folder with journal, content store and artifacts.
    pub folder: Arc<RunFolder>,
    /// The benchmarks.
    pub suites: Vec<Arc<dyn Suite>>,
    /// Runs cells and unit tests.
    pub interpreter: Arc<dyn Interpreter>,
    /// Evaluates checks.
    pub checker: Checker,
    /// How units are executed.
    pub options: ExecutorOptions,
    /// Progress display.
    pub progress: Progress,
    /// Raised by Ctrl-C.
    pub interrupt: Interrupt,
    /// Base of relative paths in the recipe.
    pub project_root: PathBuf,
}

impl Setup {
    /// An executor with this number of units in work, or the one of the options.
    fn executor(&self, concurrency: Option<usize>) -> LocalExecutor {
        let mut options = self.options.clone();
        options.concurrency = concurrency.or(options.concurrency);
        let (progress, interrupt) = (self.progress.clone(), self.interrupt.clone());
        LocalExecutor::new(self.folder.clone(), options, progress, interrupt)
    }

    /// What suites work with.
    fn env(&self) -> SuiteEnv {
        SuiteEnv {
            folder: self.folder.clone(),
            interpreter: self.interpreter.clone(),
            checker: self.checker.clone(),
            executor: self.executor(None),
        }
    }
}

/// One attempt of an agent at a task.
struct AgentAttempt {
    /// Index in the list of agents.
    agent: usize,
    /// Index in the list of tasks.
    task: usize,
    sample: u32,
    result: Result<Arc<Trajectory>, Failure>,
    seconds: f64,
}

/// Runs the evaluation. Writes the records to [`RESULTS`], and upstream's artifacts of every agent to
/// `upstream/<agent>/`.
///
/// # Errors
/// The errors of the executor (interrupted, budget exceeded, API key rejected); [`RunError::BadInput`] if the
/// recipe refers to missing files. Failed units are not errors; they become records with the failure.
pub async fn run(setup: &Setup) -> Result<Evaluation, RunError> {
    let tasks = tasks::prepare(setup).await?;
    let specs = agents::load(setup).await?;
    let feedback = feedback::load(setup)?;
    let mut attempts = Vec::new();
    for (agent, spec) in specs.iter().enumerate() {
        attempts.extend(run_agent(setup, agent, spec, &tasks.available, &feedback).await?);
    }
    let scores = scores::score(setup, &tasks.available, &attempts).await?;
    shown::write(setup, &tasks.available, &attempts, &scores)?;
    let records = records::records(setup, &tasks, &specs, &attempts, scores)?;
    let evaluation = Evaluation::new(fingerprint(setup, &tasks.available, &specs), records);
    let path = setup.folder.root().join(RESULTS);
    evaluation
        .write(&path)
        .map_err(|error| RunError::Internal(error.to_string()))?;
    for (agent, spec) in specs.iter().enumerate() {
        let first_samples = attempts
            .iter()
            .filter(|attempt| attempt.agent == agent && attempt.sample == 0);
        let root = setup.folder.root().join("upstream").join(&spec.label);
        artifacts::write(&root, setup, &tasks.available, first_samples)?;
    }
    Ok(evaluation)
}

/// Runs all attempts of one agent.
async fn run_agent(
    setup: &Setup,
    agent: usize,
    spec: &AgentSpec,
    tasks: &[EvalTask],
    feedback: &Option<Arc<dyn TurnFeedback>>,
) -> Result<Vec<AgentAttempt>, RunError> {
    let attempts = match &spec.backend {
        AgentBackend::Solver(solver) => {
            run_stage(setup, spec, tasks, solver.clone(), feedback).await?;
            plan(spec, solver.name(), tasks)
        }
        AgentBackend::Checkpoint(checkpoint) => {
            run_checkpoint(setup, spec, tasks, checkpoint, feedback).await?;
            plan(spec, &checkpoint.teacher(), tasks)
        }
        AgentBackend::Trajectories { path, outputs } => {
            return import::read(setup, agent, path, outputs.as_deref(), tasks);
        }
    };
    collect_attempts(setup, agent, attempts)
}

/// Runs the attempts of a checkpoint. Its server runs only if attempts are still to be done.
async fn run_checkpoint(
    setup: &Setup,
    spec: &AgentSpec,
    tasks: &[EvalTask],
    checkpoint: &Checkpoint,
    feedback: &Option<Arc<dyn TurnFeedback>>,
) -> Result<(), RunError> {
    let results = pybench_attempts::results(setup.folder.journal())?;
    let is_done = |one: &PlannedAttempt| matches!(results.get(one.id.as_str()), Some(Ok(_)));
    let attempts = plan(spec, &checkpoint.teacher(), tasks);
    if attempts.iter().all(is_done) {
        return Ok(());
    }
    let server = checkpoint.serve().await?;
    let model = checkpoint.chat_model(setup, spec.format, &server)?;
    run_stage(setup, spec, tasks, Solver::Model(model), feedback).await?;
    server.stop().await;
    Ok(())
}

async fn run_stage(
    setup: &Setup,
    spec: &AgentSpec,
    tasks: &[EvalTask],
    solver: Solver,
    feedback: &Option<Arc<dyn TurnFeedback>>,
) -> Result<(), RunError> {
    let tasks = tasks.iter().map(|eval_task| eval_task.task.clone());
    let tasks: Vec<_> = tasks.collect();
    let mut rollout = spec.rollout_config(setup, solver);
    rollout.feedback.clone_from(feedback);
    let stage = AttemptStage::from_config(setup.folder.clone(), tasks, rollout);
    let items = stage.items();
    let folder = setup.folder.clone();
    let stage = Arc::new(TimedStage { stage, folder });
    setup.executor(spec.concurrency).run(stage, &items).await?;
    Ok(())
}

/// An attempt of an agent, before it is made.
struct PlannedAttempt {
    /// Content id of the trajectory.
    id: Digest,
    /// Index in the list of tasks.
    task: usize,
    sample: u32,
}

/// The attempts of an agent whose teacher has this name: tasks in order, samples of each.
fn plan(spec: &AgentSpec, teacher: &str, tasks: &[EvalTask]) -> Vec<PlannedAttempt> {
    let (sampling, format) = (&spec.rollout.sampling, spec.format.name());
    let mut attempts = Vec::new();
    for (task, eval_task) in tasks.iter().enumerate() {
        let id =
            |sample| Trajectory::compute_id(&eval_task.task.id, teacher, sampling, format, sample);
        attempts.extend((0..spec.rollout.samples).map(|sample| PlannedAttempt {
            id: id(sample),
            task,
            sample,
        }));
    }
    attempts
}

/// Reads the results of these attempts from the journal.
fn collect_attempts(
    setup: &Setup,
    agent: usize,
    planned: Vec<PlannedAttempt>,
) -> Result<Vec<AgentAttempt>, RunError> {
    let journal = setup.folder.journal();
    let results = pybench_attempts::results(journal)?.into_iter();
    let results: HashMap<String, _> = results
        .map(|(id, result)| (id, result.map(Arc::new)))
        .collect();
    let mut attempts = Vec::new();
    for PlannedAttempt { id, task, sample } in planned {
        // Equal tasks of two suites, one of which is a subset of the other, share a trajectory.
        let Some(result) = results.get(id.as_str()).cloned() else {
            continue;
        };
        let seconds = journal.metadata(&seconds_key(id.as_str()))?;
        attempts.push(AgentAttempt {
            agent,
            task,
            sample,
            result,
            seconds: seconds.and_then(|value| value.as_f64()).unwrap_or_default(),
        });
    }
    Ok(attempts)
}

/// An attempt stage that journals the wall time of each attempt.
struct TimedStage {
    stage: AttemptStage,
    folder: Arc<RunFolder>,
}

/// Journal key of the wall time of an attempt.
fn seconds_key(item: &str) -> String {
    format!("seconds/{item}")
}

#[async_trait]
impl Stage for TimedStage {
    fn name(&self) -> &'static str {
        self.stage.name()
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let started = Instant::now();
        let output = self.stage.run(item).await?;
        let seconds = json!(started.elapsed().as_secs_f64());
        self.folder
            .journal()
            .set_metadata(&seconds_key(item), &seconds)?;
        Ok(output)
    }
}

/// Everything that defines the scores.
fn fingerprint(setup: &Setup, tasks: &[EvalTask], specs: &[AgentSpec]) -> EvalFingerprint {
    let (limits, recipe) = (&setup.recipe.interpreter.limits, &setup.recipe);
    let task_ids: Vec<_> = tasks
        .iter()
        .map(|q| (&q.suite, &q.name, &q.task.id))
        .collect();
    let prompts: BTreeMap<_, _> = specs
        .iter()
        .map(|spec| (&spec.label, spec.prompt_digest()))
        .collect();
    let scorers = setup.suites.iter();
    let scorers: Vec<_> = scorers
        .map(|suite| (suite.name(), suite.scorer()))
        .collect();
    let checker = match &recipe.feedback {
        None => Digest::of_json(&(setup.checker.digest(), scorers)),
        Some(model) => {
            let model = (&model.model, model.reference);
            Digest::of_json(&(setup.checker.digest(), scorers, model))
        }
    };
    EvalFingerprint {
        task_set: tasks::describe(setup),
        suites: setup
            .suites
            .iter()
            .map(|suite| about(suite.as_ref()))
            .collect(),
        tasks: Digest::of_json(&task_ids),
        checker: checker.to_string(),
        environment: setup.interpreter.environment().to_owned(),
        prompts: Digest::of_json(&prompts).to_string(),
        limits: limit_values(&recipe.rollout, limits),
        agents: specs
            .iter()
            .map(|spec| (spec.label.clone(), spec.description()))
            .collect(),
    }
}

/// A suite in the header of the records.
fn about(suite: &dyn Suite) -> (String, SuiteSource) {
    let origin = suite.origin();
    let source = SuiteSource {
        repository: origin.repository.to_owned(),
        commit: origin.commit.to_owned(),
        license: origin.license.to_owned(),
        notes: suite.notes(),
    };
    (suite.name().to_owned(), source)
}

/// The limits of an attempt, by name.
fn limit_values(rollout: &Rollout, session: &Limits) -> BTreeMap<String, u64> {
    let repetition = rollout.repetition_detection.iter().flat_map(|detection| {
        [
            ("repetition_min_pattern_size", detection.min_pattern_size),
            ("repetition_max_pattern_size", detection.max_pattern_size),
            ("repetition_min_count", detection.min_count),
        ]
    });
    let identical = rollout.max_identical_turns.into_iter();
    let without_code = rollout.code_within_tokens.into_iter();
    let of_replies = [("max_turns", rollout.max_turns)]
        .into_iter()
        .chain(identical.map(|count| ("max_identical_turns", count)))
        .chain(without_code.map(|count| ("code_within_tokens", count)))
        .chain(repetition)
        .map(|(name, value)| (name, u64::from(value)));
    let of_cells = [
        ("cell_seconds", session.cell_seconds),
        ("memory_mib", session.memory_mib),
        ("output_chars", session.output_chars as u64),
        ("output_files", session.output_files as u64),
        ("output_mib", session.output_mib),
    ];
    let all = of_replies.chain(of_cells);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}
