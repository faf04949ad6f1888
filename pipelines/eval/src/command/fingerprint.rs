//! `pybench eval fingerprint`: writes the hashes of a benchmark.

use std::path::PathBuf;

use clap::Args;
use pybench_datasets::decontaminate::fingerprints;
use pybench_run::RunError;
use pybench_run::cli::Process;

use super::common::{CommonArgs, open_suite_env, write_file};
use crate::suites::pybench::SUITE as PYBENCH;

/// Write the fingerprints of a benchmark.
#[derive(Debug, Args)]
pub struct FingerprintArgs {
    /// Benchmark
    #[arg(long, value_name = "NAME", default_value = PYBENCH)]
    pub suite: String,
    /// PyBench checkout, or a folder that contains meta/task.json [default: the checkout that `fetch` made]
    #[arg(long, value_name = "DIR")]
    pub pybench: Option<PathBuf>,
    /// File for the fingerprints
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

pub(super) async fn write_fingerprints(
    args: &FingerprintArgs,
    process: &Process,
) -> Result<(), RunError> {
    let common = CommonArgs {
        suite: Some(args.suite.clone()),
        pybench: args.pybench.clone(),
        ..CommonArgs::default()
    };
    let (suite, env) = open_suite_env(&common, "eval-fingerprint", process)?;
    let tasks = suite.contents(&env).await?;
    let text = fingerprints::write(&tasks);
    write_file(&args.out, &text)?;
    let (out, bytes) = (args.out.display(), text.len());
    let line = format!(
        "{out}: {} texts of {}, {bytes} bytes",
        tasks.len(),
        suite.name()
    );
    process.progress.suspend(|| println!("{line}"));
    Ok(())
}
