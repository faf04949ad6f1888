//! One row, run again and compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::agent::{self, Format, Job, Solved, Step, TurnLog, format_named, interpreter_failure};
use pybench::grade::{Candidate, Checker, Claim};
use pybench::id::Digest;
use pybench::interpreter::{CollectedFile, Interpreter, SessionSpec};
use pybench::llm::{ChatRequest, Price, Reply, Teacher, TeacherError};
use pybench::run::{Failure, FailureKind};
use pybench::task::Task;
use pybench::trajectory::{Outcome, Role, Turn, Usage};
use pybench_datasets::normal::{self, Same};
use pybench_datasets::{Row, row, scrub};
use serde::{Deserialize, Serialize};

use super::files::Files;
use crate::grade::check_failure;

/// How a failure begins that says that an input file cannot be had.
pub(super) const NO_FILE: &str = "input file ";

/// Differences told of one row.
const TOLD: usize = 5;

/// Why a row is not the same, or was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is not as it was written.
    Changed,
    /// An input file is nowhere to be had, or its bytes are others.
    Files,
    /// It was made with other packages or another Python than are here, and comes out otherwise.
    Environment,
    /// Its cells could reach hosts or install packages.
    Network,
    /// A message format that this version does not know.
    Format,
    /// Prompts that this version writes otherwise.
    Prompts,
    /// A reply is read otherwise: another cell, another end.
    Replies,
    /// A cell showed something else.
    Observations,
    /// A picture or a chart that a cell showed is another; its texts are the same.
    Pictures,
    /// An output file is another.
    Outputs,
    /// A check came to something else.
    Checks,
    /// Two runs of today differ from one another where they differ from the record: it draws random
    /// numbers without a seed, or looks at a clock or at memory.
    Unsteady,
    /// A cell was stopped for its time or memory, then or now.
    Stopped,
    /// Secrets were taken out of its cells, which do something else without them.
    Scrubbed,
}

impl Reason {
    /// In words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::Changed => "the row is not as it was written",
            Self::Files => "an input file cannot be had",
            Self::Environment => {
                "made with another Python or other packages, and otherwise with these"
            }
            Self::Network => "its cells used the network or installed packages",
            Self::Format => "an unknown message format",
            Self::Prompts => "other prompts",
            Self::Replies => "a reply is read otherwise",
            Self::Observations => "a cell shows something else",
            Self::Pictures => "a picture or chart differs, its texts do not",
            Self::Outputs => "an output file differs",
            Self::Checks => "a check comes to something else",
            Self::Unsteady => "not deterministic: two runs of today differ",
            Self::Stopped => "a cell was stopped for time or memory",
            Self::Scrubbed => "secrets were taken out of its cells",
        }
    }
}

/// What came of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Why it is not the same; `None` where it is.
    pub reason: Option<Reason>,
    /// What differs, in words.
    pub evidence: Vec<String>,
    /// Whether something was equal only after the declared normalisation.
    pub normalised: bool,
    /// Whether it was made with another Python or other packages than it was run with now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
}

impl Findings {
    pub(super) fn not(reason: Reason, evidence: impl Into<String>) -> Self {
        Self {
            reason: Some(reason),
            evidence: vec![evidence.into()],
            ..Self::default()
        }
    }

    /// A difference; the first decides on the reason.
    fn add(&mut self, reason: Reason, evidence: String) {
        self.reason = self.reason.or(Some(reason));
        if self.evidence.len() < TOLD {
            self.evidence.push(evidence);
        }
    }

    /// The row was made with another environment, which explains what it would change.
    fn made_elsewhere(&mut self, theirs: &str, ours: &str) {
        self.elsewhere = true;
        let explained = [
            Reason::Observations,
            Reason::Pictures,
            Reason::Outputs,
            Reason::Checks,
        ];
        if self
            .reason
            .is_some_and(|reason| explained.contains(&reason))
        {
            self.reason = Some(Reason::Environment);
            let evidence = format!("made in {theirs}, here is {ours}");
            self.evidence.insert(0, evidence);
        }
    }
}

/// What rows are run again with.
pub(super) struct Verifier {
    pub(super) files: Files,
    pub(super) interpreter: Arc<dyn Interpreter>,
    pub(super) checker: Checker,
    /// `2026-11-22`.
    pub(super) today: String,
}

