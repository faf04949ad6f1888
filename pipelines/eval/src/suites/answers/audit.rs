//! The audit of a benchmark of questions: the reference must pass, null agents and wrong answers must fail, and
//! an answer that ignores the question must pass few.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pybench_run::RunError;
use serde::Serialize;

use super::{AnswerSuite, Question};
use crate::suite::{AuditOptions, SuiteAudit};

/// Characters of a file that the null agent `dump-file` answers with.
const MAX_DUMP: usize = 200_000;

/// How the scores of one category judged known answers.
#[derive(Clone, Debug, Default, Serialize)]
struct AuditRow {
    tasks: usize,
    /// Tasks whose reference passes.
    reference: Passed,
    /// Answers of null agents, and how many pass.
    nulls: usize,
    nulls_passing: Passed,
    /// Incorrect answers, and how many pass.
    mutants: usize,
    mutants_passing: Passed,
    /// Tasks that the best constant answer of each score passes.
    constant: Passed,
}

/// A number for each of the two scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Passed {
    upstream: usize,
    strict: usize,
}

impl Passed {
    /// Scores a reply and counts it.
    fn count(&mut self, question: &dyn Question, reply: &str) -> (bool, Result<(), String>) {
        let (upstream, strict) = (
            question.upstream(reply) == Some(true),
            question.strict(reply),
        );
        self.upstream += usize::from(upstream);
        self.strict += usize::from(strict.is_ok());
        (upstream, strict)
    }
}

pub(super) fn audit(suite: &AnswerSuite, options: &AuditOptions) -> Result<SuiteAudit, RunError> {
    let questions = suite.selected(&options.selection);
    let constants = BestConstants::of(suite, &questions);
    let (mut rows, mut problems) = (BTreeMap::<String, AuditRow>::new(), Vec::new());
    let (mut unscorable, mut outside) = (Vec::new(), Vec::new());
    for question in &questions {
        let row = rows.entry(question.category()).or_default();
        row.tasks += 1;
        let mut report = |problem: String| problems.push((question.name(), problem));
        let (upstream, strict) = row.reference.count(*question, &question.reference());
        if let Err(problem) = strict {
            report(format!("the reference fails: {problem}"));
        }
        if !upstream && question.upstream(&question.reference()).is_some() {
            unscorable.push(question.name());
        }
        if options.quick {
            continue;
        }
        row.constant.upstream += usize::from(question.upstream(&constants.upstream) == Some(true));
        row.constant.strict += usize::from(question.strict(&constants.strict).is_ok());
        let nulls = nulls(*question).unwrap_or_else(|problem| {
            report(problem);
            Vec::new()
        });
        for (name, reply) in nulls {
            row.nulls += 1;
            let passes = row.nulls_passing.count(*question, &reply).1.is_ok();
            if passes && name == "echo" {
                outside.push(question.name());
            } else if passes {
                report(format!("the null agent {name} passes"));
            }
        }
        let reference = question.reference();
        for (name, reply) in question.mutants() {
            if reply == reference {
                continue;
            }
            row.mutants += 1;
            if row.mutants_passing.count(*question, &reply).1.is_ok() {
                report(format!("a wrong answer passes: {name}"));
            }
        }
    }
    let total = rows.values().fold(AuditRow::default(), AuditRow::plus);
    let scored = |question: &&dyn Question| question.upstream(&question.reference()).is_some();
    let has_upstream = questions.iter().any(scored);
    let mut summary = references(suite, &total, &unscorable);
    if !options.quick {
        summary += &wrong_answers(&total, &outside, &constants, has_upstream);
    }
    Ok(SuiteAudit {
        json: serde_json::json!({
            "suite": suite.name,
            "commit": suite.origin.commit,
            "constants": constants,
            "categories": rows,
            "total": total,
            "references_that_upstream_fails": unscorable,
            "answered_by_their_prompt": outside,
            "problems": problems,
        }),
        markdown: markdown(&rows, &total, has_upstream),
        summary,
        problems,
    })
}

/// All replies that [`audit`] scores, by question.
pub(super) fn replies(
    suite: &AnswerSuite,
    options: &AuditOptions,
) -> Result<Vec<(String, Vec<String>)>, String> {
    let questions = suite.selected(&options.selection);
    let constants = match options.quick {
        true => Vec::new(),
        false => (suite.constants)(&questions),
    };
    let of = |question: &&dyn Question| {
        let mut replies = vec![question.reference()];
        if !options.quick {
            replies.extend(constants.iter().cloned());
            replies.extend(nulls(*question)?.into_iter().map(|(_, reply)| reply));
            replies.extend(question.mutants().into_iter().map(|(_, reply)| reply));
        }
        Ok((question.name(), replies))
    };
    questions.iter().map(of).collect()
}

impl AuditRow {
    fn plus(self, other: &Self) -> Self {
        let both = |a: Passed, b: Passed| Passed {
            upstream: a.upstream + b.upstream,
            strict: a.strict + b.strict,
        };
        Self {
            tasks: self.tasks + other.tasks,
            reference: both(self.reference, other.reference),
            nulls: self.nulls + other.nulls,
            nulls_passing: both(self.nulls_passing, other.nulls_passing),
            mutants: self.mutants + other.mutants,
            mutants_passing: both(self.mutants_passing, other.mutants_passing),
            constant: both(self.constant, other.constant),
        }
    }
}

/// For each score, the reply that passes most tasks without reading them.
#[derive(Serialize)]
struct BestConstants {
    upstream: String,
    strict: String,
}

