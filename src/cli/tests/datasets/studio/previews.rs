//! Files of each kind, in a browser.

use std::path::Path;

use super::browser::browser;
use super::{Studio, row_with_files};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/samples/files");

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_file_is_shown_in_its_way() {
    let files = [
        "chirp.wav",
        "pump_manual.pdf",
        "customers.csv",
        "projects.xlsx",
        "bees.html",
        "badge.png",
    ];
    let files = files.map(|name| {
        let bytes = std::fs::read(Path::new(SAMPLES).join(name)).unwrap();
        (name.to_owned(), bytes)
    });
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
