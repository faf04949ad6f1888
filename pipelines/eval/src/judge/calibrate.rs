//! Calibration of the judge: its agreement with human labels and with the strict score.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;

use crate::file_error::FileError;
use crate::record::{Attempt, Evaluation};
use crate::stats::{Measure, clusters};
use pybench_checks::agreement::{Agreement, agreement};
use pybench_profile::preview::records;

/// Maximum size of the file of labels in bytes, and maximum number of labels.
const MAX_BYTES: u64 = 16 << 20;
const MAX_LABELS: usize = 100_000;

/// Human labels (pass or fail) by suite, task, agent and seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels(BTreeMap<(String, String, String, u64), bool>);

/// Pairwise agreement of the judge, human labels and `strict`; `None` if no attempt has both ratings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Judge vs. human labels.
    pub judge_human: Option<Agreement>,
    /// Judge vs. `strict`, over all attempts that have both.
    pub judge_strict: Option<Agreement>,
    /// `strict` vs. human labels.
    pub strict_human: Option<Agreement>,
    /// Number of labels for attempts that are not in the records.
    pub unknown: usize,
}

impl Labels {
    /// Reads a CSV file with the columns `task`, `agent` and `label` (pass or fail), and optionally `suite`
    /// (default `pybench`) and `seed` (default 0).
    ///
    /// # Errors
    /// I/O errors, missing columns, invalid values and duplicate labels, with the line.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let io = FileError::io(path);
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(io)?;
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(io)?;
        Self::parse(&bytes).map_err(FileError::line(path))
    }

    fn parse(bytes: &[u8]) -> Result<Self, (usize, String)> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| (1, "the file is not UTF-8".to_owned()))?;
        let text = text.trim_start_matches('\u{feff}');
        let mut rows = records(text, ',', MAX_LABELS + 1).into_iter();
        let head = rows.next().unwrap_or_default();
        let column = |name: &str| {
            head.iter()
                .position(|h| h.trim().eq_ignore_ascii_case(name))
        };
        let needed =
            |name: &str| column(name).ok_or((1, format!("the column `{name}` is missing")));
        let (task, agent, label) = (needed("task")?, needed("agent")?, needed("label")?);
        let (suite, seed) = (column("suite"), column("seed"));
        let mut labels = BTreeMap::new();
        for (i, row) in rows.enumerate() {
            let line = i + 2;
            let get = |at: usize| row.get(at).map_or("", |field| field.trim());
            let passed = match get(label).to_lowercase().as_str() {
                "pass" | "true" | "1" | "yes" => true,
                "fail" | "false" | "0" | "no" => false,
                // Not labeled.
                "" => continue,
                other => {
                    return Err((
                        line,
                        format!("the label `{other}` is neither pass nor fail"),
                    ));
                }
            };
            let seed = match seed.map_or("", get) {
                "" => 0,
                text => text.parse().map_err(|_| {
                    (
                        line,
                        format!("`{text}` is not a valid seed: expected a non-negative integer"),
                    )
                })?,
            };
            let suite = suite.map_or("pybench", get).to_owned();
            let key = (suite, get(task).to_owned(), get(agent).to_owned(), seed);
            if labels.insert(key, passed).is_some() {
                return Err((
                    line,
                    "duplicate label: this attempt already has one".to_owned(),
                ));
            }
        }
        Ok(Self(labels))
    }

    fn of(&self, attempt: &Attempt) -> Option<bool> {
        let key = (
            attempt.suite.clone(),
            attempt.task.clone(),
            attempt.agent.clone(),
            attempt.seed,
        );
        self.0.get(&key).copied()
    }
}

/// Computes the agreements over the attempts of an evaluation. Abstentions are ignored. All attempts at a
/// task, and tasks that share a file, count as one observation.
pub fn calibrate(evaluation: &Evaluation, labels: &Labels) -> Calibration {
    let strict = |a: &Attempt| Measure::Strict.value(a);
    let judge = |a: &Attempt| Measure::Judge.value(a);
    let human = |a: &Attempt| labels.of(a);
    let known = evaluation
        .attempts
        .iter()
        .filter(|a| human(a).is_some())
        .count();
    Calibration {
        judge_human: agreement_between(evaluation, &judge, &human),
        judge_strict: agreement_between(evaluation, &judge, &strict),
        strict_human: agreement_between(evaluation, &strict, &human),
        unknown: labels.0.len() - known,
    }
}

