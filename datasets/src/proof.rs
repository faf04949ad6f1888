//! What a row says of itself so that others can check it: hashes beside the row, one of the whole row,
//! and one of the whole dataset.

use std::collections::BTreeMap;

use pybench::id::Digest;
use pybench::trajectory::Role;
use serde::Serialize;

use crate::Row;

/// The hashes beside a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Of the query.
    pub query: String,
    /// Of the messages before the first reply: system prompt, files, query.
    pub prompts: String,
    /// Of the teacher's name.
    pub teacher: String,
    /// Of the sampling parameters, the sample number and the seed.
    pub sampling: String,
    /// Of the environment's digest and the bounds of the sessions.
    pub environment: String,
    /// Of names and contents of the input files.
    pub files: String,
    /// Of paths and contents of the files the code left.
    pub outputs: String,
    /// Of reference, checks and held-out files.
    pub grading: String,
    /// Of what the checks came to.
    pub checks: String,
    /// Of each cell that was run.
    pub cells: Vec<String>,
    /// Of all that each cell showed.
    pub observations: Vec<String>,
    /// Places where the scrubber put something else.
    pub scrubbed: u32,
    /// Of every column: a row changed by one character has another.
    pub row: String,
}

impl Proof {
    /// The hashes of what the row holds.
    pub fn of(row: &Row) -> Self {
        let opening = row.messages.iter();
        let opening: Vec<_> = opening
            .take_while(|message| message.role != Role::Assistant)
            .collect();
        let files = row.files.iter().map(|file| (&file.name, &file.blake3));
        let strings = |digests: &[Digest]| digests.iter().map(Digest::to_string).collect();
        Self {
            query: Digest::of_bytes(row.query.as_bytes()).to_string(),
            prompts: digest(&opening),
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

    /// Names of the hashes in which two proofs differ.
    fn differing(&self, other: &Self) -> Vec<String> {
        let flat = |proof: &Self| -> BTreeMap<String, serde_json::Value> {
            let value = serde_json::to_value(proof).unwrap_or_default();
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

/// Digest of every column of a row.
pub fn row_digest(row: &Row) -> Digest {
    Digest::of_json(row)
}

/// What is wrong with a row by itself, in words; empty where it is as it was written. Needs nothing
/// but the row: hashes that do not fit, ids that do not follow from what they are ids of.
pub fn flaws(row: &Row) -> Vec<String> {
    let mut flaws = Vec::new();
    match &row.stored {
        None => flaws.push("it carries no hashes".to_owned()),
        Some(stored) => {
            let differing = Proof::of(row).differing(stored);
            if !differing.is_empty() {
                let names = differing.join(", ");
                flaws.push(format!("its hashes do not fit: {names}"));
            }
        }
    }
    // Where secrets were taken out, the ids are still those of the task as it was.
    if row.scrubbed == 0 && row.task().id != row.task_id {
        flaws.push("its task_id is not that of its query, files and checks".to_owned());
    }
    if row.compute_trajectory_id() != row.trajectory_id {
        flaws.push("its trajectory_id is not that of its task, teacher and sampling".to_owned());
    }
    if row.trajectory_id.seed() != row.seed {
        flaws.push("its seed is not that of its trajectory_id".to_owned());
    }
    flaws
}

/// Digest of a dataset: of the digests of its rows, in their order, split by split.
#[derive(Clone, Debug, Default)]
pub struct Root(blake3::Hasher);

impl Root {
    /// Add the next row of that split.
    pub fn add(&mut self, split: &str, row: &Digest) {
        let line = format!("{split} {row}\n");
        self.0.update(line.as_bytes());
    }

    /// The digest of the rows so far.
    pub fn digest(&self) -> Digest {
        let hex = self.0.finalize().to_hex().to_string();
        // Sixty-four digits by construction.
        Digest::try_from(hex).unwrap_or_else(|_| Digest::of_bytes(b""))
    }
}
