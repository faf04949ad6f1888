//! Builds the [`Observation`] of a cell from its streams and events: in order, normalized so that equal work
//! gives equal text, and truncated in the middle.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::event::{Event, What};
use super::normalize::normalize;
use pybench_types::observation::{CellError, Observation, Output, Stopped};

/// Maximum number of outputs kept per cell.
const MAX_OUTPUTS: usize = 1000;
/// Maximum memory that the outputs kept per cell may take, bytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum number of separate stream segments; later ones are merged.
const MAX_SEGMENTS: usize = 4096;
/// Maximum size of a text other than `text/plain` (HTML, SVG, …), bytes.
const MAX_MARKUP: usize = 512 << 10;

/// Largest stream position accepted from a session.
const MAX_POSITION: u64 = 1 << 40;

const STREAMS: [&str; 2] = ["stdout", "stderr"];

enum Segment {
    /// The range `from..to` of a stream's file.
    Stream {
        stream: usize,
        from: u64,
        to: u64,
    },
    Output(Output),
}

/// Records the events of one cell.
pub(super) struct Recorder {
    cell: u64,
    pieces: Vec<Segment>,
    at: [u64; 2],
    bytes: usize,
    dropped: usize,
    error: Option<CellError>,
}

impl Recorder {
    /// A recorder for cell number `cell`, whose output starts at the stream positions `at`.
    pub(super) fn new(cell: u64, at: [u64; 2]) -> Self {
        Self {
            cell,
            pieces: Vec::new(),
            at,
            bytes: 0,
            dropped: 0,
            error: None,
        }
    }

    /// Records an event that may take `size` bytes; returns true if the cell has ended.
    pub(super) fn record(&mut self, event: Event, size: usize) -> bool {
        if event.cell != self.cell {
            return false;
        }
        self.advance(event.at);
        let output = match event.what {
            What::Ready | What::Mark => return false,
            What::Done => return true,
            What::Error {
                ename,
                evalue,
                traceback,
            } => {
                self.error = Some(CellError {
                    ename,
                    evalue,
                    traceback,
                });
                return false;
            }
            What::Result { data } => Output::Result { data },
            What::Display { data } => Output::Display { data },
            What::Chart { path, figure } => Output::Chart { path, figure },
        };
        if self.pieces.len() < MAX_OUTPUTS + MAX_SEGMENTS && self.bytes + size <= MAX_BYTES {
            self.bytes += size;
            self.pieces.push(Segment::Output(output));
        } else {
            self.dropped += 1;
        }
        false
    }

    /// Records that the session reports the stream positions `to`.
    fn advance(&mut self, to: [u64; 2]) {
        for (stream, to) in to.into_iter().enumerate() {
            let from = self.at[stream];
            if to <= from || to > MAX_POSITION {
                continue;
            }
            self.at[stream] = to;
            let full = self.pieces.len() >= MAX_SEGMENTS;
            let same = |piece: &Segment| matches!(piece, Segment::Stream { stream: s, .. } if *s == stream);
            let position = match full {
                false => self
                    .pieces
                    .len()
                    .checked_sub(1)
                    .filter(|&last| same(&self.pieces[last])),
                true => self.pieces.iter().rposition(same),
            };
            match position.and_then(|at| self.pieces.get_mut(at)) {
                Some(Segment::Stream { to: end, .. }) => *end = to,
                _ => self.pieces.push(Segment::Stream { stream, from, to }),
            }
        }
    }

    /// The observation, with at most `limit` characters of text. `end`: lengths of the stream files.
    pub(super) fn finish(
        mut self,
        files: &[File; 2],
        end: [u64; 2],
        limit: usize,
        stopped: Option<Stopped>,
    ) -> Observation {
        self.advance(end);
        for piece in &mut self.pieces {
            if let Segment::Stream { stream, from, to } = piece {
                *to = (*to).min(end[*stream]);
                *from = (*from).min(*to);
            }
        }
        let clip = |text| {
            cap(vec![Text::whole(text)], limit)
                .pop()
                .unwrap_or_default()
        };
        let error = self.error.map(|error| CellError {
            ename: clip(error.ename),
            evalue: clip(normalize(&error.evalue)),
            traceback: clip(normalize(&error.traceback)),
        });
        let mut outputs = assemble(self.pieces, files, limit);
        if self.dropped > 0 {
            let text = format!(
                "\n[{} outputs were dropped: too many or too large]\n",
                self.dropped
            );
            push(&mut outputs, stream(1, text));
        }
        Observation {
            outputs,
            error,
            stopped,
        }
    }
}

