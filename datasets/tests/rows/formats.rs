//! Round trips between schemas: nothing is lost that both schemas can represent, and losses are reported.

use std::collections::BTreeMap;

use proptest::prelude::*;
use pybench_datasets::formats::{
    Call, ChatMessage, Conversation, MessageRole, Schema, TraceReader, of_row,
};
#[allow(dead_code)] // Here single rows are enough.
use pybench_testing::rows as common;
use pybench_types::trajectory::{Message, Role};
use serde_json::{Value, json};

fn back(schema: Schema, rows: &[Value]) -> Conversation {
    if schema != Schema::Traces {
        assert_eq!(rows.len(), 1);
        return schema.read(&rows[0]).unwrap();
    }
    let mut reader = TraceReader::default();
    for row in rows {
        assert_eq!(reader.line(row).unwrap(), None);
    }
    reader.finish().unwrap()
}

fn there_and_back(schema: Schema, conversation: &Conversation) -> (Conversation, Vec<String>) {
    let (rows, lost) = schema.write(conversation);
    (back(schema, &rows), lost.into_iter().collect())
}

/// The part of a conversation that both schemas can represent.
fn common_ground(one: Schema, other: Schema, conversation: &Conversation) -> Conversation {
    let (fitted, _) = one.fit(conversation);
    let (fitted, _) = other.fit(&fitted);
    one.fit(&fitted).0
}

fn roles() -> impl Strategy<Value = MessageRole> {
    prop_oneof![
        Just(MessageRole::User),
        Just(MessageRole::Assistant),
        Just(MessageRole::Tool)
    ]
}

fn messages() -> impl Strategy<Value = ChatMessage> {
    let call = ("[a-z]{1,8}", "[a-z_]{1,8}", "\\PC{0,20}").prop_map(|(id, name, code)| Call {
        id,
        name,
        arguments: json!({"code": code, "n": 1}),
    });
    (
        roles(),
        "\\PC{0,40}",
        proptest::option::of("\\PC{1,20}"),
        proptest::collection::vec(call, 0..3),
        proptest::option::of("[a-z]{1,8}"),
        proptest::bool::ANY,
    )
        .prop_map(
            |(role, content, reasoning, calls, call_id, trained)| ChatMessage {
                role,
                content,
                reasoning: reasoning.filter(|_| role == MessageRole::Assistant),
                calls: if role == MessageRole::Assistant {
                    calls
                } else {
                    vec![]
                },
                call_id: call_id.filter(|_| role == MessageRole::Tool),
                trained: trained || role != MessageRole::Assistant,
            },
        )
}

fn conversations() -> impl Strategy<Value = Conversation> {
    (
        proptest::option::of("[a-z0-9]{1,8}"),
        proptest::option::of("\\PC{0,30}"),
        proptest::collection::vec(messages(), 1..6),
        any::<bool>(),
        proptest::collection::vec(("[b-h]{1,6}", "\\PC{0,8}"), 0..3),
    )
        .prop_map(|(id, system, rest, tools, extra)| {
            let system = system.map(|text| ChatMessage::new(MessageRole::System, text));
            let messages = system.into_iter().chain(rest).collect();
            Conversation {
                id,
                messages,
                tools: if tools {
                    json!([{"type": "function"}])
                } else {
                    Value::Null
                },
                extra: extra.into_iter().map(|(k, v)| (k, v.into())).collect(),
            }
        })
}

