//! Creates commits. Small files are part of the request; large files are referenced by their hashes.

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
use super::error::{HubError, HubErrorKind};
use super::repository::{BRANCH, Mode};
use super::{Repository, UploadFile};

/// The changes of a commit.
#[derive(Clone, Debug, Default)]
pub struct Change<'a> {
    pub put: Vec<(&'a UploadFile, Mode)>,
    /// Paths of deleted files.
    pub delete: Vec<&'a str>,
    /// The commit's first line.
    pub message: &'a str,
}

impl Repository<'_> {
    /// Creates one commit on top of `parent` and returns its hash. The request is sent only once, because a
    /// commit whose response is lost may exist.
    ///
    /// # Errors
    /// [`HubErrorKind::Conflict`] if `parent` is no longer the newest commit.
    pub async fn commit(&self, change: &Change<'_>, parent: &str) -> Result<String, HubError> {
        let what = format!("committing to {}", self.shown());
        let local =
            |error: std::io::Error| HubError::new(&what, HubErrorKind::Local, error.to_string());
        let body = body(change, parent).map_err(local)?;
        let size = body.metadata().map_err(local)?.len();
        let url = self.api(["commit", BRANCH]);
        let request = self.hub.upload(Method::POST, url);
        let request = request.header(CONTENT_TYPE, "application/x-ndjson");
        let sent = Arc::new(AtomicU64::new(0));
        let pieces = pieces(Box::new(body), sent.clone());
        let response = self
            .hub
            .send_body(&what, request, pieces, size, &sent)
            .await?;
        let done: Committed = parse(&what, response).await?;
        Ok(done.commit_oid)
    }
}

/// Writes the lines of a commit, which include the small files, to an anonymous temporary file.
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
    fn a_commit_is_encoded_as_json_lines() {
        let small = UploadFile::of_bytes("README.md", "hi").unwrap();
        let large = UploadFile::of_bytes("data/a.parquet", "PAR1").unwrap();
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
