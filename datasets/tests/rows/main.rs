//! Datasets as others read them.

mod dataset;
mod dedup;
mod formats;
mod load_dataset;
mod read;
mod scrub;
mod select;
