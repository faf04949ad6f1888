//! What a conversation is about: the task of a trajectory, with its files.

use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::task::Task;

use crate::handlers::{ApiError, found, record};
use crate::record::Record;
use crate::sources::Opened;

/// Maximum size of all files, bytes.
const MAX_FILES: usize = 128 << 20;

/// A task to talk about.
pub(crate) struct Topic {
    pub(crate) query: String,
    /// Input files by name.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// Files that only the checker sees.
    pub(crate) held_out: Vec<Vec<u8>>,
    /// The task, if its checks are known.
    pub(crate) task: Option<Box<Task>>,
}

impl Topic {
    /// The task of the trajectory with this number.
    ///
    /// # Errors
    /// There is no such trajectory, or the source lacks one of the files.
    pub(crate) fn read(opened: &Opened, number: u64) -> Result<Self, ApiError> {
        let mut reader = FileReader {
            opened,
            left: MAX_FILES,
        };
        let (_, json) = record(opened, &number.to_string())?;
        let record: Record = serde_json::from_str(&json).map_err(RunError::from)?;
        if let Record::Run {
            task: Some(task), ..
        } = record
        {
            let mut files = Vec::new();
            for file in &task.files {
                files.push((file.name.clone(), reader.read(&file.name, &file.id)?));
            }
            let mut held_out = Vec::new();
            for file in &task.held_out {
                held_out.push(reader.read(&file.name, &file.id)?);
            }
            return Ok(Self {
                query: task.query.clone(),
                files,
                held_out,
                task: Some(task),
            });
        }
        let view = found(opened, &number.to_string(), |number| {
            opened.index.view(number, 1)
        })?;
        let mut files = Vec::new();
        for file in view.files {
            let id = Digest::try_from(file.id).map_err(|_| missing(&file.name))?;
            let bytes = reader.read(&file.name, &id)?;
            files.push((file.name, bytes));
        }
        Ok(Self {
            query: view.query,
            files,
            held_out: Vec::new(),
            task: None,
        })
    }
}

/// Reads files of a source, together at most so many bytes.
struct FileReader<'a> {
    opened: &'a Opened,
    left: usize,
}

impl FileReader<'_> {
    fn read(&mut self, name: &str, id: &Digest) -> Result<Vec<u8>, RunError> {
        if !self.opened.has(id.as_str()) {
            return Err(missing(name));
        }
        let bytes = self.opened.file(id)?;
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(|| {
            RunError::BadInput(format!(
                "the files of the task are larger than {} MiB; begin the conversation with `pybench chat --task`",
                MAX_FILES >> 20
            ))
        })?;
        Ok(bytes)
    }
}

fn missing(name: &str) -> RunError {
    RunError::BadInput(format!(
        "the file {name:?} of the task is not stored here, so a conversation about it cannot begin; open the run that it was \
         made in"
    ))
}
