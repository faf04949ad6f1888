//! A list of URLs.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use pybench::run::{Failure, FailureKind};
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use sha2::{Digest, Sha256};

use super::super::name::printable;
use super::super::sniff::{HEAD, archive_head, extension_kind};
use super::{Limits, Outlet, Source, blocking, known_extension};

/// One item per URL.
pub(super) struct Http {
    urls: Vec<String>,
    licence: Option<String>,
}

impl Http {
    pub(super) fn new(urls: Vec<String>, licence: Option<String>) -> Self {
        Self { urls, licence }
    }
}

#[async_trait]
impl Source for Http {
    fn items(&self) -> Vec<String> {
        self.urls.clone()
    }

    async fn collect(&self, item: &str, outlet: Outlet) -> Result<(), Failure> {
        let got = match get(item, outlet.limits()).await {
            Ok(got) => got,
            // The server answered, and will not answer otherwise: a fact about the file.
            Err(Trouble::Refused(reason)) => {
                let origin = display_url(item);
                return blocking(move || {
                    outlet.left_out(&origin, reason);
                    Ok(())
                })
                .await;
            }
            Err(Trouble::Failed(failure)) => return Err(failure),
        };
        let licence = self.licence.clone();
        blocking(move || {
            if let Some(licence) = licence {
                outlet.licence(licence);
            }
            outlet.offer(&got.origin, &got.name, got.file, &known_extension);
            Ok(())
        })
        .await
    }
}

/// A download, rewound to its beginning.
pub(super) struct Got {
    pub(super) file: File,
    pub(super) sha256: String,
    origin: String,
    name: String,
}

/// Why there is no download.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Not to be had: 404, too large, no URL at all.
    Refused(String),
    /// No connection, 5xx, 429: another attempt may succeed.
    Failed(Failure),
}

/// Download into a temporary file, within bounds of size and time.
pub(super) async fn get(url: &str, limits: Limits) -> Result<Got, Trouble> {
    let shown = display_url(url);
    let parsed = Url::parse(url).map_err(|e| Trouble::Refused(format!("not a URL: {e}")))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(Trouble::Refused("neither http nor https".into()));
    }
    let failed = |e: reqwest::Error| {
        let failure = Failure::new(FailureKind::Internal, format!("{shown}: {}", chain(&e)));
        Trouble::Failed(failure.retryable())
    };
    let client = client().map_err(failed)?;
    let response = client.get(parsed.clone()).send().await.map_err(failed)?;
    check_status(&shown, &response)?;
    let name = file_name(&parsed, response.headers());
    let (file, sha256) = save(response, limits, &shown).await?;
    Ok(Got {
        file,
        sha256,
        origin: shown,
        name,
    })
}

fn client() -> reqwest::Result<Client> {
    Client::builder()
        .user_agent(concat!("pybench/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_secs(30))
        .timeout(Duration::from_secs(900))
        .redirect(reqwest::redirect::Policy::limited(5))
        .build()
}

fn check_status(shown: &str, response: &Response) -> Result<(), Trouble> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let again = status.is_server_error()
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        );
    if !again {
        return Err(Trouble::Refused(format!("the server answered {status}")));
    }
    let detail = format!("{shown}: the server answered {status}");
    let mut failure = Failure::new(FailureKind::Internal, detail).retryable();
    let seconds = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|v| v.to_str().ok()?.parse().ok());
    failure.retry_after = seconds.map(|s: u64| Duration::from_secs(s.min(60)));
    Err(Trouble::Failed(failure))
}

