//! `pybench-stats`: what a dataset looks like.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::stats::{self, StatsArgs};

fn main() -> ExitCode {
    let args = StatsArgs::parse();
    cli::main_with(args.log, |_| async move { Ok(stats::run(&args)?) })
}
