//! One attempt at one task: runs the ReAct loop in a session of its own and stores the output files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent as agent;
use pybench_agent::{AttemptResult, AttemptSpec, Format, JournalLog, Solver, TurnFeedback};
use pybench_interpreter::{CollectedFile, Interpreter, LateSession, Network, Session, SessionSpec};
use pybench_llm::Batches;
use pybench_run::interpreter_failure;
use pybench_run::{
    ContentStore, Failure, FailureKind, Rollout, RunContext, RunError, RunFolder, Stage,
};
use pybench_types::id::{CompactDigest, Digest};
use pybench_types::task::{Task, TaskFile};
use pybench_types::trajectory::{End, OutputFile, Trajectory};
use serde_json::Value;

use pybench_run::artifacts::stage;

use crate::ladders::Ladders;
use crate::task_list::{AttemptItems, TaskList};

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
    /// The attempt that this one corrects: the same sample on the level before.
    pub corrects: Option<Digest>,
}

impl Attempt {
    /// Seed of the session. A correction continues in the state of the attempt that it corrects.
    fn seed(&self) -> u64 {
        self.corrects.as_ref().unwrap_or(&self.id).seed()
    }
}

/// The stage that makes attempts. Its items are trajectory ids, its outputs trajectories.
pub struct AttemptStage {
    folder: Arc<RunFolder>,
    rollout: Rollout,
    session: SessionSpec,
    format: &'static dyn Format,
    teachers: Vec<Solver>,
    interpreter: Arc<dyn Interpreter>,
    feedback: Option<Arc<dyn TurnFeedback>>,
    tasks: TaskList,
    ladders: Ladders,
    /// Ids of the attempts, by number.
    ids: Vec<CompactDigest>,
    /// Numbers of the attempts, by id.
    by_id: Vec<u32>,
    /// The teachers of each task: index of the first one in the list of all teachers. The further levels are the
    /// same for all tasks.
    first_teachers: Vec<u16>,
    /// Index of the first teacher of the escalation.
    escalation: usize,
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
    /// Gives feedback during attempts at the tasks that it applies to.
    pub feedback: Option<Arc<dyn TurnFeedback>>,
}

impl AttemptStage {
    /// Creates the attempts of a run from its recipe. `teachers` are in the order of
    /// [`Recipe::teachers`](pybench_run::Recipe::teachers).
    pub fn new(
        context: &RunContext,
        tasks: impl Into<TaskList>,
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
        let wheelhouse = wheelhouse.map(|path| context.fetch(path)).transpose()?;
        // The recipe was validated when it was read, so an invalid list cannot occur here.
        let network = Network::allow(&recipe.interpreter.network).ok().flatten();
        let config = RolloutConfig {
            rollout: recipe.rollout.clone(),
            session: SessionSpec {
                limits: recipe.interpreter.limits.clone(),
                wheelhouse,
                network,
                ..SessionSpec::default()
            },
            format: agent::format(recipe.rollout.format),
            teacher,
            teacher_mix,
            escalation: teachers.collect(),
            seed: recipe.seed,
            interpreter,
            feedback: None,
        };
        Ok(Self::from_config(context.folder.clone(), tasks, config))
    }

    /// Creates the attempts of these tasks without a recipe: tasks in order, levels within a task, samples within
    /// a level.
    pub fn from_config(
        folder: Arc<RunFolder>,
        tasks: impl Into<TaskList>,
        config: RolloutConfig,
    ) -> Self {
        let tasks = tasks.into();
        let ladders = Ladders {
            tasks: tasks.len(),
            levels: 1 + config.escalation.len(),
            samples: config.rollout.samples as usize,
        };
        let first_teachers = tasks.ids().map(|task| config.draw_teacher(&task));
        let first_teachers: Vec<u16> = first_teachers.collect();
        let ids = attempt_ids(&config, &tasks, &first_teachers, &ladders);
        let mut by_id: Vec<u32> = (0..ids.len() as u32).collect();
        by_id.sort_unstable_by_key(|number| (ids[*number as usize], *number));
        Self {
            folder,
            teachers: config.all_teachers(),
            escalation: 1 + config.teacher_mix.len(),
            rollout: config.rollout,
            session: config.session,
            format: config.format,
            interpreter: config.interpreter,
            feedback: config.feedback,
            tasks,
            ladders,
            ids,
            by_id,
            first_teachers,
        }
    }

    /// Number of attempts.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The id of the attempt with this number, which is below [`AttemptStage::len`].
    pub fn id(&self, number: usize) -> Digest {
        self.ids[number].into()
    }

