//! The control tokens of a tokenizer, as text.

use std::collections::HashMap;
use std::ops::Range;

/// Finds control tokens in text as a tokenizer does: from the left, and the longest where several match.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controls {
    /// By the first character; the longest first.
    by_first: HashMap<char, Vec<String>>,
}

impl Controls {
    pub(crate) fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let mut by_first: HashMap<char, Vec<String>> = HashMap::new();
        for text in texts {
            if let Some(first) = text.chars().next() {
                by_first.entry(first).or_default().push(text);
            }
        }
        for texts in by_first.values_mut() {
            texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        }
        Self { by_first }
    }

    /// The control token that a text starts with.
    pub(crate) fn at_start_of(&self, text: &str) -> Option<&str> {
        let texts = self.by_first.get(&text.chars().next()?)?;
        let found = texts.iter().find(|control| text.starts_with(*control))?;
        Some(found)
    }

    pub(crate) fn find_all(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = vec![];
        for (start, _) in text.char_indices() {
            let inside = found.last().is_some_and(|last| start < last.end);
            if let Some(control) = self.at_start_of(&text[start..]).filter(|_| !inside) {
                found.push(start..start + control.len());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leftmost_and_longest_is_found() {
        let controls = Controls::new(["<a>", "<a>b", "a><", ""].map(String::from));
        assert_eq!(controls.find_all("x<a><a>b<a"), [1..4, 4..8]);
        assert_eq!(controls.at_start_of("<a>b"), Some("<a>b"));
        assert_eq!(controls.at_start_of(""), None);
    }
}
