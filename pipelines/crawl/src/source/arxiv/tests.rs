use std::io::Write;

use super::*;
use crate::source::mock::{Answer, Mock, collect};

const FEED: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <id>http://arxiv.org/api/x</id><title>ArXiv Query: a &amp; b</title>
  <entry><id>http://arxiv.org/abs/2407.16732v2</id><title>One</title>
    <link href="http://arxiv.org/pdf/2407.16732v2" rel="related" type="application/pdf" title="pdf"/></entry>
  <entry><id>http://arxiv.org/abs/math.GT/0309136v1</id><title><![CDATA[Two]]></title></entry>
</feed>"#;
const ERROR: &str = r#"<feed xmlns="http://www.w3.org/2005/Atom"><entry>
  <id>http://arxiv.org/api/errors#incorrect_id_format_for_x</id><title>Error</title>
  <summary>incorrect id format for x</summary></entry></feed>"#;
const RECORD: &str = r#"<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><GetRecord><record><metadata>
  <arXiv xmlns="http://arxiv.org/OAI/arXiv/"><id>2407.16732</id>
  <license>http://creativecommons.org/licenses/by/4.0/</license></arXiv></metadata></record></GetRecord></OAI-PMH>"#;
const UNKNOWN: &str = r#"<OAI-PMH><error code="idDoesNotExist">Nothing matches</error></OAI-PMH>"#;

/// The source package of a paper: a gzipped tar.
fn package() -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    for (name, text) in [("main.tex", "\\x"), ("data/t.csv", "a,b\n1,2\n")] {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    let mut gz = tar.into_inner().unwrap();
    gz.flush().unwrap();
    gz.finish().unwrap()
}

async fn mock() -> Mock {
    let mock = Mock::start().await;
    mock.on("/api/query", Answer::text(FEED));
    mock.on("/oai", Answer::text(RECORD));
    for paper in ["2407.16732v2", "math.GT/0309136v1"] {
        mock.on(&format!("/pdf/{paper}"), Answer::text("%PDF-1.4\n"));
        mock.on(&format!("/src/{paper}"), Answer::bytes(package()));
    }
    mock
}

fn source(mock: &Mock, papers: &[&str], searches: &[Search]) -> Arxiv {
    let base = mock.at("");
    let papers: Vec<String> = papers.iter().map(|&paper| paper.to_owned()).collect();
    let formats = [ArxivFormat::Pdf, ArxivFormat::Source];
    Arxiv::at(&mock.web(&[]), [&base; 3], &papers, searches, &formats).unwrap()
}

fn search(most: usize) -> Search {
    Search {
        text: "cat:cs.CL AND ti:benchmark".to_owned(),
        most,
    }
}

#[tokio::test]
async fn papers_come_with_their_versions_and_licenses() {
    let mock = mock().await;
    let seen = collect(&source(&mock, &["2407.16732v2"], &[]))
        .await
        .unwrap();
    let expected = [
        "CC-BY-4.0 arxiv:2407.16732v2#2407.16732v2.pdf",
        "CC-BY-4.0 arxiv:2407.16732v2#data/t.csv",
    ];
    assert_eq!(seen, expected);
    let asked = mock.asked();
    let record = "/oai?verb=GetRecord&metadataPrefix=arXiv&identifier=oai%3AarXiv.org%3A2407.16732";
    assert_eq!(asked[0].path, record);
}

#[tokio::test]
async fn a_search_collects_the_papers_of_its_feed() {
    let mock = mock().await;
    let seen = collect(&source(&mock, &[], &[search(5)])).await.unwrap();
    assert_eq!(seen.len(), 4);
    assert_eq!(
        seen[2],
        "CC-BY-4.0 arxiv:math.GT/0309136v1#math.GT-0309136v1.pdf"
    );
    let query =
        "/api/query?search_query=cat%3Acs.CL+AND+ti%3Abenchmark&max_results=5&sortBy=submittedDate";
    assert_eq!(mock.asked()[0].path, query);
    let seen = collect(&source(&mock, &[], &[search(1)])).await.unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[tokio::test]
async fn requests_are_paced_and_sequential() {
    let mock = mock().await;
    let interval = Duration::from_millis(30);
    let web = mock.web_at(&[], interval);
    let base = mock.at("");
    let open = |paper: &str| {
        Arxiv::at(
            &web,
            [&base; 3],
            &[paper.to_owned()],
            &[],
            &[ArxivFormat::Pdf],
        )
        .unwrap()
    };
    // Two sources of one recipe share one rate limit.
    let (one, two) = (open("2407.16732v2"), open("math.GT/0309136v1"));
    let (one, two) = tokio::join!(collect(&one), collect(&two));
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(mock.busiest(), 1);
    let asked = mock.asked();
    assert_eq!(asked.len(), 4);
    let whole = asked[3].at - asked[0].at;
    assert!(whole >= 2 * interval, "{whole:?}"); // between four requests there are three intervals
    assert_eq!(INTERVAL, Duration::from_secs(3));
}

#[tokio::test]
async fn failures_have_reasons() {
    for (path, answer, reason, retryable) in [
        ("/api/query", Answer::status(400), "400", false),
        ("/api/query", Answer::status(403), "less often", false),
        (
            "/api/query",
            Answer::status(429).with("retry-after", "5"),
            "429",
            true,
        ),
        ("/api/query", Answer::status(503), "503", true),
        (
            "/api/query",
            Answer::text(ERROR),
            "incorrect id format for x",
            true,
        ),
        (
            "/api/query",
            Answer::text("Rate exceeded."),
            "not an Atom feed",
            true,
        ),
        (
            "/api/query",
            Answer::text(&FEED[..300]),
            "unexpected response",
            true,
        ),
        (
            "/api/query",
            Answer::text(FEED).cut(100),
            "connection lost",
            true,
        ),
        ("/oai", Answer::text(UNKNOWN), "Nothing matches", true),
        ("/oai", Answer::status(404), "404", false),
        ("/pdf/2407.16732v2", Answer::status(500), "500", true),
        (
            "/pdf/2407.16732v2",
            Answer::text("%PDF-1.4\n").cut(4),
            "connection lost",
            true,
        ),
    ] {
        let mock = mock().await;
        mock.on(path, answer);
        let failed = collect(&source(&mock, &[], &[search(1)]))
            .await
            .unwrap_err();
        assert!(
            failed.detail.contains(reason),
            "{reason}: {}",
            failed.detail
        );
        assert_eq!(failed.retryable, retryable, "{reason}");
    }
    let mock = mock().await;
    mock.on("/pdf/2407.16732v2", Answer::status(404));
    let seen = collect(&source(&mock, &["2407.16732v2"], &[]))
        .await
        .unwrap();
    assert!(seen[0].contains("404") && seen.len() == 2, "{seen:?}");
    mock.on("/api/query", Answer::text("<feed></feed>"));
    let failed = collect(&source(&mock, &[], &[search(1)]))
        .await
        .unwrap_err();
    assert!(
        failed.detail.contains("nothing was found"),
        "{}",
        failed.detail
    );
}

/// Fetches one paper from arxiv.org.
#[tokio::test]
#[ignore = "needs the network"]
async fn live_service() {
    let cache = tempfile::tempdir().unwrap();
    let papers = ["2407.16732v1".to_owned()];
    let source = Arxiv::open(
        &HttpClient::new(cache.path()),
        &papers,
        &[search(1)],
        &[ArxivFormat::Pdf],
    );
    let seen = collect(&source.unwrap()).await.unwrap();
    assert!(seen[0].contains("arxiv:2407.16732v1"), "{seen:?}");
}
