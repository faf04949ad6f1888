//! A checkout of the upstream repository, or its `data` folder: prompts, inputs, unit tests.
//!
//! Bytes from outside: sizes are bounded before anything is read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use pybench::id::Digest;
use pybench::run::RunError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Largest task file, bytes.
const MOST_TASKS: u64 = 16 << 20;
/// Largest input, bytes.
const MOST_INPUT: u64 = 256 << 20;
/// Largest file of unit tests, bytes.
const MOST_TESTS: u64 = 4 << 20;

/// Where prompts, inputs and tests lie.
#[derive(Clone, Debug)]
pub struct Upstream {
    data: PathBuf,
    task_file: PathBuf,
    rows: BTreeMap<u32, Row>,
    tests: Option<UnitTests>,
}

/// One line of upstream's `task.json`; fields we do not know are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Number, as text.
    pub index: String,
    /// What the user asks.
    pub user: String,
    /// `./data/…`.
    #[serde(default)]
    pub file_paths: Vec<String>,
    /// Upstream's coarse category.
    #[serde(default, rename = "category1")]
    pub category: String,
    /// Everything else, as it came.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A `tests.py`: functions `test_task_N(trajectory)`.
#[derive(Clone, Debug)]
pub struct UnitTests {
    /// The file.
    pub path: PathBuf,
    /// Digest of its bytes.
    pub digest: Digest,
    /// Number → source of the function that Python would call (the last of that name).
    functions: BTreeMap<u32, String>,
}

impl Upstream {
    /// A checkout, or a folder with `meta/task.json` in it.
    ///
    /// # Errors
    /// [`RunError::BadInput`] with what is wrong and what to do.
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

    /// The same with another list of tasks (upstream's `--task_path`).
    ///
    /// # Errors
    /// [`RunError::BadInput`] with what is wrong.
    pub fn with_tasks(mut self, task_file: &Path) -> Result<Self, RunError> {
        self.rows = read_rows(task_file)?;
        self.task_file = task_file.to_owned();
        Ok(self)
    }

    /// The same with another file of unit tests.
    pub fn with_tests(mut self, tests: UnitTests) -> Self {
        self.tests = Some(tests);
        self
    }

    /// The list of tasks.
    pub fn task_file(&self) -> &Path {
        &self.task_file
    }

    /// The entry of a task.
    pub fn row(&self, index: u32) -> Option<&Row> {
        self.rows.get(&index)
    }

    /// Upstream's unit tests, where they are.
    pub fn tests(&self) -> Option<&UnitTests> {
        self.tests.as_ref()
    }

    /// The input `data/NAME`; `None` where it is absent.
    pub fn input(&self, path: &str) -> Option<PathBuf> {
        let name = Path::new(path.strip_prefix("data/")?);
        let plain = name.components().count() == 1 && name.file_name().is_some();
        let found = self.data.join(name);
        (plain && found.is_file()).then_some(found)
    }

    /// The bytes of an input, bounded.
    pub fn bytes(&self, path: &str) -> Option<Result<Vec<u8>, String>> {
        Some(bounded(&self.input(path)?, MOST_INPUT))
    }

    /// The digest of an input.
    pub fn digest(&self, path: &str) -> Option<Result<Digest, String>> {
        Some(self.bytes(path)?.map(|bytes| Digest::of_bytes(&bytes)))
    }
}

fn read_rows(path: &Path) -> Result<BTreeMap<u32, Row>, RunError> {
    let shown = path.display();
    if !path.is_file() {
        return Err(RunError::BadInput(format!(
            "{shown} is not there: `pybench-eval fetch` gets the benchmark, or `--pybench DIR` names a checkout"
        )));
    }
    let bytes = bounded(path, MOST_TASKS).map_err(RunError::BadInput)?;
    parse_rows(&bytes).map_err(|problem| RunError::BadInput(format!("{shown}: {problem}")))
}

/// Upstream's `task.json`.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_rows(bytes: &[u8]) -> Result<BTreeMap<u32, Row>, String> {
    let rows: Vec<Row> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut by_index = BTreeMap::new();
    for row in rows {
        let index = row.index.parse();
        let index: u32 = index.map_err(|_| format!("the index `{}` is no number", row.index))?;
        if by_index.insert(index, row).is_some() {
            return Err(format!("task {index} is listed twice"));
        }
    }
    Ok(by_index)
}

impl UnitTests {
    /// Read a file of tests. Nothing of it is run here.
    ///
    /// # Errors
    /// [`RunError::BadInput`] where it cannot be read or holds no test.
    pub fn read(path: &Path) -> Result<Self, RunError> {
        let bytes = bounded(path, MOST_TESTS).map_err(RunError::BadInput)?;
        let functions = functions(&String::from_utf8_lossy(&bytes));
        if functions.is_empty() {
            return Err(RunError::BadInput(format!(
                "{}: no function test_task_N(trajectory) in it",
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

/// `def test_task_N(` at the start of a line, to the next line that is not indented.
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

fn bounded(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let wrap = |error: std::io::Error| format!("{}: {error}", path.display());
    let size = fs::metadata(path).map_err(wrap)?.len();
    if size > most {
        return Err(format!(
            "{}: larger than {} MiB",
            path.display(),
            most >> 20
        ));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(wrap)?;
    file.take(most).read_to_end(&mut bytes).map_err(wrap)?;
    Ok(bytes)
}

/// Where the benchmark lies: `asked`, else `$PYBENCH_DATA`, else what `pybench-eval fetch` got, else
/// `shared/pybench` beside the project. Unit tests come from `$PYBENCH_UPSTREAM` where it is set.
///
/// # Errors
/// [`RunError::BadInput`] that says how to get it.
pub fn find(
    asked: Option<&Path>,
    fetched: &Path,
    project: Option<&Path>,
) -> Result<Upstream, RunError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = asked.map(Path::to_owned);
    let named = named.or_else(|| variable("PYBENCH_DATA").map(PathBuf::from));
    let beside = project.map(|root| root.join("../shared/pybench"));
    let folder = named.or_else(|| {
        let there = |folder: &PathBuf| folder.join("data/meta/task.json").is_file();
        [Some(fetched.to_owned()), beside]
            .into_iter()
            .flatten()
            .find(there)
    });
    let folder = folder.ok_or_else(|| {
        RunError::BadInput(
            "the benchmark is not here: `pybench-eval fetch` gets it, or `--pybench DIR` names a checkout of it"
                .to_owned(),
        )
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
    fn the_last_function_of_a_name_counts_to_its_end() {
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
    fn inputs_are_plain_names() {
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
    fn what_is_no_list_of_tasks_is_told() {
        for (text, problem) in [
            ("{}", "expected a sequence"),
            (r#"[{"index": "a", "user": ""}]"#, "is no number"),
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
