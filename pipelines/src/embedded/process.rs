//! The process and its two pipes.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use pybench_embedded::{Answer, Ask, Hello, MOST_LINE};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A large model is read from a slow disk.
const LOADING: Duration = Duration::from_secs(600);
/// Most of what it says of itself when it ends, bytes.
const MOST_SAID: u64 = 4_096;

/// A running process; it ends with this value.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the program with an empty environment and waits until the model is loaded; errors in words.
    pub(super) async fn start(
        program: &Path,
        model: &Path,
        context: Option<u32>,
    ) -> Result<Self, String> {
        let model = std::path::absolute(model).map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg(&model).env_clear().current_dir("/");
        // Threads that wait sleep: on a busy machine two that spin can stall each other.
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
            return Err(format!("{}: it has no pipes", program.display()));
        };
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        let hello = tokio::time::timeout(LOADING, process.line::<Hello>()).await;
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
            Err(_) => Err(format!("{}: not loaded in {LOADING:?}", model.display())),
        }
    }

    /// A question and its answer; after an error, in words, nothing more can be asked.
    pub(super) async fn exchange(&mut self, ask: &Ask) -> Result<Answer, String> {
        let mut line = serde_json::to_vec(ask).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let written = async {
            self.input.write_all(&line).await?;
            self.input.flush().await
        };
        match written.await {
            Ok(()) => self.line().await,
            Err(_) => Err(self.last_words().await),
        }
    }

    async fn line<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.output).take(MOST_LINE);
        let read = bounded.read_until(b'\n', &mut line).await;
        read.map_err(|error| error.to_string())?;
        if line.last() != Some(&b'\n') {
            return Err(self.last_words().await);
        }
        serde_json::from_slice(&line).map_err(|error| format!("its answer is none: {error}"))
    }

    /// Why it ended.
    async fn last_words(&mut self) -> String {
        let mut said = Vec::new();
        if let Some(errors) = self.child.stderr.take() {
            let mut errors = errors.take(MOST_SAID);
            // A grandchild could hold the pipe open.
            let read = errors.read_to_end(&mut said);
            let _ = tokio::time::timeout(Duration::from_secs(5), read).await;
        }
        let _ = self.child.start_kill();
        let status = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let said = String::from_utf8_lossy(&said);
        format!("the process ended ({status}): {}", said.trim())
    }
}
