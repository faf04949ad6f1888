//! Streaming readers of JSON lines and of JSON arrays.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::preference;
use crate::reader::{
    DIFFICULTY_COLUMN, RecordKind, Records, SourceError, TOOLS_COLUMN, conversation,
    default_columns, io, is_default_column, json_list, messages, unseen,
};
use crate::record::Record;

const MAX_ROW_BYTES: usize = 64 << 20;

/// Reads a file of JSON lines.
pub(crate) fn read(
    path: &Path,
    kind: RecordKind,
    column: Option<String>,
) -> Result<Records, SourceError> {
    JsonRows::open(path, kind, column, JsonRows::line)
}

/// Reads the objects of a file that is one JSON array.
pub(crate) fn read_array(
    path: &Path,
    kind: RecordKind,
    column: Option<String>,
) -> Result<Records, SourceError> {
    JsonRows::open(path, kind, column, JsonRows::element)
}

/// Reads the bytes of the next row; `None` at the end.
type Next = fn(&mut JsonRows) -> Result<Option<Vec<u8>>, SourceError>;

struct JsonRows {
    reader: BufReader<File>,
    path: PathBuf,
    kind: RecordKind,
    column: Option<String>,
    next: Next,
    number: usize,
    ended: bool,
}

impl Iterator for JsonRows {
    type Item = Result<Record, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = match (self.next)(self) {
            Ok(Some(row)) => row,
            Ok(None) => return None,
            Err(error) => {
                self.ended = true;
                return Some(Err(error));
            }
        };
        Some(record(
            &row,
            self.kind,
            self.column.as_deref(),
            self.location(),
        ))
    }
}

impl JsonRows {
    fn open(
        path: &Path,
        kind: RecordKind,
        column: Option<String>,
        next: Next,
    ) -> Result<Records, SourceError> {
        Ok(Box::new(Self {
            reader: BufReader::new(File::open(path).map_err(io(path))?),
            path: path.into(),
            kind,
            column,
            next,
            number: 0,
            ended: false,
        }))
    }

    fn location(&self) -> String {
        format!("{}:{}", self.path.display(), self.number)
    }

    fn too_long(&self) -> SourceError {
        SourceError::Row {
            location: self.location(),
            reason: format!("a row longer than {MAX_ROW_BYTES} bytes"),
        }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, SourceError> {
        loop {
            let mut line = vec![];
            let mut bounded = (&mut self.reader).take(MAX_ROW_BYTES as u64);
            let read = bounded
                .read_until(b'\n', &mut line)
                .map_err(io(&self.path))?;
            self.number += 1;
            match read {
                0 => return Ok(None),
                MAX_ROW_BYTES => return Err(self.too_long()),
                _ if line.iter().all(u8::is_ascii_whitespace) => continue,
                _ => return Ok(Some(line)),
            }
        }
    }

    /// The bytes of the next object, found by counting braces outside of strings. Text between objects
    /// (commas, white space, brackets of the array) is skipped.
    fn element(&mut self) -> Result<Option<Vec<u8>>, SourceError> {
        let (mut row, mut depth) = (vec![], 0usize);
        let (mut quoted, mut escaped) = (false, false);
        loop {
            let bytes = self.reader.fill_buf().map_err(io(&self.path))?;
            if bytes.is_empty() {
                return match depth {
                    0 => Ok(None),
                    _ => Err(SourceError::Row {
                        location: format!("{}:{}", self.path.display(), self.number + 1),
                        reason: "the file ends inside a row".into(),
                    }),
                };
            }
            let mut used = bytes.len();
            for (index, &byte) in bytes.iter().enumerate() {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if quoted => escaped = true,
                    b'"' if depth > 0 => quoted = !quoted,
                    b'{' if !quoted => depth += 1,
                    b'}' if !quoted => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth > 0 || byte == b'}' && !row.is_empty() {
                    row.push(byte);
                }
                if depth == 0 && !row.is_empty() {
                    used = index + 1;
                    break;
                }
            }
            self.reader.consume(used);
            if row.len() > MAX_ROW_BYTES {
                self.number += 1;
                return Err(self.too_long());
            }
            if depth == 0 && !row.is_empty() {
                self.number += 1;
                return Ok(Some(row));
            }
        }
    }
}

/// Parses a row.
fn record(
    row: &[u8],
    kind: RecordKind,
    column: Option<&str>,
    location: String,
) -> Result<Record, SourceError> {
    let bad = |reason: String| SourceError::Row {
        location: location.clone(),
        reason,
    };
    let mut row: Map<String, Value> =
        serde_json::from_slice(row).map_err(|error| bad(error.to_string()))?;
    if kind == RecordKind::Preference {
        let pair = preference::of_row(row, &location).map_err(bad)?;
        return Ok(Record::Preference(Box::new(pair)));
    }
    let key = match column {
        Some(name) => Some(name.to_owned()),
        None => row.keys().find(|key| is_default_column(kind, key)).cloned(),
    };
    let found = key.as_ref().and_then(|key| row.remove(key));
    let found = found.ok_or_else(|| {
        bad(format!(
            "there is no column {}",
            column.unwrap_or(default_columns(kind))
        ))
    })?;
    if kind == RecordKind::Text {
        let text: String = serde_json::from_value(found).map_err(|error| bad(error.to_string()))?;
        return Ok(Record::Text { text, location });
    }
    let messages = messages(found).map_err(bad)?;
    let tools = row.remove(TOOLS_COLUMN).unwrap_or_default();
    let tools = json_list(TOOLS_COLUMN, tools).map_err(bad)?;
    let held_out = row.get("held_out_template") == Some(&true.into());
    let named = row.get("unseen").and_then(Value::as_str);
    let difficulty = row.get(DIFFICULTY_COLUMN).and_then(Value::as_u64);
    let difficulty = difficulty.and_then(|level| u32::try_from(level).ok());
    let unseen = unseen(named, held_out);
    conversation(messages, tools, unseen, difficulty.unwrap_or(0), location)
}

#[cfg(test)]
mod tests {
    use pybench_chat_template::Message;

