//! Exports a Hugging Face directory to GGUF: matrices in f16 or q8_0, everything else in float32.

use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use pybench_inference::BlockKind;
use pybench_training_data::chat_template;
use serde_json::Value as Json;
use tch::{Device, Kind, Tensor};

use super::convert::stored_name;
use super::reader::GgufValue;
use super::writer::{Emit, TensorEntry, write};
use crate::model::{Model, ModelConfig, RopeScaling, Weights, load_config};
use pybench_training_data::read_bounded;

const MAX_FILE_BYTES: u64 = 256 << 20;
/// Name of the tensor with the factors of rotary frequencies.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Storage type of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GgufType {
    /// 16-bit floating point.
    F16,
    /// 8 bits per element and a scale per 32 elements.
    #[value(name = "q8_0")]
    Q8_0,
}

type Pairs = Vec<(String, GgufValue)>;

/// Most values that are converted at once.
const CHUNK: i64 = 1 << 22;

/// Exports the model in `folder` to the file `out`, which appears only when it is complete. Memory holds a part of one
/// tensor at a time.
pub fn export(folder: &Path, out: &Path, matrix_type: GgufType) -> Result<()> {
    let config = load_config(folder)?;
    let weights = Weights::open(folder)?;
    let kind = architecture(&config)?;
    let mut pairs = description(&config, kind, folder, matrix_type);
    pairs.extend(tokenizer(folder, config.vocab)?);
    let shapes = Model::parameter_shapes(&config);
    let mut entries = vec![];
    for (name, shape) in &shapes {
        let stored =
            stored_name(name).with_context(|| format!("parameter {name} has no name in GGUF"))?;
        entries.push(entry(&stored, shape, matrix_type));
    }
    let factors = factors(&config);
    if let Some(factors) = &factors {
        entries.push(entry(ROPE_FACTORS, &[factors.len() as i64], matrix_type));
    }
    let parent = match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // The umask applies, as for any new file.
    let building = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(parent)
        .with_context(|| parent.display().to_string())?;
    let mut file = BufWriter::new(building);
    write(&mut file, &pairs, &entries, |number, emit| {
        let Some((name, shape)) = shapes.get(number) else {
            return Ok(emit(factors.as_deref().unwrap_or_default())?);
        };
        let heads = heads(&config, name).filter(|_| kind == "llama");
        emit_parameter(&weights, name, shape, heads, emit)
    })?;
    file.flush()?;
    let building = file.into_inner().map_err(|error| error.into_error())?;
    building.as_file().sync_all()?;
    building
        .persist(out)
        .with_context(|| out.display().to_string())?;
    Ok(())
}

/// The number of heads of a matrix whose rows llama.cpp stores in another order.
fn heads(config: &ModelConfig, name: &str) -> Option<i64> {
    match name {
        name if name.contains(".q_proj.") => Some(config.heads),
        name if name.contains(".k_proj.") => Some(config.kv_heads),
        _ => None,
    }
}

/// Passes on the values of a parameter, some rows at a time.
fn emit_parameter(
    weights: &Weights,
    name: &str,
    shape: &[i64],
    heads: Option<i64>,
    emit: Emit<'_>,
) -> Result<()> {
    let kind = weights.kind(name)?;
    let stored = weights.mapped_tensor(name, shape, kind, Device::Cpu)?;
    let tensor = match heads {
        Some(heads) => permute(&stored, heads),
        None => stored,
    };
    let row: i64 = shape[1..].iter().product();
    for rows in tensor.split((CHUNK / row).max(1), 0) {
        let values = rows.to_kind(Kind::Float).reshape([-1]);
        emit(&Vec::<f32>::try_from(&values)?)?;
    }
    Ok(weights.release(name)?)
}

fn entry(name: &str, shape: &[i64], matrix_type: GgufType) -> TensorEntry {
    let shape: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
    let row = shape.last().copied().unwrap_or(1);
    let kind = match (shape.len(), matrix_type) {
        (0 | 1, _) => BlockKind::F32,
        (_, GgufType::Q8_0) if row.is_multiple_of(32) => BlockKind::Q8_0,
        _ => BlockKind::F16,
    };
    TensorEntry {
        name: name.into(),
        shape,
        kind,
    }
}

