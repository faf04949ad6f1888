//! A reply in pieces of text, while it is generated.

/// The side that asked for a reply.
pub trait Listener {
    /// Gets the next piece of the reply.
    fn text(&mut self, piece: &str);

    /// Whether the reply is no longer wanted. Called before each token, and before each part of a long prompt.
    fn is_stopped(&mut self) -> bool;
}

/// Divides a reply into pieces. Bytes that may become a stop string or a character wait until that is known.
pub struct ReplyStream<'a> {
    stops: &'a [String],
    /// Number of bytes that were sent.
    sent: usize,
}

impl<'a> ReplyStream<'a> {
    pub fn new(stops: &'a [String]) -> Self {
        Self { stops, sent: 0 }
    }

    /// Sends what is new in the bytes of a reply that is not complete.
    pub fn grow(&mut self, bytes: &[u8], listener: &mut dyn Listener) {
        self.send(bytes, settled(bytes, self.stops), listener);
    }

    /// Sends the rest of a reply.
    pub fn finish(&mut self, bytes: &[u8], listener: &mut dyn Listener) {
        self.send(bytes, bytes.len(), listener);
    }

    fn send(&mut self, bytes: &[u8], end: usize, listener: &mut dyn Listener) {
        if end > self.sent {
            listener.text(&String::from_utf8_lossy(&bytes[self.sent..end]));
            self.sent = end;
        }
    }
}

/// Number of bytes before those that may become a stop string or a character.
fn settled(bytes: &[u8], stops: &[String]) -> usize {
    let begun = stops.iter().filter_map(|stop| {
        let stop = stop.as_bytes();
        let mut lengths = (1..stop.len()).rev();
        lengths.find(|length| bytes.ends_with(&stop[..*length]))
    });
    let end = bytes.len() - begun.max().unwrap_or(0);
    end - begun_character(&bytes[..end])
}

/// Number of bytes of the character at the end that is not complete.
fn begun_character(bytes: &[u8]) -> usize {
    let is_begun = |length: &usize| {
        let tail = std::str::from_utf8(&bytes[bytes.len() - length..]);
        tail.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=bytes.len().min(3)).find(is_begun).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Listener for Heard {
        fn text(&mut self, piece: &str) {
            self.0.push(piece.to_owned());
        }

        fn is_stopped(&mut self) -> bool {
            false
        }
    }

    /// The pieces of a reply whose bytes come one by one.
    fn pieces(bytes: &[u8], stops: &[&str]) -> Vec<String> {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let (mut stream, mut heard) = (ReplyStream::new(&stops), Heard::default());
        for end in 0..=bytes.len() {
            stream.grow(&bytes[..end], &mut heard);
        }
        stream.finish(bytes, &mut heard);
        heard.0
    }

    #[test]
    fn characters_are_whole() {
        assert_eq!(pieces("aé€😀".as_bytes(), &[]), ["a", "é", "€", "😀"]);
        // What is no text becomes the same as in the whole reply.
        for bytes in [
            &b"a\xffb"[..],
            b"\xf0\x9f\x98",
            b"\xf0\x9fa\xc3",
            b"\x80\x80\xe2\x82",
        ] {
            assert_eq!(pieces(bytes, &[]).concat(), String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_may_become_a_stop_string_waits() {
        let stops = ["", "</s>", "END"];
        assert_eq!(
            pieces(b"a<b</sE", &stops),
            ["a", "<b", "</s", "E"],
            "the last piece comes with the end"
        );
        // A reply ends before a stop string, of which nothing was sent.
        let stops = stops.map(str::to_owned);
        let (mut stream, mut heard) = (ReplyStream::new(&stops), Heard::default());
        for bytes in [&b"a"[..], b"a<", b"a</s"] {
            stream.grow(bytes, &mut heard);
        }
        stream.finish(b"a", &mut heard);
        assert_eq!(heard.0, ["a"]);
    }
}
