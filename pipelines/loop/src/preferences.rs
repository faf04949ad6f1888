//! Preference pairs from one state: what the student did there, and what the correction does.

use pybench_datasets::preference::{Preference, to_jsonl, write_parquet};
use pybench_datasets::{Row, read};
use pybench_run::artifacts::TRAJECTORIES;
use pybench_run::{RunContext, RunError};
use pybench_shard::DATASET;
use pybench_types::human_edit::HUMAN_EDITED;
use pybench_types::trajectory::Role;

/// File name of the pairs in the run folder of a round, in the conversational format of TRL's preference datasets.
pub(crate) const PREFERENCES: &str = "preferences.jsonl";

/// The same pairs in Parquet.
const PARQUET: &str = "preferences.parquet";

/// Writes the pairs of a round and returns their number. A correction after the student's last turn gives none; nor does the
/// edit of a person, who decides whether it is a pair.
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
        let replies = student.map(|student| student.turns.into_iter().map(|turn| turn.reply));
        pairs.extend(replies.and_then(|replies| pair(&row, &replies.collect::<Vec<_>>())));
    }
    let text = to_jsonl(&pairs)?;
    context.folder.write(PREFERENCES, text.as_bytes())?;
    write_parquet(&root.join(PARQUET), &pairs)?;
    Ok(pairs.len())
}

/// The pair at the end of a correction's context; `student` has all replies of the attempt that it corrects.
fn pair(row: &Row, student: &[String]) -> Option<Preference> {
    let replies = row.messages.iter().filter(|m| m.role == Role::Assistant);
    let context = replies.take_while(|reply| !reply.trained).count();
    let mut own = row.messages.iter();
    let at = own.position(|m| m.role == Role::Assistant && m.trained)?;
    let rejected = student.get(context)?;
    let (tools, task) = (row.tools.clone(), row.task_id.clone());
    Preference::new(&row.messages, at, rejected, tools, task)
}
