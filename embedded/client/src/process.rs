//! The `pybench-embedded` process: one JSON request and one JSON answer per line.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use pybench_embedded::{Answer, Ask, Hello, MAX_LINE_BYTES, STOP_LINE};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::UnboundedSender;

/// Maximum time to load a model; enough for a large model on a slow disk.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum time to end a reply that is withdrawn; enough for a part of a long prompt.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of stderr in an error message.
const MAX_STDERR: u64 = 4_096;

/// A running process; it is killed when this value is dropped.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Whether it ends a reply that is withdrawn.
    can_stop: bool,
}

/// Why there is no line.
enum ReadError {
    /// The process has ended.
    Ended,
    Other(String),
}

impl Process {
    /// Starts the program with an empty environment and waits until the model is loaded.
    ///
    /// # Errors
    /// A message with the path and the program's stderr.
    pub(super) async fn start(
        program: &Path,
        model: &Path,
        context: Option<u32>,
    ) -> Result<Self, String> {
        let model = std::path::absolute(model).map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg(&model).env_clear().current_dir("/");
        command.process_group(0); // a signal to our group must not end it while a reply is awaited
        // Waiting threads must sleep: spinning threads can block each other on a busy machine.
        command.env("OMP_WAIT_POLICY", "passive");
        if let Some(context) = context {
            command.args(["--context", &context.to_string()]);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let failed = |error: std::io::Error| format!("{}: {error}", program.display());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{}: cannot open its pipes", program.display()));
        };
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output),
            can_stop: false,
        };
        let hello = read_line::<Hello>(&mut process.output);
        let hello = tokio::time::timeout(LOAD_TIMEOUT, hello).await;
        match hello {
            Ok(Ok(hello)) => {
                tracing::info!(
                    "{}: {}, {} tokens",
                    model.display(),
                    hello.model,
                    hello.context
                );
                process.can_stop = hello.streams;
                Ok(process)
            }
            Ok(Err(error)) => {
                let error = process.explained(error).await;
                Err(format!("{}: {error}", model.display()))
            }
            Err(_) => Err(format!(
                "{}: the model did not load within {LOAD_TIMEOUT:?}",
                model.display()
            )),
        }
    }

    /// Sends a request and reads the answer. The pieces of a streamed reply are sent to `pieces`; once its receiver is
    /// dropped, the request is withdrawn. After an error, the process cannot be used again.
    ///
    /// # Errors
    /// A message, with the program's stderr if it ended.
    pub(super) async fn exchange(
        &mut self,
        ask: &Ask,
        pieces: &UnboundedSender<String>,
    ) -> Result<Answer, String> {
        let line = serde_json::to_vec(ask).map_err(|error| error.to_string())?;
        let answer = match write_line(&mut self.input, line).await {
            Ok(()) => self.answer(pieces).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explained(error).await),
        }
    }

    /// Reads the answer to the request that was sent.
    async fn answer(&mut self, pieces: &UnboundedSender<String>) -> Result<Answer, ReadError> {
        let answer = read_answer(&mut self.output, pieces);
        tokio::pin!(answer);
        tokio::select! {
            answer = &mut answer => return answer,
            () = pieces.closed() => {}
        }
        let withdrawn = || ReadError::Other("the request was withdrawn".to_owned());
        if !self.can_stop {
            return Err(withdrawn());
        }
        write_line(&mut self.input, STOP_LINE.to_vec()).await?;
        let stopped = tokio::time::timeout(STOP_TIMEOUT, answer).await;
        stopped.map_err(|_| withdrawn())?
    }

    /// Ends the process and waits until its memory is free.
    pub(super) async fn kill(mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!("could not end the process of a model: {error}");
        }
    }

    async fn explained(&mut self, error: ReadError) -> String {
        match error {
            ReadError::Ended => self.exit_message().await,
            ReadError::Other(text) => text,
        }
    }

    /// Kills the process and describes its exit status and stderr.
    async fn exit_message(&mut self) -> String {
        let mut stderr = Vec::new();
        if let Some(errors) = self.child.stderr.take() {
            let mut errors = errors.take(MAX_STDERR);
            // A grandchild process could keep the pipe open, so limit the wait.
            let read = errors.read_to_end(&mut stderr);
            let _ = tokio::time::timeout(Duration::from_secs(5), read).await;
        }
        let _ = self.child.start_kill();
        let status = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let stderr = String::from_utf8_lossy(&stderr);
        format!("the process ended ({status}): {}", stderr.trim())
    }
}

/// Reads the pieces of a reply and the answer behind them.
async fn read_answer(
    output: &mut BufReader<ChildStdout>,
    pieces: &UnboundedSender<String>,
) -> Result<Answer, ReadError> {
    loop {
        match read_line(output).await? {
            // Nobody waits for the pieces of a request that is withdrawn.
            Answer::Text(piece) => drop(pieces.send(piece)),
            answer => return Ok(answer),
        }
    }
}

async fn read_line<T: DeserializeOwned>(
    output: &mut BufReader<ChildStdout>,
) -> Result<T, ReadError> {
    let mut line = Vec::new();
    let mut bounded = output.take(MAX_LINE_BYTES);
    let read = bounded.read_until(b'\n', &mut line).await;
    read.map_err(|error| ReadError::Other(error.to_string()))?;
    if line.last() != Some(&b'\n') {
        return Err(ReadError::Ended);
    }
    serde_json::from_slice(&line)
        .map_err(|error| ReadError::Other(format!("invalid answer: {error}")))
}

async fn write_line(input: &mut ChildStdin, mut line: Vec<u8>) -> Result<(), ReadError> {
    line.push(b'\n');
    let written = async {
        input.write_all(&line).await?;
        input.flush().await
    };
    written.await.map_err(|_| ReadError::Ended)
}
