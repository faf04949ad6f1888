//! `pybench studio` over a real run and its dataset, by HTTP and in a browser.

mod accessibility;
mod attacks;
mod browser;
mod chat;
mod compare;
mod edit;
mod export;
mod filters;
mod hostile;
mod inspect_log;
mod live;
mod long;
mod previews;
mod remote;
mod results;
mod review;
mod tour;
mod webdriver;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use pybench_run::ExitCode;
use pybench_types::id::Digest;
use reqwest::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, ORIGIN, SET_COOKIE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, redirect};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::sync::OnceCell;

use crate::support::fixture::{RunFixture, code, interpreter_is_here, recipe};

/// A studio that runs.
struct Studio {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    url: String,
    /// With the token.
    link: String,
    http: Client,
    cookie: String,
    _cache: tempfile::TempDir,
}

impl Studio {
    /// Starts it with these arguments, and takes the cookie of its link.
    async fn start(args: &[&Path]) -> Self {
        Self::start_with(args, &[]).await
    }

    /// As [`Studio::start`], with these environment variables.
    async fn start_with(args: &[&Path], variables: &[(&str, &str)]) -> Self {
        Self::start_program(crate::support::PYBENCH.as_ref(), args, variables).await
    }

    /// As [`Studio::start_with`], by the program at this path.
    async fn start_program(program: &Path, args: &[&Path], variables: &[(&str, &str)]) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.arg("studio").args(args);
        command.env("PYBENCH_CACHE", cache.path());
        command.envs(variables.iter().copied());
        // Edited turns run in the environment of the other tests.
        if let Some(root) = environment_root() {
            command.env("PYBENCH_ENV", root);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut link = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut link).unwrap();
        let link = link.trim().to_owned();
        let origin = link.split('/').take(3).collect::<Vec<_>>().join("/");
        assert!(origin.starts_with("http://127.0.0.1:"), "{link:?}");
        let http = Client::builder().redirect(redirect::Policy::none());
        let mut studio = Self {
            child,
            url: origin,
            link,
            http: http.build().unwrap(),
            cookie: String::new(),
            _cache: cache,
        };
        let answer = studio.http.get(&studio.link).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap().to_owned();
        assert!(cookie.ends_with("HttpOnly; SameSite=Strict"), "{cookie}");
        studio.cookie = cookie.split(';').next().unwrap().to_owned();
        studio
    }

    fn get(&self, path: &str) -> RequestBuilder {
        let address = format!("{}{path}", self.url);
        self.http.get(address).header(COOKIE, &self.cookie)
    }

    /// Puts JSON as a page of the studio does.
    fn put(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = self.http.put(format!("{}{path}", self.url));
        let request = request
            .header(COOKIE, &self.cookie)
            .header(ORIGIN, &self.url);
        request
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string())
    }

    async fn answer(&self, path: &str) -> Response {
        self.get(path).send().await.unwrap()
    }

    async fn json(&self, path: &str) -> Value {
        let answer = self.answer(path).await;
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Kills it. Its address is for the studio that is started next, since pages are open there.
    fn kill(&mut self) -> HeldAddress {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let address = self.url.trim_start_matches("http://");
        HeldAddress::hold(address.parse().unwrap())
    }

    /// Ends it with Ctrl-C.
    fn interrupt(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Studio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address of a studio that was killed. No other program gets its port meanwhile: it is bound, and nothing listens.
struct HeldAddress {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl HeldAddress {
    /// Holds an address that is free. Another studio can listen at it, as it also allows the port to be reused.
    fn hold(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        if let Err(error) = socket.bind(address) {
            panic!("{address}: another program has taken the port of the killed studio: {error}");
        }
        Self {
            address,
            _socket: socket,
        }
    }
}

/// The folder of the Python environment of sessions, if it is made.
fn environment_root() -> Option<PathBuf> {
    let python = pybench_interpreter::environment_python().ok()?;
    python.ancestors().nth(2).map(Path::to_owned)
}

/// What [`run`] copies.
static RUN: OnceCell<RunFixture> = OnceCell::const_new();

/// A run of three tasks with its dataset; `None` where no session can be had. It is made once, and each test has a copy.
async fn run() -> Option<RunFixture> {
    if !interpreter_is_here() {
        return None;
    }
    Some(RUN.get_or_init(make_run).await.copy())
}

async fn make_run() -> RunFixture {
    let rest = "[shard]\nheld_out_templates = 0\n";
    let fixture = RunFixture::new(&recipe(3, "{ kind = 'expert' }", rest)).await;
    for stage in ["rollout", "grade", "shard"] {
        let output = fixture.program(stage, &[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), Some(0), "{stage}: {stderr}");
    }
    fixture
}

/// A trajectory of one turn.
fn a_trajectory(code: &str) -> Value {
    let output = serde_json::json!({"output": "stream", "name": "stdout", "text": "1"});
    let observation = serde_json::json!({"outputs": [output], "error": null, "stopped": null});
    let usage = serde_json::json!({"prompt_tokens": 5, "completion_tokens": 2});
    serde_json::json!({
        "id": Digest::of_bytes(code.as_bytes()), "task": Digest::of_bytes(b"task"), "teacher": "m", "sampling": {},
        "sample": 0, "seed": 1, "environment": "e", "format": "pybench", "messages": [], "outputs": [],
        "end": {"end": "finished"},
        "turns": [{"reply": "r", "cell": code, "observation": observation, "usage": usage}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_filtered_and_shown_until_ctrl_c() {
    let Some(fixture) = run().await else { return };
    let runs = fixture.path("data/runs");
    let studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;

    let list = studio.json("/api/data").await;
    assert_eq!(list.as_array().unwrap().len(), 1);
    let counts = [
        "name",
        "state",
        "trajectories",
        "accepted",
        "rows",
        "failed",
        "micro_usd",
    ];
    let counts = counts.map(|key| list[0][key].clone());
    let expected = serde_json::json!(["t", "finished", 3, 3, 3, 0, 0]);
    assert_eq!(Value::from(counts.to_vec()), expected);

    let trajectories = fixture.trajectories();
    let page = studio
        .json("/api/data/t?sort=number&descending=true&count=2")
        .await;
    assert_eq!(
        (&page["total"], page["rows"].as_array().unwrap().len()),
        (&3.into(), 2)
    );
    assert_eq!(page["rows"][0]["id"], trajectories[2].id.as_str());
    assert_eq!(
        studio.json("/api/data/t?verdict=rejected").await["total"],
        0
    );
    let found = studio
        .json("/api/data/t?search=import&role=assistant")
        .await;
    assert!(found["total"].as_u64().unwrap() > 0, "{found}");
    assert_eq!(
        studio.json("/api/data/t?search=import&role=user").await["total"],
        0
    );

    let rotated = trajectories
        .iter()
        .position(|one| !one.outputs.is_empty())
        .unwrap();
    let path = format!("/api/data/t/{}", rotated + 1);
    let view = studio.json(&path).await;
    let (turns, recorded) = (
        view["turns"].as_array().unwrap(),
        &trajectories[rotated].turns,
    );
    assert_eq!(turns.len(), recorded.len());
    assert_eq!(
        turns[0]["cells"][0]["code"],
        recorded[0].cell.clone().unwrap()
    );
    assert_eq!(view["verdict"]["accepted"], true);
    let raw = studio.json(&format!("{path}/raw")).await;
    assert_eq!(
        raw["run"]["trajectory"]["id"],
        trajectories[rotated].id.as_str()
    );
    let file = &view["outputs"][0];
    let (id, name) = (file["id"].as_str().unwrap(), file["name"].as_str().unwrap());
    let sent = studio
        .answer(&format!("/api/data/t/files/{id}?name={name}"))
        .await;
    assert_eq!(sent.headers()["x-content-type-options"], "nosniff");
    assert_eq!(
        blake3::hash(&sent.bytes().await.unwrap()).to_hex().as_str(),
        id
    );

    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_is_shown_with_its_input_files() {
    let Some(fixture) = run().await else { return };
    let dataset = fixture.folder().join("dataset");
    let studio = Studio::start(&[&dataset]).await;
    assert!(studio.link.contains("/data/t?token="), "{}", studio.link);
    assert_eq!(studio.json("/api/data").await[0]["state"], "dataset");
    let page = studio.json("/api/data/t?kinds=png").await;
    let number = page["rows"][0]["number"].as_u64().unwrap();
    let view = studio.json(&format!("/api/data/t/{number}")).await;
    assert!(
        view["location"].as_str().unwrap().contains(".parquet:"),
        "{view}"
    );
    let (file, turn) = (&view["files"][0], &view["turns"][0]);
    assert!(turn["cells"][0]["code"].is_string() && !turn["cells"][0]["outputs"][0].is_null());
    // The pictures have no license, so the dataset does not carry them.
    assert_eq!(file["missing"], true);
    let (id, name) = (file["id"].as_str().unwrap(), file["name"].as_str().unwrap());
    let path = format!("/api/data/t/files/{id}?name={name}");
    assert_eq!(studio.answer(&path).await.status(), StatusCode::NOT_FOUND);
    let files = dataset.join("files");
    std::fs::create_dir_all(&files).unwrap();
    let stored = fixture.folder().join("files").join(&id[..2]).join(id);
    std::fs::copy(stored, files.join(id)).unwrap();
    let sent = studio.answer(&path).await;
    assert_eq!(sent.headers()[CONTENT_TYPE], "image/png");
    assert_eq!(
        blake3::hash(&sent.bytes().await.unwrap()).to_hex().as_str(),
        id
    );
    let view = studio.json(&format!("/api/data/t/{number}")).await;
    assert_eq!(view["files"][0]["missing"], false);
    assert!(studio.interrupt().success());
}

/// A dataset of one row, in `folder`.
fn one_row(folder: &Path) -> PathBuf {
    let rows = folder.join("rows.jsonl");
    let row = r#"{"messages": [{"role": "user", "content": "Count."}]}"#;
    std::fs::write(&rows, row).unwrap();
    rows
}

/// A dataset of one row with these input files: name and content.
fn row_with_files(folder: &Path, files: &[(String, Vec<u8>)]) {
    std::fs::create_dir_all(folder.join("files")).unwrap();
    let stored = files.iter().map(|(name, bytes)| {
        let id = Digest::of_bytes(bytes);
        std::fs::write(folder.join("files").join(id.as_str()), bytes).unwrap();
        serde_json::json!({"name": name, "blake3": id})
    });
    let messages = [("user", "Count."), ("assistant", "One.")];
    let messages =
        messages.map(|(role, content)| serde_json::json!({"role": role, "content": content}));
    let row = serde_json::json!({"messages": messages, "files": stored.collect::<Vec<_>>()});
    std::fs::write(folder.join("train.jsonl"), row.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let rows = one_row(folder.path());
    let studio = Studio::start(&[&rows]).await;
    let page = studio.answer("/").await;
    assert_eq!(page.status(), StatusCode::OK);
    let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(
        policy.contains("script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    for path in ["/", "/api/data", "/api/data/rows.jsonl/1"] {
        let bare = studio.http.get(format!("{}{path}", studio.url));
        assert_eq!(
            bare.send().await.unwrap().status(),
            StatusCode::UNAUTHORIZED,
            "{path}"
        );
        // A page whose name was pointed at this machine, and pages of other origins, even with the cookie.
        for (name, value) in [
            (HOST, "evil.example"),
            (ORIGIN, "https://evil.example"),
            (ORIGIN, "null"),
            (ORIGIN, "http://127.0.0.1:1"),
        ] {
            let refused = studio.get(path).header(&name, value).send().await.unwrap();
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path} {value}");
        }
    }
    for method in [reqwest::Method::POST, reqwest::Method::DELETE] {
        let request = studio
            .http
            .request(method, format!("{}/api/data", studio.url));
        let request = request
            .header(COOKIE, &studio.cookie)
            .header(ORIGIN, &studio.url)
            .header(CONTENT_TYPE, "application/json");
        let refused = request.send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
    assert!(studio.interrupt().success());
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.jsonl");
    std::fs::write(&empty, "").unwrap();
    let runs = folder.path().join("no-runs");
    let [empty, runs] = [&empty, &runs].map(|path| path.to_str().unwrap());
    for (args, expected) in [
        (&["nothing", "--runs-dir", runs][..], "no run `nothing`"),
        (&[empty], "has no rows"),
        (&["--runs-dir", runs], "there are no runs in"),
        (&[empty, "--address", "0.0.0.0:0"], "ssh -L"),
    ] {
        let mut studio = crate::support::pybench("studio");
        let output = studio
            .args(args)
            .env("PYBENCH_CACHE", folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), Some(ExitCode::BadInput as i32), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}
