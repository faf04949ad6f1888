use std::io::Read;

#[path = "../tests/mock/service.rs"]
mod mock;

use super::*;
use mock::{Answer, LIMITS, Mock};

fn service(mock: &Mock, auth: Auth) -> Service {
    let web = mock.web(&[]);
    let pace = web.throttle("test", Duration::ZERO, 4);
    Service::new(&web, &mock.at("/base/"), auth, pace, "sign in").unwrap()
}

async fn download(service: &Service, path: &str) -> Result<String, FetchError> {
    let url = service.url([path], &[]);
    let mut got = service.download(url, &Expected::default(), LIMITS).await?;
    let mut text = String::new();
    got.file.read_to_string(&mut text).unwrap();
    Ok(text)
}

fn reason(error: FetchError) -> String {
    match error {
        FetchError::Refused(reason) => format!("refused: {reason}"),
        FetchError::Failed(failure) => format!("failed: {}", failure.detail),
    }
}

#[tokio::test]
async fn unchanged_files_are_not_transferred_again() {
    let mock = Mock::start().await;
    let service = service(&mock, Auth::None);
    mock.on("/base/a.csv", Answer::text("one").marked("\"1\""));
    for _ in 0..2 {
        assert_eq!(download(&service, "a.csv").await.unwrap(), "one");
    }
    mock.on("/base/a.csv", Answer::text("two").marked("\"2\""));
    assert_eq!(download(&service, "a.csv").await.unwrap(), "two");
    let asked = mock.asked();
    let asked: Vec<&str> = asked
        .iter()
        .map(|ask| ask.header("if-none-match"))
        .collect();
    assert_eq!(asked, ["", "\"1\"", "\"1\""]);
    // Without a validator nothing is cached.
    mock.on("/base/b.csv", Answer::text("b"));
    for _ in 0..2 {
        assert_eq!(download(&service, "b.csv").await.unwrap(), "b");
    }
    assert_eq!(mock.asked().last().unwrap().header("if-none-match"), "");
}

#[tokio::test]
async fn interrupted_downloads_resume() {
    let mock = Mock::start().await;
    let service = service(&mock, Auth::None);
    let text = "0123456789".repeat(1000);
    let answer = Answer::text(&text).marked("\"1\"");
    // More interruptions than immediate resumptions: the next call finds the partial file.
    mock.on(
        "/base/a.txt",
        (1..=5).fold(answer, |answer, n| answer.cut(n * 100)),
    );
    let failed = reason(download(&service, "a.txt").await.unwrap_err());
    assert!(
        failed.contains("connection lost after 1000 bytes"),
        "{failed}"
    );
    assert_eq!(download(&service, "a.txt").await.unwrap(), text);
    let asked = mock.asked();
    let ranges: Vec<&str> = asked.iter().map(|ask| ask.header("range")).collect();
    let expected = [
        "",
        "bytes=100-",
        "bytes=300-",
        "bytes=600-",
        "bytes=1000-",
        "bytes=1500-",
    ];
    assert_eq!(ranges, expected);
    assert!(
        asked[1..]
            .iter()
            .all(|ask| ask.header("if-range") == "\"1\"")
    );
}

#[tokio::test]
async fn a_partial_download_of_another_version_is_not_resumed() {
    let mock = Mock::start().await;
    let service = service(&mock, Auth::None);
    let broken = |text: &str, etag: &str| Answer::text(text).marked(etag).cut(3);
    mock.on("/base/a.txt", broken("old text", "\"1\"").cut(0).cut(0));
    assert!(download(&service, "a.txt").await.is_err());
    mock.on("/base/a.txt", Answer::text("new words").marked("\"2\""));
    assert_eq!(download(&service, "a.txt").await.unwrap(), "new words");
    // A weak ETag does not guarantee identical bytes.
    mock.on("/base/b.txt", broken("with a weak ETag", "W/\"1\""));
    assert!(download(&service, "b.txt").await.is_err());
    assert_eq!(
        download(&service, "b.txt").await.unwrap(),
        "with a weak ETag"
    );
    assert_eq!(mock.asked().last().unwrap().header("range"), "");
}

#[tokio::test]
async fn responses_that_contradict_the_cache_are_rejected() {
    let mock = Mock::start().await;
    let service = service(&mock, Auth::None);
    mock.on(
        "/base/a.txt",
        Answer::text("first").marked("\"1\"").cut(3).cut(0).cut(0),
    );
    assert!(download(&service, "a.txt").await.is_err());
    let odd = Answer::bytes("xx").with("content-range", "bytes 0-1/5");
    mock.on("/base/a.txt", odd.code(206));
    let said = reason(download(&service, "a.txt").await.unwrap_err());
    assert!(said.contains("206"), "{said}");
    mock.on("/base/a.txt", Answer::text("whole").marked("\"1\""));
    assert_eq!(download(&service, "a.txt").await.unwrap(), "whole");
    mock.on("/base/a.txt", Answer::text("").code(304));
    assert_eq!(download(&service, "a.txt").await.unwrap(), "whole");
}

