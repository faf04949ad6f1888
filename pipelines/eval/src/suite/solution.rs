//! Reference solutions: what the agent `reference` does at a task.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A solution: cells followed by an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solution {
    /// Final answer; `{{ name }}` is replaced by the value that a turn read from its output.
    pub answer: String,
    /// Cells in order.
    #[serde(default, rename = "turn")]
    pub turns: Vec<SolutionTurn>,
}

/// One cell of a solution.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolutionTurn {
    /// Python code.
    pub cell: String,
    /// Values to read from the output of the cell: name and a regular expression with one group.
    #[serde(default)]
    pub read: BTreeMap<String, String>,
}
