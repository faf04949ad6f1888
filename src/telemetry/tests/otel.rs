//! What a collector gets of a run: a server on the loopback decodes it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use pybench_run::observer::{ObservedStep, StepKind, observer};
use pybench_run::{
    Executor, ExecutorOptions, Failure, FailureKind, Interrupt, LocalExecutor, Progress, RunFolder,
    Stage,
};
use pybench_telemetry::Telemetry;
use pybench_types::id::Digest;
use pybench_types::trajectory::Usage;
use serde_json::{Value, json};

/// A field of a message: a number, or the bytes of a text or message.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message by number, as any reader of Protocol Buffers finds them.
struct Message(BTreeMap<u64, Vec<Field>>);

impl Message {
    fn parse(mut bytes: &[u8]) -> Self {
        let mut fields: BTreeMap<u64, Vec<Field>> = BTreeMap::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => {
                    let (number, rest) = bytes.split_at(8);
                    bytes = rest;
                    Field::Number(u64::from_le_bytes(number.try_into().unwrap()))
                }
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (content, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(content.to_vec())
                }
                wire => panic!("wire type {wire}"),
            };
            fields.entry(key >> 3).or_default().push(field);
        }
        Self(fields)
    }

    fn all(&self, number: u64) -> &[Field] {
        let fields = self.0.get(&number);
        fields.map(Vec::as_slice).unwrap_or_default()
    }

    fn bytes(&self, number: u64) -> &[u8] {
        match self.all(number) {
            [Field::Bytes(bytes)] => bytes,
            other => panic!("field {number}: {other:?}"),
        }
    }

    fn number(&self, number: u64) -> u64 {
        match self.all(number) {
            [Field::Number(value)] => *value,
            other => panic!("field {number}: {other:?}"),
        }
    }

    fn text(&self, number: u64) -> String {
        String::from_utf8(self.bytes(number).to_vec()).unwrap()
    }

    fn messages(&self, number: u64) -> Vec<Self> {
        let parse = |field: &Field| match field {
            Field::Bytes(bytes) => Self::parse(bytes),
            Field::Number(_) => panic!("field {number} is a number"),
        };
        self.all(number).iter().map(parse).collect()
    }

    /// Attributes in a field, as texts.
    fn attributes(&self, number: u64) -> BTreeMap<String, String> {
        let entry = |pair: Self| {
            let value = pair.messages(2).remove(0);
            let text = match value.all(1).is_empty() {
                false => value.text(1),
                true => match value.all(3).is_empty() {
                    false => value.number(3).to_string(),
                    true => (value.number(2) == 1).to_string(),
                },
            };
            (pair.text(1), text)
        };
        self.messages(number).into_iter().map(entry).collect()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes")
}

/// A request that the server got.
struct Request {
    path: String,
    headers: String,
    body: Vec<u8>,
}

/// A server that answers 200 to everything, and the requests.
fn server() -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut headers) = (String::new(), String::new());
            reader.read_line(&mut first).unwrap();
            while !headers.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut headers).unwrap() > 0, "{headers}");
            }
            let headers = headers.to_ascii_lowercase();
            let length = headers.split("content-length: ").nth(1).unwrap();
            let length = length.split("\r\n").next().unwrap().parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let path = first.split(' ').nth(1).unwrap().to_owned();
            let request = Request {
                path,
                headers,
                body,
            };
            if sender.send(request).is_err() {
                return;
            }
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .unwrap();
        }
    });
    (endpoint, requests)
}

/// Answers one item like a rollout of one turn, and fails the other.
struct Scripted {
    fails: String,
}

#[async_trait]
impl Stage for Scripted {
    fn name(&self) -> &'static str {
        "rollout"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        if item == self.fails {
            return Err(Failure::new(FailureKind::Interpreter, "confidential"));
        }
        let usage = Usage {
            prompt_tokens: 120,
            completion_tokens: 30,
        };
        for kind in [StepKind::Reply(usage), StepKind::Cell] {
            observer().unwrap().step(ObservedStep {
                trajectory: item,
                kind,
                ended: SystemTime::now(),
            });
        }
        Ok(json!({"teacher": "openai:m-1", "messages": ["confidential"]}))
    }
}

fn run(items: &[Digest; 2]) {
    let root = tempfile::tempdir().unwrap();
    let folder = Arc::new(RunFolder::open(root.path(), "seed = 1\n").unwrap());
    let options = ExecutorOptions::default();
    let executor = LocalExecutor::new(folder, options, Progress::hidden(), Interrupt::new());
    let stage = Arc::new(Scripted {
        fails: items[1].to_string(),
    });
    let names: Vec<String> = items.iter().map(Digest::to_string).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let summary = runtime.block_on(executor.run(stage, &names)).unwrap();
    assert_eq!((summary.done, summary.failed), (1, 1));
}

