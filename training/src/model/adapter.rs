//! LoRA adapters in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`. What PEFT does not record,
//! such as the quantization of the frozen matrices, is in `pybench.json`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pybench_training_data::read_bounded;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tch::{Device, Kind, Tensor};

use super::llama::{Block, Linear, Lora, Model};
use super::load::{LoadError, MAX_JSON_BYTES, Weights};
use super::nf4::ScaleFormat;
use super::save::{SafetensorsWriter, copy_tokenizer, write_json};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
const ORIGIN: &str = "pybench.json";
/// What PEFT puts before the names of the model's parameters.
const PREFIX: &str = "base_model.model.";

/// What an adapter was trained on, beyond PEFT's own configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterOrigin {
    /// Data type of the frozen weights: `float32` or `bf16`. The merged model has it too.
    pub dtype: String,
    /// Whether the matrices of the blocks were quantized to NF4. A merge repeats that, since the adapter has learned
    /// to correct it.
    pub nf4: bool,
    /// Whether their scales were quantized, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nf4_double: bool,
    /// Identity of the recipe.
    pub recipe: String,
    /// Fingerprint of the base model's weights, as of [`weights_fingerprint`]; older adapters have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_fingerprint: Option<String>,
}

impl AdapterOrigin {
    /// How the matrices of the blocks were quantized.
    pub fn quantization(&self) -> Option<ScaleFormat> {
        self.nf4.then_some(match self.nf4_double {
            true => ScaleFormat::Int8,
            false => ScaleFormat::Float32,
        })
    }
}

/// The settings of LoRA as PEFT records them.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterSettings {
    /// A directory, or `owner/name` on the Hub.
    pub base: String,
    pub rank: i64,
    pub alpha: f64,
    pub dropout: f64,
    /// Short names of the adapted matrices, such as `q_proj`.
    pub target_modules: Vec<String>,
}

/// An adapter on disk, mapped.
pub struct Adapter {
    /// A directory, or `owner/name` on the Hub.
    pub base: String,
    pub origin: Option<AdapterOrigin>,
    pub scale: f64,
    pub rank: i64,
    path: PathBuf,
    weights: Weights,
    /// Names of the adapted matrices, such as `model.layers.0.self_attn.q_proj`.
    matrices: BTreeSet<String>,
}

/// Whether `folder` holds an adapter.
pub fn is_adapter(folder: &Path) -> bool {
    folder.join(CONFIG).exists()
}

/// Writes the adapter of a model into `folder`, with the tokenizer files of `source`. PEFT can load the result.
///
/// # Errors
/// I/O errors.
pub fn save_adapter(
    loras: &[(String, Tensor)],
    settings: &AdapterSettings,
    origin: &AdapterOrigin,
    folder: &Path,
    source: &Path,
) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let named =
        |(name, tensor): &(String, Tensor)| (format!("{PREFIX}{name}"), tensor.shallow_clone());
    let tensors: Vec<_> = loras.iter().map(named).collect();
    let metadata = Map::from_iter([("format".to_owned(), Value::from("pt"))]);
    SafetensorsWriter::write(&folder.join(WEIGHTS), &tensors, &metadata)?;
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": settings.base,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": settings.target_modules,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "use_dora": false,
        "use_rslora": false,
    });
    write_json(&folder.join(ORIGIN), &serde_json::to_value(origin)?)?;
    copy_tokenizer(source, folder)?;
    write_json(&folder.join(CONFIG), &config)
}

