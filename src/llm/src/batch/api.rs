//! OpenAI's Files and Batch APIs, as far as batches need them. Each function is one exchange.
//!
//! async-openai implements both, but it rejects unknown statuses and missing fields, which occur at other
//! endpoints with this protocol, and it reads files into memory as a whole.

use serde::Deserialize;
use serde_json::{Value, json};

use super::line::ENDPOINT;
use crate::ChatError;
use crate::http::{MAX_BODY, Transport, plain};
use crate::lines::{Lines, ReadLimits};
use crate::openai::{Endpoint, OpenAiOptions, redact};
use pybench_types::id::Digest;

/// Number of batches per page, and of pages that are searched.
const PAGE_SIZE: usize = 100;
const MAX_PAGES: usize = 100;
/// Maximum length of the id of a file or a batch.
const MAX_ID: usize = 256;
/// Metadata key for our name of a batch.
const NAME_KEY: &str = "pybench";

/// Client of the Files and Batch APIs.
pub(super) struct Api {
    options: OpenAiOptions,
    endpoint: Endpoint,
    transport: Transport,
    files: Transport,
}

/// State of a batch at the endpoint.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RemoteBatch {
    id: String,
    #[serde(default)]
    input_file_id: Option<String>,
    status: String,
    #[serde(default)]
    output_file_id: Option<String>,
    #[serde(default)]
    error_file_id: Option<String>,
    #[serde(default)]
    errors: Option<Errors>,
    #[serde(default)]
    request_counts: Option<Counts>,
}

#[derive(Clone, Debug, Deserialize)]
struct Errors {
    #[serde(default)]
    data: Option<Vec<BatchError>>,
}

/// An error for which a whole batch was rejected.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct BatchError {
    #[serde(default)]
    pub(super) code: Option<String>,
    #[serde(default)]
    message: Option<String>,
    /// The invalid line of the file, from 1, if the error concerns a single line.
    #[serde(default)]
    pub(super) line: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Counts {
    #[serde(default)]
    completed: u64,
    #[serde(default)]
    failed: u64,
}

impl BatchError {
    pub(super) fn text(&self) -> String {
        let parts = [&self.code, &self.message].into_iter().flatten();
        plain(&parts.map(String::as_str).collect::<Vec<_>>().join(": "))
    }
}

impl RemoteBatch {
    /// Whether the batch has ended. Unknown statuses count as in progress.
    pub(super) fn ended(&self) -> bool {
        let ends = ["completed", "failed", "expired", "cancelled", "canceled"];
        ends.contains(&self.status.as_str())
    }

    /// The status, safe to display.
    pub(super) fn status(&self) -> String {
        plain(&self.status)
    }

    /// Number of requests with a result.
    pub(super) fn done(&self) -> u64 {
        let counts = self.request_counts;
        counts.map_or(0, |counts| counts.completed.saturating_add(counts.failed))
    }

    /// IDs of the files with the results.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let files = [&self.output_file_id, &self.error_file_id];
        files
            .into_iter()
            .flatten()
            .map(String::as_str)
            .filter(|id| !id.is_empty())
    }

    /// Errors for which the whole batch was rejected.
    pub(super) fn errors(&self) -> &[BatchError] {
        let data = self
            .errors
            .as_ref()
            .and_then(|errors| errors.data.as_deref());
        data.unwrap_or_default()
    }
}

impl Api {
    pub(super) fn new(options: &OpenAiOptions) -> Result<Self, ChatError> {
        Ok(Self {
            endpoint: Endpoint::new(options)?,
            transport: Transport::new(options.timeout)?,
            files: Transport::for_files(options.timeout)?,
            options: options.clone(),
        })
    }

    /// Uploads the file of a batch and returns its ID.
    pub(super) async fn upload(&self, name: &str, lines: &str) -> Result<String, ChatError> {
        let (media_type, body) = multipart_form(&format!("pybench-{name}.jsonl"), lines);
        let (url, headers) = self.endpoint.at("/files");
        let answer = self
            .files
            .post_bytes(&url, headers, &media_type, body)
            .await;
        id_of(answer.map_err(|error| redact(&self.options, error))?)
    }

    /// Creates a batch for an uploaded file and returns its ID.
    pub(super) async fn create(&self, name: &str, file: &str) -> Result<String, ChatError> {
        let body = json!({
            "input_file_id": file, "endpoint": ENDPOINT, "completion_window": "24h",
            "metadata": {NAME_KEY: name},
        });
        let (url, headers) = self.endpoint.at("/batches");
        let answer = self.transport.post(&url, headers, &body).await;
        id_of(answer.map_err(|error| redact(&self.options, error))?)
    }

