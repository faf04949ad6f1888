//! Runs the cells of a session and returns their observations; handles interrupts, timeouts and restarts.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::cell_history::CellHistory;
use super::event::What;
use super::live::{LiveOutput, Watcher};
use super::network::{self, Proxy};
use super::observe::Recorder;
use super::protocol::{self, FrameReader, MAX_CELL, ProtocolError, Request};
use super::sandbox::{ExitInfo, Sandbox};
use super::session_guard::Since;
use super::shared::Shared;
use super::workspace::Workspace;
use super::{
    Collected, Files, INTERRUPT_GRACE, InterpreterError, InterruptHandle, Network, Session,
    SessionSpec,
};
use pybench_types::observation::{CellError, Observation, Output, Stopped};

/// How long a session may take to start; generous for busy machines.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How often the size of a workspace is checked if the kernel does not enforce it.
const SIZE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// How often new text is sent to a watcher.
const LIVE_INTERVAL: Duration = Duration::from_millis(50);

/// How long after the time limit events that the cell sent before it are still read.
const READ_GRACE: Duration = Duration::from_secs(1);

/// Size of a stream's file from which the text of earlier cells is discarded, bytes.
const MAX_STALE_OUTPUT: u64 = 1 << 20;

/// A session of a [`LocalInterpreter`](super::LocalInterpreter).
pub(super) struct LocalSession {
    pub(super) shared: Arc<Shared>,
    pub(super) spec: SessionSpec,
    user: Option<u32>,
    workspace: Option<Arc<Workspace>>,
    process: IdleProcess,
    pub(super) history: CellHistory,
    /// A call to run a cell was dropped before the cell ended, so the process is gone.
    abandoned: bool,
    cell: u64,
    handle: InterruptHandle,
    interrupts: mpsc::Receiver<()>,
    /// Receives the outputs of the next cell.
    watcher: Option<Watcher>,
}

/// The running process of a session.
struct Process {
    sandbox: Sandbox,
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// Lengths of stdout and stderr at the end of the last cell, bytes.
    seen: [u64; 2],
    /// Number of the last cell that ran.
    cell: u64,
    /// The network proxy, if the session has one.
    proxy: Option<Proxy>,
    /// Before it was started.
    since: Since,
}

/// The process between cells; `None` while a cell runs and after the process is gone.
#[derive(Clone, Default)]
struct IdleProcess(Arc<Mutex<Option<Process>>>);

impl IdleProcess {
    fn take(&self) -> Option<Process> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, process: Process) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
    }

    /// Takes the process if no cell has run since the given one.
    fn take_after(&self, cell: u64) -> Option<Process> {
        let mut resting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        resting.take_if(|process| process.cell == cell)
    }
}

/// How a cell ended.
enum CellEnd {
    Done,
    Interrupted,
    /// The cell did not stop after the interrupt.
    InterruptIgnored,
    Died(String),
}

impl LocalSession {
    /// Starts a session and waits until its shell is ready.
    pub(super) async fn start(
        shared: Arc<Shared>,
        spec: SessionSpec,
    ) -> Result<Self, InterpreterError> {
        let user = shared.next_user();
        let (storage, filled) = (shared.storage.clone(), spec.clone());
        let workspace = shared
            .starts
            .run(move || storage.create(&filled, user))
            .await??;
        let session = Self::new(shared, spec, user, Arc::new(workspace));
        session.keep_idle(session.launch().await?);
        Ok(session)
    }

    /// A session without a process.
    fn new(
        shared: Arc<Shared>,
        spec: SessionSpec,
        user: Option<u32>,
        workspace: Arc<Workspace>,
    ) -> Self {
        let (handle, interrupts) = InterruptHandle::new();
        Self {
            shared,
            spec,
            user,
            workspace: Some(workspace),
            process: IdleProcess::default(),
            history: CellHistory::default(),
            abandoned: false,
            cell: 0,
            handle,
            interrupts,
            watcher: None,
        }
    }

    pub(super) fn workspace(&self) -> Result<Arc<Workspace>, InterpreterError> {
        let closed = || InterpreterError::Start("the session is closed".to_owned());
        self.workspace.clone().ok_or_else(closed)
    }

    async fn launch(&self) -> Result<Process, InterpreterError> {
        let since = Since::now();
        let launched = self.launch_since(since).await;
        match launched {
            Err(_) if since.may_have_ended() => Err(InterpreterError::Silent),
            launched => launched,
        }
    }

