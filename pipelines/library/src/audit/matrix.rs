//! The matrix of requirements: each is violated by a mutant that fails by the checks that decide it, and by no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pybench_types::trajectory::{Finding, Outcome};

use super::attempt::AttemptResult;
use super::report::{AuditRow, RequirementRow, Tally};
use crate::requirement::RequirementKind;
use crate::template::Mutant;
use crate::{Library, Template};

/// What a mutant did, beside what the expert did.
pub(super) struct Violation<'a> {
    pub(super) expert: &'a AttemptResult,
    pub(super) result: AttemptResult,
    pub(super) findings: Vec<Finding>,
}

/// The requirements of a template, before any mutant ran.
pub(super) fn rows(template: &Template) -> Vec<RequirementRow> {
    let rows = template.requirements.iter().map(|(id, requirement)| {
        let checks = requirement.get_ref().checks.iter();
        RequirementRow {
            id: id.clone(),
            kind: requirement.get_ref().kind,
            checks: checks
                .map(|check| (check.get_ref().clone(), false))
                .collect(),
            violations: Tally::default(),
        }
    });
    rows.collect()
}

/// Judges a mutant that violates a requirement: it ran like the expert, a check that decides the requirement
/// failed, and no others did.
pub(super) fn judge(
    row: &mut AuditRow,
    template: &Template,
    mutant: &Mutant,
    violation: Violation<'_>,
) {
    let Some(violated) = &mutant.violates else {
        return;
    };
    let Some(requirement) = row
        .requirements
        .iter_mut()
        .find(|row| row.id == *violated.get_ref())
    else {
        return;
    };
    let mut problems = Vec::new();
    if let Some(error) = unexpected_error(template, &violation.result) {
        problems.push(format!("raised {error}"));
    }
    let mut failed = failures(&violation.findings);
    let mut decided = false;
    for (check, seen) in &mut requirement.checks {
        let fails = template
            .finding(check)
            .is_some_and(|place| failed.remove(&place).is_some());
        *seen |= fails;
        decided |= fails;
    }
    if !decided {
        problems.push(match same_result(violation.expert, &violation.result) {
            true => "left the same result on these files; say in `distinct` or `shows` what they must have".to_owned(),
            false => "failed by none of the checks that decide it".to_owned(),
        });
    }
    for place in mutant
        .also
        .iter()
        .filter_map(|check| template.finding(check.get_ref()))
    {
        failed.remove(&place);
    }
    problems.extend(
        failed
            .into_values()
            .map(|reason| format!("failed also by {reason}")),
    );
    requirement.violations.total += 1;
    requirement.violations.failed += usize::from(problems.is_empty());
    let name = mutant.name.get_ref();
    let all = problems.into_iter().map(|problem| {
        format!(
            "`{name}` violates `{}` alone, but {problem}",
            requirement.id
        )
    });
    row.problems.extend(all);
}

/// Every check that decides a requirement failed by one of its violations.
pub(super) fn judge_checks(row: &mut AuditRow) {
    for requirement in &row.requirements {
        for (check, _) in requirement.checks.iter().filter(|(_, seen)| !**seen) {
            let id = &requirement.id;
            row.problems.push(format!(
                "no mutant that violates `{id}` fails by check `{check}`, which is to decide it"
            ));
        }
    }
}

/// The findings that are no pass, by their position.
fn failures(findings: &[Finding]) -> BTreeMap<usize, String> {
    let failed = findings
        .iter()
        .enumerate()
        .filter(|(_, finding)| finding.outcome != Outcome::Pass);
    failed
        .map(|(place, finding)| (place, format!("{}: {}", finding.subject, finding.detail)))
        .collect()
}

/// What a cell raised that is not a mistake on purpose.
fn unexpected_error(template: &Template, result: &AttemptResult) -> Option<String> {
    let turns = template.turns.iter().zip(&result.observations);
    let mut errors = turns
        .filter(|(turn, _)| !turn.mistake)
        .filter_map(|(_, seen)| seen.error.as_ref());
    errors
        .next()
        .map(|error| format!("{}: {}", error.ename, error.evalue))
}

fn same_result(one: &AttemptResult, other: &AttemptResult) -> bool {
    one.outputs == other.outputs && one.answer == other.answer
}

/// One line per kind of requirement: templates, requirements and violations that failed as they should.
pub fn matrix(rows: &[AuditRow]) -> String {
    let mut text = format!("{:12}  templates  requirements  violations\n", "kind");
    for (kind, count) in counts(rows) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{kind:12}  {:9}  {:12}  {:>10}",
            count.templates.len(),
            count.requirements.len(),
            count.violations()
        );
    }
    text
}

/// The matrix as a Markdown document.
pub fn matrix_markdown(library: &Library, rows: &[AuditRow]) -> String {
    let mut text = format!(
        "# Requirements of the task library\n\n\
         `./justw audit` writes this page; [requirements.md](requirements.md) explains it. {} templates state what their \
         queries\nrequire. *Violations* are mutants that violate one requirement alone: those that failed by its checks \
         and by no others,\nof all.\n\n\
         | kind | templates | requirements | violations |\n| --- | ---: | ---: | ---: |\n",
        library.templates().len()
    );
    for (kind, count) in counts(rows) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {kind} | {} | {} | {} |",
            count.templates.len(),
            count.requirements.len(),
            count.violations()
        );
    }
    text.push_str("\n| template | requirement | kind | decided by | violations |\n| --- | --- | --- | --- | ---: |\n");
    let mut cells: BTreeMap<(&str, &str), (&RequirementRow, Tally)> = BTreeMap::new();
    for row in rows {
        for requirement in &row.requirements {
            let cell = cells.entry((&row.template, &requirement.id));
            cell.or_insert((requirement, Tally::default()))
                .1
                .add(requirement.violations);
        }
    }
    for ((template, id), (requirement, Tally { failed, total })) in cells {
        let checks = Vec::from_iter(requirement.checks.keys().map(String::as_str)).join(", ");
        let _ = writeln!(
            text,
            "| {template} | {id} | {} | {checks} | {failed}/{total} |",
            requirement.kind
        );
    }
    text
}

/// The requirements of one kind.
#[derive(Default)]
struct KindCount<'a> {
    templates: BTreeSet<&'a str>,
    requirements: BTreeSet<(&'a str, &'a str)>,
    violations: Tally,
}

impl KindCount<'_> {
    fn violations(&self) -> String {
        format!("{}/{}", self.violations.failed, self.violations.total)
    }
}

/// The counts of every kind, also of those that no requirement has.
fn counts(rows: &[AuditRow]) -> impl Iterator<Item = (RequirementKind, KindCount<'_>)> {
    let mut counts: BTreeMap<_, _> = RequirementKind::ALL
        .map(|kind| (kind, KindCount::default()))
        .into();
    for row in rows {
        for requirement in &row.requirements {
            let count = counts.entry(requirement.kind).or_default();
            count.templates.insert(&row.template);
            count.requirements.insert((&row.template, &requirement.id));
            count.violations.add(requirement.violations);
        }
    }
    counts.into_iter()
}