impl BestConstants {
    fn of(suite: &AnswerSuite, questions: &[&dyn Question]) -> Self {
        let candidates = (suite.constants)(questions);
        let best = |passes: fn(&dyn Question, &str) -> bool| {
            let count =
                |reply: &&String| questions.iter().filter(|one| passes(**one, reply)).count();
            candidates
                .iter()
                .max_by_key(count)
                .cloned()
                .unwrap_or_default()
        };
        Self {
            upstream: best(|question, reply| question.upstream(reply) == Some(true)),
            strict: best(|question, reply| question.strict(reply).is_ok()),
        }
    }
}

/// What agents reply that do no work.
fn nulls(question: &dyn Question) -> Result<Vec<(&'static str, String)>, String> {
    let files = question.files()?;
    let first = files
        .first()
        .map(|(_, bytes)| String::from_utf8_lossy(bytes));
    let dump: String = first
        .iter()
        .flat_map(|text| text.chars())
        .take(MAX_DUMP)
        .collect();
    Ok(vec![
        ("empty", String::new()),
        ("do-nothing", "I did all that was asked.".to_owned()),
        ("echo", question.prompt()),
        ("dump-file", dump),
    ])
}

fn references(suite: &AnswerSuite, total: &AuditRow, unscorable: &[String]) -> String {
    let (passed, title) = (total.reference, suite.title);
    let mut text = format!(
        "{title}: {} of {} references pass `strict`",
        passed.strict, total.tasks
    );
    match (passed.upstream, unscorable) {
        (0, []) => text += "; there is no `upstream` score",
        (count, []) => _ = write!(text, ", {count} pass `upstream`"),
        (count, failed) => {
            let _ = write!(
                text,
                ", {count} pass `upstream` (not {})",
                failed.join(", ")
            );
        }
    }
    text + "."
}

fn wrong_answers(
    total: &AuditRow,
    outside: &[String],
    constants: &BestConstants,
    has_upstream: bool,
) -> String {
    let mut text = match has_upstream {
        true => format!(
            " Of {} answers of null agents, {} pass `strict` and {} `upstream`. Of {} wrong answers, {} and {}. The best \
             constant answers found pass {} and {} tasks: {} and {}.",
            total.nulls,
            total.nulls_passing.strict,
            total.nulls_passing.upstream,
            total.mutants,
            total.mutants_passing.strict,
            total.mutants_passing.upstream,
            total.constant.strict,
            total.constant.upstream,
            shown(&constants.strict),
            shown(&constants.upstream),
        ),
        false => format!(
            " Of {} answers of null agents, {} pass `strict`. Of {} wrong answers, {}. The best constant answer found \
             passes {} tasks: {}.",
            total.nulls,
            total.nulls_passing.strict,
            total.mutants,
            total.mutants_passing.strict,
            total.constant.strict,
            shown(&constants.strict),
        ),
    };
    if !outside.is_empty() {
        let _ = write!(
            text,
            " A copy of the prompt answers these tasks, which does not count in `strict`: {}.",
            outside.join(", ")
        );
    }
    text
}

/// A short reply as it is. A long one may state many labels of the benchmark, which summaries do not repeat.
fn shown(reply: &str) -> String {
    match reply.chars().count() {
        0..=40 => format!("`{}`", reply.replace('\n', " ")),
        long => format!("a reply of {long} characters"),
    }
}

fn markdown(rows: &BTreeMap<String, AuditRow>, total: &AuditRow, has_upstream: bool) -> String {
    let scores = match has_upstream {
        true => "`strict` / `upstream`",
        false => "`strict`",
    };
    let mut text = format!(
        "Passed by {scores}:\n\n\
         | category | tasks | reference | null agents | wrong answers | best constant |\n\
         | --- | --- | --- | --- | --- | --- |\n"
    );
    let all = [("all".to_owned(), total.clone())];
    let rows = rows.iter().chain(all.iter().map(|(name, row)| (name, row)));
    for (name, row) in rows {
        let both = |passed: Passed| match has_upstream {
            true => format!("{} / {}", passed.strict, passed.upstream),
            false => passed.strict.to_string(),
        };
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} of {} | {} of {} | {} |",
            row.tasks,
            both(row.reference),
            both(row.nulls_passing),
            row.nulls,
            both(row.mutants_passing),
            row.mutants,
            both(row.constant),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_that_a_benchmark_lacks_is_not_shown() {
        let passed = |strict: usize, upstream: usize| Passed { upstream, strict };
        let total = AuditRow {
            tasks: 3,
            reference: passed(3, 2),
            nulls: 12,
            nulls_passing: passed(0, 1),
            mutants: 9,
            mutants_passing: passed(0, 4),
            constant: passed(1, 2),
        };
        let constants = BestConstants {
            upstream: "Answer: A".to_owned(),
            strict: "Answer: B".to_owned(),
        };
        let rows = BTreeMap::from([("logic".to_owned(), total.clone())]);
        let shown = |has_upstream: bool| {
            let summary = wrong_answers(&total, &[], &constants, has_upstream);
            summary + &markdown(&rows, &total, has_upstream)
        };
        let both = shown(true);
        for part in [
            " 0 pass `strict` and 1 `upstream`.",
            "pass 1 and 2 tasks: `Answer: B` and `Answer: A`.",
            "| logic | 3 | 3 / 2 | 0 / 1 of 12 | 0 / 4 of 9 | 1 / 2 |\n",
        ] {
            assert!(both.contains(part), "{part}: {both}");
        }
        let strict = shown(false);
        for part in [
            "answer found passes 1 tasks: `Answer: B`.",
            "Passed by `strict`:\n\n| category |",
            "| all | 3 | 3 | 0 of 12 | 0 of 9 | 1 |\n",
        ] {
            assert!(strict.contains(part), "{part}: {strict}");
        }
        assert!(!strict.contains("upstream"), "{strict}");
    }
}
