//! Predicts the peak memory of a training step.

use tch::Device;

use super::target::PlanTarget;
use crate::model::{ModelConfig, chunk_elements};
use crate::torch::nf4;
use crate::train::optimizer::chunk_elements as optimizer_chunk;
use crate::train::recipe::{Bf16Update, Offload, Quantization, Recipe, StateDtype, WeightDtype};

/// Predicted memory in bytes of one process on its device during a training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Libraries and data.
    pub base: u64,
    /// Including quantized ones.
    pub weights: u64,
    /// Weights that exist only while they are used: gathered from other processes, or dequantized.
    pub gathered: u64,
    /// Float32 copies of bf16 weights.
    pub master_weights: u64,
    pub optimizer_state: u64,
    /// Gradients that exist until the end of a step; with `optimizer_in_bwd` the most that exist at once.
    pub gradients: u64,
    /// The part of them that the embedding has, after those of all blocks.
    late_gradients: u64,
    /// Gradients of a unit before they are summed over the processes, and buffers of that.
    reducing: u64,
    /// Weights that are gathered or dequantized in the backward pass of a block.
    gathered_block: u64,
    /// Saved activations of all blocks, and temporary ones of one block.
    pub activations: u64,
    /// Logits of a chunk with temporaries of the loss, and the gradient of the output matrix.
    pub logits: u64,
    /// Temporaries of the optimizer.
    pub update: u64,
    /// The copy in main memory from which a checkpoint is written in the background.
    pub snapshot: u64,
    /// Optimizer state and master weights that are kept in main memory for a GPU.
    pub offloaded: u64,
    /// Activations that still exist when the last gradients appear.
    backward: u64,
    /// With `optimizer_in_bwd`.
    in_backward: Option<UnitGradients>,
    /// Whether gradients of an earlier micro-batch exist during the next forward pass.
    accumulates: bool,
}

/// Bytes of a step that updates parameters in its backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnitGradients {
    /// The gradient of the output matrix.
    head: u64,
    /// That of the embedding while blocks are updated, because it is also the output matrix.
    tied: u64,
    block: u64,
    embedding: u64,
    /// Temporaries of the optimizer for a block.
    block_update: u64,
}

/// Number of elements of the parameters of a model.
pub(super) struct ParamCounts {
    /// Matrices of the blocks.
    pub(super) matrices: u64,
    /// Embedding, output matrix and final norm.
    pub(super) root: u64,
    pub(super) all: u64,
    pub(super) trained: u64,
    /// The largest trained parameter.
    pub(super) largest: u64,
    /// The embedding.
    pub(super) table: u64,
    /// 0 if it is the embedding.
    pub(super) output_matrix: u64,
    pub(super) block: u64,
    /// The largest matrix of a block.
    pub(super) largest_matrix: u64,
}

