//! Predicts the memory of each phase of a run.

use pybench_training_data::RecordKind;
use serde::Serialize;

use super::step::{
    MemoryPlan, ParamCounts, collective_bytes, element_bytes, evaluation, is_quantized,
    master_bytes, state_bytes,
};
use super::target::{LIBTORCH_BYTES, PlanTarget};
use crate::model::ModelConfig;
use crate::train::recipe::{Offload, Recipe};

/// Records that are tokenized at once, and bytes per token of their text, tokens and spans.
const PACKED_RECORDS: u64 = 256;
const PACKED_TOKEN_BYTES: u64 = 48;
/// Values that an export converts at once, in several forms.
const EXPORT_BYTES: u64 = 20 << 22;
/// Temporary bytes per element of a matrix that is quantized on a GPU: in float32, scaled, and as indices of levels.
const QUANTIZE_BYTES: u64 = 20;
/// Temporary bytes per element of a matrix that an adapter is merged into: three arrays in float32.
const MERGE_BYTES: u64 = 12;

/// A part of a run's life with a memory peak of its own, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Tokenize and pack the data.
    Pack,
    /// Load, quantize and shard the model.
    Load,
    /// Compute the log-probabilities of the reference model.
    Reference,
    /// Measure the loss on held-out conversations.
    Evaluate,
    Train,
    /// Train while a checkpoint is written, or wait for it.
    Checkpoint,
    /// Save the model or the adapter.
    Save,
    /// Merge the adapter into the model.
    Merge,
    /// Export the model to GGUF, which is a command of its own.
    Export,
}

impl Phase {
    pub(in crate::train) fn name(self) -> &'static str {
        match self {
            Self::Pack => "pack",
            Self::Load => "load",
            Self::Reference => "reference",
            Self::Evaluate => "evaluate",
            Self::Train => "train",
            Self::Checkpoint => "checkpoint",
            Self::Save => "save",
            Self::Merge => "merge",
            Self::Export => "export",
        }
    }
}

/// Predicted peak of one process in a phase, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhasePlan {
    pub phase: Phase,
    /// Main memory; includes everything if the device is a CPU.
    pub host: u64,
    /// Memory of the GPU; 0 without one.
    pub device: u64,
}

/// Sizes in bytes that several phases need.
struct Sizes<'a> {
    recipe: &'a Recipe,
    target: &'a PlanTarget,
    step: &'a MemoryPlan,
    counts: ParamCounts,
    /// Per weight in training, and in the file of the model.
    bytes: u64,
    stored: u64,
}

/// The phases that a run with this recipe has, in order.
pub(super) fn phases(
    recipe: &Recipe,
    config: &ModelConfig,
    target: &PlanTarget,
    step: &MemoryPlan,
) -> Vec<PhasePlan> {
    let sizes = Sizes {
        recipe,
        target,
        step,
        counts: ParamCounts::new(recipe, config),
        bytes: element_bytes(recipe),
        stored: stored_bytes(config),
    };
    let merges = recipe.lora.is_some() && recipe.train.merge;
    let state = step.optimizer_state + step.master_weights;
    let held = step.gathered + step.weights + state;
    let measured = |tokens: usize| {
        (
            step.offloaded,
            evaluation(recipe, config, target, tokens) + held,
        )
    };
    let held_out = recipe
        .held_out
        .as_ref()
        .map(|held_out| match held_out.kind {
            RecordKind::Preference => recipe.row_tokens(),
            _ => recipe.train.max_seq_len,
        });
    let all = [
        (Phase::Pack, true, sizes.pack()),
        (Phase::Load, true, sizes.load()),
        (
            Phase::Reference,
            recipe.dpo.is_some(),
            measured(recipe.row_tokens()),
        ),
        (
            Phase::Evaluate,
            held_out.is_some(),
            measured(held_out.unwrap_or_default()),
        ),
        (
            Phase::Train,
            true,
            (step.offloaded, step.total() - step.base),
        ),
        (
            Phase::Checkpoint,
            recipe.checkpoint.save_steps > 0,
            sizes.checkpoint(),
        ),
        (Phase::Save, true, sizes.save()),
        (Phase::Merge, merges, (sizes.merge(), 0)),
    ];
    let in_run = all.into_iter().filter(|(_, happens, _)| *happens);
    let mut plans: Vec<PhasePlan> = in_run
        .map(|(phase, _, (host, device))| sizes.placed(phase, host, device))
        .collect();
    plans.push(PhasePlan {
        phase: Phase::Export,
        host: sizes.export(),
        device: 0,
    });
    plans
}

/// Bytes per weight in the file of a model, which its configuration says.
fn stored_bytes(config: &ModelConfig) -> u64 {
    let kinds = ["dtype", "torch_dtype"].map(|key| config.raw.get(key));
    match kinds.into_iter().flatten().find_map(|kind| kind.as_str()) {
        Some("bfloat16" | "float16") => 2,
        _ => 4,
    }
}

