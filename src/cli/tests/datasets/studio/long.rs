//! A trajectory of more turns than a page, and a list of more rows than a window.

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

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_has_only_the_rows_of_the_window() {
    const ROWS: usize = 1000;
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.jsonl");
    let row = |number: usize| {
        let query = json!({"role": "user", "content": format!("Task-{number}: count. ").repeat(number % 20 + 1)});
        let reply = json!({"role": "assistant", "content": "One."});
        json!({"messages": [query, reply]}).to_string()
    };
    let lines: Vec<String> = (1..=ROWS).map(row).collect();
    std::fs::write(&rows, lines.join("\n")).unwrap();
    let studio = Studio::start(&[&rows]).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    let has = |text: &str| format!("document.body.innerText.includes({text:?})");
    browser.open(&studio.link).await;
    browser.wait(&has("Task-1:")).await;

    // It is as high as all of its rows, but has few of them.
    let few = "document.querySelectorAll('.list tbody tr').length < 100";
    assert_eq!(browser.value(few).await, true);
    browser
        .value("scrollTo(0, document.scrollingElement.scrollHeight)")
        .await;
    browser.wait(&has("Task-1000:")).await;
    assert_eq!(browser.value(few).await, true);
    assert_eq!(browser.value(&has("Task-1:")).await, false);

    // The address has the place, so the page of a trajectory leads back to it.
    browser.wait("location.search.includes('from=')").await;
    browser
        .open(&format!("{}/data/rows.jsonl?from=499", studio.url))
        .await;
    browser.wait(&has("Task-500:")).await;
    let first = "(() => { const below = document.querySelector('header').getBoundingClientRect().bottom - 1; \
                 return [...document.querySelectorAll('.list tbody tr')].find((one) => \
                 one.getBoundingClientRect().top >= below)?.querySelector('a')?.innerText; })()";
    browser.wait(&format!("{first} === '500'")).await;
    browser.keys("jjj\u{e007}").await;
    browser
        .wait("location.pathname === '/data/rows.jsonl/503'")
        .await;
    browser.wait(&has("Turn 1")).await;
    browser.keys("n").await;
    browser
        .wait("location.pathname === '/data/rows.jsonl/504'")
        .await;
    browser.keys("u").await;
    browser.wait(&format!("{first} === '500'")).await;
    // The next hundred.
    browser.keys("n").await;
    browser.wait(&format!("{first} === '600'")).await;
    // What was there did not move meanwhile, except by scrolling.
    let moved = browser.shifts().await;
    assert!(moved < 0.05, "{moved}");

    // While the list is being indexed, a page that gets no answer asks again.
    let pretend = "(() => { const real = window.fetch; window.state = 'indexing'; window.fetch = async (path, init) => { \
                   const answer = await real(path, init); \
                   if (!path.startsWith('/api/data/rows.jsonl?') || window.state === 'whole') return answer; \
                   if (window.state === 'lost') throw new Error('lost'); \
                   return new Response(JSON.stringify({...await answer.json(), indexing: {rows: 9, problem: ''}})); }; })()";
    browser.value(pretend).await;
    browser
        .value("document.querySelector('.list th button').click()")
        .await;
    browser.wait(&has("Indexing: 9")).await;
    browser.value("window.state = 'lost'").await;
    browser.wait(&has("does not answer")).await;
    browser.value("window.state = 'whole'").await;
    let is_whole = format!("!{} && !{}", has("does not answer"), has("Indexing:"));
    browser.wait(&is_whole).await;
    assert!(studio.interrupt().success());
}
