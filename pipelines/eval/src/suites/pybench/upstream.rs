//! The upstream files of PyBench: prompts, inputs and unit tests, from a checkout or its `data` folder.
//!
//! The files are untrusted; their size is checked before they are read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use pybench_datasets::decontaminate::BenchmarkTask;
use pybench_run::RunError;
use pybench_run::project::invocation;
use pybench_types::id::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::answers::table;

/// Maximum size of the task list, in bytes.
const MAX_TASKS: u64 = 16 << 20;
/// Maximum size of an input file, in bytes.
const MAX_INPUT: u64 = 256 << 20;
/// Maximum size of the unit tests, in bytes.
const MAX_TESTS: u64 = 4 << 20;

/// Prompts, inputs and unit tests of PyBench.
#[derive(Clone, Debug)]
pub struct Upstream {
    data: PathBuf,
    task_file: PathBuf,
    rows: BTreeMap<u32, TaskRow>,
    tests: Option<UnitTests>,
}

/// One entry of upstream's `task.json`; unknown fields are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Task number, as text.
    pub index: String,
    /// Prompt.
    pub user: String,
    /// Paths of the input files, such as `./data/2.csv`.
    #[serde(default)]
    pub file_paths: Vec<String>,
    /// Upstream's coarse category.
    #[serde(default, rename = "category1")]
    pub category: String,
    /// All other fields.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Upstream's `tests.py`, with functions `test_task_N(trajectory)`.
#[derive(Clone, Debug)]
pub struct UnitTests {
    pub path: PathBuf,
    /// Digest of the file.
    pub digest: Digest,
    /// Source of each test function by task number. The last definition counts, as in Python.
    functions: BTreeMap<u32, String>,
}

impl Upstream {
    /// Opens a checkout, or a folder that contains `meta/task.json`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if files are missing or invalid.
    pub fn open(folder: &Path) -> Result<Self, RunError> {
        let data = match folder.join("data").is_dir() {
            true => folder.join("data"),
            false => folder.to_owned(),
        };
        let task_file = data.join("meta/task.json");
        let tests = data.join("unit_test/tests.py");
        let tests = match tests.is_file() {
            true => Some(UnitTests::read(&tests)?),
            false => None,
        };
        Ok(Self {
            rows: read_rows(&task_file)?,
            data,
            task_file,
            tests,
        })
    }

    /// Replaces the list of tasks (upstream's `--task_path`).
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the list is missing or invalid.
    pub fn with_tasks(mut self, task_file: &Path) -> Result<Self, RunError> {
        self.rows = read_rows(task_file)?;
        self.task_file = task_file.to_owned();
        Ok(self)
    }

    /// Replaces the unit tests.
    pub fn with_tests(mut self, tests: UnitTests) -> Self {
        self.tests = Some(tests);
        self
    }

    /// Path of the list of tasks.
    pub fn task_file(&self) -> &Path {
        &self.task_file
    }

    /// The entry of a task in the list of tasks.
    pub fn row(&self, index: u32) -> Option<&TaskRow> {
        self.rows.get(&index)
    }

    /// The unit tests, if they are present.
    pub fn tests(&self) -> Option<&UnitTests> {
        self.tests.as_ref()
    }

    /// Path of the input `data/NAME`; `None` if it is missing.
    pub fn input(&self, path: &str) -> Option<PathBuf> {
        let name = Path::new(path.strip_prefix("data/")?);
        let plain = name.components().count() == 1 && name.file_name().is_some();
        let found = self.data.join(name);
        (plain && found.is_file()).then_some(found)
    }

    /// Contents of an input; `None` if it is missing.
    pub fn bytes(&self, path: &str) -> Option<Result<Vec<u8>, String>> {
        Some(read_limited(&self.input(path)?, MAX_INPUT))
    }

    /// The prompts of all tasks, and their inputs with the tables in them.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if an input cannot be read. Missing ones are left out.
    pub fn contents(&self) -> Result<Vec<BenchmarkTask>, RunError> {
        let mut tasks = Vec::new();
        for row in self.rows.values() {
            let mut task = BenchmarkTask {
                suite: super::SUITE.to_owned(),
                index: row.index.clone(),
                query: row.user.clone(),
                ..BenchmarkTask::default()
            };
            for path in &row.file_paths {
                let path = path.trim_start_matches("./");
                if let Some(bytes) = self.bytes(path) {
                    let bytes = bytes.map_err(RunError::BadInput)?;
                    task.files.push(Digest::of_bytes(&bytes));
                    task.tables.extend(table(path, &bytes));
                }
            }
            tasks.push(task);
        }
        Ok(tasks)
    }

    /// Digest of an input; `None` if it is missing.
    pub fn digest(&self, path: &str) -> Option<Result<Digest, String>> {
        Some(self.bytes(path)?.map(|bytes| Digest::of_bytes(&bytes)))
    }
}

fn read_rows(path: &Path) -> Result<BTreeMap<u32, TaskRow>, RunError> {
    let shown = path.display();
    if !path.is_file() {
        return Err(RunError::BadInput(format!(
            "{shown} does not exist: run `{} eval fetch` to download PyBench, or pass a checkout with `--pybench DIR`",
            invocation()
        )));
    }
    let bytes = read_limited(path, MAX_TASKS).map_err(RunError::BadInput)?;
    parse_rows(&bytes).map_err(|problem| RunError::BadInput(format!("{shown}: {problem}")))
}

