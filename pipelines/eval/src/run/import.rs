//! Imports trajectories from other systems: upstream's `trajectory.jsonl` with its `output/`, a run folder or
//! a Parquet shard. Files of others are untrusted: line lengths, counts and sizes are limited, and symlinks are
//! not followed.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_agent::PybenchFormat;
use pybench_agent::{Format, Parsed};
use pybench_datasets::{DatasetError, Row, read};
use pybench_files::read_regular;
use pybench_interpreter::Limits;
use pybench_run::{ContentStore, RunError, artifacts};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{
    End, Message, OutputFile, Role, Sampling, Trajectory, Turn, Usage,
};
use serde::Deserialize;

use super::artifacts::TRAJECTORIES;
use super::{AgentAttempt, Setup};
use crate::suite::{EvalTask, name_in};

/// Maximum line length, in bytes.
const MAX_LINE: u64 = 32 << 20;
/// Maximum number of lines per file.
const MAX_LINES: usize = 10_000;
/// Maximum number of messages per trajectory.
const MAX_MESSAGES: usize = 1_000;
/// Maximum number of entries that are visited in a folder of outputs.
const MAX_ENTRIES: usize = 100_000;
/// Maximum depth of folders.
const MAX_DEPTH: usize = 8;

/// A line of `trajectory.jsonl`: fields of `task.json` plus `messages`.
#[derive(Debug, Deserialize)]
struct Line {
    index: Index,
    #[serde(default)]
    messages: Vec<UpstreamMessage>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Index {
    Text(String),
    Number(u64),
}

#[derive(Debug, Deserialize)]
struct UpstreamMessage {
    role: String,
    #[serde(default)]
    content: Option<String>,
}

/// Reads the attempts at `tasks` from `path`: upstream's file, a folder that contains it, a run folder or a
/// shard. Tasks without a trajectory get no attempt.
pub(super) fn read(
    setup: &Setup,
    agent: usize,
    path: &Path,
    outputs: Option<&Path>,
    tasks: &[EvalTask],
) -> Result<Vec<AgentAttempt>, RunError> {
    let shard = path.extension().is_some_and(|end| end == "parquet");
    let found = match path.is_dir() && artifacts::TRAJECTORIES.exists(path) {
        _ if shard => read_shard(path, setup.folder.store(), tasks)?,
        true => read_run(path, setup.folder.store(), tasks)?,
        false => read_upstream(setup, path, outputs, tasks)?,
    };
    let attempts = found.into_iter().map(|(task, trajectory)| AgentAttempt {
        agent,
        task,
        sample: trajectory.sample,
        result: Ok(Arc::new(trajectory)),
        seconds: 0.0,
    });
    Ok(attempts.collect())
}

fn read_upstream(
    setup: &Setup,
    path: &Path,
    outputs: Option<&Path>,
    tasks: &[EvalTask],
) -> Result<Vec<(usize, Trajectory)>, RunError> {
    let file = match path.is_dir() {
        true => path.join(TRAJECTORIES),
        false => path.to_owned(),
    };
    let default_outputs = file.parent().unwrap_or(Path::new(".")).to_owned();
    let outputs = outputs.map_or(default_outputs, Path::to_owned);
    let by_index = read_lines(&file)?;
    let limits = &setup.recipe.interpreter.limits;
    let mut found = Vec::new();
    for (at, eval_task) in tasks.iter().enumerate() {
        let Some(messages) =
            name_in(&eval_task.suite, &eval_task.task).and_then(|name| by_index.get(name))
        else {
            continue;
        };
        let files = collect(&outputs, &eval_task.name, &eval_task.task, limits);
        let files = files.into_iter().map(|(path, bytes)| {
            Ok(OutputFile {
                size: bytes.len() as u64,
                id: setup.folder.store().put(&bytes)?,
                path,
            })
        });
        let files = files.collect::<Result<Vec<_>, RunError>>()?;
        found.push((at, trajectory(&eval_task.task, messages.clone(), files)));
    }
    Ok(found)
}

/// Reads the messages of each task index. Like upstream, uses the last line of an index.
fn read_lines(path: &Path) -> Result<HashMap<String, Vec<Message>>, RunError> {
    let wrong = |line: usize, text: String| match line {
        0 => RunError::BadInput(format!("{}: {text}", path.display())),
        line => RunError::BadInput(format!("{}:{line}: {text}", path.display())),
    };
    let file = File::open(path).map_err(|error| wrong(0, error.to_string()))?;
    let mut reader = BufReader::new(file);
    let mut found = HashMap::new();
    for number in 1.. {
        let mut line = Vec::new();
        let mut bounded = (&mut reader).take(MAX_LINE + 1);
        bounded
            .read_until(b'\n', &mut line)
            .map_err(|error| wrong(number, error.to_string()))?;
        if line.is_empty() {
            break;
        }
        if line.len() as u64 > MAX_LINE || number > MAX_LINES {
            return Err(wrong(
                number,
                "the line or the file is too long for trajectories (at most 32 MiB per line and 10,000 lines)".to_owned(),
            ));
        }
        if !line.trim_ascii().is_empty() {
            let (index, messages) = parse_line(&line).map_err(|text| wrong(number, text))?;
            found.insert(index, messages);
        }
    }
    Ok(found)
}

/// Parses a line as (index, messages). Unknown roles become `user`.
fn parse_line(line: &[u8]) -> Result<(String, Vec<Message>), String> {
    let line: Line =
        serde_json::from_slice(line).map_err(|error| format!("not a trajectory: {error}"))?;
    if line.messages.len() > MAX_MESSAGES {
        return Err(format!("more than {MAX_MESSAGES} messages"));
    }
    let index = match line.index {
        Index::Text(text) => text,
        Index::Number(number) => number.to_string(),
    };
    let messages = line.messages.into_iter().map(|message| {
        let role = match message.role.as_str() {
            "system" => Role::System,
            "assistant" => Role::Assistant,
            _ => Role::User,
        };
        Message::new(role, message.content.unwrap_or_default())
    });
    Ok((index, messages.collect()))
}

/// A trajectory with messages but without observations of its cells.
fn trajectory(task: &Task, messages: Vec<Message>, outputs: Vec<OutputFile>) -> Trajectory {
    let replies = messages
        .iter()
        .filter(|message| message.role == Role::Assistant);
    let turns: Vec<Turn> = replies
        .map(|message| Turn {
            reply: message.content.clone(),
            cell: match PybenchFormat.parse(&message.content) {
                Parsed::Cell(cell) => Some(cell.to_owned()),
                _ => None,
            },
            observation: None,
            more: Vec::new(),
            usage: Usage::default(),
        })
        .collect();
    let finished = |turn: &Turn| matches!(PybenchFormat.parse(&turn.reply), Parsed::Answer(_));
    let end = match turns.last() {
        Some(turn) if finished(turn) => End::Finished,
        Some(turn) if turn.cell.is_some() => End::MaxTurns,
        _ => End::NoAnswer,
    };
    Trajectory {
        id: Digest::of_json(&("foreign", &task.id, &messages, &outputs)),
        task: task.id.clone(),
        teacher: "foreign".to_owned(),
        sampling: Sampling::default(),
        sample: 0,
        seed: 0,
        environment: String::new(),
        format: PybenchFormat.name().to_owned(),
        messages,
        turns,
        outputs,
        end,
        fault: None,
        corrects: None,
    }
}

/// Collects the outputs of a task. Files in `root/<index>/output` all belong to it; of those in `root/output`,
/// the files that it asks for and those whose name starts with its number.
fn collect(root: &Path, index: &str, task: &Task, limits: &Limits) -> Vec<(String, Vec<u8>)> {
    let own = root.join(index).join("output");
    let is_own = own.is_dir();
    let folder = if is_own { own } else { root.join("output") };
    let mut walk = OutputWalker::default();
    walk.folder(&folder, "output", 0);
    walk.found.sort();
    let belongs = |path: &str| {
        let name = path.trim_start_matches("output/");
        let rest = name.strip_prefix(index);
        let numbered = rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
        is_own || numbered || task.outputs.iter().any(|pattern| matches(pattern, path))
    };
    let (mut bytes, mut files) = (0, Vec::new());
    for (path, file, size) in walk.found {
        let fits = size <= limits.file_mib << 20 && bytes + size <= limits.output_mib << 20;
        if !belongs(&path) || !fits || files.len() >= limits.output_files {
            continue;
        }
        if let Ok(content) = read_regular(&file, size) {
            bytes += size;
            files.push((path, content));
        }
    }
    files
}

/// Walks a folder of outputs.
#[derive(Default)]
struct OutputWalker {
    entries: usize,
    found: Vec<(String, PathBuf, u64)>,
}

impl OutputWalker {
    fn folder(&mut self, folder: &Path, path: &str, depth: usize) {
        // The folder itself may be a symlink.
        let real = fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir());
        if !real || depth > MAX_DEPTH {
            return;
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            self.entries += 1;
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
                continue;
            };
            if self.entries > MAX_ENTRIES {
                return;
            }
            let path = format!("{path}/{name}");
            if kind.is_dir() {
                self.folder(&entry.path(), &path, depth + 1);
            } else if kind.is_file() {
                let size = entry.metadata().map_or(u64::MAX, |metadata| metadata.len());
                self.found.push((path, entry.path(), size));
            }
        }
    }
}

