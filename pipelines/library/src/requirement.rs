//! What a query asks for, requirement by requirement, and the marks that show where each wording says it.
//!
//! A wording marks the words of a requirement: `[[mode|one gray channel of 8 bits]]`. The marks are removed when
//! the template is loaded, so they never reach a task. Words may state several requirements
//! (`[[mode depth|…]]`), and marks may contain each other and pairs of brackets.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::Spanned;

/// One requirement of a template: every wording states it, and its checks decide it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// What it is about.
    pub kind: RequirementKind,
    /// The checks that decide it: ids of checks, or paths of outputs for the test that a file opens as what its name says.
    pub checks: Vec<Spanned<String>>,
    /// Python expression over the reference's names: whether violating the requirement changes the result on these files.
    /// A task for which it is false is not made.
    #[serde(default)]
    pub distinct: Option<Spanned<String>>,
    /// Like `distinct`, for a rule that may find no case (ties, missing values): only the audit looks for files on which it
    /// is true.
    #[serde(default)]
    pub shows: Option<Spanned<String>>,
}

impl Requirement {
    /// The expressions that must be true: for any task, or for one that is audited.
    pub fn conditions(&self, audited: bool) -> impl Iterator<Item = &Spanned<String>> {
        self.distinct
            .iter()
            .chain(self.shows.iter().filter(move |_| audited))
    }
}

/// What a requirement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequirementKind {
    /// The values themselves, and which rows, words or parts they are computed from.
    Content,
    /// File type and structure: PNG, one sheet, a JSON list, paragraphs.
    Format,
    /// How values are stored: color mode, bit depth, sample format, text encoding, numbers as numbers.
    Encoding,
    /// Names of columns, keys, sheets, series, axes, functions.
    Names,
    /// The order of rows, keys, parts, bars.
    Order,
    /// Limits of values, axes or input that are accepted.
    Range,
    /// Width, height, duration, sampling rate, number of parts.
    Size,
    /// Rounding, decimals, or none of it.
    Precision,
    /// What is seen: orientation, background, color, kind of chart.
    Appearance,
    /// What a program, page or model does when it is used.
    Behavior,
    /// Nothing beyond what was asked for.
    NothingElse,
    /// A stated conclusion: its direction, the decision.
    Conclusion,
}

impl RequirementKind {
    pub const ALL: [Self; 12] = [
        Self::Content,
        Self::Format,
        Self::Encoding,
        Self::Names,
        Self::Order,
        Self::Range,
        Self::Size,
        Self::Precision,
        Self::Appearance,
        Self::Behavior,
        Self::NothingElse,
        Self::Conclusion,
    ];

    /// The name in templates.
    pub fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Format => "format",
            Self::Encoding => "encoding",
            Self::Names => "names",
            Self::Order => "order",
            Self::Range => "range",
            Self::Size => "size",
            Self::Precision => "precision",
            Self::Appearance => "appearance",
            Self::Behavior => "behavior",
            Self::NothingElse => "nothing-else",
            Self::Conclusion => "conclusion",
        }
    }
}

impl fmt::Display for RequirementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One wording of a query without its marks, and where they were.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Spanned<String>")]
pub struct Wording {
    pub text: Spanned<String>,
    pub marks: Vec<Mark>,
    /// Why the marks cannot be read; the text then still contains them.
    pub problem: Option<String>,
}

/// The words that state a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub requirement: String,
    /// Bytes of the text without marks.
    pub words: Range<usize>,
}

impl From<Spanned<String>> for Wording {
    fn from(marked: Spanned<String>) -> Self {
        match unmark(marked.get_ref()) {
            Ok((text, marks)) => Self {
                text: Spanned::new(marked.span(), text),
                marks,
                problem: None,
            },
            Err(problem) => Self {
                text: marked,
                marks: Vec::new(),
                problem: Some(problem),
            },
        }
    }
}

