//! The command line of `pybench-eval`: run an evaluation, fetch PyBench, audit the strict score.

mod audit;
mod common;
mod evaluate;
mod fetch;
mod fingerprint;
mod recipe;
mod run_args;

use clap::{Parser, Subcommand};
use pybench_run::RunError;
use pybench_run::cli::{self, LogArgs, Process};

pub use audit::AuditArgs;
pub use common::CommonArgs;
pub use evaluate::evaluate;
pub use fetch::FetchArgs;
pub use fingerprint::FingerprintArgs;
pub use run_args::RunArgs;

use super::inspect_export::{self, ExportArgs};
use super::judge_and_report;

/// First line of `--help`.
pub const ABOUT: &str =
    "Evaluate agents on PyBench and other benchmarks, and on the held-out tasks of the library";

/// Arguments of `pybench eval`.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EvalArgs {
    /// Subcommand; without one, run an evaluation.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of an evaluation.
    #[command(flatten)]
    pub run: RunArgs,
    /// Logging options.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Subcommands of `pybench eval`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Download the repository of a benchmark with git at the pinned commit and verify every file
    Fetch(FetchArgs),
    /// Write hashes of a benchmark's tasks and files, by which `dataset decontaminate` recognizes them
    Fingerprint(FingerprintArgs),
    /// Validate the scores of a benchmark: correct solutions must pass, null agents and incorrect solutions must fail
    Audit(AuditArgs),
    /// Run an LLM judge on recorded attempts and measure its agreement with human labels
    Judge(judge_and_report::JudgeArgs),
    /// Compare agents pairwise on the tasks they share
    Compare(judge_and_report::CompareArgs),
    /// Write the report of one or more evaluations
    Report(judge_and_report::ReportArgs),
    /// Write evaluations as logs of inspect_ai, which `inspect view` opens
    Export(ExportArgs),
}

/// Runs the command and returns the exit code of the process.
pub fn main(args: EvalArgs) -> std::process::ExitCode {
    cli::main_with(args.log, |process| async move {
        Ok(run_command(args, process).await?)
    })
}

/// Runs the selected subcommand; without one, an evaluation.
///
/// # Errors
/// The errors of [`evaluate()`] and of the other subcommands; [`RunError::Incomplete`] if a task fails the audit.
pub async fn run_command(args: EvalArgs, process: Process) -> Result<(), RunError> {
    match args.command {
        None if args.run.dry_run => evaluate::print_dry_run(&args.run, &process).await,
        None => evaluate(args.run, &process).await.map(|_| ()),
        Some(Command::Fetch(args)) => fetch::fetch_suite(&args).await,
        Some(Command::Fingerprint(args)) => fingerprint::write_fingerprints(&args, &process).await,
        Some(Command::Audit(args)) => audit::run_audit(&args, &process).await,
        Some(Command::Judge(args)) => judge_and_report::run_judge(&args, &process.interrupt).await,
        Some(Command::Compare(args)) => judge_and_report::run_compare(&args),
        Some(Command::Report(args)) => judge_and_report::run_report(&args, &process).await,
        Some(Command::Export(args)) => inspect_export::run_export(&args),
    }
}
