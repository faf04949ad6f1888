//! The host's side of the protocol with a session's runner: frames of a 4-byte big-endian length and JSON.
//! Everything received is untrusted: a header allocates nothing, and every size is limited.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use bytes::{Buf, BytesMut};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::event::{Event, EventError};
use super::frame_budget::{BudgetError, CellFrames};

/// Maximum size of a received frame, bytes. The runner's limit is the same.
pub(super) const MAX_FRAME: usize = 16 << 20;

/// Maximum size of a cell, bytes.
pub(super) const MAX_CELL: usize = 4 << 20;

const HEADER: usize = 4;

/// How far the buffer grows beyond the bytes received.
const STEP: usize = 64 << 10;

/// Requests of the host.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Request<'a> {
    /// The first request to a fork of the warm server: how to isolate itself.
    Jail {
        /// User to switch to, in the server's user namespace; 0: do not switch.
        user: u32,
        /// Folder name of the workspace.
        workspace: &'a str,
        /// Read-only parts of the workspace.
        read_only: &'a [String],
        /// Size limit of each temporary folder, bytes.
        temporary: u64,
    },
    /// Sent once, before any cell.
    Init {
        seed: u64,
        system_randomness: bool,
        /// `resource.RLIMIT_*` without the prefix → value.
        limits: BTreeMap<&'static str, u64>,
        /// Whether processes that a cell leaves running pause until the next cell.
        pause: bool,
        /// Port to listen on for the host's proxy; the runner passes the socket before `ready`.
        proxy: Option<u16>,
    },
    /// Runs a cell.
    Execute { cell: u64, code: &'a str },
}

/// Why reading frames stopped.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("the connection ended")]
    Closed,
    #[error("a frame of {0} bytes, above the limit of {MAX_FRAME}")]
    TooLarge(usize),
    #[error("not a message: {0}")]
    Event(#[from] EventError),
    #[error(transparent)]
    Budget(#[from] BudgetError),
    #[error("reading: {0}")]
    Io(#[from] std::io::Error),
}

/// Reads frames. [`FrameReader::next`] is cancel-safe.
pub(super) struct FrameReader<R> {
    inner: R,
    buffer: BytesMut,
    frames: CellFrames,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: BytesMut::new(),
            frames: CellFrames::default(),
        }
    }

    /// Ends the count of the cell's frames, which the host no longer holds.
    pub(super) fn end_cell(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new(); // it may have grown to the size of a frame
        }
        self.frames.reset(self.buffer.len());
    }

    /// The underlying stream, for data that is not a frame.
    pub(super) fn inner(&self) -> &R {
        &self.inner
    }

    /// The next event and the memory that it may take, bytes.
    pub(super) async fn next(&mut self) -> Result<(Event, usize), ProtocolError> {
        loop {
            let missing = match self.frame_length()? {
                Some(length) if self.buffer.len() >= HEADER + length => {
                    self.buffer.advance(HEADER);
                    let frame = self.buffer.split_to(length);
                    return Ok(Event::parse(&frame)?);
                }
                Some(length) => HEADER + length - self.buffer.len(),
                None => HEADER - self.buffer.len(),
            };
            self.buffer.reserve(missing.min(STEP));
            match self.inner.read_buf(&mut self.buffer).await? {
                0 => return Err(ProtocolError::Closed),
                count => self.frames.add(count)?,
            }
        }
    }

    fn frame_length(&self) -> Result<Option<usize>, ProtocolError> {
        let Some(header) = self.buffer.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        match u32::from_be_bytes(*header) as usize {
            length if length > MAX_FRAME => Err(ProtocolError::TooLarge(length)),
            length => Ok(Some(length)),
        }
    }
}

/// Writes one request.
pub(super) async fn send<W: AsyncWrite + Unpin>(
    writer: &mut W,
    request: &Request<'_>,
) -> std::io::Result<()> {
    let body = serde_json::to_vec(request)?;
    let length = u32::try_from(body.len()).map_err(std::io::Error::other)?;
    writer.write_all(&length.to_be_bytes()).await?;
    writer.write_all(&body).await?;
    writer.flush().await
}

/// Receives one byte with a descriptor; called before any cell has run.
pub(super) async fn receive_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let receive = || {
        let (mut byte, mut space) = (
            [0],
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))],
        );
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = [IoSliceMut::new(&mut byte)];
        recvmsg(stream, &mut buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let found = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        found.ok_or_else(|| io::Error::other("the process ended before it was ready"))
    };
    stream.async_io(Interest::READABLE, receive).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_budget::MAX_CELL_FRAMES;
    use proptest::prelude::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    fn read_all(bytes: &[u8]) -> (Vec<Event>, ProtocolError) {
        let mut reader = FrameReader::new(bytes);
        let mut events = Vec::new();
        futures::executor::block_on(async {
            loop {
                match reader.next().await {
                    Ok((event, _)) => events.push(event),
                    Err(error) => return (events, error),
                }
            }
        })
    }

    #[test]
    fn a_header_allocates_nothing() {
        let mut reader = FrameReader::new(&[0x00, 0xff, 0xff, 0xff, b'x'][..]);
        let error = futures::executor::block_on(reader.next()).unwrap_err();
        assert!(matches!(error, ProtocolError::Closed), "{error}");
        assert!(reader.buffer.capacity() <= 2 * STEP);
    }

    #[test]
    fn oversized_frames_are_refused_before_they_are_read() {
        let (_, error) = read_all(&[0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(error, ProtocolError::TooLarge(0xffff_ffff)));
    }

    #[test]
    fn a_cell_cannot_send_more_than_its_budget() {
        let mark = frame(br#"{"event":"mark","cell":1,"at":[1,2]}"#);
        let mut reader = FrameReader::new(tokio::io::repeat(0)); // frames of 0 bytes
        reader.frames.add(MAX_CELL_FRAMES).unwrap();
        let error = futures::executor::block_on(reader.next()).unwrap_err();
        assert!(matches!(error, ProtocolError::Budget(_)), "{error}");
        // The next cell has a budget of its own.
        let mut reader = FrameReader::new(&mark[..]);
        reader.frames.add(MAX_CELL_FRAMES).unwrap();
        reader.end_cell();
        futures::executor::block_on(reader.next()).unwrap();
    }

    proptest! {
        #[test]
        fn frames_come_back_however_they_are_split(cells in proptest::collection::vec(any::<u64>(), 0..8), piece in 1usize..40) {
            let mut bytes = Vec::new();
            for cell in &cells {
                bytes.extend(frame(format!(r#"{{"event":"mark","cell":{cell},"at":[1,2]}}"#).as_bytes()));
            }
            let (mut writer, reader) = tokio::io::duplex(piece);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let read = runtime.block_on(async {
                let write = async { writer.write_all(&bytes).await.unwrap(); drop(writer) };
                let mut reader = FrameReader::new(reader);
                let read = async {
                    let mut read = Vec::new();
                    while let Ok((event, _)) = reader.next().await { read.push(event.cell) }
                    read
                };
                tokio::join!(write, read).1
            });
            prop_assert_eq!(read, cells);
        }
    }

    #[test]
    fn fuzz_frames() {
        bolero::check!().for_each(|bytes: &[u8]| {
            read_all(bytes);
            // The fuzzer rarely finds a correct length, so this adds one.
            read_all(&frame(bytes));
        });
    }
}
