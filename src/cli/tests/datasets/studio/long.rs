//! A trajectory of more turns than a page.

use serde_json::json;

use super::Studio;
use super::browser::browser;

const TURNS: usize = 450;

#[tokio::test(flavor = "multi_thread")]
async fn a_long_trajectory_is_read_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let message = |role: &str, text: String| json!({"role": role, "content": text});
    let mut messages = vec![message("user", "Count.".to_owned())];
    for turn in 1..=TURNS {
        messages.push(message("assistant", format!("reply {turn}")));
        messages.push(message("user", "Go on.".to_owned()));
    }
    let rows = folder.path().join("rows.jsonl");
    std::fs::write(&rows, json!({"messages": messages}).to_string()).unwrap();
    let studio = Studio::start(&[&rows]).await;
    let view = studio.json("/api/data/rows.jsonl/1").await;
    assert_eq!(
        json!([view["first_turn"], view["turn_count"]]),
        json!([1, TURNS])
    );
    assert_eq!(view["turns"].as_array().unwrap().len(), 200);
    let view = studio.json("/api/data/rows.jsonl/1?turn=450&from=7").await;
    assert_eq!(view["first_turn"], 401);
    assert_eq!(view["turns"][49]["text"], "reply 450");

    let Some(browser) = browser(&studio).await else {
        return;
    };
    let shows = |first: usize, last: usize| {
        format!(
            "document.querySelectorAll('.turn').length === {} && !!document.querySelector('#turn-{first}') \
             && !!document.querySelector('#turn-{last}')",
            last - first + 1
        )
    };
    browser.open(&studio.link).await;
    browser
        .open(&format!("{}/data/rows.jsonl/1", studio.url))
        .await;
    browser.wait(&shows(1, 200)).await;
    let later = "[...document.querySelectorAll('.pages button')].find((one) => one.innerText.includes('later')).click()";
    browser.value(later).await;
    browser.wait(&shows(201, 400)).await;
    browser.wait("location.hash === '#turn-201'").await;
    // The key for the turn before leads to the page before.
    browser.keys("k").await;
    browser.wait(&shows(1, 200)).await;
    browser.wait("location.hash === '#turn-200'").await;
    // A link to a turn opens its page, and shows the turn.
    browser.open("about:blank").await;
    browser
        .open(&format!("{}/data/rows.jsonl/1#turn-440", studio.url))
        .await;
    browser.wait(&shows(401, 450)).await;
    browser
        .wait("document.querySelector('#turn-440').getBoundingClientRect().top < innerHeight")
        .await;
}
