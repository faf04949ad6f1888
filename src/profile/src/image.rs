//! Profiles images: size, PIL mode, number of frames, symmetry and uniformity.

use std::io::Cursor;

use ::image::codecs::gif::GifDecoder;
use ::image::{AnimationDecoder, DynamicImage, ImageFormat, ImageReader, Limits};
use pybench_types::task::{FileKind, ImageProfile};

/// Maximum number of pixels. All frames of an animation together may have four times as many.
const MAX_PIXELS: u64 = 50_000_000;
const MAX_ALLOC: u64 = 256 << 20;
const MAX_FRAMES: u32 = 5_000;

/// Profiles an image.
///
/// # Errors
/// The reason why it is broken.
pub(super) fn profile(kind: FileKind, bytes: &[u8]) -> Result<ImageProfile, String> {
    // The JPEG decoder silently fills missing data with gray.
    if kind == FileKind::Jpeg && !bytes.windows(2).rev().any(|w| w == b"\xff\xd9") {
        return Err("cut off: it has no end".into());
    }
    let picture = decode(kind, bytes)?;
    let (width, height) = (picture.width(), picture.height());
    let mode = mode(kind, bytes).unwrap_or_else(|| fallback_mode(&picture));
    let frames = frames(kind, bytes, u64::from(width) * u64::from(height))?;
    let pixels = picture.into_rgba8();
    let row = width as usize * 4;
    let symmetric = pixels.chunks_exact(row).all(|row| {
        let half = row.chunks_exact(4).take(width as usize / 2);
        half.eq(row.rchunks_exact(4).take(width as usize / 2))
    });
    let first = pixels.get(..4).unwrap_or_default();
    let uniform = pixels.chunks_exact(4).all(|pixel| pixel == first);
    Ok(ImageProfile {
        width,
        height,
        mode,
        frames,
        symmetric,
        uniform,
    })
}

/// Whether files of this kind are pictures that can be decoded.
pub(super) fn is_picture(kind: FileKind) -> bool {
    use FileKind::*;
    matches!(kind, Png | Jpeg | Gif | Webp | Bmp)
}

pub(super) fn decode(kind: FileKind, bytes: &[u8]) -> Result<DynamicImage, String> {
    let format = match kind {
        FileKind::Png => ImageFormat::Png,
        FileKind::Jpeg => ImageFormat::Jpeg,
        FileKind::Gif => ImageFormat::Gif,
        FileKind::Webp => ImageFormat::WebP,
        FileKind::Bmp => ImageFormat::Bmp,
        other => return Err(format!("{} is no picture", other.name())),
    };
    let unreadable = |e: ::image::ImageError| format!("not a readable picture: {e}");
    let size = ImageReader::with_format(Cursor::new(bytes), format);
    let (width, height) = size.into_dimensions().map_err(unreadable)?;
    if width == 0 || height == 0 {
        return Err("no pixels".into());
    }
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(format!("{width} × {height} pixels are too many"));
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_ALLOC);
    reader.limits(limits);
    reader.decode().map_err(unreadable)
}

/// The mode that PIL reports for the file, read from the header.
fn mode(kind: FileKind, bytes: &[u8]) -> Option<String> {
    let mode = match kind {
        FileKind::Png => png_mode(*bytes.get(24)?, *bytes.get(25)?)?,
        FileKind::Jpeg => jpeg_mode(bytes)?,
        FileKind::Gif => gif_mode(bytes)?,
        FileKind::Bmp => bmp_mode(bytes)?,
        _ => return None,
    };
    Some(mode.to_owned())
}

fn fallback_mode(picture: &DynamicImage) -> String {
    if picture.color().has_alpha() {
        "RGBA"
    } else {
        "RGB"
    }
    .to_owned()
}

fn png_mode(depth: u8, color: u8) -> Option<&'static str> {
    Some(match (color, depth) {
        (0, 1) => "1",
        (0, 16) => "I;16",
        (0, _) => "L",
        (2, _) => "RGB",
        (3, _) => "P",
        (4, 8) => "LA",
        (4, _) => "LA",
        (6, _) => "RGBA",
        _ => return None,
    })
}

/// The mode by the number of components in the first frame header.
fn jpeg_mode(bytes: &[u8]) -> Option<&'static str> {
    let mut at = 2;
    loop {
        let marker = *bytes.get(at + 1)?;
        match (bytes.get(at)?, marker) {
            (0xff, 0xff) => at += 1,
            (0xff, 0xd0..=0xd8 | 0x01) => at += 2,
            (0xff, 0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf) => break,
            (0xff, _) => {
                at += 2 + usize::from(u16::from_be_bytes([
                    *bytes.get(at + 2)?,
                    *bytes.get(at + 3)?,
                ]));
            }
            _ => return None,
        }
    }
    match bytes.get(at + 9)? {
        1 => Some("L"),
        3 => Some("RGB"),
        4 => Some("CMYK"),
        _ => None,
    }
}

