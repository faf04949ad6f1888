//! A run in which every text is an attack on the page that shows it.

use std::path::{Path, PathBuf};

use pybench_run::{ContentStore, Journal, human_edits};
use pybench_types::human_edit::{HumanEdit, Lineage, TurnAuthor};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Trajectory, Verdict};
use serde_json::{Value, json};

use super::a_trajectory;
use super::compare::evaluation;
use crate::support::fixture::RunFixture;

/// Text that sets `window.owned`, or asks a server, if any part of it is executed or loaded.
pub(super) fn attack(canary: u16) -> String {
    format!(
        "<script>window.owned=1</script><img src=x onerror=\"window.owned=1\"><svg/onload=window.owned=1>\
         \"'><a href=\"javascript:window.owned=1\">click</a><iframe srcdoc=\"<script>parent.owned=1</script>\"></iframe>\
         <style>@import 'http://127.0.0.1:{canary}/style';</style><img src=\"http://127.0.0.1:{canary}/image\">\
         <link rel=preconnect href=\"http://127.0.0.1:{canary}\">\
         <form action=\"http://127.0.0.1:{canary}/form\"><button>send</button></form>{{@html owned}}${{owned}}"
    )
}

/// Replaces every text that a model, a website or a person writes. Ids, and words that have a meaning to pybench, stay.
fn infect(value: &mut Value, attack: &str) {
    const KEPT: [&str; 17] = [
        "id",
        "task",
        "trajectory",
        "role",
        "output",
        "name_of_format",
        "format",
        "end",
        "outcome",
        "environment",
        "checker",
        "category",
        "language",
        "kind",
        "by",
        "stopped",
        "check",
    ];
    match value {
        // The names of streams.
        Value::String(text) if ["stdout", "stderr"].contains(&&**text) => {}
        Value::String(text) => *text = format!("{attack}{text}"),
        Value::Array(list) => list.iter_mut().for_each(|one| infect(one, attack)),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let is_kept = KEPT.contains(&key.as_str());
                if !is_kept || !value.is_string() {
                    infect(value, attack);
                }
            }
        }
        _ => {}
    }
}

/// A run folder with one infected trajectory of `fixture`, and files that are attacks themselves.
pub(super) fn run(fixture: &RunFixture, runs: &Path, attack: &str) -> PathBuf {
    let folder = runs.join("<img src=x onerror=window.owned=1>");
    std::fs::create_dir_all(&folder).unwrap();
    let store = ContentStore::open(&folder.join("files")).unwrap();
    let (mut trajectory, mut task, mut verdict): (Value, Value, Value) = (
        first(fixture, "trajectories.jsonl"),
        first(fixture, "tasks.jsonl"),
        first(fixture, "verdicts.jsonl"),
    );
    trajectory["turns"][0]["observation"] = json!({
        "outputs": [
            {"output": "stream", "name": "stdout", "text": "out"},
            {"output": "stream", "name": "stderr", "text": "err"},
            {"output": "result", "data": {"text/html": "html", "text/plain": "plain"}},
            {"output": "display", "data": {"image/svg+xml": "svg", "image/png": "\" onerror=\"window.owned=1"}},
        ],
        "error": {"ename": "NameError", "evalue": "x", "traceback": "trace"},
        "stopped": null,
    });
    verdict["findings"] = json!([{
        "filter": "check", "subject": "s", "outcome": "fail", "detail": "d",
        "mismatch": {"place": "p", "expected": "e", "found": "f"},
    }]);
    verdict["accepted"] = json!(false);
    verdict["opinion"] = json!({"judge": "j", "passed": false, "reason": "r"});
    for value in [&mut trajectory, &mut task, &mut verdict] {
        infect(value, attack);
    }
    let outputs = ["html", "svg", "xml", "js", "png", "pdf", "txt"].map(|end| {
        let id = store.put(format!("{attack}{end}").as_bytes()).unwrap();
        json!({"path": format!("output/{attack}.{end}"), "id": id, "size": 9})
    });
    trajectory["outputs"] = outputs.to_vec().into();
    let task_file = |name: &str| {
        json!({"name": name, "id": store.put(name.as_bytes()).unwrap(), "kind": "html",
        "origin": attack, "license": attack})
    };
    task["files"] = json!([task_file(&format!("{attack}.html")), task_file("a.svg")]);
    let journal = Journal::open(&folder.join("journal.sqlite")).unwrap();
    let item = [trajectory["id"].as_str().unwrap().to_owned()];
    for (stage, output) in [("rollout", &trajectory), ("grade", &verdict)] {
        journal.enqueue(stage, &item).unwrap();
        journal.complete(stage, &item[0], output).unwrap();
    }
    journal
        .set_metadata("warnings/interpreter", &json!([attack]))
        .unwrap();
    std::fs::write(folder.join("tasks.jsonl"), format!("{task}\n")).unwrap();
    folder
}

