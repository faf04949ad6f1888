//! Hashes that let others check a dataset: hashes of the parts of a row (column `proof`), a hash of the whole
//! row, and a digest of the whole dataset.

use std::collections::BTreeMap;

use pybench_types::id::Digest;
use pybench_types::trajectory::Role;
use serde::Serialize;

use crate::Row;
pub use crate::row::RowHashes;

impl RowHashes {
    /// Compute the hashes from the contents of the row.
    pub fn of(row: &Row) -> Self {
        let prompts = row.messages.iter();
        let prompts: Vec<_> = prompts
            .take_while(|message| message.role != Role::Assistant)
            .collect();
        let files = row.files.iter().map(|file| (&file.name, &file.blake3));
        let strings = |digests: &[Digest]| digests.iter().map(Digest::to_string).collect();
        Self {
            query: Digest::of_bytes(row.query.as_bytes()).to_string(),
            prompts: digest(&prompts),
            teacher: Digest::of_bytes(row.teacher.as_bytes()).to_string(),
            sampling: digest(&(&row.sampling, row.sample, row.seed)),
            environment: digest(&(&row.environment, &row.interpreter)),
            files: digest(&files.collect::<Vec<_>>()),
            outputs: digest(&row.outputs),
            grading: digest(&row.grading),
            checks: digest(&(&row.checks, &row.checker)),
            cells: strings(&row.cells),
            observations: strings(&row.observed),
            scrubbed: row.scrubbed,
            row: row_digest(row).to_string(),
        }
    }

    /// Names of the hashes that differ between the two.
    fn differing(&self, other: &Self) -> Vec<String> {
        let flat = |hashes: &Self| -> BTreeMap<String, serde_json::Value> {
            let value = serde_json::to_value(hashes).unwrap_or_default();
            serde_json::from_value(value).unwrap_or_default()
        };
        let (mine, theirs) = (flat(self), flat(other));
        let differs = |name: &&String| mine.get(*name) != theirs.get(*name);
        mine.keys().filter(differs).cloned().collect()
    }
}

fn digest<T: Serialize>(value: &T) -> String {
    Digest::of_json(value).to_string()
}

/// Digest of all columns of a row.
pub fn row_digest(row: &Row) -> Digest {
    Digest::of_json(row)
}

/// Inconsistencies within a row, as messages: stored hashes that do not match the contents, and ids that do not
/// follow from the contents. Empty if the row is as it was written.
pub fn problems(row: &Row) -> Vec<String> {
    let mut problems = Vec::new();
    match &row.stored {
        None => problems.push("it has no hashes".to_owned()),
        Some(stored) => {
            let differing = RowHashes::of(row).differing(stored);
            if !differing.is_empty() {
                let names = differing.join(", ");
                problems.push(format!("stored hashes do not match its contents: {names}"));
            }
        }
    }
    // A scrubbed row keeps the ids of the original task.
    if row.scrubbed == 0 && row.task().id != row.task_id {
        problems.push("its task_id does not match its query, files and checks".to_owned());
    }
    if row.compute_trajectory_id() != row.trajectory_id {
        problems.push("its trajectory_id does not match its task, teacher and sampling".to_owned());
    }
    if row.compute_seed() != row.seed {
        problems.push("its seed does not match its task, model and sampling".to_owned());
    }
    problems
}

/// Digest of a dataset: a hash over the digests of its rows, in order, split by split.
#[derive(Clone, Debug, Default)]
pub struct DatasetDigest(blake3::Hasher);

impl DatasetDigest {
    /// Add the digest of the next row of `split`.
    pub fn add(&mut self, split: &str, row: &Digest) {
        let line = format!("{split} {row}\n");
        self.0.update(line.as_bytes());
    }

    /// The digest of the rows added so far.
    pub fn digest(&self) -> Digest {
        let hex = self.0.finalize().to_hex().to_string();
        // A BLAKE3 hash has 64 hexadecimal digits, so this cannot fail.
        Digest::try_from(hex).unwrap_or_else(|_| Digest::of_bytes(b""))
    }
}
