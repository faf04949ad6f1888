//! A proposed check proves itself, or is dropped: it runs, holds for a trajectory of the run's teacher, and
//! fails for whoever did nothing and for every wrong result that is made of a right one.
//!
//! The trajectory knows nothing of the check, and its writer nothing of the trajectory: a check that does
//! not hold is never fitted to what was found.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::grade::{Candidate, CheckError, CheckSpec, Checker};
use pybench::id::Digest;
use pybench::interpreter::{Interpreter, interpreter};
use pybench::llm::{Reserves, Teacher};
use pybench::run::{Failure, FailureKind, RunContext, RunError, Stage, WriterChoice};
use pybench::task::{SourceFile, Task};
use pybench::trajectory::{End, Finding, Trajectory};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::Proposal;
use super::talk::{Speaker, Talk};
use super::{prompt, propose};
use crate::grade::check_failure;
use crate::library::audit::{passes, reasons};
use crate::rollout::{RolloutStage, teacher};

/// Name of the stage in the journal.
pub const CHECKS: &str = "checks";
/// Proposals for one task: the first, and one that mends it.
pub(super) const ROUNDS: u32 = 2;
/// Mutants that are named to a writer.
const NAMED: usize = 5;

/// What became of a proposed check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Proven {
    /// It survived.
    Kept {
        /// Defines what is expected.
        reference: String,
        /// What is compared.
        checks: Vec<CheckSpec>,
        /// Wrong results that it refused.
        refused: u64,
    },
    /// It did not.
    Dropped {
        /// What it is counted as.
        by: String,
        /// In words.
        detail: String,
    },
}

/// Why a proposal does not survive.
struct Weakness {
    by: &'static str,
    detail: String,
    /// Whether its writer may mend it. Not where that would fit it to a trajectory.
    told: bool,
}

impl Weakness {
    fn new(by: &'static str, detail: impl Into<String>, told: bool) -> Self {
        let detail = detail.into();
        Self { by, detail, told }
    }
}

/// What proofs are made with.
pub(super) struct Bench {
    context: RunContext,
    files: HashMap<Digest, SourceFile>,
    teachers: Vec<Arc<dyn Teacher>>,
    /// Where trials are run.
    interpreter: Arc<dyn Interpreter>,
    checker: Checker,
}

impl Bench {
    /// With the teachers and the interpreter of the recipe.
    pub(super) fn new(
        context: &RunContext,
        writer: &WriterChoice,
        files: &[SourceFile],
        reserves: &Arc<Reserves>,
    ) -> Result<Self, RunError> {
        let environment = |error: &dyn std::fmt::Display| RunError::Environment(error.to_string());
        let mut choice = context.recipe.interpreter.clone();
        choice.wheelhouse = choice.wheelhouse.map(|path| context.resolve(&path));
        let agents = interpreter(&choice).map_err(|error| environment(&error))?;
        // Wheels are the agent's business.
        choice.wheelhouse = None;
        let checkers = interpreter(&choice).map_err(|error| environment(&error))?;
        let mut context = context.clone();
        context.recipe.rollout.samples = writer.trials;
        let known = files.iter().map(|file| (file.id.clone(), file.clone()));
        Ok(Self {
            files: known.collect(),
            teachers: teacher::beside(&context, reserves)?,
            context,
            interpreter: agents,
            checker: Checker::new(checkers).map_err(|error| environment(&error))?,
        })
    }
}

/// Proposes and proves the check of one task per unit.
pub(super) struct ProofStage {
    bench: Arc<Bench>,
    generator: Speaker,
    tasks: HashMap<String, Task>,
}

impl ProofStage {
    pub(super) fn new(bench: Arc<Bench>, generator: Speaker, tasks: Vec<Task>) -> Self {
        let named = tasks.into_iter().map(|task| (task.id.to_string(), task));
        Self {
            bench,
            generator,
            tasks: named.collect(),
        }
    }

    async fn prove(&self, task: &Task) -> Result<Proven, Failure> {
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
            .filter_map(|file| self.bench.files.get(&file.id))
            .collect();
        let schema = propose::schema(task);
        let question = prompt::check(&task.query, &task.outputs, &files, &schema)?;
        let mut talk = Talk::new(&self.generator, question, 0);
        for round in 1.. {
            let proposal: Proposal = match talk.answer().await? {
                Ok(proposal) => proposal,
                Err(why) => return Ok(dropped(Weakness::new("no proposal", why, false))),
            };
            let weakness = match self.weakness(task, &proposal, &candidates).await? {
                Ok(refused) => {
                    let Proposal { reference, checks } = proposal;
                    return Ok(Proven::Kept {
                        reference,
                        checks,
                        refused,
                    });
                }
                Err(weakness) => weakness,
            };
            if !weakness.told || round == ROUNDS {
                return Ok(dropped(weakness));
            }
            talk.say(prompt::mend(&weakness.detail)?);
        }
        Err(Failure::new(FailureKind::Internal, "no round left"))
    }

