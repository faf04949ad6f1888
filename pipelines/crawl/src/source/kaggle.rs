//! Kaggle datasets, each downloaded as the archive that Kaggle builds of a version.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench_run::{Failure, FailureKind, Search};
use serde::Deserialize;

use super::listing::{FileFilter, download, find_search, left_out, parse_pinned, search_item};
use super::{Sink, Source};
use pybench_net::{Expected, FetchError, Fetched, HttpClient, Service};
use pybench_types::license::spdx;

const BASE: &str = "https://www.kaggle.com";
const HELP: &str = "Kaggle rejected the credentials, or the dataset's terms must be accepted on its page first: \
                    create an API token in Kaggle's settings and set KAGGLE_USERNAME and KAGGLE_KEY, or put \
                    kaggle.json into ~/.kaggle";
/// Results per page.
const PAGE_SIZE: usize = 20;

/// One item per dataset and per search.
pub(super) struct Kaggle {
    service: Service,
    datasets: Vec<String>,
    searches: Vec<Search>,
    filter: FileFilter,
    has_credentials: bool,
}

impl Kaggle {
    pub(super) fn open(
        web: &Arc<HttpClient>,
        datasets: &[String],
        searches: &[Search],
        include: &[String],
    ) -> Result<Self, Failure> {
        Self::at(web, BASE, datasets, searches, include)
    }

    fn at(
        web: &Arc<HttpClient>,
        base: &str,
        datasets: &[String],
        searches: &[Search],
        include: &[String],
    ) -> Result<Self, Failure> {
        let auth = web.credentials().kaggle()?;
        let pace = web.throttle("kaggle", Duration::from_millis(500), 1);
        Ok(Self {
            has_credentials: auth.is_some(),
            service: Service::new(web, base, auth, pace, HELP)?,
            datasets: datasets.to_vec(),
            searches: searches.to_vec(),
            filter: FileFilter::new(include, usize::MAX)?,
        })
    }

    async fn info(&self, name: &str) -> Result<DatasetInfo, FetchError> {
        let path = ["api", "v1", "datasets", "view"]
            .into_iter()
            .chain(name.split('/'));
        Ok(self.service.json(self.service.url(path, &[])).await?.0)
    }

    /// The current results of a search.
    async fn search(&self, search: &Search) -> Result<Vec<DatasetInfo>, FetchError> {
        let mut found: Vec<DatasetInfo> = Vec::new();
        for page in 1.. {
            let page = page.to_string();
            let query: [(&str, &str); 2] = [("search", search.text.as_str()), ("page", &page)];
            let url = self.service.url(["api", "v1", "datasets", "list"], &query);
            let some = self.service.json::<DatasetList>(url).await?.0.into_list();
            let last = some.len() < PAGE_SIZE;
            found.extend(some);
            if last || found.len() >= search.most {
                break;
            }
        }
        found.truncate(search.most);
        Ok(found)
    }

    /// Downloads one version of a dataset.
    async fn collect_version(
        &self,
        name: &str,
        version: &str,
        license: Option<String>,
        sink: &Sink,
    ) -> Result<(), Failure> {
        let path = ["api", "v1", "datasets", "download"]
            .into_iter()
            .chain(name.split('/'));
        let url = self
            .service
            .url(path, &[("dataset_version_number", version)]);
        let origin = format!("kaggle:{name}@{version}");
        let filter = self.filter.clone();
        let offer = move |sink: &Sink, origin: &str, got: Fetched| {
            let wants = |path: &str| filter.wants(path);
            sink.offer(origin, &got.name, got.file, &wants);
        };
        let (sink, request) = (sink.with_license(license), (url, &Expected::default()));
        download(&self.service, &sink, origin, request, offer).await
    }
}

#[async_trait]
impl Source for Kaggle {
    fn items(&self) -> Vec<String> {
        let searches = self.searches.iter().map(search_item);
        self.datasets.iter().cloned().chain(searches).collect()
    }

