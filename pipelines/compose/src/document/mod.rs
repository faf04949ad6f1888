//! Documents: paragraphs and headings, or pages of lines.

mod ruled;
mod write;

use pybench_profile::{Block, Cells};
use pybench_types::task::FileKind;

pub(crate) use write::written;

/// What is read from a docx, html or pdf file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Paragraphs and headings, or the lines of all pages.
    pub blocks: Vec<Block>,
    /// Whether the blocks are lines of pages.
    pub paged: bool,
    pub tables: Tables,
}

/// The tables of a document, by the kind of file that they are in. They have a header and no merged cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tables {
    #[default]
    None,
    /// Of a docx file.
    Word(Vec<Cells>),
    /// Of an html file.
    Page(Vec<Cells>),
    /// Of a pdf file that was written for a task.
    Ruled(Vec<Cells>),
}

impl Tables {
    /// Those of a file; none if tools disagree on one of them.
    pub(crate) fn read(kind: FileKind, bytes: &[u8]) -> Self {
        let of_kind: fn(Vec<Cells>) -> Self = match kind {
            FileKind::Docx => Self::Word,
            FileKind::Html => Self::Page,
            FileKind::Pdf => Self::Ruled,
            _ => return Self::None,
        };
        let tables = match kind {
            FileKind::Pdf => ruled::read(bytes),
            _ => pybench_profile::document_tables(kind, bytes),
        };
        match tables.is_empty() {
            true => Self::None,
            false => of_kind(tables),
        }
    }

    pub(crate) fn all(&self) -> &[Cells] {
        match self {
            Self::None => &[],
            Self::Word(tables) | Self::Page(tables) | Self::Ruled(tables) => tables,
        }
    }
}

/// A heading with what is below it, up to the next heading.
pub(crate) struct Section<'a> {
    pub heading: &'a Block,
    pub paragraphs: &'a [Block],
}

impl Document {
    /// Reads a file; `None` if it is no document, or has no text.
    pub fn read(kind: FileKind, bytes: &[u8]) -> Option<Self> {
        let blocks = pybench_profile::blocks(kind, bytes)?;
        (!blocks.is_empty()).then(|| Self {
            blocks,
            paged: kind == FileKind::Pdf,
            tables: Tables::read(kind, bytes),
        })
    }

    /// Whether tools find the same text in it. They read the cells on a page in different orders.
    pub(crate) fn has_text(&self) -> bool {
        !matches!(self.tables, Tables::Ruled(_))
    }

    /// The text of some blocks, one per line.
    pub(crate) fn text<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> String {
        let lines = blocks.into_iter().map(|block| block.text.as_str());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The lines of each page.
    pub(crate) fn pages(&self) -> Vec<&[Block]> {
        let pages = self.blocks.chunk_by(|one, other| one.page == other.page);
        pages.collect()
    }

    /// The sections, without what stands before the first heading.
    pub(crate) fn sections(&self) -> Vec<Section<'_>> {
        let parts = self.blocks.chunk_by(|_, next| next.level == 0);
        let parts = parts.filter_map(|part| part.split_first());
        parts
            .filter(|(first, _)| first.level > 0)
            .map(|(heading, paragraphs)| Section {
                heading,
                paragraphs,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn blocks() -> Vec<Block> {
        let block = |(level, text): (u8, &str)| Block {
            text: text.to_owned(),
            level,
            page: 0,
        };
        let long = "The quay (north) was built in 1904 & widened \\ twice. ".repeat(4);
        let all = [
            (0, "Before."),
            (1, "One <first>"),
            (0, long.trim()),
            (2, "Two"),
            (0, "b"),
            (0, "c"),
        ];
        all.map(block).into()
    }

    fn table() -> Cells {
        let rows = [["town", "price <€>"], ["Æ & B", "1.5"], ["c", ""]];
        let rows = rows.iter().map(|row| row.map(str::to_owned).to_vec());
        rows.collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        for kind in [FileKind::Docx, FileKind::Html] {
            let rng = &mut ChaCha8Rng::seed_from_u64(1);
            let bytes = written(kind, &blocks(), &[table()], rng).unwrap();
            let read = Document::read(kind, &bytes).unwrap();
            assert_eq!(read.blocks, blocks(), "{kind:?}");
            assert_eq!(read.tables.all(), [table()], "{kind:?}");
        }
        let many: Vec<Block> = (0..20).flat_map(|_| blocks()).collect();
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let bytes = written(FileKind::Pdf, &many, &[], rng).unwrap();
        let read = Document::read(FileKind::Pdf, &bytes).unwrap();
        assert!(
            read.paged && read.pages().len() > 2,
            "{}",
            read.pages().len()
        );
        let words = |blocks: &[Block]| {
            Document::text(blocks)
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&read.blocks), words(&many));
        assert!(read.has_text());
    }

    #[test]
    fn tables_of_a_pdf_are_read_back() {
        let rows = [
            ["Dock (north)", "depth \\ m", "note"],
            ["Quay 1", "-12.5", ""],
            ["Quay 2", "", "a, \"b\""],
        ];
        let rows = rows.iter().map(|row| row.map(str::to_owned).to_vec());
        let tables: [Cells; 2] = [rows.collect(), vec![vec!["n".into()], vec!["7".into()]]];
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let bytes = written(FileKind::Pdf, &blocks(), &tables, rng).unwrap();
        let read = Document::read(FileKind::Pdf, &bytes).unwrap();
        assert_eq!(read.tables, Tables::Ruled(tables.to_vec()));
        assert!(!read.has_text() && read.paged);
        assert!(Document::text(&read.blocks).starts_with("Before."));
        // Its cells are not in ASCII.
        assert!(written(FileKind::Pdf, &blocks(), &[table()], rng).is_none());
    }

    #[test]
    fn a_section_ends_at_the_next_heading() {
        let document = Document {
            blocks: blocks(),
            ..Document::default()
        };
        let sections = document.sections();
        let shown: Vec<_> = sections
            .iter()
            .map(|s| (&*s.heading.text, s.paragraphs.len()))
            .collect();
        assert_eq!(shown, [("One <first>", 1), ("Two", 2)]);
    }
}
