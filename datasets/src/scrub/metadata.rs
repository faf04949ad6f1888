//! Extracts texts from image metadata: comments, EXIF, XMP and IPTC.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// Maximum size of a metadata block, in bytes. The rest is ignored.
const MAX_BLOCK_BYTES: usize = 4 << 20;
/// Maximum number of metadata blocks.
const MAX_BLOCKS: usize = 1_000;
/// Minimum length of a sequence of printable characters that counts as text, in bytes.
const MIN_TEXT_BYTES: usize = 4;

/// The texts in the metadata of a PNG, JPEG, GIF or WebP file; empty for other files.
pub fn metadata(bytes: &[u8]) -> Vec<String> {
    let blocks = match bytes {
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
    blocks.iter().flat_map(|block| texts(block)).collect()
}

/// Sequences of printable characters, in UTF-8 or in UTF-16 as Windows writes it into EXIF.
fn texts(block: &[u8]) -> Vec<String> {
    let whole = String::from_utf8_lossy(block);
    let wide: Vec<u16> = block
        .chunks_exact(2)
        .map(|c| u16::from_le_bytes([c[0], c[1]]))
        .collect();
    let wide = String::from_utf16_lossy(&wide);
    let mut runs = Vec::new();
    for text in [&*whole, &*wide] {
        let unprintable = |c: char| (c.is_control() && !c.is_whitespace()) || c == '\u{fffd}';
        let blocks = text
            .split(unprintable)
            .filter(|run| run.len() >= MIN_TEXT_BYTES);
        runs.extend(blocks.map(str::to_owned));
    }
    runs
}

fn png(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    while let [a, b, c, d, k0, k1, k2, k3, tail @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some(data) = tail.get(..length) else {
            break;
        };
        match &[*k0, *k1, *k2, *k3] {
            b"tEXt" | b"eXIf" => keep(&mut blocks, data),
            b"zTXt" => {
                let after = data.iter().position(|byte| *byte == 0).map(|at| at + 2);
                keep(&mut blocks, &inflate(data.get(after.unwrap_or(0)..)));
            }
            b"iTXt" => {
                keep(&mut blocks, data);
                // Fields: keyword, compression flag, method, language, translated keyword, text.
                let text = data.splitn(2, |byte| *byte == 0).nth(1).unwrap_or_default();
                if let [1, _, more @ ..] = text {
                    let deflated = more.splitn(3, |byte| *byte == 0).nth(2);
                    keep(&mut blocks, &inflate(deflated));
                }
            }
            _ => {}
        }
        let Some(next) = tail.get(length + 4..) else {
            break;
        };
        rest = next;
        if blocks.len() > MAX_BLOCKS {
            break;
        }
    }
    blocks
}

fn keep(blocks: &mut Vec<Vec<u8>>, data: &[u8]) {
    blocks.push(data[..data.len().min(MAX_BLOCK_BYTES)].to_vec());
}

fn inflate(data: Option<&[u8]>) -> Vec<u8> {
    let mut text = Vec::new();
    let decoder = ZlibDecoder::new(data.unwrap_or_default());
    // Text before an error is kept.
    let _ = decoder.take(MAX_BLOCK_BYTES as u64).read_to_end(&mut text);
    text
}

/// Application segments and comments before the image data.
fn jpeg(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
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
                    keep(&mut blocks, data);
                }
                rest = &tail[length..];
            }
            _ => break,
        }
        if blocks.len() > MAX_BLOCKS {
            break;
        }
    }
    blocks
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
    let (mut at, mut blocks) = (7 + table(*flags), Vec::new());
    while blocks.len() <= MAX_BLOCKS {
        match bytes.get(at) {
            Some(0x21) => {
                let label = bytes.get(at + 1).copied();
                let (data, next) = sub_blocks(bytes, at + 2);
                if matches!(label, Some(0xfe | 0xff)) {
                    keep(&mut blocks, &data);
                }
                at = next;
            }
            Some(0x2c) => {
                let flags = bytes.get(at + 9).copied().unwrap_or(0);
                at = sub_blocks(bytes, at + 11 + table(flags)).1;
            }
            _ => break,
        }
    }
    blocks
}

/// Data of the sub-blocks from `at`, and the offset of their end.
fn sub_blocks(bytes: &[u8], mut at: usize) -> (Vec<u8>, usize) {
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
        if data.len() < MAX_BLOCK_BYTES {
            data.extend_from_slice(block);
        }
        at += length;
    }
    (data, at)
}

fn webp(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    while let [k0, k1, k2, k3, a, b, c, d, tail @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let Some(data) = tail.get(..length) else {
            break;
        };
        if [b"EXIF", b"XMP "].contains(&&[*k0, *k1, *k2, *k3]) {
            keep(&mut blocks, data);
        }
        let Some(next) = tail.get(length + length % 2..) else {
            break;
        };
        rest = next;
        if blocks.len() > MAX_BLOCKS {
            break;
        }
    }
    blocks
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
    fn metadata_of_all_formats_is_read() {
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
        let images = [
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
        for (number, image) in images.iter().enumerate() {
            let found = super::super::Scrubber::default().file(image).found;
            assert!(found.total() > 0, "image {number}: {:?}", metadata(image));
        }
        let clean = png(chunk(b"tEXt", b"Software\0Matplotlib version3.9"));
        assert!(super::super::Scrubber::default().file(&clean).is_clean());
    }
}
