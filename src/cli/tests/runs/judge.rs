//! The language model that judges: an opinion beside the checks, which decides only where it is told to,
//! and never by an answer that cannot be read.

use std::sync::{Arc, OnceLock};

use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{RunFixture, code, interpreter_is_here, recipe};
use pybench_types::task::Task;
use pybench_types::trajectory::Verdict;

const PRICE: &str = "price = { prompt = 1.0, completion = 1.0 }";

/// Says of each third task that it passes, something, and that it fails.
async fn judge(tasks: Arc<OnceLock<Vec<Task>>>) -> Endpoint {
    Endpoint::start(move |request| {
        let text = request["messages"][0]["content"].as_str().unwrap();
        assert_eq!(request["temperature"], 0.0);
        assert!(request.get("tools").is_none());
        let mut tasks = tasks.get().unwrap().iter();
        let at = tasks.position(|task| text.contains(&task.query)).unwrap();
        let said = match at % 3 {
            0 => "It is there.\nVERDICT: PASS",
            1 => "VERDICT: PASS, I should think, but then",
            _ => "Nothing is right.\n**VERDICT: FAIL**",
        };
        std::future::ready(Answer::Content(said.to_owned()))
    })
    .await
}

async fn run(decides: bool) -> Option<(RunFixture, Endpoint)> {
    if !interpreter_is_here() {
        return None;
    }
    let known: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let server = judge(known.clone()).await;
    let filters = match decides {
        true => "filters = ['format', 'finished', 'outputs', 'check', 'judge', 'duplicate']\n",
        false => "",
    };
    let rest = format!(
        "[rollout]\nformat = 'tools'\n[budget]\nusd = 1.0\n[grade]\n{filters}[grade.judge]\n\
         teacher = {{ kind = 'openai', model = 'j', base_url = '{}', {PRICE} }}\n",
        server.base_url()
    );
    let fixture = RunFixture::new(&recipe(6, "{ kind = 'expert' }", &rest)).await;
    known.set(fixture.tasks.clone()).unwrap();
    for stage in [
        "rollout", "grade",
        // Again: opinions are in the journal and not paid for twice.
        "grade",
    ] {
        let output = fixture.program(stage, &[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), Some(0), "{stderr}");
    }
    assert_eq!(server.call_count(), 6);
    assert_eq!(fixture.spent().micro_usd, 6 * 110);
    Some((fixture, server))
}

fn opinions(fixture: &RunFixture) -> Vec<(bool, Option<bool>)> {
    let verdicts: Vec<Verdict> = fixture.lines("verdicts.jsonl");
    let said = verdicts.iter().map(|verdict| {
        let opinion = verdict.opinion.as_ref().unwrap();
        assert_eq!(opinion.judge, "openai:j");
        (verdict.accepted, opinion.passed)
    });
    said.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_looks_on_changes_nothing_and_agreement_is_told() {
    let Some((fixture, _server)) = run(false).await else {
        return;
    };
    let third = [(true, Some(true)), (true, None), (true, Some(false))];
    assert_eq!(opinions(&fixture), [third, third].concat());
    let told = fixture.journal().metadata("judge").unwrap().unwrap();
    let told = told.as_str().unwrap();
    assert!(
        told.starts_with("judge openai:j: 2 pass, 2 fail, 2 abstained"),
        "{told}"
    );
    assert!(told.contains("on 50.0 % of 4"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_decides_rejects_but_an_abstention_never_does() {
    let Some((fixture, _server)) = run(true).await else {
        return;
    };
    let third = [(true, Some(true)), (true, None), (false, Some(false))];
    assert_eq!(opinions(&fixture), [third, third].concat());
    let verdicts: Vec<Verdict> = fixture.lines("verdicts.jsonl");
    let finding = verdicts[2]
        .findings
        .iter()
        .find(|f| f.filter == "judge")
        .unwrap();
    assert!(finding.detail.contains("Nothing is right"), "{finding:?}");
    assert!(verdicts[1].findings.iter().all(|f| f.filter != "judge"));
}
