//! Runs with upstream's flags and YAML configuration; they write upstream's artifacts.

use std::path::Path;
use std::process::Output;

use pybench_eval::record::Evaluation;
use pybench_eval::run::RESULTS;
use serde_json::{Value, json};

use crate::fixture::{SuiteFixture, tools};
use crate::support::endpoint::{Answer, Endpoint};

const KEY: &str = "sk-0123456789-secret";
/// A configuration like upstream's.
const CONFIG: &str = r#"system_prompt_template: |
  You are an AI Agent who is proficient in solve complicated task.
  Each step you write code in a ```python block; at the end say "Finished".
code_start_token: "```python"
code_end_token: "```"
tool_call_token: "<|tool_call|>"
mode: "prompt"
max_turns: 4
llm:
  type: "openai"
  args:
    client_args:
      api_key: $EVAL_FLAGS_KEY
      base_url: "BASE_URL"
    model_args:
      model: "some-model"
      temperature: 0.2
      top_p: 0.85
      max_tokens: 1000
      frequency_penalty: 1.02
"#;

/// Writes a file in a cell, then answers with the power that the task asks for.
fn answer(request: &Value) -> Answer {
    let last = request["messages"].as_array().and_then(|all| all.last());
    let text = last.and_then(|m| m["content"].as_str()).unwrap_or_default();
    let said = match text.split_once("Code Interpreter Message:") {
        None => "I compute it.\n```python\nopen('output/power.txt', 'w').write('done')\nprint(2 ** 1000)\n```".to_owned(),
        Some((_, seen)) => format!("Finished:\nThe value is {}", seen.trim()),
    };
    Answer::Content(said)
}

/// A list of tasks as upstream has it.
fn tasks() -> String {
    json!([{"index": "134", "category1": "math", "user": "A power, please.", "file_paths": [], "attachments": []}])
        .to_string()
}