/// An evaluation in which every text is an attack, with a recipe, a dataset and a learning curve of the same kind.
pub(super) fn evaluation_run(folder: &Path, attack: &str) {
    evaluation(folder, &a_trajectory(attack), &[true]);
    let text = json!(attack).to_string();
    let path = folder.join("results.jsonl");
    let mut records = std::fs::read_to_string(&path).unwrap();
    for harmless in ["model <b>", "made for a test", "Do <i>0</i>.", "<u>1"] {
        assert!(records.contains(harmless), "{records}");
        records = records.replace(harmless, text.trim_matches('"'));
    }
    std::fs::write(path, records).unwrap();
    std::fs::write(folder.join("recipe.toml"), format!("{text} = {text}\n")).unwrap();
    let steps = [1, 2].map(|step| json!({"step": step, "loss": 1.0}).to_string());
    std::fs::write(folder.join("metrics.jsonl"), steps.join("\n")).unwrap();
    let results = json!({"model": attack, "steps": 1});
    std::fs::write(folder.join("results.json"), results.to_string()).unwrap();
    let dataset = folder.join("dataset");
    std::fs::create_dir(&dataset).unwrap();
    let messages = ["user", "assistant"].map(|role| json!({"role": role, "content": attack}));
    let row = json!({"messages": messages, "category": attack, "keyword": attack});
    std::fs::write(dataset.join("train.jsonl"), row.to_string()).unwrap();
}

/// Saves an edit of the run's trajectory, by a hostile program; returns its id.
pub(super) fn edit(folder: &Path, attack: &str) -> String {
    let journal = Journal::read_run(folder).unwrap();
    let mut trajectory = journal
        .outputs::<Trajectory>("rollout")
        .unwrap()
        .swap_remove(0);
    let verdict = journal.outputs::<Verdict>("grade").unwrap().swap_remove(0);
    let recorded = trajectory.id.clone();
    trajectory.id = Digest::of_bytes(attack.as_bytes());
    let id = trajectory.id.to_string();
    let edit = HumanEdit {
        trajectory,
        verdict,
        lineage: Lineage {
            trajectory: recorded,
            turn: 1,
            editor: attack.to_owned(),
            saved_at: 1,
            authors: vec![TurnAuthor::model(attack)],
        },
        repair: true,
        pair: true,
        rejected: attack.to_owned(),
    };
    human_edits::save(folder, &edit).unwrap();
    id
}

fn first(fixture: &RunFixture, artifact: &str) -> Value {
    // The task of the first trajectory, whatever the order of tasks.
    let of_trajectory: Value = fixture.lines("trajectories.jsonl").swap_remove(0);
    let wanted = match artifact {
        "tasks.jsonl" => ("id", &of_trajectory["task"]),
        "verdicts.jsonl" => ("trajectory", &of_trajectory["id"]),
        _ => ("id", &of_trajectory["id"]),
    };
    let lines: Vec<Value> = fixture.lines(artifact);
    let found = lines.into_iter().find(|line| line[wanted.0] == *wanted.1);
    found.unwrap_or_else(|| panic!("{artifact} has none"))
}
