//! What a file and a page of another origin try against the studio, in a browser.

use std::io::Read as _;
use std::net::TcpListener;
use std::time::Duration;

use axum::response::Html;
use axum::{Router, routing::get};
use pybench_run::{Failure, FailureKind, Journal};
use serde_json::Value;

use super::browser::browser;
use super::{Studio, a_trajectory, row_with_files};

/// A page that tries to leave its frame: by itself, by the link in its upper half, and by the form in its lower half.
fn breakout(canary: u16, target: &str) -> String {
    let address = format!("http://127.0.0.1:{canary}");
    format!(
        "<!doctype html><meta http-equiv=refresh content=\"0;url={address}/refresh\">\
         <style>a, button {{ position: fixed; left: 0; width: 100%; height: 50% }} a {{ top: 0 }} button {{ bottom: 0 }}</style>\
         <script>top.location = '{address}/script'</script><a target={target} href=\"{address}/link\">out</a>\
         <form method=post target={target} action=\"{address}/post\"><input name=a value=1><button>send</button></form>"
    )
}

/// What was sent to the canary. Chromium connects for a form of the page before it sees that it may not be sent.
fn sent(canary: &TcpListener) -> String {
    let mut text = String::new();
    while let Ok((mut connection, _)) = canary.accept() {
        connection.set_nonblocking(false).unwrap();
        let patience = Some(Duration::from_millis(300));
        connection.set_read_timeout(patience).unwrap();
        let mut bytes = [0; 1024];
        // A connection on which nothing arrives is one that only waits.
        let count = connection.read(&mut bytes).unwrap_or(0);
        text += &String::from_utf8_lossy(&bytes[..count]);
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_does_not_get_out_of_its_frame() {
    const TARGETS: [&str; 3] = ["_top", "_self", "_blank"];
    // A page that loads anything from here was attacked.
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let port = canary.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let files = TARGETS.map(|target| {
        let html = breakout(port, target);
        (format!("{target}.html"), html.into_bytes())
    });
    row_with_files(folder.path(), &files);
    let studio = Studio::start(&[folder.path()]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    browser.open(&studio.link).await;
    browser.wait("!!document.querySelector('td a')").await;
    browser
        .value("document.querySelector('td a').click()")
        .await;
    let frames = "document.querySelectorAll('.files iframe')";
    browser
        .wait(&format!("{frames}.length === {}", TARGETS.len()))
        .await;
    let page = browser.value("location.href").await;
    for (at, target) in TARGETS.into_iter().enumerate() {
        let frame = format!("{frames}[{at}]");
        let center = format!("{frame}.scrollIntoView({{block: 'center'}})");
        browser.value(&center).await;
        // Frames are loaded when they come into view.
        let loaded = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/frame')).length";
        browser.wait(&format!("{loaded} > {at}")).await;
        // The link is last, since it may replace what the frame shows.
        for share in [0.75, 0.25] {
            let place = format!(
                "(() => {{ const place = {frame}.getBoundingClientRect(); \
                 return [place.x + place.width / 2, place.y + place.height * {share}] }})()"
            );
            let place = browser.value(&place).await;
            browser.click(&place).await;
            // The click was one in the frame.
            browser
                .wait(&format!("document.activeElement === {frame}"))
                .await;
            browser.value("document.activeElement.blur()").await;
        }
        // What would be loaded, is loaded by now.
        browser
            .value("new Promise((done) => setTimeout(() => done(true), 200))")
            .await;
        assert_eq!(browser.value("location.href").await, page, "{target}");
        assert_eq!(browser.windows().await, 1, "{target}");
        assert!(canary.accept().is_err(), "{target}");
    }
    // A form in the page itself is not sent either.
    let form = format!(
        "(() => {{ const form = document.createElement('form'); form.method = 'post'; \
         form.action = 'http://127.0.0.1:{port}/form'; document.body.append(form); form.submit(); \
         return new Promise((done) => setTimeout(() => done(true), 200)); }})()"
    );
    assert_eq!(browser.value(&form).await, true);
    assert_eq!(browser.value("location.href").await, page);
    assert_eq!(sent(&canary), "");
    assert!(studio.interrupt().success());
}

/// Number of units that have failed.
async fn failed(studio: &Studio) -> Value {
    let status = studio.json("/api/data/r/status").await;
    let stages = status["stages"].as_array().unwrap();
    let rollout = stages.iter().find(|one| one["stage"] == "rollout");
    rollout.unwrap()["failed"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_changes_nothing() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().join("r");
    std::fs::create_dir(&folder).unwrap();
    let journal = Journal::open(&folder.join("journal.sqlite")).unwrap();
    journal.enqueue("rollout", ["a", "b"]).unwrap();
    journal
        .complete("rollout", "a", &a_trajectory("1"))
        .unwrap();
    let busy = Failure::new(FailureKind::Endpoint, "rate_limited: 429 busy");
    journal.fail("rollout", "b", &busy, true).unwrap();
    let studio = Studio::start(&["--runs-dir".as_ref(), runs.path()]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    let pages = Router::new().route(
        "/",
        get(|| async { Html("<!doctype html><title>other</title>") }),
    );
    let server = tokio::spawn(async move { axum::serve(other, pages).await });

    // The browser has the cookie.
    browser.open(&studio.link).await;
    browser.wait("!!document.querySelector('td a')").await;
    let address = format!("{}/api/data/r/retry", studio.url);
    let body = r#"{"stage":"rollout","kind":"endpoint"}"#;
    let sent = |mode: &str, media: &str| {
        format!(
            "fetch({address:?}, {{method: 'POST', mode: '{mode}', credentials: 'include', \
             headers: {{'Content-Type': '{media}'}}, body: {body:?}}}).then((answer) => answer.status, () => 'refused')"
        )
    };
    // A form can send nearly the same text.
    let form = format!(
        "new Promise((done) => {{ const [frame, form, field] = ['iframe', 'form', 'input'].map((name) => \
         document.createElement(name)); frame.name = 'answer'; form.method = 'post'; form.enctype = 'text/plain'; \
         form.action = {address:?}; form.target = 'answer'; field.name = {body:?}; form.append(field); \
         document.body.append(frame, form); frame.onload = () => done(true); form.submit(); }})"
    );
    for host in ["127.0.0.1", "localhost"] {
        browser.open(&format!("http://{host}:{port}/")).await;
        for (mode, media) in [("cors", "application/json"), ("no-cors", "text/plain")] {
            let answer = browser.value(&sent(mode, media)).await;
            assert_ne!(answer, 200, "{host} {mode}");
        }
        assert_eq!(browser.value(&form).await, true, "{host}");
        assert_eq!(failed(&studio).await, 1, "{host}");
    }
    // The same request of a page of the studio counts.
    browser.open(&format!("{}/data/r", studio.url)).await;
    let answer = browser.value(&sent("cors", "application/json")).await;
    assert_eq!(answer, 200);
    assert_eq!(failed(&studio).await, 0);
    server.abort();
    assert!(studio.interrupt().success());
}
