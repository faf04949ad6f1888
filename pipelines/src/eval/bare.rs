//! A task with nothing but an id, for calls that belong to no task: the journal keeps them under it.

use std::collections::BTreeMap;

use pybench::id::Digest;
use pybench::task::{Category, Language, Task, TaskOrigin};

/// The task that stands for a text that is asked.
pub(crate) fn bare_task(text: &str, category: Category, template: &str) -> Task {
    Task {
        id: Digest::of_bytes(text.as_bytes()),
        category,
        subcategory: String::new(),
        keyword: String::new(),
        language: Language::En,
        query: String::new(),
        files: Vec::new(),
        held_out: Vec::new(),
        outputs: Vec::new(),
        reference: String::new(),
        checks: Vec::new(),
        origin: TaskOrigin::Library {
            template: template.to_owned(),
            slots: BTreeMap::new(),
            phrasing: 0,
        },
    }
}
