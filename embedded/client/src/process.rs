//! The `pybench-embedded` process: one JSON request and one JSON answer per line.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use pybench_embedded::{Answer, Ask, Hello, MAX_LINE_BYTES};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Maximum time to load a model; enough for a large model on a slow disk.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum bytes of stderr in an error message.
const MAX_STDERR: u64 = 4_096;

/// A running process; it is killed when this value is dropped.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
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
        };
        let hello = tokio::time::timeout(LOAD_TIMEOUT, process.read_line::<Hello>()).await;
        match hello {
            Ok(Ok(hello)) => {
                tracing::info!(
                    "{}: {}, {} tokens",
                    model.display(),
                    hello.model,
                    hello.context
                );
                Ok(process)
            }
            Ok(Err(error)) => Err(format!("{}: {error}", model.display())),
            Err(_) => Err(format!(
                "{}: the model did not load within {LOAD_TIMEOUT:?}",
                model.display()
            )),
        }
    }

    /// Sends a request and reads the answer. After an error, the process cannot be used again.
    ///
    /// # Errors
    /// A message, with the program's stderr if it ended.
    pub(super) async fn exchange(&mut self, ask: &Ask) -> Result<Answer, String> {
        let mut line = serde_json::to_vec(ask).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let written = async {
            self.input.write_all(&line).await?;
            self.input.flush().await
        };
        match written.await {
            Ok(()) => self.read_line().await,
            Err(_) => Err(self.exit_message().await),
        }
    }

    async fn read_line<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.output).take(MAX_LINE_BYTES);
        let read = bounded.read_until(b'\n', &mut line).await;
        read.map_err(|error| error.to_string())?;
        if line.last() != Some(&b'\n') {
            return Err(self.exit_message().await);
        }
        serde_json::from_slice(&line).map_err(|error| format!("invalid answer: {error}"))
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
