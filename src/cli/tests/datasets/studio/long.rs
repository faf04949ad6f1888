//! A trajectory of more turns than a page, and a list of more rows than a window.

use serde_json::{Value, json};

use super::Studio;
use super::accessibility::has_no_serious_fault;
use super::browser::browser;

const TURNS: usize = 450;
/// The turn that another trajectory changes.
const CHANGED: usize = 390;

#[tokio::test(flavor = "multi_thread")]
async fn long_trajectories_are_read_and_compared_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let message = |role: &str, text: String| json!({"role": role, "content": text});
    let mut messages = vec![message("user", "Count.".to_owned())];
    for turn in 1..=TURNS {
        messages.push(message("assistant", format!("reply {turn}")));
        messages.push(message("user", "Go on.".to_owned()));
    }
    let rows = folder.path().join("rows.jsonl");
    // The second one differs in one reply, and ends there.
    let mut other = messages[..2 * CHANGED].to_vec();
    other[2 * CHANGED - 1] = message("assistant", "another reply".to_owned());
    let lines =
        [&messages[..], &other[..]].map(|messages| json!({"messages": messages}).to_string());
    std::fs::write(&rows, lines.join("\n")).unwrap();
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
    let both = "a=rows.jsonl&a_number=1&b=rows.jsonl&b_number=2";
    for (query, first, lengths) in [
        ("", 1, [200, 200, 200]),
        ("&turn=390", 201, [200, 190, 200]),
        ("&turn=9999", 401, [50, 0, 50]),
    ] {
        let pair = studio
            .json(&format!("/api/compare/pair?{both}{query}"))
            .await;
        let length = |turns: &Value| turns.as_array().unwrap().len();
        let found = [&pair["a"]["turns"], &pair["b"]["turns"], &pair["turns"]].map(length);
        assert_eq!(found, lengths, "{query}");
        let numbers = ["first_turn", "turn_count", "first"].map(|key| pair[key].clone());
        assert_eq!(json!(numbers), json!([first, TURNS, CHANGED]), "{query}");
    }

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
    // The header stays above what is read.
    let stays = "scrollY > innerHeight && Math.abs(document.querySelector('header').getBoundingClientRect().top) < 1";
    browser.wait(stays).await;
    has_no_serious_fault(&browser, "page of a trajectory").await;

    // The key leads to the first divergence, which is on the second page; its address opens there again.
    let pair = format!("{}/compare/pair?{both}", studio.url);
    browser.open(&pair).await;
    browser.wait(&shows(1, 200)).await;
    browser.keys("d").await;
    browser.wait(&shows(201, 400)).await;
    let changed = "document.querySelector('#turn-390')?.textContent.includes('first difference')";
    browser.wait(changed).await;
    browser.wait("location.hash === '#turn-390'").await;
    browser.open("about:blank").await;
    browser.open(&format!("{pair}&turn=390")).await;
    browser.wait(&shows(201, 400)).await;
    browser.wait(changed).await;
    browser.value(later).await;
    browser.wait(&shows(401, 450)).await;
    browser
        .wait("document.querySelector('#turn-450').textContent.includes('B has ended')")
        .await;
    has_no_serious_fault(&browser, "page of a pair").await;
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
                   window.asked = (window.asked ?? 0) + 1; \
                   if (window.state === 'lost') throw new Error('lost'); \
                   if (window.state === 'refused') return new Response('{\"message\": \"no such list\"}', {status: 400}); \
                   return new Response(JSON.stringify({...await answer.json(), indexing: {rows: 9, problem: ''}})); }; })()";
    browser.value(pretend).await;
    browser
        .value("document.querySelector('.list th button').click()")
        .await;
    browser.wait(&has("Indexing: 9")).await;
    browser.value("window.state = 'lost'").await;
    browser.wait(&has("does not answer")).await;
    // One that is refused does not.
    browser.value("window.state = 'refused'").await;
    browser.wait(&has("no such list")).await;
    // Both pages in the window were asked for at once.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let asked = browser.value("window.asked").await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(browser.value("window.asked").await, asked);
    browser.value("window.state = 'whole'").await;
    browser
        .value("document.querySelector('.list th button').click()")
        .await;
    let is_whole = format!("!{} && !{}", has("no such list"), has("Indexing:"));
    browser.wait(&is_whole).await;

    // A row is added to the file, and appears.
    let next = folder.path().join("next");
    std::fs::write(&next, format!("{}\n{}", lines.join("\n"), row(ROWS + 1))).unwrap();
    std::fs::rename(next, &rows).unwrap();
    let count = "document.querySelector('.list').getAttribute('aria-rowcount')";
    browser.wait(&format!("{count} === '{}'", ROWS + 2)).await;
    assert!(studio.interrupt().success());
}