impl Sizes<'_> {
    /// A phase that needs that much in main memory and on the device, beside what every process has.
    fn placed(&self, phase: Phase, host: u64, device: u64) -> PhasePlan {
        let device_base = self.step.base;
        let host_base = match phase {
            // libtorch does not compute yet.
            Phase::Pack | Phase::Load => self.target.host_base - LIBTORCH_BYTES,
            _ => self.target.host_base,
        };
        match self.target.is_gpu() {
            true => PhasePlan {
                phase,
                host: host_base + host,
                device: device_base + device,
            },
            false => PhasePlan {
                phase,
                host: host_base + host + device,
                device: 0,
            },
        }
    }

    /// Whether weights stay in the map of their file.
    fn is_mapped(&self) -> bool {
        let wanted = self.recipe.lora.is_some() && self.target.processes == 1;
        wanted && !self.target.is_gpu() && self.stored == self.bytes
    }

    /// A tensor while it is read: its pages in the file, and a copy if the data type changes.
    fn reading(&self, elements: u64) -> u64 {
        let copy = self.stored != self.bytes || self.target.is_gpu();
        elements * self.stored * if copy { 2 } else { 1 }
    }

    /// Records of up to a row each.
    fn pack(&self) -> (u64, u64) {
        let tokens = PACKED_RECORDS * self.recipe.train.max_seq_len.min(1 << 14) as u64;
        (PACKED_TOKEN_BYTES * tokens, 0)
    }

    /// Temporary main memory, and the memory of the device.
    fn load(&self) -> (u64, u64) {
        let (counts, step) = (&self.counts, self.step);
        let reading = match self.is_mapped() {
            true => 0,
            false => self.reading(counts.table.max(counts.largest_matrix)),
        };
        // Files are read in main memory, which is the device's if that is a CPU.
        let (host, device) = match self.target.is_gpu() {
            true => (reading, 0),
            false => (0, reading),
        };
        let loading = match self.target.processes {
            1 => device,
            // The embedding waits until the blocks are sharded, one by one. Then the tables are.
            _ => {
                let blocks = self.bytes * (counts.table + 2 * counts.block);
                let tables = self.bytes * counts.root + device.max(self.bytes * counts.table);
                blocks.max(tables)
            }
        };
        let beside = match self.target.processes {
            // The output matrix is read when the blocks are quantized.
            1 => loading.max(
                self.quantizing()
                    .saturating_sub(self.bytes * counts.output_matrix),
            ),
            _ => loading + self.quantizing(),
        };
        // The optimizer state is allocated when the model is complete.
        let state = step.optimizer_state + step.master_weights;
        (host.max(step.offloaded), step.weights + beside.max(state))
    }

    /// Memory of the device for a block that is quantized, beside what is packed already.
    fn quantizing(&self) -> u64 {
        let counts = &self.counts;
        let temporary = match self.target.is_gpu() {
            true => QUANTIZE_BYTES * counts.largest_matrix,
            false => self.reading(counts.largest_matrix),
        };
        match is_quantized(self.recipe) {
            true => self.bytes * counts.block + temporary,
            false => 0,
        }
    }

    fn checkpoint(&self) -> (u64, u64) {
        let step = self.step;
        if !self.recipe.streams_checkpoints() {
            return (step.offloaded + step.snapshot, step.total() - step.base);
        }
        let largest = self.counts.largest;
        let host = match self.target.is_gpu() {
            // A weight is copied before it is written.
            true => step.offloaded + self.bytes * largest,
            false => 0,
        };
        let paged_in = match (&self.recipe.optimizer.offload, self.target.is_gpu()) {
            (Some(Offload::Disk(_)), false) => {
                (state_bytes(self.recipe, largest) / 2).max(master_bytes(self.recipe, largest))
            }
            _ => 0,
        };
        let state = step.optimizer_state + step.master_weights;
        (host, step.weights + state + paged_in)
    }

    fn save(&self) -> (u64, u64) {
        let copy = match self.target.is_gpu() {
            true => self.bytes * self.counts.table,
            false => 0,
        };
        match (&self.recipe.lora, self.target.processes) {
            (Some(_), 1) => (self.bytes * self.counts.trained, self.step.weights),
            // Adapters are gathered, without the frozen weights.
            (Some(_), _) => (
                self.bytes * self.counts.trained,
                self.step.weights + collective_bytes(self.target),
            ),
            (None, 1) => (copy, self.step.weights),
            // One unit is gathered at a time, and a parameter of it copied.
            (None, _) => {
                let unit = self.bytes * self.counts.table.max(self.counts.block);
                let table = self.bytes * self.counts.table;
                (
                    copy,
                    self.step.weights + unit + table + collective_bytes(self.target),
                )
            }
        }
    }

    /// Main memory while one matrix at a time is merged.
    fn merge(&self) -> u64 {
        let table = self.bytes * self.counts.table + self.reading(self.counts.table);
        let matrix = self.counts.largest_matrix;
        let merged = (MERGE_BYTES + self.bytes) * matrix + self.reading(matrix);
        table.max(merged)
    }

    /// An export, which is a process of its own on the CPU: the tensor that is converted stays in its file.
    fn export(&self) -> u64 {
        // On a GPU the base of a process has CUDA, which an export does not load.
        let process = match self.target.is_gpu() {
            true => LIBTORCH_BYTES,
            false => self.target.host_base - LIBTORCH_BYTES,
        };
        process + EXPORT_BYTES + self.bytes * self.counts.table.max(self.counts.largest_matrix)
    }
}
