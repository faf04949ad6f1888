//! OpenAI's Files and Batch APIs, as far as batches need them: each function is one exchange.
//!
//! async-openai has both, but its types are OpenAI's to the letter (an unknown status or a missing field is
//! an error, and others speak this protocol too), and it reads files whole.

use serde::Deserialize;
use serde_json::{Value, json};

use super::line::ENDPOINT;
use crate::id::Digest;
use crate::llm::TeacherError;
use crate::llm::http::{MAX_BODY, Transport, plain};
use crate::llm::lines::{Lines, Most};
use crate::llm::openai::{Endpoint, OpenAiOptions, redact};

/// Batches of a page, and pages that are looked through for one.
const PAGE: usize = 100;
const PAGES: usize = 100;
/// Longest id of a file or a batch.
const LONGEST_ID: usize = 256;
/// The key of a batch's metadata that holds our name for it.
const NAME: &str = "pybench";

/// Where batches are made.
pub(super) struct Api {
    options: OpenAiOptions,
    endpoint: Endpoint,
    transport: Transport,
    files: Transport,
}

/// A batch as the endpoint sees it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Remote {
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
    data: Option<Vec<Refusal>>,
}

/// Why a batch was refused as a whole.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    pub(super) code: Option<String>,
    #[serde(default)]
    message: Option<String>,
    /// The line of the file, from 1, where one is to blame.
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

impl Refusal {
    pub(super) fn text(&self) -> String {
        let parts = [&self.code, &self.message].into_iter().flatten();
        plain(&parts.map(String::as_str).collect::<Vec<_>>().join(": "))
    }
}

impl Remote {
    /// Whether nothing more will come of it. What is not known is taken for a state on the way.
    pub(super) fn ended(&self) -> bool {
        let ends = ["completed", "failed", "expired", "cancelled", "canceled"];
        ends.contains(&self.status.as_str())
    }

    /// Its state in one word.
    pub(super) fn status(&self) -> String {
        plain(&self.status)
    }

    /// Requests that came to an end.
    pub(super) fn done(&self) -> u64 {
        let counts = self.request_counts;
        counts.map_or(0, |counts| counts.completed.saturating_add(counts.failed))
    }

    /// Files that say what became of its requests.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let files = [&self.output_file_id, &self.error_file_id];
        files
            .into_iter()
            .flatten()
            .map(String::as_str)
            .filter(|id| !id.is_empty())
    }

    /// Why it was refused as a whole.
    pub(super) fn refusals(&self) -> &[Refusal] {
        let data = self
            .errors
            .as_ref()
            .and_then(|errors| errors.data.as_deref());
        data.unwrap_or_default()
    }
}

impl Api {
    pub(super) fn new(options: &OpenAiOptions) -> Result<Self, TeacherError> {
        Ok(Self {
            endpoint: Endpoint::new(options)?,
            transport: Transport::new(options.timeout)?,
            files: Transport::for_files(options.timeout)?,
            options: options.clone(),
        })
    }

    /// Uploads the file of a batch; the endpoint's id of it.
    pub(super) async fn upload(&self, name: &str, lines: &str) -> Result<String, TeacherError> {
        let (media_type, body) = form(&format!("pybench-{name}.jsonl"), lines);
        let (url, headers) = self.endpoint.at("/files");
        let answer = self
            .files
            .post_bytes(&url, headers, &media_type, body)
            .await;
        id_of(answer.map_err(|error| redact(&self.options, error))?)
    }

    /// Asks for a batch of that file; the endpoint's id of it.
    pub(super) async fn make(&self, name: &str, file: &str) -> Result<String, TeacherError> {
        let body = json!({
            "input_file_id": file, "endpoint": ENDPOINT, "completion_window": "24h",
            "metadata": {NAME: name},
        });
        let (url, headers) = self.endpoint.at("/batches");
        let answer = self.transport.post(&url, headers, &body).await;
        id_of(answer.map_err(|error| redact(&self.options, error))?)
    }

