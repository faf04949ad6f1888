//! One attempt at one task, and the file of them: JSON lines, the [`Frozen`] header first.
//!
//! Whoever grades writes these; statistics, judge and report are functions of them. Nothing in a
//! record is trusted to be small or harmless: the reader bounds what it reads, the report escapes
//! what it shows.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use pybench::id::Digest;
use pybench::trajectory::{OutputFile, Sampling};
use serde::{Deserialize, Serialize};

/// Longest line that is read, bytes.
const MOST_LINE: u64 = 4 << 20;
/// Most records of one file.
const MOST_RECORDS: usize = 1_000_000;
/// Largest file that is read, bytes.
const MOST_BYTES: u64 = 4 << 30;
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

/// A file of records.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// What defines the scores.
    pub frozen: Frozen,
    /// In the order of [`Attempt::order`].
    pub attempts: Vec<Attempt>,
}

/// Why a file of records could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl Frozen {
    /// Take what another header defines. Where both define the scores of a suite (`shared`) they must
    /// agree. Prompts belong to agents, so they may differ.
    fn join(&mut self, other: Self, shared: bool) -> Result<(), String> {
        let parts = [
            ("task set", self.tasks == other.tasks),
            ("checker", self.checker == other.checker),
            ("environment", self.environment == other.environment),
            ("limits", self.limits == other.limits),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((part, _)) if shared => {
                return Err(format!(
                    "the files differ in {part}: their scores do not compare; run one of them again"
                ));
            }
            Some(_) => self.stand_beside(&other),
            None => {}
        }
        if self.prompts != other.prompts {
            self.prompts = Digest::of_json(&(&self.prompts, &other.prompts)).to_string();
        }
        for (label, agent) in other.agents {
            match self.agents.get(&label) {
                Some(known) if shared && *known != agent => {
                    return Err(format!("two agents are called `{label}`"));
                }
                // On another suite it is asked in another way.
                Some(_) => {}
                None => {
                    self.agents.insert(label, agent);
                }
            }
        }
        Ok(())
    }
}

impl Frozen {
    /// Headers of different suites: each keeps what defines its scores, named by its task set.
    fn stand_beside(&mut self, other: &Self) {
        let both = |a: &str, b: &str| {
            if a == b {
                a.to_owned()
            } else {
                format!("{a}; {b}")
            }
        };
        let limits = other
            .limits
            .iter()
            .map(|(name, limit)| match self.limits.get(name) {
                Some(own) if own != limit => (format!("{name} ({})", other.task_set), *limit),
                _ => (name.clone(), *limit),
            });
        let limits: Vec<_> = limits.collect();
        self.limits.extend(limits);
        self.task_set = both(&self.task_set, &other.task_set);
        self.checker = both(&self.checker, &other.checker);
        self.environment = both(&self.environment, &other.environment);
        self.tasks = Digest::of_json(&(&self.tasks, &other.tasks));
    }
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

impl Evaluation {
    /// Records in their order, whatever the order they were made in.
    pub fn new(frozen: Frozen, mut attempts: Vec<Attempt>) -> Self {
        attempts.sort_by(Attempt::order);
        Self { frozen, attempts }
    }

    /// Several files as one. Those that share a suite must agree in everything that defines its scores;
    /// an agent that stands in two of them must be the same, and none of its attempts may stand twice.
    pub fn merge(parts: Vec<Self>) -> Result<Self, String> {
        let mut parts = parts.into_iter();
        let mut whole = parts.next().ok_or("no records")?;
        for part in parts {
            let suites: BTreeSet<_> = whole.attempts.iter().map(|a| &a.suite).collect();
            let shared = part.attempts.iter().any(|a| suites.contains(&a.suite));
            whole.frozen.join(part.frozen, shared)?;
            whole.attempts.extend(part.attempts);
        }
        let whole = Self::new(whole.frozen, whole.attempts);
        let same = |pair: &&[Attempt]| pair[0].order(&pair[1]) == Ordering::Equal;
        match whole.attempts.windows(2).find(same) {
            Some([twice, ..]) => Err(format!(
                "task {} of {} by `{}` (seed {}) stands in two files",
                twice.task, twice.suite, twice.agent, twice.seed
            )),
            _ => Ok(whole),
        }
    }

    /// Read a file of records, within bounds.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let io = |source| RecordError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        read_lines(BufReader::new(file)).map_err(|problem| match problem {
            Problem::Io(source) => io(source),
            Problem::Line(line, problem) => RecordError::Line {
                path: path.to_owned(),
                line,
                problem,
            },
        })
    }

    /// Write the file whole: the header, then a line each.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let io = |source| RecordError::Io {
            path: path.to_owned(),
            source,
        };
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
        self.write_to(&mut file).map_err(io)?;
        file.persist(path).map_err(|error| io(error.error))?;
        Ok(())
    }

    fn write_to(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(out);
        serde_json::to_writer(&mut out, &self.frozen)?;
        writeln!(out)?;
        for attempt in &self.attempts {
            serde_json::to_writer(&mut out, attempt)?;
            writeln!(out)?;
        }
        out.flush()
    }
}

/// What is wrong with a stream of lines.
enum Problem {
    Io(std::io::Error),
    Line(usize, String),
}

fn read_lines(reader: impl BufRead) -> Result<Evaluation, Problem> {
    let mut lines = Lines {
        reader: reader.take(MOST_BYTES),
        number: 0,
    };
    let header = lines.next_line()?;
    let header = header.ok_or_else(|| lines.problem("the file is empty: the header is missing"))?;
    let frozen: Frozen = lines.parse(&header)?;
    let (mut attempts, mut seen) = (Vec::new(), BTreeSet::new());
    while let Some(line) = lines.next_line()? {
        let attempt: Attempt = lines.parse(&line)?;
        if attempts.len() == MOST_RECORDS {
            return Err(lines.problem(&format!("more than {MOST_RECORDS} records")));
        }
        if let Some(problem) = attempt.problem(&frozen) {
            return Err(lines.problem(&problem));
        }
        let key = (&attempt.agent, &attempt.suite, &attempt.task, attempt.seed);
        if !seen.insert(Digest::of_json(&key)) {
            return Err(lines.problem("agent, suite, task and seed have a record already"));
        }
        attempts.push(attempt);
    }
    if lines.reader.limit() == 0 {
        return Err(lines.problem(&format!("the file exceeds {MOST_BYTES} bytes")));
    }
    Ok(Evaluation::new(frozen, attempts))
}

/// Lines of bounded length.
struct Lines<R> {
    reader: std::io::Take<R>,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    /// The next line that is not blank.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut self.reader).take(MOST_LINE + 1);
            bounded.read_until(b'\n', &mut line).map_err(Problem::Io)?;
            if line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if line.len() as u64 > MOST_LINE {
                return Err(self.problem(&format!("longer than {MOST_LINE} bytes")));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    fn parse<T: for<'a> Deserialize<'a>>(&self, line: &[u8]) -> Result<T, Problem> {
        serde_json::from_slice(line).map_err(|error| self.problem(&error.to_string()))
    }

    fn problem(&self, problem: &str) -> Problem {
        Problem::Line(self.number.max(1), problem.to_owned())
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
pub(crate) mod tests;
