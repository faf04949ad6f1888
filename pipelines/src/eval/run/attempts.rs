//! Records of tries.

use std::path::Path;

use pybench::run::{ContentStore, Failure, RunError};
use pybench::trajectory::{Outcome as Found, OutputFile, Trajectory};
use pybench_datasets::row::category_name;

use super::agents::Member;
use super::questions::{Asked, Question};
use super::scores::Scored;
use super::{Setup, Try};
use crate::eval::bench::SUITE;
use crate::eval::record::{Attempt, Check, Headline, MOST_CHECKS, Outcome, Score, Scores};
use crate::eval::score::strict::passes;
use crate::eval::score::unit::Verdict;

/// A record for every try, and for every agent one of each task that could not be run.
pub(super) fn attempts(
    setup: &Setup,
    asked: &Asked,
    members: &[Member],
    tries: &[Try],
    scored: Vec<Scored>,
) -> Result<Vec<Attempt>, RunError> {
    let mut attempts = Vec::new();
    for (one, scored) in tries.iter().zip(scored) {
        let (question, member) = (&asked.questions[one.question], &members[one.agent]);
        attempts.push(attempt(setup, question, member, one, scored)?);
    }
    for member in members {
        attempts.extend(asked.absent.iter().map(|absent| Attempt {
            suite: SUITE.to_owned(),
            task: absent.name.clone(),
            category: category_name(absent.category).to_owned(),
            outcome: Outcome::NotRun {
                reason: absent.reason.clone(),
            },
            headline: Headline {
                counts: false,
                reason: Some(absent.reason.clone()),
            },
            prompt: absent.prompt.clone(),
            ..blank(member)
        }));
    }
    Ok(attempts)
}

fn attempt(
    setup: &Setup,
    question: &Question,
    member: &Member,
    one: &Try,
    scored: Scored,
) -> Result<Attempt, RunError> {
    let (task, store) = (&question.task, setup.folder.store());
    let inputs = task.files.iter().map(|file| OutputFile {
        path: format!("data/{}", file.name),
        size: size(&store.path(&file.id)),
        id: file.id.clone(),
    });
    let about = Attempt {
        suite: question.suite.clone(),
        task: question.name.clone(),
        category: category_name(task.category).to_owned(),
        clusters: task.files.iter().map(|file| file.id.clone()).collect(),
        seed: one.sample.into(),
        headline: question.headline.clone(),
        seconds: one.seconds,
        prompt: task.query.clone(),
        inputs: inputs.collect(),
        ..blank(member)
    };
    let failed = |failure: &Failure, what: &str| Outcome::Infrastructure {
        failure: format!("{what}: {failure}"),
    };
    let trajectory = match &one.result {
        Ok(trajectory) => trajectory,
        Err(failure) => {
            return Ok(Attempt {
                outcome: failed(failure, "rollout"),
                ..about
            });
        }
    };
    let ran = Attempt {
        turns: u32::try_from(trajectory.turns.len()).unwrap_or(u32::MAX),
        tokens_in: trajectory.usage().prompt_tokens,
        tokens_out: trajectory.usage().completion_tokens,
        micro_usd: member
            .price
            .map_or(0, |price| price.micro_usd(trajectory.usage())),
        outputs: trajectory.outputs.clone(),
        trajectory: Some(kept(trajectory, store)?),
        ..about
    };
    let failure = [
        (
            "strict",
            scored.strict.as_ref().and_then(|one| one.as_ref().err()),
        ),
        (
            "upstream",
            scored.upstream.as_ref().and_then(|one| one.as_ref().err()),
        ),
        (
            "fixed",
            scored.fixed.as_ref().and_then(|one| one.as_ref().err()),
        ),
    ];
    let failure = failure
        .into_iter()
        .find_map(|(what, failure)| Some((what, failure?)));
    if let Some((what, failure)) = failure {
        let outcome = failed(failure, what);
        return Ok(Attempt { outcome, ..ran });
    }
    Ok(with_scores(ran, scored))
}

fn with_scores(attempt: Attempt, scored: Scored) -> Attempt {
    let mut checks = Vec::new();
    let mut unit = |score: Score, verdict: Option<Result<Verdict, Failure>>| {
        let verdict = verdict?.ok()?;
        let name = format!("test_task_{}", attempt.task);
        checks.push(Check::new(
            score,
            &name,
            verdict.passed,
            "it returns",
            &verdict.detail,
        ));
        Some(verdict.passed)
    };
    let upstream = unit(Score::Upstream, scored.upstream);
    let fixed = unit(Score::Fixed, scored.fixed);
    let findings = scored.strict.and_then(Result::ok);
    let strict = findings.as_deref().map(passes);
    for finding in findings.into_iter().flatten() {
        let passed = finding.outcome == Found::Pass;
        let expected = if passed { "" } else { "the check holds" };
        let name = format!("{} {}", finding.filter, finding.subject);
        checks.push(Check::new(
            Score::Strict,
            &name,
            passed,
            expected,
            &finding.detail,
        ));
    }
    checks.truncate(MOST_CHECKS);
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

/// A record that says nothing yet.
fn blank(member: &Member) -> Attempt {
    Attempt {
        agent: member.label.clone(),
        suite: String::new(),
        task: String::new(),
        category: String::new(),
        clusters: Vec::new(),
        seed: 0,
        outcome: Outcome::Ran,
        scores: Scores::default(),
        headline: Headline::default(),
        checks: Vec::new(),
        judgement: None,
        turns: 0,
        max_turns: member.how.max_turns,
        tokens_in: 0,
        tokens_out: 0,
        micro_usd: 0,
        seconds: 0.0,
        prompt: String::new(),
        inputs: Vec::new(),
        trajectory: None,
        outputs: Vec::new(),
    }
}

fn kept(trajectory: &Trajectory, store: &ContentStore) -> Result<OutputFile, RunError> {
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
