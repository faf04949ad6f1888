//! Leaderboards, learning curves, statistics and recipes in the browser.

use std::path::Path;

use serde_json::json;

use super::accessibility::has_no_serious_fault;
use super::browser::browser;
use super::compare::evaluation;
use super::{Studio, a_trajectory};

/// Runs with two evaluations and a training run.
fn runs(folder: &Path) {
    evaluation(&folder.join("before"), &a_trajectory("1"), &[true, false]);
    evaluation(&folder.join("after"), &a_trajectory("1"), &[true, true]);
    recipes_and_training(folder);
}

/// Gives the evaluations `before` and `after` recipes, and adds a training run.
pub(super) fn recipes_and_training(folder: &Path) {
    for (name, samples) in [("before", 1), ("after", 4)] {
        let recipe = format!("name = 'same'\n[rollout]\nsamples = {samples}\n");
        std::fs::write(folder.join(name).join("recipe.toml"), recipe).unwrap();
    }
    let trained = folder.join("trained");
    std::fs::create_dir_all(&trained).unwrap();
    let steps =
        (1..=4).map(|step| json!({"step": step, "loss": 1.0 / f64::from(step)}).to_string());
    let steps: Vec<String> = steps.collect();
    std::fs::write(trained.join("metrics.jsonl"), steps.join("\n")).unwrap();
    let shares = json!({"after": {"tasks": 20, "passed": 0.6}});
    let results = json!({"model": "<b>base", "steps": 4, "agent_eval": shares});
    std::fs::write(trained.join("results.json"), results.to_string()).unwrap();
}

/// An expression that tells whether a plot has the color of this element.
fn drawn(plot: usize, element: &str) -> String {
    format!(
        "(() => {{ \
         const canvas = document.querySelectorAll('.plot canvas')[{plot}]; \
         if (!canvas) return false; \
         const color = getComputedStyle(document.querySelector({element:?})).color.match(/\\d+/g).map(Number); \
         const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); \
         return data.some((_, at) => at % 4 === 0 && color.every((value, part) => data[at + part] === value)); \
         }})()"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_compared_in_the_browser() {
    let folder = tempfile::tempdir().unwrap();
    runs(folder.path());
    let studio = Studio::start(&["--runs-dir".as_ref(), folder.path()]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");
    let first = "document.querySelector('.leaderboard tbody tr')?.innerText";
    browser.open(&studio.link).await;
    browser
        .wait("!!document.querySelector('a[href=\"/results\"]')")
        .await;
    browser
        .value("document.querySelector('a[href=\"/results\"]').click()")
        .await;

    // What was measured here comes first; the best agent leads, with its interval.
    browser.wait(&format!("{first}.includes('100.0')")).await;
    browser.wait(&format!("{first}.includes('after')")).await;
    assert_eq!(
        browser
            .value("document.querySelectorAll('.leaderboard b').length")
            .await,
        0
    );
    browser
        .wait("!!document.querySelector('svg.interval line')")
        .await;
    // The published results are another suite, and can be hidden.
    browser
        .open(&format!("{}/results?suite=pybench", studio.url))
        .await;
    browser.wait(&has("GPT-4o-mini")).await;
    browser.wait(&has("were not measured here")).await;
    browser
        .open(&format!(
            "{}/results?suite=pybench&published=hide",
            studio.url
        ))
        .await;
    browser
        .wait("document.querySelector('.leaderboard tbody')?.rows.length === 0")
        .await;

    // A learning curve, and what the agent passed after the last step.
    browser.keys("u").await;
    browser.wait("location.pathname === '/'").await;
    browser
        .open(&format!("{}/results/training", studio.url))
        .await;
    browser.wait(&drawn(0, ".key.line-0")).await;
    browser.wait(&drawn(1, "a")).await;
    let words = "document.querySelector('.plot').getAttribute('aria-label')";
    browser
        .wait(&format!(
            "{words}.endsWith('loss: 1.00 at step 1, 0.250 at step 4')"
        ))
        .await;
    // The style sheet of the plots came, too.
    browser
        .wait("getComputedStyle(document.querySelector('.u-over')).position === 'absolute'")
        .await;
    browser.wait(&has("60.0 %")).await;
    browser.wait(&has("<b>base")).await;

    // Two recipes differ in one key.
    browser
        .open(&format!("{}/data/before/recipe", studio.url))
        .await;
    browser
        .wait("document.querySelectorAll('.recipe tbody tr').length === 2")
        .await;
    browser
        .open(&format!("{}/data/before/recipe?beside=after", studio.url))
        .await;
    browser
        .wait("document.querySelectorAll('.recipe tbody tr').length === 1")
        .await;
    browser.wait("document.querySelector('.recipe tbody tr').innerText.replace(/\\s+/g, ' ') === 'rollout.samples 1 4'").await;
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statistics_of_a_dataset_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let rows = super::one_row(folder.path());
    let studio = Studio::start(&[&rows]).await;
    let statistics = studio.json("/api/data/rows.jsonl/statistics").await;
    assert_eq!(statistics["conversations"], 1);
    let Some(browser) = browser(&studio).await else {
        return;
    };
    browser.open(&studio.link).await;
    browser
        .wait("!!document.querySelector('a[href$=\"/statistics\"]')")
        .await;
    browser
        .value("document.querySelector('a[href$=\"/statistics\"]').click()")
        .await;
    browser
        .wait("document.querySelectorAll('svg.bar rect').length > 0")
        .await;
    has_no_serious_fault(&browser, "statistics").await;
    assert!(studio.interrupt().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_has_its_data_at_its_own_address() {
    let folder = tempfile::tempdir().unwrap();
    runs(folder.path());
    let studio = Studio::start(&["--runs-dir".as_ref(), folder.path()]).await;
    for page in [
        "/",
        "/data/before",
        "/data/before/1",
        "/data/before/recipe?beside=after",
        "/compare?a=before&b=after",
        "/compare/matrix?a=before&b=after",
        "/compare/pair?a=before&a_number=1&b=after&b_number=1",
        "/review/before/1",
        "/edit/before/1/1",
        "/results",
        "/results/training",
        "/chat",
        "/chat?about=before&number=1",
    ] {
        let answer = studio.get(page).header("accept", "application/json");
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), reqwest::StatusCode::OK, "{page}");
        let text = answer.text().await.unwrap();
        assert!(
            serde_json::from_str::<serde_json::Value>(&text).is_ok(),
            "{page}: {text}"
        );
    }
    assert!(studio.interrupt().success());
}