    async fn launch_since(&self, since: Since) -> Result<Process, InterpreterError> {
        let (workspace, spec) = (self.workspace()?, self.spec.clone());
        let sandbox = self.shared.launch(workspace, spec, self.user).await?;
        let mut process = Process::new(sandbox, since)?;
        let network = self.network()?;
        let init = Request::Init {
            seed: self.spec.seed,
            system_randomness: self.spec.system_randomness,
            limits: self.shared.rlimits(&self.spec.limits),
            pause: !self.spec.limits.background && self.shared.engine.has_pid_namespace(),
            proxy: (network.is_some() && process.sandbox.proxy_socket.is_none())
                .then_some(network::PORT),
        };
        let result = timeout(START_TIMEOUT, process.handshake(&init, network)).await;
        let problem = match result {
            Ok(Ok(())) => return Ok(process),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!(
                "the session was not ready within {} s",
                START_TIMEOUT.as_secs()
            ),
        };
        let stderr = self
            .shared
            .engine
            .explain(process.sandbox.host_io.stderr_tail());
        self.kill(process).await?;
        Err(InterpreterError::Start(format!("{problem}: {stderr}")))
    }

    /// The allowed network, with a session name for the log.
    fn network(&self) -> Result<Option<Network>, InterpreterError> {
        let workspace = self.workspace()?;
        let named = |network: &Network| match network.session.as_str() {
            "" => network.for_session(workspace.name()),
            _ => network.clone(),
        };
        Ok(self.spec.network.as_ref().map(named))
    }

    /// Kills a process and waits for its end.
    async fn kill(&self, process: Process) -> Result<ExitInfo, InterpreterError> {
        self.shared.ends.run(move || process.sandbox.kill()).await
    }

    /// Kills an unusable process and returns the observation so far; the next cell gets a new process.
    async fn discard(
        &mut self,
        process: Process,
        recorder: Recorder,
        why: &CellEnd,
    ) -> Result<Observation, InterpreterError> {
        let exit = self.kill(process).await?;
        let limits = &self.spec.limits;
        let (stopped, evalue) = match why {
            CellEnd::InterruptIgnored => (
                Stopped::Restarted,
                format!(
                    "the cell ran longer than {} s and did not heed the interrupt",
                    limits.cell_seconds
                ),
            ),
            CellEnd::Died(_) if exit.out_of_memory => (
                Stopped::Died,
                format!(
                    "the session used more than {} MiB of memory",
                    limits.memory_mib
                ),
            ),
            CellEnd::Died(reason) => (Stopped::Died, reason.clone()),
            CellEnd::Done | CellEnd::Interrupted => (Stopped::Interrupted, String::new()),
        };
        let end = sizes(&exit.streams);
        let mut observation =
            recorder.finish(&exit.streams, end, limits.output_chars, Some(stopped));
        let evalue =
            format!("{evalue}; the interpreter was restarted: variables are gone, files are kept");
        observation.error = Some(CellError {
            ename: "SessionRestarted".to_owned(),
            traceback: format!("SessionRestarted: {evalue}"),
            evalue,
        });
        Ok(observation)
    }

    /// Runs a cell without recording it in the history.
    pub(super) async fn run(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        if code.len() > MAX_CELL {
            return Ok(too_long(code.len()));
        }
        let (mut process, restarted) = match self.process.take() {
            Some(process) => (process, false),
            None => (self.launch().await?, self.was_idle()),
        };
        self.abandoned = true; // until the process is idle again; stays true if this call is dropped
        self.cell += 1;
        process.cell = self.cell;
        while self.interrupts.try_recv().is_ok() {}
        process.discard_old_output();
        let mut recorder = Recorder::new(self.cell, process.seen);
        let workspace = self.workspace()?;
        let limit = self.spec.limits.output_chars;
        let follow = |watcher| LiveOutput::new(watcher, self.cell, process.seen, limit);
        let driver = CellDriver {
            live: self.watcher.take().map(follow),
            cell: self.cell,
            seconds: self.spec.limits.cell_seconds,
            interrupts: &mut self.interrupts,
            workspace: &workspace,
        };
        let ended = driver.run(&mut process, code, &mut recorder).await;
        if !matches!(ended, CellEnd::Done) && process.since.may_have_ended() {
            self.kill(process).await?;
            return Err(InterpreterError::Silent);
        }
        let stopped = match ended {
            CellEnd::Done => None,
            CellEnd::Interrupted => Some(Stopped::Interrupted),
            CellEnd::InterruptIgnored | CellEnd::Died(_) => {
                return self.discard(process, recorder, &ended).await;
            }
        };
        let streams = &process.sandbox.host_io.streams;
        process.seen = sizes(streams);
        let mut observation = recorder.finish(streams, process.seen, limit, stopped);
        process.reader.end_cell();
        if restarted {
            observation.outputs.insert(0, idle_notice(&self.spec));
        }
        self.keep_idle(process);
        self.abandoned = false;
        Ok(observation)
    }