proptest! {
    #[test]
    fn a_written_conversation_is_read_back_as_fitted(conversation in conversations()) {
        for schema in Schema::ALL {
            let (fitted, _) = schema.fit(&conversation);
            let (back, lost) = there_and_back(schema, &conversation);
            let mut expected = fitted.clone();
            if schema == Schema::Upstream {
                // Without a task number, the id is used as the task number.
                let name = fitted.id.clone().unwrap_or_default();
                expected.extra.entry("index").or_insert(name.into());
            }
            if schema == Schema::Ultrachat {
                prop_assert!(expected.extra.is_empty());
            }
            prop_assert_eq!(&back, &expected, "{}", schema.name());
            // Fitting twice loses nothing more.
            let (again, more) = schema.fit(&fitted);
            prop_assert_eq!(&again, &fitted, "{}", schema.name());
            prop_assert!(more.is_empty(), "{} {:?}", schema.name(), more);
            // A loss is reported if and only if the conversation changed.
            let mut unnamed = fitted.clone();
            if conversation.id.is_none() {
                unnamed.id = None;
            }
            prop_assert_eq!(lost.is_empty(), unnamed == conversation, "{} {:?}", schema.name(), lost);
        }
    }

    #[test]
    fn conversion_through_another_schema_keeps_what_both_can_represent(conversation in conversations()) {
        for one in Schema::ALL {
            for other in Schema::ALL {
                let ground = common_ground(one, other, &conversation);
                let (through, _) = there_and_back(other, &ground);
                let (mut back, _) = there_and_back(one, &through);
                back.extra.retain(|name, _| name != "index");
                prop_assert_eq!(&back.messages, &ground.messages, "{} {}", one.name(), other.name());
                prop_assert_eq!(&back.extra, &other.fit(&ground).0.extra, "{} {}", one.name(), other.name());
            }
        }
    }
}

#[test]
fn rows_of_real_datasets_are_read() {
    let cases = [
        (
            Schema::Pyinstruct,
            json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
                   "tools": null, "tool_choices": "auto"}),
        ),
        (
            Schema::CodeAct,
            json!({"id": "a", "conversations": [{"role": "system", "content": "s"},
                   {"role": "user", "content": "q"}]}),
        ),
        (
            Schema::CodeFeedback,
            json!({"id": 7, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]}),
        ),
        (
            Schema::Conversations,
            json!({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}]}),
        ),
        (
            Schema::Upstream,
            json!({"index": "2", "user": "q", "file_paths": ["./data/a.csv"],
                   "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]}),
        ),
        (
            Schema::Openai,
            json!({"messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]},
                                {"role": "user", "content": "q"}]}),
        ),
    ];
    let expected = [
        ChatMessage::new(MessageRole::System, "s"),
        ChatMessage::new(MessageRole::User, "q"),
    ];
    for (schema, row) in cases {
        let read = schema.read(&row).unwrap();
        assert_eq!(read.messages, expected, "{}", schema.name());
    }
    let upstream = json!({"index": "2", "category1": "c", "messages": []});
    let read = Schema::Upstream.read(&upstream).unwrap();
    assert_eq!(
        (read.id.as_deref(), &read.extra["category1"]),
        (Some("2"), &json!("c"))
    );
    let jupyter = json!({
        "id": "j", "question": "q", "answer": "3", "executor_type": "e2b", "files_used": ["a.csv"],
        "messages": [
            {"role": "assistant", "content": "t", "tool_calls": [{"id": "1", "type": "function",
             "function": {"name": "add_and_execute_jupyter_code_cell", "arguments": {"code": "1 + 2"}}}]},
            {"role": "tool", "content": "3", "tool_call_id": "1"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "2", "type": "function",
             "function": {"name": "final_answer", "arguments": "{\"answer\": \"3\"}"}}]},
        ],
    });
    let read = Schema::JupyterAgent.read(&jupyter).unwrap();
    assert_eq!(
        read.messages[0].calls[0].arguments,
        json!({"code": "1 + 2"})
    );
    assert_eq!(read.messages[2].calls[0].arguments, json!({"answer": "3"}));
    assert_eq!(read.extra["answer"], "3");
    let (rows, lost) = Schema::CodeFeedback.write(&read);
    assert_eq!(
        rows[0]["messages"][0]["content"],
        "t\n```python\n1 + 2\n```"
    );
    let lost: Vec<_> = lost.into_iter().collect();
    assert_eq!(
        lost,
        [
            "call ids",
            "column \"answer\"",
            "column \"executor_type\"",
            "column \"files_used\"",
            "column \"question\"",
            "the role of observations (written as user messages)",
            "tool calls (written as text)",
        ]
    );
}

