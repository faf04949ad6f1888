//! Checkpoints are served one after another while they are evaluated, because memory may not suffice for two.

use std::fs;
use std::process::Command;

use pybench_run::ExitCode;
use serde_json::json;

use crate::fixture::{SuiteFixture, tools};
use crate::support::endpoint::{Answer, Endpoint};
use pybench_testing::program::write_program;

/// Replaces `pybench-train serve MODEL --port 0 --name NAME …` and `--check`.
const SERVER: &str = "#!/bin/sh
case \"$*\" in
    *broken*--check*) echo \"$2: no weights\" >&2; exit 1;;
    *--engine*auto*--check*) echo vllm; exit 0;;
    *--check*) exit 0;;
esac
for other in $(cat PIDS 2>/dev/null); do
    if kill -0 $other 2>/dev/null; then echo \"$2 beside another\" >>LOG; fi
done
echo $$ >>PIDS
echo \"$2\" >>LOG
echo URL
exec sleep 600
";

const RECIPE: &str = "name = 't'
[budget]
usd = 0
[agents.one]
kind = 'checkpoint'
model = 'first'
[agents.two]
kind = 'checkpoint'
model = 'second'
";

/// A folder with the program, the fake server next to it, and one task.
struct Stage {
    fixture: SuiteFixture,
    endpoint: Endpoint,
}

impl Stage {
    async fn new() -> Self {
        let endpoint = Endpoint::always(Answer::Content("Finished:\n42".to_owned())).await;
        let fixture = SuiteFixture::new();
        let task = json!([{"index": "134", "category1": "math", "user": "A power.", "file_paths": [], "attachments": []}]);
        fs::write(fixture.path("bench/data/meta/task.json"), task.to_string()).unwrap();
        // The program finds the server beside itself.
        crate::support::put_program(&fixture.path("pybench"));
        let script = SERVER
            .replace("PIDS", fixture.path("pids").to_str().unwrap())
            .replace("LOG", fixture.path("log").to_str().unwrap())
            .replace("URL", &endpoint.base_url());
        write_program(&fixture.path("pybench-train"), &script);
        Self { fixture, endpoint }
    }

    fn run(&self, recipe: &str) -> (Option<i32>, String) {
        fs::write(self.fixture.path("t.toml"), recipe).unwrap();
        let output = Command::new(self.fixture.path("pybench"))
            .arg("eval")
            .args(["t.toml", "--pybench", "bench", "--runs-dir", "runs"])
            .args(["--tasks", "134"])
            .current_dir(self.fixture.root.path())
            .env_remove("PYBENCH_ROOT")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    }

    /// The models that were served, in order.
    fn served(&self) -> String {
        fs::read_to_string(self.fixture.path("log")).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_runs_at_a_time() {
    if tools().is_none() {
        return;
    }
    let stage = Stage::new().await;
    let (code, stderr) = stage.run(RECIPE);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stage.served(), "first\nsecond\n");
    assert_eq!(stage.endpoint.call_count(), 2);
    let (code, stderr) = stage.run(RECIPE);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(
        stage.served(),
        "first\nsecond\n",
        "finished attempts need no server"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_cannot_be_served_is_reported_before_any_attempt() {
    if tools().is_none() {
        return;
    }
    let stage = Stage::new().await;
    let (code, stderr) = stage.run(&RECIPE.replace("second", "broken"));
    assert_eq!(code, Some(ExitCode::Environment as i32), "{stderr}");
    assert!(stderr.contains("broken: no weights"), "{stderr}");
    assert!(stderr.contains("serve broken"), "{stderr}");
    assert_eq!(stage.served(), "");
    assert_eq!(stage.endpoint.call_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_says_that_vllm_served() {
    if tools().is_none() {
        return;
    }
    let stage = Stage::new().await;
    let recipe = RECIPE.replace("'second'", "'second'\nengine = 'auto'");
    let (code, stderr) = stage.run(&recipe);
    assert_eq!(code, Some(0), "{stderr}");
    let report = stage.fixture.path("runs/t/report/index.html");
    let report = fs::read_to_string(report).unwrap();
    assert!(report.contains("second`, served on this machine by vLLM"));
    assert!(report.contains("first`, served on this machine"));
    assert!(!report.contains("first`, served on this machine by vLLM"));
}
