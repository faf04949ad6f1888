//! What is wrong with a file of the library: file, line, and the way out.

use std::fmt;
use std::ops::Range;

/// One thing wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, as the user would name it.
    pub file: String,
    /// From 1; 0 when it concerns the whole file.
    pub line: usize,
    /// In words.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

/// Everything wrong with a library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task library has {} problem(s):\n{}", .0.len(), lines(.0))]
pub struct LibraryError(pub Vec<Problem>);

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(|p| format!("  {p}")).collect();
    lines.join("\n")
}

/// A TOML file under inspection: gives its problems their lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl Source<'_> {
    /// A problem at a byte range of the text.
    pub(crate) fn at(&self, span: &Range<usize>, message: impl Into<String>) -> Problem {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        Problem {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            message: message.into(),
        }
    }

    /// A problem inside a string: `line` counts from 1 within it.
    pub(crate) fn within(
        &self,
        span: &Range<usize>,
        line: usize,
        message: impl Into<String>,
    ) -> Problem {
        let mut problem = self.at(span, message);
        // The line break right after the opening quotes of a multi-line string is no part of it.
        let literal = self.text.get(span.clone()).unwrap_or_default();
        let skipped = literal.starts_with("'''\n") || literal.starts_with("\"\"\"\n");
        problem.line += usize::from(skipped) + line.saturating_sub(1);
        problem
    }

    /// What the TOML reader found, with a suggestion where a key is misspelt.
    pub(crate) fn toml(&self, error: &toml::de::Error) -> Problem {
        let message = with_suggestion(error.message());
        match error.span() {
            Some(span) => self.at(&span, message),
            None => self.whole(message),
        }
    }

    /// A problem of the whole file.
    pub(crate) fn whole(&self, message: impl Into<String>) -> Problem {
        Problem {
            file: self.file.to_owned(),
            line: 0,
            message: message.into(),
        }
    }
}

/// Adds "did you mean" to serde's `unknown field` and `unknown variant` messages.
pub(crate) fn with_suggestion(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let known = message.starts_with("unknown ");
    match names.next() {
        Some(wrong) if known => match closest(wrong, names) {
            Some(right) => format!("{message}; did you mean `{right}`?"),
            None => message.to_owned(),
        },
        _ => message.to_owned(),
    }
}

/// The name most like a misspelt one, if any is like it.
pub(crate) fn closest<'a>(
    wrong: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(wrong, name);
    names
        .into_iter()
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