/// What a run of today gave.
struct Today {
    solved: Solved,
    outputs: Vec<CollectedFile>,
}

impl Verifier {
    /// Run a row again. Errors are failures of ours.
    pub(super) async fn examine(&self, row: &Row) -> Result<Findings, Failure> {
        let Some(format) = format_named(&row.format) else {
            return Ok(Findings::not(Reason::Format, row.format.clone()));
        };
        if let Some(findings) = self.unfit(row) {
            return Ok(findings);
        }
        let task = row.task();
        for file in task.files.iter().chain(&task.held_out) {
            if let Err(why) = self.files.get(file).await {
                // Not kept: another try may have the file.
                let why = format!("{NO_FILE}{}: {why}", file.name);
                return Err(Failure::new(FailureKind::Internal, why));
            }
        }
        let today = self.replay(row, &task, format).await?;
        let mut findings = self.compare(row, &today);
        self.check(row, &task, &today, &mut findings).await?;
        if findings.reason.is_some() {
            self.explain(row, &task, format, &today, &mut findings)
                .await?;
        }
        let (theirs, ours) = (&row.environment, self.interpreter.environment());
        if packages(theirs) != packages(ours) {
            findings.made_elsewhere(theirs, ours);
        }
        Ok(findings)
    }

    /// Why the row cannot be run here.
    fn unfit(&self, row: &Row) -> Option<Findings> {
        if row.interpreter.wheelhouse || !row.interpreter.network.is_empty() {
            let hosts = row.interpreter.network.join(", ");
            return Some(Findings::not(Reason::Network, hosts));
        }
        None
    }

    /// Its replies through the agent's own loop.
    async fn replay(&self, row: &Row, task: &Task, format: &dyn Format) -> Result<Today, Failure> {
        let files = task.files.iter();
        let spec = SessionSpec {
            inputs: files
                .map(|file| (format!("data/{}", file.name), self.files.path(&file.id)))
                .collect(),
            seed: row.seed,
            limits: row.interpreter.limits.clone(),
            ..SessionSpec::default()
        };
        let teacher = Recorded::of(row);
        let job = Job {
            task,
            sample: row.sample,
            teacher: &teacher,
            format,
            sampling: &row.sampling,
            max_turns: u32::try_from(teacher.0.len()).unwrap_or(u32::MAX),
        };
        let session = self.interpreter.start(spec).await;
        let mut session = session.map_err(interpreter_failure)?;
        let solved = agent::solve(&job, session.as_mut(), &Forgetful).await;
        let outputs = session.read_outputs().await.map_err(interpreter_failure);
        if let Err(error) = session.close().await {
            tracing::warn!("closing a session: {error}");
        }
        Ok(Today {
            solved: solved?,
            outputs: outputs?.files,
        })
    }

    fn compare(&self, row: &Row, today: &Today) -> Findings {
        let mut findings = Findings::default();
        let clock = self.compare_messages(row, today, &mut findings);
        compare_cells(row, today, clock, &mut findings);
        compare_outputs(row, today, &mut findings);
        findings
    }

    /// Whether they differ in what a clock said.
    fn compare_messages(&self, row: &Row, today: &Today, findings: &mut Findings) -> bool {
        let mut clock = false;
        let (was, is) = (&row.messages, &today.solved.messages);
        let opening = |messages: &[pybench::trajectory::Message]| {
            let first = messages.iter().position(|m| m.role == Role::Assistant);
            first.unwrap_or(messages.len())
        };
        let (first, first_of_today) = (opening(was), opening(is));
        let same_opening = first == first_of_today
            && was[..first].iter().zip(is).all(|(was, is)| {
                was.role == is.role && was.content == scrub::text(&is.content).text
            });
        if !same_opening {
            let evidence = "system prompt, files or query are framed otherwise".to_owned();
            findings.add(Reason::Prompts, evidence);
        }
        let (was, is) = (&was[first..], &is[first_of_today..]);
        if was.len() != is.len() {
            let evidence = format!("{} messages, now {}", was.len(), is.len());
            findings.add(Reason::Replies, evidence);
        }
        for (at, (was, is)) in was.iter().zip(is).enumerate() {
            let reason = match was.role {
                Role::Assistant => Reason::Replies,
                _ => Reason::Observations,
            };
            let again = scrub::text(&is.content).text;
            match normal::same(&was.content, &again, &self.today) {
                Same::Exactly => {}
                Same::Normalised => findings.normalised = true,
                Same::Clock => (findings.normalised, clock) = (true, true),
                Same::No(d) => findings.add(
                    reason,
                    format!(
                        "message {}, line {}: {:?}, now {:?}",
                        first + at + 1,
                        d.line,
                        d.was,
                        d.is
                    ),
                ),
            }
        }
        clock
    }

