//! Large files: the Hub is asked which of them it lacks, and those go to the places it names, in one piece
//! or in several. What it has is never sent again, whoever sent it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use reqwest::{Method, Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::persistently;
use super::refusal::{Refusal, Why};
use super::repository::BRANCH;
use super::{Content, Repository};

/// Files that the Hub is asked about at once: the addresses it answers with do not live long.
const BATCH: usize = 64;
/// Files on their way at once.
const AT_ONCE: usize = 4;
/// For a word about a large file: the Hub may have to put it together first.
const PATIENCE: Duration = Duration::from_secs(600);
/// Most pieces of one file.
const PIECES: u64 = 10_000;
const LFS: &str = "application/vnd.git-lfs+json";

/// What sending large files came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Files that were sent.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were there already.
    pub there: usize,
    /// Of the bytes, those that went over the network, where the files went by Xet.
    pub chunks: Option<u64>,
}

impl Repository<'_> {
    /// Send the large files that the Hub lacks. `told` is called after each, with whether it was sent. `None` where
    /// the Hub wants them `by_xet`, and that is possible: nothing was sent then.
    ///
    /// # Errors
    /// The first refusal; what is on its way then is broken off, what was sent stays there.
    pub async fn send_large(
        &self,
        contents: &[&Content],
        by_xet: bool,
        told: impl Fn(&Content, bool),
    ) -> Result<Option<Sent>, Refusal> {
        let mut distinct: BTreeMap<&str, &Content> = BTreeMap::new();
        for content in contents {
            distinct.insert(&content.sha256, content);
        }
        let mut sent = Sent::default();
        let all: Vec<&Content> = distinct.into_values().collect();
        for some in all.chunks(BATCH) {
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
            let mut each = futures::stream::iter(each).buffer_unordered(AT_ONCE);
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
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        Ok(Some(sent))
    }

    /// Ask what to do with each.
    async fn batch(&self, some: &[&Content], by_xet: bool) -> Result<Batch, Refusal> {
        let what = format!("asking {} for what it lacks", self.shown());
        let transfers = ["basic", "multipart", "xet"];
        let transfers = &transfers[..if by_xet { 3 } else { 2 }];
        let object = |content: &&Content| json!({"oid": content.sha256, "size": content.size});
        let body = json!({
            "operation": "upload",
            "transfers": transfers,
            "hash_algo": "sha256",
            "ref": {"name": BRANCH},
            "objects": some.iter().map(object).collect::<Vec<_>>(),
        });
        let url = format!("{}.git/info/lfs/objects/batch", self.page());
        let url = self.hub.place(&what, &url)?;
        let ask = || {
            let request = self.hub.post(url.clone()).json(&body);
            request.header(ACCEPT, LFS).header(CONTENT_TYPE, LFS)
        };
        self.hub.json(&what, ask).await
    }

    /// Whether it had to be sent.
    async fn send_one(&self, content: &Content, object: Option<&Object>) -> Result<bool, Refusal> {
        let what = format!("sending {}", content.path);
        let strange = |said: &str| Refusal::new(&what, Why::Form, said.to_owned());
        let object = object.ok_or_else(|| strange("no word of the file"))?;
        if let Some(error) = &object.error {
            return Err(Refusal::of_object(&what, error.code, error.message.clone()));
        }
        let Some(actions) = &object.actions else {
            return Ok(false);
        };
        let Some(upload) = &actions.upload else {
            return Ok(false);
        };
        match upload.piece_size() {
            None => self.in_one(&what, content, upload).await?,
            Some(piece) => {
                let piece = piece.ok_or_else(|| strange("a chunk_size that is none"))?;
                self.in_pieces(&what, content, upload, piece).await?;
            }
        }
        if let Some(verify) = &actions.verify {
            let url = self.hub.place(&what, &verify.href)?;
            let body = json!({"oid": content.sha256, "size": content.size});
            let ask = || {
                let request = self.hub.send(Method::POST, url.clone());
                request.json(&body).timeout(PATIENCE)
            };
            self.hub.ask(&what, ask).await?;
        }
        Ok(true)
    }

    async fn in_one(&self, what: &str, content: &Content, to: &Action) -> Result<(), Refusal> {
        let url = self.hub.place(what, &to.href)?;
        let part = (0, content.size);
        self.put(what, content, part, &url, &to.header).await?;
        Ok(())
    }

    /// As many pieces as there are addresses, then one word that all are there.
    async fn in_pieces(
        &self,
        what: &str,
        content: &Content,
        to: &Action,
        piece: u64,
    ) -> Result<(), Refusal> {
        let strange = |said: &str| Refusal::new(what, Why::Form, said.to_owned());
        let places = to.pieces();
        let count = content.size.div_ceil(piece);
        if count > PIECES || places.len() as u64 != count {
            return Err(strange("another number of pieces than the file has"));
        }
        let (mut parts, none) = (Vec::with_capacity(places.len()), BTreeMap::new());
        for (number, href) in (0_u64..).zip(places.values()) {
            let url = self.hub.place(what, href)?;
            let from = number * piece;
            let part = (from, piece.min(content.size - from));
            let answer = self.put(what, content, part, &url, &none).await?;
            let etag = answer.headers().get(ETAG);
            let etag = etag.and_then(|etag| etag.to_str().ok());
            let etag = etag.ok_or_else(|| strange("a piece without an ETag"))?;
            parts.push(json!({"partNumber": number + 1, "etag": etag}));
        }
        let url = self.hub.place(what, &to.href)?;
        let body = json!({"oid": content.sha256, "parts": parts});
        let ask = || {
            let request = self.hub.send(Method::POST, url.clone()).json(&body);
            let request = request.timeout(PATIENCE);
            request.header(ACCEPT, LFS).header(CONTENT_TYPE, LFS)
        };
        self.hub.ask(what, ask).await?;
        Ok(())
    }

    /// Put a part of a file at its place; again where that may help.
    async fn put(
        &self,
        what: &str,
        content: &Content,
        (from, length): (u64, u64),
        url: &Url,
        headers: &BTreeMap<String, Value>,
    ) -> Result<Response, Refusal> {
        let attempt = || async {
            let mut request = self.hub.send(Method::PUT, url.clone());
            for (name, value) in headers {
                let name = HeaderName::try_from(name.as_str());
                let value = HeaderValue::try_from(value.as_str().unwrap_or_default());
                if let (Ok(name), Ok(value)) = (name, value) {
                    request = request.header(name, value);
                }
            }
            let out = Arc::new(AtomicU64::new(0));
            let pieces = content.part(from, length, out.clone());
            let pieces =
                pieces.map_err(|error| Refusal::new(what, Why::Setting, error.to_string()))?;
            self.hub.deliver(what, request, pieces, length, &out).await
        };
        persistently(attempt, Refusal::rest).await
    }
}

