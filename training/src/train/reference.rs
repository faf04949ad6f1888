//! The log-probabilities of the reference model: the model before its first step. They are computed once and kept in the
//! run folder.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize_to_file};
use tch::{Device, Kind, Tensor, no_grad};

use super::dataset::{Batch, Dataset, TokenizedDocument};
use super::dpo::Pair;
use super::process_group::{ProcessGroup, no_targets};
use super::recipe::Recipe;
use crate::catalog::ModelFiles;
use crate::model::{Adapter, Model, Weights};

/// Names of the tensors of a file, those of TRL's columns.
const COLUMNS: [&str; 2] = ["ref_chosen_logps", "ref_rejected_logps"];

/// A file with the log-probabilities of pairs.
pub(super) struct ReferenceFile<'a> {
    /// In the run folder.
    pub(super) path: &'a Path,
    /// A hash of model and data.
    pub(super) key: &'a str,
}

impl ReferenceFile<'_> {
    /// The log-probabilities of the first `count` pairs, from the file if it is there and has them, otherwise from the
    /// model, which has not been trained yet.
    pub(super) fn load_or_compute(
        &self,
        model: &Model,
        data: &Dataset,
        count: usize,
        group: &ProcessGroup,
    ) -> Result<Vec<Pair<f64>>> {
        let kept = self.read().filter(|pairs| pairs.len() == count);
        let missing = group.any(kept.is_none())?;
        if let Some(pairs) = kept.filter(|_| !missing) {
            return Ok(pairs);
        }
        let started = Instant::now();
        let pairs = compute(model, data, count, group)?;
        if group.is_main() {
            self.write(&pairs)
                .with_context(|| self.path.display().to_string())?;
            eprintln!(
                "log-probabilities of the reference model for {count} pairs: {:.1} s, kept in {}",
                started.elapsed().as_secs_f64(),
                self.path.display()
            );
        }
        group.barrier()?;
        Ok(pairs)
    }

    /// `None` for a missing or broken file, or one of another model or other data.
    fn read(&self) -> Option<Vec<Pair<f64>>> {
        let bytes = fs::read(self.path).ok()?;
        let (_, header) = SafeTensors::read_metadata(&bytes).ok()?;
        let key = header.metadata().as_ref()?.get("key")?;
        if key != self.key {
            return None;
        }
        let tensors = SafeTensors::deserialize(&bytes).ok()?;
        let column = |name: &str| -> Option<Vec<f64>> {
            let tensor = tensors.tensor(name).ok()?;
            let numbers = tensor.data().chunks_exact(8).map(|bytes| {
                let bytes: Option<[u8; 8]> = bytes.try_into().ok();
                bytes.map(f64::from_le_bytes)
            });
            (tensor.dtype() == Dtype::F64).then(|| numbers.collect())?
        };
        let [chosen, rejected] = [column(COLUMNS[0])?, column(COLUMNS[1])?];
        let pairs = chosen.into_iter().zip(rejected);
        let pairs = pairs.map(|(chosen, rejected)| Pair { chosen, rejected });
        Some(pairs.collect())
    }

    /// The file appears when it is complete.
    fn write(&self, pairs: &[Pair<f64>]) -> std::io::Result<()> {
        let bytes = |of: fn(&Pair<f64>) -> f64| -> Vec<u8> {
            pairs
                .iter()
                .flat_map(|pair| of(pair).to_le_bytes())
                .collect()
        };
        let columns = [bytes(|pair| pair.chosen), bytes(|pair| pair.rejected)];
        let failed = |error: safetensors::SafeTensorError| std::io::Error::other(error.to_string());
        let views = COLUMNS.iter().zip(&columns).map(|(name, bytes)| {
            let view = TensorView::new(Dtype::F64, vec![pairs.len()], bytes);
            view.map(|view| (*name, view)).map_err(failed)
        });
        let views = views.collect::<std::io::Result<Vec<_>>>()?;
        let metadata = HashMap::from([("key".to_owned(), self.key.to_owned())]);
        let unfinished = self.path.with_extension("unfinished");
        serialize_to_file(views, Some(metadata), &unfinished).map_err(failed)?;
        File::open(&unfinished)?.sync_all()?;
        fs::rename(unfinished, self.path)
    }
}

