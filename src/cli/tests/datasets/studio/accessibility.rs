//! The pages by axe-core: none has a serious fault, in light and in dark, on a wide and on a narrow screen; nothing on them
//! moves by itself; and the keyboard reaches what the mouse does.

use serde_json::{Value, json};

use super::Studio;
use super::browser::browser;
use super::compare::evaluation;
use super::inspect_log::trajectory;
use super::results::recipes_and_training;
use super::webdriver::Browser;

/// Kept there by `pipelines/studio/web/build`.
const AXE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../pipelines/studio/web/dist/.axe.min.js"
);
/// A promise of the faults of the page that keep people out: rule, impact, and the elements.
const SERIOUS: &str = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations\
    .filter((one) => ['serious', 'critical'].includes(one.impact))\
    .map((one) => [one.id, one.impact, one.nodes.map((node) => node.html.slice(0, 200))]))";

/// How much wider the page is than the window, in pixels. The space of a scroll bar that is not needed does not count.
const OVERFLOW: &str =
    "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)";
/// How far parts of a page may move while it is loaded, as the sum of its layout shifts; up to 0.1 counts as good.
const MAX_SHIFT: f64 = 0.05;
/// Width of a phone, in pixels.
const NARROW: u32 = 390;

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

fn axe() -> Option<String> {
    let script = std::fs::read_to_string(AXE);
    if script.is_err() {
        pybench_testing::skip::missing_tool("axe-core: pipelines/studio/web/build");
    }
    script.ok()
}

async fn faults(browser: &Browser, axe: &str) -> Value {
    browser
        .value(&format!("(() => {{ {axe}\n; return true }})()"))
        .await;
    browser.value(SERIOUS).await
}

/// Checks the page that is shown, also in a narrow window, in which it does not scroll sideways.
pub(super) async fn has_no_serious_fault(browser: &Browser, page: &str) {
    let Some(axe) = axe() else { return };
    assert_eq!(faults(browser, &axe).await, json!([]), "{page}");
    browser.resize(NARROW).await;
    browser.wait(&format!("innerWidth === {NARROW}")).await;
    assert_eq!(browser.value(OVERFLOW).await, 0, "{page}, narrow");
    // The page still has the script.
    let found = browser.value(SERIOUS).await;
    assert_eq!(found, json!([]), "{page}, narrow");
    browser.restore_size().await;
    browser.wait(&format!("innerWidth > {NARROW}")).await;
}

/// A trajectory with an output that is wider and higher than its place.
fn wide() -> Value {
    let mut trajectory = trajectory();
    let output = &mut trajectory["turns"][0]["observation"]["outputs"][0];
    output["text"] = json!(format!("{}\n", "wide ".repeat(300)).repeat(100));
    trajectory
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_has_a_serious_fault() {
    let Some(axe) = axe() else { return };
    let runs = tempfile::tempdir().unwrap();
    for (name, passed) in [
        ("before", [true, false, true]),
        ("after", [true, true, true]),
    ] {
        evaluation(&runs.path().join(name), &wide(), &passed);
    }
    recipes_and_training(runs.path());
    let studio = Studio::start(&["--runs-dir".as_ref(), runs.path()]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    browser.open(&studio.link).await;

    // The check itself: a page with a fault has one.
    browser
        .wait("document.querySelectorAll('tbody tr').length === 2")
        .await;
    browser
        .value("document.body.append(new Image()) ?? (document.images[0].src = 'x.png')")
        .await;
    let planted = faults(&browser, &axe).await;
    assert_eq!(planted[0][0], "image-alt", "{planted}");

    let name = "localStorage.setItem('pybench-reviewer', 'ann')";
    browser.value(name).await;
    let pages = [
        ("/", "document.querySelectorAll('tbody tr').length === 2"),
        (
            "/data/before/2",
            "document.querySelectorAll('.turn').length === 2",
        ),
        (
            "/compare?a=before&b=after",
            "document.querySelectorAll('tbody tr').length > 0",
        ),
        (
            "/compare/matrix?a=before&b=after",
            "document.querySelectorAll('.pairs tbody tr').length === 3",
        ),
        (
            "/compare/pair?a=before&a_number=2&b=after&b_number=2",
            "document.querySelectorAll('.turn').length === 2",
        ),
        (
            "/chat",
            "document.querySelector('h1')?.innerText === 'Chat' && !!document.querySelector('main ul, [role=alert]')",
        ),
        (
            "/review/before/2",
            "document.querySelectorAll('.turn').length === 2",
        ),
        (
            "/data/before/recipe?beside=after",
            "document.querySelectorAll('.recipe tbody tr').length === 1",
        ),
        (
            "/results?suite=pybench",
            "document.querySelectorAll('.leaderboard tr.published').length > 3",
        ),
        (
            "/results/training",
            "document.querySelectorAll('.plot canvas').length > 0",
        ),
        // The last one stays open for its keys.
        (
            "/data/before",
            "document.querySelectorAll('tbody tr').length === 3",
        ),
    ];
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        for (path, ready) in pages {
            stands_still(&studio, &browser, path, ready).await;
            let found = faults(&browser, &axe).await;
            assert_eq!(found, json!([]), "{path}, {scheme}");
        }
        // The keys, in a dialog above the last page.
        browser.keys("?").await;
        browser
            .wait("!!document.querySelector('[role=dialog]')")
            .await;
        let found = faults(&browser, &axe).await;
        assert_eq!(found, json!([]), "keys, {scheme}");
    }
    browser.keys(ESCAPE).await;
    browser
        .wait("!document.querySelector('[role=dialog]')")
        .await;
    the_keyboard_presses_buttons(&browser).await;
    browser.resize(NARROW).await;
    for (path, ready) in pages {
        stands_still(&studio, &browser, path, ready).await;
        assert_eq!(browser.value(OVERFLOW).await, 0, "{path}");
        let found = faults(&browser, &axe).await;
        assert_eq!(found, json!([]), "{path}, narrow");
    }
}

/// Loads a page, which moves little meanwhile. Where an answer of a busy machine comes later than the page waits for it, it
/// moves; the same page moves each time only if it does so by itself.
async fn stands_still(studio: &Studio, browser: &Browser, path: &str, ready: &str) {
    let mut moved = f64::INFINITY;
    for _ in 0..3 {
        browser.open(&format!("{}{path}", studio.url)).await;
        browser.wait(ready).await;
        moved = browser.shifts().await;
        if moved < MAX_SHIFT {
            return;
        }
    }
    panic!("{path} moves while it is loaded: {moved}");
}

/// On the list of a run, `Enter` acts on what has the focus, and what had it gets it back from the list of keys.
async fn the_keyboard_presses_buttons(browser: &Browser) {
    browser
        .value("document.querySelector('th button').focus()")
        .await;
    browser.keys(ENTER).await;
    // It sorts, and opens no row.
    browser
        .wait("location.pathname === '/data/before' && location.search === '?descending=true'")
        .await;
    browser.keys("?").await;
    browser
        .wait("document.activeElement.getAttribute('role') === 'dialog'")
        .await;
    browser.keys(ESCAPE).await;
    browser.wait("!!document.activeElement.closest('th')").await;
}
