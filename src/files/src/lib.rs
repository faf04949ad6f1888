//! Handles untrusted files: detects their type, unpacks archives, decodes text and makes safe file names.
//! Every operation has limits.

pub mod archive;
pub mod entity;
pub mod name;
mod regular;
pub mod sniff;
pub mod text;
pub mod wiki_tables;

pub use regular::{open_regular, read_regular};

/// Largest JSON file that is parsed, in bytes. The parsed tree takes up to twenty times the size of its text.
pub const MAX_JSON: usize = 8 << 20;
