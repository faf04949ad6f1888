//! Calls in blocks, as Hermes, Qwen and our own rows write them:
//! `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

use std::ops::Range;

use serde_json::Value;

pub(crate) const OPEN_TAG: &str = "<tool_call>";
pub(crate) const CLOSE_TAG: &str = "</tool_call>";

/// A block in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBlock {
    /// Where the opening tag starts.
    pub start: usize,
    /// What is between the tags; up to the end of the text if the block is not closed.
    pub body: Range<usize>,
    /// Where the closing tag ends, if there is one.
    pub end: Option<usize>,
}

impl CallBlock {
    /// The first block at or after `from`.
    pub fn find(text: &str, from: usize) -> Option<Self> {
        let start = from + text[from..].find(OPEN_TAG)?;
        let body = start + OPEN_TAG.len();
        let length = ClosingTag::default().find(&text[body..]);
        Some(Self {
            start,
            body: body..length.map_or(text.len(), |length| body + length),
            end: length.map(|length| body + length + CLOSE_TAG.len()),
        })
    }
}

/// Searches the text after an opening tag for the closing tag. One inside of a JSON string does not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClosingTag {
    /// Number of bytes that are decided.
    searched: usize,
    in_string: bool,
    escaped: bool,
}

impl ClosingTag {
    /// Where the closing tag starts. After `None`, the search goes on with a longer text.
    pub(crate) fn find(&mut self, text: &str) -> Option<usize> {
        let text = text.as_bytes();
        while let Some(&byte) = text.get(self.searched) {
            if byte == b'<' && !self.in_string {
                let rest = &text[self.searched..];
                if rest.starts_with(CLOSE_TAG.as_bytes()) {
                    return Some(self.searched);
                }
                if CLOSE_TAG.as_bytes().starts_with(rest) {
                    return None;
                }
            }
            self.read(byte);
            self.searched += 1;
        }
        None
    }

    fn read(&mut self, byte: u8) {
        let escaped = std::mem::take(&mut self.escaped);
        match byte {
            _ if escaped => {}
            b'\\' => self.escaped = self.in_string,
            b'"' => self.in_string = !self.in_string,
            // No JSON: a string has no line ends.
            b'\n' => self.in_string = false,
            _ => {}
        }
    }
}

/// The name and the arguments of a call: `{"name": …, "arguments": …}`, with `parameters` for Llama, or that in a
/// `function`.
pub fn call_fields(call: &Value) -> Option<(&str, Option<&Value>)> {
    let function = call.get("function").filter(|f| f.is_object());
    let call = function.unwrap_or(call);
    let arguments = call.get("arguments").or(call.get("parameters"));
    Some((call.get("name")?.as_str()?, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bodies(text: &str) -> Vec<&str> {
        let mut from = 0;
        let next = || {
            let block = CallBlock::find(text, from)?;
            from = block.end.unwrap_or(text.len());
            Some(&text[block.body])
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_tag_inside_of_a_string_does_not_close() {
        let text = r#"a<tool_call>{"a": "\"</tool_call>"}</tool_call><tool_call>b"#;
        assert_eq!(bodies(text), [r#"{"a": "\"</tool_call>"}"#, "b"]);
        assert_eq!(CallBlock::find(text, 0).unwrap().start, 1);
        assert_eq!(CallBlock::find("</tool_call>", 0), None);
    }

    #[test]
    fn a_broken_block_ends_at_its_own_tag() {
        let text = "<tool_call>\n{\"name\": \"f\n</tool_call><tool_call></tool_call>";
        assert_eq!(bodies(text), ["\n{\"name\": \"f\n", ""]);
    }

    proptest! {
        #[test]
        fn the_text_may_come_in_pieces(
            text in "(?s)(\\PC|[\n\"\\\\<]|</tool_call>){0,20}",
            cut in 0usize..60,
        ) {
            let cut = (0..=cut.min(text.len())).rev().find(|&cut| text.is_char_boundary(cut)).unwrap();
            let mut pieces = ClosingTag::default();
            let found = pieces.find(&text[..cut]).or_else(|| pieces.find(&text));
            prop_assert_eq!(found, ClosingTag::default().find(&text));
        }
    }
}
