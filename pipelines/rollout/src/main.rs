//! `pybench-rollout`: the stage on its own. `pybench rollout` is the same.

fn main() -> std::process::ExitCode {
    pybench_run::cli::stage_main(
        "pybench-rollout",
        pybench_rollout::ABOUT,
        |context| async move { pybench_rollout::run_alone(&context).await },
    )
}
