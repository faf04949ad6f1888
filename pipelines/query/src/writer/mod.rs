//! The query writer of the paper: a generator writes queries for crawled files, a keyword checker and a
//! content checker review them, and proposed checks are validated. `docs/query-writer.md` describes the
//! recipe keys.
//!
//! Queries are written in *rounds*: the first attempt of every task, then the second attempt of the tasks
//! whose first attempt failed, and so on. The journal determines the next round, so an interrupted run
//! continues where it stopped.

mod answer;
mod check_validation;
mod dialogue;
pub(crate) mod estimate;
mod near_dup;
mod prompt;
mod propose;
mod reference_check;
pub(crate) mod rules;
mod task_seed;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use pybench_run::{
    Executor, FailureKind, Journal, Mode, ProposedChecks, RetryFailed, RunContext, RunError,
    UnitState, WriterChoice,
};
use pybench_types::task::{SourceFile, Task};
use serde_json::Value;

pub use answer::Draft;
pub use check_validation::{CHECKS, CheckValidation};
pub use rules::RejectedBy;
pub use write::WrittenQuery;

use crate::STAGE;
use check_validation::{AuditEnv, CheckValidationStage};
use dialogue::Models;
use near_dup::NearDupFilter;
use pybench_library::Library;
use task_seed::TaskSeeds;
use write::WriteStage;

/// Writes the tasks that the recipe requests. Returns them in slot order, and the number of requested tasks.
pub(super) async fn run(
    context: &RunContext,
    writer: &WriterChoice,
    library: &Library,
    files: &[SourceFile],
) -> Result<(Vec<Task>, usize), RunError> {
    pybench_attempts::money::check(&context.recipe)?;
    let recipe = &context.recipe;
    let seeds = TaskSeeds::new(library, files, &recipe.query, writer, recipe.seed)?;
    let seeds = Arc::new(match context.mode {
        Mode::Preview(count) => seeds.first(count),
        _ => seeds,
    });
    // Find missing interpreters before the first paid call.
    let ledger = Arc::default();
    let audit_env = match writer.checks {
        ProposedChecks::None => None,
        _ => Some(Arc::new(AuditEnv::new(context, writer, files, &ledger)?)),
    };
    let models = Models::of(context, writer, &ledger)?;
    let generator = models.generator.name().to_owned();
    let journal = context.folder.journal();
    for stage in [STAGE, CHECKS] {
        journal.retry_failed(stage, context.options.retry_failed)?;
    }
    let state = || WriterState::of(journal, &seeds, writer, &generator);
    // Units that failed in this process are retried by the next one.
    let mut once = context.clone();
    once.options.retry_failed = RetryFailed::None;
    let writing = Arc::new(WriteStage::new(
        seeds.clone(),
        models.clone(),
        writer.rounds,
    ));
    let mut previous = Step::Nothing;
    loop {
        let step = state()?.step();
        // Stop at a step without progress; it would repeat forever.
        if step == Step::Nothing || step == previous {
            break;
        }
        match (&step, &audit_env) {
            (Step::Write(items), _) => once.executor().run(writing.clone(), items).await?,
            (Step::Validate(tasks), Some(audit_env)) => {
                let items: Vec<_> = tasks.iter().map(|task| task.id.to_string()).collect();
                let generator = models.generator.clone();
                let validation =
                    CheckValidationStage::new(audit_env.clone(), generator, tasks.clone());
                once.executor().run(Arc::new(validation), &items).await?
            }
            _ => break,
        };
        previous = step;
    }
    let state = state()?;
    journal.set_metadata(DUPLICATES, &state.duplicates.into())?;
    let failed = state.failed;
    let tasks = state.tasks();
    match (failed, tasks.is_empty()) {
        (0, _) => {}
        (_, true) => return Err(nothing_written(journal)?),
        _ => tracing::warn!("{failed} queries failed; run the same command again to retry them"),
    }
    Ok((tasks, seeds.slots()))
}

