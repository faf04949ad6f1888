//! Reads logs, one sample at a time.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use pybench_files::open_regular;
use serde::de::Deserializer as _;

use super::archive::LogArchive;
use super::python_json::PythonJson;
use super::values::{RawHead, RawSample, WholeLog};
use super::{HEADER, LogHead, LogSample, SAMPLES, START, VERSION};
use crate::samples::ReadError;

/// Maximum size of a `.json` log, in bytes.
const MAX_JSON: u64 = 8 << 30;
/// Maximum number of logs of a folder.
const MAX_LOGS: usize = 10_000;
/// Bytes of a `.json` file that show whether it is a log.
const START_OF_FILE: u64 = 256;

/// What is called with each sample of a log.
type OnSample<'a> = dyn FnMut(&LogHead, LogSample) -> Result<(), ReadError> + 'a;

/// Whether a path is a log, or a folder that has an `.eval` log.
pub fn is_log(path: &Path) -> bool {
    if path.is_dir() {
        let entries = path.read_dir().into_iter().flatten().flatten();
        return entries.take(MAX_LOGS).any(|entry| is_eval(&entry.path()));
    }
    is_eval(path) || is_json_log(path)
}

fn is_eval(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "eval") && path.is_file()
}

/// Whether a file begins as inspect_ai begins a log: the version, then the status.
fn is_json_log(path: &Path) -> bool {
    if path.extension().is_none_or(|end| end != "json") {
        return false;
    }
    let mut start = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(START_OF_FILE).read_to_end(&mut start));
    let start: Vec<u8> = start
        .into_iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let rest = start.strip_prefix(b"{\"version\":").unwrap_or_default();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    read.is_ok() && digits > 0 && rest[digits..].starts_with(b",\"status\":\"")
}

/// The logs of a path: that file, or the `.eval` files of that folder by name.
///
/// # Errors
/// The folder cannot be read, or has too many logs.
pub fn log_files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = path.read_dir().map_err(|source| ReadError::Io {
        path: path.to_owned(),
        source,
    })?;
    let logs = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_eval(path));
    let mut logs: Vec<PathBuf> = logs.take(MAX_LOGS + 1).collect();
    logs.sort();
    match logs.len() > MAX_LOGS {
        true => Err(ReadError::Invalid {
            path: path.to_owned(),
            reason: format!("the folder has more than {MAX_LOGS} logs; open one of them"),
        }),
        false => Ok(logs),
    }
}

/// Calls `visit` with every sample of a log, or of the `.eval` logs of a folder.
///
/// # Errors
/// A log cannot be read, is invalid or exceeds the limits, with the file and its member; no log has a sample; errors of
/// `visit`.
pub fn each_sample(path: &Path, visit: &mut OnSample<'_>) -> Result<(), ReadError> {
    let mut samples = 0_u64;
    let mut counted = |head: &LogHead, sample: LogSample| {
        samples += 1;
        visit(head, sample)
    };
    for file in log_files(path)? {
        match file.extension().is_some_and(|end| end == "json") {
            true => each_of_json(&file, &mut counted)?,
            false => each_of_archive(&file, &mut counted)?,
        }
    }
    match samples {
        0 => Err(ReadError::Invalid {
            path: path.to_owned(),
            reason: "the log has no samples yet".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn each_of_archive(path: &Path, visit: &mut OnSample<'_>) -> Result<(), ReadError> {
    let mut log = LogArchive::open(path)?;
    let head: RawHead = match log.json(HEADER)? {
        Some(head) => head,
        None => log.json(START)?.ok_or_else(|| {
            log.invalid(format!(
                "no log of inspect_ai: it has neither {HEADER} nor {START}"
            ))
        })?,
    };
    let head = checked(&head).map_err(|reason| log.invalid(reason))?;
    for name in log.names() {
        let Some(file) = name.strip_prefix(SAMPLES) else {
            continue;
        };
        if is_chunk(file) {
            let reason = format!(
                "{name}: the sample is stored in chunks, which are not read; open the log that was converted to this one"
            );
            return Err(log.invalid(reason));
        }
        if !file.ends_with(".json") {
            continue;
        }
        let sample: Option<RawSample> = log.json(&name)?;
        if let Some(sample) = sample {
            visit(&head, sample.finish())?;
        }
    }
    Ok(())
}

/// Whether a member belongs to a sample that is a folder of its own.
fn is_chunk(file: &str) -> bool {
    file.rsplit_once("/sample.json")
        .is_some_and(|(folder, rest)| rest.is_empty() && folder.contains("_epoch_"))
}

fn each_of_json(path: &Path, visit: &mut OnSample<'_>) -> Result<(), ReadError> {
    let invalid = |reason: String| ReadError::Invalid {
        path: path.to_owned(),
        reason,
    };
    let file = open_regular(path).map_err(|source| ReadError::Io {
        path: path.to_owned(),
        source,
    })?;
    let json = BufReader::new(PythonJson::new(file.take(MAX_JSON)));
    let mut json = serde_json::Deserializer::from_reader(json);
    let mut stopped = None;
    let read = json.deserialize_map(WholeLog {
        head: RawHead::default(),
        on_sample: &mut |head, sample| {
            let visited = checked(head)
                .map_err(invalid)
                .and_then(|head| visit(&head, sample.finish()));
            visited.map_err(|error| {
                let text = error.to_string();
                stopped = Some(error);
                text
            })
        },
    });
    let read = read.and_then(|_| json.end());
    match (stopped, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(invalid(error.to_string())),
        (None, Ok(())) => Ok(()),
    }
}

/// What a log is about, if its version is known.
fn checked(head: &RawHead) -> Result<LogHead, String> {
    if head.version > VERSION {
        return Err(format!(
            "it has version {} of the format; up to version {VERSION} is read",
            head.version
        ));
    }
    if head.eval.task.is_empty() && head.eval.model.is_empty() {
        return Err("no log of inspect_ai: `eval` with task and model is missing".to_owned());
    }
    Ok(LogHead {
        task: head.eval.task.clone(),
        model: head.eval.model.clone(),
        status: head.status.clone(),
        created: head.eval.created.clone(),
    })
}
