//! Logs of inspect_ai: ours are read by it, and its own open here.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Studio;
use super::browser::has_app;
use super::compare::evaluation;
use super::webdriver::Browser;

const READ: &str = include_str!("inspect_read.py");
const WRITE: &str = include_str!("inspect_write.py");
/// Time limit for the start of `inspect view`.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for an answer of it.
const ANSWER: Duration = Duration::from_secs(5);
/// Maximum number of starts of `inspect view`, each on another port.
const STARTS: usize = 5;

fn python() -> Option<PathBuf> {
    pybench_testing::python::environment("inspect")
}

/// Runs a script with inspect_ai, which keeps its own files in `home`.
fn script(python: &Path, text: &str, args: &[&str], home: &Path) -> String {
    let mut command = Command::new(python);
    command.args(["-c", text]).args(args).envs(own_home(home));
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn own_home(home: &Path) -> [(&'static str, &Path); 4] {
    ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"].map(|name| (name, home))
}

/// A trajectory of two turns, the first with a cell.
pub(super) fn trajectory() -> Value {
    let cell = "I look.\n<|execute_start|>\n```python\nprint(1)\n```\n<|execute_end|>";
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2});
    let output = json!({"output": "stream", "name": "stdout", "text": "1"});
    let id = "0".repeat(64);
    json!({
        "id": id, "task": id, "teacher": "m", "sampling": {}, "sample": 0, "seed": 1, "environment": "e",
        "format": "pybench", "outputs": [], "end": {"end": "finished"},
        "messages": [
            {"role": "system", "content": "Run code."},
            {"role": "user", "content": "Print one."},
            {"role": "assistant", "content": cell},
            {"role": "user", "content": "[INFO]This is a Code Interpreter Message:\n1"},
            {"role": "assistant", "content": "Finished: 1."}],
        "turns": [
            {"reply": cell, "cell": "print(1)", "usage": usage,
                "observation": {"outputs": [output], "error": null, "stopped": null}},
            {"reply": "Finished: 1.", "cell": null, "observation": null, "usage": usage}],
    })
}

/// Exports an evaluation of three tasks, of which one fails.
fn export(folder: &Path) -> PathBuf {
    let (run, logs) = (folder.join("run"), folder.join("logs"));
    evaluation(&run, &trajectory(), &[true, false, true]);
    let mut command = crate::support::pybench("eval");
    command.arg("export").arg(&run).arg("--out").arg(&logs);
    let output = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("inspect view --log-dir"), "{stdout}");
    logs
}

#[test]
fn inspect_reads_an_exported_evaluation() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let logs = export(folder.path());
    let text = script(&python, READ, &[logs.to_str().unwrap()], folder.path());
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    let log = &found[0];
    let head = ["status", "task", "model", "version", "total"].map(|key| log[key].clone());
    assert_eq!(json!(head), json!(["success", "s", "model <b>", 2, 3]));
    let accuracy = log["metrics"]["strict"].as_f64().unwrap();
    assert!((accuracy - 2.0 / 3.0).abs() < 1e-12, "{log}");
    assert_eq!(log["summaries"], json!(["0", "1", "2"]));
    let first = &log["samples"][0];
    assert_eq!(
        first["roles"],
        json!(["system", "user", "assistant", "tool", "assistant"])
    );
    assert_eq!(first["calls"], json!([{"code": "print(1)"}]));
    assert_eq!(first["tools"], json!([["python", "1"]]));
    assert_eq!(first["answer"], "Finished: 1.");
    let scores: Vec<&Value> = (0..3)
        .map(|at| &log["samples"][at]["scores"]["strict"])
        .collect();
    assert_eq!(scores, [&json!("C"), &json!("I"), &json!("C")]);
    let why = log["samples"][1]["explanation"]["strict"].as_str().unwrap();
    assert!(why.contains("expected <u>1, found 2"), "{why}");
}

