//! The recipe of a training run, as TOML. Unknown keys are errors.

mod key_hints;
mod rules;

use std::path::{Path, PathBuf};

use pybench_training_data::{Overflow, RecordKind, Source, is_address};
use serde::Deserialize;
use tch::Kind;
use thiserror::Error;

use super::dpo::DpoConfig;
use super::schedule::LrScheduler;
use crate::exit::ExitCode;
use crate::model::ScaleFormat;

const MAX_RECIPE_BYTES: u64 = 1 << 20;

#[derive(Debug, Error)]
pub enum RecipeError {
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {error}{hint}")]
    Syntax {
        path: PathBuf,
        error: Box<toml::de::Error>,
        /// Empty, or a line that says how an unknown key is called here.
        hint: String,
    },
    #[error("{path}: {key} = {value}: {expected}")]
    Value {
        path: PathBuf,
        key: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("{path}: {reason}")]
    Stages { path: PathBuf, reason: String },
}

impl RecipeError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Io { error, .. } if error.kind() != std::io::ErrorKind::Other => {
                ExitCode::of_io(error)
            }
            _ => ExitCode::BadInput,
        }
    }
}

impl RecipeError {
    pub(super) fn syntax(path: &Path, error: toml::de::Error) -> Self {
        let hint = match key_hints::hint(error.message()) {
            hint if hint.is_empty() => hint,
            hint => format!("help: {hint}\n"),
        };
        Self::Syntax {
            path: path.into(),
            error: error.into(),
            hint,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the run folder under `data/runs/`.
    pub name: String,
    /// Determines the order of the data, new parameters, dropout and stochastic rounding.
    #[serde(default)]
    pub seed: u64,
    /// A name of the catalog (`training/models.toml`), a Hugging Face directory, `owner/name` on the Hub, an address
    /// (`s3://`, `gs://`, `az://`, `hf://`), or the directory of an adapter, whose training goes on.
    pub model: String,
    /// A `config.json` for dry runs without the model; relative to the recipe.
    #[serde(default)]
    pub model_config: Option<PathBuf>,
    /// A chat template that replaces that of the model and is saved with it: a file, relative to the recipe, or the name
    /// of one in `training/recipes/templates`.
    #[serde(default)]
    pub chat_template: Option<PathBuf>,
    pub data: Vec<Source>,
    /// Conversations whose loss is measured before and after training.
    #[serde(default)]
    pub held_out: Option<HeldOutConfig>,
    /// Evaluation of the trained model as an agent.
    #[serde(default)]
    pub agent_eval: Option<AgentEvalConfig>,
    pub train: TrainConfig,
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// LoRA; without this section every parameter is trained.
    #[serde(default)]
    pub lora: Option<LoraConfig>,
    /// Direct preference optimization: the rows of `data` are preference pairs.
    #[serde(default)]
    pub dpo: Option<DpoConfig>,
    #[serde(default)]
    pub checkpoint: CheckpointConfig,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOutConfig {
    /// A file or folder.
    pub path: PathBuf,
    /// Reads only files whose names start with this.
    #[serde(default)]
    pub prefix: String,
    /// Maximum number of pairs, or of conversations of each group: unseen files, held-out templates, and, of composed tasks, unseen
    /// wordings, pairs of operations and operations.
    #[serde(default = "HeldOutConfig::default_max_conversations")]
    pub max_conversations: usize,
    /// `preference`: pairs, whose loss and rewards are measured.
    #[serde(default)]
    pub kind: RecordKind,
    /// Measures every this many steps, beside before and after; 0 does not. Default: three times, evenly spaced.
    #[serde(default)]
    pub eval_steps: Option<u64>,
}

impl HeldOutConfig {
    /// Whether the loss is measured after `step` of `steps` completed steps. The last one is not counted: it is always
    /// measured.
    pub(super) fn is_due(&self, step: u64, steps: u64) -> bool {
        let every = self.eval_steps.unwrap_or(steps.div_ceil(4));
        every > 0 && step < steps && step.is_multiple_of(every)
    }

    fn default_max_conversations() -> usize {
        16
    }
}

/// An evaluation by `pybench-eval` after training.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentEvalConfig {
    /// A recipe of `pybench-eval`; the model is added to its agents.
    pub recipe: PathBuf,
    /// Base URL of a server that serves the trained model, such as `http://127.0.0.1:8000/v1`. Without it, the
    /// models before and after training are served by `pybench-train serve`.
    #[serde(default)]
    pub server_url: Option<String>,
    /// Name of the model on that server. Default: its directory.
    #[serde(default)]
    pub served_model_name: Option<String>,
    /// The evaluation program, beside this one or on the PATH.
    #[serde(default = "AgentEvalConfig::default_program")]
    pub program: String,
}

impl AgentEvalConfig {
    fn default_program() -> String {
        "pybench-eval".into()
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Tokens per row; documents are packed into rows of this length.
    pub max_seq_len: usize,
    /// Rows per step, over all processes.
    #[serde(default = "TrainConfig::one")]
    pub batch_size: usize,
    /// Rows per forward pass. Gradients of a step are accumulated with one denominator.
    #[serde(default = "TrainConfig::one")]
    pub micro_batch_size: usize,
    /// Number of steps; alternatively `num_epochs`.
    #[serde(default)]
    pub max_steps: Option<u64>,
    /// How often every document is seen; may be a fraction.
    #[serde(default)]
    pub num_epochs: Option<f64>,
    /// What happens to conversations longer than `max_seq_len`.
    #[serde(default)]
    pub overflow: Overflow,
    /// Loss weight of prompts and template text; that of replies is 1.
    #[serde(default)]
    pub prompt_weight: f32,
    /// Loss weight of output of tools and of the interpreter.
    #[serde(default)]
    pub observation_weight: f32,
    /// Allows that the padding token is also a trained token, as in ChatML models that pad with the end of turn.
    #[serde(default)]
    pub allow_trained_pad: bool,
    /// Recompute blocks in the backward pass. Always on with several processes, with quantization, and with
    /// `optimizer.optimizer_in_bwd`.
    #[serde(default)]
    pub gradient_checkpointing: bool,
    /// With gradient checkpointing, the number of blocks that are recomputed, from the first one on; the others keep
    /// their activations. Default: all. Megatron-LM's option of this name.
    #[serde(default)]
    pub recompute_num_layers: Option<usize>,
    /// Data type of weights and computation.
    #[serde(default)]
    pub dtype: WeightDtype,
    /// Whether adapters are merged into a model at the end. They are saved on their own in any case.
    #[serde(default = "TrainConfig::merges")]
    pub merge: bool,
    /// An order of the rows of the first epoch; by default, and in later epochs, it is random.
    #[serde(default)]
    pub curriculum: Option<Curriculum>,
}

/// An order in which rows are learned first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curriculum {
    /// No order, as without the key: for a stage that inherits one.
    Random,
    /// By the column `difficulty` of our own datasets, the easiest rows first.
    Difficulty,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightDtype {
    #[default]
    Float32,
    /// See `optimizer.bf16_update` for the precision of updates.
    Bf16,
}

impl WeightDtype {
    pub fn kind(self) -> Kind {
        match self {
            Self::Float32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
        }
    }

    /// Its name in recipes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bf16 => "bf16",
        }
    }
}

/// How bf16 weights are updated. Has no effect on float32 weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bf16Update {
    /// Keep a float32 copy of the weights.
    #[default]
    MasterWeights,
    /// Update in place and round at random, so that the expected value is exact.
    StochasticRounding,
    /// Update in place and round to nearest. Most small updates are lost; only for comparison.
    RoundToNearest,
}

