//! `pybench-doctor`: what this machine can do, and what it lacks.

use std::process::ExitCode;

use clap::Parser;
use pybench::interpreter::doctor;
use pybench::run::RunError;
use pybench::run::cli::{self, LogArgs};

/// Say which tiers of isolation work here and why the others do not, which limits are enforced, and
/// what is missing, with what it costs
///
/// Ends with 0 when at least one tier works, with 4 when none does.
#[derive(Debug, Parser)]
#[command(name = "pybench-doctor", bin_name = "pybench doctor", version)]
struct Cli {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Logging.
    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    let args = Cli::parse();
    cli::main_with(args.log, |_| async move {
        let report = doctor::examine().await;
        match args.json {
            true => println!("{}", serde_json::to_string_pretty(&report)?),
            false => print!("{report}"),
        }
        match report.is_usable() {
            true => Ok(()),
            false => {
                Err(RunError::Environment("no tier of isolation works here".to_owned()).into())
            }
        }
    })
}
