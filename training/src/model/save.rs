//! Saves Hugging Face directories: safetensors shards with their index, `config.json`, tokenizer files.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tch::{Kind, Tensor};

use super::llama::Model;

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

pub struct SafetensorsWriter;

impl SafetensorsWriter {
    /// Writes a safetensors file and syncs it to disk.
    pub fn write(
        path: &Path,
        tensors: &[(String, Tensor)],
        metadata: &Map<String, Value>,
    ) -> std::io::Result<()> {
        let mut header = Map::new();
        header.insert("__metadata__".into(), Value::Object(metadata.clone()));
        let mut offset = 0;
        for (name, tensor) in tensors {
            let end = offset + bytes(tensor);
            let entry = json!({
                "dtype": dtype(tensor.kind())?,
                "shape": tensor.size(),
                "data_offsets": [offset, end],
            });
            header.insert(name.clone(), entry);
            offset = end;
        }
        let mut header = serde_json::to_vec(&header)?;
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        for (_, tensor) in tensors {
            write_tensor(&mut file, tensor)?;
        }
        file.into_inner()?.sync_all()
    }
}

fn bytes(tensor: &Tensor) -> u64 {
    (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64
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
    // SAFETY: a contiguous tensor on the CPU has exactly that many bytes, and outlives the slice. libtorch
    // supports little-endian machines only.
    let data = unsafe {
        std::slice::from_raw_parts(tensor.data_ptr() as *const u8, bytes(&tensor) as usize)
    };
    file.write_all(data)
}

/// Writes the model into `folder`, with the tokenizer files of `source`. transformers can load the result.
pub fn save_model(model: &Model, folder: &Path, source: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let shards = shards(model.parameters());
    let mut metadata = Map::new();
    metadata.insert("format".into(), "pt".into());
    let mut map = Map::new();
    let mut total = 0;
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            all => format!("model-{:05}-of-{all:05}.safetensors", number + 1),
        };
        SafetensorsWriter::write(&folder.join(&name), shard, &metadata)?;
        for (tensor, data) in shard {
            map.insert(tensor.clone(), name.clone().into());
            total += bytes(data);
        }
    }
    if shards.len() > 1 {
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        write_json(&folder.join("model.safetensors.index.json"), &index)?;
    }
    let mut config = model.config.raw.clone();
    let kind = match model.embed.kind() {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
        _ => "float32",
    };
    for key in ["dtype", "torch_dtype"] {
        if config.contains_key(key) {
            config.insert(key.into(), kind.into());
        }
    }
    write_json(&folder.join("config.json"), &Value::Object(config))?;
    for name in COPIED_FILES {
        let (from, to) = (source.join(name), folder.join(name));
        // Copying a file onto itself would truncate it.
        if from.exists() && from.canonicalize().ok() != to.canonicalize().ok() {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

fn shards(parameters: Vec<(String, Tensor)>) -> Vec<Vec<(String, Tensor)>> {
    let mut shards = vec![];
    let mut size = MAX_SHARD_BYTES;
    for (name, tensor) in parameters {
        if size + bytes(&tensor) > MAX_SHARD_BYTES {
            shards.push(vec![]);
            size = 0;
        }
        size += bytes(&tensor);
        if let Some(shard) = shards.last_mut() {
            shard.push((name, tensor));
        }
    }
    shards
}

pub(crate) fn write_json(path: &Path, value: &Value) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec_pretty(value)?)?;
    file.write_all(b"\n")?;
    file.sync_all()
}
