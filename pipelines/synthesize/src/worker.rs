//! The command `pybench worker`: works on the attempts and verdicts of a run that another process coordinates.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use pybench_attempts::teacher::check_keys;
use pybench_grade as grade;
use pybench_interpreter::environment::Environment;
use pybench_rollout as rollout;
use pybench_run::artifacts::remove_stale_artifacts;
use pybench_run::artifacts::stage::{GRADE, ROLLOUT};
use pybench_run::cli::{LogArgs, Process};
use pybench_run::project::{check_runs_dir, default_runs_dir, is_path, project_root};
use pybench_run::run_selection::RunSelection;
use pybench_run::shared::{Member, Round, WorkEnd, WorkerMachine, WorkerSession};
use pybench_run::{
    ExecutorOptions, Recipe, RunContext, RunError, RunFolder, Stage, Urgency, WorkerSettings,
};
use pybench_types::id::Digest;

use crate::drain::drain;

/// How often a worker without work looks for some.
const POLL: Duration = Duration::from_millis(250);

/// Work on the attempts and verdicts of a run that `synthesize --profile` coordinates
///
/// Start as many workers as you like, before or after the run. SIGTERM or Ctrl-C drains: each trajectory ends after its
/// present turn, another worker continues it.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// File that says where the run keeps its journal
    #[arg(long, value_name = "FILE")]
    pub profile: PathBuf,
    /// Run to work on (name or folder)
    #[arg(long, value_name = "NAME")]
    pub run: PathBuf,
    /// Folder that contains the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Stages to take units of
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [WorkerStage::Rollout, WorkerStage::Grade])]
    pub stages: Vec<WorkerStage>,
    /// Units in work at the same time [default: as the recipe says, or as many as endpoint, cores and memory allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub slots: Option<u16>,
    /// Seconds in which turns may end after SIGTERM; then they are dropped, and their calls stay charged
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub drain_seconds: u32,
    /// Seconds without work after which the worker ends
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub idle_seconds: u32,
    #[command(flatten)]
    pub log: LogArgs,
}

/// A stage whose units workers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkerStage {
    Rollout,
    Grade,
}

impl WorkerStage {
    /// The name in the journal.
    fn name(self) -> &'static str {
        match self {
            Self::Rollout => ROLLOUT,
            Self::Grade => GRADE,
        }
    }

    /// Makes the stage as the coordinator does.
    async fn open(self, context: &RunContext) -> Result<Arc<dyn Stage>, RunError> {
        match self {
            Self::Rollout => Ok(rollout::open(context, rollout::tasks(context)?).await?),
            Self::Grade => grade::stage(context),
        }
    }
}

impl WorkerArgs {
    /// The run folder, which may not exist yet.
    fn folder(&self, root: Option<&Path>) -> PathBuf {
        if self.run.components().count() > 1 {
            return self.run.clone();
        }
        let runs_dir = self.runs_dir.clone();
        runs_dir
            .unwrap_or_else(|| default_runs_dir(root))
            .join(&self.run)
    }
}

/// Works until it is asked to end, or until there is nothing to do for a while.
///
/// # Errors
/// [`RunError::Conflict`] if the run cannot be joined, or if its coordinator is of another version; errors of the journal
/// and of the stages.
pub async fn run(args: &WorkerArgs, process: &Process) -> Result<(), RunError> {
    let root = args.folder(project_root(Path::new(".")).as_deref());
    check_runs_dir(&root)?;
    let mut idle = Idle::new(args, process);
    while !can_join(&root, &args.profile)? {
        if idle.ends().await {
            tracing::info!("no run begins in {}", root.display());
            return Ok(());
        }
    }
    loop {
        let mut joined = Joined::new(args, process, &root).await?;
        let end = joined.work(args, &mut idle).await;
        joined.session.leave().await?;
        match end? {
            JoinedEnd::OtherRecipe => idle.wait().await,
            JoinedEnd::Idle => return Ok(()),
        }
    }
}

