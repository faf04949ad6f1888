//! The table of the audit.

use std::fmt::Write as _;

use pybench::trajectory::{Finding, Outcome};
use serde::{Deserialize, Serialize};

use crate::eval::bench::spec::TaskSpec;
use crate::eval::score::strict::passes;

/// Of wrong solutions, the share that must fail.
const LEAST_KILLED: f64 = 0.9;
/// Wrong solutions that a task needs.
const LEAST_MUTANTS: usize = 5;

/// One task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its number.
    pub index: u32,
    /// `headline`, `judge`, `live` or `missing`.
    pub status: String,
    /// Why there is no proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong with the audit itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// Wall time.
    #[serde(default)]
    pub seconds: f64,
}

/// What was found of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The solution passes.
    pub reference: bool,
    /// What it fails at.
    pub failing: Vec<String>,
    /// Other right solutions.
    pub rights: usize,
    /// What those fail at that fail.
    pub rights_failing: Vec<String>,
    /// Agents that do no work.
    pub nulls: usize,
    /// Those that pass.
    pub nulls_passing: Vec<String>,
    /// Wrong solutions.
    pub mutants: usize,
    /// Those that fail.
    pub killed: usize,
    /// Made mutants (by the end of their names) that are right answers.
    pub equivalent: Vec<String>,
    /// Those that pass, though they are wrong.
    pub survivors: Vec<String>,
}

impl Proof {
    /// What named findings say; the first is the solution's.
    pub fn of(found: &[(String, Vec<Finding>)], equivalent: &[String]) -> Self {
        let mut proof = Self {
            equivalent: equivalent.to_vec(),
            ..Self::default()
        };
        for (name, findings) in found {
            let passed = passes(findings);
            if name == "original" {
                proof.reference = passed;
                proof.failing = failures(findings).collect();
            } else if name.starts_with("null: ") {
                proof.nulls += 1;
                proof.nulls_passing.extend(passed.then(|| name.clone()));
            } else if name.starts_with("right: ") {
                proof.rights += 1;
                let why = failures(findings).map(|why| format!("{name}: {why}"));
                proof.rights_failing.extend(why);
            } else if !equivalent.iter().any(|end| name.ends_with(end.as_str())) {
                proof.mutants += 1;
                proof.killed += usize::from(!passed);
                proof.survivors.extend(passed.then(|| name.clone()));
            }
        }
        proof
    }

    /// Whether the task may be in the headline.
    pub fn holds(&self) -> bool {
        let enough = self.mutants >= LEAST_MUTANTS || self.nulls == 0;
        let killed = self.killed as f64 >= LEAST_KILLED * self.mutants as f64;
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

impl Row {
    fn blank(spec: &TaskSpec) -> Self {
        Self {
            index: spec.index,
            status: spec.status.name().to_owned(),
            reason: None,
            error: None,
            proof: None,
            seconds: 0.0,
        }
    }

    /// A task that is not audited, and why.
    pub fn left_out(spec: &TaskSpec, reason: String) -> Self {
        Self {
            reason: Some(reason),
            ..Self::blank(spec)
        }
    }

    /// A task whose audit failed.
    pub fn failed(spec: &TaskSpec, error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::blank(spec)
        }
    }

    /// A task that was audited.
    pub fn proven(spec: &TaskSpec, proof: Proof, seconds: f64) -> Self {
        Self {
            proof: Some(proof),
            seconds,
            ..Self::blank(spec)
        }
    }

    /// Nothing speaks against it: proven, or left out for a reason.
    pub fn holds(&self) -> bool {
        match (&self.proof, &self.error) {
            (Some(proof), None) => proof.holds(),
            (None, None) => self.reason.is_some(),
            _ => false,
        }
    }

    /// Everything wrong with it, in words.
    pub fn problems(&self) -> Vec<String> {
        let Some(proof) = &self.proof else {
            return self.error.iter().cloned().collect();
        };
        let survived = proof
            .survivors
            .iter()
            .map(|name| format!("survived: {name}"));
        let passed = proof
            .nulls_passing
            .iter()
            .map(|name| format!("passes: {name}"));
        let wrong = proof.failing.iter().chain(&proof.rights_failing).cloned();
        wrong.chain(passed).chain(survived).collect()
    }
}

/// The rows as a Markdown table.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = "| task | status | reference | other right solutions | null agents that pass | mutants killed | equivalent | survivors, or why not |\n\
                    | --: | -- | -- | --: | --: | --: | --: | -- |\n"
        .to_owned();
    for row in rows {
        let cell = |text: &str| text.replace(['\n', '\r'], " ").replace('|', "\\|");
        // Writing to a String cannot fail.
        let _ = match &row.proof {
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
            Some(proof) => {
                let reference = if proof.reference { "passes" } else { "FAILS" };
                let rights = match (proof.rights, proof.rights_failing.is_empty()) {
                    (0, _) => String::new(),
                    (count, true) => format!("{count} pass"),
                    (count, false) => format!("of {count} some FAIL"),
                };
                writeln!(
                    text,
                    "| {} | {} | {reference} | {rights} | {} of {} | {} of {} | {} | {} |",
                    row.index,
                    row.status,
                    proof.nulls_passing.len(),
                    proof.nulls,
                    proof.killed,
                    proof.mutants,
                    proof.equivalent.len(),
                    cell(&proof.survivors.join("; ")),
                )
            }
        };
    }
    text
}

/// One line: what holds of how many.
pub fn summary(rows: &[Row]) -> String {
    let proofs: Vec<_> = rows.iter().filter_map(|row| row.proof.as_ref()).collect();
    let count = |part: fn(&Proof) -> usize| proofs.iter().map(|proof| part(proof)).sum::<usize>();
    let holding = rows
        .iter()
        .filter(|row| row.proof.as_ref().is_some_and(Proof::holds))
        .count();
    format!(
        "{} tasks, {} audited, {holding} hold; reference passes {}; other right solutions {} ({} tasks with one that fails); null agents pass {} of {}; mutants killed {} of {}; errors {}",
        rows.len(),
        proofs.len(),
        count(|proof| usize::from(proof.reference)),
        count(|proof| proof.rights),
        count(|proof| usize::from(!proof.rights_failing.is_empty())),
        count(|proof| proof.nulls_passing.len()),
        count(|proof| proof.nulls),
        count(|proof| proof.killed),
        count(|proof| proof.mutants),
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
        }]
    }

    fn found(list: &[(&str, Outcome)]) -> Vec<(String, Vec<Finding>)> {
        list.iter()
            .map(|(name, outcome)| ((*name).to_owned(), finding(*outcome)))
            .collect()
    }

    #[test]
    fn a_proof_counts_what_is_right_and_wrong() {
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
        let proof = Proof::of(&found(&list), &["same".to_owned()]);
        assert_eq!(
            (proof.mutants, proof.killed, proof.nulls, proof.rights),
            (5, 5, 1, 1)
        );
        assert!(proof.holds());
        for (name, outcome) in [
            ("original", Fail),
            ("null: x", Pass),
            ("right: y", Fail),
            ("own: z", Pass),
        ] {
            let mut worse = list.clone();
            worse.push((name, outcome));
            let proof = Proof::of(&found(&worse), &["same".to_owned()]);
            assert!(!proof.holds(), "{name}");
        }
        assert!(
            !Proof::of(&found(&list[..6]), &[]).holds(),
            "too few wrong solutions"
        );
    }
}