/// What no schema has a place for, or only another one, is named instead of dropped.
#[test]
fn columns_and_fields_that_are_not_converted_are_named() {
    let row = json!({
        "id": "1", "source": "web", "tool_choices": "required", "tools": "[{\"type\": \"function\"}]",
        "messages": [{"role": "user", "content": "q", "name": "Ann", "weight": null}],
    });
    let read = Schema::CodeFeedback.read(&row).unwrap();
    let (_, lost) = Schema::CodeFeedback.write(&read);
    let lost: Vec<_> = lost.into_iter().collect();
    assert_eq!(
        lost,
        ["column \"source\"", "column \"tool_choices\"", "tools"]
    );
    let read = Schema::Pyinstruct.read(&row).unwrap();
    let (rows, lost) = Schema::Pyinstruct.write(&read);
    assert_eq!(
        rows[0]["tools"],
        row["tools"].as_str().unwrap().replace(' ', "")
    );
    assert!(
        lost.contains("id") && lost.contains("column \"source\""),
        "{lost:?}"
    );
    let unread: Vec<_> = Schema::Pyinstruct.unread(&row).into_iter().collect();
    assert_eq!(unread, ["field \"name\" of messages"]);
    let line = json!({"type": "message", "message": {"role": "user", "content": "q", "at": 3}});
    let unread = [
        line,
        json!({"type": "usage"}),
        json!({"type": "session", "id": "s"}),
    ]
    .map(|line| Schema::Traces.unread(&line).into_iter().collect::<Vec<_>>());
    assert_eq!(
        unread,
        [
            vec!["field \"at\" of messages".to_owned()],
            vec!["lines of type \"usage\"".to_owned()],
            vec![],
        ]
    );
}

#[test]
fn invalid_fields_are_named_in_errors() {
    let cases = [
        (json!([]), "row: not an object"),
        (json!({}), "messages: missing"),
        (
            json!({"messages": [{"content": "x"}]}),
            "messages, message 1: role: missing",
        ),
        (
            json!({"messages": [{"role": "poet", "content": "x"}]}),
            "role: unknown role \"poet\"",
        ),
        (
            json!({"messages": [{"role": "user", "content": 3}]}),
            "content: not a string",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}),
            "tool_calls: a call without a name",
        ),
    ];
    for (row, reason) in cases {
        let error = Schema::Openai.read(&row).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let mut reader = TraceReader::default();
    assert!(reader.line(&json!({"type": "message"})).is_err());
    assert!(reader.line(&json!({})).is_err());
}

