//! The interface to parameters that are sharded over several processes (ZeRO-3).

use std::sync::Arc;

use tch::TchError;

/// Gathers sharded parameters when they are needed. Unit `n` is block `n`; embedding, final norm and output
/// matrix form the unit after the last block. All processes must call these methods in the same order.
pub trait ParamSharding: Send + Sync + std::fmt::Debug {
    /// Gathers the parameters of a unit from all processes, unless that is done already.
    fn gather(&self, unit: usize) -> Result<(), TchError>;
    /// Sums the gradients of a unit over all processes and keeps only the shard of this one.
    fn reduce(&self, unit: usize) -> Result<(), TchError>;
    /// Frees the gathered parameters of a unit.
    fn release(&self, unit: usize) -> Result<(), TchError>;
}

/// Keeps the parameters of a unit gathered until it is dropped.
#[derive(Debug)]
pub struct GatherGuard {
    sharding: Arc<dyn ParamSharding>,
    unit: usize,
}

impl dyn ParamSharding {
    /// Gathers a unit for the lifetime of the guard. Panics, like the operations of tch, if the other
    /// processes are gone.
    pub fn gather_guard(self: Arc<Self>, unit: usize) -> GatherGuard {
        if let Err(error) = self.gather(unit) {
            panic!("{error}");
        }
        GatherGuard {
            sharding: self,
            unit,
        }
    }
}

impl Drop for GatherGuard {
    fn drop(&mut self) {
        // Can only fail if the tensor does not exist any more.
        let _ = self.sharding.release(self.unit);
    }
}
