//! Near duplicates by MinHash and locality-sensitive hashing, in stages on disk.
//!
//! 1. Each text becomes a set of shingles and these a signature of [`HASHES`] minima, which goes to disk;
//!    some texts wait until there are enough for all cores.
//! 2. Signatures are read once; each of [`BANDS`] bands of a signature is hashed into a file of its own,
//!    divided so that one part fits into the memory allowed.
//! 3. Part by part, texts that share a band are candidates; candidates whose signatures agree in at
//!    least the threshold are joined. Nothing but four bytes a text and the part at hand is in memory.
//! 4. What is joined is a cluster; its keeper is the text with the highest rank, of equals the first.
//!
//! Nothing depends on time, threads or chance: equal texts in equal order give equal clusters.

mod bands;
mod signature;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::DatasetError;
use crate::parallel;
use crate::text::{each_token, each_unit, hash_of, shingles};

pub use signature::{HASHES, Signature};

/// Bands of a signature: two texts that share four fifths of their shingles meet in one with a
/// probability above 0.999999, those that share half with 0.87, those that share a fifth with 0.05.
pub const BANDS: usize = 32;
/// Texts that wait, and their bytes, at most.
const WAITING: (usize, usize) = (4096, 8 << 20);

/// What of a document is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Its words, in runs of three.
    Query,
    /// Its tokens, in runs of five.
    Code,
}

impl View {
    /// The shingles by which texts are compared; some may be there twice.
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

/// How duplicates are looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What is compared.
    pub view: View,
    /// Share of common shingles (Jaccard) from which on two texts are near duplicates, above 0 to 1.
    pub threshold: f64,
    /// Bytes of memory for one part of a band.
    pub memory: usize,
}

impl Settings {
    /// The usual threshold and memory.
    pub fn of(view: View) -> Self {
        Self {
            view,
            threshold: 0.8,
            memory: 512 << 20,
        }
    }
}

/// Takes texts one by one; then says which are near duplicates.
pub struct Deduplicator {
    settings: Settings,
    signatures: signature::Writer,
    ranks: Vec<u32>,
    waiting: Vec<String>,
    waiting_bytes: usize,
}

impl Deduplicator {
    /// With its files in that folder, which must be there and may be thrown away afterwards.
    ///
    /// # Errors
    /// [`DatasetError::Setting`] for a threshold outside its bounds; failures of the disk.
    pub fn new(folder: &Path, settings: Settings) -> Result<Self, DatasetError> {
        if !(settings.threshold > 0.0 && settings.threshold <= 1.0) {
            let threshold = settings.threshold;
            return Err(DatasetError::Setting(format!(
                "a threshold of {threshold}: expected a share above 0 up to 1"
            )));
        }
        Ok(Self {
            settings,
            signatures: signature::Writer::new(folder)?,
            ranks: Vec::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
        })
    }

    /// The next text. Of a cluster the one of the highest rank is kept, of equals the first.
    ///
    /// # Errors
    /// Failures of the disk; more than four billion texts.
    pub fn add(&mut self, text: &str, rank: u32) -> Result<(), DatasetError> {
        if self.ranks.len() >= u32::MAX as usize {
            return Err(DatasetError::Setting("more than 2^32 texts".to_owned()));
        }
        self.ranks.push(rank);
        self.waiting.push(text.to_owned());
        self.waiting_bytes += text.len();
        match self.waiting.len() < WAITING.0 && self.waiting_bytes < WAITING.1 {
            true => Ok(()),
            false => self.sign(),
        }
    }

    /// Signatures of the texts that wait.
    fn sign(&mut self) -> Result<(), DatasetError> {
        let view = self.settings.view;
        let sign = |text: &String| Signature::of(&view.shingles(text));
        let signatures = parallel::map(&self.waiting, sign);
        self.waiting.clear();
        self.waiting_bytes = 0;
        let mut signatures = signatures.iter();
        signatures.try_for_each(|signature| self.signatures.add(signature))
    }

    /// Which of them are near duplicates.
    ///
    /// # Errors
    /// Failures of the disk.
    pub fn finish(mut self) -> Result<Clusters, DatasetError> {
        self.sign()?;
        let (count, settings) = (self.ranks.len(), self.settings);
        let signatures = self.signatures.finish()?;
        let mut sets = Sets::new(count);
        let parts = bands::divide(&signatures, count, settings.memory)?;
        for part in parts {
            part.join(&signatures, settings.threshold, &mut sets)?;
        }
        Ok(Clusters::new(sets, &self.ranks))
    }
}

/// Disjoint sets of texts; the first text of a set stands for it.
struct Sets(Vec<u32>);

impl Sets {
    fn new(count: usize) -> Self {
        // `Deduplicator::add` has seen to it that the count fits.
        Self((0..count as u32).collect())
    }

    fn find(&mut self, mut text: u32) -> u32 {
        while self.0[text as usize] != text {
            let above = self.0[text as usize];
            self.0[text as usize] = self.0[above as usize];
            text = self.0[text as usize];
        }
        text
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

/// Texts that are near duplicates of one another, and which of them is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// For each text the one that is kept of its cluster: itself where it is kept.
    pub keeper: Vec<u32>,
}

impl Clusters {
    fn new(mut sets: Sets, ranks: &[u32]) -> Self {
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

    /// Whether a text is kept.
    pub fn keeps(&self, text: usize) -> bool {
        self.keeper
            .get(text)
            .is_some_and(|kept| *kept as usize == text)
    }

    /// Clusters of more than one text: keeper → members, itself among them.
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