#[test]
fn cells_become_calls_if_the_reply_can_be_reconstructed() {
    let row = common::row(4);
    let plain = of_row(&row, false);
    assert_eq!(plain.messages.len(), row.messages.len());
    assert!(plain.messages.iter().all(|said| said.calls.is_empty()));
    // The replies of the fixture are not exactly what the format would write.
    assert_eq!(of_row(&row, true).messages, plain.messages);
    let mut row = row;
    row.messages[2].content =
        "Analyse: a\n<|execute_start|>\n```python\nprint(1)\n```\n<|execute_end|>".into();
    row.messages[3].content = "[INFO]This is a Code Interpreter Message:\n1\n".into();
    let called = of_row(&row, true);
    assert_eq!(called.messages[2].content, "Analyse: a");
    assert_eq!(
        called.messages[2].calls[0].arguments,
        json!({"code": "print(1)"})
    );
    assert_eq!(
        (called.messages[3].role, called.messages[3].content.as_str()),
        (MessageRole::Tool, "1\n")
    );
    assert_eq!(called.messages[3].call_id.as_deref(), Some("call_2"));
    let (rows, lost) = Schema::Openai.write(&called);
    assert!(lost.iter().all(|name| name.starts_with("column ")));
    assert!(lost.contains("column \"task_id\""), "{lost:?}");
    let text = rows[0]["messages"][2]["tool_calls"][0]["function"]["arguments"].as_str();
    assert_eq!(text, Some("{\"code\":\"print(1)\"}"));
    row.messages[2].trained = false;
    let context = of_row(&row, true);
    let (rows, lost) = Schema::Openai.write(&context);
    assert_eq!(rows[0]["messages"][2]["weight"], 0);
    assert!(
        lost.iter().all(|name| name.starts_with("column ")),
        "{lost:?}"
    );
    let (_, lost) = Schema::Traces.write(&context);
    assert!(
        lost.contains("which replies are not trained (\"weight\": 0)"),
        "{lost:?}"
    );
    let (lines, lost) = Schema::Traces.write(&called);
    assert_eq!(lost.into_iter().collect::<Vec<_>>(), ["tools"]);
    assert_eq!(lines[0]["type"], "session");
    assert_eq!(
        lines[3]["message"]["toolCalls"][0]["function"]["name"],
        "execute_python"
    );
}

#[test]
fn each_parallel_call_has_its_own_result() {
    let format = pybench_agent::format_named("tools").unwrap();
    let mut row = common::row(4);
    row.format = "tools".into();
    let two = ["a = 1".to_owned(), "print(a)".to_owned()];
    let reply = format.write_steps("I look.", &two).unwrap();
    row.messages[2] = Message::new(Role::Assistant, reply.clone());
    let heard = ["", "1\n"].map(|text| format.write_observation(text));
    row.messages.splice(3..4, heard);
    let called = of_row(&row, true);
    assert_eq!(called.messages.len(), row.messages.len());
    let ids: Vec<_> = called.messages[2].calls.iter().map(|c| &*c.id).collect();
    assert_eq!(ids, ["call_2_0", "call_2_1"]);
    let answers = called.messages[3..5].iter();
    let answers: Vec<_> = answers
        .map(|said| said.call_id.as_deref().unwrap())
        .collect();
    assert_eq!(answers, ids);
    assert_eq!(called.messages[4].content, "1\n");
    assert_eq!(row.cell_texts(), two);

    // A call without a result stays text, and its observation becomes a user message.
    row.messages.remove(4);
    let text = of_row(&row, true);
    assert!(text.messages.iter().all(|said| said.calls.is_empty()));
    assert_eq!(text.messages[2].content, reply);
    assert_eq!(text.messages[3].role, MessageRole::User);
    assert_eq!(of_row(&row, false).messages[3].role, MessageRole::Tool);
}

/// A row with the system prompt of the format, and with files and query in two user messages, as rollouts make them.
fn rollout_row(format: &str) -> pybench_datasets::Row {
    let mut row = common::row(4);
    row.format = format.into();
    let format = pybench_agent::format_named(format).unwrap();
    row.messages = vec![
        Message::new(Role::System, format.system()),
        Message::new(Role::User, "[INFO]The data is uploaded to ./data/f4.csv"),
        Message::new(Role::User, "Count the rows."),
        Message::new(
            Role::Assistant,
            format.write_step("I count.", "print(len(df))"),
        ),
        format.write_observation("7\n"),
        Message::new(Role::Assistant, format.write_answer("7")),
    ];
    row
}

