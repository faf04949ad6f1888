//! Recipes: one TOML file describes a run.
//!
//! Bounds are `schemars` attributes of the fields, so that the JSON Schema, editors and the messages of
//! [`Recipe::parse`] agree. The doc comments become the descriptions in the JSON Schema.

mod conform;
mod crawl;
mod document;
mod goal;
mod grade;
mod learning;
mod load;
mod model;
mod query;
mod rollout;
mod shard;
mod task_sets;
#[cfg(test)]
mod tests;
mod validate;
mod writer;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crawl::{ArxivFormat, Crawl, PypiArchive, PypiPackage, Search, SourceChoice};
pub use goal::{Goal, Keep};
pub use grade::{Filter, Grade, JudgeChoice};
pub use learning::{CurriculumChoice, LoopChoice, PreferenceChoice};
pub use load::{RecipeError, apply_sets};
pub use model::{CodeIdiom, ModelChoice, ServeEngine, ServedDtype, SolutionStyle};
pub use query::{ComposedBalance, FileUse, Query};
pub use rollout::{FormatChoice, RepetitionDetection, Rollout};
pub use shard::Shard;
pub use task_sets::{AnswerCheck, TaskSetChoice, TaskSetFields};
pub use writer::{Balance, EmbeddingChoice, ProposedChecks, WriterChoice};

use pybench_interpreter::InterpreterChoice;
use pybench_types::held_out::EvaluationFiles;

/// A recipe: everything that defines a run. The resolved recipe is frozen into the run folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the run folder, unless `--run` gives another; letters, digits, `-` and `_`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    #[schemars(extend("x-expected" = "1 to 64 letters, digits, `-` or `_`"))]
    pub name: String,
    /// Seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// Where the files come from. A recipe whose tasks all come from `query.task_sets` needs none.
    #[serde(default)]
    pub crawl: Crawl,
    /// Which tasks to write.
    pub query: Query,
    /// The model that solves the tasks.
    pub teacher: ModelChoice,
    /// Additional teachers. Each task gets one teacher, drawn by weight from `seed` and the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub teacher_mix: Vec<WeightedTeacher>,
    /// Models that get the tasks of which every sample was rejected, tried one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub escalation: Vec<ModelChoice>,
    /// How tasks are solved.
    #[serde(default)]
    pub rollout: Rollout,
    /// Limits on money, tokens and time.
    #[serde(default)]
    pub budget: Budget,
    /// The sandbox that runs the code.
    #[serde(default)]
    pub interpreter: InterpreterChoice,
    /// Which filters decide whether a trajectory becomes a row.
    #[serde(default)]
    pub grade: Grade,
    /// When to stop, and which accepted samples become rows.
    #[serde(default, skip_serializing_if = "Goal::is_default")]
    pub goal: Goal,
    /// How the dataset is split and written.
    #[serde(default)]
    pub shard: Shard,
    /// Rounds in which `teacher`, the student, learns from its own attempts; only `pybench loop` reads it.
    #[serde(rename = "loop", default, skip_serializing_if = "Option::is_none")]
    pub learning: Option<LoopChoice>,
}

impl Recipe {
    /// All teachers with their paths in the recipe: `teacher`, those of `teacher_mix`, those of `escalation`.
    pub fn teachers(&self) -> Vec<(String, &ModelChoice)> {
        let mixed = self.teacher_mix.iter().enumerate();
        let mixed = mixed.map(|(at, mixed)| (format!("teacher_mix.{at}.teacher"), &mixed.teacher));
        let escalation = self.escalation.iter().enumerate();
        let escalation = escalation.map(|(at, teacher)| (format!("escalation.{at}"), teacher));
        let first = std::iter::once(("teacher".to_owned(), &self.teacher));
        first.chain(mixed).chain(escalation).collect()
    }

    /// The files whose tasks are meant for the test split: as large a share of the files as of the rows. The split prefers
    /// them. A loop holds out a share of its own.
    pub fn evaluation_files(&self) -> EvaluationFiles {
        let of_rows = match &self.learning {
            Some(learning) => learning.held_out,
            None => self.shard.test_fraction,
        };
        let shares = self.shard.test_shares;
        EvaluationFiles {
            seed: self.seed,
            share: shares.map_or(of_rows, |shares| shares.sum()),
        }
    }

    /// All models with their paths in the recipe: the teachers, the judge, and the models that write tasks.
    pub fn models(&self) -> Vec<(String, &ModelChoice)> {
        let judge = self.grade.judge.as_ref();
        let judge = judge.map(|judge| ("grade.judge.teacher".to_owned(), &judge.teacher));
        let writer = self.query.writer.iter().flat_map(WriterChoice::models);
        let writer = writer.map(|(name, choice)| (format!("query.writer.{name}"), choice));
        let teachers = self.teachers().into_iter();
        teachers.chain(judge).chain(writer).collect()
    }

    /// All models, mutable, in the order of [`Recipe::models`].
    pub fn models_mut(&mut self) -> impl Iterator<Item = &mut ModelChoice> {
        let mixed = self.teacher_mix.iter_mut().map(|mixed| &mut mixed.teacher);
        let judge = self.grade.judge.as_mut().map(|judge| &mut judge.teacher);
        let first = std::iter::once(&mut self.teacher);
        let writer = self.query.writer.iter_mut();
        let writer = writer.flat_map(WriterChoice::models_mut);
        let teachers = first.chain(mixed).chain(&mut self.escalation);
        teachers.chain(judge).chain(writer)
    }
}

/// One teacher of `teacher_mix`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedTeacher {
    /// Relative weight of this teacher; `teacher` itself has weight 1.
    #[schemars(range(max = 1_000_000), extend("exclusiveMinimum" = 0))]
    pub weight: f64,
    /// The model.
    pub teacher: ModelChoice,
}

/// Limits on money, tokens and time. An absent limit means unlimited, but a paid endpoint requires `usd`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Maximum cost in US dollars.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub usd: Option<f64>,
    /// Maximum number of tokens, prompt and completion.
    #[schemars(range(min = 0))]
    pub tokens: Option<u64>,
    /// Maximum duration of the whole run in minutes, summed over all restarts.
    #[schemars(range(max = 525_600), extend("exclusiveMinimum" = 0))]
    pub minutes: Option<f64>,
}

impl Budget {
    /// The limit on time.
    pub fn time(&self) -> Option<Duration> {
        let minutes = self.minutes?;
        Duration::try_from_secs_f64(minutes * 60.0).ok()
    }
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}
