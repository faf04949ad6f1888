//! A session: cells go in, observations come out, whatever the process inside does.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::branch::Past;
use super::live::{Live, Watcher};
use super::local::Shared;
use super::network::{self, Way};
use super::observe::Recorder;
use super::protocol::{self, FrameReader, MAX_CELL, ProtocolError, Request, What};
use super::sandbox::{Remains, Sandbox};
use super::workspace::Workspace;
use super::{
    CellError, Collected, Files, ForkKind, INTERRUPT_GRACE, InterpreterError, InterruptHandle,
    Network, Observation, Output, Session, SessionSpec, Stopped,
};

/// How long a session may take to stand, on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// How often a workspace that the kernel does not bound is measured.
const MEASURE: Duration = Duration::from_millis(500);

/// How often a watcher is told what has been written.
const TELL: Duration = Duration::from_millis(50);

/// How long what a cell said before its limit may wait here to be read.
const READING: Duration = Duration::from_secs(1);

/// Text that a stream's file may keep from earlier cells, bytes.
const STALE: u64 = 1 << 20;

/// A live interpreter on this machine.
pub(super) struct LocalSession {
    pub(super) shared: Arc<Shared>,
    pub(super) spec: SessionSpec,
    user: Option<u32>,
    workspace: Option<Arc<Workspace>>,
    process: Resting,
    pub(super) past: Past,
    /// A cell has not given its process back.
    lost: bool,
    cell: u64,
    handle: InterruptHandle,
    interrupts: mpsc::Receiver<()>,
    /// Told of the outputs of the next cell.
    watcher: Option<Watcher>,
}

/// The running process of a session.
struct Process {
    sandbox: Sandbox,
    reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// How much of stdout and stderr earlier cells have had.
    seen: [u64; 2],
    /// The last cell that ran in it.
    cell: u64,
    /// Its way out, if it has one.
    way: Option<Way>,
}

/// The process between cells; `None` while one runs, and when it is lost.
#[derive(Clone, Default)]
struct Resting(Arc<Mutex<Option<Process>>>);

impl Resting {
    fn take(&self) -> Option<Process> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, process: Process) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
    }

    /// Take it if no cell has run since that one.
    fn take_after(&self, cell: u64) -> Option<Process> {
        let mut resting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        resting.take_if(|process| process.cell == cell)
    }
}

/// How a cell ended.
enum Ended {
    Done,
    Interrupted,
    /// It did not heed the interrupt.
    Ignored,
    Died(String),
}

