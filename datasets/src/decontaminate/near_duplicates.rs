//! Finds queries that are near duplicates of a benchmark's questions, by MinHash.
//!
//! Both texts are compared as wholes, while the n-grams of a [`BenchmarkIndex`](super::BenchmarkIndex) also find a question
//! within a longer text.

use std::collections::{HashMap, HashSet};

use super::{Hit, MatchKind};
use crate::dedup::{DedupField, ShingleSet, Signature};

/// Minimum Jaccard similarity of near duplicates.
const THRESHOLD: f64 = 0.7;
/// Number of minima in a band. Texts that share 70 % have a common band with a probability of 0.9998.
const BAND: usize = 4;
/// A question with fewer shingles is recognized only if all are equal.
const SHORT: usize = 8;
/// A shingle that more than this share of a suite's questions contain is no part of a question, such as words about the
/// form of the answer.
const BOILERPLATE_SHARE: f64 = 0.02;
/// At most this many questions may share a shingle in any suite.
const BOILERPLATE_MIN: f64 = 8.0;

/// A question of a suite.
#[derive(Clone, Debug)]
pub struct SuiteQuestion<'a> {
    pub suite: &'a str,
    /// Name of the task in the suite.
    pub index: &'a str,
    pub text: &'a str,
}

/// The questions of benchmarks, for looking up near duplicates.
#[derive(Default)]
pub struct NearDuplicates {
    questions: Vec<(String, ShingleSet)>,
    /// Number and content of a band → questions that have it.
    bands: HashMap<(usize, [u32; BAND]), Vec<u32>>,
    boilerplate: HashSet<u64>,
}

impl NearDuplicates {
    pub fn new(questions: &[SuiteQuestion<'_>]) -> Self {
        let mut found = Self {
            boilerplate: boilerplate(questions),
            ..Self::default()
        };
        for question in questions {
            let shingles = found.shingles(question.text);
            if shingles.is_empty() {
                continue;
            }
            let number = found.questions.len() as u32;
            for band in bands(&shingles) {
                found.bands.entry(band).or_default().push(number);
            }
            let name = format!("{}/{}", question.suite, question.index);
            found.questions.push((name, ShingleSet::of(&shingles)));
        }
        found
    }

    /// Look up a row's query. Every hit counts as contaminated.
    pub fn query(&self, text: &str) -> Vec<Hit> {
        let shingles = self.shingles(text);
        if shingles.is_empty() || self.questions.is_empty() {
            return Vec::new();
        }
        let of_band = |band| self.bands.get(&band).into_iter().flatten();
        let mut candidates: Vec<u32> = bands(&shingles)
            .into_iter()
            .flat_map(of_band)
            .copied()
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        let set = ShingleSet::of(&shingles);
        let hit = |number: u32| {
            let (name, question) = &self.questions[number as usize];
            let share = set.jaccard(question);
            let least = if question.len() < SHORT {
                1.0
            } else {
                THRESHOLD
            };
            (share >= least).then(|| Hit {
                task: name.clone(),
                by: MatchKind::NearDuplicate,
                share,
                evidence: format!(
                    "{:.0} % of the sequences of three words of both",
                    100.0 * share
                ),
                contaminated: true,
            })
        };
        candidates.into_iter().filter_map(hit).collect()
    }

    /// The shingles of a text, without those that many questions of a suite share.
    fn shingles(&self, text: &str) -> Vec<u64> {
        let mut shingles = DedupField::Query.shingles(text);
        shingles.retain(|shingle| !self.boilerplate.contains(shingle));
        shingles
    }
}

/// The shingles that many questions of a suite share.
fn boilerplate(questions: &[SuiteQuestion<'_>]) -> HashSet<u64> {
    let mut suites: HashMap<&str, (usize, HashMap<u64, usize>)> = HashMap::new();
    for question in questions {
        let (count, shared) = suites.entry(question.suite).or_default();
        *count += 1;
        let shingles: HashSet<u64> = DedupField::Query
            .shingles(question.text)
            .into_iter()
            .collect();
        for shingle in shingles {
            *shared.entry(shingle).or_default() += 1;
        }
    }
    let of_suite = |(count, shared): (usize, HashMap<u64, usize>)| {
        // In a small suite, what more than half of the questions contain.
        let limit = (BOILERPLATE_SHARE * count as f64).max(BOILERPLATE_MIN);
        let limit = limit.min(count as f64 / 2.0);
        let is_shared = move |times: usize| times > 1 && times as f64 > limit;
        shared
            .into_iter()
            .filter(move |(_, times)| is_shared(*times))
    };
    let all = suites.into_values().flat_map(of_suite);
    all.map(|(shingle, _)| shingle).collect()
}

fn bands(shingles: &[u64]) -> Vec<(usize, [u32; BAND])> {
    let signature = Signature::of(shingles);
    let (bands, _) = signature.0.as_chunks::<BAND>();
    bands.iter().copied().enumerate().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str =
        "End your final message with a line that states the value as it stands in the table.";

    fn questions() -> Vec<String> {
        let subjects = ["lakes", "bridges", "trains", "poets", "harbors", "gardens"];
        let question = |(n, subject): (usize, &&str)| {
            format!(
                "Which of the {subject} in the list of {} was opened before the year {} and closed after the war? {FORM}",
                1900 + n,
                1800 + 10 * n
            )
        };
        subjects.iter().enumerate().map(question).collect()
    }

    fn index_of(texts: &[String]) -> NearDuplicates {
        let names: Vec<String> = (0..texts.len()).map(|n| n.to_string()).collect();
        let mut questions = Vec::new();
        for (text, index) in texts.iter().zip(&names) {
            questions.push(SuiteQuestion {
                suite: "s",
                index,
                text,
            });
        }
        NearDuplicates::new(&questions)
    }

    #[test]
    fn a_changed_copy_is_found_and_the_form_of_the_answer_is_not_a_question() {
        let long = "Each of the following instructions was written by a person who works with archives in a small town \
                    near the coast, and each of them concerns one record only";
        let record = format!("{long}: a map. {FORM}");
        let mut texts = questions();
        texts.push(record.clone());
        let index = index_of(&texts);
        let hits = index.query(&record.replace("small town", "large town"));
        assert_eq!((hits.len(), &*hits[0].task), (1, "s/6"), "{hits:?}");
        // What all questions say is not compared.
        let other = format!("How many people live in the town? {FORM}");
        assert_eq!(index.query(&other), []);
        assert_eq!(index.query(FORM), []);
        assert_eq!(index.query(""), []);
    }

    #[test]
    fn a_short_question_is_found_only_as_a_whole() {
        let texts = [
            "what is the total number of goals",
            "who won the final of the cup",
        ];
        let index = index_of(&texts.map(str::to_owned));
        assert_eq!(
            index.query("What is the total number of goals?")[0].task,
            "s/0"
        );
        assert_eq!(index.query("What is the total number of cups?"), []);
        assert_eq!(
            NearDuplicates::default().query("who won the final of the cup"),
            []
        );
    }
}
