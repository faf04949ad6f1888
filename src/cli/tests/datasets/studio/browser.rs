//! The pages in Chromium.

use std::net::TcpListener;
use std::path::Path;

use axum::response::Html;
use axum::{Router, routing::get};

use super::webdriver::Browser;
use super::{Studio, hostile, one_row, run};

const ENTER: &str = "\u{e007}";

/// The number of elements that only hostile text would make. The frames of HTML files have an empty sandbox, and the drawings
/// of the app have a class.
const INSIDE: &str = "document.querySelectorAll('iframe:not([sandbox=\"\"]), form[action], a[href^=javascript], svg:not([class]), object, embed').length";

/// The browser; `None`, with a printed reason, where it or the app is missing.
pub(super) async fn browser(studio: &Studio) -> Option<Browser> {
    match has_app(studio).await {
        true => Browser::start().await,
        false => None,
    }
}

/// Whether the program has the app; prints the reason where it does not.
pub(super) async fn has_app(studio: &Studio) -> bool {
    let page = studio.answer("/").await.text().await.unwrap();
    let is_missing = page.contains("The web app is not part of this program");
    if is_missing {
        let text = "the studio's web app: pipelines/studio/web/build";
        pybench_testing::skip::missing_tool(text);
    }
    !is_missing
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

/// A studio of these runs, with a model to talk with that does not answer. Conversations are kept in `chats`.
async fn studio_with_a_model(runs: &Path, chats: &Path) -> Studio {
    let recipe = chats.join("r.toml");
    let agents = "[agents.m]\nkind = 'openai'\nmodel = 'm'\nbase_url = 'http://127.0.0.1:1/v1'\n";
    std::fs::write(&recipe, format!("name = 't'\n{agents}")).unwrap();
    let history = chats.join("history");
    let args: [&Path; 6] = [
        "--runs-dir".as_ref(),
        runs,
        "--chat-recipe".as_ref(),
        &recipe,
        "--chat-history".as_ref(),
        &history,
    ];
    Studio::start(&args).await
}

/// Checks that a page with hostile text was not attacked.
async fn is_safe(browser: &Browser, page: &str) {
    let owned = browser.value("window.owned === undefined").await;
    assert_eq!(owned, true, "{page}: a script was executed");
    assert_eq!(browser.value(INSIDE).await, 0, "{page}");
}

/// Opens a page, waits until it shows hostile text, and checks that it was not attacked.
async fn opens_safely(studio: &Studio, browser: &Browser, path: &str, shown: &str) {
    browser.open(&format!("{}{path}", studio.url)).await;
    browser.wait(shown).await;
    is_safe(browser, path).await;
}

/// Opens the pages of two hostile evaluations, which are added to the runs, and a conversation about a task of one.
async fn evaluations_are_text(studio: &Studio, browser: &Browser, runs: &Path, attack: &str) {
    let names = ["b", "c"].map(|name| format!("{name}<img src=x onerror=window.owned=1>"));
    for name in &names {
        hostile::evaluation_run(&runs.join(name), attack);
    }
    let [a, b] = names.map(|name| name.replace(' ', "%20"));
    let has = |element: &str| {
        format!(
            "[...document.querySelectorAll({element:?})].some((one) => one.textContent.includes('window.owned=1'))"
        )
    };
    for (path, shown) in [
        (format!("/compare/matrix?a={a}&b={b}"), ".pairs td.query"),
        (format!("/data/{a}/recipe"), ".recipe th[scope=row]"),
        (format!("/data/{a}/statistics"), "table.bars th"),
        ("/results?suite=s".to_owned(), ".leaderboard th"),
        ("/results/training".to_owned(), ".card p"),
    ] {
        opens_safely(studio, browser, &path, &has(shown)).await;
    }
    // The prompt of the task is its first message.
    let about = format!("/chat?about={a}&number=1");
    opens_safely(studio, browser, &about, &has("form span")).await;
    browser.click_text("form button", "begin").await;
    browser.wait(&has(".turn .asked")).await;
    is_safe(browser, "chat").await;
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
    let chats = tempfile::tempdir().unwrap();
    let studio = studio_with_a_model(folder.path(), chats.path()).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let safe = async |page: &str| is_safe(&browser, page).await;
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
    let both = format!("a={encoded}&a_number=1&b={encoded}&b_number=1");
    // It cannot begin, since the run has no recipe; the message names the folder.
    let edited = hostile::edit(&run, &attack);
    for (path, shown) in [
        (
            format!("/review/{encoded}/1"),
            "document.body.textContent.includes('eve: ') && document.querySelectorAll('.turn').length > 0",
        ),
        (
            format!("/compare/pair?{both}"),
            "document.querySelectorAll('.turn .pair .code').length > 0",
        ),
        (
            format!("/compare?a={encoded}&b={encoded}"),
            "!!document.querySelector('.pairs tbody')?.textContent.includes('<script>window.owned=1')",
        ),
        (
            format!("/data/{encoded}/1/edits/{edited}"),
            "document.querySelectorAll('.turn').length > 0",
        ),
        (
            format!("/data/{encoded}/1"),
            "document.body.textContent.includes('turn 1 by <script>window.owned=1')",
        ),
        (
            format!("/edit/{encoded}/1/1"),
            "document.querySelector('.problem')?.textContent.includes('recipe.toml')",
        ),
    ] {
        opens_safely(&studio, &browser, &path, shown).await;
    }
    evaluations_are_text(&studio, &browser, folder.path(), &attack).await;
    let tasks = format!("/data/{encoded}/tasks");
    let shown = "!!document.querySelector('textarea')?.value.includes('window.owned=1')";
    opens_safely(&studio, &browser, &tasks, shown).await;

    // The same text as HTML: the policy still executes and loads nothing, and these checks would have seen it. It has no
    // `<link>`: no policy keeps a page from connecting to the host that one names.
    let text = serde_json::to_string(&attack.replace("<link", "<i")).unwrap();
    let inserted = format!("document.body.insertAdjacentHTML('beforeend', {text})");
    browser.value(&inserted).await;
    let later = "new Promise((done) => setTimeout(() => done(window.owned === undefined), 500))";
    assert_eq!(browser.value(later).await, true);
    assert_eq!(browser.value(&format!("{INSIDE} >= 4")).await, true);

    // The files themselves, each opened as a page.
    let view = studio.json(&path).await;
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
                "{}/api/data/{encoded}/files/{id}?name=a.{end}",
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
