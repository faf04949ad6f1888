//! The audit of the strict score: validates the checks of every task that has some in the grading sandbox.
//!
//! The reference solution and all other correct solutions must pass, null agents must fail, and at least
//! 90 % of the incorrect solutions (those of the task file and generated mutants) must fail. Tasks are
//! units in the journal of a run, so an interrupted audit continues.

mod row;
mod solution_runner;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use pybench_checks::{Candidate, Checker};
use pybench_interpreter::Interpreter;
use pybench_run::{Executor, Failure, FailureKind, LocalExecutor, RunError, RunFolder, Stage};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::Finding;
use serde_json::Value;

use super::prepare::{Changes, PrepareStage, Prepared};
use super::spec::TaskSpec;
use super::tasks::{NO_VARIANTS, changes, selected};
use super::{Availability, PyBench};
use crate::agent::Script;
use crate::suite::{AuditOptions, Solution, SuiteAudit, SuiteEnv};
use pybench_checks::check_failure;
pub use row::{AuditRow, CheckValidation, markdown, summary};
use solution_runner::SolutionRunner;

/// Name of the stage in the journal.
pub const STAGE: &str = "audit";

/// Environment of an audit.
pub struct AuditEnv {
    /// Task files and inputs.
    pub suite: PyBench,
    /// Journal and content store.
    pub folder: Arc<RunFolder>,
    /// Runs solutions.
    pub interpreter: Arc<dyn Interpreter>,
    /// Runs checks.
    pub checker: Checker,
    /// Changes to the inputs.
    pub changes: Changes,
    /// Run only the correct solutions: no null agents, no mutants.
    pub quick: bool,
}

/// Audits the selected tasks.
pub(super) async fn of_suite(
    suite: &PyBench,
    env: &SuiteEnv,
    options: &AuditOptions,
) -> Result<SuiteAudit, RunError> {
    let specs: Vec<_> = selected(suite, &options.selection)?;
    let specs: Vec<_> = specs.into_iter().cloned().collect();
    let audited = AuditEnv {
        suite: suite.clone(),
        folder: env.folder.clone(),
        interpreter: env.interpreter.clone(),
        checker: env.checker.clone(),
        changes: changes(&options.selection),
        quick: options.quick,
    };
    let rows = audit(audited, &specs, &env.executor, log_row).await?;
    let failed = rows.iter().filter(|row| !row.passed());
    Ok(SuiteAudit {
        json: serde_json::to_value(&rows)?,
        markdown: markdown(&rows),
        summary: summary(&rows),
        problems: failed
            .map(|row| (row.index.to_string(), row.problems().join("; ")))
            .collect(),
    })
}

fn log_row(row: &AuditRow) {
    match row.passed() {
        true => tracing::info!("task {}: passed the audit", row.index),
        false => tracing::warn!("task {}: {}", row.index, row.problems().join("; ")),
    }
}

/// Audits tasks and returns one row per task, sorted by number. `done` is called with each row as soon as it
/// is complete.
///
/// # Errors
/// The errors of the executor. Errors of a single task are in its row.
pub async fn audit(
    env: AuditEnv,
    specs: &[TaskSpec],
    executor: &LocalExecutor,
    done: impl Fn(&AuditRow) + Send + Sync + 'static,
) -> Result<Vec<AuditRow>, RunError> {
    let (mut rows, mut ready) = (Vec::new(), Vec::new());
    for spec in specs {
        let unchecked = spec.status.reason().filter(|_| spec.checks.is_empty());
        let reason = match (unchecked, env.suite.availability(spec)) {
            (Some(reason), _) => Some(reason.to_owned()),
            (None, Availability::Unavailable(reason)) => Some(reason),
            (None, Availability::Available) if env.changes.regenerate && !spec.has_variants() => {
                Some(NO_VARIANTS.to_owned())
            }
            (None, Availability::Available) => None,
        };
        match reason {
            Some(reason) => rows.push(AuditRow::skipped(spec, reason)),
            None => ready.push(spec),
        }
    }
    let (suite, folder) = (env.suite.clone(), env.folder.clone());
    let interpreter = env.interpreter.clone();
    let prepare = Arc::new(PrepareStage::new(
        suite,
        folder.clone(),
        interpreter,
        env.changes,
        &ready,
    ));
    executor.run(prepare.clone(), &prepare.items()).await?;
    let stage = Arc::new(AuditStage::new(
        env,
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
            Some((None, Some(failure))) => AuditRow::failed(spec, failure.detail),
            _ => AuditRow::failed(spec, "the task was not audited".to_owned()),
        };
        rows.push(row);
    }
    rows.sort_by_key(|row| row.index);
    Ok(rows)
}

