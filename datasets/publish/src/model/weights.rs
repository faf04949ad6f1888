//! Checks safetensors files: each file is complete, and the files match the index. Tensor data is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use pybench_run::RunError;
use serde::Deserialize;
use serde_json::Value;

use super::{bad_file, json};

/// Maximum size of a header, in bytes; the limit of the format.
const MAX_HEADER_BYTES: u64 = 100 << 20;
/// Maximum size of an index, in bytes.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// Summary of the weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    pub(super) parameters: u64,
    /// Data types of the tensors.
    pub(super) dtypes: Vec<String>,
    /// File names, including the index.
    pub(super) files: Vec<String>,
}

/// Entry of a tensor in a header.
#[derive(Debug, Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Check all weights in the folder of a model: `STEM.safetensors`, or the files of its index.
///
/// # Errors
/// [`RunError::BadInput`] if a file is truncated or does not match the index.
pub(super) fn check(folder: &Path, stem: &str) -> Result<Weights, RunError> {
    let index_name = format!("{stem}.safetensors.index.json");
    let index = folder.join(&index_name);
    let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut files = Vec::new();
    match index.is_file() {
        false => {
            map.insert(format!("{stem}.safetensors"), BTreeSet::new());
        }
        true => {
            let value = json(&index, MAX_INDEX_BYTES)?;
            let pairs = value["weight_map"].as_object();
            for (tensor, file) in pairs.ok_or_else(|| bad_file(&index, "weight_map is missing"))? {
                let file = file.as_str().filter(|file| is_name(file));
                let file = file
                    .ok_or_else(|| bad_file(&index, "weight_map contains an invalid file name"))?;
                map.entry(file.to_owned())
                    .or_default()
                    .insert(tensor.clone());
            }
            files.push(index_name);
        }
    }
    let (mut parameters, mut dtypes) = (0_u64, BTreeSet::new());
    for (name, named) in map {
        let path = folder.join(&name);
        let tensors = header(&path)?;
        let found: BTreeSet<&String> = tensors.keys().collect();
        if !named.is_empty() && found != named.iter().collect() {
            return Err(bad_file(&path, "its tensors do not match the index"));
        }
        for tensor in tensors.values() {
            let count = tensor
                .shape
                .iter()
                .try_fold(1_u64, |n, d| n.checked_mul(*d));
            parameters = count
                .and_then(|n| parameters.checked_add(n))
                .unwrap_or(u64::MAX);
            dtypes.insert(tensor.dtype.clone());
        }
        files.push(name);
    }
    Ok(Weights {
        parameters,
        dtypes: dtypes.into_iter().collect(),
        files,
    })
}

fn is_name(file: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    file.ends_with(".safetensors") && file.chars().all(plain)
}

/// Read the header of a file, and check that the file has exactly the length that it states.
fn header(path: &Path) -> Result<BTreeMap<String, Tensor>, RunError> {
    let io = |error| RunError::io(path.display().to_string())(error);
    let metadata = std::fs::symlink_metadata(path).map_err(|e| bad_file(path, &e.to_string()))?;
    if !metadata.is_file() {
        return Err(bad_file(path, "not a regular file (is it a link?)"));
    }
    let mut file = File::open(path).map_err(io)?;
    let mut length = [0; 8];
    let short = |_| bad_file(path, "truncated: the header is incomplete");
    file.read_exact(&mut length).map_err(short)?;
    let length = u64::from_le_bytes(length);
    let size = metadata.len();
    if length > MAX_HEADER_BYTES || length > size.saturating_sub(8) {
        return Err(bad_file(
            path,
            "the header is longer than the file or the limit",
        ));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(short)?;
    tensors(&header, size - 8 - length).map_err(|reason| bad_file(path, &reason))
}

/// Parse a header. The tensors must fill `size` bytes without gaps.
fn tensors(header: &[u8], size: u64) -> Result<BTreeMap<String, Tensor>, String> {
    let all: BTreeMap<String, Value> =
        serde_json::from_slice(header).map_err(|error| error.to_string())?;
    let mut tensors = BTreeMap::new();
    for (name, value) in all {
        if name != "__metadata__" {
            let tensor = serde_json::from_value(value);
            let tensor: Tensor = tensor.map_err(|error| format!("tensor {name}: {error}"))?;
            tensors.insert(name, tensor);
        }
    }
    let mut ranges: Vec<(u64, u64)> = tensors.values().map(|t| t.data_offsets).collect();
    ranges.sort_unstable();
    let mut end = 0;
    for (from, to) in ranges {
        if from != end || to < from {
            return Err("the tensors overlap or leave gaps".into());
        }
        end = to;
    }
    match end == size {
        true => Ok(tensors),
        false => Err(format!(
            "the file has {size} bytes of tensor data, but its header says {end}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str, header: &str, data: usize) {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        std::fs::write(folder.join(name), bytes).unwrap();
    }

    const ONE: &str = r#"{"__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}"#;
    const TWO: &str = r#"{"b": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}"#;

    #[test]
    fn incomplete_files_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(check(path, "model").is_err(), "there are no weights");
        put(path, "model.safetensors", ONE, 12);
        let found = check(path, "model").unwrap();
        assert_eq!(
            (found.parameters, found.dtypes),
            (6, vec!["BF16".to_owned()])
        );
        assert_eq!(found.files, ["model.safetensors"]);
        for data in [0, 11, 13] {
            put(path, "model.safetensors", ONE, data);
            let error = check(path, "model").unwrap_err().to_string();
            assert!(error.contains("its header says 12"), "{error}");
        }
        let gap = ONE.replace("[0, 12]", "[1, 12]");
        put(path, "model.safetensors", &gap, 12);
        assert!(
            check(path, "model")
                .unwrap_err()
                .to_string()
                .contains("gaps")
        );
        std::fs::write(path.join("model.safetensors"), [255; 8]).unwrap();
        assert!(
            check(path, "model")
                .unwrap_err()
                .to_string()
                .contains("longer")
        );
    }

    #[test]
    fn the_index_must_match_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let index = |map: &str| {
            let text = format!(r#"{{"weight_map": {map}}}"#);
            std::fs::write(path.join("model.safetensors.index.json"), text).unwrap();
            check(path, "model").map_err(|error| error.to_string())
        };
        put(path, "m-1.safetensors", ONE, 12);
        put(path, "m-2.safetensors", TWO, 4);
        let right = index(r#"{"a": "m-1.safetensors", "b": "m-2.safetensors"}"#).unwrap();
        assert_eq!((right.parameters, right.files.len()), (7, 3));
        let other = index(r#"{"a": "m-1.safetensors", "c": "m-2.safetensors"}"#);
        assert!(other.unwrap_err().contains("do not match the index"));
        let away = index(r#"{"a": "../m-1.safetensors"}"#);
        assert!(
            away.unwrap_err()
                .contains("weight_map contains an invalid file name")
        );
        let missing = index(r#"{"a": "m-9.safetensors"}"#);
        assert!(missing.unwrap_err().contains("m-9.safetensors"));
    }

    #[test]
    fn fuzz_headers_of_weights() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(found) = tensors(bytes, 12) {
                let ends = found.values().map(|t| t.data_offsets.1).max();
                assert_eq!(ends.unwrap_or(0), 12);
            }
        });
    }
}
