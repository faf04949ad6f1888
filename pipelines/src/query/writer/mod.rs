//! The paper's query writer: a generator writes queries for crawled files, a keyword checker and a content
//! checker make it revise them, and proposed checks have to prove themselves. `docs/query-writer.md` tells
//! how a recipe asks for it.
//!
//! Queries are written in *waves*: the first attempt of every task, then the second of those that came to
//! nothing, and so on. What comes next follows from what the journal holds of the waves before, so that a
//! run that was killed goes on where it was.

mod alike;
mod answer;
pub(crate) mod estimate;
mod idea;
mod named;
mod prompt;
mod proof;
mod propose;
pub(crate) mod rules;
mod talk;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use pybench::run::{
    Executor, FailureKind, Journal, Mode, ProposedChecks, RetryFailed, RunContext, RunError,
    UnitState, WriterChoice,
};
use pybench::task::{SourceFile, Task};
use serde_json::Value;

pub use answer::{Draft, MOST_QUERY};
pub use proof::{CHECKS, Proven};
pub use rules::Part;
pub use write::Written;

use crate::library::Library;
use crate::query::STAGE;
use alike::Kept;
use idea::Ideas;
use proof::{Bench, ProofStage};
use talk::Models;
use write::WriteStage;

/// Writes what the recipe asks for; the tasks in the order of their slots, and how many were asked for.
pub(super) async fn run(
    context: &RunContext,
    writer: &WriterChoice,
    library: &Library,
    files: &[SourceFile],
) -> Result<(Vec<Task>, usize), RunError> {
    crate::rollout::money::check(&context.recipe)?;
    let recipe = &context.recipe;
    let ideas = Ideas::new(library, files, &recipe.query, writer, recipe.seed)?;
    let ideas = Arc::new(match context.mode {
        Mode::Preview(count) => ideas.first(count),
        _ => ideas,
    });
    // What is missing on this machine is better known before anything is paid.
    let reserves = Arc::default();
    let bench = match writer.checks {
        ProposedChecks::None => None,
        _ => Some(Arc::new(Bench::new(context, writer, files, &reserves)?)),
    };
    let models = Models::of(context, writer, &reserves)?;
    let generator = models.generator.name().to_owned();
    let journal = context.folder.journal();
    for stage in [STAGE, CHECKS] {
        journal.retry_failed(stage, context.options.retry_failed)?;
    }
    let state = || State::of(journal, &ideas, writer, &generator);
    // What failed in this process waits for the next one.
    let mut once = context.clone();
    once.options.retry_failed = RetryFailed::None;
    let writing = Arc::new(WriteStage::new(
        ideas.clone(),
        models.clone(),
        writer.rounds,
    ));
    let mut before = Step::Nothing;
    loop {
        let step = state()?.step();
        // A step that did nothing would do nothing for ever.
        if step == Step::Nothing || step == before {
            break;
        }
        match (&step, &bench) {
            (Step::Write(items), _) => once.executor().run(writing.clone(), items).await?,
            (Step::Prove(tasks), Some(bench)) => {
                let items: Vec<_> = tasks.iter().map(|task| task.id.to_string()).collect();
                let generator = models.generator.clone();
                let proving = ProofStage::new(bench.clone(), generator, tasks.clone());
                once.executor().run(Arc::new(proving), &items).await?
            }
            _ => break,
        };
        before = step;
    }
    let state = state()?;
    journal.set_fact(DUPLICATES, &state.duplicates.into())?;
    let failed = state.failed;
    let tasks = state.tasks();
    match (failed, tasks.is_empty()) {
        (0, _) => {}
        (_, true) => return Err(nothing_written(journal)?),
        _ => tracing::warn!("{failed} queries could not be had; the same command tries them again"),
    }
    Ok((tasks, ideas.slots()))
}

/// Not one query came about: the error that says why.
fn nothing_written(journal: &Journal) -> Result<RunError, RunError> {
    let failures = journal.failures()?.into_iter();
    let mut ours = failures.filter(|unit| [STAGE, CHECKS].contains(&&*unit.stage));
    let Some(first) = ours.next().map(|unit| unit.failure) else {
        return Ok(RunError::Incomplete("no query was written".to_owned()));
    };
    let text = format!("no task could be written; the first failure: {first}");
    Ok(match first.kind {
        FailureKind::Endpoint => RunError::Endpoint(text),
        FailureKind::Interpreter => RunError::Environment(text),
        _ => RunError::Incomplete(text),
    })
}

/// The fact that counts queries left out as near duplicates.
pub const DUPLICATES: &str = "query_duplicates";

/// What comes next.
#[derive(PartialEq)]
enum Step {
    /// Queries to write, by item.
    Write(Vec<String>),
    /// Tasks whose checks are to be proven.
    Prove(Vec<Task>),
    /// Every slot has come to its end.
    Nothing,
}

/// Where a slot stands.
enum Fate {
    /// A task, proven or in no need of it.
    Done(Box<Task>),
    /// A query of that attempt, without a proof so far.
    Unproven(u32, Box<Task>),
    /// This attempt comes next.
    Next(u32),
    /// Every attempt came to nothing, or one failed through no fault of its own.
    Over,
}

/// What the journal holds of all slots.
struct State<'a> {
    ideas: &'a Ideas,
    fates: Vec<Fate>,
    duplicates: u64,
    failed: u64,
}

