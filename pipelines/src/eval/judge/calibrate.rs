//! How far a judge can be believed: its agreement with people, and with `strict`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;

use crate::eval::lines::FileError;
use crate::eval::record::{Attempt, Evaluation};
use crate::eval::report::show::records;
use crate::eval::stats::{Agreement, Measure, agreement, clusters};

/// Largest file of labels, bytes, and most labels.
const MOST_BYTES: u64 = 16 << 20;
const MOST_LABELS: usize = 100_000;

/// What people said, by suite, task, agent and seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels(BTreeMap<(String, String, String, u64), bool>);

/// Agreement of a judge with people and with `strict`; `None` where nothing was rated by both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Judge against people.
    pub judge_human: Option<Agreement>,
    /// Judge against `strict`, over all attempts that have both.
    pub judge_strict: Option<Agreement>,
    /// `strict` against people.
    pub strict_human: Option<Agreement>,
    /// Labels of attempts that the records do not hold.
    pub unknown: usize,
}

impl Labels {
    /// Reads a table with the columns `task`, `agent` and `label` (pass or fail), and, where they are
    /// needed, `suite` (else `pybench`) and `seed` (else 0).
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let io = FileError::io(path);
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(io)?;
        file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(io)?;
        Self::parse(&bytes).map_err(FileError::line(path))
    }

    fn parse(bytes: &[u8]) -> Result<Self, (usize, String)> {
        let text = std::str::from_utf8(bytes).map_err(|_| (1, "not UTF-8".to_owned()))?;
        let text = text.trim_start_matches('\u{feff}');
        let mut rows = records(text, ',', MOST_LABELS + 1).into_iter();
        let head = rows.next().unwrap_or_default();
        let column = |name: &str| {
            head.iter()
                .position(|h| h.trim().eq_ignore_ascii_case(name))
        };
        let needed = |name: &str| column(name).ok_or((1, format!("there is no column `{name}`")));
        let (task, agent, label) = (needed("task")?, needed("agent")?, needed("label")?);
        let (suite, seed) = (column("suite"), column("seed"));
        let mut labels = BTreeMap::new();
        for (i, row) in rows.enumerate() {
            let line = i + 2;
            let get = |at: usize| row.get(at).map_or("", |field| field.trim());
            let passed = match get(label).to_lowercase().as_str() {
                "pass" | "true" | "1" | "yes" => true,
                "fail" | "false" | "0" | "no" => false,
                // Nobody rated it.
                "" => continue,
                other => return Err((line, format!("`{other}` is neither pass nor fail"))),
            };
            let seed = match seed.map_or("", get) {
                "" => 0,
                text => text
                    .parse()
                    .map_err(|_| (line, format!("`{text}` is no seed")))?,
            };
            let suite = suite.map_or("pybench", get).to_owned();
            let key = (suite, get(task).to_owned(), get(agent).to_owned(), seed);
            if labels.insert(key, passed).is_some() {
                return Err((line, "this attempt has a label already".to_owned()));
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

/// Agreement over the attempts of an evaluation. An abstention is no rating. Tasks that share a file
/// are one observation, and so are all attempts at a task.
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
        judge_human: between(evaluation, &judge, &human),
        judge_strict: between(evaluation, &judge, &strict),
        strict_human: between(evaluation, &strict, &human),
        unknown: labels.0.len() - known,
    }
}

type Rater<'a> = &'a dyn Fn(&Attempt) -> Option<bool>;

fn between(evaluation: &Evaluation, one: Rater<'_>, other: Rater<'_>) -> Option<Agreement> {
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
    use crate::eval::record::tests::{attempt, frozen};
    use crate::eval::record::{AgentKind, Judgement};
    use pybench::id::Digest;

    #[test]
    fn labels_are_read_and_wrong_ones_named() {
        let labels =
            Labels::parse("\u{feff}Task,agent,label,seed\n2,m,pass,1\n3,m,,\n4,m,0,\n".as_bytes())
                .unwrap();
        assert_eq!(labels.0.len(), 2);
        assert!(labels.0[&("pybench".into(), "2".into(), "m".into(), 1)]);
        for (text, line, says) in [
            ("", 1, "`task`"),
            ("task,agent\n", 1, "`label`"),
            ("task,agent,label\n1,m,maybe\n", 2, "neither"),
            ("task,agent,label,seed\n1,m,pass,x\n", 2, "no seed"),
            ("task,agent,label\n1,m,pass\n1,m,fail\n", 3, "already"),
        ] {
            let (at, problem) = Labels::parse(text.as_bytes()).unwrap_err();
            assert!(at == line && problem.contains(says), "{at} {problem}");
        }
        assert!(Labels::parse(&[0xff]).is_err());
    }

    #[test]
    fn agreement_leaves_abstentions_out() {
        let mut attempts = Vec::new();
        let mut csv = "task,agent,label\n".to_owned();
        for task in 0..60 {
            let mut one = attempt("m", &task.to_string(), 0, task % 2 == 0);
            let said = match task % 10 {
                9 => None,
                8 => Some(task % 2 == 1),
                _ => Some(task % 2 == 0),
            };
            one.judgement = Some(Judgement {
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
        let evaluation = Evaluation::new(frozen(&[("m", AgentKind::Model)]), attempts);
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
            "people and strict say the same here"
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
