//! Makes the records of an evaluation.

use std::path::Path;

use pybench_run::{ContentStore, Failure, RunError};
use pybench_types::trajectory::{Finding, Outcome as FindingOutcome, OutputFile, Trajectory};

use super::agents::AgentSpec;
use super::tasks::keyword;
use super::{AgentAttempt, Setup};
use crate::record::{Attempt, Check, Headline, MAX_CHECKS, Outcome, Score, Scores};
use crate::score::strict::passes;
use crate::suite::{AttemptScores, EvalTask, ScoreVerdict, TaskList, UnavailableTask};

/// Makes a record for every attempt, and for every agent a record of each task that could not be run.
pub(super) fn records(
    setup: &Setup,
    tasks: &TaskList,
    specs: &[AgentSpec],
    attempts: &[AgentAttempt],
    scores: Vec<AttemptScores>,
) -> Result<Vec<Attempt>, RunError> {
    let mut records = Vec::new();
    for (attempt, scores) in attempts.iter().zip(scores) {
        let (eval_task, spec) = (&tasks.available[attempt.task], &specs[attempt.agent]);
        records.push(record(setup, eval_task, spec, attempt, scores)?);
    }
    for spec in specs {
        records.extend(tasks.unavailable.iter().map(|unavailable| {
            let UnavailableTask {
                suite,
                name,
                category,
                prompt,
                reason,
            } = unavailable;
            let not_run = Outcome::NotRun {
                reason: reason.clone(),
            };
            let headline = Headline {
                counts: false,
                reason: Some(reason.clone()),
            };
            Attempt {
                headline,
                ..blank(spec, (suite, name, category), prompt, not_run)
            }
        }));
    }
    Ok(records)
}

fn record(
    setup: &Setup,
    eval_task: &EvalTask,
    spec: &AgentSpec,
    attempt: &AgentAttempt,
    scores: AttemptScores,
) -> Result<Attempt, RunError> {
    let (task, store) = (&eval_task.task, setup.folder.store());
    let inputs = task.files.iter().map(|file| {
        Ok(OutputFile {
            path: format!("data/{}", file.name),
            size: size(&store.checked_path(&file.id)?),
            id: file.id.clone(),
        })
    });
    let base = Attempt {
        clusters: task.files.iter().map(|file| file.id.clone()).collect(),
        seed: attempt.sample.into(),
        headline: eval_task.headline.clone(),
        keyword: keyword(eval_task),
        seconds: attempt.seconds,
        inputs: inputs.collect::<Result<_, RunError>>()?,
        ..blank(
            spec,
            (&eval_task.suite, &eval_task.name, &eval_task.category),
            &task.query,
            Outcome::Ran,
        )
    };
    let failed = |failure: &Failure, what: &str| Outcome::Infrastructure {
        failure: format!("{what}: {failure}"),
    };
    let trajectory = match &attempt.result {
        Ok(trajectory) => trajectory,
        Err(failure) => {
            return Ok(Attempt {
                outcome: failed(failure, "rollout"),
                ..base
            });
        }
    };
    let ran = Attempt {
        turns: u32::try_from(trajectory.turns.len()).unwrap_or(u32::MAX),
        ended_early: trajectory.end.is_early(),
        tokens_in: trajectory.usage().prompt_tokens,
        tokens_out: trajectory.usage().completion_tokens,
        micro_usd: spec.price.map(|price| price.micro_usd(trajectory.usage())),
        outputs: trajectory.outputs.clone(),
        trajectory: Some(store_trajectory(trajectory, store)?),
        ..base
    };
    let failure = [
        (
            "strict",
            scores.strict.as_ref().and_then(|one| one.as_ref().err()),
        ),
        (
            "upstream",
            scores.upstream.as_ref().and_then(|one| one.as_ref().err()),
        ),
        (
            "fixed",
            scores.fixed.as_ref().and_then(|one| one.as_ref().err()),
        ),
    ];
    let failure = failure
        .into_iter()
        .find_map(|(what, failure)| Some((what, failure?)));
    if let Some((what, failure)) = failure {
        let outcome = failed(failure, what);
        return Ok(Attempt { outcome, ..ran });
    }
    Ok(with_scores(ran, scores))
}

