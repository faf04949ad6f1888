//! `pybench chat` with a scripted endpoint and real sessions.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use pybench_agent::{Format as _, PybenchFormat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{ExpertServer, RunFixture, interpreter_is_here, recipe};
use crate::support::pybench;

/// Longer than any step of a test takes.
const PATIENCE: Duration = Duration::from_secs(240);

/// A chat that runs, and what it has written.
struct Chat {
    child: Child,
    input: Option<ChildStdin>,
    output: Arc<Mutex<String>>,
    notes: Arc<Mutex<String>>,
}

/// Collects what a stream yields.
fn collected(mut stream: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let own = text.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            *own.lock().unwrap() += &String::from_utf8_lossy(&buffer[..count]);
        }
    });
    text
}

impl Chat {
    fn start(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped());
        let piped = piped.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        Self {
            input: child.stdin.take(),
            output: collected(child.stdout.take().unwrap()),
            notes: collected(child.stderr.take().unwrap()),
            child,
        }
    }

    fn types(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    fn notes(&self) -> String {
        self.notes.lock().unwrap().clone()
    }

    fn wait_for(&self, found: impl Fn(&Self) -> bool, what: &str) {
        let until = Instant::now() + PATIENCE;
        while !found(self) {
            let (output, notes) = (self.output(), self.notes());
            assert!(
                Instant::now() < until,
                "{what} never came:\n{output}\n{notes}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_for_output(&self, text: &str) {
        self.wait_for(|chat| chat.output().contains(text), text);
    }

    fn wait_for_note(&self, text: &str) {
        self.wait_for(|chat| chat.notes().contains(text), text);
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Presses Ctrl-C as often as it takes. Signals that follow at once may arrive as one.
    fn interrupt_until_it_ends(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            self.interrupt();
            std::thread::sleep(Duration::from_millis(500));
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
        }
        panic!("it does not end:\n{}\n{}", self.output(), self.notes());
    }

    /// Kills it at once.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the input, and waits.
    fn end(&mut self) -> ExitStatus {
        drop(self.input.take());
        self.child.wait().unwrap()
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder in which conversations are.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = pybench("chat");
        command.args(args).current_dir(self.0.path());
        command.env_remove("PYBENCH_ROOT");
        command
    }

    fn begin(&self, endpoint: &Endpoint, more: &[&str]) -> Chat {
        let url = endpoint.base_url();
        let args = ["--model", "m", "--base-url", &url, "--format", "pybench"];
        Chat::start(self.command(&[&args[..], more].concat()))
    }

    fn resume(&self) -> Chat {
        Chat::start(self.command(&["--resume"]))
    }

    /// Runs it with this input to its end.
    fn run(&self, args: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut chat = Chat::start(self.command(args));
        let _ = chat.input.as_mut().unwrap().write_all(input.as_bytes());
        let status = chat.end();
        // What was written last may still be read.
        std::thread::sleep(Duration::from_millis(200));
        (status.code(), chat.output(), chat.notes())
    }
}

fn last_message(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let last = messages.last().unwrap();
    last["content"].as_str().unwrap().to_owned()
}

fn step(cell: &str) -> Answer {
    let step = PybenchFormat.write_step("I look.", cell);
    let step = step.split(pybench_agent::END).next();
    Answer::Content(step.unwrap_or_default().to_owned())
}

fn answer(text: &str) -> Answer {
    Answer::Content(PybenchFormat.write_answer(text))
}

/// Answers a message by a cell, which the message names, and an observation by repeating its last line.
fn respond(request: &Value) -> Answer {
    let last = last_message(request);
    match last.strip_prefix("[INFO]This is a Code Interpreter Message:\n") {
        Some(seen) => answer(&format!(
            "It is {}.",
            seen.trim().lines().last().unwrap_or("done")
        )),
        None => step(last.strip_prefix("run: ").unwrap_or("pass").trim()),
    }
}

async fn responding() -> Endpoint {
    Endpoint::start(|request| async move { respond(&request) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_after_a_kill() {
    if !interpreter_is_here() {
        return;
    }
    let (place, endpoint) = (Place::new(), responding().await);
    std::fs::write(place.path("in.csv"), "a\n41\n").unwrap();
    let mut chat = place.begin(&endpoint, &["--file", "in.csv"]);
    chat.types("run: x = int(open('data/in.csv').read().split()[1]); print(x)");
    chat.wait_for_output("It is 41.");
    chat.kill();

    let mut chat = place.resume();
    chat.wait_for_note("the session is restored: 1 cells ran again");
    chat.types("run: print(x + 1)");
    chat.wait_for_output("It is 42.");
    assert!(chat.end().success());
    // The model has read all of it.
    let requests = endpoint.calls().into_keys();
    let longest = requests.max_by_key(String::len).unwrap();
    for text in ["./data/in.csv", "41", "print(x + 1)", "42"] {
        assert!(longest.contains(text), "{text}: {longest}");
    }
    let (code, list, _) = place.run(&["--list"], "");
    assert_eq!((code, list.lines().count()), (Some(0), 1));
    assert!(list.contains("run: x = int("), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_of_a_reply_loses_nothing_that_was_shown_as_saved() {
    if !interpreter_is_here() {
        return;
    }
    let (place, asked) = (Place::new(), OnceLock::new());
    let endpoint = Endpoint::start(move |_| {
        let second = asked.set(()).is_err();
        async move {
            match second {
                false => Answer::Pieces(
                    vec!["I am thin".to_owned(); 900],
                    Duration::from_millis(300),
                ),
                true => answer("Here I am."),
            }
        }
    })
    .await;
    let mut chat = place.begin(&endpoint, &[]);
    chat.types("Are you there?");
    chat.wait_for_output("I am thin");
    chat.kill();
    let mut chat = place.resume();
    chat.wait_for_note("/continue lets it go on");
    chat.types("/continue");
    chat.wait_for_output("Here I am.");
    chat.types("/history");
    assert!(chat.end().success());
    chat.wait_for_output("1  Are you there?");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_the_cell_and_twice_ends_the_chat() {
    if !interpreter_is_here() {
        return;
    }
    let (place, endpoint) = (Place::new(), responding().await);
    let mut chat = place.begin(&endpoint, &[]);
    chat.types("run: x = 7; print('begun', flush=True); import time; time.sleep(600)");
    chat.wait_for_output("\nbegun\n");
    chat.interrupt();
    chat.wait_for_note("the cell was stopped; variables are kept");
    chat.types("run: print(x)");
    chat.wait_for_output("It is 7.");
    let requests = endpoint.calls().into_keys();
    let longest = requests.max_by_key(String::len).unwrap();
    assert!(longest.contains("The user stopped the cell"), "{longest}");

    // In the middle of work, which ignores it, and at the prompt.
    let stubborn = "while True:\\n try: time.sleep(1)\\n except BaseException: pass";
    chat.types(&format!(
        "run: print('again', flush=True); exec('{stubborn}')"
    ));
    chat.wait_for_output("\nagain\n");
    assert!(chat.interrupt_until_it_ends().success());
    assert!(chat.notes().matches("stopping; press Ctrl-C again").count() >= 2);
    let mut other = place.resume();
    other.wait_for_note("the session is restored");
    assert!(other.interrupt_until_it_ends().success());
    assert!(other.notes().contains("press Ctrl-C again to end the chat"));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_work_on_files_messages_and_exports() {
    if !interpreter_is_here() {
        return;
    }
    let (place, endpoint) = (Place::new(), responding().await);
    std::fs::write(place.path("notes.txt"), "here").unwrap();
    let input = [
        "/put notes.txt",
        "run: n = open('output/a.txt', 'w').write('made')",
        "/edit 1 run: print('<script>alert(1)</script>'); n = open('output/b.txt', 'w').write('made')",
        "/retry",
        "run: c = 1\\",
        "print(c + 1)",
        "/files",
        "/history",
        "/get output/b.txt",
        "/save notebook n.ipynb",
        "/save json c.json",
        "/save html c.html",
        "/limits",
        "/quit",
        "",
    ];
    let url = endpoint.base_url();
    let args = ["--model", "m", "--base-url", &url, "--format", "pybench"];
    let (code, output, notes) = place.run(&args, &input.join("\n"));
    assert_eq!(code, Some(0), "{output}\n{notes}");
    for text in [
        "4 B  data/notes.txt",
        "4 B  output/b.txt",
        "It is 2.",
        "  2  run: c = 1",
        "a message   at most 20 replies",
    ] {
        assert!(output.contains(text), "{text}: {output}");
    }
    let is_there = output.contains("B  output/a.txt");
    assert!(!is_there, "it was taken back: {output}");
    assert_eq!(
        std::fs::read_to_string(place.path("b.txt")).unwrap(),
        "made"
    );
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let notebook: Value = serde_json::from_str(&read("n.ipynb")).unwrap();
    let cells = notebook["cells"].as_array().unwrap();
    let code = cells.iter().filter(|cell| cell["cell_type"] == "code");
    assert_eq!(code.count(), 2, "{notebook}");
    let data: Value = serde_json::from_str(&read("c.json")).unwrap();
    assert_eq!(data["model"], "openai:m");
    assert!(!data.to_string().contains(&url));
    let html = read("c.html");
    assert!(
        html.contains("&lt;script&gt;") && !html.contains("<script"),
        "{html}"
    );

    // A file that is there is not overwritten, and ends a chat that no person types.
    let (code, _, notes) = place.run(&["--resume"], "/get output/b.txt\n/files\n");
    assert_ne!(code, Some(0));
    assert!(notes.contains("writing b.txt"), "{notes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_become_files_where_there_is_no_terminal() {
    if !interpreter_is_here() {
        return;
    }
    let (place, endpoint) = (Place::new(), responding().await);
    let mut chat = place.begin(&endpoint, &[]);
    chat.types("run: import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()");
    chat.wait_for_output("[picture: ");
    let output = chat.output();
    let path = output.split("[picture: ").nth(1).unwrap().split(']').next();
    let bytes = std::fs::read(place.path(path.unwrap())).unwrap();
    assert!(bytes.starts_with(b"\x89PNG"));
    assert!(chat.end().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_graded() {
    if !interpreter_is_here() {
        return;
    }
    let fixture = RunFixture::new(&recipe(2, "{ kind = 'expert' }", "")).await;
    let (tasks, expert) = (fixture.tasks.clone(), ExpertServer::new());
    let endpoint = Endpoint::start(move |request| {
        let answer = expert.answer(&tasks, &request);
        async move { answer }
    })
    .await;
    let url = endpoint.base_url();
    let place = Place::new();
    let runs = fixture.path("data/runs");
    let runs = runs.to_str().unwrap();
    let model = ["--model", "m", "--base-url", &url, "--format", "pybench"];
    let task = ["--task", "t:1", "--runs-dir", runs];
    let (code, output, notes) = place.run(&[&model[..], &task[..]].concat(), "/grade\n");
    assert_eq!(code, Some(0), "{output}\n{notes}");
    assert!(output.contains("\naccepted\n"), "{output}");
    let missing = ["--task", "t:99", "--runs-dir", runs];
    let (code, _, notes) = place.run(&[&model[..], &missing[..]].concat(), "");
    assert_eq!(code, Some(3), "{notes}");
    let (code, _, notes) = place.run(&model, "/grade\n");
    assert_eq!(code, Some(3), "{notes}");
    assert!(notes.contains("has no checks"), "{notes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_has_an_exit_code_and_a_way_out() {
    if !interpreter_is_here() {
        return;
    }
    let place = Place::new();
    let endpoint = Endpoint::always(Answer::Status(401, None, "{}".into())).await;
    let url = endpoint.base_url();
    let model = ["--model", "m", "--base-url", &url];
    let script = "name = 't'\n[agents.reference]\nkind = 'script'\nscript = 'reference'\n";
    std::fs::write(place.path("r.toml"), script).unwrap();
    let with = |more: &[&'static str]| [&model[..], more].concat();
    for (args, expected, told) in [
        (vec![], 3, "name a model with --model"),
        (vec!["--resume", "0a"], 3, "there is no conversation `0a`"),
        (
            vec!["--agent", "reference", "--recipe", "./r.toml"],
            3,
            "is no model",
        ),
        (
            vec!["--agent", "referenz", "--recipe", "./r.toml"],
            3,
            "did you mean `reference`?",
        ),
        (with(&["--key-env", "NO_SUCH_KEY"]), 5, "NO_SUCH_KEY"),
        (with(&["--usd", "1"]), 3, "--tokens"),
        (with(&["--tokens", "10"]), 6, "another reply may need"),
        (model.to_vec(), 5, "refused the API key"),
    ] {
        let (code, output, notes) = place.run(&args, "Hello\n");
        assert_eq!(code, Some(expected), "{args:?}: {output}\n{notes}");
        assert!(notes.contains(told), "{args:?}: {notes}");
    }
    assert_eq!(endpoint.call_count(), 1);
}

#[test]
fn the_history_is_for_this_user_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let (code, output, _) = place.run(&["--list"], "");
    assert_eq!((code, &*output), (Some(0), "there are no conversations\n"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.path("data/chat")), 0o700);
    assert_eq!(mode(&place.path("data/chat/history.sqlite")), 0o600);
}
