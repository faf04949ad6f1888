//! What every stage's command line shares: arguments, logging, Ctrl-C, exit codes.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::log::{self, LogFormat};
use super::project::{default_runs_dir, find_recipe, project_root};
use super::{
    ExecutorOptions, ExitCode, Interrupt, Mode, Progress, Recipe, RecipeError, RetryFailed,
    RunContext, RunError, RunFolder, Urgency, default_cache_dir,
};
use crate::interpreter::service::{ServiceError, Tokens, TokensError};

/// After the second Ctrl-C, leases get this long to be given back.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Which run: the recipe, what is changed in it, and the folder.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Recipe: a file, or a name in pipelines/recipes [default: quickstart]
    #[arg(value_name = "RECIPE")]
    pub recipe: Option<PathBuf>,
    /// The same as an option
    #[arg(
        long = "recipe",
        value_name = "RECIPE",
        conflicts_with = "recipe",
        hide = true
    )]
    pub recipe_option: Option<PathBuf>,
    /// Change a key of the recipe, such as rollout.samples=4; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Name of the run folder [default: the recipe's name]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Where run folders lie [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Pay nothing: print the calls, tokens and money to expect, and stop
    #[arg(long, conflicts_with = "preview")]
    pub dry_run: bool,
    /// Show the first N tasks and what became of them, and stop
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub preview: Option<u16>,
    /// Try every failed unit anew, bad items too [default: only failures of the machine or an endpoint]
    #[arg(long)]
    pub retry_failed: bool,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// How much is logged, and how.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LogArgs {
    /// Log more; twice for everything
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// Format of the log on stderr
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        global = true
    )]
    pub log_format: LogFormat,
}

/// What a process shares: its progress display and its Ctrl-C.
#[derive(Clone, Debug)]
pub struct Process {
    /// Bars or lines.
    pub progress: Progress,
    /// Raised by Ctrl-C and SIGTERM.
    pub interrupt: Interrupt,
}

impl RunArgs {
    /// Load the recipe, open the run folder, and say how the work is done.
    pub fn open(&self, process: &Process) -> Result<RunContext, RunError> {
        let root = project_root(Path::new("."));
        let (path, recipe) = self.load(root.as_deref())?;
        let name = self.run.as_deref().unwrap_or(&recipe.name);
        check_run_name(name)?;
        let runs_dir = self.runs_dir.clone();
        let runs_dir = runs_dir.unwrap_or_else(|| default_runs_dir(root.as_deref()));
        let folder = RunFolder::open(&runs_dir.join(name), &recipe.to_toml()?)?;
        let beside = || path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(RunContext {
            options: ExecutorOptions {
                retry_failed: match self.retry_failed {
                    true => RetryFailed::All,
                    false => RetryFailed::Ours,
                },
                ..ExecutorOptions::of(&recipe)
            },
            progress: process.progress.clone(),
            interrupt: process.interrupt.clone(),
            project_root: root.unwrap_or_else(beside),
            cache_dir: default_cache_dir(),
            mode: match (self.dry_run, self.preview) {
                (true, _) => Mode::DryRun,
                (false, Some(count)) => Mode::Preview(count.into()),
                (false, None) => Mode::Full,
            },
            ..RunContext::new(Arc::new(folder), recipe)
        })
    }

    /// The recipe's file and content, `--set` applied.
    pub fn load(&self, root: Option<&Path>) -> Result<(PathBuf, Recipe), RunError> {
        let asked = self.recipe.as_deref().or(self.recipe_option.as_deref());
        let path = find_recipe(asked.unwrap_or(Path::new("quickstart")), root)?;
        let recipe = Recipe::load(&path, &self.set)?;
        Ok((path, recipe))
    }
}

/// A run's name is one folder's name, whatever the command line says.
fn check_run_name(name: &str) -> Result<(), RunError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(allowed) {
        return Ok(());
    }
    Err(RunError::BadInput(format!(
        "--run {name:?}: expected 1 to 64 letters, digits, `-` or `_`"
    )))
}

