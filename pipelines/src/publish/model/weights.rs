//! Weights in safetensors: whether the files are whole, and whether together they are what the index says.
//! The tensors themselves are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use pybench::run::RunError;
use serde::Deserialize;
use serde_json::Value;

use super::{bad, json};

/// Most bytes of a header; the format's own limit.
const HEADER: u64 = 100 << 20;
/// Most bytes of an index.
const INDEX: u64 = 256 << 20;

/// What the files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    /// Numbers in all tensors.
    pub(super) parameters: u64,
    /// Their types.
    pub(super) kinds: Vec<String>,
    /// Names of the files, the index among them.
    pub(super) files: Vec<String>,
}

/// A tensor in a header.
#[derive(Debug, Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Look at all weights of a model's folder.
///
/// # Errors
/// [`RunError::BadInput`] for a file that is cut short or does not fit the index.
pub(super) fn check(folder: &Path) -> Result<Weights, RunError> {
    let index = folder.join("model.safetensors.index.json");
    let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut files = Vec::new();
    match index.is_file() {
        false => {
            map.insert("model.safetensors".into(), BTreeSet::new());
        }
        true => {
            let value = json(&index, INDEX)?;
            let pairs = value["weight_map"].as_object();
            for (tensor, file) in pairs.ok_or_else(|| bad(&index, "no weight_map"))? {
                let file = file.as_str().filter(|file| is_name(file));
                let file = file.ok_or_else(|| bad(&index, "a file that is none"))?;
                map.entry(file.to_owned())
                    .or_default()
                    .insert(tensor.clone());
            }
            files.push("model.safetensors.index.json".to_owned());
        }
    }
    let (mut parameters, mut kinds) = (0_u64, BTreeSet::new());
    for (name, named) in map {
        let path = folder.join(&name);
        let tensors = header(&path)?;
        let found: BTreeSet<&String> = tensors.keys().collect();
        if !named.is_empty() && found != named.iter().collect() {
            return Err(bad(&path, "it holds other tensors than the index says"));
        }
        for tensor in tensors.values() {
            let count = tensor
                .shape
                .iter()
                .try_fold(1_u64, |n, d| n.checked_mul(*d));
            parameters = count
                .and_then(|n| parameters.checked_add(n))
                .unwrap_or(u64::MAX);
            kinds.insert(tensor.dtype.clone());
        }
        files.push(name);
    }
    Ok(Weights {
        parameters,
        kinds: kinds.into_iter().collect(),
        files,
    })
}

fn is_name(file: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    file.ends_with(".safetensors") && file.chars().all(plain)
}

/// The tensors of a file, which has to be exactly as long as they say.
fn header(path: &Path) -> Result<BTreeMap<String, Tensor>, RunError> {
    let io = |error| RunError::io(path.display().to_string())(error);
    let metadata = std::fs::symlink_metadata(path).map_err(|e| bad(path, &e.to_string()))?;
    if !metadata.is_file() {
        return Err(bad(path, "no file of its own (a link?)"));
    }
    let mut file = File::open(path).map_err(io)?;
    let mut length = [0; 8];
    let short = |_| bad(path, "cut short: no header");
    file.read_exact(&mut length).map_err(short)?;
    let length = u64::from_le_bytes(length);
    let size = metadata.len();
    if length > HEADER || length > size.saturating_sub(8) {
        return Err(bad(path, "its header is longer than it may be"));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(short)?;
    tensors(&header, size - 8 - length).map_err(|reason| bad(path, &reason))
}

/// The tensors of a header, which have to fill `size` bytes without gaps.
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
    let mut places: Vec<(u64, u64)> = tensors.values().map(|t| t.data_offsets).collect();
    places.sort_unstable();
    let mut end = 0;
    for (from, to) in places {
        if from != end || to < from {
            return Err("its tensors overlap or leave gaps".into());
        }
        end = to;
    }
    match end == size {
        true => Ok(tensors),
        false => Err(format!(
            "it has {size} bytes of tensors, its header says {end}"
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
    fn whole_files_pass_and_others_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        assert!(check(place).is_err(), "there is none");
        put(place, "model.safetensors", ONE, 12);
        let found = check(place).unwrap();
        assert_eq!(
            (found.parameters, found.kinds),
            (6, vec!["BF16".to_owned()])
        );
        assert_eq!(found.files, ["model.safetensors"]);
        for data in [0, 11, 13] {
            put(place, "model.safetensors", ONE, data);
            let error = check(place).unwrap_err().to_string();
            assert!(error.contains("its header says 12"), "{error}");
        }
        let gap = ONE.replace("[0, 12]", "[1, 12]");
        put(place, "model.safetensors", &gap, 12);
        assert!(check(place).unwrap_err().to_string().contains("gaps"));
        std::fs::write(place.join("model.safetensors"), [255; 8]).unwrap();
        assert!(check(place).unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn the_index_names_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        let index = |map: &str| {
            let text = format!(r#"{{"weight_map": {map}}}"#);
            std::fs::write(place.join("model.safetensors.index.json"), text).unwrap();
            check(place).map_err(|error| error.to_string())
        };
        put(place, "m-1.safetensors", ONE, 12);
        put(place, "m-2.safetensors", TWO, 4);
        let right = index(r#"{"a": "m-1.safetensors", "b": "m-2.safetensors"}"#).unwrap();
        assert_eq!((right.parameters, right.files.len()), (7, 3));
        let other = index(r#"{"a": "m-1.safetensors", "c": "m-2.safetensors"}"#);
        assert!(other.unwrap_err().contains("other tensors"));
        let away = index(r#"{"a": "../m-1.safetensors"}"#);
        assert!(away.unwrap_err().contains("a file that is none"));
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
