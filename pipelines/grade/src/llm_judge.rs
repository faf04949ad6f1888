//! The LLM judge of the grade stage. Its opinion is recorded with the verdict; it decides only if the recipe
//! lists the `judge` filter. Also reports the agreement of the judge with the executed checks.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use pybench_agent::chat_failure;
use pybench_checks::selection::TrajectoryFeatures;
use pybench_run::{ContentStore, Failure, FailureKind, Filter, FoldedLog, RunContext, RunError};
use pybench_types::id::CompactDigest;
use pybench_types::task::Task;
use pybench_types::trajectory::{Finding, Opinion, Outcome, Trajectory, Verdict};

use super::filters;
use pybench_attempts::request_options::RequestOptions;
use pybench_attempts::teacher::chat_model;
use pybench_checks::agreement::{Agreement, agreement};
use pybench_checks::judge::{FORMAT, Judge};

/// The judge of a run, the stores of output files, and whether its opinion decides.
pub(super) struct LlmJudge {
    judge: Judge,
    stores: Vec<PathBuf>,
    files: ContentStore,
    decides: bool,
    /// Trajectories without an opinion.
    failures: FoldedLog,
}

impl LlmJudge {
    /// The judge of the recipe; `None` if the recipe has none.
    ///
    /// # Errors
    /// Errors of building the model.
    pub(super) fn of(context: &RunContext) -> Result<Option<Self>, RunError> {
        let grade = &context.recipe.grade;
        let Some(choice) = &grade.judge else {
            return Ok(None);
        };
        let request_options = RequestOptions::plain(FORMAT);
        let teacher = chat_model(context, &choice.teacher, &request_options, &Arc::default())?;
        Ok(Some(Self {
            judge: Judge::new(teacher, choice.sees, context.interrupt.clone()),
            stores: vec![context.folder.root().join("files")],
            files: context.folder.store().clone(),
            decides: grade.filters.contains(&Filter::Judge),
            failures: FoldedLog::new("grade: the judge gave no opinion"),
        }))
    }

    /// The opinion on a trajectory. If the judge does not decide and cannot be reached, there is none.
    ///
    /// # Errors
    /// Failures of the model, if the judge decides; outages; [`FailureKind::Deferred`] if Ctrl-C ended a wait.
    pub(super) async fn opinion(
        &self,
        task: &Task,
        trajectory: &Trajectory,
    ) -> Result<Option<Opinion>, Failure> {
        // Another machine may have made them.
        for file in &trajectory.outputs {
            self.files.checked_path(&file.id)?;
        }
        let reply = self
            .judge
            .opinion(&task.query, trajectory, &self.stores)
            .await;
        match reply {
            Ok((passed, reason)) => Ok(Some(Opinion {
                judge: self.judge.name().to_owned(),
                passed,
                reason,
            })),
            Err(error) => {
                let failure = chat_failure(error);
                if fails_unit(&failure, self.decides) {
                    return Err(failure);
                }
                if self.failures.is_new(&failure.detail) {
                    tracing::warn!(
                        "the judge gave no opinion on {}: {failure}",
                        trajectory.id.short()
                    );
                }
                Ok(None)
            }
        }
    }

    /// The finding of an opinion; `None` if the judge does not decide, or abstained on a task with checks.
    pub(super) fn finding(&self, task: &Task, opinion: &Opinion) -> Option<Finding> {
        let decided = self
            .decides
            .then(|| decided(opinion, !task.checks.is_empty()));
        decided.flatten()
    }
}

/// Whether the unit fails if the judge gave no opinion. Neither an outage nor Ctrl-C may decide whether a verdict has one.
fn fails_unit(failure: &Failure, decides: bool) -> bool {
    decides || failure.outage || failure.kind == FailureKind::Deferred
}

/// The finding of a judge that decides. An abstention is not a verdict; without a check, it leaves the
/// trajectory unproven.
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

/// The agreement of the judge with the checks.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeReport {
    pub judge: String,
    /// Number of trajectories that the judge passed, failed, and abstained on.
    pub counts: [usize; 3],
    /// Agreement with the executed checks, over trajectories with both.
    pub with_checks: Option<Agreement>,
}

/// Counts the opinions of a run for the report. Samples of one task count as one cluster, because they are not
/// independent.
#[derive(Clone, Debug, Default)]
pub struct JudgeTally {
    judge: Option<String>,
    counts: [usize; 3],
    /// For each trajectory with both: whether the checks and the judge pass it, and its cluster.
    pairs: Vec<(bool, bool)>,
    clusters: Vec<usize>,
    cluster_of_task: HashMap<Option<CompactDigest>, usize>,
}

impl JudgeTally {
    /// Adds the verdict of a trajectory.
    pub fn add(&mut self, trajectory: Option<&TrajectoryFeatures>, verdict: &Verdict) {
        let Some(opinion) = &verdict.opinion else {
            return;
        };
        self.judge.get_or_insert_with(|| opinion.judge.clone());
        self.counts[match opinion.passed {
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
            let next = self.cluster_of_task.len();
            let task = trajectory.map(|trajectory| trajectory.task);
            let cluster = *self.cluster_of_task.entry(task).or_insert(next);
            self.clusters.push(cluster);
            self.pairs
                .push((checks.all(|f| f.outcome == Outcome::Pass), passed));
        }
    }

    /// The report; `None` without a judge.
    pub fn report(self) -> Option<JudgeReport> {
        Some(JudgeReport {
            judge: self.judge?,
            counts: self.counts,
            with_checks: agreement(&self.pairs, &self.clusters),
        })
    }
}

impl fmt::Display for JudgeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [passed, failed, abstained] = self.counts;
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
    use pybench_types::id::Digest;

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
    fn an_outage_fails_the_unit_of_a_judge_that_does_not_decide() {
        let unreachable = Failure::new(FailureKind::Endpoint, "connection: refused");
        assert!(!fails_unit(&unreachable, false));
        assert!(fails_unit(&unreachable, true));
        let deferred = Failure::new(FailureKind::Deferred, "interrupted");
        for failure in [Failure::of_outage("the journal is away"), deferred] {
            assert!(fails_unit(&failure, false), "{failure}");
        }
    }

    #[test]
    fn agreement_covers_trajectories_that_both_decided() {
        use Outcome::{Fail, Pass, Unproven};
        let verdicts = [
            verdict(0, Pass, Some(true)),
            verdict(1, Fail, Some(false)),
            verdict(2, Unproven, Some(true)),
            verdict(3, Pass, None),
        ];
        let mut tally = JudgeTally::default();
        verdicts.iter().for_each(|verdict| tally.add(None, verdict));
        let report = tally.report().unwrap();
        assert_eq!(report.counts, [2, 1, 1]);
        let text = report.to_string();
        assert!(text.contains("on 66.7 % of 3"), "{text}");
        assert_eq!(JudgeTally::default().report(), None);
    }
}
