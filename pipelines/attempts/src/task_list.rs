//! The tasks and the items of a stage that makes attempts: lists that a large run does not hold in memory.

use std::borrow::Cow;
use std::sync::Arc;

use pybench_run::artifacts::Index;
use pybench_run::{Items, RunError};
use pybench_types::id::{CompactDigest, Digest};
use pybench_types::task::Task;

/// Tasks in order, by number.
pub enum TaskList {
    Memory(Vec<Arc<Task>>),
    /// Read from the artifact when they are needed.
    Artifact(Arc<Index<Task>>),
}

impl TaskList {
    /// Number of tasks.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(tasks) => tasks.len(),
            Self::Artifact(index) => index.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ids of the tasks, in order.
    pub fn ids(&self) -> Box<dyn Iterator<Item = Digest> + '_> {
        match self {
            Self::Memory(tasks) => Box::new(tasks.iter().map(|task| task.id.clone())),
            Self::Artifact(index) => Box::new(index.digests().map(Digest::from)),
        }
    }

    /// The task with this number, which is below [`TaskList::len`].
    ///
    /// # Errors
    /// I/O errors.
    pub fn get(&self, number: usize) -> Result<Arc<Task>, RunError> {
        match self {
            Self::Memory(tasks) => Ok(tasks[number].clone()),
            Self::Artifact(index) => index.read(number).map(Arc::new),
        }
    }
}

impl From<Arc<Index<Task>>> for TaskList {
    fn from(index: Arc<Index<Task>>) -> Self {
        Self::Artifact(index)
    }
}

impl From<Vec<Arc<Task>>> for TaskList {
    fn from(tasks: Vec<Arc<Task>>) -> Self {
        Self::Memory(tasks)
    }
}

impl From<Vec<Task>> for TaskList {
    fn from(tasks: Vec<Task>) -> Self {
        Self::Memory(tasks.into_iter().map(Arc::new).collect())
    }
}

/// The items of some attempts of a stage.
#[derive(Clone, Copy)]
pub struct AttemptItems<'a> {
    /// Ids of all attempts.
    pub(crate) ids: &'a [CompactDigest],
    pub(crate) numbers: &'a [usize],
}

impl AttemptItems<'_> {
    pub fn digests(&self) -> impl Iterator<Item = CompactDigest> {
        self.numbers.iter().map(|number| self.ids[*number])
    }

    /// The items as text.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        self.digests().map(|id| Digest::from(id).into())
    }
}

impl Items for AttemptItems<'_> {
    fn len(&self) -> usize {
        self.numbers.len()
    }

    fn get(&self, number: usize) -> Cow<'_, str> {
        Cow::Owned(Digest::from(self.ids[self.numbers[number]]).into())
    }
}
