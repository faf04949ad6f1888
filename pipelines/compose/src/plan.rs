//! What a composed task records, so that its expert can solve it.

use pybench_types::task::{Task, TaskOrigin};
use serde::{Deserialize, Serialize};

use crate::graph::Graph;

/// What the expert needs to solve a task: the graph, and what it writes. It is the plan in [`TaskOrigin::Composed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub graph: Graph,
    /// Label of the answer, if the task ends with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<String>,
    /// Decimals that the query asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decimals: Option<u8>,
    /// Columns of the files that hold numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<String>,
    /// Title of the chart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
}

/// Why a task has no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the task is not a composed one")]
    NotComposed,
    #[error("the plan of the task cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

impl Plan {
    /// The plan of a composed task.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn of(task: &Task) -> Result<Self, PlanError> {
        match &task.origin {
            TaskOrigin::Composed { plan, .. } => Ok(serde_json::from_value(plan.clone())?),
            _ => Err(PlanError::NotComposed),
        }
    }
}
