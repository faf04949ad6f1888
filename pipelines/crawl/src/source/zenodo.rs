//! Files of Zenodo records. A record is a fixed version and never changes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench_run::{Failure, FailureKind, Search};
use serde::Deserialize;

use super::listing::{FileFilter, ListedFile, download_all, find_search, search_item};
use super::{Sink, Source};
use pybench_net::{Auth, Expected, FetchError, HttpClient, Service};
use pybench_types::license::spdx;

const BASE: &str = "https://zenodo.org";
const HELP: &str = "the record's files are not open to the public";
/// Results per page without an account.
const PAGE_SIZE: usize = 25;

/// One item per record and per search.
pub(super) struct Zenodo {
    service: Service,
    records: Vec<u64>,
    searches: Vec<Search>,
    filter: FileFilter,
}

impl Zenodo {
    pub(super) fn open(
        web: &Arc<HttpClient>,
        records: &[u64],
        searches: &[Search],
        include: &[String],
        files: usize,
    ) -> Result<Self, Failure> {
        Self::at(
            web,
            BASE,
            records,
            searches,
            FileFilter::new(include, files)?,
        )
    }

    fn at(
        web: &Arc<HttpClient>,
        base: &str,
        records: &[u64],
        searches: &[Search],
        filter: FileFilter,
    ) -> Result<Self, Failure> {
        // Zenodo allows sixty requests per minute without an account.
        let pace = web.throttle("zenodo", Duration::from_secs(1), 1);
        Ok(Self {
            service: Service::new(web, base, Auth::None, pace, HELP)?,
            records: records.to_vec(),
            searches: searches.to_vec(),
            filter,
        })
    }

    async fn record(&self, number: &str) -> Result<Record, FetchError> {
        let url = self.service.url(["api", "records", number], &[]);
        Ok(self.service.json(url).await?.0)
    }

    /// The current results of a search.
    async fn search(&self, search: &Search) -> Result<Vec<Record>, FetchError> {
        let mut found: Vec<Record> = Vec::new();
        let size = search.most.min(PAGE_SIZE).to_string();
        for page in 1.. {
            let page = page.to_string();
            let query: [(&str, &str); 3] = [
                ("q", search.text.as_str()),
                ("size", &size),
                ("page", &page),
            ];
            let url = self.service.url(["api", "records"], &query);
            let records = self.service.json::<Page>(url).await?.0.hits.hits;
            let last = records.len() < search.most.min(PAGE_SIZE);
            found.extend(records);
            if last || found.len() >= search.most {
                break;
            }
        }
        found.truncate(search.most);
        Ok(found)
    }

    async fn collect_record(&self, record: Record, sink: &Sink) -> Result<(), Failure> {
        let number = record.id.to_string();
        let sink = sink.with_license(record.license());
        let origin = format!("zenodo:{number}");
        let url_of = |path: &str| {
            let parts = ["api", "records", &number, "files", path, "content"];
            self.service.url(parts, &[])
        };
        download_all(
            &self.service,
            &sink,
            &origin,
            &self.filter,
            record.files(),
            url_of,
        )
        .await
    }
}

#[async_trait]
impl Source for Zenodo {
    fn items(&self) -> Vec<String> {
        let records = self.records.iter().map(u64::to_string);
        records
            .chain(self.searches.iter().map(search_item))
            .collect()
    }