impl ParamCounts {
    pub(super) fn new(recipe: &Recipe, config: &ModelConfig) -> Self {
        let shapes = matrices(config);
        let layers = config.layers as u64;
        let all = config.parameters() as u64;
        let table = (config.vocab * config.hidden) as u64;
        let output_matrix = if config.tied { 0 } else { table };
        let block: u64 = shapes.iter().map(|(_, out, input)| out * input).sum();
        let (trained, largest) = match &recipe.lora {
            None => {
                let matrices = shapes.iter().map(|(_, out, input)| out * input);
                (all, matrices.fold(table, u64::max))
            }
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
        let root = table + output_matrix + config.hidden as u64;
        Self {
            matrices: block * layers,
            root,
            all,
            trained,
            largest,
            table,
            output_matrix,
            block: (all - root) / layers,
            largest_matrix: shapes
                .iter()
                .map(|(_, out, input)| out * input)
                .max()
                .unwrap_or(0),
        }
    }
}

impl MemoryPlan {
    /// The plan of each process.
    pub fn new(recipe: &Recipe, config: &ModelConfig, target: &PlanTarget) -> Self {
        let (world, device) = (target.processes.max(1) as u64, target.device);
        let counts = ParamCounts::new(recipe, config);
        let optimizer = &recipe.optimizer;
        let bytes = element_bytes(recipe);
        let trained = counts.trained / world;
        let optimizer_state = state_bytes(recipe, trained);
        let master_weights = master_bytes(recipe, trained);
        // The state of one parameter at a time is in memory if it is on disk.
        let paged_in = |elements| state_bytes(recipe, elements) + master_bytes(recipe, elements);
        let (on_device, on_disk, offloaded) = match (&optimizer.offload, device) {
            (Some(Offload::Cpu), Device::Cuda(_)) => (0, false, optimizer_state + master_weights),
            (Some(Offload::Disk(_)), Device::Cuda(_)) => (0, false, paged_in(counts.largest)),
            (Some(Offload::Disk(_)), _) => (0, true, 0),
            _ => (1, false, 0),
        };
        let converts = bytes == 2 || optimizer.state_dtype == StateDtype::Int8;
        let update = |elements: u64| {
            let chunk = match converts && device != Device::Cpu && !target.fused {
                false => 0,
                // Weight, gradient, optimizer state, and temporaries of quantization.
                true => 64 * elements.min(optimizer_chunk(device) as u64),
            };
            with_fragmentation(chunk, device) + if on_disk { paged_in(elements) } else { 0 }
        };
        let of_block = update(counts.largest.min(counts.largest_matrix));
        let in_backward = optimizer
            .optimizer_in_bwd
            .then(|| UnitGradients::new(recipe, config, &counts, world, of_block));
        let micro_batches = recipe
            .train
            .batch_size
            .div_ceil(recipe.train.micro_batch_size) as u64;
        let (activations, backward) = activations(recipe, config, bytes, target);
        let held = WeightBytes::new(recipe, &counts, bytes, target);
        Self {
            base: target.device_base(),
            weights: held.weights,
            gathered: held.gathered,
            gathered_block: held.gathered_block,
            master_weights: on_device * master_weights,
            optimizer_state: on_device * optimizer_state,
            gradients: match (in_backward, world) {
                (Some(units), _) => units
                    .head
                    .max(units.tied + units.block)
                    .max(units.embedding),
                (None, 1) => bytes * counts.trained,
                // The shard in float32.
                _ => 4 * trained,
            },
            late_gradients: match (world, &recipe.lora) {
                (1, _) | (_, Some(_)) => 0,
                _ => 4 * counts.table / world,
            },
            reducing: match (world, &recipe.lora) {
                (1, _) => 0,
                // Rows of the embedding, or all of it if it is also the output matrix.
                (_, None) if config.tied => bytes * counts.table + collective_bytes(target),
                (_, None) => collective_bytes(target),
                (_, Some(_)) => bytes * counts.trained / config.layers as u64,
            },
            activations,
            backward,
            logits: logits(recipe, config, bytes, &counts, target),
            update: update(counts.largest),
            snapshot: match recipe.checkpoint.save_steps > 0 && !recipe.streams_checkpoints() {
                false => 0,
                true => checkpoint_bytes(recipe, trained),
            },
            offloaded,
            in_backward,
            accumulates: micro_batches > world,
        }
    }

    /// The peak. The forward pass needs activations and logits; the backward pass frees them while gradients
    /// appear. Of several processes each sums the gradients of a block as soon as they exist, and those of the
    /// embedding at the end.
    pub fn total(&self) -> u64 {
        let always = self.base + self.weights + self.master_weights + self.optimizer_state;
        let forward = self.gathered + self.activations + self.logits;
        let block = match self.reducing {
            0 => self.gathered_block,
            _ => 2 * self.gathered_block,
        };
        if let Some(units) = self.in_backward {
            let head = self.activations + units.head + self.update;
            let blocks = self.activations + units.tied + units.block + block + units.block_update;
            let end = units.embedding + self.update.max(self.reducing);
            return always + forward.max(head).max(blocks).max(end);
        }
        let backward = self.gradients - self.late_gradients + block + self.backward;
        let end = backward.max(self.gradients + self.update.max(self.reducing));
        always
            + match self.accumulates {
                true => (forward + self.gradients + self.reducing).max(end),
                false => forward.max(end),
            }
    }

