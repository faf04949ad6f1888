//! Runs by the whole program: from a recipe to verdicts, under faults and kills.

mod bad_units;
mod batches;
mod cluster_faults;
mod deploy;
mod faults;
mod formats;
mod grade;
mod in_bucket;
mod in_flight;
mod judge;
mod kill;
mod learning;
mod moves;
#[cfg(feature = "temporal")]
mod on_temporal;
mod orphans;
mod pace;
mod profile;
mod query;
mod query_writer;
mod rollout;
mod run_cli;
mod shared_run;
mod slurm;
#[path = "../support/mod.rs"]
mod support;
mod synthesize;
mod task_sets;
mod wheel;
mod workers;
