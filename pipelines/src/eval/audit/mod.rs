//! The self-audit of the strict score: every headline task proves its check, in the sandbox that grades.
//!
//! The solution and every other right one pass; agents that do nothing of the task fail; of wrong
//! solutions (the task file's own and the checker's generic ones) at least nine in ten fail. Tasks are
//! units in a journal, so that an audit goes on where it was stopped.

mod row;
mod trial;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use pybench::grade::{Candidate, Checker};
use pybench::id::Digest;
use pybench::interpreter::Interpreter;
use pybench::run::{Executor, Failure, FailureKind, LocalExecutor, RunError, RunFolder, Stage};
use pybench::task::Task;
use pybench::trajectory::Finding;
use serde_json::Value;

use super::agent::Script;
use super::bench::prepare::{Changes, PrepareStage, Prepared};
use super::bench::spec::{Solution, TaskSpec};
use super::bench::{Bench, Ready};
use crate::grade::check_failure;
pub use row::{Proof, Row, markdown, summary};
use trial::Player;

/// Name of the stage in the journal.
pub const STAGE: &str = "audit";

/// What an audit works with.
pub struct Audit {
    /// Task files and inputs.
    pub bench: Bench,
    /// Journal and content store.
    pub folder: Arc<RunFolder>,
    /// Runs solutions.
    pub interpreter: Arc<dyn Interpreter>,
    /// Runs checks.
    pub checker: Checker,
    /// What is done to the inputs.
    pub changes: Changes,
    /// Right solutions only: no agents that do nothing, no mutants.
    pub quick: bool,
}

/// Audits those tasks; a row for each, by number. `done` hears of every row as soon as it is known.
///
/// # Errors
/// As the executor's. What goes wrong with a task is in its row.
pub async fn audit(
    audit: Audit,
    specs: &[TaskSpec],
    executor: &LocalExecutor,
    done: impl Fn(&Row) + Send + Sync + 'static,
) -> Result<Vec<Row>, RunError> {
    let (mut rows, mut ready) = (Vec::new(), Vec::new());
    for spec in specs {
        let reason = match (spec.status.reason(), audit.bench.ready(spec)) {
            (Some(reason), _) => Some(reason.to_owned()),
            (None, Ready::No(reason)) => Some(reason),
            (None, Ready::Yes) if audit.changes.regenerate && spec.vary.is_none() => {
                Some("it is about its very files: no other variant can be made".to_owned())
            }
            (None, Ready::Yes) => None,
        };
        match reason {
            Some(reason) => rows.push(Row::left_out(spec, reason)),
            None => ready.push(spec),
        }
    }
    let (bench, folder) = (audit.bench.clone(), audit.folder.clone());
    let interpreter = audit.interpreter.clone();
    let prepare = Arc::new(PrepareStage::new(
        bench,
        folder.clone(),
        interpreter,
        audit.changes,
        &ready,
    ));
    executor.run(prepare.clone(), &prepare.items()).await?;
    let stage = Arc::new(AuditStage::new(
        audit,
        prepare.results()?,
        &ready,
        Box::new(done),
    ));
    executor.run(stage.clone(), &stage.items()).await?;
    let mut units: HashMap<_, _> = folder
        .journal()
        .units(STAGE)?
        .into_iter()
        .map(|unit| (unit.item.clone(), unit))
        .collect();
    for (item, spec) in &stage.order {
        let row = match units.remove(item).map(|unit| (unit.output, unit.failure)) {
            Some((Some(output), _)) => serde_json::from_value(output)?,
            Some((None, Some(failure))) => Row::failed(spec, failure.detail),
            _ => Row::failed(spec, "it was not audited".to_owned()),
        };
        rows.push(row);
    }
    rows.sort_by_key(|row| row.index);
    Ok(rows)
}

/// One unit per task; its item is the digest of all that decides the row.
struct AuditStage {
    audit: Audit,
    prepared: BTreeMap<u32, Result<Prepared, Failure>>,
    order: Vec<(String, TaskSpec)>,
    done: Box<dyn Fn(&Row) + Send + Sync>,
}

