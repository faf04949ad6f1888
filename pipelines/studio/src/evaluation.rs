//! The attempts of an evaluation, as records of the index.

use std::path::Path;

use pybench_eval::record::{Attempt, Evaluation};
use pybench_eval::run::RESULTS;
use pybench_run::{ContentStore, RunError};
use pybench_show::TrajectorySource;
use pybench_types::trajectory::Trajectory;

use crate::record::Record;

/// Maximum size of a stored trajectory, bytes.
const MAX_TRAJECTORY: u64 = 256 << 20;

/// The records of the evaluation in a run folder; `None` if it has none: another run, or an evaluation that goes on.
///
/// # Errors
/// [`RunError::BadInput`], with the line, if the records cannot be read.
pub(crate) fn read(folder: &Path) -> Result<Option<Evaluation>, RunError> {
    let path = folder.join(RESULTS);
    if !path.is_file() {
        return Ok(None);
    }
    let evaluation = Evaluation::read(&path);
    let evaluation = evaluation.map_err(|error| RunError::BadInput(error.to_string()))?;
    Ok(Some(evaluation))
}

/// Calls `visit` with every record of a source: each attempt of an evaluation, trajectory of a run, row of a dataset, or
/// sample of a log.
///
/// # Errors
/// The source cannot be read or is empty, or `visit` returns an error.
pub(crate) fn each_record(
    source: &TrajectorySource,
    visit: &mut dyn FnMut(Record) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let evaluation = match source {
        TrajectorySource::Run(folder) => read(folder)?.map(|found| (folder, found)),
        TrajectorySource::Dataset(_) | TrajectorySource::InspectLog(_) => None,
    };
    let Some((folder, evaluation)) = evaluation else {
        return source.each(&mut |record| visit(record.into()));
    };
    if evaluation.attempts.is_empty() {
        let path = folder.join(RESULTS);
        let text = format!("{} has no attempts", path.display());
        return Err(RunError::BadInput(text));
    }
    let store = ContentStore::open(&folder.join("files"))?;
    for attempt in evaluation.attempts {
        visit(record(attempt, &store))?;
    }
    Ok(())
}

fn record(attempt: Attempt, store: &ContentStore) -> Record {
    let (trajectory, problem) = match trajectory(&attempt, store) {
        Ok(trajectory) => (trajectory, String::new()),
        Err(problem) => (None, problem),
    };
    Record::Evaluation {
        attempt: Box::new(attempt),
        trajectory: trajectory.map(Box::new),
        problem,
    }
}

/// The trajectory of an attempt; `None` if it has none, because it did not run.
fn trajectory(attempt: &Attempt, store: &ContentStore) -> Result<Option<Trajectory>, String> {
    let Some(file) = &attempt.trajectory else {
        return Ok(None);
    };
    let size = std::fs::metadata(store.path(&file.id)).map_or(0, |metadata| metadata.len());
    if size > MAX_TRAJECTORY {
        return Err(format!(
            "the trajectory has {size} bytes; at most {MAX_TRAJECTORY} are shown"
        ));
    }
    let bytes = store.get(&file.id).map_err(|error| error.to_string())?;
    let trajectory = serde_json::from_slice(&bytes);
    trajectory
        .map(Some)
        .map_err(|error| format!("the trajectory {} cannot be parsed: {error}", file.id))
}

#[cfg(test)]
pub(crate) mod tests {
    use pybench_types::id::Digest;
    use serde_json::{Value, json};

    use super::*;

    /// A trajectory of one turn.
    pub(crate) fn a_trajectory(teacher: &str, code: &str) -> Value {
        let id = Digest::of_json(&(teacher, code));
        let usage = json!({"prompt_tokens": 5, "completion_tokens": 2});
        let output = json!({"output": "stream", "name": "stdout", "text": "1"});
        let observation = json!({"outputs": [output], "error": null, "stopped": null});
        json!({
            "id": id, "task": Digest::of_bytes(b"task"), "teacher": teacher, "sampling": {}, "sample": 0, "seed": 1,
            "environment": "e", "format": "pybench", "messages": [], "outputs": [], "end": {"end": "finished"},
            "turns": [{"reply": "r", "cell": code, "observation": observation, "usage": usage}],
        })
    }

    /// Writes the folder of an evaluation: an attempt for each agent, task and whether it passed.
    pub(crate) fn write(folder: &Path, attempts: &[(&str, &str, Option<bool>)]) {
        let store = ContentStore::open(&folder.join("files")).unwrap();
        let agent = json!({"kind": "model", "about": "made for a test"});
        let agents = attempts.iter().map(|(label, ..)| (*label, agent.clone()));
        let agents: std::collections::BTreeMap<_, _> = agents.collect();
        let mut lines = json!({
            "task_set": "made for a test", "tasks": Digest::of_bytes(b"tasks"), "checker": "c", "environment": "e",
            "prompts": "p", "limits": {}, "agents": agents,
        })
        .to_string();
        for (label, task, passed) in attempts {
            let trajectory = a_trajectory(label, task).to_string();
            let id = store.put(trajectory.as_bytes()).unwrap();
            let ran = json!({"outcome": "ran"});
            let failed = json!({"outcome": "infrastructure", "failure": "no sandbox"});
            let attempt = json!({
                "agent": label, "suite": "s", "task": task, "category": "chart", "seed": 0,
                "outcome": if passed.is_some() { ran } else { failed },
                "scores": {"strict": passed}, "turns": 1, "max_turns": 10, "tokens_in": 5, "tokens_out": 2,
                "prompt": format!("Do {task}."),
                "checks": [{"score": "strict", "name": "text output/a.txt", "passed": passed == &Some(true),
                    "expected": "1", "actual": "2"}],
                "trajectory": {"path": "trajectory.json", "id": id, "size": trajectory.len()},
            });
            lines += &format!("\n{attempt}");
        }
        std::fs::write(folder.join(RESULTS), lines).unwrap();
        pybench_run::Journal::open(&folder.join("journal.sqlite")).unwrap();
    }

    #[test]
    fn attempts_are_read_with_their_trajectories_or_the_reason_why_not() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[("a", "1", Some(true)), ("a", "2", Some(false))],
        );
        let source = TrajectorySource::Run(folder.path().to_owned());
        let records = || {
            let mut records = Vec::new();
            each_record(&source, &mut |record| {
                records.push(record);
                Ok(())
            })
            .unwrap();
            records
        };
        let found = records();
        assert_eq!(found.len(), 2);
        let Record::Evaluation {
            attempt,
            trajectory,
            problem,
        } = &found[1]
        else {
            panic!("{found:?}")
        };
        assert_eq!((&*attempt.task, &**problem), ("2", ""));
        assert_eq!(
            trajectory.as_ref().unwrap().turns[0].cell.as_deref(),
            Some("2")
        );
        let id = &attempt.trajectory.as_ref().unwrap().id;
        let store = ContentStore::open(&folder.path().join("files")).unwrap();
        std::fs::write(store.path(id), "{}").unwrap();
        let found = records();
        let Record::Evaluation {
            trajectory,
            problem,
            ..
        } = &found[1]
        else {
            panic!("{found:?}")
        };
        assert!(
            trajectory.is_none() && problem.contains("damaged"),
            "{problem}"
        );
    }

    #[test]
    fn a_bad_record_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("a", "1", Some(true))]);
        let path = folder.path().join(RESULTS);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}\n{{}}")).unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
    }
}
