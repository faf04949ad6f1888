//! Turns that a model writes.

use std::collections::VecDeque;
use std::sync::Mutex;

use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::Price;
use pybench_testing::endpoint::{Answer, Endpoint};
use pybench_types::human_edit::{AuthorKind, TurnAuthor};
use serde_json::json;

use super::*;
use crate::edit::continuation::{Continuation, ContinueRequest};
use crate::model_choice::ModelEndpoint;
use crate::saved_edits;

/// Sends these replies, then writes for ever.
struct Scripted(Mutex<VecDeque<String>>);

#[async_trait::async_trait]
impl ChatModel for Scripted {
    fn name(&self) -> &str {
        "helper"
    }
    fn price(&self) -> Option<Price> {
        Some(Price {
            prompt: 1.0,
            completion: 1.0,
        })
    }
    async fn reply(&self, _: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let next = self.0.lock().unwrap().pop_front();
        let Some(content) = next else {
            return std::future::pending().await;
        };
        Ok(Reply {
            content,
            usage: Usage {
                prompt_tokens: 10,
                completion_tokens: 5,
            },
            truncated: false,
            repetition: false,
        })
    }
}

/// A request for one turn.
fn one_turn() -> ContinueRequest {
    ContinueRequest {
        after: 0,
        agent: Some("a".into()),
        endpoint: None,
        file: None,
        turns: 1,
        tokens: 1_000_000,
        usd: Some(5.0),
    }
}

fn by_model(replies: &[String], request: &ContinueRequest) -> Result<Continuation, RunError> {
    let agent = json!({"kind": "openai", "model": "m", "base_url": "http://h/v1"});
    let settings = json!({"label": "a", "agent": agent});
    let settings = serde_json::from_value(settings).unwrap();
    let replies = replies.iter().cloned().collect();
    Continuation::new(&settings, Arc::new(Scripted(Mutex::new(replies))), request)
}

#[tokio::test]
async fn a_model_continues_within_its_limits_and_its_turns_are_known_as_its_own() {
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    let note = || fork.view().continuation.unwrap().note;
    until(&fork, Phase::Waiting).await;
    fork.send(0, vec![cell("I count again.", "better")])
        .unwrap();
    until(&fork, Phase::Waiting).await;
    let step = FORMAT.write_step("I go on.", "more");
    let stale = fork.continue_by(0, by_model(&[], &one_turn()).unwrap());
    assert_eq!(stale.unwrap_err().exit_code(), ExitCode::Conflict);
    fork.continue_by(1, by_model(&[step], &one_turn()).unwrap())
        .unwrap();
    until(&fork, Phase::Waiting).await;
    assert!(note().contains("1 turns"), "{}", note());
    let view = fork.view();
    let shown = view.continuation.unwrap();
    assert_eq!(
        (shown.turns, shown.tokens, shown.micro_usd, shown.working),
        (1, 15, Some(15), false)
    );
    assert_eq!(view.turns[1].completion_tokens, Some(5));

    // It writes for ever.
    fork.continue_by(2, by_model(&[], &one_turn()).unwrap())
        .unwrap();
    assert_eq!(fork.view().phase, Phase::Running);
    fork.stop();
    until(&fork, Phase::Waiting).await;
    assert!(note().contains("stopped"), "{}", note());
    for (request, expected) in [
        (
            ContinueRequest {
                tokens: 10,
                ..one_turn()
            },
            "tokens, and 10 of 10",
        ),
        (
            ContinueRequest {
                usd: Some(0.0),
                ..one_turn()
            },
            "may cost",
        ),
    ] {
        let never = [FORMAT.write_answer("2")];
        fork.continue_by(2, by_model(&never, &request).unwrap())
            .unwrap();
        until(&fork, Phase::Waiting).await;
        assert!(note().contains(expected), "{}", note());
    }

    let answer = [FORMAT.write_answer("2")];
    fork.continue_by(2, by_model(&answer, &one_turn()).unwrap())
        .unwrap();
    until(&fork, Phase::Checked).await;
    bench.save(&fork, true, true).unwrap();
    let view = fork.view();
    let info = view.saved.unwrap();
    assert_eq!(info.models, ["helper"]);
    let run = bench.folder.path().join("runs/r");
    let edit = saved_edits::edit(&run, recorded().id.as_str(), &info.id)
        .unwrap()
        .unwrap();
    let kinds: Vec<AuthorKind> = edit.lineage.authors.iter().map(|one| one.kind).collect();
    assert_eq!(
        kinds,
        [AuthorKind::Human, AuthorKind::Model, AuthorKind::Model]
    );
    let teacher = edit.trajectory.teacher;
    assert!(teacher.ends_with("+helper"), "{teacher}");

    // It is begun again with the same turns, without the model.
    let again = bench
        .begin(bench.plan(2, ""), view.written)
        .unwrap()
        .unwrap();
    until(&again, Phase::Checked).await;
    bench.save(&again, true, false).unwrap();
    assert_eq!(again.view().saved.unwrap().id, info.id);
    // Only the studio says what a model wrote.
    let forged = WrittenTurn {
        model: Some("0".repeat(64)),
        ..WrittenTurn::default()
    };
    let error = bench
        .begin(bench.plan(2, ""), vec![forged])
        .err()
        .map(text_of);
    assert!(error.unwrap().contains("does not have the reply"));
}

