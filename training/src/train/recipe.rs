//! What a training run is asked to do, as TOML. Unknown keys are refused with the line.

mod rules;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::ScheduleKind;
use crate::data::{Overflow, Source};

/// Most bytes of a recipe.
const RECIPE_BYTES: u64 = 1 << 20;

/// Why a recipe cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum RecipeError {
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {error}")]
    Syntax {
        path: PathBuf,
        error: toml::de::Error,
    },
    #[error("{path}: {key} = {value}: {wanted}")]
    Value {
        path: PathBuf,
        key: &'static str,
        value: String,
        wanted: &'static str,
    },
    #[error("{path}: {reason}")]
    Stages { path: PathBuf, reason: String },
}

/// A run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the run's folder under `data/runs/`.
    pub name: String,
    /// Seed of the order of data and of new parameters.
    #[serde(default)]
    pub seed: u64,
    /// A name of the catalogue (`training/models.toml`), or a Hugging Face directory.
    pub model: String,
    /// A `config.json` like the model's, beside the recipe: enough for a dry run without the model.
    #[serde(default)]
    pub shape: Option<PathBuf>,
    /// A chat template beside the recipe, instead of the model's own; goes out with the model.
    #[serde(default)]
    pub chat_template: Option<PathBuf>,
    /// Where conversations come from.
    pub data: Vec<Source>,
    /// Conversations that are only measured, before and after.
    #[serde(default)]
    pub held_out: Option<HeldOut>,
    /// Trajectories that the trained model is to generate.
    #[serde(default)]
    pub generated: Option<Generated>,
    /// Length and size.
    pub train: Train,
    /// AdamW and its schedule.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// Low-rank training; without it every parameter is trained.
    #[serde(default)]
    pub lora: Option<LoraChoice>,
    /// Checkpoints.
    #[serde(default)]
    pub checkpoint: CheckpointChoice,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// A file or folder.
    pub path: PathBuf,
    /// Only files whose names begin so.
    #[serde(default)]
    pub prefix: String,
    /// Most conversations of unseen files, and of held-out templates.
    #[serde(default = "HeldOut::default_rows")]
    pub rows: usize,
}

impl HeldOut {
    fn default_rows() -> usize {
        16
    }
}

/// An evaluation by `pybench-eval`, once the model is written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generated {
    /// A recipe of `pybench-eval`; the model is added to its agents.
    pub recipe: PathBuf,
    /// Base URL of a server that has the model by then, such as `http://127.0.0.1:8000/v1`; without one
    /// the model and what it was before are served by ourselves.
    #[serde(default)]
    pub server: Option<String>,
    /// What that server calls the model; its directory otherwise.
    #[serde(default)]
    pub served_as: Option<String>,
    /// The program, beside this one or on the path.
    #[serde(default = "Generated::default_program")]
    pub program: String,
}

impl Generated {
    fn default_program() -> String {
        "pybench-eval".into()
    }
}

/// Length and size of the run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Tokens of a packed row.
    pub context: usize,
    /// Packed rows of one step.
    #[serde(default = "Train::one")]
    pub rows: usize,
    /// Rows that go through the model together; a step adds up as many such parts as it needs, with
    /// one denominator.
    #[serde(default = "Train::one")]
    pub micro_rows: usize,
    /// Steps; else `epochs`.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Times that every document is seen.
    #[serde(default)]
    pub epochs: Option<f64>,
    /// What becomes of conversations longer than `context`.
    #[serde(default)]
    pub overflow: Overflow,
    /// Weight of the tokens that the model does not have to produce.
    #[serde(default)]
    pub prompt_weight: f32,
    /// The same for what tools and the interpreter said.
    #[serde(default)]
    pub observation_weight: f32,
    /// The padding token is trained as well (ChatML models pad with their end of turn). Here padding is
    /// told by place, so that is no harm; where it is not said, it stops the run.
    #[serde(default)]
    pub pad_may_be_trained: bool,
    /// Run blocks again in the backward pass instead of keeping what they computed. Always so where
    /// several processes train together, and where matrices are packed.
    #[serde(default)]
    pub recompute: bool,
    /// What the model is held and computed in.
    #[serde(default)]
    pub weights: WeightKind,
}

