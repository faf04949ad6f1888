//! The three scores of PyBench. They are reported side by side and never combined.
//!
//! | score | decided by | defined in |
//! | --- | --- | --- |
//! | `upstream` | upstream's own test, unchanged; outputs of other tasks are present if it names them | `data/unit_test/tests.py` of the fetched repository |
//! | `fixed` | the same test in isolation, with broken or wrong oracles repaired | the same file, or `pipelines/suites/pybench/fixed.py` if that has the function |
//! | `strict` | executable checks of this project | `pipelines/suites/pybench/tasks/*.toml` and `src/checks/python` |
//!
//! Every test runs in its own sandbox session. Upstream's tests unpickle output files in the process that
//! decides the verdict, so a malicious pickle can make them pass; that is a weakness of upstream's design.
//! `strict` runs candidate code in a session that contains neither the reference nor the checker.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pybench_run::{Failure, RunError};
use pybench_types::trajectory::OutputFile;

use super::PyBench;
use super::unit::{UnitTestKind, UnitTestStage, UnitTestVerdict};
use crate::score::strict;
use crate::suite::{AttemptScores, Items, ScoreVerdict, SuiteAttempt, SuiteEnv};

pub(super) async fn score(
    suite: &PyBench,
    env: &SuiteEnv,
    attempts: &[SuiteAttempt<'_>],
) -> Result<Vec<AttemptScores>, RunError> {
    let strict = strict::check(env, attempts).await?;
    let [upstream, fixed] = unit_tests(suite, env, attempts).await?;
    let all = strict.into_iter().zip(upstream).zip(fixed);
    Ok(all
        .map(|((strict, upstream), fixed)| AttemptScores {
            upstream,
            fixed,
            strict,
        })
        .collect())
}

type Verdicts = Vec<Option<Result<ScoreVerdict, Failure>>>;

/// Results of upstream's tests: unchanged, and repaired.
async fn unit_tests(
    suite: &PyBench,
    env: &SuiteEnv,
    attempts: &[SuiteAttempt<'_>],
) -> Result<[Verdicts; 2], RunError> {
    let (folder, interpreter) = (env.folder.clone(), env.interpreter.clone());
    let mut stage = UnitTestStage::new(folder, interpreter, suite.upstream.clone());
    let shared = shared_outputs(attempts);
    let mut items: [Items; 2] = [Vec::new(), Vec::new()];
    for attempt in attempts {
        let task = attempt.task;
        let outputs = &shared[&(attempt.agent, attempt.sample)];
        let kinds = [UnitTestKind::Upstream, UnitTestKind::Fixed].into_iter();
        for (kind, items) in kinds.zip(&mut items) {
            let item = match (attempt.trajectory, suite.index(&task.task)) {
                (Some(trajectory), Some(index)) if task.published => {
                    stage.add(kind, index, &task.task, trajectory, outputs)?
                }
                _ => None,
            };
            items.push(item);
        }
    }
    let count = attempts.len();
    let results = env.results(Arc::new(stage), items.concat()).await?;
    let results = results.into_iter().zip(attempts.iter().chain(attempts));
    let mut verdicts =
        results.map(|(result, attempt)| result.map(|result| Ok(verdict(attempt, result?))));
    let upstream = verdicts.by_ref().take(count).collect();
    Ok([upstream, verdicts.collect()])
}

fn verdict(attempt: &SuiteAttempt<'_>, result: UnitTestVerdict) -> ScoreVerdict {
    ScoreVerdict {
        check: format!("test_task_{}", attempt.task.name),
        passed: result.passed,
        expected: "the test returns without an exception".to_owned(),
        found: result.detail,
    }
}

/// The outputs of each agent and sample over all tasks. Upstream has one output folder for all tasks, in which
/// later tasks overwrite files of earlier ones.
fn shared_outputs(
    attempts: &[SuiteAttempt<'_>],
) -> HashMap<(usize, u32), BTreeMap<String, OutputFile>> {
    let mut shared: HashMap<_, BTreeMap<_, _>> = HashMap::new();
    for attempt in attempts {
        let files = shared.entry((attempt.agent, attempt.sample)).or_default();
        let outputs = attempt.trajectory.iter().flat_map(|one| &one.outputs);
        files.extend(outputs.map(|file| (file.path.clone(), file.clone())));
    }
    shared
}
