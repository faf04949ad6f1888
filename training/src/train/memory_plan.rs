//! Predicts the peak memory of a run, and measures it.

use tch::Device;

use super::optimizer::chunk_elements as optimizer_chunk;
use super::recipe::{Bf16Update, Offload, Recipe, StateDtype, WeightDtype};
use crate::model::{ModelConfig, chunk_elements};
use crate::torch::kernels;

/// Memory that libtorch needs once it computes: code, threads, buffers. Measured.
const LIBTORCH_BYTES: u64 = 48 << 20;

/// Predicted memory in bytes of one process on its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Libraries and data.
    pub base: u64,
    /// Including quantized and gathered ones.
    pub weights: u64,
    /// Float32 copies of bf16 weights.
    pub master_weights: u64,
    pub optimizer_state: u64,
    /// Gradients that exist until the end of a step.
    pub gradients: u64,
    /// Saved activations of all blocks, and temporary ones of one block.
    pub activations: u64,
    /// Logits of a chunk with temporaries of the loss, and the gradient of the output matrix.
    pub logits: u64,
    /// Temporaries of the optimizer.
    pub update: u64,
    /// The copy from which a checkpoint is written in the background.
    pub snapshot: u64,
    /// Activations that still exist when the last gradients appear.
    backward: u64,
    /// Whether gradients of an earlier micro-batch exist during the next forward pass.
    accumulates: bool,
}

/// Number of elements of the parameters of a model.
struct ParamCounts {
    /// Matrices of the blocks.
    matrices: u64,
    /// Embedding, output matrix and final norm.
    root: u64,
    all: u64,
    trained: u64,
    /// The largest trained parameter.
    largest: u64,
}

impl ParamCounts {
    fn new(recipe: &Recipe, config: &ModelConfig) -> Self {
        let shapes = matrices(config);
        let layers = config.layers as u64;
        let all = config.parameters() as u64;
        let tables = if config.tied { 1 } else { 2 } * (config.vocab * config.hidden) as u64;
        let block: u64 = shapes.iter().map(|(_, out, input)| out * input).sum();
        let (trained, largest) = match &recipe.lora {
            None => (all, (config.vocab * config.hidden) as u64),
            Some(lora) => {
                let chosen = shapes.iter().filter(|(name, ..)| {
                    lora.target_modules.is_empty()
                        || lora.target_modules.iter().any(|target| target == name)
                });
                let sizes = chosen.map(|(_, out, input)| (out + input) * lora.rank as u64);
                (
                    sizes.clone().sum::<u64>() * layers,
                    sizes.max().unwrap_or(0),
                )
            }
        };
        Self {
            matrices: block * layers,
            root: tables + config.hidden as u64,
            all,
            trained,
            largest,
        }
    }
}

impl MemoryPlan {
    /// The plan of each of `world` processes.
    pub fn new(recipe: &Recipe, config: &ModelConfig, world: usize, device: Device) -> Self {
        let world = world.max(1) as u64;
        let counts = ParamCounts::new(recipe, config);
        let optimizer = &recipe.optimizer;
        let bf16 = recipe.train.dtype == WeightDtype::Bf16;
        let bytes = if bf16 { 2 } else { 4 };
        let int8 = optimizer.state_dtype == StateDtype::Int8;
        let trained = counts.trained / world;
        // Two states of one byte, and one float32 per 256 bytes.
        let optimizer_state = if int8 {
            2 * trained + trained / 32
        } else {
            8 * trained
        };
        let master_weights = match bf16 && optimizer.bf16_update == Bf16Update::MasterWeights {
            true => 4 * trained,
            false => 0,
        };
        let (on_device, working) = match (&optimizer.offload, device) {
            (Some(_), Device::Cuda(_)) => (0, 0),
            // The state of one parameter at a time.
            (Some(Offload::Disk(_)), _) => (
                0,
                (optimizer_state + master_weights) / trained.max(1) * counts.largest,
            ),
            _ => (1, 0),
        };
        let micro_batches = recipe
            .train
            .batch_size
            .div_ceil(recipe.train.micro_batch_size) as u64;
        let (activations, backward) = activations(recipe, config, bytes, world > 1, device);
        Self {
            base: resident().unwrap_or(0) + LIBTORCH_BYTES,
            weights: weights(recipe, &counts, config, bytes, world),
            master_weights: on_device * master_weights,
            optimizer_state: on_device * optimizer_state,
            gradients: match world {
                1 => bytes * counts.trained,
                // The shard in float32, and a whole unit in both dtypes.
                _ => 4 * trained + (bytes + 4) * counts.trained.min(counts.root),
            },
            activations,
            backward,
            logits: logits(recipe, config, bytes, &counts, device),
            update: working
                + match (bf16 || int8) && (device == Device::Cpu || !kernels::on_gpu()) {
                    false => 0,
                    // Weight, gradient, optimizer state, and temporaries of quantization.
                    true => with_fragmentation(
                        64 * counts.largest.min(optimizer_chunk(device) as u64),
                        device,
                    ),
                },
            snapshot: match recipe.checkpoint.save_steps {
                0 => 0,
                _ => trained * if master_weights > 0 { 4 } else { bytes } + optimizer_state,
            },
            accumulates: micro_batches > world,
        }
    }

