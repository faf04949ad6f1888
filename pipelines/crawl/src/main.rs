//! `pybench-crawl`: the crawl stage as its own program, equivalent to `pybench crawl`.

use pybench_run::cli::{BeginArgs, stage_main};

fn main() -> std::process::ExitCode {
    stage_main::<BeginArgs, _, _>(
        "pybench-crawl",
        pybench_crawl::ABOUT,
        |context| async move { pybench_crawl::run(&context).await },
    )
}
