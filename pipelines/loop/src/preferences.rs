//! Preference pairs from one state: what the student did there, and what the correction does.

use pybench_agent::contrast;
use pybench_datasets::preference::{Preference, to_jsonl, write_parquet};
use pybench_datasets::{Row, read};
use pybench_run::artifacts::TRAJECTORIES;
use pybench_run::{RunContext, RunError};
use pybench_shard::DATASET;
use pybench_types::human_edit::HUMAN_EDITED;
use pybench_types::trajectory::{Message, Role, Trajectory};

/// File name of the pairs in the run folder of a round, in the conversational format of TRL's preference datasets.
pub(crate) const PREFERENCES: &str = "preferences.jsonl";

/// The same pairs in Parquet.
const PARQUET: &str = "preferences.parquet";

/// Writes the pairs of a round and returns their number. The edit of a person gives none, since the person decides whether
/// it is a pair.
///
/// # Errors
/// The dataset or the trajectories cannot be read; I/O errors.
pub(crate) fn write(context: &RunContext) -> Result<usize, RunError> {
    let root = context.folder.root();
    let attempts = TRAJECTORIES.index(root, |trajectory| Ok(trajectory.id.to_string()))?;
    let bad = |error: pybench_datasets::DatasetError| RunError::BadInput(error.to_string());
    let mut pairs = Vec::new();
    for row in read::dataset(&root.join(DATASET)).map_err(bad)? {
        let (_, row) = row.map_err(bad)?;
        if row.teacher.starts_with(HUMAN_EDITED) {
            continue;
        }
        let Some(id) = row.student_trajectory_id() else {
            continue;
        };
        let student = attempts.get(id.as_str())?;
        pairs.extend(student.and_then(|student| pair(&row, &student)));
    }
    let text = to_jsonl(&pairs)?;
    context.folder.write(PREFERENCES, text.as_bytes())?;
    write_parquet(&root.join(PARQUET), &pairs)?;
    Ok(pairs.len())
}

/// The pair of a correction and the attempt that it corrects.
fn pair(row: &Row, student: &Trajectory) -> Option<Preference> {
    let replies = || {
        let messages = row.messages.iter().enumerate();
        messages.filter(|(_, message)| message.role == Role::Assistant)
    };
    let kept = replies().take_while(|(_, reply)| !reply.trained).count();
    let (_, first) = replies().nth(kept)?;
    let task = (&*row.grading.outputs, row.language);
    let contrast = contrast(student, task, kept, &first.content)?;
    let (at, _) = replies().nth(contrast.turn)?;
    let mut messages = row.messages[..at].to_vec();
    messages.push(Message::new(Role::Assistant, contrast.better));
    let rejected = &student.turns.get(contrast.turn)?.reply;
    let (tools, task) = (row.tools.clone(), row.task_id.clone());
    Preference::new(&messages, at, rejected, tools, task)
}
