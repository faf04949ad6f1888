//! Tasks with their references and files in a folder, for a reward service that cannot make them again.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use pybench_files::open_regular;
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::{Task, TaskFile};

use super::tree::Tree;

const TASKS: &str = "tasks.jsonl";
const FILES: &str = "files";

/// Tasks with their references, and a folder with their files.
#[derive(Debug, Default)]
pub(crate) struct StoredTasks {
    tasks: HashMap<Digest, Task>,
    files: PathBuf,
}

impl StoredTasks {
    /// Writes tasks and their files below `folder` of a tree.
    pub(super) fn write<'a>(
        tree: &Tree,
        folder: &str,
        tasks: impl Iterator<Item = &'a Task>,
        store: &ContentStore,
    ) -> Result<(), RunError> {
        let mut lines = String::new();
        for task in tasks {
            lines.push_str(&serde_json::to_string(task)?);
            lines.push('\n');
            for file in files(task) {
                let path = format!("{folder}{FILES}/{}", file.id);
                tree.file(&path, store.get(&file.id)?)?;
            }
        }
        tree.file(&format!("{folder}{TASKS}"), lines)
    }

    /// Reads a folder that [`StoredTasks::write`] wrote.
    ///
    /// # Errors
    /// [`RunError::BadInput`] with the line if it is not one, or lacks a file of a task.
    pub(crate) fn read(folder: &Path) -> Result<Self, RunError> {
        let path = folder.join(TASKS);
        let way_out = "give the folder `rewards` that `pybench compose --verifiers DIR` wrote";
        let text = fs::read_to_string(&path).map_err(|error| {
            RunError::BadInput(format!("--tasks: {}: {error}; {way_out}", path.display()))
        })?;
        let found = Self {
            tasks: HashMap::new(),
            files: folder.join(FILES),
        };
        text.lines().enumerate().try_fold(found, |mut found, line| {
            let (number, line) = line;
            let place = |problem: String| {
                let path = path.display();
                RunError::BadInput(format!(
                    "--tasks: {path}:{}: {problem}; {way_out}",
                    number + 1
                ))
            };
            let task: Task =
                serde_json::from_str(line).map_err(|error| place(error.to_string()))?;
            if let Some(file) = files(&task).find(|file| !found.path(file).is_file()) {
                return Err(place(format!("{} is missing", found.path(file).display())));
            }
            found.tasks.insert(task.id.clone(), task);
            Ok(found)
        })
    }

    /// The task of this id, whose files are added to `store`; `None` if it is another one's.
    ///
    /// # Errors
    /// A file cannot be read, or has changed.
    pub(crate) fn task(&self, id: &Digest, store: &ContentStore) -> Result<Option<Task>, RunError> {
        let Some(task) = self.tasks.get(id) else {
            return Ok(None);
        };
        for file in files(task) {
            let path = self.path(file);
            let mut bytes = Vec::new();
            let read = open_regular(&path)
                .and_then(|mut open| std::io::Read::read_to_end(&mut open, &mut bytes));
            read.map_err(RunError::io(path.display().to_string()))?;
            if store.put(&bytes)? != file.id {
                let text = format!("{} has changed", path.display());
                return Err(RunError::BadInput(text));
            }
        }
        Ok(Some(task.clone()))
    }

    fn path(&self, file: &TaskFile) -> PathBuf {
        self.files.join(file.id.as_str())
    }
}

/// All files of a task: those that agents get, and those that only the checks see.
fn files(task: &Task) -> impl Iterator<Item = &TaskFile> {
    task.files.iter().chain(&task.held_out)
}