fn evaluate(fixture: &SuiteFixture, more: &[&str]) -> Output {
    let mut command = crate::support::pybench("eval");
    command
        .args(["--config_path", "gpt.yaml", "--task_path", "task.json"])
        .args(["--output_path", "theirs/trajectory.jsonl"])
        .args([
            "--pybench",
            "bench",
            "--runs-dir",
            "runs",
            "--tasks",
            "134-135",
        ])
        .args(more)
        .current_dir(fixture.root.path())
        .env_remove("PYBENCH_ROOT")
        .env("EVAL_FLAGS_KEY", KEY);
    command.output().unwrap()
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_flags_run_an_evaluation() {
    if tools().is_none() {
        return;
    }
    let endpoint = Endpoint::start(|request| std::future::ready(answer(&request))).await;
    let fixture = SuiteFixture::new();
    let config = CONFIG.replace("BASE_URL", &endpoint.base_url());
    std::fs::write(fixture.path("gpt.yaml"), config).unwrap();
    // A task list that contains only one of the two selected tasks.
    std::fs::write(fixture.path("task.json"), tasks()).unwrap();

    let planned = evaluate(
        &fixture,
        &[
            "--dry-run",
            "--set",
            "rollout.samples=2",
            "--run",
            "planned",
        ],
    );
    let stdout = String::from_utf8_lossy(&planned.stdout);
    let stderr = String::from_utf8_lossy(&planned.stderr);
    for part in [
        "model              openai:some-model",
        "attempts left      2 (0 done)",
        "calls              about 8 (2 to 8)",
        "cost               unknown",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}{stderr}");
    }
    assert!(stdout.contains("(message format pybench:"), "{stdout}");
    let mistyped = evaluate(
        &fixture,
        &["--dry-run", "--set", "rollout.sample=2", "--run", "planned"],
    );
    let stderr = String::from_utf8_lossy(&mistyped.stderr);
    assert!(
        !mistyped.status.success() && stderr.contains("unknown field `sample`"),
        "{stderr}"
    );
    let refused = evaluate(&fixture, &[]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && stderr.contains("--tokens"),
        "{stderr}"
    );
    assert_eq!(endpoint.call_count(), 0, "nothing is spent without a limit");

    let output = evaluate(&fixture, &["--tokens", "100000"]);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!(endpoint.call_count(), 2);
    assert!(
        endpoint
            .keys()
            .iter()
            .all(|key| key.as_deref() == Some(&format!("Bearer {KEY}")))
    );
    for request in endpoint.calls().keys() {
        let request: Value = serde_json::from_str(request).unwrap();
        assert_eq!(
            (&request["model"], &request["frequency_penalty"]),
            (&json!("some-model"), &json!(1.02))
        );
        let system = request["messages"][0]["content"].as_str().unwrap();
        assert!(system.starts_with("You are an AI Agent"), "{system}");
    }

    // The commands that look at runs know evaluations too.
    let look = |command: &str| {
        let mut program = crate::support::pybench(command);
        let output = program
            .args(["eval-config", "--runs-dir", "runs"])
            .current_dir(fixture.root.path())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let status = look("status");
    assert!(
        status.starts_with("evaluation eval-config of model\n"),
        "{status}"
    );
    assert!(
        status.contains("upstream") && status.contains("rollout") && status.contains("calls 2 ·"),
        "{status}"
    );
    let list = look("show");
    assert!(
        list.contains("A power, please.") && !list.contains("not graded"),
        "{list}"
    );

    // Upstream's artifacts.
    let lines = std::fs::read_to_string(fixture.path("theirs/trajectory.jsonl")).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 1, "a task that is not listed is not run");
    assert_eq!(lines[0]["index"], "134");
    assert_eq!(lines[0]["user"], "A power, please.");
    let roles: Vec<_> = lines[0]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    let left = std::fs::read_to_string(fixture.path("theirs/output/power.txt")).unwrap();
    assert_eq!(left, "done");
    let notebook = std::fs::read(fixture.path("theirs/Cells/134.ipynb")).unwrap();
    let notebook: Value = serde_json::from_slice(&notebook).unwrap();
    assert_eq!(notebook["nbformat"], 4);
    let code = notebook["cells"]
        .as_array()
        .unwrap()
        .iter()
        .find(|cell| cell["cell_type"] == "code")
        .unwrap();
    assert!(
        code["outputs"][0]["text"][0]
            .as_str()
            .unwrap()
            .contains("10715086"),
        "{code}"
    );

    // The records of this project.
    let evaluation = Evaluation::read(&fixture.path("runs/eval-config").join(RESULTS)).unwrap();
    let found = evaluation
        .attempts
        .iter()
        .find(|a| a.task == "134")
        .unwrap();
    assert_eq!(found.scores.strict, Some(true), "{:?}", found.checks);
    assert!(
        evaluation
            .attempts
            .iter()
            .any(|a| a.task == "135" && !a.ran())
    );
    assert!(fixture.path("runs/eval-config/report/index.html").is_file());
    for path in files(fixture.root.path()) {
        let bytes = std::fs::read(&path).unwrap();
        let told = bytes
            .windows(KEY.len())
            .any(|window| window == KEY.as_bytes());
        assert!(!told, "the key is in {}", path.display());
    }

    // Running the same command again makes no calls.
    assert!(evaluate(&fixture, &["--tokens", "100000"]).status.success());
    assert_eq!(endpoint.call_count(), 2);
}

#[test]
fn a_literal_key_is_rejected_before_anything_is_written() {
    let fixture = SuiteFixture::new();
    std::fs::write(
        fixture.path("gpt.yaml"),
        CONFIG.replace("$EVAL_FLAGS_KEY", KEY),
    )
    .unwrap();
    std::fs::write(fixture.path("task.json"), tasks()).unwrap();
    let output = evaluate(&fixture, &["--tokens", "100000"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    assert!(stderr.contains("environment variable"), "{stderr}");
    assert!(!fixture.path("runs").exists(), "nothing was made");
    assert!(!stderr.contains(KEY), "{stderr}");
}
