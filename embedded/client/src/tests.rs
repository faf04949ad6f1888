use std::time::Instant;

use pybench_types::id::Digest;
use pybench_types::trajectory::{Message as ChatMessage, Role, Sampling};

use super::*;
use pybench_testing::program::write_program;

/// A stand-in for the program: a shell script in a temporary folder.
struct FakeProgram {
    folder: tempfile::TempDir,
}

impl FakeProgram {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("m.gguf"), "12345").unwrap();
        write_program(&folder.path().join("program"), script);
        Self { folder }
    }

    async fn teacher(&self, reply_timeout: Duration) -> Result<Embedded, String> {
        let model = self.model("m.gguf", None);
        let program = self.folder.path().join("program");
        let (path, digest) = model.find().await.unwrap();
        let process = Process::start(&program, &path, model.context).await?;
        Ok(Embedded {
            name: name_with_digest(&model.model, &digest),
            model,
            program,
            reply_timeout,
            state: Arc::new(Mutex::new(super::ProcessState {
                path: None,
                process: Some(process),
            })),
        })
    }

    fn model(&self, model: &str, sha256: Option<String>) -> Model {
        Model {
            model: model.to_owned(),
            sha256,
            context: Some(64),
            root: self.folder.path().to_owned(),
            cache: self.folder.path().to_owned(),
        }
    }
}

const HELLO: &str = "#!/bin/sh\necho '{\"model\":\"m\",\"context\":64}'\n";

async fn ask(teacher: &Embedded, sample: u32) -> Result<Reply, ChatError> {
    let messages = [
        ChatMessage::new(Role::System, "s"),
        ChatMessage::new(Role::User, "q"),
    ];
    let request = ChatRequest {
        key: &Digest::of_bytes(b"q"),
        sample,
        messages: &messages,
        sampling: &Sampling::default(),
        stop: &["END".to_owned()],
        pictures: &[],
    };
    teacher.reply(&request).await
}

/// Replies with its own arguments and environment, and with the request.
const ECHO: &str = r#"
while read -r line; do
    said=$(printf '%s %s %s' "$#:$2:$3" "$(/usr/bin/env | /usr/bin/sort | /usr/bin/tr '\n' ' ')" "$line" | /usr/bin/sed 's/["\\]/\\&/g')
    printf '{"reply":{"content":"%s","prompt_tokens":5,"reused_tokens":4,"completion_tokens":2,"truncated":true}}\n' "$said"
done
"#;

#[tokio::test]
async fn the_process_gets_requests_and_no_environment() {
    let program = FakeProgram::new(&format!("{HELLO}{ECHO}"));
    let teacher = program.teacher(Duration::from_secs(60)).await.unwrap();
    assert_eq!(teacher.name(), "gguf:m-5994471abb01");
    let reply = ask(&teacher, 0).await.unwrap();
    assert!(
        reply.truncated && reply.usage.prompt_tokens == 5 && reply.usage.completion_tokens == 2
    );
    assert!(
        reply.content.starts_with("3:--context:64 "),
        "{}",
        reply.content
    );
    for own in ["HOME=", "CARGO", "UV=", "USER="] {
        assert!(!reply.content.contains(own), "{own} in {}", reply.content);
    }
    assert!(
        reply
            .content
            .contains(r#""messages":[{"role":"system","content":"s"}"#)
    );
    assert!(reply.content.contains(r#""stop":["END"]"#));
    // Equal requests have equal seeds; another sample has another seed.
    let again = ask(&teacher, 0).await.unwrap();
    assert_eq!(again.content, reply.content);
    assert_ne!(ask(&teacher, 1).await.unwrap().content, reply.content);
}

#[tokio::test]
async fn a_process_that_ends_or_hangs_is_restarted() {
    let dies = "read -r line\necho 'out of luck' >&2\nexit 3\n";
    let program = FakeProgram::new(&format!("{HELLO}{dies}"));
    let teacher = program.teacher(Duration::from_secs(60)).await.unwrap();
    for _ in 0..2 {
        let error = ask(&teacher, 0).await.unwrap_err();
        let broken = matches!(&error, ChatError::Broken(text) if text.contains("out of luck"));
        assert!(broken && error.retryable(), "{error}");
    }
    let program = FakeProgram::new(&format!("{HELLO}exec sleep 600\n"));
    let teacher = program.teacher(Duration::from_millis(200)).await.unwrap();
    let begun = Instant::now();
    assert_eq!(ask(&teacher, 0).await.unwrap_err(), ChatError::Timeout);
    assert!(
        begun.elapsed() < Duration::from_secs(300) && teacher.state.lock().await.process.is_none()
    );
    let refuses = "while read -r line; do echo '{\"refused\":\"too long\"}'; done\n";
    let program = FakeProgram::new(&format!("{HELLO}{refuses}"));
    let teacher = program.teacher(Duration::from_secs(60)).await.unwrap();
    let error = ask(&teacher, 0).await.unwrap_err();
    assert_eq!(error, ChatError::Rejected("too long".into()));
    assert!(
        teacher.state.lock().await.process.is_some(),
        "the process can be used again"
    );
}

/// Streams a reply that ends with its process id. To `stay`, it begins a reply and waits until that is withdrawn.
const STREAMS: &str = r#"
while read -r line; do
    case "$line" in
    stop) ;;
    *stay*) echo '{"text":"I "}'; read -r line; echo '{"failed":"withdrawn"}' ;;
    *)
        echo '{"text":"I am "}'
        echo '{"text":"'$$'"}'
        echo '{"reply":{"content":"I am '$$'","prompt_tokens":1,"reused_tokens":0,"completion_tokens":2,"truncated":false}}'
        ;;
    esac