    /// The batch of that file, which belongs to no other batch.
    pub(super) async fn find(&self, file: &str) -> Result<Option<String>, TeacherError> {
        #[derive(Deserialize)]
        struct Page {
            data: Vec<Remote>,
            #[serde(default)]
            has_more: bool,
        }
        let mut after = String::new();
        for _ in 0..PAGES {
            let answer = self.get(&format!("/batches?limit={PAGE}{after}")).await?;
            let page: Page = read(answer)?;
            let ours = |batch: &&Remote| batch.input_file_id.as_deref() == Some(file);
            if let Some(batch) = page.data.iter().find(ours) {
                return checked(batch.id.clone()).map(Some);
            }
            match page.data.last() {
                Some(last) if page.has_more => {
                    after = format!("&after={}", checked(last.id.clone())?);
                }
                _ => return Ok(None),
            }
        }
        Err(TeacherError::Internal(format!(
            "the batch of file {file} is not among the newest {}, and was perhaps made before them",
            PAGE * PAGES
        )))
    }

    /// How a batch stands.
    pub(super) async fn look(&self, id: &str) -> Result<Remote, TeacherError> {
        read(self.get(&format!("/batches/{id}")).await?)
    }

    /// A file that says what became of so many requests.
    pub(super) async fn lines(&self, file: &str, requests: u64) -> Result<Lines, TeacherError> {
        let path = format!("/files/{}/content", checked(file.to_owned())?);
        let (url, headers) = self.endpoint.at(&path);
        // As much of every answer as is read of one that comes alone.
        let most = Most {
            bytes: requests.saturating_add(1).saturating_mul(MAX_BODY),
            line: MAX_BODY as usize,
        };
        let lines = self.files.lines(&url, headers, most).await;
        lines.map_err(|error| redact(&self.options, error))
    }

    async fn get(&self, path: &str) -> Result<Value, TeacherError> {
        let (url, headers) = self.endpoint.at(path);
        let answer = self.transport.get(&url, headers).await;
        answer.map_err(|error| redact(&self.options, error))
    }
}

fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, TeacherError> {
    serde_json::from_value(answer).map_err(|error| {
        TeacherError::Malformed(format!("not a batch: {}", plain(&error.to_string())))
    })
}

fn id_of(answer: Value) -> Result<String, TeacherError> {
    let id = answer.get("id").and_then(Value::as_str);
    let id = id.ok_or_else(|| TeacherError::Malformed("an answer without an id".to_owned()))?;
    checked(id.to_owned())
}

/// Ids of strangers become parts of addresses.
fn checked(id: String) -> Result<String, TeacherError> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let begins = id.starts_with(|c: char| c.is_ascii_alphanumeric());
    match begins && id.len() <= LONGEST_ID && id.chars().all(sound) {
        true => Ok(id),
        false => Err(TeacherError::Malformed(format!("no id: {}", plain(&id)))),
    }
}

/// A form of two fields, and its media type. The boundary cannot occur in the file: its lines are JSON,
/// which begins with a brace.
fn form(file_name: &str, lines: &str) -> (String, Vec<u8>) {
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
    fn ids_are_parts_of_addresses_and_nothing_else() {
        for id in ["batch_abc", "file-1", "0190b5c4-aa", "a.b:c"] {
            assert_eq!(checked(id.to_owned()).unwrap(), id);
        }
        for id in ["", "..", "a/b", "a?b", "a b", "a%2f", "é", &"a".repeat(257)] {
            assert_eq!(
                checked(id.to_owned()).unwrap_err().kind(),
                "malformed",
                "{id}"
            );
        }
    }

    #[test]
    fn batches_of_other_endpoints_are_read_as_far_as_they_go() {
        let bare: Remote = read(json!({"id": "b", "status": "queued"})).unwrap();
        assert!(!bare.ended() && bare.done() == 0 && bare.files().next().is_none());
        let full = json!({
            "id": "b", "status": "expired", "output_file_id": "o", "error_file_id": null,
            "errors": {"data": [{"code": "x", "message": "bad\nline", "line": 2}]},
            "request_counts": {"total": 9, "completed": 4, "failed": 1},
        });
        let full: Remote = read(full).unwrap();
        assert!(full.ended() && full.done() == 5);
        assert_eq!(full.files().collect::<Vec<_>>(), ["o"]);
        assert_eq!(full.refusals()[0].text(), "x: bad line");
        assert!(read::<Remote>(json!({"id": 5})).is_err());
    }

    #[test]
    fn fuzz_batches_are_read_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(remote) = serde_json::from_slice::<Remote>(bytes) {
                let _ = (remote.ended(), remote.done(), remote.files().count());
                assert!(
                    remote
                        .refusals()
                        .iter()
                        .all(|refusal| !refusal.text().contains('\n'))
                );
            }
        });
    }
}
