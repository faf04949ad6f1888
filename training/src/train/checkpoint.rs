//! Checkpoints: folders that appear only when complete. They are written in the background.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pybench_training_data::read_bounded;
use serde::{Deserialize, Serialize};
use serde_json::Map;
use tch::{Device, Tensor, no_grad};
use thiserror::Error;

use super::optimizer::{AdamW, StateSlice};
use crate::exit::ExitCode;
use crate::model::{LoadError, SafetensorsWriter, Weights, write_json};

const PREFIX: &str = "step-";
const BUILDING: &str = ".building-";
const VERSION: u32 = 3;
/// How long the main process waits for the files of the others.
const TIMEOUT: Duration = Duration::from_secs(1800);

#[derive(Debug, Error)]
pub enum CheckpointError {
    #[error("{path}: {error}; earlier checkpoints are intact")]
    Write {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {error}")]
    Read {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {reason}; delete this folder to resume from the checkpoint before")]
    Broken { path: PathBuf, reason: String },
    #[error(
        "{path} belongs to another run: its {what} differs. Choose another folder with --out, or delete this one"
    )]
    Other { path: PathBuf, what: &'static str },
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl CheckpointError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Other { .. } => ExitCode::Conflict,
            _ => ExitCode::Environment,
        }
    }
}

/// The contents of a checkpoint beside tensors. The position in the data and the seeds follow from the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointState {
    version: u32,
    /// Number of completed steps.
    pub step: u64,
    /// Hash of the recipe.
    pub recipe: String,
    /// Hash of the tokenized data and of the names of the trained parameters.
    pub data: String,
    /// The last losses as bits.
    pub losses: Vec<u64>,
}

impl CheckpointState {
    pub fn new(step: u64, recipe: &str, data: &str, losses: Vec<u64>) -> Self {
        Self {
            version: VERSION,
            step,
            recipe: recipe.into(),
            data: data.into(),
            losses,
        }
    }
}

/// Reads and writes the checkpoints of one process of a run.
#[derive(Debug)]
pub struct Checkpoint {
    dir: CheckpointDir,
    writing: Option<JoinHandle<Result<(), CheckpointError>>>,
}

#[derive(Clone, Debug)]
struct CheckpointDir {
    folder: PathBuf,
    keep: usize,
    rank: usize,
    world: usize,
}

impl Checkpoint {
    /// Keeps the newest `keep` checkpoints in `folder`; this is process `rank` of `world`.
    pub fn new(folder: &Path, keep: usize, (rank, world): (usize, usize)) -> Self {
        Self {
            dir: CheckpointDir {
                folder: folder.into(),
                keep: keep.max(1),
                rank,
                world,
            },
            writing: None,
        }
    }

    /// Copies the tensors and writes a checkpoint in the background. Waits for the one before. Older checkpoints
    /// are deleted only when the new one is complete.
    pub fn save(
        &mut self,
        state: CheckpointState,
        optimizer: &AdamW,
    ) -> Result<(), CheckpointError> {
        self.finish()?;
        let parts = optimizer.state();
        let copies: Vec<_> = parts.iter().map(|part| named(part, snapshot)).collect();
        drop(parts);
        let dir = self.dir.clone();
        let write = move || {
            dir.write(&state, |path| {
                SafetensorsWriter::write(path, &copies, &Map::new())
            })
        };
        let thread = std::thread::Builder::new().name("checkpoint".into());
        self.writing = Some(
            thread
                .spawn(write)
                .map_err(|error| self.dir.failed(error))?,
        );
        Ok(())
    }

    /// Writes a checkpoint without copying the tensors, and returns when it is complete. Parts of the optimizer state
    /// that are on disk are in memory one at a time.
    pub fn save_streaming(
        &mut self,
        state: &CheckpointState,
        optimizer: &AdamW,
    ) -> Result<(), CheckpointError> {
        self.finish()?;
        let parts = optimizer.state();
        let shared = |part| named(part, Tensor::shallow_clone);
        let tensors: Vec<_> = parts.iter().map(shared).collect();
        self.dir.write(state, |path| {
            SafetensorsWriter::write_with(path, &tensors, &Map::new(), |count| {
                let before = count.checked_sub(1).and_then(|last| parts.get(last));
                before.into_iter().for_each(|part| optimizer.page_out(part));
            })
        })
    }

