//! The commands of `pybench`: their arguments and the functions that run them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Subcommand};
use clap_complete::Shell;
use pybench_run::cli::{self, BeginArgs, InProfile, LogArgs, RunArgs, WritesDataset};
use pybench_run::project::check_runs_dir;
use pybench_run::{Profile, RunError};

use crate::{Cli, cluster, doctor, guard, help, interpreter, remote, run, setup, trainer};

/// The commands, in the order in which `--help` lists them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a dataset: crawl, query, rollout, grade and shard in order
    Synthesize(pybench_synthesize::drain::SynthesizeArgs),
    /// Profile a folder of your own files and write a recipe for it
    Init(pybench_crawl::init::InitArgs),
    /// Collect files from the recipe's sources and profile them
    Crawl(BeginArgs),
    /// Write tasks for the crawled files, from templates or with a model
    Query(pybench_query::command::QueryArgs),
    /// Let a model solve the tasks of a run, step by step, in the interpreter
    Rollout(StageArgs),
    /// Run the checks and decide which trajectories of a run become rows
    Grade(StageArgs),
    /// Write the accepted trajectories of a run as a dataset
    Shard(WritesDataset<RunArgs>),
    /// Compose tasks from operations over the tables of a folder, and prove them
    Compose(pybench_query::composed::command::ComposeArgs),
    /// List, audit and export the task library
    Library(pybench_library::command::LibraryArgs),
    /// Work on the attempts and verdicts of a run that `synthesize --profile` coordinates
    Worker(pybench_synthesize::worker::WorkerArgs),
    /// Move a run to a cluster and back, fetch its copy from a bucket, retry failed units
    Run(run::RunArgs),

    /// Show how far a run is, its cost and time, and what failed and why
    Status(pybench_synthesize::status::StatusArgs),
    /// Show one trajectory or write it as a notebook; without a number, list all
    Show(pybench_show::ShowArgs),
    /// Look at runs and datasets in the browser
    Studio(pybench_studio::command::StudioArgs),
    /// Print the statistics of a dataset
    Stats(pybench_synthesize::stats::StatsArgs),
    /// Remove duplicates and benchmark tasks, select rows, convert between schemas
    Dataset(pybench_dataset_tools::DatasetArgs),
    /// Re-execute a sample of a dataset's rows and compare the results
    Verify(pybench_verify::VerifyArgs),

    /// Fine-tune a model on a dataset
    Train(trainer::TrainerArgs),
    /// Serve a model over the OpenAI chat completions API
    Serve(trainer::TrainerArgs),
    /// Talk with a model that has a Python interpreter, in the terminal
    Chat(Box<pybench_chat::command::ChatArgs>),
    /// Evaluate agents on PyBench and on held-out tasks
    Eval(Box<pybench_eval::command::EvalArgs>),
    /// Let a student learn from its own attempts and their corrections, in rounds
    Loop(InProfile<RunArgs>),
    /// Upload a dataset or a model to the Hugging Face Hub
    Publish(pybench_publish::PublishArgs),

    /// Make the Python environment in which sessions run
    Setup(setup::SetupArgs),
    /// Check what works on this machine, what is missing, and what that means
    Doctor(doctor::DoctorArgs),
    /// Start and end PostgreSQL on this machine, for runs whose journal is kept there
    Cluster(cluster::ClusterArgs),
    /// Serve isolated Python sessions over HTTP
    Interpreter(interpreter::InterpreterArgs),
    /// Print a completion script for a shell
    Completions {
        /// Shell to write the script for
        shell: Shell,
    },
    /// Write the manual pages to a folder
    Man {
        /// Folder for the pages; created if it does not exist
        folder: PathBuf,
    },
}

/// Arguments of a stage command.
#[derive(Debug, Args)]
pub(crate) struct StageArgs {
    #[command(flatten)]
    run: RunArgs,
}

