//! Reads files from an endpoint line by line, with size limits.

use reqwest::Response;

use super::ChatError;

/// Size limits of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// Maximum size of the file, bytes.
    pub(super) bytes: u64,
    /// Maximum length of a line, bytes; longer lines are skipped.
    pub(super) line: usize,
}

/// The lines of a file that is being downloaded.
pub(super) struct Lines {
    response: Response,
    splitter: Splitter,
    left: u64,
    most: ReadLimits,
}

impl Lines {
    pub(super) fn new(response: Response, most: ReadLimits) -> Self {
        Self {
            response,
            splitter: Splitter::new(most.line),
            left: most.bytes,
            most,
        }
    }

    /// The lines completed by the next chunk, with `None` for lines that are too long; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Option<Vec<u8>>>>, ChatError> {
        let Some(chunk) = self.response.chunk().await.map_err(transport_error)? else {
            return Ok(self.splitter.end().map(|line| vec![line]));
        };
        let left = self.left.checked_sub(chunk.len() as u64);
        self.left = left.ok_or(ChatError::TooLarge(self.most.bytes))?;
        Ok(Some(self.splitter.push(&chunk)))
    }
}

/// Splits bytes into lines of limited length.
#[derive(Debug)]
struct Splitter {
    most: usize,
    current: Vec<u8>,
    /// The current line is too long.
    skipping: bool,
}

impl Splitter {
    fn new(most: usize) -> Self {
        Self {
            most,
            current: Vec::new(),
            skipping: false,
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
        if self.skipping || self.current.len() + part.len() > self.most {
            self.current = Vec::new();
            self.skipping = true;
        } else {
            self.current.extend_from_slice(part);
        }
    }

    /// Ends the current line; `None` if it is blank.
    fn end(&mut self) -> Option<Option<Vec<u8>>> {
        let line = std::mem::take(&mut self.current);
        match std::mem::take(&mut self.skipping) {
            true => Some(None),
            false => (!line.trim_ascii().is_empty()).then_some(Some(line)),
        }
    }
}

/// Classifies a transport error. Of the URL only scheme, host and port are named; the rest may contain a key.
pub(super) fn transport_error(error: reqwest::Error) -> ChatError {
    let (connect, timeout) = (error.is_connect(), error.is_timeout());
    let address = error.url().map(|url| url.origin().ascii_serialization());
    let cause = root_cause(&error.without_url());
    match (connect, timeout) {
        (true, _) => ChatError::Connection(match address {
            Some(address) => format!("{address}: {cause}"),
            None => cause,
        }),
        (false, true) => ChatError::Timeout,
        (false, false) => ChatError::Broken(cause),
    }
}

/// The innermost cause. The errors around it say only that sending or connecting failed, which our own text says too.
fn root_cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_depend_on_chunk_boundaries() {
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
    fn fuzz_lines_are_limited_and_complete() {
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
