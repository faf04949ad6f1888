//! Reads benchmarks: a list of tasks, and the files that the tasks refer to.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use pybench_datasets::decontaminate::{BenchmarkTask, Table, fingerprints};
use pybench_run::RunError;
use pybench_types::id::Digest;
use serde_json::{Map, Value};

use pybench_files::sniff::{Sniffed, sniff};
use pybench_profile as profile;

/// Maximum size of a list of tasks, in bytes.
const MAX_LIST_BYTES: u64 = 1 << 30;
/// Maximum size of a file that is searched for tables, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 256 << 20;
/// Maximum number of files in a benchmark.
const MAX_FILES: usize = 100_000;
/// Maximum depth of folders.
const MAX_DEPTH: u32 = 12;

/// Fields that may contain the query. The first existing one is used.
const QUERY_FIELDS: [&str; 8] = [
    "user",
    "query",
    "question",
    "prompt",
    "instruction",
    "problem",
    "input",
    "text",
];
/// Fields that may contain answers or solutions.
const ANSWER_FIELDS: [&str; 6] = [
    "answer",
    "solution",
    "canonical_solution",
    "output",
    "response",
    "reference",
];
/// Fields that may contain the id of a task.
const ID_FIELDS: [&str; 5] = ["index", "id", "task_id", "name", "qid"];

/// Read the tasks of a benchmark from a list of tasks (JSON or JSON lines), or from a folder with such a list. Queries
/// and answers are read from fields with common names (`user`, `query`, `question`, `prompt`, …). Files that a task
/// names are searched anywhere below the folder; of files with one name, those with the most similar path are taken. Each other file in the folder becomes a task of its own, without a
/// query.
///
/// A file with fingerprints has hashes instead of queries.
///
/// # Errors
/// [`RunError::BadInput`] if the list of tasks is missing or invalid.
pub fn items(path: &Path) -> Result<Vec<BenchmarkTask>, RunError> {
    if !path.exists() {
        return Err(RunError::BadInput(format!(
            "{}: there is no such file or folder; name a list of tasks (JSON or JSON lines), a folder with one, or a \
             file that `dataset fingerprint` wrote",
            path.display()
        )));
    }
    if let Some(tasks) = fingerprints_in(path)? {
        return Ok(tasks);
    }
    let suite = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let folder = match path.is_dir() {
        true => path.to_owned(),
        false => path.parent().unwrap_or(Path::new(".")).to_owned(),
    };
    let mut files = Vec::new();
    if path.is_dir() {
        walk(&folder, 0, &mut files)?;
    }
    let list = match path.is_dir() {
        false => path.to_owned(),
        true => find_list(&files).ok_or_else(|| {
            RunError::BadInput(format!(
                "{}: no list of tasks found (task.json, tasks.json or *.jsonl)",
                path.display()
            ))
        })?,
    };
    let mut items = read_list(&list, &suite)?;
    files.retain(|file| *file != list);
    let mut by_name: HashMap<&OsStr, Vec<&PathBuf>> = HashMap::new();
    for file in &files {
        let name = file.file_name().unwrap_or_default();
        by_name.entry(name).or_default().push(file);
    }
    let mut named = HashSet::new();
    for (item, paths) in &mut items {
        for path in paths.iter() {
            let same_name = path.file_name().and_then(|name| by_name.get(name));
            let found = match same_name {
                Some(files) => closest(files, path),
                None => file_next_to_list(&folder, path).into_iter().collect(),
            };
            for file in found {
                add_file(item, &file)?;
                named.insert(file);
            }
        }
    }
    let mut items: Vec<BenchmarkTask> = items.into_iter().map(|(item, _)| item).collect();
    for file in files.iter().filter(|file| !named.contains(*file)) {
        let mut item = BenchmarkTask {
            suite: suite.clone(),
            index: file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            ..BenchmarkTask::default()
        };
        add_file(&mut item, file)?;
        items.push(item);
    }
    Ok(items)
}

/// The fingerprints in a file; `None` if it is something else.
fn fingerprints_in(path: &Path) -> Result<Option<Vec<BenchmarkTask>>, RunError> {
    let shown = path.display();
    let is_small =
        |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= MAX_LIST_BYTES);
    if !is_small(path) {
        return Ok(None);
    }
    let bytes = fs::read(path).map_err(RunError::io(shown.to_string()))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    if !fingerprints::is_fingerprints(&text) {
        return Ok(None);
    }
    let tasks = fingerprints::read(&text).map_err(|line| {
        RunError::BadInput(format!(
            "{shown}:{line}: not a fingerprint; write the file again with `pybench dataset fingerprint`"
        ))
    });
    tasks.map(Some)
}

/// Of files with one name, those whose paths end in the most parts of the path that a task names. Several are equally
/// close if the task does not tell them apart; it is credited with each.
fn closest(files: &[&PathBuf], path: &Path) -> Vec<PathBuf> {
    let parts_in_common = |file: &Path| {
        let pairs = file.components().rev().zip(path.components().rev());
        pairs.take_while(|(a, b)| a == b).count()
    };
    let most = files.iter().map(|file| parts_in_common(file)).max();
    let files = files
        .iter()
        .filter(|file| Some(parts_in_common(file)) == most);
    files.map(|file| (*file).clone()).collect()
}

