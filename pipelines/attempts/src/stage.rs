//! One attempt at one task: starts a session, runs the ReAct loop and stores the output files.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent as agent;
use pybench_agent::{AttemptResult, AttemptSpec, Format, JournalLog, Solver};
use pybench_interpreter::{Interpreter, Network, Session, SessionSpec};
use pybench_llm::Batches;
use pybench_run::interpreter_failure;
use pybench_run::{Failure, FailureKind, Rollout, RunContext, RunError, RunFolder, Stage};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{OutputFile, Trajectory};
use serde_json::Value;

use pybench_run::artifacts::stage;

/// The possible attempts at one task: one list of samples per level, from the first teacher to the
/// strongest. Attempts are numbered over all tasks.
pub type EscalationLadder = Vec<Vec<usize>>;

/// One sample of one task, made by one teacher.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Content id of the trajectory.
    pub id: Digest,
    pub task: Arc<Task>,
    /// Sample number, from 0.
    pub sample: u32,
    /// Index of the teacher in the list of all teachers: first, mix, escalation.
    pub teacher: usize,
}

/// The stage that makes attempts. Its items are trajectory ids, its outputs trajectories.
pub struct AttemptStage {
    folder: Arc<RunFolder>,
    rollout: Rollout,
    session: SessionSpec,
    format: &'static dyn Format,
    teachers: Vec<Solver>,
    interpreter: Arc<dyn Interpreter>,
    attempts: Vec<Attempt>,
    /// The attempts of each task, by level.
    ladders: Vec<EscalationLadder>,
    /// Item → index into `attempts`.
    index_by_item: HashMap<String, usize>,
}

/// Which models make the attempts, and with which settings.
pub struct RolloutConfig {
    /// Number of samples, turn limit, sampling parameters.
    pub rollout: Rollout,
    /// Template for every session; each attempt adds its own inputs and seed.
    pub session: SessionSpec,
    /// Message format.
    pub format: &'static dyn Format,
    /// The teacher that makes the first attempts.
    pub teacher: Solver,
    /// Teachers that replace `teacher` for some tasks, with weights; the weight of `teacher` is 1.
    pub teacher_mix: Vec<(f64, Solver)>,
    /// Stronger teachers for the tasks that the first one fails, in order.
    pub escalation: Vec<Solver>,
    /// Seed of the draw from `teacher_mix`.
    pub seed: u64,
    pub interpreter: Arc<dyn Interpreter>,
}

impl AttemptStage {
    /// Creates the attempts of a run from its recipe. `teachers` are in the order of
    /// [`Recipe::teachers`](pybench_run::Recipe::teachers).
    pub fn new(
        context: &RunContext,
        tasks: Vec<Task>,
        teachers: Vec<Solver>,
        interpreter: Arc<dyn Interpreter>,
    ) -> Result<Self, RunError> {
        let recipe = &context.recipe;
        let mut teachers = teachers.into_iter();
        let teacher = teachers.next();
        let teacher = teacher.ok_or_else(|| RunError::Internal("no teacher".to_owned()))?;
        let weights = recipe.teacher_mix.iter().map(|mixed| mixed.weight);
        let teacher_mix = weights.zip(teachers.by_ref()).collect();
        let wheelhouse = recipe.interpreter.wheelhouse.as_ref();
        // The recipe was validated when it was read, so an invalid list cannot occur here.
        let network = Network::allow(&recipe.interpreter.network).ok().flatten();
        let config = RolloutConfig {
            rollout: recipe.rollout.clone(),
            session: SessionSpec {
                limits: recipe.interpreter.limits.clone(),
                wheelhouse: wheelhouse.map(|path| context.resolve(path)),
                network,
                ..SessionSpec::default()
            },
            format: agent::format(recipe.rollout.format),
            teacher,
            teacher_mix,
            escalation: teachers.collect(),
            seed: recipe.seed,
            interpreter,
        };
        let tasks = tasks.into_iter().map(Arc::new).collect();
        Ok(Self::from_config(context.folder.clone(), tasks, config))
    }

