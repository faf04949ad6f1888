//! The text of a reply for a terminal, while it arrives: code in a color, tables aligned, control characters as symbols.

use pybench_types::text::visible;

use super::style::{CODE, DIM, RESET};

/// Lines that begin and end a cell. They are not shown.
const BEGIN_CELL: [&str; 2] = ["<|execute_start|>", "<execute>"];
const END_CELL: [&str; 2] = ["<|execute_end|>", "</execute>"];
const FENCE: &str = "```";

/// Text that arrives in pieces.
pub(super) struct ReplyText {
    styled: bool,
    /// The part of the current line that is not printed: its beginning may still be that of a fence, a mark or a table.
    held: String,
    /// Whether a part of the current line is printed.
    begun: bool,
    in_fence: bool,
    in_cell: bool,
    /// Lines of a table that may go on.
    table: Vec<String>,
}

impl ReplyText {
    /// Without style, the text stays as it is, except for control characters.
    pub(super) fn new(styled: bool) -> Self {
        Self {
            styled,
            held: String::new(),
            begun: false,
            in_fence: false,
            in_cell: false,
            table: Vec::new(),
        }
    }

    /// Adds a piece; returns what is printed now.
    pub(super) fn push(&mut self, piece: &str) -> String {
        if !self.styled {
            self.begun = match piece.chars().last() {
                Some(last) => last != '\n',
                None => self.begun,
            };
            return visible(piece);
        }
        let mut out = String::new();
        for c in piece.chars() {
            if c == '\n' {
                self.end_line(&mut out);
                continue;
            }
            self.held.push(c);
            if self.begun || !self.may_be_special() {
                self.print_held(&mut out);
            }
        }
        out
    }

    /// Ends the text; returns what is printed last. The next text begins on a new line.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        match self.styled {
            true if self.begun || !self.held.is_empty() => self.end_line(&mut out),
            false if self.begun => out.push('\n'),
            _ => {}
        }
        self.flush_table(&mut out);
        *self = Self::new(self.styled);
        out
    }

    fn is_code(&self) -> bool {
        self.in_fence || self.in_cell
    }

    fn may_be_special(&self) -> bool {
        match self.held.trim_start().chars().next() {
            None => true,
            Some('|') => !self.is_code(),
            Some(first) => first == '`' || first == '<',
        }
    }

    fn print_held(&mut self, out: &mut String) {
        if !self.begun {
            self.flush_table(out);
            if self.is_code() {
                out.push_str(CODE);
            }
            self.begun = true;
        }
        out.push_str(&visible(&self.held));
        self.held.clear();
    }

    fn end_line(&mut self, out: &mut String) {
        if self.begun || !self.is_special_line(out) {
            self.print_held(out);
            if self.is_code() {
                out.push_str(RESET);
            }
            out.push('\n');
        }
        self.held.clear();
        self.begun = false;
    }

    /// Whether the held line is a fence, the mark of a cell, or a line of a table, which it then handles.
    fn is_special_line(&mut self, out: &mut String) -> bool {
        let line = self.held.trim().to_owned();
        let is_table = !self.is_code() && line.len() > 1 && line.starts_with('|');
        if is_table {
            self.table.push(line);
        } else if line.starts_with(FENCE) {
            self.flush_table(out);
            out.push_str(&format!("{DIM}{}{RESET}\n", visible(&line)));
            self.in_fence = !self.in_fence;
        } else if BEGIN_CELL.contains(&&*line) {
            self.flush_table(out);
            self.in_cell = true;
        } else if END_CELL.contains(&&*line) {
            (self.in_cell, self.in_fence) = (false, false);
        } else {
            return false;
        }
        true
    }

    fn flush_table(&mut self, out: &mut String) {
        if !self.table.is_empty() {
            out.push_str(&aligned(&std::mem::take(&mut self.table)));
        }
    }
}

