//! The models that write tasks, as a recipe names them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TeacherChoice;
use crate::task::{Category, Difficulty, FileKind};
use crate::trajectory::Sampling;

/// Models that write tasks for the crawled files: a generator, and two checkers that make it revise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriterChoice {
    /// Writes queries, revises them, and proposes checks.
    pub generator: TeacherChoice,
    /// Says whether a query needs its keyword; absent: the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyword_checker: Option<TeacherChoice>,
    /// Says whether the files hold what a query needs; absent: the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_checker: Option<TeacherChoice>,
    /// Most versions of one query: the first, and its revisions.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 10))]
    pub rounds: u32,
    /// Most queries tried for one task, each on other files where there are any.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 100))]
    pub tries: u32,
    /// Share of common word triples from which on a query is a near duplicate of an earlier one.
    #[serde(default = "usual_similarity")]
    #[schemars(range(min = 0.5, max = 1))]
    pub similarity: f64,
    /// An endpoint that finds near duplicates by meaning too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<EmbeddingChoice>,
    /// How the generator is sampled; checkers answer at temperature 0.
    #[serde(default = "usual_sampling")]
    pub sampling: Sampling,
    /// Whether tasks get a check that the generator proposes.
    #[serde(default)]
    pub checks: ProposedChecks,
    /// Samples of the teacher that a proposed check is tried on; it must hold for at least one.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    pub trials: u32,
    /// What the tasks are about.
    #[serde(default)]
    pub balance: Balance,
}

/// Near duplicates by meaning: the cosine between embeddings of two queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingChoice {
    /// Speaks OpenAI's embeddings (`kind = "openai"`); a token costs what `price.prompt` says.
    pub endpoint: TeacherChoice,
    /// Cosine from which on a query is a near duplicate of an earlier one; what is right depends on the model.
    #[serde(default = "usual_cosine")]
    #[schemars(range(min = 0.5, max = 1))]
    pub similarity: f64,
}

impl WriterChoice {
    /// Every model that it names, and where.
    pub fn models(&self) -> impl Iterator<Item = (&'static str, &TeacherChoice)> {
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

    /// The same to change them.
    pub(super) fn models_mut(&mut self) -> impl Iterator<Item = &mut TeacherChoice> {
        let checkers = self.keyword_checker.iter_mut();
        let checkers = checkers.chain(&mut self.content_checker);
        let embeddings = self.embeddings.iter_mut().map(|e| &mut e.endpoint);
        std::iter::once(&mut self.generator)
            .chain(checkers)
            .chain(embeddings)
    }
}

fn one() -> u32 {
    1
}

fn three() -> u32 {
    3
}

fn usual_similarity() -> f64 {
    0.7
}

fn usual_cosine() -> f64 {
    0.95
}

fn usual_sampling() -> Sampling {
    Sampling {
        temperature: 0.8,
        top_p: 0.95,
        max_tokens: 1500,
    }
}

/// Whether tasks that models write get a check. One is kept only if it runs, holds for a trajectory, and
/// fails for whoever did nothing and for wrong results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProposedChecks {
    /// A query without a check that survives is left out.
    #[default]
    Required,
    /// It becomes a task without a check; the judge has to be among the filters.
    Optional,
    /// No check is asked for; the judge has to be among the filters.
    None,
}

/// Weights of what tasks are about: what is not named weighs 1, and 0 leaves out. Languages have their
/// shares in `query.languages`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Balance {
    /// By category.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<Category, f64>,
    /// By keyword, within its category.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keywords: BTreeMap<String, f64>,
    /// By type of file, among those that a keyword applies to.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<FileKind, f64>,
    /// By difficulty.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub difficulties: BTreeMap<Difficulty, f64>,
}

impl Balance {
    /// Every weight with its dotted path.
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
