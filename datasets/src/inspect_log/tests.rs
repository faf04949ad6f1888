use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::archive::LogArchive;
use super::values::RawSample;
use super::*;
use crate::samples::ReadError;

fn read(path: &Path) -> Result<Vec<(LogHead, LogSample)>, ReadError> {
    let mut found = Vec::new();
    each_sample(path, &mut |head, sample| {
        found.push((head.clone(), sample));
        Ok(())
    })?;
    Ok(found)
}

fn problem(path: &Path) -> String {
    read(path).unwrap_err().to_string()
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A zip of these members.
fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = SimpleFileOptions::default();
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn head() -> Value {
    json!({"version": 2, "status": "success", "eval": {"task": "sums", "model": "m/1", "created": "2026-01-02T03:04:05+00:00"}})
}

/// A sample as inspect_ai writes it.
fn raw_sample() -> String {
    let image = format!("attachment://{}", "a".repeat(32));
    let sample = json!({
        "id": 7, "epoch": 2, "input": "Add.", "target": ["2", "two"],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Add."},
            {"role": "assistant", "content": [
                {"type": "reasoning", "reasoning": "Easy."}, {"type": "text", "text": "I look."}, {"type": "audio", "audio": "x"}],
             "tool_calls": [
                {"id": "c1", "function": "python", "arguments": {"code": "print(2)"}, "type": "function"},
                {"id": "c2", "function": "search", "arguments": {"query": "two", "most": 3}, "type": "function"}]},
            {"role": "tool", "content": [{"type": "text", "text": "2"}, {"type": "image", "image": image}], "tool_call_id": "c1"},
            {"role": "tool", "content": "", "tool_call_id": "c2", "error": {"type": "timeout", "message": "too late"}},
            {"role": "assistant", "content": "Two."}],
        "scores": {"match": {"value": "C", "answer": "Two", "explanation": "It is."}, "judge": {"value": 0.5}, "none": {"value": "NAN"}},
        "attachments": {"a".repeat(32): "data:image/png;base64,aGk="},
        "model_usage": {"m/1": {"input_tokens": 5, "output_tokens": 2}, "m/2": {"input_tokens": 1, "output_tokens": 1}},
        "events": [{"event": "info", "data": [[[[]]]]}], "total_time": 1.5, "uuid": "u", "limit": {"type": "token", "limit": 9.0},
    });
    // As Python writes a score that could not be computed.
    sample.to_string().replace("\"NAN\"", "NaN")
}