    /// The peak. The forward pass needs activations and logits; the backward pass frees them while gradients
    /// appear.
    pub fn total(&self) -> u64 {
        let always =
            self.base + self.weights + self.master_weights + self.optimizer_state + self.snapshot;
        let forward = self.activations + self.logits;
        let end = self.gradients + self.update.max(self.backward);
        always
            + match self.accumulates {
                true => (forward + self.gradients).max(end),
                false => forward.max(end),
            }
    }

    /// The prediction as text, with suggestions to lower it.
    pub fn describe(&self, recipe: &Recipe) -> String {
        let parts = [
            ("base", self.base),
            ("weights", self.weights),
            ("master weights", self.master_weights),
            ("optimizer state", self.optimizer_state),
            ("gradients", self.gradients),
            ("activations", self.activations),
            ("logits", self.logits),
            ("update", self.update),
            ("checkpoint being written", self.snapshot),
        ];
        let listed: Vec<String> = parts
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| format!("{name} {:.2}", gib(*bytes)))
            .collect();
        let mut text = format!(
            "predicted peak memory per process: {:.2} GiB. Parts, not all at once: {}",
            gib(self.total()),
            listed.join(", ")
        );
        let suggestions = self.suggestions(recipe);
        if !suggestions.is_empty() {
            text += &format!("\nto lower it: {}", suggestions.join(", "));
        }
        text
    }

    /// Changes to the recipe that lower the peak, the largest saving first.
    fn suggestions(&self, recipe: &Recipe) -> Vec<&'static str> {
        let (train, optimizer) = (&recipe.train, &recipe.optimizer);
        let options = [
            (
                self.activations,
                !recipe.recomputes(false),
                "train.gradient_checkpointing = true",
            ),
            (
                self.activations / 2,
                train.micro_batch_size > 1,
                "a smaller train.micro_batch_size",
            ),
            (
                self.weights / 2,
                train.dtype == WeightDtype::Float32,
                "train.dtype = \"bf16\"",
            ),
            (
                self.optimizer_state * 3 / 4,
                optimizer.state_dtype == StateDtype::Float32,
                "optimizer.state_dtype = \"8bit\"",
            ),
            (
                self.master_weights,
                self.master_weights > 0,
                "optimizer.bf16_update = \"stochastic_rounding\"",
            ),
            (
                self.optimizer_state + self.master_weights,
                optimizer.offload.is_none(),
                "optimizer.offload = { disk = \"FOLDER\" }",
            ),
            (
                self.snapshot,
                self.snapshot > 0,
                "checkpoint.save_steps = 0",
            ),
            (
                self.optimizer_state + self.gradients,
                recipe.lora.is_none(),
                "[lora]",
            ),
            (self.activations / 2, true, "a smaller train.max_seq_len"),
        ];
        let mut options: Vec<_> = options
            .into_iter()
            .filter(|(saved, holds, _)| *holds && *saved > 0)
            .collect();
        options.sort_by_key(|(saved, ..)| std::cmp::Reverse(*saved));
        options.into_iter().take(4).map(|(.., text)| text).collect()
    }
}