#[tokio::test]
async fn bodies_are_limited_and_compared_with_their_listing() {
    let mock = Mock::start().await;
    let service = service(&mock, Auth::None);
    mock.on(
        "/base/large.txt",
        Answer::bytes(vec![b'x'; 2 << 20]).marked("\"1\""),
    );
    let said = reason(download(&service, "large.txt").await.unwrap_err());
    assert_eq!(said, "refused: larger than 1 MiB");
    mock.on("/base/large.txt", Answer::bytes(vec![b'x'; 17 << 20]));
    let listing = service.url(["large.txt"], &[]);
    let said = reason(service.text(listing).await.unwrap_err());
    assert_eq!(said, "refused: larger than 16 MiB");
    mock.on("/base/a.txt", Answer::text("abc").marked("\"1\""));
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for (size, sha256, fits) in [(3, abc, true), (4, abc, false), (3, &"0".repeat(64), false)] {
        let expected = Expected {
            size: Some(size),
            sha256: Some(sha256.to_owned()),
        };
        let url = service.url(["a.txt"], &[("n", &format!("{size}{sha256}"))]);
        let got = service.download(url, &expected, LIMITS).await;
        assert_eq!(got.is_ok(), fits, "{size} {sha256}");
    }
}

#[tokio::test]
async fn credentials_are_sent_only_to_their_service_and_never_printed() {
    let (mock, other) = (Mock::start().await, Mock::start().await);
    let service = service(&mock, Auth::Bearer("s3cret".to_owned().into()));
    let moved = Answer::status(302).with("location", &other.at("/b.csv"));
    mock.on("/base/a.csv", moved);
    other.on("/b.csv", Answer::text("b"));
    assert_eq!(download(&service, "a.csv").await.unwrap(), "b");
    assert_eq!(mock.asked()[0].header("authorization"), "Bearer s3cret");
    assert_eq!(other.asked()[0].header("authorization"), "");
    for status in [401, 403, 404, 429, 500] {
        mock.on("/base/a.csv", Answer::status(status));
        let said = reason(download(&service, "a.csv").await.unwrap_err());
        assert!(
            said.contains(&status.to_string()) && !said.contains("s3cret"),
            "{said}"
        );
        assert_eq!(said.contains("sign in"), status < 404, "{said}");
    }
}

#[test]
fn urls_stay_below_their_base() {
    let web = HttpClient::new(Path::new("/nowhere"));
    let pace = web.throttle("test", Duration::ZERO, 1);
    let base = "https://host/base/";
    let service = Service::new(&web, base, Auth::None, pace.clone(), "").unwrap();
    let url = service.url(["a b", "c/d", "?e", "..", "#"], &[("q", "x&y")]);
    assert_eq!(
        url.as_str(),
        "https://host/base/a%20b/c%2Fd/%3Fe/%23?q=x%26y"
    );
    for wrong in ["", "host", "ftp://host", "file:///etc"] {
        assert!(
            Service::new(&web, wrong, Auth::None, pace.clone(), "").is_err(),
            "{wrong}"
        );
    }
    let shown = Url::parse("https://u:p@h/x.csv?token=1#f").unwrap();
    assert_eq!(display_url(&shown), "https://h/x.csv");
}

#[tokio::test]
async fn origins_of_a_dataset_lead_only_to_public_addresses() {
    let mock = Mock::start().await;
    mock.on("/a.csv", Answer::text("x"));
    let cache = tempfile::tempdir().unwrap();
    let here = mock.at("/a.csv");
    let named = here.replace("127.0.0.1", "localhost");
    for url in [
        &here,
        &named,
        &here.replace("127.0.0.1", "[::ffff:127.0.0.1]"),
    ] {
        let fetched = origin::fetch(url, cache.path(), Path::new(".")).await;
        let reason = fetched.unwrap_err();
        assert!(reason.contains("public address"), "{url}: {reason}");
    }
    assert!(mock.asked().is_empty());
    for origin in [
        "pkg:pypi/a @ http://127.0.0.1/x@1#m",
        "pkg:pypi/a@1 --index-url http://127.0.0.1#m",
    ] {
        let fetched = origin::fetch(origin, cache.path(), Path::new(".")).await;
        let reason = fetched.unwrap_err();
        assert!(reason.contains("not the name and version"), "{reason}");
    }
}