/// The error for a run without a single query.
fn nothing_written(journal: &Journal) -> Result<RunError, RunError> {
    let failures = journal.failures()?.into_iter();
    let mut ours = failures.filter(|unit| [STAGE, CHECKS].contains(&&*unit.stage));
    let Some(first) = ours.next().map(|unit| unit.failure) else {
        return Ok(RunError::Incomplete("no query was written".to_owned()));
    };
    let text = format!("no task could be written; first failure: {first}");
    Ok(match first.kind {
        FailureKind::Endpoint => RunError::Endpoint(text),
        FailureKind::Interpreter => RunError::Environment(text),
        _ => RunError::Incomplete(text),
    })
}

/// Journal key of the number of queries dropped as near duplicates.
pub const DUPLICATES: &str = "query_duplicates";

/// The next step of the writer.
#[derive(PartialEq)]
enum Step {
    /// Write these items.
    Write(Vec<String>),
    /// Validate the checks of these tasks.
    Validate(Vec<Task>),
    /// All slots are finished.
    Nothing,
}

enum SlotState {
    /// A finished task; its check is validated, or none is required.
    Done(Box<Task>),
    /// The query of this attempt is written, but its check is not validated yet.
    Unvalidated(u32, Box<Task>),
    /// This attempt is next.
    Next(u32),
    /// All attempts were rejected, or one failed for a reason outside the query.
    Exhausted,
}

/// The state of all slots, from the journal.
struct WriterState<'a> {
    seeds: &'a TaskSeeds,
    slot_states: Vec<SlotState>,
    duplicates: u64,
    failed: u64,
}

impl<'a> WriterState<'a> {
    fn of(
        journal: &Journal,
        seeds: &'a TaskSeeds,
        writer: &WriterChoice,
        generator: &str,
    ) -> Result<Self, RunError> {
        let written = finished_units(journal, STAGE)?;
        let validations = finished_units(journal, CHECKS)?;
        let mut state = Self {
            seeds,
            slot_states: (0..seeds.slots()).map(|_| SlotState::Next(0)).collect(),
            duplicates: 0,
            failed: 0,
        };
        let mut near_dups = NearDupFilter::new(writer);
        // Go attempt by attempt: whether a query is a duplicate depends on earlier rounds, and on earlier
        // slots of its own round.
        for attempt in 0..seeds.max_attempts() {
            for slot in 0..seeds.slots() {
                if !matches!(state.slot_states[slot], SlotState::Next(next) if next == attempt) {
                    continue;
                }
                let Some(seed) = seeds.at(slot, attempt) else {
                    continue;
                };
                let if_rejected = match attempt + 1 < seeds.max_attempts() {
                    true => SlotState::Next(attempt + 1),
                    false => SlotState::Exhausted,
                };
                let slot_state = match written.get(&seed.item) {
                    None => continue,
                    Some(None) => {
                        state.failed += 1;
                        SlotState::Exhausted
                    }
                    Some(Some(value)) => {
                        match serde_json::from_value::<WrittenQuery>(value.clone())? {
                            WrittenQuery::Accepted {
                                draft, embedding, ..
                            } if !near_dups.keep(&draft.query, embedding.as_ref()) => {
                                state.duplicates += 1;
                                if_rejected
                            }
                            WrittenQuery::Accepted { draft, round, .. } => {
                                let task = Box::new(write::task(&seed, &draft, round, generator));
                                match check_outcome(
                                    *task.clone(),
                                    validations.get(task.id.as_str()),
                                    writer.checks,
                                )? {
                                    CheckOutcome::Task(task) => SlotState::Done(task),
                                    CheckOutcome::Unvalidated => {
                                        SlotState::Unvalidated(attempt, task)
                                    }
                                    CheckOutcome::Failed => {
                                        state.failed += 1;
                                        SlotState::Exhausted
                                    }
                                    CheckOutcome::NoCheck => if_rejected,
                                }
                            }
                            _ => if_rejected,
                        }
                    }
                };
                state.slot_states[slot] = slot_state;
            }
        }
        Ok(state)
    }

