//! A person limits a list: by each column of a dataset, by scores, failed checks, errors, costs and decisions of an evaluation.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::browser;
use super::compare::evaluation_of;
use super::webdriver::Browser;
use super::{Studio, a_trajectory};

/// Waits until the list has these rows.
async fn shows(browser: &Browser, numbers: &str) {
    let shown = "[...document.querySelectorAll('.list tbody tr')].map((one) => one.cells[0].innerText.trim()).join()";
    browser.wait(&format!("{shown} === {numbers:?}")).await;
}

/// Chooses a value of a filter, or writes it, and takes it back after the list has these rows.
async fn limits(browser: &Browser, label: &str, value: &str, numbers: &str, all: &str) {
    browser
        .set(&format!("form [aria-label={label:?}]"), value)
        .await;
    shows(browser, numbers).await;
    // A link has it, too.
    let address = browser.value("location.href").await;
    browser.open("about:blank").await;
    browser.open(address.as_str().unwrap()).await;
    shows(browser, numbers).await;
    browser.click_text("form button", "clear").await;
    shows(browser, all).await;
}

/// A row with one reply for each of these texts.
fn row(columns: Value, kinds: &[&str], replies: &[&str]) -> String {
    let mut row = columns;
    let files = kinds.iter().map(|kind| json!({"kind": kind}));
    row["files"] = files.collect();
    let mut messages = vec![json!({"role": "user", "content": "Count."})];
    for reply in replies {
        messages.push(json!({"role": "assistant", "content": reply}));
        messages.push(json!({"role": "user", "content": "Go on."}));
    }
    row["messages"] = json!(messages);
    row.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_is_filtered_by_each_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let first = json!({"category": "chart", "keyword": "a", "template": "t1", "language": "en", "teacher": "m1",
        "end": "finished", "task_id": "x", "tokens": {"prompt": 10, "completion": 5}});
    let second = json!({"category": "text", "keyword": "b", "template": "t2", "language": "zh", "teacher": "m2",
        "end": "max_turns", "task_id": "y", "tokens": {"prompt": 100, "completion": 5}});
    let third = json!({"category": "chart", "keyword": "b", "template": "t1", "language": "en", "teacher": "m1",
        "end": "finished", "task_id": "x"});
    let rows = [
        row(first, &["csv", "png"], &["One."]),
        row(second, &["csv"], &["One.", "Two."]),
        row(third, &[], &["I count."]),
    ];
    std::fs::write(&path, rows.join("\n")).unwrap();
    let studio = Studio::start(&[&path]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    browser.open(&studio.link).await;
    shows(&browser, "1,2,3").await;
    for (label, value, numbers) in [
        ("category", "chart", "1,3"),
        ("keyword", "b", "2,3"),
        ("template", "t2", "2"),
        ("file types", "csv", "1,2"),
        ("file types", "png", "1"),
        ("language", "zh", "2"),
        ("model", "m1", "1,3"),
        ("end", "max_turns", "2"),
        ("Minimum turns", "2", "2"),
        ("Maximum tokens", "20", "1"),
        ("Minimum tokens", "50", "2"),
    ] {
        limits(&browser, label, value, numbers, "1,2,3").await;
    }
    // Every user says the word, and one reply.
    browser
        .open(&format!("{}/data/rows.jsonl?search=count", studio.url))
        .await;
    shows(&browser, "1,2,3").await;
    limits(&browser, "Search in", "assistant", "3", "1,2,3").await;
    for numbers in ["3,1,2", "2,1,3"] {
        browser.click_text("th button", "tokens").await;
        shows(&browser, numbers).await;
    }
    browser
        .wait("location.search === '?sort=tokens&descending=true'")
        .await;
    // The page of a trajectory leads to all attempts at its task.
    browser
        .open(&format!("{}/data/rows.jsonl/1", studio.url))
        .await;
    browser.click_text("nav a", "all attempts").await;
    shows(&browser, "1,3").await;
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evaluation_is_filtered_by_what_failed_and_by_decisions() {
    let runs = tempfile::tempdir().unwrap();
    let (plain, mut failing) = (a_trajectory("1"), a_trajectory("2"));
    failing["turns"][0]["observation"]["error"] =
        json!({"ename": "KeyError", "evalue": "x", "traceback": ""});
    let attempts = [
        (&plain, true, Some(1_500)),
        (&failing, false, Some(20_000)),
        (&failing, true, None),
    ];
    evaluation_of(&runs.path().join("e"), &attempts);
    let studio = Studio::start(&["--runs-dir".as_ref(), runs.path()]).await;
    let id = studio.json("/api/data/e/3").await["row"]["id"].clone();
    let review = json!({"trajectory": id, "reviewer": "ann", "decision": "accept", "label": "odd", "comment": ""});
    let answer = studio.put("/api/data/e/3/review", &review).send();
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    let Some(browser) = browser(&studio).await else {
        return;
    };
    browser.open(&studio.link).await;
    browser.wait("!!document.querySelector('td a')").await;
    browser.open(&format!("{}/data/e", studio.url)).await;
    shows(&browser, "1,2,3").await;
    for (label, value, numbers) in [
        ("strict", "failed", "2"),
        ("rejected by", "answer", "2"),
        ("error", "KeyError", "2,3"),
        ("Maximum US dollars", "0.01", "1"),
        ("Minimum US dollars", "0.01", "2"),
        ("Decisions", "undecided", "1,2"),
        ("Label", "odd", "3"),
    ] {
        limits(&browser, label, value, numbers, "1,2,3").await;
    }
    assert!(studio.interrupt().success());
}
