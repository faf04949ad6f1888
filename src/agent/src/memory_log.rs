//! A log in memory, for tests of solvers.

use std::sync::Mutex;

use pybench_run::Failure;

use crate::{Step, TurnLog};

#[derive(Default)]
pub(crate) struct MemoryLog(pub(crate) Mutex<Vec<Step>>);

impl TurnLog for MemoryLog {
    fn steps(&self) -> Result<Vec<Step>, Failure> {
        Ok(self.0.lock().unwrap().clone())
    }
    fn append(&self, position: u64, step: &Step) -> Result<(), Failure> {
        let mut steps = self.0.lock().unwrap();
        assert_eq!(steps.len() as u64, position);
        steps.push(step.clone());
        Ok(())
    }
    fn clear(&self) -> Result<(), Failure> {
        self.0.lock().unwrap().clear();
        Ok(())
    }
}
