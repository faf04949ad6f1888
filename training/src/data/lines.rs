//! JSON lines, and JSON arrays of rows, read row by row.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::source::{Kind, Records, SourceError, conversation, io, is_usual, role, usual};
use super::{Message, Record};

/// Most bytes of one row.
const ROW_BYTES: usize = 64 << 20;

/// The rows of a file of JSON lines.
pub(super) fn read(
    path: &Path,
    kind: Kind,
    column: Option<String>,
) -> Result<Records, SourceError> {
    Rows::open(path, kind, column, Rows::line)
}

/// The objects of a file that is one JSON array.
pub(super) fn read_array(
    path: &Path,
    kind: Kind,
    column: Option<String>,
) -> Result<Records, SourceError> {
    Rows::open(path, kind, column, Rows::element)
}

/// The bytes of the next row; none at the end.
type Next = fn(&mut Rows) -> Result<Option<Vec<u8>>, SourceError>;

struct Rows {
    reader: BufReader<File>,
    path: PathBuf,
    kind: Kind,
    column: Option<String>,
    next: Next,
    number: usize,
    ended: bool,
}

impl Iterator for Rows {
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
            self.place(),
        ))
    }
}

impl Rows {
    fn open(
        path: &Path,
        kind: Kind,
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

    fn place(&self) -> String {
        format!("{}:{}", self.path.display(), self.number)
    }

    fn too_long(&self) -> SourceError {
        SourceError::Row {
            place: self.place(),
            reason: format!("a row longer than {ROW_BYTES} bytes"),
        }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, SourceError> {
        loop {
            let mut line = vec![];
            let mut bounded = (&mut self.reader).take(ROW_BYTES as u64);
            let read = bounded
                .read_until(b'\n', &mut line)
                .map_err(io(&self.path))?;
            self.number += 1;
            match read {
                0 => return Ok(None),
                ROW_BYTES => return Err(self.too_long()),
                _ if line.iter().all(u8::is_ascii_whitespace) => continue,
                _ => return Ok(Some(line)),
            }
        }
    }

    /// The next object, told by its braces outside of strings. What stands between objects is not
    /// looked at: commas, white space, the array's own brackets.
    fn element(&mut self) -> Result<Option<Vec<u8>>, SourceError> {
        let (mut row, mut depth) = (vec![], 0usize);
        let (mut quoted, mut escaped) = (false, false);
        loop {
            let bytes = self.reader.fill_buf().map_err(io(&self.path))?;
            if bytes.is_empty() {
                return match depth {
                    0 => Ok(None),
                    _ => Err(SourceError::Row {
                        place: format!("{}:{}", self.path.display(), self.number + 1),
                        reason: "the file ends within a row".into(),
                    }),
                };
            }
            let mut used = bytes.len();
            for (place, &byte) in bytes.iter().enumerate() {
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
                    used = place + 1;
                    break;
                }
            }
            self.reader.consume(used);
            if row.len() > ROW_BYTES {
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

/// A row as a record.
fn record(
    row: &[u8],
    kind: Kind,
    column: Option<&str>,
    place: String,
) -> Result<Record, SourceError> {
    let bad = |reason: String| SourceError::Row {
        place: place.clone(),
        reason,
    };
    let mut row: Map<String, Value> =
        serde_json::from_slice(row).map_err(|error| bad(error.to_string()))?;
    let key = match column {
        Some(name) => Some(name.to_owned()),
        None => row.keys().find(|key| is_usual(kind, key)).cloned(),
    };
    let found = key.as_ref().and_then(|key| row.remove(key));
    let found = found.ok_or_else(|| bad(format!("no {}", column.unwrap_or(usual(kind)))))?;
    if kind == Kind::Text {
        let text: String = serde_json::from_value(found).map_err(|error| bad(error.to_string()))?;
        return Ok(Record::Text { text, place });
    }
    let Value::Array(found) = found else {
        return Err(bad("the messages are no list".into()));
    };
    let messages = found.into_iter().map(message).collect::<Result<_, _>>();
    let messages = messages.map_err(|reason: String| bad(reason))?;
    let held_out = row.get("held_out_template") == Some(&true.into());
    conversation(messages, held_out, place)
}

/// A content may be null or missing: a call of a tool has none.
fn message(mut value: Value) -> Result<Message, String> {
    let calls = value["tool_calls"].as_array();
    if calls.is_some_and(|c| !c.is_empty()) && value.get("content").is_none() {
        value["content"] = "".into();
    }
    for key in ["content", "value"] {
        if let Some(content) = value.get_mut(key).filter(|content| content.is_null()) {
            *content = "".into();
        }
    }
    let mut message: Message = serde_json::from_value(value).map_err(|error| error.to_string())?;
    message.role = role(&message.role).to_owned();
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Source, read as read_source};

    fn messages(row: &[u8]) -> Vec<Message> {
        match record(row, Kind::Messages, None, "x".into()).unwrap() {
            Record::Conversation(conversation) => conversation.messages,
            Record::Text { .. } => panic!(),
        }
    }

    #[test]
    fn both_spellings_of_messages_are_read() {
        let row = br#"{"id":1,"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}"#;
        let wanted = [Message::new("user", "a"), Message::new("assistant", "b")];
        assert_eq!(messages(row), wanted);
    }

    #[test]
    fn calls_of_tools_are_kept_and_null_is_empty() {
        for calls in ["[]", "null"] {
            let row = format!(
                r#"{{"messages":[{{"role":"assistant","content":null,"tool_calls":{calls}}}]}}"#
            );
            assert_eq!(messages(row.as_bytes()), [Message::new("assistant", "")]);
        }
        let row = br#"{"messages":[{"role":"assistant","tool_calls":[{"b":1,"a":2}]}]}"#;
        let found = messages(row);
        assert_eq!(found[0].content, "");
        assert_eq!(found[0].calls, [serde_json::json!({"b": 1, "a": 2})]);
        let row = br#"{"messages":[{"role":"assistant","content":"","tool_calls":3}]}"#;
        assert!(record(row, Kind::Messages, None, "x".into()).is_err());
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, "{\"messages\":[]}\n{\"messages\":3}\n").unwrap();
        let error = read_source(&Source::at(path)).unwrap_err().to_string();
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
            let all = read_source(&Source::at(path)).unwrap();
            all.into_iter().map(|one| one.messages).collect()
        };
        assert_eq!(contents(&array).len(), 50);
        assert_eq!(contents(&array), contents(&lined));
        std::fs::write(&array, "[{\"messages\": []}, {\"messages\"").unwrap();
        let error = read_source(&Source::at(&array)).unwrap_err().to_string();
        assert!(error.contains("a.json:2"), "{error}");
    }

    #[test]
    fn fuzz_json_row() {
        bolero::check!().for_each(|row: &[u8]| {
            let _ = record(row, Kind::Messages, None, String::new());
            let _ = record(row, Kind::Text, None, String::new());
        });
    }

    #[test]
    fn fuzz_json_array() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        bolero::check!().for_each(|noise: &[u8]| {
            std::fs::write(&path, noise).unwrap();
            let records = read_array(&path, Kind::Messages, None).unwrap();
            assert!(records.count() <= noise.len());
        });
    }
}
