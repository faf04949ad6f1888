//! What all command lines share: arguments, logging, Ctrl-C and exit codes.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::bucket_run::{SelectedRun, keep_copies};
use super::log::{self, LogFormat};
use super::open_files;
use super::project::{RECIPES, default_runs_dir, find_recipe, is_path, project_root};
use super::run_selection::RunSelection;
use super::{
    ExecutorOptions, ExitCode, Interrupt, Mode, Progress, Recipe, RecipeError, RetryFailed,
    RunContext, RunError, RunFolder, Urgency, WhenChanged,
};
use pybench_interpreter::default_cache_dir;
use pybench_types::text::visible;

/// Time to release leases after the second Ctrl-C.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Selects a run: the recipe, changes to it, and the run folder.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Recipe to run: a file, or the name of one that comes with pybench [default: quickstart]
    #[arg(value_name = "RECIPE")]
    pub recipe: Option<PathBuf>,
    /// The recipe, as an option
    #[arg(
        long = "recipe",
        value_name = "RECIPE",
        conflicts_with = "recipe",
        hide = true
    )]
    pub recipe_option: Option<PathBuf>,
    /// Override a key of the recipe, such as rollout.samples=4; can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Name of the run folder [default: the recipe's name]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Folder or bucket (s3://BUCKET/PREFIX) that contains the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Print the expected calls, tokens and cost without calling a paid model, and stop
    #[arg(long, conflicts_with = "preview")]
    pub dry_run: bool,
    /// Solve the first N tasks, show the results, and stop
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub preview: Option<u16>,
    /// Retry all failed units, bad items included [default: retry only failures of the machine or an endpoint]
    #[arg(long)]
    pub retry_failed: bool,
    /// What happens to a run folder of another recipe.
    #[arg(skip)]
    pub changed: WhenChanged,
    /// File that says where the run keeps its journal.
    #[arg(skip)]
    pub profile: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Selects a run for a command that can begin it.
#[derive(Clone, Debug, Default, Args)]
pub struct BeginArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// If the recipe has changed, delete the run and start over [default: only if nothing was paid for]
    #[arg(long)]
    pub start_over: bool,
}

impl From<BeginArgs> for RunArgs {
    fn from(args: BeginArgs) -> Self {
        let changed = match args.start_over {
            true => WhenChanged::StartOver,
            false => WhenChanged::StartOverIfFree,
        };
        Self {
            changed,
            ..args.run
        }
    }
}

/// Selects a run for a command that writes its dataset.
#[derive(Clone, Debug, Default, Args)]
pub struct WritesDataset<A: Args> {
    #[command(flatten)]
    pub run: A,
    /// Keep rows that match tasks or files of benchmarks, and say so on the card [default: drop and name them]
    #[arg(long)]
    pub allow_contaminated: bool,
}

impl<A: Args + Into<RunArgs>> From<WritesDataset<A>> for RunArgs {
    fn from(args: WritesDataset<A>) -> Self {
        let mut run: Self = args.run.into();
        if args.allow_contaminated {
            run.set.push("shard.allow_contaminated=true".to_owned());
        }
        run
    }
}

