//! Texts that a reply must have begun early: a parameter of `pybench serve`.

use serde::Serialize;

/// A reply ends that has none of these texts after so many tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequiredText {
    /// The texts, in capital or small letters.
    any_of: &'static [&'static str],
    within_tokens: u32,
}

impl RequiredText {
    /// Name of the parameter, and the reason that such a reply ends with.
    pub(crate) const FIELD: &str = "required_text";

    /// `None` if there is no text.
    pub fn new(any_of: &'static [&'static str], within_tokens: u32) -> Option<Self> {
        (!any_of.is_empty()).then_some(Self {
            any_of,
            within_tokens,
        })
    }
}
