//! JSON as Python writes it: with `NaN`, `Infinity` and `-Infinity`, which JSON does not have.

use std::io::{self, Read};

/// Bytes that are read at a time.
const BUFFER: usize = 64 << 10;
/// Length of the longest word that is replaced, `-Infinity`.
const MAX_WORD: usize = 9;

/// Passes JSON on, with `null` in place of numbers that are not finite.
pub(super) struct PythonJson<R> {
    inner: R,
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of `output` was passed on.
    at: usize,
    place: Place,
    /// Letters outside of texts that may be such a number.
    word: Vec<u8>,
}

/// Where the next byte is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Outside,
    Text,
    /// After a backslash in a text.
    Escape,
}

impl<R: Read> PythonJson<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            input: vec![0; BUFFER],
            output: Vec::with_capacity(BUFFER),
            at: 0,
            place: Place::Outside,
            word: Vec::with_capacity(MAX_WORD),
        }
    }

    fn push(&mut self, byte: u8) {
        match self.place {
            Place::Text => {
                match byte {
                    b'"' => self.place = Place::Outside,
                    b'\\' => self.place = Place::Escape,
                    _ => {}
                }
                self.output.push(byte);
            }
            Place::Escape => {
                self.place = Place::Text;
                self.output.push(byte);
            }
            Place::Outside => self.push_outside(byte),
        }
    }

    fn push_outside(&mut self, byte: u8) {
        if !self.word.is_empty() && byte.is_ascii_alphabetic() && self.word.len() < MAX_WORD {
            return self.word.push(byte);
        }
        self.end_word();
        match byte {
            b'-' | b'N' | b'I' => self.word.push(byte),
            _ => {
                if byte == b'"' {
                    self.place = Place::Text;
                }
                self.output.push(byte);
            }
        }
    }

    fn end_word(&mut self) {
        match &*self.word {
            b"NaN" | b"Infinity" | b"-Infinity" => self.output.extend(b"null"),
            other => self.output.extend(other),
        }
        self.word.clear();
    }
}

impl<R: Read> Read for PythonJson<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.output.len() {
            let read = self.inner.read(&mut self.input)?;
            self.output.clear();
            self.at = 0;
            if read == 0 {
                self.end_word();
                break;
            }
            for at in 0..read {
                self.push(self.input[at]);
            }
        }
        let ready = &self.output[self.at..];
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text in pieces of this size, so that a word may be cut anywhere.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn only_numbers_outside_of_texts_are_replaced() {
        for (from, to) in [
            ("[NaN, Infinity, -Infinity]", "[null, null, null]"),
            (
                r#"{"NaN": "-Infinity \" NaN"}"#,
                r#"{"NaN": "-Infinity \" NaN"}"#,
            ),
            (r#"["\\",NaN]"#, r#"["\\",null]"#),
            ("[-1, -1e-5, true, null]", "[-1, -1e-5, true, null]"),
            (
                "[NaNa, -NaN, I, InfinityInfinity]",
                "[NaNa, -NaN, I, InfinityInfinity]",
            ),
            ("NaN", "null"),
            ("-", "-"),
            ("", ""),
        ] {
            for size in [1, 2, 3, 100] {
                let mut text = String::new();
                let mut reader = PythonJson::new(Pieces(from.as_bytes(), size));
                reader.read_to_string(&mut text).unwrap();
                assert_eq!(text, to, "{from} in pieces of {size}");
            }
        }
    }
}
