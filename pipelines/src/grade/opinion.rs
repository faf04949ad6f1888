//! The language model that judges beside the checks: an opinion, which decides only where the recipe says
//! so, and how far it agrees with what was executed.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use pybench::agent::teacher_failure;
use pybench::id::Digest;
use pybench::run::{Failure, Filter, RunContext, RunError};
use pybench::task::Task;
use pybench::trajectory::{Finding, Opinion, Outcome, Trajectory, Verdict};

use super::filters;
use crate::eval::judge::{FORMAT, Judge};
use crate::eval::stats::{Agreement, agreement};
use crate::rollout::teacher::{Speech, one};

/// A judge and what it may look into.
pub(super) struct Judging {
    judge: Judge,
    stores: Vec<PathBuf>,
    decides: bool,
}

impl Judging {
    /// The judge of the recipe, where it names one.
    pub(super) fn of(context: &RunContext) -> Result<Option<Self>, RunError> {
        let grade = &context.recipe.grade;
        let Some(choice) = &grade.judge else {
            return Ok(None);
        };
        let speech = Speech::plain(FORMAT);
        let teacher = one(context, &choice.teacher, &speech, &Arc::default())?;
        Ok(Some(Self {
            judge: Judge::new(teacher, choice.sees),
            stores: vec![context.folder.root().join("files")],
            decides: grade.filters.contains(&Filter::Judge),
        }))
    }

    /// What it says. Where it does not decide, a judge that cannot be reached is a missing opinion.
    pub(super) async fn opinion(
        &self,
        task: &Task,
        trajectory: &Trajectory,
    ) -> Result<Option<Opinion>, Failure> {
        let said = self
            .judge
            .opinion(&task.query, trajectory, &self.stores)
            .await;
        match said {
            Ok((passed, reason)) => Ok(Some(Opinion {
                judge: self.judge.name().to_owned(),
                passed,
                reason,
            })),
            Err(error) if self.decides => Err(teacher_failure(error)),
            Err(error) => {
                tracing::warn!("no opinion of {}: {error}", trajectory.id.short());
                Ok(None)
            }
        }
    }

    /// What an opinion decides: nothing where the judge only looks on, or abstained and checks decide.
    pub(super) fn finding(&self, task: &Task, opinion: &Opinion) -> Option<Finding> {
        let decided = self
            .decides
            .then(|| decided(opinion, !task.checks.is_empty()));
        decided.flatten()
    }
}

/// What an opinion says of a trajectory. An abstention is no verdict, but where no check decides either,
/// nobody has: the model's own word is no evidence.
fn decided(opinion: &Opinion, checked: bool) -> Option<Finding> {
    let judge = &opinion.judge;
    match (opinion.passed, checked) {
        (Some(true), _) => Some(filters::passed("judge", judge)),
        (Some(false), _) => Some(filters::failed("judge", judge, &opinion.reason)),
        (None, true) => None,
        (None, false) => Some(Finding {
            outcome: Outcome::Unproven,
            ..filters::failed("judge", judge, "it abstained, and the task has no check")
        }),
    }
}

/// How a judge and the checks agree.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeReport {
    /// Who judged.
    pub judge: String,
    /// Trajectories that it says hold, do not hold, and of which it says nothing.
    pub said: [usize; 3],
    /// Agreement with the executed checks, over those with both.
    pub with_checks: Option<Agreement>,
}

/// The report; `None` where nobody judged. Samples of one task are no independent observations.
pub fn judge_report(trajectories: &[Trajectory], verdicts: &[Verdict]) -> Option<JudgeReport> {
    let tasks: std::collections::HashMap<&Digest, &Digest> =
        trajectories.iter().map(|t| (&t.id, &t.task)).collect();
    let mut places = std::collections::HashMap::new();
    let (mut said, mut pairs, mut clusters) = ([0; 3], Vec::new(), Vec::new());
    let mut judge = None;
    for verdict in verdicts {
        let Some(opinion) = &verdict.opinion else {
            continue;
        };
        judge.get_or_insert_with(|| opinion.judge.clone());
        said[match opinion.passed {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        }] += 1;
        let mut checks = verdict
            .findings
            .iter()
            .filter(|f| f.filter == "check")
            .peekable();
        if let (Some(passed), Some(_)) = (opinion.passed, checks.peek()) {
            let next = places.len();
            let task = tasks.get(&verdict.trajectory).copied();
            clusters.push(*places.entry(task).or_insert(next));
            pairs.push((checks.all(|f| f.outcome == Outcome::Pass), passed));
        }
    }
    Some(JudgeReport {
        judge: judge?,
        said,
        with_checks: agreement(&pairs, &clusters),
    })
}

impl fmt::Display for JudgeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [passed, failed, abstained] = self.said;
        let judge = &self.judge;
        write!(
            f,
            "judge {judge}: {passed} pass, {failed} fail, {abstained} abstained"
        )?;
        if let Some(with) = &self.with_checks {
            let (agree, items) = (100.0 * with.agree, with.items);
            write!(f, "; agrees with the checks on {agree:.1} % of {items}")?;
            if let Some(kappa) = with.kappa {
                write!(f, " (kappa {kappa:.2})")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(n: u8, check: Outcome, passed: Option<bool>) -> Verdict {
        let mut finding = filters::passed("check", "table");
        finding.outcome = check;
        Verdict {
            trajectory: Digest::of_bytes(&[n]),
            accepted: check == Outcome::Pass,
            findings: vec![finding],
            opinion: Some(Opinion {
                judge: "j".into(),
                passed,
                reason: String::new(),
            }),
            checker: String::new(),
        }
    }

    #[test]
    fn an_abstention_decides_nothing_and_somebody_has_to() {
        let outcome = |passed, checked| {
            let opinion = verdict(0, Outcome::Pass, passed).opinion.unwrap();
            decided(&opinion, checked).map(|finding| finding.outcome)
        };
        assert_eq!(outcome(None, true), None);
        assert_eq!(outcome(None, false), Some(Outcome::Unproven));
        for checked in [true, false] {
            assert_eq!(outcome(Some(true), checked), Some(Outcome::Pass));
            assert_eq!(outcome(Some(false), checked), Some(Outcome::Fail));
        }
    }

    #[test]
    fn agreement_is_over_what_both_decided() {
        use Outcome::{Fail, Pass, Unproven};
        let verdicts = [
            verdict(0, Pass, Some(true)),
            verdict(1, Fail, Some(false)),
            verdict(2, Unproven, Some(true)),
            verdict(3, Pass, None),
        ];
        let report = judge_report(&[], &verdicts).unwrap();
        assert_eq!(report.said, [2, 1, 1]);
        let text = report.to_string();
        assert!(text.contains("on 66.7 % of 3"), "{text}");
        assert_eq!(judge_report(&[], &[]), None);
    }
}
