//! This process alone or among others, and which parts of a step are its own.

use std::sync::Arc;

use anyhow::Result;
use tch::Device;

use super::{Batch, Dataset, Document};
use crate::data::Bins;
use crate::torch::{Group, GroupError};

/// The processes of a run.
#[derive(Clone, Debug, Default)]
pub struct Team {
    /// `None` where this process is alone.
    pub group: Option<Arc<Group>>,
}

impl Team {
    /// As the environment says (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
    pub fn from_env() -> Result<Self, GroupError> {
        Ok(Self {
            group: Group::from_env()?.map(Arc::new),
        })
    }

    /// Number of this process, and how many there are.
    pub fn place(&self) -> (usize, usize) {
        self.group.as_ref().map_or((0, 1), |g| (g.rank, g.world))
    }

    /// Whether this process speaks and writes for all.
    pub fn leads(&self) -> bool {
        self.place().0 == 0
    }

    /// Where this process computes.
    pub fn device(&self) -> Device {
        let alone = Device::cuda_if_available();
        self.group.as_ref().map_or(alone, |group| group.device)
    }

    /// Waits for all.
    pub fn meet(&self) -> Result<()> {
        match &self.group {
            Some(group) => Ok(group.barrier()?),
            None => Ok(()),
        }
    }

    /// Does something in the first process, and then in all others.
    pub fn lead<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let first = self.leads().then(&work).transpose()?;
        self.meet()?;
        match first {
            Some(done) => Ok(done),
            None => work(),
        }
    }

    /// This process's parts of a step: part `n` of the step is process `n mod world`'s. All have
    /// equally many, some of which predict nothing.
    pub fn parts(&self, data: &Dataset, rows: &Bins, micro_rows: usize) -> Result<Vec<Batch>> {
        let (rank, world) = self.place();
        let parts: Vec<&[Vec<usize>]> = rows.chunks(micro_rows).collect();
        let each = parts.len().div_ceil(world);
        (0..each)
            .map(|turn| match parts.get(turn * world + rank) {
                Some(rows) => data.batch(rows, self.device()),
                None => Batch::new(&[nothing()], &[vec![0]], self.device()).map(|batch| Batch {
                    tokens: 0,
                    documents: vec![],
                    ..batch
                }),
            })
            .collect()
    }
}

/// Two tokens of which none is predicted: a process without work goes through the model with them,
/// because all must gather parameters together.
fn nothing() -> Document {
    Document {
        ids: vec![0; 2],
        weights: vec![0.0; 2],
        place: String::new(),
    }
}
