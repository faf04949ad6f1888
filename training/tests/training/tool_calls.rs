//! A tiny model learns to call a tool from rows of ours, and is asked through the server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use pybench_test_needs::skip;
use serde_json::{Value, json};

use crate::run::Project;
use crate::serving::Running;
use crate::support::jinja;

const QUESTION: &str = "2 + 2?";
const CODE: &str = "print(2 + 2)";
const ANSWER: &str = "Finished: it is 4.";
const THANKS: &str = "Thanks.";
const BYE: &str = "Bye.";

/// With all keys that vLLM writes, in its order.
const TOOLS: &str = r#"[{"type": "function", "function": {"name": "run", "description": "Runs code.", "parameters": {"type": "object", "properties": {"code": {"type": "string"}}}}}]"#;

fn tools() -> Value {
    serde_json::from_str(TOOLS).unwrap()
}

/// A row as our shards have it: the call is text.
fn row() -> Value {
    let call = json!({"name": "run", "arguments": {"code": CODE}});
    json!({"tools": TOOLS, "messages": [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": format!("\n<tool_call>\n{call}\n</tool_call>")},
        {"role": "tool", "content": "4\n"},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": THANKS},
        {"role": "assistant", "content": BYE},
    ]})
}

/// A model that knows the row by heart, with the given chat template.
fn learned(template: &str) -> Project {
    // vLLM has no smaller heads on a CPU.
    let shape = json!({"hidden_size": 48, "intermediate_size": 96, "head_dim": 32, "max_position_embeddings": 1024});
    let train = "max_seq_len=1024\nbatch_size=1\nmax_steps=300\n[optimizer]\nlearning_rate=0.01\nwarmup_steps=5";
    let project = Project::shaped(&shape, train);
    std::fs::write(project.path("train.jsonl"), row().to_string()).unwrap();
    std::fs::write(project.path("test.jsonl"), row().to_string()).unwrap();
    if !template.is_empty() {
        // The tokenizer of the tests splits two ends of line unless they are the end of the prompt.
        let source = std::fs::read_to_string(jinja(template)).unwrap();
        let source = source.replace("\\n\\n", "\\n");
        let source = source.replace("<think>\\n</think>\\n", "");
        std::fs::write(project.path("start/chat_template.jinja"), source).unwrap();
    }
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    project
}

static LLAMA: LazyLock<Project> = LazyLock::new(|| learned("call_json.jinja"));

fn model(project: &Project) -> PathBuf {
    project.path("out/model")
}

fn ask(messages: &Value, extra: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "messages": messages, "tools": tools(), "max_tokens": 60, "temperature": 0,
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn reply(server: &Running, messages: &[Value], extra: Value) -> Value {
    let answer = server.post("/v1/chat/completions", &ask(&json!(messages), extra));
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json()["choices"][0].clone()
}

fn assert_called(call: &Value) {
    assert_eq!(call["function"]["name"], "run", "{call}");
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments, json!({"code": CODE}));
}

