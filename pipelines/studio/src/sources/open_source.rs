//! A source while it is open: what is shown of it, also while a newer index is made.

use std::sync::Arc;

use super::Opened;
use crate::index::IndexProgress;

/// What is shown of a source, and what is shown next.
pub(super) struct OpenSource {
    shown: Arc<Opened>,
    /// With a newer index that is being made, or could not be made.
    next: Option<Arc<Opened>>,
}

impl OpenSource {
    pub(super) fn new(shown: Arc<Opened>) -> Self {
        Self { shown, next: None }
    }

    pub(super) fn shown(&self) -> &Arc<Opened> {
        &self.shown
    }

    /// What was indexed last.
    pub(super) fn newest(&self) -> &Arc<Opened> {
        self.next.as_ref().unwrap_or(&self.shown)
    }

    /// How far a newer index is; `None` if none is being made.
    pub(super) fn newer(&self) -> Option<IndexProgress> {
        let progress = self.next.as_ref()?.index.progress();
        progress.filter(|progress| progress.problem.is_empty())
    }

    /// Whether an index of the source is being made. Once the next one is made, it is shown.
    pub(super) fn is_growing(&mut self) -> bool {
        self.take_next();
        self.newest().index.age().is_none()
    }

    /// Whether what is shown has all trajectories that its source had.
    pub(super) fn is_whole(&self) -> bool {
        self.shown.index.progress().is_none()
    }

    /// Shows a newer index once it is complete.
    pub(super) fn replace(&mut self, newer: Arc<Opened>) {
        self.next = Some(newer);
        self.take_next();
    }

    /// Shows the next index if it is complete. If it could not be made, what is shown stays and says why.
    fn take_next(&mut self) {
        let Some(next) = self.next.take_if(|next| next.index.progress().is_none()) else {
            let failed = self.next.as_ref().and_then(|next| next.index.progress());
            if let Some(failed) = failed.filter(|failed| !failed.problem.is_empty()) {
                self.shown.set_outdated(failed.problem);
            }
            return;
        };
        self.shown = next;
    }
}
