//! All operations, by name.

mod aggregate;
mod answer;
mod chart;
mod color_picture;
mod columns;
mod combine;
mod derive;
mod document;
mod document_table;
mod edit_picture;
mod edit_sound;
mod edit_text;
mod filter;
mod linear_model;
mod neighbors;
mod output;
mod pattern;
mod read_matches;
mod read_picture;
mod read_sound;
mod read_text;
mod resample;
mod reshape;
mod several_numbers;
mod shape;
mod statistics;
mod subset;
mod text;
mod time;
mod window;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::operation::Operation;

static OPERATIONS: LazyLock<BTreeMap<String, Operation>> = LazyLock::new(|| {
    let families = [
        filter::operations(),
        derive::operations(),
        text::operations(),
        time::operations(),
        window::operations(),
        subset::operations(),
        pattern::operations(),
        neighbors::operations(),
        statistics::operations(),
        resample::operations(),
        reshape::operations(),
        shape::operations(),
        combine::operations(),
        answer::operations(),
        several_numbers::operations(),
        output::operations(),
        chart::operations(),
        linear_model::operations(),
        edit_text::operations(),
        read_text::operations(),
        read_matches::operations(),
        document::operations(),
        document_table::operations(),
        edit_picture::operations(),
        color_picture::operations(),
        read_picture::operations(),
        edit_sound::operations(),
        read_sound::operations(),
    ];
    let all = families.into_iter().flatten();
    all.map(|operation| (operation.name.clone(), operation))
        .collect()
});

/// All operations, ordered by name.
pub fn all() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.values()
}

/// The operation of this name.
pub fn named(name: &str) -> Option<&'static Operation> {
    OPERATIONS.get(name)
}
