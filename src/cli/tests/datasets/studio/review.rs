//! Decisions of people.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::browser;
use super::{Studio, run};

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

fn decision(trajectory: &Value, reviewer: &str, decision: &str) -> Value {
    json!({"trajectory": trajectory, "reviewer": reviewer, "decision": decision, "label": "", "comment": "<b>why"})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_as_saved_survives_a_kill() {
    let Some(fixture) = run().await else { return };
    let runs = fixture.path("data/runs");
    let mut studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    let id = studio.json("/api/data/t/1").await["row"]["id"].clone();

    // The server is killed while decisions come in.
    let requests = (0..60).map(|number| {
        let reviewer = format!("reviewer {number}");
        let request = studio.put("/api/data/t/1/review", &decision(&id, &reviewer, "accept"));
        (reviewer, request)
    });
    let requests: Vec<_> = requests.collect();
    let (done, mut saved) = tokio::sync::mpsc::unbounded_channel();
    let sender = tokio::spawn(async move {
        for (reviewer, request) in requests {
            match request.send().await {
                Ok(answer) if answer.status() == StatusCode::OK => done.send(reviewer).unwrap(),
                _ => return,
            }
        }
    });
    let mut answered = Vec::new();
    while answered.len() < 5 {
        let next = tokio::time::timeout(Duration::from_secs(60), saved.recv());
        answered.push(next.await.unwrap().unwrap());
    }
    studio.child.kill().unwrap();
    studio.child.wait().unwrap();
    sender.await.unwrap();
    while let Ok(reviewer) = saved.try_recv() {
        answered.push(reviewer);
    }
    drop(studio);

    let studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    let view = studio.json("/api/data/t/1").await;
    let stored: Vec<&str> = view["reviews"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["reviewer"].as_str().unwrap())
        .collect();
    for reviewer in &answered {
        assert!(
            stored.contains(&reviewer.as_str()),
            "{reviewer}: {stored:?}"
        );
    }
    // The pipeline still reads its journal, and knows that people worked on the run.
    let output = fixture.program("grade", &[]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_go_through_the_queue_by_keyboard() {
    let Some(fixture) = run().await else { return };
    let runs = fixture.path("data/runs");
    let studio = Studio::start(&["--runs-dir".as_ref(), &runs]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");
    let saved = "document.querySelector('[role=status]')?.innerText === 'saved'";
    let at = |number: u64| {
        format!("location.pathname === '/review/t/{number}' && !!document.querySelector('.turn')")
    };

    browser.open(&studio.link).await;
    browser.wait(&has("finished")).await;
    browser.open(&format!("{}/review/t", studio.url)).await;
    browser
        .wait("!!document.querySelector('input[name=person]')")
        .await;
    browser
        .value("document.querySelector('input[name=person]').focus()")
        .await;
    browser.keys("ann").await;
    browser.keys(ENTER).await;
    browser.wait(&at(1)).await;
    browser.wait(&has("3 left")).await;
    // There is none before the first one.
    let previous = "[...document.querySelectorAll('form.review button')].find((one) => one.innerText.startsWith('previous')).disabled";
    assert_eq!(browser.value(previous).await, true);
    browser.keys("a").await;
    browser.wait(saved).await;
    browser.keys("l").await;
    browser.keys("too easy").await;
    browser.keys(ENTER).await;
    browser.wait(saved).await;
    browser.keys("c").await;
    browser.keys("a x <b>n</b>").await;
    browser.keys(ESCAPE).await;
    browser.wait(saved).await;
    let stored = studio.json("/api/data/t/1").await["reviews"].clone();
    let expected = ["accept", "too easy", "a x <b>n</b>"];
    let found = ["decision", "label", "comment"].map(|key| stored[0][key].clone());
    assert_eq!(json!(found), json!(expected));
    browser.keys("n").await;
    browser.wait(&at(2)).await;
    browser.wait(&format!("!{previous}")).await;
    browser.keys("p").await;
    browser.wait(&at(1)).await;
    browser.wait(saved).await;
    browser.keys("n").await;
    browser.wait(&at(2)).await;
    browser.wait(&has("2 left")).await;
    browser.keys("x").await;
    browser.wait(saved).await;
    // The same key again withdraws it.
    browser.keys("x").await;
    browser
        .wait(&format!(
            "{saved} && !document.querySelector('[aria-pressed=true].rejected')"
        ))
        .await;
    browser.keys("x").await;
    browser.wait(saved).await;

    // Another person decides. What others decided is shown after the own decision only.
    for (number, what) in [(1, "accept"), (2, "accept"), (3, "reject")] {
        let path = format!("/api/data/t/{number}");
        let id = studio.json(&path).await["row"]["id"].clone();
        let body = decision(&id, "bob", what);
        let answer = studio
            .put(&format!("{path}/review"), &body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
    // The page that is open shows how far they agree.
    browser
        .wait("location.pathname === '/review/t/2' && document.body.textContent.includes('50.0 %')")
        .await;
    browser
        .wait("/kappa of (ann and bob|bob and ann)/.test(document.body.innerText)")
        .await;
    browser.open(&format!("{}/review/t/1", studio.url)).await;
    browser.wait(&has("bob: accept")).await;
    assert_eq!(
        browser
            .value("document.querySelectorAll('.card b').length")
            .await,
        0
    );
    browser
        .value("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        .await;
    browser
        .wait("document.body.textContent.includes('50.0 %')")
        .await;
    browser.open(&format!("{}/review/t/3", studio.url)).await;
    browser.wait(&at(3)).await;
    assert_eq!(browser.value(&has("bob: ")).await, false);
    // The list finds what they disagree on.
    browser
        .open(&format!("{}/data/t?review=disputed", studio.url))
        .await;
    browser
        .wait("document.querySelectorAll('tbody tr').length === 1 && document.querySelector('tbody a').innerText === '2'")
        .await;
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_decides_on_rows_of_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.jsonl");
    std::fs::write(
        &rows,
        r#"{"messages": [{"role": "user", "content": "Count."}]}"#,
    )
    .unwrap();
    let studio = Studio::start(&[&rows]).await;
    let body = decision(&json!("0".repeat(64)), "ann", "accept");
    let answer = studio
        .put("/api/data/rows.jsonl/1/review", &body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert!(answer.text().await.unwrap().contains("open the run"));
    assert!(studio.interrupt().success());
}
