//! `pybench-eval`: PyBench, measured.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::eval::command::{self, EvalArgs};

fn main() -> ExitCode {
    let args = EvalArgs::parse();
    cli::main_with(args.log, |process| async move {
        Ok(command::main(args, process).await?)
    })
}
