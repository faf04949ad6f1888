//! `pybench setup`: the Python environment of sessions.

use std::path::Path;
use std::process::ExitCode;

use pybench_interpreter::environment::Environment;
use pybench_interpreter::make_environment;
use pybench_net::pypi::find_uv;
use pybench_run::RunError;
use pybench_run::cli::{self, LogArgs};
use pybench_run::project::project_root;

/// Make the Python environment in which sessions run, 1.6 GB in the machine's cache
///
/// `synthesize` makes it too where it is missing. It takes about a minute, and nothing where the environment is
/// complete. `pybench doctor` lists what else sessions need of the machine.
#[derive(Debug, clap::Args)]
pub(crate) struct SetupArgs {
    #[command(flatten)]
    log: LogArgs,
}

/// Runs the command.
pub(crate) fn main(args: SetupArgs) -> ExitCode {
    cli::main_with(args.log, |_| async move {
        let environment =
            |error: pybench_interpreter::InterpreterError| RunError::Environment(error.to_string());
        let root = project_root(Path::new(".")).unwrap_or_default();
        make_environment(&find_uv(&root), |line| tracing::info!("{line}"))
            .await
            .map_err(environment)?;
        let found = Environment::find().map_err(environment)?;
        Ok(cli::print(&format!("{}\n", found.root.display()))?)
    })
}
