//! `pybench-rollout`: the stage on its own. `pybench rollout` is the same.

use pybench_run::cli::{RunArgs, stage_main};

fn main() -> std::process::ExitCode {
    stage_main::<RunArgs, _, _>(
        "pybench-rollout",
        pybench_rollout::ABOUT,
        |context| async move { pybench_rollout::run_alone(&context).await },
    )
}
