//! A source while it is open: what is shown of it, also while a newer index is made.

use std::sync::Arc;

use super::Opened;

/// What is shown of a source, and what is shown next.
pub(super) struct OpenSource {
    shown: Arc<Opened>,
    /// With a newer index that is being made.
    next: Option<Arc<Opened>>,
}

impl OpenSource {
    pub(super) fn new(shown: Arc<Opened>) -> Self {
        Self { shown, next: None }
    }

    pub(super) fn shown(&self) -> &Arc<Opened> {
        &self.shown
    }

    /// Whether an index of the source is being made. Once the next one is made, it is shown.
    pub(super) fn is_growing(&mut self) -> bool {
        let made = self.next.take_if(|next| next.index.age().is_some());
        if let Some(next) = made {
            self.shown = next;
        }
        self.next.is_some() || self.shown.index.age().is_none()
    }

    /// Shows a newer index; not before it is made if the one that is shown is complete.
    pub(super) fn replace(&mut self, newer: Arc<Opened>) {
        let is_shown_whole = self.shown.index.progress().is_none();
        match is_shown_whole && newer.index.age().is_none() {
            true => self.next = Some(newer),
            false => *self = Self::new(newer),
        }
    }
}