impl<'a> State<'a> {
    fn of(
        journal: &Journal,
        ideas: &'a Ideas,
        writer: &WriterChoice,
        generator: &str,
    ) -> Result<Self, RunError> {
        let written = ends(journal, STAGE)?;
        let proofs = ends(journal, CHECKS)?;
        let mut state = Self {
            ideas,
            fates: (0..ideas.slots()).map(|_| Fate::Next(0)).collect(),
            duplicates: 0,
            failed: 0,
        };
        let mut kept = Kept::new(writer);
        // Attempt by attempt: whether a query is a duplicate depends on those of earlier waves, and on
        // earlier slots of its own.
        for attempt in 0..ideas.tries() {
            for slot in 0..ideas.slots() {
                if !matches!(state.fates[slot], Fate::Next(next) if next == attempt) {
                    continue;
                }
                let Some(idea) = ideas.at(slot, attempt) else {
                    continue;
                };
                let after = match attempt + 1 < ideas.tries() {
                    true => Fate::Next(attempt + 1),
                    false => Fate::Over,
                };
                let fate = match written.get(&idea.item) {
                    None => continue,
                    Some(None) => {
                        state.failed += 1;
                        Fate::Over
                    }
                    Some(Some(value)) => match serde_json::from_value::<Written>(value.clone())? {
                        Written::Accepted { draft, place, .. }
                            if !kept.keep(&draft.query, place.as_ref()) =>
                        {
                            state.duplicates += 1;
                            after
                        }
                        Written::Accepted { draft, round, .. } => {
                            let task = Box::new(write::task(&idea, &draft, round, generator));
                            match end_of(
                                *task.clone(),
                                proofs.get(task.id.as_str()),
                                writer.checks,
                            )? {
                                End::Task(task) => Fate::Done(task),
                                End::Unproven => Fate::Unproven(attempt, task),
                                End::Failed => {
                                    state.failed += 1;
                                    Fate::Over
                                }
                                End::NoCheck => after,
                            }
                        }
                        _ => after,
                    },
                };
                state.fates[slot] = fate;
            }
        }
        Ok(state)
    }

    /// All of the earliest attempt that is missing; before it what has to be proven of earlier attempts,
    /// since a slot whose check does not survive joins that wave.
    fn step(&self) -> Step {
        let write = self.fates.iter().filter_map(|fate| match fate {
            Fate::Next(attempt) => Some(*attempt),
            _ => None,
        });
        let prove = self.fates.iter().filter_map(|fate| match fate {
            Fate::Unproven(attempt, _) => Some(*attempt),
            _ => None,
        });
        match (write.min(), prove.min()) {
            (None, None) => Step::Nothing,
            (Some(write), prove) if prove.is_none_or(|prove| write <= prove) => {
                Step::Write(self.wave(write))
            }
            _ => Step::Prove(self.unproven()),
        }
    }

    /// The attempt that comes next in a slot, and whether its query is there and lacks but a proof; `None`
    /// at its end.
    fn next(&self, slot: usize) -> Option<(u32, bool)> {
        match self.fates.get(slot)? {
            Fate::Next(attempt) => Some((*attempt, false)),
            Fate::Unproven(attempt, _) => Some((*attempt, true)),
            Fate::Done(_) | Fate::Over => None,
        }
    }

    fn wave(&self, attempt: u32) -> Vec<String> {
        let slots = self.fates.iter().enumerate();
        let slots = slots.filter(|(_, fate)| matches!(fate, Fate::Next(next) if *next == attempt));
        let ideas = slots.filter_map(|(slot, _)| self.ideas.at(slot, attempt));
        ideas.map(|idea| idea.item).collect()
    }

    fn unproven(&self) -> Vec<Task> {
        let tasks = self.fates.iter().filter_map(|fate| match fate {
            Fate::Unproven(_, task) => Some((**task).clone()),
            _ => None,
        });
        tasks.collect()
    }

    fn tasks(self) -> Vec<Task> {
        let tasks = self.fates.into_iter().filter_map(|fate| match fate {
            Fate::Done(task) => Some(*task),
            _ => None,
        });
        tasks.collect()
    }
}

/// What a proposed check makes of a task.
enum End {
    Task(Box<Task>),
    Unproven,
    Failed,
    /// It needs a check and has none.
    NoCheck,
}

fn end_of(
    mut task: Task,
    proof: Option<&Option<Value>>,
    checks: ProposedChecks,
) -> Result<End, RunError> {
    let value = match (checks, proof) {
        (ProposedChecks::None, _) => return Ok(End::Task(Box::new(task))),
        (_, None) => return Ok(End::Unproven),
        (_, Some(None)) => return Ok(End::Failed),
        (_, Some(Some(value))) => value.clone(),
    };
    Ok(match serde_json::from_value::<Proven>(value)? {
        Proven::Kept {
            reference, checks, ..
        } => {
            (task.reference, task.checks) = (reference, checks);
            task.id = task.compute_id();
            End::Task(Box::new(task))
        }
        Proven::Dropped { .. } if checks == ProposedChecks::Optional => End::Task(Box::new(task)),
        Proven::Dropped { .. } => End::NoCheck,
    })
}

/// Units of a stage that came to an end: their output, `None` of those that failed for good.
fn ends(journal: &Journal, stage: &str) -> Result<HashMap<String, Option<Value>>, RunError> {
    let units = journal.units(stage)?.into_iter();
    let ended = units.filter(|unit| unit.state != UnitState::Pending);
    Ok(ended.map(|unit| (unit.item, unit.output)).collect())
}
