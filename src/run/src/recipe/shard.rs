//! `shard`: how the dataset is split and written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_zero;
use pybench_types::held_out::{HeldOutRule, TestShares};

/// How the dataset is split and written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shard {
    /// Share of the rows in the test split, at least 0 and below 1.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub test_fraction: f64,
    /// Number of templates that are kept out of the training split entirely.
    pub held_out_templates: usize,
    /// Share of the operations of composed tasks that no training row has, from 0 to 1. Only files that are likely to
    /// become test rows get tasks with them.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub held_out_operations: f64,
    /// Share of the pairs of operations that never follow each other in a training row.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub held_out_pairs: f64,
    /// Share of the wordings of composed tasks that no training row has.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub held_out_wordings: f64,
    /// Further operations (`rank_dense`), pairs (`filter_above>answer_mean`) and wordings (`filter_above/en/1`) that no
    /// training row has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_out_names: Vec<String>,
    /// Shares of the test split by what training rows lack of its rows, instead of `test_fraction`. Absent: the test split
    /// has `test_fraction` of the rows, whatever they lack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_shares: Option<TestShares>,
    /// Whether rows that match tasks or files of the known benchmarks stay in the dataset. Otherwise they are dropped.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_contaminated: bool,
    /// Maximum number of rows per shard.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub shard_rows: usize,
    /// Maximum number of rows per Parquet row group.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub row_group_rows: usize,
    /// zstd compression level.
    #[schemars(range(min = 1, max = 22))]
    pub zstd_level: i32,
}

impl Shard {
    /// Which parts of composed tasks are held out, in a run with this seed.
    pub fn held_out(&self, seed: u64) -> HeldOutRule {
        HeldOutRule {
            seed,
            operations: self.held_out_operations,
            pairs: self.held_out_pairs,
            wordings: self.held_out_wordings,
            names: self.held_out_names.iter().cloned().collect(),
        }
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            test_fraction: 0.15,
            held_out_templates: 3,
            held_out_operations: 0.0,
            held_out_pairs: 0.0,
            held_out_wordings: 0.0,
            held_out_names: Vec::new(),
            test_shares: None,
            allow_contaminated: false,
            shard_rows: 10_000,
            row_group_rows: 100,
            zstd_level: 9,
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}
