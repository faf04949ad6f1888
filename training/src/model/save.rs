//! Saves Hugging Face directories: safetensors shards with their index, `config.json`, tokenizer files.

use std::fs::{self, File};
use std::io::{BufWriter, IntoInnerError, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tch::{Kind, Tensor};
use thiserror::Error;

use super::config::ModelConfig;
use super::llama::Model;
use super::load::LoadError;
use crate::exit::ExitCode;

const MAX_SHARD_BYTES: u64 = 4 << 30;
/// Files of a model directory that are copied unchanged.
const COPIED_FILES: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
];

/// A directory cannot be written, or what goes into it cannot be read.
#[derive(Debug, Error)]
pub enum SaveError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl SaveError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Io(error) => ExitCode::of_io(error),
            Self::Load(error) => error.exit_code(),
        }
    }
}

/// A tensor that is to be written.
#[derive(Clone, Debug)]
pub(super) struct TensorEntry {
    pub(super) name: String,
    pub(super) shape: Vec<i64>,
    pub(super) kind: Kind,
}

impl TensorEntry {
    fn of((name, tensor): &(String, Tensor)) -> Self {
        Self {
            name: name.clone(),
            shape: tensor.size(),
            kind: tensor.kind(),
        }
    }

    fn bytes(&self) -> u64 {
        self.shape.iter().product::<i64>() as u64 * self.kind.elt_size_in_bytes() as u64
    }
}

pub struct SafetensorsWriter;

impl SafetensorsWriter {
    /// Writes a safetensors file and syncs it to disk.
    pub fn write(
        path: &Path,
        tensors: &[(String, Tensor)],
        metadata: &Map<String, Value>,
    ) -> std::io::Result<()> {
        Self::write_with(path, tensors, metadata, |_| ())
    }

    /// Like [`SafetensorsWriter::write`]; calls `written` with the number of tensors that have been written, before
    /// the next one is read.
    pub fn write_with(
        path: &Path,
        tensors: &[(String, Tensor)],
        metadata: &Map<String, Value>,
        mut written: impl FnMut(usize),
    ) -> std::io::Result<()> {
        let entries: Vec<_> = tensors.iter().map(TensorEntry::of).collect();
        let mut next = tensors.iter().enumerate();
        Self::write_each(path, &entries, metadata, |_| {
            // One entry was made of each tensor.
            Ok::<_, std::io::Error>(
                next.next()
                    .map_or_else(Tensor::new, |(count, (_, tensor))| {
                        written(count);
                        tensor.shallow_clone()
                    }),
            )
        })?;
        written(tensors.len());
        Ok(())
    }

    /// Writes a safetensors file; `tensor` gives each tensor when its turn has come.
    fn write_each<E: From<std::io::Error>>(
        path: &Path,
        entries: &[TensorEntry],
        metadata: &Map<String, Value>,
        mut tensor: impl FnMut(&TensorEntry) -> Result<Tensor, E>,
    ) -> Result<(), E> {
        let mut file = BufWriter::new(File::create(path)?);
        let header = header(entries, metadata)?;
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        for entry in entries {
            write_tensor(&mut file, &tensor(entry)?)?;
        }
        Ok(file
            .into_inner()
            .map_err(IntoInnerError::into_error)?
            .sync_all()?)
    }
}

fn header(entries: &[TensorEntry], metadata: &Map<String, Value>) -> std::io::Result<Vec<u8>> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), Value::Object(metadata.clone()));
    let mut offset = 0;
    for entry in entries {
        let end = offset + entry.bytes();
        let described = json!({
            "dtype": dtype(entry.kind)?,
            "shape": entry.shape,
            "data_offsets": [offset, end],
        });
        header.insert(entry.name.clone(), described);
        offset = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

fn dtype(kind: Kind) -> std::io::Result<&'static str> {
    Ok(match kind {
        Kind::Float => "F32",
        Kind::Half => "F16",
        Kind::BFloat16 => "BF16",
        Kind::Int64 => "I64",
        Kind::Uint8 => "U8",
        other => {
            return Err(std::io::Error::other(format!(
                "safetensors files of {other:?} are not supported"
            )));
        }
    })
}

