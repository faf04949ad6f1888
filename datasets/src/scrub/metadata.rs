//! What pictures say of themselves: comments, EXIF, XMP, IPTC.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// Most bytes of one piece of metadata.
const PIECE: usize = 4 << 20;
/// Most pieces.
const PIECES: usize = 1_000;
/// Shortest run of printable characters that is a text.
const WORD: usize = 4;

/// The texts in the metadata of a PNG, JPEG, GIF or WebP; none of anything else.
pub fn metadata(bytes: &[u8]) -> Vec<String> {
    let pieces = match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, rest @ ..] => png(rest),
        [0xff, 0xd8, rest @ ..] => jpeg(rest),
        [b'G', b'I', b'F', b'8', _, b'a', rest @ ..] => gif(rest),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            rest @ ..,
        ] => webp(rest),
        _ => Vec::new(),
    };
    pieces.iter().flat_map(|piece| texts(piece)).collect()
}

/// Runs of printable characters: as UTF-8, or as the 16-bit text that Windows writes into EXIF.
fn texts(piece: &[u8]) -> Vec<String> {
    let whole = String::from_utf8_lossy(piece);
    let wide: Vec<u16> = piece
        .chunks_exact(2)
        .map(|c| u16::from_le_bytes([c[0], c[1]]))
        .collect();
    let wide = String::from_utf16_lossy(&wide);
    let mut runs = Vec::new();
    for text in [&*whole, &*wide] {
        let unprintable = |c: char| (c.is_control() && !c.is_whitespace()) || c == '\u{fffd}';
        let pieces = text.split(unprintable).filter(|run| run.len() >= WORD);
        runs.extend(pieces.map(str::to_owned));
    }
    runs
}

fn png(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let [a, b, c, d, k0, k1, k2, k3, tail @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some(data) = tail.get(..length) else {
            break;
        };
        match &[*k0, *k1, *k2, *k3] {
            b"tEXt" | b"eXIf" => keep(&mut pieces, data),
            b"zTXt" => {
                let after = data.iter().position(|byte| *byte == 0).map(|at| at + 2);
                keep(&mut pieces, &inflate(data.get(after.unwrap_or(0)..)));
            }
            b"iTXt" => {
                keep(&mut pieces, data);
                // Keyword, flag, method, language, keyword in that language, text.
                let text = data.splitn(2, |byte| *byte == 0).nth(1).unwrap_or_default();
                if let [1, _, more @ ..] = text {
                    let deflated = more.splitn(3, |byte| *byte == 0).nth(2);
                    keep(&mut pieces, &inflate(deflated));
                }
            }
            _ => {}
        }
        let Some(next) = tail.get(length + 4..) else {
            break;
        };
        rest = next;
        if pieces.len() > PIECES {
            break;
        }
    }
    pieces
}

fn keep(pieces: &mut Vec<Vec<u8>>, data: &[u8]) {
    pieces.push(data[..data.len().min(PIECE)].to_vec());
}

fn inflate(data: Option<&[u8]>) -> Vec<u8> {
    let mut text = Vec::new();
    let decoder = ZlibDecoder::new(data.unwrap_or_default());
    // What came before an error counts.
    let _ = decoder.take(PIECE as u64).read_to_end(&mut text);
    text
}

/// Application segments and comments before the picture's data.
fn jpeg(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let [0xff, marker, tail @ ..] = rest {
        match (marker, tail) {
            // Padding.
            (0xff, _) => rest = &rest[1..],
            (0xd0..=0xd8 | 0x01, _) => rest = tail,
            (0xda | 0xd9, _) => break,
            (marker, [a, b, _, ..]) => {
                let length = usize::from(u16::from_be_bytes([*a, *b]));
                let Some(data) = tail.get(2..length) else {
                    break;
                };
                if matches!(marker, 0xe1..=0xef | 0xfe) {
                    keep(&mut pieces, data);
                }
                rest = &tail[length..];
            }
            _ => break,
        }
        if pieces.len() > PIECES {
            break;
        }
    }
    pieces
}

