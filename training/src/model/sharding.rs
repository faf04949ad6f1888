//! The interface to parameters that are sharded over several processes (ZeRO-3).

use std::fmt;
use std::sync::Arc;

use tch::{TchError, Tensor};

/// Parameters that are gathered together, and whose gradients are complete together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardUnit {
    Block(usize),
    /// Also the output matrix if both are tied.
    Embedding,
    FinalNorm,
    /// The output matrix.
    Head,
}

impl fmt::Display for ShardUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(layer) => write!(f, "block {layer}"),
            Self::Embedding => f.write_str("the embedding"),
            Self::FinalNorm => f.write_str("the final norm"),
            Self::Head => f.write_str("the output matrix"),
        }
    }
}

/// Gathers sharded parameters when they are needed. All processes must call these methods in the same order.
pub trait ParamSharding: Send + Sync + std::fmt::Debug {
    /// Gathers the parameters of a unit from all processes, unless that is done already.
    fn gather(&self, unit: ShardUnit) -> Result<(), TchError>;
    /// Sums the gradients of a unit over all processes and keeps only the shard of this one.
    fn reduce(&self, unit: ShardUnit) -> Result<(), TchError>;
    /// Adds gradients `[n, hidden]` of the rows `ids` (int64 `[n]`) of the embedding, until it is reduced. A gradient of
    /// the whole embedding would be its largest tensor.
    fn add_embedding_rows(&self, ids: Tensor, gradients: Tensor);
    /// Frees the gathered parameters of a unit.
    fn release(&self, unit: ShardUnit) -> Result<(), TchError>;
}

/// Keeps the parameters of a unit gathered until it is dropped.
#[derive(Debug)]
pub struct GatherGuard {
    sharding: Arc<dyn ParamSharding>,
    unit: ShardUnit,
}

impl dyn ParamSharding {
    /// Gathers a unit for the lifetime of the guard. Panics, like the operations of tch, if the other
    /// processes are gone.
    pub fn gather_guard(self: Arc<Self>, unit: ShardUnit) -> GatherGuard {
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
