//! Uploads large files with Git LFS. The Hub says which files it is missing and where to upload them, in one
//! part or in several. Files that the Hub already has are never sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use reqwest::{Method, Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::with_retries;
use super::error::{HubError, HubErrorKind};
use super::repository::BRANCH;
use super::{Repository, UploadFile};

/// Files per batch request; small because the returned upload URLs expire soon.
const BATCH_SIZE: usize = 64;
/// Concurrent uploads.
const MAX_UPLOADS: usize = 4;
/// Time limit for completing or verifying an upload; the Hub may have to assemble the file first.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of parts of one file.
const MAX_PARTS: u64 = 10_000;
const LFS_MIME: &str = "application/vnd.git-lfs+json";

/// Statistics of an upload of large files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadStats {
    /// Files that were sent.
    pub files: usize,
    /// Size of these files, in bytes.
    pub bytes: u64,
    /// Files that the Hub already had.
    pub there: usize,
    /// Bytes that were transferred, if the files were sent with Xet.
    pub chunks: Option<u64>,
}

impl Repository<'_> {
    /// Sends the large files that the Hub is missing. `told` is called after each file, with whether it was sent.
    /// Returns `None` without sending anything if `by_xet` is set and the Hub prefers Xet.
    ///
    /// # Errors
    /// The first error. Running uploads are canceled; completed uploads are kept.
    pub async fn send_large(
        &self,
        contents: &[&UploadFile],
        by_xet: bool,
        told: impl Fn(&UploadFile, bool),
    ) -> Result<Option<UploadStats>, HubError> {
        let mut distinct: BTreeMap<&str, &UploadFile> = BTreeMap::new();
        for content in contents {
            distinct.insert(&content.sha256, content);
        }
        let mut sent = UploadStats::default();
        let all: Vec<&UploadFile> = distinct.into_values().collect();
        for some in all.chunks(BATCH_SIZE) {
            let batch = self.batch(some, by_xet).await?;
            if by_xet && batch.wants_xet() {
                return Ok(None);
            }
            let objects = batch.objects.into_iter().map(|o| (o.oid.clone(), o));
            let objects: BTreeMap<String, Object> = objects.collect();
            let each = some.iter().map(|content| {
                let object = objects.get(&content.sha256);
                async move { (*content, self.send_one(content, object).await) }
            });
            let mut each = futures::stream::iter(each).buffer_unordered(MAX_UPLOADS);
            while let Some((content, result)) = each.next().await {
                match result {
                    Ok(true) => {
                        sent.files += 1;
                        sent.bytes += content.size;
                        told(content, true);
                    }
                    Ok(false) => {
                        sent.there += 1;
                        told(content, false);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Some(sent))
    }

    /// Asks the Hub how to upload each file.
    async fn batch(&self, some: &[&UploadFile], by_xet: bool) -> Result<Batch, HubError> {
        let what = format!("asking {} which large files it is missing", self.shown());
        let transfers = ["basic", "multipart", "xet"];
        let transfers = &transfers[..if by_xet { 3 } else { 2 }];
        let object = |content: &&UploadFile| json!({"oid": content.sha256, "size": content.size});
        let body = json!({
            "operation": "upload",
            "transfers": transfers,
            "hash_algo": "sha256",
            "ref": {"name": BRANCH},
            "objects": some.iter().map(object).collect::<Vec<_>>(),
        });
        let url = format!("{}.git/info/lfs/objects/batch", self.page());
        let url = self.hub.checked_url(&what, &url)?;
        let request = || {
            let request = self.hub.post(url.clone()).json(&body);
            request
                .header(ACCEPT, LFS_MIME)
                .header(CONTENT_TYPE, LFS_MIME)
        };
        self.hub.json(&what, request).await
    }

    /// Sends a file if necessary and returns whether it was sent.
    async fn send_one(
        &self,
        content: &UploadFile,
        object: Option<&Object>,
    ) -> Result<bool, HubError> {
        let what = format!("sending {}", content.path);
        let unexpected = |message: &str| {
            HubError::new(&what, HubErrorKind::UnexpectedResponse, message.to_owned())
        };
        let object = object.ok_or_else(|| unexpected("it does not mention the file"))?;
        if let Some(error) = &object.error {
            return Err(HubError::from_status(
                &what,
                error.code,
                error.message.clone(),
            ));
        }
        let Some(actions) = &object.actions else {
            return Ok(false);
        };
        let Some(upload) = &actions.upload else {
            return Ok(false);
        };
        match upload.part_size() {
            None => self.upload_whole(&what, content, upload).await?,
            Some(part_size) => {
                let part_size = part_size.ok_or_else(|| unexpected("an invalid chunk_size"))?;
                self.upload_parts(&what, content, upload, part_size).await?;
            }
        }
        if let Some(verify) = &actions.verify {
            let url = self.hub.checked_url(&what, &verify.href)?;
            let body = json!({"oid": content.sha256, "size": content.size});
            let request = || {
                let request = self.hub.upload(Method::POST, url.clone());
                request.json(&body).timeout(COMPLETION_TIMEOUT)
            };
            self.hub.send(&what, request).await?;
        }
        Ok(true)
    }

    async fn upload_whole(
        &self,
        what: &str,
        content: &UploadFile,
        to: &Action,
    ) -> Result<(), HubError> {
        let url = self.hub.checked_url(what, &to.href)?;
        let part = (0, content.size);
        self.put(what, content, part, &url, &to.header).await?;
        Ok(())
    }

    /// Uploads the file in as many parts as there are URLs, then completes the upload.
    async fn upload_parts(
        &self,
        what: &str,
        content: &UploadFile,
        to: &Action,
        part_size: u64,
    ) -> Result<(), HubError> {
        let unexpected = |message: &str| {
            HubError::new(what, HubErrorKind::UnexpectedResponse, message.to_owned())
        };
        let urls = to.part_urls();
        let count = content.size.div_ceil(part_size);
        if count > MAX_PARTS || urls.len() as u64 != count {
            return Err(unexpected("the number of part URLs does not fit the file"));
        }
        let (mut parts, none) = (Vec::with_capacity(urls.len()), BTreeMap::new());
        for (number, href) in (0_u64..).zip(urls.values()) {
            let url = self.hub.checked_url(what, href)?;
            let from = number * part_size;
            let part = (from, part_size.min(content.size - from));
            let response = self.put(what, content, part, &url, &none).await?;
            let etag = response.headers().get(ETAG);
            let etag = etag.and_then(|etag| etag.to_str().ok());
            let etag = etag.ok_or_else(|| unexpected("a part without an ETag"))?;
            parts.push(json!({"partNumber": number + 1, "etag": etag}));
        }
        let url = self.hub.checked_url(what, &to.href)?;
        let body = json!({"oid": content.sha256, "parts": parts});
        let request = || {
            let request = self.hub.upload(Method::POST, url.clone()).json(&body);
            let request = request.timeout(COMPLETION_TIMEOUT);
            request
                .header(ACCEPT, LFS_MIME)
                .header(CONTENT_TYPE, LFS_MIME)
        };
        self.hub.send(what, request).await?;
        Ok(())
    }

    /// Uploads a part of a file to a URL, with retries.
    async fn put(
        &self,
        what: &str,
        content: &UploadFile,
        (from, length): (u64, u64),
        url: &Url,
        headers: &BTreeMap<String, Value>,
    ) -> Result<Response, HubError> {
        let attempt = || async {
            let mut request = self.hub.upload(Method::PUT, url.clone());
            for (name, value) in headers {
                let name = HeaderName::try_from(name.as_str());
                let value = HeaderValue::try_from(value.as_str().unwrap_or_default());
                if let (Ok(name), Ok(value)) = (name, value) {
                    request = request.header(name, value);
                }
            }
            let sent = Arc::new(AtomicU64::new(0));
            let pieces = content.part(from, length, sent.clone());
            let pieces = pieces
                .map_err(|error| HubError::new(what, HubErrorKind::Local, error.to_string()))?;
            self.hub
                .send_body(what, request, pieces, length, &sent)
                .await
        };
        with_retries(attempt, HubError::retry_delay).await
    }
}

/// The Hub's response to a batch request: the transfer method and the actions of each file.
#[derive(Debug, Deserialize)]
struct Batch {
    #[serde(default)]
    transfer: Option<String>,
    objects: Vec<Object>,
}

impl Batch {
    /// Whether any file is to be sent with Xet.
    fn wants_xet(&self) -> bool {
        let missing = |object: &Object| object.actions.is_some();
        self.transfer.as_deref() == Some("xet") && self.objects.iter().any(missing)
    }
}

#[derive(Debug, Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    actions: Option<Actions>,
    #[serde(default)]
    error: Option<ObjectError>,
}

#[derive(Debug, Deserialize)]
struct ObjectError {
    code: u16,
    message: String,
}

#[derive(Debug, Deserialize)]
struct Actions {
    #[serde(default)]
    upload: Option<Action>,
    #[serde(default)]
    verify: Option<Action>,
}

#[derive(Debug, Deserialize)]
struct Action {
    href: String,
    #[serde(default)]
    header: BTreeMap<String, Value>,
}

impl Action {
    /// The part size of a multipart upload; the inner `None` if it is invalid.
    fn part_size(&self) -> Option<Option<u64>> {
        let size = self.header.get("chunk_size")?;
        let text = size.as_str().and_then(|text| text.parse().ok());
        Some(text.or(size.as_u64()).filter(|size: &u64| *size > 0))
    }

    /// The upload URLs of the parts, by number.
    fn part_urls(&self) -> BTreeMap<u64, &str> {
        let all = self.header.iter();
        all.filter_map(|(name, href)| Some((name.parse().ok()?, href.as_str()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(text: &str) -> Action {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn parts_are_read_from_headers() {
        let whole = action(r#"{"href": "http://h/x", "header": {"X-A": "b"}}"#);
        assert_eq!(whole.part_size(), None);
        let parts = action(
            r#"{"href": "http://h/x", "header":
                {"chunk_size": "5", "00010": "http://h/10", "00002": "http://h/2", "1": "http://h/1"}}"#,
        );
        assert_eq!(parts.part_size(), Some(Some(5)));
        let order: Vec<_> = parts.part_urls().into_values().collect();
        assert_eq!(order, ["http://h/1", "http://h/2", "http://h/10"]);
        for wrong in [r#""0""#, r#""x""#, "-1", "null"] {
            let text = format!(r#"{{"href": "h", "header": {{"chunk_size": {wrong}}}}}"#);
            assert_eq!(action(&text).part_size(), Some(None), "{wrong}");
        }
    }

    #[test]
    fn fuzz_batches() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let Ok(batch) = serde_json::from_slice::<Batch>(bytes) else {
                return;
            };
            for object in batch.objects {
                if let Some(upload) = object.actions.and_then(|actions| actions.upload) {
                    let (_, _) = (upload.part_size(), upload.part_urls());
                }
            }
        });
    }
}