/// Kinds of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightKind {
    /// Four bytes.
    #[default]
    Float32,
    /// Two bytes; `optimizer.updates` says how small updates survive.
    Bf16,
}

/// How bf16 weights are updated; float32 ones need no care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Updates {
    /// In an exact float32 copy.
    #[default]
    Master,
    /// In place, rounded up or down at random so that the mean is right: no copy is needed.
    Stochastic,
    /// In place, rounded to the nearest: most small updates are lost. Only for comparison.
    Plain,
}

/// Kinds of moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum MomentKind {
    /// Four bytes each.
    #[default]
    #[serde(rename = "float32")]
    Float32,
    /// One byte each, and a scale for 256.
    #[serde(rename = "8bit")]
    EightBits,
}

/// How frozen matrices are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// Four bits an element, after QLoRA.
    Nf4,
}

impl Train {
    fn one() -> usize {
        1
    }
}

/// AdamW and its schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Optimizer {
    /// Highest learning rate.
    pub rate: f64,
    /// Its course.
    pub schedule: ScheduleKind,
    /// Steps of warm-up.
    pub warmup: u64,
    /// Share of the highest rate at the end.
    pub floor: f64,
    /// Decay of the moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay of matrices.
    pub decay: f64,
    /// Largest norm of the whole gradient; 0 does not clip.
    pub clip: f64,
    /// How bf16 weights are updated.
    pub updates: Updates,
    /// What moments are kept in.
    pub moments: MomentKind,
    /// Where moments and master copies lie, if not beside the weights.
    pub offload: Option<Offload>,
    /// A loss so many spreads above the median of the last 64 stops the run and saves the batch; 0
    /// never does.
    pub spike: f64,
}

/// Places for the optimizer's state. It is updated on the CPU there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offload {
    /// Main memory, where the weights are on a GPU.
    Memory,
    /// A folder on a disk, from which it is mapped.
    Disk(PathBuf),
}

impl Default for Optimizer {
    fn default() -> Self {
        Self {
            rate: 2e-5,
            schedule: ScheduleKind::Cosine,
            warmup: 0,
            floor: 0.1,
            betas: (0.9, 0.95),
            epsilon: 1e-8,
            decay: 0.0,
            clip: 1.0,
            updates: Updates::Master,
            moments: MomentKind::Float32,
            offload: None,
            spike: 10.0,
        }
    }
}

/// Low-rank training.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraChoice {
    /// Rank.
    pub rank: i64,
    /// The addition is scaled by `alpha / rank`.
    pub alpha: f64,
    /// Names of matrices, such as `q_proj`; all of a block's by default.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Share of the input that the addition does not see in training.
    #[serde(default)]
    pub dropout: f64,
    /// Pack the blocks' matrices, which are frozen: QLoRA.
    #[serde(default)]
    pub quantise: Option<Packing>,
}

/// Checkpoints.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointChoice {
    /// Steps between two; 0 writes none.
    pub every: u64,
    /// How many are kept.
    pub keep: usize,
}

impl Default for CheckpointChoice {
    fn default() -> Self {
        Self {
            every: 100,
            keep: 2,
        }
    }
}

/// The text of a recipe file.
pub(super) fn read_recipe(path: &Path) -> Result<String, RecipeError> {
    let io = |error| RecipeError::Io {
        path: path.into(),
        error,
    };
    let size = std::fs::metadata(path).map_err(io)?.len();
    if size > RECIPE_BYTES {
        return Err(io(std::io::Error::other(format!("{size} bytes"))));
    }
    std::fs::read_to_string(path).map_err(io)
}