/// Collect all files below a folder, without links and hidden files.
fn walk(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) -> Result<(), RunError> {
    let io = || RunError::io(folder.display().to_string());
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(io())? {
        entries.push(entry.map_err(io())?);
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().map_err(io())?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if kind.is_dir() && !hidden && depth < MAX_DEPTH {
            walk(&entry.path(), depth + 1, files)?;
        } else if kind.is_file() && !hidden && files.len() < MAX_FILES {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn find_list(files: &[PathBuf]) -> Option<PathBuf> {
    let named = |name: &str| {
        let found = files
            .iter()
            .find(|file| file.file_name().is_some_and(|f| f == name));
        found.cloned()
    };
    let lines = || {
        let mut lines = files
            .iter()
            .filter(|file| file.extension().is_some_and(|e| e == "jsonl"));
        lines.next().cloned()
    };
    named("task.json")
        .or_else(|| named("tasks.json"))
        .or_else(|| named("tasks.jsonl"))
        .or_else(lines)
}

fn read_list(path: &Path, suite: &str) -> Result<Vec<(BenchmarkTask, Vec<PathBuf>)>, RunError> {
    let shown = path.display();
    let size = fs::metadata(path)
        .map_err(RunError::io(shown.to_string()))?
        .len();
    if size > MAX_LIST_BYTES {
        return Err(RunError::BadInput(format!(
            "{shown}: {size} bytes is larger than the limit of {MAX_LIST_BYTES}"
        )));
    }
    let text = fs::read_to_string(path).map_err(RunError::io(shown.to_string()))?;
    let whole: Result<Vec<Value>, _> = serde_json::from_str(&text);
    let values = match whole {
        Ok(values) => values,
        Err(error) if text.trim_start().starts_with('[') => {
            return Err(RunError::BadInput(format!(
                "{shown}: not a valid list of tasks: {error}"
            )));
        }
        Err(_) => {
            let lines = text
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim().is_empty());
            let line = |(number, line): (usize, &str)| {
                serde_json::from_str(line).map_err(|error| {
                    RunError::BadInput(format!("{shown}:{}: not a valid task: {error}", number + 1))
                })
            };
            lines.map(line).collect::<Result<_, _>>()?
        }
    };
    let item = |(number, value): (usize, Value)| match value {
        Value::Object(fields) => parse_task(suite, number + 1, &fields).ok_or_else(|| {
            let expected = QUERY_FIELDS.join(", ");
            RunError::BadInput(format!(
                "{shown}: task {} has no query: expected one of {expected}",
                number + 1
            ))
        }),
        _ => Err(RunError::BadInput(format!(
            "{shown}: task {} is not an object",
            number + 1
        ))),
    };
    values.into_iter().enumerate().map(item).collect()
}

/// Parse a task. Returns the task and the paths of its files, or `None` without a query.
fn parse_task(
    suite: &str,
    number: usize,
    fields: &Map<String, Value>,
) -> Option<(BenchmarkTask, Vec<PathBuf>)> {
    let first = |names: &[&str]| {
        let found = names.iter().filter_map(|name| fields.get(*name));
        found.flat_map(texts).next()
    };
    let names = ["file_paths", "files", "attachments", "file_name", "csv"];
    let named = names
        .iter()
        .filter_map(|name| fields.get(*name))
        .flat_map(texts);
    let index = ID_FIELDS.iter().find_map(|name| match fields.get(*name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    });
    let answers = ANSWER_FIELDS
        .iter()
        .filter_map(|name| fields.get(*name))
        .flat_map(texts);
    let item = BenchmarkTask {
        suite: suite.to_owned(),
        index: index.unwrap_or_else(|| number.to_string()),
        query: first(&QUERY_FIELDS)?,
        answers: answers.collect(),
        ..BenchmarkTask::default()
    };
    // Only the parts that are names: a path cannot lead out of the benchmark's folder.
    let plain = |path: String| -> PathBuf {
        let parts = Path::new(&path).components();
        parts
            .filter(|part| matches!(part, Component::Normal(_)))
            .collect()
    };
    Some((item, named.map(plain).collect()))
}

/// A string, or the strings in a list.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// A file named by a task: where its path leads from the list, or next to the list.
fn file_next_to_list(folder: &Path, path: &Path) -> Option<PathBuf> {
    let places = [folder.join(path), folder.join(path.file_name()?)];
    places.into_iter().find(|place| place.is_file())
}

fn add_file(item: &mut BenchmarkTask, file: &Path) -> Result<(), RunError> {
    let io = || RunError::io(file.display().to_string());
    if fs::metadata(file).map_err(io())?.len() > MAX_FILE_BYTES {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update_reader(fs::File::open(file).map_err(io())?)
            .map_err(io())?;
        item.files
            .extend(Digest::try_from(hasher.finalize().to_hex().to_string()));
        return Ok(());
    }
    let bytes = fs::read(file).map_err(io())?;
    item.files.push(Digest::of_bytes(&bytes));
    item.tables.extend(table(&file.to_string_lossy(), &bytes));
    Ok(())
}

/// Read a file as a table, if it is one.
pub(super) fn table(name: &str, bytes: &[u8]) -> Option<Table> {
    match sniff(name, bytes) {
        Sniffed::File(kind) | Sniffed::Broken(kind, _) => profile::content(kind, bytes),
        Sniffed::Archive(_) | Sniffed::Unknown(_) => None,
    }
}