    /// The parts of the peak as text.
    pub(super) fn parts(&self) -> String {
        let parts = [
            ("base", self.base),
            ("weights", self.weights),
            ("gathered or dequantized weights", self.gathered),
            ("master weights", self.master_weights),
            ("optimizer state", self.optimizer_state),
            ("gradients", self.gradients),
            ("activations", self.activations),
            ("logits", self.logits),
            ("update", self.update),
        ];
        let listed: Vec<String> = parts
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| format!("{name} {:.2}", gib(*bytes)))
            .collect();
        listed.join(", ")
    }
}

impl UnitGradients {
    fn new(
        recipe: &Recipe,
        config: &ModelConfig,
        counts: &ParamCounts,
        world: u64,
        block_update: u64,
    ) -> Self {
        // Of several processes each keeps the shard in float32.
        let held = |elements: u64| match world {
            1 => element_bytes(recipe) * elements,
            _ => 4 * elements / world,
        };
        let (table, block) = match recipe.lora {
            None => (held(counts.table), counts.block),
            Some(_) => (0, counts.trained / config.layers as u64),
        };
        Self {
            head: if config.tied { 0 } else { table },
            tied: if config.tied { table } else { 0 },
            block: held(block),
            embedding: table,
            block_update,
        }
    }
}

/// Bytes per weight in training.
pub(super) fn element_bytes(recipe: &Recipe) -> u64 {
    match recipe.train.dtype {
        WeightDtype::Float32 => 4,
        WeightDtype::Bf16 => 2,
    }
}

/// Bytes in a checkpoint for a number of trained elements: optimizer state, and weights or their master copy.
pub(super) fn checkpoint_bytes(recipe: &Recipe, trained: u64) -> u64 {
    let weights = match master_bytes(recipe, trained) {
        0 => element_bytes(recipe) * trained,
        master => master,
    };
    state_bytes(recipe, trained) + weights
}

/// Bytes of the optimizer state of so many elements.
pub(super) fn state_bytes(recipe: &Recipe, elements: u64) -> u64 {
    match recipe.optimizer.state_dtype {
        // Two states of one byte, and one float32 per 256 bytes.
        StateDtype::Int8 => 2 * elements + elements / 32,
        StateDtype::Float32 => 8 * elements,
    }
}

/// Bytes of the float32 copy of so many weights.
pub(super) fn master_bytes(recipe: &Recipe, elements: u64) -> u64 {
    let copied = recipe.optimizer.bf16_update == Bf16Update::MasterWeights;
    match recipe.train.dtype {
        WeightDtype::Bf16 if copied => 4 * elements,
        _ => 0,
    }
}

/// Whether the matrices of the blocks are quantized.
pub(super) fn is_quantized(recipe: &Recipe) -> bool {
    let lora = recipe.lora.as_ref();
    lora.is_some_and(|lora| lora.quantization.is_some())
}

/// Bytes of weights.
struct WeightBytes {
    /// Always.
    weights: u64,
    /// The most that is gathered or dequantized at once, and the part of it in the backward pass of a block.
    gathered: u64,
    gathered_block: u64,
}

impl WeightBytes {
    fn new(recipe: &Recipe, counts: &ParamCounts, bytes: u64, target: &PlanTarget) -> Self {
        let world = target.processes as u64;
        let lora = match recipe.lora {
            Some(_) => counts.trained,
            None => 0,
        };
        let (packed, plain, block) = match is_quantized(recipe) {
            // Half a byte per element, not sharded.
            true => (
                counts.matrices / 2 + scale_bytes(recipe, counts.matrices),
                counts.all - counts.matrices,
                dequantized_bytes(counts, bytes, target),
            ),
            false if world > 1 => (0, counts.all, bytes * counts.block),
            false => (0, counts.all, 0),
        };
        let gathered = match world {
            1 => block,
            _ => block.max(bytes * counts.table) + collective_bytes(target),
        };
        Self {
            weights: packed + bytes * (plain + lora) / world,
            gathered,
            gathered_block: block,
        }
    }
}

