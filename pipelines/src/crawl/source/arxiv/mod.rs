//! Papers of arXiv: one request per three seconds and one connection, as its terms of use want it.

mod feed;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench::run::{ArxivFormat, Failure, FailureKind, Search};

use super::licence::spdx;
use super::listing::{left_out, search_item, search_of};
use super::web::{Auth, Expected, Service, Trouble, Web, unexpected};
use super::{Outlet, Source, blocking, known_extension};

/// Where questions are asked, where records are, and where papers are.
const BASES: [&str; 3] = [
    "https://export.arxiv.org",
    "https://oaipmh.arxiv.org",
    "https://export.arxiv.org",
];
const INTERVAL: Duration = Duration::from_secs(3);
const HELP: &str = "arXiv does not let this machine in; ask it later and less often";

/// One item per paper and per search.
pub(super) struct Arxiv {
    questions: Service,
    records: Service,
    files: Service,
    papers: Vec<String>,
    searches: Vec<Search>,
    formats: Vec<ArxivFormat>,
}

impl Arxiv {
    pub(super) fn open(
        web: &Arc<Web>,
        papers: &[String],
        searches: &[Search],
        formats: &[ArxivFormat],
    ) -> Result<Self, Failure> {
        Self::at(web, BASES, papers, searches, formats)
    }

    fn at(
        web: &Arc<Web>,
        bases: [&str; 3],
        papers: &[String],
        searches: &[Search],
        formats: &[ArxivFormat],
    ) -> Result<Self, Failure> {
        let pace = web.pace("arxiv", INTERVAL, 1);
        let service = |base| Service::new(web, base, Auth::None, pace.clone(), HELP);
        let [questions, records, files] = bases;
        Ok(Self {
            questions: service(questions)?,
            records: service(records)?,
            files: service(files)?,
            papers: papers.to_vec(),
            searches: searches.to_vec(),
            formats: formats.to_vec(),
        })
    }

    /// The papers that a search finds now, newest first.
    async fn found(&self, search: &Search) -> Result<Vec<String>, Trouble> {
        let query: [(&str, &str); 3] = [
            ("search_query", search.text.as_str()),
            ("max_results", &search.most.to_string()),
            ("sortBy", "submittedDate"),
        ];
        let url = self.questions.url(["api", "query"], &query);
        let shown = super::web::display_url(&url);
        let (text, _) = self.questions.text(url).await?;
        let mut papers = feed::papers(&text).map_err(|error| unexpected(&shown, &error))?;
        papers.truncate(search.most);
        Ok(papers)
    }

    /// The licence that the authors gave.
    async fn licence(&self, paper: &str) -> Result<Option<String>, Trouble> {
        let number = paper.rsplit_once('v').map_or(paper, |(number, _)| number);
        let identifier = format!("oai:arXiv.org:{number}");
        let query: [(&str, &str); 3] = [
            ("verb", "GetRecord"),
            ("metadataPrefix", "arXiv"),
            ("identifier", &identifier),
        ];
        let url = self.records.url(["oai"], &query);
        let shown = super::web::display_url(&url);
        let (text, _) = self.records.text(url).await?;
        let licence = feed::licence(&text).map_err(|error| unexpected(&shown, &error))?;
        Ok(licence.as_deref().and_then(spdx))
    }

    async fn take(&self, paper: &str, outlet: &Outlet) -> Result<(), Failure> {
        let of_item = |trouble: Trouble| trouble.of_item(paper);
        let outlet = outlet.under(self.licence(paper).await.map_err(of_item)?);
        for format in &self.formats {
            self.file(paper, *format, &outlet).await?;
        }
        Ok(())
    }

    async fn file(&self, paper: &str, format: ArxivFormat, outlet: &Outlet) -> Result<(), Failure> {
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
        match self
            .files
            .download(url, &Expected::default(), outlet.limits())
            .await
        {
            Ok(got) => {
                let outlet = outlet.clone();
                blocking(move || {
                    outlet.offer(&origin, &name, got.file, &known_extension);
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
impl Source for Arxiv {
    fn items(&self) -> Vec<String> {
        let searches = self.searches.iter().map(search_item);
        self.papers.iter().cloned().chain(searches).collect()
    }

    async fn collect(&self, item: &str, outlet: Outlet) -> Result<(), Failure> {
        let Some(search) = search_of(&self.searches, item) else {
            if !feed::is_paper(item) {
                let text = format!("{item}: not a paper with its version");
                return Err(Failure::new(FailureKind::Item, text));
            }
            return self.take(item, &outlet).await;
        };
        let papers = self.found(search).await.map_err(|t| t.of_item(item))?;
        if papers.is_empty() {
            let text = format!("{item}: nothing was found");
            return Err(Failure::new(FailureKind::Item, text));
        }
        for paper in papers {
            self.take(&paper, &outlet).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
