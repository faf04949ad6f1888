//! Reads the held-out tasks of a run: of a loop, or the test split of a dataset.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use pybench_datasets::{DatasetError, read};
use pybench_hub::fetch_any;
use pybench_run::artifacts::{HELD_OUT, TASKS};
use pybench_run::run_selection::stage_command;
use pybench_run::{ContentStore, RunError, default_cache_dir, files_at};
use pybench_types::held_out::{HeldOutTask, Unseen};
use pybench_types::id::Digest;

use super::Setup;
use crate::suite::Selection;

/// Name of the suite of tasks of which only the files are unseen.
const SUITE: &str = "library";

/// Maximum size of an input file that is read from a bucket, in bytes.
const MAX_INPUT_BYTES: u64 = 1 << 30;

/// Reads the held-out tasks of a run, in its order, and copies their files to those of the evaluation. The run is a folder, or
/// the address of a run in a bucket.
///
/// # Errors
/// [`RunError::BadInput`] if the run or its dataset does not exist or is invalid; errors of the bucket.
pub(super) async fn held_out(setup: &Setup, run: &Path) -> Result<Vec<HeldOutTask>, RunError> {
    if run.starts_with("hf:") {
        return Err(RunError::BadInput(format!(
            "library: {} is not a run; name a run folder, or the address of a run in a bucket",
            run.display()
        )));
    }
    let copy = fetch_any(run, &default_cache_dir()).await?;
    let folder = copy.unwrap_or_else(|| setup.project_root.join(run));
    let files = ContentStore::open(&folder.join("files"))?.with_remote(files_at(run)?);
    read_run(&folder, &files, setup.folder.store())
}

fn read_run(
    run: &Path,
    source: &ContentStore,
    store: &ContentStore,
) -> Result<Vec<HeldOutTask>, RunError> {
    let tasks = of_run(run)?;
    for HeldOutTask { task, .. } in &tasks {
        for file in task.files.iter().chain(&task.held_out) {
            source.fetch_remote(&file.id, MAX_INPUT_BYTES)?;
            let id = store.put(&source.get(&file.id)?)?;
            if id != file.id {
                return Err(RunError::BadInput(format!(
                    "{}: the content of {}, an input of task {}, does not match its digest",
                    run.display(),
                    file.name,
                    task.id.short()
                )));
            }
        }
    }
    Ok(tasks)
}

/// At most `max_tasks` of each suite, in their order.
pub(super) fn draw(tasks: Vec<HeldOutTask>, selection: &Selection) -> Vec<HeldOutTask> {
    let mut by_suite: BTreeMap<Unseen, Vec<(usize, HeldOutTask)>> = BTreeMap::new();
    for (at, held_out) in tasks.into_iter().enumerate() {
        let own = by_suite.entry(held_out.unseen).or_default();
        own.push((at, held_out));
    }
    let name = |(_, held_out): &(usize, HeldOutTask)| held_out.task.id.to_string();
    let drawn = by_suite.into_values();
    let mut drawn: Vec<_> = drawn.flat_map(|own| selection.draw(own, name)).collect();
    drawn.sort_by_key(|(at, _)| *at);
    drawn.into_iter().map(|(_, held_out)| held_out).collect()
}

/// The suite in which tasks are reported: `library`, or where something besides the files is unseen, for example
/// `library: unseen pairs`.
pub(super) fn suite(unseen: Unseen) -> String {
    match unseen {
        Unseen::Files => SUITE.to_owned(),
        other => format!("{SUITE}: unseen {}", other.name()),
    }
}

/// What is unseen of the held-out tasks in this suite; `None` if it is another suite.
pub fn unseen_of(name: &str) -> Option<Unseen> {
    Unseen::ALL
        .into_iter()
        .find(|unseen| suite(*unseen) == name)
}

