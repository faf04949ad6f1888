//! The service that scores workspaces, over the loopback.

use std::fs;
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench_run::ExitCode;
use reqwest::{Client, StatusCode};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::library::export::fixture::{
    Container, Server, exported, key, library, python, settings, tasks,
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Rewards {
    server: Server,
    http: Client,
    _folder: tempfile::TempDir,
}

/// Starts the service with a token; `None`, with the reason printed, where no session can be had.
fn serve(more: &[&str]) -> Option<Rewards> {
    python()?;
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, TOKEN).unwrap();
    let mut command = library(&["serve-rewards", "--address", "127.0.0.1:0"]);
    command.arg("--token-file").arg(&tokens).args(more);
    Some(Rewards {
        server: Server::start(&mut command),
        http: Client::new(),
        _folder: folder,
    })
}

impl Rewards {
    async fn post(&self, body: impl Into<reqwest::Body>, token: &str) -> (StatusCode, Value) {
        let request = self.http.post(format!("{}/v1/rewards", self.server.url));
        let response = request.bearer_auth(token).body(body).send().await.unwrap();
        let status = response.status();
        let bytes = response.bytes().await.unwrap();
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }

    async fn score(&self, request: &Value) -> (StatusCode, Value) {
        self.post(request.to_string(), TOKEN).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expert_is_rewarded_and_nobody_is_not() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let Some(rewards) = serve(&[]) else { return };
    for task in tasks(out) {
        let container = Container::new(&task);
        let (status, verdict) = rewards.score(&container.request()).await;
        assert_eq!(status, 200, "{verdict}");
        assert_eq!(verdict["reward"], 0.0, "{}: {verdict}", task.display());
        container.solve();
        let mut request = container.request();
        request["id"] = settings(&task)["metadata"]["task_id"].as_str().into();
        let (status, verdict) = rewards.score(&request).await;
        assert_eq!(status, 200, "{verdict}");
        assert_eq!(verdict["reward"], 1.0, "{}: {verdict}", task.display());
        assert_eq!(verdict["share"], 1.0);
        let findings = verdict["findings"].as_array().unwrap();
        assert!(findings.iter().all(|found| found["outcome"] == "pass"));
        assert_eq!(verdict["task"], request["id"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_are_refused() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let Some(rewards) = serve(&["--largest", "1"]) else {
        return;
    };
    let task = key(&out.join("csv-group-mean-zh-3"));
    let request = |files: Value| json!({"task": task, "files": files});
    let file =
        |path: &str, size: usize| json!([{"path": path, "base64": STANDARD.encode(vec![1; size])}]);
    let fine = request(json!([])).to_string();
    for token in ["", "0123456789abcdef0123456789abcdeF"] {
        assert_eq!(rewards.post(fine.clone(), token).await.0, 401);
    }
    for path in [
        "../task.json",
        "/etc/passwd",
        "output/../../x",
        "candidate/claims.json",
    ] {
        let (status, refusal) = rewards.score(&request(file(path, 1))).await;
        assert_eq!(status, 400, "{path}: {refusal}");
        assert!(
            refusal["message"]
                .as_str()
                .unwrap()
                .contains("expected output/…")
        );
    }
    let large = request(file("output/a", (1 << 20) + 1));
    assert_eq!(rewards.score(&large).await.0, 413);
    assert_eq!(
        announce(&rewards.server.url, 1 << 40),
        "HTTP/1.1 413 Payload Too Large"
    );
    let values = format!("[{}0]", "0,".repeat(1_100_000));
    assert_eq!(rewards.post(values, TOKEN).await.0, 413);
    for body in ["", "{", "[]", "{\"task\": 1}", "{\"files\": []}"] {
        assert_eq!(rewards.post(body, TOKEN).await.0, 400, "{body}");
    }
    let unknown = json!({"task": {"template": "csv-group-men", "language": "en", "seed": 1}});
    let (status, refusal) = rewards.score(&unknown).await;
    assert_eq!(status, 404);
    let hint = refusal["message"].as_str().unwrap();
    assert!(hint.contains("did you mean `csv-group-mean`?"), "{hint}");
    let other = json!({"task": task, "id": blake3::hash(b"").to_hex().to_string()});
    assert_eq!(rewards.score(&other).await.0, 409);
    let elsewhere = rewards.http.get(format!("{}/v1/other", rewards.server.url));
    let elsewhere = elsewhere.bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(elsewhere.status(), 404);
    let page = rewards
        .http
        .post(format!("{}/v1/rewards", rewards.server.url));
    let page = page
        .bearer_auth(TOKEN)
        .header("origin", "https://a.example");
    assert_eq!(page.body(fine).send().await.unwrap().status(), 403);
}

/// A request that announces so many bytes and sends none.
fn begin(url: &str, bytes: u64) -> TcpStream {
    use std::io::Write as _;
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "POST /v1/rewards HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: {bytes}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// The first line of the answer to it.
fn announce(url: &str, bytes: u64) -> String {
    use std::io::Read as _;
    let mut answer = String::new();
    begin(url, bytes).read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap().to_owned()
}

/// Files that are meant to harm whoever opens them fail, and the service goes on.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_files_fail() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let Some(rewards) = serve(&[]) else { return };
    let task = out.join("model-price-zh-3");
    let container = Container::new(&task);
    container.solve();
    let mut request = container.request();
    let model = request["files"].as_array_mut().unwrap().iter_mut();
    let model = model.map(|file| &mut file["base64"]);
    // A pickle whose loading kills every process it can reach.
    let pickle = b"cos\nsystem\n(S'kill -9 -1; sleep 100'\ntR.";
    model.for_each(|content| *content = STANDARD.encode(pickle).into());
    let (status, verdict) = rewards.score(&request).await;
    assert_eq!(status, 200, "{verdict}");
    assert_eq!(verdict["reward"], 0.0, "{verdict}");
    let (status, verdict) = rewards.score(&container.request()).await;
    assert_eq!(
        (status, &verdict["reward"]),
        (StatusCode::OK, &json!(1.0)),
        "{verdict}"
    );
}

/// Beyond those that are scored and those that wait, askers are told to come back.
#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_are_scored_at_a_time() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let Some(rewards) = serve(&["--jobs", "1", "--waiting", "1"]) else {
        return;
    };
    let request = Container::new(&out.join("csv-group-mean-zh-3")).request();
    let answers = (0..6).map(|_| rewards.score(&request));
    let answers = futures::future::join_all(answers).await;
    let count = |wanted: u16| {
        answers
            .iter()
            .filter(|(status, _)| *status == wanted)
            .count()
    };
    assert_eq!(count(200) + count(429), 6, "{answers:?}");
    assert!(count(200) >= 2, "{answers:?}");
    // Those may have come one after another; a request whose body does not come keeps its place.
    let mut held = Vec::new();
    loop {
        held.push(begin(&rewards.server.url, 100));
        if rewards.score(&request).await.0 == 429 {
            break;
        }
        assert!(held.len() < 50, "nobody is told to come back");
    }
}

#[test]
fn the_service_hides_and_stops() {
    if python().is_none() {
        return;
    }
    let exposed = library(&["serve-rewards", "--address", "0.0.0.0:0"]).output();
    let exposed = exposed.unwrap();
    assert_eq!(exposed.status.code(), Some(ExitCode::BadInput as i32));
    let said = String::from_utf8_lossy(&exposed.stderr);
    assert!(said.contains("--token-file FILE"), "{said}");
    let mut child = library(&["serve-rewards", "--address", "127.0.0.1:0"]);
    let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let pid = Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    assert!(child.wait().unwrap().success(), "{line}");
}
