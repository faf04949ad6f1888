//! Re-executes one row and compares the results.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent as agent;
use pybench_agent::{AttemptResult, AttemptSpec, Format, Solver, Step, TurnLog, format_named};
use pybench_checks::{Candidate, Checker, Claim};
use pybench_datasets::normalize::{self, Comparison};
use pybench_datasets::observed;
use pybench_datasets::{Row, scrub};
use pybench_interpreter::{CollectedFile, Interpreter, SessionSpec};
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::Price;
use pybench_run::interpreter_failure;
use pybench_run::{Failure, FailureKind, RunError};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{Outcome, Role, Turn, Usage};
use serde::{Deserialize, Serialize};

use super::files::InputFiles;
use pybench_checks::check_failure;

/// Prefix of the failure message if an input file is not available.
pub(super) const MISSING_FILE: &str = "input file ";

/// Maximum number of differences reported per row.
const MAX_EVIDENCE: usize = 5;

/// Why a row differs, or was not re-executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffReason {
    /// The row was changed after it was written.
    Changed,
    /// An input file is not available, or its contents differ.
    Files,
    /// The row was made with another version of Python or its packages, and gives other results with this one.
    Environment,
    /// Its cells could access the network or install packages.
    Network,
    /// The message format is unknown to this version.
    Format,
    /// This version writes other prompts.
    Prompts,
    /// This version parses a reply differently: the cell or the end differs.
    Replies,
    /// The observation of a cell differs.
    Observations,
    /// An image or chart shown by a cell differs; the texts are the same.
    Pictures,
    /// An output file differs.
    Outputs,
    /// The outcome of a check differs.
    Checks,
    /// Not deterministic: two new executions differ from each other. The code uses random numbers without a seed,
    /// the clock, or memory usage.
    Unsteady,
    /// A cell was stopped by its time or memory limit, originally or now.
    Stopped,
    /// It states that secrets were removed from it. What it was before is unknown, so it cannot be verified.
    Scrubbed,
}

impl DiffReason {
    /// Description for tables.
    pub fn description(self) -> &'static str {
        match self {
            Self::Changed => "the row was changed after it was written",
            Self::Files => "an input file is not available",
            Self::Environment => {
                "made with another version of Python or its packages, which gives other results"
            }
            Self::Network => "its cells could use the network or install packages",
            Self::Format => "the message format is unknown",
            Self::Prompts => "the prompts differ",
            Self::Replies => "a reply is parsed differently",
            Self::Observations => "the observation of a cell differs",
            Self::Pictures => "an image or chart differs, the texts do not",
            Self::Outputs => "an output file differs",
            Self::Checks => "the outcome of a check differs",
            Self::Unsteady => "not deterministic: two new executions differ",
            Self::Stopped => "a cell was stopped by its time or memory limit",
            Self::Scrubbed => "not verifiable: it states that secrets were removed from it",
        }
    }
}

/// Result of re-executing a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayDiff {
    /// Why the row differs; `None` if it is identical.
    pub reason: Option<DiffReason>,
    /// Descriptions of the differences.
    pub evidence: Vec<String>,
    /// Whether something was equal only after normalization.
    pub normalized: bool,
    /// Whether the row was made with another version of Python or its packages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
}

impl ReplayDiff {
    pub(super) fn with_reason(reason: DiffReason, evidence: impl Into<String>) -> Self {
        Self {
            reason: Some(reason),
            evidence: vec![evidence.into()],
            ..Self::default()
        }
    }

    /// Add a difference. The first one determines the reason.
    fn add(&mut self, reason: DiffReason, evidence: String) {
        self.reason = self.reason.or(Some(reason));
        if self.evidence.len() < MAX_EVIDENCE {
            self.evidence.push(evidence);
        }
    }

    /// Note that the row was made in another environment, and give that as the reason for differences that it
    /// explains.
    fn made_elsewhere(&mut self, theirs: &str, ours: &str) {
        self.elsewhere = true;
        let explained = [
            DiffReason::Observations,
            DiffReason::Pictures,
            DiffReason::Outputs,
            DiffReason::Checks,
        ];
        if self
            .reason
            .is_some_and(|reason| explained.contains(&reason))
        {
            self.reason = Some(DiffReason::Environment);
            let evidence = format!("made in {theirs}, re-executed in {ours}");
            self.evidence.insert(0, evidence);
        }
    }
}

