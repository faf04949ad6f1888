//! Problems of TOML files, with file, line and a suggestion.

use std::fmt;
use std::ops::Range;

/// One problem of one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The path as shown to the user.
    pub file: String,
    /// From 1; 0 if the problem concerns the whole file.
    pub line: usize,
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task library has {} problem(s):\n{}", .0.len(), lines(.0))]
pub struct LibraryError(pub Vec<Problem>);

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(|p| format!("  {p}")).collect();
    lines.join("\n")
}

/// The text of a TOML file; maps positions in it to lines of problems.
#[derive(Clone, Copy, Debug)]
pub struct TomlSource<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl TomlSource<'_> {
    /// A problem at a byte range of the text.
    pub fn at(&self, span: &Range<usize>, message: impl Into<String>) -> Problem {
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
        // The line break after the opening quotes of a multi-line string is not part of the string.
        let literal = self.text.get(span.clone()).unwrap_or_default();
        let skipped = literal.starts_with("'''\n") || literal.starts_with("\"\"\"\n");
        problem.line += usize::from(skipped) + line.saturating_sub(1);
        problem
    }

    /// The problem of a TOML error, with a suggestion if a key is misspelled.
    pub fn toml(&self, error: &toml::de::Error) -> Problem {
        let message = with_suggestion(error.message());
        match error.span() {
            Some(span) => self.at(&span, message),
            None => self.whole(message),
        }
    }

    /// A problem of the whole file.
    pub fn whole(&self, message: impl Into<String>) -> Problem {
        Problem {
            file: self.file.to_owned(),
            line: 0,
            message: message.into(),
        }
    }
}

/// Adds "did you mean" to serde's `unknown field` and `unknown variant` messages.
pub fn with_suggestion(message: &str) -> String {
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

/// The name that is most similar to a misspelled one, if any is similar.
pub(crate) fn closest<'a>(
    wrong: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let similarity = |name: &str| strsim::jaro_winkler(wrong, name);
    names
        .into_iter()
        .map(|name| (similarity(name), name))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
