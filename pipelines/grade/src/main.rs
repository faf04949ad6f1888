//! `pybench-grade`: the stage on its own. `pybench grade` is the same.

use pybench_run::cli::{RunArgs, stage_main};

fn main() -> std::process::ExitCode {
    stage_main::<RunArgs, _, _>(
        "pybench-grade",
        pybench_grade::ABOUT,
        |context| async move { pybench_grade::run(&context).await },
    )
}
