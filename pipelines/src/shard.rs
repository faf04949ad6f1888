//! Shard: writes the dataset of a run.
