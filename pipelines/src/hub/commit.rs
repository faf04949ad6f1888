//! One commit: small files in it, large ones by their hashes.

use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::json;

use super::client::parse;
use super::content::pieces;
use super::refusal::{Refusal, Why};
use super::repository::{BRANCH, Mode};
use super::{Content, Repository};

/// What a commit changes.
#[derive(Clone, Debug, Default)]
pub struct Change<'a> {
    /// Files that are new or others.
    pub put: Vec<(&'a Content, Mode)>,
    /// Files that go.
    pub delete: Vec<&'a str>,
    /// The commit's first line.
    pub message: &'a str,
}

impl Repository<'_> {
    /// Make one commit after `parent`, and nothing where that is no longer the newest. Asked once: a
    /// commit whose answer is lost may be there.
    ///
    /// # Errors
    /// Refusals; [`Why::Conflict`] where there is another commit.
    pub async fn commit(&self, change: &Change<'_>, parent: &str) -> Result<String, Refusal> {
        let what = format!("committing to {}", self.shown());
        let here = |error: std::io::Error| Refusal::new(&what, Why::Setting, error.to_string());
        let body = body(change, parent).map_err(here)?;
        let size = body.metadata().map_err(here)?.len();
        let url = self.api(["commit", BRANCH]);
        let request = self.hub.send(Method::POST, url);
        let request = request.header(CONTENT_TYPE, "application/x-ndjson");
        let out = Arc::new(AtomicU64::new(0));
        let pieces = pieces(Box::new(body), out.clone());
        let response = self.hub.deliver(&what, request, pieces, size, &out).await?;
        let done: Committed = parse(&what, response).await?;
        Ok(done.commit_oid)
    }
}

/// The lines of a commit in a file without a name: small files are in them.
fn body(change: &Change<'_>, parent: &str) -> std::io::Result<std::fs::File> {
    let mut file = std::io::BufWriter::new(tempfile::tempfile()?);
    let header = json!({"summary": change.message, "description": "", "parentCommit": parent});
    writeln!(file, "{}", json!({"key": "header", "value": header}))?;
    for (content, mode) in &change.put {
        let path = &content.path;
        let line = match mode {
            Mode::Regular => {
                let content = STANDARD.encode(content.bytes()?);
                let value = json!({"path": path, "encoding": "base64", "content": content});
                json!({"key": "file", "value": value})
            }
            Mode::Large => {
                let (oid, size) = (&content.sha256, content.size);
                let value = json!({"path": path, "algo": "sha256", "oid": oid, "size": size});
                json!({"key": "lfsFile", "value": value})
            }
        };
        writeln!(file, "{line}")?;
    }
    for path in &change.delete {
        writeln!(
            file,
            "{}",
            json!({"key": "deletedFile", "value": {"path": path}})
        )?;
    }
    let mut file = file.into_inner().map_err(|error| error.into_error())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Committed {
    commit_oid: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_commit_is_lines() {
        let small = Content::of_bytes("README.md", "hi").unwrap();
        let large = Content::of_bytes("data/a.parquet", "PAR1").unwrap();
        let change = Change {
            put: vec![(&small, Mode::Regular), (&large, Mode::Large)],
            delete: vec!["data/b.parquet"],
            message: "why",
        };
        let mut text = String::new();
        body(&change, "abc")
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["value"]["parentCommit"], "abc");
        assert_eq!(lines[1]["value"]["content"], "aGk=");
        assert_eq!(lines[2]["value"]["oid"], large.sha256);
        assert_eq!(
            lines[3],
            json!({"key": "deletedFile", "value": {"path": "data/b.parquet"}})
        );
    }
}
