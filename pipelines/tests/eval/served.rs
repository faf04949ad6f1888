//! Models that are served while they are evaluated: one after another, since two may be more than the memory holds.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::json;

use crate::place::{Place, tools};
use crate::support::endpoint::{Answer, Endpoint};

/// Stands in for `pybench-train serve MODEL --port 0 --name NAME …`.
const SERVER: &str = "#!/bin/sh
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_runs_at_a_time() {
    if tools().is_none() {
        return;
    }
    let endpoint = Endpoint::always(Answer::Content("Finished:\n42".to_owned())).await;
    let place = Place::new();
    fs::write(place.path("t.toml"), RECIPE).unwrap();
    let task = json!([{"index": "134", "category1": "math", "user": "A power.", "file_paths": [], "attachments": []}]);
    fs::write(place.path("bench/data/meta/task.json"), task.to_string()).unwrap();
    // The program finds the server beside itself.
    let program = place.path("pybench-eval");
    let made = env!("CARGO_BIN_EXE_pybench-eval");
    if fs::hard_link(made, &program).is_err() {
        fs::copy(made, &program).unwrap();
    }
    let log = place.path("log");
    let script = SERVER
        .replace("PIDS", place.path("pids").to_str().unwrap())
        .replace("LOG", log.to_str().unwrap())
        .replace("URL", &endpoint.base_url());
    let server = place.path("pybench-train");
    fs::write(&server, script).unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();

    let output = Command::new(&program)
        .args(["t.toml", "--pybench", "bench", "--runs-dir", "runs"])
        .args(["--tasks", "134"])
        .current_dir(place.root.path())
        .env_remove("PYBENCH_ROOT")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(fs::read_to_string(&log).unwrap(), "first\nsecond\n");
    assert_eq!(endpoint.call_count(), 2);
}
