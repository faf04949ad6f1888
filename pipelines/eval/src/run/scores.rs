//! Scores attempts in two stages: the strict checks, and the unit tests of `upstream` and `fixed`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pybench_run::{Failure, RunError, Stage, UnitState};
use pybench_types::trajectory::{Finding, OutputFile};
use serde::de::DeserializeOwned;

use super::tasks::EvalTask;
use super::{AgentAttempt, Setup};
use crate::score::strict;
use crate::score::strict::StrictStage;
use crate::score::unit;
use crate::score::unit::{UnitTestKind, UnitTestStage, UnitTestVerdict};

/// Results of one attempt; `None` if a score does not apply to it.
#[derive(Default)]
pub(super) struct AttemptScores {
    pub(super) upstream: Option<Result<UnitTestVerdict, Failure>>,
    pub(super) fixed: Option<Result<UnitTestVerdict, Failure>>,
    pub(super) strict: Option<Result<Vec<Finding>, Failure>>,
}

/// The item of each attempt in a stage, if it has one.
type Items = Vec<Option<String>>;

/// The result of each attempt in a stage, if it has one.
type StageResults<T> = Vec<Option<Result<T, Failure>>>;

/// Scores all attempts that ran; the results are in the order of `attempts`.
pub(super) async fn score(
    setup: &Setup,
    tasks: &[EvalTask],
    attempts: &[AgentAttempt],
) -> Result<Vec<AttemptScores>, RunError> {
    let strict = strict_results(setup, tasks, attempts).await?;
    let [upstream, fixed] = unit_test_results(setup, tasks, attempts).await?;
    let all = strict.into_iter().zip(upstream).zip(fixed);
    Ok(all
        .map(|((strict, upstream), fixed)| AttemptScores {
            upstream,
            fixed,
            strict,
        })
        .collect())
}

async fn strict_results(
    setup: &Setup,
    tasks: &[EvalTask],
    attempts: &[AgentAttempt],
) -> Result<StageResults<Vec<Finding>>, RunError> {
    let mut stage = StrictStage::new(setup.folder.clone(), setup.checker.clone());
    let mut items: Items = Vec::new();
    for attempt in attempts {
        let eval_task = &tasks[attempt.task];
        let item = match &attempt.result {
            Ok(trajectory) if eval_task.headline.counts => {
                Some(stage.add(eval_task.task.clone(), trajectory.clone()))
            }
            _ => None,
        };
        items.push(item);
    }
    execute(setup, Arc::new(stage), items.iter()).await?;
    results(setup, strict::STAGE, items)
}

/// Results of upstream's tests: unchanged, and repaired.
async fn unit_test_results(
    setup: &Setup,
    tasks: &[EvalTask],
    attempts: &[AgentAttempt],
) -> Result<[StageResults<UnitTestVerdict>; 2], RunError> {
    let nothing = || attempts.iter().map(|_| None).collect();
    let Some(suite) = &setup.suite else {
        return Ok([nothing(), nothing()]);
    };
    let (folder, interpreter) = (setup.folder.clone(), setup.interpreter.clone());
    let mut stage = UnitTestStage::new(folder, interpreter, suite.upstream.clone());
    let shared = shared_outputs(attempts);
    let mut items: [Items; 2] = [Vec::new(), Vec::new()];
    for attempt in attempts {
        let eval_task = &tasks[attempt.task];
        let outputs = &shared[&(attempt.agent, attempt.sample)];
        for (kind, items) in [UnitTestKind::Upstream, UnitTestKind::Fixed]
            .into_iter()
            .zip(&mut items)
        {
            let item = match (&attempt.result, eval_task.index) {
                (Ok(trajectory), Some(index)) if eval_task.published => {
                    stage.add(kind, index, &eval_task.task, trajectory, outputs)?
                }
                _ => None,
            };
            items.push(item);
        }
    }
    execute(setup, Arc::new(stage), items.iter().flatten()).await?;
    let [upstream, fixed] = items;
    let of = |items| results(setup, unit::STAGE, items);
    Ok([of(upstream)?, of(fixed)?])
}

/// The outputs of each agent and sample over all tasks. Upstream has one output folder for all tasks, in which
/// later tasks overwrite files of earlier ones.
fn shared_outputs(
    attempts: &[AgentAttempt],
) -> HashMap<(usize, u32), BTreeMap<String, OutputFile>> {
    let mut shared: HashMap<_, BTreeMap<_, _>> = HashMap::new();
    for attempt in attempts {
        let files = shared.entry((attempt.agent, attempt.sample)).or_default();
        for file in attempt
            .result
            .iter()
            .flat_map(|trajectory| &trajectory.outputs)
        {
            files.insert(file.path.clone(), file.clone());
        }
    }
    shared
}

/// Runs the items that are not done yet.
async fn execute(
    setup: &Setup,
    stage: Arc<dyn Stage>,
    items: impl Iterator<Item = &Option<String>>,
) -> Result<(), RunError> {
    let todo: Vec<String> = items.flatten().cloned().collect();
    setup.execute(stage, &todo).await
}

/// Reads the results of the items from the journal.
fn results<T: DeserializeOwned + Clone>(
    setup: &Setup,
    stage: &str,
    items: Items,
) -> Result<StageResults<T>, RunError> {
    let mut by_item: HashMap<String, Result<T, Failure>> = HashMap::new();
    for unit in setup.folder.journal().units(stage)? {
        let result = match (unit.state, unit.output, unit.failure) {
            (UnitState::Done, Some(output), _) => Ok(serde_json::from_value(output)?),
            (_, _, Some(failure)) => Err(failure),
            _ => continue,
        };
        by_item.insert(unit.item, result);
    }
    // Identical attempts share an item.
    let result = |item: Option<String>| item.and_then(|item| by_item.get(&item).cloned());
    Ok(items.into_iter().map(result).collect())
}
