//! Tasks and verdicts as a run of the pipeline has them, so that `pybench show` can show an evaluation.

use std::collections::HashSet;

use pybench_run::RunError;
use pybench_run::artifacts::{TASKS, VERDICTS};
use pybench_types::task::Task;
use pybench_types::trajectory::Verdict;

use super::{AgentAttempt, Setup};
use crate::score::strict::passes;
use crate::suite::{AttemptScores, EvalTask};

/// Writes `tasks.jsonl`, and `verdicts.jsonl` with the findings of the strict score.
pub(super) fn write(
    setup: &Setup,
    tasks: &[EvalTask],
    attempts: &[AgentAttempt],
    scores: &[AttemptScores],
) -> Result<(), RunError> {
    let tasks = tasks.iter().map(|eval_task| Ok(eval_task.task.as_ref()));
    TASKS.write::<&Task>(&setup.folder, tasks)?;
    let checker = setup.checker.digest();
    // Identical attempts have one trajectory.
    let mut seen = HashSet::new();
    let verdicts = attempts.iter().zip(scores).filter_map(|(attempt, scores)| {
        let trajectory = attempt.result.as_ref().ok()?;
        let findings = scores.strict.as_ref()?.as_ref().ok()?;
        seen.insert(&trajectory.id).then(|| Verdict {
            trajectory: trajectory.id.clone(),
            findings: findings.clone(),
            accepted: passes(findings),
            opinion: None,
            checker: checker.clone(),
        })
    });
    VERDICTS.write(&setup.folder, verdicts.map(Ok))?;
    Ok(())
}
