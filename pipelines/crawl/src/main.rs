//! `pybench-crawl`: the crawl stage as its own program, equivalent to `pybench crawl`.

fn main() -> std::process::ExitCode {
    pybench_run::cli::stage_main(
        "pybench-crawl",
        pybench_crawl::ABOUT,
        |context| async move { pybench_crawl::run(&context).await },
    )
}