/// Data type of the optimizer state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum StateDtype {
    #[default]
    #[serde(rename = "float32")]
    Float32,
    /// One byte per element, and a scale per 256 elements.
    #[serde(rename = "8bit")]
    Int8,
}

/// Quantization of the frozen matrices under LoRA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantization {
    /// 4-bit NormalFloat, as in QLoRA, with a float32 scale per 64 elements.
    Nf4,
    /// With scales of 8 bits: double quantization.
    #[serde(rename = "nf4_double")]
    Nf4Double,
}

impl Quantization {
    pub(super) fn scales(self) -> ScaleFormat {
        match self {
            Self::Nf4 => ScaleFormat::Float32,
            Self::Nf4Double => ScaleFormat::Int8,
        }
    }

    /// The name of a quantization in recipes, as a TOML value.
    pub(super) fn value(scales: Option<ScaleFormat>) -> &'static str {
        match scales {
            None => "(none)",
            Some(ScaleFormat::Float32) => "\"nf4\"",
            Some(ScaleFormat::Int8) => "\"nf4_double\"",
        }
    }
}

impl TrainConfig {
    fn one() -> usize {
        1
    }

    fn merges() -> bool {
        true
    }
}

/// AdamW and its learning rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// Peak learning rate.
    pub learning_rate: f64,
    pub lr_scheduler: LrScheduler,
    pub warmup_steps: u64,
    /// Final learning rate as a fraction of `learning_rate`.
    pub min_lr_ratio: f64,
    pub betas: (f64, f64),
    pub eps: f64,
    /// Decoupled weight decay; applies to matrices only.
    pub weight_decay: f64,
    /// The gradient is clipped to this norm; 0 disables clipping.
    pub max_grad_norm: f64,
    pub bf16_update: Bf16Update,
    pub state_dtype: StateDtype,
    /// Updates the parameters of each block in the backward pass, as soon as their gradients are complete, and frees
    /// these. For one micro-batch per step, without clipping.
    pub optimizer_in_bwd: bool,
    /// Where optimizer state and master weights are stored. Default: on the device of the weights.
    pub offload: Option<Offload>,
    /// Stops the run and saves the batch when the loss exceeds the median of the last 64 by this many standard
    /// deviations; 0 disables the check.
    pub loss_spike_threshold: f64,
}