/// Selects a run for a command that can keep its journal elsewhere.
#[derive(Clone, Debug, Default, Args)]
pub struct InProfile<A: Args> {
    #[command(flatten)]
    pub run: A,
    /// Keep the journal of a new run in the PostgreSQL server that FILE names [default: in the run folder]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

impl<A: Args + Into<RunArgs>> From<InProfile<A>> for RunArgs {
    fn from(args: InProfile<A>) -> Self {
        Self {
            profile: args.profile,
            ..args.run.into()
        }
    }
}

/// Level and format of the log.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LogArgs {
    /// Log more; give it twice to log everything
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

/// What a whole process shares: its progress display and its interrupt flag.
#[derive(Clone, Debug)]
pub struct Process {
    pub progress: Progress,
    /// Set by Ctrl-C and SIGTERM.
    pub interrupt: Interrupt,
}

impl RunArgs {
    /// Loads the recipe and opens the run folder.
    pub fn open(&self, process: &Process) -> Result<RunContext, RunError> {
        let root = project_root(Path::new("."));
        let (path, recipe) = self.load(root.as_deref())?;
        let name = self.run.as_deref().unwrap_or(&recipe.name);
        check_run_name(name)?;
        let (local, text) = (default_runs_dir(root.as_deref()), recipe.to_toml()?);
        let profile = self.profile.as_deref();
        let selected = SelectedRun {
            runs_dir: self.runs_dir.as_deref().unwrap_or(&local),
            local: &local,
            name,
            recipe: &text,
            profile,
        };
        let run = selected.folder();
        let folder = if self.dry_run {
            RunFolder::open_for_dry_run_in_profile(&run, &text, profile)?
        } else {
            selected.keep_in_bucket()?;
            RunFolder::open_in_profile(&run, &text, &self.when_changed(), profile)?
        };
        self.typed().record(folder.journal())?;
        let beside = || match is_path(self.asked()) {
            true => path.parent().map(Path::to_owned).unwrap_or_default(),
            false => PathBuf::from("."),
        };
        Ok(RunContext {
            options: ExecutorOptions {
                retry_failed: match self.retry_failed {
                    true => RetryFailed::All,
                    false => RetryFailed::ExceptBadItems,
                },
                lease: folder
                    .workers()
                    .map_or(ExecutorOptions::default().lease, |workers| workers.lease()),
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

    /// A command that cannot begin a run offers the one that can.
    fn when_changed(&self) -> WhenChanged {
        match &self.changed {
            WhenChanged::Refuse(_) => {
                let command = self.typed().command("synthesize");
                WhenChanged::Refuse(Some(format!("{command} --start-over")))
            }
            changed => changed.clone(),
        }
    }

    /// The arguments that select the run, as they were typed.
    fn typed(&self) -> RunSelection {
        let recipe = self.recipe.as_ref().or(self.recipe_option.as_ref());
        RunSelection {
            recipe: recipe.cloned(),
            set: self.set.clone(),
            run: self.run.clone(),
            runs_dir: self.runs_dir.clone(),
        }
    }

    /// Path and content of the recipe, with `--set` applied.
    pub fn load(&self, root: Option<&Path>) -> Result<(PathBuf, Recipe), RunError> {
        let path = find_recipe(self.asked(), RECIPES, root)?;
        let recipe = Recipe::load(&path, &self.set)?;
        Ok((path, recipe))
    }

    /// Path or name of the recipe.
    fn asked(&self) -> &Path {
        let asked = self.recipe.as_deref().or(self.recipe_option.as_deref());
        asked.unwrap_or(Path::new("quickstart"))
    }
}

/// Checks that the name of a run is the name of a single folder.
fn check_run_name(name: &str) -> Result<(), RunError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(allowed) {
        return Ok(());
    }
    Err(RunError::BadInput(format!(
        "--run {name:?}: the name of a run has 1 to 64 letters, digits, `-` or `_`"
    )))
}

/// The `main` of a stage binary: parses `Arguments` ([`RunArgs`], or [`BeginArgs`] for the first stage), opens the run
/// folder, runs `stage`, returns the exit code.
pub fn stage_main<Arguments, Stage, Running>(
    name: &'static str,
    about: &'static str,
    stage: Stage,
) -> std::process::ExitCode
where
    Arguments: Args + Into<RunArgs>,
    Stage: FnOnce(RunContext) -> Running,
    Running: Future<Output = Result<(), RunError>>,
{
    let args: StageCli<Arguments> = parse_as(name, about);
    stage_with(args.run, stage)
}

#[derive(Debug, Parser)]
struct StageCli<Arguments: Args> {
    #[command(flatten)]
    run: Arguments,
}

/// Parses the arguments of the program `name`; errors and `--help` end the process.
pub fn parse_as<T: Parser>(name: &'static str, about: &'static str) -> T {
    let command = T::command()
        .name(name)
        .bin_name(name)
        .version(env!("CARGO_PKG_VERSION"))
        .about(about);
    match T::from_arg_matches(&command.get_matches()) {
        Ok(args) => args,
        Err(error) => error.exit(),
    }
}

/// Runs `stage` on the run that `args` selects.
pub fn stage_with<Stage, Running>(args: impl Into<RunArgs>, stage: Stage) -> std::process::ExitCode
where
    Stage: FnOnce(RunContext) -> Running,
    Running: Future<Output = Result<(), RunError>>,
{
    let args: RunArgs = args.into();
    main_with(args.log, |process| async move {
        let context = args.open(&process)?;
        let (folder, mode) = (context.folder.clone(), context.mode);
        Ok(keep_copies(&folder, mode, stage(context)).await?)
    })
}

/// Runs `work` on a new runtime with logging and Ctrl-C handling. Prints an error with all its causes and
/// returns the exit code that `docs/exit-codes.md` assigns to it.
pub fn main_with<Work, Running>(log: LogArgs, work: Work) -> std::process::ExitCode
where
    Work: FnOnce(Process) -> Running,
    Running: Future<Output = anyhow::Result<()>>,
{
    interactive_main(log, |process| until_stopped(process, work))
}

/// Like [`main_with`], for commands that handle Ctrl-C and SIGTERM themselves.
pub fn interactive_main<Work, Running>(log: LogArgs, work: Work) -> std::process::ExitCode
where
    Work: FnOnce(Process) -> Running,
    Running: Future<Output = anyhow::Result<()>>,
{
    let progress = match log.log_format {
        LogFormat::Text => Progress::stderr(),
        LogFormat::Json => Progress::lines(),
    };
    log::install(log.verbose, log.log_format, &progress);
    open_files::raise_limit();
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
    let result = runtime.block_on(work(process));
    // Blocking work that is still running must not delay the end of the process.
    runtime.shutdown_timeout(STOP_GRACE);
    finish(log.log_format, result).into()
}

async fn until_stopped<Work, Running>(process: Process, work: Work) -> anyhow::Result<()>
where
    Work: FnOnce(Process) -> Running,
    Running: Future<Output = anyhow::Result<()>>,
{
    let interrupt = process.interrupt.clone();
    // Install the handlers before any work begins; until then a signal just ends the process.
    match Signals::new() {
        Ok(signals) => drop(tokio::spawn(signals.listen(process.clone()))),
        Err(_) => tracing::warn!(
            "cannot install signal handlers; Ctrl-C will end the process immediately"
        ),
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

/// Handlers of Ctrl-C (SIGINT) and SIGTERM.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers.
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The first signal lets work in flight finish, the second stops it, the third ends the process.
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
                _ => "finishing work in flight; press Ctrl-C again to stop now",
            };
            process
                .progress
                .suspend(|| log::write_stderr(format!("{message}\n").as_bytes()));
        }
    }
}

/// Prints the error, if any, and returns the exit code.
fn finish(format: LogFormat, result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::Success;
    };
    // Errors quote recipes, rows and replies, whose control characters would reach the terminal.
    let (code, text) = (exit_code(&error), visible(&with_causes(&error)));
    match format {
        LogFormat::Text => log::write_stderr(format!("error: {text}\n").as_bytes()),
        LogFormat::Json => tracing::error!(exit_code = code as u8, "{text}"),
    }
    code
}

/// The exit code of an error, taken from the first [`RunError`] among its causes.
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

/// The error and its causes, one per line; a cause that the line before already contains is left out.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !last.contains(&cause) {
            text += &format!("\n  caused by: {cause}");
        }
        last = cause;
    }
    text
}

/// Prints to standard output.
///
/// # Errors
/// I/O errors of standard output, except a closed pipe (`| head`).
pub fn print(text: &str) -> Result<(), RunError> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(RunError::io("cannot write to standard output")(error))
        }
        _ => Ok(()),
    }
}

/// Prints to standard output without tearing the progress display.
///
/// # Errors
/// As [`print`].
pub fn print_beside(progress: &Progress, text: &str) -> Result<(), RunError> {
    progress.suspend(|| print(text))
}
