//! `goal`: when to stop, and which accepted samples become rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When to stop, and which accepted samples become rows. Rollout and grading alternate until the goal is
/// reached or no task is left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Goal {
    /// Exact number of rows; no further attempts start once it is reached. Absent: every task is attempted.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub accept: Option<usize>,
    /// Accepted samples of a task after which its remaining samples are skipped; 0 runs all samples.
    #[schemars(range(max = 1000))]
    pub enough: u32,
    /// Which accepted samples of a task become rows.
    pub keep: Keep,
    /// Share of the rows, 0 to 1, for which a sample that hit an error and fixed it is preferred over the
    /// task's other accepted samples. Requires `keep` other than `all`.
    #[schemars(range(min = 0, max = 1))]
    pub repairs: f64,
}

impl Goal {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which accepted samples of a task become rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// All of them.
    #[default]
    All,
    /// The one with the fewest turns; ties go to the one with the fewest tokens.
    Turns,
    /// The one with the fewest completion tokens; ties go to the one with the fewest turns.
    Tokens,
}
