//! Reads `config.json` of the supported model families.

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("config.json: {0}")]
    Json(#[from] serde_json::Error),
    #[error("config.json: {field} = {value} is not supported; {known}")]
    Unsupported {
        field: &'static str,
        value: String,
        known: &'static str,
    },
    #[error("config.json: {0}")]
    Sizes(String),
}

/// Scaling of the rotary frequencies for longer contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions are divided by `factor`.
    Linear {
        factor: f64,
    },
    /// Llama 3.1 and later: low frequencies are divided by `factor`, high ones kept, with a ramp between.
    Llama3 {
        factor: f64,
        /// Wavelengths above `original / low` count as low frequencies.
        low: f64,
        /// Wavelengths below `original / high` count as high frequencies.
        high: f64,
        /// Context length before scaling, tokens.
        original: f64,
    },
}

/// Dimensions and constants of a model. Sizes are in elements, lengths in tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub hidden: i64,
    pub intermediate: i64,
    pub layers: usize,
    pub heads: i64,
    pub kv_heads: i64,
    pub head_dim: i64,
    pub vocab: i64,
    pub norm_eps: f64,
    pub rope_theta: f64,
    pub rope_scaling: RopeScaling,
    pub context: i64,
    /// The output matrix is the embedding.
    pub tied: bool,
    pub qkv_bias: bool,
    pub output_bias: bool,
    pub mlp_bias: bool,
    /// Sliding window of each layer in tokens; `None` is full attention.
    pub windows: Vec<Option<i64>>,
    /// The original file, so that unknown fields are preserved when a model is saved.
    pub raw: Map<String, Value>,
}

#[derive(Deserialize)]
struct Raw {
    model_type: String,
    hidden_size: i64,
    intermediate_size: i64,
    num_hidden_layers: usize,
    num_attention_heads: i64,
    num_key_value_heads: Option<i64>,
    head_dim: Option<i64>,
    vocab_size: i64,
    #[serde(default = "default_eps")]
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_scaling: Option<RawRope>,
    /// Written by transformers 5; contains theta and scaling.
    rope_parameters: Option<RawRope>,
    #[serde(default = "default_context")]
    max_position_embeddings: i64,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "default_act")]
    hidden_act: String,
    sliding_window: Option<i64>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    #[serde(default = "one")]
    pretraining_tp: i64,
}

fn default_eps() -> f64 {
    1e-6
}
fn default_context() -> i64 {
    2048
}
fn default_act() -> String {
    "silu".into()
}
fn one() -> i64 {
    1
}

#[derive(Clone, Deserialize)]
struct RawRope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

