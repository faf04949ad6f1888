use super::*;

fn read_all(path: &Path) -> Result<Vec<Sample>, ReadError> {
    let mut samples = Vec::new();
    read(path, &mut |sample| {
        samples.push(sample);
        Ok(())
    })?;
    Ok(samples)
}

fn write_file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

const PYINSTRUCT: &str = r#"{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "tools": null, "tool_choices": "auto"}"#;
const SHAREGPT: &str = r#"{"id": 7, "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "<execute>x</execute>"}, {"from": "human", "value": "Observation:\n1"}, {"from": "gpt", "value": "done"}]}"#;
const CALLS: &str = r#"{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "content": "1"}]}"#;

#[test]
fn all_common_formats_are_read() {
    let lines = format!("{PYINSTRUCT}\n\n{SHAREGPT}\n{CALLS}\n");
    let array = format!("[{PYINSTRUCT},\n {SHAREGPT}, {CALLS}]");
    for (name, text) in [("a.jsonl", lines), ("a.json", array)] {
        let (_folder, path) = write_file(name, &text);
        let samples = read_all(&path).unwrap();
        let turns: Vec<_> = samples.iter().map(Sample::turns).collect();
        assert_eq!(turns, [1, 2, 1], "{name}");
        assert_eq!(samples[1].id(), Some("7"));
        assert_eq!(samples[1].format(), "codeact");
        assert!(samples[2].messages[0].content.contains("<tool_call>"));
        assert_eq!(samples[2].format(), "tools");
        assert!(samples[0].location.ends_with(":1"));
    }
}

#[test]
fn sharegpt_calls_become_part_of_the_reply_before_them() {
    let call = r#"{"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"code\": \"1\"}}"}"#;
    let rows = format!(
        r#"[{{"conversations": [{{"from": "human", "value": "q"}}, {{"from": "gpt", "value": "I look."}}, {call}, {call}, {{"from": "observation", "value": "1"}}, {call}]}}]"#
    );
    let (_folder, path) = write_file("a.json", &rows);
    let samples = read_all(&path).unwrap();
    let roles: Vec<_> = samples[0].messages.iter().map(|m| m.role).collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool, Role::Assistant]
    );
    assert_eq!((samples[0].turns(), samples[0].format()), (2, "tools"));
    let reply = pybench_llm::tool_calls::read(&samples[0].messages[1].content, 9);
    assert_eq!((reply.text, reply.calls.len()), ("I look.", 2));
    assert_eq!(
        reply.calls[0].as_ref().unwrap().arguments,
        r#"{"code":"1"}"#
    );
}

#[test]
fn errors_name_the_line_or_row() {
    for (name, text, problem) in [
        ("a.jsonl", "{\"messages\": []}\nno", "line 2: not JSON"),
        ("a.jsonl", "{\"text\": 1}", "row 1: no list of messages"),
        (
            "a.json",
            "[{\"messages\": [{}]}]",
            "message 1: no known role",
        ),
        ("a.json", "[{\"messages\": []}", "not JSON"),
        ("a.parquet", "PAR1", "not a valid Parquet file"),
    ] {
        let (_folder, path) = write_file(name, text);
        let error = read_all(&path).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(
        read_all(folder.path())
            .unwrap_err()
            .to_string()
            .contains("no .parquet")
    );
}

#[test]
fn the_callback_can_stop_reading() {
    let (_folder, path) = write_file("a.json", &format!("[{PYINSTRUCT}, {PYINSTRUCT}]"));
    let mut seen = 0;
    let error = read(&path, &mut |_| {
        seen += 1;
        Err(ReadError::Stopped("enough".to_owned()))
    });
    assert_eq!(error.unwrap_err().to_string(), "enough");
    assert_eq!(seen, 1);
}

#[test]
fn fuzz_rows() {
    bolero::check!().for_each(|bytes: &[u8]| {
        if let Ok(value) = serde_json::from_slice(bytes) {
            let _ = Sample::parse(String::new(), &value);
        }
    });
}

#[test]
fn fuzz_files() {
    let folder = tempfile::tempdir().unwrap();
    bolero::check!().for_each(|bytes: &[u8]| {
        for name in ["a.parquet", "a.json"] {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let _ = read_all(&path);
        }
    });
}
