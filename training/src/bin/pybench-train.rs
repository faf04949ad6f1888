//! `pybench-train`: see [`pybench_training::command`].

use std::process::ExitCode;

fn main() -> ExitCode {
    pybench_training::torch::sleep_while_waiting();
    pybench_training::torch::keep_memory();
    // Before any tensor exists: libtorch caches whether CUDA is available.
    pybench_training::torch::enable_cuda();
    pybench_training::interrupt::install();
    pybench_training::command::main().into()
}