impl ModelConfig {
    /// Reads and checks a `config.json`.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        let raw: Raw = serde_json::from_slice(json)?;
        check_supported(&raw)?;
        let rope = raw.rope_parameters.clone().or(raw.rope_scaling.clone());
        let theta = raw
            .rope_theta
            .or(rope.as_ref().and_then(|rope| rope.rope_theta));
        let windows = windows(&raw)?;
        let config = Self {
            hidden: raw.hidden_size,
            intermediate: raw.intermediate_size,
            layers: raw.num_hidden_layers,
            heads: raw.num_attention_heads,
            kv_heads: raw.num_key_value_heads.unwrap_or(raw.num_attention_heads),
            head_dim: raw
                .head_dim
                .unwrap_or(raw.hidden_size / raw.num_attention_heads.max(1)),
            vocab: raw.vocab_size,
            norm_eps: raw.rms_norm_eps,
            rope_theta: theta.unwrap_or(10_000.0),
            rope_scaling: scaling(rope.as_ref())?,
            context: raw.max_position_embeddings,
            tied: raw.tie_word_embeddings,
            qkv_bias: raw.attention_bias || raw.model_type == "qwen2",
            output_bias: raw.attention_bias && raw.model_type != "qwen2",
            mlp_bias: raw.mlp_bias,
            windows,
            raw: serde_json::from_slice(json)?,
        };
        config.check_sizes()?;
        Ok(config)
    }

    fn check_sizes(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("hidden_size", self.hidden, 1 << 20),
            ("intermediate_size", self.intermediate, 1 << 22),
            ("num_hidden_layers", self.layers as i64, 1 << 10),
            ("num_attention_heads", self.heads, 1 << 12),
            ("num_key_value_heads", self.kv_heads, 1 << 12),
            ("head_dim", self.head_dim, 1 << 12),
            ("vocab_size", self.vocab, 1 << 24),
            ("max_position_embeddings", self.context, 1 << 30),
        ];
        for (name, value, max) in sizes {
            if !(1..=max).contains(&value) {
                let text = format!("{name} = {value} is not between 1 and {max}");
                return Err(ConfigError::Sizes(text));
            }
        }
        if self.heads % self.kv_heads != 0 || self.head_dim % 2 != 0 {
            return Err(ConfigError::Sizes(format!(
                "{} heads over {} key heads of {} elements are not divisible",
                self.heads, self.kv_heads, self.head_dim
            )));
        }
        if !(self.norm_eps > 0.0 && self.rope_theta > 1.0) {
            let text = "rms_norm_eps and rope_theta must be positive".into();
            return Err(ConfigError::Sizes(text));
        }
        Ok(())
    }

    /// Number of elements of all parameters.
    pub fn parameters(&self) -> i64 {
        let attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads);
        let block = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden;
        let tables = if self.tied { 1 } else { 2 } * self.vocab * self.hidden;
        tables + self.layers as i64 * (block + self.biases()) + self.hidden
    }

    /// Number of elements of the biases of a block.
    fn biases(&self) -> i64 {
        let sizes = [
            (
                self.qkv_bias,
                self.head_dim * (self.heads + 2 * self.kv_heads),
            ),
            (self.output_bias, self.hidden),
            (self.mlp_bias, 2 * self.intermediate + self.hidden),
        ];
        sizes
            .iter()
            .filter(|(has, _)| *has)
            .map(|(_, size)| size)
            .sum()
    }

    /// Rotary frequencies, radians per token, one for each pair of elements of a head.
    pub fn frequencies(&self) -> Vec<f32> {
        (0..self.head_dim / 2)
            .map(|pair| {
                // transformers computes these in float32, starting with the exponent.
                let exponent = (2 * pair) as f32 / self.head_dim as f32;
                let plain = 1.0 / (self.rope_theta as f32).powf(exponent);
                self.rope_scaling.apply(plain)
            })
            .collect()
    }
}

impl RopeScaling {
    fn apply(self, frequency: f32) -> f32 {
        match self {
            Self::None => frequency,
            Self::Linear { factor } => frequency / factor as f32,
            Self::Llama3 {
                factor,
                low,
                high,
                original,
            } => {
                let wave = 2.0 * std::f64::consts::PI / f64::from(frequency);
                if wave < original / high {
                    frequency
                } else if wave > original / low {
                    frequency / factor as f32
                } else {
                    let smooth = ((original / wave - low) / (high - low)) as f32;
                    (1.0 - smooth) * frequency / factor as f32 + smooth * frequency
                }
            }
        }
    }
}

fn check_supported(raw: &Raw) -> Result<(), ConfigError> {
    let reject = |field, value: String, known| {
        Err(ConfigError::Unsupported {
            field,
            value,
            known,
        })
    };
    if !["llama", "mistral", "qwen2"].contains(&raw.model_type.as_str()) {
        let known = "supported are llama, mistral and qwen2";
        return reject("model_type", raw.model_type.clone(), known);
    }
    if raw.hidden_act != "silu" {
        return reject(
            "hidden_act",
            raw.hidden_act.clone(),
            "only silu is supported",
        );
    }
    if raw.pretraining_tp != 1 {
        let known = "only 1 is supported";
        return reject("pretraining_tp", raw.pretraining_tp.to_string(), known);
    }
    Ok(())
}

