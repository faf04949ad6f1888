//! The pages in Chromium.

use std::net::TcpListener;

use axum::response::Html;
use axum::{Router, routing::get};

use super::webdriver::Browser;
use super::{Studio, hostile, one_row, run};

const ENTER: &str = "\u{e007}";

/// The number of elements that only hostile text would make. The frames of HTML files have an empty sandbox.
const INSIDE: &str = "document.querySelectorAll('iframe:not([sandbox=\"\"]), form[action], a[href^=javascript], svg, object, embed').length";

/// The browser, and whether the program has the app; `None`, with a printed reason, where one is missing.
pub(super) async fn browser(studio: &Studio) -> Option<Browser> {
    let page = studio.answer("/").await.text().await.unwrap();
    if page.contains("The web app is not part of this program") {
        let text = "the studio's web app: pipelines/studio/web/build";
        pybench_testing::skip::missing_tool(text);
        return None;
    }
    Browser::start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_finds_and_reads_a_trajectory() {
    let Some(fixture) = run().await else { return };
    let runs = fixture.path("data/runs");
    let studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");

    // The link leaves no token in the address; the list of runs leads to the run.
    browser.open(&studio.link).await;
    browser.wait(&has("finished")).await;
    assert_eq!(
        browser.value("location.href").await,
        format!("{}/", studio.url)
    );
    browser
        .value("document.querySelector('td a').click()")
        .await;
    browser
        .wait("document.querySelectorAll('tbody tr').length === 3")
        .await;

    // Search by keyboard; the filter is in the address.
    browser.keys("/integral").await;
    browser.keys(ENTER).await;
    browser
        .wait("location.search.includes('search=integral')")
        .await;
    browser
        .wait("document.querySelectorAll('tbody tr').length < 3")
        .await;
    browser.value("document.activeElement.blur()").await;
    browser.keys(ENTER).await;
    browser.wait(&has("Accepted")).await;
    browser
        .wait("/^\\/data\\/t\\/\\d+$/.test(location.pathname)")
        .await;

    // A turn has an address, which opens it; code is colored; keys are explained.
    browser.keys("jj").await;
    browser.wait("location.hash === '#turn-2'").await;
    let address = browser.value("location.href").await;
    browser.open("about:blank").await;
    browser.open(address.as_str().unwrap()).await;
    browser
        .wait("!!document.querySelector('#turn-2:target, #turn-2')")
        .await;
    browser
        .wait("document.querySelector('#turn-2').getBoundingClientRect().top < innerHeight")
        .await;
    browser
        .wait("!!document.querySelector('.code .keyword')")
        .await;
    browser.keys("?").await;
    browser
        .wait("!!document.querySelector('[role=dialog]')")
        .await;
    browser.keys("r").await;
    browser.wait(&has("\"trajectory\": {")).await;
    browser.keys("u").await;
    browser
        .wait("location.pathname === '/data/t' && location.search.includes('integral')")
        .await;
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_trajectory_is_text() {
    let Some(fixture) = run().await else { return };
    // A page that loads anything from here was attacked.
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let attack = hostile::attack(canary.local_addr().unwrap().port());
    let folder = tempfile::tempdir().unwrap();
    let run = hostile::run(&fixture, folder.path(), &attack);
    let studio = Studio::start(&["--runs-dir".as_ref(), folder.path()]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let safe = async |page: &str| {
        let owned = browser.value("window.owned === undefined").await;
        assert_eq!(owned, true, "{page}: a script was executed");
        assert_eq!(browser.value(INSIDE).await, 0, "{page}");
    };
    let shows_attack =
        "document.body.innerText.includes('<script>window.owned=1</script><img src=x onerror=')";

    browser.open(&studio.link).await;
    browser
        .wait("document.body.innerText.includes('<img src=x onerror=window.owned=1>')")
        .await;
    safe("runs").await;
    browser
        .value("document.querySelector('td a').click()")
        .await;
    browser
        .wait("document.querySelectorAll('tbody tr').length === 1")
        .await;
    browser.wait(shows_attack).await;
    browser
        .value("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        .await;
    safe("list").await;
    browser.keys(ENTER).await;
    browser
        .wait("document.querySelectorAll('.turn').length > 0")
        .await;
    browser
        .value("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        .await;
    browser
        .wait("document.querySelectorAll('.files li pre').length >= 6")
        .await;
    for place in [
        ".text",
        ".turn .code",
        ".output",
        ".output.error",
        ".output.stderr",
        ".files a",
        ".files pre",
        "dd",
        "td",
    ] {
        let shown = format!(
            "[...document.querySelectorAll({place:?})].some((one) => one.textContent.includes('<script>window.owned=1'))"
        );
        assert_eq!(browser.value(&shown).await, true, "{place}");
    }
    // HTML files are shown in frames that load nothing and execute nothing.
    let show = "document.querySelectorAll('.files iframe').forEach((one) => one.scrollIntoView())";
    browser.value(show).await;
    browser
        .wait("performance.getEntriesByType('resource').some((one) => one.name.endsWith('/frame'))")
        .await;
    safe("trajectory").await;
    browser.keys("r").await;
    browser.wait("!!document.querySelector('pre.raw')").await;
    safe("raw").await;

    // The pages that review and compare, with hostile decisions.
    let encoded = run.file_name().unwrap().to_str().unwrap();
    let encoded = encoded.replace(' ', "%20");
    let path = format!("/api/data/{encoded}/1");
    let id = studio.json(&path).await["row"]["id"].clone();
    for (reviewer, decision) in [("eve", "accept"), ("ann", "reject")] {
        let body = serde_json::json!({
            "trajectory": id, "reviewer": reviewer, "decision": decision, "label": "<b>x", "comment": attack});
        let answer = studio.put(&format!("{path}/review"), &body).send().await;
        assert_eq!(answer.unwrap().status(), reqwest::StatusCode::OK);
    }
    browser
        .value("localStorage.setItem('pybench-reviewer', 'ann')")
        .await;
    browser
        .open(&format!("{}/review/{encoded}/1", studio.url))
        .await;
    browser
        .wait("document.body.textContent.includes('eve: ')")
        .await;
    browser
        .wait("document.querySelectorAll('.turn').length > 0")
        .await;
    safe("review").await;
    let both = format!("a={encoded}&a_number=1&b={encoded}&b_number=1");
    browser
        .open(&format!("{}/compare/pair?{both}", studio.url))
        .await;
    browser
        .wait("document.querySelectorAll('.turn .pair .code').length > 0")
        .await;
    safe("pair").await;

    // The pages of an edit. It cannot begin, since the run has no recipe; the message names the folder.
    let edited = hostile::edit(&run, &attack);
    browser
        .open(&format!("{}/data/{encoded}/1/edits/{edited}", studio.url))
        .await;
    browser
        .wait("document.querySelectorAll('.turn').length > 0")
        .await;
    safe("edited").await;
    browser
        .open(&format!("{}/data/{encoded}/1", studio.url))
        .await;
    browser
        .wait("document.body.textContent.includes('turn 1 by <script>window.owned=1')")
        .await;
    safe("edits").await;
    browser
        .open(&format!("{}/edit/{encoded}/1/1", studio.url))
        .await;
    browser
        .wait("document.querySelector('.problem')?.textContent.includes('recipe.toml')")
        .await;
    safe("edit").await;
    browser
        .open(&format!("{}/data/{encoded}/tasks", studio.url))
        .await;
    browser
        .wait("!!document.querySelector('textarea')?.value.includes('window.owned=1')")
        .await;
    safe("tasks").await;

    // The same text as HTML: the policy still executes and loads nothing, and these checks would have seen it. It has no
    // `<link>`: no policy keeps a page from connecting to the host that one names.
    let text = serde_json::to_string(&attack.replace("<link", "<i")).unwrap();
    let inserted = format!("document.body.insertAdjacentHTML('beforeend', {text})");
    browser.value(&inserted).await;
    let later = "new Promise((done) => setTimeout(() => done(window.owned === undefined), 500))";
    assert_eq!(browser.value(later).await, true);
    assert_eq!(browser.value(&format!("{INSIDE} >= 4")).await, true);

    // The files themselves, each opened as a page.
    let name = run
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .replace(' ', "%20");
    let view = studio.json(&format!("/api/data/{name}/1")).await;
    let mut opened = 0;
    for file in view["outputs"].as_array().unwrap() {
        let (id, end) = (
            file["id"].as_str().unwrap(),
            file["name"].as_str().unwrap().rsplit('.').next().unwrap(),
        );
        if end == "pdf" {
            continue;
        }
        browser
            .open(&format!(
                "{}/api/data/{name}/files/{id}?name=a.{end}",
                studio.url
            ))
            .await;
        let kind = browser.value("document.contentType").await;
        let expected = if end == "png" {
            "image/png"
        } else {
            "text/plain"
        };
        assert_eq!(kind, expected, "{end}");
        safe(end).await;
        opened += 1;
    }
    assert_eq!(opened, 6);
    // Nothing was loaded from elsewhere.
    assert!(canary.accept().is_err());
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_reads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let rows = one_row(folder.path());
    let studio = Studio::start(&[&rows]).await;
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
    let fetched = |address: &str, mode: &str| {
        format!(
            "fetch({address:?}, {{mode: {mode:?}, credentials: 'include'}}).then((answer) => answer.text(), () => 'refused')"
        )
    };
    let address = format!("{}/api/data", studio.url);
    let own = browser.value(&fetched(&address, "same-origin")).await;
    assert!(own.as_str().unwrap().contains("rows.jsonl"), "{own}");
    // Another port of the same host is the same site, to which the cookie is sent; another host name is another site.
    for host in ["127.0.0.1", "localhost"] {
        browser.open(&format!("http://{host}:{port}/")).await;
        for mode in ["cors", "no-cors"] {
            assert_eq!(
                browser.value(&fetched(&address, mode)).await,
                "refused",
                "{host} {mode}"
            );
        }
        let framed = format!(
            "new Promise((done) => {{ const frame = document.createElement('iframe'); frame.src = {address:?}; \
             frame.onload = () => {{ try {{ done(frame.contentDocument?.body.innerText ?? 'refused') }} catch {{ done('refused') }} }}; \
             document.body.append(frame); }})"
        );
        let framed = browser.value(&framed).await;
        assert_eq!(framed, "refused", "{host}");
    }
    server.abort();
    assert!(studio.interrupt().success());
}
