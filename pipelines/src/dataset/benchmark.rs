//! Benchmarks as others publish them: a folder with a list of tasks, and the files that they name.

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use pybench::id::Digest;
use pybench::run::RunError;
use pybench_datasets::decontaminate::{Item, Table};
use serde_json::{Map, Value};

use crate::crawl::profile;
use crate::crawl::sniff::{Sniffed, sniff};

/// Largest list of tasks.
const LIST: u64 = 1 << 30;
/// Largest file looked into.
const FILE: u64 = 256 << 20;
/// Most files of a benchmark, and deepest folder.
const FILES: usize = 100_000;
const DEPTH: u32 = 12;

const QUERIES: [&str; 8] = [
    "user",
    "query",
    "question",
    "prompt",
    "instruction",
    "problem",
    "input",
    "text",
];
const ANSWERS: [&str; 6] = [
    "answer",
    "solution",
    "canonical_solution",
    "output",
    "response",
    "reference",
];
const NAMES: [&str; 5] = ["index", "id", "task_id", "name", "qid"];

/// The tasks of a benchmark: of a file of tasks (JSON, or JSON lines), or of a folder that has one. What
/// is asked stands under one of the usual names (`user`, `query`, `question`, `prompt`, …), answers too;
/// files are those that a task names, wherever they lie below the folder, and all others of the folder
/// belong to the benchmark as a whole.
///
/// # Errors
/// [`RunError::BadInput`] for what is no list of tasks.
pub fn items(path: &Path) -> Result<Vec<Item>, RunError> {
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
                "{}: no list of tasks (task.json, tasks.json or *.jsonl) below it",
                path.display()
            ))
        })?,
    };
    let mut items = read_list(&list, &suite)?;
    let mut by_name: HashMap<String, PathBuf> = HashMap::new();
    for file in files.iter().filter(|file| **file != list) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        by_name.insert(name.into_owned(), file.clone());
    }
    let mut named = std::collections::HashSet::new();
    for (item, names) in &mut items {
        for name in names.iter() {
            let found = by_name.get(name).cloned().or_else(|| beside(&folder, name));
            if let Some(file) = found {
                add(item, &file)?;
                named.insert(file);
            }
        }
    }
    let mut items: Vec<Item> = items.into_iter().map(|(item, _)| item).collect();
    for file in by_name.values().filter(|file| !named.contains(*file)) {
        let mut item = Item {
            suite: suite.clone(),
            index: file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            ..Item::default()
        };
        add(&mut item, file)?;
        items.push(item);
    }
    Ok(items)
}

/// Every file below a folder; links and hidden ones are left alone.
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
        if kind.is_dir() && !hidden && depth < DEPTH {
            walk(&entry.path(), depth + 1, files)?;
        } else if kind.is_file() && !hidden && files.len() < FILES {
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

fn read_list(path: &Path, suite: &str) -> Result<Vec<(Item, Vec<String>)>, RunError> {
    let shown = path.display();
    let size = fs::metadata(path)
        .map_err(RunError::io(shown.to_string()))?
        .len();
    if size > LIST {
        return Err(RunError::BadInput(format!(
            "{shown}: {size} bytes, more than {LIST}"
        )));
    }
    let text = fs::read_to_string(path).map_err(RunError::io(shown.to_string()))?;
    let whole: Result<Vec<Value>, _> = serde_json::from_str(&text);
    let values = match whole {
        Ok(values) => values,
        Err(error) if text.trim_start().starts_with('[') => {
            return Err(RunError::BadInput(format!(
                "{shown}: no list of tasks: {error}"
            )));
        }
        Err(_) => {
            let lines = text
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim().is_empty());
            let line = |(number, line): (usize, &str)| {
                serde_json::from_str(line).map_err(|error| {
                    RunError::BadInput(format!("{shown}:{}: no task: {error}", number + 1))
                })
            };
            lines.map(line).collect::<Result<_, _>>()?
        }
    };
    let item = |(number, value): (usize, Value)| match value {
        Value::Object(fields) => item(suite, number + 1, &fields).ok_or_else(|| {
            let known = QUERIES.join(", ");
            RunError::BadInput(format!("{shown}: task {}: none of {known}", number + 1))
        }),
        _ => Err(RunError::BadInput(format!(
            "{shown}: task {} is no object",
            number + 1
        ))),
    };
    values.into_iter().enumerate().map(item).collect()
}

fn item(suite: &str, number: usize, fields: &Map<String, Value>) -> Option<(Item, Vec<String>)> {
    let first = |names: &[&str]| {
        let found = names.iter().filter_map(|name| fields.get(*name));
        found.flat_map(texts).next()
    };
    let names = ["file_paths", "files", "attachments", "file_name", "csv"];
    let named = names
        .iter()
        .filter_map(|name| fields.get(*name))
        .flat_map(texts);
    let file = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
    let index = NAMES.iter().find_map(|name| match fields.get(*name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    });
    let answers = ANSWERS
        .iter()
        .filter_map(|name| fields.get(*name))
        .flat_map(texts);
    let item = Item {
        suite: suite.to_owned(),
        index: index.unwrap_or_else(|| number.to_string()),
        query: first(&QUERIES)?,
        answers: answers.collect(),
        ..Item::default()
    };
    Some((
        item,
        named.map(file).filter(|name| !name.is_empty()).collect(),
    ))
}

/// A text, or those of a list.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// A file that a list names, beside it.
fn beside(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = Path::new(name)
        .components()
        .all(|c| matches!(c, Component::Normal(_)));
    let path = folder.join(name);
    (plain && path.is_file()).then_some(path)
}

fn add(item: &mut Item, file: &Path) -> Result<(), RunError> {
    let io = || RunError::io(file.display().to_string());
    if fs::metadata(file).map_err(io())?.len() > FILE {
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

/// What is in a file, where it is a table.
pub(super) fn table(name: &str, bytes: &[u8]) -> Option<Table> {
    match sniff(name, bytes) {
        Sniffed::File(kind) | Sniffed::Broken(kind, _) => profile::content(kind, bytes),
        Sniffed::Archive(_) | Sniffed::Unknown(_) => None,
    }
}