/// Comment and application extensions.
fn gif(bytes: &[u8]) -> Vec<Vec<u8>> {
    let table = |flags: u8| match flags & 0x80 {
        0 => 0,
        _ => 3usize << ((flags & 7) + 1),
    };
    let Some(flags) = bytes.get(4) else {
        return Vec::new();
    };
    let (mut at, mut pieces) = (7 + table(*flags), Vec::new());
    while pieces.len() <= PIECES {
        match bytes.get(at) {
            Some(0x21) => {
                let label = bytes.get(at + 1).copied();
                let (data, next) = blocks(bytes, at + 2);
                if matches!(label, Some(0xfe | 0xff)) {
                    keep(&mut pieces, &data);
                }
                at = next;
            }
            Some(0x2c) => {
                let flags = bytes.get(at + 9).copied().unwrap_or(0);
                at = blocks(bytes, at + 11 + table(flags)).1;
            }
            _ => break,
        }
    }
    pieces
}

/// Data of sub-blocks from there, and where they end.
fn blocks(bytes: &[u8], mut at: usize) -> (Vec<u8>, usize) {
    let mut data = Vec::new();
    while let Some(&length) = bytes.get(at) {
        at += 1;
        let length = usize::from(length);
        if length == 0 {
            break;
        }
        let Some(block) = bytes.get(at..at + length) else {
            return (data, bytes.len());
        };
        if data.len() < PIECE {
            data.extend_from_slice(block);
        }
        at += length;
    }
    (data, at)
}

fn webp(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let [k0, k1, k2, k3, a, b, c, d, tail @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let Some(data) = tail.get(..length) else {
            break;
        };
        if [b"EXIF", b"XMP "].contains(&&[*k0, *k1, *k2, *k3]) {
            keep(&mut pieces, data);
        }
        let Some(next) = tail.get(length + length % 2..) else {
            break;
        };
        rest = next;
        if pieces.len() > PIECES {
            break;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    const SECRET: &str = "shot by jane.doe@example.com";

    fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let length = (data.len() as u32).to_be_bytes();
        [&length[..], kind, data, &[0; 4]].concat()
    }

    fn deflate(text: &str) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn every_place_in_every_format_is_read() {
        let png = |chunk: Vec<u8>| [b"\x89PNG\r\n\x1a\n".to_vec(), chunk].concat();
        let jpeg = |marker: u8, data: &[u8]| {
            let length = (data.len() as u16 + 2).to_be_bytes();
            [
                &[0xff, 0xd8, 0xff, marker],
                &length[..],
                data,
                &[0xff, 0xd9],
            ]
            .concat()
        };
        let webp = |kind: &[u8; 4], data: &[u8]| {
            let length = (data.len() as u32).to_le_bytes();
            [&b"RIFF\0\0\0\0WEBP"[..], kind, &length, data, &[0]].concat()
        };
        let mut gif = b"GIF89a\x01\0\x01\0\0\0\0\x21\xfe".to_vec();
        gif.push(SECRET.len() as u8);
        gif.extend(SECRET.as_bytes());
        gif.extend([0, 0x3b]);
        let itxt = [b"XML\0\x01\0en\0k\0".to_vec(), deflate(SECRET)].concat();
        let pictures = [
            png(chunk(b"tEXt", format!("Author\0{SECRET}").as_bytes())),
            png(chunk(
                b"iTXt",
                format!("Author\0\0\0\0\0{SECRET}").as_bytes(),
            )),
            png(chunk(
                b"zTXt",
                &[b"Author\0\0".to_vec(), deflate(SECRET)].concat(),
            )),
            png(chunk(b"iTXt", &itxt)),
            png(chunk(b"eXIf", &wide(SECRET))),
            jpeg(0xfe, SECRET.as_bytes()),
            jpeg(0xe1, &[b"Exif\0\0".to_vec(), wide(SECRET)].concat()),
            jpeg(0xed, SECRET.as_bytes()),
            webp(b"EXIF", SECRET.as_bytes()),
            webp(b"XMP ", SECRET.as_bytes()),
            gif,
        ];
        for (number, picture) in pictures.iter().enumerate() {
            let found = super::super::Scrubber::default().file(picture);
            assert!(
                found.total() > 0,
                "picture {number}: {:?}",
                metadata(picture)
            );
        }
        let clean = png(chunk(b"tEXt", b"Software\0Matplotlib version3.9"));
        assert_eq!(super::super::Scrubber::default().file(&clean).total(), 0);
    }
}
