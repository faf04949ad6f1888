//! Updates parameters in the backward pass, unit by unit, so that the gradients of only one unit exist (torchtune's
//! `optimizer_in_bwd`).

use super::grad_norm::square_norm;
use super::optimizer::AdamW;
use super::shard::{Parameters, Scope};
use super::step_error::StepError;
use crate::model::ShardUnit;
use crate::torch::Communicator;

/// The updates of one step.
pub(super) struct BackwardUpdate<'a> {
    pub(super) step: u64,
    pub(super) learning_rate: f64,
    pub(super) parameters: &'a Parameters,
    pub(super) optimizer: &'a mut AdamW,
    pub(super) communicator: Option<&'a Communicator>,
    /// Square of the norm of the gradients of all units so far.
    pub(super) square: f64,
}

impl BackwardUpdate<'_> {
    /// Updates the parameters of a unit, whose gradients are complete, and frees the gradients.
    ///
    /// # Errors
    /// The gradients are not finite. The unit is unchanged then; those before it are not.
    pub(super) fn update(&mut self, unit: ShardUnit) -> Result<(), StepError> {
        let scope = Scope::Unit(unit);
        let gradients = self.parameters.gradients(scope);
        let ours = [square_norm(&gradients)];
        let [square] = match self.communicator {
            None => ours,
            Some(communicator) => communicator.sum(ours)?,
        };
        if !square.is_finite() {
            return Err(StepError::UnitDiverged {
                step: self.step,
                unit,
                value: square.sqrt(),
            });
        }
        self.square += square;
        self.optimizer
            .step(self.step, &gradients, 1.0, self.learning_rate)?;
        drop(gradients);
        Ok(self.parameters.clear_gradients(scope)?)
    }
}
