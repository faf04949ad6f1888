//! `loop`: rounds of a student that learns from its own attempts.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rounds of a student that learns from its own attempts. The student is `teacher`; its tasks are those of `query`, a
/// part of them in each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopChoice {
    /// Number of rounds.
    #[schemars(range(min = 1, max = 100))]
    pub rounds: u32,
    /// Training recipe of each round: a file, or a name in `training/recipes`. The round sets `name` and `model`, and
    /// adds its rows to `data`. Absent: the rounds make data and train nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<PathBuf>,
    /// Share of the tasks that no round plays and every student is measured on.
    #[serde(default = "LoopChoice::default_held_out")]
    #[schemars(range(max = 0.9), extend("exclusiveMinimum" = 0))]
    pub held_out: f64,
    /// Direct preference optimization after the training of each round, on the preference pairs of all rounds so far.
    /// Absent: pairs are written and not trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceChoice>,
    /// Tasks that a round plays again before its own, of those that the student passed in some samples of the round before.
    /// Absent: each round plays tasks of its own only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<CurriculumChoice>,
}

impl LoopChoice {
    fn default_held_out() -> f64 {
        0.2
    }
}

/// Which tasks a round plays again: those whose pass rate in the round before is between two bounds, neither of which counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CurriculumChoice {
    /// The pass rate must be above this.
    #[schemars(range(min = 0, max = 1))]
    pub above: f64,
    /// The pass rate must be below this.
    #[schemars(range(min = 0, max = 1))]
    pub below: f64,
}

impl Default for CurriculumChoice {
    /// Tasks that are neither hopeless nor solved.
    fn default() -> Self {
        Self {
            above: 0.0,
            below: 1.0,
        }
    }
}

/// Direct preference optimization (DPO): a second stage of the training recipe, whose other keys it keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PreferenceChoice {
    /// How strongly the student is held to what the round has trained before; higher values allow less distance.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub beta: f64,
    /// Peak learning rate; much lower than that of supervised training.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub learning_rate: f64,
    /// How often every pair is seen; may be a fraction.
    #[schemars(range(max = 10000), extend("exclusiveMinimum" = 0))]
    pub num_epochs: f64,
}

impl Default for PreferenceChoice {
    /// TRL's values, for one pass.
    fn default() -> Self {
        Self {
            beta: 0.1,
            learning_rate: 1e-6,
            num_epochs: 1.0,
        }
    }
}
