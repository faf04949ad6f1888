//! The server: the real binary over HTTP on the loopback interface.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::iter;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pybench_training::model::{Model, ModelConfig, save_model};
use pybench_training::serve::Vocabulary;
use serde_json::{Value, json};
use tch::{Device, Kind};

use crate::support::{data, jinja};
use pybench_test_needs::program::write_program;

/// A directory with a tiny random model and the tokenizer of the template fixtures.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let template = data("templates/chatml");
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(template.join(file), folder.path().join(file)).unwrap();
    }
    let config = std::fs::read_to_string(data("llama/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["vocab_size"] = 520.into();
    config["max_position_embeddings"] = 32768.into();
    // No token that greedy decoding of a random model is known to like.
    config["eos_token_id"] = 0.into();
    let config = ModelConfig::parse(config.to_string().as_bytes()).unwrap();
    let model = Model::random(config, 3, Kind::Float, Device::Cpu);
    // Random weights of 0.02 give flat logits; larger ones have opinions.
    for (name, tensor) in model.parameters() {
        if !name.ends_with("norm.weight") {
            drop(tch::no_grad(|| tensor.shallow_clone().g_mul_scalar_(12.0)));
        }
    }
    save_model(&model, folder.path(), folder.path()).unwrap();
    folder
}

pub(crate) struct Running {
    child: Child,
    pub(crate) address: String,
}

fn first_in_path(folder: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(paths).unwrap()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The events of a stream without `[DONE]`, which must be the last.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let mut lines: Vec<&str> = lines.collect();
        assert_eq!(lines.pop(), Some("[DONE]"), "{}", self.body);
        lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Running {
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::start_with_path(folder, options, &path)
    }

    /// Lets vLLM serve the model, from the folder of its program.
    pub(crate) fn start_vllm(folder: &Path, programs: &Path) -> Self {
        let path = first_in_path(programs);
        Self::start_with_path(folder, &["--engine", "vllm", "--dtype", "float32"], &path)
    }

    fn start_with_path(folder: &Path, options: &[&str], path: &OsStr) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pybench-train"))
            .arg("serve")
            .arg(folder)
            .args(["--port", "0", "--name", "tiny", "--device", "cpu"])
            .args(options)
            .env("OMP_NUM_THREADS", "1")
            .env("PATH", path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("http://")
            .and_then(|l| l.strip_suffix("/v1"));
        let address = address
            .unwrap_or_else(|| panic!("no address: {line}"))
            .to_owned();
        Self { child, address }
    }

    fn open(&self, head: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        let length = body.len();
        let head = format!(
            "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        // A server that refuses early may close before it has read all.
        let _ = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body));
        stream
    }

    fn raw(&self, head: &str, body: &[u8]) -> Answer {
        let mut bytes = vec![];
        let _ = self.open(head, body).read_to_end(&mut bytes);
        let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..split].to_vec())
            .unwrap()
            .to_lowercase();
        let body = match head.contains("transfer-encoding: chunked") {
            true => unchunk(&bytes[split + 4..]),
            false => bytes[split + 4..].to_vec(),
        };
        Answer {
            status: head[9..12].parse().unwrap(),
            body: String::from_utf8(body).expect("a body of whole letters"),
            head,
        }
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.raw(&format!("POST {path}"), body.to_string().as_bytes())
    }

    fn chat(&self, body: Value) -> Value {
        let answer = self.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn text(&self, body: Value) -> String {
        content(&self.chat(body)).to_owned()
    }

    fn capacity(&self) -> u64 {
        self.raw("GET /health", b"").json()["capacity"]
            .as_u64()
            .unwrap()
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![];
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
}

fn content(body: &Value) -> &str {
    body["choices"][0]["message"]["content"].as_str().unwrap()
}

fn ask(text: &str, extra: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": text}],
        "max_tokens": 40, "temperature": 0,
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// Greedy tokens of full forward passes.
fn reference(folder: &Path, prompt: &[i64], count: usize) -> Vec<i64> {
    let model = Model::load(folder, Kind::Float, Device::Cpu).unwrap();
    let mut ids = prompt.to_vec();
    for _ in 0..count {
        let logits = crate::cache::full(&model, &ids);
        ids.push(logits.argmax(-1, false).int64_value(&[]));
    }
    ids.split_off(prompt.len())
}

#[test]
fn greedy_replies_are_those_of_full_passes() {
    let folder = folder();
    let server = Running::start(folder.path(), &[]);
    let prompt = vec![5i64, 300, 17, 88, 411, 23];
    let body = json!({"prompt": prompt, "max_tokens": 30, "temperature": 0, "logprobs": 2});
    let answer = server.post("/v1/completions", &body).json();
    let ids = reference(folder.path(), &prompt, 30);
    let vocabulary = Vocabulary::load(folder.path()).unwrap();
    let wanted: Vec<String> = ids
        .iter()
        .map(|&id| String::from_utf8_lossy(vocabulary.bytes(id as u32)).into_owned())
        .collect();
    let choice = &answer["choices"][0];
    assert_eq!(choice["logprobs"]["tokens"], json!(wanted));
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 30);
    // Greedy decoding takes the most likely token, the first of its own alternatives.
    for (token, top) in choice["logprobs"]["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .zip(choice["logprobs"]["top_logprobs"].as_array().unwrap())
    {
        assert_eq!(
            top.as_object().unwrap().keys().next().unwrap(),
            token.as_str().unwrap()
        );
    }
}

#[test]
fn replies_together_are_those_alone() {
    let folder = folder();
    let server = Running::start(folder.path(), &["--slots", "3"]);
    let texts: Vec<String> = (0..7)
        .map(|n| format!("question {n} {}", "word ".repeat(n * n)))
        .collect();
    let fresh = Running::start(folder.path(), &["--slots", "1"]);
    let alone: Vec<String> = texts
        .iter()
        .map(|text| fresh.text(ask(text, json!({}))))
        .collect();
    std::thread::scope(|scope| {
        let together: Vec<_> = texts
            .iter()
            .map(|text| scope.spawn(|| server.text(ask(text, json!({})))))
            .collect();
        for (wanted, found) in alone.iter().zip(together) {
            assert_eq!(&found.join().unwrap(), wanted);
        }
    });
}

#[test]
fn a_next_turn_goes_on_from_the_last() {
    let folder = folder();
    let server = Running::start(folder.path(), &["--slots", "2"]);
    let first = server.chat(ask("tell me something long and winding", json!({})));
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let turn = json!({"messages": [
        {"role": "user", "content": "tell me something long and winding"},
        {"role": "assistant", "content": "once upon a time"},
        {"role": "user", "content": "and then?"},
    ]});
    let second = server.chat(ask("", turn.clone()));
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap();
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(cached >= prompt - 3, "{cached} of {prompt}");
    let fresh = Running::start(folder.path(), &[]);
    assert_eq!(content(&second), fresh.text(ask("", turn)));
}

#[test]
fn a_seed_repeats_and_choices_differ() {
    let folder = folder();
    let server = Running::start(folder.path(), &[]);
    let wild = |seed: u64| {
        ask(
            "hello",
            json!({"temperature": 1.5, "top_p": 0.95, "seed": seed, "n": 3}),
        )
    };
    let texts = |body: Value| -> Vec<String> {
        let choices = body["choices"].as_array().unwrap().clone();
        choices
            .iter()
            .map(|c| c["message"]["content"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = texts(server.chat(wild(7)));
    assert_eq!(first.len(), 3);
    assert_eq!(first, texts(server.chat(wild(7))));
    assert_ne!(first, texts(server.chat(wild(8))));
    assert!(first[0] != first[1] && first[1] != first[2]);
}

#[test]
fn a_stream_is_the_whole_reply_in_pieces() {
    let folder = folder();
    let server = Running::start(folder.path(), &[]);
    for seed in 0..4 {
        let extra = json!({"temperature": 1.8, "seed": seed, "max_tokens": 120, "n": 2});
        let whole = server.chat(ask("你好 🎉", extra.clone()));
        let mut body = ask("你好 🎉", extra);
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        let answer = server.post("/v1/chat/completions", &body);
        assert!(
            answer.head.contains("content-type: text/event-stream"),
            "{}",
            answer.head
        );
        let mut texts = [String::new(), String::new()];
        let mut finished = 0;
        let events = answer.events();
        for event in &events {
            for choice in event["choices"].as_array().unwrap() {
                let index = choice["index"].as_u64().unwrap() as usize;
                texts[index] += choice["delta"]["content"].as_str().unwrap_or_default();
                finished += usize::from(choice["finish_reason"].is_string());
            }
        }
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(
                text,
                whole["choices"][index]["message"]["content"]
                    .as_str()
                    .unwrap()
            );
        }
        assert_eq!(finished, 2);
        let usage = &events.last().unwrap()["usage"];
        assert_eq!(
            usage["completion_tokens"],
            whole["usage"]["completion_tokens"]
        );
    }
}

#[test]
fn a_stop_string_ends_the_reply_anywhere() {
    let folder = folder();
    let server = Running::start(folder.path(), &[]);
    let whole = server.text(ask("hello", json!({})));
    let places: Vec<usize> = whole.char_indices().map(|(place, _)| place).collect();
    assert!(places.len() > 12, "{whole:?}");
    for start in [3, 5, 8] {
        // Four letters seldom fall together with a token.
        let stop = &whole[places[start]..places[start + 4]];
        let wanted = &whole[..whole.find(stop).unwrap()];
        let answer = server.chat(ask("hello", json!({"stop": ["never there", stop]})));
        assert_eq!(content(&answer), wanted, "{stop:?} in {whole:?}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn a_reply_that_repeats_itself_ends() {
    let folder = folder();
    let server = Running::start(folder.path(), &[]);
    // Any two equal tokens in a row.
    let detection = json!({"max_pattern_size": 1, "min_count": 2});
    let whole = json!({"max_tokens": 400, "temperature": 0, "logprobs": true});
    let ended = json!({"max_tokens": 400, "temperature": 0, "logprobs": true, "repetition_detection": detection});
    let tokens = |body: &Value| -> Vec<Value> {
        let logprobs = body["choices"][0]["logprobs"]["content"].as_array();
        logprobs
            .unwrap()
            .iter()
            .map(|one| one["bytes"].clone())
            .collect()
    };
    let whole = server.chat(ask("a", whole));
    let ended = server.chat(ask("a", ended));
    let (whole, tail) = (tokens(&whole), tokens(&ended));
    let pair = whole.windows(2).position(|pair| pair[0] == pair[1]);
    let end = pair.expect("greedy decoding of a tiny random model repeats itself") + 2;
    assert_eq!(tail, whole[..end]);
    assert_eq!(ended["choices"][0]["finish_reason"], "repetition");
}

#[test]
fn a_reply_without_a_required_text_ends() {
    let folder = folder();
    let server = Running::start(folder.path(), &[]);
    let asked = |any_of: &[&str], within_tokens: u32| {
        let required = json!({"any_of": any_of, "within_tokens": within_tokens});
        let body = json!({"max_tokens": 20, "temperature": 0, "required_text": required});
        server.chat(ask("hello", body))
    };
    let ended = asked(&["never there"], 5);
    assert_eq!(ended["choices"][0]["finish_reason"], "required_text");
    assert_eq!(ended["usage"]["completion_tokens"], 5);
    let whole = server.chat(ask("hello", json!({"max_tokens": 20, "temperature": 0})));
    let first = content(&whole).chars().next().unwrap().to_string();
    let found = asked(&["never there", first.as_str()], 15);
    assert_eq!(content(&found), content(&whole));
}

#[test]
fn bad_requests_are_refused_as_openai_does() {
    let folder = folder();
    let server = Running::start(folder.path(), &["--context", "128"]);
    let long = "word ".repeat(300);
    let chat = |extra: Value| ask("a", extra).to_string().into_bytes();
    let post = "POST /v1/chat/completions";
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        (post, b"{".to_vec(), 400, "EOF"),
        (post, b"{}".to_vec(), 400, "messages"),
        (post, vec![0xff, 0xfe], 400, "body"),
        (post, chat(json!({"messages": []})), 400, "message"),
        (post, chat(json!({"temperature": "hot"})), 400, "hot"),
        (post, chat(json!({"temperature": 9})), 400, "temperature"),
        (post, chat(json!({"model": "gpt-4o"})), 404, "tiny"),
        (post, chat(json!({"max_tokens": 4000})), 400, "context"),
        (
            post,
            ask(&long, json!({"max_tokens": 1}))
                .to_string()
                .into_bytes(),
            400,
            "context",
        ),
        (post, vec![b' '; (8 << 20) + 1], 413, "larger"),
        (post, chat(json!({"n": 1000})), 400, "n = 1000"),
        (
            "POST /v1/completions",
            json!({"prompt": [600]}).to_string().into_bytes(),
            400,
            "600",
        ),
        (
            "POST /v1/completions",
            json!({"prompt": [-1]}).to_string().into_bytes(),
            400,
            "-1",
        ),
        (
            "POST /v1/completions",
            json!({"prompt": []}).to_string().into_bytes(),
            400,
            "token",
        ),
        ("GET /v1/nothing", vec![], 404, "/v1/nothing"),
        ("GET /v1/completions", vec![], 405, "GET"),
        ("GET /v1/models/other", vec![], 404, "other"),
    ];
    for (head, body, status, word) in cases {
        let answer = server.raw(head, &body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        assert_eq!(answer.status, status, "{head} {shown}: {}", answer.body);
        let error = answer.json()["error"].clone();
        assert!(
            error["message"].as_str().unwrap().contains(word),
            "{shown}: {error}"
        );
        assert!(
            error["type"].is_string() && error.get("code").is_some(),
            "{error}"
        );
    }
    let models = server.raw("GET /v1/models", b"").json();
    assert_eq!(models["data"][0]["id"], "tiny");
    // After all that it still answers.
    assert!(server.chat(ask("a", json!({"max_tokens": 2})))["usage"]["total_tokens"].is_u64());
}

#[test]
fn a_disconnected_client_frees_its_slot() {
    let folder = folder();
    let server = Running::start(folder.path(), &["--slots", "1", "--queue", "0"]);
    for stream in [true, false] {
        assert_eq!(server.capacity(), 1);
        let body = ask("go on", json!({"max_tokens": 30000, "stream": stream}));
        let mut client = server.open("POST /v1/chat/completions", body.to_string().as_bytes());
        if stream {
            let mut some = [0u8; 512];
            assert!(client.read(&mut some).unwrap() > 0);
        }
        let started = Instant::now();
        while server.capacity() == 1 {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the request never came"
            );
        }
        let refused = server.post("/v1/chat/completions", &ask("me too", json!({})));
        assert_eq!(refused.status, 429, "{}", refused.body);
        assert!(refused.head.contains("retry-after"));
        drop(client);
        while server.capacity() == 0 {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the slot was never freed"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let answer = server.chat(ask("me too", json!({"max_tokens": 3})));
        assert_eq!(answer["usage"]["completion_tokens"], 3);
    }
}

#[test]
fn a_client_may_send_its_next_request_at_once() {
    let folder = folder();
    let server = Running::start(folder.path(), &["--slots", "1", "--queue", "0"]);
    for turn in 0..200 {
        let stream = turn % 2 == 0;
        let body = ask("again", json!({"max_tokens": 2, "stream": stream}));
        let answer = server.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "turn {turn}: {}", answer.body);
    }
}

#[test]
fn a_model_can_be_looked_at_without_its_weights_being_read() {
    let folder = folder();
    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pybench-train"));
        let command = command.arg("serve").arg(folder.path()).arg("--check");
        let output = command.output().unwrap();
        let good = output.status.success();
        let engine = if good { "own\n" } else { "" };
        assert_eq!(String::from_utf8_lossy(&output.stdout), engine);
        (good, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(check().0);
    let weights = folder.path().join("model.safetensors");
    let length = std::fs::metadata(&weights).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&weights);
    file.unwrap().set_len(length - 1).unwrap();
    let (good, text) = check();
    assert!(!good && text.contains("model.safetensors"), "{text}");
    std::fs::remove_file(&weights).unwrap();
    let (good, text) = check();
    assert!(!good && text.contains("model.safetensors"), "{text}");
}

#[test]
fn a_base_model_completes_and_does_not_chat() {
    let folder = folder();
    let path = folder.path().join("tokenizer_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().remove("chat_template");
    std::fs::write(&path, config.to_string()).unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_pybench-train"))
        .arg("serve")
        .arg(folder.path())
        .args(["--port", "0"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--base"));
    let server = Running::start(folder.path(), &["--base"]);
    let answer = server.post(
        "/v1/completions",
        &json!({"prompt": ["a b", "c"], "max_tokens": 4}),
    );
    assert_eq!(
        answer.json()["choices"].as_array().unwrap().len(),
        2,
        "{}",
        answer.body
    );
    let chat = server.post("/v1/chat/completions", &ask("a", json!({})));
    assert_eq!(chat.status, 400);
    let template = PathBuf::from(folder.path()).join("mine.jinja");
    std::fs::write(&template, "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}").unwrap();
    let server = Running::start(
        folder.path(),
        &["--chat-template", template.to_str().unwrap()],
    );
    let one = server.chat(ask("a", json!({})));
    let vocabulary = Vocabulary::load(folder.path()).unwrap();
    let wanted = vocabulary
        .encode("<user>a\n<assistant>", false)
        .unwrap()
        .len() as u64;
    assert_eq!(one["usage"]["prompt_tokens"], wanted);
}

#[test]
fn a_key_is_asked_for() {
    let folder = folder();
    let server = Running::start(folder.path(), &["--key", "sesame"]);
    assert_eq!(server.raw("GET /v1/models", b"").status, 401);
    let with = |key: &str| {
        server.raw(
            &format!("GET /v1/models HTTP/1.1\r\nauthorization: Bearer {key}\r\nx:"),
            b"",
        )
    };
    assert_eq!(with("sesame").status, 200);
    assert_eq!(with("sesamf").status, 401);
}

#[test]
fn vllm_is_launched_where_it_is_installed() {
    let folder = folder();
    let path = folder.path().join("bin");
    std::fs::create_dir(&path).unwrap();
    let vllm = path.join("vllm");
    // A replacement of vLLM that prints its arguments.
    write_program(
        &vllm,
        "#!/bin/sh\nprintf '%s\\n' \"$@\" \"key=$VLLM_API_KEY\"\n",
    );
    let template = jinja("call_tags.jinja");
    let run = |engine: &str, more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_pybench-train"))
            .arg("serve")
            .arg(folder.path())
            .args([
                "--engine", engine, "--name", "tiny", "--port", "1234", "--key", "sesame",
            ])
            .args(more)
            .env("PATH", &path)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "no address");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run(
        "auto",
        &[
            "--context",
            "256",
            "--chat-template",
            template.to_str().unwrap(),
        ],
    );
    let (shown, words) = said.split_once('\n').unwrap();
    let words: Vec<&str> = words.lines().collect();
    assert_eq!(words[..2], ["serve", folder.path().to_str().unwrap()]);
    for pair in [
        ["--served-model-name", "tiny"],
        ["--port", "1234"],
        ["--max-model-len", "256"],
        ["--chat-template", template.to_str().unwrap()],
        ["--tool-call-parser", "hermes"],
    ] {
        assert!(
            words.windows(2).any(|two| two == pair),
            "{pair:?} in {words:?}"
        );
    }
    assert!(words.contains(&"key=sesame"), "{words:?}");
    assert!(!shown.contains("sesame"), "the key is not shown: {shown}");
    assert!(said.contains("vLLM ended"), "{said}");
    std::fs::remove_file(&vllm).unwrap();
    assert!(run("vllm", &[]).contains("no vllm"));
    let broken = folder.path().join("broken.jinja");
    std::fs::write(&broken, "{% for").unwrap();
    let said = run("own", &["--chat-template", broken.to_str().unwrap()]);
    assert!(said.contains("chat template"), "{said}");
}

/// A server that answers like vLLM when it is ready.
const READY: &str = r#"
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"#;

#[test]
fn vllm_ends_with_the_program_that_started_it() {
    let folder = folder();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    write_program(
        &bin.join("vllm"),
        &format!("#!/usr/bin/env python3\n{READY}"),
    );
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pybench-train"))
            .arg("serve")
            .arg(folder.path())
            .args(["--engine", "vllm", "--port", "0"])
            .env("PATH", first_in_path(&bin))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap();
        let address = address.strip_suffix("/v1").unwrap();
        assert!(TcpStream::connect(address).is_ok());
        // SAFETY: the child has not been waited for, so its id is still its own.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        let status = child.wait().unwrap();
        assert_eq!(status.code(), (signal == libc::SIGTERM).then_some(130));
        let ended = Instant::now();
        while TcpStream::connect(address).is_ok() {
            assert!(ended.elapsed() < Duration::from_secs(60), "it still runs");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