#[test]
fn limits_of_a_model_are_checked() {
    for (request, expected) in [
        (
            ContinueRequest {
                turns: 0,
                ..one_turn()
            },
            "`turns`",
        ),
        (
            ContinueRequest {
                tokens: 0,
                ..one_turn()
            },
            "`tokens`",
        ),
        (
            ContinueRequest {
                usd: Some(f64::NAN),
                ..one_turn()
            },
            "`usd`",
        ),
    ] {
        let error = by_model(&[], &request).err().map(text_of).unwrap();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_the_recipe_goes_on_in_the_format_of_the_recorded_trajectory() {
    let endpoint = Endpoint::start(|request| async move {
        let has_seen = request["messages"].to_string().contains("better 2");
        let answer = if has_seen { "2" } else { "unseen" };
        Answer::Content(FORMAT.write_answer(answer))
    })
    .await;
    let bench = Bench::new(LONG);
    let recipe = format!(
        "name = 't'\n[agents.m]\nkind = 'openai'\nmodel = 'm'\nbase_url = '{}'\n[rollout]\nformat = 'tools'\n",
        endpoint.base_url()
    );
    std::fs::write(bench.folder.path().join("agents.toml"), recipe).unwrap();
    assert_eq!(bench.forks.models().list().agents, ["m"]);
    let turns = vec![cell("I count again.", "better")];
    let fork = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    let request = |agent: &str| ContinueRequest {
        after: 1,
        agent: Some(agent.into()),
        usd: None,
        ..one_turn()
    };
    let unknown = bench.forks.continue_by(&fork, &request("n")).await;
    assert!(text_of(unknown.unwrap_err()).contains("(agents: m)"));
    // The price of the model is unknown.
    let paid = ContinueRequest {
        usd: Some(1.0),
        ..request("m")
    };
    let refused = bench.forks.continue_by(&fork, &paid).await;
    assert!(text_of(refused.unwrap_err()).contains("`usd`"));
    bench.forks.continue_by(&fork, &request("m")).await.unwrap();
    until(&fork, Phase::Checked).await;
    let view = fork.view();
    assert!(view.verdict.unwrap().accepted);
    let shown = view.continuation.unwrap();
    assert_eq!(
        (shown.turns, shown.micro_usd, shown.working),
        (1, None, false)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_the_recipe_does_not_name_goes_on() {
    let answer = Answer::Content(FORMAT.write_answer("2"));
    let endpoint = Endpoint::always(answer).await;
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    let named = ModelEndpoint {
        address: endpoint.base_url(),
        model: "other".into(),
        key_env: None,
    };
    let request = |named: &ModelEndpoint| ContinueRequest {
        agent: None,
        endpoint: Some(named.clone()),
        usd: None,
        ..one_turn()
    };
    let why = async |request: ContinueRequest| {
        let refused = bench.forks.continue_by(&fork, &request).await;
        text_of(refused.unwrap_err())
    };
    // This variable is set, and must not be sent over http to another machine.
    let insecure = ModelEndpoint {
        address: "http://h/v1".into(),
        key_env: Some("PATH".into()),
        ..named.clone()
    };
    let unset = ModelEndpoint {
        key_env: Some("PYBENCH_TEST_VARIABLE_THAT_IS_NOT_SET".into()),
        ..named.clone()
    };
    let several = ContinueRequest {
        file: Some("m.gguf".into()),
        ..request(&named)
    };
    let none = ContinueRequest {
        endpoint: None,
        ..request(&named)
    };
    assert!(why(request(&insecure)).await.contains("over https"));
    assert!(why(request(&unset)).await.contains("not set"));
    assert!(why(several).await.contains("several models"));
    assert!(why(none).await.contains("no model"));
    // What was refused is not offered.
    assert_eq!(bench.forks.models().list().endpoints, Some(Vec::new()));
    let allowed = request(&named);
    bench.forks.continue_by(&fork, &allowed).await.unwrap();
    until(&fork, Phase::Checked).await;
    let view = fork.view();
    assert!(view.verdict.unwrap().accepted);
    assert_eq!(view.authors, [TurnAuthor::model("openai:other")]);
    assert_eq!(bench.forks.models().list().endpoints, Some(vec![named]));
}

#[tokio::test]
async fn no_turn_is_taken_back_while_a_model_writes() {
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    fork.send(0, vec![cell("I count again.", "better")])
        .unwrap();
    until(&fork, Phase::Waiting).await;
    // It writes for ever.
    fork.continue_by(1, by_model(&[], &one_turn()).unwrap())
        .unwrap();
    let refused = fork.back(0).unwrap_err();
    assert_eq!(refused.exit_code(), ExitCode::Conflict);
    assert!(refused.to_string().contains("stop it"), "{refused}");
    assert_eq!(fork.view().written.len(), 1);
    fork.stop();
    until(&fork, Phase::Waiting).await;
    fork.back(0).unwrap();
    until(&fork, Phase::Waiting).await;
    assert_eq!(fork.view().written, []);
    // Its answer ends its work.
    let answer = [FORMAT.write_answer("2")];
    fork.continue_by(0, by_model(&answer, &one_turn()).unwrap())
        .unwrap();
    until(&fork, Phase::Checked).await;
    fork.back(0).unwrap();
    until(&fork, Phase::Waiting).await;
    assert_eq!(fork.view().written, []);
}