#[test]
fn the_system_prompt_of_calls_teaches_calls() {
    let tools = pybench_agent::format_named("tools").unwrap();
    for name in ["pybench", "codeact", "code_interpreter"] {
        let row = rollout_row(name);
        let format = pybench_agent::format_named(name).unwrap();
        let called = of_row(&row, true);
        assert_eq!(called.messages[0].content, tools.system());
        assert_eq!(called.messages[3].calls.len(), 1, "{name}");
        assert_eq!(called.messages[4].content, "7\n", "{name}");
        assert_eq!(called.tools, tools.tools().unwrap());
        let text = serde_json::to_string(&Schema::Openai.write(&called).0).unwrap();
        assert!(text.contains("tool_calls"));
        for tag in ["execute_start", "<execute>", "python_tag"] {
            assert!(!text.contains(tag), "{name}: {tag}");
        }
        assert_eq!(of_row(&row, false).messages[0].content, format.system());
        // Another prompt may say anything, and stays.
        let mut other = row;
        other.messages[0].content = "Be exact.".to_owned();
        assert_eq!(of_row(&other, true).messages[0].content, "Be exact.");
    }
}

/// What the chat templates of these models check, in small: roles alternate.
const LLAMA_2: &str = "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
{%- for message in rest %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{{- message.content }}
{%- endfor %}";
/// Calls and their results are outside of the alternation.
const MISTRAL: &str = "{% set ns = namespace(index=0) %}
{%- for message in messages if message.role != 'system' %}
{%- if message.role != 'tool' and not message.tool_calls %}
{%- if (message.role == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- set ns.index = ns.index + 1 %}
{%- endif %}
{{- message.content }}
{%- endfor %}";
/// There is no system prompt.
const GEMMA: &str = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{{- message.content }}
{%- endfor %}";

fn rendered(template: &str, messages: &Value) -> Result<String, minijinja::Error> {
    let mut environment = minijinja::Environment::new();
    environment.add_function("raise_exception", |message: String| {
        let kind = minijinja::ErrorKind::InvalidOperation;
        Err::<String, _>(minijinja::Error::new(kind, message))
    });
    let messages = template_value(messages);
    environment.render_str(template, minijinja::context! { messages => messages })
}

fn template_value(json: &Value) -> minijinja::Value {
    match json {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(template_value).collect();
            items.into()
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| (name.clone(), template_value(value)));
            fields.collect::<BTreeMap<_, _>>().into()
        }
        Value::String(text) => text.into(),
        _ => ().into(),
    }
}

#[test]
fn templates_that_demand_alternation_take_merged_user_messages() {
    for (template, schema, calls) in [
        (LLAMA_2, Schema::CodeFeedback, false),
        (LLAMA_2, Schema::Openai, false),
        (MISTRAL, Schema::Openai, true),
        (GEMMA, Schema::Ultrachat, false),
    ] {
        let (mut fitted, _) = schema.fit(&of_row(&rollout_row("pybench"), calls));
        let separate = schema.write(&fitted).0[0]["messages"].clone();
        let error = rendered(template, &separate).unwrap_err().to_string();
        assert!(error.contains("roles must alternate"), "{error}");
        fitted.merge_user_messages();
        let merged = schema.write(&fitted).0[0]["messages"].clone();
        let text = rendered(template, &merged).unwrap();
        assert!(text.contains("./data/f4.csv\n\nCount the rows."), "{text}");
    }
}

#[test]
fn fuzz_reading_any_json() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(value) = serde_json::from_slice::<Value>(bytes) else {
            return;
        };
        let row = json!({"messages": value, "conversations": value});
        let mut reader = TraceReader::default();
        let _ = reader.line(&value);
        for schema in Schema::ALL {
            if let Ok(read) = schema.read(&row) {
                let _ = schema.write(&read);
            }
        }
    });
}

#[test]
fn trainers_name_the_schema_that_they_read() {
    let named = |names: [&str; 3]| names.map(|name| Schema::named(name).unwrap());
    assert_eq!(named(["messages", "trl", "axolotl"]), [Schema::Openai; 3]);
    assert_eq!(Schema::named("sharegpt"), Some(Schema::Conversations));
    assert_eq!(Schema::named("share-gpt"), None);
}
