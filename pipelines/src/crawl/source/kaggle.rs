//! Datasets of Kaggle, each as the one archive that Kaggle makes of a version.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench::run::{Failure, FailureKind, Search};
use serde::Deserialize;

use super::licence::spdx;
use super::listing::{Choice, left_out, pinned, search_item, search_of};
use super::web::{Expected, Service, Trouble, Web};
use super::{Outlet, Source, blocking};

const BASE: &str = "https://www.kaggle.com";
const HELP: &str = "Kaggle does not know these credentials, or wants the dataset's terms accepted on its page first: \
                    make an API token in Kaggle's settings, and set KAGGLE_USERNAME and KAGGLE_KEY or put \
                    kaggle.json into ~/.kaggle";
/// Results of a page.
const PAGE: usize = 20;

/// One item per dataset and per search.
pub(super) struct Kaggle {
    service: Service,
    datasets: Vec<String>,
    searches: Vec<Search>,
    choice: Choice,
    /// Whether there is anybody to ask as.
    known: bool,
}

impl Kaggle {
    pub(super) fn open(
        web: &Arc<Web>,
        datasets: &[String],
        searches: &[Search],
        include: &[String],
    ) -> Result<Self, Failure> {
        Self::at(web, BASE, datasets, searches, include)
    }

    fn at(
        web: &Arc<Web>,
        base: &str,
        datasets: &[String],
        searches: &[Search],
        include: &[String],
    ) -> Result<Self, Failure> {
        let auth = web.surroundings().kaggle()?;
        let pace = web.pace("kaggle", Duration::from_millis(500), 1);
        Ok(Self {
            known: auth.is_some(),
            service: Service::new(web, base, auth, pace, HELP)?,
            datasets: datasets.to_vec(),
            searches: searches.to_vec(),
            choice: Choice::new(include, usize::MAX)?,
        })
    }

    async fn about(&self, name: &str) -> Result<About, Trouble> {
        let path = ["api", "v1", "datasets", "view"]
            .into_iter()
            .chain(name.split('/'));
        Ok(self.service.json(self.service.url(path, &[])).await?.0)
    }

    /// The datasets that a search finds now.
    async fn found(&self, search: &Search) -> Result<Vec<About>, Trouble> {
        let mut found: Vec<About> = Vec::new();
        for page in 1.. {
            let page = page.to_string();
            let query: [(&str, &str); 2] = [("search", search.text.as_str()), ("page", &page)];
            let url = self.service.url(["api", "v1", "datasets", "list"], &query);
            let some = self.service.json::<Found>(url).await?.0.into_list();
            let last = some.len() < PAGE;
            found.extend(some);
            if last || found.len() >= search.most {
                break;
            }
        }
        found.truncate(search.most);
        Ok(found)
    }

    /// A version of a dataset.
    async fn take(
        &self,
        name: &str,
        version: &str,
        licence: Option<String>,
        outlet: &Outlet,
    ) -> Result<(), Failure> {
        let path = ["api", "v1", "datasets", "download"]
            .into_iter()
            .chain(name.split('/'));
        let url = self
            .service
            .url(path, &[("dataset_version_number", version)]);
        let origin = format!("kaggle:{name}@{version}");
        let got = self
            .service
            .download(url, &Expected::default(), outlet.limits())
            .await;
        match got {
            Ok(got) => {
                let (outlet, choice) = (outlet.under(licence), self.choice.clone());
                blocking(move || {
                    outlet.offer(&origin, &got.name, got.file, &|path: &str| {
                        choice.wants(path)
                    });
                    Ok(())
                })
                .await
            }
            Err(Trouble::Refused(reason)) => left_out(outlet, &origin, reason).await,
            Err(Trouble::Failed(failure)) => Err(failure),
        }
    }
}

#[async_trait]
impl Source for Kaggle {
    fn items(&self) -> Vec<String> {
        let searches = self.searches.iter().map(search_item);
        self.datasets.iter().cloned().chain(searches).collect()
    }

    async fn collect(&self, item: &str, outlet: Outlet) -> Result<(), Failure> {
        let failed = |text: &str| Failure::new(FailureKind::Item, format!("{item}: {text}"));
        let of_item = |trouble: Trouble| trouble.of_item(item);
        if !self.known {
            return Err(failed(
                "Kaggle answers only those it knows: set KAGGLE_USERNAME and KAGGLE_KEY, or put kaggle.json into ~/.kaggle",
            ));
        }
        let Some(search) = search_of(&self.searches, item) else {
            let (name, version) = pinned(item)?;
            let about = self.about(name).await.map_err(of_item)?;
            return self.take(name, version, about.licence(), &outlet).await;
        };
        let found = self.found(search).await.map_err(of_item)?;
        if found.is_empty() {
            return Err(failed("nothing was found"));
        }
        for about in found {
            match about.pinned() {
                Some((name, version)) => {
                    self.take(&name, &version, about.licence(), &outlet).await?;
                }
                None => left_out(&outlet, item, "a result without a version".to_owned()).await?,
            }
        }
        Ok(())
    }
}

