//! Conversations in the studio, by HTTP and in a browser.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench_agent as agent;
use pybench_agent::Format as _;
use pybench_testing::program::write_program;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::Studio;
use super::accessibility::has_no_serious_fault;
use super::browser::browser;
use super::webdriver::Browser;
use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::interpreter_is_here;
use crate::support::{put_program, small_model};

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const PATIENCE: Duration = Duration::from_secs(120);
/// The key of the endpoint, in the environment of the server.
const KEY: (&str, &str) = ("STUDIO_TEST_KEY", "secret-of-the-server");

/// Answers a message by the cell that it names, and an observation by its last line.
fn respond(request: &Value) -> Answer {
    let message = request["messages"].as_array().unwrap().last().unwrap();
    let last = message["content"].as_str().unwrap();
    if last.contains("slowly") {
        return Answer::Pieces(
            vec!["I am thinking. ".to_owned(); 900],
            Duration::from_millis(300),
        );
    }
    if request["tools"].is_array() {
        return respond_by_calls(message["role"] == "tool", last);
    }
    let observed = last.strip_prefix("[INFO]This is a Code Interpreter Message:\n");
    if let Some(seen) = observed {
        return Answer::Content(agent::PybenchFormat.write_answer(&seen_line(seen)));
    }
    let step = agent::PybenchFormat.write_step("I look.", last);
    Answer::Content(step.split(agent::END).next().unwrap().to_owned())
}

/// As [`respond`], by a call of the function.
fn respond_by_calls(is_observation: bool, text: &str) -> Answer {
    if is_observation {
        return Answer::Content(agent::ToolsFormat.write_answer(&seen_line(text)));
    }
    let arguments = json!({"code": text}).to_string();
    let function = json!({"name": "execute_python", "arguments": arguments});
    let call = json!({"id": "call_0", "type": "function", "function": function});
    let message = json!({"role": "assistant", "content": "I call.", "tool_calls": [call]});
    let choice = json!({"index": 0, "finish_reason": "tool_calls", "message": message});
    Answer::Bytes(json!({"choices": [choice]}).to_string().into_bytes())
}

fn seen_line(seen: &str) -> String {
    let line = seen.trim().lines().last().unwrap_or("done");
    format!("It is {line}.")
}

