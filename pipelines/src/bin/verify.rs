//! `pybench-verify`: whether the rows of a dataset are what they say.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::verify::{self, VerifyArgs};

fn main() -> ExitCode {
    let args = VerifyArgs::parse();
    cli::main_with(args.log, |process| async move {
        Ok(verify::run(&args, &process).await?)
    })
}