/// Interleaves the two halves of each head: llama.cpp's rotary embedding rotates adjacent pairs.
fn permute(weight: &Tensor, heads: i64) -> Tensor {
    let size = weight.size();
    weight
        .view([heads, 2, size[0] / heads / 2, -1])
        .transpose(1, 2)
        .reshape(&size)
}

fn architecture(config: &ModelConfig) -> Result<&'static str> {
    if config
        .windows
        .iter()
        .flatten()
        .any(|&window| window < config.context)
    {
        bail!(
            "llama.cpp does not support sliding windows for this architecture, so its results would differ"
        );
    }
    match config.raw["model_type"].as_str() {
        Some("qwen2") => Ok("qwen2"),
        _ => Ok("llama"),
    }
}

fn description(config: &ModelConfig, kind: &str, folder: &Path, matrix_type: GgufType) -> Pairs {
    let number = |n: i64| GgufValue::Unsigned(n as u64);
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let name = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let file_type = match matrix_type {
        GgufType::F16 => 1,
        GgufType::Q8_0 => 7,
    };
    let mut pairs: Pairs = vec![
        ("general.architecture".into(), GgufValue::Text(kind.into())),
        ("general.name".into(), GgufValue::Text(name)),
        ("general.file_type".into(), number(file_type)),
        ("general.quantization_version".into(), number(2)),
    ];
    let mut push = |key: &str, value: GgufValue| pairs.push((format!("{kind}.{key}"), value));
    push("vocab_size", number(config.vocab));
    push("context_length", number(config.context));
    push("embedding_length", number(config.hidden));
    push("block_count", number(config.layers as i64));
    push("feed_forward_length", number(config.intermediate));
    push("rope.dimension_count", number(config.head_dim));
    push("rope.freq_base", GgufValue::Float(config.rope_theta));
    push("attention.head_count", number(config.heads));
    push("attention.head_count_kv", number(config.kv_heads));
    push("attention.key_length", number(config.head_dim));
    push("attention.value_length", number(config.head_dim));
    push(
        "attention.layer_norm_rms_epsilon",
        GgufValue::Float(config.norm_eps),
    );
    if let RopeScaling::Linear { factor } = config.rope_scaling {
        push("rope.scaling.type", GgufValue::Text("linear".into()));
        push("rope.scaling.factor", GgufValue::Float(factor));
    }
    pairs
}

/// The divisor of each rotary frequency, for scalings that are not a single number.
fn factors(config: &ModelConfig) -> Option<Vec<f32>> {
    let RopeScaling::Llama3 { .. } = config.rope_scaling else {
        return None;
    };
    let plain = ModelConfig {
        rope_scaling: RopeScaling::None,
        ..config.clone()
    };
    let pairs = plain.frequencies().into_iter().zip(config.frequencies());
    Some(pairs.map(|(plain, scaled)| plain / scaled).collect())
}

const NORMAL: i64 = 1;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;