fn weights(recipe: &Recipe, counts: &ParamCounts, c: &ModelConfig, bytes: u64, world: u64) -> u64 {
    let lora = if recipe.lora.is_some() {
        counts.trained
    } else {
        0
    };
    let block = (counts.all - counts.root) / c.layers as u64;
    let packed = recipe
        .lora
        .as_ref()
        .is_some_and(|l| l.quantization.is_some());
    let (packed, plain) = match packed {
        // Half a byte per element and a float32 per 64, not sharded. One block is dequantized at a time,
        // its largest matrix with temporaries in int32 and float32.
        true => {
            let largest = matrices(c).iter().map(|(_, o, i)| o * i).max().unwrap_or(0);
            let held = counts.matrices / 2 + counts.matrices / 16;
            (
                held + bytes * block + 20 * largest,
                counts.all - counts.matrices,
            )
        }
        false => (0, counts.all),
    };
    let spread = bytes * (plain + lora) / world;
    let gathered = match world {
        1 => 0,
        _ => bytes * (counts.root + block),
    };
    packed + spread + gathered
}

/// All activations, and those that the backward pass of one block needs.
fn activations(
    recipe: &Recipe,
    c: &ModelConfig,
    bytes: u64,
    together: bool,
    device: Device,
) -> (u64, u64) {
    let tokens = (recipe.train.max_seq_len * recipe.train.micro_batch_size) as u64;
    let block = per_token(recipe, c, device) + lora_per_token(recipe, c);
    let layers = c.layers as u64;
    let hidden = c.hidden as u64;
    let kept = match recipe.recomputes(together) {
        false => layers * block,
        true => layers * hidden + block,
    };
    // Temporaries of the backward pass of a block, about as much as its gated layer saved; and the hidden
    // states of the targets before and after the final norm.
    let working = 3 * c.intermediate as u64 + 4 * hidden;
    let held = |elements| with_fragmentation(bytes * tokens * elements, device);
    (held(kept + working), held(block + working))
}

/// Adds the fragmentation of memory that is repeatedly allocated and freed on a CPU. Measured.
fn with_fragmentation(bytes: u64, device: Device) -> u64 {
    match device {
        Device::Cpu => bytes * 5 / 4,
        _ => bytes,
    }
}

/// Whether the fused operations are used on this device.
fn are_fused(device: Device) -> bool {
    device == Device::Cpu || kernels::on_gpu()
}

/// Elements that a block saves per token.
fn per_token(recipe: &Recipe, c: &ModelConfig, device: Device) -> u64 {
    let (attention, keys) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let elements = match (are_fused(device), &recipe.lora) {
        // The inputs of attention and of the gated layer; queries, keys, values and the result of attention;
        // both arrays of the gated layer.
        (true, None) => 2 * c.hidden + 2 * attention + 2 * keys + 2 * c.intermediate,
        // The same, and the inputs of matrices with an adapter.
        (true, Some(_)) => 4 * c.hidden + 2 * attention + 2 * keys + 4 * c.intermediate,
        // For each norm its input, the scaled input and the result; queries, keys and values, the result of
        // attention and its transposed copy; the four arrays of the gated layer.
        _ => 6 * c.hidden + 5 * attention + 4 * c.intermediate,
    };
    elements as u64
}

/// Elements that the LoRA adapters of a block save per token: the low-rank product, and with dropout the mask
/// and the masked input.
fn lora_per_token(recipe: &Recipe, c: &ModelConfig) -> u64 {
    let Some(lora) = &recipe.lora else { return 0 };
    let chosen = matrices(c).into_iter().filter(|(name, ..)| {
        lora.target_modules.is_empty() || lora.target_modules.iter().any(|target| target == name)
    });
    let dropped = if lora.dropout > 0.0 { 2 } else { 0 };
    chosen
        .map(|(_, _, input)| lora.rank as u64 + dropped * input)
        .sum()
}

fn logits(
    recipe: &Recipe,
    c: &ModelConfig,
    bytes: u64,
    counts: &ParamCounts,
    device: Device,
) -> u64 {
    let tokens = (recipe.train.max_seq_len * recipe.train.micro_batch_size) as u64;
    let elements = (chunk_elements(device) as u64).min(tokens * c.vocab as u64);
    let (each, tables) = match are_fused(device) {
        // Logits are overwritten by their gradient.
        true => (bytes, 1),
        // Log-softmax, its gradient and that of the logits in float32; logits in their own dtype, and two
        // more copies if that is not float32. The gradient of the output matrix, and that of a chunk.
        false => (if bytes == 2 { 18 } else { 16 }, 2),
    };
    let table = (c.vocab * c.hidden) as u64;
    let head = match recipe.lora {
        None => tables * bytes * table.min(counts.trained),
        Some(_) => 0,
    };
    with_fragmentation(each * elements, device) + head
}