/// A list, bare or in an object: Kaggle has had both.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Found {
    Bare(Vec<About>),
    Wrapped { datasets: Vec<About> },
}

impl Found {
    fn into_list(self) -> Vec<About> {
        match self {
            Self::Bare(list) | Self::Wrapped { datasets: list } => list,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    #[serde(default, rename = "ref")]
    reference: String,
    license_name: Option<String>,
    current_version_number: Option<u64>,
}

impl About {
    fn licence(&self) -> Option<String> {
        self.license_name
            .as_deref()
            .and_then(spdx)
            .filter(|name| name != "Unknown")
    }

    /// Its name, and its version of today.
    fn pinned(&self) -> Option<(String, String)> {
        let whole = format!("{}@{}", self.reference, self.current_version_number?);
        let (name, version) = pinned(&whole).ok()?;
        let parts = name.split('/').count();
        (parts == 2).then(|| (name.to_owned(), version.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::source::mock::{Answer, Mock, collect};
    use std::io::Write;

    const VIEW: &str = "/api/v1/datasets/view/o/d";
    const DOWNLOAD: &str = "/api/v1/datasets/download/o/d";
    const ABOUT: &str =
        r#"{"ref": "o/d", "licenseName": "CC BY-SA 4.0", "currentVersionNumber": 5}"#;
    const KNOWN: [(&str, &str); 2] = [("KAGGLE_USERNAME", "me"), ("KAGGLE_KEY", "k3y")];

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
            &mock.web(&KNOWN),
            &mock.at(""),
            &datasets,
            searches,
            &include,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_version_is_taken_with_its_licence() {
        let mock = mock().await;
        let seen = mock
            .collect(&source(&mock, &["o/d@3"], &[], &[]))
            .await
            .unwrap();
        let expected = [
            "CC-BY-SA-4.0 kaggle:o/d@3#a.csv",
            "CC-BY-SA-4.0 kaggle:o/d@3#in/b.csv",
        ];
        assert_eq!(seen, expected);
        let seen = mock
            .collect(&source(&mock, &["o/d@3"], &[], &["in/*"]))
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
    async fn a_search_takes_what_it_finds_at_its_version_of_today() {
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
            let seen = mock
                .collect(&source(&mock, &[], std::slice::from_ref(&search), &[]))
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
        let failure = mock
            .collect(&source(&mock, &[], &[search], &[]))
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
                "not of the expected form",
                true,
            ),
            (DOWNLOAD, Answer::status(500), "500", true),
            (
                DOWNLOAD,
                Answer::bytes(archive()).cut(50),
                "broke off",
                true,
            ),
        ] {
            let mock = mock().await;
            mock.on(path, answer);
            let failed = mock
                .collect(&source(&mock, &["o/d@3"], &[], &[]))
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
        // A version that is not there is a fact about it, and the rest goes on.
        let mock = mock().await;
        mock.on(DOWNLOAD, Answer::status(404));
        let seen = mock
            .collect(&source(&mock, &["o/d@9"], &[], &[]))
            .await
            .unwrap();
        assert_eq!(
            seen,
            ["left kaggle:o/d@9: the server answered 404 Not Found"]
        );
        mock.on(DOWNLOAD, Answer::bytes(&archive()[..60]));
        let seen = mock
            .collect(&source(&mock, &["o/d@9"], &[], &[]))
            .await
            .unwrap();
        assert!(seen[0].contains("not a readable zip"), "{seen:?}");
    }

    #[tokio::test]
    async fn nobody_is_told_how_to_become_somebody() {
        let mock = mock().await;
        let named = ["o/d@3".to_owned()];
        let source = Kaggle::at(&mock.web(&[]), &mock.at(""), &named, &[], &[]).unwrap();
        let failure = mock.collect(&source).await.unwrap_err();
        assert!(failure.detail.contains("~/.kaggle") && !failure.retryable);
        assert!(mock.asked().is_empty());
    }

    /// Asks Kaggle itself for one small dataset; needs credentials.
    #[tokio::test]
    #[ignore = "needs the network and credentials"]
    async fn true_service() {
        let cache = tempfile::tempdir().unwrap();
        let search = Search {
            text: "iris".to_owned(),
            most: 1,
        };
        let source = Kaggle::open(&Web::new(cache.path()), &[], &[search], &[]).unwrap();
        let seen = collect(&source).await.unwrap();
        assert!(seen[0].contains("kaggle:"), "{seen:?}");
    }

    #[test]
    fn fuzz_answers() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(found) = serde_json::from_slice::<Found>(bytes) {
                for about in found.into_list() {
                    let _ = (about.licence(), about.pinned());
                }
            }
            let _ = serde_json::from_slice::<About>(bytes);
        });
    }
}
