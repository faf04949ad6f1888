//! The interpreter of a conversation. It starts with the first cell or file, and is restored by replay: in another process,
//! and after a person took something back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pybench_interpreter::{
    FileError, Interpreter, InterpreterChoice, InterpreterError, Network, Session, SessionSpec,
    Watcher,
};
use pybench_run::{ContentStore, RunError};
use pybench_types::observation::{Observation, Stopped};
use pybench_types::trajectory::CellRun;

use crate::entry::{Entry, InputFile};
use crate::live::{Event, Live, Restored};

/// How often a cell that a person stops is interrupted: it may only be about to start.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// Ends the process of a session, as a cell did that cannot be repeated. Files are kept.
const END_PROCESS: &str = "import os\nos._exit(1)";

/// The session of a conversation.
pub(crate) struct LiveSession {
    interpreter: Arc<dyn Interpreter>,
    spec: SessionSpec,
    session: Option<Box<dyn Session>>,
}

impl LiveSession {
    /// A session that has not started. Paths are relative to `root`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the network of `choice` is wrong.
    pub(crate) fn new(
        interpreter: Arc<dyn Interpreter>,
        choice: &InterpreterChoice,
        root: &Path,
        seed: u64,
    ) -> Result<Self, RunError> {
        let network = Network::allow(&choice.network)
            .map_err(|error| RunError::BadInput(format!("`interpreter.network`: {error}")))?;
        let spec = SessionSpec {
            seed,
            limits: choice.limits.clone(),
            wheelhouse: choice.wheelhouse.as_ref().map(|path| root.join(path)),
            network,
            ..SessionSpec::default()
        };
        Ok(Self {
            interpreter,
            spec,
            session: None,
        })
    }

    pub(crate) fn interpreter(&self) -> &Arc<dyn Interpreter> {
        &self.interpreter
    }

    pub(crate) fn seed(&self) -> u64 {
        self.spec.seed
    }

    /// The session, if it runs.
    pub(crate) fn running(&mut self) -> Option<&mut dyn Session> {
        Some(self.session.as_mut()?.as_mut())
    }

    /// Starts the session if it does not run, with the files and variables of `entries`. Returns `None` if the person stopped
    /// this.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the interpreter cannot run; [`RunError::BadInput`] if a file cannot be restored.
    pub(crate) async fn ensure(
        &mut self,
        entries: &[Entry],
        store: &ContentStore,
        live: &Live,
    ) -> Result<Option<&mut dyn Session>, RunError> {
        if self.session.is_none() {
            let started = self.interpreter.start(self.spec.clone()).await;
            let mut session = started.map_err(environment)?;
            let replayed = replay(session.as_mut(), entries, store, live).await;
            match replayed {
                Ok(true) => self.session = Some(session),
                stopped_or_failed => {
                    end(session).await;
                    stopped_or_failed?;
                    return Ok(None);
                }
            }
        }
        Ok(self.running())
    }

    /// Runs a cell in the running session. If the sandbox fails, the session is restored before the next cell.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the sandbox fails.
    pub(crate) async fn run(
        &mut self,
        code: &str,
        live: &Live,
    ) -> Result<(Observation, bool), RunError> {
        let Some(session) = self.running() else {
            let text = "the session of the conversation does not run";
            return Err(RunError::Internal(text.to_owned()));
        };
        let result = run_cell(session, code, live, true).await;
        if result.is_err() {
            self.close().await;
        }
        result
    }

    /// Puts a file into the session, if it runs.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the session cannot take it.
    pub(crate) fn put(&mut self, file: &InputFile, store: &ContentStore) -> Result<(), RunError> {
        match self.running() {
            Some(session) => put(session, file, store),
            None => Ok(()),
        }
    }

    /// Ends the session; the next use restores it.
    pub(crate) async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            end(session).await;
        }
    }
}

async fn end(session: Box<dyn Session>) {
    if let Err(error) = session.close().await {
        tracing::warn!("cannot close the session of a conversation: {error}");
    }
}

/// Puts the files and runs the cells of a conversation again; `false` if the person stopped it.
async fn replay(
    session: &mut dyn Session,
    entries: &[Entry],
    store: &ContentStore,
    live: &Live,
) -> Result<bool, RunError> {
    let is_cell = |entry: &&Entry| matches!(entry, Entry::Run { run, .. } if run.cell.is_some());
    let cells = entries.iter().filter(is_cell).count();
    let (mut restored, mut number) = (Restored::default(), 0);
    for entry in entries {
        let (code, before) = match entry {
            Entry::File(file) => {
                put(session, file, store)?;
                continue;
            }
            Entry::Run {
                run:
                    CellRun {
                        cell: Some(code),
                        observation,
                    },
                ..
            } => (code, observation),
            _ => continue,
        };
        number += 1;
        live.send(Event::Restoring {
            cell: number,
            cells,
        });
        let code = match before.stopped {
            None => code,
            Some(Stopped::Interrupted) => {
                restored.skipped.push(number);
                continue;
            }
            // Its process ended, and with it all variables.
            Some(Stopped::Restarted | Stopped::Died) => {
                restored.skipped.push(number);
                session.execute(END_PROCESS).await.map_err(environment)?;
                continue;
            }
        };
        let (again, _) = run_cell(session, code, live, false).await?;
        if live.stop.is_requested() {
            return Ok(false);
        }
        restored.cells += 1;
        if again != *before {
            restored.differing.push(number);
        }
    }
    if cells > 0 {
        live.send(Event::Restored(restored));
    }
    Ok(true)
}

/// Runs a cell until it ends, or the person stops it. Returns whether the person did.
async fn run_cell(
    session: &mut dyn Session,
    code: &str,
    live: &Live,
    shown: bool,
) -> Result<(Observation, bool), RunError> {
    let interrupt = session.interrupt_handle();
    let (watcher, mut outputs) = Watcher::new();
    let show = |output| {
        if shown {
            live.send(Event::Output(output));
        }
    };
    let running = session.execute_live(code, watcher);
    tokio::pin!(running);
    let mut again = tokio::time::interval(STOP_INTERVAL);
    let mut asked = false;
    let observation = loop {
        tokio::select! {
            biased;
            Some(output) = outputs.recv() => show(output),
            result = &mut running => break result.map_err(environment)?,
            () = live.stop.requested(), if !asked => asked = true,
            _ = again.tick(), if asked => interrupt.interrupt(),
        }
    };
    while let Ok(output) = outputs.try_recv() {
        show(output);
    }
    let stopped = asked && observation.stopped.is_some();
    Ok((observation, stopped))
}

fn put(session: &mut dyn Session, file: &InputFile, store: &ContentStore) -> Result<(), RunError> {
    let files = session.files().ok_or_else(no_files)?;
    let name = &file.name;
    let bytes = store.get(&file.id).map_err(|error| {
        RunError::BadInput(format!(
            "the file `{name}` of the conversation is lost: {error}"
        ))
    })?;
    let written = files.write(&format!("data/{name}"), &bytes);
    written.map(drop).map_err(|error| file_error(&error))
}

pub(crate) fn no_files() -> RunError {
    RunError::BadInput(
        "sessions of this tier cannot exchange files while they run; use the tier `jail`, `bwrap` or a local container"
            .to_owned(),
    )
}

pub(crate) fn file_error(error: &FileError) -> RunError {
    RunError::BadInput(error.to_string())
}

pub(crate) fn environment(error: InterpreterError) -> RunError {
    RunError::Environment(error.to_string())
}