    use super::*;

    fn messages(row: &[u8]) -> Vec<Message> {
        match record(row, RecordKind::Messages, None, "x".into()).unwrap() {
            Record::Conversation(conversation) => conversation.messages,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sharegpt_messages_are_read() {
        let row = br#"{"id":1,"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}"#;
        let wanted = [Message::new("user", "a"), Message::new("assistant", "b")];
        assert_eq!(messages(row), wanted);
    }

    #[test]
    fn tool_calls_are_kept_and_null_is_empty() {
        for calls in ["[]", "null"] {
            let row = format!(
                r#"{{"messages":[{{"role":"assistant","content":null,"tool_calls":{calls}}}]}}"#
            );
            assert_eq!(messages(row.as_bytes()), [Message::new("assistant", "")]);
        }
        let row = br#"{"messages":[{"role":"assistant","tool_calls":[{"b":1,"a":2}]}]}"#;
        let found = messages(row);
        assert_eq!(found[0].content, "");
        assert_eq!(found[0].tool_calls, [serde_json::json!({"b": 1, "a": 2})]);
        let row = br#"{"messages":[{"role":"assistant","content":"","tool_calls":3}]}"#;
        assert!(record(row, RecordKind::Messages, None, "x".into()).is_err());
    }

    #[test]
    fn tools_are_a_list_or_json() {
        let read = |tools: &str| {
            let row = format!(r#"{{"messages":[],"tools":{tools}}}"#);
            match record(row.as_bytes(), RecordKind::Messages, None, "x".into()) {
                Ok(Record::Conversation(conversation)) => Ok(conversation.tools),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        let tools = vec![serde_json::json!({"b": 1, "a": 2})];
        assert_eq!(read(r#"[{"b":1,"a":2}]"#).unwrap(), tools);
        assert_eq!(read(r#""[{\"b\":1,\"a\":2}]""#).unwrap(), tools);
        for none in ["null", "[]", r#""""#, r#""null""#] {
            assert!(read(none).unwrap().is_empty(), "{none}");
        }
        assert!(read("3").unwrap_err().contains("tools is not a list"));
        assert!(read(r#""{""#).unwrap_err().contains("not a JSON list"));
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, "{\"messages\":[]}\n{\"messages\":3}\n").unwrap();
        let error = read(&path, RecordKind::Messages, None)
            .unwrap()
            .find_map(Result::err)
            .unwrap()
            .to_string();
        assert!(error.contains("a.jsonl:2"), "{error}");
    }

    #[test]
    fn an_array_is_read_like_lines() {
        let folder = tempfile::tempdir().unwrap();
        let rows: Vec<Value> = (0..50)
            .map(|n| {
                let text = format!("a}}{{\"\\ {n} [\u{1f600}");
                serde_json::json!({"messages": [{"role": "user", "content": text}], "x": {"y": [{}]}})
            })
            .collect();
        let array = folder.path().join("a.json");
        std::fs::write(&array, serde_json::to_string_pretty(&rows).unwrap()).unwrap();
        let lined = folder.path().join("b.jsonl");
        let text: String = rows.iter().map(|row| format!("{row}\n\n")).collect();
        std::fs::write(&lined, text).unwrap();
        let contents = |path: &Path| -> Vec<Vec<Message>> {
            let records = match path == array {
                true => read_array(path, RecordKind::Messages, None),
                false => read(path, RecordKind::Messages, None),
            };
            let messages = |record| match record {
                Ok(Record::Conversation(conversation)) => conversation.messages,
                other => panic!("{other:?}"),
            };
            records.unwrap().map(messages).collect()
        };
        assert_eq!(contents(&array).len(), 50);
        assert_eq!(contents(&array), contents(&lined));
        std::fs::write(&array, "[{\"messages\": []}, {\"messages\"").unwrap();
        let error = read_array(&array, RecordKind::Messages, None)
            .unwrap()
            .find_map(Result::err)
            .unwrap()
            .to_string();
        assert!(error.contains("a.json:2"), "{error}");
    }

    #[test]
    fn fuzz_json_row() {
        bolero::check!().for_each(|row: &[u8]| {
            let _ = record(row, RecordKind::Messages, None, String::new());
            let _ = record(row, RecordKind::Text, None, String::new());
            let _ = record(row, RecordKind::Preference, None, String::new());
        });
    }

    #[test]
    fn fuzz_json_array() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        bolero::check!().for_each(|noise: &[u8]| {
            std::fs::write(&path, noise).unwrap();
            let records = read_array(&path, RecordKind::Messages, None).unwrap();
            assert!(records.count() <= noise.len());
        });
    }
}