fn scaling(rope: Option<&RawRope>) -> Result<RopeScaling, ConfigError> {
    let Some(rope) = rope else {
        return Ok(RopeScaling::None);
    };
    let need = |name: &str, value: Option<f64>| match value {
        Some(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(ConfigError::Sizes(format!(
            "the rope scaling needs a positive {name}"
        ))),
    };
    match rope.rope_type.as_deref() {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear {
            factor: need("factor", rope.factor)?,
        }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: need("factor", rope.factor)?,
            low: need("low_freq_factor", rope.low_freq_factor)?,
            high: need("high_freq_factor", rope.high_freq_factor)?,
            original: need(
                "original_max_position_embeddings",
                rope.original_max_position_embeddings,
            )?,
        }),
        Some(other) => Err(ConfigError::Unsupported {
            field: "rope_type",
            value: other.into(),
            known: "supported are default, linear and llama3",
        }),
    }
}

/// The sliding window of each layer. Qwen2 configures whether windows are used, and from which layer on.
fn windows(raw: &Raw) -> Result<Vec<Option<i64>>, ConfigError> {
    let slides = raw
        .use_sliding_window
        .unwrap_or(raw.model_type == "mistral");
    let window = raw.sliding_window.filter(|_| slides);
    if window.is_some_and(|window| window < 1) {
        return Err(ConfigError::Sizes("sliding_window must be positive".into()));
    }
    let layers = raw.num_hidden_layers.min(1 << 10);
    let first = match raw.model_type.as_str() {
        "qwen2" => raw.max_window_layers.unwrap_or(28),
        _ => 0,
    };
    Ok((0..layers)
        .map(|layer| {
            let slides = match &raw.layer_types {
                Some(types) => types.get(layer).is_some_and(|t| t == "sliding_attention"),
                None => layer >= first,
            };
            window.filter(|_| slides)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(extra: &str) -> Result<ModelConfig, ConfigError> {
        let json = format!(
            r#"{{"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,
            "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100 {extra}}}"#
        );
        ModelConfig::parse(json.as_bytes())
    }

    #[test]
    fn unsupported_variants_are_named() {
        let error = config(r#","hidden_act":"gelu""#).unwrap_err().to_string();
        assert!(error.contains("hidden_act = gelu"), "{error}");
        let error = config(r#","rope_scaling":{"rope_type":"yarn","factor":4.0}"#).unwrap_err();
        assert!(error.to_string().contains("rope_type = yarn"), "{error}");
    }

    #[test]
    fn both_formats_of_rope_parameters_are_read() {
        let old = config(r#","rope_theta":5e5,"rope_scaling":{"type":"linear","factor":2.0}"#);
        let new = config(
            r#","rope_parameters":{"rope_type":"linear","factor":2.0,"rope_theta":500000.0}"#,
        );
        let (old, new) = (old.unwrap(), new.unwrap());
        assert_eq!(
            (old.rope_theta, old.rope_scaling),
            (new.rope_theta, new.rope_scaling)
        );
        assert_eq!(old.rope_theta, 5e5);
    }

    #[test]
    fn shapes_have_as_many_parameters_as_their_models() {
        let counts = [
            ("llama-3-8b", 8_030_261_248),
            ("llama-3-70b", 70_553_706_496),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.1-70b", 70_553_706_496),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("mistral-7b", 7_248_023_552),
            ("qwen-2.5-0.5b", 494_032_768),
            ("qwen-2.5-1.5b", 1_543_714_304),
            ("qwen-2.5-7b", 7_615_616_512),
        ];
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shapes");
        for (name, count) in counts {
            let json = std::fs::read(folder.join(format!("{name}.json"))).unwrap();
            let config = ModelConfig::parse(&json).unwrap();
            assert_eq!(config.parameters(), count, "{name}");
            let shapes = crate::model::Model::parameter_shapes(&config);
            let sizes = shapes
                .iter()
                .map(|(_, shape)| shape.iter().product::<i64>());
            assert_eq!(sizes.sum::<i64>(), count, "{name}");
        }
        let known = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(known, counts.len(), "a shape without a test");
    }

    #[test]
    fn impossible_sizes_are_rejected() {
        assert!(config(r#","head_dim":3"#).is_err());
        let json = br#"{"model_type":"llama","hidden_size":64,"intermediate_size":96,
            "num_hidden_layers":2,"num_attention_heads":0,"vocab_size":100}"#;
        assert!(ModelConfig::parse(json).is_err());
    }
}
