//! What is asked: a task and what an agent made of it. The bytes come from outside.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench::grade::Claim;
use pybench::id::Digest;
use serde::Deserialize;

use crate::library::TaskKey;

/// Most values in a request: each takes tens of bytes once it is parsed, however short it is written.
const MOST_VALUES: usize = 1_000_000;
const MOST_FILES: usize = 1000;
const MOST_CLAIMS: usize = 1000;
/// Longest path, bytes, and most parts of one.
const MOST_PATH: usize = 512;
const MOST_DEPTH: usize = 16;
/// Longest answer, bytes; the checks read less of it.
const MOST_ANSWER: usize = 1 << 20;

/// A workspace to be scored.
#[derive(Debug)]
pub(super) struct Request {
    /// The task.
    pub(super) task: TaskKey,
    /// What its id must be, where the asker knows it.
    pub(super) id: Option<Digest>,
    /// The final message.
    pub(super) answer: String,
    /// Path below the workspace (`output/…`) and bytes.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// What charts are said to show.
    pub(super) claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    task: TaskKey,
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
pub(super) enum Wrong {
    /// It is not what is expected.
    #[error("{0}")]
    Shape(String),
    /// It is more than is read.
    #[error("{0}")]
    Large(String),
}

impl Request {
    /// Largest body of a workspace of so many bytes: base64, and claims and answer beside it.
    pub(super) fn most_bytes(workspace: usize) -> usize {
        workspace / 3 * 4 + (16 << 20)
    }

    /// Reads a body whose files may have `most` bytes together.
    pub(super) fn parse(body: &[u8], most: usize) -> Result<Self, Wrong> {
        if values(body) > MOST_VALUES {
            return Err(Wrong::Large(format!("more than {MOST_VALUES} values")));
        }
        let raw: Raw = serde_json::from_slice(body)
            .map_err(|error| Wrong::Shape(format!("the body: {error}")))?;
        let counts = [
            ("files", raw.files.len(), MOST_FILES),
            ("claims", raw.claims.len(), MOST_CLAIMS),
            ("bytes of answer", raw.answer.len(), MOST_ANSWER),
            ("bytes of template", raw.task.template.len(), MOST_PATH),
        ];
        if let Some((what, _, most)) = counts.iter().find(|(_, found, most)| found > most) {
            return Err(Wrong::Large(format!("more than {most} {what}")));
        }
        Ok(Self {
            task: raw.task,
            id: raw.id,
            answer: raw.answer,
            files: files(raw.files, most)?,
            claims: raw.claims,
        })
    }
}

/// Decodes files within their bound; every path is one of its own below `output/`.
fn files(raw: Vec<RawFile>, most: usize) -> Result<Vec<(String, Vec<u8>)>, Wrong> {
    let mut left = most;
    let mut files = Vec::new();
    for file in raw {
        if !is_output(&file.path) {
            let text = format!(
                "{:?}: expected output/… of plain names, at most {MOST_DEPTH} of them and {MOST_PATH} bytes",
                file.path.chars().take(100).collect::<String>()
            );
            return Err(Wrong::Shape(text));
        }
        let bytes = STANDARD
            .decode(&file.base64)
            .map_err(|error| Wrong::Shape(format!("{}: no base64: {error}", file.path)))?;
        left = left.checked_sub(bytes.len()).ok_or_else(|| {
            Wrong::Large(format!("the files have more than {most} bytes together"))
        })?;
        files.push((file.path, bytes));
    }
    let paths: BTreeSet<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let folder = |path: &str| {
        let mut above = Path::new(path).ancestors().skip(1);
        above.any(|above| above.to_str().is_some_and(|above| paths.contains(above)))
    };
    match files.iter().find(|(path, _)| folder(path)) {
        Some((path, _)) => Err(Wrong::Shape(format!("{path} lies below a file"))),
        None if paths.len() < files.len() => Err(Wrong::Shape("a path is there twice".to_owned())),
        None => Ok(files),
    }
}

/// A path below `output/` that leads nowhere else, and is written in the one way there is.
fn is_output(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("output/") else {
        return false;
    };
    let plain = |part: &str| {
        let mut parts = Path::new(part).components();
        let normal = matches!(parts.next(), Some(Component::Normal(name)) if name == part);
        normal && parts.next().is_none() && part.len() <= 255 && !part.contains('\0')
    };
    path.len() <= MOST_PATH && path.split('/').count() <= MOST_DEPTH && rest.split('/').all(plain)
}

/// An upper bound of the values in JSON text, without making any: what stands between its commas and
/// brackets, strings aside.
fn values(body: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for byte in body {
        match (quoted, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
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

    fn refused(files: Value) -> Wrong {
        Request::parse(&body(files), MOST).unwrap_err()
    }

    #[test]
    fn a_workspace_is_read() {
        let files = json!([file("output/a.csv", 3), file("output/b/c.png", 997)]);
        let request = Request::parse(&body(files), MOST).unwrap();
        assert_eq!(request.task.to_string(), "a-en-7");
        assert_eq!(request.files[0], ("output/a.csv".to_owned(), vec![7; 3]));
        assert_eq!(request.files[1].1.len(), 997);
        assert!(request.id.is_none() && request.claims.is_empty());
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let long = format!("output/{}", "a".repeat(300));
        let deep = format!("output{}", "/a".repeat(MOST_DEPTH));
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
                matches!(refused(json!([file(path, 1)])), Wrong::Shape(_)),
                "{path:?}"
            );
        }
        let twice = refused(json!([file("output/a", 1), file("output/a", 1)]));
        assert_eq!(twice, Wrong::Shape("a path is there twice".to_owned()));
        let below = refused(json!([file("output/a", 1), file("output/a/b/c", 1)]));
        assert_eq!(
            below,
            Wrong::Shape("output/a/b/c lies below a file".to_owned())
        );
    }

    #[test]
    fn what_is_too_much_is_refused_before_it_is_made() {
        let large = refused(json!([file("output/a", 600), file("output/b", 600)]));
        assert!(matches!(large, Wrong::Large(_)), "{large}");
        let many: Vec<_> = (0..=MOST_FILES)
            .map(|n| file(&format!("output/{n}"), 0))
            .collect();
        assert!(matches!(refused(json!(many)), Wrong::Large(_)));
        let flood = format!("[{}0]", "0,".repeat(MOST_VALUES + 1));
        let flood = Request::parse(flood.as_bytes(), MOST).unwrap_err();
        assert!(matches!(flood, Wrong::Large(_)), "{flood}");
        let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(matches!(
            Request::parse(nested.as_bytes(), MOST),
            Err(Wrong::Shape(_))
        ));
    }

    #[test]
    fn commas_in_strings_are_no_values() {
        assert_eq!(values(br#"{"a": "1,2,[{\",", "b": [1, 2]}"#), 5);
    }

    /// Counts the values that a parsed text has.
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
            prop_assert!(values(tree.to_string().as_bytes()) >= count(&tree));
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

    /// As above, where the shape is right and the rest is not.
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