    async fn collect(&self, item: &str, sink: Sink) -> Result<(), Failure> {
        let of_item = |error: FetchError| error.into_item_failure(item);
        let records = match find_search(&self.searches, item) {
            Some(search) => self.search(search).await.map_err(of_item)?,
            None => vec![self.record(item).await.map_err(of_item)?],
        };
        if records.is_empty() {
            let text = format!("{item}: nothing was found");
            return Err(Failure::new(FailureKind::Item, text));
        }
        for record in records {
            self.collect_record(record, &sink).await?;
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
struct Page {
    hits: Hits,
}

#[derive(Debug, Deserialize)]
struct Hits {
    hits: Vec<Record>,
}

#[derive(Debug, Deserialize)]
struct Record {
    id: u64,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    files: Vec<File>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    license: Option<License>,
}

#[derive(Debug, Deserialize)]
struct License {
    id: String,
}

#[derive(Debug, Deserialize)]
struct File {
    key: String,
    size: Option<u64>,
}

impl Record {
    fn license(&self) -> Option<String> {
        self.metadata
            .license
            .as_ref()
            .and_then(|license| spdx(&license.id))
    }

    fn files(self) -> Vec<ListedFile> {
        let listed = self.files.into_iter().map(|file| ListedFile {
            path: file.key,
            expected: Expected {
                size: file.size,
                sha256: None,
            },
        });
        listed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mock::{Answer, Mock, collect};

    const RECORD: &str = r#"{"id": 7, "metadata": {"license": {"id": "cc-by-4.0"}}, "files": [
        {"key": "a b.csv", "size": 8, "checksum": "md5:0"}, {"key": "notes.xyz", "size": 3},
        {"key": "large.csv", "size": 99999999}]}"#;

    async fn mock() -> Mock {
        let mock = Mock::start().await;
        mock.on("/api/records/7", Answer::json(RECORD));
        mock.on(
            "/api/records/7/files/a%20b.csv/content",
            Answer::text("a,b\n1,2\n"),
        );
        let found = format!(r#"{{"hits": {{"total": 1, "hits": [{RECORD}]}}}}"#);
        mock.on("/api/records", Answer::json(&found));
        mock
    }

    fn source(mock: &Mock, records: &[u64], searches: &[Search]) -> Zenodo {
        let choice = FileFilter::new(&[], 10).unwrap();
        Zenodo::at(&mock.web(&[]), &mock.at(""), records, searches, choice).unwrap()
    }

    #[tokio::test]
    async fn records_are_collected_by_number_and_by_search() {
        let mock = mock().await;
        let expected = [
            "CC-BY-4.0 zenodo:7#a b.csv",
            "left zenodo:7#large.csv: larger than 4 MiB; `crawl.total_mib` allows more",
        ];
        assert_eq!(collect(&source(&mock, &[7], &[])).await.unwrap(), expected);
        let search = Search {
            text: "title:x & y".into(),
            most: 3,
        };
        let found = collect(&source(&mock, &[], &[search])).await.unwrap();
        assert_eq!(found, expected);
        let asked = mock.asked();
        let asked = asked.iter().map(|ask| ask.path.as_str());
        assert!(
            asked
                .clone()
                .any(|path| path == "/api/records?q=title%3Ax+%26+y&size=3&page=1"),
            "{:?}",
            asked.collect::<Vec<_>>()
        );
    }

    #[tokio::test]
    async fn failures_have_reasons() {
        for (answer, reason, retryable) in [
            (Answer::status(401), "not open", false),
            (Answer::status(403), "not open", false),
            (Answer::status(404), "404", false),
            (Answer::status(410), "410", false),
            (Answer::status(429).with("retry-after", "3"), "429", true),
            (Answer::status(500), "500", true),
            (Answer::json("<html>"), "unexpected response", true),
            (Answer::json(RECORD).cut(30), "connection lost", true),
        ] {
            let mock = mock().await;
            mock.on("/api/records/7", answer);
            let failure = collect(&source(&mock, &[7], &[])).await.unwrap_err();
            assert!(
                failure.detail.contains(reason),
                "{reason}: {}",
                failure.detail
            );
            assert_eq!(failure.retryable, retryable, "{reason}");
        }
        let mock = mock().await;
        mock.on("/api/records", Answer::json(r#"{"hits": {"hits": []}}"#));
        let search = Search {
            text: "x".into(),
            most: 1,
        };
        let failure = collect(&source(&mock, &[], &[search])).await.unwrap_err();
        assert!(
            failure.detail.contains("nothing was found"),
            "{}",
            failure.detail
        );
    }

    #[tokio::test]
    async fn a_file_whose_size_differs_from_the_listing_is_rejected() {
        let mock = mock().await;
        mock.on(
            "/api/records/7/files/a%20b.csv/content",
            Answer::text("a,b\n1\n"),
        );
        let failure = collect(&source(&mock, &[7], &[])).await.unwrap_err();
        assert!(
            failure.retryable && failure.detail.contains("6 bytes received"),
            "{}",
            failure.detail
        );
    }

    /// Fetches two small records from zenodo.org.
    #[tokio::test]
    #[ignore = "needs the network"]
    async fn live_service() {
        let cache = tempfile::tempdir().unwrap();
        let search = Search {
            text: "resource_type.type:dataset AND files.count:1".to_owned(),
            most: 2,
        };
        let source = Zenodo::open(&HttpClient::new(cache.path()), &[], &[search], &[], 1).unwrap();
        let seen = collect(&source).await.unwrap();
        assert!(seen.iter().all(|line| line.contains("zenodo:")), "{seen:?}");
    }

    #[test]
    fn fuzz_answers() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(record) = serde_json::from_slice::<Record>(bytes) {
                let _ = (record.license(), record.files());
            }
            let _ = serde_json::from_slice::<Page>(bytes);
        });
    }
}