/// Where the optimizer state is stored. The CPU updates it there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offload {
    /// Main memory, for weights on a GPU.
    Cpu,
    /// Memory-mapped files in a folder.
    Disk(PathBuf),
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            learning_rate: 2e-5,
            lr_scheduler: LrScheduler::Cosine,
            warmup_steps: 0,
            min_lr_ratio: 0.1,
            betas: (0.9, 0.95),
            eps: 1e-8,
            weight_decay: 0.0,
            max_grad_norm: 1.0,
            bf16_update: Bf16Update::MasterWeights,
            state_dtype: StateDtype::Float32,
            optimizer_in_bwd: false,
            offload: None,
            loss_spike_threshold: 10.0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    pub rank: i64,
    /// The adapter is scaled by `alpha / rank`.
    pub alpha: f64,
    /// Names of matrices, such as `q_proj`. Default: all matrices of a block.
    #[serde(default)]
    pub target_modules: Vec<String>,
    /// Dropout on the input of the adapter.
    #[serde(default)]
    pub dropout: f64,
    /// Quantizes the frozen matrices (QLoRA).
    #[serde(default)]
    pub quantization: Option<Quantization>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Steps between checkpoints; 0 writes none.
    pub save_steps: u64,
    /// Number of checkpoints that are kept.
    pub save_total_limit: usize,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            save_steps: 100,
            save_total_limit: 2,
        }
    }
}

/// Reads the text of a recipe file.
pub(super) fn read_recipe(path: &Path) -> Result<String, RecipeError> {
    let io = |error| RecipeError::Io {
        path: path.into(),
        error,
    };
    let size = std::fs::metadata(path).map_err(io)?.len();
    if size > MAX_RECIPE_BYTES {
        let text = format!("the recipe has {size} bytes, more than {MAX_RECIPE_BYTES}");
        return Err(io(std::io::Error::other(text)));
    }
    std::fs::read_to_string(path).map_err(io)
}

/// A path in a recipe, resolved relative to the recipe's folder; an address stays.
pub(super) fn resolve(recipe: &Path, file: &Path) -> PathBuf {
    if is_address(file) {
        return file.to_owned();
    }
    recipe.parent().unwrap_or(Path::new("")).join(file)
}

