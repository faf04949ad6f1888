//! What a run will need, before step 1, and what it needed.

use tch::Device;

use super::Recipe;
use super::optimizer::chunk;
use super::recipe::{MomentKind, Offload, Updates, WeightKind};
use crate::model::{ModelConfig, chunk_elements};

/// What libtorch takes once it computes: more of its code, threads, buffers. Measured.
const LIBTORCH: u64 = 48 << 20;

/// Predicted bytes of one process, on the device where it computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Libraries and data.
    pub base: u64,
    /// Weights, packed ones and gathered ones included.
    pub weights: u64,
    /// Float32 copies of bf16 weights.
    pub masters: u64,
    /// Both moments.
    pub moments: u64,
    /// Gradients that stay until the end of a step.
    pub gradients: u64,
    /// What blocks keep for the backward pass, and what one works with.
    pub activations: u64,
    /// Logits of a chunk with what the loss makes of them, and the gradient of the output matrix.
    pub logits: u64,
    /// Copies that the optimizer works with.
    pub update: u64,
    /// The copy that a checkpoint is written from while training goes on.
    pub snapshot: u64,
    /// Of the activations, those that are there when the last gradients appear.
    backward: u64,
    /// Whether gradients of an earlier part are there while the next goes through the model.
    accumulates: bool,
}

/// Elements of a model by how they are treated.
struct Counts {
    /// Of matrices of blocks.
    matrices: u64,
    /// Of embedding, output matrix and last norm.
    root: u64,
    /// Of everything.
    all: u64,
    /// Of what is trained.
    trained: u64,
    /// Of the largest parameter that is trained.
    largest: u64,
}

impl Counts {
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
                    lora.targets.is_empty() || lora.targets.iter().any(|target| target == name)
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
    /// Of one of `world` processes that compute on such a device.
    pub fn new(recipe: &Recipe, config: &ModelConfig, world: usize, device: Device) -> Self {
        let world = world.max(1) as u64;
        let counts = Counts::new(recipe, config);
        let optimizer = &recipe.optimizer;
        let bf16 = recipe.train.weights == WeightKind::Bf16;
        let bytes = if bf16 { 2 } else { 4 };
        let eight = optimizer.moments == MomentKind::EightBits;
        let trained = counts.trained / world;
        // A byte, and a float32 for 256 of them.
        let moments = if eight {
            2 * trained + trained / 32
        } else {
            8 * trained
        };
        let masters = match bf16 && optimizer.updates == Updates::Master {
            true => 4 * trained,
            false => 0,
        };
        let (near, working) = match (&optimizer.offload, device) {
            (Some(_), Device::Cuda(_)) => (0, 0),
            // One parameter's at a time.
            (Some(Offload::Disk(_)), _) => {
                (0, (moments + masters) / trained.max(1) * counts.largest)
            }
            _ => (1, 0),
        };
        let parts = recipe.train.rows.div_ceil(recipe.train.micro_rows) as u64;
        let (activations, backward) = activations(recipe, config, bytes, world > 1, device);
        Self {
            base: resident().unwrap_or(0) + LIBTORCH,
            weights: weights(recipe, &counts, config, bytes, world),
            masters: near * masters,
            moments: near * moments,
            gradients: match world {
                1 => bytes * counts.trained,
                // Its part in float32; beside it a whole unit, in both kinds.
                _ => 4 * trained + (bytes + 4) * counts.trained.min(counts.root),
            },
            activations,
            backward,
            logits: logits(recipe, config, bytes, &counts, device),
            update: working
                + match bf16 || eight {
                    false => 0,
                    // Weight, gradient, both moments, codes and what they are made by.
                    true => in_pieces(64 * counts.largest.min(chunk(device) as u64), device),
                },
            snapshot: match recipe.checkpoint.every {
                0 => 0,
                _ => trained * if masters > 0 { 4 } else { bytes } + moments,
            },
            accumulates: parts > world,
        }
    }

    /// The most at one time: a forward pass holds activations and logits, its backward pass frees
    /// them while gradients appear.
    pub fn total(&self) -> u64 {
        let always = self.base + self.weights + self.masters + self.moments + self.snapshot;
        let forward = self.activations + self.logits;
        let end = self.gradients + self.update.max(self.backward);
        always
            + match self.accumulates {
                true => (forward + self.gradients).max(end),
                false => forward.max(end),
            }
    }

