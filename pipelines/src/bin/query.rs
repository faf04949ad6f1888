//! `pybench-query`: writes tasks for the crawled files of a run.

use std::process::ExitCode;

use pybench::run::{Mode, cli};
use pybench_pipelines::query;

fn main() -> ExitCode {
    let about = "Write tasks for the crawled files of a run, from the task library";
    cli::stage_main("pybench-query", about, |context| async move {
        query::run(&context).await?;
        if let Mode::Preview(count) = context.mode {
            print!("{}", query::preview(context.folder.root(), count)?);
        }
        Ok(())
    })
}
