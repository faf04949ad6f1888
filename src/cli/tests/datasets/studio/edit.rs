//! Turns that people edit: a student looks once and gives up; a person continues with what the expert does.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pybench_agent as agent;
use pybench_agent::Format as _;
use pybench_testing::ROOT;
use pybench_testing::load_dataset::load_dataset;
use pybench_types::trajectory::{Trajectory, Turn};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::accessibility::has_no_serious_fault;
use super::browser::browser;
use super::webdriver::Browser;
use super::{Studio, run};
use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{FREE, RunFixture, code, openai, recipe};

const ENTER: char = '\u{e007}';
const CONTROL: char = '\u{e009}';
const GAVE_UP: &str = "Finished:\nI do not know.";

/// Looks, then gives up.
fn student(request: &Value) -> Answer {
    let messages = request["messages"].as_array().unwrap();
    let replies = messages.iter().filter(|one| one["role"] == "assistant");
    Answer::Content(match replies.count() {
        0 => {
            let step = agent::PybenchFormat.write_step("I look.", "print('looking')");
            step.split(agent::END).next().unwrap().to_owned()
        }
        _ => GAVE_UP.to_owned(),
    })
}

/// A run in which every attempt is rejected.
pub(super) struct Planted {
    pub(super) fixture: RunFixture,
    /// Number of a trajectory in the run.
    pub(super) number: usize,
    recorded: Trajectory,
    /// What the expert does on the same task, which needs an output file.
    pub(super) solution: Vec<Turn>,
}

/// What [`planted`] copies.
static PLANTED: OnceCell<Planted> = OnceCell::const_new();

/// It is made once, and each test has a copy. `None` where no session can be had.
pub(super) async fn planted() -> Option<Planted> {
    let expert = run().await?;
    let made = PLANTED.get_or_init(|| plant(&expert)).await;
    Some(Planted {
        fixture: made.fixture.copy(),
        number: made.number,
        recorded: made.recorded.clone(),
        solution: made.solution.clone(),
    })
}

async fn plant(expert: &RunFixture) -> Planted {
    let solved = expert.trajectories();
    let solved = solved.into_iter().find(|one| !one.outputs.is_empty());
    let solved = solved.expect("a task with an output file");
    let endpoint = Endpoint::start(|request| async move { student(&request) }).await;
    let rest = "[shard]\nheld_out_templates = 0\n";
    let teacher = openai(&endpoint.base_url(), FREE);
    let fixture = RunFixture::new(&recipe(3, &teacher, rest)).await;
    for stage in ["rollout", "grade"] {
        let output = fixture.program(stage, &[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), Some(0), "{stage}: {stderr}");
    }
    let trajectories = fixture.trajectories();
    let at = trajectories.iter().position(|one| one.task == solved.task);
    let at = at.expect("the same tasks");
    Planted {
        number: at + 1,
        recorded: trajectories[at].clone(),
        solution: solved.turns,
        fixture,
    }
}

/// A turn of the expert as a person writes it.
fn written(turn: &Turn) -> Value {
    let cells: Vec<&str> = turn.cells().collect();
    let answer = turn.reply.trim_start_matches("Finished:").trim();
    let text = if cells.is_empty() { answer } else { "I go on." };
    json!({"recorded": null, "text": text, "cells": cells})
}

