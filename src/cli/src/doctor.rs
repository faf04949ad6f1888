//! `pybench doctor`: what works on this machine and what is missing.

use std::process::ExitCode;

use pybench_interpreter_containers::doctor;
use pybench_run::RunError;
use pybench_run::cli;
use pybench_run::cli::LogArgs;

/// Check which isolation tiers work on this machine, which limits are enforced, and what is missing
///
/// For each tier that does not work, the report gives the reason and how to fix it. Exits with 0 if at least
/// one tier works and with 4 if none does.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogArgs,
}

/// Runs the command.
pub(crate) fn main(args: DoctorArgs) -> ExitCode {
    cli::main_with(args.log, |_| async move {
        let report = doctor::examine().await;
        match args.json {
            true => println!("{}", serde_json::to_string_pretty(&report)?),
            false => print!("{report}"),
        }
        match report.is_usable() {
            true => Ok(()),
            false => Err(RunError::Environment(
                "no isolation tier works on this machine; the report above says what is missing"
                    .to_owned(),
            )
            .into()),
        }
    })
}
