//! The version of a list, by which a page learns that it has changed.

use pybench_types::id::Digest;

use super::open_source::OpenSource;
use super::{Opened, Sources, lock};
use crate::index::ListState;

impl Sources {
    /// The version of this open source's list.
    pub(crate) fn list_state(&self, name: &str, opened: &Opened) -> ListState {
        let slot = self.slot(name);
        let known = lock(&slot);
        let newest = known.as_ref().map(|known| known.newest().state());
        let state = (opened.state(), newest, opened.outdated());
        ListState {
            version: Digest::of_json(&state).short().to_owned(),
            newer: known.as_ref().and_then(OpenSource::newer),
        }
    }
}