impl LocalSession {
    /// Start a session and wait until its shell stands.
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
        session.rest(session.launch().await?);
        Ok(session)
    }

    /// Not started yet.
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
            process: Resting::default(),
            past: Past::default(),
            lost: false,
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
        let (workspace, spec) = (self.workspace()?, self.spec.clone());
        let sandbox = self.shared.launch(workspace, spec, self.user).await?;
        let mut process = Process::new(sandbox)?;
        let network = self.network()?;
        let init = Request::Init {
            seed: self.spec.seed,
            limits: self.shared.rlimits(&self.spec.limits),
            proxy: (network.is_some() && process.sandbox.door.is_none()).then_some(network::PORT),
        };
        let result = timeout(START_PATIENCE, process.greet(&init, network)).await;
        let problem = match result {
            Ok(Ok(())) => return Ok(process),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not stand within {} s", START_PATIENCE.as_secs()),
        };
        let words = self
            .shared
            .engine
            .explain(process.sandbox.ends.last_words());
        self.bury(process).await?;
        Err(InterpreterError::Start(format!("{problem}: {words}")))
    }

    /// What it may reach, under a name for the log.
    fn network(&self) -> Result<Option<Network>, InterpreterError> {
        let workspace = self.workspace()?;
        let named = |network: &Network| match network.session.as_str() {
            "" => network.of(workspace.name()),
            _ => network.clone(),
        };
        Ok(self.spec.network.as_ref().map(named))
    }

    /// Kill a process and wait for its end.
    async fn bury(&self, process: Process) -> Result<Remains, InterpreterError> {
        self.shared.ends.run(move || process.sandbox.kill()).await
    }

    /// The process is beyond use: what it said is kept, the next cell gets a new one.
    async fn lost(
        &mut self,
        process: Process,
        recorder: Recorder,
        why: &Ended,
    ) -> Result<Observation, InterpreterError> {
        let remains = self.bury(process).await?;
        let limits = &self.spec.limits;
        let (stopped, evalue) = match why {
            Ended::Ignored => (
                Stopped::Restarted,
                format!(
                    "the cell ran longer than {} s and did not heed the interrupt",
                    limits.cell_seconds
                ),
            ),
            Ended::Died(_) if remains.out_of_memory => (
                Stopped::Died,
                format!(
                    "the session used more than {} MiB of memory",
                    limits.memory_mib
                ),
            ),
            Ended::Died(reason) => (Stopped::Died, reason.clone()),
            Ended::Done | Ended::Interrupted => (Stopped::Interrupted, String::new()),
        };
        let end = sizes(&remains.streams);
        let mut observation =
            recorder.finish(&remains.streams, end, limits.output_chars, Some(stopped));
        let evalue = format!(
            "{evalue}; the interpreter was started anew: variables are gone, files are kept"
        );
        observation.error = Some(CellError {
            ename: "SessionRestarted".to_owned(),
            traceback: format!("SessionRestarted: {evalue}"),
            evalue,
        });
        Ok(observation)
    }

    /// Run a cell, and nothing else.
    pub(super) async fn run(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        if code.len() > MAX_CELL {
            return Ok(too_long(code.len()));
        }
        let (mut process, anew) = match self.process.take() {
            Some(process) => (process, false),
            None => (self.launch().await?, self.idle()),
        };
        self.lost = true; // until it rests again, whatever becomes of this call
        self.cell += 1;
        process.cell = self.cell;
        while self.interrupts.try_recv().is_ok() {}
        process.rewind();
        let mut recorder = Recorder::new(self.cell, process.seen);
        let workspace = self.workspace()?;
        let limit = self.spec.limits.output_chars;
        let follow = |watcher| Live::new(watcher, self.cell, process.seen, limit);
        let drive = Drive {
            live: self.watcher.take().map(follow),
            cell: self.cell,
            seconds: self.spec.limits.cell_seconds,
            interrupts: &mut self.interrupts,
            workspace: &workspace,
        };
        let ended = drive.run(&mut process, code, &mut recorder).await;
        let stopped = match ended {
            Ended::Done => None,
            Ended::Interrupted => Some(Stopped::Interrupted),
            Ended::Ignored | Ended::Died(_) => return self.lost(process, recorder, &ended).await,
        };
        let streams = &process.sandbox.ends.streams;
        process.seen = sizes(streams);
        let mut observation = recorder.finish(streams, process.seen, limit, stopped);
        if anew {
            observation.outputs.insert(0, idle_notice(&self.spec));
        }
        self.rest(process);
        self.lost = false;
        Ok(observation)
    }

    /// Whether the process was ended for want of cells, rather than lost by one.
    fn idle(&mut self) -> bool {
        let why = if self.lost {
            "a cell was abandoned"
        } else {
            "its process was ended when it was idle"
        };
        self.past.forget(why);
        !self.lost
    }

    /// Keep the process for the next cell, but not for longer than it may be idle.
    fn rest(&self, process: Process) {
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
        self.past.add(code, &observation);
        Ok(observation)
    }

    async fn fork(&mut self) -> Result<(Box<dyn Session>, ForkKind), InterpreterError> {
        let copy = self.repeat().await?;
        Ok((Box::new(copy), ForkKind::Replay))
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
            one.past
                .forget("it shares its workspace with another session");
        }
        session.rest(session.launch().await?);
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
            "[no cell for {seconds} s: the interpreter was started anew: variables are gone, files are kept]\n"
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
    fn new(sandbox: Sandbox) -> Result<Self, InterpreterError> {
        let connect = || {
            let control = sandbox.ends.control.try_clone()?;
            control.set_nonblocking(true)?;
            sandbox.ends.interrupt.set_nonblocking(true)?;
            UnixStream::from_std(control)
        };
        let stream = connect().map_err(|source| InterpreterError::Io {
            context: "talking to the session".to_owned(),
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
                    way: None,
                })
            }
            Err(error) => {
                sandbox.kill();
                Err(error)
            }
        }
    }

    async fn greet(
        &mut self,
        init: &Request<'_>,
        network: Option<Network>,
    ) -> Result<(), ProtocolError> {
        protocol::send(&mut self.writer, init).await?;
        if let Some(network) = network {
            let socket = match self.sandbox.door.take() {
                Some(socket) => socket,
                None => protocol::receive_descriptor(self.reader.inner().as_ref()).await?,
            };
            self.way = Some(Way::open(socket, network)?);
        }
        while self.reader.next().await?.0.what != What::Ready {}
        Ok(())
    }

    /// Forget what earlier cells have written. What came after their end, from children that live on,
    /// belongs to the next cell.
    fn rewind(&mut self) {
        for (stream, seen) in self.sandbox.ends.streams.iter().zip(&mut self.seen) {
            let size = stream.metadata().map_or(0, |metadata| metadata.len());
            if (size <= *seen || size > STALE) && stream.set_len(0).is_ok() {
                *seen = 0;
            }
        }
    }

    /// Interrupt a cell. One that has not begun yet finds its number when it does.
    fn interrupt(&mut self, cell: u64) {
        // A full socket holds interrupts enough; a closed one is noticed by the reader.
        let _ = (&self.sandbox.ends.interrupt).write(&[cell as u8]);
    }
}

