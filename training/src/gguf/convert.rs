//! Converts GGUF to a Hugging Face directory: dequantized weights (float32), configuration, tokenizer.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value as Json, json};
use tch::Tensor;

use super::reader::{Gguf, GgufError, GgufValue};
use crate::model::{Model, ModelConfig, SafetensorsWriter, write_json};

/// Converts a GGUF file into the directory `folder`, which appears only when it is complete.
pub fn convert(file: &Path, folder: &Path) -> Result<()> {
    let at = || file.display().to_string();
    let opened = std::fs::File::open(file).with_context(at)?;
    // SAFETY: read-only, and the reader checks every offset against the mapped length.
    let bytes = unsafe { memmap2::Mmap::map(&opened) }.with_context(at)?;
    let gguf = Gguf::parse(&bytes).with_context(at)?;
    let parent = folder.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)?;
    let building = tempfile::tempdir_in(parent)?;
    write(&gguf, building.path()).with_context(at)?;
    match std::fs::rename(building.path(), folder) {
        // Another process was faster, with the same result.
        Err(_) if folder.exists() => {}
        result => result?,
    }
    Ok(())
}

fn write(gguf: &Gguf, folder: &Path) -> Result<()> {
    let raw = config(gguf)?;
    let config = ModelConfig::parse(&serde_json::to_vec(&raw)?)?;
    let (heads, keys) = (config.heads, config.kv_heads);
    let permuted = gguf.text("general.architecture")? == "llama";
    let model = Model::build(config, |name, shape| {
        let stored =
            stored_name(name).with_context(|| format!("parameter {name} has no name in GGUF"))?;
        let tensor = tensor(gguf, &stored, shape)?;
        Ok::<_, anyhow::Error>(match (permuted, name) {
            (true, name) if name.contains("q_proj.weight") => unpermute(&tensor, heads),
            (true, name) if name.contains("k_proj.weight") => unpermute(&tensor, keys),
            _ => tensor,
        })
    })?;
    let mut metadata = Map::new();
    metadata.insert("format".into(), "pt".into());
    let weights = folder.join("model.safetensors");
    SafetensorsWriter::write(&weights, &model.parameters(), &metadata)?;
    write_json(&folder.join("config.json"), &raw)?;
    write_json(&folder.join("tokenizer.json"), &tokenizer(gguf)?)?;
    write_json(
        &folder.join("tokenizer_config.json"),
        &tokenizer_config(gguf)?,
    )?;
    let generation = json!({
        "bos_token_id": gguf.integer("tokenizer.ggml.bos_token_id")?,
        "eos_token_id": gguf.integer("tokenizer.ggml.eos_token_id")?,
        "pad_token_id": gguf.integer("tokenizer.ggml.padding_token_id").ok(),
    });
    write_json(&folder.join("generation_config.json"), &generation)?;
    Ok(())
}

fn tensor(gguf: &Gguf, name: &str, shape: &[i64]) -> Result<Tensor> {
    let (found, numbers) = gguf.numbers(name)?;
    let wanted: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
    if found != wanted {
        bail!("tensor {name} has shape {found:?}; according to the header it must be {wanted:?}");
    }
    Ok(Tensor::from_slice(&numbers).f_view(shape)?)
}

/// Undoes the interleaving of the two halves of each head that llama.cpp needs for its rotary embedding.
fn unpermute(weight: &Tensor, heads: i64) -> Tensor {
    let size = weight.size();
    weight
        .view([heads, size[0] / heads / 2, 2, size[1]])
        .transpose(1, 2)
        .reshape([size[0], size[1]])
}

/// The GGUF name of a Hugging Face parameter.
pub(super) fn stored_name(name: &str) -> Option<String> {
    match name {
        "model.embed_tokens.weight" => return Some("token_embd.weight".into()),
        "model.norm.weight" => return Some("output_norm.weight".into()),
        "lm_head.weight" => return Some("output.weight".into()),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, suffix) = part.rsplit_once('.')?;
    let part = match part {
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        _ => return None,
    };
    Some(format!("blk.{layer}.{part}.{suffix}"))
}