/// PIL reports `L` when the global palette is the gray ramp, otherwise `P`.
fn gif_mode(bytes: &[u8]) -> Option<&'static str> {
    let flags = *bytes.get(10)?;
    if flags & 0x80 == 0 {
        return Some("P");
    }
    let colors = 2usize << (flags & 7);
    let palette = bytes.get(13..13 + colors * 3)?;
    let ramp = palette
        .chunks_exact(3)
        .enumerate()
        .all(|(i, c)| c.iter().all(|&v| usize::from(v) == i));
    Some(if ramp { "L" } else { "P" })
}

fn bmp_mode(bytes: &[u8]) -> Option<&'static str> {
    let header = u32::from_le_bytes(bytes.get(14..18)?.try_into().ok()?);
    let (depth_at, entry) = if header == 12 { (24, 3) } else { (28, 4) };
    let depth = u16::from_le_bytes(bytes.get(depth_at..depth_at + 2)?.try_into().ok()?);
    let gray = |colors: usize| {
        let palette = bytes.get(14 + header as usize..).unwrap_or_default();
        let mut entries = palette.chunks_exact(entry).take(colors).enumerate();
        let step = 255 / (colors - 1);
        entries.all(|(i, c)| c[..3].iter().all(|&v| usize::from(v) == i * step))
    };
    Some(match depth {
        1 if gray(2) => "1",
        8 if gray(256) => "L",
        1 | 4 | 8 => "P",
        16 | 24 => "RGB",
        32 => return None, // whether there is alpha depends on the masks; use the decoded image
        _ => return None,
    })
}

fn frames(kind: FileKind, bytes: &[u8], pixels: u64) -> Result<u32, String> {
    let frames = match kind {
        FileKind::Gif => return gif_frames(bytes, pixels),
        FileKind::Png => chunk_value(bytes, b"acTL").unwrap_or(1),
        FileKind::Webp => bytes.windows(4).filter(|w| w == b"ANMF").count() as u32,
        _ => 1,
    };
    Ok(frames.clamp(1, MAX_FRAMES))
}

fn gif_frames(bytes: &[u8], pixels: u64) -> Result<u32, String> {
    let unreadable = |e: ::image::ImageError| format!("not a readable picture: {e}");
    let mut count = 0u32;
    for frame in GifDecoder::new(Cursor::new(bytes))
        .map_err(unreadable)?
        .into_frames()
    {
        frame.map_err(unreadable)?;
        count += 1;
        if count > MAX_FRAMES || u64::from(count) * pixels > 4 * MAX_PIXELS {
            return Err("too many frames".into());
        }
    }
    Ok(count.max(1))
}

/// The first number in a PNG chunk that precedes the pixel data.
fn chunk_value(bytes: &[u8], name: &[u8; 4]) -> Option<u32> {
    let mut at = 8;
    loop {
        let length = u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
        match bytes.get(at + 4..at + 8)? {
            chunk if chunk == name => {
                return Some(u32::from_be_bytes(
                    bytes.get(at + 8..at + 12)?.try_into().ok()?,
                ));
            }
            b"IDAT" | b"IEND" => return None,
            _ => at = at.checked_add(length.checked_add(12)?)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::image::{GrayImage, RgbImage};

    fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.into().write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn symmetric_and_uniform_images_are_distinguished() {
        let profile_of = |f: fn(u32, u32) -> u8| {
            let picture = GrayImage::from_fn(7, 4, |x, y| ::image::Luma([f(x, y)]));
            profile(FileKind::Png, &encoded(picture, ImageFormat::Png)).unwrap()
        };
        let plain = profile_of(|_, _| 9);
        assert!(plain.symmetric && plain.uniform && plain.mode == "L");
        let mirror = profile_of(|x, _| (x as i32 - 3).unsigned_abs() as u8);
        assert!(mirror.symmetric && !mirror.uniform);
        let ramp = profile_of(|x, _| x as u8);
        assert!(!ramp.symmetric && !ramp.uniform);
        assert_eq!((ramp.width, ramp.height, ramp.frames), (7, 4, 1));
    }

    #[test]
    fn modes_match_pil() {
        let rgb = || RgbImage::from_fn(8, 8, |x, y| ::image::Rgb([x as u8 * 30, y as u8 * 30, 7]));
        for (kind, format) in [
            (FileKind::Jpeg, ImageFormat::Jpeg),
            (FileKind::Bmp, ImageFormat::Bmp),
            (FileKind::Webp, ImageFormat::WebP),
        ] {
            assert_eq!(profile(kind, &encoded(rgb(), format)).unwrap().mode, "RGB");
        }
        assert_eq!(
            profile(FileKind::Gif, &encoded(rgb(), ImageFormat::Gif))
                .unwrap()
                .mode,
            "P"
        );
        let gray = DynamicImage::ImageLuma8(GrayImage::new(8, 8));
        assert_eq!(
            profile(FileKind::Jpeg, &encoded(gray, ImageFormat::Jpeg))
                .unwrap()
                .mode,
            "L"
        );
    }

    #[test]
    fn truncated_and_huge_images_are_rejected() {
        let noise = RgbImage::from_fn(64, 64, |x, y| {
            ::image::Rgb([(x * y) as u8, x as u8, y as u8])
        });
        let png = encoded(noise, ImageFormat::Png);
        assert!(profile(FileKind::Png, &png[..png.len() / 2]).is_err());
        let mut huge = png;
        huge[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        assert!(profile(FileKind::Png, &huge).is_err());
    }
}
