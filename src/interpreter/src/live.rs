//! Live output: sends the outputs of a running cell to a watcher. It is only for display; the
//! [`Observation`](pybench_types::observation::Observation) at the end is authoritative.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::event::{Event, What};
use pybench_types::observation::Output;

/// Maximum memory that the outputs sent per cell may take, bytes; limits what a slow watcher can accumulate.
const MAX_BYTES: usize = 64 << 20;
/// Maximum number of displays, results and charts sent per cell.
const MAX_OUTPUTS: usize = 1000;
/// Bytes read from a stream at a time.
const CHUNK: usize = 64 << 10;

/// Receives each output of a running cell.
#[derive(Clone, Debug)]
pub struct Watcher(UnboundedSender<Output>);

impl Watcher {
    /// Returns a watcher and the receiver of its outputs. The cell's limits bound the size of the queue.
    pub fn new() -> (Self, UnboundedReceiver<Output>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends an output. Does nothing if the receiver is gone.
    pub fn send(&self, output: Output) {
        let _ = self.0.send(output);
    }

    /// Resolves when the receiver is dropped.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Follows the streams and events of one cell.
pub(super) struct LiveOutput {
    watcher: Watcher,
    cell: u64,
    /// How much of each stream has been sent, bytes.
    at: [u64; 2],
    /// Length of each stream at the last poll, bytes.
    seen: [u64; 2],
    /// The bytes of an incomplete UTF-8 character.
    partial: [Vec<u8>; 2],
    /// Characters that may still be sent immediately; `tail` characters are sent at the end.
    left: usize,
    tail: usize,
    outputs: usize,
    bytes: usize,
}

impl LiveOutput {
    /// Follows cell number `cell`, whose output starts at `at`; sends about `limit` characters.
    pub(super) fn new(watcher: Watcher, cell: u64, at: [u64; 2], limit: usize) -> Self {
        Self {
            watcher,
            cell,
            at,
            seen: at,
            partial: [Vec::new(), Vec::new()],
            left: limit / 2,
            tail: limit / 2,
            outputs: 0,
            bytes: 0,
        }
    }

    /// Handles an event that may take `size` bytes: sends the text before it, then its output.
    pub(super) fn event(&mut self, event: &Event, size: usize, files: &[File; 2]) {
        if event.cell != self.cell {
            return;
        }
        self.advance(event.at, files);
        let output = match &event.what {
            What::Result { data } => Output::Result { data: data.clone() },
            What::Display { data } => Output::Display { data: data.clone() },
            What::Chart { path, figure } => Output::Chart {
                path: path.clone(),
                figure: figure.clone(),
            },
            What::Ready | What::Mark | What::Error { .. } | What::Done => return,
        };
        self.outputs += 1;
        self.bytes = self.bytes.saturating_add(size);
        if self.outputs <= MAX_OUTPUTS && self.bytes <= MAX_BYTES {
            self.watcher.send(output);
        }
    }

    /// Sends newly written text. An incomplete line waits for the next poll: Python's `print` writes a
    /// text and its newline separately, and watchers should get whole lines.
    pub(super) fn poll(&mut self, files: &[File; 2]) {
        if self.left == 0 {
            return; // the rest is sent at the end
        }
        let sizes = sizes(files);
        let host_io = [0, 1].map(|stream: usize| {
            let lines = end_of_lines(&files[stream], self.at[stream], sizes[stream]);
            lines.max(self.seen[stream])
        });
        self.advance(host_io, files);
        self.seen = sizes;
    }

    /// Sends each stream up to position `to`, as far as it exists and fits.
    fn advance(&mut self, to: [u64; 2], files: &[File; 2]) {
        for stream in 0..2 {
            while self.left > 0 && self.at[stream] < to[stream] {
                let wanted = (to[stream] - self.at[stream]).min(CHUNK as u64) as usize;
                let piece = read(&files[stream], self.at[stream], wanted);
                if piece.is_empty() {
                    break;
                }
                self.at[stream] += piece.len() as u64;
                self.text(stream, &piece);
            }
        }
    }

    fn text(&mut self, stream: usize, piece: &[u8]) {
        let mut bytes = std::mem::take(&mut self.partial[stream]);
        bytes.extend_from_slice(piece);
        self.partial[stream] = bytes.split_off(complete_prefix(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        let end = text.char_indices().nth(self.left).map(|(at, _)| at);
        // Text that does not fit is sent at the end, or counted as cut.
        let unsent = end.map_or(0, |end| text.len() - end);
        self.at[stream] -= unsent.min(piece.len()) as u64;
        let text = &text[..end.unwrap_or(text.len())];
        self.left -= text.chars().count();
        if end.is_some() {
            self.partial[stream].clear();
        }
        self.send(stream, text.to_owned());
    }

    fn send(&self, stream: usize, text: String) {
        if !text.is_empty() {
            let name = ["stdout", "stderr"][stream].to_owned();
            self.watcher.send(Output::Stream { name, text });
        }
    }

    /// Sends the rest of the output after the cell has ended; if it is too long, a notice and its end.
    pub(super) fn finish(mut self, files: &[File; 2]) {
        let host_io = sizes(files);
        self.advance(host_io, files);
        for stream in 0..2 {
            let rest = host_io[stream].saturating_sub(self.at[stream]);
            let shown = rest.min(self.tail as u64);
            let bytes = read(&files[stream], host_io[stream] - shown, shown as usize);
            let mut text = String::from_utf8_lossy(&self.partial[stream]).into_owned();
            if rest > shown {
                text += &format!("\n[{} bytes were cut here]\n", rest - shown);
            }
            text += &String::from_utf8_lossy(&bytes);
            self.send(stream, text);
        }
    }
}

fn sizes(files: &[File; 2]) -> [u64; 2] {
    [0, 1].map(|stream: usize| files[stream].metadata().map_or(0, |m| m.len()))
}

/// The end of the last complete line in `from..to`; `from` if there is none.
fn end_of_lines(file: &File, from: u64, to: u64) -> u64 {
    let count = to.saturating_sub(from).min(CHUNK as u64);
    let begin = to - count.min(to);
    let newline = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte == b'\n');
    newline(&read(file, begin, count as usize)).map_or(from, |at| begin + at as u64 + 1)
}

fn read(file: &File, at: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let count = file.read_at(&mut bytes, at).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

/// Length of the longest prefix that does not end within a UTF-8 character; invalid bytes count as
/// characters.
fn complete_prefix(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let length = match bytes[at] {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            0x80..=0xbf => continue,
            _ => 1,
        };
        return if length > back { at } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn files() -> [File; 2] {
        [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()]
    }

    fn received(receiver: &mut UnboundedReceiver<Output>) -> [String; 2] {
        let mut texts = [String::new(), String::new()];
        while let Ok(output) = receiver.try_recv() {
            if let Output::Stream { name, text } = output {
                texts[usize::from(name == "stderr")] += &text;
            }
        }
        texts
    }

    #[test]
    fn text_is_sent_immediately_in_whole_characters() {
        let mut files = files();
        let (watcher, mut receiver) = Watcher::new();
        let mut live = LiveOutput::new(watcher, 1, [0, 0], 1000);
        let text = "héllo 中文 🎉\n";
        for byte in text.as_bytes() {
            files[0].write_all(&[*byte]).unwrap();
            live.poll(&files);
        }
        files[1].write_all(b"warn").unwrap();
        live.finish(&files);
        assert_eq!(
            received(&mut receiver),
            [text.to_owned(), "warn".to_owned()]
        );
    }

    #[test]
    fn an_incomplete_line_waits_for_one_poll() {
        let mut files = files();
        let (watcher, mut receiver) = Watcher::new();
        let mut live = LiveOutput::new(watcher, 1, [0, 0], 1000);
        let mut look = |text: &str, live: &mut LiveOutput| {
            files[0].write_all(text.as_bytes()).unwrap();
            live.poll(&files);
            received(&mut receiver)[0].clone()
        };
        assert_eq!(look("one\ntw", &mut live), "one\n");
        assert_eq!(look("o\nthr", &mut live), "two\n");
        // "thr" was there at the last poll, so it is sent incomplete; "e" waits for the next poll.
        assert_eq!(look("e", &mut live), "thr");
        assert_eq!(look("", &mut live), "e");
        assert_eq!(look("e\n", &mut live), "e\n");
    }

    #[test]
    fn long_output_keeps_beginning_and_end() {
        let mut files = files();
        files[0].write_all("é".repeat(50_000).as_bytes()).unwrap();
        files[0].write_all(b"the end").unwrap();
        let (watcher, mut receiver) = Watcher::new();
        let mut live = LiveOutput::new(watcher, 1, [0, 0], 1000);
        live.poll(&files);
        live.poll(&files);
        live.finish(&files);
        let [text, _] = received(&mut receiver);
        assert!(text.starts_with(&"é".repeat(500)));
        assert!(text.ends_with("the end") && text.contains("bytes were cut here"));
        assert!(text.len() < 3000, "{}", text.len());
    }

    proptest::proptest! {
        #[test]
        fn short_texts_are_sent_completely(parts in proptest::collection::vec("\\PC{0,20}", 0..10), cut in 1usize..9) {
            let mut files = files();
            let (watcher, mut receiver) = Watcher::new();
            let mut live = LiveOutput::new(watcher, 1, [0, 0], 10_000);
            let text = parts.concat();
            for piece in text.as_bytes().chunks(cut) {
                files[1].write_all(piece).unwrap();
                live.poll(&files);
            }
            live.finish(&files);
            proptest::prop_assert_eq!(received(&mut receiver), [String::new(), text]);
        }
    }

    #[test]
    fn fuzz_live_text() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let mut files = files();
            files[0].write_all(bytes).unwrap();
            let (watcher, mut receiver) = Watcher::new();
            let mut live = LiveOutput::new(watcher, 1, [0, 0], 64);
            live.advance([bytes.len() as u64 / 2, u64::MAX], &files);
            live.poll(&files);
            live.finish(&files);
            let [text, _] = received(&mut receiver);
            // Each invalid byte may become a replacement character of three bytes.
            assert!(text.len() <= 64 * 4 + 3 * 64 + 64, "{}", text.len());
        });
    }
}
