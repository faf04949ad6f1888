//! One try at one task: a session, the ReAct loop, the files it left.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::agent::{self, Format, Job, JournalLog, Solved, interpreter_failure};
use pybench::id::Digest;
use pybench::interpreter::{Interpreter, Network, Session, SessionSpec};
use pybench::llm::{Batches, Teacher};
use pybench::run::{Failure, FailureKind, Rollout, RunContext, RunError, RunFolder, Stage};
use pybench::task::Task;
use pybench::trajectory::{OutputFile, Trajectory};
use serde_json::Value;

use super::STAGE;
use crate::goal::Course;

/// A task and the number of a sample of it.
#[derive(Clone, Debug)]
pub struct Try {
    /// Content id of the trajectory.
    pub id: Digest,
    /// What is asked.
    pub task: Arc<Task>,
    /// Sample number, from 0.
    pub sample: u32,
    /// Who tries: a place in the crew's teachers.
    pub teacher: usize,
}

/// The stage: its items are ids of trajectories, its outputs trajectories.
pub struct RolloutStage {
    folder: Arc<RunFolder>,
    how: Rollout,
    session: SessionSpec,
    format: &'static dyn Format,
    teachers: Vec<Arc<dyn Teacher>>,
    interpreter: Arc<dyn Interpreter>,
    order: Vec<Try>,
    /// The tries of each task, by teacher.
    courses: Vec<Course>,
    /// Item → place in `order`.
    places: HashMap<String, usize>,
}

/// Who tries, and how.
pub struct Crew {
    /// Samples, turns, sampling.
    pub how: Rollout,
    /// What every session starts with; inputs and seed are the task's.
    pub session: SessionSpec,
    /// How messages are framed.
    pub format: &'static dyn Format,
    /// Who replies.
    pub teacher: Arc<dyn Teacher>,
    /// Who is drawn for some of the tasks in its place, by weight (its own is 1).
    pub mix: Vec<(f64, Arc<dyn Teacher>)>,
    /// Who tries the tasks that it fails, one after another.
    pub stronger: Vec<Arc<dyn Teacher>>,
    /// Seed of the draw.
    pub seed: u64,
    /// Who runs cells.
    pub interpreter: Arc<dyn Interpreter>,
}

impl RolloutStage {
    /// Every sample of every task, as the run's recipe says.
    pub fn new(
        context: &RunContext,
        tasks: Vec<Task>,
        teachers: Vec<Arc<dyn Teacher>>,
        interpreter: Arc<dyn Interpreter>,
    ) -> Result<Self, RunError> {
        let recipe = &context.recipe;
        let mut teachers = teachers.into_iter();
        let teacher = teachers.next();
        let teacher = teacher.ok_or_else(|| RunError::Internal("no teacher".to_owned()))?;
        let weights = recipe.mix.iter().map(|mixed| mixed.weight);
        let mix = weights.zip(teachers.by_ref()).collect();
        let wheelhouse = recipe.interpreter.wheelhouse.as_ref();
        // A list with an error in it has been refused with the recipe.
        let network = Network::to(&recipe.interpreter.network).ok().flatten();
        let crew = Crew {
            how: recipe.rollout.clone(),
            session: SessionSpec {
                limits: recipe.interpreter.limits.clone(),
                wheelhouse: wheelhouse.map(|path| context.resolve(path)),
                network,
                ..SessionSpec::default()
            },
            format: agent::format(recipe.rollout.format),
            teacher,
            mix,
            stronger: teachers.collect(),
            seed: recipe.seed,
            interpreter,
        };
        let tasks = tasks.into_iter().map(Arc::new).collect();
        Ok(Self::with(context.folder.clone(), tasks, crew))
    }

    /// The same without a recipe.
    pub fn with(folder: Arc<RunFolder>, tasks: Vec<Arc<Task>>, crew: Crew) -> Self {
        let (order, courses) = tries(&crew, tasks);
        let places = order.iter().enumerate();
        let teachers = crew.everybody();
        Self {
            folder,
            how: crew.how,
            session: crew.session,
            format: crew.format,
            teachers,
            interpreter: crew.interpreter,
            places: places.map(|(at, t)| (t.id.to_string(), at)).collect(),
            order,
            courses,
        }
    }

    /// Every try, in order.
    pub fn tries(&self) -> &[Try] {
        &self.order
    }

    /// What its teachers ask in batches.
    pub fn batches(&self) -> impl Iterator<Item = &Batches> {
        self.teachers.iter().filter_map(|teacher| teacher.batches())
    }

    /// The tries of each task, by teacher: places in [`RolloutStage::tries`].
    pub fn courses(&self) -> &[Course] {
        &self.courses
    }

    /// The items of those tries.
    pub fn items_of(&self, tries: &[usize]) -> Vec<String> {
        let tries = tries.iter().filter_map(|at| self.order.get(*at));
        tries.map(|t| t.id.to_string()).collect()
    }

    /// Every item, in order.
    pub fn items(&self) -> Vec<String> {
        self.order.iter().map(|t| t.id.to_string()).collect()
    }

    /// The items of the first sample of the first tasks.
    pub fn first_tries(&self, tasks: usize) -> Vec<String> {
        let courses = self.courses.iter().take(tasks);
        let first = courses.filter_map(|course| course.first()?.first().copied());
        self.items_of(&first.collect::<Vec<_>>())
    }

