//! The paragraphs of a crawled file, from which a document is written.

use pybench_profile::Block;
use pybench_types::task::FileKind;

use crate::content::{Content, Medium};

/// A line of a pdf that is shorter ends its paragraph.
const FULL_LINE: usize = 45;

/// The paragraphs and headings of a crawled document or text; `None` if it has none.
pub(crate) fn source(kind: FileKind, bytes: &[u8]) -> Option<Vec<Block>> {
    let blocks = match (Medium::of(kind), kind) {
        (Medium::Text, _) => of_text(Content::read(kind, bytes)?.text()?, kind == FileKind::Md),
        (_, FileKind::Pdf) => joined(pybench_profile::blocks(kind, bytes)?),
        _ => pybench_profile::blocks(kind, bytes)?,
    };
    let blocks: Vec<Block> = blocks.into_iter().filter(is_readable).collect();
    (!blocks.is_empty()).then_some(blocks)
}

/// Whether all tools see the same characters: none for control, of private use, or in place of one that has no map.
fn is_readable(block: &Block) -> bool {
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{ffff}')
    };
    !block.text.is_empty() && !block.text.contains(odd)
}

/// A text as paragraphs, which blank lines separate; lines outside of code with `#` before them are headings of Markdown.
fn of_text(text: &str, is_markdown: bool) -> Vec<Block> {
    let mut blocks = vec![Block::default()];
    let mut fenced = false;
    for line in text.split('\n') {
        let is_fence = is_markdown && line.starts_with("```");
        fenced ^= is_fence;
        let rest = line.trim_start_matches('#');
        let level = line.len() - rest.len();
        let is_heading = is_markdown && (1..=6).contains(&level) && rest.starts_with(' ');
        let words: Vec<&str> = line.split_whitespace().collect();
        if is_fence || fenced || words.is_empty() {
            blocks.push(Block::default());
        } else if is_heading {
            let words: Vec<&str> = rest.split_whitespace().collect();
            blocks.push(Block {
                text: words.join(" "),
                level: level as u8,
                page: 0,
            });
            blocks.push(Block::default());
        } else if let Some(open) = blocks.last_mut() {
            if !open.text.is_empty() {
                open.text.push(' ');
            }
            open.text.push_str(&words.join(" "));
        }
    }
    blocks
}

/// The lines of pages as paragraphs: a short line, and one that ends a sentence, is the last of its paragraph.
fn joined(lines: Vec<Block>) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut ended = true;
    for line in lines {
        let ends = line.text.chars().count() < FULL_LINE
            || line.text.ends_with(['.', '!', '?', ':', '。']);
        match blocks.last_mut().filter(|_| !ended) {
            Some(open) => open.text = format!("{} {}", open.text, line.text),
            None => blocks.push(Block { page: 0, ..line }),
        }
        ended = ends;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_gives_headings_and_paragraphs() {
        let text = b"# One\na\nb\n\n```\n# code\n```\nc\n## Two\n";
        let found = source(FileKind::Md, text).unwrap();
        let shown: Vec<_> = found.iter().map(|b| (b.level, b.text.as_str())).collect();
        assert_eq!(shown, [(1, "One"), (0, "a b"), (0, "c"), (2, "Two")]);
        assert_eq!(source(FileKind::Txt, text).unwrap()[0].level, 0);
    }
}
