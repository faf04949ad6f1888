//! `pybench-status`: where a run stands.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::status::{self, StatusArgs};

fn main() -> ExitCode {
    let args = StatusArgs::parse();
    cli::main_with(args.log, |_| async move { Ok(status::run(&args)?) })
}
