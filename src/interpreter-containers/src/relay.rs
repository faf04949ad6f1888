//! Multiplexes a session's sockets and streams over the stdin and stdout of a client program that is attached
//! to its container (`docker run -i`, `kubectl exec -i`). The other end in the container is `relay.py`, which
//! is untrusted.
//!
//! Packets in both directions: one type byte, a 4-byte big-endian length, and that many bytes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use pybench_interpreter::engine::LaunchSpec;
use pybench_interpreter::network::ProxySocket;
use pybench_interpreter::sandbox::{ChildGuard, HostIo, InitProcess, Sandbox};
use pybench_interpreter::session_guard;

/// Maximum size of a packet, bytes.
const MAX_PACKET: usize = 64 << 10;

/// Longest interval of heartbeats to the container, which ends if they stop.
const MAX_HEARTBEAT: Duration = Duration::from_secs(10);

/// Heartbeats at least within the time that this process may be silent.
const HEARTBEATS: u32 = 4;

/// Interval of heartbeats if this process may be silent for `lifetime`.
fn heartbeat(lifetime: Option<Duration>) -> Duration {
    lifetime.map_or(MAX_HEARTBEAT, |time| MAX_HEARTBEAT.min(time / HEARTBEATS))
}

/// A started container with its attached client program.
pub(super) struct StartedContainer {
    pub(super) host_io: HostIo,
    pub(super) inside: [OwnedFd; 2],
    pub(super) launch_spec: LaunchSpec,
    /// The client program, with piped stdin and stdout.
    pub(super) monitor: Child,
    /// The process whose end ends the session.
    pub(super) main_process: OwnedFd,
    /// Removes what is left of the container.
    pub(super) remove: Box<dyn FnOnce() + Send>,
    /// The socket of the network proxy, if the session has one.
    pub(super) proxy_socket: Option<ProxySocket>,
}

