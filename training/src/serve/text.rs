//! Assembles the bytes of tokens to text. Incomplete characters, and text that may be the start of a stop string, are
//! held back.

#[derive(Debug, Default)]
pub(super) struct TextStream {
    /// Bytes of an incomplete character; at most three.
    bytes: Vec<u8>,
    /// Text that may be the start of a stop string.
    held: String,
    stops: Vec<String>,
}

impl TextStream {
    /// The reply ends before the first of these strings. None may be empty.
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self {
            stops,
            ..Self::default()
        }
    }

    /// Adds the bytes of a token. Returns text to send, and whether a stop string was found.
    pub(super) fn push(&mut self, bytes: &[u8]) -> (String, bool) {
        self.bytes.extend_from_slice(bytes);
        let text = take_characters(&mut self.bytes);
        for letter in text.chars() {
            self.held.push(letter);
            // The stop string that ends first wins, independent of token boundaries; of several, the longest.
            let ended = self.stops.iter().filter(|stop| self.held.ends_with(*stop));
            if let Some(length) = ended.map(String::len).max() {
                self.held.truncate(self.held.len() - length);
                self.bytes.clear();
                return (std::mem::take(&mut self.held), true);
            }
        }
        let keep = self
            .stops
            .iter()
            .map(|stop| overlap(&self.held, stop))
            .max();
        let kept = self.held.split_off(self.held.len() - keep.unwrap_or(0));
        (std::mem::replace(&mut self.held, kept), false)
    }

    /// The remaining text at the end. An incomplete character becomes U+FFFD.
    pub(super) fn finish(&mut self) -> String {
        let mut text = std::mem::take(&mut self.held);
        if !std::mem::take(&mut self.bytes).is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        text
    }
}

/// Takes everything but an incomplete character; invalid UTF-8 becomes U+FFFD.
fn take_characters(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(all) => {
                text.push_str(all);
                bytes.clear();
                return text;
            }
            Err(error) => {
                let valid = error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[..valid]));
                let Some(bad) = error.error_len() else {
                    bytes.drain(..valid);
                    return text;
                };
                text.push(char::REPLACEMENT_CHARACTER);
                bytes.drain(..valid + bad);
            }
        }
    }
}

/// Length of the longest proper prefix of `stop` at the end of `text`.
fn overlap(text: &str, stop: &str) -> usize {
    let ends = stop.char_indices().map(|(index, _)| index).rev();
    ends.take_while(|&end| end > 0)
        .find(|&end| text.ends_with(&stop[..end]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text before the stop string that ends first.
    fn wanted(text: &str, stops: &[String]) -> (String, bool) {
        let ends = stops.iter().flat_map(|stop| {
            let positions = text.char_indices().map(|(index, _)| index);
            let at = positions.filter(|&index| text[index..].starts_with(stop.as_str()));
            at.map(|start| (start + stop.len(), start))
                .collect::<Vec<_>>()
        });
        match ends.min() {
            Some((_, start)) => (text[..start].to_owned(), true),
            None => (text.to_owned(), false),
        }
    }

    fn streamed(bytes: &[u8], cuts: &[usize], stops: &[String]) -> (String, bool) {
        let mut stream = TextStream::new(stops.to_vec());
        let (mut out, mut start) = (String::new(), 0);
        for &cut in cuts.iter().chain([&bytes.len()]) {
            let cut = cut.clamp(start, bytes.len());
            let (text, stopped) = stream.push(&bytes[start..cut]);
            out.push_str(&text);
            if stopped {
                return (out, true);
            }
            start = cut;
        }
        (out + &stream.finish(), false)
    }

    proptest! {
        #[test]
        fn token_boundaries_do_not_matter(
            text in "[ab你好🎉]{0,40}",
            stops in prop::collection::vec("[ab你]{1,4}", 0..4),
            mut cuts in prop::collection::vec(0usize..160, 0..20),
        ) {
            cuts.sort();
            prop_assert_eq!(streamed(text.as_bytes(), &cuts, &stops), wanted(&text, &stops));
        }

        #[test]
        fn invalid_bytes_are_decoded_lossily(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            mut cuts in prop::collection::vec(0usize..60, 0..20),
        ) {
            cuts.sort();
            let (text, _) = streamed(&bytes, &cuts, &[]);
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes).into_owned());
        }
    }

    #[test]
    fn the_start_of_a_stop_string_is_held_back() {
        let mut stream = TextStream::new(vec!["</code>".into()]);
        assert_eq!(stream.push(b"x</co"), ("x".into(), false));
        assert_eq!(stream.push(b"dx"), ("</codx".into(), false));
        assert_eq!(stream.push(b"y</cod"), ("y".into(), false));
        assert_eq!(stream.push(b"e>z"), (String::new(), true));
    }
}