impl Wording {
    /// The words that state a requirement, wherever this wording marks it.
    pub fn words<'a>(&'a self, requirement: &'a str) -> impl Iterator<Item = &'a str> {
        let marks = self
            .marks
            .iter()
            .filter(move |mark| mark.requirement == requirement);
        marks.filter_map(|mark| self.text.get_ref().get(mark.words.clone()))
    }
}

/// A bracket that is not closed yet.
enum Open<'a> {
    Bracket,
    /// The ids, and the position of the first word in the text without marks.
    Mark {
        ids: &'a str,
        start: usize,
    },
}

/// A text without its marks, and the marks in the order in which they end.
fn unmark(marked: &str) -> Result<(String, Vec<Mark>), String> {
    let (mut text, mut marks, mut open) = (String::new(), Vec::new(), Vec::new());
    let mut rest = marked;
    while let Some(next) = rest.chars().next() {
        if let Some((ids, after)) = opening(rest) {
            open.push(Open::Mark {
                ids,
                start: text.len(),
            });
            rest = after;
            continue;
        }
        match (next, open.last()) {
            (']', Some(Open::Mark { ids, start })) if rest.starts_with("]]") => {
                let words = *start..text.len();
                marks.extend(ids.split(' ').map(|id| Mark {
                    requirement: id.to_owned(),
                    words: words.clone(),
                }));
                open.pop();
                rest = &rest[2..];
                continue;
            }
            (']', Some(Open::Bracket)) => drop(open.pop()),
            // Outside of marks brackets are mere text.
            ('[', Some(_)) => open.push(Open::Bracket),
            _ => {}
        }
        text.push(next);
        rest = &rest[next.len_utf8()..];
    }
    let unclosed = open.iter().find_map(|open| match open {
        Open::Mark { ids, .. } => Some(ids),
        Open::Bracket => None,
    });
    match unclosed {
        None => Ok((text, marks)),
        Some(ids) => Err(format!(
            "`[[{ids}|` is not closed; write `[[{ids}|words]]`, and only pairs of brackets among the words"
        )),
    }
}

/// The ids of a mark that starts here, and the text after them: `[[id|…` or `[[id id|…`.
fn opening(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix("[[")?;
    let end = text.find(|c| c != ' ' && !is_plain(c))?;
    let (ids, rest) = text.split_at(end);
    let rest = rest.strip_prefix('|')?;
    ids.split(' ').all(is_id).then_some((ids, rest))
}

