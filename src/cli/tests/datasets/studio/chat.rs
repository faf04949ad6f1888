//! Conversations in the studio, by HTTP and in a browser.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench_agent as agent;
use pybench_agent::Format as _;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::Studio;
use super::accessibility::has_no_serious_fault;
use super::browser::browser;
use super::webdriver::Browser;
use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::interpreter_is_here;

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const PATIENCE: Duration = Duration::from_secs(120);
/// The key of the endpoint, in the environment of the server.
const KEY: (&str, &str) = ("STUDIO_TEST_KEY", "secret-of-the-server");

/// Answers a message by the cell that it names, and an observation by its last line.
fn respond(request: &Value) -> Answer {
    let messages = request["messages"].as_array().unwrap();
    let last = messages.last().unwrap()["content"].as_str().unwrap();
    let observed = last.strip_prefix("[INFO]This is a Code Interpreter Message:\n");
    if let Some(seen) = observed {
        let line = seen.trim().lines().last().unwrap_or("done").to_owned();
        return Answer::Content(agent::PybenchFormat.write_answer(&format!("It is {line}.")));
    }
    if last.contains("slowly") {
        return Answer::Pieces(
            vec!["I am thinking. ".to_owned(); 900],
            Duration::from_millis(300),
        );
    }
    let step = agent::PybenchFormat.write_step("I look.", last);
    Answer::Content(step.split(agent::END).next().unwrap().to_owned())
}

/// A folder with a recipe and conversations.
struct Place {
    folder: tempfile::TempDir,
    endpoint: Endpoint,
}

