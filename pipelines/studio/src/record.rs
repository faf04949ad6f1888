//! A trajectory of a run, an attempt of an evaluation, a row of a dataset, or a sample of a log, as the index keeps it.

use std::collections::BTreeMap;

use pybench_datasets::inspect_log::{LogHead, LogSample};
use pybench_eval::record::Attempt;
use pybench_show::TrajectoryRecord;
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Trajectory, Verdict};
use serde::{Deserialize, Serialize};

/// Columns of a dataset that the list shows.
const COLUMNS: [&str; 9] = [
    "task_id",
    "trajectory_id",
    "id",
    "category",
    "keyword",
    "template",
    "language",
    "teacher",
    "end",
];

/// Everything that is known of a trajectory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Record {
    Run {
        trajectory: Box<Trajectory>,
        task: Option<Box<Task>>,
        verdict: Option<Verdict>,
    },
    Evaluation {
        attempt: Box<Attempt>,
        /// `None` if it did not run, or its trajectory cannot be read.
        trajectory: Option<Box<Trajectory>>,
        /// Why the trajectory cannot be read; empty otherwise.
        problem: String,
    },
    Dataset {
        /// The row as `file:row`.
        location: String,
        /// Name of the message format.
        format: String,
        metadata: BTreeMap<String, String>,
        /// Types of the input files.
        kinds: Vec<String>,
        /// Input files: name and digest.
        files: Vec<(String, Digest)>,
        /// Tokens of all calls; 0 if they are unknown.
        #[serde(default)]
        tokens: u64,
        messages: Vec<Message>,
    },
    /// A sample of a log of inspect_ai.
    Log {
        head: Box<LogHead>,
        sample: Box<LogSample>,
    },
}

impl From<TrajectoryRecord> for Record {
    fn from(record: TrajectoryRecord) -> Self {
        match record {
            TrajectoryRecord::Trajectory {
                trajectory,
                task,
                verdict,
            } => Self::Run {
                trajectory,
                task,
                verdict,
            },
            TrajectoryRecord::Log { head, sample, .. } => Self::Log { head, sample },
            TrajectoryRecord::Row { sample } => {
                let column =
                    |name: &str| Some((name.to_owned(), sample.metadata(name)?.to_owned()));
                Self::Dataset {
                    format: sample.format().to_owned(),
                    metadata: COLUMNS.into_iter().filter_map(column).collect(),
                    location: sample.location,
                    kinds: sample.kinds,
                    files: sample.files,
                    tokens: sample.tokens,
                    messages: sample.messages,
                }
            }
        }
    }
}
