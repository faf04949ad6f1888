//! `pybench-rollout`: trajectories for the tasks of a run.

use std::process::ExitCode;

use pybench::run::cli;
use pybench_pipelines::rollout;

fn main() -> ExitCode {
    cli::stage_main("pybench-rollout", rollout::ABOUT, |context| async move {
        rollout::run(&context).await?;
        rollout::check_complete(&context)
    })
}