fn tokenizer(folder: &Path, rows: i64) -> Result<Pairs> {
    let read = |name: &str| -> Result<Json> {
        let bytes = read_bounded(&folder.join(name), MAX_FILE_BYTES)?;
        serde_json::from_slice(&bytes).with_context(|| name.to_owned())
    };
    let (json, config) = (read("tokenizer.json")?, read("tokenizer_config.json")?);
    if json["model"]["type"] != "BPE" || !json["decoder"].to_string().contains("ByteLevel") {
        bail!("only byte-level BPE tokenizers can be exported");
    }
    let (texts, kinds) = tokens(&json, rows)?;
    let index = |text: &str| texts.iter().position(|token| token == text);
    let array = |items: Vec<GgufValue>| GgufValue::Array(items);
    let mut pairs: Pairs = vec![
        (
            "tokenizer.ggml.model".into(),
            GgufValue::Text("gpt2".into()),
        ),
        (
            "tokenizer.ggml.pre".into(),
            GgufValue::Text(pre_tokenizer(&json)?.into()),
        ),
        ("tokenizer.ggml.merges".into(), array(merges(&json)?)),
    ];
    for name in ["bos", "eos", "pad", "unk"] {
        let token = &config[format!("{name}_token")];
        let text = token.as_str().or(token["content"].as_str());
        if let Some(id) = text.and_then(index) {
            let key = match name {
                "pad" => "padding",
                "unk" => "unknown",
                name => name,
            };
            pairs.push((
                format!("tokenizer.ggml.{key}_token_id"),
                GgufValue::Unsigned(id as u64),
            ));
        }
    }
    // Whether the tokenizer itself adds a BOS.
    let adds = json["post_processor"]
        .to_string()
        .contains("TemplateProcessing");
    pairs.push(("tokenizer.ggml.add_bos_token".into(), GgufValue::Bool(adds)));
    if let Ok(Some(template)) = chat_template(folder) {
        pairs.push(("tokenizer.chat_template".into(), GgufValue::Text(template)));
    }
    let texts = texts.into_iter().map(GgufValue::Text).collect();
    let kinds = kinds.into_iter().map(GgufValue::Signed).collect();
    pairs.push(("tokenizer.ggml.tokens".into(), array(texts)));
    pairs.push(("tokenizer.ggml.token_type".into(), array(kinds)));
    Ok(pairs)
}

/// Text and type for every row of the embedding; unused rows get a placeholder.
fn tokens(json: &Json, rows: i64) -> Result<(Vec<String>, Vec<i64>)> {
    let mut texts: Vec<String> = (0..rows).map(|id| format!("[PAD{id}]")).collect();
    let mut kinds = vec![UNUSED; texts.len()];
    let mut set = |id: &Json, text: &str, kind: i64| {
        let index = id.as_u64().and_then(|id| usize::try_from(id).ok());
        let index = index.filter(|&id| id < texts.len());
        let index = index.with_context(|| format!("token {text} has no row in the embedding"))?;
        texts[index] = text.into();
        kinds[index] = kind;
        Ok::<_, anyhow::Error>(())
    };
    let vocabulary = json["model"]["vocab"].as_object();
    for (text, id) in vocabulary.context("tokenizer.json has no vocabulary")? {
        set(id, text, NORMAL)?;
    }
    for token in json["added_tokens"]
        .as_array()
        .map_or(&[][..], Vec::as_slice)
    {
        let text = token["content"]
            .as_str()
            .context("an added token has no text")?;
        let kind = if token["special"] == true {
            CONTROL
        } else {
            USER_DEFINED
        };
        set(&token["id"], text, kind)?;
    }
    Ok((texts, kinds))
}

fn merges(json: &Json) -> Result<Vec<GgufValue>> {
    let merges = json["model"]["merges"].as_array();
    let merge = |merge: &Json| {
        let pair = merge.as_array().and_then(|pair| match &pair[..] {
            [a, b] => Some(format!("{} {}", a.as_str()?, b.as_str()?)),
            _ => None,
        });
        let text = pair.or_else(|| merge.as_str().map(str::to_owned));
        text.map(GgufValue::Text)
            .context("a merge in tokenizer.json is not a pair")
    };
    merges
        .context("tokenizer.json has no merges")?
        .iter()
        .map(merge)
        .collect()
}

/// llama.cpp's name of the pre-tokenizer.
fn pre_tokenizer(json: &Json) -> Result<&'static str> {
    let text = json["pre_tokenizer"].to_string();
    // Llama 3 groups digits in threes, Qwen2 splits them.
    let found = [
        (
            "smollm",
            text.contains("Digits") && text.contains("\"individual_digits\":true"),
        ),
        ("llama-bpe", text.contains(r"\\p{N}{1,3}")),
        ("qwen2", text.contains(r"|\\p{N}|")),
        ("gpt-2", json["pre_tokenizer"]["type"] == "ByteLevel"),
    ];
    match found.into_iter().find(|(_, fits)| *fits) {
        Some((name, _)) => Ok(name),
        None => bail!(
            "this pre-tokenizer is not supported; supported are those of SmolLM2, Llama 3, Qwen2 and GPT-2"
        ),
    }
}
