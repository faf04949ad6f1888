//! The code execution service as its clients meet it: the real program on loopback, real sessions,
//! and E2B's client as it comes from the package index.

mod clients;
mod files;
mod sessions;
mod strangers;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

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
    let mut command = program(&["serve", "--address", "127.0.0.1:0"]);
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

    async fn end(&self, session: &str) {
        let ended = self.request(Method::DELETE, session).send().await.unwrap();
        assert_eq!(ended.status(), 204);
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
        let (status, text) = code(&["serve", "--no-token", "--address", "0.0.0.0:0"]);
        assert_eq!(status, ExitCode::BadInput as i32);
        assert!(text.contains("loopback"), "{text}");
    }
}
