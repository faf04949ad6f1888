//! Validates proposed checks. A check is kept if it runs, passes for a trajectory of the run's teacher, and
//! fails for null agents and for every mutant of that trajectory's result.
//!
//! The teacher does not see the check, and the generator does not see the trajectory. A check that fails on
//! the trajectory is dropped without feedback, so it is never fitted to that result.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent::Solver;
use pybench_checks::{Candidate, CheckError, Checker};
use pybench_interpreter::Interpreter;
use pybench_interpreter_containers::paced;
use pybench_llm::BudgetLedger;
use pybench_run::{Failure, FailureKind, RunContext, RunError, Stage, WriterChoice};
use pybench_types::check::CheckSpec;
use pybench_types::id::Digest;
use pybench_types::task::{SourceFile, Task};
use pybench_types::trajectory::{End, Finding, Trajectory};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::Proposal;
use super::dialogue::{Dialogue, ModelHandle};
use super::{prompt, propose};
use pybench_attempts::{AttemptStage, teacher};
use pybench_checks::check_failure;
use pybench_library::audit::{passes, reasons};

/// Name of the stage in the journal.
pub const CHECKS: &str = "checks";
/// Maximum proposals per task: the first one and one correction.
pub(super) const MAX_PROPOSALS: u32 = 2;
/// Maximum number of mutants listed in the feedback to the generator.
const MAX_LISTED: usize = 5;

/// The outcome of validating a proposed check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CheckValidation {
    /// The check is kept.
    Kept {
        /// Python code that computes the expected results.
        reference: String,
        checks: Vec<CheckSpec>,
        /// Number of wrong results that it rejected.
        refused: u64,
    },
    /// The check is dropped.
    Dropped {
        /// Category in reports.
        by: String,
        detail: String,
    },
}

/// Why a proposed check is rejected.
struct Weakness {
    by: &'static str,
    detail: String,
    /// Whether the generator may correct it. `false` if a correction would fit the check to the trajectory.
    report_to_generator: bool,
}

impl Weakness {
    fn new(by: &'static str, detail: impl Into<String>, report_to_generator: bool) -> Self {
        let detail = detail.into();
        Self {
            by,
            detail,
            report_to_generator,
        }
    }
}

/// Everything that validation needs: teachers, interpreter, checker, files.
pub(super) struct AuditEnv {
    context: RunContext,
    files: HashMap<Digest, SourceFile>,
    teachers: Vec<Solver>,
    /// Runs the teacher's attempts.
    interpreter: Arc<dyn Interpreter>,
    checker: Checker,
}

impl AuditEnv {
    /// Uses the teachers and the interpreter of the recipe.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the interpreter cannot run; errors of building the teachers.
    pub(super) fn new(
        context: &RunContext,
        writer: &WriterChoice,
        files: &[SourceFile],
        ledger: &Arc<BudgetLedger>,
    ) -> Result<Self, RunError> {
        let environment = |error: &dyn std::fmt::Display| RunError::Environment(error.to_string());
        let mut choice = context.recipe.interpreter.clone();
        let wheelhouse = choice.wheelhouse.map(|path| context.fetch(&path));
        choice.wheelhouse = wheelhouse.transpose()?;
        let agents = paced(&choice).map_err(|error| environment(&error))?;
        // The checker needs no extra wheels.
        choice.wheelhouse = None;
        let checkers = paced(&choice).map_err(|error| environment(&error))?;
        let mut context = context.clone();
        context.recipe.rollout.samples = writer.trials;
        let known = files.iter().map(|file| (file.id.clone(), file.clone()));
        Ok(Self {
            files: known.collect(),
            teachers: teacher::live_teachers(&context, ledger)?,
            context,
            interpreter: agents,
            checker: Checker::new(checkers).map_err(|error| environment(&error))?,
        })
    }
}

/// Proposes and validates the check of one task per unit.
pub(super) struct CheckValidationStage {
    env: Arc<AuditEnv>,
    generator: ModelHandle,
    tasks: HashMap<String, Task>,
}