/// Archives may be as large as all files together, a file only as large as a file.
async fn save(response: Response, limits: Limits, shown: &str) -> Result<(File, String), Trouble> {
    let internal = |e: std::io::Error| {
        let detail = format!("{shown}: no temporary file: {e}");
        Trouble::Failed(Failure::new(FailureKind::Internal, detail))
    };
    let mut file = tempfile::tempfile().map_err(internal)?;
    let (mut hasher, mut size, mut head) = (Sha256::new(), 0u64, Vec::new());
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|e| {
            let detail = format!("{shown}: broke off after {size} bytes: {}", chain(&e));
            Trouble::Failed(Failure::new(FailureKind::Internal, detail).retryable())
        })?;
        if head.len() < HEAD {
            head.extend_from_slice(&chunk[..chunk.len().min(HEAD - head.len())]);
        }
        size += chunk.len() as u64;
        let limit = if archive_head(&head).is_some() {
            limits.total
        } else {
            limits.file
        };
        if size > limit {
            return Err(Trouble::Refused(format!("larger than {} MiB", limit >> 20)));
        }
        hasher.update(&chunk);
        file.write_all(&chunk).map_err(internal)?;
    }
    file.seek(SeekFrom::Start(0)).map_err(internal)?;
    let digest = hasher.finalize();
    Ok((
        file,
        digest.iter().map(|byte| format!("{byte:02x}")).collect(),
    ))
}

/// By `Content-Disposition`, else by the URL; with an extension by `Content-Type` where it has none.
fn file_name(url: &Url, headers: &HeaderMap) -> String {
    let header = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let disposed = disposition_name(header(CONTENT_DISPOSITION));
    let last = || url.path_segments()?.next_back().map(percent_decode);
    let name = disposed
        .or_else(last)
        .filter(|name| !name.is_empty())
        .unwrap_or("file".into());
    let known = name
        .rsplit_once('.')
        .is_some_and(|(_, e)| extension_kind(e).is_some());
    let extension = match header(CONTENT_TYPE)
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
    {
        "text/csv" => "csv",
        "text/tab-separated-values" => "tsv",
        "application/json" => "json",
        "text/html" => "html",
        "text/markdown" => "md",
        "text/plain" => "txt",
        "image/svg+xml" => "svg",
        _ => return name,
    };
    if known {
        name
    } else {
        format!("{name}.{extension}")
    }
}

fn disposition_name(header: &str) -> Option<String> {
    let mut plain = None;
    for part in header.split(';').map(str::trim) {
        if let Some(encoded) = part.strip_prefix("filename*=") {
            return encoded.rsplit('\'').next().map(percent_decode);
        }
        if let Some(name) = part.strip_prefix("filename=") {
            plain = Some(name.trim_matches('"').to_owned());
        }
    }
    plain
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|h| std::str::from_utf8(h).ok());
        match hex
            .filter(|_| bytes[at] == b'%')
            .and_then(|h| u8::from_str_radix(h, 16).ok())
        {
            Some(byte) => (out.push(byte), at += 3).1,
            None => (out.push(bytes[at]), at += 1).1,
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A URL without what may be a secret: user, password, query, fragment.
fn display_url(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else {
        return printable(url);
    };
    // Both fail only for URLs that have no host, which have no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    printable(url.as_str())
}

/// An error with its causes: reqwest's own text leaves out what matters. Never the URL.
fn chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "timed out".to_owned()
    } else {
        "failed".to_owned()
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_headers_then_from_the_url() {
        let name = |url: &str, headers: &[(reqwest::header::HeaderName, &str)]| {
            let headers = headers
                .iter()
                .map(|(n, v)| (n.clone(), v.parse().unwrap()))
                .collect();
            file_name(&Url::parse(url).unwrap(), &headers)
        };
        assert_eq!(name("http://h/a/x%20y.csv?k=1", &[]), "x y.csv");
        assert_eq!(
            name("http://h/", &[(CONTENT_TYPE, "text/csv; charset=utf-8")]),
            "file.csv"
        );
        let header = (
            CONTENT_DISPOSITION,
            "attachment; filename=\"r.json\"; filename*=UTF-8''%E6%95%B0.json",
        );
        assert_eq!(name("http://h/dl", &[header]), "数.json");
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(
            display_url("https://u:p@h/x.csv?token=1#f"),
            "https://h/x.csv"
        );
    }
}
