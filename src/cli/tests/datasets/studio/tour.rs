//! A person goes through the studio: an edit that a model continues, files by pages, several evaluations side by side,
//! tasks before they are solved, failed units.

use std::io::Cursor;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::ImageFormat;
use pybench_agent as agent;
use pybench_run::{ContentStore, Failure, FailureKind, Journal};
use pybench_types::trajectory::Turn;
use serde_json::{Value, json};

use super::accessibility::has_no_serious_fault;
use super::browser::browser;
use super::compare::evaluation;
use super::edit::{Planted, planted};
use super::webdriver::Browser;
use super::{Studio, a_trajectory};
use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{RunFixture, openai, recipe};

const ENTER: char = '\u{e007}';
const CONTROL: char = '\u{e009}';
/// Rows of the table: a page has 100.
const ROWS: usize = 250;
/// A turn of five tokens and two costs a cent.
const PRICED: &str = ", price = { prompt = 1000.0, completion = 2500.0 }";

/// Does what the expert does: in an edit after a first turn that looks, in a conversation by function calls from the start.
fn continuation(solution: &[Turn], request: &Value) -> Answer {
    let messages = request["messages"].as_array().unwrap();
    let replies = messages.iter().filter(|one| one["role"] == "assistant");
    let by_calls = request["tools"].is_array();
    let format: &dyn agent::Format = match by_calls {
        true => &agent::ToolsFormat,
        false => &agent::PybenchFormat,
    };
    let turn = &solution[replies.count() - usize::from(!by_calls)];
    let reply = match turn.cells().next() {
        Some(cell) => format.write_step("I go on.", cell),
        None => {
            let answer = turn.reply.trim_start_matches("Finished:").trim();
            format.write_answer(answer)
        }
    };
    Answer::Content(reply.split(agent::END).next().unwrap().to_owned())
}

/// A run of two attempts: one read a picture, and wrote it upside down beside a table; the other one failed. The cell of the
/// first one showed a table and the picture.
fn run_with_files(planted: &RunFixture, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let store = ContentStore::open(&folder.join("files")).unwrap();
    let mut tasks = planted.tasks.iter();
    let task = tasks.find(|task| !task.files.is_empty()).unwrap();
    let id = task.files[0].id.as_str();
    let picture = planted.folder().join("files").join(&id[..2]).join(id);
    let picture = std::fs::read(picture).unwrap();
    store.put(&picture).unwrap();
    let mut turned = Cursor::new(Vec::new());
    let image = image::load_from_memory(&picture).unwrap().rotate180();
    image.write_to(&mut turned, ImageFormat::Png).unwrap();
    let rows: String = (1..=ROWS).map(|row| format!("{row},v{row}\n")).collect();
    let table = format!("number,value\n{rows}");
    let output = |path: &str, bytes: &[u8]| {
        let id = store.put(bytes).unwrap();
        json!({"path": path, "id": id, "size": bytes.len()})
    };
    let mut trajectory = a_trajectory("1");
    trajectory["task"] = json!(task.id);
    trajectory["teacher"] = json!("openai:m");
    trajectory["turns"][0]["observation"]["outputs"] = json!([
        {"output": "stream", "name": "stdout", "text": "   n  name\n0  1   ann\n1  2   bob\n"},
        {"output": "display", "data": {"image/png": STANDARD.encode(&picture)}},
    ]);
    trajectory["outputs"] = json!([
        output("output/table.csv", table.as_bytes()),
        output("output/turned.png", &turned.into_inner()),
    ]);
    let tasks = serde_json::to_string(task).unwrap();
    std::fs::write(folder.join("tasks.jsonl"), tasks + "\n").unwrap();
    let model = openai("http://127.0.0.1:1/v1", PRICED);
    std::fs::write(folder.join("recipe.toml"), recipe(1, &model, "")).unwrap();
    let journal = Journal::open(&folder.join("journal.sqlite")).unwrap();
    journal.enqueue("rollout", ["a", "b"]).unwrap();
    journal.complete("rollout", "a", &trajectory).unwrap();
    let busy = Failure::new(FailureKind::Endpoint, "rate_limited: 429 busy");
    journal.fail("rollout", "b", &busy, true).unwrap();
}