impl Recipe {
    /// Parses a recipe. `path` is used in messages, and to resolve relative paths.
    pub fn parse(text: &str, path: &Path) -> Result<Self, RecipeError> {
        let mut recipe = Self::checked(toml::from_str(text), path)?;
        for file in [&mut recipe.model_config, &mut recipe.chat_template] {
            *file = file.take().map(|file| resolve(path, &file));
        }
        recipe.resolve_agent_eval(path);
        Ok(recipe)
    }

    /// Like [`Self::parse`], for a table whose `model_config` and `chat_template` are resolved already.
    pub(super) fn from_table(table: toml::Table, path: &Path) -> Result<Self, RecipeError> {
        Self::checked(table.try_into(), path)
    }

    fn resolve_agent_eval(&mut self, path: &Path) {
        if let Some(agent_eval) = &mut self.agent_eval {
            agent_eval.recipe = resolve(path, &agent_eval.recipe);
        }
    }

    fn checked(parsed: Result<Self, toml::de::Error>, path: &Path) -> Result<Self, RecipeError> {
        let recipe = parsed.map_err(|error| RecipeError::syntax(path, error))?;
        recipe.check(path)?;
        Ok(recipe)
    }

    /// A hash of everything that determines the trained weights. A run resumes only checkpoints with the same
    /// identity.
    pub fn identity(&self) -> String {
        let mut same = self.clone();
        same.checkpoint = CheckpointConfig::default();
        same.optimizer.loss_spike_threshold = 0.0;
        same.optimizer.offload = None;
        same.optimizer.optimizer_in_bwd = false;
        same.agent_eval = None;
        same.train.merge = true;
        same.train.curriculum = same.train.curriculum.filter(|c| *c != Curriculum::Random);
        blake3::hash(format!("{same:?}").as_bytes())
            .to_hex()
            .to_string()
    }

    /// Number of the `layers` blocks that are recomputed in the backward pass; `None` if each keeps its activations.
    /// Of several processes each recomputes all, because blocks are gathered one at a time.
    pub fn recomputed_blocks(&self, layers: usize, several_processes: bool) -> Option<usize> {
        let wanted = self.train.recompute_num_layers;
        let wanted = wanted.filter(|_| !several_processes).unwrap_or(layers);
        self.recomputes(several_processes)
            .then_some(wanted.min(layers))
    }

    /// The maximum number of tokens in a row of a batch. A pair is one row of two conversations.
    pub(super) fn row_tokens(&self) -> usize {
        self.train.max_seq_len * if self.dpo.is_some() { 2 } else { 1 }
    }

    /// Whether blocks are recomputed in the backward pass.
    pub fn recomputes(&self, several_processes: bool) -> bool {
        let quantized = self.lora.as_ref().is_some_and(|l| l.quantization.is_some());
        let in_backward = self.optimizer.optimizer_in_bwd;
        self.train.gradient_checkpointing || several_processes || quantized || in_backward
    }