fn config(gguf: &Gguf) -> Result<Json> {
    let kind = gguf.text("general.architecture")?;
    let class = match kind {
        "llama" => "LlamaForCausalLM",
        "qwen2" => "Qwen2ForCausalLM",
        other => bail!("architecture {other} is not supported; supported are llama and qwen2"),
    };
    let key = |name: &str| format!("{kind}.{name}");
    if gguf.get(&key("rope.scaling.type")).is_some()
        || gguf.tensors().contains_key("rope_freqs.weight")
    {
        bail!(
            "GGUF files with scaled rotary frequencies are not supported; use the original weights"
        );
    }
    let heads = gguf.integer(&key("attention.head_count"))?;
    let hidden = gguf.integer(&key("embedding_length"))?;
    let eps = gguf.float(&key("attention.layer_norm_rms_epsilon"))?;
    Ok(json!({
        "architectures": [class],
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": gguf.integer(&key("feed_forward_length"))?,
        "num_hidden_layers": gguf.integer(&key("block_count"))?,
        "num_attention_heads": heads,
        "num_key_value_heads": gguf.integer(&key("attention.head_count_kv")).unwrap_or(heads),
        "head_dim": hidden.checked_div(heads),
        // It is stored as float32: rounding restores 1e-5.
        "rms_norm_eps": (eps * 1e10).round() / 1e10,
        "rope_theta": gguf.float(&key("rope.freq_base")).unwrap_or(10_000.0),
        "max_position_embeddings": gguf.integer(&key("context_length"))?,
        "vocab_size": gguf.array("tokenizer.ggml.tokens")?.len(),
        "hidden_act": "silu",
        "tie_word_embeddings": !gguf.tensors().contains_key("output.weight"),
        "bos_token_id": gguf.integer("tokenizer.ggml.bos_token_id")?,
        "eos_token_id": gguf.integer("tokenizer.ggml.eos_token_id")?,
        "torch_dtype": "float32",
    }))
}

const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

fn tokenizer(gguf: &Gguf) -> Result<Json> {
    let tokens = gguf.array("tokenizer.ggml.tokens")?;
    let kinds = gguf.array("tokenizer.ggml.token_type")?;
    if gguf.text("tokenizer.ggml.model")? != "gpt2" || tokens.len() != kinds.len() {
        bail!("only byte-level BPE tokenizers are supported");
    }
    let pre = pre_tokenizer(gguf.text("tokenizer.ggml.pre")?)?;
    let (mut vocabulary, mut added) = (Map::new(), vec![]);
    for (id, (token, kind)) in tokens.iter().zip(kinds).enumerate() {
        let GgufValue::Text(token) = token else {
            bail!("token {id} is not a string");
        };
        let kind = match kind {
            GgufValue::Signed(kind) => *kind as u64,
            GgufValue::Unsigned(kind) => *kind,
            _ => bail!("the type of token {id} is not a number"),
        };
        if kind == CONTROL || kind == USER_DEFINED {
            added.push(json!({
                "id": id, "content": token, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": kind == CONTROL,
            }));
        }
        vocabulary.insert(token.clone(), id.into());
    }
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": true});
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": pre, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocabulary, "merges": texts(gguf, "tokenizer.ggml.merges")?,
        },
    }))
}

fn pre_tokenizer(name: &str) -> Result<Json> {
    match name {
        "smollm" => Ok(json!({"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        ]})),
        other => bail!("the pre-tokenizer {other} is not supported; supported is smollm"),
    }
}

fn texts<'a>(gguf: &'a Gguf, key: &str) -> Result<Vec<&'a str>, GgufError> {
    gguf.array(key)?
        .iter()
        .map(|item| match item {
            GgufValue::Text(text) => Ok(text.as_str()),
            _ => Err(GgufError::Key(key.into())),
        })
        .collect()
}

fn tokenizer_config(gguf: &Gguf) -> Result<Json> {
    let tokens = texts(gguf, "tokenizer.ggml.tokens")?;
    let token = |key: &str| {
        let id = gguf.integer(&format!("tokenizer.ggml.{key}")).ok()?;
        tokens.get(id as usize).copied()
    };
    let kind = gguf.text("general.architecture")?;
    Ok(json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token("bos_token_id"),
        "eos_token": token("eos_token_id"),
        "pad_token": token("padding_token_id"),
        "unk_token": token("unknown_token_id"),
        "model_max_length": gguf.integer(&format!("{kind}.context_length"))?,
        "clean_up_tokenization_spaces": false,
        "add_prefix_space": false,
        "chat_template": gguf.text("tokenizer.chat_template").ok(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaving_of_heads_is_undone() {
        // One head of four rows: llama.cpp stores rows 0, 2, 1, 3 of the original.
        let stored = Tensor::from_slice(&[0f32, 2., 1., 3.]).view([4, 1]);
        let rows = Vec::<f32>::try_from(unpermute(&stored, 1).view([-1])).unwrap();
        assert_eq!(rows, [0., 1., 2., 3.]);
    }
}