    /// Whether the process was ended because it was idle, rather than lost in an abandoned call.
    fn was_idle(&mut self) -> bool {
        let why = if self.abandoned {
            "a cell was abandoned"
        } else {
            "its process was ended when it was idle"
        };
        self.history.invalidate(why);
        !self.abandoned
    }

    /// Keeps the process for the next cell, at most for the idle time limit.
    fn keep_idle(&self, process: Process) {
        let cell = process.cell;
        self.process.put(process);
        let Some(seconds) = self.spec.limits.idle_seconds else {
            return;
        };
        let (resting, ends) = (self.process.clone(), self.shared.ends.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            if let Some(process) = resting.take_after(cell) {
                ends.submit(move || drop(process.sandbox.kill()));
            }
        });
    }
}

#[async_trait]
impl Session for LocalSession {
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        let observation = self.run(code).await?;
        self.history.record(code, &observation);
        Ok(observation)
    }

    async fn fork(&mut self) -> Result<Box<dyn Session>, InterpreterError> {
        Ok(Box::new(self.replay().await?))
    }

    async fn execute_live(
        &mut self,
        code: &str,
        watcher: Watcher,
    ) -> Result<Observation, InterpreterError> {
        self.watcher = Some(watcher);
        let result = self.execute(code).await;
        self.watcher = None;
        result
    }

    fn files(&self) -> Option<Files> {
        if self.shared.engine.is_remote() {
            return None;
        }
        self.workspace.as_ref()?.files(self.user)
    }

    async fn sibling(&mut self) -> Result<Box<dyn Session>, InterpreterError> {
        let workspace = self.workspace()?;
        let mut session = Self::new(self.shared.clone(), self.spec.clone(), self.user, workspace);
        for one in [&mut *self, &mut session] {
            one.history
                .invalidate("it shares its workspace with another session");
        }
        session.keep_idle(session.launch().await?);
        Ok(Box::new(session))
    }

    fn interrupt_handle(&self) -> InterruptHandle {
        self.handle.clone()
    }

    async fn read_outputs(&mut self) -> Result<Collected, InterpreterError> {
        let (workspace, limits) = (self.workspace()?, self.spec.limits.clone());
        if self.shared.engine.is_remote() {
            return self.shared.engine.collect(&workspace, &limits).await;
        }
        let collect = move || super::collect::collect(workspace.fd(), &limits);
        tokio::task::spawn_blocking(collect)
            .await
            .map_err(|error| InterpreterError::Io {
                context: "collecting ./output".to_owned(),
                source: std::io::Error::other(error),
            })
    }

    async fn close(mut self: Box<Self>) -> Result<(), InterpreterError> {
        let (process, workspace) = (self.process.take(), self.workspace.take());
        self.shared
            .ends
            .run(move || tear_down(process, workspace))
            .await
    }
}

impl Drop for LocalSession {
    fn drop(&mut self) {
        let (process, workspace) = (self.process.take(), self.workspace.take());
        if process.is_some() || workspace.is_some() {
            self.shared
                .ends
                .submit(move || tear_down(process, workspace));
        }
    }
}

fn tear_down(process: Option<Process>, workspace: Option<Arc<Workspace>>) {
    if let Some(process) = process {
        process.sandbox.kill();
    }
    drop(workspace);
}

fn idle_notice(spec: &SessionSpec) -> Output {
    let seconds = spec.limits.idle_seconds.unwrap_or_default();
    Output::Stream {
        name: "stderr".to_owned(),
        text: format!(
            "[no cell for {seconds} s: the interpreter was restarted: variables are gone, files are kept]\n"
        ),
    }
}

fn too_long(length: usize) -> Observation {
    let evalue = format!("the cell has {length} bytes, at most {MAX_CELL} can be run");
    Observation {
        error: Some(CellError {
            ename: "CellTooLong".to_owned(),
            traceback: format!("CellTooLong: {evalue}"),
            evalue,
        }),
        ..Observation::default()
    }
}

fn sizes(streams: &[File; 2]) -> [u64; 2] {
    [0, 1].map(|i: usize| streams[i].metadata().map_or(0, |metadata| metadata.len()))
}

impl Process {
    fn new(sandbox: Sandbox, since: Since) -> Result<Self, InterpreterError> {
        let connect = || {
            let control = sandbox.host_io.control.try_clone()?;
            control.set_nonblocking(true)?;
            sandbox.host_io.interrupt.set_nonblocking(true)?;
            UnixStream::from_std(control)
        };
        let stream = connect().map_err(|source| InterpreterError::Io {
            context: "connecting to the session".to_owned(),
            source,
        });
        match stream {
            Ok(stream) => {
                let (reader, writer) = stream.into_split();
                Ok(Self {
                    sandbox,
                    reader: FrameReader::new(reader),
                    writer,
                    seen: [0, 0],
                    cell: 0,
                    proxy: None,
                    since,
                })
            }
            Err(error) => {
                sandbox.kill();
                Err(error)
            }
        }
    }

