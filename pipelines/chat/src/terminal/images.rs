//! Pictures in a terminal, by the protocol of kitty or iTerm2 or as sixels; elsewhere they become files.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench_run::{RunError, write_atomically};
use pybench_types::id::Digest;

use super::sixel::sixel;

/// Bytes of base64 in one command of kitty's protocol.
const KITTY_CHUNK: usize = 4096;
/// Beginnings of the names of terminals that show sixels. Others do too, but say so only when they are asked.
const SIXEL: [&str; 4] = ["foot", "mlterm", "contour", "yaft"];
/// The first bytes of a PNG file.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// How pictures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ImageProtocol {
    /// By what the terminal says of itself.
    Auto,
    /// The graphics protocol of kitty, also in Ghostty and Konsole.
    Kitty,
    /// Inline images of iTerm2, also in WezTerm.
    Iterm2,
    /// Sixels, as in foot, mlterm, Contour and `xterm -ti vt340`.
    Sixel,
    /// As files, whose paths are printed.
    Path,
}

/// Shows pictures.
pub(super) struct Images {
    protocol: ImageProtocol,
    folder: PathBuf,
}

impl Images {
    /// Files go into `folder`. `variable` looks up environment variables.
    pub(super) fn new(
        asked: ImageProtocol,
        is_terminal: bool,
        folder: PathBuf,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let protocol = match asked {
            ImageProtocol::Auto if !is_terminal => ImageProtocol::Path,
            ImageProtocol::Auto => of_terminal(variable),
            asked => asked,
        };
        Self { protocol, folder }
    }

    /// What the terminal gets for a picture in base64.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn show(&self, media: &str, content: &str) -> Result<String, RunError> {
        let Ok(bytes) = STANDARD.decode(content) else {
            return Ok("[a picture that is not base64]\n".to_owned());
        };
        match self.protocol {
            ImageProtocol::Kitty if bytes.starts_with(PNG) => Ok(kitty(content)),
            ImageProtocol::Iterm2 => Ok(format!(
                "\x1b]1337;File=inline=1;size={}:{content}\x07\n",
                bytes.len()
            )),
            ImageProtocol::Sixel => match sixel(&bytes) {
                Some(text) => Ok(text),
                None => file(&self.folder, media, &bytes),
            },
            _ => file(&self.folder, media, &bytes),
        }
    }
}

/// The protocol of the terminal that this process runs in. Inside tmux and screen, pictures would need more than that.
fn of_terminal(variable: impl Fn(&str) -> Option<String>) -> ImageProtocol {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let terminal = variable("TERM").unwrap_or_default();
    if is_set("TMUX") || terminal.starts_with("screen") || terminal.starts_with("tmux") {
        return ImageProtocol::Path;
    }
    let program = variable("TERM_PROGRAM").unwrap_or_default();
    match &*program {
        "iTerm.app" | "WezTerm" => ImageProtocol::Iterm2,
        "ghostty" => ImageProtocol::Kitty,
        _ if is_set("KITTY_WINDOW_ID") || terminal == "xterm-kitty" => ImageProtocol::Kitty,
        _ if SIXEL.iter().any(|name| terminal.starts_with(name)) => ImageProtocol::Sixel,
        _ => ImageProtocol::Path,
    }
}

/// Commands of kitty's protocol: `q=2`, since answers of the terminal would be read as a message.
fn kitty(content: &str) -> String {
    let mut text = String::with_capacity(content.len() + content.len() / 100 + 64);
    let mut rest = content;
    let mut control = "a=T,f=100,q=2,";
    while !rest.is_empty() {
        // Base64 is ASCII.
        let (chunk, after) = rest.split_at(rest.len().min(KITTY_CHUNK));
        let more = u8::from(!after.is_empty());
        text += &format!("\x1b_G{control}m={more};{chunk}\x1b\\");
        (rest, control) = (after, "");
    }
    text + "\n"
}

/// Writes a picture to a file that is named by its content.
fn file(folder: &Path, media: &str, bytes: &[u8]) -> Result<String, RunError> {
    let extension = if media == "image/jpeg" { "jpg" } else { "png" };
    let name = format!("{}.{extension}", Digest::of_bytes(bytes).short());
    let path = folder.join(name);
    write_atomically(&path, bytes)?;
    Ok(format!("[picture: {}]\n", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol(variables: &[(&str, &str)]) -> ImageProtocol {
        of_terminal(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn terminals_are_recognized_by_what_they_say() {
        use ImageProtocol::{Iterm2, Kitty, Path, Sixel};
        for (variables, expected) in [
            (vec![("TERM", "xterm-kitty")], Kitty),
            (vec![("TERM_PROGRAM", "ghostty")], Kitty),
            (vec![("TERM_PROGRAM", "WezTerm")], Iterm2),
            (vec![("TERM", "foot-extra")], Sixel),
            (
                vec![("TERM_PROGRAM", "iTerm.app"), ("TMUX", "/tmp/x")],
                Path,
            ),
            (vec![("TERM", "screen"), ("KITTY_WINDOW_ID", "1")], Path),
            (vec![("TERM", "xterm-256color")], Path),
            (vec![], Path),
        ] {
            assert_eq!(protocol(&variables), expected, "{variables:?}");
        }
    }

    #[test]
    fn a_large_picture_is_sent_in_chunks() {
        let content = "a".repeat(KITTY_CHUNK + 4);
        let text = kitty(&content);
        assert_eq!(text.matches("\x1b_G").count(), 2);
        assert!(text.starts_with("\x1b_Ga=T,f=100,q=2,m=1;aaaa"));
        assert!(text.ends_with("\x1b_Gm=0;aaaa\x1b\\\n"), "{text:?}");
    }

    #[test]
    fn other_pictures_become_files() {
        let folder = tempfile::tempdir().unwrap();
        let new = |asked| Images::new(asked, true, folder.path().to_owned(), |_| None);
        let png = STANDARD.encode([PNG, b"rest"].concat());
        let jpeg = STANDARD.encode(b"\xff\xd8 no PNG");
        for (asked, media, content) in [
            (ImageProtocol::Auto, "image/png", &png),
            (ImageProtocol::Path, "image/png", &png),
            (ImageProtocol::Kitty, "image/jpeg", &jpeg),
            (ImageProtocol::Sixel, "image/png", &png),
        ] {
            let shown = new(asked).show(media, content).unwrap();
            let path = shown.trim().strip_prefix("[picture: ").unwrap();
            let bytes = std::fs::read(path.strip_suffix(']').unwrap()).unwrap();
            assert_eq!(bytes, STANDARD.decode(content).unwrap());
        }
        let shown = new(ImageProtocol::Kitty).show("image/png", &png).unwrap();
        assert!(shown.starts_with("\x1b_G"));
        let shown = new(ImageProtocol::Iterm2).show("image/png", &png).unwrap();
        assert!(shown.starts_with("\x1b]1337;File=inline=1;size=12:"));
        let shown = new(ImageProtocol::Kitty)
            .show("image/png", "\x1b[2J")
            .unwrap();
        assert!(!shown.contains('\x1b'), "{shown:?}");
    }
}
