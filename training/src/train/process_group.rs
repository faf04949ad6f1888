//! The processes of a run, and how a step is divided among them.

use std::sync::Arc;

use anyhow::Result;
use pybench_training_data::Bins;
use tch::Device;

use super::dataset::{Batch, Dataset, TokenizedDocument};
use crate::torch::{Communicator, CommunicatorError};

/// The processes of a run; may be only this one.
#[derive(Clone, Debug, Default)]
pub struct ProcessGroup {
    /// `None` for a single process.
    pub communicator: Option<Arc<Communicator>>,
}

impl ProcessGroup {
    /// Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    pub fn from_env() -> Result<Self, CommunicatorError> {
        Ok(Self {
            communicator: Communicator::from_env()?.map(Arc::new),
        })
    }

    pub fn rank(&self) -> usize {
        self.communicator.as_ref().map_or(0, |c| c.rank)
    }

    pub fn world_size(&self) -> usize {
        self.communicator.as_ref().map_or(1, |c| c.world)
    }

    /// Whether this process prints and writes for all.
    pub fn is_main(&self) -> bool {
        self.rank() == 0
    }

    pub fn device(&self) -> Device {
        let single = Device::cuda_if_available();
        self.communicator.as_ref().map_or(single, |c| c.device)
    }

    /// Waits for all processes.
    pub fn barrier(&self) -> Result<()> {
        match &self.communicator {
            Some(communicator) => Ok(communicator.barrier()?),
            None => Ok(()),
        }
    }

    /// Whether `flag` is set in any process.
    pub fn any(&self, flag: bool) -> Result<bool> {
        match &self.communicator {
            Some(communicator) => Ok(communicator.sum([f64::from(u8::from(flag))])?[0] > 0.0),
            None => Ok(flag),
        }
    }

    /// Does work in the main process first, then in all others, which may find its results in a cache.
    pub fn main_first<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let first = self.is_main().then(&work).transpose()?;
        self.barrier()?;
        match first {
            Some(done) => Ok(done),
            None => work(),
        }
    }

    /// The micro-batches of this process: micro-batch `n` of a step belongs to process `n mod world_size`. All
    /// processes get equally many; the last ones may have no target.
    pub fn micro_batches(
        &self,
        data: &Dataset,
        rows: &Bins,
        micro_batch_size: usize,
    ) -> Result<Vec<Batch>> {
        let (rank, world) = (self.rank(), self.world_size());
        let all: Vec<&[Vec<usize>]> = rows.chunks(micro_batch_size).collect();
        let per_process = all.len().div_ceil(world);
        (0..per_process)
            .map(|turn| match all.get(turn * world + rank) {
                Some(rows) => data.batch(rows, self.device()),
                None => Batch::new(&[no_targets()], &[vec![0]], self.device()).map(|batch| Batch {
                    tokens: 0,
                    documents: vec![],
                    ..batch
                }),
            })
            .collect()
    }
}

/// Two tokens without a target. A process without work runs the model on them, because all processes must
/// gather parameters together.
pub(super) fn no_targets() -> TokenizedDocument {
    TokenizedDocument {
        ids: vec![0; 2],
        weights: vec![0.0; 2],
        location: String::new(),
    }
}
