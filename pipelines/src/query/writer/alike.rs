//! Near duplicates among queries, by MinHash and by embeddings: of two that are alike the earlier one is kept.

use std::collections::HashMap;

use pybench::llm::Vector;
use pybench::run::WriterChoice;
use pybench_datasets::dedup::{BANDS, HASHES, Signature, View};

/// Minima of one band.
const ROWS: usize = HASHES / BANDS;

/// The queries kept so far.
#[derive(Debug)]
pub(super) struct Kept {
    /// Share of common word triples, and cosine, from which on two are alike.
    similarity: f64,
    cosine: f64,
    signatures: Vec<Signature>,
    places: Vec<Vector>,
    /// Which of them have these minima in a band: queries that are alike meet in one.
    bands: HashMap<(usize, [u32; ROWS]), Vec<usize>>,
}

impl Kept {
    /// None yet; what is alike says the recipe.
    pub(super) fn new(writer: &WriterChoice) -> Self {
        let embeddings = writer.embeddings.as_ref();
        Self {
            similarity: writer.similarity,
            cosine: embeddings.map_or(f64::INFINITY, |e| e.similarity),
            signatures: Vec::new(),
            places: Vec::new(),
            bands: HashMap::new(),
        }
    }

    /// Whether it is unlike every query before; it is kept then. `place` is where it stands among others.
    pub(super) fn keep(&mut self, query: &str, place: Option<&Vector>) -> bool {
        let signature = Signature::of(&View::Query.shingles(query));
        let bands: Vec<_> = bands(&signature).collect();
        let met = bands.iter().filter_map(|band| self.bands.get(band));
        let alike =
            |other: &usize| self.signatures[*other].similarity(&signature) >= self.similarity;
        let near = |place: &Vector| {
            let cosines = self.places.iter().filter_map(|other| place.cosine(other));
            cosines
                .into_iter()
                .any(|cosine| f64::from(cosine) >= self.cosine)
        };
        if met.flatten().any(alike) || place.is_some_and(near) {
            return false;
        }
        self.places.extend(place.cloned());
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

    fn writer(more: &str) -> WriterChoice {
        let model = "{ kind = 'openai', model = 'm', base_url = 'http://h' }";
        toml::from_str(&format!(
            "generator = {model}\n{}",
            more.replace("MODEL", model)
        ))
        .unwrap()
    }

    #[test]
    fn what_means_the_same_is_found_where_words_differ() {
        let mut kept = Kept::new(&writer(
            "embeddings = { endpoint = MODEL, similarity = 0.9 }",
        ));
        let place = |numbers: &[f64]| Vector::of(numbers);
        let mut keep = |query: &str, numbers: &[f64]| kept.keep(query, place(numbers).as_ref());
        assert!(keep("Add up all prices.", &[1.0, 0.0]));
        assert!(!keep("What is the total cost?", &[1.0, 0.3]));
        assert!(keep("Turn the picture around.", &[0.0, 1.0]));
        assert!(!keep("Add up all prices.", &[1.0, 1.0]), "the same words");
        assert!(keep("Of another model.", &[1.0, 0.0, 0.0]));
        assert!(Kept::new(&writer("")).keep("q", None));
    }

    #[test]
    fn of_two_that_are_alike_the_first_is_kept() {
        let mut kept = Kept::new(&writer(""));
        let mut keep = |query: &str| kept.keep(query, None);
        let first = "Compute the mean price of each city in orders.csv, round it to two decimals and save \
                     a table with the columns city and mean, sorted by city, to ./output/means.csv";
        assert!(keep(first));
        assert!(!keep(first));
        assert!(!keep(&first.replace("Compute", "Please compute")));
        assert!(keep(
            "Rotate the picture by ninety degrees and save it as ./output/turned.png"
        ));
        let zh = "请统计 orders.csv 中每个城市的平均价格，保留两位小数，并按城市排序后保存到 ./output/means.csv";
        assert!(keep(zh));
        assert!(!keep(&zh.replace("请统计", "统计")));
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
        let mut kept = Kept::new(&writer(""));
        let mut plain: Vec<Signature> = Vec::new();
        for text in &texts {
            let signature = Signature::of(&View::Query.shingles(text));
            let alike = plain
                .iter()
                .any(|other| other.similarity(&signature) >= 0.7);
            assert_eq!(kept.keep(text, None), !alike);
            if !alike {
                plain.push(signature);
            }
        }
        assert!(plain.len() > 1 && plain.len() < texts.len());
    }
}
