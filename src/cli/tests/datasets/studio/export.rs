//! `pybench studio export`: a site for a static host.

use std::path::{Path, PathBuf};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::a_trajectory;
use super::accessibility::has_no_serious_fault;
use super::compare::evaluation;
use super::webdriver::Browser;
use crate::support::fixture::code;

/// What a static host answers.
async fn send(State(site): State<PathBuf>, uri: Uri) -> Response {
    let path = site.join(uri.path().trim_start_matches('/'));
    let kind = match path.extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html",
        Some("css") => "text/css",
        _ => "application/octet-stream",
    };
    match std::fs::read(&path) {
        Ok(bytes) => ([(CONTENT_TYPE, kind)], bytes).into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}

fn export(runs: &Path, site: &Path, cache: &Path, more: &[&str]) -> std::process::Output {
    let mut command = crate::support::pybench("studio");
    command.arg("export").arg("--static").arg(site);
    command.arg("--runs-dir").arg(runs).args(more);
    command.env("PYBENCH_CACHE", cache).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_is_read_without_a_studio() {
    let folder = tempfile::tempdir().unwrap();
    let [runs, site, cache] = ["runs", "site", "cache"].map(|name| folder.path().join(name));
    // It is wider than the page, too.
    let hostile = format!("</pre><script>window.owned=1</script>{}", "#".repeat(500));
    evaluation(
        &runs.join("before"),
        &a_trajectory(&hostile),
        &[true, false],
    );
    evaluation(&runs.join("after"), &a_trajectory(&hostile), &[true, true]);
    let output = export(
        &runs,
        &site,
        &cache,
        &["--trajectories", "before?strict=failed"],
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert!(text.contains("2 task pages, 1 trajectories"), "{text}");

    let Some(browser) = Browser::start().await else {
        return;
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let host = Router::new().fallback(send).with_state(site.clone());
    let server = tokio::spawn(async move { axum::serve(listener, host).await });
    let click = |link: &str| format!("document.querySelector({link:?}).click()");
    browser.open(&format!("http://{address}/index.html")).await;
    browser
        .wait("document.body.innerText.includes('GPT-4o-mini')")
        .await;
    has_no_serious_fault(&browser, "leaderboards of a site").await;
    browser.value(&click("a[href='tasks/s/1.html']")).await;
    browser
        .wait("document.body.innerText.includes('strict failed')")
        .await;
    has_no_serious_fault(&browser, "task of a site").await;
    browser
        .value(&click("a[href*='trajectories/before/']"))
        .await;
    browser
        .wait("document.querySelector('.code')?.innerText.includes('<script>window.owned=1')")
        .await;
    has_no_serious_fault(&browser, "trajectory of a site").await;
    let safe = "window.owned === undefined && document.scripts.length === 0";
    assert_eq!(browser.value(safe).await, true);
    // Style is applied, and everything came from the host of the site.
    let loaded = "performance.getEntriesByType('resource').map((one) => new URL(one.name).host)";
    let loaded = browser.value(loaded).await;
    let own = address.to_string();
    assert!(
        loaded.as_array().unwrap().iter().all(|host| *host == *own),
        "{loaded}"
    );
    let border = "getComputedStyle(document.querySelector('section')).borderTopStyle";
    assert_eq!(browser.value(border).await, "solid");
    // What would be inserted as HTML would not be executed either.
    browser
        .value(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.owned=1>')",
        )
        .await;
    let later = "new Promise((done) => setTimeout(() => done(window.owned === undefined), 500))";
    assert_eq!(browser.value(later).await, true);
    server.abort();
}

#[test]
fn a_folder_with_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [runs, site, cache] = ["runs", "site", "cache"].map(|name| folder.path().join(name));
    evaluation(&runs.join("before"), &a_trajectory("1"), &[true]);
    std::fs::create_dir(&site).unwrap();
    std::fs::write(site.join("thesis.txt"), "mine").unwrap();
    let output = export(&runs, &site, &cache, &[]);
    assert_eq!(code(&output), Some(pybench_run::ExitCode::BadInput as i32));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no export of the studio"), "{stderr}");
    assert!(site.join("thesis.txt").is_file());
}
