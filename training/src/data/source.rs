//! Conversations and notebooks from files: Parquet, JSON lines, .ipynb.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;
use thiserror::Error;

use super::{Conversation, Message};

/// Most bytes of one JSON line.
const LINE_BYTES: u64 = 64 << 20;
/// Most messages of one conversation.
const MESSAGES: usize = 10_000;
/// Most files of one source.
const FILES: usize = 100_000;
/// Rows decoded at once.
const BATCH: usize = 64;

/// Where conversations are read from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A file, or a folder whose files are taken in order of their names.
    pub path: PathBuf,
    /// Only files whose names begin so.
    #[serde(default)]
    pub prefix: String,
    /// How often its conversations are seen in one epoch, relative to the others: 0.5 takes half of
    /// them, 2 takes each twice.
    #[serde(default = "one")]
    pub weight: f64,
    /// The column with the messages; found by itself where it is `messages` or `conversations`.
    #[serde(default)]
    pub column: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// Why a source cannot be read.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum SourceError {
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path}: no .parquet or .jsonl file{prefix}")]
    Empty { path: PathBuf, prefix: String },
    #[error("{path}: {reason}")]
    Broken { path: PathBuf, reason: String },
    #[error("{place}: {reason}")]
    Row { place: String, reason: String },
}

/// The conversations of a source, in the order of its files and rows.
pub fn read(source: &Source) -> Result<Vec<Conversation>, SourceError> {
    let mut all = vec![];
    for path in files(source)? {
        match extension(&path) {
            "parquet" => parquet(&path, source.column.as_deref(), &mut all)?,
            _ => json_lines(&path, source.column.as_deref(), &mut all)?,
        }
    }
    Ok(all)
}

fn extension(path: &Path) -> &str {
    path.extension()
        .and_then(|end| end.to_str())
        .unwrap_or_default()
}

fn files(source: &Source) -> Result<Vec<PathBuf>, SourceError> {
    let io = |error| SourceError::Io {
        path: source.path.clone(),
        error,
    };
    if source.path.is_file() {
        return Ok(vec![source.path.clone()]);
    }
    let mut files = vec![];
    for entry in std::fs::read_dir(&source.path).map_err(io)?.take(FILES) {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&source.prefix) && ["parquet", "jsonl"].contains(&extension(&path)) {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(SourceError::Empty {
            path: source.path.clone(),
            prefix: match source.prefix.as_str() {
                "" => String::new(),
                prefix => format!(" that begins with {prefix}"),
            },
        });
    }
    Ok(files)
}

// --- Parquet -------------------------------------------------------------------------------------

fn parquet(
    path: &Path,
    column: Option<&str>,
    all: &mut Vec<Conversation>,
) -> Result<(), SourceError> {
    let broken = |reason: String| SourceError::Broken {
        path: path.into(),
        reason,
    };
    let file = File::open(path).map_err(|error| SourceError::Io {
        path: path.into(),
        error,
    })?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| broken(error.to_string()))?;
    let names = builder.schema().fields().iter().map(|f| f.name().clone());
    let names: Vec<String> = names.collect();
    let wanted = match column {
        Some(name) => names.iter().position(|n| n == name),
        None => names.iter().position(|n| is_messages(n)),
    };
    let wanted = wanted.ok_or_else(|| {
        let asked = column.unwrap_or("messages or conversations");
        broken(format!("no column {asked}; there are {}", names.join(", ")))
    })?;
    let mut roots = vec![wanted];
    roots.extend(names.iter().position(|name| name == "held_out_template"));
    let mask = parquet::arrow::ProjectionMask::roots(builder.parquet_schema(), roots);
    let reader = builder
        .with_projection(mask)
        .with_batch_size(BATCH)
        .build()
        .map_err(|error| broken(error.to_string()))?;
    let mut row = 0;
    for batch in reader {
        let batch = batch.map_err(|error| broken(error.to_string()))?;
        rows(path, &names[wanted], &batch, row, all)?;
        row += batch.num_rows();
    }
    Ok(())
}

fn is_messages(name: &str) -> bool {
    ["messages", "conversations"].contains(&name)
}

