//! Ends replies that do not begin what they must: the parameter `required_text`, which only this server knows.

use serde::Deserialize;

use super::error::ApiError;

/// Number of texts, and bytes of each.
const MAX_TEXTS: (usize, usize) = (16, 256);

/// What a reply must contain early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequiredText {
    /// One of these texts, in capital or small letters.
    any_of: Vec<String>,
    /// After so many tokens, the reply ends without it.
    within_tokens: usize,
}

impl RequiredText {
    /// Checks the values of a request.
    pub(super) fn validate(self) -> Result<Self, ApiError> {
        let (max, length) = MAX_TEXTS;
        let is_bad = |text: &String| text.is_empty() || text.len() > length;
        let count = self.any_of.len();
        if count == 0 || count > max || self.any_of.iter().any(is_bad) || self.within_tokens == 0 {
            let text = format!(
                "required_text: any_of has 1 to {max} strings of 1 to {length} bytes, and within_tokens is at least 1"
            );
            return Err(ApiError::bad(Some("required_text"), text));
        }
        let within_tokens = self.within_tokens;
        let none = Self {
            any_of: Vec::new(),
            within_tokens,
        };
        Ok(none.or(self.any_of.iter().map(String::as_str)))
    }

    /// The same with other texts that would do.
    pub(super) fn or<'a>(mut self, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let small = texts.into_iter().map(str::to_ascii_lowercase);
        self.any_of.extend(small);
        self
    }
}

/// Looks for the required text while a reply is written.
#[derive(Debug)]
pub(super) struct RequiredTextWatch {
    required: RequiredText,
    /// The end of the reply so far in which a text may begin, in small letters.
    text: String,
}

impl RequiredTextWatch {
    pub(super) fn new(required: RequiredText) -> Self {
        Self {
            required,
            text: String::new(),
        }
    }

    /// Adds the text of a token. `None` as long as it is open, or else whether the required text is there; then the watch
    /// is over.
    pub(super) fn add(&mut self, text: &str, tokens: usize) -> Option<bool> {
        self.text.push_str(&text.to_ascii_lowercase());
        let texts = &self.required.any_of;
        if texts.iter().any(|required| self.text.contains(required)) {
            return Some(true);
        }
        let longest = texts.iter().map(String::len).max().unwrap_or_default();
        let latest = self.text.len().saturating_sub(longest);
        let before = (0..=latest)
            .rev()
            .find(|at| self.text.is_char_boundary(*at));
        self.text.drain(..before.unwrap_or_default());
        (tokens >= self.required.within_tokens).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(any_of: &[&str], within_tokens: usize) -> RequiredText {
        RequiredText {
            any_of: any_of.iter().map(|text| (*text).to_owned()).collect(),
            within_tokens,
        }
    }

    #[test]
    fn a_text_is_found_across_tokens_and_in_any_letters() {
        let mut watch = RequiredTextWatch::new(required(&["Finished"], 4).validate().unwrap());
        assert_eq!(watch.add("FIN", 1), None);
        assert_eq!(watch.add("ish", 2), None);
        assert_eq!(watch.add("ed:", 3), Some(true));
        let mut late = RequiredTextWatch::new(required(&["a", "b"], 2).validate().unwrap());
        assert_eq!(late.add("x", 1), None);
        assert_eq!(late.add("y", 2), Some(false));
    }

    #[test]
    fn values_are_checked() {
        let long = "x".repeat(257);
        for wrong in [
            required(&[], 1),
            required(&[""], 1),
            required(&[long.as_str()], 1),
            required(&["x"; 17], 1),
            required(&["x"], 0),
        ] {
            assert!(wrong.validate().is_err());
        }
    }
}
