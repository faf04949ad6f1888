//! `pybench-crawl`: gathers files from sources and profiles them.

use pybench::run::cli;

fn main() -> std::process::ExitCode {
    cli::stage_main(
        "pybench-crawl",
        "Gather files from the recipe's sources and profile them",
        |context| async move { pybench_pipelines::crawl::run(&context).await },
    )
}