fn check_sample(head: &LogHead, sample: &LogSample) {
    assert_eq!(
        (&*head.task, &*head.model, &*head.status),
        ("sums", "m/1", "success")
    );
    assert_eq!((&*sample.id, sample.epoch, &*sample.uuid), ("7", 2, "u"));
    assert_eq!(sample.target, r#"["2","two"]"#);
    assert_eq!((sample.tokens_in, sample.tokens_out), (6, 3));
    let limit = sample.limit.as_ref().unwrap();
    assert_eq!((&*limit.kind, limit.value), ("token", 9.0));
    let reply = &sample.messages[2];
    assert_eq!(reply.text, "Easy.\n\nI look.\n\n[audio: not shown]");
    assert_eq!(reply.calls[0].code(), "print(2)");
    assert_eq!(reply.calls[1].code(), r#"search({"query":"two","most":3})"#);
    let answer = &sample.messages[3];
    assert_eq!((&*answer.text, &*answer.answers), ("2", "c1"));
    assert_eq!(answer.images, ["data:image/png;base64,aGk="]);
    assert_eq!(sample.messages[4].error, "too late");
    let score = |name: &str| {
        sample
            .scores
            .iter()
            .find(|score| score.name == name)
            .unwrap()
    };
    assert_eq!(score("match").passed, Some(true));
    assert_eq!(
        (&*score("judge").value, score("judge").passed),
        ("0.5", None)
    );
    assert_eq!((&*score("none").value, score("none").passed), ("", None));
    let messages = sample.as_messages();
    assert!(messages[2].content.contains("<tool_call>"), "{messages:?}");
    assert_eq!(messages[4].content, "too late");
}

#[test]
fn logs_are_read_packed_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let sample = raw_sample();
    let (name, header) = ("samples/7_epoch_2.json", head().to_string());
    let members = [
        ("header.json", header.as_bytes()),
        (name, sample.as_bytes()),
    ];
    let eval = written(folder.path(), "a.eval", &zipped(&members));
    // The evaluation was killed: there is no header.
    let start = [
        ("_journal/start.json", header.as_bytes()),
        (name, sample.as_bytes()),
    ];
    let killed = written(folder.path(), "b.eval", &zipped(&start));
    let whole = format!(
        "{}, \"samples\": [{sample}], \"reductions\": null}}",
        &header[..header.len() - 1]
    );
    let json = written(folder.path(), "c.json", whole.as_bytes());
    for path in [&eval, &killed, &json] {
        assert!(is_log(path), "{}", path.display());
        let found = read(path).unwrap();
        assert_eq!(found.len(), 1, "{}", path.display());
        check_sample(&found[0].0, &found[0].1);
    }
    assert!(is_log(folder.path()));
    assert_eq!(log_files(folder.path()).unwrap(), [eval, killed]);
    assert_eq!(read(folder.path()).unwrap().len(), 2);
    for (name, text) in [
        ("rows.json", r#"{"messages": []}"#),
        ("array.json", r#"[{"version": 2}]"#),
        ("version.json", r#"{"version": 2, "rows": []}"#),
        ("rows.jsonl", &*whole),
    ] {
        assert!(
            !is_log(&written(folder.path(), name, text.as_bytes())),
            "{name}"
        );
    }
}

/// A zip with one member that is packed with zstd, as inspect_ai packs: the crate `zip` writes the frame, and only the two
/// bytes that name the method are changed, in the head of the member and in the list of members.
fn with_zstd(name: &str, unpacked: &[u8]) -> Vec<u8> {
    let frame = zstd::bulk::compress(unpacked, 3).unwrap();
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    writer.start_file("header.json", stored).unwrap();
    writer.write_all(head().to_string().as_bytes()).unwrap();
    writer.start_file(name, stored).unwrap();
    writer.write_all(&frame).unwrap();
    let mut bytes = writer.finish().unwrap().into_inner();
    let at = |bytes: &[u8], mark: &[u8]| {
        let mut places = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(mark));
        (places.next(), places.next())
    };
    // The second member; its method is 8 bytes after the mark of a member, and 10 after that of an entry of the list.
    let (_, member) = at(&bytes, b"PK\x03\x04");
    let (_, entry) = at(&bytes, b"PK\x01\x02");
    bytes[member.unwrap() + 8] = 93;
    bytes[entry.unwrap() + 10] = 93;
    bytes
}

#[test]
fn members_are_unpacked_within_limits() {
    let folder = tempfile::tempdir().unwrap();
    let name = "samples/7_epoch_2.json";
    let path = written(
        folder.path(),
        "a.eval",
        &with_zstd(name, raw_sample().as_bytes()),
    );
    let found = read(&path).unwrap();
    check_sample(&found[0].0, &found[0].1);
    // A bomb: 2 MiB of blanks, where 1 MiB may be unpacked.
    let bomb = written(
        folder.path(),
        "bomb.eval",
        &with_zstd(name, &vec![b' '; 2 << 20]),
    );
    let mut archive = LogArchive::within(&bomb, 1 << 20).unwrap();
    let said = archive.json::<Value>(name).unwrap_err().to_string();
    assert!(said.contains(name) && said.contains("more bytes"), "{said}");
    // Nothing is left for other members.
    let said = archive
        .json::<Value>("header.json")
        .unwrap_err()
        .to_string();
    assert!(said.contains("more bytes"), "{said}");
}

#[test]
fn what_is_no_log_is_named_with_its_member() {
    let folder = tempfile::tempdir().unwrap();
    let header = head().to_string();
    let newer = header.replace("\"version\":2", "\"version\":3");
    let with = |name: &'static str, text: &'static str| {
        zipped(&[("header.json", header.as_bytes()), (name, text.as_bytes())])
    };
    let many = format!(
        "{{\"messages\": [{{\"tool_calls\": [{}]}}]}}",
        "{},".repeat(10_001) + "{}"
    );
    for (bytes, expected) in [
        (
            b"PK\x03\x04 and nothing else".to_vec(),
            "not a readable zip",
        ),
        (zipped(&[("x.json", b"{}")]), "neither header.json nor"),
        (zipped(&[("header.json", b"{}")]), "task and model"),
        (zipped(&[("header.json", newer.as_bytes())]), "version 3"),
        (zipped(&[("header.json", header.as_bytes())]), "no samples"),
        (
            with("samples/1_epoch_1.json", "{\"id\": "),
            "member samples/1_epoch_1.json: EOF",
        ),
        (
            with("samples/1_epoch_1.json", "{\"epoch\": -1}"),
            "samples/1_epoch_1.json: invalid value",
        ),
        (
            with("samples/1_epoch_1/sample.json", "{}"),
            "stored in chunks",
        ),
        (
            zipped(&[
                ("header.json", header.as_bytes()),
                ("samples/1_epoch_1.json", many.as_bytes()),
            ]),
            "more than 10000 items",
        ),
    ] {
        let said = problem(&written(folder.path(), "x.eval", &bytes));
        assert!(said.contains(expected) && said.contains("x.eval"), "{said}");
    }
    // Names of members are never paths.
    let outside = zipped(&[
        ("header.json", header.as_bytes()),
        ("samples/../../../x.json", b"{\"id\": 1}"),
    ]);
    let found = read(&written(folder.path(), "x.eval", &outside)).unwrap();
    assert_eq!(found[0].1.id, "1");
    assert!(!folder.path().join("x.json").exists());
}

#[test]
fn an_attachment_is_not_repeated_without_end() {
    let message = json!({"role": "user", "content": "attachment://a"});
    let sample =
        json!({"id": 1, "messages": vec![message; 5], "attachments": {"a": "x".repeat(100)}});
    let sample: RawSample = serde_json::from_str(&sample.to_string()).unwrap();
    let texts = sample
        .finish_within(350)
        .messages
        .into_iter()
        .map(|message| message.text.len());
    assert_eq!(texts.collect::<Vec<_>>(), [100, 100, 100, 14, 14]);
}

#[test]
fn a_written_log_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let message = |role, text: &str| LogMessage {
        role,
        text: text.to_owned(),
        images: Vec::new(),
        calls: Vec::new(),
        answers: String::new(),
        error: String::new(),
    };
    let call = LogCall {
        id: "c".to_owned(),
        function: "python".to_owned(),
        arguments: r#"{"code":"print(1)"}"#.to_owned(),
    };
    let score = |name: &str, value: &str, passed| LogScore {
        name: name.to_owned(),
        value: value.to_owned(),
        passed,
        answer: String::new(),
        explanation: "a.txt: equal".to_owned(),
    };
    let sample = |id: &str, value: &str| LogSample {
        id: id.to_owned(),
        epoch: 1,
        uuid: format!("u{id}"),
        target: String::new(),
        messages: vec![
            message(Role::System, "Run code."),
            message(Role::User, "Print."),
            LogMessage {
                calls: vec![call.clone()],
                ..message(Role::Assistant, "I print.")
            },
            LogMessage {
                images: vec!["data:image/png;base64,aGk=".to_owned()],
                answers: "c".to_owned(),
                ..message(Role::Tool, "1")
            },
            message(Role::Assistant, "Done."),
        ],
        scores: vec![
            score("fixed", "C", Some(true)),
            score("strict", value, Some(value == "C")),
        ],
        error: String::new(),
        limit: Some(LogLimit {
            kind: "turn".to_owned(),
            value: 10.0,
        }),
        seconds: 1.5,
        tokens_in: 5,
        tokens_out: 2,
    };
    let samples = [sample("HumanEval/1", "C"), sample("2", "I")];
    let about = AgentLog {
        id: "log".to_owned(),
        run: "run".to_owned(),
        task: "suite".to_owned(),
        model: "agent".to_owned(),
        created: "2026-01-02T03:04:05Z".to_owned(),
        metadata: Map::new(),
    };
    let write = || {
        let mut log = LogWriter::new(Cursor::new(Vec::new()), about.clone()).unwrap();
        for sample in &samples {
            log.sample(sample, &Map::new()).unwrap();
        }
        log.finish().unwrap().into_inner()
    };
    let bytes = write();
    assert_eq!(bytes, write());
    let path = written(folder.path(), "a.eval", &bytes);
    let found = read(&path).unwrap();
    assert_eq!(found[0].0.model, "agent");
    let back: Vec<&LogSample> = found.iter().map(|(_, sample)| sample).collect();
    assert_eq!(back, samples.iter().collect::<Vec<_>>());
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let header: Value = serde_json::from_reader(archive.by_name("header.json").unwrap()).unwrap();
    assert_eq!(header["results"]["scores"][1]["name"], "strict");
    assert_eq!(
        header["results"]["scores"][1]["metrics"]["accuracy"]["value"],
        0.5
    );
    let summaries: Value =
        serde_json::from_reader(archive.by_name("summaries.json").unwrap()).unwrap();
    assert_eq!(
        (&summaries[1]["id"], &summaries[1]["input"]),
        (&json!("2"), &json!("Print."))
    );
}

#[test]
fn fuzz_logs() {
    let folder = tempfile::tempdir().unwrap();
    let sample = raw_sample();
    let header = head().to_string();
    let good = zipped(&[
        ("header.json", header.as_bytes()),
        ("samples/7_epoch_2.json", sample.as_bytes()),
    ]);
    bolero::check!().for_each(|bytes: &[u8]| {
        let as_sample = zipped(&[
            ("header.json", header.as_bytes()),
            ("samples/a.json", bytes),
        ]);
        let mut changed = good.clone();
        for change in bytes.chunks_exact(3) {
            let at = usize::from(change[0]) << 8 | usize::from(change[1]);
            let length = changed.len();
            changed[at % length] = change[2];
        }
        let files = [
            ("a.eval", bytes),
            ("b.eval", &as_sample[..]),
            ("c.eval", &changed[..]),
            ("d.json", bytes),
        ];
        for (name, bytes) in files {
            let _ = read(&written(folder.path(), name, bytes));
        }
    });
}
