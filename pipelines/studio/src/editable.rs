//! Which recorded trajectories can be edited, and why others cannot.

use pybench_eval::run::unseen_of;
use pybench_types::id::Digest;

use crate::record::Record;
use crate::row::text;

/// Why a trajectory cannot be edited, as a clause; `None` if nothing in its record speaks against it. The files and the run of
/// a row are looked for when an edit begins.
pub(crate) fn edit_problem(record: &Record) -> Option<String> {
    let problem = match record {
        Record::Run { task: None, .. } => {
            "the task of this trajectory is not in the run, so its checks cannot run"
        }
        Record::Run { trajectory, .. } if trajectory.corrects.is_some() => {
            "this trajectory continues another one, so its session cannot be restored from it alone; edit the trajectory that \
             it continues"
        }
        Record::Run { .. } => return None,
        Record::Evaluation {
            trajectory: None, ..
        } => "this attempt has no trajectory that could be read",
        Record::Evaluation { attempt, .. } if unseen_of(&attempt.suite).is_none() => {
            return Some(format!(
                "an edit makes training data, which must never come from the benchmark `{}`; attempts at the tasks of a \
                 library can be edited",
                text(&attempt.suite)
            ));
        }
        Record::Evaluation { .. } => return None,
        Record::Dataset { .. } if row_trajectory(record).is_none() => {
            "the row does not name the trajectory that it was made from (`trajectory_id`), so its task and its checks are not \
             known"
        }
        Record::Dataset { .. } => return None,
        Record::Log { .. } => "a log has neither the files nor the checks of its tasks",
    };
    Some(problem.to_owned())
}

/// The id of the trajectory that a row of a dataset was made from.
pub(crate) fn row_trajectory(record: &Record) -> Option<Digest> {
    match record {
        Record::Dataset { metadata, .. } => {
            let id = metadata.get("trajectory_id")?;
            Digest::try_from(id.clone()).ok()
        }
        Record::Run { .. } | Record::Evaluation { .. } | Record::Log { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::evaluation::tests::a_trajectory;

    fn problem(record: Value) -> Option<String> {
        edit_problem(&serde_json::from_value(record).unwrap())
    }

    #[test]
    fn what_cannot_be_edited_is_said() {
        let row = |metadata: Value| {
            json!({"dataset": {"location": "a:1", "format": "", "metadata": metadata, "kinds": [], "files": [],
                "messages": []}})
        };
        let named = json!({"trajectory_id": "0".repeat(64)});
        assert_eq!(problem(row(named)), None);
        assert!(problem(row(json!({"trajectory_id": "7"}))).is_some());
        assert!(problem(row(json!({}))).is_some());

        let attempt = |suite: &str, trajectory: Value| {
            let attempt = json!({
                "agent": "a", "suite": suite, "task": "7", "category": "chart", "seed": 0, "turns": 1, "max_turns": 10,
                "outcome": {"outcome": "ran"}});
            json!({"evaluation": {"attempt": attempt, "trajectory": trajectory, "problem": ""}})
        };
        let trajectory = a_trajectory("m", "1");
        assert_eq!(problem(attempt("library", trajectory.clone())), None);
        assert!(problem(attempt("library", Value::Null)).is_some());
        let benchmark = problem(attempt("pybench", trajectory.clone())).unwrap();
        assert!(benchmark.contains("`pybench`"), "{benchmark}");

        let run = json!({"run": {"trajectory": trajectory, "task": null, "verdict": null}});
        assert!(problem(run).unwrap().contains("not in the run"));
    }
}
