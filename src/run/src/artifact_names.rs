//! File names of the artifacts in a run folder.

pub(crate) const FILES: &str = "files.jsonl";
pub(crate) const TASKS: &str = "tasks.jsonl";
pub(crate) const HELD_OUT: &str = "held_out.jsonl";
pub(crate) const TRAJECTORIES: &str = "trajectories.jsonl";
pub(crate) const VERDICTS: &str = "verdicts.jsonl";
pub(crate) const ALL: [&str; 4] = [FILES, TASKS, TRAJECTORIES, VERDICTS];