/// Whether the run has begun, here or on the machine of its coordinator.
fn can_join(root: &Path, profile: &Path) -> Result<bool, RunError> {
    RunFolder::attach(root, profile)?;
    RunFolder::can_join(root)
}

/// Measures the time without work.
struct Idle<'a> {
    process: &'a Process,
    limit: Duration,
    since: Instant,
}

impl<'a> Idle<'a> {
    fn new(args: &WorkerArgs, process: &'a Process) -> Self {
        Self {
            process,
            limit: Duration::from_secs(args.idle_seconds.into()),
            since: Instant::now(),
        }
    }

    /// Waits a moment; `true` if the worker ends.
    async fn ends(&self) -> bool {
        self.wait().await;
        self.process.interrupt.requested() || self.since.elapsed() >= self.limit
    }

    async fn wait(&self) {
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            () = self.process.interrupt.wait(Urgency::Finish) => {}
        }
    }
}

/// A run that this process has joined.
struct Joined {
    context: RunContext,
    /// Digest of the frozen recipe.
    recipe: Digest,
    session: WorkerSession,
    /// Stages by name, each with the round that it was opened for.
    stages: HashMap<String, (Round, Arc<dyn Stage>)>,
}

/// Why a worker stops working on a run that it has joined.
enum JoinedEnd {
    /// The frozen recipe is another one, such as with a raised budget.
    OtherRecipe,
    /// There was nothing to do for a while, or the worker is asked to end.
    Idle,
}

impl Joined {
    async fn new(args: &WorkerArgs, process: &Process, root: &Path) -> Result<Self, RunError> {
        let (context, recipe) = context(args, process, root)?;
        let folder = context.folder.clone();
        let settings = folder.workers().unwrap_or_default();
        check_room(
            &context.recipe,
            &settings,
            Member::all(folder.journal())?.len(),
        )?;
        check_keys(&context.recipe)?;
        crate::environment(&context).await?;
        let stages = args.stages.iter().map(|stage| stage.name().to_owned());
        let name = format!("{}:{}", host(), std::process::id());
        let member = Member {
            machine: machine(&context)?,
            ..Member::new(name, stages.collect())
        };
        let queue = pybench_temporal::connect(folder.queue()).await?;
        let session = WorkerSession::start(folder.clone(), member, settings.lease())?;
        let session = session.with_queue(queue);
        let (interrupt, seconds) = (context.interrupt.clone(), args.drain_seconds);
        tokio::spawn(async move {
            interrupt.wait(Urgency::Finish).await;
            drain(&folder, &interrupt, seconds).await;
        });
        Ok(Self {
            context,
            recipe,
            session,
            stages: HashMap::new(),
        })
    }

    async fn work(
        &mut self,
        args: &WorkerArgs,
        idle: &mut Idle<'_>,
    ) -> Result<JoinedEnd, RunError> {
        let folder = self.context.folder.clone();
        let mut ended = String::new();
        loop {
            let round = Round::announced(folder.journal())?.filter(|round| round.id != ended);
            let stage = round.as_ref().and_then(|round| {
                let mut stages = args.stages.iter();
                stages.find(|stage| stage.name() == round.stage)
            });
            let (Some(round), Some(stage)) = (round, stage) else {
                if idle.ends().await {
                    tracing::info!("this worker ends");
                    return Ok(JoinedEnd::Idle);
                }
                continue;
            };
            if round.recipe != self.recipe {
                return Ok(JoinedEnd::OtherRecipe);
            }
            let opened = self.open(*stage, &round).await?;
            tracing::info!("working on the stage {}", round.stage);
            let how = (&self.context.options, &self.context.interrupt);
            let end = self.session.work_on(how, opened, &round).await?;
            idle.since = Instant::now();
            if end == WorkEnd::Drained {
                tracing::info!("drained: the units of this worker go on elsewhere");
                return Ok(JoinedEnd::Idle);
            }
            ended = round.id;
        }
    }

