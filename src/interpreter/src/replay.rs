//! Forks a session by replaying its cells in a new session.

use std::sync::Arc;

use super::cell_history::digest;
use super::session::LocalSession;
use super::{InterpreterError, Session};

impl LocalSession {
    /// Starts a new session and replays all cells in it. If it differs, the new session has ended before
    /// this returns.
    pub(super) async fn replay(&self) -> Result<Self, InterpreterError> {
        if let Some(why) = &self.history.invalid {
            return Err(InterpreterError::Fork(why.clone()));
        }
        let mut copy = Self::start(Arc::clone(&self.shared), self.spec.clone()).await?;
        match self.reproduce(&mut copy).await {
            Ok(()) => Ok(copy),
            Err(error) => Box::new(copy).close().await.and(Err(error)),
        }
    }

    /// Runs all cells in a new session and compares what they gave.
    async fn reproduce(&self, copy: &mut Self) -> Result<(), InterpreterError> {
        let refuse = |why: String| Err(InterpreterError::Fork(why));
        for (index, cell) in self.history.cells.iter().enumerate() {
            let observation = copy.run(&cell.code).await?;
            if digest(&observation) != cell.observation_digest {
                let number = index + 1;
                return refuse(format!("cell {number} gave another result the second time"));
            }
        }
        copy.history = self.history.clone();
        let (original, other) = (self.workspace()?, copy.workspace()?);
        let engine = &self.shared.engine;
        if engine.is_remote() {
            let (ours, theirs) = (
                engine.digest(&original).await?,
                engine.digest(&other).await?,
            );
            return match ours == theirs {
                true => Ok(()),
                false => {
                    refuse("the files have other contents after the cells ran again".to_owned())
                }
            };
        }
        let same = move || super::workspace_sync::sync_contents(original.fd(), other.fd());
        match tokio::task::spawn_blocking(same).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => refuse(why),
            Err(error) => refuse(error.to_string()),
        }
    }
}
