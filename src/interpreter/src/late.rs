//! A session that starts with its first cell.

use std::sync::Arc;

use async_trait::async_trait;
use pybench_types::observation::Observation;

use super::{
    Collected, Files, Interpreter, InterpreterError, InterruptHandle, Session, SessionSpec,
};

/// A session that starts when its first cell runs. A conversation that waits for its first reply, or never runs a
/// cell, takes neither a process nor memory.
pub struct LateSession {
    interpreter: Arc<dyn Interpreter>,
    spec: SessionSpec,
    started: Option<Box<dyn Session>>,
}

impl LateSession {
    /// A session of `interpreter` that has not started.
    pub fn new(interpreter: Arc<dyn Interpreter>, spec: SessionSpec) -> Self {
        Self {
            interpreter,
            spec,
            started: None,
        }
    }

    async fn started(&mut self) -> Result<&mut Box<dyn Session>, InterpreterError> {
        let session = match self.started.take() {
            Some(session) => session,
            None => self.interpreter.start(self.spec.clone()).await?,
        };
        Ok(self.started.insert(session))
    }
}

#[async_trait]
impl Session for LateSession {
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        self.started().await?.execute(code).await
    }

    fn files(&self) -> Option<Files> {
        self.started.as_ref()?.files()
    }

    /// Before the first cell, there is nothing to interrupt.
    fn interrupt_handle(&self) -> InterruptHandle {
        match &self.started {
            Some(session) => session.interrupt_handle(),
            None => InterruptHandle::new().0,
        }
    }

    async fn read_outputs(&mut self) -> Result<Collected, InterpreterError> {
        match &mut self.started {
            Some(session) => session.read_outputs().await,
            None => Ok(Collected::default()),
        }
    }

    async fn close(self: Box<Self>) -> Result<(), InterpreterError> {
        match self.started {
            Some(session) => session.close().await,
            None => Ok(()),
        }
    }
}
