//! Filters near-duplicate queries by MinHash and by embeddings. Of two similar queries, the earlier is kept.

use std::collections::HashMap;

use pybench_datasets::dedup::{DedupField, Signature};
use pybench_llm::Vector;
use pybench_run::WriterChoice;

/// MinHash values per band.
const ROWS: usize = 4;

/// The queries kept so far.
#[derive(Debug)]
pub(super) struct NearDupFilter {
    /// Threshold on the share of common word triples.
    similarity: f64,
    /// Threshold on the cosine similarity of embeddings.
    cosine: f64,
    signatures: Vec<Signature>,
    embeddings: Vec<Vector>,
    /// Queries by the MinHash values of a band. Similar queries share at least one band.
    bands: HashMap<(usize, [u32; ROWS]), Vec<usize>>,
}

impl NearDupFilter {
    /// An empty filter with the thresholds of the recipe.
    pub(super) fn new(writer: &WriterChoice) -> Self {
        let embeddings = writer.embeddings.as_ref();
        Self {
            similarity: writer.similarity,
            cosine: embeddings.map_or(f64::INFINITY, |e| e.similarity),
            signatures: Vec::new(),
            embeddings: Vec::new(),
            bands: HashMap::new(),
        }
    }

    /// Keeps the query and returns `true` if it is dissimilar to every kept query. `embedding` is its
    /// embedding, if the recipe names an endpoint.
    pub(super) fn keep(&mut self, query: &str, embedding: Option<&Vector>) -> bool {
        let signature = Signature::of(&DedupField::Query.shingles(query));
        let bands: Vec<_> = bands(&signature).collect();
        let candidates = bands.iter().filter_map(|band| self.bands.get(band));
        let similar =
            |other: &usize| self.signatures[*other].similarity(&signature) >= self.similarity;
        let near = |embedding: &Vector| {
            let cosines = self
                .embeddings
                .iter()
                .filter_map(|other| embedding.cosine(other));
            cosines
                .into_iter()
                .any(|cosine| f64::from(cosine) >= self.cosine)
        };
        if candidates.flatten().any(similar) || embedding.is_some_and(near) {
            return false;
        }
        self.embeddings.extend(embedding.cloned());
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
    fn embeddings_find_paraphrases() {
        let mut filter = NearDupFilter::new(&writer(
            "embeddings = { endpoint = MODEL, similarity = 0.9 }",
        ));
        let embedding = |numbers: &[f64]| Vector::of(numbers);
        let mut keep =
            |query: &str, numbers: &[f64]| filter.keep(query, embedding(numbers).as_ref());
        assert!(keep("Add up all prices.", &[1.0, 0.0]));
        assert!(!keep("What is the total cost?", &[1.0, 0.3]));
        assert!(keep("Turn the picture around.", &[0.0, 1.0]));
        assert!(!keep("Add up all prices.", &[1.0, 1.0]), "the same words");
        assert!(keep("Of another model.", &[1.0, 0.0, 0.0]));
        assert!(NearDupFilter::new(&writer("")).keep("q", None));
    }

    #[test]
    fn the_first_of_two_similar_queries_is_kept() {
        let mut filter = NearDupFilter::new(&writer(""));
        let mut keep = |query: &str| filter.keep(query, None);
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
    fn every_pair_above_the_threshold_is_found() {
        // Banding could miss a pair, so compare with a search over all pairs.
        let words: Vec<String> = (0..60).map(|n| format!("word{n}")).collect();
        let texts: Vec<String> = (0..40)
            .map(|shift| {
                let mut words = words.clone();
                (0..shift % 7).for_each(|n| words[n * 8] = format!("other{shift}x{n}"));
                words.join(" ")
            })
            .collect();
        let mut filter = NearDupFilter::new(&writer(""));
        let mut plain: Vec<Signature> = Vec::new();
        for text in &texts {
            let signature = Signature::of(&DedupField::Query.shingles(text));
            let similar = plain
                .iter()
                .any(|other| other.similarity(&signature) >= 0.7);
            assert_eq!(filter.keep(text, None), !similar);
            if !similar {
                plain.push(signature);
            }
        }
        assert!(plain.len() > 1 && plain.len() < texts.len());
    }
}
