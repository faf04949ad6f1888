//! Measures the memory of each phase of a run.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tch::Device;

use super::machine;
use super::plan::{Phase, RunPlan};
use crate::torch::{device_memory, release_device_memory, release_free_memory, reset_device_peak};

/// Measured peaks of a phase in bytes; `None` where they cannot be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PhasePeak {
    host: Option<u64>,
    device: Option<u64>,
}

/// Records the peak memory of this process, phase by phase.
#[derive(Debug)]
pub(super) struct PhaseMeter {
    device: Device,
    current: Phase,
    /// The peak when the phase began, if the kernel could not reset it.
    before: Option<u64>,
    peaks: BTreeMap<Phase, PhasePeak>,
}

impl PhaseMeter {
    /// Begins with a phase.
    pub(super) fn start(phase: Phase, device: Device) -> Self {
        let mut meter = Self {
            device,
            current: phase,
            before: None,
            peaks: BTreeMap::new(),
        };
        meter.reset();
        meter
    }

    /// Ends a phase and begins another, unless this is the present one. A phase may occur several times; its highest
    /// peak counts.
    pub(super) fn begin(&mut self, phase: Phase) {
        if phase == self.current {
            return;
        }
        self.end();
        self.current = phase;
        self.reset();
    }

    /// Measures another phase in between.
    pub(super) fn during<T>(&mut self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let interrupted = self.current;
        self.begin(phase);
        let result = work();
        self.begin(interrupted);
        result
    }

    fn reset(&mut self) {
        // What the phase before has freed is not part of this one.
        release_free_memory();
        release_device_memory(self.device);
        self.before = match machine::reset_peak() {
            true => None,
            false => machine::resident_peak(),
        };
        reset_device_peak(self.device);
    }

    fn end(&mut self) {
        // A peak that did not rise is that of an earlier phase.
        let risen = |peak: &u64| self.before.is_none_or(|before| *peak > before);
        let host = machine::resident_peak().filter(risen);
        let device = device_memory(self.device).map(|memory| memory.peak);
        let found = self.peaks.entry(self.current).or_default();
        found.host = found.host.max(host);
        found.device = found.device.max(device);
    }

    /// The highest peak so far, of the GPU if there is one, otherwise of main memory.
    pub(super) fn highest(&mut self, gpu: bool) -> Option<u64> {
        self.end();
        let peaks = self.peaks.values();
        peaks
            .filter_map(|peak| if gpu { peak.device } else { peak.host })
            .max()
    }

    /// Planned and measured bytes so far, of the whole run and of each phase.
    pub(super) fn json(&mut self, plan: &RunPlan) -> Value {
        let gpu = plan.is_gpu();
        let highest = self.highest(gpu);
        let (host, device) = plan.peak();
        let phases = plan.phases.iter().map(|planned| {
            let measured = self.peaks.get(&planned.phase).copied().unwrap_or_default();
            let mut row = json!({
                "phase": planned.phase.name(),
                "host": {"planned": planned.host, "measured": measured.host},
            });
            if gpu {
                row["gpu"] = json!({"planned": planned.device, "measured": measured.device});
            }
            row
        });
        json!({
            "planned": if gpu { device } else { host },
            "measured": highest,
            "phases": phases.collect::<Vec<_>>(),
        })
    }
}
