//! Scores of tries: three stages of units, then verdicts by try.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pybench::run::{Failure, RunError, Stage, UnitState};
use pybench::trajectory::{Finding, OutputFile};
use serde::de::DeserializeOwned;

use super::questions::Question;
use super::{Setup, Try};
use crate::eval::score::strict::{self, StrictStage};
use crate::eval::score::unit::{Kind, UnitStage, Verdict};

/// What was found of one try. `None`: the score says nothing of it.
#[derive(Default)]
pub(super) struct Scored {
    pub(super) upstream: Option<Result<Verdict, Failure>>,
    pub(super) fixed: Option<Result<Verdict, Failure>>,
    pub(super) strict: Option<Result<Vec<Finding>, Failure>>,
}

/// Items of one stage by try.
type Items = Vec<Option<String>>;

/// Scores every try that came to an end, in their order.
pub(super) async fn score(
    setup: &Setup,
    questions: &[Question],
    tries: &[Try],
) -> Result<Vec<Scored>, RunError> {
    let strict = strict(setup, questions, tries).await?;
    let upstream = unit(setup, Kind::Upstream, questions, tries).await?;
    let fixed = unit(setup, Kind::Fixed, questions, tries).await?;
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
) -> Result<Vec<Option<Result<Vec<Finding>, Failure>>>, RunError> {
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
    finish(setup, Arc::new(stage), strict::STAGE, items).await
}

async fn unit(
    setup: &Setup,
    kind: Kind,
    questions: &[Question],
    tries: &[Try],
) -> Result<Vec<Option<Result<Verdict, Failure>>>, RunError> {
    let Some(bench) = &setup.bench else {
        return Ok(tries.iter().map(|_| None).collect());
    };
    let (folder, interpreter) = (setup.folder.clone(), setup.interpreter.clone());
    let mut stage = UnitStage::new(kind, folder, interpreter, bench.upstream.clone());
    let beside = beside(tries);
    let mut items: Items = Vec::new();
    for one in tries {
        let question = &questions[one.question];
        let item = match (&one.result, question.index) {
            (Ok(trajectory), Some(index)) if question.published => stage.add(
                index,
                &question.task,
                trajectory,
                &beside[&(one.agent, one.sample)],
            )?,
            _ => None,
        };
        items.push(item);
    }
    finish(setup, Arc::new(stage), kind.stage(), items).await
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

/// Do the items and read what came of them.
async fn finish<T: DeserializeOwned + Clone>(
    setup: &Setup,
    stage: Arc<dyn Stage>,
    name: &str,
    items: Items,
) -> Result<Vec<Option<Result<T, Failure>>>, RunError> {
    let todo: Vec<String> = items.iter().flatten().cloned().collect();
    setup.execute(stage, &todo).await?;
    let mut results: HashMap<String, Result<T, Failure>> = HashMap::new();
    for unit in setup.folder.journal().units(name)? {
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
