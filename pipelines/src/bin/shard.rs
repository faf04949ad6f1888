//! `pybench-shard`: the dataset of a run.

use std::process::ExitCode;

use pybench::run::cli;
use pybench_pipelines::shard;

fn main() -> ExitCode {
    cli::stage_main("pybench-shard", shard::ABOUT, |context| async move {
        shard::run(&context).await
    })
}