impl Studio {
    /// Sends JSON as a page of the studio does.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let mut request = self.put(path, body).build().unwrap();
        *request.method_mut() = method;
        let answer = self.http.execute(request).await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(Method::POST, path, body).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        answer
    }

    /// Waits until the session of an edit was copied after this number of turns.
    async fn fork_copied(&self, fork: &Value, turns: u64) {
        let path = format!("/api/forks/{}", fork["id"].as_str().unwrap());
        let since = Instant::now();
        loop {
            let view = self.json(&path).await;
            if view["copied"].as_array().unwrap().contains(&json!(turns)) {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "{view:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until an edit has this phase.
    async fn fork_until(&self, fork: &Value, phase: &str) -> Value {
        let path = format!("/api/forks/{}", fork["id"].as_str().unwrap());
        let since = Instant::now();
        loop {
            let view = self.json(&path).await;
            if view["phase"] == phase {
                return view;
            }
            assert_ne!(view["phase"], "failed", "{view:#}");
            assert!(
                since.elapsed() < Duration::from_secs(120),
                "{phase}: {view:#}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn has(text: &str) -> String {
    format!("document.body.innerText.includes({text:?})")
}

/// Writes turn `number` into the form of an edit by keyboard, and runs it.
async fn write_and_run(browser: &Browser, number: usize, turn: &Turn) {
    match turn.cells().next() {
        Some(cell) => run_cell(browser, number, cell).await,
        None => {
            let answer = turn.reply.trim_start_matches("Finished:").trim();
            fill_and_run(
                browser,
                number,
                't',
                "document.activeElement.tagName === 'TEXTAREA'",
                answer,
            )
            .await;
        }
    }
}

async fn run_cell(browser: &Browser, number: usize, cell: &str) {
    let is_there = "document.activeElement.id === 'cell-1'";
    fill_and_run(browser, number, 'c', is_there, cell).await;
}

/// Goes to a field of the form by its key, writes a text and runs the turn.
async fn fill_and_run(browser: &Browser, number: usize, key: char, is_there: &str, text: &str) {
    let form = format!("!!document.querySelector('.draft[aria-label=\"Turn {number}\"]')");
    browser.wait(&form).await;
    browser.keys(&key.to_string()).await;
    browser.wait(is_there).await;
    let text = serde_json::to_string(text).unwrap();
    browser
        .value(&format!(
            "(document.activeElement.select(), document.execCommand('insertText', false, {text}))"
        ))
        .await;
    browser.chord(CONTROL, ENTER).await;
}

/// The pair in the file prefers the reply of the person.
fn check_pairs(kind: &str, path: &Path, chosen: &str) {
    let Some(loaded) = load_dataset(kind, path) else {
        return;
    };
    let columns: Vec<&str> = loaded["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    for column in ["prompt", "chosen", "rejected"] {
        assert!(columns.contains(&column), "{columns:?}");
    }
    let rows = loaded["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{loaded:#}");
    let reply = |side: &str| {
        let message = &rows[0][side][0];
        assert_eq!(message["role"], "assistant");
        message["content"].as_str().unwrap().to_owned()
    };
    assert!(reply("chosen").contains(chosen), "{loaded:#}");
    assert_eq!(reply("rejected"), GAVE_UP);
    let prompt = rows[0]["prompt"].as_array().unwrap();
    let last = prompt.last().unwrap();
    assert_eq!(last["role"], "user");
    assert!(last["content"].as_str().unwrap().contains("looking"));
}

/// TRL's `DPOTrainer` loads the file and trains what was chosen and what was rejected.
fn check_with_trl(pairs: &Path, chosen: &str) {
    let Some(python) = pybench_testing::python::with_torch("train-elsewhere", "python") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let loaded = Command::new(python)
        .arg(format!("{ROOT}/src/cli/tests/datasets/preference_pairs.py"))
        .arg(pairs)
        .current_dir(folder.path())
        .env("HF_HOME", folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&loaded.stderr);
    assert!(loaded.status.success(), "{stderr}");
    let replies: [String; 2] = serde_json::from_slice(&loaded.stdout).unwrap();
    assert!(replies[0].contains(chosen), "{replies:?}");
    assert_eq!(replies[1], format!("{GAVE_UP}<|eot_id|>"));
}

/// Runs the dataset, which has this row alone, again in another process.
fn verify(fixture: &RunFixture, row: &pybench_datasets::Row) {
    let given = tempfile::tempdir().unwrap();
    // The dataset carries no pictures, because they have no license.
    for file in &row.files {
        let id = file.blake3.as_str();
        let stored = fixture.folder().join("files").join(&id[..2]).join(id);
        std::fs::copy(stored, given.path().join(id)).unwrap();
    }
    let mut command = crate::support::pybench("verify");
    command.arg(fixture.folder().join("dataset"));
    command.args(["--offline", "--no-stamp", "--files"]);
    command.arg(given.path()).arg("--state").arg(given.path());
    let output = command.output().unwrap();
    let [text, log] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!(code(&output), Some(0), "{text}\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_checked_saved_and_becomes_a_row_and_a_pair() {
    let Some(planted) = planted().await else {
        return;
    };
    let runs = planted.fixture.path("data/runs");
    let mut studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    let path = format!("/api/data/t/{}", planted.number);
    let view = studio.json(&path).await;
    assert_eq!(view["verdict"]["accepted"], false);
    assert_eq!(view["editable"], true);
    let request = |turn: u32, turns: &[Value]| json!({"trajectory": planted.recorded.id, "turn": turn, "editor": "ann", "turns": turns});

    // What cannot be edited is named.
    for (body, expected) in [
        (request(3, &[]), "turns 1 to 2"),
        (request(0, &[]), "turns 1 to 2"),
        (
            json!({"trajectory": planted.recorded.id, "turn": 1, "editor": "<b>"}),
            "`editor`",
        ),
        (
            request(2, &[json!({"text": "", "cells": [" "]})]),
            "a cell is empty",
        ),
        (request(2, &[json!({"recorded": 7})]), "turns 1 to 2"),
    ] {
        let (status, answer) = studio
            .send(Method::POST, &format!("{path}/forks"), &body)
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }

    // A person continues after the first turn, with one turn after the other.
    let fork = studio
        .post(&format!("{path}/forks"), &request(2, &[]))
        .await;
    let address = format!("/api/forks/{}", fork["id"].as_str().unwrap());
    let mut view = studio.fork_until(&fork, "waiting").await;
    assert_eq!(view["recorded"][0]["text"], "I do not know.");

    // Another try begins with the session that was copied, without what the first one did.
    studio.fork_copied(&fork, 0).await;
    let spoiled = "open('output/spoiled.txt', 'w').write('x')";
    let turn = json!({"text": "I try.", "cells": [spoiled]});
    let body = json!({"after": 0, "turns": [turn]});
    studio.post(&format!("{address}/turns"), &body).await;
    studio.fork_until(&fork, "waiting").await;
    let back = json!({"keep": 0});
    let answer = studio.post(&format!("{address}/back"), &back).await;
    assert_eq!(answer["written"], json!([]));
    studio.fork_until(&fork, "waiting").await;
    for (at, turn) in planted.solution.iter().enumerate() {
        let body = json!({"after": at, "turns": [written(turn)]});
        studio.post(&format!("{address}/turns"), &body).await;
        let last = at + 1 == planted.solution.len();
        view = studio
            .fork_until(&fork, if last { "checked" } else { "waiting" })
            .await;
    }
    assert_eq!(view["verdict"]["accepted"], true, "{view:#}");
    assert_eq!(view["outputs"].as_array().unwrap().len(), 1);
    let both = json!({"repair": true, "pair": true});
    let saved = studio.post(&format!("{address}/save"), &both).await;
    let id = saved["saved"]["id"].as_str().unwrap().to_owned();

    // What was shown as saved survives a kill; the session does not.
    studio.child.kill().unwrap();
    studio.child.wait().unwrap();
    drop(studio);
    let studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    assert_eq!(
        studio.answer(&address).await.status(),
        StatusCode::NOT_FOUND
    );
    let view = studio.json(&path).await;
    let edit = &view["edits"][0];
    assert_eq!(
        (&edit["id"], &edit["editor"], &edit["turn"]),
        (&json!(id), &json!("ann"), &json!(2))
    );
    let shown = studio.json(&format!("{path}/edits/{id}")).await;
    let trained: Vec<bool> = shown["turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["trained"].as_bool().unwrap())
        .collect();
    assert_eq!((trained[0], trained[1]), (false, true));
    let pairs = studio
        .answer("/api/data/t/preferences")
        .await
        .text()
        .await
        .unwrap();
    let file = planted.fixture.path("pairs.jsonl");
    std::fs::write(&file, pairs).unwrap();
    check_pairs("json", &file, "I go on.");
    assert!(studio.interrupt().success());

    // The dataset takes the row, and its replay by another process gives the same.
    let output = planted.fixture.program("shard", &[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{stderr}");
    let folder = planted.fixture.folder();
    check_pairs(
        "parquet",
        &folder.join("human-preferences.parquet"),
        "I go on.",
    );
    let rows = pybench_datasets::read::dataset(&folder.join("dataset")).unwrap();
    let rows: Vec<_> = rows.map(|row| row.unwrap().1).collect();
    assert_eq!(rows.len(), 1);
    assert!(
        rows[0].teacher.starts_with("human-edited:"),
        "{}",
        rows[0].teacher
    );
    assert_eq!(rows[0].provenance.as_deref(), Some("human-edited"));
    assert_eq!(rows[0].trajectory_id.as_str(), id);
    assert_eq!(rows[0].compute_trajectory_id(), rows[0].trajectory_id);
    assert_eq!(rows[0].compute_seed(), planted.recorded.seed);
    verify(&planted.fixture, &rows[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_was_lost_is_begun_again_with_its_turns() {
    let Some(planted) = planted().await else {
        return;
    };
    let runs = planted.fixture.path("data/runs");
    let studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    let path = format!("/api/data/t/{}", planted.number);
    let turns: Vec<Value> = planted.solution.iter().map(written).collect();
    let body =
        json!({"trajectory": planted.recorded.id, "turn": 2, "editor": "ann", "turns": turns});
    let fork = studio.post(&format!("{path}/forks"), &body).await;
    let view = studio.fork_until(&fork, "checked").await;
    assert_eq!(view["verdict"]["accepted"], true, "{view:#}");
    // The edit that is left is gone, and nothing was saved.
    let address = format!("/api/forks/{}", fork["id"].as_str().unwrap());
    let (status, _) = studio.send(Method::DELETE, &address, &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        studio.answer(&address).await.status(),
        StatusCode::NOT_FOUND
    );
    assert_eq!(studio.json("/api/data/t/edits").await, json!([]));

    // The recorded rest is the student's answer again, which the checks reject.
    let body = json!({"trajectory": planted.recorded.id, "turn": 2, "editor": "ann", "turns": [{"recorded": 2}]});
    let fork = studio.post(&format!("{path}/forks"), &body).await;
    let view = studio.fork_until(&fork, "checked").await;
    assert_eq!(view["verdict"]["accepted"], false, "{view:#}");
    let address = format!("/api/forks/{}/save", fork["id"].as_str().unwrap());
    let both = json!({"repair": true, "pair": true});
    let (status, answer) = studio.send(Method::POST, &address, &both).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("do not accept"),
        "{answer}"
    );
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_corrects_a_wrong_turn_by_keyboard_and_exports_the_pair() {
    let Some(planted) = planted().await else {
        return;
    };
    let runs = planted.fixture.path("data/runs");
    let studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    browser.open(&studio.link).await;
    browser.wait(&has("finished")).await;
    browser
        .open(&format!("{}/data/t/{}", studio.url, planted.number))
        .await;
    browser.wait("!!document.querySelector('#turn-2')").await;

    // The wrong turn is opened for editing.
    browser.keys("jje").await;
    browser
        .wait("!!document.querySelector('input[name=person]')")
        .await;
    browser
        .value("document.querySelector('input[name=person]').focus()")
        .await;
    browser.keys(&format!("ann{ENTER}")).await;
    browser.wait(&has("waiting for your turn")).await;
    assert_eq!(
        browser
            .value("document.querySelector('.draft textarea').value")
            .await,
        "I do not know."
    );

    // The recorded rest is what the checks have rejected.
    browser.keys("r").await;
    browser.wait(&has("The checks do not accept it")).await;
    browser.keys("z").await;
    browser.wait(&has("waiting for your turn")).await;
    for (at, turn) in planted.solution.iter().enumerate() {
        write_and_run(&browser, at + 2, turn).await;
    }
    browser.wait(&has("Accepted")).await;
    browser.keys("b").await;
    let saved = "document.querySelector('.saved')?.innerText === 'saved: repair, preference pair'";
    browser.wait(saved).await;

    // The link gives the file, which TRL loads.
    let link = "document.querySelector('a[download][href$=preferences]').getAttribute('href')";
    let link = browser.value(link).await;
    let pairs = studio
        .answer(link.as_str().unwrap())
        .await
        .text()
        .await
        .unwrap();
    let file = planted.fixture.path("pairs.jsonl");
    std::fs::write(&file, pairs).unwrap();
    let first = planted.solution[0].cells().next().unwrap();
    check_pairs("json", &file, first);
    check_with_trl(&file, first);

    // The page of the recorded trajectory leads to the edited one; a page that is left frees its session.
    let fork = "performance.getEntriesByType('resource').map((one) => one.name).find((name) => name.includes('/api/forks/'))";
    let fork = browser.value(fork).await;
    browser.keys("u").await;
    browser.wait(&has("turn 2 by ann")).await;
    let fork = fork.as_str().unwrap().split("/api/forks/").nth(1).unwrap();
    let fork = format!("/api/forks/{}", fork.split('/').next().unwrap());
    let since = Instant::now();
    while studio.answer(&fork).await.status() != StatusCode::NOT_FOUND {
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "the edit is still open"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    browser.value("[...document.querySelectorAll('a')].find((one) => one.innerText.includes('by ann')).click()").await;
    browser.wait(&has("edited")).await;
    browser
        .wait("document.querySelectorAll('.turn').length > 2")
        .await;
    has_no_serious_fault(&browser, "edited").await;
    assert!(studio.interrupt().success());
}

/// Whether the page of an edit shows that a cell runs.
const RUNNING: &str = "document.querySelector('[role=status]')?.innerText === 'running…'";
/// Whether an edit that is lost offers both of its turns.
const BEGIN_AGAIN: &str = "[...document.querySelectorAll('button')].some((one) => one.innerText === 'begin again with 2 turns of yours')";

async fn begin_again(browser: &Browser) {
    browser.wait(BEGIN_AGAIN).await;
    let click = BEGIN_AGAIN.replace(".some(", ".find(") + ".click()";
    browser.value(&click).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_goes_on_after_a_kill_in_its_middle() {
    let Some(planted) = planted().await else {
        return;
    };
    let runs = planted.fixture.path("data/runs");
    let mut studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };

    // One edit is saved.
    let path = format!("/api/data/t/{}", planted.number);
    let turns: Vec<Value> = planted.solution.iter().map(written).collect();
    let body =
        json!({"trajectory": planted.recorded.id, "turn": 2, "editor": "bob", "turns": turns});
    let fork = studio.post(&format!("{path}/forks"), &body).await;
    studio.fork_until(&fork, "checked").await;
    let save = format!("/api/forks/{}/save", fork["id"].as_str().unwrap());
    let saved = studio
        .post(&save, &json!({"repair": true, "pair": true}))
        .await;

    // Another one has a turn that has run, and one that runs.
    browser.open(&studio.link).await;
    browser.wait(&has("finished")).await;
    browser
        .value("localStorage.setItem('pybench-reviewer', 'ann')")
        .await;
    browser
        .open(&format!("{}/edit/t/{}/2", studio.url, planted.number))
        .await;
    browser.wait(&has("waiting for your turn")).await;
    write_and_run(&browser, 2, &planted.solution[0]).await;
    // The page is loaded again, and goes on with the turn that has run.
    browser
        .wait("!!document.querySelector('.draft[aria-label=\"Turn 3\"]')")
        .await;
    browser
        .open(&format!("{}/edit/t/{}/2", studio.url, planted.number))
        .await;
    browser
        .wait("document.querySelectorAll('.turn.edited').length === 1")
        .await;
    run_cell(&browser, 3, "import time; time.sleep(60)").await;
    browser.wait(RUNNING).await;
    let held = studio.kill();
    browser.wait(&has("not connected")).await;

    // The page keeps its turns also while nothing answers, or another studio that it does not know.
    begin_again(&browser).await;
    browser
        .wait(&format!(
            "{BEGIN_AGAIN} && !document.querySelector('header [role=status]')"
        ))
        .await;
    drop(studio);
    let address = held.address.to_string();
    let args: [&Path; 4] = [
        "--runs-dir".as_ref(),
        &runs,
        "--address".as_ref(),
        address.as_ref(),
    ];
    let studio = Studio::start(&args).await;
    begin_again(&browser).await;
    browser.wait(&has("Open the link that")).await;

    // The link in another tab gives the browser the cookie.
    browser
        .value(&format!("fetch({:?}).then(() => true)", studio.link))
        .await;
    begin_again(&browser).await;
    browser.wait(RUNNING).await;
    browser
        .wait("document.querySelectorAll('.turn.edited').length > 0")
        .await;
    // The turn that was running is taken back.
    browser.keys("z").await;
    for (at, turn) in planted.solution.iter().enumerate().skip(1) {
        write_and_run(&browser, at + 2, turn).await;
    }
    browser.wait(&has("Accepted")).await;
    browser.keys("s").await;
    browser
        .wait("document.querySelector('.saved')?.innerText === 'saved: repair'")
        .await;
    let edits = studio.json("/api/data/t/edits").await;
    let editors: Vec<&Value> = edits
        .as_array()
        .unwrap()
        .iter()
        .map(|edit| &edit["editor"])
        .collect();
    assert_eq!(editors.len(), 2, "{edits:#}");
    assert!(editors.contains(&&json!("ann")), "{edits:#}");
    let mut kept = edits.as_array().unwrap().iter();
    assert!(kept.any(|edit| edit["id"] == saved["saved"]["id"]));
    assert!(studio.interrupt().success());
}
