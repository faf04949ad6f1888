//! Scores of tries: two stages of units, then verdicts by try.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pybench::run::{Failure, RunError, Stage, UnitState};
use pybench::trajectory::{Finding, OutputFile};
use serde::de::DeserializeOwned;

use super::questions::Question;
use super::{Setup, Try};
use crate::eval::score::strict::{self, StrictStage};
use crate::eval::score::unit::{self, Kind, UnitStage, Verdict};

/// What was found of one try. `None`: the score says nothing of it.
#[derive(Default)]
pub(super) struct Scored {
    pub(super) upstream: Option<Result<Verdict, Failure>>,
    pub(super) fixed: Option<Result<Verdict, Failure>>,
    pub(super) strict: Option<Result<Vec<Finding>, Failure>>,
}

/// Items of one stage by try.
type Items = Vec<Option<String>>;

/// What came of them, by try.
type Found<T> = Vec<Option<Result<T, Failure>>>;

/// Scores every try that came to an end, in their order.
pub(super) async fn score(
    setup: &Setup,
    questions: &[Question],
    tries: &[Try],
) -> Result<Vec<Scored>, RunError> {
    let strict = strict(setup, questions, tries).await?;
    let [upstream, fixed] = units(setup, questions, tries).await?;
    let all = strict.into_iter().zip(upstream).zip(fixed);
    Ok(all
        .map(|((strict, upstream), fixed)| Scored {
            upstream,
            fixed,
            strict,
        })
        .collect())
}

async fn strict(
    setup: &Setup,
    questions: &[Question],
    tries: &[Try],
) -> Result<Found<Vec<Finding>>, RunError> {
    let mut stage = StrictStage::new(setup.folder.clone(), setup.checker.clone());
    let mut items: Items = Vec::new();
    for one in tries {
        let question = &questions[one.question];
        let item = match &one.result {
            Ok(trajectory) if question.headline.counts => {
                Some(stage.add(question.task.clone(), trajectory.clone()))
            }
            _ => None,
        };
        items.push(item);
    }
    execute(setup, Arc::new(stage), items.iter()).await?;
    found(setup, strict::STAGE, items)
}

/// Upstream's tests as they are, and repaired.
async fn units(
    setup: &Setup,
    questions: &[Question],
    tries: &[Try],
) -> Result<[Found<Verdict>; 2], RunError> {
    let nothing = || tries.iter().map(|_| None).collect();
    let Some(bench) = &setup.bench else {
        return Ok([nothing(), nothing()]);
    };
    let (folder, interpreter) = (setup.folder.clone(), setup.interpreter.clone());
    let mut stage = UnitStage::new(folder, interpreter, bench.upstream.clone());
    let beside = beside(tries);
    let mut items: [Items; 2] = [Vec::new(), Vec::new()];
    for one in tries {
        let question = &questions[one.question];
        let others = &beside[&(one.agent, one.sample)];
        for (kind, items) in [Kind::Upstream, Kind::Fixed].into_iter().zip(&mut items) {
            let item = match (&one.result, question.index) {
                (Ok(trajectory), Some(index)) if question.published => {
                    stage.add(kind, index, &question.task, trajectory, others)?
                }
                _ => None,
            };
            items.push(item);
        }
    }
    execute(setup, Arc::new(stage), items.iter().flatten()).await?;
    let [upstream, fixed] = items;
    let of = |items| found(setup, unit::STAGE, items);
    Ok([of(upstream)?, of(fixed)?])
}

/// What each agent left in each round of tries: upstream has one folder for all tasks, in which the later
/// task wins.
fn beside(tries: &[Try]) -> HashMap<(usize, u32), BTreeMap<String, OutputFile>> {
    let mut beside: HashMap<_, BTreeMap<_, _>> = HashMap::new();
    for one in tries {
        let files = beside.entry((one.agent, one.sample)).or_default();
        for file in one.result.iter().flat_map(|trajectory| &trajectory.outputs) {
            files.insert(file.path.clone(), file.clone());
        }
    }
    beside
}

/// Do the items that are not done yet.
async fn execute(
    setup: &Setup,
    stage: Arc<dyn Stage>,
    items: impl Iterator<Item = &Option<String>>,
) -> Result<(), RunError> {
    let todo: Vec<String> = items.flatten().cloned().collect();
    setup.execute(stage, &todo).await
}

/// What came of the items.
fn found<T: DeserializeOwned + Clone>(
    setup: &Setup,
    stage: &str,
    items: Items,
) -> Result<Found<T>, RunError> {
    let mut results: HashMap<String, Result<T, Failure>> = HashMap::new();
    for unit in setup.folder.journal().units(stage)? {
        let result = match (unit.state, unit.output, unit.failure) {
            (UnitState::Done, Some(output), _) => Ok(serde_json::from_value(output)?),
            (_, _, Some(failure)) => Err(failure),
            _ => continue,
        };
        results.insert(unit.item, result);
    }
    // Equal attempts share an item.
    let found = |item: Option<String>| item.and_then(|item| results.get(&item).cloned());
    Ok(items.into_iter().map(found).collect())
}