/// What the Hub says to do with each, and the way that it chose.
#[derive(Debug, Deserialize)]
struct Batch {
    #[serde(default)]
    transfer: Option<String>,
    objects: Vec<Object>,
}

impl Batch {
    /// Whether any of them is to go by Xet.
    fn wants_xet(&self) -> bool {
        let lacking = |object: &Object| object.actions.is_some();
        self.transfer.as_deref() == Some("xet") && self.objects.iter().any(lacking)
    }
}

#[derive(Debug, Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    actions: Option<Actions>,
    #[serde(default)]
    error: Option<Wrong>,
}

#[derive(Debug, Deserialize)]
struct Wrong {
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
    /// The size of a piece, where the file goes in several; the inner `None` for one that is none.
    fn piece_size(&self) -> Option<Option<u64>> {
        let size = self.header.get("chunk_size")?;
        let text = size.as_str().and_then(|text| text.parse().ok());
        Some(text.or(size.as_u64()).filter(|size: &u64| *size > 0))
    }

    /// The addresses of the pieces, by number.
    fn pieces(&self) -> BTreeMap<u64, &str> {
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
    fn pieces_are_told_from_headers() {
        let whole = action(r#"{"href": "http://h/x", "header": {"X-A": "b"}}"#);
        assert_eq!(whole.piece_size(), None);
        let parts = action(
            r#"{"href": "http://h/x", "header":
                {"chunk_size": "5", "00010": "http://h/10", "00002": "http://h/2", "1": "http://h/1"}}"#,
        );
        assert_eq!(parts.piece_size(), Some(Some(5)));
        let order: Vec<_> = parts.pieces().into_values().collect();
        assert_eq!(order, ["http://h/1", "http://h/2", "http://h/10"]);
        for wrong in [r#""0""#, r#""x""#, "-1", "null"] {
            let text = format!(r#"{{"href": "h", "header": {{"chunk_size": {wrong}}}}}"#);
            assert_eq!(action(&text).piece_size(), Some(None), "{wrong}");
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
                    let (_, _) = (upload.piece_size(), upload.pieces());
                }
            }
        });
    }
}
