//! Forks a session by replaying its cells in a new session.

use std::sync::Arc;

use super::InterpreterError;
use super::cell_history::digest;
use super::session::LocalSession;

impl LocalSession {
    /// Starts a new session and replays all cells in it.
    pub(super) async fn replay(&self) -> Result<Self, InterpreterError> {
        let refuse = |why: String| Err(InterpreterError::Fork(why));
        if let Some(why) = &self.history.invalid {
            return refuse(why.clone());
        }
        let mut copy = Self::start(Arc::clone(&self.shared), self.spec.clone()).await?;
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
                true => Ok(copy),
                false => {
                    refuse("the files have other contents after the cells ran again".to_owned())
                }
            };
        }
        let same = move || super::workspace_sync::sync_contents(original.fd(), other.fd());
        match tokio::task::spawn_blocking(same).await {
            Ok(Ok(())) => Ok(copy),
            Ok(Err(why)) => refuse(why),
            Err(error) => refuse(error.to_string()),
        }
    }
}