fn with_scores(attempt: Attempt, results: AttemptScores) -> Attempt {
    let mut checks = Vec::new();
    let mut unit = |score: Score, verdict: Option<Result<ScoreVerdict, Failure>>| {
        let verdict = verdict?.ok()?;
        checks.push(Check::new(
            score,
            &verdict.check,
            verdict.passed,
            &verdict.expected,
            &verdict.found,
        ));
        Some(verdict.passed)
    };
    let upstream = unit(Score::Upstream, results.upstream);
    let fixed = unit(Score::Fixed, results.fixed);
    let findings = results.strict.and_then(Result::ok);
    // What is decidable of a judged task is shown and does not count.
    let strict = findings
        .as_deref()
        .map(passes)
        .filter(|_| attempt.headline.counts);
    for finding in findings.into_iter().flatten() {
        let passed = finding.outcome == FindingOutcome::Pass;
        let name = check_name(&finding);
        let (expected, actual) = match &finding.mismatch {
            Some(values) => (&*values.expected, &*values.found),
            None if passed => ("", &*finding.detail),
            None => ("the check passes", &*finding.detail),
        };
        checks.push(Check::new(Score::Strict, &name, passed, expected, actual));
    }
    checks.truncate(MAX_CHECKS);
    Attempt {
        scores: Scores {
            upstream,
            fixed,
            strict,
        },
        checks,
        ..attempt
    }
}

/// What was checked, and where the values differ. The place usually starts with the path or marker that the subject
/// names.
fn check_name(finding: &Finding) -> String {
    let Finding {
        filter, subject, ..
    } = finding;
    let place = finding.mismatch.as_ref().map_or("", |m| &m.place);
    let place = place.trim_start_matches('`');
    let named = subject.split_once(' ').map_or("", |(_, named)| named);
    let place = place.strip_prefix(named).unwrap_or(place);
    match place.trim_start_matches(['`', ':', ',', ' ']) {
        "" => format!("{filter} {subject}"),
        place => format!("{filter} {subject}: {place}"),
    }
}

/// A record without results, for a task given by suite, name and category.
fn blank(spec: &AgentSpec, place: (&str, &str, &str), prompt: &str, outcome: Outcome) -> Attempt {
    let max_turns = spec.rollout.max_turns;
    Attempt::without_results(&spec.label, place, max_turns, prompt, outcome)
}

/// Writes the trajectory to the content store.
fn store_trajectory(trajectory: &Trajectory, store: &ContentStore) -> Result<OutputFile, RunError> {
    let bytes = serde_json::to_vec(trajectory)?;
    Ok(OutputFile {
        path: "trajectory.json".to_owned(),
        id: store.put(&bytes)?,
        size: bytes.len() as u64,
    })
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_types::trajectory::Mismatch;

    #[test]
    fn the_name_of_a_check_says_where_the_values_differ() {
        let name = |subject: &str, place: Option<&str>| {
            check_name(&Finding {
                filter: "check".to_owned(),
                subject: subject.to_owned(),
                outcome: FindingOutcome::Fail,
                detail: String::new(),
                mismatch: place.map(|place| Mismatch {
                    place: place.to_owned(),
                    expected: "1".to_owned(),
                    found: "2".to_owned(),
                }),
            })
        };
        assert_eq!(name("table output/a.csv", None), "check table output/a.csv");
        let table = name(
            "table output/a.csv",
            Some("output/a.csv: row 3, column price"),
        );
        assert_eq!(table, "check table output/a.csv: row 3, column price");
        let number = name("number IQR", Some("`IQR`"));
        assert_eq!(number, "check number IQR");
        let values = name("values top", Some("`top`: value 2"));
        assert_eq!(values, "check values top: value 2");
        let json = name("json output/a.json", Some("$.median"));
        assert_eq!(json, "check json output/a.json: $.median");
    }
}