    /// Whether checkpoints are written from the tensors of the run itself, while it waits. A copy to write from in the
    /// background would need the memory that these settings save.
    pub(super) fn streams_checkpoints(&self) -> bool {
        let on_disk = matches!(self.optimizer.offload, Some(Offload::Disk(_)));
        self.optimizer.optimizer_in_bwd || on_disk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\nmax_seq_len=8\nmax_steps=1\n";

    fn error(text: &str) -> String {
        let parsed = Recipe::parse(text, Path::new("r.toml"));
        parsed.unwrap_err().to_string()
    }

    #[test]
    fn updates_in_the_backward_pass_exclude_clipping_and_several_micro_batches() {
        let recipe = |train: &str, optimizer: &str| {
            let text = format!("{GOOD}{train}\n[optimizer]\noptimizer_in_bwd=true\n{optimizer}\n");
            Recipe::parse(&text, Path::new("r.toml"))
        };
        let text = recipe("", "").unwrap_err().to_string();
        assert!(text.contains("optimizer.max_grad_norm = 0"), "{text}");
        let one = recipe("", "max_grad_norm=0").unwrap();
        assert!(one.recomputes(false) && one.streams_checkpoints());
        assert_eq!(one.conflict(1), None);
        let plain = Recipe::parse(
            &format!("{GOOD}[optimizer]\nmax_grad_norm=0\n"),
            Path::new("r"),
        );
        assert_eq!(plain.unwrap().identity(), one.identity());
        let several = recipe("batch_size=7\nmicro_batch_size=2", "max_grad_norm=0").unwrap();
        assert_eq!(several.conflict(4), None);
        let text = several.conflict(2).unwrap();
        for words in [
            "4 micro-batches",
            "train.batch_size = 4",
            "train.micro_batch_size = 4",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn unknown_keys_are_rejected_with_the_line() {
        assert!(Recipe::parse(GOOD, Path::new("r")).is_ok());
        let text = error(&format!("{GOOD}stepz=3\n"));
        assert!(text.contains("line 8") && text.contains("stepz"), "{text}");
        let text = error(&GOOD.replace("path='d'", "path='d'\nweigth=2"));
        assert!(text.contains("weigth"), "{text}");
    }

    #[test]
    fn keys_of_other_tools_are_translated() {
        for (section, key, ours) in [
            (
                "",
                "per_device_train_batch_size=1",
                "train.micro_batch_size",
            ),
            ("", "context=8", "train.max_seq_len"),
            ("", "gradient_accumulation_steps=4", "accumulation steps"),
            ("[optimizer]", "lr=1e-5", "optimizer.learning_rate"),
            ("[optimizer]", "moments='8bit'", "optimizer.state_dtype"),
            (
                "[lora]\nrank=4\nalpha=8",
                "load_in_4bit=true",
                "lora.quantization",
            ),
            ("[checkpoint]", "every=3", "checkpoint.save_steps"),
        ] {
            let text = error(&format!("{GOOD}{section}\n{key}\n"));
            assert!(text.contains("help: ") && text.contains(ours), "{text}");
        }
    }

    #[test]
    fn values_out_of_bounds_are_rejected_by_key() {
        let both = error(&GOOD.replace("max_steps=1", "max_steps=1\nnum_epochs=2"));
        assert!(
            both.contains("train.max_steps = 1, num_epochs = 2"),
            "{both}"
        );
        assert!(error(&GOOD.replace("max_steps=1", "")).contains("train.max_steps = (none)"));
        let weight = error(&GOOD.replace("path='d'", "path='d'\nweight=-1"));
        assert!(weight.contains("data.weight = -1"), "{weight}");
        assert!(
            error(&GOOD.replace("max_seq_len=8", "max_seq_len=1")).contains("train.max_seq_len")
        );
        assert!(error(&format!("{GOOD}[optimizer]\nbetas=[0.9,1.0]\n")).contains("betas"));
        let lora = format!("{GOOD}[lora]\nrank=4\nalpha=8\ndropout=1.0\n");
        assert!(error(&lora).contains("lora.dropout"));
    }

    #[test]
    fn the_identity_covers_only_what_changes_weights() {
        let parse = |extra: &str| Recipe::parse(&format!("{GOOD}{extra}"), Path::new("r")).unwrap();
        let plain = parse("").identity();
        assert_eq!(parse("[checkpoint]\nsave_steps=7\n").identity(), plain);
        assert_eq!(
            parse("[optimizer]\nloss_spike_threshold=3\n").identity(),
            plain
        );
        for storage in ["'cpu'", "{disk='/a'}"] {
            let text = format!("[optimizer]\noffload={storage}\n");
            assert_eq!(parse(&text).identity(), plain);
        }
        assert_ne!(parse("[optimizer]\nstate_dtype='8bit'\n").identity(), plain);
        assert_ne!(parse("dtype='bf16'\n").identity(), plain);
        assert_eq!(parse("curriculum='random'\n").identity(), plain);
        assert_ne!(parse("curriculum='difficulty'\n").identity(), plain);
    }

    #[test]
    fn fuzz_recipe() {
        bolero::check!().for_each(|noise: &[u8]| {
            let _ = Recipe::parse(&String::from_utf8_lossy(noise), Path::new("r"));
        });
    }
}