    /// Run the checks on what today's run left and the row's answer says.
    async fn check(
        &self,
        row: &Row,
        task: &Task,
        today: &Today,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        if row.checks.is_empty() {
            // The filters of its run had none; taken out later, they are missed by the row's digest.
            return Ok(());
        }
        let folder = tempfile::tempdir().map_err(io)?;
        let mut outputs = Vec::new();
        for (number, file) in today.outputs.iter().enumerate() {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, &file.bytes).map_err(io)?;
            readable(&path).map_err(io)?;
            outputs.push((file.path.clone(), path));
        }
        readable(folder.path()).map_err(io)?;
        let observations = today.solved.turns.iter().flat_map(Turn::observations);
        let answer = row.messages.iter().rev();
        let answer = answer.clone().find(|m| m.role == Role::Assistant);
        let candidate = Candidate {
            answer: answer.map(|m| m.content.clone()).unwrap_or_default(),
            outputs,
            claims: observations.flat_map(Claim::all_of).collect(),
        };
        let found = self
            .checker
            .check(task, self.files.store(), &candidate)
            .await;
        let found = found.map_err(check_failure)?;
        let now: Vec<(String, &str)> = found
            .iter()
            .filter(|finding| finding.filter == "check")
            .map(|finding| {
                let outcome = match finding.outcome {
                    Outcome::Pass => "pass",
                    Outcome::Fail => "fail",
                    Outcome::Unproven => "unproven",
                };
                (scrub::text(&finding.subject).text, outcome)
            })
            .collect();
        let then: Vec<(String, &str)> = row
            .checks
            .iter()
            .map(|check| (check.subject.clone(), check.outcome))
            .collect();
        if then != now {
            let differing = then.iter().zip(&now).find(|(then, now)| then != now);
            let evidence = match differing {
                Some((then, now)) => {
                    format!("{}: {}, now {}: {}", then.0, then.1, now.0, now.1)
                }
                None => format!("{} checks, now {}", then.len(), now.len()),
            };
            findings.add(Reason::Checks, evidence);
        }
        Ok(())
    }

    /// Look for a reason that stands behind a difference: a cell that was stopped, cells without their
    /// secrets, or work that comes out differently each time.
    async fn explain(
        &self,
        row: &Row,
        task: &Task,
        format: &dyn Format,
        today: &Today,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let mut seen = today.solved.turns.iter().flat_map(Turn::observations);
        if seen.any(|observation| observation.stopped.is_some()) {
            findings.reason = Some(Reason::Stopped);
            return Ok(());
        }
        let placeholder = |text: &str| {
            [
                "[KEY]",
                "[PASSWORD]",
                "[MAIL]",
                "[USER]",
                "[PATH]",
                "[HOST]",
            ]
            .iter()
            .any(|word| text.contains(word))
        };
        let replies = row.messages.iter().filter(|m| m.role == Role::Assistant);
        if row.scrubbed > 0 && replies.clone().any(|m| placeholder(&m.content)) {
            findings.reason = Some(Reason::Scrubbed);
            return Ok(());
        }
        let doubtful = [Reason::Observations, Reason::Pictures, Reason::Outputs];
        if findings.reason.is_some_and(|r| doubtful.contains(&r)) {
            let once_more = self.replay(row, task, format).await?;
            if !as_before(today, &once_more) {
                findings.reason = Some(Reason::Unsteady);
            }
        }
        Ok(())
    }
}