/// Whether this can be the id of a requirement or check.
pub(crate) fn is_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_plain)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A text with marks, what it is without them, and the marked words.
    fn read(marked: &str) -> (String, Vec<(String, String)>) {
        let (text, marks) = unmark(marked).unwrap();
        let words = marks.iter().map(|mark| {
            (
                mark.requirement.clone(),
                text[mark.words.clone()].to_owned(),
            )
        });
        (text.clone(), words.collect())
    }

    fn pair(id: &str, words: &str) -> (String, String) {
        (id.to_owned(), words.to_owned())
    }

    #[test]
    fn marks_are_removed_and_remembered() {
        let (text, marks) =
            read("存为 [[mode depth|8 位[[gray|灰度]]图]]，M = [[{{ a }}, 0], [0, 1]]");
        assert_eq!(text, "存为 8 位灰度图，M = [[{{ a }}, 0], [0, 1]]");
        assert_eq!(
            marks,
            [
                pair("gray", "灰度"),
                pair("mode", "8 位灰度图"),
                pair("depth", "8 位灰度图")
            ]
        );
        let (text, marks) = read("[[matrix|[[1, 2], [3, 4]]]]]");
        assert_eq!(
            (text.as_str(), marks),
            (
                "[[1, 2], [3, 4]]]",
                vec![pair("matrix", "[[1, 2], [3, 4]]")]
            )
        );
        for plain in [
            "a[0]]",
            "[[1|2]]",
            "[[a b]]",
            "[[A|b]]",
            "[[a  b|c]]",
            "[[",
            "[[a",
            "]] |",
        ] {
            assert_eq!(read(plain), (plain.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn an_open_mark_is_refused_with_its_name() {
        for open in [
            "one [[mode|gray",
            "[[mode|in [0, 1)]]",
            "[[mode|[[gray|x]] y]",
        ] {
            assert!(
                unmark(open)
                    .unwrap_err()
                    .starts_with("`[[mode|` is not closed"),
                "{open}"
            );
        }
    }

    #[test]
    fn every_kind_is_listed_once_under_the_name_that_templates_use() {
        for kind in RequirementKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        let names: std::collections::BTreeSet<_> =
            RequirementKind::ALL.map(RequirementKind::name).into();
        assert_eq!(names.len(), RequirementKind::ALL.len());
        let page = include_str!("../../../docs/requirements.md");
        for name in names {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    /// A piece of a wording.
    #[derive(Clone, Debug)]
    enum Piece {
        Text(String),
        Brackets(Vec<Piece>),
        Mark(Vec<String>, Vec<Piece>),
    }

    fn pieces() -> impl Strategy<Value = Vec<Piece>> {
        // No brackets: those of a mark come in pairs.
        let text = "[a-c0 |{}%#\\\\\"中文，。é\u{0}\n]{0,6}".prop_map(Piece::Text);
        let piece = text.prop_recursive(4, 24, 4, |inner| {
            let inner = prop::collection::vec(inner, 0..4);
            let ids = prop::collection::vec("[a-z][a-z0-9-]{0,3}", 1..3);
            prop_oneof![
                inner.clone().prop_map(Piece::Brackets),
                (ids, inner).prop_map(|(ids, inner)| Piece::Mark(ids, inner))
            ]
        });
        prop::collection::vec(piece, 0..5)
    }

    /// Writes pieces with their marks and without.
    fn write(pieces: &[Piece], marked: &mut String, plain: &mut String, marks: &mut Vec<Mark>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => {
                    marked.push_str(text);
                    plain.push_str(text);
                }
                Piece::Brackets(inner) => {
                    marked.push('[');
                    plain.push('[');
                    write(inner, marked, plain, marks);
                    marked.push(']');
                    plain.push(']');
                }
                Piece::Mark(ids, inner) => {
                    let start = plain.len();
                    marked.push_str(&format!("[[{}|", ids.join(" ")));
                    write(inner, marked, plain, marks);
                    marked.push_str("]]");
                    let words = start..plain.len();
                    marks.extend(ids.iter().map(|id| Mark {
                        requirement: id.clone(),
                        words: words.clone(),
                    }));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn marks_of_any_wording_are_found(pieces in pieces()) {
            let (mut marked, mut plain, mut marks) = (String::new(), String::new(), Vec::new());
            write(&pieces, &mut marked, &mut plain, &mut marks);
            // Literal brackets may look like a mark: such a wording is another wording.
            prop_assume!(opening_marks(&marked) == marks_opened(&pieces));
            prop_assert_eq!(unmark(&marked), Ok((plain, marks)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in r"(\[|\]|\||a|-| |中|\{|\[\[a\|){0,40}") {
            match unmark(&text) {
                Ok((plain, marks)) => {
                    prop_assert!(plain.len() <= text.len());
                    prop_assert_eq!(marks.is_empty(), plain == text);
                    prop_assert!(marks.iter().all(|mark| plain.get(mark.words.clone()).is_some()));
                }
                Err(_) => prop_assert!(opening_marks(&text) > 0),
            }
        }
    }

    fn opening_marks(text: &str) -> usize {
        text.char_indices()
            .filter(|(at, _)| opening(&text[*at..]).is_some())
            .count()
    }

    fn marks_opened(pieces: &[Piece]) -> usize {
        let opened = |piece: &Piece| match piece {
            Piece::Text(_) => 0,
            Piece::Brackets(inner) => marks_opened(inner),
            Piece::Mark(_, inner) => 1 + marks_opened(inner),
        };
        pieces.iter().map(opened).sum()
    }
}