    /// A line for each part, and what to change.
    pub fn describe(&self, recipe: &Recipe) -> String {
        let parts = [
            ("base", self.base),
            ("weights", self.weights),
            ("master copies", self.masters),
            ("moments", self.moments),
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
            "memory of a process, predicted: {:.2} GiB at most, not all at once of: {}",
            gib(self.total()),
            listed.join(", ")
        );
        let ways = self.ways(recipe);
        if !ways.is_empty() {
            text += &format!("\nto lower it: {}", ways.join(", "));
        }
        text
    }

    /// Changes to the recipe that lower the peak, the largest saving first.
    fn ways(&self, recipe: &Recipe) -> Vec<&'static str> {
        let (train, optimizer) = (&recipe.train, &recipe.optimizer);
        let ways = [
            (
                self.activations,
                !recipe.recomputes(false),
                "train.recompute = true",
            ),
            (
                self.activations / 2,
                train.micro_rows > 1,
                "a smaller train.micro_rows",
            ),
            (
                self.weights / 2,
                train.weights == WeightKind::Float32,
                "train.weights = \"bf16\"",
            ),
            (
                self.moments * 3 / 4,
                optimizer.moments == MomentKind::Float32,
                "optimizer.moments = \"8bit\"",
            ),
            (
                self.masters,
                self.masters > 0,
                "optimizer.updates = \"stochastic\"",
            ),
            (
                self.moments + self.masters,
                optimizer.offload.is_none(),
                "optimizer.offload = { disk = \"FOLDER\" }",
            ),
            (self.snapshot, self.snapshot > 0, "checkpoint.every = 0"),
            (
                self.moments + self.gradients,
                recipe.lora.is_none(),
                "[lora]",
            ),
            (self.activations / 2, true, "a smaller train.context"),
        ];
        let mut ways: Vec<_> = ways
            .into_iter()
            .filter(|(saved, holds, _)| *holds && *saved > 0)
            .collect();
        ways.sort_by_key(|(saved, ..)| std::cmp::Reverse(*saved));
        ways.into_iter().take(4).map(|(.., way)| way).collect()
    }
}

