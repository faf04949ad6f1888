//! File names of downloads.

use pybench_files::sniff::extension_kind;
use reqwest::Url;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderMap};

/// The name from `Content-Disposition` or else from the URL. A name without a known extension gets the one of
/// `Content-Type`.
pub fn file_name(url: &Url, headers: &HeaderMap) -> String {
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
    fn names_come_from_headers_or_else_from_the_url() {
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
