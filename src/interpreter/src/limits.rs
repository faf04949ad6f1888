//! Resource limits of a session. Limits that a dataset states are checked against their ranges and lowered to what this
//! machine can give.

use std::sync::LazyLock;

use pybench_types::range::range_violation;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Processors of a session unless a recipe says otherwise.
const DEFAULT_CPUS: f64 = 2.0;

/// The digest of a row is that of its limits as they are written: what older datasets do not have is left out.
fn is_default_cpus(cpus: &f64) -> bool {
    *cpus == DEFAULT_CPUS
}

/// Resource limits of a session. Limits on memory and processes apply to the whole session where the
/// machine can enforce that; [`Interpreter::warnings`](crate::Interpreter::warnings) lists what it cannot enforce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Time limit of a cell, seconds; after that it is interrupted.
    #[schemars(range(min = 1, max = 86_400))]
    pub cell_seconds: u64,
    /// Seconds without a cell after which the session's process is ended. Files are kept, and the next
    /// cell gets a new process. `None`: the process lives as long as the session.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub idle_seconds: Option<u64>,
    /// Memory limit of all processes of the session together, MiB.
    #[schemars(range(min = 1, max = 4_194_304))]
    pub memory_mib: u64,
    /// Maximum number of processes and threads.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub processes: u64,
    /// Maximum number of processors that all processes of the session use together, on average.
    #[serde(skip_serializing_if = "is_default_cpus")]
    #[schemars(range(min = 0.1, max = 1024))]
    pub cpus: f64,
    /// Whether processes that a cell leaves running go on between cells. Otherwise they pause until the next cell.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Maximum size of a file, MiB.
    #[schemars(range(min = 1, max = 4_194_304))]
    pub file_mib: u64,
    /// Characters of text output kept per cell; of longer output, the beginning and the end are kept.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub output_chars: usize,
    /// Maximum number of files collected from `./output`.
    #[schemars(range(min = 1, max = 100_000))]
    pub output_files: usize,
    /// Maximum total size of the files collected from `./output`, MiB.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub output_mib: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cell_seconds: 60,
            idle_seconds: None,
            memory_mib: 2048,
            processes: 128,
            cpus: DEFAULT_CPUS,
            background: false,
            file_mib: 256,
            output_chars: 8000,
            output_files: 64,
            output_mib: 64,
        }
    }
}

/// Maximum values of limits that come from a dataset, whatever the machine.
const MAX_CELL_SECONDS: u64 = 3600;
const MAX_PROCESSES: u64 = 4096;
const MAX_OUTPUT_CHARS: usize = 1_000_000;
/// Share of the machine's memory that one session may use, and share that its collected output may take.
const SESSION_SHARE: u64 = 2;
const OUTPUT_SHARE: u64 = 32;
/// Memory that is assumed where the machine does not state its own, MiB.
const DEFAULT_MEMORY_MIB: u64 = 4096;

/// The schema, with the range of each limit. It is checked for every row of a dataset.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| schema_for!(Limits).to_value());

impl Limits {
    /// Checks every limit against the range in its schema.
    ///
    /// # Errors
    /// The name of the limit, its value and the bound that it violates.
    pub fn validate(&self) -> Result<(), String> {
        let limits = serde_json::to_value(self).map_err(|error| error.to_string())?;
        for (name, value) in limits.as_object().into_iter().flatten() {
            let schema = &SCHEMA["properties"][name];
            // JSON has no infinite numbers, and `null` instead.
            let number = match value.is_null() && schema["type"] == "number" {
                true => Some(f64::NAN),
                false => value.as_f64(),
            };
            if let Some(violation) = number.and_then(|number| range_violation(schema, number)) {
                return Err(format!("{name}: {value} {violation}"));
            }
        }
        Ok(())
    }

    /// These limits, lowered to what this machine can give to a session.
    pub fn within_machine(&self) -> Self {
        self.within(memory_mib())
    }

    fn within(&self, machine_mib: u64) -> Self {
        let session = (machine_mib / SESSION_SHARE).max(1);
        Self {
            cell_seconds: self.cell_seconds.min(MAX_CELL_SECONDS),
            idle_seconds: self.idle_seconds,
            memory_mib: self.memory_mib.min(session),
            processes: self.processes.min(MAX_PROCESSES),
            cpus: self.cpus,
            background: self.background,
            file_mib: self.file_mib.min(session),
            output_chars: self.output_chars.min(MAX_OUTPUT_CHARS),
            output_files: self.output_files,
            output_mib: self.output_mib.min((machine_mib / OUTPUT_SHARE).max(1)),
        }
    }
}

/// The memory of this machine, or of the control group that this process runs in, MiB.
fn memory_mib() -> u64 {
    let groups = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let groups = groups.iter().filter_map(|path| {
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.trim().parse::<u64>().ok()? >> 20)
    });
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(total_mib);
    groups.chain(machine).min().unwrap_or(DEFAULT_MEMORY_MIB)
}

/// The line `MemTotal` of `/proc/meminfo`, MiB.
fn total_mib(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_outside_of_their_ranges_are_named() {
        assert_eq!(Limits::default().validate(), Ok(()));
        let wrong = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            limits.validate().unwrap_err()
        };
        assert_eq!(
            wrong(|limits| limits.memory_mib = u64::MAX),
            "memory_mib: 18446744073709551615 must be at most 4194304"
        );
        assert_eq!(
            wrong(|limits| limits.output_files = 0),
            "output_files: 0 must be at least 1"
        );
        assert_eq!(
            wrong(|limits| limits.cpus = 0.0),
            "cpus: 0.0 must be at least 0.1"
        );
        assert_eq!(
            wrong(|limits| limits.cpus = f64::NAN),
            "cpus: null must be a finite number"
        );
        assert_eq!(
            wrong(|limits| limits.idle_seconds = Some(0)),
            "idle_seconds: 0 must be at least 1"
        );
    }

    #[test]
    fn limits_that_older_datasets_do_not_have_leave_their_digests_alone() {
        let written = serde_json::to_value(Limits::default()).unwrap();
        assert!(written.get("cpus").is_none() && written.get("background").is_none());
        let other = Limits {
            cpus: 0.5,
            background: true,
            ..Limits::default()
        };
        let written = serde_json::to_string(&other).unwrap();
        assert_eq!(serde_json::from_str::<Limits>(&written).unwrap(), other);
    }

    #[test]
    fn claimed_limits_are_lowered_to_the_machine() {
        let claimed = Limits {
            cell_seconds: 86_400,
            memory_mib: 4_000_000,
            processes: 1_000_000,
            file_mib: 4_000_000,
            output_chars: 100_000_000,
            output_mib: 1_000_000,
            ..Limits::default()
        };
        let lowered = claimed.within(16_384);
        assert_eq!(
            (lowered.memory_mib, lowered.file_mib, lowered.output_mib),
            (8192, 8192, 512)
        );
        assert_eq!((lowered.cell_seconds, lowered.processes), (3600, 4096));
        assert_eq!(lowered.output_chars, 1_000_000);
        assert_eq!(Limits::default().within(16_384), Limits::default());
        assert_eq!(claimed.within(0).validate(), Ok(()));
    }

    #[test]
    fn the_memory_of_this_machine_is_known() {
        assert_eq!(
            total_mib("MemTotal:       24651352 kB\nMemFree: 1 kB\n"),
            Some(24_073)
        );
        assert_eq!(total_mib("MemTotal: much\n"), None);
        assert!((64..1 << 30).contains(&memory_mib()));
    }
}
