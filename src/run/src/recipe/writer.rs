//! The `query.writer` table of a recipe: models that write tasks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ModelChoice;
use pybench_types::task::{Category, Difficulty, FileKind};
use pybench_types::trajectory::Sampling;

/// Models that write tasks for the crawled files: a generator, and two checkers that can request revisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriterChoice {
    /// Model that writes queries, revises them, and proposes checks.
    pub generator: ModelChoice,
    /// Model that decides whether a query needs its keyword; default: the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyword_checker: Option<ModelChoice>,
    /// Model that decides whether the files contain what a query needs; default: the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_checker: Option<ModelChoice>,
    /// Maximum number of versions of a query: the first version and its revisions.
    #[serde(default = "default_rounds")]
    #[schemars(range(min = 1, max = 10))]
    pub rounds: u32,
    /// Maximum number of queries attempted per task, each with different files if possible.
    #[serde(default = "default_rounds")]
    #[schemars(range(min = 1, max = 100))]
    pub tries: u32,
    /// Share of common word 3-grams from which a query counts as a near duplicate of an earlier one.
    #[serde(default = "default_similarity")]
    #[schemars(range(min = 0.5, max = 1))]
    pub similarity: f64,
    /// Embedding endpoint that also detects near duplicates by meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<EmbeddingChoice>,
    /// Sampling parameters of the generator; the checkers use temperature 0.
    #[serde(default = "default_sampling")]
    pub sampling: Sampling,
    /// Whether the generator proposes a check for each task.
    #[serde(default)]
    pub checks: ProposedChecks,
    /// Number of teacher samples on which a proposed check is tested; it must pass for at least one.
    #[serde(default = "default_trials")]
    #[schemars(range(min = 1, max = 100))]
    pub trials: u32,
    /// Weights of categories, keywords, file types and difficulties.
    #[serde(default)]
    pub balance: Balance,
}

/// Detection of near duplicates by the cosine similarity of query embeddings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingChoice {
    /// Endpoint with the OpenAI embeddings API (`kind = "openai"`); tokens cost `price.prompt`.
    pub endpoint: ModelChoice,
    /// Cosine from which a query counts as a near duplicate of an earlier one; a good value depends on the model.
    #[serde(default = "default_cosine")]
    #[schemars(range(min = 0.5, max = 1))]
    pub similarity: f64,
}

impl WriterChoice {
    /// All models with their paths below `query.writer`.
    pub fn models(&self) -> impl Iterator<Item = (&'static str, &ModelChoice)> {
        let embeddings = self.embeddings.as_ref();
        let more = [
            ("keyword_checker", self.keyword_checker.as_ref()),
            ("content_checker", self.content_checker.as_ref()),
            ("embeddings.endpoint", embeddings.map(|e| &e.endpoint)),
        ];
        let named = more.into_iter();
        let named = named.filter_map(|(name, choice)| Some((name, choice?)));
        std::iter::once(("generator", &self.generator)).chain(named)
    }

    /// All models, mutable, in the order of [`WriterChoice::models`].
    pub(super) fn models_mut(&mut self) -> impl Iterator<Item = &mut ModelChoice> {
        let checkers = self.keyword_checker.iter_mut();
        let checkers = checkers.chain(&mut self.content_checker);
        let embeddings = self.embeddings.iter_mut().map(|e| &mut e.endpoint);
        std::iter::once(&mut self.generator)
            .chain(checkers)
            .chain(embeddings)
    }
}

fn default_trials() -> u32 {
    1
}

fn default_rounds() -> u32 {
    3
}

fn default_similarity() -> f64 {
    0.7
}

fn default_cosine() -> f64 {
    0.95
}

fn default_sampling() -> Sampling {
    Sampling {
        temperature: 0.8,
        top_p: 0.95,
        max_tokens: 1500,
    }
}

/// Whether tasks written by models get a check. A proposed check is kept only if it runs, passes for a
/// trajectory, and fails for an empty attempt and for wrong results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProposedChecks {
    /// Drop a query that has no valid check.
    #[default]
    Required,
    /// Keep a query without a valid check; requires `judge` in `grade.filters`.
    Optional,
    /// Propose no checks; requires `judge` in `grade.filters`.
    None,
}

/// Weights for choosing what tasks are about. The default weight is 1; weight 0 excludes an entry. Shares of
/// languages are set in `query.languages`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Balance {
    /// Weight of each category.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<Category, f64>,
    /// Weight of each keyword within its category.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keywords: BTreeMap<String, f64>,
    /// Weight of each file type, among the types that a keyword applies to.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<FileKind, f64>,
    /// Weight of each difficulty.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub difficulties: BTreeMap<Difficulty, f64>,
}

impl Balance {
    /// All weights with their dotted paths.
    pub(super) fn weights(&self) -> impl Iterator<Item = (String, f64)> {
        fn named<K: Serialize>(of: &str, weights: &BTreeMap<K, f64>) -> Vec<(String, f64)> {
            let name = |key: &K| match serde_json::to_value(key) {
                Ok(serde_json::Value::String(name)) => format!("{of}.{name}"),
                _ => of.to_owned(),
            };
            weights.iter().map(|(key, w)| (name(key), *w)).collect()
        }
        let all = [
            named("categories", &self.categories),
            named("keywords", &self.keywords),
            named("types", &self.types),
            named("difficulties", &self.difficulties),
        ];
        all.into_iter().flatten()
    }
}