/// Whether two runs of today are the same.
fn as_before(one: &Today, other: &Today) -> bool {
    let seen = |today: &Today| -> Vec<Digest> {
        let seen = today.solved.turns.iter().flat_map(Turn::observations);
        seen.map(row::observed).collect()
    };
    let files = |today: &Today| -> Vec<(String, Digest)> {
        let files = today.outputs.iter();
        files
            .map(|f| (f.path.clone(), normal::content(&f.path, &f.bytes)))
            .collect()
    };
    seen(one) == seen(other) && files(one) == files(other)
}

fn compare_cells(row: &Row, today: &Today, clock: bool, findings: &mut Findings) {
    let ran = today.solved.turns.iter().flat_map(Turn::ran);
    let ran = ran.filter_map(|(cell, seen)| Some((cell?, seen?)));
    let (cells, seen): (Vec<Digest>, Vec<Digest>) = ran
        .map(|(cell, seen)| (Digest::of_bytes(cell.as_bytes()), row::observed(seen)))
        .unzip();
    // The digests are those of the cells that were run, before anything was taken out of them.
    if cells.len() != row.cells.len() || (row.scrubbed == 0 && cells != row.cells) {
        let evidence = "the cells are not those that were run".to_owned();
        findings.add(Reason::Replies, evidence);
    }
    // Digests are of normalised texts, but the clock of the day is in them.
    let mut pairs = seen.iter().zip(&row.observed);
    let differing = pairs.position(|(now, then)| now != then);
    if let Some(at) = differing
        && findings.reason.is_none()
        && !clock
    {
        let evidence = format!("cell {}: the texts are the same", at + 1);
        findings.add(Reason::Pictures, evidence);
    }
}

fn compare_outputs(row: &Row, today: &Today, findings: &mut Findings) {
    let mut now: BTreeMap<&str, &CollectedFile> = BTreeMap::new();
    now.extend(today.outputs.iter().map(|file| (file.path.as_str(), file)));
    for output in &row.outputs {
        let Some(file) = now.remove(output.path.as_str()) else {
            findings.add(Reason::Outputs, format!("{} is not there", output.path));
            continue;
        };
        if Digest::of_bytes(&file.bytes) == output.blake3 {
            continue;
        }
        match normal::content(&file.path, &file.bytes) == output.content {
            true => findings.normalised = true,
            false => {
                let (then, now) = (output.size, file.bytes.len());
                let evidence = format!("{}: {then} bytes, now {now} others", output.path);
                findings.add(Reason::Outputs, evidence);
            }
        }
    }
    for path in now.keys() {
        findings.add(Reason::Outputs, format!("{path} was not there"));
    }
}

/// Python and its packages; the runner's version decides on nothing that is compared here unless it
/// shows.
fn packages(environment: &str) -> &str {
    environment.split("+runner").next().unwrap_or(environment)
}

fn io(error: std::io::Error) -> Failure {
    Failure::from(pybench::run::RunError::io("files of a check")(error))
}

/// Sessions of another user read what checkers are given.
fn readable(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// A teacher who says what the row says was replied.
struct Recorded(Vec<String>);

impl Recorded {
    fn of(row: &Row) -> Self {
        let replies = row.messages.iter().filter(|m| m.role == Role::Assistant);
        Self(replies.map(|m| m.content.clone()).collect())
    }
}

#[async_trait]
impl Teacher for Recorded {
    fn name(&self) -> &str {
        "recorded"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let said = request
            .messages
            .iter()
            .filter(|m| m.role == Role::Assistant);
        let next = self.0.get(said.count());
        let missing = || TeacherError::Internal("the row has no further reply".to_owned());
        Ok(Reply {
            content: next.ok_or_else(missing)?.clone(),
            usage: Usage::default(),
            // As it came: nothing is to be added.
            truncated: true,
            fault: None,
        })
    }
}

/// A row is run from its beginning each time.
struct Forgetful;

impl TurnLog for Forgetful {
    fn steps(&self) -> Result<Vec<Step>, Failure> {
        Ok(Vec::new())
    }

    fn append(&self, _position: u64, _step: &Step) -> Result<(), Failure> {
        Ok(())
    }

    fn clear(&self) -> Result<(), Failure> {
        Ok(())
    }
}
