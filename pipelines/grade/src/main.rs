//! `pybench-grade`: the stage on its own. `pybench grade` is the same.

fn main() -> std::process::ExitCode {
    pybench_run::cli::stage_main(
        "pybench-grade",
        pybench_grade::ABOUT,
        |context| async move { pybench_grade::run(&context).await },
    )
}
