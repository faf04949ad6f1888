//! Parses requests: a task and the workspace that an agent left. The bytes are untrusted.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench_checks::Claim;
use pybench_types::id::Digest;
use pybench_types::json::count_values;
use serde::Deserialize;

use crate::TaskKey;

/// Maximum number of JSON values in a request. Each takes tens of bytes once it is parsed.
const MAX_VALUES: usize = 1_000_000;
const MAX_FILES: usize = 1000;
const MAX_CLAIMS: usize = 1000;
/// Longest path in bytes, and maximum number of its components.
const MAX_PATH: usize = 512;
const MAX_DEPTH: usize = 16;
/// Longest answer, in bytes; the checks read less of it.
const MAX_ANSWER: usize = 1 << 20;

/// A workspace to be scored.
#[derive(Debug)]
pub(super) struct Request {
    /// What the task is made from; `None` if the server has it.
    pub(super) task: Option<TaskKey>,
    /// The expected task id, if the client knows it.
    pub(super) id: Option<Digest>,
    /// The final message.
    pub(super) answer: String,
    /// Path below the workspace (`output/…`) and content.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// The recorded data of charts.
    pub(super) claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    task: Option<TaskKey>,
    #[serde(default)]
    id: Option<Digest>,
    #[serde(default)]
    answer: String,
    #[serde(default)]
    files: Vec<RawFile>,
    #[serde(default)]
    claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    path: String,
    base64: String,
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// The request is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The request exceeds a limit.
    #[error("{0}")]
    TooLarge(String),
}

impl Request {
    /// Largest request body for a workspace of this many bytes: files in base64, claims and answer.
    pub(super) fn max_body(workspace: usize) -> usize {
        workspace / 3 * 4 + (16 << 20)
    }

    /// Parses a body whose files may have `max_bytes` together.
    pub(super) fn parse(body: &[u8], max_bytes: usize) -> Result<Self, RequestError> {
        if count_values(body) > MAX_VALUES {
            return Err(RequestError::TooLarge(format!(
                "more than {MAX_VALUES} values"
            )));
        }
        let raw: Raw = serde_json::from_slice(body)
            .map_err(|error| RequestError::Invalid(format!("the body: {error}")))?;
        let counts = [
            ("files", raw.files.len(), MAX_FILES),
            ("claims", raw.claims.len(), MAX_CLAIMS),
            ("bytes of answer", raw.answer.len(), MAX_ANSWER),
            (
                "bytes of template",
                raw.task.as_ref().map_or(0, |task| task.template.len()),
                MAX_PATH,
            ),
        ];
        if let Some((what, _, max)) = counts.iter().find(|(_, found, max)| found > max) {
            return Err(RequestError::TooLarge(format!("more than {max} {what}")));
        }
        if raw.task.is_none() && raw.id.is_none() {
            let text = "neither `task` nor `id` names a task";
            return Err(RequestError::Invalid(text.to_owned()));
        }
        Ok(Self {
            task: raw.task,
            id: raw.id,
            answer: raw.answer,
            files: files(raw.files, max_bytes)?,
            claims: raw.claims,
        })
    }
}

/// Decodes the files. Every path must be below `output/` and unique.
fn files(raw: Vec<RawFile>, max_bytes: usize) -> Result<Vec<(String, Vec<u8>)>, RequestError> {
    let mut left = max_bytes;
    let mut files = Vec::new();
    for file in raw {
        if !is_output(&file.path) {
            let text = format!(
                "{:?}: expected output/… of plain names, at most {MAX_DEPTH} of them and {MAX_PATH} bytes",
                file.path.chars().take(100).collect::<String>()
            );
            return Err(RequestError::Invalid(text));
        }
        let bytes = STANDARD.decode(&file.base64).map_err(|error| {
            RequestError::Invalid(format!("{}: invalid base64: {error}", file.path))
        })?;
        left = left.checked_sub(bytes.len()).ok_or_else(|| {
            RequestError::TooLarge(format!(
                "the files have more than {max_bytes} bytes together"
            ))
        })?;
        files.push((file.path, bytes));
    }
    let paths: BTreeSet<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let folder = |path: &str| {
        let mut above = Path::new(path).ancestors().skip(1);
        above.any(|above| above.to_str().is_some_and(|above| paths.contains(above)))
    };
    match files.iter().find(|(path, _)| folder(path)) {
        Some((path, _)) => Err(RequestError::Invalid(format!(
            "{path} is below a path that is a file"
        ))),
        None if paths.len() < files.len() => {
            Err(RequestError::Invalid("a path occurs twice".to_owned()))
        }
        None => Ok(files),
    }
}

