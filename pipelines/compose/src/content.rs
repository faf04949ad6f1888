//! What a task works on besides tables: a text, a document, a picture, a sound.

use std::sync::Arc;

use pybench_types::task::{Category, FileKind};

use crate::document::Document;
use crate::picture::Picture;
use crate::sound::Sound;

/// What kind of thing a file or the result of a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Medium {
    Table,
    Text,
    Document,
    Picture,
    Sound,
}

impl Medium {
    /// All of them, in the order in which tasks are drawn on them.
    pub const ALL: [Self; 5] = [
        Self::Table,
        Self::Text,
        Self::Document,
        Self::Picture,
        Self::Sound,
    ];

    /// What a file of a kind is worked on as.
    pub fn of(kind: FileKind) -> Self {
        use FileKind::*;
        match kind {
            Txt | Md | Log => Self::Text,
            Docx | Html | Pdf | Pptx => Self::Document,
            Png | Jpeg | Gif | Webp | Bmp => Self::Picture,
            Wav | Mp3 | Flac | Ogg => Self::Sound,
            _ => Self::Table,
        }
    }

    /// The category of tasks on it.
    pub fn category(self) -> Category {
        match self {
            Self::Table => Category::Chart,
            Self::Text | Self::Document => Category::Text,
            Self::Picture | Self::Sound => Category::ImageAudio,
        }
    }

    /// Its name in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Text => "text",
            Self::Document => "document",
            Self::Picture => "picture",
            Self::Sound => "sound",
        }
    }
}

/// What a step works on, where it is no table.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Content {
    /// The table of the frame.
    #[default]
    Table,
    Text(Arc<str>),
    Document(Arc<Document>),
    Picture(Arc<Picture>),
    Sound(Arc<Sound>),
}

impl Content {
    /// Reads a file that is no table; `None` if tools read it in different ways.
    pub fn read(kind: FileKind, bytes: &[u8]) -> Option<Self> {
        match Medium::of(kind) {
            Medium::Table => None,
            Medium::Text => Some(Self::Text(plain(bytes)?.into())),
            Medium::Document => Some(Self::Document(Document::read(kind, bytes)?.into())),
            Medium::Picture => Some(Self::Picture(Picture::read(kind, bytes)?.into())),
            Medium::Sound => Some(Self::Sound(Sound::read(kind, bytes)?.into())),
        }
    }

    /// The text of a file of text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The document of a file of that kind.
    pub fn document(&self) -> Option<&Document> {
        match self {
            Self::Document(document) => Some(document),
            _ => None,
        }
    }

    /// The picture of a file of that kind.
    pub fn picture(&self) -> Option<&Picture> {
        match self {
            Self::Picture(picture) => Some(picture),
            _ => None,
        }
    }

    /// The sound of a file of that kind.
    pub fn sound(&self) -> Option<&Sound> {
        match self {
            Self::Sound(sound) => Some(sound),
            _ => None,
        }
    }

    pub fn medium(&self) -> Medium {
        match self {
            Self::Table => Medium::Table,
            Self::Text(_) => Medium::Text,
            Self::Document(_) => Medium::Document,
            Self::Picture(_) => Medium::Picture,
            Self::Sound(_) => Medium::Sound,
        }
    }

    /// Whether a check could take one for the other.
    pub(crate) fn resembles(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => lines(one).eq(lines(other)),
            (Self::Picture(one), Self::Picture(other)) => one.resembles(other),
            (Self::Sound(one), Self::Sound(other)) => one.resembles(other),
            (one, other) => one == other,
        }
    }
}

/// The text of a file in UTF-8 with `\n` as line end; `None` if it has characters at which tools end lines differently.
fn plain(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let odd = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
    };
    (!text.contains(odd)).then_some(text)
}

/// What a check compares of a text.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_end().split('\n').map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_kind_of_line_end_and_no_odd_characters() {
        let read = |bytes: &[u8]| Content::read(FileKind::Txt, bytes);
        assert_eq!(
            read(b"a\r\nb\rc\n"),
            Some(Content::Text("a\nb\nc\n".into()))
        );
        assert_eq!(read(b"a\x0cb"), None);
        assert_eq!(read(b"\xff\xfe"), None);
    }

    #[test]
    fn line_ends_and_trailing_space_make_no_other_text() {
        let text = |text: &str| Content::Text(text.into());
        assert!(text("a \nb\n\n").resembles(&text("a\nb")));
        assert!(!text("a\nb").resembles(&text("b\na")));
        assert!(!text("a").resembles(&Content::Table));
    }
}
