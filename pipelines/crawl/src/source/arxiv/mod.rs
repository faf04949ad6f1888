//! Papers of arXiv. One connection and one request per three seconds, as its terms of use require.

mod feed;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench_run::{ArxivFormat, Failure, FailureKind, Search};

use super::listing::{download, find_search, search_item};
use super::{Sink, Source, known_extension};
use pybench_net::{Auth, Expected, FetchError, Fetched, HttpClient, Service, unexpected_response};
use pybench_types::license::spdx;

/// Base URLs of the search API, of the OAI-PMH records, and of the papers.
const BASES: [&str; 3] = [
    "https://export.arxiv.org",
    "https://oaipmh.arxiv.org",
    "https://export.arxiv.org",
];
const INTERVAL: Duration = Duration::from_secs(3);
const HELP: &str = "arXiv denied access to this machine; try again later and less often";

/// One item per paper and per search.
pub(super) struct Arxiv {
    api: Service,
    records: Service,
    files: Service,
    papers: Vec<String>,
    searches: Vec<Search>,
    formats: Vec<ArxivFormat>,
}

impl Arxiv {
    pub(super) fn open(
        web: &Arc<HttpClient>,
        papers: &[String],
        searches: &[Search],
        formats: &[ArxivFormat],
    ) -> Result<Self, Failure> {
        Self::at(web, BASES, papers, searches, formats)
    }

    fn at(
        web: &Arc<HttpClient>,
        bases: [&str; 3],
        papers: &[String],
        searches: &[Search],
        formats: &[ArxivFormat],
    ) -> Result<Self, Failure> {
        let pace = web.throttle("arxiv", INTERVAL, 1);
        let service = |base| Service::new(web, base, Auth::None, pace.clone(), HELP);
        let [api, records, files] = bases;
        Ok(Self {
            api: service(api)?,
            records: service(records)?,
            files: service(files)?,
            papers: papers.to_vec(),
            searches: searches.to_vec(),
            formats: formats.to_vec(),
        })
    }

    /// The current results of a search, newest first.
    async fn search(&self, search: &Search) -> Result<Vec<String>, FetchError> {
        let query: [(&str, &str); 3] = [
            ("search_query", search.text.as_str()),
            ("max_results", &search.most.to_string()),
            ("sortBy", "submittedDate"),
        ];
        let url = self.api.url(["api", "query"], &query);
        let shown = pybench_net::display_url(&url);
        let (text, _) = self.api.text(url).await?;
        let mut papers =
            feed::papers(&text).map_err(|error| unexpected_response(&shown, &error))?;
        papers.truncate(search.most);
        Ok(papers)
    }

    /// The license that the authors chose.
    async fn license(&self, paper: &str) -> Result<Option<String>, FetchError> {
        let number = paper.rsplit_once('v').map_or(paper, |(number, _)| number);
        let identifier = format!("oai:arXiv.org:{number}");
        let query: [(&str, &str); 3] = [
            ("verb", "GetRecord"),
            ("metadataPrefix", "arXiv"),
            ("identifier", &identifier),
        ];
        let url = self.records.url(["oai"], &query);
        let shown = pybench_net::display_url(&url);
        let (text, _) = self.records.text(url).await?;
        let license = feed::license(&text).map_err(|error| unexpected_response(&shown, &error))?;
        Ok(license.as_deref().and_then(spdx))
    }

    async fn collect_paper(&self, paper: &str, sink: &Sink) -> Result<(), Failure> {
        let of_item = |error: FetchError| error.into_item_failure(paper);
        let sink = sink.with_license(self.license(paper).await.map_err(of_item)?);
        for format in &self.formats {
            self.file(paper, *format, &sink).await?;
        }
        Ok(())
    }

    async fn file(&self, paper: &str, format: ArxivFormat, sink: &Sink) -> Result<(), Failure> {
        let (folder, ending) = match format {
            ArxivFormat::Pdf => ("pdf", ".pdf"),
            ArxivFormat::Source => ("src", ""),
        };
        let url = self
            .files
            .url([folder].into_iter().chain(paper.split('/')), &[]);
        let name = format!("{}{ending}", paper.replace('/', "-"));
        let origin = match format {
            ArxivFormat::Pdf => format!("arxiv:{paper}#{name}"),
            ArxivFormat::Source => format!("arxiv:{paper}"),
        };
        let offer = move |sink: &Sink, origin: &str, got: Fetched| {
            sink.offer(origin, &name, got.file, &known_extension);
        };
        let request = (url, &Expected::default());
        download(&self.files, sink, origin, request, offer).await
    }
}

#[async_trait]
impl Source for Arxiv {
    fn items(&self) -> Vec<String> {
        let searches = self.searches.iter().map(search_item);
        self.papers.iter().cloned().chain(searches).collect()
    }

    async fn collect(&self, item: &str, sink: Sink) -> Result<(), Failure> {
        let Some(search) = find_search(&self.searches, item) else {
            if !feed::is_paper(item) {
                let text = format!(
                    "{item}: expected an arXiv number with a version, such as 2407.16732v2"
                );
                return Err(Failure::new(FailureKind::Item, text));
            }
            return self.collect_paper(item, &sink).await;
        };
        let papers = self
            .search(search)
            .await
            .map_err(|t| t.into_item_failure(item))?;
        if papers.is_empty() {
            let text = format!("{item}: nothing was found");
            return Err(Failure::new(FailureKind::Item, text));
        }
        for paper in papers {
            self.collect_paper(&paper, &sink).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
