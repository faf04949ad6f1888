//! File names in a run folder: the journal and the artifacts.

pub(crate) const JOURNAL: &str = "journal.sqlite";
/// Names the place of a journal that is not in the folder.
pub(crate) const POINTER: &str = "journal.toml";
/// Names the place in PostgreSQL that the journal is being moved to.
pub(crate) const MOVE: &str = "journal.move.toml";
/// A journal that is being moved to the folder.
pub(crate) const INCOMING: &str = "journal.incoming.sqlite";
/// Number of paid calls.
pub(crate) const CALLS: &str = "journal.calls";
/// Names the bucket that the run is kept in.
pub(crate) const BUCKET: &str = "bucket.toml";
/// Names the bucket that the run will be kept in.
pub(crate) const BUCKET_CLAIM: &str = "bucket.claim.toml";
/// The files of a run folder by which a process finds its journal and its bucket.
pub const POINTERS: [&str; 4] = [POINTER, MOVE, BUCKET, BUCKET_CLAIM];
/// Folder in a bucket with the lists of the copies of a run; their names begin with their numbers.
pub(crate) const COPIES: &str = "copies";
/// Folder in a bucket with the files of these copies, whose names are their digests.
pub(crate) const BLOBS: &str = "blobs";
pub(crate) const FILES: &str = "files.jsonl";
pub(crate) const TASKS: &str = "tasks.jsonl";
pub(crate) const HELD_OUT: &str = "held_out.jsonl";
pub(crate) const TRAJECTORIES: &str = "trajectories.jsonl";
pub(crate) const VERDICTS: &str = "verdicts.jsonl";
pub(crate) const ALL: [&str; 4] = [FILES, TASKS, TRAJECTORIES, VERDICTS];
