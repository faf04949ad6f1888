//! The argument of every stage: `pub async fn run(context: &RunContext) -> Result<(), RunError>`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::local::{ExecutorOptions, LocalExecutor};
use super::project::find_shipped;
use pybench_interpreter::default_cache_dir;

use super::shared::{SharedExecutor, UnitQueue};
use super::{Executor, Interrupt, ModelChoice, Progress, Recipe, RunError, RunFolder, local_copy};

/// How much of a run to execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The whole run.
    #[default]
    Full,
    /// No paid calls: `rollout` prints the expected calls, tokens and cost, and stops.
    DryRun,
    /// Only the first tasks: `rollout` solves them, shows the results, and stops. The results stay in the
    /// journal and are not paid for again.
    Preview(usize),
}

/// Everything a stage needs to run.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// Journal, content store and artifacts; this process holds the lock.
    pub folder: Arc<RunFolder>,
    /// The validated recipe.
    pub recipe: Recipe,
    /// How units are executed, and what they may spend: the budget of the recipe, or what other runs that share it have
    /// left of it.
    pub options: ExecutorOptions,
    /// Progress bars on a terminal, log lines elsewhere.
    pub progress: Progress,
    /// Set by Ctrl-C.
    pub interrupt: Interrupt,
    /// Base of relative paths in the recipe: the folder with `pipelines/recipes`; if there is none, the folder of the
    /// recipe, or the current directory for a recipe that comes with the program.
    pub project_root: PathBuf,
    /// Downloads and Python environments that runs share; see [`default_cache_dir`].
    pub cache_dir: PathBuf,
    pub mode: Mode,
    /// Distributes units to the processes that share the run; without it, they ask the journal.
    pub queue: Option<Arc<dyn UnitQueue>>,
}

impl RunContext {
    /// A context with defaults: hidden progress, no interrupts, the current directory as project root. For
    /// tests and for programs that embed a stage.
    pub fn new(folder: Arc<RunFolder>, recipe: Recipe) -> Self {
        Self {
            options: ExecutorOptions::of(&recipe),
            folder,
            recipe,
            progress: Progress::hidden(),
            interrupt: Interrupt::new(),
            project_root: PathBuf::from("."),
            cache_dir: default_cache_dir(),
            mode: Mode::Full,
            queue: None,
        }
    }

    /// An executor for this run, with the concurrency of `options`.
    pub fn executor(&self) -> LocalExecutor {
        LocalExecutor::new(
            self.folder.clone(),
            self.options.clone(),
            self.progress.clone(),
            self.interrupt.clone(),
        )
    }

    /// An executor for a stage whose units may be made by several processes, if the journal can be shared. Units that use a
    /// batch API or a model on this machine are executed here.
    pub fn shared_executor<'m>(
        &self,
        mut models: impl Iterator<Item = &'m ModelChoice>,
    ) -> Box<dyn Executor> {
        if !self.folder.journal().is_shared() || models.any(ModelChoice::needs_this_process) {
            return Box::new(self.executor());
        }
        let executor = SharedExecutor::new(
            self.folder.clone(),
            self.options.clone(),
            self.progress.clone(),
            self.interrupt.clone(),
        );
        Box::new(executor.with_queue(self.queue.clone()))
    }

    /// As [`RunContext::resolve`]; what is in a bucket (`s3://`, …) is copied into the machine's cache.
    ///
    /// # Errors
    /// As [`local_copy`].
    pub fn fetch(&self, path: &Path) -> Result<PathBuf, RunError> {
        let copy = local_copy(path, &self.cache_dir)?;
        Ok(copy.unwrap_or_else(|| self.resolve(path)))
    }

    /// Resolves a path of the recipe. Relative paths start at the project root; what the project does not have is
    /// looked up among the files that come with the program.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        let own = self.project_root.join(path);
        if path.is_absolute() || own.exists() {
            return own;
        }
        let shipped = find_shipped(path).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            None
        });
        shipped.unwrap_or(own)
    }
}
