//! `pybench-dataset`: duplicates, contamination, selection, import and export of datasets.

use std::process::ExitCode;

use clap::Parser;
use pybench::run::cli;
use pybench_pipelines::dataset::{self, DatasetArgs};

fn main() -> ExitCode {
    let args = DatasetArgs::parse();
    cli::main_with(args.log, |process| async move {
        Ok(dataset::run(args, &process).await?)
    })
}
