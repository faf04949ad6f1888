//! Predicts what a run needs: memory by phase, disk space, operations and time.

mod changes;
mod disk;
mod phases;
mod step;
mod target;
mod workload;

use std::fmt::Write;
use std::path::Path;

use crate::model::ModelConfig;
use crate::torch::device_memory;
use crate::train::machine;
use crate::train::recipe::Recipe;

use changes::changes;
use disk::DiskUse;
pub use phases::{Phase, PhasePlan};
pub use step::MemoryPlan;
pub(super) use step::gib;
pub use target::PlanTarget;
pub(super) use workload::{Speed, Workload};

/// Changes that are suggested.
const SUGGESTIONS: usize = 4;

/// The whole life of a run: the memory of each phase, and disk space.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// A training step of one process.
    pub step: MemoryPlan,
    /// In order.
    pub phases: Vec<PhasePlan>,
    target: PlanTarget,
    disk: Vec<DiskUse>,
}

/// Memory in bytes that a run may use; `None` where it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Main memory of a machine, for all of its processes.
    pub host: Option<u64>,
    /// Memory of a GPU.
    pub device: Option<u64>,
}

/// A kind of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Host,
    Device,
}

impl Limits {
    /// What this machine has now for the processes of a run, if that is what it is planned for.
    pub fn of(target: &PlanTarget) -> Self {
        if !target.is_here {
            return Self::default();
        }
        let held = machine::resident().unwrap_or(0) * target.processes_per_machine as u64;
        Self {
            host: pybench_types::memory::available().map(|free| free + held),
            device: match target.is_gpu() {
                true => device_memory(target.device).map(|memory| memory.total),
                false => None,
            },
        }
    }
}

impl RunPlan {
    pub fn new(recipe: &Recipe, config: &ModelConfig, target: &PlanTarget) -> Self {
        let step = MemoryPlan::new(recipe, config, target);
        Self {
            phases: phases::phases(recipe, config, target, &step),
            step,
            target: *target,
            disk: disk::disk_uses(recipe, config, target),
        }
    }

    /// The highest main memory of a process during the run, and that of its GPU.
    pub fn peak(&self) -> (u64, u64) {
        let run = self
            .phases
            .iter()
            .filter(|plan| plan.phase != Phase::Export);
        run.fold((0, 0), |(host, device), plan| {
            (host.max(plan.host), device.max(plan.device))
        })
    }

    pub(super) fn is_gpu(&self) -> bool {
        self.target.is_gpu()
    }

    /// The prediction as a table.
    pub fn describe(&self) -> String {
        let gpu = self.target.is_gpu();
        let mut text = match gpu {
            true => String::from("planned memory per process, GiB      GPU    host\n"),
            false => String::from("planned memory per process, GiB\n"),
        };
        for plan in &self.phases {
            let device = match gpu {
                true => format!("{:10.2}", gib(plan.device)),
                false => String::new(),
            };
            let _ = writeln!(
                text,
                "  {:28}{device}{:8.2}",
                plan.phase.name(),
                gib(plan.host)
            );
        }
        let _ = writeln!(
            text,
            "parts of a training step, not all at once: {}",
            self.step.parts()
        );
        let _ = write!(text, "disk: {}", disk::describe(self.disk.iter()));
        text
    }

    /// What does not fit, and what to change; `None` if everything fits.
    pub fn refusal(&self, recipe: &Recipe, config: &ModelConfig, limits: Limits) -> Option<String> {
        let kinds = [(Memory::Host, limits.host), (Memory::Device, limits.device)];
        let exceeded = kinds.into_iter().find_map(|(memory, limit)| {
            let phase = self.phases.iter().filter(|p| p.phase != Phase::Export);
            let worst = phase.max_by_key(|plan| self.needed(plan, memory))?;
            let limit = limit.filter(|limit| self.needed(worst, memory) > *limit)?;
            Some((memory, worst, limit))
        });
        let (memory, worst, limit) = exceeded?;
        let ways = self.suggestions(recipe, config, memory);
        Some(format!(
            "the run does not fit: {} {}{}",
            self.excess(worst, memory, limit),
            match ways.is_empty() {
                true => "No change of the recipe lowers that; use a machine with more memory",
                false => "Lower it by one or several of: ",
            },
            ways.join("; ")
        ))
    }

    /// What the run writes to file systems that have too little space.
    pub fn disk_refusal(&self, out: &Path) -> Option<String> {
        let problems = disk::problems(&self.disk, out);
        (!problems.is_empty()).then(|| {
            format!(
                "too little disk space: {}. Use another folder with --out, lower checkpoint.save_total_limit, or free space",
                problems.join("; ")
            )
        })
    }

    /// What a phase needs of a kind of memory on one machine, or one GPU.
    fn needed(&self, plan: &PhasePlan, memory: Memory) -> u64 {
        match memory {
            Memory::Host => plan.host * self.target.processes_per_machine as u64,
            Memory::Device => plan.device,
        }
    }

    fn excess(&self, worst: &PhasePlan, memory: Memory, limit: u64) -> String {
        let (phase, limit) = (worst.phase.name(), gib(limit));
        let count = self.target.processes_per_machine;
        let needed = gib(self.needed(worst, memory));
        match (memory, count) {
            (Memory::Host, 1) => format!(
                "the phase \"{phase}\" needs {needed:.2} GiB of main memory, and {limit:.2} GiB are available."
            ),
            (Memory::Host, _) => format!(
                "the phase \"{phase}\" of {count} processes needs {count} × {:.2} GiB = {needed:.2} GiB of main memory, and {limit:.2} GiB are available.",
                gib(worst.host)
            ),
            (Memory::Device, _) => format!(
                "the phase \"{phase}\" needs {needed:.2} GiB of a GPU's memory, and {limit:.2} GiB are available."
            ),
        }
    }

    /// Changes that lower the peak of a kind of memory, those that save most first, with the peak after each.
    fn suggestions(&self, recipe: &Recipe, config: &ModelConfig, memory: Memory) -> Vec<String> {
        let peak = |plan: &Self| {
            let run = plan.phases.iter().filter(|p| p.phase != Phase::Export);
            run.map(|phase| plan.needed(phase, memory))
                .max()
                .unwrap_or(0)
        };
        let now = peak(self);
        let changed = changes(recipe).into_iter().map(|change| {
            let plan = Self::new(&change.recipe, config, &self.target);
            (peak(&plan), change.text)
        });
        let alone = (memory == Memory::Host && self.target.processes > 1).then(|| {
            let plan = Self::new(recipe, config, &self.target.alone());
            (peak(&plan), "--processes 1".to_owned())
        });
        let mut lower: Vec<_> = changed
            .chain(alone)
            .filter(|(after, _)| *after < now)
            .collect();
        lower.sort();
        let shown = lower.into_iter().take(SUGGESTIONS);
        shown
            .map(|(after, text)| format!("{text} ({:.2} GiB)", gib(after)))
            .collect()
    }
}
