//! `pybench train` and `pybench serve` start `pybench-train`, a separate program because it links libtorch.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use pybench_run::ExitCode as Code;
use pybench_run::program;

/// Arguments that are passed on to `pybench-train`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct TrainerArgs {
    /// Arguments for `pybench-train`; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Replaces this process with `pybench-train COMMAND ARGS`; returns only on failure.
pub(crate) fn run(command: &str, args: TrainerArgs) -> ExitCode {
    let Some(path) = program::find("pybench-train") else {
        eprintln!(
            "error: pybench-train was not found next to pybench or in PATH; `./justw train` builds it in a checkout, and \
             the wheel pybench-agents-train brings it (docs/installation.md)"
        );
        return Code::Environment.into();
    };
    let error = Command::new(&path).arg(command).args(args.args).exec();
    eprintln!("error: cannot run {}: {error}", path.display());
    Code::Environment.into()
}