    async fn collect(&self, item: &str, sink: Sink) -> Result<(), Failure> {
        let failed = |text: &str| Failure::new(FailureKind::Item, format!("{item}: {text}"));
        let of_item = |error: FetchError| error.into_item_failure(item);
        if !self.has_credentials {
            return Err(failed(
                "Kaggle requires credentials: set KAGGLE_USERNAME and KAGGLE_KEY, or put kaggle.json into ~/.kaggle",
            ));
        }
        let Some(search) = find_search(&self.searches, item) else {
            let (name, version) = parse_pinned(item)?;
            let info = self.info(name).await.map_err(of_item)?;
            return self
                .collect_version(name, version, info.license(), &sink)
                .await;
        };
        let found = self.search(search).await.map_err(of_item)?;
        if found.is_empty() {
            return Err(failed("nothing was found"));
        }
        for info in found {
            match info.name_and_version() {
                Some((name, version)) => {
                    self.collect_version(&name, &version, info.license(), &sink)
                        .await?;
                }
                None => left_out(&sink, item, "a result without a version".to_owned()).await?,
            }
        }
        Ok(())
    }
}

/// A list of datasets, bare or in an object: Kaggle has used both forms.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum DatasetList {
    Bare(Vec<DatasetInfo>),
    Wrapped { datasets: Vec<DatasetInfo> },
}

