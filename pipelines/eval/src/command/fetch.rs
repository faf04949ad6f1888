//! `pybench eval fetch`: downloads the files of a benchmark.

use std::path::{Path, PathBuf};

use clap::Args;
use pybench_interpreter::default_cache_dir;
use pybench_run::RunError;

use crate::suite::Origin;
use crate::suites::entry;
use crate::suites::pybench::upstream::Upstream;
use crate::suites::pybench::{PyBench, SUITE as PYBENCH};

/// Download the files of a benchmark.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Benchmark
    #[arg(long, value_name = "NAME", default_value = PYBENCH)]
    pub suite: String,
    /// Folder to check out into [default: a folder in the cache]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Repository to clone [default: the authors' repository]
    #[arg(long, value_name = "URL")]
    pub repository: Option<String>,
}

pub(super) async fn fetch_suite(args: &FetchArgs) -> Result<(), RunError> {
    let origin = entry(&args.suite).map_err(RunError::BadInput)?.origin;
    let cached = || origin.checkout_dir(&default_cache_dir());
    let folder = args.into.clone().unwrap_or_else(cached);
    let repository = args.repository.as_deref().unwrap_or(origin.repository);
    download(origin, repository, &folder).await?;
    if args.suite == PYBENCH {
        print_missing(&folder)?;
    }
    Ok(())
}

/// Prints the license of a benchmark and downloads its files.
pub(super) async fn download(
    origin: &Origin,
    repository: &str,
    folder: &Path,
) -> Result<(), RunError> {
    println!("{repository}\nlicense: {}", origin.license);
    origin.fetch(repository, folder).await?;
    let (shown, commit) = (folder.display(), origin.commit);
    println!("{shown}: commit {commit}, all files verified");
    Ok(())
}

/// Prints the inputs that the checkout lacks.
fn print_missing(folder: &Path) -> Result<(), RunError> {
    let suite = PyBench::new(Upstream::open(folder)?)?;
    for (path, tasks) in suite.missing() {
        let tasks: Vec<_> = tasks.iter().map(u32::to_string).collect();
        println!(
            "missing: {path} (needed by task {}, which will not run)",
            tasks.join(", ")
        );
    }
    Ok(())
}
