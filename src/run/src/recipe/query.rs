//! `query`: which tasks to write.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TaskSetChoice, WriterChoice, is_zero};
use pybench_types::task::{Category, Difficulty, Language};

/// Which tasks to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Number of tasks to write.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tasks: usize,
    /// Largest share of the tasks that may come from one template, above 0 and at most 1.
    #[serde(default = "Query::default_share")]
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub template_share: f64,
    /// Share of each language; the shares must add up to 1.
    #[serde(default = "Query::default_languages")]
    pub languages: BTreeMap<Language, f64>,
    /// Categories to use; an empty list uses all.
    #[serde(default)]
    pub categories: Vec<Category>,
    /// Keywords to use; an empty list uses all.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// Share of the tasks that are composed of operations on the crawled files, from 0 to 1; the others are from
    /// templates.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub composed: f64,
    /// Share of the composed tasks whose file gets invented names and values, from 0 to 1. Tasks that are meant for the test
    /// split keep the real ones.
    #[serde(
        default = "Query::default_renamed",
        skip_serializing_if = "Query::is_default_renamed"
    )]
    #[schemars(range(min = 0, max = 1))]
    pub renamed: f64,
    /// Share of these names that are in other languages and scripts, from 0 to 1 [default: a twelfth of the names of columns
    /// and files, a fifth of those of categories].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub foreign_names: Option<f64>,
    /// Share of the composed tasks on tables whose file is written as people hand tables on, from 0 to 1: with numbers,
    /// dates, units and headers that have to be understood first.
    #[serde(
        default = "Query::default_messy",
        skip_serializing_if = "Query::is_default_messy"
    )]
    #[schemars(range(min = 0, max = 1))]
    pub messy: f64,
    /// Share of the composed tasks that are said less precisely where only one thing can be meant, from 0 to 1: a column
    /// by its words, a file without its extension.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub imprecise: f64,
    /// Share of the composed tasks with a typo in the name of a file where only one file can be meant, from 0 to 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub typos: f64,
    /// Levels of difficulty of the composed tasks, from 1 to 5; an empty list makes all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), inner(range(min = 1, max = 5)))]
    pub difficulties: Vec<u32>,
    /// Weights for drawing the composed tasks.
    #[serde(default, skip_serializing_if = "ComposedBalance::is_default")]
    pub balance: ComposedBalance,
    /// Whether every task must use a crawled file.
    #[serde(default, skip_serializing_if = "FileUse::is_default")]
    pub files: FileUse,
    /// Runs, by name or folder, and datasets whose held-out files, operations, pairs of operations, wordings and templates no
    /// task has, so that nothing is trained on what they measure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub apart_from: Vec<PathBuf>,
    /// Lists of questions with answers, from which tasks are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub task_sets: Vec<TaskSetChoice>,
    /// Models that write the tasks, instead of the templates of the task library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<WriterChoice>,
}

impl Query {
    /// The number of tasks from each of `task_sets`.
    pub fn set_tasks(&self) -> Vec<usize> {
        let shares = self.task_sets.iter().map(TaskSetChoice::share);
        // Rounded on the sum, so that all of them together are not more than `tasks`.
        let mut sum = 0.0;
        let at = |sum: f64| (self.tasks as f64 * sum.min(1.0)).round() as usize;
        let counts = shares.map(|share| {
            let before = at(sum);
            sum += share;
            at(sum) - before
        });
        counts.collect()
    }

    /// The number of tasks that are composed.
    pub fn composed_tasks(&self) -> usize {
        (self.tasks as f64 * self.composed).round() as usize
    }

    fn default_share() -> f64 {
        0.1
    }
    fn default_renamed() -> f64 {
        0.8
    }
    fn is_default_renamed(share: &f64) -> bool {
        *share == Self::default_renamed()
    }
    fn default_messy() -> f64 {
        0.25
    }
    fn is_default_messy(share: &f64) -> bool {
        *share == Self::default_messy()
    }
    fn default_languages() -> BTreeMap<Language, f64> {
        BTreeMap::from([(Language::En, 0.6), (Language::Zh, 0.4)])
    }
}

/// Weights for drawing composed tasks. Unnamed entries weigh 1, and 0 excludes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ComposedBalance {
    /// Weight of each difficulty; an empty table makes tasks as they are drawn.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub difficulties: BTreeMap<Difficulty, f64>,
}

impl ComposedBalance {
    /// The weight of each difficulty; `None` if the recipe gives none.
    pub fn difficulty_weights(&self) -> Option<BTreeMap<Difficulty, f64>> {
        if self.difficulties.is_empty() {
            return None;
        }
        let weight = |one: &Difficulty| self.difficulties.get(one).copied().unwrap_or(1.0);
        let weights = Difficulty::ALL.map(|one| (one, weight(&one)));
        Some(weights.into())
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether tasks use crawled files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileUse {
    /// Some tasks use none, such as tasks of mathematics.
    #[default]
    Any,
    /// Every task uses at least one.
    Required,
}

impl FileUse {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