impl Adapter {
    /// Opens an adapter of ours or of PEFT.
    ///
    /// # Errors
    /// The files are missing or broken, or the adapter is of a kind that is not supported.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        let path = folder.join(CONFIG);
        let config: Value = parse(&path)?;
        let bad = |reason: String| LoadError::Adapter {
            path: path.clone(),
            reason,
        };
        if let Some(reason) = unsupported(&config) {
            return Err(bad(reason));
        }
        let text = |key: &str| config[key].as_str().map(str::to_owned);
        let number = |key: &str| config[key].as_f64().filter(|number| *number > 0.0);
        let base = text("base_model_name_or_path")
            .ok_or_else(|| bad("base_model_name_or_path is missing".into()))?;
        let rank = number("r").ok_or_else(|| bad("r is missing, or not positive".into()))?;
        let alpha = number("lora_alpha")
            .ok_or_else(|| bad("lora_alpha is missing, or not positive".into()))?;
        let scale = match config["use_rslora"] == true {
            true => alpha / rank.sqrt(),
            false => alpha / rank,
        };
        let origin = folder.join(ORIGIN);
        let weights = Weights::open_file(&folder.join(WEIGHTS))?;
        let matrices = adapted_matrices(&weights).map_err(|name| LoadError::Adapter {
            path: folder.join(WEIGHTS),
            reason: format!("{name} is not a matrix of LoRA"),
        })?;
        Ok(Self {
            base,
            origin: origin.exists().then(|| parse(&origin)).transpose()?,
            scale,
            rank: rank as i64,
            path: folder.join(WEIGHTS),
            weights,
            matrices,
        })
    }

    /// The adapter of one matrix, `None` if it has none. `name` is that of the matrix without `.weight`.
    ///
    /// # Errors
    /// A shape that does not fit `[out, input]`.
    pub fn lora(
        &self,
        name: &str,
        [out, input]: [i64; 2],
        kind: Kind,
        device: Device,
    ) -> Result<Option<Lora>, LoadError> {
        if !self.matrices.contains(name) {
            return Ok(None);
        }
        let factor = |factor: &str, shape: [i64; 2]| {
            let name = format!("{PREFIX}{name}.lora_{factor}.weight");
            self.weights.tensor(&name, &shape, kind, device)
        };
        Ok(Some(Lora {
            a: factor("A", [self.rank, input])?,
            b: factor("B", [out, self.rank])?,
            scale: self.scale,
            dropout: None,
        }))
    }

    /// Adds the adapter to a model.
    ///
    /// # Errors
    /// As [`Adapter::lora`], or the model lacks one of the matrices.
    pub fn attach(&self, model: &mut Model) -> Result<(), LoadError> {
        let names = Model::parameter_shapes(&model.config);
        self.check_names(names.iter().map(|(name, _)| name.as_str()))?;
        let mut blocks = model.blocks.iter_mut().enumerate();
        blocks.try_for_each(|(layer, block)| self.attach_to_block(block, layer))
    }

    /// Adds the adapter to the matrices of one block.
    ///
    /// # Errors
    /// As [`Adapter::lora`].
    pub fn attach_to_block(&self, block: &mut Block, layer: usize) -> Result<(), LoadError> {
        let mut linears = block.linears_mut().into_iter();
        linears.try_for_each(|(name, linear)| {
            self.attach_to(linear, &format!("model.layers.{layer}.{name}"))
        })
    }

    /// Adds the adapter to one matrix, if it has one for it.
    ///
    /// # Errors
    /// As [`Adapter::lora`].
    pub fn attach_to(&self, linear: &mut Linear, name: &str) -> Result<(), LoadError> {
        let size = linear.weight.size();
        let (kind, device) = (linear.weight.kind(), linear.weight.device());
        linear.lora = self.lora(name, [size[0], size[1]], kind, device)?;
        Ok(())
    }

    /// The contents of the file with its matrices.
    pub(crate) fn file_bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.weights.file_bytes()
    }

    /// Names of the adapted matrices, such as `model.layers.0.self_attn.q_proj`.
    pub fn matrices(&self) -> impl Iterator<Item = &str> {
        self.matrices.iter().map(String::as_str)
    }

    /// Refuses a base model with other weights than the adapter was trained on, if the adapter tells.
    ///
    /// # Errors
    /// They differ, or the weights cannot be read.
    pub fn check_base(&self, base: &Path) -> Result<(), LoadError> {
        let origin = self.origin.as_ref();
        let Some(wanted) = origin.and_then(|origin| origin.base_fingerprint.as_ref()) else {
            return Ok(());
        };
        match weights_fingerprint(base)? == *wanted {
            true => Ok(()),
            false => Err(LoadError::Adapter {
                path: self.path.clone(),
                reason: format!(
                    "the weights in {} are not those that this adapter was trained on; use it with its own base model, {}",
                    base.display(),
                    self.base
                ),
            }),
        }
    }

    /// Refuses an adapter with matrices that the model does not have; `known` are names of its parameters.
    ///
    /// # Errors
    /// Names the first one.
    pub fn check_names<'a>(&self, known: impl Iterator<Item = &'a str>) -> Result<(), LoadError> {
        let mut left: BTreeSet<&str> = self.matrices.iter().map(String::as_str).collect();
        for name in known {
            left.remove(name.strip_suffix(".weight").unwrap_or(name));
        }
        self.all_known(left)
    }

    fn all_known(&self, left: BTreeSet<&str>) -> Result<(), LoadError> {
        match left.first() {
            None => Ok(()),
            Some(name) => Err(LoadError::Adapter {
                path: self.path.clone(),
                reason: format!("the base model {} has no matrix {name}", self.base),
            }),
        }
    }
}

/// A hash of samples of a model's weights: the size of each file, and what is at its start, middle and end.
///
/// # Errors
/// The files are missing or broken.
pub fn weights_fingerprint(folder: &Path) -> Result<String, LoadError> {
    const SAMPLE: usize = 1 << 16;
    let weights = Weights::open(folder)?;
    let mut hasher = blake3::Hasher::new();
    for bytes in weights.file_bytes() {
        let length = bytes.len();
        hasher.update(&(length as u64).to_le_bytes());
        for start in [0, length / 2, length.saturating_sub(SAMPLE)] {
            hasher.update(&bytes[start..length.min(start + SAMPLE)]);
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, LoadError> {
    serde_json::from_slice(&read_bounded(path, MAX_JSON_BYTES)?).map_err(|error| {
        LoadError::Adapter {
            path: path.into(),
            reason: error.to_string(),
        }
    })
}

/// What a configuration asks for that is not supported.
fn unsupported(config: &Value) -> Option<String> {
    let given = |key: &str| match &config[key] {
        Value::Null | Value::Bool(false) => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    if config["peft_type"] != "LORA" {
        return Some(format!(
            "peft_type is {}; only LORA is supported",
            config["peft_type"]
        ));
    }
    if !matches!(config["bias"].as_str(), None | Some("none")) {
        return Some(format!(
            "bias is {}; only none is supported",
            config["bias"]
        ));
    }
    let keys = [
        "use_dora",
        "fan_in_fan_out",
        "modules_to_save",
        "rank_pattern",
        "alpha_pattern",
    ];
    let key = keys.into_iter().find(|key| given(key))?;
    Some(format!("{key} is not supported"))
}

/// The names of the adapted matrices; the error is the name of a tensor that is something else.
fn adapted_matrices(weights: &Weights) -> Result<BTreeSet<String>, String> {
    let names = weights.shapes().unwrap_or_default().into_iter();
    names
        .map(|(name, _)| {
            let matrix = name.strip_prefix(PREFIX).and_then(|rest| {
                let stripped = rest.strip_suffix(".lora_A.weight");
                stripped.or(rest.strip_suffix(".lora_B.weight"))
            });
            matrix.map(str::to_owned).ok_or(name.clone())
        })
        .collect()
}