fn has(text: &str) -> String {
    format!("document.body.innerText.includes({text:?})")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_goes_through_the_studio() {
    let Some(planted) = planted().await else {
        return;
    };
    let fixture = &planted.fixture;
    let runs = fixture.path("data/runs");
    run_with_files(fixture, &runs.join("tables"));
    let trajectory: Value = fixture.lines("trajectories.jsonl").swap_remove(0);
    for (name, passed) in [
        ("after", [true, true, true, true]),
        ("before", [true, false, false, true]),
        ("last", [false, false, false, true]),
    ] {
        evaluation(&runs.join(name), &trajectory, &passed);
    }
    let solution = planted.solution.clone();
    let answer = move |request: Value| std::future::ready(continuation(&solution, &request));
    let endpoint = Endpoint::start(answer).await;
    let recipe = fixture.path("chat.toml");
    let agents = format!(
        "name = 't'\n[agents.m]\nkind = 'openai'\nmodel = 'm'\nbase_url = '{}'\n",
        endpoint.base_url()
    );
    std::fs::write(&recipe, agents).unwrap();
    let chats = fixture.path("chats");
    let args: [&Path; 6] = [
        "--runs-dir".as_ref(),
        &runs,
        "--chat-recipe".as_ref(),
        &recipe,
        "--chat-history".as_ref(),
        &chats,
    ];
    let studio = Studio::start(&args).await;
    let Some(browser) = browser(&studio).await else {
        return;
    };
    browser.open(&studio.link).await;
    browser.wait("!!document.querySelector('td a')").await;
    browser
        .value("localStorage.setItem('pybench-reviewer', 'ann')")
        .await;

    models_continue_an_edit(&studio, &browser, &planted, &endpoint.base_url()).await;
    a_conversation_is_graded(&studio, &browser, &planted).await;
    files_are_paged_and_compared(&studio, &browser).await;
    several_evaluations_lead_to_a_pair(&studio, &browser).await;
    a_task_is_changed(&studio, &browser).await;
    failed_units_are_retried(&studio, &browser).await;
    assert!(studio.interrupt().success());
}

async fn models_continue_an_edit(
    studio: &Studio,
    browser: &Browser,
    planted: &Planted,
    endpoint: &str,
) {
    let address = format!("{}/data/t/{}", studio.url, planted.number);
    browser.open(&address).await;
    browser.wait("!!document.querySelector('#turn-2')").await;
    browser.keys("jje").await;
    browser.wait(&has("waiting for your turn")).await;
    has_no_serious_fault(browser, "edit").await;

    // A model of the recipe may write one turn, and then a model that the person names those that are left.
    browser
        .wait("!!document.querySelector('#continue-agent')")
        .await;
    browser.keys("m").await;
    browser
        .wait("document.activeElement.id === 'continue-agent'")
        .await;
    browser
        .value("document.querySelector('input[name=turns]').value = 1")
        .await;
    browser.click_text("form button", "continue").await;
    browser.wait(&has("as many as you allowed")).await;
    browser.wait(&has("waiting for your turn")).await;
    let choice = "document.querySelector('#continue-agent')";
    browser.wait(&format!("!!{choice}")).await;
    browser
        .value(&format!(
            "(() => {{ const field = {choice}; field.value = field.options.length - 1; \
             field.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"
        ))
        .await;
    browser
        .wait("!!document.querySelector('input[name=address]')")
        .await;
    has_no_serious_fault(browser, "edit").await;
    browser
        .value(&format!(
            "(() => {{ const of = (name) => document.querySelector('input[name=' + name + ']'); \
             of('address').value = '{endpoint}'; of('model').value = 'other'; }})()"
        ))
        .await;
    browser.click_text("form button", "continue").await;
    browser.wait(&has("Accepted")).await;
    // Its choice stays, when the last turn is taken back.
    browser.keys("z").await;
    let chosen = format!("{choice}?.selectedOptions[0]?.textContent.startsWith('other at ')");
    browser.wait(&chosen).await;
    browser.click_text("form button", "continue").await;
    browser.wait(&has("Accepted")).await;
    let authors = "[...document.querySelectorAll('.turn.edited h2')]\
                   .map((one, at) => one.innerText.includes(at ? 'by openai:other' : 'by openai:m'))";
    let expected = vec![true; planted.solution.len()];
    assert_eq!(browser.value(authors).await, json!(expected));

    browser.keys("p").await;
    browser
        .wait("document.querySelector('.saved')?.innerText === 'saved: preference pair'")
        .await;
    let edits = studio.json("/api/data/t/edits").await;
    let saved = ["editor", "models", "repair", "pair"].map(|key| edits[0][key].clone());
    assert_eq!(
        json!(saved),
        json!(["ann", ["openai:m", "openai:other"], false, true])
    );
    let pairs = studio.answer("/api/data/t/preferences").await;
    let pair: Value = serde_json::from_str(&pairs.text().await.unwrap()).unwrap();
    let chosen = pair["chosen"][0]["content"].as_str().unwrap();
    assert!(chosen.contains("I go on."), "{pair:#}");
}

async fn a_conversation_is_graded(studio: &Studio, browser: &Browser, planted: &Planted) {
    let address = format!("{}/data/t/{}", studio.url, planted.number);
    browser.open(&address).await;
    browser.click_text("a", "chat about this task").await;
    browser.set("select[name=format]", "tools").await;
    browser.click_text("form button", "begin").await;
    // The model works on the task by itself, and the checks decide when they are asked.
    let cells: usize = (planted.solution.iter())
        .map(|turn| turn.cells().take(1).count())
        .sum();
    browser
        .wait(&format!(
            "document.querySelectorAll('section[aria-label=Reply] .code').length === {cells} && \
             [...document.querySelectorAll('button')].some((one) => !one.disabled && one.innerText === 'run the checks')"
        ))
        .await;
    assert_eq!(browser.value(&has("Accepted")).await, false);
    browser.click_text("button", "run the checks").await;
    browser.wait(&has("Accepted")).await;
    browser.wait(&has("checks, 0 not passed")).await;
    // Since it is accepted, it may become a row, which has the task.
    browser.click_text("button", "add to the dataset").await;
    browser.wait(&has("added to")).await;
    let rows = std::fs::read_to_string(planted.fixture.path("chats/dataset/rows.jsonl")).unwrap();
    let row: Value = serde_json::from_str(&rows).unwrap();
    let task = &planted.fixture.trajectories()[planted.number - 1].task;
    let columns = ["provenance", "format", "task_id"].map(|name| row[name].clone());
    assert_eq!(json!(columns), json!(["chat", "tools", task]));
}

async fn files_are_paged_and_compared(studio: &Studio, browser: &Browser) {
    browser.open(&format!("{}/data/tables/1", studio.url)).await;
    let shows = |first: usize, count: usize| {
        format!(
            "document.querySelectorAll('.files .sheet tbody tr').length === {count} && \
             document.querySelector('.files .sheet tbody td').innerText === '{first}'"
        )
    };
    browser.wait(&shows(1, 100)).await;
    // What the cell showed is a table and a picture; the turn has its tokens and its cost.
    browser.wait(&has("5 + 2 tokens, $0.0100")).await;
    browser
        .wait("document.querySelectorAll('.turn .sheet tbody tr').length === 2 && document.querySelector('.turn img')?.naturalWidth > 0")
        .await;
    browser.wait(&has("rows 1 to 100 of")).await;
    browser.click_text("nav button", "after").await;
    browser.wait(&shows(101, 100)).await;
    let to_row = "(() => { const field = document.querySelector('nav input[type=number]'); field.value = 201; \
                  field.dispatchEvent(new Event('change', {bubbles: true})); })()";
    browser.value(to_row).await;
    browser.wait(&shows(201, ROWS - 200)).await;
    browser.click_text("nav button", "← before").await;
    browser.wait(&shows(1, 100)).await;

    // The picture that was written is beside the one of its shape that was read.
    let pictures = "[...document.querySelectorAll('section[aria-label=\"Before and after\"] img')]";
    browser
        .wait(&format!(
            "{pictures}.length === 2 && {pictures}.every((one) => one.naturalWidth > 0)"
        ))
        .await;
    let names = browser
        .value(&format!("{pictures}.map((one) => one.alt)"))
        .await;
    assert!(names[0].as_str().unwrap().starts_with("picture"), "{names}");
    assert_eq!(names[1], "output/turned.png");
    has_no_serious_fault(browser, "trajectory with files").await;
}

async fn several_evaluations_lead_to_a_pair(studio: &Studio, browser: &Browser) {
    let two = format!("{}/compare?a=before&b=after", studio.url);
    browser.open(&two).await;
    browser.click_text("a", "more than two").await;
    browser
        .wait("!!document.querySelector('select[aria-label=C] option[value=last]')")
        .await;
    let third = "(() => { const field = document.querySelector('select[aria-label=C]'); field.value = 'last'; \
                 field.dispatchEvent(new Event('change', {bubbles: true})); })()";
    browser.value(third).await;
    let result = "document.querySelectorAll('section[aria-label=Result] tbody')";
    browser
        .wait(&format!(
            "{result}[0]?.rows.length === 3 && {result}[1].rows.length === 3"
        ))
        .await;
    // Three of the tasks differ between B and C: the test of the pair, and after Holm's correction.
    let of_pair =
        format!("[...{result}[1].rows].find((one) => one.innerText.startsWith('B and C'))");
    let text = browser.value(&format!("{of_pair}.innerText")).await;
    let text = text.as_str().unwrap();
    assert!(text.contains("0.2500") && text.contains("0.7500"), "{text}");
    browser
        .value(&format!("{of_pair}.querySelector('button').click()"))
        .await;
    browser.click_text(".pairs a", "B C").await;
    browser
        .wait("location.pathname === '/compare/pair' && location.search.includes('b=last')")
        .await;
    browser.wait(&has("differ from turn")).await;
}

async fn a_task_is_changed(studio: &Studio, browser: &Browser) {
    browser.open(&format!("{}/data/t", studio.url)).await;
    browser.click_text("header a", "tasks").await;
    browser
        .wait("!!document.querySelector('.draft textarea')?.value")
        .await;
    has_no_serious_fault(browser, "tasks").await;
    browser.keys("e").await;
    browser
        .wait("document.activeElement.tagName === 'TEXTAREA'")
        .await;
    browser
        .value(
            "(document.activeElement.setSelectionRange(10000, 10000), \
             document.execCommand('insertText', false, ' Be brief.'))",
        )
        .await;
    browser.chord(CONTROL, ENTER).await;
    browser.wait(&has("task 1 changed")).await;
    // It has left the queue.
    browser
        .wait("!!document.querySelector('section[aria-label=\"Task 2\"]')")
        .await;
    let changed = studio.json("/api/data/t/tasks?decision=changed").await;
    assert_eq!(changed["total"], 1, "{changed:#}");
    let review = &changed["tasks"][0]["review"];
    assert_eq!(review["reviewer"], "ann");
    let wording = review["query"].as_str().unwrap();
    assert!(wording.ends_with(" Be brief."), "{wording}");
}

async fn failed_units_are_retried(studio: &Studio, browser: &Browser) {
    browser.open(&format!("{}/data/tables", studio.url)).await;
    browser
        .click_text("details.progress summary", "Status of the run")
        .await;
    browser.wait(&has("busy")).await;
    browser
        .click_text(".failures button", "retry rollout endpoint")
        .await;
    let is_pending = "fetch('/api/data/tables/status').then((answer) => answer.json()).then((status) => \
                      status.stages.some((one) => one.stage === 'rollout' && one.pending === 1 && one.failed === 0))";
    browser.wait(is_pending).await;
    browser
        .wait("!document.querySelector('.failures button') || document.body.innerText.includes('are pending again')")
        .await;
}
