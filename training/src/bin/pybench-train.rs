//! `pybench-train`: see [`pybench_training::command`].

use std::process::ExitCode;

fn main() -> ExitCode {
    pybench_training::torch::keep_memory();
    // Before any tensor: libtorch remembers whether CUDA was there when it was first asked.
    pybench_training::torch::enable_cuda();
    match pybench_training::command::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
