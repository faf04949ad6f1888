//! Runs the paper's LLM judge on an evaluation: pass or fail for each attempt, and optionally win, tie or
//! lose against another agent's attempt, judged in both orders.
//!
//! Verdicts are reported next to the scores and never change them. An abstention is a missing value, and
//! so is a call that failed.

pub mod calibrate;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use futures::StreamExt;
use pybench_checks::judge::{Case, Judge};
use pybench_llm::ChatError;
use pybench_profile::preview::Store;
use pybench_types::trajectory::Trajectory;

pub use calibrate::{Calibration, Labels, calibrate};

use super::record::{Attempt, Duel, Evaluation, Judgment};

/// Maximum size of a trajectory file, in bytes.
const MAX_TRAJECTORY: u64 = 32 << 20;

#[derive(Clone, Debug, Default)]
pub struct JudgeOptions {
    /// Label of the agent to compare the others with.
    pub against: Option<String>,
    /// Concurrent judge calls.
    pub concurrency: usize,
}

/// Number of verdicts, abstentions and failed calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct JudgeCounts {
    /// Attempts with a verdict.
    pub judged: usize,
    /// Attempts on which the judge abstained.
    pub abstained: usize,
    /// Failed calls, by kind of failure.
    pub failures: BTreeMap<String, usize>,
}

/// Judges every attempt that ran and has no verdict of this judge yet, and compares it with the attempt of
/// `options.against` if set. Verdicts whose call fails stay missing. No other field of a record changes.
pub async fn judge(
    evaluation: &Evaluation,
    stores: &[PathBuf],
    judge: &Judge,
    options: &JudgeOptions,
) -> (Evaluation, JudgeCounts) {
    let counts = Mutex::new(JudgeCounts::default());
    let judged = futures::stream::iter(&evaluation.attempts)
        .map(|attempt| judge_one(attempt, evaluation, stores, judge, options, &counts))
        .buffered(options.concurrency.max(1))
        .collect::<Vec<_>>()
        .await;
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    (
        Evaluation::new(evaluation.fingerprint.clone(), judged),
        counts,
    )
}

async fn judge_one(
    attempt: &Attempt,
    evaluation: &Evaluation,
    stores: &[PathBuf],
    judge: &Judge,
    options: &JudgeOptions,
    counts: &Mutex<JudgeCounts>,
) -> Attempt {
    let mut attempt = attempt.clone();
    let name = judge.name();
    // Drop verdicts of another judge model or of other prompts.
    let same = |j: &Judgment| j.judge == name && j.prompts == judge.prompts();
    attempt.judgment = attempt.judgment.take().filter(same);
    if !attempt.ran() {
        return attempt;
    }
    let case = |of: &Attempt| case_of(of, &mut Store::new(stores, PathBuf::new()), judge.sees);
    let own = case(&attempt);
    let opponent = opponent(&attempt, evaluation, options);
    if attempt.judgment.is_none() {
        match judge.passed(&own).await {
            Ok((passed, reason)) => {
                attempt.judgment = Some(Judgment {
                    judge: name.to_owned(),
                    prompts: judge.prompts(),
                    passed,
                    reason,
                    duels: BTreeMap::new(),
                });
            }
            Err(error) => failed(counts, &error),
        }
    }
    if let Some(judgment) = &mut attempt.judgment {
        let fresh = |other: &&Attempt| !judgment.duels.contains_key(&other.agent);
        if let Some(other) = opponent.filter(fresh) {
            match duel(judge, &own, &case(other)).await {
                Ok(duel) => {
                    judgment.duels.insert(other.agent.clone(), duel);
                }
                Err(error) => failed(counts, &error),
            }
        }
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        match judgment.passed {
            Some(_) => counts.judged += 1,
            None => counts.abstained += 1,
        }
    }
    attempt
}

fn failed(counts: &Mutex<JudgeCounts>, error: &ChatError) {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    *counts.failures.entry(error.kind().to_owned()).or_default() += 1;
}

/// The attempt of `options.against` at the same task: the one with the same seed, else the first.
fn opponent<'a>(
    attempt: &Attempt,
    evaluation: &'a Evaluation,
    options: &JudgeOptions,
) -> Option<&'a Attempt> {
    let label = options
        .against
        .as_ref()
        .filter(|label| **label != attempt.agent)?;
    let same = |a: &&Attempt| {
        a.agent == *label && a.suite == attempt.suite && a.task == attempt.task && a.ran()
    };
    let others = evaluation.attempts.iter().filter(same);
    others
        .clone()
        .find(|a| a.seed == attempt.seed)
        .or(others.clone().next())
}

/// What the judge is shown of an attempt; images only if `sees` is set.
fn case_of(attempt: &Attempt, store: &mut Store<'_>, sees: bool) -> Case {
    let trajectory = attempt.trajectory.as_ref();
    let trajectory = trajectory.map_or(Err("there is none".to_owned()), |file| {
        let bytes = store.read_verified(file, MAX_TRAJECTORY)?;
        serde_json::from_slice::<Trajectory>(&bytes).map_err(|error| error.to_string())
    });
    Case::new(&attempt.prompt, trajectory, &attempt.outputs, store, sees)
}

/// Compares two attempts in both orders; an attempt wins if it is preferred in both.
async fn duel(judge: &Judge, own: &Case, other: &Case) -> Result<Duel, ChatError> {
    let preferences = judge.preferences(own, other).await?;
    Ok(match (preferences.0.as_deref(), preferences.1.as_deref()) {
        (Some("A"), Some("B")) => Duel::Win,
        (Some("B"), Some("A")) => Duel::Lose,
        (Some("A" | "B" | "TIE"), Some("A" | "B" | "TIE")) => Duel::Tie,
        _ => Duel::Abstained,
    })
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
