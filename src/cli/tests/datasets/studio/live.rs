//! Pages follow a run while it is written.

use std::fs::File;
use std::path::Path;

use pybench_run::{BudgetCap, Failure, FailureKind, Journal, Reservation};
use serde_json::json;

use super::browser::browser;
use super::{Studio, a_trajectory};

/// Number of requests for data that the page has sent, and of those for events.
const REQUESTS: &str =
    "performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/')).length";

/// A run of four attempts, of which one is done. It goes on as long as the lock is held.
fn begin(folder: &Path) -> (Journal, File) {
    std::fs::create_dir_all(folder).unwrap();
    let journal = Journal::open(&folder.join("journal.sqlite")).unwrap();
    journal.enqueue("rollout", ["a", "b", "c", "d"]).unwrap();
    journal
        .complete("rollout", "a", &a_trajectory("1"))
        .unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    (journal, lock)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_follows_a_run_without_asking_for_it() {
    let runs = tempfile::tempdir().unwrap();
    let (journal, lock) = begin(&runs.path().join("r"));
    let studio = Studio::start(&["--runs-dir".as_ref(), runs.path()]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");
    let rows =
        |count: usize| format!("document.querySelectorAll('.rows tbody tr').length === {count}");
    browser.open(&studio.link).await;
    browser.wait(&has("running")).await;

    // A run that is begun now appears, in the order of the names.
    let (_other, _lock) = begin(&runs.path().join("before"));
    browser
        .wait("[...document.querySelectorAll('td a')].map((one) => one.innerText).join() === 'before,r'")
        .await;

    browser.open(&format!("{}/data/r", studio.url)).await;
    browser.wait(&rows(1)).await;
    browser.wait(&has("1 trajectories")).await;
    browser
        .wait(
            "performance.getEntriesByType('resource').some((one) => one.name.endsWith('/facets'))",
        )
        .await;
    browser.value("window.same = true").await;
    // While nothing happens, nothing is asked.
    let asked = browser.value(REQUESTS).await;
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(browser.value(REQUESTS).await, asked);

    // A call is paid, and half of the attempts are done.
    let paid = Reservation {
        micro_usd: 1_500_000,
        tokens: 7,
    };
    journal.reserve("call", paid, BudgetCap::default()).unwrap();
    journal.settle("call", paid, &json!({})).unwrap();
    journal
        .complete("rollout", "b", &a_trajectory("2"))
        .unwrap();
    browser.wait(&has("2 trajectories")).await;
    browser.wait(&has("$1.50")).await;
    browser.wait(&has("about $3.00 at the end")).await;
    let speed = "(() => { const row = document.querySelector('.stages tbody tr'); \
                 return !!row && Number(row.cells[5].innerText) > 0 && row.cells[6].innerText !== ''; })()";
    browser.wait(speed).await;
    browser.wait(&rows(2)).await;
    let busy = Failure::new(FailureKind::Endpoint, "rate_limited: 429 <b>busy</b>");
    journal.fail("rollout", "c", &busy, true).unwrap();
    browser.wait(&has("1 rollout/endpoint/rate_limited")).await;
    browser.wait(&has("<b>busy</b>")).await;
    journal
        .complete("rollout", "d", &a_trajectory("3"))
        .unwrap();
    drop(lock);
    browser.wait(&rows(3)).await;
    browser
        .wait("!!document.querySelector('header .failed')")
        .await;
    // It is the same page.
    assert_eq!(browser.value("window.same").await, true);
    let status = studio.json("/api/data/r/status").await;
    let found = [&status["info"]["state"], &status["failures"][0]["retry"]];
    assert_eq!(json!(found), json!(["failed", "command"]));
    // A page that follows the run does not keep the studio from ending.
    assert!(studio.interrupt().success());
}