    /// Number of the task, and number of the sample, of the attempt with this number.
    pub fn task_and_sample(&self, number: usize) -> (usize, u32) {
        let (task, _, sample) = self.ladders.place(number);
        (task, sample as u32)
    }

    /// The batch queues of the teachers that use a batch API.
    pub fn batches(&self) -> impl Iterator<Item = &Batches> {
        self.teachers.iter().filter_map(|teacher| teacher.batches())
    }

    /// The attempts of each task, by level.
    pub fn ladders(&self) -> &Ladders {
        &self.ladders
    }

    /// The items of the attempts with these numbers.
    pub fn items_of<'a>(&'a self, numbers: &'a [usize]) -> AttemptItems<'a> {
        AttemptItems {
            ids: &self.ids,
            numbers,
        }
    }

    /// All items, in the order of the attempts.
    pub fn items(&self) -> Vec<String> {
        self.ids.iter().map(|id| Digest::from(*id).into()).collect()
    }

    /// The first sample of each of the first `tasks` tasks.
    pub fn first_attempts(&self, tasks: usize) -> Vec<usize> {
        let ladders = (0..self.ladders.tasks.min(tasks)).map(|task| self.ladders.level(task, 0));
        ladders.filter_map(|mut level| level.next()).collect()
    }

    /// The attempt with this item. Its task is read if it is not in memory.
    ///
    /// # Errors
    /// Errors of reading the task.
    pub fn get(&self, item: &str) -> Result<Option<Attempt>, RunError> {
        let Ok(id) = Digest::try_from(item.to_owned()) else {
            return Ok(None);
        };
        let compact = CompactDigest::from(&id);
        let id_of = |number: &u32| self.ids[*number as usize];
        let after = self
            .by_id
            .partition_point(|number| id_of(number) <= compact);
        let last = self.by_id[..after].last();
        let Some(number) = last.filter(|number| id_of(number) == compact) else {
            return Ok(None);
        };
        let (task, level, sample) = self.ladders.place(*number as usize);
        let teacher = match level {
            0 => usize::from(self.first_teachers[task]),
            level => self.escalation + level - 1,
        };
        Ok(Some(Attempt {
            id,
            task: self.tasks.get(task)?,
            sample: sample as u32,
            teacher,
            corrects: self.corrected(teacher, (task, level, sample)),
        }))
    }

    /// The attempt that a correcting teacher continues.
    fn corrected(
        &self,
        teacher: usize,
        (task, level, sample): (usize, usize, usize),
    ) -> Option<Digest> {
        let corrects = match self.teachers[teacher] {
            Solver::Correction(_) => true,
            Solver::Model(_) => self.rollout.corrections && level == 1,
            Solver::Script(_) => false,
        };
        if !corrects {
            return None;
        }
        let before = self.ladders.level(task, level.checked_sub(1)?);
        Some(self.id(before.start + sample))
    }

    fn spec(&self, attempt: &Attempt) -> Result<SessionSpec, RunError> {
        Ok(SessionSpec {
            inputs: input_files(&attempt.task, self.folder.store())?,
            seed: attempt.seed(),
            network: self
                .session
                .network
                .as_ref()
                .map(|n| n.for_session(attempt.id.short())),
            ..self.session.clone()
        })
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
            max_identical_turns: self.rollout.max_identical_turns,
            code_within_tokens: self.rollout.code_within_tokens,
            feedback: self
                .feedback
                .as_deref()
                .filter(|one| one.applies(&attempt.task)),
        };
        let log = JournalLog::new(self.folder.clone(), attempt.id.clone());
        let solved = match &attempt.corrects {
            Some(corrects) => {
                let student = self.rejected(corrects)?;
                agent::correct(&spec, &student, session, &log).await
            }
            None => agent::solve(&spec, session, &log).await,
        };
        let solved = solved?;
        let outputs = keep_outputs(session, self.folder.store(), &attempt.id).await?;
        Ok((solved, outputs))
    }

    /// The attempt of a student that a correction continues.
    fn rejected(&self, id: &Digest) -> Result<Trajectory, Failure> {
        let found = self.folder.journal().output(stage::ROLLOUT, id.as_str())?;
        found.ok_or_else(|| {
            let detail = format!("the attempt {id} that is to be corrected is not in the journal");
            Failure::new(FailureKind::Internal, detail)
        })
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
            seed: attempt.seed(),
            environment: self.interpreter.environment().to_owned(),
            format: self.format.name().to_owned(),
            messages: solved.messages,
            turns: solved.turns,
            outputs,
            end: solved.end,
            fault: solved.fault,
            corrects: solved.corrects,
        }
    }
}