/// The whole main of a stage: arguments, folder, one function, exit code.
///
/// ```no_run
/// # use pybench::run::{RunContext, RunError, cli};
/// # async fn run(context: &RunContext) -> Result<(), RunError> { Ok(()) }
/// fn main() -> std::process::ExitCode {
///     cli::stage_main("pybench-crawl", "Collect files", |context| async move {
///         run(&context).await
///     })
/// }
/// ```
pub fn stage_main<Stage, Running>(
    name: &'static str,
    about: &'static str,
    stage: Stage,
) -> std::process::ExitCode
where
    Stage: FnOnce(RunContext) -> Running,
    Running: Future<Output = Result<(), RunError>>,
{
    #[derive(Debug, Parser)]
    #[command(version)]
    struct StageCli {
        #[command(flatten)]
        run: RunArgs,
    }
    let matches = StageCli::command()
        .name(name)
        .bin_name(name)
        .about(about)
        .get_matches();
    let args = match StageCli::from_arg_matches(&matches) {
        Ok(cli) => cli.run,
        Err(error) => error.exit(),
    };
    main_with(args.log, |process| async move {
        let context = args.open(&process)?;
        Ok(stage(context).await?)
    })
}

/// Run `work` on a new runtime with logging and Ctrl-C installed; print its error with all causes
/// and turn it into the exit code that `docs/exit-codes.md` names.
pub fn main_with<Work, Running>(log: LogArgs, work: Work) -> std::process::ExitCode
where
    Work: FnOnce(Process) -> Running,
    Running: Future<Output = anyhow::Result<()>>,
{
    let progress = match log.log_format {
        LogFormat::Text => Progress::stderr(),
        LogFormat::Json => Progress::lines(),
    };
    log::install(log.verbose, log.log_format, &progress);
    let process = Process {
        progress,
        interrupt: Interrupt::new(),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return finish(log.log_format, Err(error.into())).into(),
    };
    let result = runtime.block_on(until_stopped(process, work));
    // Blocking work that is still under way must not hold the process.
    runtime.shutdown_timeout(STOP_GRACE);
    finish(log.log_format, result).into()
}

async fn until_stopped<Work, Running>(process: Process, work: Work) -> anyhow::Result<()>
where
    Work: FnOnce(Process) -> Running,
    Running: Future<Output = anyhow::Result<()>>,
{
    let interrupt = process.interrupt.clone();
    // From here on, before any work begins: until then a signal ends the program without a word.
    match Signals::new() {
        Ok(signals) => drop(tokio::spawn(signals.listen(process.clone()))),
        Err(_) => tracing::warn!("Ctrl-C cannot be caught here; it stops at once"),
    }
    let stopped = async {
        interrupt.wait(Urgency::Now).await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        result = work(process) => result,
        () = stopped => Err(RunError::Interrupted.into()),
    }
}

/// Ctrl-C and SIGTERM.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catch them.
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// First finish, then stop now, then leave at once.
    async fn listen(mut self, process: Process) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            let before = process.interrupt.urgency();
            let message = match (before, process.interrupt.raise()) {
                (Urgency::Now, _) => std::process::exit(ExitCode::Interrupted as i32),
                (_, Urgency::Now) => "stopping now",
                _ => "finishing what is in flight; once more stops now",
            };
            process
                .progress
                .suspend(|| log::say(format!("{message}\n").as_bytes()));
        }
    }
}

/// Print the error, if any.
fn finish(format: LogFormat, result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::Success;
    };
    let (code, text) = (exit_code(&error), with_causes(&error));
    match format {
        LogFormat::Text => log::say(format!("error: {text}\n").as_bytes()),
        LogFormat::Json => tracing::error!(exit_code = code as u8, "{text}"),
    }
    code
}

/// The exit code of an error, by the first [`RunError`] among its causes.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<RunError>() {
            return error.exit_code();
        }
        if cause.is::<RecipeError>() {
            return ExitCode::BadInput;
        }
    }
    ExitCode::Internal
}

/// Every cause on a line of its own, unless the line before says it already.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !last.contains(&cause) {
            text += &format!("\n  because: {cause}");
        }
        last = cause;
    }
    text
}

/// The tokens of `--token-file`, which is written with a fresh one where it is missing.
///
/// # Errors
/// [`RunError::Environment`] for a file that cannot be read or written, [`RunError::BadInput`] with the line
/// for one that holds something else.
pub fn read_tokens(path: &Path) -> Result<Tokens, RunError> {
    let (tokens, made) = Tokens::from_file(path).map_err(|error| match error {
        TokensError::Io(..) => RunError::Environment(format!("--token-file: {error}")),
        error => RunError::BadInput(error.to_string()),
    })?;
    if made {
        eprintln!("a fresh token was written to {}", path.display());
    }
    Ok(tokens)
}

impl From<ServiceError> for RunError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Exposed(_) => Self::BadInput(error.to_string()),
            ServiceError::Interpreter(error) => Self::Environment(error.to_string()),
            ServiceError::Io(source) => Self::Io {
                context: "serving".to_owned(),
                source,
            },
        }
    }
}
