//! Characters that occur in no message and in no template. They stand for control tokens and mark positions while a
//! template runs.

use std::collections::HashSet;

/// Planes 15 and 16 of Unicode are for private use.
const FIRST: u32 = 0xf_0000;
const LAST: u32 = 0x10_fffd;

/// Whether a character may be a mark.
pub(crate) fn is_mark(letter: char) -> bool {
    u32::from(letter) >= FIRST
}

/// Hands out unused characters.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    taken: HashSet<char>,
    next: u32,
}

impl Marks {
    /// Characters that do not occur in `texts`.
    pub(crate) fn unused_in<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut marks = Self {
            taken: HashSet::new(),
            next: FIRST,
        };
        for text in texts {
            marks.avoid(text.as_ref());
        }
        marks
    }

    pub(crate) fn avoid(&mut self, text: &str) {
        let marks = text.chars().filter(|&letter| is_mark(letter));
        self.taken.extend(marks);
    }

    pub(crate) fn is_taken(&self, mark: char) -> bool {
        self.taken.contains(&mark)
    }

    pub(crate) fn take(&mut self) -> Option<char> {
        while self.next <= LAST {
            let mark = char::from_u32(self.next);
            self.next += 1;
            if let Some(mark) = mark.filter(|mark| self.taken.insert(*mark)) {
                return Some(mark);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_unused_and_different() {
        let mut marks = Marks::unused_in(["a\u{f0000}", "\u{f0002}"]);
        assert_eq!(marks.take(), Some('\u{f0001}'));
        assert_eq!(marks.take(), Some('\u{f0003}'));
        assert!(marks.is_taken('\u{f0000}') && marks.is_taken('\u{f0001}'));
        let rest = std::iter::from_fn(|| marks.take()).count();
        assert_eq!(rest, 131_070 - 4);
        assert_eq!(marks.take(), None);
    }
}