/// `inspect view`, which ends with the test.
struct Viewer {
    process: Child,
    address: String,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Viewer {
    /// Starts it, on another port if a program took the port before it did.
    async fn start(python: &Path, logs: &Path, home: &Path) -> Self {
        for _ in 0..STARTS {
            let mut viewer = Self::spawn(python, logs, home);
            if viewer.is_ready().await {
                return viewer;
            }
        }
        panic!("`inspect view` ended {STARTS} times before it listed its logs");
    }

    /// Begins to start it on a port that is free now.
    fn spawn(python: &Path, logs: &Path, home: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let port = free.unwrap().port();
        let mut command = Command::new(python.with_file_name("inspect"));
        command.args(["view", "start", "--log-dir"]).arg(logs);
        command
            .args(["--port", &port.to_string()])
            .envs(own_home(home));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self {
            process: command.spawn().unwrap(),
            address: format!("http://127.0.0.1:{port}"),
        }
    }

    /// Waits until it lists its logs; `false` if it ended before, as it does if its port is taken.
    async fn is_ready(&mut self) -> bool {
        let since = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            if self.lists_logs().await {
                return true;
            }
            assert!(since.elapsed() < PATIENCE, "`inspect view` does not start");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        false
    }

    /// Whether it answers at its address, not another program.
    async fn lists_logs(&self) -> bool {
        let address = format!("{}/api/logs", self.address);
        let asked = async { reqwest::get(address).await?.text().await };
        let Ok(Ok(text)) = tokio::time::timeout(ANSWER, asked).await else {
            return false;
        };
        serde_json::from_str::<Value>(&text).is_ok_and(|list| list["log_dir"].is_string())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inspect_view_and_the_studio_show_an_exported_evaluation() {
    let Some(python) = python() else { return };
    let Some(browser) = Browser::start().await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let logs = export(folder.path());
    let viewer = Viewer::start(&python, &logs, folder.path()).await;
    let address = &viewer.address;
    // The list of logs, then the samples of the log.
    browser.open(address).await;
    browser
        .wait("document.body.innerText.includes('model <b>')")
        .await;
    let name = logs
        .read_dir()
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .file_name();
    browser.open("about:blank").await;
    browser
        .open(&format!("{address}/#/logs/{}", name.to_str().unwrap()))
        .await;
    browser
        .wait("document.body.innerText.includes('Print one.')")
        .await;

    // The same log opens in the studio.
    let studio = Studio::start(&[&logs]).await;
    if !has_app(&studio).await {
        return;
    }
    browser.open(&studio.link).await;
    browser
        .wait("document.querySelectorAll('.list tbody tr').length === 3")
        .await;
    browser.click_text(".list td a", "1").await;
    browser
        .wait("document.querySelector('.turn .code')?.innerText.includes('print(1)')")
        .await;
    browser
        .wait("document.body.innerText.includes('strict passed')")
        .await;
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_inspect_opens() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    script(
        &python,
        WRITE,
        &[logs.to_str().unwrap(), "eval", "json"],
        folder.path(),
    );
    let with = |end: &str| {
        let mut files = logs.read_dir().unwrap().flatten().map(|entry| entry.path());
        files
            .find(|path| path.extension().is_some_and(|found| found == end))
            .unwrap()
    };
    for log in [with("eval"), with("json"), logs.clone()] {
        let name = log.file_name().unwrap().to_str().unwrap().to_owned();
        let studio = Studio::start(&[&log]).await;
        let list = studio.json("/api/data").await;
        assert_eq!(
            json!([list[0]["kind"], list[0]["name"]]),
            json!(["log", name])
        );
        let of = |path: &str| format!("/api/data/{}{path}", name.replace('+', "%2B"));
        let page = studio.json(&of("")).await;
        assert_eq!(page["total"], 2, "{page}");
        let rows = [0_usize, 1].map(|at| {
            let row = &page["rows"][at];
            ["task", "teacher", "upstream", "turns", "query"].map(|key| row[key].clone())
        });
        let expected = json!([
            ["sums/sum-1", "mockllm/model", "passed", 2, "Add 1 and 1."],
            ["sums/sum-2", "mockllm/model", "failed", 2, "Add 2 and 2."]
        ]);
        assert_eq!(json!(rows), expected, "{page}");
        assert_eq!(
            studio.json(&of("?search=five&role=assistant")).await["total"],
            1
        );
        let view = studio.json(&of("/1")).await;
        let turn = &view["turns"][0];
        assert_eq!(turn["text"], "I add 1.");
        let code: String = turn["cells"][0]["code"]
            .as_str()
            .unwrap()
            .split_whitespace()
            .collect();
        assert!(
            code.starts_with("add({") && code.contains("\"x\":1"),
            "{code}"
        );
        assert_eq!(turn["cells"][0]["outputs"][0]["text"], "2");
        assert_eq!(view["evaluation"]["checks"][0]["expected"], "2");
        let second = studio.json(&of("/2")).await;
        assert_eq!(second["turns"][1]["text"], "<b>five</b>");
        assert_eq!(second["reviewable"], false);
        // The terminal shows it too.
        let mut command = crate::support::pybench("show");
        let output = command.arg(&log).arg("2").output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(
            shown.contains("<b>five</b>") && shown.contains("sum-2"),
            "{shown}"
        );
    }
}