/// Bytes of matrices while they are dequantized for a step.
fn dequantized_bytes(counts: &ParamCounts, bytes: u64, target: &PlanTarget) -> u64 {
    match target.is_gpu() {
        // By a kernel one matrix at a time; otherwise a block, its largest matrix with temporaries in int32 and float32.
        true if target.fused => bytes * counts.largest_matrix,
        true => bytes * counts.block + 20 * counts.largest_matrix,
        // A panel per thread, in the layout of the matrix and in that of the product.
        false => 2 * bytes * panel_elements().min(counts.largest_matrix),
    }
}

/// Elements of the panels of all threads.
fn panel_elements() -> u64 {
    tch::get_num_threads() as u64 * nf4::PANEL_ELEMENTS
}

/// Bytes of the scales of so many elements in NF4: a float32 per 64, or a byte per 64 and a float32 per 256 of those.
fn scale_bytes(recipe: &Recipe, elements: u64) -> u64 {
    match recipe.lora.as_ref().and_then(|lora| lora.quantization) {
        Some(Quantization::Nf4Double) => elements / 64 + elements / 64 / 64,
        _ => elements / 16,
    }
}

/// Buffers of an operation between processes, in float32: a chunk of all processes, and copies of it by Gloo.
pub(super) fn collective_bytes(target: &PlanTarget) -> u64 {
    match target.is_gpu() {
        true => 4 << 26,
        false => 6 << 20,
    }
}

/// All activations, and those that the backward pass of one block needs.
fn activations(recipe: &Recipe, c: &ModelConfig, bytes: u64, target: &PlanTarget) -> (u64, u64) {
    let device = target.device;
    let tokens = (recipe.row_tokens() * recipe.train.micro_batch_size) as u64;
    let block = per_token(recipe, c, target) + lora_per_token(recipe, c);
    let layers = c.layers as u64;
    let hidden = c.hidden as u64;
    let kept = match recipe.recomputed_blocks(c.layers, target.processes > 1) {
        None => layers * block,
        Some(first) => {
            let working = if first > 0 { block } else { 0 };
            layers * hidden + (layers - first as u64) * block + working
        }
    };
    // Temporaries of the backward pass of a block, about as much as its gated layer saved; and the hidden
    // states of the targets before and after the final norm.
    let working = 3 * c.intermediate as u64 + 4 * hidden + packed_product(recipe, c, target);
    let held = |elements| match is_quantized(recipe) && device == Device::Cpu {
        // Panels come and go between the arrays of a pass. Measured.
        true => 2 * bytes * tokens * elements,
        false => fragmented(recipe, bytes * tokens * elements, device),
    };
    (held(kept + working), held(block + working))
}

/// Elements per token that the threads have computed of a product with a packed matrix, before they are part of its
/// result.
fn packed_product(recipe: &Recipe, c: &ModelConfig, target: &PlanTarget) -> u64 {
    match is_quantized(recipe) && !target.is_gpu() {
        true => panel_elements()
            .div_ceil(c.hidden as u64)
            .min(c.intermediate as u64),
        false => 0,
    }
}

/// As [`with_fragmentation`], for arrays of a pass: adapters add smaller ones between them. Measured.
fn fragmented(recipe: &Recipe, bytes: u64, device: Device) -> u64 {
    match (device, &recipe.lora) {
        (Device::Cpu, Some(_)) => bytes * 3 / 2,
        _ => with_fragmentation(bytes, device),
    }
}

/// Adds the fragmentation of memory that is repeatedly allocated and freed on a CPU. Measured.
pub(super) fn with_fragmentation(bytes: u64, device: Device) -> u64 {
    match device {
        Device::Cpu => bytes * 5 / 4,
        _ => bytes,
    }
}

