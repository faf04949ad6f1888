//! Round trips: nothing is lost that both sides can say, and what is lost is named.

#[allow(dead_code)] // Here single rows are enough.
mod common;

use proptest::prelude::*;
use pybench::trajectory::{Message, Role};
use pybench_datasets::exchange::{Call, Conversation, Said, Schema, Speaker, TraceReader, of_row};
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

fn there_and_back(
    schema: Schema,
    conversation: &Conversation,
) -> (Conversation, Vec<&'static str>) {
    let (rows, lost) = schema.write(conversation);
    (back(schema, &rows), lost.into_iter().collect())
}

/// What both schemas can say.
fn common_ground(one: Schema, other: Schema, conversation: &Conversation) -> Conversation {
    let (fitted, _) = one.fit(conversation);
    let (fitted, _) = other.fit(&fitted);
    one.fit(&fitted).0
}

fn speakers() -> impl Strategy<Value = Speaker> {
    prop_oneof![
        Just(Speaker::User),
        Just(Speaker::Assistant),
        Just(Speaker::Tool)
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let call = ("[a-z]{1,8}", "[a-z_]{1,8}", "\\PC{0,20}").prop_map(|(id, name, code)| Call {
        id,
        name,
        arguments: json!({"code": code, "n": 1}),
    });
    (
        speakers(),
        "\\PC{0,40}",
        proptest::option::of("\\PC{1,20}"),
        proptest::collection::vec(call, 0..3),
        proptest::option::of("[a-z]{1,8}"),
    )
        .prop_map(|(speaker, content, reasoning, calls, answers)| Said {
            speaker,
            content,
            reasoning: reasoning.filter(|_| speaker == Speaker::Assistant),
            calls: if speaker == Speaker::Assistant {
                calls
            } else {
                vec![]
            },
            answers: answers.filter(|_| speaker == Speaker::Tool),
        })
}

fn conversations() -> impl Strategy<Value = Conversation> {
    (
        proptest::option::of("[a-z0-9]{1,8}"),
        proptest::option::of("\\PC{0,30}"),
        proptest::collection::vec(said(), 1..6),
        any::<bool>(),
        proptest::collection::vec(("[b-h]{1,6}", "\\PC{0,8}"), 0..3),
    )
        .prop_map(|(id, system, rest, tools, beside)| {
            let system = system.map(|text| Said::new(Speaker::System, text));
            let messages = system.into_iter().chain(rest).collect();
            Conversation {
                id,
                messages,
                tools: if tools {
                    json!([{"type": "function"}])
                } else {
                    Value::Null
                },
                beside: beside.into_iter().map(|(k, v)| (k, v.into())).collect(),
            }
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_as_the_schema_can_say_it(conversation in conversations()) {
        for schema in Schema::ALL {
            let (fitted, _) = schema.fit(&conversation);
            let (back, lost) = there_and_back(schema, &conversation);
            let mut expected = fitted.clone();
            if schema == Schema::Upstream {
                // The name is also the task's number, where there is none.
                let name = fitted.id.clone().unwrap_or_default();
                expected.beside.entry("index").or_insert(name.into());
            }
            if schema == Schema::Ultrachat {
                prop_assert!(expected.beside.is_empty());
            }
            prop_assert_eq!(&back, &expected, "{}", schema.name());
            // Fitting twice loses nothing more.
            let (again, more) = schema.fit(&fitted);
            prop_assert_eq!(&again, &fitted, "{}", schema.name());
            prop_assert!(more.is_empty(), "{} {:?}", schema.name(), more);
            // Something is lost where something is another, and only there.
            let mut unnamed = fitted.clone();
            if conversation.id.is_none() {
                unnamed.id = None;
            }
            prop_assert_eq!(lost.is_empty(), unnamed == conversation, "{} {:?}", schema.name(), lost);
        }
    }

    #[test]
    fn through_another_schema_nothing_is_lost_that_both_can_say(conversation in conversations()) {
        for one in Schema::ALL {
            for other in Schema::ALL {
                let ground = common_ground(one, other, &conversation);
                let (through, _) = there_and_back(other, &ground);
                let (mut back, _) = there_and_back(one, &through);
                back.beside.retain(|name, _| name != "index");
                prop_assert_eq!(&back.messages, &ground.messages, "{} {}", one.name(), other.name());
                prop_assert_eq!(&back.beside, &other.fit(&ground).0.beside, "{} {}", one.name(), other.name());
            }
        }
    }
}

#[test]
fn the_real_schemas_are_read() {
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
        Said::new(Speaker::System, "s"),
        Said::new(Speaker::User, "q"),
    ];
    for (schema, row) in cases {
        let read = schema.read(&row).unwrap();
        assert_eq!(read.messages, expected, "{}", schema.name());
    }
    let upstream = json!({"index": "2", "category1": "c", "messages": []});
    let read = Schema::Upstream.read(&upstream).unwrap();
    assert_eq!(
        (read.id.as_deref(), &read.beside["category1"]),
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
    assert_eq!(read.beside["answer"], "3");
    let (rows, lost) = Schema::CodeFeedback.write(&read);
    assert_eq!(
        rows[0]["messages"][0]["content"],
        "t\n```python\n1 + 2\n```"
    );
    let lost: Vec<_> = lost.into_iter().collect();
    assert_eq!(
        lost,
        [
            "calls of tools (written as text)",
            "columns beside the messages",
            "names of calls",
            "the speaker of observations (written as the user's)",
        ]
    );
}

#[test]
fn what_does_not_fit_is_named() {
    let cases = [
        (json!([]), "row: no object"),
        (json!({}), "messages: missing"),
        (
            json!({"messages": [{"content": "x"}]}),
            "messages, message 1: role: missing",
        ),
        (
            json!({"messages": [{"role": "poet", "content": "x"}]}),
            "role: \"poet\" is nobody",
        ),
        (
            json!({"messages": [{"role": "user", "content": 3}]}),
            "content: no text",
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
fn rows_are_written_with_calls_where_they_can_be_had_back() {
    let row = common::row(4);
    let plain = of_row(&row, false);
    assert_eq!(plain.messages.len(), row.messages.len());
    assert!(plain.messages.iter().all(|said| said.calls.is_empty()));
    // Replies of the fixture are no exact steps of the format.
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
        (
            called.messages[3].speaker,
            called.messages[3].content.as_str()
        ),
        (Speaker::Tool, "1\n")
    );
    assert_eq!(called.messages[3].answers.as_deref(), Some("call_2"));
    let (rows, lost) = Schema::Openai.write(&called);
    assert!(
        lost.contains("columns beside the messages") && lost.len() == 1,
        "{lost:?}"
    );
    let text = rows[0]["messages"][2]["tool_calls"][0]["function"]["arguments"].as_str();
    assert_eq!(text, Some("{\"code\":\"print(1)\"}"));
    let (lines, lost) = Schema::Traces.write(&called);
    assert_eq!(lost.into_iter().collect::<Vec<_>>(), ["tools"]);
    assert_eq!(lines[0]["type"], "session");
    assert_eq!(
        lines[3]["message"]["toolCalls"][0]["function"]["name"],
        "execute_python"
    );
}

#[test]
fn parallel_calls_of_a_row_are_calls_each_with_its_answer() {
    let format = pybench::agent::format_named("tools").unwrap();
    let mut row = common::row(4);
    row.format = "tools".into();
    let two = ["a = 1".to_owned(), "print(a)".to_owned()];
    let reply = format.write_steps("I look.", &two).unwrap();
    row.messages[2] = Message::new(Role::Assistant, reply.clone());
    let heard = ["", "1\n"].map(|text| format.write_heard(text));
    row.messages.splice(3..4, heard);
    let called = of_row(&row, true);
    assert_eq!(called.messages.len(), row.messages.len());
    let ids: Vec<_> = called.messages[2].calls.iter().map(|c| &*c.id).collect();
    assert_eq!(ids, ["call_2_0", "call_2_1"]);
    let answers = called.messages[3..5].iter();
    let answers: Vec<_> = answers
        .map(|said| said.answers.as_deref().unwrap())
        .collect();
    assert_eq!(answers, ids);
    assert_eq!(called.messages[4].content, "1\n");
    assert_eq!(row.cell_texts(), two);

    // A call without an answer stays text, and what was said to it is no tool's.
    row.messages.remove(4);
    let text = of_row(&row, true);
    assert!(text.messages.iter().all(|said| said.calls.is_empty()));
    assert_eq!(text.messages[2].content, reply);
    assert_eq!(text.messages[3].speaker, Speaker::User);
    assert_eq!(of_row(&row, false).messages[3].speaker, Speaker::Tool);
}

#[test]
fn fuzz_any_json_is_read_or_refused() {
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
