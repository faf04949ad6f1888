//! Nothing to use: the features in `Cargo.toml` are the content.