/// The input files of a session: path in the workspace, and file of the store.
///
/// # Errors
/// A file is missing or damaged.
pub fn input_files(
    task: &Task,
    store: &ContentStore,
) -> Result<BTreeMap<String, PathBuf>, RunError> {
    let input = |file: &TaskFile| {
        let path = store.checked_path(&file.id)?;
        Ok((format!("data/{}", file.name), path))
    };
    task.files.iter().map(input).collect()
}

/// Stores the output files of a session. `trajectory` names it in the log.
///
/// # Errors
/// The files cannot be read or stored.
pub async fn keep_outputs(
    session: &mut dyn Session,
    store: &ContentStore,
    trajectory: &Digest,
) -> Result<Vec<OutputFile>, Failure> {
    let collected = session.read_outputs().await.map_err(interpreter_failure)?;
    for refused in &collected.refused {
        tracing::debug!(
            trajectory = trajectory.short(),
            "output file not kept: {refused}"
        );
    }
    let keep = |file: CollectedFile| {
        Ok(OutputFile {
            id: store.put(&file.bytes)?,
            size: file.bytes.len() as u64,
            path: file.path,
        })
    };
    collected.files.into_iter().map(keep).collect()
}

impl RolloutConfig {
    /// The first teacher, then those of the mix, then those of the escalation.
    fn all_teachers(&self) -> Vec<Solver> {
        let mixed = self.teacher_mix.iter().map(|(_, teacher)| teacher);
        let first = std::iter::once(&self.teacher);
        let all = first.chain(mixed).chain(&self.escalation);
        all.cloned().collect()
    }

    /// Draws the first teacher or one of the mix; the result depends only on seed and task.
    fn draw_teacher(&self, task: &Digest) -> u16 {
        let weights =
            || std::iter::once(1.0).chain(self.teacher_mix.iter().map(|(weight, _)| *weight));
        let drawn = Digest::of_json(&(task, self.seed, "teacher"));
        let mut left = drawn.fraction() * weights().sum::<f64>();
        let below = weights().position(|weight| {
            left -= weight;
            left < 0.0
        });
        // A recipe names few teachers.
        below
            .and_then(|teacher| u16::try_from(teacher).ok())
            .unwrap_or(0)
    }
}

/// The ids of all attempts, by number.
fn attempt_ids(
    config: &RolloutConfig,
    tasks: &TaskList,
    first_teachers: &[u16],
    ladders: &Ladders,
) -> Vec<CompactDigest> {
    let (rollout, format) = (&config.rollout, config.format.name());
    let teachers = config.all_teachers();
    let mut ids = Vec::with_capacity(ladders.attempts());
    for (task, first) in tasks.ids().zip(first_teachers) {
        let first = &teachers[usize::from(*first)];
        for teacher in std::iter::once(first).chain(&config.escalation) {
            let id = |sample| {
                let name = teacher.name();
                Trajectory::compute_id(&task, name, &rollout.sampling, format, sample)
            };
            ids.extend((0..rollout.samples).map(|sample| CompactDigest::from(&id(sample))));
        }
    }
    ids
}

/// The result of a correction whose student's cells give other observations when they run again: no correction, which
/// grading rejects for want of an answer.
fn not_repeated(attempt: &Attempt, failure: &Failure) -> AttemptResult {
    tracing::info!(
        trajectory = attempt.id.short(),
        "not corrected, since the cells before the failing turn do not repeat: {failure}"
    );
    AttemptResult {
        messages: Vec::new(),
        turns: Vec::new(),
        end: End::NoAnswer,
        fault: None,
        corrects: None,
    }
}

#[async_trait]
impl Stage for AttemptStage {
    fn name(&self) -> &'static str {
        stage::ROLLOUT
    }

    fn version(&self) -> String {
        self.interpreter.environment().to_owned()
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let attempt = &self.get(item)?.ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no task has the attempt {item}"),
            )
        })?;
        let spec = self.spec(attempt)?;
        let mut session = LateSession::new(self.interpreter.clone(), spec);
        let solved = self.solve(attempt, &mut session).await;
        if let Err(error) = Box::new(session).close().await {
            tracing::warn!(
                trajectory = attempt.id.short(),
                "cannot close the session: {error}"
            );
        }
        let (solved, outputs) = match solved {
            Err(failure) if failure.kind == FailureKind::Replay && attempt.corrects.is_some() => {
                (not_repeated(attempt, &failure), Vec::new())
            }
            solved => solved?,
        };
        let trajectory = self.trajectory(attempt, solved, outputs);
        Ok(serde_json::to_value(trajectory).map_err(RunError::from)?)
    }
}