/// The session of the row; each reply must be that of the row.
fn play(server: &Running) {
    let mut messages = vec![user(QUESTION)];
    let first = reply(server, &messages, json!({}));
    assert_eq!(first["finish_reason"], "tool_calls", "{first}");
    assert_eq!(first["message"]["content"], Value::Null);
    let calls = first["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1);
    assert_called(&calls[0]);
    messages.push(first["message"].clone());
    messages.push(json!({"role": "tool", "tool_call_id": calls[0]["id"], "content": "4\n"}));
    let second = reply(server, &messages, json!({}));
    assert_eq!(second["message"]["content"], ANSWER);
    assert_eq!(second["finish_reason"], "stop");
    messages.extend([second["message"].clone(), user(THANKS)]);
    let third = reply(server, &messages, json!({}));
    assert_eq!(third["message"]["content"], BYE);
}

#[test]
fn a_session_in_the_words_of_the_template() {
    play(&Running::start(&model(&LLAMA), &[]));
}

#[test]
fn a_session_with_a_template_that_knows_no_calls() {
    play(&Running::start(&model(&learned("")), &[]));
}

#[test]
fn a_call_is_streamed() {
    let server = Running::start(&model(&LLAMA), &[]);
    let body = ask(&json!([user(QUESTION)]), json!({"stream": true}));
    let events = server.post("/v1/chat/completions", &body).events();
    let deltas = events.iter().map(|event| &event["choices"][0]["delta"]);
    let calls: Vec<&Value> = deltas.filter_map(|delta| delta.get("tool_calls")).collect();
    assert_eq!(calls.len(), 1, "{events:?}");
    assert_called(&calls[0][0]);
    assert_eq!(calls[0][0]["index"], 0);
    let last = &events.last().unwrap()["choices"][0];
    assert_eq!(last["finish_reason"], "tool_calls");
}

#[test]
fn a_call_may_be_required_or_forbidden() {
    let server = Running::start(&model(&LLAMA), &[]);
    let named = json!({"type": "function", "function": {"name": "run"}});
    for choice in [json!("required"), named] {
        let reply = reply(&server, &[user(QUESTION)], json!({"tool_choice": choice}));
        assert_called(&reply["message"]["tool_calls"][0]);
    }
    let none = reply(&server, &[user(QUESTION)], json!({"tool_choice": "none"}));
    assert!(none["message"].get("tool_calls").is_none(), "{none}");
    // A tool of another name: what the model has learned is no call.
    let other = json!([{"type": "function", "function": {"name": "other"}}]);
    let other = reply(&server, &[user(QUESTION)], json!({"tools": other}));
    assert!(other["message"].get("tool_calls").is_none(), "{other}");
    for extra in [json!({"tool_choice": "always"}), json!({"tools": [{}]})] {
        let body = ask(&json!([user(QUESTION)]), extra);
        assert_eq!(server.post("/v1/chat/completions", &body).status, 400);
    }
}

/// The session with OpenAI's client, at once and streamed.
const CLIENT: &str = r#"
import json, sys
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1], api_key="none")
question, code, answer, thanks, bye = sys.argv[2:7]
common = dict(model="tiny", tools=json.loads(sys.argv[7]), max_tokens=60, temperature=0)
messages = [{"role": "user", "content": question}]
first = client.chat.completions.create(messages=messages, **common).choices[0]
assert first.finish_reason == "tool_calls", first
call, = first.message.tool_calls
assert call.function.name == "run" and json.loads(call.function.arguments) == {"code": code}, call
messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "4\n"}]
second = client.chat.completions.create(messages=messages, **common).choices[0]
assert second.message.content == answer and not second.message.tool_calls, second
messages += [second.message, {"role": "user", "content": thanks}]
third = client.chat.completions.create(messages=messages, **common).choices[0]
assert third.message.content == bye, third
with client.chat.completions.stream(messages=messages[:1], **common) as stream:
    done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    final = stream.get_final_completion().choices[0]
assert json.loads(done[0].arguments) == {"code": code}, done
assert final.message.tool_calls[0].function.name == "run" and final.finish_reason == "tool_calls", final
print("played")
"#;

/// Plays the session with OpenAI's client; the test is skipped if its Python environment cannot be made.
fn play_with_openais_client(address: &str) {
    let Some(python) = pybench_test_needs::python::environment("openai") else {
        return;
    };
    let output = Command::new(python)
        .args(["-c", CLIENT, &format!("http://{address}/v1")])
        .args([QUESTION, CODE, ANSWER, THANKS, BYE, TOOLS])
        .output()
        .unwrap();
    let (said, errors) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(said).trim(), "played", "{errors}");
}

#[test]
fn openais_client_plays_the_session() {
    play_with_openais_client(&Running::start(&model(&LLAMA), &[]).address);
}

/// Part of `just parity`.
#[test]
fn openais_client_plays_the_session_with_vllm() {
    let Some(program) = std::env::var_os("PYBENCH_VLLM").map(PathBuf::from) else {
        skip::unavailable("PYBENCH_VLLM does not name the program `vllm`");
        return;
    };
    // vLLM reads Llama's calls with a tokenizer that has Llama's tag only, which the one of the tests does not.
    let learned = learned("call_tags.jinja");
    let server = Running::start_vllm(&model(&learned), program.parent().unwrap());
    play_with_openais_client(&server.address);
}
