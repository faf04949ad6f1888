//! Carries a session's sockets and streams over the standard input and output of a program that is
//! attached to its container (`docker run -i`, `kubectl exec -i`). The container's half is `relay.py`,
//! and believed as little as anything else in there.
//!
//! Packets both ways: a byte that says what, a 4-byte big-endian length, and that many bytes.

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

use crate::interpreter::engine::Order;
use crate::interpreter::network::Door;
use crate::interpreter::sandbox::{Ends, First, Keeper, Sandbox};

/// Most bytes of a packet.
const PIECE: usize = 64 << 10;

/// How often the container hears from us; long unheard, it takes us for dead and ends.
const BEAT: Duration = Duration::from_secs(10);

/// A container that has been started, with its program's input and output.
pub(super) struct Started {
    pub(super) ends: Ends,
    pub(super) inside: [OwnedFd; 2],
    pub(super) order: Order,
    /// The engine's program, piped.
    pub(super) monitor: Child,
    /// The process with which it all ends.
    pub(super) first: OwnedFd,
    /// Removes what is left.
    pub(super) remove: Box<dyn FnOnce() + Send>,
    /// Its way to the proxy, if it has one.
    pub(super) door: Option<Door>,
}

/// The engine's program itself, for [`Started::first`].
pub(super) fn first_of(monitor: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(monitor.id().cast_signed());
    let pid = pid.ok_or_else(|| io::Error::other("no process"))?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

impl Started {
    /// Connect it. In a tokio runtime, which carries its packets from then on.
    pub(super) fn connect(mut self) -> io::Result<Sandbox> {
        let (Some(input), Some(output)) = (self.monitor.stdin.take(), self.monitor.stdout.take())
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let [first, second] = &self.ends.streams;
        let streams = [first.try_clone()?, second.try_clone()?];
        let most = self.order.spec.limits.file_mib << 20;
        carry(output, input, self.inside, streams, most)?;
        let (door, folder) = self.door.map(Door::open).unzip();
        let remove = self.remove;
        Ok(Sandbox {
            ends: self.ends,
            init: First(self.first),
            group: self.order.group,
            keeper: Keeper::Container {
                monitor: self.monitor,
                remove: Box::new(move || {
                    remove();
                    drop(folder);
                }),
            },
            door,
        })
    }
}

/// Carry until one side hangs up. `inside` are the control and interrupt sockets that a session of another
/// tier would be given, `streams` the files behind its stdout and stderr, which take `most` bytes each.
fn carry(
    output: ChildStdout,
    input: ChildStdin,
    inside: [OwnedFd; 2],
    streams: [File; 2],
    most: u64,
) -> io::Result<()> {
    let output = BufReader::with_capacity(PIECE, tokio::process::ChildStdout::from_std(output)?);
    let input = tokio::process::ChildStdin::from_std(input)?;
    let [control, interrupt] = inside.map(socket);
    let (from_control, to_control) = control?.into_split();
    let interrupt = interrupt?;
    let texts = Arc::new(streams.map(|file| Text::new(file, most)));
    tokio::spawn(async move {
        // Whichever ends first, the session learns it: both hold an end of its socket.
        tokio::select! {
            _ = outwards(output, to_control, &texts) => {}
            _ = inwards(from_control, interrupt, input, &texts) => {}
        }
    });
    Ok(())
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// The file behind a stream, and how much has been put into it since the session's own was empty.
struct Text {
    file: File,
    put: AtomicU64,
    most: u64,
}

impl Text {
    fn new(file: File, most: u64) -> Self {
        let put = AtomicU64::new(0);
        Self { file, put, most }
    }

    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Put in what still fits.
    fn put(&self, bytes: &[u8]) -> io::Result<()> {
        let room = self.most.saturating_sub(self.length());
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        (&self.file).write_all(&bytes[..count])?;
        self.put.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it has been cut since, as the host does between cells.
    fn was_cut(&self) -> bool {
        let length = self.length();
        let cut = length < self.put.load(Ordering::Relaxed);
        if cut {
            self.put.store(length, Ordering::Relaxed);
        }
        cut
    }
}

/// From the container.
async fn outwards(
    mut from: impl AsyncRead + Unpin,
    mut control: impl AsyncWrite + Unpin,
    texts: &[Text; 2],
) -> io::Result<()> {
    let mut body = Vec::new();
    loop {
        let what = from.read_u8().await?;
        let length = from.read_u32().await? as usize;
        if length > PIECE {
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

/// To the container.
async fn inwards(
    mut control: impl AsyncRead + Unpin,
    mut interrupt: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    texts: &[Text; 2],
) -> io::Result<()> {
    let (mut request, mut numbers) = (vec![0; PIECE], [0; 64]);
    loop {
        let (what, body) = tokio::select! {
            count = control.read(&mut request) => (b'c', &request[..count?]),
            count = interrupt.read(&mut numbers) => (b'i', &numbers[..count?]),
            () = tokio::time::sleep(BEAT) => (b'h', &[][..]),
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
    use crate::interpreter::sandbox::stream;

    fn texts(most: u64) -> [Text; 2] {
        ["a", "b"].map(|name| Text::new(stream(name).unwrap(), most))
    }

    fn receive(bytes: &[u8], texts: &[Text; 2]) -> (Vec<u8>, io::ErrorKind) {
        let mut control = Vec::new();
        let ended = futures::executor::block_on(outwards(bytes, &mut control, texts));
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
    fn frames_and_text_arrive_and_floods_end() {
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
    fn what_is_no_packet_ends_it() {
        let texts = texts(10);
        assert_eq!(receive(b"x\0\0\0\0", &texts).1, io::ErrorKind::InvalidData);
        assert_eq!(
            receive(b"c\xff\xff\xff\xff", &texts).1,
            io::ErrorKind::InvalidData
        );
        assert_eq!(receive(b"c\0\0", &texts).1, io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_cut_stream_is_told_once_and_before_the_cell() {
        let texts = texts(100);
        texts[1].put(b"old text").unwrap();
        texts[1].file.set_len(0).unwrap();
        let mut sent = Vec::new();
        let cell = &b"cell"[..];
        inwards(cell, Silent, &mut sent, &texts).await.unwrap();
        assert_eq!(sent, b"t\0\0\0\x01\x01c\0\0\0\x04cell");
        assert!(!texts[1].was_cut());
    }

    /// Never says anything.
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
