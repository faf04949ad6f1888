//! `pybench-query`: writes tasks for the crawled files of a run.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::query::command::{self, QueryArgs};

fn main() -> ExitCode {
    let args = QueryArgs::parse();
    cli::main_with(args.run.log, |process| async move {
        Ok(command::run(&args, &process).await?)
    })
}
