//! Commits whose large files are sent with Xet, which transfers only the chunks that the Hub is missing. The
//! separate program `pybench-xet` (crate hf-hub) does the work. It is used if it is built and the Hub supports
//! Xet.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pybench_xet_protocol::{CommitJob, Event, FileUpload, PROGRAM};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::content::ContentSource;
use super::error::{HubError, HubErrorKind};
use super::{Change, Kind, Repository};
use pybench_run::program;

/// The path of the program; `None` if it is not built.
pub fn xet_program() -> Option<PathBuf> {
    program::find(PROGRAM)
}

/// A commit that was requested after all its large files were uploaded.
#[derive(Debug)]
pub struct PendingCommit<'a> {
    repository: &'a Repository<'a>,
    process: Process,
    sent: u64,
}

/// The running program. It ends when its standard input is closed: when this value is dropped, or when this
/// process ends for any reason.
#[derive(Debug)]
struct Process {
    _child: Child,
    _input: ChildStdin,
    _small: TempDir,
    events: Lines<BufReader<ChildStdout>>,
}

impl<'a> Repository<'a> {
    /// Sends the large files of a commit on top of `parent`, and returns when the commit is requested. `told` is
    /// called with the uploaded and the total number of bytes. If the future is dropped, nothing is committed.
    ///
    /// # Errors
    /// The upload failed; uploaded data is kept.
    pub async fn send_by_xet(
        &'a self,
        program: &Path,
        change: &Change<'_>,
        parent: &str,
        told: impl Fn(u64, u64),
    ) -> Result<PendingCommit<'a>, HubError> {
        let what = format!("sending to {} by Xet", self.shown());
        let local =
            |error: std::io::Error| HubError::new(&what, HubErrorKind::Local, error.to_string());
        let mut process = self.start(program, change, parent).await.map_err(local)?;
        let mut sent = 0;
        loop {
            match process.next(&what).await? {
                Event::Sending {
                    done,
                    total,
                    sent: now,
                } => {
                    sent = now;
                    told(done, total);
                }
                Event::Committing => break,
                last => return Err(self.error_of(&what, last)),
            }
        }
        Ok(PendingCommit {
            repository: self,
            process,
            sent,
        })
    }

    async fn start(
        &self,
        program: &Path,
        change: &Change<'_>,
        parent: &str,
    ) -> std::io::Result<Process> {
        let small = tempfile::tempdir()?;
        let mut put = Vec::with_capacity(change.put.len());
        for (number, (content, _)) in change.put.iter().enumerate() {
            let file = match &content.source {
                ContentSource::File(path) => std::path::absolute(path)?,
                ContentSource::Bytes(bytes) => {
                    let file = small.path().join(number.to_string());
                    std::fs::write(&file, bytes)?;
                    file
                }
            };
            put.push(FileUpload {
                path: content.path.clone(),
                file,
            });
        }
        let (owner, name) = self.name.split_once('/').unwrap_or_default();
        let job = CommitJob {
            dataset: self.kind == Kind::Dataset,
            owner: owner.to_owned(),
            name: name.to_owned(),
            parent: parent.to_owned(),
            message: change.message.to_owned(),
            put,
            delete: change.delete.iter().map(ToString::to_string).collect(),
        };
        // A separate process group, so that Ctrl-C only reaches this process, which decides what to do.
        let mut child = self
            .hub
            .configure(Command::new(program))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other(format!("{PROGRAM} has no pipes")));
        };
        let mut line = serde_json::to_vec(&job)?;
        line.push(b'\n');
        input.write_all(&line).await?;
        input.flush().await?;
        let events = BufReader::new(output).lines();
        Ok(Process {
            _child: child,
            _input: input,
            _small: small,
            events,
        })
    }

    /// The error of an event that reports a failure or is unexpected.
    fn error_of(&self, what: &str, event: Event) -> HubError {
        match event {
            Event::Refused {
                status,
                after,
                said,
            } => {
                let after = after.map(Duration::from_secs);
                HubError::from_program(what, status, after, self.hub.redact(&said))
            }
            other => HubError::new(
                what,
                HubErrorKind::UnexpectedResponse,
                format!("unexpected event {other:?}"),
            ),
        }
    }
}

impl PendingCommit<'_> {
    /// Waits for the commit and returns its hash and the bytes of large files that were transferred.
    ///
    /// # Errors
    /// The commit failed. If the response was lost, the commit may exist.
    pub async fn wait(mut self) -> Result<(String, u64), HubError> {
        let what = format!("committing to {}", self.repository.shown());
        match self.process.next(&what).await? {
            Event::Committed {
                commit: Some(commit),
            } => Ok((commit, self.sent)),
            last => Err(self.repository.error_of(&what, last)),
        }
    }
}

impl Process {
    async fn next(&mut self, what: &str) -> Result<Event, HubError> {
        let unexpected = |message: String| {
            HubError::new(
                what,
                HubErrorKind::UnexpectedResponse,
                format!("{PROGRAM}: {message}"),
            )
        };
        let line = self.events.next_line().await;
        let line = line.map_err(|error| unexpected(error.to_string()))?;
        let line = line.ok_or_else(|| unexpected("it ended without a result".into()))?;
        serde_json::from_str(&line).map_err(|error| unexpected(error.to_string()))
    }
}
