//! A commit whose large files go by Xet, in chunks of which the Hub takes those it lacks: made by
//! `pybench-xet`, a process of its own on the crate hf-hub. It is used where it is built and the Hub has Xet.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pybench_xet::{Event, Job, PROGRAM, Put};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::content::Source;
use super::refusal::{Refusal, Why};
use super::{Change, Kind, Repository};
use crate::program;

/// The program, where it is built.
pub fn xet_program() -> Option<PathBuf> {
    program::find(PROGRAM)
}

/// A commit whose large files have arrived, and which the Hub has been asked to make.
#[derive(Debug)]
pub struct Committing<'a> {
    repository: &'a Repository<'a>,
    process: Process,
    sent: u64,
}

/// The running program. It ends when its input does: with this value, and with this process, however that ends.
#[derive(Debug)]
struct Process {
    _child: Child,
    _input: ChildStdin,
    _small: TempDir,
    events: Lines<BufReader<ChildStdout>>,
}

impl<'a> Repository<'a> {
    /// Send the large files of a commit after `parent`, until the commit itself is asked for. `told` is called with
    /// the bytes that have arrived, and all. Dropped before, nothing is committed.
    ///
    /// # Errors
    /// Refusals; what has arrived stays there.
    pub async fn send_by_xet(
        &'a self,
        program: &Path,
        change: &Change<'_>,
        parent: &str,
        told: impl Fn(u64, u64),
    ) -> Result<Committing<'a>, Refusal> {
        let what = format!("sending to {} by Xet", self.shown());
        let here = |error: std::io::Error| Refusal::new(&what, Why::Setting, error.to_string());
        let mut process = self.start(program, change, parent).await.map_err(here)?;
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
                last => return Err(self.refused(&what, last)),
            }
        }
        Ok(Committing {
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
                Source::File(path) => std::path::absolute(path)?,
                Source::Bytes(bytes) => {
                    let file = small.path().join(number.to_string());
                    std::fs::write(&file, bytes)?;
                    file
                }
            };
            put.push(Put {
                path: content.path.clone(),
                file,
            });
        }
        let (owner, name) = self.name.split_once('/').unwrap_or_default();
        let job = Job {
            dataset: self.kind == Kind::Dataset,
            owner: owner.to_owned(),
            name: name.to_owned(),
            parent: parent.to_owned(),
            message: change.message.to_owned(),
            put,
            delete: change.delete.iter().map(ToString::to_string).collect(),
        };
        // In a group of its own: Ctrl-C is for this process, which decides.
        let mut child = self
            .hub
            .tell(Command::new(program))
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

    /// What the program's last word means, where it is not that all is well.
    fn refused(&self, what: &str, event: Event) -> Refusal {
        match event {
            Event::Refused {
                status,
                after,
                said,
            } => {
                let after = after.map(Duration::from_secs);
                Refusal::told(what, status, after, self.hub.hide(&said))
            }
            other => Refusal::new(what, Why::Form, format!("{other:?} out of turn")),
        }
    }
}

impl Committing<'_> {
    /// Wait for the commit: its hash, and the bytes of large files that went over the network.
    ///
    /// # Errors
    /// Refusals; a commit whose answer is lost may be there.
    pub async fn made(mut self) -> Result<(String, u64), Refusal> {
        let what = format!("committing to {}", self.repository.shown());
        match self.process.next(&what).await? {
            Event::Committed {
                commit: Some(commit),
            } => Ok((commit, self.sent)),
            last => Err(self.repository.refused(&what, last)),
        }
    }
}

impl Process {
    async fn next(&mut self, what: &str) -> Result<Event, Refusal> {
        let strange = |said: String| Refusal::new(what, Why::Form, format!("{PROGRAM}: {said}"));
        let line = self.events.next_line().await;
        let line = line.map_err(|error| strange(error.to_string()))?;
        let line = line.ok_or_else(|| strange("it ended without a word".into()))?;
        serde_json::from_str(&line).map_err(|error| strange(error.to_string()))
    }
}
