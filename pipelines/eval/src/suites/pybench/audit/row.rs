//! The results of the audit, as data and as a table.

use std::fmt::Write as _;

use pybench_types::trajectory::{Finding, Outcome};
use serde::{Deserialize, Serialize};

use crate::score::strict::passes;
use crate::suites::pybench::spec::TaskSpec;

/// Share of the incorrect solutions that must fail.
const MIN_KILLED_SHARE: f64 = 0.9;
/// Minimum number of incorrect solutions per task.
const MIN_MUTANTS: usize = 5;

/// Audit result of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRow {
    /// Task number.
    pub index: u32,
    /// `headline`, `judge`, `live` or `missing`.
    pub status: String,
    /// Why the task was not audited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Error of the audit itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Result of the audit.
    #[serde(default, rename = "proof", skip_serializing_if = "Option::is_none")]
    pub validation: Option<CheckValidation>,
    /// Wall time in seconds.
    #[serde(default)]
    pub seconds: f64,
}

/// How the checks of a task judged known solutions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckValidation {
    /// Whether the reference solution passes.
    pub reference: bool,
    /// Checks that the reference solution fails.
    pub failing: Vec<String>,
    /// Number of other correct solutions.
    pub rights: usize,
    /// Checks that other correct solutions fail.
    pub rights_failing: Vec<String>,
    /// Number of null agents.
    pub nulls: usize,
    /// Null agents that pass.
    pub nulls_passing: Vec<String>,
    /// Number of incorrect solutions.
    pub mutants: usize,
    /// Number of incorrect solutions that fail.
    pub killed: usize,
    /// Suffixes of the names of generated mutants that are correct for this task.
    pub equivalent: Vec<String>,
    /// Incorrect solutions that pass.
    pub survivors: Vec<String>,
}

impl CheckValidation {
    /// Summarizes named findings; `original` is the reference solution.
    pub fn from_findings(found: &[(String, Vec<Finding>)], equivalent: &[String]) -> Self {
        let mut validation = Self {
            equivalent: equivalent.to_vec(),
            ..Self::default()
        };
        for (name, findings) in found {
            let passed = passes(findings);
            if name == "original" {
                validation.reference = passed;
                validation.failing = failures(findings).collect();
            } else if name.starts_with("null: ") {
                validation.nulls += 1;
                validation
                    .nulls_passing
                    .extend(passed.then(|| name.clone()));
            } else if name.starts_with("right: ") {
                validation.rights += 1;
                let why = failures(findings).map(|why| format!("{name}: {why}"));
                validation.rights_failing.extend(why);
            } else if !equivalent.iter().any(|end| name.ends_with(end.as_str())) {
                validation.mutants += 1;
                validation.killed += usize::from(!passed);
                validation.survivors.extend(passed.then(|| name.clone()));
            }
        }
        validation
    }

    /// Whether the checks are good enough for the headline.
    pub fn passed(&self) -> bool {
        let enough = self.mutants >= MIN_MUTANTS || self.nulls == 0;
        let killed = self.killed as f64 >= MIN_KILLED_SHARE * self.mutants as f64;
        self.reference
            && self.rights_failing.is_empty()
            && self.nulls_passing.is_empty()
            && enough
            && killed
    }
}

fn failures(findings: &[Finding]) -> impl Iterator<Item = String> + '_ {
    let failed = findings
        .iter()
        .filter(|finding| finding.outcome != Outcome::Pass);
    failed.map(|finding| format!("{}: {}", finding.subject, finding.detail))
}

impl AuditRow {
    fn blank(spec: &TaskSpec) -> Self {
        Self {
            index: spec.index,
            status: spec.status.name().to_owned(),
            reason: None,
            error: None,
            validation: None,
            seconds: 0.0,
        }
    }

    /// A task that is not audited, with the reason.
    pub fn skipped(spec: &TaskSpec, reason: String) -> Self {
        Self {
            reason: Some(reason),
            ..Self::blank(spec)
        }
    }

    /// A task whose audit failed with an error.
    pub fn failed(spec: &TaskSpec, error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::blank(spec)
        }
    }

    /// A task that was audited.
    pub fn validated(spec: &TaskSpec, validation: CheckValidation, seconds: f64) -> Self {
        Self {
            validation: Some(validation),
            seconds,
            ..Self::blank(spec)
        }
    }

    /// Whether the audit passed, or the task was skipped for a reason.
    pub fn passed(&self) -> bool {
        match (&self.validation, &self.error) {
            (Some(validation), None) => validation.passed(),
            (None, None) => self.reason.is_some(),
            _ => false,
        }
    }

    /// Descriptions of all problems of the task.
    pub fn problems(&self) -> Vec<String> {
        let Some(validation) = &self.validation else {
            return self.error.iter().cloned().collect();
        };
        let survived = validation
            .survivors
            .iter()
            .map(|name| format!("survived: {name}"));
        let passed = validation
            .nulls_passing
            .iter()
            .map(|name| format!("passes: {name}"));
        let failing = validation
            .failing
            .iter()
            .chain(&validation.rights_failing)
            .cloned();
        failing.chain(passed).chain(survived).collect()
    }
}

