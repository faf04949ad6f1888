//! `pybench-synthesize`: from files to a dataset, all stages in order.

use std::process::ExitCode;

use pybench::run::cli;
use pybench_pipelines::synthesize;

fn main() -> ExitCode {
    cli::stage_main(
        "pybench-synthesize",
        synthesize::ABOUT,
        |context| async move { synthesize::run(&context).await },
    )
}