/// Whether a path matches a pattern with `*` and `?`.
fn matches(pattern: &str, path: &str) -> bool {
    globset::GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .is_ok_and(|glob| glob.compile_matcher().is_match(path))
}

/// Reads the trajectories of a shard for tasks with the same id; the first row of a task counts.
fn read_shard(
    path: &Path,
    store: &ContentStore,
    tasks: &[EvalTask],
) -> Result<Vec<(usize, Trajectory)>, RunError> {
    let invalid = |error: DatasetError| RunError::BadInput(error.to_string());
    let wanted: HashSet<&Digest> = tasks.iter().map(|task| &task.task.id).collect();
    let mut rows: HashMap<Digest, Row> = HashMap::new();
    for row in read::rows(path).map_err(invalid)? {
        let row = row.map_err(invalid)?;
        if wanted.contains(&row.task_id) {
            rows.entry(row.task_id.clone()).or_insert(row);
        }
    }
    let source = run_of(path).map(|run| ContentStore::open(&run.join("files")));
    let source = source.transpose()?;
    let mut found = Vec::new();
    for (at, eval_task) in tasks.iter().enumerate() {
        if let Some(row) = rows.get(&eval_task.task.id) {
            let outputs = copy_outputs(row, source.as_ref(), store)?;
            found.push((
                at,
                trajectory(&eval_task.task, row.messages.clone(), outputs),
            ));
        }
    }
    Ok(found)
}