/// Elements that a block saves per token.
fn per_token(recipe: &Recipe, c: &ModelConfig, target: &PlanTarget) -> u64 {
    let (attention, keys) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let elements = match (target.fused, &recipe.lora) {
        // The inputs of attention and of the gated layer; queries, keys, values and the result of attention;
        // both arrays of the gated layer.
        (true, None) => 2 * c.hidden + 2 * attention + 2 * keys + 2 * c.intermediate,
        // The same, and the inputs of matrices with an adapter.
        (true, Some(_)) => 4 * c.hidden + 2 * attention + 2 * keys + 3 * c.intermediate,
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
    // Before and after it is scaled.
    chosen
        .map(|(_, _, input)| 2 * lora.rank as u64 + dropped * input)
        .sum()
}

fn logits(
    recipe: &Recipe,
    c: &ModelConfig,
    bytes: u64,
    counts: &ParamCounts,
    target: &PlanTarget,
) -> u64 {
    let device = target.device;
    let tokens = (recipe.row_tokens() * recipe.train.micro_batch_size) as u64;
    let elements = (chunk_elements(device) as u64).min(tokens * c.vocab as u64);
    let (each, tables) = match target.fused {
        // Logits are overwritten by their gradient.
        true => (bytes, 1),
        // Log-softmax, its gradient and that of the logits in float32; logits in their own dtype, and two
        // more copies if that is not float32. The gradient of the output matrix, and that of a chunk.
        false => (if bytes == 2 { 18 } else { 16 }, 2),
    };
    let head = match recipe.lora {
        None => tables * bytes * counts.table,
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

/// Temporary memory of a forward pass over so many tokens, without a backward pass.
pub(super) fn evaluation(
    recipe: &Recipe,
    c: &ModelConfig,
    target: &PlanTarget,
    tokens: usize,
) -> u64 {
    let (bytes, tokens) = (element_bytes(recipe), tokens as u64);
    // The input of a block, its normalized form, and the three arrays of the gated layer; the product with an adapter;
    // what the threads compute of a product with a packed matrix.
    let panels = is_quantized(recipe) && !target.is_gpu();
    let arrays = 3 + i64::from(recipe.lora.is_some()) + i64::from(panels);
    let block = tokens * (3 * c.hidden + arrays * c.intermediate) as u64;
    let logits = (chunk_elements(target.device) as u64).min(tokens * c.vocab as u64);
    let logits = logits * if target.fused { bytes } else { 8 };
    fragmented(recipe, bytes * block + logits, target.device)
}

pub(in crate::train) fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
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
        MemoryPlan::new(&recipe, &config, &PlanTarget::gpus(world))
    }

    #[test]
    fn each_block_that_is_not_recomputed_needs_as_much_more() {
        let lora = "dtype='bf16'\ngradient_checkpointing=KEYS\n[lora]\nrank=8\nalpha=16\n";
        let activations = |keys: &str| plan(&lora.replace("KEYS", keys), 1).activations;
        let first = |count: i64| activations(&format!("true\nrecompute_num_layers={count}"));
        assert_eq!(first(32), activations("true"));
        assert_eq!(first(99), first(32));
        assert_eq!(first(1) - first(17), first(15) - first(31));
        assert!(first(1) > first(31));
        // The inputs of blocks are kept besides, which autograd needs anyway.
        assert!(first(0) >= activations("false"));
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
        // With the gradients of the output matrix, the largest unit, instead of all; and the state on disk.
        let leaner = lean.replace(
            "[optimizer]",
            "[optimizer]\noptimizer_in_bwd=true\nmax_grad_norm=0\noffload={disk='d'}",
        );
        let in_backward = plan(&leaner, 1);
        assert_eq!(in_backward.gradients, 2 * 128_256 * 4096);
        assert_eq!(in_backward.optimizer_state, 0);
        assert!(gib(in_backward.total()) < 24, "{in_backward:?}");
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
        let double = plan(
            "dtype='bf16'\n[lora]\nrank=16\nalpha=32\nquantization='nf4_double'\n",
            1,
        );
        // 0.373 bits for each of 6.98e9 elements, as in the paper: 325 MB.
        let saved = (packed.weights - double.weights) as f64;
        assert!(
            (saved / (6.98e9 * 0.373 / 8.0) - 1.0).abs() < 0.01,
            "{saved}"
        );
    }
}