fn rows(
    path: &Path,
    column: &str,
    batch: &RecordBatch,
    first: usize,
    all: &mut Vec<Conversation>,
) -> Result<(), SourceError> {
    let broken = |reason: &str| SourceError::Broken {
        path: path.into(),
        reason: format!("column {column}: {reason}"),
    };
    let lists = batch
        .column_by_name(column)
        .and_then(|array| array.as_list_opt::<i32>())
        .ok_or_else(|| broken("is no list"))?;
    let held_out: Option<&BooleanArray> = batch
        .column_by_name("held_out_template")
        .and_then(|array| array.as_boolean_opt());
    for row in 0..batch.num_rows() {
        let items = lists.value(row);
        let items = items
            .as_struct_opt()
            .ok_or_else(|| broken("holds no structs"))?;
        let text = |names: [&str; 2]| {
            let array = names.iter().find_map(|name| items.column_by_name(name));
            let array =
                array.ok_or_else(|| broken(&format!("its structs have no {}", names[0])))?;
            let array = arrow::compute::cast(array, &DataType::Utf8);
            array.map_err(|_| broken(&format!("{} is no text", names[0])))
        };
        let (roles, contents) = (text(["role", "from"])?, text(["content", "value"])?);
        let (roles, contents) = (roles.as_string::<i32>(), contents.as_string::<i32>());
        let place = format!("{}:{}", path.display(), first + row);
        if items.len() > MESSAGES {
            let reason = format!("{} messages, more than {MESSAGES}", items.len());
            return Err(SourceError::Row { place, reason });
        }
        let message = |i: usize| {
            let content = match contents.is_null(i) {
                true => "",
                false => contents.value(i),
            };
            Message::new(role(roles.value(i)), content)
        };
        all.push(Conversation {
            messages: (0..items.len()).map(message).collect(),
            held_out_template: held_out.is_some_and(|h| h.is_valid(row) && h.value(row)),
            place,
        });
    }
    Ok(())
}

/// ShareGPT's names for the common roles.
fn role(name: &str) -> &str {
    match name {
        "human" => "user",
        "gpt" => "assistant",
        other => other,
    }
}

// --- JSON lines ----------------------------------------------------------------------------------

fn json_lines(
    path: &Path,
    column: Option<&str>,
    all: &mut Vec<Conversation>,
) -> Result<(), SourceError> {
    let io = |error| SourceError::Io {
        path: path.into(),
        error,
    };
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    for number in 1.. {
        let mut line = vec![];
        let read = (&mut reader).take(LINE_BYTES).read_until(b'\n', &mut line);
        let read = read.map_err(io)? as u64;
        if read == 0 {
            break;
        }
        let place = format!("{}:{number}", path.display());
        if read == LINE_BYTES {
            let reason = format!("a line longer than {LINE_BYTES} bytes");
            return Err(SourceError::Row { place, reason });
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        all.push(json_line(&line, column, place)?);
    }
    Ok(())
}

fn json_line(
    line: &[u8],
    column: Option<&str>,
    place: String,
) -> Result<Conversation, SourceError> {
    let bad = |reason: String| SourceError::Row {
        place: place.clone(),
        reason,
    };
    let mut row: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(line).map_err(|error| bad(error.to_string()))?;
    let key = match column {
        Some(name) => Some(name.to_owned()),
        None => row.keys().find(|key| is_messages(key)).cloned(),
    };
    let found = key.as_ref().and_then(|key| row.remove(key));
    let found = found.ok_or_else(|| bad("neither messages nor conversations".into()))?;
    let mut messages: Vec<Message> =
        serde_json::from_value(found).map_err(|error| bad(error.to_string()))?;
    for message in &mut messages {
        message.role = role(&message.role).to_owned();
    }
    if messages.len() > MESSAGES {
        return Err(bad(format!("more than {MESSAGES} messages")));
    }
    Ok(Conversation {
        messages,
        held_out_template: row.get("held_out_template") == Some(&true.into()),
        place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_messages_are_read() {
        let line = br#"{"id":1,"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}"#;
        let row = json_line(line, None, "x".into()).unwrap();
        assert_eq!(
            row.messages,
            [Message::new("user", "a"), Message::new("assistant", "b")]
        );
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, "{\"messages\":[]}\n{\"messages\":3}\n").unwrap();
        let source = Source {
            path,
            prefix: String::new(),
            weight: 1.0,
            column: None,
        };
        let error = read(&source).unwrap_err().to_string();
        assert!(error.contains("a.jsonl:2"), "{error}");
    }

    #[test]
    fn fuzz_json_line() {
        bolero::check!().for_each(|line: &[u8]| {
            let _ = json_line(line, None, String::new());
        });
    }

    #[test]
    fn fuzz_parquet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        bolero::check!().for_each(|noise: &[u8]| {
            let mut file = b"PAR1".to_vec();
            file.extend(noise);
            file.extend((noise.len() as u32).to_le_bytes());
            file.extend(b"PAR1");
            std::fs::write(&path, file).unwrap();
            let _ = parquet(&path, None, &mut vec![]);
        });
    }
}