/// The run folder whose `dataset/data` contains the shard.
fn run_of(shard: &Path) -> Option<PathBuf> {
    let run = shard.parent()?.parent()?.parent()?;
    run.join("files").is_dir().then(|| run.to_owned())
}

/// Copies the outputs of a row from one store to another. Missing outputs are skipped.
fn copy_outputs(
    row: &Row,
    from: Option<&ContentStore>,
    to: &ContentStore,
) -> Result<Vec<OutputFile>, RunError> {
    let mut found = Vec::new();
    for output in &row.outputs {
        let Some(Ok(bytes)) = from.map(|store| store.get(&output.blake3)) else {
            continue;
        };
        let id = to.put(&bytes)?;
        if id == output.blake3 {
            found.push(OutputFile {
                path: output.path.clone(),
                id,
                size: output.size,
            });
        }
    }
    Ok(found)
}

/// Reads the trajectories of a run folder for tasks with the same id.
fn read_run(
    path: &Path,
    store: &ContentStore,
    tasks: &[EvalTask],
) -> Result<Vec<(usize, Trajectory)>, RunError> {
    let task_indexes: HashMap<&Digest, usize> = tasks
        .iter()
        .enumerate()
        .map(|(at, q)| (&q.task.id, at))
        .collect();
    let source = ContentStore::open(&path.join("files"))?;
    let mut found = Vec::new();
    for trajectory in artifacts::TRAJECTORIES.read(path)? {
        let trajectory = trajectory?;
        let Some(at) = task_indexes.get(&trajectory.task) else {
            continue;
        };
        for output in &trajectory.outputs {
            if store.put(&source.get(&output.id)?)? != output.id {
                return Err(RunError::BadInput(format!(
                    "{}: the content of {} does not match its digest",
                    path.display(),
                    output.path
                )));
            }
        }
        found.push((*at, trajectory));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_matched_by_name_and_symlinks_are_skipped() {
        let root = tempfile::tempdir().unwrap();
        let output = root.path().join("output");
        fs::create_dir_all(output.join("14")).unwrap();
        for name in ["1_a.png", "1.csv", "14/x.html", "14.csv", "other.csv"] {
            fs::write(output.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", output.join("1_link.txt")).unwrap();
        std::os::unix::fs::symlink("/etc", output.join("1_folder")).unwrap();
        let names = |index: &str, task: &Task| -> Vec<String> {
            let found = collect(root.path(), index, task, &Limits::default());
            found.into_iter().map(|(path, _)| path).collect()
        };
        let mut task = pybench_testing::task::task();
        assert_eq!(names("1", &task), ["output/1.csv", "output/1_a.png"]);
        assert_eq!(names("14", &task), ["output/14.csv", "output/14/x.html"]);
        task.outputs = vec!["output/oth*.csv".to_owned()];
        assert_eq!(names("9", &task), ["output/other.csv"]);
    }

    #[test]
    fn invalid_lines_are_reported_with_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trajectory.jsonl");
        let good = r#"{"index": "7", "user": "q", "messages": [{"role": "assistant", "content": "a"}, {"role": "tool", "content": null}]}"#;
        fs::write(&path, format!("{good}\n\n{{\"index\": 8}}\n")).unwrap();
        let found = read_lines(&path).unwrap();
        assert_eq!(found["7"][0], Message::new(Role::Assistant, "a"));
        assert!(found["8"].is_empty());
        fs::write(&path, format!("{good}\n{{\"index\": []}}\n")).unwrap();
        let error = read_lines(&path).unwrap_err().to_string();
        assert!(
            error.contains("trajectory.jsonl:2: not a trajectory"),
            "{error}"
        );
    }

    #[test]
    fn fuzz_lines() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = parse_line(bytes);
        });
    }
}
