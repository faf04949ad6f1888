//! How files are shown. Browsers get only types in which nothing can be executed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the page shows a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Preview {
    Image,
    Audio,
    /// Its first bytes, as text.
    Text,
    /// Not at all; it can be downloaded.
    None,
}

/// How a file of this name is shown.
pub(crate) fn preview(name: &str) -> Preview {
    match media_type(name) {
        Some(media) if media.starts_with("image/") => Preview::Image,
        Some(media) if media.starts_with("audio/") => Preview::Audio,
        Some(_) => Preview::Text,
        None => Preview::None,
    }
}

/// The type with which a file of this name is sent to be shown; `None` if it is only downloaded. HTML, SVG, XML, scripts
/// and notebooks are plain text.
pub(crate) fn media_type(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match &*extension.to_ascii_lowercase() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "bmp" => "image/bmp",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "ogg" | "oga" | "opus" => "audio/ogg",
        // Only the sound of a video is played.
        "m4a" | "mp4" => "audio/mp4",
        "webm" | "weba" => "audio/webm",
        "flac" => "audio/flac",
        "csv" | "tsv" | "txt" | "md" | "json" | "jsonl" | "ipynb" | "py" | "sql" | "js" | "css"
        | "xml" | "svg" | "htm" | "html" | "yaml" | "yml" | "toml" | "ini" | "log" | "tex"
        | "eml" | "srt" => "text/plain; charset=utf-8",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_as_a_type_that_can_execute() {
        for name in [
            "a.html",
            "a.SVG",
            "a.xml",
            "a.js",
            "a.ipynb",
            "output/a.xhtml.txt",
        ] {
            assert_eq!(
                media_type(name),
                Some("text/plain; charset=utf-8"),
                "{name}"
            );
        }
        for name in [
            "a.pkl", "a.pdf", "a.xhtml", "a", "", "png", "a.png.", "a.swf", "a.mht",
        ] {
            assert_eq!(
                (media_type(name), preview(name)),
                (None, Preview::None),
                "{name}"
            );
        }
        assert_eq!(preview("output/plot.PNG"), Preview::Image);
        for name in ["a.wav", "a.m4a", "a.webm", "output/a.OPUS"] {
            assert_eq!(preview(name), Preview::Audio, "{name}");
        }
        assert_eq!(preview("a.csv"), Preview::Text);
    }
}
