//! `pybench`: all commands of the project in one program.

mod cluster;
mod commands;
mod doctor;
mod guard;
mod help;
mod interpreter;
mod remote;
mod run;
mod setup;
mod trainer;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use pybench_interpreter::session_guard;

/// Make training data for code-interpreter agents from real files, fine-tune models on it, and evaluate
/// them
#[derive(Debug, Parser)]
#[command(name = "pybench", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    if let Some(code) = session_guard::run_if_asked() {
        return code;
    }
    // Sends the last of it when this function ends.
    #[cfg(feature = "otel")]
    let _telemetry = start_telemetry();
    let matches = help::grouped(Cli::command()).get_matches();
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli.command.run(),
        Err(error) => error.exit(),
    }
}

/// Sends telemetry to the collector that the environment names. A wrong setting does not stop the command.
#[cfg(feature = "otel")]
fn start_telemetry() -> Option<pybench_telemetry::Telemetry> {
    pybench_telemetry::Telemetry::start().unwrap_or_else(|why| {
        eprintln!("warning: no telemetry is sent: {why}");
        None
    })
}