/// The groups of `--help` and their commands.
pub(crate) const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Make data",
        &[
            "synthesize",
            "init",
            "crawl",
            "query",
            "rollout",
            "grade",
            "shard",
            "compose",
            "library",
            "worker",
            "run",
        ],
    ),
    (
        "Inspect",
        &["status", "show", "studio", "stats", "dataset", "verify"],
    ),
    (
        "Train and evaluate",
        &["train", "serve", "chat", "eval", "loop"],
    ),
    ("Share", &["publish"]),
    (
        "This machine",
        &[
            "setup",
            "doctor",
            "cluster",
            "interpreter",
            "completions",
            "man",
        ],
    ),
];

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Synthesize(args) => {
                let seconds = args.drain_seconds;
                cli::stage_with(args, move |context| async move {
                    let _guard = guard::of_run(&context)?;
                    pybench_synthesize::drain::run(&context, seconds).await
                })
            }
            Self::Init(args) => cli::main_with(args.log, |process| async move {
                Ok(pybench_crawl::init::run(args, &process).await?)
            }),
            Self::Crawl(args) => cli::stage_with(args, |context| async move {
                pybench_synthesize::clear_left_queue(&context.folder).await;
                pybench_crawl::run(&context).await
            }),
            Self::Query(args) => pybench_query::command::main(args),
            Self::Rollout(stage) => cli::stage_with(stage.run, |context| async move {
                let _guard = guard::of_run(&context)?;
                pybench_rollout::run_alone(&context).await
            }),
            Self::Grade(stage) => cli::stage_with(stage.run, |context| async move {
                let _guard = guard::of_run(&context)?;
                pybench_grade::run(&context).await
            }),
            Self::Shard(args) => {
                cli::stage_with(
                    args,
                    |context| async move { pybench_shard::run(&context).await },
                )
            }
            Self::Compose(args) => cli::main_with(args.log, |process| async move {
                Ok(pybench_query::composed::command::run(&args, &process).await?)
            }),
            Self::Library(args) => cli::main_with(args.log, |process| async move {
                Ok(pybench_library::command::run(args, process).await?)
            }),
            Self::Worker(args) => cli::main_with(args.log, |process| async move {
                let _guard = guard::start(&Profile::load(&args.profile)?.workers)?;
                Ok(pybench_synthesize::worker::run(&args, &process).await?)
            }),
            Self::Run(args) => run::main(args),
            Self::Status(args) => cli::main_with(args.log, |_| async move {
                let folder = args.folder()?;
                let headline = match pybench_eval::status::headline(&folder)? {
                    Some(evaluation) => Some(evaluation),
                    None => pybench_loop::headline(&folder)?,
                };
                Ok(pybench_synthesize::status::run(&args, headline)?)
            }),
            Self::Show(mut args) => cli::main_with(args.log, |process| async move {
                let asked = args.source.clone();
                remote::fetch(&mut args.source, &process).await?;
                Ok(pybench_show::run(&args, &asked)?)
            }),
            Self::Studio(args) => cli::main_with(args.log, |process| async move {
                Ok(pybench_studio::command::run(&args, &process).await?)
            }),
            Self::Stats(mut args) => cli::main_with(args.log, |process| async move {
                remote::fetch(&mut args.dataset, &process).await?;
                Ok(pybench_synthesize::stats::run(&args)?)
            }),
            Self::Dataset(mut args) => cli::main_with(args.log, |process| async move {
                if let Some(source) = args.command.source_mut() {
                    remote::fetch(source, &process).await?;
                }
                for input in args.command.inputs_mut() {
                    remote::fetch_input(input, &process).await?;
                }
                Ok(pybench_dataset_tools::run(args, &process).await?)
            }),
            Self::Verify(args) => cli::main_with(args.log, |process| async move {
                Ok(pybench_verify::run(&args, &process).await?)
            }),
            Self::Train(args) => trainer::run("run", args),
            Self::Serve(args) => trainer::run("serve", args),
            Self::Chat(args) => cli::interactive_main(args.log, |_| async move {
                Ok(pybench_chat::command::run(&args).await?)
            }),
            Self::Eval(args) => pybench_eval::command::main(*args),
            Self::Loop(args) => cli::main_with(args.run.log, |process| async move {
                args.run
                    .runs_dir
                    .as_deref()
                    .map_or(Ok(()), check_runs_dir)?;
                let context = RunArgs::from(args).open(&process)?;
                let _guard = guard::of_run(&context)?;
                Ok(pybench_loop::run(&context, &process).await?)
            }),
            Self::Publish(args) => cli::main_with(args.log, |process| async move {
                Ok(pybench_publish::run(args, &process).await?)
            }),
            Self::Setup(args) => setup::main(args),
            Self::Doctor(args) => doctor::main(args),
            Self::Cluster(args) => cluster::main(args),
            Self::Interpreter(args) => interpreter::main(args),
            Self::Completions { shell } => {
                clap_complete::generate(
                    shell,
                    &mut Cli::command(),
                    "pybench",
                    &mut std::io::stdout(),
                );
                ExitCode::SUCCESS
            }
            Self::Man { folder } => cli::main_with(LogArgs::default(), |_| async move {
                write_man_pages(&folder)?;
                Ok(())
            }),
        }
    }
}

fn write_man_pages(folder: &std::path::Path) -> Result<(), RunError> {
    let wrap = || RunError::io(folder.display().to_string());
    std::fs::create_dir_all(folder).map_err(wrap())?;
    clap_mangen::generate_to(help::grouped(Cli::command()), folder).map_err(wrap())
}