/// Re-executes rows.
pub(super) struct Verifier {
    pub(super) files: InputFiles,
    pub(super) interpreter: Arc<dyn Interpreter>,
    pub(super) checker: Checker,
    /// Date of today, such as `2026-11-22`.
    pub(super) today: String,
}

/// Result of a new execution.
struct NewExecution {
    solved: AttemptResult,
    outputs: Vec<CollectedFile>,
}

impl Verifier {
    /// Re-execute a row and compare. Errors are failures of this machine or program, not differences.
    pub(super) async fn verify(&self, row: &Row) -> Result<ReplayDiff, Failure> {
        let Some(format) = format_named(&row.format) else {
            return Ok(ReplayDiff::with_reason(
                DiffReason::Format,
                row.format.clone(),
            ));
        };
        if let Some(diff) = not_executable(row) {
            return Ok(diff);
        }
        let task = row.task();
        for file in task.files.iter().chain(&task.held_out) {
            if let Err(why) = self.files.get(file).await {
                // A failure, so that the next attempt looks for the file again.
                let why = format!("{MISSING_FILE}{}: {why}", file.name);
                return Err(Failure::new(FailureKind::Internal, why));
            }
        }
        let new = self.replay(row, &task, format).await?;
        let mut diff = self.compare(row, &new);
        self.check(row, &task, &new, &mut diff).await?;
        if diff.reason.is_some() {
            self.explain(row, &task, format, &new, &mut diff).await?;
        }
        let (theirs, ours) = (&row.environment, self.interpreter.environment());
        if packages(theirs) != packages(ours) {
            diff.made_elsewhere(theirs, ours);
        }
        let limits = &row.interpreter.limits;
        if diff.reason.is_some() && *limits != limits.within_machine() {
            let evidence = "the row's limits were lowered to what this machine can give";
            diff.evidence.push(evidence.to_owned());
        }
        Ok(diff)
    }

    /// Replay the row's replies through the agent loop in a new session.
    async fn replay(
        &self,
        row: &Row,
        task: &Task,
        format: &dyn Format,
    ) -> Result<NewExecution, Failure> {
        let (files, store) = (task.files.iter(), self.files.store());
        let inputs =
            files.map(|file| Ok((format!("data/{}", file.name), store.checked_path(&file.id)?)));
        let session_spec = SessionSpec {
            inputs: inputs.collect::<Result<_, RunError>>()?,
            seed: row.seed,
            limits: row.interpreter.limits.within_machine(),
            ..SessionSpec::default()
        };
        let replies = RecordedReplies::of(row);
        let max_turns = u32::try_from(replies.0.len()).unwrap_or(u32::MAX);
        let spec = AttemptSpec {
            task,
            sample: row.sample,
            solver: &Solver::Model(Arc::new(replies)),
            format,
            sampling: &row.sampling,
            max_turns,
            max_identical_turns: None,
            code_within_tokens: None,
            feedback: None,
        };
        let session = self.interpreter.start(session_spec).await;
        let mut session = session.map_err(interpreter_failure)?;
        let solved = agent::solve(&spec, session.as_mut(), &DiscardTurns).await;
        let outputs = session.read_outputs().await.map_err(interpreter_failure);
        if let Err(error) = session.close().await {
            tracing::warn!("cannot close a session: {error}");
        }
        Ok(NewExecution {
            solved: solved?,
            outputs: outputs?.files,
        })
    }

    fn compare(&self, row: &Row, new: &NewExecution) -> ReplayDiff {
        let mut diff = ReplayDiff::default();
        let clock = self.compare_messages(row, new, &mut diff);
        compare_cells(row, new, clock, &mut diff);
        compare_outputs(row, new, &mut diff);
        diff
    }

