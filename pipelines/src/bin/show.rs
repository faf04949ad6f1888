//! `pybench-show`: one trajectory, as a person reads it.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::show::{self, ShowArgs};

fn main() -> ExitCode {
    let args = ShowArgs::parse();
    cli::main_with(args.log, |_| async move { Ok(show::run(&args)?) })
}
