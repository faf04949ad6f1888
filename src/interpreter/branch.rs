//! Branching a session: a second one with the same state, by running the same cells again.

use std::sync::Arc;

use super::session::LocalSession;
use super::{InterpreterError, Observation};

/// What has been run so far, so that it can be run again.
#[derive(Clone, Default)]
pub(super) struct Past {
    cells: Vec<Step>,
    /// Why running them again would not lead to the same state.
    broken: Option<String>,
}

#[derive(Clone)]
struct Step {
    code: String,
    /// Digest of what was observed; observations themselves may be large.
    seen: blake3::Hash,
}

impl Past {
    /// Note a cell and what it did.
    pub(super) fn add(&mut self, code: &str, observation: &Observation) {
        if let Some(stopped) = observation.stopped {
            let number = self.cells.len() + 1;
            let why = format!("cell {number} was stopped ({stopped:?}), which cannot be repeated");
            self.broken.get_or_insert(why);
        }
        self.cells.push(Step {
            code: code.to_owned(),
            seen: digest(observation),
        });
    }

    /// The process was lost between cells.
    pub(super) fn forget(&mut self, why: &str) {
        self.broken.get_or_insert(why.to_owned());
    }
}

fn digest(observation: &Observation) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    // Writing to a hasher cannot fail, and an observation has no keys other than strings.
    let _ = serde_json::to_writer(&mut hasher, observation);
    hasher.finalize()
}

impl LocalSession {
    /// A new session in the state of this one.
    pub(super) async fn repeat(&self) -> Result<Self, InterpreterError> {
        let refuse = |why: String| Err(InterpreterError::Fork(why));
        if let Some(why) = &self.past.broken {
            return refuse(why.clone());
        }
        let mut copy = Self::start(Arc::clone(&self.shared), self.spec.clone()).await?;
        for (index, step) in self.past.cells.iter().enumerate() {
            let observation = copy.run(&step.code).await?;
            if digest(&observation) != step.seen {
                let number = index + 1;
                return refuse(format!("cell {number} did something else the second time"));
            }
        }
        copy.past = self.past.clone();
        let (original, other) = (self.workspace()?, copy.workspace()?);
        let engine = &self.shared.engine;
        if engine.is_remote() {
            let (ours, theirs) = (
                engine.digest(&original).await?,
                engine.digest(&other).await?,
            );
            return match ours == theirs {
                true => Ok(copy),
                false => refuse("its files hold something else the second time".to_owned()),
            };
        }
        let same = move || super::same::make_same(original.fd(), other.fd());
        match tokio::task::spawn_blocking(same).await {
            Ok(Ok(())) => Ok(copy),
            Ok(Err(why)) => refuse(why),
            Err(error) => refuse(error.to_string()),
        }
    }
}