    /// Returns the error of the last write if it has failed. Does not wait.
    pub fn poll(&mut self) -> Result<(), CheckpointError> {
        match &self.writing {
            Some(thread) if thread.is_finished() => self.finish(),
            _ => Ok(()),
        }
    }

    /// Waits until the last checkpoint is written.
    pub fn finish(&mut self) -> Result<(), CheckpointError> {
        match self.writing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => {
                let panicked = std::io::Error::other("the writing thread panicked");
                Err(self.dir.failed(panicked))
            }
        }
    }

    /// Deletes incomplete checkpoints of a killed run. Only the main process may call this, before any process
    /// writes.
    pub fn remove_incomplete(&self) -> Result<(), CheckpointError> {
        self.dir
            .remove_incomplete()
            .map_err(|error| self.dir.failed(error))
    }

    /// Loads the newest checkpoint into the optimizer. `None` if there is none; an error if it belongs to another
    /// run. The number of processes may have changed.
    pub fn resume(
        &self,
        recipe: &str,
        data: &str,
        optimizer: &mut AdamW,
    ) -> Result<Option<CheckpointState>, CheckpointError> {
        let all = self.dir.all().map_err(|error| CheckpointError::Read {
            path: self.dir.folder.clone(),
            error,
        })?;
        let Some(path) = all.last() else {
            return Ok(None);
        };
        let state = read_state(path, recipe, data)?;
        let parts = CheckpointReader::open(path)?;
        for part in optimizer.state() {
            parts.read(&part)?;
            optimizer.page_out(&part);
        }
        optimizer.sync_weights();
        Ok(Some(state))
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // A run that fails still completes the checkpoint that it has begun.
        let _ = self.finish();
    }
}

/// A part with its name in a file.
fn named(part: &StateSlice, tensor: impl Fn(&Tensor) -> Tensor) -> (String, Tensor) {
    let name = format!("{}@{}", part.name, part.start);
    (name, tensor(&part.tensor))
}

fn snapshot(tensor: &Tensor) -> Tensor {
    no_grad(|| match tensor.device() {
        Device::Cpu => tensor.detach().copy(),
        _ => tensor.detach().to_device(Device::Cpu),
    })
}

impl CheckpointDir {
    fn failed(&self, error: std::io::Error) -> CheckpointError {
        CheckpointError::Write {
            path: self.folder.clone(),
            error,
        }
    }

