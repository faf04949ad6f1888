//! `pybench-grade`: verdicts on the trajectories of a run.

use std::process::ExitCode;

use pybench::run::cli;
use pybench_pipelines::grade;

fn main() -> ExitCode {
    cli::stage_main("pybench-grade", grade::ABOUT, |context| async move {
        grade::run(&context).await
    })
}