/// Whether a path is below `output/` and in its canonical form.
fn is_output(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("output/") else {
        return false;
    };
    let plain = |part: &str| {
        let mut parts = Path::new(part).components();
        let normal = matches!(parts.next(), Some(Component::Normal(name)) if name == part);
        normal && parts.next().is_none() && part.len() <= 255 && !part.contains('\0')
    };
    path.len() <= MAX_PATH && path.split('/').count() <= MAX_DEPTH && rest.split('/').all(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const MOST: usize = 1000;

    fn body(files: Value) -> Vec<u8> {
        let task = json!({"template": "a", "language": "en", "seed": 7});
        json!({"task": task, "answer": "Mean: 1", "files": files})
            .to_string()
            .into_bytes()
    }

    fn file(path: &str, size: usize) -> Value {
        json!({"path": path, "base64": STANDARD.encode(vec![7; size])})
    }

    fn refused(files: Value) -> RequestError {
        Request::parse(&body(files), MOST).unwrap_err()
    }

    #[test]
    fn a_workspace_is_parsed() {
        let files = json!([file("output/a.csv", 3), file("output/b/c.png", 997)]);
        let request = Request::parse(&body(files), MOST).unwrap();
        assert_eq!(request.task.unwrap().to_string(), "a-en-7");
        assert_eq!(request.files[0], ("output/a.csv".to_owned(), vec![7; 3]));
        assert_eq!(request.files[1].1.len(), 997);
        assert!(request.id.is_none() && request.claims.is_empty());
        for nothing in ["[]", "{}", "{\"files\": []}", "{\"task\": null}"] {
            let refused = Request::parse(nothing.as_bytes(), MOST).unwrap_err();
            assert!(matches!(refused, RequestError::Invalid(_)), "{nothing}");
        }
    }

    #[test]
    fn paths_outside_of_output_are_rejected() {
        let long = format!("output/{}", "a".repeat(300));
        let deep = format!("output{}", "/a".repeat(MAX_DEPTH));
        for path in [
            "a.csv",
            "output",
            "output/",
            "/etc/passwd",
            "output/../task.json",
            "output/./a",
            "output//a",
            "output/a/",
            "../output/a",
            "output/a/../../b",
            "output/\0",
            &long,
            &deep,
            "",
        ] {
            assert!(
                matches!(refused(json!([file(path, 1)])), RequestError::Invalid(_)),
                "{path:?}"
            );
        }
        let twice = refused(json!([file("output/a", 1), file("output/a", 1)]));
        assert_eq!(
            twice,
            RequestError::Invalid("a path occurs twice".to_owned())
        );
        let below = refused(json!([file("output/a", 1), file("output/a/b/c", 1)]));
        assert_eq!(
            below,
            RequestError::Invalid("output/a/b/c is below a path that is a file".to_owned())
        );
    }

    #[test]
    fn oversized_requests_are_rejected_before_they_are_parsed() {
        let large = refused(json!([file("output/a", 600), file("output/b", 600)]));
        assert!(matches!(large, RequestError::TooLarge(_)), "{large}");
        let many: Vec<_> = (0..=MAX_FILES)
            .map(|n| file(&format!("output/{n}"), 0))
            .collect();
        assert!(matches!(refused(json!(many)), RequestError::TooLarge(_)));
        let flood = format!("[{}0]", "0,".repeat(MAX_VALUES + 1));
        let flood = Request::parse(flood.as_bytes(), MOST).unwrap_err();
        assert!(matches!(flood, RequestError::TooLarge(_)), "{flood}");
        let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(matches!(
            Request::parse(nested.as_bytes(), MOST),
            Err(RequestError::Invalid(_))
        ));
    }

    /// Counts the values of a parsed text.
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(count).sum(),
            Value::Object(items) => items.values().map(count).sum(),
            _ => 0,
        }
    }

    fn trees() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((".*", inner), 0..6)
                    .prop_map(|items| Value::Object(items.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_value_is_missed(tree in trees()) {
            prop_assert!(count_values(tree.to_string().as_bytes()) >= count(&tree));
        }

        #[test]
        fn an_accepted_path_stays_below_output(parts in prop::collection::vec("[a./\\\\ ]{0,4}", 0..6)) {
            let path = format!("output/{}", parts.join("/"));
            if is_output(&path) {
                let normal = |c| matches!(c, Component::Normal(_));
                prop_assert!(Path::new(&path).components().all(normal), "{path}");
                prop_assert!(Path::new("/w").join(&path).starts_with("/w/output"));
            }
        }
    }

    #[test]
    fn fuzz_request() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(request) = Request::parse(bytes, MOST) {
                assert!(request.files.iter().all(|(path, _)| is_output(path)));
                assert!(request.files.iter().map(|(_, b)| b.len()).sum::<usize>() <= MOST);
            }
        });
    }

    /// As above, with well-formed requests and arbitrary files.
    #[test]
    fn fuzz_files() {
        bolero::check!()
            .with_type::<Vec<(String, Vec<u8>)>>()
            .for_each(|found: &Vec<(String, Vec<u8>)>| {
                let encoded = found.iter().map(|(path, bytes)| {
                    json!({"path": format!("output/{path}"), "base64": STANDARD.encode(bytes)})
                });
                if let Ok(request) = Request::parse(&body(encoded.collect()), MOST) {
                    let bytes = |pairs: &[(String, Vec<u8>)]| -> Vec<Vec<u8>> {
                        pairs.iter().map(|(_, bytes)| bytes.clone()).collect()
                    };
                    assert_eq!(bytes(&request.files), bytes(found));
                }
            });
    }
}
