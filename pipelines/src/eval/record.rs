//! One attempt at one task, and the file of them: JSON lines, the [`Frozen`] header first.
//!
//! Whoever grades writes these; statistics, judge and report are functions of them. Nothing in a
//! record is trusted to be small or harmless: the reader bounds what it reads, the report escapes
//! what it shows.

mod evaluation;
mod file;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use pybench::id::Digest;
use pybench::trajectory::{OutputFile, Sampling};
use serde::{Deserialize, Serialize};

pub use evaluation::Evaluation;

/// Most characters of what a check expected or found.
pub const MOST_SHOWN: usize = 2_000;
/// Most checks of one attempt.
pub const MOST_CHECKS: usize = 200;

/// Everything that defines the scores of a file of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frozen {
    /// What was run, for people: `pybench`, `task library, held-out split`.
    pub task_set: String,
    /// Digest of every task as it was asked: prompts, inputs, checks.
    pub tasks: Digest,
    /// Digest of the checker's source and environment.
    pub checker: String,
    /// Digest of the Python environment that ran the cells.
    pub environment: String,
    /// Digest of the prompts that agents were given.
    pub prompts: String,
    /// Limits by name: `max_turns`, `cell_seconds`, `memory_bytes`, …
    pub limits: BTreeMap<String, u64>,
    /// Who was run, by label.
    pub agents: BTreeMap<String, Agent>,
}

/// Who was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// What it is.
    pub kind: AgentKind,
    /// What it is, in a plain sentence, for the report.
    pub about: String,
    /// Message format (`pybench`, …); empty where there is none.
    #[serde(default)]
    pub format: String,
    /// How replies were sampled; `None` where nothing is sampled or it is not known.
    #[serde(default)]
    pub sampling: Option<Sampling>,
}

/// What an agent is. Only models compete; the others stand beside for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// A language model.
    Model,
    /// The reference solutions of the audit.
    Reference,
    /// An agent that does no work: do-nothing, echo, …
    Null,
    /// A person at the terminal.
    Human,
    /// Trajectories that another system made.
    Foreign,
}

/// One attempt of one agent at one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Label of the agent, a key of [`Frozen::agents`].
    pub agent: String,
    /// The benchmark: `pybench`, `library`, `humaneval+`, `gsm8k`, … Rates of two are never mixed.
    pub suite: String,
    /// Index of the task as the benchmark has it: `2`, or the short id of a library task.
    pub task: String,
    /// Upstream's category (`category1`), or the benchmark's own.
    pub category: String,
    /// Digests of the input files: tasks that share one are no independent observations.
    #[serde(default)]
    pub clusters: Vec<Digest>,
    /// Number of the try, from 0.
    pub seed: u64,
    /// Whether there is anything to score.
    pub outcome: Outcome,
    /// The three scores, side by side.
    #[serde(default)]
    pub scores: Scores,
    /// Whether the task counts in `strict`'s headline.
    #[serde(default)]
    pub headline: Headline,
    /// What was looked at, in order; at most [`MOST_CHECKS`].
    #[serde(default)]
    pub checks: Vec<Check>,
    /// What the judge said; `None`: nobody asked it, or it could not be reached.
    #[serde(default)]
    pub judgement: Option<Judgement>,
    /// Replies of the agent.
    pub turns: u32,
    /// The limit of turns.
    pub max_turns: u32,
    /// Tokens read.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens written.
    #[serde(default)]
    pub tokens_out: u64,
    /// Cost in millionths of a dollar.
    #[serde(default)]
    pub micro_usd: u64,
    /// Wall time. The only thing here that another run of equal work changes; the report keeps it
    /// in files of its own.
    #[serde(default)]
    pub seconds: f64,
    /// What the user asked.
    #[serde(default)]
    pub prompt: String,
    /// Input files, as the agent saw them under `data/`.
    #[serde(default)]
    pub inputs: Vec<OutputFile>,
    /// A [`pybench::trajectory::Trajectory`] as JSON, in the content store.
    #[serde(default)]
    pub trajectory: Option<OutputFile>,
    /// Files left under `output/`, in the content store.
    #[serde(default)]
    pub outputs: Vec<OutputFile>,
}

/// Whether there is anything to score. A failure of ours is never a failure of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The agent had its try.
    Ran,
    /// The task could not be run here (inputs missing, live pages).
    NotRun {
        /// Why.
        reason: String,
    },
    /// Endpoint, sandbox or checker failed. Counted apart, with bounds.
    Infrastructure {
        /// What failed.
        failure: String,
    },
}

