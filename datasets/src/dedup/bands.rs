//! Bands of signatures: finds candidate pairs, partition by partition.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::signature::{HASHES, Signatures};
use super::{BANDS, DisjointSets, Signature};
use crate::DatasetError;
use crate::text::mix;

/// Number of minima in a band.
const ROWS: usize = HASHES / BANDS;
/// Size of an entry in bytes: the hash of a band, and the number of the text.
const ENTRY_BYTES: usize = 12;
/// Maximum number of texts in a bucket that later texts are compared with.
const MAX_LEADERS: usize = 32;
/// Maximum number of open files.
const MAX_OPEN_FILES: usize = 512;

/// A partition of a band on disk.
pub(super) struct Partition {
    path: PathBuf,
}

/// Write the entries of all bands, partitioned so that the entries of one partition fit into `memory` bytes.
pub(super) fn partition(
    signatures: &Signatures,
    count: usize,
    memory: usize,
) -> Result<Vec<Partition>, DatasetError> {
    let partitions = (count * ENTRY_BYTES)
        .div_ceil((memory / 2).max(ENTRY_BYTES))
        .max(1);
    let folder = signatures.path.with_file_name("bands");
    fs::create_dir_all(&folder).map_err(DatasetError::io(&folder))?;
    let mut written = Vec::new();
    // Each pass over the signatures writes as many bands as files can be open.
    let at_once = (MAX_OPEN_FILES / partitions).clamp(1, BANDS);
    for first in (0..BANDS).step_by(at_once) {
        let bands = first..(first + at_once).min(BANDS);
        written.extend(write(signatures, &folder, bands, partitions)?);
    }
    Ok(written)
}

fn write(
    signatures: &Signatures,
    folder: &Path,
    bands: std::ops::Range<usize>,
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
            let hash = hash(&signature, band);
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

fn hash(signature: &Signature, band: usize) -> u64 {
    let rows = &signature.0[band * ROWS..(band + 1) * ROWS];
    let seed = mix(band as u64);
    rows.iter()
        .fold(seed, |hash, row| mix(hash ^ u64::from(*row)))
}

impl Partition {
    /// Join near duplicates in this partition.
    pub(super) fn join(
        self,
        signatures: &Signatures,
        threshold: f64,
        sets: &mut DisjointSets,
    ) -> Result<(), DatasetError> {
        let entries = self.read()?;
        fs::remove_file(&self.path).map_err(DatasetError::io(&self.path))?;
        for bucket in entries.chunk_by(|a, b| a.0 == b.0) {
            if bucket.len() > 1 {
                join_bucket(bucket, signatures, threshold, sets)?;
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
    signatures: &Signatures,
    threshold: f64,
    sets: &mut DisjointSets,
) -> Result<(), DatasetError> {
    let mut leaders: Vec<(u32, Signature)> = Vec::new();
    for (_, text) in bucket {
        let set = sets.find(*text);
        if leaders.iter().any(|(leader, _)| sets.find(*leader) == set) {
            continue;
        }
        let signature = signatures.get(*text)?;
        let mut is_similar = false;
        for (leader, other) in &leaders {
            if signature.similarity(other) >= threshold {
                sets.join(*leader, *text);
                is_similar = true;
            }
        }
        if !is_similar && leaders.len() < MAX_LEADERS {
            leaders.push((*text, signature));
        }
    }
    Ok(())
}
