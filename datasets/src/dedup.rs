//! Finds near duplicates with MinHash and locality-sensitive hashing (LSH). Intermediate data is on disk.
//!
//! 1. Each text becomes a set of shingles, and the set becomes a signature of [`HASHES`] minima. Both are written to
//!    disk. Texts are collected into batches so that all cores are used.
//! 2. The signatures are read, and each of their bands is hashed into its own file. The files are partitioned so that
//!    one partition fits into the given memory. Lower thresholds have more and smaller bands.
//! 3. Partition by partition, texts with a common band become candidates. If their signatures, which only estimate
//!    the similarity, agree nearly in the threshold, their sets are compared, and they are joined if they share it.
//!    Memory holds four bytes per text, and one partition.
//! 4. Joined texts form a cluster. The text with the highest rank is kept; on a tie, the first one.
//!
//! The result is deterministic: it depends only on the texts and their order.

mod bands;
mod rows;
mod sets;
mod signature;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::DatasetError;
use crate::parallel;
use crate::text::{each_token, each_unit, hash_of, shingles};

pub(crate) use sets::ShingleSet;

pub use rows::{RowDeduplicator, RowTexts};
pub use signature::{HASHES, Signature};

/// Lowest threshold. With bands of two minima, two texts that share 35 % of their shingles have a common band with a
/// probability of 0.9998; of those that share 20 %, one pair in fourteen would be missed.
const MIN_THRESHOLD: f64 = 0.35;
/// From this threshold on, bands of four minima are enough for a common band with a probability of 0.9995.
const WIDE_BANDS_FROM: f64 = 0.68;
/// Maximum number of pending texts, and of their bytes.
const MAX_PENDING: (usize, usize) = (4096, 8 << 20);

/// The part of a row that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupField {
    /// The query, as shingles of three words.
    Query,
    /// The code, as shingles of five tokens.
    Code,
}

impl DedupField {
    /// The shingles of a text. May contain duplicates.
    pub fn shingles(self, text: &str) -> Vec<u64> {
        let mut hashes = Vec::new();
        match self {
            Self::Query => {
                each_unit(text, |unit| hashes.push(hash_of(unit)));
                shingles(&hashes, 3)
            }
            Self::Code => {
                each_token(text, |token| hashes.push(hash_of(token)));
                shingles(&hashes, 5)
            }
        }
    }
}

/// DedupSettings for finding near duplicates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DedupSettings {
    /// What is compared.
    pub field: DedupField,
    /// Minimum Jaccard similarity of near duplicates, from 0.35 to 1.
    pub threshold: f64,
    /// Memory for one partition of a band, in bytes.
    pub memory: usize,
}

impl DedupSettings {
    /// Number of minima in a band.
    fn band_width(&self) -> usize {
        match self.threshold >= WIDE_BANDS_FROM {
            true => 4,
            false => 2,
        }
    }

    /// DedupSettings with the default threshold and memory.
    pub fn of(field: DedupField) -> Self {
        Self {
            field,
            threshold: 0.8,
            memory: 512 << 20,
        }
    }
}

/// Collects texts, then clusters near duplicates.
pub struct Deduplicator {
    settings: DedupSettings,
    signatures: signature::SignatureWriter,
    sets: sets::SetWriter,
    ranks: Vec<u32>,
    pending: Vec<String>,
    pending_bytes: usize,
}

impl Deduplicator {
    /// Create a deduplicator with temporary files in `folder`. The folder must exist and can be deleted afterward.
    ///
    /// # Errors
    /// [`DatasetError::Setting`] for an invalid threshold; I/O errors.
    pub fn new(folder: &Path, settings: DedupSettings) -> Result<Self, DatasetError> {
        if !(MIN_THRESHOLD..=1.0).contains(&settings.threshold) {
            let threshold = settings.threshold;
            return Err(DatasetError::Setting(format!(
                "invalid threshold {threshold}: it must be from {MIN_THRESHOLD} to 1; pairs that share less are \
                 not found reliably"
            )));
        }
        Ok(Self {
            settings,
            signatures: signature::SignatureWriter::new(folder)?,
            sets: sets::SetWriter::new(folder)?,
            ranks: Vec::new(),
            pending: Vec::new(),
            pending_bytes: 0,
        })
    }