done
"#;

async fn ask_live(
    teacher: &Embedded,
    text: &str,
    watcher: &ReplyWatcher,
) -> Result<Reply, ChatError> {
    let messages = [ChatMessage::new(Role::User, text)];
    let request = ChatRequest {
        key: &Digest::of_bytes(b"q"),
        sample: 0,
        messages: &messages,
        sampling: &Sampling::default(),
        stop: &[],
        pictures: &[],
    };
    teacher.reply_live(&request, watcher).await
}

#[tokio::test]
async fn replies_are_streamed_and_end_when_nobody_waits_for_them() {
    let streaming = HELLO.replace("64}", "64,\"streams\":true}");
    for (hello, keeps_its_process) in [(streaming.as_str(), true), (HELLO, false)] {
        let program = FakeProgram::new(&format!("{hello}{STREAMS}"));
        let teacher = program.teacher(Duration::from_secs(60)).await.unwrap();
        let (watcher, mut pieces) = ReplyWatcher::new();
        let first = ask_live(&teacher, "q", &watcher).await.unwrap();
        let mut seen = String::new();
        while let Ok(piece) = pieces.try_recv() {
            seen += &piece;
        }
        assert_eq!(seen, first.content);
        tokio::select! {
            reply = ask_live(&teacher, "stay", &watcher) => panic!("{reply:?}"),
            piece = pieces.recv() => assert_eq!(piece.as_deref(), Some("I ")),
        }
        // One that knows no stop is killed.
        let next = ask_live(&teacher, "q", &watcher).await.unwrap();
        assert_eq!(next.content == first.content, keeps_its_process, "{next:?}");
    }
}

#[tokio::test]
async fn unusable_models_are_reported_with_the_reason() {
    let program = FakeProgram::new("#!/bin/sh\necho 'no chat template' >&2\nexit 2\n");
    let error = program
        .teacher(Duration::from_secs(60))
        .await
        .err()
        .unwrap();
    assert!(
        error.contains("no chat template") && error.contains("m.gguf"),
        "{error}"
    );
    let find = async |model, sha256| {
        let found = program.model(model, sha256).find().await;
        found.unwrap_err().to_string()
    };
    let error = find("absent.gguf", None).await;
    assert!(error.contains("smollm2-135m-instruct"), "{error}");
    let pipe = program.folder.path().join("pipe.gguf");
    let made = std::process::Command::new("mkfifo").arg(pipe).status();
    assert!(made.unwrap().success());
    let error = find("pipe.gguf", None).await;
    assert!(error.contains("not a regular file"), "{error}");
    let error = find("m.gguf", Some("0".repeat(64))).await;
    assert!(error.contains("not the pinned"), "{error}");
    if program::find(PROGRAM).is_some() {
        let error = Embedded::pinned(program.model("m.gguf", None))
            .err()
            .unwrap();
        assert!(error.to_string().contains("sha256sum"), "{error}");
    }
}

#[test]
fn names_depend_on_the_digest() {
    let digest = "ABCDEF0123456789";
    assert_eq!(
        name("a/b.gguf", Some(digest)).unwrap(),
        "gguf:b-abcdef012345"
    );
    assert_eq!(name("a/b.gguf", None), None);
    assert_eq!(
        name("smollm2-135m-instruct", None).unwrap(),
        "gguf:smollm2-135m-instruct-b179c9523d0e"
    );
    let seeds = |sample| Digest::of_json(&(sample, 1)).seed();
    assert_ne!(seeds(1), seeds(2));
}
