//! `pybench-library`: the task library.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::library::command::{self, LibraryArgs};

fn main() -> ExitCode {
    let args = LibraryArgs::parse();
    cli::main_with(args.log, |process| async move {
        Ok(command::run(args, process).await?)
    })
}
