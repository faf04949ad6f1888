//! The code execution service as its clients meet it: the real program on loopback, real sessions,
//! and E2B's client as it comes from the package index.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pybench_run::ExitCode;
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

/// A running service.
struct Server {
    child: Child,
    url: String,
    folder: tempfile::TempDir,
    http: reqwest::Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(args: &[&str]) -> Command {
    let mut command = crate::support::pybench("interpreter");
    command.args(args);
    command
}

/// Start the program; `None`, with the reason printed, where no session can be had.
fn serve(more: &[&str]) -> Option<Server> {
    pybench_testing::sessions::interpreter()?;
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, format!("one {TOKEN}\ntwo {OTHER}\n")).unwrap();
    let mut command = program(&["serve", "--bind", "127.0.0.1:0"]);
    if !more.contains(&"--no-token") {
        command.arg("--token-file").arg(&tokens);
    }
    let mut child = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let url = line.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(url.starts_with("http://127.0.0.1:"), "{line:?}");
    let http = reqwest::Client::new();
    Some(Server {
        child,
        url,
        folder,
        http,
    })
}

impl Server {
    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        request.bearer_auth(TOKEN)
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        answer(self.request(Method::POST, path).json(&body)).await
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::GET, path)).await
    }

    /// Ask as CodeAct's demo does: JSON that does not say so.
    async fn codeact(&self, conversation: Value, code: &str) -> Value {
        let body = json!({"convid": conversation, "code": code}).to_string();
        let request = self.http.post(format!("{}/execute", self.url)).body(body);
        let (status, answer) = answer(request).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// A session's path.
    async fn session(&self) -> String {
        let (status, session) = self.post("/v1/sessions", json!({})).await;
        assert_eq!(status, 201, "{session}");
        format!("/v1/sessions/{}", session["id"].as_str().unwrap())
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let bytes = response.bytes().await.unwrap();
    (
        status,
        serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn codeact_clients_are_answered_as_by_its_engine() {
    let Some(server) = serve(&["--no-token"]) else {
        return;
    };
    let ask = async |conversation: Value, code: &str| {
        let answer = server.codeact(conversation, code).await;
        let new = answer["new_kernel_created"].as_bool().unwrap();
        (answer["result"].as_str().unwrap().to_owned(), new)
    };
    let a = json!("a");
    assert_eq!(
        ask(a.clone(), "x = 20").await,
        (
            "[Code executed successfully with no output]".to_owned(),
            true
        )
    );
    assert_eq!(
        ask(a.clone(), "print(x)\nx + 1").await,
        ("20\n21".to_owned(), false)
    );
    let (text, new) = ask(json!(7), "x").await;
    assert!(
        new && text.contains("NameError: name 'x' is not defined"),
        "{text}"
    );
    assert!(!ask(json!("7"), "1").await.1);
    let plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()";
    let (text, _) = ask(a, plot).await;
    assert!(
        text.contains("<Figure size") && text.contains("![image](data:image/png;base64,iVBOR"),
        "{text:.200}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn codeact_cells_that_take_too_long_say_so() {
    let Some(server) = serve(&["--no-token", "--cell-seconds", "5"]) else {
        return;
    };
    server.codeact(json!("a"), "x = 20").await;
    let late = server
        .codeact(json!("a"), "print(1)\nwhile True: pass")
        .await;
    assert_eq!(late["result"], "[Execution timed out (5 seconds).]");
    assert_eq!(server.codeact(json!("a"), "x").await["result"], "20");
}

/// Events with the pieces of each stream joined: a busy machine may put any time between two writes of a cell.
fn joined(events: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for event in events {
        match all.last_mut() {
            Some(last) if event["output"] == "stream" && last["name"] == event["name"] => {
                let text = [&last["text"], &event["text"]].map(|text| text.as_str().unwrap());
                last["text"] = text.concat().into();
            }
            _ => all.push(event),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_used_watched_and_ended() {
    let Some(server) = serve(&[]) else {
        return;
    };
    let session = server.session().await;
    let run = async |code: &str| {
        let (status, result) = server
            .post(&format!("{session}/execute"), json!({"code": code}))
            .await;
        assert_eq!(status, 200, "{result}");
        result
    };
    assert_eq!(run("x = 1").await["count"], 1);
    let seen = run("print('a')\nx + 1").await;
    assert_eq!(
        seen["outputs"][0],
        json!({"output": "stream", "name": "stdout", "text": "a\n"})
    );
    assert_eq!(seen["outputs"][1]["data"]["text/plain"], "2");
    assert_eq!(run("1/0").await["error"]["ename"], "ZeroDivisionError");

    let stream = |accept: &str| {
        let request = server.request(Method::POST, &format!("{session}/stream"));
        request
            .header("accept", accept)
            .json(&json!({"code": "print('b')\n'c'"}))
    };
    let lines = stream("*/*").send().await.unwrap().text().await.unwrap();
    let events = joined(
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap()),
    );
    assert_eq!(
        events[0],
        json!({"event": "output", "output": "stream", "name": "stdout", "text": "b\n"})
    );
    assert_eq!(events[1]["data"]["text/plain"], "'c'");
    assert_eq!(
        events[2],
        json!({"event": "end", "count": 4, "error": null, "stopped": null})
    );
    let sent = stream("text/event-stream")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        sent.starts_with("data: {\"event\":\"output\"") && sent.ends_with("}\n\n"),
        "{sent}"
    );

    let (status, listed) = server.get("/v1/sessions").await;
    assert_eq!(
        (status, listed.as_array().unwrap().len()),
        (StatusCode::OK, 1)
    );
    let others = server
        .http
        .get(format!("{}{session}", server.url))
        .bearer_auth(OTHER);
    assert_eq!(answer(others).await.0, 404);
    let ended = server
        .request(Method::DELETE, &session)
        .send()
        .await
        .unwrap();
    assert_eq!(ended.status(), 204);
    assert_eq!(server.get(&session).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_one_session_is_unknown_to_others() {
    const DRAW: &str = "import os, random, secrets, uuid, numpy as np\n\
        print(secrets.token_hex(), uuid.uuid4(), os.urandom(8).hex(), random.Random().random(), np.random.default_rng().random())";
    const SEEDED: &str = "print(random.random(), np.random.rand())";
    let Some(server) = serve(&["--no-token"]) else {
        return;
    };
    let mut drawn = Vec::new();
    for spec in [json!({}), json!({}), json!({"seed": 7}), json!({"seed": 7})] {
        let (_, session) = server.post("/v1/sessions", spec).await;
        let path = format!("/v1/sessions/{}/execute", session["id"].as_str().unwrap());
        let run = async |code: &str| {
            let (_, result) = server.post(&path, json!({"code": code})).await;
            let shown = &result["outputs"][0]["text"];
            let values = shown.as_str().unwrap_or_else(|| panic!("{result}"));
            values
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        drawn.push((run(DRAW).await, run(SEEDED).await));
    }
    for (n, (secrets, seeded)) in drawn.iter().enumerate() {
        assert_eq!((secrets.len(), seeded.len()), (5, 2), "{drawn:?}");
        for (other_secrets, other_seeded) in &drawn[n + 1..] {
            let mut pairs = secrets.iter().zip(other_secrets);
            assert!(pairs.all(|(one, other)| one != other), "{drawn:?}");
            assert_eq!(seeded == other_seeded, n == 2, "{drawn:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_is_interrupted_by_request_and_by_leaving() {
    let Some(server) = serve(&[]) else {
        return;
    };
    let session = server.session().await;
    let forever = || {
        let request = server.request(Method::POST, &format!("{session}/stream"));
        request.json(&json!({"code": "y = 1\nprint('on', flush=True)\nwhile True: pass"}))
    };
    let mut response = forever().send().await.unwrap();
    let first = response.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("on"));
    assert_eq!(
        server
            .post(&format!("{session}/interrupt"), json!({}))
            .await
            .0,
        202
    );
    let rest = response.text().await.unwrap();
    assert!(
        rest.contains("KeyboardInterrupt") && rest.contains(r#""stopped":"interrupted""#),
        "{rest}"
    );

    let mut response = forever().send().await.unwrap();
    response.chunk().await.unwrap().unwrap();
    drop(response);
    let (_, seen) = server
        .post(&format!("{session}/execute"), json!({"code": "y"}))
        .await;
    assert_eq!(seen["outputs"][0]["data"]["text/plain"], "1", "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_in_are_listed_and_come_out() {
    let Some(server) = serve(&["--upload", "1"]) else {
        return;
    };
    let session = server.session().await;
    let at = |path: &str| format!("{session}/files/{path}");
    let put =
        |path: &str, bytes: Vec<u8>| answer(server.request(Method::PUT, &at(path)).body(bytes));
    let (status, entry) = put("data/a%20b.csv", b"x\n1\n".to_vec()).await;
    assert_eq!(
        (status, &entry["path"], &entry["size"]),
        (StatusCode::CREATED, &json!("data/a b.csv"), &json!(4))
    );
    let code =
        "import os, shutil; shutil.copy('data/a b.csv', 'output/c.csv'); os.symlink('/etc', 'etc')";
    server
        .post(&format!("{session}/execute"), json!({"code": code}))
        .await;
    let (_, listed) = server.get(&format!("{session}/files?depth=3")).await;
    let paths: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        ["data", "data/a b.csv", "etc", "output", "output/c.csv"]
    );
    let bytes = server
        .request(Method::GET, &at("output/c.csv"))
        .send()
        .await
        .unwrap();
    assert_eq!(bytes.headers()["x-content-type-options"], "nosniff");
    assert_eq!(bytes.bytes().await.unwrap(), "x\n1\n");
    for path in ["etc/passwd", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd"] {
        let (status, body) = server.get(&at(path)).await;
        assert_eq!(status, 400, "{path}: {body}");
    }
    assert_eq!(server.get(&at("none")).await.0, 404);
    assert_eq!(put("big", vec![0; (1 << 20) + 1]).await.0, 413);
    assert_eq!(server.get(&at("big")).await.0, 404);
    let removed = server
        .request(Method::DELETE, &at("output/c.csv"))
        .send()
        .await
        .unwrap();
    assert_eq!(removed.status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused() {
    let Some(server) = serve(&["--origin", "https://chat.example"]) else {
        return;
    };
    let url = format!("{}/v1/sessions", server.url);
    let status =
        async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    for path in ["/v1/sessions", "/openapi.json", "/v2/sandboxes"] {
        let bare = server.http.get(format!("{}{path}", server.url));
        assert_eq!(status(bare).await, 401, "{path}");
    }
    assert_eq!(
        status(server.http.get(&url).bearer_auth("wrong")).await,
        401
    );
    assert_eq!(
        status(server.http.get(&url).header("x-api-key", TOKEN)).await,
        200
    );
    assert_eq!(
        status(server.http.get(&url).basic_auth("me", Some(TOKEN))).await,
        200
    );
    let with =
        |name: &str, value: &str| server.http.get(&url).bearer_auth(TOKEN).header(name, value);
    assert_eq!(status(with("host", "rebound.example")).await, 403);
    assert_eq!(status(with("origin", "https://evil.example")).await, 403);
    assert_eq!(status(with("origin", "null")).await, 403);
    assert_eq!(status(with("origin", "https://chat.example")).await, 200);
    let post = |kind: &str, body: &'static str| {
        let request = server.http.post(&url).bearer_auth(TOKEN);
        request.header("content-type", kind.to_owned()).body(body)
    };
    assert_eq!(status(post("text/plain", "{}")).await, 415);
    assert_eq!(status(post("application/json", "{")).await, 400);
    assert_eq!(
        status(post("application/json", r#"{"unknown": 1}"#)).await,
        400
    );
    // By a client of its own: the server closes that connection, and no other request may meet its end.
    let huge = reqwest::Client::new()
        .post(&url)
        .bearer_auth(TOKEN)
        .header("content-type", "application/json")
        .body(vec![b' '; 17 << 20]);
    assert_eq!(status(huge).await, 413);
    // Without the sandbox's token, its id alone opens nothing; an unknown one has ended.
    let (_, sandbox) = server
        .post("/v2/sandboxes", json!({"templateID": "t"}))
        .await;
    let health = |id: &str| {
        server
            .http
            .get(format!("{}/health", server.url))
            .header("e2b-sandbox-id", id.to_owned())
    };
    let id = sandbox["sandboxID"].as_str().unwrap();
    assert_eq!(status(health(id)).await, 401);
    assert_eq!(status(health(id).bearer_auth(OTHER)).await, 401);
    assert_eq!(
        status(health(id).header(
            "x-access-token",
            sandbox["envdAccessToken"].as_str().unwrap()
        ))
        .await,
        204
    );
    assert_eq!(status(health("unknown")).await, 502);
    assert_eq!(status(server.request(Method::GET, "/nothing")).await, 404);
    assert_eq!(
        status(server.request(Method::PATCH, "/v1/sessions")).await,
        405
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_bounded_for_each_client_and_in_all() {
    let Some(server) = serve(&["--per-client", "2", "--total", "3"]) else {
        return;
    };
    let first = server.session().await;
    let conversation = json!({"convid": "a", "code": "1"});
    assert_eq!(server.post("/execute", conversation).await.0, 200);
    let (status, body) = server.post("/v1/sessions", json!({})).await;
    assert_eq!(status, 429, "{body}");
    let theirs = || {
        let request = server.http.post(format!("{}/v1/sessions", server.url));
        answer(request.bearer_auth(OTHER).json(&json!({})))
    };
    assert_eq!(theirs().await.0, 201);
    assert_eq!(theirs().await.0, 429);
    server.request(Method::DELETE, &first).send().await.unwrap();
    assert_eq!(theirs().await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_are_closed_and_busy_ones_are_not() {
    let Some(server) = serve(&["--idle", "3"]) else {
        return;
    };
    let ask = async || {
        let conversation = json!({"convid": "a", "code": "import time; time.sleep(6); 5"});
        server.post("/execute", conversation).await.1
    };
    assert_eq!(
        ask().await,
        json!({"result": "5", "new_kernel_created": true})
    );
    let until = Instant::now() + Duration::from_secs(60);
    while server.get("/v1/sessions").await.1 != json!([]) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(server.get("/v1/sessions").await.1, json!([]));
    assert_eq!(ask().await["new_kernel_created"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_served_description_names_every_route() {
    let Some(server) = serve(&[]) else {
        return;
    };
    let (status, document) = server.get("/openapi.json").await;
    assert_eq!(status, 200);
    let mut known = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path
            .replace("{id}", "none")
            .replace("{path}", "none")
            .replace("{method}", "Stat");
        for method in operations.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let response = server.request(method.clone(), &path).send().await.unwrap();
            let (status, text) = (response.status(), response.text().await.unwrap());
            assert!(
                status != 405 && !text.contains("this route was not found"),
                "{method} {path}: {status}"
            );
            known += 1;
        }
    }
    assert!(known > 25, "{known}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_cells_sessions_and_the_program() {
    let Some(mut server) = serve(&[]) else {
        return;
    };
    let session = server.session().await;
    let request = server.request(Method::POST, &format!("{session}/stream"));
    let code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on', flush=True)\nwhile True: pass";
    let mut response = request.json(&json!({"code": code})).send().await.unwrap();
    response.chunk().await.unwrap().unwrap();
    let pid = Pid::from_raw(server.child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let rest = response.text().await.unwrap_or_default();
    assert!(
        rest.contains("SessionRestarted") || rest.contains("failed"),
        "{rest}"
    );
    let status = tokio::task::spawn_blocking(move || server.child.wait().unwrap())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn the_command_line_says_what_is_wrong() {
    let code = |args: &[&str]| {
        let output = program(args).output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (status, text) = code(&["serve"]);
    assert_eq!(status, ExitCode::Usage as i32);
    assert!(text.contains("--token-file"), "{text}");
    assert_eq!(
        code(&["serve", "--no-token", "--token-file", "x"]).0,
        ExitCode::Usage as i32
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "short\n").unwrap();
    let (status, text) = code(&["serve", "--token-file", file.to_str().unwrap()]);
    assert_eq!(status, ExitCode::BadInput as i32);
    assert!(text.contains("line 1"), "{text}");
    if pybench_testing::sessions::interpreter().is_some() {
        let (status, text) = code(&["serve", "--no-token", "--bind", "0.0.0.0:0"]);
        assert_eq!(status, ExitCode::BadInput as i32);
        assert!(text.contains("loopback"), "{text}");
    }
}

#[test]
fn the_doctor_reports() {
    let output = crate::support::pybench("doctor")
        .arg("--json")
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let works = |tier: &Value| tier["state"] != "missing";
    let usable = report["tiers"].as_array().unwrap().iter().any(works);
    assert_eq!(output.status.code(), Some(if usable { 0 } else { 4 }));
    assert_eq!(usable, pybench_testing::sessions::interpreter().is_some());
    let names: Vec<&str> = report["system"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"ffmpeg") && names.contains(&"CJK fonts"),
        "{names:?}"
    );
}

#[test]
fn e2b_client_works_unmodified() {
    let Some(python) = pybench_testing::python::environment("e2b") else {
        return;
    };
    let Some(server) = serve(&["--per-client", "6"]) else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service/http/e2b_client.py");
    let output = Command::new(python)
        .arg(script)
        .args([&server.url, TOKEN])
        .current_dir(server.folder.path())
        .env_clear()
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(
        text.lines().filter(|line| line.starts_with("ok ")).count(),
        11,
        "{text}"
    );
}

#[test]
fn half_a_request_holds_nobody_up() {
    let Some(server) = serve(&["--no-token"]) else {
        return;
    };
    let address = server.url.trim_start_matches("http://");
    let mut slow = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(
        &mut slow,
        b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    )
    .unwrap();
    let mut quick = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(
        &mut quick,
        b"GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
    .unwrap();
    let mut text = String::new();
    quick.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 200") && text.ends_with("[]"),
        "{text}"
    );
    // One request line with two lengths, or with none that is one, is no request.
    let mut odd = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut odd, b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    let mut text = String::new();
    odd.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
}

/// A connection that sends a part of a request and then a byte at a time, until it is closed.
fn trickle(address: &str, start: &'static str) -> std::thread::JoinHandle<()> {
    use std::io::Write;
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    std::thread::spawn(move || {
        let _ = stream.write_all(start.as_bytes());
        let waits = |error: &std::io::Error| {
            use std::io::ErrorKind::{TimedOut, WouldBlock};
            matches!(error.kind(), WouldBlock | TimedOut)
        };
        // Whatever is read is an end, or what was said before it.
        while stream.read(&mut [0; 512]).is_err_and(|error| waits(&error)) {
            let _ = stream.write_all(b"x");
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_lock_nobody_out() {
    const HEAD: &str = "POST /execute HTTP/1.1\r\nHost: localhost\r\nX-Long: ";
    const BODY: &str = "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n{";
    let Some(server) = serve(&["--no-token", "--connections", "4", "--head-seconds", "600"]) else {
        return;
    };
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let slow = [HEAD, BODY, HEAD, BODY].map(|start| trickle(&address, start));
    for _ in 0..4 {
        let client = reqwest::Client::new();
        let body = json!({"convid": "a", "code": "6 * 7"}).to_string();
        let (status, answer) =
            answer(client.post(format!("{}/execute", server.url)).body(body)).await;
        assert_eq!(
            (status, answer["result"].as_str()),
            (StatusCode::OK, Some("42")),
            "{answer}"
        );
    }
    drop(server);
    for client in slow {
        client.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_is_not_read_ends_with_its_session() {
    const SIZE: usize = 64 << 20;
    let Some(server) = serve(&[]) else {
        return;
    };
    let session = server.session().await;
    let code = format!("open('output/zeros', 'wb').write(bytes({SIZE}))");
    let (_, written) = server
        .post(&format!("{session}/execute"), json!({"code": code}))
        .await;
    assert_eq!(
        written["outputs"][0]["data"]["text/plain"],
        SIZE.to_string(),
        "{written}"
    );
    let path = format!("{session}/files/output/zeros");
    let mut response = server.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.content_length(), Some(SIZE as u64));
    let ended = server
        .request(Method::DELETE, &session)
        .send()
        .await
        .unwrap();
    assert_eq!(ended.status(), 204);
    let mut received = 0;
    while let Ok(Some(piece)) = response.chunk().await {
        received += piece.len();
    }
    assert!(
        received < SIZE,
        "the file was sent after the end of its session"
    );
}