/// Reads, normalizes and truncates the texts of all segments.
fn assemble(mut pieces: Vec<Segment>, files: &[File; 2], limit: usize) -> Vec<Output> {
    let sizes: Vec<u64> = pieces.iter().map(text_size).collect();
    let texts = windows(&sizes, 4 * limit as u64)
        .into_iter()
        .zip(&mut pieces)
        .map(|(window, piece)| read(piece, &window, files))
        .collect();
    let mut outputs = Vec::new();
    for (piece, text) in pieces.into_iter().zip(cap(texts, limit)) {
        match piece {
            Segment::Stream { stream: s, .. } if !text.is_empty() => {
                push(&mut outputs, stream(s, text))
            }
            Segment::Stream { .. } => {}
            Segment::Output(mut output) => {
                if restore(&mut output, text) {
                    outputs.push(output);
                }
            }
        }
    }
    outputs
}

fn stream(stream: usize, text: String) -> Output {
    Output::Stream {
        name: STREAMS[stream].to_owned(),
        text,
    }
}

/// Appends an output; joins it with the last one if both are of the same stream.
fn push(outputs: &mut Vec<Output>, output: Output) {
    if let (
        Some(Output::Stream {
            name: last,
            text: so_far,
        }),
        Output::Stream { name, text },
    ) = (outputs.last_mut(), &output)
        && last == name
    {
        so_far.push_str(text);
    } else {
        outputs.push(output);
    }
}

fn text_size(piece: &Segment) -> u64 {
    match piece {
        Segment::Stream { from, to, .. } => to - from,
        Segment::Output(Output::Result { data } | Output::Display { data }) => {
            data.get("text/plain").map_or(0, |text| text.len() as u64)
        }
        Segment::Output(_) => 0,
    }
}

/// The bytes of a segment that are read: `0..head` and `tail..`. If `head == tail`, all of them.
#[derive(Debug, PartialEq)]
struct Window {
    head: u64,
    tail: u64,
}

/// Windows that cover the first and the last `keep` bytes of all segments together.
fn windows(sizes: &[u64], keep: u64) -> Vec<Window> {
    let total: u64 = sizes.iter().sum();
    let mut offset = 0;
    let window = |&size: &u64| {
        let head = keep.saturating_sub(offset).min(size);
        let tail = total.saturating_sub(keep).saturating_sub(offset).min(size);
        offset += size;
        Window {
            head,
            tail: tail.max(head),
        }
    };
    sizes.iter().map(window).collect()
}

/// A text whose middle may be missing.
struct Text {
    before: String,
    /// Bytes missing in the middle.
    lost: u64,
    after: String,
}

impl Text {
    fn whole(text: String) -> Self {
        Self {
            before: text,
            lost: 0,
            after: String::new(),
        }
    }

    fn chars(&self) -> u64 {
        (self.before.chars().count() + self.after.chars().count()) as u64 + self.lost
    }
}

fn read(piece: &mut Segment, window: &Window, files: &[File; 2]) -> Text {
    match piece {
        Segment::Stream { stream, from, to } => {
            let text = |from, to| normalize(&read_text(&files[*stream], from, to));
            if window.head == window.tail {
                return Text::whole(text(*from, *to));
            }
            Text {
                before: text(*from, *from + window.head),
                lost: window.tail - window.head,
                after: text(*from + window.tail, *to),
            }
        }
        Segment::Output(Output::Result { data } | Output::Display { data }) => {
            let plain = data.remove("text/plain").unwrap_or_default();
            Text::whole(normalize(&plain))
        }
        Segment::Output(_) => Text::whole(String::new()),
    }
}

/// The text of `from..to`; shorter if the cell has truncated the file.
fn read_text(file: &File, from: u64, to: u64) -> String {
    let mut bytes = vec![0; (to - from) as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + filled as u64) {
            Ok(0) | Err(_) => break,
            Ok(count) => filled += count,
        }
    }
    String::from_utf8_lossy(&bytes[..filled]).into_owned()
}

/// Truncates texts to `limit` characters in total: half from the beginning, half from the end, with a
/// notice in the first text that is cut.
fn cap(texts: Vec<Text>, limit: usize) -> Vec<String> {
    let total: u64 = texts.iter().map(Text::chars).sum();
    if total <= limit as u64 {
        return texts.into_iter().map(|text| text.before).collect();
    }
    let mut kept: Vec<String> = Vec::with_capacity(texts.len());
    let (mut head, mut cut) = (limit / 2, false);
    for text in &texts {
        let mut prefix: String = text.before.chars().take(head).collect();
        let taken = prefix.chars().count();
        head -= taken;
        if !cut && (taken as u64) < text.chars() {
            (cut, head) = (true, 0);
            let lost = total - limit as u64;
            prefix.push_str(&format!(
                "\n[… about {lost} characters of output cut here …]\n"
            ));
        }
        kept.push(prefix);
    }
    let mut tail = limit - limit / 2;
    for (text, kept) in texts.iter().zip(&mut kept).rev() {
        let end = if text.lost > 0 {
            &text.after
        } else {
            &text.before
        };
        let count = end.chars().count();
        kept.extend(end.chars().skip(count.saturating_sub(tail)));
        tail = tail.saturating_sub(count);
        if tail == 0 || text.lost > 0 {
            break;
        }
    }
    kept
}