/// The lines of a table in Markdown, with columns of equal width.
fn aligned(lines: &[String]) -> String {
    let rows = lines.iter().map(|line| {
        let inner = line.strip_prefix('|').unwrap_or(line);
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        let cells = inner.split('|').map(|cell| visible(cell.trim()));
        cells.collect::<Vec<String>>()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width_of = |column: usize| {
        let cells = rows.iter().filter(|row| !is_rule(row));
        let cells = cells.filter_map(|row| row.get(column));
        cells.map(|cell| width(cell)).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width_of).collect();
    let mut text = String::new();
    for row in &rows {
        let rule = is_rule(row);
        for (column, most) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            let (cell, used) = match rule {
                true => ("─".repeat(*most), *most),
                false => (cell.to_owned(), width(cell)),
            };
            let fill = " ".repeat(most.saturating_sub(used));
            text += &format!("{}{cell}{fill}", if column == 0 { "" } else { "  " });
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// Whether a row is the line below the header: `---`, `:--:`.
fn is_rule(row: &[String]) -> bool {
    let is_rule = |cell: &String| !cell.is_empty() && cell.chars().all(|c| c == '-' || c == ':');
    !row.is_empty() && row.iter().all(is_rule)
}

/// Columns that a text takes: Chinese, Japanese and Korean characters and emoji take two.
fn width(text: &str) -> usize {
    let wide = |c: char| {
        matches!(c as u32,
            0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
            | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1f64f | 0x1f900..=0x1f9ff
            | 0x20000..=0x3fffd)
    };
    text.chars().map(|c| 1 + usize::from(wide(c))).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A text in pieces of one character, without styles.
    fn shown(text: &str) -> String {
        let mut reply = ReplyText::new(true);
        let mut out = String::new();
        for c in text.chars() {
            out += &reply.push(c.encode_utf8(&mut [0; 4]));
        }
        out += &reply.finish();
        for style in [CODE, DIM, RESET] {
            out = out.replace(style, "");
        }
        out
    }

    #[test]
    fn text_is_printed_as_it_arrives_and_tables_when_they_end() {
        let mut reply = ReplyText::new(true);
        assert_eq!(reply.push("It is"), "It is");
        assert_eq!(reply.push(" 4.\n| a | bb |\n"), " 4.\n");
        assert_eq!(reply.push("|--|:-:|\n| ccc | 中 |\n"), "");
        assert_eq!(reply.push("T"), "a    bb\n───  ──\nccc  中\nT");
        assert_eq!(reply.finish(), "\n");
        assert_eq!(reply.push("| not a table"), "");
        assert_eq!(reply.finish(), "not a table\n");
        assert_eq!(reply.finish(), "");
    }

    #[test]
    fn code_has_a_color_and_marks_are_not_shown() {
        let mut reply = ReplyText::new(true);
        let step = "I look.\n<|execute_start|>\n```python\nx = [a | b]\n| y\n```\n<|execute_end|>";
        let mut out = reply.push(step);
        out += &reply.finish();
        assert!(
            out.contains(&format!("{CODE}x = [a | b]{RESET}\n")),
            "{out:?}"
        );
        assert!(out.contains(&format!("{CODE}| y{RESET}\n")), "{out:?}");
        assert!(!out.contains("execute"), "{out:?}");
        assert_eq!(reply.push("after"), "after");
        assert_eq!(shown("a <b> c\n<b>\n`x` y"), "a <b> c\n<b>\n`x` y\n");
    }

    #[test]
    fn without_style_only_control_characters_change() {
        let mut reply = ReplyText::new(false);
        let text = "```\n| a |\n\x1b[2J\n<execute>";
        assert_eq!(reply.push(text), text.replace('\x1b', "␛"));
        assert_eq!(reply.finish(), "\n");
        assert_eq!(reply.push("a\n"), "a\n");
        assert_eq!(reply.finish(), "");
    }

    proptest! {
        #[test]
        fn no_control_character_reaches_the_terminal(text in "(?s).{0,80}|([|`<\\-\n\x1b\r a]{0,20})") {
            let bare = |c: char| c.is_control() && c != '\n' && c != '\t';
            prop_assert!(!shown(&text).chars().any(bare));
        }

        #[test]
        fn plain_text_stays_as_it_is(text in "[a-z .]{1,40}(\n[a-z .]{1,40}){0,4}") {
            prop_assert_eq!(shown(&text), text + "\n");
        }
    }
}