impl Recipe {
    /// A recipe from text; `path` is for messages, and where its files lie.
    pub fn parse(text: &str, path: &Path) -> Result<Self, RecipeError> {
        let mut recipe = Self::checked(toml::from_str(text), path)?;
        for file in [&mut recipe.shape, &mut recipe.chat_template] {
            *file = file.take().map(|file| super::stages::near(path, &file));
        }
        if let Some(generated) = &mut recipe.generated {
            generated.recipe = super::stages::near(path, &generated.recipe);
        }
        Ok(recipe)
    }

    /// The same from what several files say together, whose files are found already.
    pub(super) fn from_table(table: toml::Table, path: &Path) -> Result<Self, RecipeError> {
        Self::checked(table.try_into(), path)
    }

    fn checked(parsed: Result<Self, toml::de::Error>, path: &Path) -> Result<Self, RecipeError> {
        let recipe = parsed.map_err(|error| RecipeError::Syntax {
            path: path.into(),
            error,
        })?;
        recipe.check(path)?;
        Ok(recipe)
    }

    /// What another run must have in common with this one to go on from its checkpoints.
    pub fn identity(&self) -> String {
        let mut same = self.clone();
        same.checkpoint = CheckpointChoice::default();
        same.optimizer.spike = 0.0;
        same.optimizer.offload = None;
        same.generated = None;
        blake3::hash(format!("{same:?}").as_bytes())
            .to_hex()
            .to_string()
    }

    /// Whether blocks run again in the backward pass; `together`: with other processes.
    pub fn recomputes(&self, together: bool) -> bool {
        let packed = self.lora.as_ref().is_some_and(|l| l.quantise.is_some());
        self.train.recompute || together || packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\ncontext=8\nsteps=1\n";

    fn error(text: &str) -> String {
        let parsed = Recipe::parse(text, Path::new("r.toml"));
        parsed.unwrap_err().to_string()
    }

    #[test]
    fn unknown_keys_are_refused_with_the_line() {
        assert!(Recipe::parse(GOOD, Path::new("r")).is_ok());
        let text = error(&format!("{GOOD}stepz=3\n"));
        assert!(text.contains("line 8") && text.contains("stepz"), "{text}");
        let text = error(&GOOD.replace("path='d'", "path='d'\nweigth=2"));
        assert!(text.contains("weigth"), "{text}");
    }

    #[test]
    fn values_out_of_bounds_are_refused_by_key() {
        let both = error(&GOOD.replace("steps=1", "steps=1\nepochs=2"));
        assert!(both.contains("train.steps = 1, epochs = 2"), "{both}");
        assert!(error(&GOOD.replace("steps=1", "")).contains("train.steps = (none)"));
        let weight = error(&GOOD.replace("path='d'", "path='d'\nweight=-1"));
        assert!(weight.contains("data.weight = -1"), "{weight}");
        assert!(error(&GOOD.replace("context=8", "context=1")).contains("train.context"));
        assert!(error(&format!("{GOOD}[optimizer]\nbetas=[0.9,1.0]\n")).contains("betas"));
        let lora = format!("{GOOD}[lora]\nrank=4\nalpha=8\ndropout=1.0\n");
        assert!(error(&lora).contains("lora.dropout"));
    }

    #[test]
    fn only_what_changes_weights_makes_another_run() {
        let parse = |extra: &str| Recipe::parse(&format!("{GOOD}{extra}"), Path::new("r")).unwrap();
        let plain = parse("").identity();
        assert_eq!(parse("[checkpoint]\nevery=7\n").identity(), plain);
        assert_eq!(parse("[optimizer]\nspike=3\n").identity(), plain);
        for place in ["'memory'", "{disk='/a'}"] {
            let text = format!("[optimizer]\noffload={place}\n");
            assert_eq!(parse(&text).identity(), plain);
        }
        assert_ne!(parse("[optimizer]\nmoments='8bit'\n").identity(), plain);
        assert_ne!(parse("weights='bf16'\n").identity(), plain);
    }

    #[test]
    fn fuzz_recipe() {
        bolero::check!().for_each(|noise: &[u8]| {
            let _ = Recipe::parse(&String::from_utf8_lossy(noise), Path::new("r"));
        });
    }
}
