//! Records of attempts. A file of records is JSON Lines: an [`EvalFingerprint`] header, then one
//! [`Attempt`] per line.
//!
//! Runs and imports write records; statistics, judge and report only read them. Records are untrusted:
//! the reader limits sizes, and the report escapes everything it shows.

mod evaluation;
mod file;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use pybench_types::id::Digest;
use pybench_types::trajectory::{OutputFile, Sampling};
use serde::{Deserialize, Serialize};

pub use evaluation::Evaluation;

/// Maximum length of the expected and actual text of a check, in characters.
pub const MAX_SHOWN: usize = 2_000;
/// Maximum number of checks per attempt.
pub const MAX_CHECKS: usize = 200;

/// Everything that defines the scores in a file of records. Scores are comparable only if these agree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalFingerprint {
    /// Description of the tasks: `pybench`, `task library, held-out split`.
    pub task_set: String,
    /// The benchmarks by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub suites: BTreeMap<String, SuiteSource>,
    /// Digest of all tasks: prompts, inputs and checks.
    pub tasks: Digest,
    /// Digest of the checker's source and environment.
    pub checker: String,
    /// Digest of the Python environment that ran the cells.
    pub environment: String,
    /// Digest of the agents' system prompts.
    pub prompts: String,
    /// Limits by name: `max_turns`, `cell_seconds`, `memory_bytes`, …
    pub limits: BTreeMap<String, u64>,
    /// Agents by label.
    pub agents: BTreeMap<String, Agent>,
}

/// Where the tasks of a benchmark come from, and what a reader of its scores must know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteSource {
    /// URL of the repository.
    pub repository: String,
    pub commit: String,
    /// License of the data, as its authors state it.
    pub license: String,
    /// How the scores are defined.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// An evaluated agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    pub kind: AgentKind,
    /// Description for the report, one sentence.
    pub about: String,
    /// Message format (`pybench`, …); empty if there is none.
    #[serde(default)]
    pub format: String,
    /// Sampling parameters; `None` if nothing is sampled or they are unknown.
    #[serde(default)]
    pub sampling: Option<Sampling>,
}

/// Kind of agent. References and null agents are baselines and are not ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// A language model.
    Model,
    /// The reference solutions.
    Reference,
    /// A baseline that does no work: do-nothing, echo, …
    Null,
    /// A person at the terminal.
    Human,
    /// Trajectories that another system made.
    Foreign,
}

impl AgentKind {
    /// Whether it is ranked and compared: no reference and no null agent.
    pub fn competes(self) -> bool {
        !matches!(self, Self::Reference | Self::Null)
    }
}

/// One attempt of one agent at one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Label of the agent, a key of [`EvalFingerprint::agents`].
    pub agent: String,
    /// Suite: `pybench`, `library`, `humaneval+`, `gsm8k`, …
    pub suite: String,
    /// Task within the suite: PyBench's index (`2`) or the short id of a library task.
    pub task: String,
    /// Category of the task.
    pub category: String,
    /// Keyword of a library task, for the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyword: Option<String>,
    /// Digests of the input files. Tasks that share one are not independent observations.
    #[serde(default)]
    pub clusters: Vec<Digest>,
    /// Number of the sample, from 0.
    pub seed: u64,
    /// Whether there is anything to score.
    pub outcome: Outcome,
    /// The three scores, side by side.
    #[serde(default)]
    pub scores: Scores,
    /// Whether the task counts in `strict`'s headline.
    #[serde(default)]
    pub headline: Headline,
    /// Results of the checks, in order; at most [`MAX_CHECKS`].
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Verdict of the LLM judge; `None` if it was not asked or could not be reached.
    #[serde(default)]
    pub judgment: Option<Judgment>,
    /// Number of replies of the agent.
    pub turns: u32,
    /// Limit on `turns`.
    pub max_turns: u32,
    /// Whether a rule against hopeless attempts ended it: the model repeated itself, or wrote no code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_early: bool,
    /// Prompt tokens.
    #[serde(default)]
    pub tokens_in: u64,
    /// Completion tokens.
    #[serde(default)]
    pub tokens_out: u64,
    /// Cost in millionths of a dollar; `None` if the price is unknown.
    #[serde(default)]
    pub micro_usd: Option<u64>,
    /// Wall time in seconds. The only field that differs between identical runs; the report writes it to
    /// separate files.
    #[serde(default)]
    pub seconds: f64,
    /// Prompt of the task.
    #[serde(default)]
    pub prompt: String,
    /// Input files below `data/`, as the agent saw them.
    #[serde(default)]
    pub inputs: Vec<OutputFile>,
    /// A [`pybench_types::trajectory::Trajectory`] as JSON, in the content store.
    #[serde(default)]
    pub trajectory: Option<OutputFile>,
    /// Files that the agent wrote below `output/`, in the content store.
    #[serde(default)]
    pub outputs: Vec<OutputFile>,
}