    /// The try behind an item.
    pub fn get(&self, item: &str) -> Option<&Try> {
        self.order.get(*self.places.get(item)?)
    }

    fn spec(&self, asked: &Try) -> SessionSpec {
        let store = self.folder.store();
        let files = asked.task.files.iter();
        SessionSpec {
            inputs: files
                .map(|file| (format!("data/{}", file.name), store.path(&file.id)))
                .collect(),
            seed: asked.id.seed(),
            network: self
                .session
                .network
                .as_ref()
                .map(|n| n.of(asked.id.short())),
            ..self.session.clone()
        }
    }

    async fn solve(
        &self,
        asked: &Try,
        session: &mut dyn Session,
    ) -> Result<(Solved, Vec<OutputFile>), Failure> {
        let job = Job {
            task: &asked.task,
            sample: asked.sample,
            teacher: self.teachers[asked.teacher].as_ref(),
            format: self.format,
            sampling: &self.how.sampling,
            max_turns: self.how.max_turns,
        };
        let log = JournalLog::new(self.folder.clone(), asked.id.clone());
        let solved = agent::solve(&job, session, &log).await?;
        Ok((solved, self.keep_outputs(asked, session).await?))
    }

    async fn keep_outputs(
        &self,
        asked: &Try,
        session: &mut dyn Session,
    ) -> Result<Vec<OutputFile>, Failure> {
        let collected = session.read_outputs().await.map_err(interpreter_failure)?;
        for refused in &collected.refused {
            tracing::debug!(trajectory = asked.id.short(), "left behind: {refused}");
        }
        let keep = |file: pybench::interpreter::CollectedFile| {
            Ok(OutputFile {
                id: self.folder.store().put(&file.bytes)?,
                size: file.bytes.len() as u64,
                path: file.path,
            })
        };
        collected.files.into_iter().map(keep).collect()
    }

    fn trajectory(&self, asked: &Try, solved: Solved, outputs: Vec<OutputFile>) -> Trajectory {
        Trajectory {
            id: asked.id.clone(),
            task: asked.task.id.clone(),
            teacher: self.teachers[asked.teacher].name().to_owned(),
            sampling: self.how.sampling.clone(),
            sample: asked.sample,
            seed: asked.id.seed(),
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

impl Crew {
    /// The teacher, those of the mix, the stronger ones.
    fn everybody(&self) -> Vec<Arc<dyn Teacher>> {
        let mixed = self.mix.iter().map(|(_, teacher)| teacher);
        let first = std::iter::once(&self.teacher);
        let all = first.chain(mixed).chain(&self.stronger);
        all.cloned().collect()
    }

    /// Who tries a task, from the first to the strongest: places in everybody.
    fn rungs(&self, task: &Digest) -> Vec<usize> {
        let stronger = 1 + self.mix.len();
        let rest = stronger..stronger + self.stronger.len();
        std::iter::once(self.drawn(task)).chain(rest).collect()
    }

    /// The teacher or one of the mix, from seed and task alone.
    fn drawn(&self, task: &Digest) -> usize {
        let weights = || std::iter::once(1.0).chain(self.mix.iter().map(|(weight, _)| *weight));
        let drawn = Digest::of_json(&(task, self.seed, "teacher")).seed();
        // 53 bits make a double in [0, 1).
        let mut left = (drawn >> 11) as f64 / (1_u64 << 53) as f64 * weights().sum::<f64>();
        let below = weights().position(|weight| {
            left -= weight;
            left < 0.0
        });
        below.unwrap_or(0)
    }
}

/// Tasks in their order, teachers within a task, samples of each.
fn tries(crew: &Crew, tasks: Vec<Arc<Task>>) -> (Vec<Try>, Vec<Course>) {
    let (how, format) = (&crew.how, crew.format.name());
    let everybody = crew.everybody();
    let (mut order, mut courses) = (Vec::new(), Vec::with_capacity(tasks.len()));
    for task in tasks {
        let mut course = Course::new();
        for teacher in crew.rungs(&task.id) {
            let name = everybody[teacher].name();
            let first = order.len();
            order.extend((0..how.samples).map(|sample| Try {
                id: Trajectory::compute_id(&task.id, name, &how.sampling, format, sample),
                task: task.clone(),
                sample,
                teacher,
            }));
            course.push((first..order.len()).collect());
        }
        courses.push(course);
    }
    (order, courses)
}

#[async_trait]
impl Stage for RolloutStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let asked = self.get(item).ok_or_else(|| {
            Failure::new(FailureKind::Internal, format!("no task has the try {item}"))
        })?;
        let session = self.interpreter.start(self.spec(asked)).await;
        let mut session = session.map_err(interpreter_failure)?;
        let solved = self.solve(asked, session.as_mut()).await;
        if let Err(error) = session.close().await {
            tracing::warn!(trajectory = asked.id.short(), "closing a session: {error}");
        }
        let (solved, outputs) = solved?;
        let trajectory = self.trajectory(asked, solved, outputs);
        Ok(serde_json::to_value(trajectory).map_err(RunError::from)?)
    }
}
