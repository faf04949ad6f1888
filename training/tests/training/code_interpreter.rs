//! Llama 3.1's built-in code interpreter: tokens and masks against Meta's `ChatFormat` (`parity/chat_format.py`), and a
//! tiny model that learns a session and is asked through the server.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pybench_test_needs::skip;
use pybench_training_data::{Message, Renderer};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::run::Project;
use crate::serving::Running;
use crate::support::data;

const QUESTION: &str = "2 + 2?";
const CODE: &str = "<|python_tag|>print(2 + 2)";
const OUTPUT: &str = "completed\n[stdout]\n4\n\n[/stdout]";
const ANSWER: &str = "Finished:\nit is 4.";

fn fixture() -> PathBuf {
    data("templates/code_interpreter")
}

fn renderer() -> Renderer {
    let template = "recipes/templates/code_interpreter.jinja";
    let template = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(template);
    Renderer::load_with(&fixture(), Some(&template)).unwrap()
}

#[test]
fn tokens_and_masks_are_those_of_chat_format() {
    #[derive(Deserialize)]
    struct Line {
        messages: Vec<Message>,
        ids: Vec<u32>,
        trained: Vec<bool>,
    }
    let renderer = renderer();
    let lines = std::fs::read_to_string(fixture().join("expected.jsonl")).unwrap();
    let mut cells = 0;
    for line in lines.lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        let rendered = renderer.render(&line.messages).unwrap();
        let trained: Vec<bool> = rendered.spans.iter().map(|span| span.trained).collect();
        let text = renderer.tokenizer.decode(&rendered.ids).unwrap();
        assert_eq!(rendered.ids, line.ids, "{text}");
        assert_eq!(trained, line.trained, "{text}");
        let runs = |m: &&Message| m.is_assistant() && m.content.starts_with("<|python_tag|>");
        cells += line.messages.iter().filter(runs).count();
    }
    assert!(cells >= 10, "{cells} cells");
}

#[test]
fn each_token_belongs_to_its_message() {
    let message = |(role, content): (&str, &str)| Message::new(role, content);
    let messages = [
        ("user", QUESTION),
        ("assistant", CODE),
        ("tool", OUTPUT),
        ("assistant", ANSWER),
    ]
    .map(message);
    let renderer = renderer();
    let rendered = renderer.render(&messages).unwrap();
    let owned = |number: usize| {
        let tokens = rendered.ids.iter().zip(&rendered.spans);
        let ids: Vec<u32> = tokens
            .filter(|(_, span)| span.message == number)
            .map(|(id, _)| *id)
            .collect();
        renderer.tokenizer.decode(&ids).unwrap()
    };
    for (number, end) in ["<|eot_id|>", "<|eom_id|>", "<|eot_id|>", "<|eot_id|>"]
        .iter()
        .enumerate()
    {
        let content = &messages[number].content;
        assert!(
            owned(number).ends_with(&format!("{content}{end}")),
            "{number}"
        );
    }
    let ends = ["<|eot_id|>", "<|eom_id|>"].map(|end| renderer.tokenizer.control(end).unwrap());
    assert_eq!(renderer.ends_of_turn(), ends);
}

#[test]
fn a_template_that_writes_the_tag_as_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("llama3.jinja");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recipes/templates/llama3.jinja");
    std::fs::copy(source, &template).unwrap();
    let renderer = Renderer::load_with(&fixture(), Some(&template)).unwrap();
    let messages = [Message::new("user", CODE), Message::new("assistant", "No.")];
    renderer.render(&messages).unwrap();
    let messages = [
        Message::new("user", "Yes?"),
        Message::new("assistant", CODE),
    ];
    let refused = renderer.render(&messages).unwrap_err().to_string();
    assert!(
        refused.contains("message 1") && refused.contains("chat_template"),
        "{refused}"
    );
}

/// A model that knows a session by heart.
fn learned() -> Project {
    let shape = json!({"hidden_size": 48, "intermediate_size": 96, "head_dim": 12, "max_position_embeddings": 1024});
    let train = "max_seq_len=512\nbatch_size=1\nmax_steps=200\n[optimizer]\nlearning_rate=0.01\nwarmup_steps=5";
    let project = Project::shaped(&shape, train);
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        let path = project.path("start").join(file);
        std::fs::copy(fixture().join(file), path).unwrap();
    }
    let row = json!({"messages": [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": CODE},
        {"role": "tool", "content": OUTPUT},
        {"role": "assistant", "content": ANSWER},
    ]});
    for file in ["train.jsonl", "test.jsonl"] {
        std::fs::write(project.path(file), row.to_string()).unwrap();
    }
    let recipe = std::fs::read_to_string(project.path("recipe.toml")).unwrap();
    let recipe = format!("chat_template='code_interpreter'\n{recipe}");
    std::fs::write(project.path("recipe.toml"), recipe).unwrap();
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    project
}

#[test]
fn a_session_is_learned_and_served() {
    let project = learned();
    let server = Running::start(&project.path("out/model"), &[]);
    let ask = |messages: &[Value], stream: bool| {
        let body = json!({
            "model": "tiny", "messages": messages, "max_tokens": 80, "temperature": 0, "stream": stream,
        });
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{}", answer.json());
        answer
    };
    let mut messages = vec![json!({"role": "user", "content": QUESTION})];
    let first = ask(&messages, false).json()["choices"][0].clone();
    assert_eq!(first["message"]["content"], CODE);
    assert_eq!(first["finish_reason"], "stop");
    let events = ask(&messages, true).events();
    let deltas = events.iter();
    let deltas = deltas.filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(deltas.collect::<String>(), CODE);
    messages.push(first["message"].clone());
    messages.push(json!({"role": "tool", "content": OUTPUT}));
    let second = ask(&messages, false).json()["choices"][0].clone();
    assert_eq!(second["message"]["content"], ANSWER);
    assert_eq!(second["finish_reason"], "stop");
}

/// A GGUF file in the process that runs it for agents.
struct Embedded {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Embedded {
    fn start(program: &Path, model: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg(model).args(["--context", "512"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut started = Self { process, lines };
        started.read();
        started
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn ask(&mut self, messages: &[Value]) -> Value {
        let ask = json!({
            "messages": messages, "temperature": 0.0, "top_p": 1.0, "max_tokens": 80, "seed": 1, "stop": [],
        });
        writeln!(self.process.stdin.as_mut().unwrap(), "{ask}").unwrap();
        self.read()["reply"].clone()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_session_is_learned_and_run_as_gguf() {
    let trainer = Path::new(env!("CARGO_BIN_EXE_pybench-train"));
    let program = trainer.with_file_name("pybench-embedded");
    if !program.exists() {
        return skip::missing_tool("pybench-embedded is not built: run `just embedded`");
    }
    let project = learned();
    let file = project.path("model.gguf");
    let mut export = Command::new(trainer);
    export.arg("export").arg(project.path("out/model"));
    let exported = export.arg("--gguf").arg(&file).output().unwrap();
    let error = String::from_utf8_lossy(&exported.stderr);
    assert!(exported.status.success(), "{error}");
    let mut model = Embedded::start(&program, &file);
    let mut messages = vec![json!({"role": "user", "content": QUESTION})];
    let first = model.ask(&messages);
    assert_eq!(
        (&first["content"], &first["truncated"]),
        (&json!(CODE), &json!(false))
    );
    messages.push(json!({"role": "assistant", "content": CODE}));
    messages.push(json!({"role": "tool", "content": OUTPUT}));
    let second = model.ask(&messages);
    assert_eq!(
        (&second["content"], &second["truncated"]),
        (&json!(ANSWER), &json!(false))
    );
}
