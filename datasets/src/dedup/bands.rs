//! Bands of signatures: finds candidate pairs, partition by partition.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::sets::{Sets, ShingleSet};
use super::signature::{HASHES, Signatures};
use super::{DedupSettings, DisjointSets, Signature};
use crate::DatasetError;
use crate::text::mix;

/// Size of an entry in bytes: the hash of a band, and the number of the text.
const ENTRY_BYTES: usize = 12;
/// Maximum number of texts in a bucket that later texts are compared with.
const MAX_LEADERS: usize = 32;
/// Maximum number of open files.
const MAX_OPEN_FILES: usize = 512;

/// Candidates are compared exactly if the similarity of their signatures is at most this much below the threshold:
/// three standard deviations of the estimate.
const ESTIMATE_MARGIN: f64 = 0.14;

/// All texts, on disk.
pub(super) struct Texts {
    pub(super) signatures: Signatures,
    pub(super) sets: Sets,
}

/// A partition of a band on disk.
pub(super) struct Partition {
    path: PathBuf,
}

/// Write the entries of all bands, partitioned so that the entries of one partition fit into the memory.
pub(super) fn partition(
    signatures: &Signatures,
    count: usize,
    settings: &DedupSettings,
) -> Result<Vec<Partition>, DatasetError> {
    let partitions = (count * ENTRY_BYTES)
        .div_ceil((settings.memory / 2).max(ENTRY_BYTES))
        .max(1);
    let folder = signatures.path.with_file_name("bands");
    fs::create_dir_all(&folder).map_err(DatasetError::io(&folder))?;
    let mut written = Vec::new();
    // Each pass over the signatures writes as many bands as files can be open.
    let width = settings.band_width();
    let count = HASHES / width;
    let at_once = (MAX_OPEN_FILES / partitions).clamp(1, count);
    for first in (0..count).step_by(at_once) {
        let bands = first..(first + at_once).min(count);
        written.extend(write(signatures, &folder, (bands, width), partitions)?);
    }
    Ok(written)
}

fn write(
    signatures: &Signatures,
    folder: &Path,
    (bands, width): (std::ops::Range<usize>, usize),
    partitions: usize,
) -> Result<Vec<Partition>, DatasetError> {
    let mut files = Vec::new();
    for band in bands.clone() {
        for partition in 0..partitions {
            let path = folder.join(format!("{band:02}-{partition:05}"));
            let file = File::create(&path).map_err(DatasetError::io(&path))?;
            files.push((BufWriter::with_capacity(1 << 16, file), path));
        }
    }
    for (text, signature) in signatures.all()?.enumerate() {
        let signature = signature?;
        if signature.is_empty() {
            continue;
        }
        for (index, band) in bands.clone().enumerate() {
            let hash = hash(&signature, band, width);
            let partition = (hash >> 32) as usize % partitions;
            let (file, path) = &mut files[index * partitions + partition];
            let mut entry = [0; ENTRY_BYTES];
            entry[..8].copy_from_slice(&hash.to_le_bytes());
            entry[8..].copy_from_slice(&(text as u32).to_le_bytes());
            file.write_all(&entry).map_err(DatasetError::io(path))?;
        }
    }
    let close = |(mut file, path): (BufWriter<File>, PathBuf)| {
        file.flush().map_err(DatasetError::io(&path))?;
        Ok(Partition { path })
    };
    files.into_iter().map(close).collect()
}

fn hash(signature: &Signature, band: usize, width: usize) -> u64 {
    let minima = &signature.0[band * width..(band + 1) * width];
    let seed = mix(band as u64);
    minima
        .iter()
        .fold(seed, |hash, least| mix(hash ^ u64::from(*least)))
}

impl Partition {
    /// Join near duplicates in this partition.
    pub(super) fn join(
        self,
        texts: &Texts,
        threshold: f64,
        joined: &mut DisjointSets,
    ) -> Result<(), DatasetError> {
        let entries = self.read()?;
        fs::remove_file(&self.path).map_err(DatasetError::io(&self.path))?;
        for bucket in entries.chunk_by(|a, b| a.0 == b.0) {
            if bucket.len() > 1 {
                join_bucket(bucket, texts, threshold, joined)?;
            }
        }
        Ok(())
    }

    fn read(&self) -> Result<Vec<(u64, u32)>, DatasetError> {
        let wrap = || DatasetError::io(&self.path);
        let mut file = File::open(&self.path).map_err(wrap())?;
        let size = file.metadata().map_err(wrap())?.len();
        let mut entries = Vec::with_capacity(size as usize / ENTRY_BYTES);
        let mut buffer = vec![0; ENTRY_BYTES << 12];
        loop {
            let mut filled = 0;
            while filled < buffer.len() {
                match file.read(&mut buffer[filled..]).map_err(wrap())? {
                    0 => break,
                    more => filled += more,
                }
            }
            for entry in buffer[..filled].chunks_exact(ENTRY_BYTES) {
                let (hash, text) = entry.split_at(8);
                let hash = u64::from_le_bytes(hash.try_into().unwrap_or_default());
                let text = u32::from_le_bytes(text.try_into().unwrap_or_default());
                entries.push((hash, text));
            }
            if filled < buffer.len() {
                break;
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }
}

/// Compare the texts of a bucket with its leaders, the texts that were not similar to an earlier leader. A bucket of
/// a thousand copies needs a thousand comparisons, not half a million.
fn join_bucket(
    bucket: &[(u64, u32)],
    texts: &Texts,
    threshold: f64,
    joined: &mut DisjointSets,
) -> Result<(), DatasetError> {
    let mut leaders: Vec<Leader> = Vec::new();
    for (_, text) in bucket {
        let cluster = joined.find(*text);
        if leaders.iter().any(|one| joined.find(one.text) == cluster) {
            continue;
        }
        let mut new = Leader {
            text: *text,
            signature: texts.signatures.get(*text)?,
            set: None,
        };
        let mut is_similar = false;
        for leader in &mut leaders {
            let estimate = new.signature.similarity(&leader.signature);
            if estimate >= threshold - ESTIMATE_MARGIN
                && new.set(texts)?.jaccard(leader.set(texts)?) >= threshold
            {
                joined.join(leader.text, *text);
                is_similar = true;
            }
        }
        if !is_similar && leaders.len() < MAX_LEADERS {
            leaders.push(new);
        }
    }
    Ok(())
}

/// A text that later texts of its bucket are compared with.
struct Leader {
    text: u32,
    signature: Signature,
    /// Read when it is first needed.
    set: Option<ShingleSet>,
}

impl Leader {
    fn set(&mut self, texts: &Texts) -> Result<&ShingleSet, DatasetError> {
        match &mut self.set {
            Some(set) => Ok(set),
            missing => Ok(missing.insert(texts.sets.get(self.text)?)),
        }
    }
}
