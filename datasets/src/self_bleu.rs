//! Self-BLEU: how much the texts of a set resemble each other (Zhu et al. 2018, "Texygen", arXiv:1802.01886).
//!
//! Each text of a sample is scored against all others by BLEU (n-grams of 1 to 4 units, brevity penalty, the first
//! smoothing of Chen and Cherry 2014), and the mean is taken: 1 if all are the same, near 0 if they share nothing.

use std::collections::HashMap;

use crate::text::{combine, each_unit, hash_of, mix};

/// Longest n-grams.
const MAX_N: usize = 4;
/// Texts that are compared at most.
const SAMPLE: usize = 1_000;
/// Seed of the sample.
const SEED: u64 = 180_201_886;
/// What a count of no n-gram in common is taken for.
const EPSILON: f64 = 0.1;

/// Collects a sample of texts.
#[derive(Default)]
pub(crate) struct SelfBleu {
    /// The hashes of their units.
    sample: Vec<Vec<u64>>,
    seen: u64,
}

/// How often an n-gram occurs in the text that has most of it, and in the one that has most of it otherwise.
#[derive(Default)]
struct Most {
    text: usize,
    first: u32,
    second: u32,
}

impl SelfBleu {
    /// Adds a text. After the first thousand, each text takes the place of another with the probability that makes all
    /// equally likely to stay.
    pub(crate) fn add(&mut self, text: &str) {
        let place = mix(SEED ^ self.seen) % (self.seen + 1);
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.seen += 1;
        if self.sample.len() < SAMPLE {
            self.sample.push(units(text));
        } else if let Some(taken) = self.sample.get_mut(place) {
            *taken = units(text);
        }
    }

    /// The mean score; `None` of less than two texts.
    pub(crate) fn score(&self) -> Option<f64> {
        let count = self.sample.len();
        if count < 2 {
            return None;
        }
        let mut logs = vec![0.0; count];
        for n in 1..=MAX_N {
            for (log, precision) in logs.iter_mut().zip(self.precisions(n)) {
                *log += precision.ln() / MAX_N as f64;
            }
        }
        let scores = logs.iter().enumerate();
        let scores = scores.map(|(text, log)| self.brevity_penalty(text) * log.exp());
        Some(scores.sum::<f64>() / count as f64)
    }

    /// For each text, the share of its n-grams that another text has as often.
    fn precisions(&self, n: usize) -> Vec<f64> {
        let counts: Vec<HashMap<u64, u32>> =
            self.sample.iter().map(|text| grams(text, n)).collect();
        let mut most: HashMap<u64, Most> = HashMap::new();
        for (text, grams) in counts.iter().enumerate() {
            for (gram, count) in grams {
                most.entry(*gram).or_default().add(text, *count);
            }
        }
        let precision = |(text, grams): (usize, &HashMap<u64, u32>)| {
            let shared = grams.iter().map(|(gram, count)| {
                let elsewhere = most.get(gram).map_or(0, |most| most.without(text));
                (*count).min(elsewhere)
            });
            let shared: u32 = shared.sum();
            let all: u32 = grams.values().sum();
            match shared {
                0 => EPSILON / f64::from(all.max(1)),
                _ => f64::from(shared) / f64::from(all),
            }
        };
        counts.iter().enumerate().map(precision).collect()
    }

    /// What a text that is shorter than the one nearest to its length is scored down by.
    fn brevity_penalty(&self, text: usize) -> f64 {
        let length = self.sample[text].len();
        let others = self.sample.iter().enumerate();
        let others = others.filter(|(other, _)| *other != text);
        let lengths = others.map(|(_, other)| other.len());
        let nearest = lengths.min_by_key(|other| (other.abs_diff(length), *other));
        match (length, nearest.unwrap_or(0)) {
            (0, _) => 0.0,
            (length, nearest) if length >= nearest => 1.0,
            (length, nearest) => (1.0 - nearest as f64 / length as f64).exp(),
        }
    }
}

impl Most {
    /// Adds the count of the next text; each text is added once.
    fn add(&mut self, text: usize, count: u32) {
        if count > self.first {
            self.second = self.first;
            (self.text, self.first) = (text, count);
        } else {
            self.second = self.second.max(count);
        }
    }

    /// The largest count of all other texts.
    fn without(&self, text: usize) -> u32 {
        match self.text == text {
            true => self.second,
            false => self.first,
        }
    }
}

fn units(text: &str) -> Vec<u64> {
    let mut hashes = Vec::new();
    each_unit(text, |unit| hashes.push(hash_of(unit)));
    hashes
}

/// The n-grams of a text with their counts.
fn grams(units: &[u64], n: usize) -> HashMap<u64, u32> {
    let mut counts = HashMap::new();
    for gram in units.windows(n) {
        *counts.entry(combine(gram)).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(texts: &[&str]) -> Option<f64> {
        let mut all = SelfBleu::default();
        for text in texts {
            all.add(text);
        }
        all.score()
    }

    #[test]
    fn equal_texts_score_one_and_different_ones_nearly_nothing() {
        let text = "sort the rows by price";
        assert!((score(&[text, text, text]).unwrap() - 1.0).abs() < 1e-12);
        assert!(score(&[text, "draw a chart of all towns"]).unwrap() < 0.1);
        assert_eq!(score(&[text]), None);
    }

    #[test]
    fn scores_follow_the_formula() {
        // 3 of 4, 2 of 3, 1 of 2 and 0.1 of 1 n-grams are shared.
        let expected = (0.75_f64 * (2.0 / 3.0) * 0.5 * 0.1).powf(0.25);
        let found = score(&["a b c d", "a b c e"]).unwrap();
        assert!((found - expected).abs() < 1e-12, "{found}");
        // Both units of the short text are shared; half of those of the long one are.
        let short = (0.1_f64 * 0.1).powf(0.25) * (1.0_f64 - 2.0).exp();
        let long = (0.5_f64 * (1.0 / 3.0) * (0.1 / 2.0) * 0.1).powf(0.25);
        let found = score(&["a b", "a b c d"]).unwrap();
        assert!((found - (short + long) / 2.0).abs() < 1e-12, "{found}");
    }

    #[test]
    fn repeated_units_count_as_often_as_another_text_has_them() {
        let found = score(&["a a a a", "a b c d"]).unwrap();
        let first = (0.25_f64 * (0.1 / 3.0) * (0.1 / 2.0) * 0.1).powf(0.25);
        let second = (0.25_f64 * (0.1 / 3.0) * (0.1 / 2.0) * 0.1).powf(0.25);
        assert!((found - (first + second) / 2.0).abs() < 1e-12, "{found}");
    }
}