/// The rows as a Markdown table.
pub fn markdown(rows: &[AuditRow]) -> String {
    let mut text = "| task | status | reference | other correct solutions | null agents that pass | mutants killed | equivalent | survivors, or why it was not audited |\n\
                    | --: | -- | -- | --: | --: | --: | --: | -- |\n"
        .to_owned();
    for row in rows {
        let cell = |text: &str| text.replace(['\n', '\r'], " ").replace('|', "\\|");
        // Writing to a String cannot fail.
        let _ = match &row.validation {
            None => {
                let why = row
                    .error
                    .as_deref()
                    .or(row.reason.as_deref())
                    .unwrap_or_default();
                writeln!(
                    text,
                    "| {} | {} | | | | | | {} |",
                    row.index,
                    row.status,
                    cell(why)
                )
            }
            Some(validation) => {
                let reference = if validation.reference {
                    "passes"
                } else {
                    "FAILS"
                };
                let rights = match (validation.rights, validation.rights_failing.is_empty()) {
                    (0, _) => String::new(),
                    (count, true) => format!("{count} pass"),
                    (count, false) => format!("some of {count} FAIL"),
                };
                writeln!(
                    text,
                    "| {} | {} | {reference} | {rights} | {} of {} | {} of {} | {} | {} |",
                    row.index,
                    row.status,
                    validation.nulls_passing.len(),
                    validation.nulls,
                    validation.killed,
                    validation.mutants,
                    validation.equivalent.len(),
                    cell(&validation.survivors.join("; ")),
                )
            }
        };
    }
    text
}

/// One line with the totals of the audit.
pub fn summary(rows: &[AuditRow]) -> String {
    let validations: Vec<_> = rows
        .iter()
        .filter_map(|row| row.validation.as_ref())
        .collect();
    let count = |part: fn(&CheckValidation) -> usize| {
        validations.iter().map(|one| part(one)).sum::<usize>()
    };
    let passed = rows
        .iter()
        .filter(|row| row.validation.as_ref().is_some_and(CheckValidation::passed))
        .count();
    format!(
        "{} tasks, {} audited, {passed} passed the audit; reference passes on {}; other correct solutions {} ({} tasks with one that fails); null agents pass {} of {}; mutants killed {} of {}; errors {}",
        rows.len(),
        validations.len(),
        count(|one| usize::from(one.reference)),
        count(|one| one.rights),
        count(|one| usize::from(!one.rights_failing.is_empty())),
        count(|one| one.nulls_passing.len()),
        count(|one| one.nulls),
        count(|one| one.killed),
        count(|one| one.mutants),
        rows.iter().filter(|row| row.error.is_some()).count(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(outcome: Outcome) -> Vec<Finding> {
        vec![Finding {
            filter: "check".into(),
            subject: "s".into(),
            outcome,
            detail: "d".into(),
            mismatch: None,
        }]
    }

    fn found(list: &[(&str, Outcome)]) -> Vec<(String, Vec<Finding>)> {
        list.iter()
            .map(|(name, outcome)| ((*name).to_owned(), finding(*outcome)))
            .collect()
    }

    #[test]
    fn a_validation_counts_correct_and_incorrect_solutions() {
        use Outcome::{Fail, Pass, Unproven};
        let mut list = vec![
            ("original", Pass),
            ("null: nothing", Fail),
            ("right: other", Pass),
            ("plot x: same", Pass),
        ];
        list.extend([
            ("own: a", Fail),
            ("own: b", Unproven),
            ("c", Fail),
            ("d", Fail),
            ("e", Fail),
        ]);
        let validation = CheckValidation::from_findings(&found(&list), &["same".to_owned()]);
        assert_eq!(
            (
                validation.mutants,
                validation.killed,
                validation.nulls,
                validation.rights
            ),
            (5, 5, 1, 1)
        );
        assert!(validation.passed());
        for (name, outcome) in [
            ("original", Fail),
            ("null: x", Pass),
            ("right: y", Fail),
            ("own: z", Pass),
        ] {
            let mut worse = list.clone();
            worse.push((name, outcome));
            let validation = CheckValidation::from_findings(&found(&worse), &["same".to_owned()]);
            assert!(!validation.passed(), "{name}");
        }
        assert!(
            !CheckValidation::from_findings(&found(&list[..6]), &[]).passed(),
            "too few incorrect solutions"
        );
    }
}