    /// The stage of a round, if this program makes the same outputs as the coordinator.
    async fn open(
        &mut self,
        stage: WorkerStage,
        round: &Round,
    ) -> Result<Arc<dyn Stage>, RunError> {
        let refuse = |why: Option<String>| match why {
            Some(why) => Err(RunError::Conflict(format!(
                "this worker takes no units: {why}"
            ))),
            None => Ok(()),
        };
        refuse(round.differs(None)?)?;
        if let Some((known, opened)) = self.stages.get(&round.stage)
            && known.has_stage_of(round)
        {
            return Ok(opened.clone());
        }
        // Models are opened with the budget, so that a raised one counts.
        self.context.options.budget = round.budget;
        self.context.options.attempts = round.attempts;
        // They may have been written again since this worker joined.
        remove_stale_artifacts(&self.context.folder)?;
        let opened = stage.open(&self.context).await?;
        refuse(round.differs(Some(&opened.version()))?)?;
        let kept = (round.clone(), opened.clone());
        self.stages.insert(round.stage.clone(), kept);
        Ok(opened)
    }
}

/// The context of a worker and the digest of its recipe, from what the coordinator has frozen into the run folder.
fn context(
    args: &WorkerArgs,
    process: &Process,
    root: &Path,
) -> Result<(RunContext, Digest), RunError> {
    let folder = RunFolder::join(root, &args.profile)?;
    remove_stale_artifacts(&folder)?;
    let text = folder.frozen_recipe()?;
    let recipe = Recipe::parse("recipe.toml", &text, &[])?;
    let lease = folder.workers().unwrap_or_default().lease();
    let project = project_root(Path::new("."));
    let beside = || {
        let recipe = RunSelection::of(root).and_then(|selection| selection.recipe);
        let recipe = recipe.filter(|recipe| is_path(recipe));
        let folder = recipe.and_then(|recipe| recipe.parent().map(Path::to_owned));
        folder.unwrap_or_else(|| PathBuf::from("."))
    };
    let options = ExecutorOptions::of(&recipe);
    let context = RunContext {
        options: ExecutorOptions {
            concurrency: args.slots.map(usize::from).or(options.concurrency),
            lease,
            ..options
        },
        progress: process.progress.clone(),
        interrupt: process.interrupt.clone(),
        project_root: project.unwrap_or_else(beside),
        ..RunContext::new(Arc::new(folder), recipe)
    };
    Ok((context, Digest::of_bytes(text.as_bytes())))
}

/// What this worker runs on.
fn machine(context: &RunContext) -> Result<WorkerMachine, RunError> {
    let tier = serde_json::to_value(context.recipe.interpreter.tier)?;
    let packages = Environment::find().map(|environment| environment.digest);
    WorkerMachine::here(
        tier.as_str().unwrap_or_default().to_owned(),
        &packages.map_err(|error| RunError::Environment(error.to_string()))?,
    )
}

/// Checks that another worker may join, so that all processes together keep the rate limits of the recipe.
fn check_room(recipe: &Recipe, settings: &WorkerSettings, others: usize) -> Result<(), RunError> {
    match settings.max {
        Some(max) if others >= max as usize => Err(RunError::Conflict(format!(
            "{others} workers have joined the run, and workers.max of the profile allows {max}; raise it, and start the \
             run and its workers again"
        ))),
        None if recipe.models().iter().any(|(_, model)| model.has_rate_limits()) => {
            Err(RunError::Conflict(
                "the recipe limits requests or tokens per minute, and the profile does not say among how many processes \
                 they are divided: add `[workers]` with `max = NUMBER` to it, and start the run and its workers again"
                    .to_owned(),
            ))
        }
        _ => Ok(()),
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "worker".to_owned(), |name| name.trim().to_owned())
}