    /// Creates the attempts of these tasks without a recipe.
    pub fn from_config(
        folder: Arc<RunFolder>,
        tasks: Vec<Arc<Task>>,
        config: RolloutConfig,
    ) -> Self {
        let (attempts, ladders) = list_attempts(&config, tasks);
        let numbered = attempts.iter().enumerate();
        let teachers = config.all_teachers();
        Self {
            folder,
            rollout: config.rollout,
            session: config.session,
            format: config.format,
            teachers,
            interpreter: config.interpreter,
            index_by_item: numbered.map(|(at, t)| (t.id.to_string(), at)).collect(),
            attempts,
            ladders,
        }
    }

    /// All attempts: tasks in order, levels within a task, samples within a level.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The batch queues of the teachers that use a batch API.
    pub fn batches(&self) -> impl Iterator<Item = &Batches> {
        self.teachers.iter().filter_map(|teacher| teacher.batches())
    }

    /// One ladder per task; its numbers index [`AttemptStage::attempts`].
    pub fn ladders(&self) -> &[EscalationLadder] {
        &self.ladders
    }

    /// The items of the attempts with these indices.
    pub fn items_of(&self, indices: &[usize]) -> Vec<String> {
        let attempts = indices.iter().filter_map(|at| self.attempts.get(*at));
        attempts.map(|t| t.id.to_string()).collect()
    }

    /// All items, in the order of the attempts.
    pub fn items(&self) -> Vec<String> {
        self.attempts.iter().map(|t| t.id.to_string()).collect()
    }

    /// The items of the first sample of each of the first `tasks` tasks.
    pub fn first_attempts(&self, tasks: usize) -> Vec<String> {
        let ladders = self.ladders.iter().take(tasks);
        let first = ladders.filter_map(|ladder| ladder.first()?.first().copied());
        self.items_of(&first.collect::<Vec<_>>())
    }

    /// The attempt with this item.
    pub fn get(&self, item: &str) -> Option<&Attempt> {
        self.attempts.get(*self.index_by_item.get(item)?)
    }

    fn spec(&self, attempt: &Attempt) -> SessionSpec {
        let store = self.folder.store();
        let files = attempt.task.files.iter();
        SessionSpec {
            inputs: files
                .map(|file| (format!("data/{}", file.name), store.path(&file.id)))
                .collect(),
            seed: attempt.id.seed(),
            network: self
                .session
                .network
                .as_ref()
                .map(|n| n.for_session(attempt.id.short())),
            ..self.session.clone()
        }
    }

    async fn solve(
        &self,
        attempt: &Attempt,
        session: &mut dyn Session,
    ) -> Result<(AttemptResult, Vec<OutputFile>), Failure> {
        let spec = AttemptSpec {
            task: &attempt.task,
            sample: attempt.sample,
            solver: &self.teachers[attempt.teacher],
            format: self.format,
            sampling: &self.rollout.sampling,
            max_turns: self.rollout.max_turns,
        };
        let log = JournalLog::new(self.folder.clone(), attempt.id.clone());
        let solved = agent::solve(&spec, session, &log).await?;
        Ok((solved, self.keep_outputs(attempt, session).await?))
    }

    async fn keep_outputs(
        &self,
        attempt: &Attempt,
        session: &mut dyn Session,
    ) -> Result<Vec<OutputFile>, Failure> {
        let collected = session.read_outputs().await.map_err(interpreter_failure)?;
        for refused in &collected.refused {
            tracing::debug!(
                trajectory = attempt.id.short(),
                "output file not kept: {refused}"
            );
        }
        let keep = |file: pybench_interpreter::CollectedFile| {
            Ok(OutputFile {
                id: self.folder.store().put(&file.bytes)?,
                size: file.bytes.len() as u64,
                path: file.path,
            })
        };
        collected.files.into_iter().map(keep).collect()
    }

