//! `pybench-eval`: runs the evaluation stage alone; the same as `pybench eval`.

use pybench_eval::command::{self, EvalArgs};
use pybench_run::cli;

fn main() -> std::process::ExitCode {
    command::main(cli::parse_as::<EvalArgs>("pybench-eval", command::ABOUT))
}
