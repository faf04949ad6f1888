//! Near duplicates among queries, by MinHash: of two that are alike the earlier one is kept.

use std::collections::HashMap;

use pybench_datasets::dedup::{BANDS, HASHES, Signature, View};

/// Minima of one band.
const ROWS: usize = HASHES / BANDS;

/// The queries kept so far.
#[derive(Debug)]
pub(super) struct Kept {
    threshold: f64,
    signatures: Vec<Signature>,
    /// Which of them have these minima in a band: queries that are alike meet in one.
    bands: HashMap<(usize, [u32; ROWS]), Vec<usize>>,
}

impl Kept {
    /// None yet. Queries that share so many of their word triples are alike.
    pub(super) fn new(threshold: f64) -> Self {
        Self {
            threshold,
            signatures: Vec::new(),
            bands: HashMap::new(),
        }
    }

    /// Whether it is unlike every query before; it is kept then.
    pub(super) fn keep(&mut self, query: &str) -> bool {
        let signature = Signature::of(&View::Query.shingles(query));
        let bands: Vec<_> = bands(&signature).collect();
        let met = bands.iter().filter_map(|band| self.bands.get(band));
        let alike =
            |other: &usize| self.signatures[*other].similarity(&signature) >= self.threshold;
        if met.flatten().any(alike) {
            return false;
        }
        for band in bands {
            self.bands
                .entry(band)
                .or_default()
                .push(self.signatures.len());
        }
        self.signatures.push(signature);
        true
    }
}

fn bands(signature: &Signature) -> impl Iterator<Item = (usize, [u32; ROWS])> + '_ {
    let bands = signature.0.chunks_exact(ROWS).enumerate();
    bands.filter_map(|(band, rows)| Some((band, rows.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_are_alike_the_first_is_kept() {
        let mut kept = Kept::new(0.7);
        let first = "Compute the mean price of each city in orders.csv, round it to two decimals and save \
                     a table with the columns city and mean, sorted by city, to ./output/means.csv";
        assert!(kept.keep(first));
        assert!(!kept.keep(first));
        assert!(!kept.keep(&first.replace("Compute", "Please compute")));
        assert!(
            kept.keep("Rotate the picture by ninety degrees and save it as ./output/turned.png")
        );
        let zh = "请统计 orders.csv 中每个城市的平均价格，保留两位小数，并按城市排序后保存到 ./output/means.csv";
        assert!(kept.keep(zh));
        assert!(!kept.keep(&zh.replace("请统计", "统计")));
    }

    #[test]
    fn any_two_above_the_threshold_are_found() {
        // What bands miss would be a duplicate that is kept: compare with every pair.
        let words: Vec<String> = (0..60).map(|n| format!("word{n}")).collect();
        let texts: Vec<String> = (0..40)
            .map(|shift| {
                let mut words = words.clone();
                (0..shift % 7).for_each(|n| words[n * 8] = format!("other{shift}x{n}"));
                words.join(" ")
            })
            .collect();
        let mut kept = Kept::new(0.7);
        let mut plain: Vec<Signature> = Vec::new();
        for text in &texts {
            let signature = Signature::of(&View::Query.shingles(text));
            let alike = plain
                .iter()
                .any(|other| other.similarity(&signature) >= 0.7);
            assert_eq!(kept.keep(text), !alike);
            if !alike {
                plain.push(signature);
            }
        }
        assert!(plain.len() > 1 && plain.len() < texts.len());
    }
}