impl CheckValidationStage {
    pub(super) fn new(env: Arc<AuditEnv>, generator: ModelHandle, tasks: Vec<Task>) -> Self {
        let named = tasks.into_iter().map(|task| (task.id.to_string(), task));
        Self {
            env,
            generator,
            tasks: named.collect(),
        }
    }

    async fn validate(&self, task: &Task) -> Result<CheckValidation, Failure> {
        let candidates = self.candidates(task).await?;
        if candidates.is_empty() {
            return Ok(dropped(Weakness::new(
                "no trajectory",
                "the teacher did not finish",
                false,
            )));
        }
        let files: Vec<_> = task
            .files
            .iter()
            .filter_map(|file| self.env.files.get(&file.id))
            .collect();
        let schema = propose::schema(&task.outputs);
        let question = prompt::check(&task.query, &task.outputs, &files, &schema)?;
        let mut dialogue = Dialogue::new(&self.generator, question, 0);
        for round in 1.. {
            let proposal: Proposal = match dialogue.answer().await? {
                Ok(proposal) => proposal,
                Err(why) => return Ok(dropped(Weakness::new("no proposal", why, false))),
            };
            let weakness = match self.weakness(task, &proposal, &candidates).await? {
                Ok(refused) => {
                    let Proposal { reference, checks } = proposal;
                    return Ok(CheckValidation::Kept {
                        reference,
                        checks,
                        refused,
                    });
                }
                Err(weakness) => weakness,
            };
            if !weakness.report_to_generator || round == MAX_PROPOSALS {
                return Ok(dropped(weakness));
            }
            dialogue.add_message(prompt::fix(&weakness.detail)?);
        }
        Err(Failure::new(FailureKind::Internal, "no round left"))
    }

    /// The results of the teacher's first samples of the task, without unfinished ones.
    async fn candidates(&self, task: &Task) -> Result<Vec<Candidate>, Failure> {
        let teachers = self.env.teachers.clone();
        let interpreter = self.env.interpreter.clone();
        let stage =
            AttemptStage::new(&self.env.context, vec![task.clone()], teachers, interpreter)?;
        let mut candidates = Vec::new();
        for attempt in stage.ladders().level(0, 0) {
            let trajectory = stage.run(stage.id(attempt).as_str()).await?;
            let trajectory: Trajectory =
                serde_json::from_value(trajectory).map_err(RunError::from)?;
            if trajectory.end == End::Finished {
                let store = self.env.context.folder.store();
                candidates.push(Candidate::of(&trajectory, store)?);
            }
        }
        Ok(candidates)
    }

    /// The number of wrong results that a proposal rejects, or why the proposal is rejected.
    async fn weakness(
        &self,
        task: &Task,
        proposal: &Proposal,
        candidates: &[Candidate],
    ) -> Result<Result<u64, Weakness>, Failure> {
        if let Some(problem) = propose::problem(task, proposal) {
            return Ok(Err(Weakness::new("form", problem, true)));
        }
        let mut task = task.clone();
        task.reference.clone_from(&proposal.reference);
        task.checks.clone_from(&proposal.checks);
        task.id = task.compute_id();
        let store = self.env.context.folder.store();
        let mut failed = String::new();
        for candidate in candidates {
            let rows =
                match fault_or_failure(self.env.checker.audit(&task, store, candidate).await)? {
                    Ok(rows) => rows,
                    Err(weakness) => return Ok(Err(weakness)),
                };
            match rejected_count(&rows) {
                Ok(None) => failed = rows.first().map(|row| reasons(&row.1)).unwrap_or_default(),
                Ok(Some(refused)) => {
                    let independent = self.rejects_corrupted(&task, candidate).await?;
                    return Ok(independent.map(|()| refused));
                }
                Err(weakness) => return Ok(Err(weakness)),
            }
        }
        Ok(Err(Weakness::new("holds for no trajectory", failed, false)))
    }