/// Parses upstream's `task.json`.
///
/// # Errors
/// Invalid JSON, an index that is not a number, or a duplicate index.
pub fn parse_rows(bytes: &[u8]) -> Result<BTreeMap<u32, TaskRow>, String> {
    let rows: Vec<TaskRow> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut by_index = BTreeMap::new();
    for row in rows {
        let index = row.index.parse();
        let index: u32 = index.map_err(|_| format!("the index `{}` is not a number", row.index))?;
        if by_index.insert(index, row).is_some() {
            return Err(format!("task {index} is listed twice"));
        }
    }
    Ok(by_index)
}

impl UnitTests {
    /// Reads a file of tests without running it.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file cannot be read or contains no test.
    pub fn read(path: &Path) -> Result<Self, RunError> {
        let bytes = read_limited(path, MAX_TESTS).map_err(RunError::BadInput)?;
        let functions = functions(&String::from_utf8_lossy(&bytes));
        if functions.is_empty() {
            return Err(RunError::BadInput(format!(
                "{}: the file contains no function test_task_N(trajectory)",
                path.display()
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            digest: Digest::of_bytes(&bytes),
            functions,
        })
    }

    /// The source of a task's test.
    pub fn function(&self, index: u32) -> Option<&str> {
        self.functions.get(&index).map(String::as_str)
    }
}

/// The source of each function `test_task_N` by task number: from `def` at the start of a line to the next
/// line that is not indented.
pub fn functions(source: &str) -> BTreeMap<u32, String> {
    let mut functions: BTreeMap<u32, String> = BTreeMap::new();
    let mut current = None;
    for line in source.lines() {
        let starts = line.strip_prefix("def test_task_");
        if let Some(rest) = starts {
            current = rest
                .split_once('(')
                .and_then(|(number, _)| number.parse().ok());
            current.iter().for_each(|index| {
                functions.insert(*index, String::new());
            });
        } else if !line.is_empty() && !line.starts_with([' ', '\t', '#', ')']) {
            current = None;
        }
        if let Some(text) = current.and_then(|index| functions.get_mut(&index)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    functions
}

fn read_limited(path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let wrap = |error: std::io::Error| format!("{}: {error}", path.display());
    let size = fs::metadata(path).map_err(wrap)?.len();
    if size > max {
        return Err(format!(
            "{}: the file is larger than {} MiB",
            path.display(),
            max >> 20
        ));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(wrap)?;
    file.take(max).read_to_end(&mut bytes).map_err(wrap)?;
    Ok(bytes)
}

/// Opens PyBench from the first of: `folder`, `$PYBENCH_DATA`, the checkout of `pybench eval fetch`, and
/// `shared/pybench` next to the project. `$PYBENCH_UPSTREAM`, if set, provides the unit tests.
///
/// # Errors
/// [`RunError::BadInput`] if none of them exists, with how to get PyBench.
pub fn find(
    folder: Option<&Path>,
    fetched: &Path,
    project: Option<&Path>,
) -> Result<Upstream, RunError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = folder.map(Path::to_owned);
    let folder = folder.or_else(|| variable("PYBENCH_DATA").map(PathBuf::from));
    let next_to_project = project.map(|root| root.join("../shared/pybench"));
    let folder = folder.or_else(|| {
        let exists = |folder: &PathBuf| folder.join("data/meta/task.json").is_file();
        [Some(fetched.to_owned()), next_to_project]
            .into_iter()
            .flatten()
            .find(exists)
    });
    let folder = folder.ok_or_else(|| {
        RunError::BadInput(format!(
            "PyBench was not found: run `{} eval fetch` to download it, or pass a checkout with `--pybench DIR`",
            invocation()
        ))
    })?;
    let upstream = Upstream::open(&folder)?;
    match variable("PYBENCH_UPSTREAM").map(PathBuf::from) {
        None => Ok(upstream),
        Some(path) if path.is_dir() => {
            let tests = UnitTests::read(&path.join("data/unit_test/tests.py"))?;
            Ok(upstream.with_tests(tests))
        }
        Some(path) => Ok(upstream.with_tests(UnitTests::read(&path)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_definition_of_a_function_counts() {
        let source = "import os\ndef test_task_2(t):\n    a = 1\n\ndef help():\n    pass\n\
                      def test_task_2(t):\n    '''doc'''\n\n    b = 2\nx = 1\n    c\n";
        let found = functions(source);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[&2],
            "def test_task_2(t):\n    '''doc'''\n\n    b = 2\n"
        );
    }

    #[test]
    fn inputs_are_plain_file_names() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("data/meta")).unwrap();
        fs::write(folder.path().join("data/meta/task.json"), "[]").unwrap();
        fs::write(folder.path().join("secret"), "x").unwrap();
        fs::write(folder.path().join("data/a.csv"), "x").unwrap();
        let upstream = Upstream::open(folder.path()).unwrap();
        assert!(upstream.input("data/a.csv").is_some());
        for path in [
            "data/../secret",
            "secret",
            "data/",
            "data/meta/task.json",
            "data/b",
        ] {
            assert!(upstream.input(path).is_none(), "{path}");
        }
    }

    #[test]
    fn invalid_task_lists_are_reported() {
        for (text, problem) in [
            ("{}", "expected a sequence"),
            (r#"[{"index": "a", "user": ""}]"#, "is not a number"),
            (
                r#"[{"index": "1", "user": ""}, {"index": "1", "user": ""}]"#,
                "listed twice",
            ),
        ] {
            let error = parse_rows(text.as_bytes()).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn fuzz_rows_and_tests() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = parse_rows(bytes);
            let _ = functions(&String::from_utf8_lossy(bytes));
        });
    }
}
