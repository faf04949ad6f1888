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

/// Commands of `pybench-train` that may follow `pybench train`. Anything else there is a recipe.
const COMMANDS: [&str; 3] = ["check", "inspect", "merge"];

/// Replaces this process with `pybench-train COMMAND ARGS`; returns only on failure.
pub(crate) fn run(command: &str, args: TrainerArgs) -> ExitCode {
    let Some(path) = program::find("pybench-train") else {
        eprintln!(
            "error: pybench-train was not found next to pybench or in PATH; `./justw train` builds it in a checkout, and \
             the wheel pybench-agents-train brings it (docs/installation.md)"
        );
        return Code::Environment.into();
    };
    let error = Command::new(&path)
        .args(arguments(command, args.args))
        .exec();
    eprintln!("error: cannot run {}: {error}", path.display());
    Code::Environment.into()
}

/// The arguments of `pybench-train`.
fn arguments(command: &str, mut args: Vec<OsString>) -> Vec<OsString> {
    let first = args.first().and_then(|first| first.to_str());
    let named = command == "run" && first.is_some_and(|first| COMMANDS.contains(&first));
    if !named {
        args.insert(0, command.into());
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn train_takes_a_recipe_or_a_command() {
        let passed_on = |command: &str, args: &[&str]| {
            let args = args.iter().map(OsString::from).collect();
            arguments(command, args)
        };
        assert_eq!(passed_on("run", &[]), ["run"]);
        assert_eq!(passed_on("run", &["smollm2"]), ["run", "smollm2"]);
        assert_eq!(passed_on("run", &["merge", "a"]), ["merge", "a"]);
        assert_eq!(passed_on("serve", &["merge"]), ["serve", "merge"]);
    }
}