fn weights(recipe: &Recipe, counts: &Counts, c: &ModelConfig, bytes: u64, world: u64) -> u64 {
    let lora = if recipe.lora.is_some() {
        counts.trained
    } else {
        0
    };
    let block = (counts.all - counts.root) / c.layers as u64;
    let packed = recipe.lora.as_ref().is_some_and(|l| l.quantise.is_some());
    let (packed, plain) = match packed {
        // Half a byte and a float32 for 64, whole in every process; one block is unpacked at a time,
        // its largest matrix by way of int32 and float32.
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

/// All of them, and those that one block's backward pass needs.
fn activations(
    recipe: &Recipe,
    c: &ModelConfig,
    bytes: u64,
    together: bool,
    device: Device,
) -> (u64, u64) {
    let tokens = (recipe.train.context * recipe.train.micro_rows) as u64;
    let block = per_token(recipe, c, device) + lora_per_token(recipe, c);
    let layers = c.layers as u64;
    let hidden = c.hidden as u64;
    let kept = match recipe.recomputes(together) {
        false => layers * block,
        true => layers * hidden + block,
    };
    // The backward pass of a block works with about as much as its gated layer kept; the hidden
    // states before and after the last norm, chosen and cut off.
    let working = 3 * c.intermediate as u64 + 4 * hidden;
    let held = |elements| in_pieces(bytes * tokens * elements, device);
    (held(kept + working), held(block + working))
}

/// What bytes that come and go take: on a CPU freed memory stays with the process in pieces, not all of
/// which are of use again. Measured.
fn in_pieces(bytes: u64, device: Device) -> u64 {
    match device {
        Device::Cpu => bytes * 5 / 4,
        _ => bytes,
    }
}

/// Elements that a block keeps for each token.
fn per_token(recipe: &Recipe, c: &ModelConfig, device: Device) -> u64 {
    let (attention, keys) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let elements = match (device, &recipe.lora) {
        // Where operations are fused: what comes in before attention and before the gated layer;
        // queries, keys, values and what is made of them; both arrays of the gated layer.
        (Device::Cpu, None) => 2 * c.hidden + 2 * attention + 2 * keys + 2 * c.intermediate,
        // The same, and what the matrices see that something is added to.
        (Device::Cpu, Some(_)) => 4 * c.hidden + 2 * attention + 2 * keys + 4 * c.intermediate,
        // Of each norm its input, the scaled input and the result; queries, keys and values as
        // attention sees them, its result, and that in the order of the output matrix; the four
        // arrays of the gated layer.
        _ => 6 * c.hidden + 5 * attention + 4 * c.intermediate,
    };
    elements as u64
}

/// The same for low-rank additions: the small product, the result and its sum, and where something is
/// left out the mask and what it leaves.
fn lora_per_token(recipe: &Recipe, c: &ModelConfig) -> u64 {
    let Some(lora) = &recipe.lora else { return 0 };
    let chosen = matrices(c).into_iter().filter(|(name, ..)| {
        lora.targets.is_empty() || lora.targets.iter().any(|target| target == name)
    });
    let dropped = if lora.dropout > 0.0 { 2 } else { 0 };
    chosen
        .map(|(_, _, input)| lora.rank as u64 + dropped * input)
        .sum()
}

fn logits(recipe: &Recipe, c: &ModelConfig, bytes: u64, counts: &Counts, device: Device) -> u64 {
    let tokens = (recipe.train.context * recipe.train.micro_rows) as u64;
    let elements = (chunk_elements(device) as u64).min(tokens * c.vocab as u64);
    let (each, tables) = match device {
        // Logits become their gradient where they lie.
        Device::Cpu => (bytes, 1),
        // Logarithm of the softmax, its gradient and the logits' in float32; logits in their own
        // kind, and twice again where that is not float32. The gradient of the output matrix, and
        // the part of it that a chunk adds.
        _ => (if bytes == 2 { 18 } else { 16 }, 2),
    };
    let table = (c.vocab * c.hidden) as u64;
    let head = match recipe.lora {
        None => tables * bytes * table.min(counts.trained),
        Some(_) => 0,
    };
    in_pieces(each * elements, device) + head
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

/// The most memory that this process held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peak {
    /// Bytes.
    pub(super) bytes: u64,
}

impl Peak {
    /// Of main memory; `None` where the kernel does not say, and where a GPU computed.
    pub(super) fn read() -> Option<Self> {
        if tch::Cuda::is_available() {
            return None;
        }
        status("VmHWM:").map(|bytes| Self { bytes })
    }

    pub(super) fn against(self, plan: &MemoryPlan) -> String {
        let share = self.bytes as f64 / plan.total() as f64;
        format!(
            "{:.2} GiB at the most, {:.0} % of what was predicted",
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
            "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\ncontext=8192\nsteps=1\n{extra}"
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
        let lean = "weights='bf16'\nrecompute=true\n[optimizer]\nupdates='stochastic'\nmoments='8bit'\n[checkpoint]\nevery=0\n";
        let one = plan(lean, 1);
        // 8.03e9 parameters: 2 bytes, 2 bytes, and 2 bytes of moments.
        assert_eq!(gib(one.weights), 14);
        assert_eq!(gib(one.weights + one.gradients + one.moments), 45);
        assert!(gib(one.total()) < 72, "{one:?}");
        assert!(gib(plan("", 1).total()) > 120);
        let eight = plan(lean, 8);
        assert!(eight.total() < one.total() / 2, "{eight:?}");
        assert_eq!(eight.moments, one.moments / 8);
        let lora = plan(
            "weights='bf16'\nrecompute=true\n[lora]\nrank=16\nalpha=32\n",
            1,
        );
        let packed = plan(
            "weights='bf16'\n[lora]\nrank=16\nalpha=32\nquantise='nf4'\n",
            1,
        );
        assert!(packed.weights < lora.weights / 2, "{packed:?} {lora:?}");
    }

    #[test]
    fn what_helps_most_is_said_first_and_only_what_is_left_to_do() {
        let recipe = |extra: &str| {
            let text = format!(
                "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\ncontext=8192\nsteps=1\n{extra}"
            );
            Recipe::parse(&text, Path::new("r")).unwrap()
        };
        let ways = plan("", 1).ways(&recipe(""));
        assert_eq!(ways[0], "train.recompute = true");
        assert!(ways.contains(&"[lora]"), "{ways:?}");
        let lean = "recompute=true\nweights='bf16'\n";
        let ways = plan(lean, 1).ways(&recipe(lean));
        assert!(
            !ways.iter().any(|way| way.contains("recompute")),
            "{ways:?}"
        );
    }
}
