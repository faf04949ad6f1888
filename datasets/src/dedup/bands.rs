//! Bands: which texts meet, part by part.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::signature::{HASHES, Signatures};
use super::{BANDS, Sets, Signature};
use crate::DatasetError;
use crate::text::mix;

/// Minima of one band.
const ROWS: usize = HASHES / BANDS;
/// Bytes of one entry: the hash of a band, and the text.
const ENTRY: usize = 12;
/// Texts of one bucket that later ones are compared with.
const LEADERS: usize = 32;
/// Files open at a time.
const OPEN: usize = 512;

/// One part of one band on disk.
pub(super) struct Part {
    path: PathBuf,
}

/// Write the entries of all bands, so that the entries of one part fit into `memory` bytes.
pub(super) fn divide(
    signatures: &Signatures,
    count: usize,
    memory: usize,
) -> Result<Vec<Part>, DatasetError> {
    let pieces = (count * ENTRY).div_ceil((memory / 2).max(ENTRY)).max(1);
    let folder = signatures.path.with_file_name("bands");
    fs::create_dir_all(&folder).map_err(DatasetError::io(&folder))?;
    let mut parts = Vec::new();
    // As many bands in one reading as files may be open.
    let at_once = (OPEN / pieces).clamp(1, BANDS);
    for first in (0..BANDS).step_by(at_once) {
        let bands = first..(first + at_once).min(BANDS);
        parts.extend(write(signatures, &folder, bands, pieces)?);
    }
    Ok(parts)
}

fn write(
    signatures: &Signatures,
    folder: &Path,
    bands: std::ops::Range<usize>,
    pieces: usize,
) -> Result<Vec<Part>, DatasetError> {
    let mut files = Vec::new();
    for band in bands.clone() {
        for piece in 0..pieces {
            let path = folder.join(format!("{band:02}-{piece:05}"));
            let file = File::create(&path).map_err(DatasetError::io(&path))?;
            files.push((BufWriter::with_capacity(1 << 16, file), path));
        }
    }
    for (text, signature) in signatures.all()?.enumerate() {
        let signature = signature?;
        if signature.is_empty() {
            continue;
        }
        for (place, band) in bands.clone().enumerate() {
            let hash = hash(&signature, band);
            let piece = (hash >> 32) as usize % pieces;
            let (file, path) = &mut files[place * pieces + piece];
            let mut entry = [0; ENTRY];
            entry[..8].copy_from_slice(&hash.to_le_bytes());
            entry[8..].copy_from_slice(&(text as u32).to_le_bytes());
            file.write_all(&entry).map_err(DatasetError::io(path))?;
        }
    }
    let close = |(mut file, path): (BufWriter<File>, PathBuf)| {
        file.flush().map_err(DatasetError::io(&path))?;
        Ok(Part { path })
    };
    files.into_iter().map(close).collect()
}

fn hash(signature: &Signature, band: usize) -> u64 {
    let rows = &signature.0[band * ROWS..(band + 1) * ROWS];
    let seed = mix(band as u64);
    rows.iter()
        .fold(seed, |hash, row| mix(hash ^ u64::from(*row)))
}

impl Part {
    /// Join the texts of this part that are near duplicates.
    pub(super) fn join(
        self,
        signatures: &Signatures,
        threshold: f64,
        sets: &mut Sets,
    ) -> Result<(), DatasetError> {
        let entries = self.read()?;
        fs::remove_file(&self.path).map_err(DatasetError::io(&self.path))?;
        for bucket in entries.chunk_by(|a, b| a.0 == b.0) {
            if bucket.len() > 1 {
                meet(bucket, signatures, threshold, sets)?;
            }
        }
        Ok(())
    }

    fn read(&self) -> Result<Vec<(u64, u32)>, DatasetError> {
        let wrap = || DatasetError::io(&self.path);
        let mut file = File::open(&self.path).map_err(wrap())?;
        let size = file.metadata().map_err(wrap())?.len();
        let mut entries = Vec::with_capacity(size as usize / ENTRY);
        let mut buffer = vec![0; ENTRY << 12];
        loop {
            let mut filled = 0;
            while filled < buffer.len() {
                match file.read(&mut buffer[filled..]).map_err(wrap())? {
                    0 => break,
                    more => filled += more,
                }
            }
            for entry in buffer[..filled].chunks_exact(ENTRY) {
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

/// Compare the texts of a bucket with those that no earlier one was like. A bucket of a thousand copies
/// takes a thousand comparisons, not half a million.
fn meet(
    bucket: &[(u64, u32)],
    signatures: &Signatures,
    threshold: f64,
    sets: &mut Sets,
) -> Result<(), DatasetError> {
    let mut leaders: Vec<(u32, Signature)> = Vec::new();
    for (_, text) in bucket {
        let set = sets.find(*text);
        if leaders.iter().any(|(leader, _)| sets.find(*leader) == set) {
            continue;
        }
        let signature = signatures.get(*text)?;
        let mut alike = false;
        for (leader, other) in &leaders {
            if signature.similarity(other) >= threshold {
                sets.join(*leader, *text);
                alike = true;
            }
        }
        if !alike && leaders.len() < LEADERS {
            leaders.push((*text, signature));
        }
    }
    Ok(())
}
