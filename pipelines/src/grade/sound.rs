//! Whether an output file is what its name says, as far as a look at its frame can tell. What it
//! holds is the checker's business, in a sandbox.

/// Why the file is not sound; `None` when it is, or when its type has no frame to look at.
pub fn defect(path: &str, bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return Some("it is empty".into());
    }
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let sound = match extension.to_ascii_lowercase().as_str() {
        "csv" | "tsv" | "txt" | "md" | "py" => !bytes.contains(&0) || is_utf16(bytes),
        "json" | "ipynb" => serde_json::from_slice::<serde::de::IgnoredAny>(text(bytes)).is_ok(),
        "jsonl" => is_json_lines(bytes),
        "html" | "htm" | "svg" | "xml" => has(bytes, b"<"),
        "png" => framed(bytes, b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
        "jpg" | "jpeg" => framed(bytes, b"\xff\xd8\xff", b"\xff\xd9"),
        "gif" => bytes.starts_with(b"GIF8") && bytes.ends_with(b";"),
        "bmp" => bytes.starts_with(b"BM"),
        "webp" => is_riff(bytes, b"WEBP"),
        "wav" => is_riff(bytes, b"WAVE"),
        "flac" => bytes.starts_with(b"fLaC"),
        "ogg" => bytes.starts_with(b"OggS"),
        "mp3" => bytes.starts_with(b"ID3") || is_mpeg_frame(bytes),
        "mp4" => bytes.get(4..8) == Some(b"ftyp"),
        "pdf" => {
            bytes.starts_with(b"%PDF-") && has(&bytes[bytes.len().saturating_sub(1024)..], b"%%EOF")
        }
        "xlsx" | "docx" | "zip" => bytes.starts_with(b"PK\x03\x04") && has(bytes, b"PK\x05\x06"),
        "parquet" => framed(bytes, b"PAR1", b"PAR1") && bytes.len() > 8,
        "sqlite" | "sqlite3" | "db" => bytes.starts_with(b"SQLite format 3\0"),
        _ => true,
    };
    (!sound).then(|| format!("it cannot be opened as {extension}"))
}

fn has(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Begins and ends so; some writers pad the end.
fn framed(bytes: &[u8], head: &[u8], tail: &[u8]) -> bool {
    bytes.starts_with(head) && has(&bytes[bytes.len().saturating_sub(64)..], tail)
}

fn is_riff(bytes: &[u8], kind: &[u8; 4]) -> bool {
    bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(kind)
}

fn is_mpeg_frame(bytes: &[u8]) -> bool {
    matches!(bytes, [0xff, second, ..] if second & 0xe0 == 0xe0)
}

fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
}

/// Without a byte order mark.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn is_json_lines(bytes: &[u8]) -> bool {
    let lines = text(bytes).split(|byte| *byte == b'\n');
    let mut lines = lines
        .filter(|line| !line.trim_ascii().is_empty())
        .peekable();
    lines.peek().is_some()
        && lines.all(|line| serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_files_pass_and_others_are_named() {
        let sound: [(&str, &[u8]); 8] = [
            ("output/a.csv", b"a,b\n1,2\n"),
            ("output/a.json", b"\xef\xbb\xbf{\"a\": [1]}\n"),
            ("output/a.jsonl", b"{\"a\": 1}\n\n{\"a\": 2}"),
            ("output/a.PNG", b"\x89PNG\r\n\x1a\n....IEND\xaeB`\x82"),
            ("output/a.wav", b"RIFF\0\0\0\0WAVEfmt "),
            ("output/a.mp3", b"\xff\xfb\x90\x00"),
            ("output/a.xlsx", b"PK\x03\x04....PK\x05\x06"),
            ("output/model.pkl", b"\x80\x04"),
        ];
        for (path, bytes) in sound {
            assert_eq!(defect(path, bytes), None, "{path}");
        }
        let broken: [(&str, &[u8]); 9] = [
            ("output/a.csv", b""),
            ("output/a.csv", b"\x89PNG\r\n\x1a\n\0\0"),
            ("output/a.json", b"{\"a\": "),
            ("output/a.jsonl", b"{}\nnot json"),
            ("output/a.png", b"\x89PNG\r\n\x1a\n cut"),
            ("output/a.jpg", b"\x89PNG\r\n\x1a\n....IEND\xaeB`\x82"),
            ("output/a.pdf", b"%PDF-1.7 cut"),
            ("output/a.parquet", b"PAR1"),
            ("output/a.xlsx", b"a,b"),
        ];
        for (path, bytes) in broken {
            assert!(defect(path, bytes).is_some(), "{path}");
        }
    }

    #[test]
    fn hostile_bytes_are_read() {
        const PATHS: [&str; 6] = ["a.csv", "a.json", "a.png", "a.pdf", "a.mp4", "a.parquet"];
        bolero::check!().for_each(|bytes: &[u8]| {
            for path in PATHS {
                defect(path, bytes);
            }
        });
    }
}