    /// Add the next text. In a cluster the text with the highest rank is kept; on a tie, the first one.
    ///
    /// # Errors
    /// I/O errors; more than 2^32 texts.
    pub fn add(&mut self, text: &str, rank: u32) -> Result<(), DatasetError> {
        if self.ranks.len() >= u32::MAX as usize {
            return Err(DatasetError::Setting(
                "too many rows: at most 2^32 can be deduplicated".to_owned(),
            ));
        }
        self.ranks.push(rank);
        self.pending.push(text.to_owned());
        self.pending_bytes += text.len();
        match self.pending.len() < MAX_PENDING.0 && self.pending_bytes < MAX_PENDING.1 {
            true => Ok(()),
            false => self.sign(),
        }
    }

    /// Compute the signatures of the pending texts.
    fn sign(&mut self) -> Result<(), DatasetError> {
        let field = self.settings.field;
        let sign = |text: &String| {
            let shingles = field.shingles(text);
            (Signature::of(&shingles), ShingleSet::of(&shingles))
        };
        let signed = parallel::map(&self.pending, sign);
        self.pending.clear();
        self.pending_bytes = 0;
        for (signature, set) in &signed {
            self.signatures.add(signature)?;
            self.sets.add(set)?;
        }
        Ok(())
    }

    /// Cluster the texts.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(mut self) -> Result<Clusters, DatasetError> {
        self.sign()?;
        let (count, settings) = (self.ranks.len(), self.settings);
        let texts = bands::Texts {
            signatures: self.signatures.finish()?,
            sets: self.sets.finish()?,
        };
        let mut joined = DisjointSets::new(count);
        let partitions = bands::partition(&texts.signatures, count, &settings)?;
        for partition in partitions {
            partition.join(&texts, settings.threshold, &mut joined)?;
        }
        Ok(Clusters::new(joined, &self.ranks))
    }
}

/// Union-find over texts. The first text of a set represents it.
struct DisjointSets(Vec<u32>);

impl DisjointSets {
    fn new(count: usize) -> Self {
        // `Deduplicator::add` limits the count.
        Self((0..count as u32).collect())
    }

    fn find(&mut self, mut text: u32) -> u32 {
        while self.0[text as usize] != text {
            let parent = self.0[text as usize];
            self.0[text as usize] = self.0[parent as usize];
            text = self.0[text as usize];
        }
        text
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

/// Clusters of near duplicates, and the text that is kept of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// For each text, the text of its cluster that is kept (possibly itself).
    pub keeper: Vec<u32>,
}

impl Clusters {
    fn new(mut sets: DisjointSets, ranks: &[u32]) -> Self {
        let count = ranks.len() as u32;
        let roots: Vec<u32> = (0..count).map(|text| sets.find(text)).collect();
        let mut best = sets.0;
        for text in 0..count {
            let kept = &mut best[roots[text as usize] as usize];
            if ranks[text as usize] > ranks[*kept as usize] {
                *kept = text;
            }
        }
        let keeper = roots.iter().map(|root| best[*root as usize]).collect();
        Self { keeper }
    }

    /// Whether the text is kept.
    pub fn keeps(&self, text: usize) -> bool {
        self.keeper
            .get(text)
            .is_some_and(|kept| *kept as usize == text)
    }

    /// Clusters of more than one text: the kept text and all members, including itself.
    pub fn groups(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
        for (text, kept) in self.keeper.iter().enumerate() {
            if *kept as usize != text {
                *sizes.entry(*kept).or_default() += 1;
            }
        }
        let mut groups: BTreeMap<u32, Vec<u32>> =
            sizes.into_keys().map(|kept| (kept, Vec::new())).collect();
        for (text, kept) in self.keeper.iter().enumerate() {
            if let Some(members) = groups.get_mut(kept) {
                members.push(text as u32);
            }
        }
        groups
    }
}
