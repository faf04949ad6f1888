//! Two evaluations side by side.

use std::path::Path;

use pybench_run::{ContentStore, Journal};
use pybench_types::id::Digest;
use serde_json::{Value, json};

use super::browser::browser;
use super::{Studio, run};

const ENTER: &str = "\u{e007}";

/// Writes the folder of an evaluation of `trajectory`, in which the agent passes or fails these tasks.
pub(super) fn evaluation(folder: &Path, trajectory: &Value, passed: &[bool]) {
    let attempts = passed
        .iter()
        .map(|passed| (trajectory, *passed, None::<u64>));
    evaluation_of(folder, &attempts.collect::<Vec<_>>());
}

/// Writes the folder of an evaluation: of each attempt the trajectory, whether it passes, and its cost in millionths of a US
/// dollar, if that is known.
pub(super) fn evaluation_of(folder: &Path, attempts: &[(&Value, bool, Option<u64>)]) {
    std::fs::create_dir_all(folder).unwrap();
    let store = ContentStore::open(&folder.join("files")).unwrap();
    let head = json!({
        "task_set": "made for a test", "tasks": Digest::of_bytes(b"tasks"), "checker": "c", "environment": "e",
        "prompts": "p", "limits": {}, "agents": {"model <b>": {"kind": "model", "about": "made for a test"}},
    });
    let mut lines = head.to_string();
    for (at, &(trajectory, passed, micro_usd)) in attempts.iter().enumerate() {
        let mut trajectory = trajectory.clone();
        trajectory["id"] = json!(Digest::of_json(&(at, passed)));
        if !passed {
            // The code of the first turn is the same, that of the last one is not.
            let turns = trajectory["turns"].as_array_mut().unwrap();
            let last = turns.last_mut().unwrap();
            last["reply"] = json!("Finished: something else.");
        }
        let bytes = trajectory.to_string();
        let id = store.put(bytes.as_bytes()).unwrap();
        let attempt = json!({
            "agent": "model <b>", "suite": "s", "task": at.to_string(), "category": "chart", "seed": 0,
            "outcome": {"outcome": "ran"}, "scores": {"strict": passed}, "turns": 2, "max_turns": 10,
            "micro_usd": micro_usd,
            "prompt": format!("Do <i>{at}</i>."),
            "checks": [{"score": "strict", "name": "answer", "passed": passed, "expected": "<u>1", "actual": "2"}],
            "trajectory": {"path": "trajectory.json", "id": id, "size": bytes.len()},
        });
        lines += &format!("\n{attempt}");
    }
    std::fs::write(folder.join("results.jsonl"), lines).unwrap();
    drop(Journal::open(&folder.join("journal.sqlite")).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn flips_lead_to_the_first_divergence() {
    let Some(fixture) = run().await else { return };
    let trajectory: Value = fixture.lines("trajectories.jsonl").swap_remove(0);
    let runs = tempfile::tempdir().unwrap();
    evaluation(
        &runs.path().join("before"),
        &trajectory,
        &[true, false, false, true],
    );
    evaluation(
        &runs.path().join("after"),
        &trajectory,
        &[true, true, true, true],
    );
    let studio = Studio::start(&["--runs-dir".as_ref(), runs.path()]).await;

    let list = studio.json("/api/data").await;
    let kinds = [0_usize, 1].map(|at| (list[at]["kind"].clone(), list[at]["trajectories"].clone()));
    assert_eq!(json!(kinds), json!([["evaluation", 4], ["evaluation", 4]]));
    let compared = studio.json("/api/compare?a=before&b=after").await;
    let counts = ["measure", "shared", "compared", "a_better", "b_better"];
    let counts = counts.map(|key| compared[key].clone());
    assert_eq!(json!(counts), json!(["strict", 4, 4, 0, 2]));
    let p = compared["p"].as_f64().unwrap();
    assert!((p - 0.5).abs() < 1e-12, "{p}");
    let order = [0_usize, 1, 2, 3].map(|at| compared["tasks"][at]["task"].clone());
    assert_eq!(json!(order), json!(["s/1", "s/2", "s/0", "s/3"]));

    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");
    browser.open(&studio.link).await;
    browser
        .wait("!!document.querySelector('a[href=\"/compare\"]')")
        .await;
    browser
        .value("document.querySelector('a[href=\"/compare\"]').click()")
        .await;
    for (label, name) in [("A", "before"), ("B", "after")] {
        let option = format!("select[aria-label={label:?}] option[value={name:?}]");
        browser
            .wait(&format!("!!document.querySelector({option:?})"))
            .await;
        let select = format!("select[aria-label={label:?}]");
        browser
            .value(&format!(
                "(() => {{ const field = document.querySelector({select:?}); field.value = {name:?}; \
                 field.dispatchEvent(new Event('change', {{bubbles: true}})); return true; }})()"
            ))
            .await;
    }
    browser.wait(&has("p = 0.5000")).await;
    browser
        .wait("document.querySelectorAll('.pairs tbody tr').length === 4")
        .await;
    assert_eq!(
        browser
            .value("document.querySelectorAll('.pairs i, .pairs b').length")
            .await,
        0
    );
    browser.value("document.activeElement.blur()").await;
    browser.keys("f").await;
    browser
        .wait("document.querySelectorAll('.pairs tbody tr').length === 2")
        .await;
    browser.keys("j").await;
    browser.keys(ENTER).await;
    browser.wait("location.pathname === '/compare/pair'").await;
    browser.wait(&has("differ from turn")).await;
    // The expected and the found value of the failed check are shown as text.
    browser
        .wait("[...document.querySelectorAll('dd')].map((one) => one.textContent).join().includes('<u>1,2')")
        .await;
    assert_eq!(
        browser
            .value("document.querySelectorAll('.pair u').length")
            .await,
        0
    );
    browser.keys("d").await;
    browser.wait("/^#turn-\\d+$/.test(location.hash)").await;
    browser.keys("u").await;
    browser
        .wait("location.pathname === '/compare' && location.search.includes('flips=true')")
        .await;
    assert!(studio.interrupt().success());
}