/// The held-out tasks of a run: those that a loop keeps from its rounds, or those of the test split of its dataset.
fn of_run(run: &Path) -> Result<Vec<HeldOutTask>, RunError> {
    if HELD_OUT.exists(run) {
        return HELD_OUT.read_all(run);
    }
    let unseen = test_tasks(&run.join("dataset"))?;
    let mut tasks = Vec::new();
    for task in TASKS.read(run)? {
        let task = task?;
        if let Some(&unseen) = unseen.get(&task.id) {
            tasks.push(HeldOutTask { unseen, task });
        }
    }
    Ok(tasks)
}

/// The tasks in the test split of a dataset, with what training rows lack of them.
fn test_tasks(dataset: &Path) -> Result<HashMap<Digest, Unseen>, RunError> {
    let wrong = |error: DatasetError| {
        let run = dataset.parent().unwrap_or(dataset);
        RunError::BadInput(format!(
            "{error}; run `{}` to make the dataset",
            stage_command(run, "synthesize")
        ))
    };
    let mut tasks = HashMap::new();
    let shards = read::shards(dataset).map_err(wrong)?;
    for shard in shards.iter().filter(|shard| shard.split == "test") {
        for row in read::rows(&shard.path).map_err(wrong)? {
            let row = row.map_err(wrong)?;
            // Older datasets do not say what is unseen.
            let unseen = Unseen::named(&row.unseen).unwrap_or(Unseen::Files);
            tasks.insert(row.task_id, unseen);
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pybench_run::{FolderStore, Store};
    use pybench_types::task::{FileKind, TaskFile};

    use super::*;

    #[test]
    fn inputs_that_only_the_bucket_of_the_run_has_are_fetched_and_checked() {
        let [run, bucket, evaluation] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let objects = ContentStore::open(&bucket.path().join("files")).unwrap();
        let id = objects.put(b"input").unwrap();
        let mut task = pybench_testing::task::task();
        task.files.push(TaskFile {
            name: "input.csv".to_owned(),
            id: id.clone(),
            kind: FileKind::Csv,
            origin: String::new(),
            license: None,
            derived_from: None,
            format: None,
        });
        let held_out = HeldOutTask {
            unseen: Unseen::Files,
            task,
        };
        let line = serde_json::to_string(&held_out).unwrap();
        std::fs::write(HELD_OUT.path(run.path()), line + "\n").unwrap();
        let remote: Arc<dyn Store> = Arc::new(FolderStore::new(bucket.path()));
        let source = ContentStore::open(&run.path().join("files")).unwrap();
        let source = source.with_remote(Some(remote));
        let store = ContentStore::open(evaluation.path()).unwrap();
        let read = || read_run(run.path(), &source, &store);
        std::fs::write(objects.path(&id), "other").unwrap();
        let error = read().unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
        assert!(!source.path(&id).exists() && !store.path(&id).exists());
        std::fs::write(objects.path(&id), "input").unwrap();
        assert_eq!(read().unwrap(), [held_out]);
        assert_eq!(store.get(&id).unwrap(), b"input");
    }

    #[test]
    fn what_is_unseen_names_the_suite() {
        assert_eq!(suite(Unseen::Files), "library");
        assert_eq!(suite(Unseen::Operations), "library: unseen operations");
        assert_eq!(unseen_of("library: unseen pairs"), Some(Unseen::Pairs));
        assert_eq!(unseen_of("pybench"), None);
    }

    #[test]
    fn as_many_tasks_of_each_suite_are_drawn() {
        let held_out = |number: usize| {
            let unseen = if number < 40 {
                Unseen::Files
            } else {
                Unseen::Pairs
            };
            let mut task = pybench_testing::task::task();
            task.id = Digest::of_json(&number);
            HeldOutTask { unseen, task }
        };
        let tasks: Vec<HeldOutTask> = (0..45).map(held_out).collect();
        let drawn = |max_tasks: Option<usize>| {
            let selection = Selection {
                max_tasks,
                ..Selection::default()
            };
            draw(tasks.clone(), &selection)
        };
        assert_eq!(drawn(None), tasks);
        let some = drawn(Some(10));
        let files = some.iter().filter(|task| task.unseen == Unseen::Files);
        assert_eq!((files.count(), some.len()), (10, 15));
        assert_eq!(some[10..], tasks[40..]);
    }
}
