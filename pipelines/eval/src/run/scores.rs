//! Scores attempts: each suite its own, the tasks of a library by their checks.

use pybench_run::RunError;

use super::{AgentAttempt, Setup};
use crate::score::strict;
use crate::suite::{AttemptScores, EvalTask, SuiteAttempt};

/// Scores all attempts that ran; the results are in the order of `attempts`.
pub(super) async fn score(
    setup: &Setup,
    tasks: &[EvalTask],
    attempts: &[AgentAttempt],
) -> Result<Vec<AttemptScores>, RunError> {
    let env = setup.env();
    let mut scores: Vec<_> = attempts.iter().map(|_| AttemptScores::default()).collect();
    let of = |keep: &dyn Fn(&str) -> bool| -> (Vec<usize>, Vec<SuiteAttempt<'_>>) {
        let kept = attempts.iter().enumerate();
        let kept = kept.filter(|(_, attempt)| keep(&tasks[attempt.task].suite));
        kept.map(|(at, attempt)| (at, attempt.at(tasks))).unzip()
    };
    for suite in &setup.suites {
        let (places, attempts) = of(&|name| name == suite.name());
        for (at, one) in places.iter().zip(suite.score(&env, &attempts).await?) {
            scores[*at] = one;
        }
    }
    let (places, attempts) = of(&|name| setup.suites.iter().all(|suite| suite.name() != name));
    for (at, strict) in places.iter().zip(strict::check(&env, &attempts).await?) {
        scores[*at].strict = strict;
    }
    Ok(scores)
}

impl AgentAttempt {
    fn at<'a>(&'a self, tasks: &'a [EvalTask]) -> SuiteAttempt<'a> {
        SuiteAttempt {
            task: &tasks[self.task],
            agent: self.agent,
            sample: self.sample,
            trajectory: self.result.as_ref().ok(),
        }
    }
}
