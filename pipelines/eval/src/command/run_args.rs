//! The options of an evaluation.

use std::path::PathBuf;

use clap::Args;

use super::common::CommonArgs;

/// Run an evaluation.
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// Recipe: path of a file, or the name of one that comes with pybench [default: default]
    #[arg(value_name = "RECIPE")]
    pub recipe: Option<PathBuf>,
    /// Common options.
    #[command(flatten)]
    pub common: CommonArgs,
    /// PyBench's own YAML configuration, instead of a recipe (upstream flag)
    #[arg(long = "config_path", value_name = "FILE", conflicts_with = "recipe")]
    pub config_path: Option<PathBuf>,
    /// Task list, a task.json (upstream flag)
    #[arg(long = "task_path", value_name = "FILE")]
    pub task_path: Option<PathBuf>,
    /// File to write the trajectories to; output/ and Cells/ are written next to it (upstream flag)
    #[arg(long = "output_path", value_name = "FILE", requires = "config_path")]
    pub output_path: Option<PathBuf>,
    /// Grade trajectories from another system: a trajectory.jsonl, a run folder or a Parquet shard
    #[arg(long, value_name = "PATH", conflicts_with_all = ["recipe", "config_path"])]
    pub trajectories: Option<PathBuf>,
    /// Folder that contains their output/ [default: the folder of the trajectories]
    #[arg(long, value_name = "DIR", requires = "trajectories")]
    pub outputs: Option<PathBuf>,
    /// Maximum cost in US dollars; requires models with a known price [default: budget of the recipe]
    #[arg(long, value_name = "DOLLARS")]
    pub usd: Option<f64>,
    /// Maximum number of tokens [default: budget of the recipe]
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
    /// Download the benchmarks of the recipe that are not on this machine, as `fetch` does
    #[arg(long)]
    pub fetch: bool,
    /// Override a key of the recipe, such as rollout.samples=4; can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Keep the journal of a new run in the PostgreSQL server that FILE names, and its files in the bucket that FILE names
    /// [default: in the run folder]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Print the number of attempts and the expected calls, tokens and cost without calling a model, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// If the recipe has changed, delete the run and start over [default: only if nothing was paid for]
    #[arg(long)]
    pub start_over: bool,
}
