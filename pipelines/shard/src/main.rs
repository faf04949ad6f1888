//! `pybench-shard`: the stage on its own. `pybench shard` is the same.

use pybench_run::cli::{RunArgs, WritesDataset, stage_main};

fn main() -> std::process::ExitCode {
    stage_main::<WritesDataset<RunArgs>, _, _>(
        "pybench-shard",
        pybench_shard::ABOUT,
        |context| async move { pybench_shard::run(&context).await },
    )
}