fn write_tensor(file: &mut impl Write, tensor: &Tensor) -> std::io::Result<()> {
    let tensor = tensor.detach().to_device(tch::Device::Cpu).contiguous();
    let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
    // SAFETY: a contiguous tensor on the CPU has exactly that many bytes, and outlives the slice. libtorch
    // supports little-endian machines only.
    let data = unsafe { std::slice::from_raw_parts(tensor.data_ptr() as *const u8, bytes) };
    file.write_all(data)
}

/// Writes the model into `folder`, with the tokenizer files of `source`. transformers can load the result.
pub fn save_model(model: &Model, folder: &Path, source: &Path) -> std::io::Result<()> {
    let parameters = model.parameters();
    let entries: Vec<_> = parameters.iter().map(TensorEntry::of).collect();
    let mut next = parameters.into_iter();
    save_tensors(&model.config, &entries, folder, source, |_| {
        Ok(next.next().map_or_else(Tensor::new, |(_, tensor)| tensor))
    })
}

/// Like [`save_model`], with the parameters that `tensor` gives when their turn has come.
pub fn save_model_with(
    model: &Model,
    folder: &Path,
    source: &Path,
    mut tensor: impl FnMut(&str) -> Result<Tensor, SaveError>,
) -> Result<(), SaveError> {
    let entries: Vec<_> = model.parameters().iter().map(TensorEntry::of).collect();
    save_tensors(&model.config, &entries, folder, source, |entry| {
        tensor(&entry.name)
    })
}

/// Writes a model directory; `tensor` gives each parameter when its turn has come. All have one kind.
pub(super) fn save_tensors<E: From<std::io::Error>>(
    config: &ModelConfig,
    parameters: &[TensorEntry],
    folder: &Path,
    source: &Path,
    mut tensor: impl FnMut(&TensorEntry) -> Result<Tensor, E>,
) -> Result<(), E> {
    fs::create_dir_all(folder)?;
    let shards = shards(parameters);
    let metadata = Map::from_iter([("format".to_owned(), Value::from("pt"))]);
    let mut map = Map::new();
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            all => format!("model-{:05}-of-{all:05}.safetensors", number + 1),
        };
        SafetensorsWriter::write_each(&folder.join(&name), shard, &metadata, &mut tensor)?;
        for entry in *shard {
            map.insert(entry.name.clone(), name.clone().into());
        }
    }
    if shards.len() > 1 {
        let total: u64 = parameters.iter().map(TensorEntry::bytes).sum();
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        write_json(&folder.join("model.safetensors.index.json"), &index)?;
    }
    let kind = parameters.first().map_or(Kind::Float, |entry| entry.kind);
    write_json(&folder.join("config.json"), &stored_config(config, kind))?;
    Ok(copy_tokenizer(source, folder)?)
}

/// `config.json` with the kind of the stored weights.
fn stored_config(config: &ModelConfig, kind: Kind) -> Value {
    let mut config = config.raw.clone();
    let kind = match kind {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
        _ => "float32",
    };
    for key in ["dtype", "torch_dtype"] {
        if config.contains_key(key) {
            config.insert(key.into(), kind.into());
        }
    }
    Value::Object(config)
}

/// Copies the files of the tokenizer.
pub(super) fn copy_tokenizer(source: &Path, folder: &Path) -> std::io::Result<()> {
    for name in COPIED_FILES {
        let (from, to) = (source.join(name), folder.join(name));
        // Copying a file onto itself would truncate it.
        if from.exists() && from.canonicalize().ok() != to.canonicalize().ok() {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Consecutive parameters that fit into one file each.
fn shards(parameters: &[TensorEntry]) -> Vec<&[TensorEntry]> {
    let mut shards = vec![];
    let (mut start, mut size) = (0, 0);
    for (number, entry) in parameters.iter().enumerate() {
        if size + entry.bytes() > MAX_SHARD_BYTES && number > start {
            shards.push(&parameters[start..number]);
            (start, size) = (number, 0);
        }
        size += entry.bytes();
    }
    shards.push(&parameters[start..]);
    shards
}

pub(crate) fn write_json(path: &Path, value: &Value) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec_pretty(value)?)?;
    file.write_all(b"\n")?;
    file.sync_all()
}