/// As [`respond`], word by word if the reply is a cell.
fn respond_by_words(request: &Value) -> Answer {
    match respond(request) {
        Answer::Content(text) if text.starts_with("I look.") => {
            let words = text.split_inclusive(' ').map(str::to_owned);
            Answer::Pieces(words.collect(), Duration::from_millis(300))
        }
        answer => answer,
    }
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
        self.studio_at("127.0.0.1:0").await
    }

    async fn studio_at(&self, address: &str) -> Studio {
        self.studio_of(crate::support::PYBENCH.as_ref(), address)
            .await
    }

    async fn studio_of(&self, program: &Path, address: &str) -> Studio {
        let (runs, recipe, chats) = (self.path("runs"), self.path("r.toml"), self.path("chats"));
        let args: [&Path; 8] = [
            "--address".as_ref(),
            address.as_ref(),
            "--runs-dir".as_ref(),
            &runs,
            "--chat-recipe".as_ref(),
            &recipe,
            "--chat-history".as_ref(),
            &chats,
        ];
        Studio::start_program(program, &args, &[KEY]).await
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
    // Meanwhile two pages save the conversation at the same time.
    let export = format!("{path}/export/json");
    let (one, other) = tokio::join!(studio.answer(&export), studio.answer(&export));
    for answer in [one, other] {
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(answer.text().await.unwrap().contains("It is 41."));
    }
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

/// Saves the conversation on the page in each form, reads the files, and leaves the page for the last one.
async fn export(studio: &Studio, browser: &Browser, path: &str, message: &str) {
    let id = path.rsplit('/').next().unwrap();
    let save = async |form: &str, extension: &str| {
        until(studio, path, is_idle).await;
        browser.click_text("header a[download]", form).await;
        browser.saved_file(&format!("chat-{id}.{extension}")).await
    };
    let read =
        |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };

    let notebook = read(&save("notebook", "ipynb").await);
    assert_eq!(
        json!([notebook["nbformat"], notebook["nbformat_minor"]]),
        json!([4, 5])
    );
    let cells = notebook["cells"].as_array().unwrap();
    for cell in cells {
        let is_code = cell["cell_type"] == "code";
        assert!(is_code || cell["cell_type"] == "raw", "{cell:#}");
        assert_eq!(cell["outputs"].is_array(), is_code, "{cell:#}");
        assert!(cell["id"].is_string() && cell["source"].is_string());
    }
    let of_user = json!({"pybench": {"role": "user"}});
    assert!(
        (cells.iter()).any(|cell| cell["metadata"] == of_user && cell["source"] == message),
        "{notebook:#}"
    );
    let mut code = cells.iter().filter(|cell| cell["cell_type"] == "code");
    let ran = code.find(|cell| cell["source"] == message).unwrap();
    let printed = ran["outputs"][0]["text"].as_str().unwrap();
    assert!(printed.starts_with("41 <img"), "{ran:#}");

    let data = read(&save("json", "json").await);
    let said = |role: &str, content: &str| {
        let mut messages = data["messages"].as_array().unwrap().iter();
        messages
            .any(|one| one["role"] == role && one["content"].as_str().unwrap().contains(content))
    };
    assert!(said("user", message) && said("assistant", "It is 41 <img"));
    assert_eq!(data["conversation"], id);

    // What the page says is text there, too.
    let file = save("html", "html").await;
    let html = std::fs::read_to_string(&file).unwrap();
    assert!(html.contains("&lt;script&gt;window.owned=1") && !html.contains("<script"));
    browser.open(&format!("file://{}", file.display())).await;
    let shown = format!("document.body.innerText.includes({message:?})");
    assert_eq!(browser.value(&shown).await, true);
    let inside =
        "window.owned === undefined && document.querySelectorAll('img, script').length === 0";
    assert_eq!(browser.value(inside).await, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_talks_in_the_browser() {
    if !interpreter_is_here() {
        return;
    }
    let place = Place::new().await;
    let mut studio = place.studio().await;
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
    let message = "x = open('data/in.txt').read(); \
                   print(x, '<img src=x onerror=window.owned=1><script>window.owned=1</script>')";
    browser.keys(message).await;
    browser
        .wait("!document.querySelector('.write button').disabled")
        .await;
    browser.keys(ENTER).await;
    browser.wait(&has("It is 41 <img src=x")).await;
    // The session runs now, so its files are shown.
    browser
        .wait("document.querySelector('.files pre')?.innerText === '41'")
        .await;
    browser
        .click_text(".files a[download]", "data/in.txt")
        .await;
    let downloaded = browser.saved_file("in.txt").await;
    assert_eq!(std::fs::read_to_string(downloaded).unwrap(), "41");
    browser.click_text("summary", "Limits").await;
    browser.wait(&has("A cell runs at most")).await;
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
    browser.click_text("button", "answer again").await;
    browser
        .wait("performance.getEntriesByType('resource').some((one) => one.name.endsWith('/retry'))")
        .await;
    browser.click_text("button", "add to the dataset").await;
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
    export(&studio, &browser, &path, message).await;
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

    // A person names an endpoint, which is remembered, and the variable of its key. The model calls a function there, and all
    // plots of its cell are shown.
    browser.open(&format!("{}/chat", studio.url)).await;
    // After the agent of the recipe and the file.
    browser.set("select[name=agent]", "2").await;
    for (name, value) in [
        ("address", &*place.endpoint.base_url()),
        ("model", "other"),
        ("key_env", KEY.0),
    ] {
        browser.set(&format!("input[name={name}]"), value).await;
    }
    browser.set("select[name=format]", "tools").await;
    browser.click_text("form button", "begin").await;
    browser.wait(&has("openai:other")).await;
    let plots = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show(); plt.plot([2, 1]); plt.show(); print(6 * 7)";
    say(&browser, plots).await;
    browser.wait(&has("It is 42.")).await;
    let shown = "(() => { const pictures = [...document.querySelectorAll('section[aria-label=Reply] img')]; \
                 return pictures.length === 2 && pictures.every((one) => one.naturalWidth > 0) && \
                 [...document.querySelectorAll('section[aria-label=Reply] .output')].some((one) => one.innerText.trim() === '42'); })()";
    browser.wait(shown).await;
    let cell = "document.querySelector('section[aria-label=Reply] .code').innerText";
    assert_eq!(browser.value(cell).await, plots);
    let calls = place.endpoint.calls();
    let answered = |request: &String| request.contains("\"tool_call_id\"");
    assert!(calls.keys().any(answered), "{calls:#?}");

    // The server is killed in the middle of a reply. What was saved is there afterwards, and the conversation goes on.
    say(&browser, "slowly").await;
    browser.wait(&has("I am thinking.")).await;
    let held = studio.kill();
    browser.wait(&has("not connected")).await;
    drop(studio);
    let studio = place.studio_at(&held.address.to_string()).await;
    // The link in another tab gives the browser the cookie.
    browser
        .value(&format!("fetch({:?}).then(() => true)", studio.link))
        .await;
    browser.click_text("button", "open again").await;
    browser.wait(&has("let the model go on")).await;
    browser.wait(shown).await;
    browser
        .click_text(
            "section[aria-label='Message 2'] button",
            "edit and send again",
        )
        .await;
    browser
        .wait("document.querySelector('textarea').value === 'slowly'")
        .await;
    browser
        .value("document.querySelector('textarea').select()")
        .await;
    say(&browser, "print(plt.__name__)").await;
    browser.wait(&has("It is matplotlib.pyplot.")).await;
    browser.open(&format!("{}/chat", studio.url)).await;
    browser
        .wait("[...document.querySelectorAll('option')].some((one) => one.textContent.startsWith('other at http:'))")
        .await;
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_talks_with_a_model_in_a_file() {
    let (true, Some(model)) = (interpreter_is_here(), small_model()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(model, folder.path().join("small.gguf")).unwrap();
    let (runs, chats) = (folder.path().join("runs"), folder.path().join("chats"));
    std::fs::create_dir(&runs).unwrap();
    let args: [&Path; 4] = [
        "--runs-dir".as_ref(),
        &runs,
        "--chat-history".as_ref(),
        &chats,
    ];
    let root = folder.path().to_str().unwrap();
    let studio = Studio::start_with(&args, &[("PYBENCH_ROOT", root)]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");
    browser.open(&studio.link).await;
    browser.wait(&has("There are no runs yet")).await;
    browser.open(&format!("{}/chat", studio.url)).await;
    browser
        .wait("!!document.querySelector('input[name=file]')")
        .await;
    browser.set("input[name=file]", "small.gguf").await;
    browser.click_text("form button", "begin").await;
    browser.wait(&has("small.gguf")).await;
    say(&browser, "Say hello.").await;
    let words = "[...document.querySelectorAll('section[aria-label^=Reply]')]\
                 .some((one) => one.innerText.replace('Reply', '').trim().length > 3)";
    browser.wait(words).await;
    // It is stopped, unless it has ended.
    browser.keys(ESCAPE).await;
    browser.wait("!document.querySelector('[aria-busy]')").await;
    browser.wait(words).await;
    assert!(studio.interrupt().success());
}

/// Replaces `pybench-train serve MODEL …`.
const CHECKPOINT_SERVER: &str = "#!/bin/sh
echo \"$1 $2\" >>LOG
echo URL
exec sleep 600
";
/// Notes each state of a reply that arrives.
const NOTE_ARRIVING: &str = "(() => { window.arrived = []; new MutationObserver(() => { \
    const one = document.querySelector('[aria-busy]'); if (one) window.arrived.push(one.innerText); }) \
    .observe(document.body, {childList: true, subtree: true, characterData: true}); })()";

#[tokio::test(flavor = "multi_thread")]
async fn a_person_talks_with_a_checkpoint() {
    if !interpreter_is_here() {
        return;
    }
    let place = Place::new().await;
    let checkpoint = place.path("runs/trained/model");
    std::fs::create_dir_all(&checkpoint).unwrap();
    std::fs::write(checkpoint.join("config.json"), "{}").unwrap();
    // The program finds the server beside itself.
    let program = place.path("pybench");
    put_program(&program);
    let server = Endpoint::start(|request| async move { respond_by_words(&request) }).await;
    let log = place.path("served");
    let script = CHECKPOINT_SERVER
        .replace("LOG", log.to_str().unwrap())
        .replace("URL", &server.base_url());
    write_program(&place.path("pybench-train"), &script);
    let studio = place.studio_of(&program, "127.0.0.1:0").await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");
    browser.open(&studio.link).await;
    browser.click_text("a", "chat").await;

    // After the agent of the recipe.
    browser
        .wait("document.querySelector('select[name=agent]')?.options[1]?.textContent === 'trained'")
        .await;
    browser.set("select[name=agent]", "1").await;
    browser.click_text("form button", "begin").await;
    browser.wait(&has("checkpoint:")).await;
    browser.value(NOTE_ARRIVING).await;
    say(&browser, "print(6 * 7)").await;
    browser.wait(&has("It is 42.")).await;
    let shown = "[...document.querySelectorAll('section[aria-label=Reply] .output')].some((one) => one.innerText.trim() === '42')";
    assert_eq!(browser.value(shown).await, true);
    // The reply was there before all of it.
    let part = "window.arrived.some((text) => text.startsWith('I look.') && !text.includes('7)'))";
    assert_eq!(browser.value(part).await, true);

    // The server of the checkpoint was started once, and gave all replies.
    let served = std::fs::read_to_string(log).unwrap();
    assert_eq!(served, format!("serve {}\n", checkpoint.display()));
    assert_eq!((server.call_count(), place.endpoint.call_count()), (2, 0));
    assert!(studio.interrupt().success());
}