    /// Checks that the same reference rejects a corrupted result in another session. A reference that reads
    /// the result it judges would accept it.
    async fn rejects_corrupted(
        &self,
        task: &Task,
        candidate: &Candidate,
    ) -> Result<Result<(), Weakness>, Failure> {
        let store = self.env.context.folder.store();
        let corrupted = corrupt(candidate, store)?;
        let detail = "the reference depends on what it is to judge";
        let dependent = Ok(Err(Weakness::new("depends on the result", detail, false)));
        match fault_or_failure(self.env.checker.check(task, store, &corrupted).await)? {
            Ok(findings) if !passes(&findings) => Ok(Ok(())),
            _ => dependent,
        }
    }
}

/// Evaluates an audit: the number of rejected wrong results; `None` if the candidate itself does not pass.
fn rejected_count(rows: &[(String, Vec<Finding>)]) -> Result<Option<u64>, Weakness> {
    let original = rows.iter().find(|(name, _)| name == "original");
    if !original.is_some_and(|(_, findings)| passes(findings)) {
        return Ok(None);
    }
    let wrong = || rows.iter().filter(|(name, _)| name != "original");
    let passing: Vec<&str> = wrong()
        .filter(|(_, findings)| passes(findings))
        .map(|(name, _)| name.as_str())
        .collect();
    if !passing.is_empty() {
        let named = passing[..passing.len().min(MAX_LISTED)].join("; ");
        let detail = format!("it lets results pass that are wrong: {named}");
        return Err(Weakness::new("too weak", detail, true));
    }
    match wrong()
        .filter(|(name, _)| !name.starts_with("null: "))
        .count()
    {
        0 => Err(Weakness::new(
            "too weak",
            "no wrong result can be made of a right one",
            true,
        )),
        _ => Ok(Some(wrong().count() as u64)),
    }
}

/// Separates faults of the proposal from infrastructure failures.
fn fault_or_failure<T>(end: Result<T, CheckError>) -> Result<Result<T, Weakness>, Failure> {
    match end {
        Ok(done) => Ok(Ok(done)),
        // A reference that raises, hangs or kills its session is a fault of the proposal.
        Err(error @ (CheckError::Task(_) | CheckError::Unfit(_) | CheckError::Checker(_))) => {
            Ok(Err(Weakness::new("does not run", error.to_string(), true)))
        }
        Err(error) => Err(check_failure(error)),
    }
}

/// Corrupts a result: shifts every letter and digit in the answer and in text files, and replaces other
/// files.
fn corrupt(candidate: &Candidate, store: &pybench_run::ContentStore) -> Result<Candidate, Failure> {
    let move_on = |c: char| match c {
        '0'..='8' | 'a'..='y' | 'A'..='Y' => char::from(c as u8 + 1),
        '9' => '0',
        'z' => 'a',
        'Z' => 'A',
        other => other,
    };
    let mut corrupted = Candidate {
        answer: candidate.answer.chars().map(move_on).collect(),
        ..Candidate::default()
    };
    for (path, host) in &candidate.outputs {
        let bytes = std::fs::read(host).map_err(RunError::io(host.display().to_string()))?;
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => text.chars().map(move_on).collect::<String>().into_bytes(),
            Err(_) => b"spoiled".to_vec(),
        };
        let id = store.put(&bytes)?;
        corrupted.outputs.push((path.clone(), store.path(&id)));
    }
    Ok(corrupted)
}

fn dropped(weakness: Weakness) -> CheckValidation {
    let (by, detail) = (weakness.by.to_owned(), weakness.detail);
    CheckValidation::Dropped { by, detail }
}

#[async_trait]
impl Stage for CheckValidationStage {
    fn name(&self) -> &'static str {
        CHECKS
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let internal = |text: String| Failure::new(FailureKind::Internal, text);
        let task = self.tasks.get(item);
        let task = task.ok_or_else(|| internal(format!("no task {item}")))?;
        let validation = self.validate(task).await?;
        serde_json::to_value(validation).map_err(|error| internal(error.to_string()))
    }
}
