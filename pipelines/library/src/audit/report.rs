//! The results of an audit: rows, a table and a summary line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::requirement::RequirementKind;

/// How many wrong solutions failed, as they should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub failed: usize,
    pub total: usize,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.total += other.total;
    }
}

/// The audit result of one template on one set of files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AuditRow {
    /// Template id.
    pub template: String,
    /// Names of the files.
    pub files: Vec<String>,
    pub slots: BTreeMap<String, serde_json::Value>,
    /// The expert passes.
    pub expert: bool,
    /// A second run of the expert has equal observations and outputs.
    pub repeat: bool,
    /// The alternative passes.
    pub alternative: bool,
    /// Trivial solutions, such as doing nothing.
    pub baselines: Tally,
    /// Wrong solutions: mutants of the template and of the checker, and deliberate faults.
    pub mutants: Tally,
    /// What a mutant showed of each requirement; empty for a template that does not state its requirements.
    pub requirements: Vec<RequirementRow>,
    /// How many drafts the reference refused, by reason.
    pub refused: BTreeMap<String, usize>,
    /// Empty if the template is sound.
    pub problems: Vec<String>,
}

/// The audit result of one requirement on one set of files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequirementRow {
    pub id: String,
    pub kind: RequirementKind,
    /// The checks that decide it, and whether a violation made each of them fail.
    pub checks: BTreeMap<String, bool>,
    /// Mutants that violate it alone; `failed` are those that its checks rejected and no others.
    pub violations: Tally,
}

impl AuditRow {
    pub fn new(template: &str) -> Self {
        Self {
            template: template.to_owned(),
            ..Self::default()
        }
    }

    /// Whether the template passed the whole audit.
    pub fn sound(&self) -> bool {
        let all = |tally: Tally| tally.total > 0 && tally.failed == tally.total;
        self.problems.is_empty()
            && self.expert
            && self.repeat
            && self.alternative
            && all(self.baselines)
            && all(self.mutants)
            && self.requirements.iter().all(|row| all(row.violations))
    }
}

/// Formats the rows as a table. Problems are listed below their row.
pub fn table(rows: &[AuditRow]) -> String {
    let width = rows
        .iter()
        .map(|row| row.template.len())
        .max()
        .unwrap_or(0)
        .max(8);
    let mut text = format!(
        "{:width$}  expert  again  alternative  baselines  mutants  verdict  files\n",
        "template"
    );
    for row in rows {
        let mark = |good: bool| if good { "pass" } else { "FAIL" };
        let tally = |t: Tally| format!("{}/{}", t.failed, t.total);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:width$}  {:6}  {:5}  {:11}  {:>9}  {:>7}  {:7}  {}",
            row.template,
            mark(row.expert),
            if row.repeat { "equal" } else { "DIFF" },
            mark(row.alternative),
            tally(row.baselines),
            tally(row.mutants),
            if row.sound() { "sound" } else { "UNSOUND" },
            row.files.join(", "),
        );
        for requirement in &row.requirements {
            let checks: Vec<_> = requirement.checks.keys().map(String::as_str).collect();
            let _ = writeln!(
                text,
                "{:width$}  {} ({}): {} violations fail by {}",
                "",
                requirement.id,
                requirement.kind,
                tally(requirement.violations),
                checks.join(", "),
            );
        }
        for (reason, count) in &row.refused {
            let _ = writeln!(text, "{:width$}  ({count} drafts refused: {reason})", "");
        }
        for problem in &row.problems {
            let _ = writeln!(text, "{:width$}  - {}", "", problem.replace('\n', " ⏎ "));
        }
    }
    text
}

/// One line: how many templates are sound.
pub fn summary(rows: &[AuditRow]) -> String {
    let templates: BTreeSet<_> = rows.iter().map(|row| &row.template).collect();
    let unsound: BTreeSet<_> = rows
        .iter()
        .filter(|r| !r.sound())
        .map(|r| &r.template)
        .collect();
    let count = |part: fn(&AuditRow) -> usize| rows.iter().map(part).sum::<usize>();
    format!(
        "{} of {} templates sound; expert {}/{}, alternative {}/{}, baselines failed {}/{}, mutants killed {}/{}",
        templates.len() - unsound.len(),
        templates.len(),
        count(|r| usize::from(r.expert)),
        rows.len(),
        count(|r| usize::from(r.alternative)),
        rows.len(),
        count(|r| r.baselines.failed),
        count(|r| r.baselines.total),
        count(|r| r.mutants.failed),
        count(|r| r.mutants.total),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_sound_only_if_everything_passed() {
        let all = Tally {
            failed: 9,
            total: 9,
        };
        let sound = AuditRow {
            expert: true,
            repeat: true,
            alternative: true,
            baselines: all,
            mutants: all,
            ..AuditRow::new("a")
        };
        assert!(sound.sound());
        let survivor = Tally {
            failed: 8,
            total: 9,
        };
        let unsound = [
            AuditRow {
                expert: false,
                ..sound.clone()
            },
            AuditRow {
                repeat: false,
                ..sound.clone()
            },
            AuditRow {
                alternative: false,
                ..sound.clone()
            },
            AuditRow {
                baselines: survivor,
                ..sound.clone()
            },
            AuditRow {
                mutants: survivor,
                ..sound.clone()
            },
            AuditRow {
                mutants: Tally::default(),
                ..sound.clone()
            },
            AuditRow {
                problems: vec!["x\ny".into()],
                ..sound.clone()
            },
        ];
        assert!(unsound.iter().all(|row| !row.sound()));
        let rows = [sound, unsound[6].clone()];
        let text = table(&rows);
        assert_eq!(text.matches("UNSOUND").count(), 1, "{text}");
        assert!(text.contains("- x ⏎ y"), "{text}");
        assert_eq!(
            summary(&rows),
            "0 of 1 templates sound; expert 2/2, alternative 2/2, baselines failed 18/18, mutants killed 18/18"
        );
    }
}