fn matrices(c: &ModelConfig) -> [(&'static str, u64, u64); 7] {
    let attention = (c.heads * c.head_dim) as u64;
    let keys = (c.kv_heads * c.head_dim) as u64;
    let (hidden, wide) = (c.hidden as u64, c.intermediate as u64);
    [
        ("q_proj", attention, hidden),
        ("k_proj", keys, hidden),
        ("v_proj", keys, hidden),
        ("o_proj", hidden, attention),
        ("gate_proj", wide, hidden),
        ("up_proj", wide, hidden),
        ("down_proj", hidden, wide),
    ]
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// The peak memory of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeakMemory {
    pub(super) bytes: u64,
}

impl PeakMemory {
    /// Main memory. `None` if the kernel does not report it, or a GPU is used.
    pub(super) fn read() -> Option<Self> {
        if tch::Cuda::is_available() {
            return None;
        }
        status("VmHWM:").map(|bytes| Self { bytes })
    }

    pub(super) fn against(self, plan: &MemoryPlan) -> String {
        let share = self.bytes as f64 / plan.total() as f64;
        format!(
            "peak {:.2} GiB, {:.0} % of the prediction",
            gib(self.bytes),
            100.0 * share
        )
    }
}

fn resident() -> Option<u64> {
    status("VmRSS:")
}

fn status(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn plan(extra: &str, world: usize) -> MemoryPlan {
        let text = format!(
            "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\nmax_seq_len=8192\nmax_steps=1\n{extra}"
        );
        let recipe = Recipe::parse(&text, Path::new("r")).unwrap();
        let llama3 = br#"{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,
            "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
            "vocab_size":128256}"#;
        let config = ModelConfig::parse(llama3).unwrap();
        MemoryPlan::new(&recipe, &config, world, Device::Cuda(0))
    }

    #[test]
    fn llama_3_8b_fits_where_arithmetic_says_so() {
        let gib = |bytes: u64| bytes >> 30;
        let lean = "dtype='bf16'\ngradient_checkpointing=true\n[optimizer]\nbf16_update='stochastic_rounding'\nstate_dtype='8bit'\n[checkpoint]\nsave_steps=0\n";
        let one = plan(lean, 1);
        // 8.03e9 parameters: 2 bytes of weights, 2 of gradients and 2 of optimizer state.
        assert_eq!(gib(one.weights), 14);
        assert_eq!(gib(one.weights + one.gradients + one.optimizer_state), 45);
        assert!(gib(one.total()) < 72, "{one:?}");
        assert!(gib(plan("", 1).total()) > 120);
        let eight = plan(lean, 8);
        assert!(eight.total() < one.total() / 2, "{eight:?}");
        assert_eq!(eight.optimizer_state, one.optimizer_state / 8);
        let lora = plan(
            "dtype='bf16'\ngradient_checkpointing=true\n[lora]\nrank=16\nalpha=32\n",
            1,
        );
        let packed = plan(
            "dtype='bf16'\n[lora]\nrank=16\nalpha=32\nquantization='nf4'\n",
            1,
        );
        assert!(packed.weights < lora.weights / 2, "{packed:?} {lora:?}");
    }

    #[test]
    fn suggestions_are_sorted_and_omit_what_is_set() {
        let recipe = |extra: &str| {
            let text = format!(
                "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\nmax_seq_len=8192\nmax_steps=1\n{extra}"
            );
            Recipe::parse(&text, Path::new("r")).unwrap()
        };
        let ways = plan("", 1).suggestions(&recipe(""));
        assert_eq!(ways[0], "train.gradient_checkpointing = true");
        assert!(ways.contains(&"[lora]"), "{ways:?}");
        let lean = "gradient_checkpointing=true\ndtype='bf16'\n";
        let ways = plan(lean, 1).suggestions(&recipe(lean));
        assert!(
            !ways.iter().any(|way| way.contains("checkpointing =")),
            "{ways:?}"
        );
    }
}