    /// Writes all queries of the earliest missing attempt. Checks of earlier attempts are validated first,
    /// because a slot whose check is dropped joins that round.
    fn step(&self) -> Step {
        let write = self
            .slot_states
            .iter()
            .filter_map(|slot_state| match slot_state {
                SlotState::Next(attempt) => Some(*attempt),
                _ => None,
            });
        let validate = self
            .slot_states
            .iter()
            .filter_map(|slot_state| match slot_state {
                SlotState::Unvalidated(attempt, _) => Some(*attempt),
                _ => None,
            });
        match (write.min(), validate.min()) {
            (None, None) => Step::Nothing,
            (Some(write), validate) if validate.is_none_or(|validate| write <= validate) => {
                Step::Write(self.round_items(write))
            }
            _ => Step::Validate(self.unvalidated()),
        }
    }

    /// The next attempt of a slot, and whether only the validation of its check is missing; `None` if the
    /// slot is finished.
    fn next(&self, slot: usize) -> Option<(u32, bool)> {
        match self.slot_states.get(slot)? {
            SlotState::Next(attempt) => Some((*attempt, false)),
            SlotState::Unvalidated(attempt, _) => Some((*attempt, true)),
            SlotState::Done(_) | SlotState::Exhausted => None,
        }
    }

    fn round_items(&self, attempt: u32) -> Vec<String> {
        let slots = self.slot_states.iter().enumerate();
        let slots = slots.filter(
            |(_, slot_state)| matches!(slot_state, SlotState::Next(next) if *next == attempt),
        );
        let seeds = slots.filter_map(|(slot, _)| self.seeds.at(slot, attempt));
        seeds.map(|seed| seed.item).collect()
    }

    fn unvalidated(&self) -> Vec<Task> {
        let tasks = self
            .slot_states
            .iter()
            .filter_map(|slot_state| match slot_state {
                SlotState::Unvalidated(_, task) => Some((**task).clone()),
                _ => None,
            });
        tasks.collect()
    }

    fn tasks(self) -> Vec<Task> {
        let tasks = self
            .slot_states
            .into_iter()
            .filter_map(|slot_state| match slot_state {
                SlotState::Done(task) => Some(*task),
                _ => None,
            });
        tasks.collect()
    }
}

/// A written task after the validation of its check.
enum CheckOutcome {
    Task(Box<Task>),
    Unvalidated,
    Failed,
    /// The recipe requires a check, and it was dropped.
    NoCheck,
}

fn check_outcome(
    mut task: Task,
    validation: Option<&Option<Value>>,
    checks: ProposedChecks,
) -> Result<CheckOutcome, RunError> {
    let value = match (checks, validation) {
        (ProposedChecks::None, _) => return Ok(CheckOutcome::Task(Box::new(task))),
        (_, None) => return Ok(CheckOutcome::Unvalidated),
        (_, Some(None)) => return Ok(CheckOutcome::Failed),
        (_, Some(Some(value))) => value.clone(),
    };
    Ok(match serde_json::from_value::<CheckValidation>(value)? {
        CheckValidation::Kept {
            reference, checks, ..
        } => {
            (task.reference, task.checks) = (reference, checks);
            task.id = task.compute_id();
            CheckOutcome::Task(Box::new(task))
        }
        CheckValidation::Dropped { .. } if checks == ProposedChecks::Optional => {
            CheckOutcome::Task(Box::new(task))
        }
        CheckValidation::Dropped { .. } => CheckOutcome::NoCheck,
    })
}

/// The finished units of a stage, by item: the output, or `None` if the unit failed permanently.
fn finished_units(
    journal: &Journal,
    stage: &str,
) -> Result<HashMap<String, Option<Value>>, RunError> {
    let units = journal.units(stage)?.into_iter();
    let ended = units.filter(|unit| unit.state != UnitState::Pending);
    Ok(ended.map(|unit| (unit.item, unit.output)).collect())
}
