//! `grade`: how trajectories are graded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ModelChoice;

/// How trajectories are graded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Grade {
    /// Filters that every accepted trajectory must pass, applied in this order.
    pub filters: Vec<Filter>,
    /// Minimum number of accepted rows; with fewer, the run counts as incomplete.
    pub at_least: usize,
    /// Language model that judges every trajectory, at temperature 0. Its verdict counts only if `filters`
    /// contains `judge`; its agreement with the checks is always reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeChoice>,
}

/// A language model that judges trajectories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeChoice {
    /// The model.
    pub teacher: ModelChoice,
    /// Whether the judge receives the images that a trajectory produced.
    #[serde(default)]
    pub sees: bool,
}

impl Default for Grade {
    fn default() -> Self {
        use Filter::*;
        Self {
            filters: vec![Format, Finished, Outputs, Check, Consistent, Duplicate],
            at_least: 0,
            judge: None,
        }
    }
}

/// A filter of trajectories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// Every reply follows the message format.
    Format,
    /// The model declared that it is finished.
    Finished,
    /// Every requested output file exists, is a regular file, is not empty, and opens as its type.
    Outputs,
    /// All checks of the task pass.
    Check,
    /// The numbers in the answer occur in the observations or in the query.
    Consistent,
    /// The judge of `grade.judge` accepts the trajectory. If the judge abstains, it has no effect, and a task
    /// without checks is not accepted.
    Judge,
    /// No earlier accepted trajectory is identical.
    Duplicate,
}
