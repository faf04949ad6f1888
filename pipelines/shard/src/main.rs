//! `pybench-shard`: the stage on its own. `pybench shard` is the same.

fn main() -> std::process::ExitCode {
    pybench_run::cli::stage_main(
        "pybench-shard",
        pybench_shard::ABOUT,
        |context| async move { pybench_shard::run(&context).await },
    )
}
