//! A list of URLs.

use std::sync::Arc;

use async_trait::async_trait;
use pybench::run::Failure;
use reqwest::Url;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderMap};

use super::super::name::printable;
use super::super::sniff::extension_kind;
use super::web::{Trouble, Web, display_url};
use super::{Outlet, Source, blocking, known_extension};

/// One item per URL.
pub(super) struct Http {
    urls: Vec<String>,
    licence: Option<String>,
    web: Arc<Web>,
}

impl Http {
    pub(super) fn new(urls: Vec<String>, licence: Option<String>, web: Arc<Web>) -> Self {
        Self { urls, licence, web }
    }
}

#[async_trait]
impl Source for Http {
    fn items(&self) -> Vec<String> {
        self.urls.clone()
    }

    async fn collect(&self, item: &str, outlet: Outlet) -> Result<(), Failure> {
        let got = match self.web.get(item, outlet.limits()).await {
            Ok(got) => got,
            // The server answered, and will not answer otherwise: a fact about the file.
            Err(Trouble::Refused(reason)) => {
                let origin =
                    Url::parse(item).map_or_else(|_| printable(item), |url| display_url(&url));
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

/// By `Content-Disposition`, else by the URL; with an extension by `Content-Type` where it has none.
pub(super) fn file_name(url: &Url, headers: &HeaderMap) -> String {
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
}