#[test]
fn a_collector_gets_traces_and_metrics_without_contents() {
    let (endpoint, requests) = server();
    let variables = BTreeMap::from([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b".to_owned()),
        ("OTEL_SERVICE_NAME", "test".to_owned()),
    ]);
    let telemetry = Telemetry::start_with(|name| variables.get(name).cloned()).unwrap();
    let items = [b"one", b"two"].map(|text| Digest::of_bytes(text));
    run(&items);
    // Sends what is left.
    drop(telemetry);

    let (mut spans, mut metrics) = (Vec::new(), Vec::new());
    // Metrics are sent last.
    while metrics.is_empty() {
        let request = requests.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(request.headers.contains("application/x-protobuf"));
        assert!(
            request.headers.contains("x-team: a b"),
            "{}",
            request.headers
        );
        assert!(!String::from_utf8_lossy(&request.body).contains("confidential"));
        for resource in Message::parse(&request.body).messages(1) {
            let about = resource.messages(1).remove(0).attributes(1);
            assert_eq!(about["service.name"], "test");
            for scope in resource.messages(2) {
                assert_eq!(scope.messages(1)[0].text(1), "pybench");
                match request.path.as_str() {
                    "/v1/traces" => spans.extend(scope.messages(2)),
                    "/v1/metrics" => metrics.extend(scope.messages(2)),
                    other => panic!("{other}"),
                }
            }
        }
    }
    check_spans(&spans, &items);
    check_metrics(&metrics);
}

fn check_spans(spans: &[Message], items: &[Digest; 2]) {
    assert_eq!(spans.len(), 4);
    let of = |item: &Digest| -> Vec<&Message> {
        let id = &item.as_str()[..32];
        let hex = |span: &&Message| -> String {
            let bytes = span.bytes(1).iter();
            bytes.map(|byte| format!("{byte:02x}")).collect()
        };
        spans.iter().filter(|span| hex(span) == id).collect()
    };
    let solved = of(&items[0]);
    let names: Vec<String> = solved.iter().map(|span| span.text(5)).collect();
    assert_eq!(names, ["rollout", "chat m-1", "execute_tool python"]);
    let root = solved[0];
    assert!(root.all(4).is_empty() && root.all(15).is_empty());
    for child in &solved[1..] {
        assert_eq!(child.bytes(4), root.bytes(2));
        assert!(child.number(7) >= root.number(7) && child.number(8) <= root.number(8));
        assert!(child.number(7) <= child.number(8));
    }
    let chat = solved[1].attributes(9);
    assert_eq!(chat["gen_ai.operation.name"], "chat");
    assert_eq!(chat["gen_ai.provider.name"], "openai");
    assert_eq!(chat["gen_ai.request.model"], "m-1");
    assert_eq!(chat["gen_ai.usage.input_tokens"], "120");
    assert_eq!(chat["gen_ai.usage.output_tokens"], "30");
    // The kind CLIENT.
    assert_eq!(solved[1].number(6), 3);

    let failed = of(&items[1]);
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].attributes(9)["error.type"], "interpreter");
    // The status ERROR.
    assert_eq!(failed[0].messages(15)[0].number(3), 2);
}

fn check_metrics(metrics: &[Message]) {
    let points = |name: &str, kind: u64| -> BTreeMap<Vec<String>, u64> {
        let metric = metrics.iter().find(|metric| metric.text(1) == name);
        let metric = metric.unwrap_or_else(|| panic!("no metric {name}"));
        let data = metric.messages(kind).remove(0);
        let point = |point: Message| {
            let labels = point.attributes(7).into_values().collect();
            (labels, point.number(6))
        };
        data.messages(1).into_iter().map(point).collect()
    };
    // Attributes sorted by name: outcome, stage.
    let labels = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let units = points("pybench.units", 7);
    assert_eq!(units[&labels(&["done", "rollout"])], 1);
    assert_eq!(units[&labels(&["interpreter", "rollout"])], 1);
    let tokens = points("pybench.tokens", 7);
    assert_eq!(tokens[&labels(&["input"])], 120);
    assert_eq!(tokens[&labels(&["output"])], 30);
    let waiting = points("pybench.queue.depth", 5);
    assert_eq!(waiting[&labels(&["rollout"])], 0);
}