/// Runs one cell to its end.
struct Drive<'a> {
    live: Option<Live>,
    cell: u64,
    seconds: u64,
    interrupts: &'a mut mpsc::Receiver<()>,
    workspace: &'a Workspace,
}

impl Drive<'_> {
    async fn run(mut self, process: &mut Process, code: &str, recorder: &mut Recorder) -> Ended {
        let ended = self.until_ended(process, code, recorder).await;
        if let Some(live) = self.live {
            live.finish(&process.sandbox.ends.streams);
        }
        ended
    }

    async fn until_ended(
        &mut self,
        process: &mut Process,
        code: &str,
        recorder: &mut Recorder,
    ) -> Ended {
        let mut deadline = Instant::now() + Duration::from_secs(self.seconds);
        let request = Request::Execute {
            cell: self.cell,
            code,
        };
        match tokio::time::timeout_at(deadline, protocol::send(&mut process.writer, &request)).await
        {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Ended::Died(format!("the process has ended ({error})")),
            Err(_) => return Ended::Ignored,
        }
        let mut measure = tokio::time::interval(MEASURE);
        let mut tell = tokio::time::interval(TELL);
        let mut interrupted = false;
        loop {
            // What was said in time counts, however late it is read; but nobody talks a limit away.
            let overdue = Instant::now() > deadline + READING;
            tokio::select! {
                biased;
                _ = tell.tick(), if self.live.is_some() => {
                    if let Some(live) = &mut self.live {
                        live.poll(&process.sandbox.ends.streams);
                    }
                }
                _ = measure.tick() => {
                    if self.workspace.is_over() {
                        return Ended::Died("the session wrote more files than it may".to_owned());
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
                            live.event(&event, size, &process.sandbox.ends.streams);
                        }
                        match (recorder.record(event, size), interrupted) {
                            (false, _) => {}
                            (true, false) => return Ended::Done,
                            (true, true) => return Ended::Interrupted,
                        }
                    }
                    Err(ProtocolError::Closed | ProtocolError::Io(_)) => {
                        return Ended::Died("the process has ended".to_owned());
                    }
                    Err(error) => {
                        return Ended::Died(format!("the process sent what is no message ({error})"));
                    }
                },
                () = tokio::time::sleep_until(deadline) => {
                    if interrupted {
                        return Ended::Ignored;
                    }
                    interrupted = true;
                    process.interrupt(self.cell);
                    deadline = Instant::now() + INTERRUPT_GRACE;
                }
            }
        }
    }
}