    fn trajectory(
        &self,
        attempt: &Attempt,
        solved: AttemptResult,
        outputs: Vec<OutputFile>,
    ) -> Trajectory {
        Trajectory {
            id: attempt.id.clone(),
            task: attempt.task.id.clone(),
            teacher: self.teachers[attempt.teacher].name().to_owned(),
            sampling: self.rollout.sampling.clone(),
            sample: attempt.sample,
            seed: attempt.id.seed(),
            environment: self.interpreter.environment().to_owned(),
            format: self.format.name().to_owned(),
            messages: solved.messages,
            turns: solved.turns,
            outputs,
            end: solved.end,
            fault: solved.fault,
        }
    }
}

impl RolloutConfig {
    /// The first teacher, then those of the mix, then those of the escalation.
    fn all_teachers(&self) -> Vec<Solver> {
        let mixed = self.teacher_mix.iter().map(|(_, teacher)| teacher);
        let first = std::iter::once(&self.teacher);
        let all = first.chain(mixed).chain(&self.escalation);
        all.cloned().collect()
    }

    /// The teachers for a task, from the first to the strongest, as indices into `all_teachers`.
    fn levels(&self, task: &Digest) -> Vec<usize> {
        let first = 1 + self.teacher_mix.len();
        let rest = first..first + self.escalation.len();
        std::iter::once(self.draw_teacher(task))
            .chain(rest)
            .collect()
    }

    /// Draws the first teacher or one of the mix; the result depends only on seed and task.
    fn draw_teacher(&self, task: &Digest) -> usize {
        let weights =
            || std::iter::once(1.0).chain(self.teacher_mix.iter().map(|(weight, _)| *weight));
        let bits = Digest::of_json(&(task, self.seed, "teacher")).seed();
        // The upper 53 bits give a double in [0, 1).
        let mut left = (bits >> 11) as f64 / (1_u64 << 53) as f64 * weights().sum::<f64>();
        let below = weights().position(|weight| {
            left -= weight;
            left < 0.0
        });
        below.unwrap_or(0)
    }
}

/// Lists the attempts: tasks in order, teachers within a task, samples of each.
fn list_attempts(
    config: &RolloutConfig,
    tasks: Vec<Arc<Task>>,
) -> (Vec<Attempt>, Vec<EscalationLadder>) {
    let (rollout, format) = (&config.rollout, config.format.name());
    let all_teachers = config.all_teachers();
    let (mut attempts, mut ladders) = (Vec::new(), Vec::with_capacity(tasks.len()));
    for task in tasks {
        let mut ladder = EscalationLadder::new();
        for teacher in config.levels(&task.id) {
            let name = all_teachers[teacher].name();
            let first = attempts.len();
            attempts.extend((0..rollout.samples).map(|sample| Attempt {
                id: Trajectory::compute_id(&task.id, name, &rollout.sampling, format, sample),
                task: task.clone(),
                sample,
                teacher,
            }));
            ladder.push((first..attempts.len()).collect());
        }
        ladders.push(ladder);
    }
    (attempts, ladders)
}

#[async_trait]
impl Stage for AttemptStage {
    fn name(&self) -> &'static str {
        stage::ROLLOUT
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let attempt = self.get(item).ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no task has the attempt {item}"),
            )
        })?;
        let session = self.interpreter.start(self.spec(attempt)).await;
        let mut session = session.map_err(interpreter_failure)?;
        let solved = self.solve(attempt, session.as_mut()).await;
        if let Err(error) = session.close().await {
            tracing::warn!(
                trajectory = attempt.id.short(),
                "cannot close the session: {error}"
            );
        }
        let (solved, outputs) = solved?;
        let trajectory = self.trajectory(attempt, solved, outputs);
        Ok(serde_json::to_value(trajectory).map_err(RunError::from)?)
    }
}
