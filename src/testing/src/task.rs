//! A task for those who only need one to ask a model about.

use std::collections::BTreeMap;

use pybench_types::id::Digest;
use pybench_types::task::{Category, Language, Task, TaskOrigin};

/// It has no files and no checks.
pub fn task() -> Task {
    Task {
        id: Digest::of_bytes(b"task"),
        category: Category::Math,
        subcategory: "s".into(),
        keyword: "k".into(),
        language: Language::En,
        query: "q".into(),
        files: vec![],
        held_out: vec![],
        outputs: vec![],
        reference: String::new(),
        checks: vec![],
        origin: TaskOrigin::Library {
            template: "t".into(),
            slots: BTreeMap::new(),
            phrasing: 0,
        },
    }
}