    /// Finds the batch of a file; a file belongs to at most one batch.
    pub(super) async fn find(&self, file: &str) -> Result<Option<String>, ChatError> {
        #[derive(Deserialize)]
        struct Page {
            data: Vec<RemoteBatch>,
            #[serde(default)]
            has_more: bool,
        }
        let mut after = String::new();
        for _ in 0..MAX_PAGES {
            let answer = self
                .get(&format!("/batches?limit={PAGE_SIZE}{after}"))
                .await?;
            let page: Page = read(answer)?;
            let ours = |batch: &&RemoteBatch| batch.input_file_id.as_deref() == Some(file);
            if let Some(batch) = page.data.iter().find(ours) {
                return validated(batch.id.clone()).map(Some);
            }
            match page.data.last() {
                Some(last) if page.has_more => {
                    after = format!("&after={}", validated(last.id.clone())?);
                }
                _ => return Ok(None),
            }
        }
        Err(ChatError::Internal(format!(
            "the batch of file {file} is not among the newest {} batches of the endpoint and may be older",
            PAGE_SIZE * MAX_PAGES
        )))
    }

    /// Fetches the state of a batch.
    pub(super) async fn status(&self, id: &str) -> Result<RemoteBatch, ChatError> {
        read(self.get(&format!("/batches/{id}")).await?)
    }

    /// Downloads a result file for `requests` requests.
    pub(super) async fn lines(&self, file: &str, requests: u64) -> Result<Lines, ChatError> {
        let path = format!("/files/{}/content", validated(file.to_owned())?);
        let (url, headers) = self.endpoint.at(&path);
        // The size limit per reply is the same as for single requests.
        let most = ReadLimits {
            bytes: requests.saturating_add(1).saturating_mul(MAX_BODY),
            line: MAX_BODY as usize,
        };
        let lines = self.files.lines(&url, headers, most).await;
        lines.map_err(|error| redact(&self.options, error))
    }

    async fn get(&self, path: &str) -> Result<Value, ChatError> {
        let (url, headers) = self.endpoint.at(path);
        let answer = self.transport.get(&url, headers).await;
        answer.map_err(|error| redact(&self.options, error))
    }
}

fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, ChatError> {
    serde_json::from_value(answer).map_err(|error| {
        ChatError::Malformed(format!("not a batch object: {}", plain(&error.to_string())))
    })
}

fn id_of(answer: Value) -> Result<String, ChatError> {
    let id = answer.get("id").and_then(Value::as_str);
    let id = id.ok_or_else(|| ChatError::Malformed("the response has no id".to_owned()))?;
    validated(id.to_owned())
}

/// Validates an ID from the endpoint, because it becomes part of a URL.
fn validated(id: String) -> Result<String, ChatError> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let begins = id.starts_with(|c: char| c.is_ascii_alphanumeric());
    match begins && id.len() <= MAX_ID && id.chars().all(sound) {
        true => Ok(id),
        false => Err(ChatError::Malformed(format!("invalid id: {}", plain(&id)))),
    }
}

/// The multipart form of an upload, and its media type. The boundary cannot occur in the file, whose lines are
/// JSON objects.
fn multipart_form(file_name: &str, lines: &str) -> (String, Vec<u8>) {
    let boundary = Digest::of_bytes(lines.as_bytes()).to_string();
    let field =
        |rest: &str| format!("--{boundary}\r\nContent-Disposition: form-data; name={rest}\r\n\r\n");
    let mut body = Vec::with_capacity(lines.len() + 1024);
    body.extend_from_slice(field("\"purpose\"").as_bytes());
    body.extend_from_slice(b"batch\r\n");
    let file = format!("\"file\"; filename=\"{file_name}\"\r\nContent-Type: application/jsonl");
    body.extend_from_slice(field(&file).as_bytes());
    body.extend_from_slice(lines.as_bytes());
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_must_be_safe_in_urls() {
        for id in ["batch_abc", "file-1", "0190b5c4-aa", "a.b:c"] {
            assert_eq!(validated(id.to_owned()).unwrap(), id);
        }
        for id in ["", "..", "a/b", "a?b", "a b", "a%2f", "é", &"a".repeat(257)] {
            assert_eq!(
                validated(id.to_owned()).unwrap_err().kind(),
                "malformed",
                "{id}"
            );
        }
    }

    #[test]
    fn batch_objects_with_missing_fields_are_accepted() {
        let bare: RemoteBatch = read(json!({"id": "b", "status": "queued"})).unwrap();
        assert!(!bare.ended() && bare.done() == 0 && bare.files().next().is_none());
        let full = json!({
            "id": "b", "status": "expired", "output_file_id": "o", "error_file_id": null,
            "errors": {"data": [{"code": "x", "message": "bad\nline", "line": 2}]},
            "request_counts": {"total": 9, "completed": 4, "failed": 1},
        });
        let full: RemoteBatch = read(full).unwrap();
        assert!(full.ended() && full.done() == 5);
        assert_eq!(full.files().collect::<Vec<_>>(), ["o"]);
        assert_eq!(full.errors()[0].text(), "x: bad line");
        assert!(read::<RemoteBatch>(json!({"id": 5})).is_err());
    }

    #[test]
    fn fuzz_parsing_batches_does_not_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(remote) = serde_json::from_slice::<RemoteBatch>(bytes) {
                let _ = (remote.ended(), remote.done(), remote.files().count());
                assert!(
                    remote
                        .errors()
                        .iter()
                        .all(|error| !error.text().contains('\n'))
                );
            }
        });
    }
}