    /// Compare the messages. Returns true if some of them differ only in clock times.
    fn compare_messages(&self, row: &Row, new: &NewExecution, diff: &mut ReplayDiff) -> bool {
        let mut clock = false;
        let (was, is) = (&row.messages, &new.solved.messages);
        let prompt_count = |messages: &[pybench_types::trajectory::Message]| {
            let first = messages.iter().position(|m| m.role == Role::Assistant);
            first.unwrap_or(messages.len())
        };
        let (first, first_new) = (prompt_count(was), prompt_count(is));
        let same_prompts = first == first_new
            && was[..first].iter().zip(is).all(|(was, is)| {
                was.role == is.role && was.content == scrub::text(&is.content).text
            });
        if !same_prompts {
            let evidence = "the messages before the first reply differ".to_owned();
            diff.add(DiffReason::Prompts, evidence);
        }
        if row.tools != pybench_datasets::row::tools(&row.format) {
            diff.add(
                DiffReason::Prompts,
                "the tool definitions differ".to_owned(),
            );
        }
        let (was, is) = (&was[first..], &is[first_new..]);
        if was.len() != is.len() {
            let evidence = format!("{} messages, now {}", was.len(), is.len());
            diff.add(DiffReason::Replies, evidence);
        }
        for (at, (was, is)) in was.iter().zip(is).enumerate() {
            let reason = match was.role {
                Role::Assistant => DiffReason::Replies,
                _ => DiffReason::Observations,
            };
            let scrubbed = scrub::text(&is.content).text;
            match normalize::compare(&was.content, &scrubbed, &self.today) {
                Comparison::Identical => {}
                Comparison::Normalized => diff.normalized = true,
                Comparison::ClockDiffers => (diff.normalized, clock) = (true, true),
                Comparison::Different(d) => diff.add(
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

    /// Run the checks on the new output files and the row's answer.
    async fn check(
        &self,
        row: &Row,
        task: &Task,
        new: &NewExecution,
        diff: &mut ReplayDiff,
    ) -> Result<(), Failure> {
        if row.checks.is_empty() {
            // The row was made without checks. Removing them later would change the row's digest.
            return Ok(());
        }
        let folder = tempfile::tempdir().map_err(io)?;
        let mut outputs = Vec::new();
        for (number, file) in new.outputs.iter().enumerate() {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, &file.bytes).map_err(io)?;
            make_readable(&path).map_err(io)?;
            outputs.push((file.path.clone(), path));
        }
        make_readable(folder.path()).map_err(io)?;
        let observations = new.solved.turns.iter().flat_map(Turn::observations);
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
            diff.add(DiffReason::Checks, evidence);
        }
        Ok(())
    }

    /// Look for the cause of a difference: a stopped cell, or code that is not deterministic.
    async fn explain(
        &self,
        row: &Row,
        task: &Task,
        format: &dyn Format,
        new: &NewExecution,
        diff: &mut ReplayDiff,
    ) -> Result<(), Failure> {
        let mut seen = new.solved.turns.iter().flat_map(Turn::observations);
        if seen.any(|observation| observation.stopped.is_some()) {
            diff.reason = Some(DiffReason::Stopped);
            return Ok(());
        }
        let doubtful = [
            DiffReason::Observations,
            DiffReason::Pictures,
            DiffReason::Outputs,
        ];
        if diff.reason.is_some_and(|r| doubtful.contains(&r)) {
            let second = self.replay(row, task, format).await?;
            if !same_results(new, &second) {
                diff.reason = Some(DiffReason::Unsteady);
            }
        }
        Ok(())
    }
}

/// The reason why a row is not re-executed, if any.
fn not_executable(row: &Row) -> Option<ReplayDiff> {
    if row.scrubbed > 0 {
        // The digests are those of the texts before scrubbing, which the dataset does not contain, and ids are not
        // checked: any text would fit.
        let evidence = format!("it states {} removed secrets", row.scrubbed);
        return Some(ReplayDiff::with_reason(DiffReason::Scrubbed, evidence));
    }
    if row.interpreter.wheelhouse || !row.interpreter.network.is_empty() {
        let hosts = row.interpreter.network.join(", ");
        return Some(ReplayDiff::with_reason(DiffReason::Network, hosts));
    }
    None
}

/// Whether two new executions gave the same results.
fn same_results(one: &NewExecution, other: &NewExecution) -> bool {
    let seen = |new: &NewExecution| -> Vec<Digest> {
        let seen = new.solved.turns.iter().flat_map(Turn::observations);
        seen.map(observed::observed).collect()
    };
    let files = |new: &NewExecution| -> Vec<(String, Digest)> {
        let files = new.outputs.iter();
        files
            .map(|f| (f.path.clone(), normalize::content_digest(&f.path, &f.bytes)))
            .collect()
    };
    seen(one) == seen(other) && files(one) == files(other)
}

fn compare_cells(row: &Row, new: &NewExecution, clock: bool, diff: &mut ReplayDiff) {
    let ran = new.solved.turns.iter().flat_map(Turn::cell_runs);
    let ran = ran.filter_map(|(cell, seen)| Some((cell?, seen?)));
    let (cells, seen): (Vec<Digest>, Vec<Digest>) = ran
        .map(|(cell, seen)| (Digest::of_bytes(cell.as_bytes()), observed::observed(seen)))
        .unzip();
    if cells != row.cells {
        let evidence = "the cells in the replies are not the recorded cells".to_owned();
        diff.add(DiffReason::Replies, evidence);
    }
    // Digests of normalized texts still contain clock times.
    let mut pairs = seen.iter().zip(&row.observed);
    let differing = pairs.position(|(now, then)| now != then);
    if let Some(at) = differing
        && diff.reason.is_none()
        && !clock
    {
        let evidence = format!("cell {}: only images or charts differ", at + 1);
        diff.add(DiffReason::Pictures, evidence);
    }
}

fn compare_outputs(row: &Row, new: &NewExecution, diff: &mut ReplayDiff) {
    let mut now: BTreeMap<&str, &CollectedFile> = BTreeMap::new();
    now.extend(new.outputs.iter().map(|file| (file.path.as_str(), file)));
    for output in &row.outputs {
        let Some(file) = now.remove(output.path.as_str()) else {
            diff.add(DiffReason::Outputs, format!("{} is missing", output.path));
            continue;
        };
        if Digest::of_bytes(&file.bytes) == output.blake3 {
            continue;
        }
        match normalize::content_digest(&file.path, &file.bytes) == output.content {
            true => diff.normalized = true,
            false => {
                let (then, now) = (output.size, file.bytes.len());
                let evidence = format!(
                    "{}: {then} bytes, now {now} bytes with other contents",
                    output.path
                );
                diff.add(DiffReason::Outputs, evidence);
            }
        }
    }
    for path in now.keys() {
        diff.add(DiffReason::Outputs, format!("{path} is new"));
    }
}

/// The part of the environment that names Python and its packages. The version of the runner is ignored: if it
/// matters, the results differ.
fn packages(environment: &str) -> &str {
    environment.split("+runner").next().unwrap_or(environment)
}

fn io(error: std::io::Error) -> Failure {
    Failure::from(pybench_run::RunError::io("files of a check")(error))
}

/// Make a file or folder readable for the session's user.
fn make_readable(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// A model that returns the recorded replies of a row.
struct RecordedReplies(Vec<String>);

impl RecordedReplies {
    fn of(row: &Row) -> Self {
        let replies = row.messages.iter().filter(|m| m.role == Role::Assistant);
        Self(replies.map(|m| m.content.clone()).collect())
    }
}

#[async_trait]
impl ChatModel for RecordedReplies {
    fn name(&self) -> &str {
        "recorded"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let replies = request
            .messages
            .iter()
            .filter(|m| m.role == Role::Assistant);
        let next = self.0.get(replies.count());
        let missing = || ChatError::Internal("the row has no further reply".to_owned());
        Ok(Reply {
            content: next.ok_or_else(missing)?.clone(),
            usage: Usage::default(),
            // The recorded reply is complete: nothing must be appended.
            truncated: true,
            repetition: false,
        })
    }
}

/// Does not store turns: every execution starts from the beginning.
struct DiscardTurns;

impl TurnLog for DiscardTurns {
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
