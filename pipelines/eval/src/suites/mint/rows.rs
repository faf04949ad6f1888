//! The task sets of MINT as its repository has them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::answers::json_lines;

/// Number of turns of an attempt; each cell, solution and invalid reply is one.
pub(super) const MAX_TURNS: usize = 5;
/// Number of solutions that an attempt may state.
pub(super) const MAX_SOLUTIONS: usize = 2;

/// A task set that runs offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskSet {
    /// Name in the repository.
    pub(super) name: &'static str,
    /// What the authors call its tasks.
    pub(super) kind: &'static str,
    /// Number of tasks.
    pub(super) count: usize,
    /// Folder of its examples of a conversation.
    pub(super) example: &'static str,
}

const fn set(
    name: &'static str,
    kind: &'static str,
    count: usize,
    example: &'static str,
) -> TaskSet {
    TaskSet {
        name,
        kind,
        count,
        example,
    }
}

/// The task sets, in the authors' order.
pub(super) const SETS: [TaskSet; 6] = [
    set("theoremqa", "reasoning", 49, "reasoning"),
    set("gsm8k", "reasoning", 48, "reasoning"),
    set("mmlu", "reasoning", 76, "reasoning"),
    set("math", "reasoning", 100, "reasoning"),
    set("mbpp", "code generation", 91, "mbpp"),
    set("humaneval", "code generation", 45, "humaneval"),
];

/// A line of a task set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) id: u32,
    pub(super) prompt: String,
    /// The answer, or the tests of a program.
    pub(super) reference: Value,
    /// Type of the answer in `theoremqa`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer_type: Option<String>,
    /// The rest of the reference solution in `humaneval`; the prompt is its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) canonical_solution: Option<String>,
    /// The reference solution in `mbpp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
    /// What the function does, in `mbpp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
}

impl Row {
    /// The reference as text.
    ///
    /// # Errors
    /// It is another JSON value.
    pub(super) fn reference_text(&self) -> Result<&str, String> {
        let text = self.reference.as_str();
        text.ok_or_else(|| format!("task {}: `reference` is not a text", self.id))
    }
}

/// Reads a task set.
///
/// # Errors
/// The file is missing, or a line is not a task.
pub(super) fn read(root: &Path, set: &TaskSet) -> Result<Vec<Row>, String> {
    let path = format!("data/processed/{}/test_prompts.json", set.name);
    json_lines(root, &path)
}
