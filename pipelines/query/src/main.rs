//! `pybench-query`: the stage on its own. `pybench query` is the same.

use pybench_query::command::{self, QueryArgs};
use pybench_run::cli;

fn main() -> std::process::ExitCode {
    command::main(cli::parse_as::<QueryArgs>("pybench-query", command::ABOUT))
}