/// Puts the truncated `text/plain` back and drops texts that are too large; false if nothing is left.
fn restore(output: &mut Output, text: String) -> bool {
    let (Output::Result { data } | Output::Display { data }) = output else {
        return true;
    };
    for (mime, content) in data.iter_mut() {
        if mime.starts_with("text/") && content.len() <= MAX_MARKUP {
            *content = normalize(content);
        }
    }
    let binary = |mime: &str| mime.starts_with("image/") && mime != "image/svg+xml";
    data.retain(|mime, content| binary(mime) || content.len() <= MAX_MARKUP);
    if !text.is_empty() {
        data.insert("text/plain".to_owned(), text);
    }
    !data.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::io::Write;

    fn files(texts: [&str; 2]) -> [File; 2] {
        texts.map(|text| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file
        })
    }

    fn event(at: [u64; 2], what: What) -> Event {
        Event { cell: 1, at, what }
    }

    fn text(name: &str, text: &str) -> Output {
        Output::Stream {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    fn plain(text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("text/plain".to_owned(), text.to_owned())])
    }

    #[test]
    fn streams_and_events_are_in_order() {
        let files = files(["onetwothree", "warning"]);
        let mut recorder = Recorder::new(1, [0, 0]);
        recorder.record(event([3, 0], What::Mark), 1);
        recorder.record(event([3, 7], What::Mark), 1);
        recorder.record(
            event(
                [6, 7],
                What::Display {
                    data: plain("shown"),
                },
            ),
            1,
        );
        assert!(recorder.record(event([11, 7], What::Done), 1));
        let observation = recorder.finish(&files, [11, 7], 100, None);
        let expected = [
            text("stdout", "one"),
            text("stderr", "warning"),
            text("stdout", "two"),
            Output::Display {
                data: plain("shown"),
            },
            text("stdout", "three"),
        ];
        assert_eq!(observation.outputs, expected);
    }

    #[test]
    fn long_output_keeps_head_and_tail() {
        let long = format!("begin{}end", "x".repeat(100_000));
        let files = files([&long, ""]);
        let recorder = Recorder::new(1, [0, 0]);
        let observation = recorder.finish(&files, [long.len() as u64, 0], 20, None);
        let [Output::Stream { text, .. }] = &observation.outputs[..] else {
            panic!("{observation:?}");
        };
        assert!(
            text.starts_with("beginxxxxx\n[… about 99988 characters"),
            "{text}"
        );
        assert!(text.ends_with("\nxxxxxxxend"), "{text}");
    }

    #[test]
    fn events_of_another_cell_are_ignored() {
        let mut recorder = Recorder::new(2, [0, 0]);
        assert!(!recorder.record(event([0, 0], What::Done), 1));
        assert!(
            recorder
                .finish(&files(["", ""]), [0, 0], 10, None)
                .outputs
                .is_empty()
        );
    }

    #[test]
    fn claimed_positions_beyond_the_file_are_harmless() {
        let mut recorder = Recorder::new(1, [0, 0]);
        recorder.record(event([u64::MAX, 1 << 39], What::Mark), 1);
        let observation = recorder.finish(&files(["ab", ""]), [2, 0], 10, None);
        assert_eq!(observation.outputs, [text("stdout", "ab")]);
    }

    proptest! {
        #[test]
        fn text_is_truncated_to_the_limit(
            pieces in proptest::collection::vec("[a-zé中]{0,60}", 0..12), limit in 1usize..80
        ) {
            let total: usize = pieces.iter().map(|p| p.chars().count()).sum();
            let kept = cap(pieces.iter().cloned().map(Text::whole).collect(), limit);
            let notice = regex::Regex::new("\n\\[… about .* …\\]\n").unwrap();
            let all = kept.concat();
            let without = notice.replace_all(&all, "");
            prop_assert_eq!(without.chars().count(), total.min(limit));
            if total <= limit {
                prop_assert_eq!(&kept, &pieces);
            } else {
                let whole = pieces.concat();
                let head: String = whole.chars().take(limit / 2).collect();
                let tail: String = whole.chars().skip(total - (limit - limit / 2)).collect();
                prop_assert_eq!(without.into_owned(), head + &tail);
            }
        }

        #[test]
        fn windows_cover_both_ends(sizes in proptest::collection::vec(0u64..50, 0..10), keep in 1u64..100) {
            let total: u64 = sizes.iter().sum();
            let mut offset = 0;
            for (size, window) in sizes.iter().zip(windows(&sizes, keep)) {
                for byte in 0..*size {
                    let seen = byte < window.head || byte >= window.tail;
                    let wanted = offset + byte < keep || offset + byte >= total.saturating_sub(keep);
                    prop_assert_eq!(seen, wanted);
                }
                offset += size;
            }
        }
    }
}