impl Attempt {
    /// An attempt without results, at a task given by suite, name and category.
    pub(crate) fn without_results(
        agent: &str,
        (suite, task, category): (&str, &str, &str),
        max_turns: u32,
        prompt: &str,
        outcome: Outcome,
    ) -> Self {
        Self {
            agent: agent.to_owned(),
            suite: suite.to_owned(),
            task: task.to_owned(),
            category: category.to_owned(),
            keyword: None,
            clusters: Vec::new(),
            seed: 0,
            outcome,
            scores: Scores::default(),
            headline: Headline::default(),
            checks: Vec::new(),
            judgment: None,
            turns: 0,
            max_turns,
            ended_early: false,
            tokens_in: 0,
            tokens_out: 0,
            micro_usd: Some(0),
            seconds: 0.0,
            prompt: prompt.to_owned(),
            inputs: Vec::new(),
            trajectory: None,
            outputs: Vec::new(),
        }
    }
}

/// Whether the attempt can be scored. Infrastructure failures never count against the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The agent ran to its end.
    Ran,
    /// The task could not be run, for example because inputs are missing or it needs live web pages.
    NotRun {
        /// Why it did not run.
        reason: String,
    },
    /// The endpoint, the sandbox or the checker failed. Reported separately, with bounds on its effect.
    Infrastructure {
        /// What failed.
        failure: String,
    },
}

/// The three scores of an attempt; `None` if a score does not apply. They are never combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scores {
    /// Upstream's own `tests.py`. For other suites: the suite's official score.
    #[serde(default)]
    pub upstream: Option<bool>,
    /// The same tests in isolation, with broken or wrong oracles repaired.
    #[serde(default)]
    pub fixed: Option<bool>,
    /// Our executable checks.
    #[serde(default)]
    pub strict: Option<bool>,
}

/// Names of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    Upstream,
    Fixed,
    Strict,
}

impl Score {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 3] = [Self::Upstream, Self::Fixed, Self::Strict];

    /// Name in records and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Fixed => "fixed",
            Self::Strict => "strict",
        }
    }
}

/// Whether a task counts toward the headline rate of `strict`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    pub counts: bool,
    /// Why the task does not count.
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

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The score it belongs to.
    pub score: Score,
    /// What was checked: `table output/2.csv`.
    pub name: String,
    pub passed: bool,
    /// Expected value, at most [`MAX_SHOWN`] characters.
    #[serde(default)]
    pub expected: String,
    /// Actual value, at most [`MAX_SHOWN`] characters.
    #[serde(default)]
    pub actual: String,
}

impl Check {
    /// Creates a check; texts are truncated to [`MAX_SHOWN`] characters.
    pub fn new(score: Score, name: &str, passed: bool, expected: &str, actual: &str) -> Self {
        Self {
            score,
            name: cut(name, MAX_SHOWN),
            passed,
            expected: cut(expected, MAX_SHOWN),
            actual: cut(actual, MAX_SHOWN),
        }
    }
}

/// Truncates a text to `max` characters and marks the cut.
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}… [cut]", &text[..at]),
        None => text.to_owned(),
    }
}

/// Verdict of the LLM judge on an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgment {
    /// Model that judged: `openai:gpt-4o`.
    pub judge: String,
    /// Digest of the judge's prompts.
    pub prompts: Digest,
    /// Verdict; `None` if the judge abstained, which is a missing value.
    pub passed: Option<bool>,
    /// The judge's explanation, at most [`MAX_SHOWN`] characters.
    #[serde(default)]
    pub reason: String,
    /// Pairwise comparisons with attempts of other agents, by their label.
    #[serde(default)]
    pub duels: BTreeMap<String, Duel>,
}

/// Result of a pairwise comparison, judged in both orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duel {
    /// This attempt was preferred in both orders.
    Win,
    /// A tie, or a different preference in each order.
    Tie,
    /// The other attempt was preferred in both orders.
    Lose,
    /// The judge abstained in at least one order: a missing value.
    Abstained,
}

impl Attempt {
    /// Sort order of all files and pages: suite, task (numbers by value), agent, seed.
    pub fn order(&self, other: &Self) -> Ordering {
        (self.suite.cmp(&other.suite))
            .then_with(|| task_order(&self.task, &other.task))
            .then_with(|| self.agent.cmp(&other.agent))
            .then_with(|| self.seed.cmp(&other.seed))
    }

    /// Whether the attempt ran, so that it can be scored.
    pub fn ran(&self) -> bool {
        self.outcome == Outcome::Ran
    }

    pub fn score(&self, score: Score) -> Option<bool> {
        match score {
            Score::Upstream => self.scores.upstream,
            Score::Fixed => self.scores.fixed,
            Score::Strict => self.scores.strict,
        }
    }

    /// Checks the record against the header; returns what is wrong with it.
    fn problem(&self, fingerprint: &EvalFingerprint) -> Option<String> {
        if !fingerprint.agents.contains_key(&self.agent) {
            return Some(format!(
                "the agent `{}` is not listed in the header",
                self.agent
            ));
        }
        if !self.seconds.is_finite() || self.seconds < 0.0 {
            return Some(
                "`seconds` is not a valid duration: expected a number of at least 0".to_owned(),
            );
        }
        let scored = Score::ALL.iter().any(|score| self.score(*score).is_some());
        if !self.ran() && scored {
            return Some("the attempt did not run, but it has a score".to_owned());
        }
        if self.checks.len() > MAX_CHECKS {
            return Some(format!("more than {MAX_CHECKS} checks in one record"));
        }
        None
    }
}

/// Compares task names: numbers by value and before other names, those by code point.
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