/// Stage with one unit per task; its item is the digest of everything that determines the row.
struct AuditStage {
    env: AuditEnv,
    prepared: BTreeMap<u32, Result<Prepared, Failure>>,
    order: Vec<(String, TaskSpec)>,
    done: Box<dyn Fn(&AuditRow) + Send + Sync>,
}

impl AuditStage {
    fn new(
        env: AuditEnv,
        prepared: BTreeMap<u32, Result<Prepared, Failure>>,
        specs: &[&TaskSpec],
        done: Box<dyn Fn(&AuditRow) + Send + Sync>,
    ) -> Self {
        let checker = env.checker.digest();
        let item = |spec: &TaskSpec| {
            let inputs = prepared.get(&spec.index).and_then(|one| one.as_ref().ok());
            let key = (spec.index, &spec.digest, &checker, inputs, env.quick);
            Digest::of_json(&key).to_string()
        };
        Self {
            order: specs
                .iter()
                .map(|spec| (item(spec), (*spec).clone()))
                .collect(),
            prepared,
            env,
            done,
        }
    }

    fn items(&self) -> Vec<String> {
        self.order.iter().map(|(item, _)| item.clone()).collect()
    }

    async fn validate(&self, spec: &TaskSpec) -> Result<CheckValidation, Failure> {
        let internal = |text: String| Failure::new(FailureKind::Internal, text);
        let prepared = match self.prepared.get(&spec.index) {
            Some(Ok(prepared)) => prepared,
            Some(Err(failure)) => return Err(failure.clone()),
            None => return Err(internal("the inputs were not prepared".to_owned())),
        };
        let task = self.env.suite.task(spec, prepared)?;
        let solution = spec.solution.as_ref();
        let solution =
            solution.ok_or_else(|| internal("the task file has no solution".to_owned()))?;
        let runner = SolutionRunner {
            interpreter: self.env.interpreter.as_ref(),
            store: self.env.folder.store(),
            task: &task,
        };
        let reference = runner.run(solution, false).await?;
        let mut found = match self.env.quick {
            true => vec![("original".to_owned(), self.check(&task, &reference).await?)],
            false => {
                let store = self.env.folder.store();
                let audited = self.env.checker.audit(&task, store, &reference).await;
                audited.map_err(check_failure)?
            }
        };
        found.extend(self.check_variants(spec, solution, &runner).await?);
        Ok(CheckValidation::from_findings(&found, &spec.equivalent))
    }

    async fn check(&self, task: &Task, candidate: &Candidate) -> Result<Vec<Finding>, Failure> {
        let store = self.env.folder.store();
        let found = self.env.checker.check(task, store, candidate).await;
        found.map_err(check_failure)
    }

    /// Runs and checks the variants of the task file and the null agents, each in its own session.
    async fn check_variants(
        &self,
        spec: &TaskSpec,
        solution: &Solution,
        runner: &SolutionRunner<'_>,
    ) -> Result<Vec<(String, Vec<Finding>)>, Failure> {
        let (mut names, mut candidates) = (Vec::new(), Vec::new());
        let mutants = if self.env.quick {
            &[][..]
        } else {
            &spec.mutants[..]
        };
        let variants = mutants.iter().map(|variant| ("own", variant));
        let variants = variants.chain(spec.rights.iter().map(|variant| ("right", variant)));
        for (kind, variant) in variants {
            let changed = variant.apply(solution);
            let changed = changed.map_err(|text| Failure::new(FailureKind::Internal, text))?;
            names.push(format!("{kind}: {}", variant.name));
            candidates.push(runner.run(&changed, true).await?);
        }
        let null = if self.env.quick {
            &[][..]
        } else {
            &Script::NULL[..]
        };
        for script in null {
            names.push(format!("null: agent {}", script.name()));
            candidates.push(runner.run_null_agent(*script).await?);
        }
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.env.folder.store();
        let found = self
            .env
            .checker
            .check_many(runner.task, store, &candidates)
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
                format!("no task for the item {item}"),
            )
        })?;
        let started = Instant::now();
        let validation = self.validate(spec).await?;
        let row = AuditRow::validated(spec, validation, started.elapsed().as_secs_f64());
        (self.done)(&row);
        Ok(serde_json::to_value(row).map_err(RunError::from)?)
    }
}