/// A hash of the weights of a model, of those of the adapter that it starts with, and of how they are computed with.
pub(super) fn model_key(recipe: &Recipe, files: &ModelFiles) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let quantization = recipe.lora.as_ref().and_then(|lora| lora.quantization);
    hasher.update(format!("1 {:?} {quantization:?}", recipe.train.dtype).as_bytes());
    for bytes in Weights::open(&files.weights)?.file_bytes() {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    // The recipe may name it by an address: what counts is the copy that is trained.
    for bytes in files.adapter.iter().flat_map(Adapter::file_bytes) {
        hasher.update(bytes);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Every process computes its share of the pairs, in equally many forward passes, because all must gather parameters
/// together.
fn compute(
    model: &Model,
    data: &Dataset,
    count: usize,
    group: &ProcessGroup,
) -> Result<Vec<Pair<f64>>> {
    let (rank, world) = (group.rank(), group.world_size());
    let mut all = vec![0.0; 2 * count];
    for turn in 0..count.div_ceil(world) {
        let number = turn * world + rank;
        let documents: Vec<TokenizedDocument> = match number < count {
            true => [2 * number, 2 * number + 1]
                .map(|n| data.document(n))
                .into(),
            false => vec![no_targets()],
        };
        let row = (0..documents.len()).collect();
        let batch = Batch::new(&documents, &[row], group.device())?;
        let logps = model.document_log_probabilities(&batch.ids, &batch.layout, &batch.targets);
        if let [chosen, rejected] = logps[..] {
            all[2 * number..2 * number + 2].copy_from_slice(&[chosen, rejected]);
        }
    }
    if let Some(communicator) = &group.communicator {
        let tensor = Tensor::from_slice(&all).to_device(group.device());
        no_grad(|| communicator.all_reduce(&tensor))?;
        all = Vec::try_from(&tensor.to_device(Device::Cpu).to_kind(Kind::Double))?;
    }
    let pairs = all.chunks_exact(2).map(|pair| Pair {
        chosen: pair[0],
        rejected: pair[1],
    });
    Ok(pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_zeros(file: &Path, name: &str, shape: [usize; 2], last: u8) {
        let mut bytes = vec![0; 4 * shape[0] * shape[1]];
        *bytes.last_mut().unwrap() = last;
        let view = TensorView::new(Dtype::F32, shape.to_vec(), &bytes).unwrap();
        serialize_to_file([(name, view)], None, file).unwrap();
    }

    /// The recipe names the adapter by its address, the files are the copy of it.
    #[test]
    fn an_adapter_at_an_address_is_part_of_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        fs::create_dir(&copy).unwrap();
        write_zeros(&folder.path().join("model.safetensors"), "w", [2, 2], 0);
        let config =
            r#"{"peft_type": "LORA", "base_model_name_or_path": "b", "r": 1, "lora_alpha": 2}"#;
        fs::write(copy.join("adapter_config.json"), config).unwrap();
        let text = "name='a'\nmodel='hf://o/adapter'\n[[data]]\npath='d'\n[train]\nmax_seq_len=8\nmax_steps=1\n";
        let recipe = Recipe::parse(text, Path::new("r.toml")).unwrap();
        let key = |adapter: Option<u8>| {
            let adapter = adapter.map(|last| {
                let name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
                write_zeros(&copy.join("adapter_model.safetensors"), name, [1, 2], last);
                Adapter::open(&copy).unwrap()
            });
            let files = ModelFiles {
                folder: folder.path().to_owned(),
                weights: folder.path().to_owned(),
                adapter,
            };
            model_key(&recipe, &files).unwrap()
        };
        let keys = [key(None), key(Some(1)), key(Some(2))];
        assert!(keys[0] != keys[1] && keys[1] != keys[2], "{keys:?}");
        assert_eq!(key(Some(1)), keys[1]);
    }

    #[test]
    fn kept_log_probabilities_have_the_same_bits_and_belong_to_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ref_logps.safetensors");
        let file = |key: &'static str| ReferenceFile { path: &path, key };
        assert_eq!(file("a").read(), None);
        let pairs: Vec<_> = (1..40)
            .map(|n| Pair {
                chosen: -1.0 / f64::from(n),
                rejected: -f64::from(n).sqrt(),
            })
            .collect();
        file("a").write(&pairs).unwrap();
        assert_eq!(file("a").read(), Some(pairs));
        assert_eq!(file("b").read(), None);
        let bytes = fs::read(&path).unwrap();
        for length in [0, 8, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            assert_eq!(file("a").read(), None, "{length} bytes");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