    async fn handshake(
        &mut self,
        init: &Request<'_>,
        network: Option<Network>,
    ) -> Result<(), ProtocolError> {
        protocol::send(&mut self.writer, init).await?;
        if let Some(network) = network {
            let socket = match self.sandbox.proxy_socket.take() {
                Some(socket) => socket,
                None => protocol::receive_descriptor(self.reader.inner().as_ref()).await?,
            };
            self.proxy = Some(Proxy::open(socket, network)?);
        }
        while self.reader.next().await?.0.what != What::Ready {}
        Ok(())
    }

    /// Discards the output of earlier cells. Output that background processes wrote after the end of a
    /// cell belongs to the next cell.
    fn discard_old_output(&mut self) {
        for (stream, seen) in self.sandbox.host_io.streams.iter().zip(&mut self.seen) {
            let size = stream.metadata().map_or(0, |metadata| metadata.len());
            if (size <= *seen || size > MAX_STALE_OUTPUT) && stream.set_len(0).is_ok() {
                *seen = 0;
            }
        }
    }

    /// Interrupts a cell. The byte is its number, so a cell that starts later also sees it.
    fn interrupt(&mut self, cell: u64) {
        // A full socket already contains interrupts; the reader notices a closed one.
        let _ = (&self.sandbox.host_io.interrupt).write(&[cell as u8]);
    }
}

/// Runs one cell to its end.
struct CellDriver<'a> {
    live: Option<LiveOutput>,
    cell: u64,
    seconds: u64,
    interrupts: &'a mut mpsc::Receiver<()>,
    workspace: &'a Workspace,
}

impl CellDriver<'_> {
    async fn run(mut self, process: &mut Process, code: &str, recorder: &mut Recorder) -> CellEnd {
        let ended = self.until_ended(process, code, recorder).await;
        if let Some(live) = self.live {
            live.finish(&process.sandbox.host_io.streams);
        }
        ended
    }

    async fn until_ended(
        &mut self,
        process: &mut Process,
        code: &str,
        recorder: &mut Recorder,
    ) -> CellEnd {
        let mut deadline = Instant::now() + Duration::from_secs(self.seconds);
        let request = Request::Execute {
            cell: self.cell,
            code,
        };
        match tokio::time::timeout_at(deadline, protocol::send(&mut process.writer, &request)).await
        {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return CellEnd::Died(format!("the process has ended ({error})")),
            Err(_) => return CellEnd::InterruptIgnored,
        }
        let mut measure = tokio::time::interval(SIZE_CHECK_INTERVAL);
        let mut tell = tokio::time::interval(LIVE_INTERVAL);
        let mut interrupted = false;
        loop {
            // Events sent before the deadline count even if read late, but a cell cannot extend its
            // limit by sending events.
            let overdue = Instant::now() > deadline + READ_GRACE;
            tokio::select! {
                biased;
                _ = tell.tick(), if self.live.is_some() => {
                    if let Some(live) = &mut self.live {
                        live.poll(&process.sandbox.host_io.streams);
                    }
                }
                _ = measure.tick() => {
                    if self.workspace.exceeds_capacity() {
                        return CellEnd::Died("the session wrote more files than it may".to_owned());
                    }
                }
                Some(()) = self.interrupts.recv(), if !interrupted => {
                    interrupted = true;
                    process.interrupt(self.cell);
                    deadline = Instant::now() + INTERRUPT_GRACE;
                }
                next = process.reader.next(), if !overdue => match next {
                    Ok((event, size)) => {
                        if let Some(live) = &mut self.live {
                            live.event(&event, size, &process.sandbox.host_io.streams);
                        }
                        match (recorder.record(event, size), interrupted) {
                            (false, _) => {}
                            (true, false) => return CellEnd::Done,
                            (true, true) => return CellEnd::Interrupted,
                        }
                    }
                    Err(ProtocolError::Closed | ProtocolError::Io(_)) => {
                        return CellEnd::Died("the process has ended".to_owned());
                    }
                    Err(ProtocolError::Budget(error)) => return CellEnd::Died(error.to_string()),
                    Err(error) => {
                        return CellEnd::Died(format!("the process sent what is no message ({error})"));
                    }
                },
                () = tokio::time::sleep_until(deadline) => {
                    if interrupted {
                        return CellEnd::InterruptIgnored;
                    }
                    interrupted = true;
                    process.interrupt(self.cell);
                    deadline = Instant::now() + INTERRUPT_GRACE;
                }
            }
        }
    }
}
