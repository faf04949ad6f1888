//! The message formats with their real parts: the expert speaks each of them and is believed, and an
//! endpoint that calls the function several times at once is answered call by call.

use std::sync::{Arc, Mutex};

use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{FREE, RunFixture, code, interpreter_is_here, openai, recipe};
use pybench_agent::PybenchFormat;
use pybench_agent::{convert, format_named};
use pybench_types::trajectory::{End, Role, Verdict};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn the_expert_is_believed_in_every_format() {
    if !interpreter_is_here() {
        return;
    }
    for name in ["codeact", "tools", "code_interpreter"] {
        let rest = format!("[rollout]\nformat = '{name}'\n");
        let fixture = RunFixture::new(&recipe(4, "{ kind = 'expert' }", &rest)).await;
        for stage in ["rollout", "grade"] {
            let output = fixture.program(stage, &[]).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(code(&output), Some(0), "{stderr}");
        }
        let verdicts: Vec<Verdict> = fixture.lines("verdicts.jsonl");
        assert_eq!(verdicts.len(), 4);
        for verdict in &verdicts {
            assert!(verdict.accepted, "{name}: {:?}", verdict.findings);
        }
        let format = format_named(name).unwrap();
        for trajectory in fixture.trajectories() {
            assert_eq!((&*trajectory.format, trajectory.end), (name, End::Finished));
            let there = convert(&trajectory.messages, format, &PybenchFormat).unwrap();
            assert_eq!(there.reworded, [], "{name}");
            let back = convert(&there.messages, &PybenchFormat, format).unwrap();
            assert_eq!(back.messages, trajectory.messages);
        }
    }
}

fn completion(choice: &Value) -> Answer {
    let answer = json!({
        "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    });
    Answer::Bytes(answer.to_string().into_bytes())
}

/// A reply that calls a function with each of these cells.
fn calls(function: &str, cells: &[&str]) -> Answer {
    let call = |(n, cell): (usize, &&str)| {
        let arguments = json!({"code": cell}).to_string();
        let function = json!({"name": function, "arguments": arguments});
        json!({"id": format!("call_{n}_random"), "type": "function", "function": function})
    };
    let calls: Vec<Value> = cells.iter().enumerate().map(call).collect();
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    completion(&json!({"index": 0, "finish_reason": "tool_calls", "message": message}))
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_are_run_in_order_and_answered_one_by_one() {
    if !interpreter_is_here() {
        return;
    }
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let keep = seen.clone();
    let server = Endpoint::start(move |request| {
        keep.lock().unwrap().push(request.clone());
        let answered = request["messages"].as_array().unwrap().iter();
        let answered = answered.filter(|m| m["role"] == "tool").count();
        std::future::ready(match answered {
            0 => calls(
                "execute_python",
                &["x = 6 * 7\nprint(x)", "1 / 0", "print(x + 1)"],
            ),
            _ => Answer::Content("Finished: 43".to_owned()),
        })
    })
    .await;
    let rest = "[rollout]\nformat = 'tools'\n";
    let fixture = RunFixture::new(&recipe(1, &openai(&server.base_url(), FREE), rest)).await;
    let output = fixture.rollout(&[]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{output:?}");
    let trajectory = &fixture.trajectories()[0];
    let cells: Vec<_> = trajectory.turns[0].cells().collect();
    assert_eq!(cells, ["x = 6 * 7\nprint(x)", "1 / 0", "print(x + 1)"]);
    let answers = trajectory.messages.iter().filter(|m| m.role == Role::Tool);
    let answers: Vec<_> = answers.map(|m| m.content.as_str()).collect();
    assert_eq!((answers[0], answers[2]), ("42\n", "43\n"));
    assert!(answers[1].contains("ZeroDivisionError"), "{answers:?}");
    assert_eq!(trajectory.end, End::Finished);
    let format = format_named("tools").unwrap();
    let error = convert(&trajectory.messages, format, &PybenchFormat).unwrap_err();
    assert!(error.to_string().contains("several cells"), "{error}");

    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0]["tools"], format.tools().unwrap());
    let messages = seen[1]["messages"].as_array().unwrap();
    let asked = messages.iter().find(|m| m["role"] == "assistant").unwrap();
    let asked = asked["tool_calls"].as_array().unwrap();
    let answers = messages.iter().filter(|m| m["role"] == "tool");
    let ids: Vec<_> = answers.map(|m| &m["tool_call_id"]).collect();
    assert_eq!(
        ids,
        asked.iter().map(|call| &call["id"]).collect::<Vec<_>>()
    );
}

/// A reply of vLLM, which leaves out control tokens and names the one that ended the reply.
fn stopped_by(token: u32, content: &str) -> Answer {
    let message = json!({"role": "assistant", "content": content});
    completion(&json!({
        "index": 0, "finish_reason": "stop", "stop_reason": token, "message": message,
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_interpreter_is_used_however_an_endpoint_returns_it() {
    if !interpreter_is_here() {
        return;
    }
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let keep = seen.clone();
    let server = Endpoint::start(move |request| {
        keep.lock().unwrap().push(request.clone());
        let answered = request["messages"].as_array().unwrap().iter();
        let answered = answered.filter(|m| m["role"] == "tool").count();
        std::future::ready(match answered {
            0 => stopped_by(128_008, "x = 6 * 7\nprint(x)"),
            1 => calls("code_interpreter", &["print(x + 1)"]),
            2 => Answer::Content("<|python_tag|>1 / 0".to_owned()),
            _ => stopped_by(128_009, "Finished: 43"),
        })
    })
    .await;
    let rest = "[rollout]\nformat = 'code_interpreter'\n";
    let fixture = RunFixture::new(&recipe(1, &openai(&server.base_url(), FREE), rest)).await;
    let output = fixture.rollout(&[]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{output:?}");
    let trajectory = &fixture.trajectories()[0];
    assert_eq!(trajectory.end, End::Finished);
    let cells = ["x = 6 * 7\nprint(x)", "print(x + 1)", "1 / 0"];
    let found = trajectory.turns.iter().flat_map(|turn| turn.cells());
    assert_eq!(found.collect::<Vec<_>>(), cells);

    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|request| request.get("tools").is_none()));
    let messages = seen[3]["messages"].as_array().unwrap();
    assert!(
        messages[0]["content"]
            .as_str()
            .unwrap()
            .starts_with("Environment: ipython\n")
    );
    let of = |role: &str| {
        let of_role = messages.iter().filter(|message| message["role"] == role);
        let texts = of_role.map(|message| message["content"].as_str().unwrap());
        texts.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        of("assistant"),
        cells.map(|cell| format!("<|python_tag|>{cell}"))
    );
    let results = of("tool");
    assert_eq!(results[0], "completed\n[stdout]\n42\n\n[/stdout]");
    assert!(results[2].starts_with("error\n[stderr]\n") && results[2].contains("ZeroDivision"));
}
