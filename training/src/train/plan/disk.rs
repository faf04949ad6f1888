//! Predicts the disk space of a run.

use std::path::{Path, PathBuf};

use super::step::{ParamCounts, checkpoint_bytes, element_bytes, master_bytes, state_bytes};
use super::target::PlanTarget;
use crate::model::ModelConfig;
use crate::train::machine::{self, FreeDisk};
use crate::train::recipe::{Offload, Recipe};

/// Something that a run writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiskUse {
    pub(super) what: String,
    /// `None` is the run folder.
    folder: Option<PathBuf>,
    pub(super) bytes: u64,
}

/// What a run with this recipe writes, at most.
pub(super) fn disk_uses(
    recipe: &Recipe,
    config: &ModelConfig,
    target: &PlanTarget,
) -> Vec<DiskUse> {
    let counts = ParamCounts::new(recipe, config);
    let bytes = element_bytes(recipe);
    let mut all = vec![];
    let mut push = |what: &str, folder: Option<PathBuf>, bytes: u64| {
        all.push(DiskUse {
            what: what.into(),
            folder,
            bytes,
        });
    };
    if recipe.checkpoint.save_steps > 0 {
        // The one that is being written, too.
        let count = recipe.checkpoint.save_total_limit.max(1) as u64 + 1;
        let each = checkpoint_bytes(recipe, counts.trained);
        push(&format!("{count} checkpoints"), None, count * each);
    }
    if recipe.lora.is_some() {
        push("the adapter", None, bytes * counts.trained);
    }
    if recipe.lora.is_none() || recipe.train.merge {
        push("the model", None, bytes * counts.all);
    }
    if let Some(Offload::Disk(folder)) = &recipe.optimizer.offload {
        let here = counts.trained * target.processes_per_machine as u64 / target.processes as u64;
        let state = state_bytes(recipe, here) + master_bytes(recipe, here);
        push("the optimizer state", Some(folder.clone()), state);
    }
    all
}

/// File systems that have too little space for a run in the folder `out`, as text.
pub(super) fn problems(uses: &[DiskUse], out: &Path) -> Vec<String> {
    let mut systems: Vec<(FreeDisk, &Path, Vec<&DiskUse>)> = vec![];
    for disk_use in uses {
        let folder = disk_use.folder.as_deref().unwrap_or(out);
        let Some(free) = machine::free_disk(folder) else {
            continue;
        };
        let same = |(other, ..): &&mut (FreeDisk, _, _)| other.file_system == free.file_system;
        match systems.iter_mut().find(same) {
            Some((.., listed)) => listed.push(disk_use),
            None => systems.push((free, folder, vec![disk_use])),
        }
    }
    // Checkpoints of a resumed run take no more space.
    let kept = machine::folder_bytes(&out.join("checkpoints"));
    let of_out = machine::free_disk(out).map(|free| free.file_system);
    let lacking = systems.iter().filter_map(|(free, folder, listed)| {
        let needed: u64 = listed.iter().map(|disk_use| disk_use.bytes).sum();
        let room = free.bytes
            + if Some(free.file_system) == of_out {
                kept
            } else {
                0
            };
        (needed > room).then(|| {
            format!(
                "{} has {} free, and the run writes up to {} there: {}",
                folder.display(),
                size(room),
                size(needed),
                describe(listed.iter().copied())
            )
        })
    });
    lacking.collect()
}

/// The uses with their sizes.
pub(super) fn describe<'a>(uses: impl Iterator<Item = &'a DiskUse>) -> String {
    let each = uses.map(|disk_use| format!("{} {}", disk_use.what, size(disk_use.bytes)));
    each.collect::<Vec<_>>().join(", ")
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1 << 30 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        bytes => format!("{:.1} GiB", super::step::gib(bytes)),
    }
}
