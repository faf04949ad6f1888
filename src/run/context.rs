//! What every stage is given: `pub async fn run(context: &RunContext) -> Result<(), RunError>`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::local::{ExecutorOptions, LocalExecutor};
use super::{Interrupt, Progress, Recipe, RunFolder};

/// How much of a run is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All of it.
    #[default]
    Full,
    /// Nothing is paid: `rollout` prints the calls, tokens and money to expect, and stops.
    DryRun,
    /// The first tasks only: `rollout` shows them and what became of them, and stops. What was
    /// done stays in the journal and is not paid again.
    Preview(usize),
}

/// What a stage is given.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// Journal, content store and artefacts; the lock is held.
    pub folder: Arc<RunFolder>,
    /// What the run is asked to do, validated.
    pub recipe: Recipe,
    /// How units are executed; `concurrency` comes from the recipe, 0 resolved to the cores.
    pub options: ExecutorOptions,
    /// Bars on a terminal, lines elsewhere.
    pub progress: Progress,
    /// Ctrl-C.
    pub interrupt: Interrupt,
    /// Relative paths of the recipe start here: the folder with `pipelines/recipes`, or the
    /// recipe's own folder when there is none.
    pub project_root: PathBuf,
    /// Downloads and environments shared by runs; see [`default_cache_dir`].
    pub cache_dir: PathBuf,
    /// All, a dry run, or a preview.
    pub mode: Mode,
}

impl RunContext {
    /// A context with defaults: no visible progress, nobody interrupts, the current directory as
    /// project root. For tests and for programs that embed a stage.
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
        }
    }

    /// The executor that does this run's work, concurrency as in the options.
    pub fn executor(&self) -> LocalExecutor {
        LocalExecutor::new(
            self.folder.clone(),
            self.options.clone(),
            self.progress.clone(),
            self.interrupt.clone(),
        )
    }

    /// A path of the recipe, relative ones from the project root.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.project_root.join(path)
    }
}

/// Where downloads and environments are shared: `$PYBENCH_CACHE`, else `/var/cache/pybench` for
/// root, else `$XDG_CACHE_HOME/pybench`, else `~/.cache/pybench`.
pub fn default_cache_dir() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = variable("PYBENCH_CACHE") {
        return path.into();
    }
    if rustix::process::geteuid().is_root() {
        return "/var/cache/pybench".into();
    }
    if let Some(path) = variable("XDG_CACHE_HOME") {
        return PathBuf::from(path).join("pybench");
    }
    let home = variable("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    home.join(".cache/pybench")
}