/// A pidfd of the client program, for [`StartedContainer::main_process`].
pub(super) fn client_pidfd(monitor: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(monitor.id().cast_signed());
    let pid = pid.ok_or_else(|| io::Error::other("no process"))?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

impl StartedContainer {
    /// Starts forwarding packets. Must be called in a tokio runtime.
    pub(super) fn connect(mut self) -> io::Result<Sandbox> {
        let (Some(input), Some(output)) = (self.monitor.stdin.take(), self.monitor.stdout.take())
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let [stdout, stderr] = &self.host_io.streams;
        let streams = [stdout.try_clone()?, stderr.try_clone()?];
        let max_bytes = self.launch_spec.spec.limits.file_mib << 20;
        carry(output, input, self.inside, streams, max_bytes)?;
        let (proxy_socket, folder) = self.proxy_socket.map(ProxySocket::open).unzip();
        let remove = self.remove;
        Ok(Sandbox {
            host_io: self.host_io,
            init: InitProcess(self.main_process),
            group: self.launch_spec.group,
            child_guard: ChildGuard::Container {
                monitor: self.monitor,
                remove: Box::new(move || {
                    remove();
                    drop(folder);
                }),
            },
            proxy_socket,
        })
    }
}

/// Forwards packets until one side closes. `inside`: the sandbox's ends of the control and interrupt sockets;
/// `streams`: the files for stdout and stderr, at most `max_bytes` each.
fn carry(
    output: ChildStdout,
    input: ChildStdin,
    inside: [OwnedFd; 2],
    streams: [File; 2],
    max_bytes: u64,
) -> io::Result<()> {
    let output =
        BufReader::with_capacity(MAX_PACKET, tokio::process::ChildStdout::from_std(output)?);
    let input = tokio::process::ChildStdin::from_std(input)?;
    let [control, interrupt] = inside.map(socket);
    let (from_control, to_control) = control?.into_split();
    let interrupt = interrupt?;
    let texts = Arc::new(streams.map(|file| CappedStream::new(file, max_bytes)));
    tokio::spawn(async move {
        // When either ends, the session notices, because both hold an end of its socket.
        tokio::select! {
            _ = from_container(output, to_control, &texts) => {}
            _ = to_container(from_control, interrupt, input, &texts) => {}
        }
    });
    Ok(())
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// The file of a stream, and how many bytes were appended since it was last truncated.
struct CappedStream {
    file: File,
    put: AtomicU64,
    max_bytes: u64,
}

impl CappedStream {
    fn new(file: File, max_bytes: u64) -> Self {
        let put = AtomicU64::new(0);
        Self {
            file,
            put,
            max_bytes,
        }
    }

    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Appends as much as fits.
    fn put(&self, bytes: &[u8]) -> io::Result<()> {
        let room = self.max_bytes.saturating_sub(self.length());
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        (&self.file).write_all(&bytes[..count])?;
        self.put.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the host has truncated the file since the last call, as it does between cells.
    fn was_cut(&self) -> bool {
        let length = self.length();
        let cut = length < self.put.load(Ordering::Relaxed);
        if cut {
            self.put.store(length, Ordering::Relaxed);
        }
        cut
    }
}

/// Forwards packets from the container.
async fn from_container(
    mut from: impl AsyncRead + Unpin,
    mut control: impl AsyncWrite + Unpin,
    texts: &[CappedStream; 2],
) -> io::Result<()> {
    let mut body = Vec::new();
    loop {
        let what = from.read_u8().await?;
        let length = from.read_u32().await? as usize;
        if length > MAX_PACKET {
            return Err(io::ErrorKind::InvalidData.into());
        }
        body.resize(length, 0);
        from.read_exact(&mut body).await?;
        match what {
            b'c' => control.write_all(&body).await?,
            b'1' => texts[0].put(&body)?,
            b'2' => texts[1].put(&body)?,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Forwards packets to the container.
async fn to_container(
    mut control: impl AsyncRead + Unpin,
    mut interrupt: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    texts: &[CappedStream; 2],
) -> io::Result<()> {
    let (mut request, mut numbers) = (vec![0; MAX_PACKET], [0; 64]);
    let heartbeat = heartbeat(session_guard::lifetime());
    loop {
        let (what, body) = tokio::select! {
            count = control.read(&mut request) => (b'c', &request[..count?]),
            count = interrupt.read(&mut numbers) => (b'i', &numbers[..count?]),
            () = tokio::time::sleep(heartbeat) => (b'h', &[][..]),
        };
        if body.is_empty() && what != b'h' {
            return Ok(());
        }
        for (stream, text) in (0..).zip(texts) {
            if text.was_cut() {
                packet(&mut to, b't', &[stream]).await?;
            }
        }
        packet(&mut to, what, body).await?;
    }
}

async fn packet(to: &mut (impl AsyncWrite + Unpin), what: u8, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut bytes = vec![what];
    bytes.extend(length.to_be_bytes());
    bytes.extend_from_slice(body);
    to.write_all(&bytes).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_interpreter::sandbox::stream;

    fn texts(max_bytes: u64) -> [CappedStream; 2] {
        ["a", "b"].map(|name| CappedStream::new(stream(name).unwrap(), max_bytes))
    }

    fn receive(bytes: &[u8], texts: &[CappedStream; 2]) -> (Vec<u8>, io::ErrorKind) {
        let mut control = Vec::new();
        let ended = futures::executor::block_on(from_container(bytes, &mut control, texts));
        (control, ended.unwrap_err().kind())
    }

    fn packed(packets: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (what, body) in packets {
            futures::executor::block_on(packet(&mut bytes, *what, body)).unwrap();
        }
        bytes
    }

    #[test]
    fn frames_and_text_arrive_and_long_text_is_cut() {
        let texts = texts(10);
        let bytes = packed(&[
            (b'1', b"12345678"),
            (b'c', b"frame"),
            (b'1', b"9abc"),
            (b'2', b"e"),
        ]);
        let (control, _) = receive(&bytes, &texts);
        assert_eq!(control, b"frame");
        assert_eq!([texts[0].length(), texts[1].length()], [10, 1]);
    }

    #[test]
    fn invalid_packets_are_errors() {
        let texts = texts(10);
        assert_eq!(receive(b"x\0\0\0\0", &texts).1, io::ErrorKind::InvalidData);
        assert_eq!(
            receive(b"c\xff\xff\xff\xff", &texts).1,
            io::ErrorKind::InvalidData
        );
        assert_eq!(receive(b"c\0\0", &texts).1, io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn truncation_is_reported_once_before_the_cell() {
        let texts = texts(100);
        texts[1].put(b"old text").unwrap();
        texts[1].file.set_len(0).unwrap();
        let mut sent = Vec::new();
        let cell = &b"cell"[..];
        to_container(cell, Silent, &mut sent, &texts).await.unwrap();
        assert_eq!(sent, b"t\0\0\0\x01\x01c\0\0\0\x04cell");
        assert!(!texts[1].was_cut());
    }

    #[test]
    fn a_short_lifetime_has_more_heartbeats() {
        let seconds = Duration::from_secs;
        assert_eq!(heartbeat(None), MAX_HEARTBEAT);
        assert_eq!(heartbeat(Some(seconds(60))), MAX_HEARTBEAT);
        assert_eq!(heartbeat(Some(seconds(2))), Duration::from_millis(500));
    }

    /// A reader that never returns data.
    struct Silent;

    impl AsyncRead for Silent {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Pending
        }
    }

    #[test]
    fn fuzz_packets() {
        let texts = texts(1 << 16);
        bolero::check!().for_each(|bytes: &[u8]| {
            receive(bytes, &texts);
            receive(&packed(&[(b'1', bytes), (b'c', bytes)]), &texts);
        });
        assert!(texts[0].length() <= 1 << 16);
    }
}
