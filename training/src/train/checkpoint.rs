//! Checkpoints: whole folders that appear at once, the newest few of them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Map;
use tch::{Device, Kind, no_grad};
use thiserror::Error;

use super::AdamW;
use crate::model::{LoadError, SafetensorsWriter, Weights, read_bounded, write_json};

const PREFIX: &str = "step-";
const VERSION: u32 = 1;

/// Why a checkpoint cannot be written or read.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum CheckpointError {
    #[error("{path}: {error}; the checkpoints before are intact")]
    Write {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {error}")]
    Read {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: {reason}; delete it to resume from the one before")]
    Broken { path: PathBuf, reason: String },
    #[error(
        "{path} belongs to another run: its {what} differs. Give another --out, or delete the folder"
    )]
    Other { path: PathBuf, what: &'static str },
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// What a checkpoint holds beside tensors. The place in the data follows from the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// Steps done.
    pub step: u64,
    /// Hash of the recipe.
    pub recipe: String,
    /// Hash of the tokenised data and the names of the trained parameters.
    pub data: String,
}

impl State {
    /// The state after `step` steps.
    pub fn new(step: u64, recipe: &str, data: &str) -> Self {
        Self {
            version: VERSION,
            step,
            recipe: recipe.into(),
            data: data.into(),
        }
    }
}

/// A folder of checkpoints.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    keep: usize,
}

impl Checkpoint {
    /// Checkpoints in `folder`, the newest `keep` of which stay.
    pub fn new(folder: &Path, keep: usize) -> Self {
        Self {
            folder: folder.into(),
            keep: keep.max(1),
        }
    }

    /// Writes one. It is there whole or not at all, and only then are older ones deleted.
    pub fn save(&self, state: &State, optimizer: &AdamW) -> Result<PathBuf, CheckpointError> {
        let path = self.folder.join(format!("{PREFIX}{:08}", state.step));
        self.write(&path, state, optimizer)
            .map_err(|error| CheckpointError::Write {
                path: path.clone(),
                error,
            })?;
        Ok(path)
    }

    fn write(&self, path: &Path, state: &State, optimizer: &AdamW) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // Deleted when anything fails.
        let building = tempfile::Builder::new()
            .prefix(".building-")
            .tempdir_in(&self.folder)?;
        let tensors = building.path().join("state.safetensors");
        SafetensorsWriter::write(&tensors, &optimizer.state(), &Map::new())?;
        write_json(
            &building.path().join("state.json"),
            &serde_json::to_value(state)?,
        )?;
        File::open(building.path())?.sync_all()?;
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        fs::rename(building.path(), path)?;
        let _ = building.keep();
        File::open(&self.folder)?.sync_all()?;
        self.prune()
    }

    fn prune(&self) -> std::io::Result<()> {
        let all = self.all()?;
        let old = all.len().saturating_sub(self.keep);
        all[..old].iter().try_for_each(fs::remove_dir_all)
    }

    /// Whole checkpoints, the oldest first. What a killed process left half done is deleted.
    fn all(&self) -> std::io::Result<Vec<PathBuf>> {
        let mut found = vec![];
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return Ok(found);
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(".building-") {
                fs::remove_dir_all(&path)?;
            } else if name.starts_with(PREFIX) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Puts the newest checkpoint into the optimizer's tensors. `None` where there is none; an error
    /// where it is another run's.
    pub fn resume(
        &self,
        recipe: &str,
        data: &str,
        optimizer: &AdamW,
    ) -> Result<Option<u64>, CheckpointError> {
        let all = self.all().map_err(|error| CheckpointError::Read {
            path: self.folder.clone(),
            error,
        })?;
        let Some(path) = all.last() else {
            return Ok(None);
        };
        let broken = |reason: String| CheckpointError::Broken {
            path: path.clone(),
            reason,
        };
        let bytes = read_bounded(&path.join("state.json"), 1 << 20)?;
        let state: State =
            serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        let other = |what| CheckpointError::Other {
            path: path.clone(),
            what,
        };
        if state.version != VERSION {
            return Err(other("version"));
        } else if state.recipe != recipe {
            return Err(other("recipe"));
        } else if state.data != data {
            return Err(other("data"));
        }
        let weights = Weights::open_file(&path.join("state.safetensors"))?;
        for (name, tensor) in optimizer.state() {
            let found = weights.tensor(&name, &tensor.size(), Kind::Float, Device::Cpu)?;
            let mut tensor = tensor;
            no_grad(|| tensor.copy_(&found));
        }
        Ok(Some(state.step))
    }
}