    fn write(
        &self,
        state: &CheckpointState,
        write_tensors: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<(), CheckpointError> {
        let name = format!("{PREFIX}{:08}", state.step);
        let building = self.folder.join(format!("{BUILDING}{name}"));
        let path = self.folder.join(name);
        let written = self.write_part(&building, write_tensors);
        let result = match (written, self.rank) {
            (Ok(()), 0) => self.complete(state, &building, &path),
            (written, _) => written,
        };
        if result.is_err() {
            // Only the main process deletes; the others leave a marker for it.
            let _ = match self.rank {
                0 => fs::remove_dir_all(&building),
                _ => fs::write(building.join("failed"), []),
            };
        }
        result.map_err(|error| CheckpointError::Write { path, error })
    }

    fn write_part(
        &self,
        building: &Path,
        write_tensors: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        fs::create_dir_all(building)?;
        let name = part_file_name(self.rank, self.world);
        let unfinished = building.join(format!("{name}.unfinished"));
        write_tensors(&unfinished)?;
        fs::rename(unfinished, building.join(name))
    }

    /// Waits for the files of all processes and renames the folder.
    fn complete(
        &self,
        state: &CheckpointState,
        building: &Path,
        path: &Path,
    ) -> std::io::Result<()> {
        let started = Instant::now();
        let missing = || {
            let mut names = (0..self.world).map(|rank| part_file_name(rank, self.world));
            names.find(|name| !building.join(name).exists())
        };
        while let Some(name) = missing() {
            if building.join("failed").exists() || started.elapsed() > TIMEOUT {
                return Err(std::io::Error::other(format!("{name} was not written")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        write_json(&building.join("state.json"), &serde_json::to_value(state)?)?;
        File::open(building)?.sync_all()?;
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        fs::rename(building, path)?;
        File::open(&self.folder)?.sync_all()?;
        let all = self.all()?;
        let old = all.len().saturating_sub(self.keep);
        all[..old].iter().try_for_each(fs::remove_dir_all)
    }

    fn remove_incomplete(&self) -> std::io::Result<()> {
        let left = self.entries(BUILDING)?;
        left.iter().try_for_each(fs::remove_dir_all)
    }

    /// Complete checkpoints, the oldest first.
    fn all(&self) -> std::io::Result<Vec<PathBuf>> {
        self.entries(PREFIX)
    }

    fn entries(&self, prefix: &str) -> std::io::Result<Vec<PathBuf>> {
        let mut found = vec![];
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return Ok(found);
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(prefix) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}

fn part_file_name(rank: usize, world: usize) -> String {
    format!("part-{rank:05}-of-{world:05}.safetensors")
}

fn read_state(path: &Path, recipe: &str, data: &str) -> Result<CheckpointState, CheckpointError> {
    let state = read_bounded(&path.join("state.json"), 1 << 20);
    let bytes = state.map_err(LoadError::from)?;
    let broken = |error: serde_json::Error| CheckpointError::Broken {
        path: path.into(),
        reason: error.to_string(),
    };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(broken)?;
    let other = |what| {
        Err(CheckpointError::Other {
            path: path.into(),
            what,
        })
    };
    if value["version"] != VERSION {
        return other("version");
    }
    let state: CheckpointState = serde_json::from_value(value).map_err(broken)?;
    match state {
        state if state.recipe != recipe => other("recipe"),
        state if state.data != data => other("data"),
        state => Ok(state),
    }
}

/// Reads tensors from the files of all processes that wrote a checkpoint.
struct CheckpointReader {
    path: PathBuf,
    files: Vec<Weights>,
    /// For each name its ranges: first element, number of elements, file.
    ranges: BTreeMap<String, Vec<(i64, i64, usize)>>,
}

impl CheckpointReader {
    fn open(path: &Path) -> Result<Self, CheckpointError> {
        let read = |error| CheckpointError::Read {
            path: path.into(),
            error,
        };
        let mut names: Vec<PathBuf> = vec![];
        for entry in fs::read_dir(path).map_err(read)? {
            names.push(entry.map_err(read)?.path());
        }
        names.retain(|name| name.extension().is_some_and(|e| e == "safetensors"));
        names.sort();
        let mut parts = Self {
            path: path.into(),
            files: vec![],
            ranges: BTreeMap::new(),
        };
        for (file, name) in names.iter().enumerate() {
            let weights = Weights::open_file(name)?;
            for (stored, shape) in weights.shapes()? {
                let (name, start) = stored.rsplit_once('@').unwrap_or((&stored, "0"));
                let start: i64 = start.parse().map_err(|_| parts.broken(&stored))?;
                let elements = shape.iter().product::<usize>() as i64;
                let ranges = parts.ranges.entry(name.to_owned()).or_default();
                ranges.push((start, elements, file));
            }
            parts.files.push(weights);
        }
        Ok(parts)
    }

    fn broken(&self, name: &str) -> CheckpointError {
        CheckpointError::Broken {
            path: self.path.clone(),
            reason: format!("the state {name} is incomplete"),
        }
    }

    /// Fills a tensor from the ranges that overlap it.
    fn read(&self, part: &StateSlice) -> Result<(), CheckpointError> {
        let ranges = self.ranges.get(&part.name);
        let (start, end) = (part.start, part.start + part.tensor.size()[0]);
        let mut filled = start;
        let mut ranges = ranges.cloned().unwrap_or_default();
        ranges.sort_unstable();
        for (from, length, file) in ranges {
            let (first, last) = (from.max(filled), (from + length).min(end));
            if first != filled || first >= last {
                continue;
            }
            let name = format!("{}@{from}", part.name);
            let target = part.tensor.detach().narrow(0, first - start, last - first);
            self.files[file].read_range(&name, length, first - from, &target)?;
            filled = last;
        }
        match filled == end {
            true => Ok(()),
            false => Err(self.broken(&part.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    use crate::train::optimizer::ParamSlice;
    use crate::train::recipe::{Offload, OptimizerConfig, StateDtype};

    /// An optimizer over a range of a parameter of 1000 elements, after a step.
    fn adam(offset: i64, elements: i64, step: bool) -> AdamW {
        let options = OptimizerConfig {
            state_dtype: StateDtype::Int8,
            ..OptimizerConfig::default()
        };
        let all = Tensor::arange(1000, (Kind::Float, Device::Cpu)) / 1000.0;
        let slice = ParamSlice {
            name: "w".into(),
            offset,
            is_matrix: true,
            weight: all.narrow(0, offset, elements).copy(),
        };
        let mut adam = AdamW::new(vec![slice], &options, 0).unwrap();
        if step {
            let gradient = all.narrow(0, offset, elements).sin();
            adam.step(0, &[Some(gradient)], 1.0, 0.1).unwrap();
        }
        adam
    }

    #[test]
    fn a_streamed_checkpoint_restores_a_state_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let options = OptimizerConfig {
            offload: Some(Offload::Disk(folder.path().join("state"))),
            ..OptimizerConfig::default()
        };
        let adam = |value: f64, step: bool| {
            let weight = Tensor::full([1001], value, (Kind::BFloat16, Device::Cpu));
            let gradient = Tensor::arange(1001, (Kind::BFloat16, Device::Cpu)).sin();
            let slice = ParamSlice {
                name: "w".into(),
                offset: 0,
                is_matrix: true,
                weight,
            };
            let mut adam = AdamW::new(vec![slice], &options, 0).unwrap();
            if step {
                adam.step(0, &[Some(gradient)], 1.0, 0.1).unwrap();
            }
            adam
        };
        let state = CheckpointState::new(1, "r", "d", vec![]);
        let trained = adam(0.5, true);
        let mut checkpoint = Checkpoint::new(&folder.path().join("all"), 1, (0, 1));
        checkpoint.save_streaming(&state, &trained).unwrap();
        let mut resumed = adam(0.25, false);
        assert!(!same(&resumed, &trained));
        let found = checkpoint.resume("r", "d", &mut resumed).unwrap();
        assert_eq!(found, Some(state));
        assert!(same(&resumed, &trained));
        assert!(resumed.slices[0].weight.equal(&trained.slices[0].weight));
    }

    fn same(a: &AdamW, b: &AdamW) -> bool {
        let mut pairs = a.state().into_iter().zip(b.state());
        pairs.all(|(a, b)| a.name == b.name && a.tensor.equal(&b.tensor))
    }

    #[test]
    fn the_number_of_processes_may_change() {
        let folder = tempfile::tempdir().unwrap();
        let state = || CheckpointState::new(3, "r", "d", vec![]);
        let halves = [adam(0, 512, true), adam(512, 488, true)];
        let mut first = Checkpoint::new(folder.path(), 1, (0, 2));
        let mut second = Checkpoint::new(folder.path(), 1, (1, 2));
        first.save(state(), &halves[0]).unwrap();
        second.save(state(), &halves[1]).unwrap();
        second.finish().unwrap();
        first.finish().unwrap();
        let mut whole = adam(0, 1000, false);
        let alone = Checkpoint::new(folder.path(), 1, (0, 1));
        let found = alone.resume("r", "d", &mut whole).unwrap();
        assert_eq!(found, Some(state()));
        assert!(same(&whole, &adam(0, 1000, true)));

        let mut alone = Checkpoint::new(folder.path(), 1, (0, 1));
        alone
            .save(CheckpointState::new(4, "r", "d", vec![]), &whole)
            .unwrap();
        alone.finish().unwrap();
        let mut third = adam(256, 256, false);
        let found = alone.resume("r", "d", &mut third).unwrap();
        assert_eq!(found.unwrap().step, 4);
        assert!(same(&third, &adam(256, 256, true)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_is_reported_later_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("checkpoints");
        std::fs::write(&file, "not a folder").unwrap();
        let mut broken = Checkpoint::new(&file, 1, (0, 1));
        let adam = adam(0, 1000, true);
        broken
            .save(CheckpointState::new(1, "r", "d", vec![]), &adam)
            .unwrap();
        let error = broken.finish().unwrap_err().to_string();
        assert!(error.contains("are intact"), "{error}");
        assert!(broken.poll().is_ok(), "reported once");
    }
}