impl DatasetList {
    fn into_list(self) -> Vec<DatasetInfo> {
        match self {
            Self::Bare(list) | Self::Wrapped { datasets: list } => list,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DatasetInfo {
    #[serde(default, rename = "ref")]
    reference: String,
    license_name: Option<String>,
    current_version_number: Option<u64>,
}

impl DatasetInfo {
    fn license(&self) -> Option<String> {
        self.license_name
            .as_deref()
            .and_then(spdx)
            .filter(|name| name != "Unknown")
    }

    /// The name and the current version.
    fn name_and_version(&self) -> Option<(String, String)> {
        let whole = format!("{}@{}", self.reference, self.current_version_number?);
        let (name, version) = parse_pinned(&whole).ok()?;
        let parts = name.split('/').count();
        (parts == 2).then(|| (name.to_owned(), version.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mock::{Answer, Mock, collect};
    use std::io::Write;

    const VIEW: &str = "/api/v1/datasets/view/o/d";
    const DOWNLOAD: &str = "/api/v1/datasets/download/o/d";
    const ABOUT: &str =
        r#"{"ref": "o/d", "licenseName": "CC BY-SA 4.0", "currentVersionNumber": 5}"#;
    const CREDENTIALS: [(&str, &str); 2] = [("KAGGLE_USERNAME", "me"), ("KAGGLE_KEY", "k3y")];

    fn archive() -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, text) in [
            ("a.csv", "x,y\n1,2\n"),
            ("in/b.csv", "x\n1\n"),
            ("c.bin", "c"),
        ] {
            let options = zip::write::SimpleFileOptions::default();
            zip.start_file(name, options).unwrap();
            zip.write_all(text.as_bytes()).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    async fn mock() -> Mock {
        let mock = Mock::start().await;
        mock.on(VIEW, Answer::json(ABOUT));
        mock.on(
            DOWNLOAD,
            Answer::bytes(archive()).with("content-type", "application/zip"),
        );
        mock.on("/api/v1/datasets/list", Answer::json(&format!("[{ABOUT}]")));
        mock
    }

    fn source(mock: &Mock, datasets: &[&str], searches: &[Search], include: &[&str]) -> Kaggle {
        let owned =
            |texts: &[&str]| -> Vec<String> { texts.iter().map(|&t| t.to_owned()).collect() };
        let (datasets, include) = (owned(datasets), owned(include));
        Kaggle::at(
            &mock.web(&CREDENTIALS),
            &mock.at(""),
            &datasets,
            searches,
            &include,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_version_is_collected_with_its_license() {
        let mock = mock().await;
        let seen = collect(&source(&mock, &["o/d@3"], &[], &[])).await.unwrap();
        let expected = [
            "CC-BY-SA-4.0 kaggle:o/d@3#a.csv",
            "CC-BY-SA-4.0 kaggle:o/d@3#in/b.csv",
        ];
        assert_eq!(seen, expected);
        let seen = collect(&source(&mock, &["o/d@3"], &[], &["in/*"]))
            .await
            .unwrap();
        assert_eq!(seen, expected[1..]);
        let asked = mock.asked();
        assert!(
            asked[1]
                .path
                .ends_with("/download/o/d?dataset_version_number=3")
        );
        assert!(
            asked
                .iter()
                .all(|ask| ask.header("authorization") == "Basic bWU6azN5")
        );
    }

    #[tokio::test]
    async fn a_search_collects_its_results_at_their_current_version() {
        let mock = mock().await;
        let search = Search {
            text: "cars".into(),
            most: 2,
        };
        for list in [
            format!("[{ABOUT}, {{\"ref\": \"odd\"}}]"),
            format!("{{\"datasets\": [{ABOUT}]}}"),
        ] {
            mock.on("/api/v1/datasets/list", Answer::json(&list));
            let seen = collect(&source(&mock, &[], std::slice::from_ref(&search), &[]))
                .await
                .unwrap();
            assert_eq!(seen[0], "CC-BY-SA-4.0 kaggle:o/d@5#a.csv");
            assert_eq!(
                seen.len(),
                if list.contains("odd") { 3 } else { 2 },
                "{seen:?}"
            );
        }
        mock.on("/api/v1/datasets/list", Answer::json("[]"));
        let failure = collect(&source(&mock, &[], &[search], &[]))
            .await
            .unwrap_err();
        assert!(
            failure.detail.contains("nothing was found"),
            "{}",
            failure.detail
        );
    }

    #[tokio::test]
    async fn failures_have_reasons_and_no_key_in_them() {
        for (path, answer, reason, retryable) in [
            (VIEW, Answer::status(401), "KAGGLE_KEY", false),
            (VIEW, Answer::status(403), "terms", false),
            (VIEW, Answer::status(404), "404", false),
            (
                VIEW,
                Answer::status(429).with("retry-after", "5"),
                "429",
                true,
            ),
            (
                VIEW,
                Answer::json("{\"ref\": 5"),
                "unexpected response",
                true,
            ),
            (DOWNLOAD, Answer::status(500), "500", true),
            (
                DOWNLOAD,
                Answer::bytes(archive()).cut(50),
                "connection lost",
                true,
            ),
        ] {
            let mock = mock().await;
            mock.on(path, answer);
            let failed = collect(&source(&mock, &["o/d@3"], &[], &[]))
                .await
                .unwrap_err();
            assert!(
                failed.detail.contains(reason),
                "{reason}: {}",
                failed.detail
            );
            assert!(!failed.detail.contains("k3y"));
            assert_eq!(failed.retryable, retryable, "{reason}");
        }
        // A missing version is left out and does not fail the unit.
        let mock = mock().await;
        mock.on(DOWNLOAD, Answer::status(404));
        let seen = collect(&source(&mock, &["o/d@9"], &[], &[])).await.unwrap();
        assert_eq!(
            seen,
            ["left kaggle:o/d@9: the server answered 404 Not Found"]
        );
        mock.on(DOWNLOAD, Answer::bytes(&archive()[..60]));
        let seen = collect(&source(&mock, &["o/d@9"], &[], &[])).await.unwrap();
        assert!(seen[0].contains("not a readable zip"), "{seen:?}");
    }

    #[tokio::test]
    async fn without_credentials_the_error_says_how_to_set_them() {
        let mock = mock().await;
        let named = ["o/d@3".to_owned()];
        let source = Kaggle::at(&mock.web(&[]), &mock.at(""), &named, &[], &[]).unwrap();
        let failure = collect(&source).await.unwrap_err();
        assert!(failure.detail.contains("~/.kaggle") && !failure.retryable);
        assert!(mock.asked().is_empty());
    }

    /// Fetches one small dataset from kaggle.com; needs credentials.
    #[tokio::test]
    #[ignore = "needs the network and credentials"]
    async fn live_service() {
        let cache = tempfile::tempdir().unwrap();
        let search = Search {
            text: "iris".to_owned(),
            most: 1,
        };
        let source = Kaggle::open(&HttpClient::new(cache.path()), &[], &[search], &[]).unwrap();
        let seen = collect(&source).await.unwrap();
        assert!(seen[0].contains("kaggle:"), "{seen:?}");
    }

    #[test]
    fn fuzz_answers() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(found) = serde_json::from_slice::<DatasetList>(bytes) {
                for info in found.into_list() {
                    let _ = (info.license(), info.name_and_version());
                }
            }
            let _ = serde_json::from_slice::<DatasetInfo>(bytes);
        });
    }
}