/// The scores. They are never mixed; `None`: this one says nothing of the attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scores {
    /// Upstream's own `tests.py`. For other suites: the suite's official score.
    #[serde(default)]
    pub upstream: Option<bool>,
    /// The same intent, isolated, broken oracles repaired.
    #[serde(default)]
    pub fixed: Option<bool>,
    /// Our executable checks.
    #[serde(default)]
    pub strict: Option<bool>,
}

/// Names of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Score {
    Upstream,
    Fixed,
    Strict,
}

impl Score {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 3] = [Self::Upstream, Self::Fixed, Self::Strict];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Fixed => "fixed",
            Self::Strict => "strict",
        }
    }
}

/// Whether a task counts in `strict`'s headline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// It does.
    pub counts: bool,
    /// Why not.
    #[serde(default)]
    pub reason: Option<String>,
}

impl Default for Headline {
    fn default() -> Self {
        Self {
            counts: true,
            reason: None,
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The score it belongs to.
    pub score: Score,
    /// What it looked at: `table output/2.csv`.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// What should have been there, at most [`MOST_SHOWN`] characters.
    #[serde(default)]
    pub expected: String,
    /// What was there, likewise.
    #[serde(default)]
    pub actual: String,
}

impl Check {
    /// A check whose texts are cut to what is kept.
    pub fn new(score: Score, name: &str, passed: bool, expected: &str, actual: &str) -> Self {
        Self {
            score,
            name: cut(name, MOST_SHOWN),
            passed,
            expected: cut(expected, MOST_SHOWN),
            actual: cut(actual, MOST_SHOWN),
        }
    }
}

/// The first characters of a text, with a mark where it was cut.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}… [cut]", &text[..at]),
        None => text.to_owned(),
    }
}

/// What a judge said of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// Who judged: `openai:gpt-4o`.
    pub judge: String,
    /// Digest of the judge's prompts.
    pub prompts: Digest,
    /// `None`: it abstained, which is a missing value.
    pub passed: Option<bool>,
    /// In its words, at most [`MOST_SHOWN`] characters.
    #[serde(default)]
    pub reason: String,
    /// Against reference runs, by their agent's label.
    #[serde(default)]
    pub duels: BTreeMap<String, Duel>,
}

/// Who did better, asked in both orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duel {
    /// This attempt, in both orders.
    Win,
    /// Neither, or another one in each order.
    Tie,
    /// The other, in both orders.
    Lose,
    /// The judge abstained in at least one order: a missing value.
    Abstained,
}

impl Attempt {
    /// Suite, task (numbers by value), agent, seed: the order of every file and every page.
    pub fn order(&self, other: &Self) -> Ordering {
        (self.suite.cmp(&other.suite))
            .then_with(|| task_order(&self.task, &other.task))
            .then_with(|| self.agent.cmp(&other.agent))
            .then_with(|| self.seed.cmp(&other.seed))
    }

    /// Whether it says something about the agent.
    pub fn ran(&self) -> bool {
        self.outcome == Outcome::Ran
    }

    /// The score of that name.
    pub fn score(&self, score: Score) -> Option<bool> {
        match score {
            Score::Upstream => self.scores.upstream,
            Score::Fixed => self.scores.fixed,
            Score::Strict => self.scores.strict,
        }
    }

    /// What is wrong with it, if anything.
    fn problem(&self, frozen: &Frozen) -> Option<String> {
        if !frozen.agents.contains_key(&self.agent) {
            return Some(format!("the header has no agent `{}`", self.agent));
        }
        if !self.seconds.is_finite() || self.seconds < 0.0 {
            return Some("`seconds` is no duration".to_owned());
        }
        let scored = Score::ALL.iter().any(|score| self.score(*score).is_some());
        if !self.ran() && scored {
            return Some("an attempt that did not run has a score".to_owned());
        }
        if self.checks.len() > MOST_CHECKS {
            return Some(format!("more than {MOST_CHECKS} checks"));
        }
        None
    }
}

/// Numbers by value and before words, words by code point.
pub fn task_order(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(x), Ok(y)) => x.cmp(&y).then_with(|| a.cmp(b)),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

#[cfg(test)]
pub(crate) mod tests;