impl Place {
    async fn new() -> Self {
        let endpoint = Endpoint::start(|request| async move { respond(&request) }).await;
        let folder = tempfile::tempdir().unwrap();
        let recipe = format!(
            "name = 't'\n[agents.m]\nkind = 'openai'\nmodel = 'm'\nbase_url = '{}'\nkey_env = '{}'\n",
            endpoint.base_url(),
            KEY.0
        );
        std::fs::write(folder.path().join("r.toml"), recipe).unwrap();
        std::fs::create_dir(folder.path().join("runs")).unwrap();
        Self { folder, endpoint }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn studio(&self) -> Studio {
        let (runs, recipe, chats) = (self.path("runs"), self.path("r.toml"), self.path("chats"));
        let args: [&Path; 6] = [
            "--runs-dir".as_ref(),
            &runs,
            "--chat-recipe".as_ref(),
            &recipe,
            "--chat-history".as_ref(),
            &chats,
        ];
        Studio::start_with(&args, &[KEY]).await
    }
}

/// Waits until the state of a conversation is as wanted.
async fn until(studio: &Studio, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    let mut version = 0;
    loop {
        let view = studio.json(&format!("{path}?after={version}")).await;
        if wanted(&view) {
            return view;
        }
        assert!(since.elapsed() < PATIENCE, "{view:#}");
        version = view["version"].as_u64().unwrap();
    }
}

fn is_idle(view: &Value) -> bool {
    view["working"] == false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_has_files_streams_and_survives_a_kill() {
    if !interpreter_is_here() {
        return;
    }
    let place = Place::new().await;
    let mut studio = place.studio().await;
    let list = studio.json("/api/chats").await;
    assert_eq!(list["agents"], json!(["m"]));
    let opened = studio.post("/api/chats", &json!({"agent": "m"})).await;
    let id = opened["id"].as_str().unwrap().to_owned();
    let path = format!("/api/chats/{id}");
    // Neither addresses nor keys reach the page.
    assert!(!opened.to_string().contains("127.0.0.1"), "{opened:#}");

    let file = json!({"name": "in.csv", "base64": STANDARD.encode("a\n41\n")});
    let (status, _) = studio
        .send(Method::PUT, &format!("{path}/files"), &file)
        .await;
    assert_eq!(status, StatusCode::OK);
    until(&studio, &path, is_idle).await;
    let code = "x = int(open('data/in.csv').read().split()[1]); \
                n = open('output/a.html', 'w').write('<script>1</script>'); print(x)";
    let messages = format!("{path}/messages");
    studio.post(&messages, &json!({"text": code})).await;
    let view = until(&studio, &path, |view| {
        is_idle(view) && view["items"].as_array().unwrap().len() > 3
    })
    .await;
    let items = view["items"].as_array().unwrap();
    assert_eq!(items[0]["text"], "in.csv");
    assert_eq!(items[2]["turn"]["cells"][0]["outputs"][0]["text"], "41\n");
    assert!(
        items[3]["turn"]["text"]
            .as_str()
            .unwrap()
            .contains("It is 41.")
    );
    let paths: Vec<&str> = view["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    for path in ["data/in.csv", "output/a.html"] {
        assert!(paths.contains(&path), "{paths:?}");
    }

    // Files of the session are as harmless as those of runs; others are not reached.
    let answer = studio
        .answer(&format!("{path}/file?path=output/a.html"))
        .await;
    assert_eq!(answer.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
    let policy = &answer.headers()[CONTENT_SECURITY_POLICY];
    assert_eq!(policy, "sandbox; default-src 'none'");
    assert_eq!(answer.text().await.unwrap(), "<script>1</script>");
    let page = studio
        .json(&format!("{path}/file/page?name=data/in.csv"))
        .await;
    assert_eq!(
        (&page["kind"], &page["rows"]),
        (&json!("table"), &json!([["41"]]))
    );
    let frame = studio
        .answer(&format!("{path}/file/frame?path=output/a.html"))
        .await;
    let policy = frame.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(
        policy.starts_with("sandbox; default-src 'none';"),
        "{policy}"
    );
    for outside in ["../../etc/passwd", "/etc/passwd", "output"] {
        for route in ["file?path", "file/page?name", "file/frame?path"] {
            let answer = studio.answer(&format!("{path}/{route}={outside}")).await;
            assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{route} {outside}");
        }
    }
    let answer = studio.answer(&format!("{path}/export/html")).await;
    let disposition = answer.headers()[CONTENT_DISPOSITION].to_str().unwrap();
    assert_eq!(
        disposition,
        format!("attachment; filename=\"chat-{id}.html\"")
    );
    assert!(answer.text().await.unwrap().contains("&lt;script&gt;"));
    until(&studio, &path, is_idle).await;

    // Killed in the middle of a reply: what was saved is there, and the conversation goes on.
    studio.post(&messages, &json!({"text": "slowly"})).await;
    until(&studio, &path, |view| {
        view["reply"].as_str().unwrap().contains("thinking")
    })
    .await;
    studio.child.kill().unwrap();
    studio.child.wait().unwrap();
    drop(studio);
    let studio = place.studio().await;
    assert_eq!(studio.answer(&path).await.status(), StatusCode::NOT_FOUND);
    let list = studio.json("/api/chats").await;
    assert_eq!(list["conversations"][0]["id"], json!(id));
    studio
        .post("/api/chats", &json!({"conversation": id}))
        .await;
    let view = until(&studio, &path, is_idle).await;
    assert_eq!(view["items"].as_array().unwrap().len(), 5);
    assert_eq!(
        (&view["unfinished"], &view["notes"]),
        (&json!(true), &json!([]))
    );
    let edit = json!({"text": "print(x + 1)", "replaces": 2});
    studio.post(&messages, &edit).await;
    let view = until(&studio, &path, is_idle).await;
    let last = view["items"].as_array().unwrap().last().unwrap();
    assert!(
        last["turn"]["text"].as_str().unwrap().contains("It is 42."),
        "{last:#}"
    );

    // The endpoint got the key; no page, no export and nothing on the disk has it.
    let keys = place.endpoint.keys();
    let sent = format!("Bearer {}", KEY.1);
    assert!(keys.contains(&Some(sent)), "{keys:?}");
    let exports = ["notebook", "json", "html"].map(|form| format!("{path}/export/{form}"));
    let pages = ["/", "/api/chats", "/api/agents", path.as_str()];
    for page in exports.iter().map(String::as_str).chain(pages) {
        until(&studio, &path, is_idle).await;
        let answer = studio.answer(page).await;
        assert_eq!(answer.status(), StatusCode::OK, "{page}");
        assert!(!answer.text().await.unwrap().contains(KEY.1), "{page}");
    }
    let files = files_below(&place.path("chats"));
    assert!(!files.is_empty());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let mut parts = bytes.windows(KEY.1.len());
        assert!(!parts.any(|part| part == KEY.1.as_bytes()), "{file:?}");
    }

    // Ctrl-C does not wait for a page that waits for a change.
    let waiting = studio.get(&format!("{path}?after=1000000")).send();
    let waiting = tokio::spawn(waiting);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(studio.interrupt().success());
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_sites_cannot_talk_and_wrong_requests_are_explained() {
    if !interpreter_is_here() {
        return;
    }
    let place = Place::new().await;
    let studio = place.studio().await;
    let opened = studio.post("/api/chats", &json!({"agent": "m"})).await;
    let path = format!("/api/chats/{}", opened["id"].as_str().unwrap());
    // With the cookie, but without the studio's origin.
    let message = json!({"text": "print(1)"}).to_string();
    for origin in [None, Some("http://example.org")] {
        let request = studio.http.post(format!("{}{path}/messages", studio.url));
        let request = request.header("cookie", &studio.cookie);
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .body(message.clone());
        let request = match origin {
            None => request,
            Some(origin) => request.header("origin", origin),
        };
        assert_eq!(
            request.send().await.unwrap().status(),
            StatusCode::FORBIDDEN
        );
    }
    for (method, order, body, expected) in [
        (
            Method::POST,
            "messages",
            json!({}),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (
            Method::PUT,
            "files",
            json!({"name": "a", "base64": "?"}),
            StatusCode::BAD_REQUEST,
        ),
        (Method::POST, "dance", json!({}), StatusCode::NOT_FOUND),
    ] {
        let (status, answer) = studio.send(method, &format!("{path}/{order}"), &body).await;
        assert_eq!(status, expected, "{order}: {answer}");
    }
    // What the conversation refuses is its state.
    let hidden = json!({"name": "../a", "base64": ""});
    let (status, _) = studio
        .send(Method::PUT, &format!("{path}/files"), &hidden)
        .await;
    assert_eq!(status, StatusCode::OK);
    let view = until(&studio, &path, is_idle).await;
    assert!(
        view["problem"].as_str().unwrap().contains("./data"),
        "{view:#}"
    );
    let file = json!({"address": "file:///etc/passwd", "model": "m"});
    for wrong in [json!({"agent": "x"}), json!({"endpoint": file})] {
        let (status, _) = studio.send(Method::POST, "/api/chats", &wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    // A page that is left frees its session.
    let (status, _) = studio.send(Method::DELETE, &path, &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(studio.answer(&path).await.status(), StatusCode::NOT_FOUND);
}

/// The files in a folder and its folders.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files_below(&path),
            false => vec![path],
        })
        .collect()
}

/// Writes a message, and sends it as soon as it can be sent.
async fn say(browser: &Browser, text: &str) {
    browser
        .value("document.querySelector('.write textarea').focus()")
        .await;
    browser.keys(text).await;
    browser
        .wait("!document.querySelector('.write button').disabled")
        .await;
    browser.keys(ENTER).await;
}

/// Clicks a button, as soon as it can be clicked.
async fn click(browser: &Browser, text: &str) {
    let found = format!(
        "[...document.querySelectorAll('button')].find((one) => !one.disabled && one.innerText === {text:?})"
    );
    browser.wait(&format!("!!{found}")).await;
    browser.value(&format!("{found}.click()")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_talks_in_the_browser() {
    if !interpreter_is_here() {
        return;
    }
    let place = Place::new().await;
    let studio = place.studio().await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");
    browser.open(&studio.link).await;
    browser.wait(&has("There are no runs yet")).await;
    browser
        .value(
            "[...document.querySelectorAll('a')].find((one) => one.textContent === 'chat').click()",
        )
        .await;
    browser
        .wait("!!document.querySelector('select[name=agent]')")
        .await;
    browser
        .value("document.querySelector('form button').click()")
        .await;
    browser
        .wait("/^\\/chat\\/[0-9a-f]{12}$/.test(location.pathname)")
        .await;
    browser.wait(&has("openai:m")).await;

    // A file goes in, a message runs a cell, whose hostile output is text.
    browser
        .value(
            "(() => { const all = new DataTransfer(); all.items.add(new File(['41'], 'in.txt')); \
             const input = document.querySelector('input[type=file]'); input.files = all.files; \
             input.dispatchEvent(new Event('change', {bubbles: true})); })()",
        )
        .await;
    browser
        .wait(&has("data/in.txt was put into the session"))
        .await;
    browser.wait(&has("send ( Enter )")).await;
    browser.keys("m").await;
    let hostile = "<img src=x onerror=window.owned=1><script>window.owned=1</script>";
    browser
        .keys(&format!(
            "x = open('data/in.txt').read(); print(x, '{hostile}')"
        ))
        .await;
    browser
        .wait("!document.querySelector('.write button').disabled")
        .await;
    browser.keys(ENTER).await;
    browser.wait(&has("It is 41 <img src=x")).await;
    // The session runs now, so its files are shown.
    browser
        .wait("document.querySelector('.files pre')?.innerText === '41'")
        .await;
    assert_eq!(browser.value("window.owned === undefined").await, true);
    let inside = "document.querySelectorAll('img, iframe, form[action]').length";
    assert_eq!(browser.value(inside).await, 0);
    browser
        .wait("!!document.querySelector('.code .keyword, .code .string')")
        .await;

    // A reply is stopped, and the message is replaced.
    browser
        .wait("document.activeElement.tagName === 'TEXTAREA'")
        .await;
    browser.keys("slowly").await;
    browser
        .wait("!document.querySelector('.write button').disabled")
        .await;
    browser.keys(ENTER).await;
    browser.wait(&has("I am thinking.")).await;
    browser.keys(ESCAPE).await;
    browser.wait("[...document.querySelectorAll('.turn p.quiet')].some((one) => one.textContent === 'stopped')").await;
    browser
        .wait("!document.querySelector('section[aria-label=\"Message 2\"] button').disabled")
        .await;
    browser
        .value("document.querySelector('section[aria-label=\"Message 2\"] button').click()")
        .await;
    browser
        .wait("document.querySelector('textarea').value === 'slowly'")
        .await;
    browser
        .value("document.querySelector('textarea').select()")
        .await;
    browser.keys("print(int(x) + 1)").await;
    browser.keys(ENTER).await;
    browser.wait(&has("It is 42.")).await;
    assert_eq!(browser.value(&has("I am thinking.")).await, false);
    has_no_serious_fault(&browser, "conversation").await;

    // A file is dropped; a cell is stopped, which keeps the variables; the last message is answered again.
    browser
        .value(
            "(() => { const data = new DataTransfer(); data.items.add(new File(['6'], 'dropped.txt')); \
             dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})); return true })()",
        )
        .await;
    browser
        .wait(&has("data/dropped.txt was put into the session"))
        .await;
    let code = "y = int(open('data/dropped.txt').read()) + 1; print('begun', flush=True); \
                __import__('time').sleep(300)";
    say(&browser, code).await;
    browser
        .wait("[...document.querySelectorAll('[aria-busy] .output')].some((one) => one.innerText.includes('begun'))")
        .await;
    browser.keys(ESCAPE).await;
    browser.wait(&has("let the model go on")).await;
    say(&browser, "print(y)").await;
    browser.wait(&has("It is 7.")).await;
    // The browser keeps 250 entries, and the page has asked for changes all the time.
    browser.value("performance.clearResourceTimings()").await;
    click(&browser, "answer again").await;
    browser
        .wait("performance.getEntriesByType('resource').some((one) => one.name.endsWith('/retry'))")
        .await;
    click(&browser, "add to the dataset").await;
    browser.wait(&has("added to")).await;
    // The session was made again for it, without the cell that was stopped.
    browser.wait(&has("It is name 'y' is not defined.")).await;
    let rows = std::fs::read_to_string(place.path("chats/dataset/rows.jsonl")).unwrap();
    assert_eq!(rows.lines().count(), 1, "{rows}");

    // The page that is left frees its session; the conversation is opened again from the list.
    let address = browser.value("location.pathname").await;
    let path = format!(
        "/api{}",
        address.as_str().unwrap().replace("/chat/", "/chats/")
    );
    browser.open("about:blank").await;
    let since = Instant::now();
    while studio.answer(&path).await.status() != StatusCode::NOT_FOUND {
        assert!(since.elapsed() < PATIENCE, "it is still open");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    browser.open(&format!("{}/chat", studio.url)).await;
    browser.wait(&has("x = open(")).await;
    has_no_serious_fault(&browser, "conversations").await;
    browser
        .value("document.querySelector('li a').click()")
        .await;
    browser.wait(&has("It is 42.")).await;
    // The key leads up, to the list and to the runs.
    browser.keys("u").await;
    browser.wait("location.pathname === '/chat'").await;
    browser.keys("u").await;
    browser.wait(&has("There are no runs yet")).await;

    // A person names an endpoint, which is remembered, and the variable of its key.
    browser.open(&format!("{}/chat", studio.url)).await;
    let choice = "document.querySelector('select[name=agent]')";
    browser.wait(&format!("!!{choice}")).await;
    browser
        .value(&format!(
            "(() => {{ const field = {choice}; field.value = field.options.length - 1; \
             field.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"
        ))
        .await;
    browser
        .wait("!!document.querySelector('input[name=address]')")
        .await;
    browser
        .value(&format!(
            "(() => {{ const of = (name) => document.querySelector('input[name=' + name + ']'); \
             of('address').value = '{}'; of('model').value = 'other'; of('key_env').value = '{}'; \
             document.querySelector('form button').click(); }})()",
            place.endpoint.base_url(),
            KEY.0
        ))
        .await;
    browser.wait(&has("openai:other")).await;
    browser.open(&format!("{}/chat", studio.url)).await;
    browser
        .wait("[...document.querySelectorAll('option')].some((one) => one.textContent.startsWith('other at http:'))")
        .await;
    assert!(studio.interrupt().success());
}