impl AuditStage {
    fn new(
        audit: Audit,
        prepared: BTreeMap<u32, Result<Prepared, Failure>>,
        specs: &[&TaskSpec],
        done: Box<dyn Fn(&Row) + Send + Sync>,
    ) -> Self {
        let checker = audit.checker.digest();
        let item = |spec: &TaskSpec| {
            let inputs = prepared.get(&spec.index).and_then(|one| one.as_ref().ok());
            let key = (spec.index, &spec.digest, &checker, inputs, audit.quick);
            Digest::of_json(&key).to_string()
        };
        Self {
            order: specs
                .iter()
                .map(|spec| (item(spec), (*spec).clone()))
                .collect(),
            prepared,
            audit,
            done,
        }
    }

    fn items(&self) -> Vec<String> {
        self.order.iter().map(|(item, _)| item.clone()).collect()
    }

    async fn prove(&self, spec: &TaskSpec) -> Result<Proof, Failure> {
        let internal = |text: String| Failure::new(FailureKind::Internal, text);
        let prepared = match self.prepared.get(&spec.index) {
            Some(Ok(prepared)) => prepared,
            Some(Err(failure)) => return Err(failure.clone()),
            None => return Err(internal("its inputs were not prepared".to_owned())),
        };
        let task = self.audit.bench.task(spec, prepared)?;
        let solution = spec.solution.as_ref();
        let solution = solution.ok_or_else(|| internal("it has no solution".to_owned()))?;
        let player = Player {
            interpreter: self.audit.interpreter.as_ref(),
            store: self.audit.folder.store(),
            task: &task,
        };
        let right = player.play(solution, false).await?;
        let mut found = match self.audit.quick {
            true => vec![("original".to_owned(), self.one(&task, &right).await?)],
            false => {
                let store = self.audit.folder.store();
                let audited = self.audit.checker.audit(&task, store, &right).await;
                audited.map_err(check_failure)?
            }
        };
        found.extend(self.others(spec, solution, &player).await?);
        Ok(Proof::of(&found, &spec.equivalent))
    }

    async fn one(&self, task: &Task, candidate: &Candidate) -> Result<Vec<Finding>, Failure> {
        let store = self.audit.folder.store();
        let found = self.audit.checker.check(task, store, candidate).await;
        found.map_err(check_failure)
    }

    /// The task file's own variants and the agents that do no work, each played in a session and judged.
    async fn others(
        &self,
        spec: &TaskSpec,
        solution: &Solution,
        player: &Player<'_>,
    ) -> Result<Vec<(String, Vec<Finding>)>, Failure> {
        let (mut names, mut candidates) = (Vec::new(), Vec::new());
        let wrong = if self.audit.quick {
            &[][..]
        } else {
            &spec.mutants[..]
        };
        let variants = wrong.iter().map(|variant| ("own", variant));
        let variants = variants.chain(spec.rights.iter().map(|variant| ("right", variant)));
        for (kind, variant) in variants {
            let changed = variant.apply(solution);
            let changed = changed.map_err(|text| Failure::new(FailureKind::Internal, text))?;
            names.push(format!("{kind}: {}", variant.name));
            candidates.push(player.play(&changed, true).await?);
        }
        let null = if self.audit.quick {
            &[][..]
        } else {
            &Script::NULL[..]
        };
        for script in null {
            names.push(format!("null: agent {}", script.name()));
            candidates.push(player.idle(*script).await?);
        }
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.audit.folder.store();
        let found = self
            .audit
            .checker
            .check_many(player.task, store, &candidates)
            .await;
        Ok(names
            .into_iter()
            .zip(found.map_err(check_failure)?)
            .collect())
    }
}

#[async_trait]
impl Stage for AuditStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let spec = self.order.iter().find(|(known, _)| known == item);
        let (_, spec) = spec.ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no task has the item {item}"),
            )
        })?;
        let begun = Instant::now();
        let proof = self.prove(spec).await?;
        let row = Row::proven(spec, proof, begun.elapsed().as_secs_f64());
        (self.done)(&row);
        Ok(serde_json::to_value(row).map_err(RunError::from)?)
    }
}
