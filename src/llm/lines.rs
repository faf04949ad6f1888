//! Files of an endpoint, read line by line within bounds.

use reqwest::Response;

use super::TeacherError;
use super::http::transport_error;

/// How much of a file is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Bytes of all.
    pub(super) bytes: u64,
    /// Bytes of a line; a longer one is skipped.
    pub(super) line: usize,
}

/// A file on its way, line by line.
pub(super) struct Lines {
    response: Response,
    splitter: Splitter,
    left: u64,
    most: Most,
}

impl Lines {
    pub(super) fn new(response: Response, most: Most) -> Self {
        Self {
            response,
            splitter: Splitter::new(most.line),
            left: most.bytes,
            most,
        }
    }

    /// The lines that the next piece ends, `None` for one that is too long; nothing at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Option<Vec<u8>>>>, TeacherError> {
        let Some(chunk) = self.response.chunk().await.map_err(transport_error)? else {
            return Ok(self.splitter.end().map(|line| vec![line]));
        };
        let left = self.left.checked_sub(chunk.len() as u64);
        self.left = left.ok_or(TeacherError::TooLarge(self.most.bytes))?;
        Ok(Some(self.splitter.push(&chunk)))
    }
}

/// Cuts bytes into lines of a bounded length.
#[derive(Debug)]
struct Splitter {
    most: usize,
    begun: Vec<u8>,
    /// What was begun is too long.
    skips: bool,
}

impl Splitter {
    fn new(most: usize) -> Self {
        Self {
            most,
            begun: Vec::new(),
            skips: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut lines = Vec::new();
        let mut parts = bytes.split(|byte| *byte == b'\n');
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            self.add(part);
            lines.extend(self.end());
        }
        self.add(last);
        lines
    }

    fn add(&mut self, part: &[u8]) {
        if self.skips || self.begun.len() + part.len() > self.most {
            self.begun = Vec::new();
            self.skips = true;
        } else {
            self.begun.extend_from_slice(part);
        }
    }

    /// The line that was begun; nothing where it is empty.
    fn end(&mut self) -> Option<Option<Vec<u8>>> {
        let line = std::mem::take(&mut self.begun);
        match std::mem::take(&mut self.skips) {
            true => Some(None),
            false => (!line.trim_ascii().is_empty()).then_some(Some(line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        let text = b"one\n\ntwo is long\r\nthree is far too long\nfour";
        for size in 1..text.len() {
            let mut splitter = Splitter::new(12);
            let pieces = text.chunks(size);
            let mut lines: Vec<_> = pieces.flat_map(|piece| splitter.push(piece)).collect();
            lines.extend(splitter.end());
            let line = |text: &str| Some(text.as_bytes().to_vec());
            let expected = [line("one"), line("two is long\r"), None, line("four")];
            assert_eq!(lines, expected, "pieces of {size}");
        }
    }

    #[test]
    fn fuzz_lines_are_bounded_and_complete() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let (cut, most) = (bytes.len() / 2, 5);
            let mut splitter = Splitter::new(most);
            let mut lines = splitter.push(&bytes[..cut]);
            lines.extend(splitter.push(&bytes[cut..]));
            lines.extend(splitter.end());
            assert!(
                lines
                    .iter()
                    .flatten()
                    .all(|line| line.len() <= most && !line.contains(&b'\n'))
            );
            let whole = bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.trim_ascii().is_empty());
            let whole: Vec<_> = whole.filter(|line| line.len() <= most).collect();
            assert_eq!(lines.iter().flatten().collect::<Vec<_>>(), whole);
        });
    }
}
