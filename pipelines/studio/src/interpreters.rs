//! The interpreters of the studio: one for each tier, which ends with the last session that uses it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pybench_interpreter::{Interpreter, InterpreterChoice, Tier};
use pybench_interpreter_containers::paced;
use pybench_run::RunError;

/// The interpreters that are in use.
#[derive(Default)]
pub(crate) struct Interpreters(Mutex<HashMap<Tier, Weak<dyn Interpreter>>>);

impl Interpreters {
    /// The interpreter of the tier that is chosen.
    ///
    /// # Errors
    /// [`RunError::Environment`] if it cannot run here.
    pub(crate) fn get(&self, choice: &InterpreterChoice) -> Result<Arc<dyn Interpreter>, RunError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(interpreter) = known.get(&choice.tier).and_then(Weak::upgrade) {
            return Ok(interpreter);
        }
        let made = paced(choice).map_err(|error| RunError::Environment(error.to_string()))?;
        known.insert(choice.tier, Arc::downgrade(&made));
        Ok(made)
    }
}
