//! Placeholder tasks, under which the journal records model calls that belong to no task.

use std::collections::BTreeMap;

use crate::id::Digest;
use crate::task::{Category, Language, Task, TaskOrigin};

/// A task that has only an id, derived from `text`, the prompt of the call.
pub fn placeholder_task(text: &str, category: Category, template: &str) -> Task {
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
