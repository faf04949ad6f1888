//! `pybench-publish`: a dataset or a model onto the Hub.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::publish::{self, PublishArgs};

fn main() -> ExitCode {
    let args = PublishArgs::parse();
    cli::main_with(args.log, |process| async move {
        Ok(publish::run(args, &process).await?)
    })
}
