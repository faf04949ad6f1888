//! Parameters that are not here all the time.

use std::sync::Arc;

use tch::TchError;

/// Whoever brings parameters when they are needed. Block `n` is unit `n`; what lies outside of
/// blocks (embedding, last norm, output matrix) is the unit after the last block. All processes call
/// these in the same order.
pub trait Residence: Send + Sync + std::fmt::Debug {
    /// Brings the parameters of a unit; nothing where they are here.
    fn gather(&self, unit: usize) -> Result<(), TchError>;
    /// Adds the gradients of a unit over all processes, keeps this one's part and frees the rest.
    fn reduce(&self, unit: usize) -> Result<(), TchError>;
    /// Frees the parameters of a unit.
    fn release(&self, unit: usize) -> Result<(), TchError>;
}

/// The parameters of a unit are here while this lives.
#[derive(Debug)]
pub struct Stay {
    residence: Arc<dyn Residence>,
    unit: usize,
}

impl dyn Residence {
    /// Brings a unit for as long as the result lives. Panics, as every operation of tch does, where
    /// the other processes are gone.
    pub fn stay(self: Arc<Self>, unit: usize) -> Stay {
        if let Err(error) = self.gather(unit) {
            panic!("{error}");
        }
        Stay {
            residence: self,
            unit,
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // Freeing fails only where the tensor is gone.
        let _ = self.residence.release(self.unit);
    }
}
