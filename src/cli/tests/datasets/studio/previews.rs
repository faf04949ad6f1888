//! Files of each kind, in a browser.

use std::path::Path;

use super::browser::browser;
use super::{Studio, row_with_files};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/samples/files");
/// A moment of silence and a tone, in Opus, which only the browser decodes.
const OPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/datasets/studio");
/// The beginning of a sound in Opus, which the browser cannot decode.
const CUT: &[u8] = b"OggS\0\x02\0\0\0\0\0\0\0\0OpusHead";
/// Notes the height of each sound by what it says, at each change of the page.
const NOTE_HEIGHTS: &str = "(() => { window.heights = {}; const note = (one) => { \
    const height = one.getBoundingClientRect().height; \
    if (height) window.heights[one.innerText.trim()] = height; }; \
    new MutationObserver(() => document.querySelectorAll('.sound').forEach(note)) \
        .observe(document.body, {childList: true, subtree: true, characterData: true}); })()";

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_file_is_shown_in_its_way() {
    let files = [
        (SAMPLES, "chirp.wav"),
        (SAMPLES, "pump_manual.pdf"),
        (SAMPLES, "customers.csv"),
        (SAMPLES, "projects.xlsx"),
        (SAMPLES, "bees.html"),
        (SAMPLES, "badge.png"),
        (OPUS, "tone.opus"),
        (OPUS, "tone.webm"),
    ];
    let mut files = Vec::from(files.map(|(folder, name)| {
        let bytes = std::fs::read(Path::new(folder).join(name)).unwrap();
        (name.to_owned(), bytes)
    }));
    files.push(("cut.opus".to_owned(), CUT.to_vec()));
    let folder = tempfile::tempdir().unwrap();
    row_with_files(folder.path(), &files);
    let studio = Studio::start(&[folder.path()]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    browser.open(&studio.link).await;
    browser.wait("!!document.querySelector('td a')").await;
    browser
        .value("document.querySelector('td a').click()")
        .await;
    let of = |name: &str, expression: &str| {
        format!(
            "(() => {{ const one = [...document.querySelectorAll('.files li')].find((one) => one.innerText.startsWith('{name}')); \
             return !!one && {expression} }})()"
        )
    };
    for (name, expression) in [
        (
            "chirp.wav",
            "!!one.querySelector('svg.waveform path[d^=M]') && !!one.querySelector('audio')",
        ),
        (
            "pump_manual.pdf",
            "one.innerText.includes('page 1 of 2') && one.querySelector('pre').innerText.includes('pump')",
        ),
        (
            "customers.csv",
            "one.querySelectorAll('.sheet tbody tr').length > 5",
        ),
        (
            "projects.xlsx",
            "one.querySelectorAll('option').length === 2 && one.querySelectorAll('.sheet td').length > 5",
        ),
        (
            "bees.html",
            "one.querySelector('iframe')?.getAttribute('sandbox') === ''",
        ),
    ] {
        browser.wait(&of(name, expression)).await;
    }
    // Only the first six are open. The others take their height at once, and nothing below them moves.
    browser.value(NOTE_HEIGHTS).await;
    let drawn = "(one.querySelector('details').open = true, one.innerText.includes('0.60 s') \
                 && !!one.querySelector('svg.waveform path[d^=M]') && !!one.querySelector('audio'))";
    for name in ["tone.opus", "tone.webm"] {
        browser.wait(&of(name, drawn)).await;
    }
    let failed = "(one.querySelector('details').open = true, one.querySelector('.sound')?.innerText.includes('in the browser'))";
    browser.wait(&of("cut.opus", failed)).await;
    let heights = browser.value("window.heights").await;
    let heights = heights.as_object().unwrap();
    assert!(heights.contains_key("Decoding…"), "{heights:?}");
    let is_same = |height: &serde_json::Value| *height == heights["Decoding…"];
    assert!(
        heights.len() >= 3 && heights.values().all(is_same),
        "{heights:?}"
    );
    // Pictures are loaded when they come into view.
    browser
        .value("document.querySelector('img.preview').scrollIntoView()")
        .await;
    browser
        .wait(&of(
            "badge.png",
            "one.querySelector('img').naturalWidth > 0",
        ))
        .await;
    // The second page of the document, and the other table of the workbook.
    let next = "[...document.querySelectorAll('.files nav button')].find((one) => one.innerText.startsWith('after')).click()";
    browser.value(next).await;
    browser
        .wait(&of(
            "pump_manual.pdf",
            "one.innerText.includes('page 2 of 2')",
        ))
        .await;
    let head = "document.querySelector('.files select').closest('li').querySelector('.sheet thead').innerText";
    let before = browser.value(head).await;
    let choose = "(() => { const field = document.querySelector('.files select'); field.value = 1; \
                  field.dispatchEvent(new Event('change', {bubbles: true})); })()";
    browser.value(choose).await;
    browser.wait(&format!("{head} !== {before}")).await;
    assert!(studio.interrupt().success());
}