    /// What the teacher leaves in the first samples of the task: those that it says are finished.
    async fn candidates(&self, task: &Task) -> Result<Vec<Candidate>, Failure> {
        let teachers = self.bench.teachers.clone();
        let interpreter = self.bench.interpreter.clone();
        let stage = RolloutStage::new(
            &self.bench.context,
            vec![task.clone()],
            teachers,
            interpreter,
        )?;
        let first = stage.courses().first().and_then(|course| course.first());
        let mut candidates = Vec::new();
        for item in stage.items_of(first.map(Vec::as_slice).unwrap_or_default()) {
            let trajectory: Trajectory =
                serde_json::from_value(stage.run(&item).await?).map_err(RunError::from)?;
            if trajectory.end == End::Finished {
                candidates.push(Candidate::of(
                    &trajectory,
                    self.bench.context.folder.store(),
                ));
            }
        }
        Ok(candidates)
    }

    /// The wrong results that a proposal refuses, or why it does not survive.
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
        let store = self.bench.context.folder.store();
        let mut failed = String::new();
        for candidate in candidates {
            let rows = match ran(self.bench.checker.audit(&task, store, candidate).await)? {
                Ok(rows) => rows,
                Err(weakness) => return Ok(Err(weakness)),
            };
            match strength(&rows) {
                Ok(None) => failed = rows.first().map(|row| reasons(&row.1)).unwrap_or_default(),
                Ok(Some(refused)) => {
                    let looked = self.looks_at(&task, candidate).await?;
                    return Ok(looked.map(|()| refused));
                }
                Err(weakness) => return Ok(Err(weakness)),
            }
        }
        Ok(Err(Weakness::new("holds for no trajectory", failed, false)))
    }

    /// In a session where the candidate is another one, the same reference must refuse it: one that reads
    /// what it is to judge would go along.
    async fn looks_at(
        &self,
        task: &Task,
        candidate: &Candidate,
    ) -> Result<Result<(), Weakness>, Failure> {
        let store = self.bench.context.folder.store();
        let spoilt = spoil(candidate, store)?;
        let detail = "the reference depends on what it is to judge";
        let moved = Ok(Err(Weakness::new("depends on the result", detail, false)));
        match ran(self.bench.checker.check(task, store, &spoilt).await)? {
            Ok(findings) if !passes(&findings) => Ok(Ok(())),
            _ => moved,
        }
    }
}

/// What the audit says: `None` where the candidate itself does not pass.
fn strength(rows: &[(String, Vec<Finding>)]) -> Result<Option<u64>, Weakness> {
    let own = rows.iter().find(|(name, _)| name == "original");
    if !own.is_some_and(|(_, findings)| passes(findings)) {
        return Ok(None);
    }
    let wrong = || rows.iter().filter(|(name, _)| name != "original");
    let passing: Vec<&str> = wrong()
        .filter(|(_, findings)| passes(findings))
        .map(|(name, _)| name.as_str())
        .collect();
    if !passing.is_empty() {
        let named = passing[..passing.len().min(NAMED)].join("; ");
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

/// Tells what a proposal does from what is a failure of ours.
fn ran<T>(end: Result<T, CheckError>) -> Result<Result<T, Weakness>, Failure> {
    match end {
        Ok(done) => Ok(Ok(done)),
        // A reference that raises, never ends or takes its session down is the proposal's own doing.
        Err(error @ (CheckError::Task(_) | CheckError::Checker(_))) => {
            Ok(Err(Weakness::new("does not run", error.to_string(), true)))
        }
        Err(error) => Err(check_failure(error)),
    }
}

/// The same with every letter and digit moved on, in the answer and in files of text; other files are
/// replaced.
fn spoil(candidate: &Candidate, store: &pybench::run::ContentStore) -> Result<Candidate, Failure> {
    let move_on = |c: char| match c {
        '0'..='8' | 'a'..='y' | 'A'..='Y' => char::from(c as u8 + 1),
        '9' => '0',
        'z' => 'a',
        'Z' => 'A',
        other => other,
    };
    let mut spoilt = Candidate {
        answer: candidate.answer.chars().map(move_on).collect(),
        ..Candidate::default()
    };
    for (path, host) in &candidate.outputs {
        let bytes = std::fs::read(host).map_err(RunError::io(host.display().to_string()))?;
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => text.chars().map(move_on).collect::<String>().into_bytes(),
            Err(_) => b"spoilt".to_vec(),
        };
        let id = store.put(&bytes)?;
        spoilt.outputs.push((path.clone(), store.path(&id)));
    }
    Ok(spoilt)
}

fn dropped(weakness: Weakness) -> Proven {
    let (by, detail) = (weakness.by.to_owned(), weakness.detail);
    Proven::Dropped { by, detail }
}

#[async_trait]
impl Stage for ProofStage {
    fn name(&self) -> &'static str {
        CHECKS
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let internal = |text: String| Failure::new(FailureKind::Internal, text);
        let task = self.tasks.get(item);
        let task = task.ok_or_else(|| internal(format!("no task {item}")))?;
        let proven = self.prove(task).await?;
        serde_json::to_value(proven).map_err(|error| internal(error.to_string()))
    }
}