type Rater<'a> = &'a dyn Fn(&Attempt) -> Option<bool>;

fn agreement_between(
    evaluation: &Evaluation,
    one: Rater<'_>,
    other: Rater<'_>,
) -> Option<Agreement> {
    let rated = evaluation
        .attempts
        .iter()
        .filter_map(|a| Some((a, (one(a)?, other(a)?))));
    let (attempts, pairs): (Vec<_>, Vec<_>) = rated.unzip();
    let keys = attempts.iter().map(|a| {
        let files = a.clusters.iter().map(|id| id.as_str().to_owned());
        files.chain([format!("{} {}", a.suite, a.task)]).collect()
    });
    agreement(&pairs, &clusters(&keys.collect::<Vec<Vec<String>>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{attempt, fingerprint};
    use crate::record::{AgentKind, Judgment};
    use pybench_types::id::Digest;

    #[test]
    fn labels_are_read_and_invalid_ones_reported() {
        let labels =
            Labels::parse("\u{feff}Task,agent,label,seed\n2,m,pass,1\n3,m,,\n4,m,0,\n".as_bytes())
                .unwrap();
        assert_eq!(labels.0.len(), 2);
        assert!(labels.0[&("pybench".into(), "2".into(), "m".into(), 1)]);
        for (text, line, says) in [
            ("", 1, "`task`"),
            ("task,agent\n", 1, "`label`"),
            ("task,agent,label\n1,m,maybe\n", 2, "neither"),
            ("task,agent,label,seed\n1,m,pass,x\n", 2, "not a valid seed"),
            ("task,agent,label\n1,m,pass\n1,m,fail\n", 3, "already"),
        ] {
            let (at, problem) = Labels::parse(text.as_bytes()).unwrap_err();
            assert!(at == line && problem.contains(says), "{at} {problem}");
        }
        assert!(Labels::parse(&[0xff]).is_err());
    }

    #[test]
    fn agreement_ignores_abstentions() {
        let mut attempts = Vec::new();
        let mut csv = "task,agent,label\n".to_owned();
        for task in 0..60 {
            let mut one = attempt("m", &task.to_string(), 0, task % 2 == 0);
            let said = match task % 10 {
                9 => None,
                8 => Some(task % 2 == 1),
                _ => Some(task % 2 == 0),
            };
            one.judgment = Some(Judgment {
                judge: "j".into(),
                prompts: Digest::of_bytes(b""),
                passed: said,
                reason: String::new(),
                duels: Default::default(),
            });
            attempts.push(one);
            csv += &format!("{task},m,{}\n", if task % 2 == 0 { "pass" } else { "fail" });
        }
        csv += "99,m,pass\n";
        let evaluation = Evaluation::new(fingerprint(&[("m", AgentKind::Model)]), attempts);
        let found = calibrate(&evaluation, &Labels::parse(csv.as_bytes()).unwrap());
        let judge = found.judge_human.unwrap();
        assert_eq!((judge.items, found.unknown), (54, 1));
        assert!((judge.agree - 48.0 / 54.0).abs() < 1e-12);
        let interval = judge.interval.unwrap();
        let kappa = judge.kappa.unwrap();
        assert!(
            interval.low < kappa && kappa < interval.high && kappa > 0.6,
            "{judge:?}"
        );
        assert_eq!(
            found.judge_strict,
            Some(judge),
            "human labels and strict agree here"
        );
        assert_eq!(found.strict_human.unwrap().kappa, Some(1.0));
    }

    #[test]
    fn fuzz_labels_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = Labels::parse(bytes);
            let _ = Labels::parse(&[b"task,agent,label\n", bytes].concat());
        });
    }
}
