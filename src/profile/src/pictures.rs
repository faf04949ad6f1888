//! Recognizes a picture that was saved twice, perhaps in another format.

use std::collections::HashMap;

use pybench_types::id::Digest;
use pybench_types::task::{FileKind, TaskFile};

use super::image;

/// Width and height of the thumbnails that are compared.
const SIDE: u32 = 16;
/// Pictures look the same if no pixel of their thumbnails differs by more than this, of 255. Lossy compression and
/// palettes change single pixels more, but not the mean of the many that make up a pixel of the thumbnail.
const TOLERANCE: u8 = 12;

/// Pictures that were seen.
#[derive(Debug, Default)]
pub struct PictureIndex {
    /// Different pictures by size.
    seen: HashMap<(u32, u32), Vec<Look>>,
    keys: HashMap<Digest, Option<String>>,
}

impl PictureIndex {
    /// The key of a picture, which is equal for pictures of one size that look the same. `None` for other files, and for
    /// pictures that cannot be read. Each file is read once.
    pub fn key(
        &mut self,
        file: &TaskFile,
        read: impl FnOnce(&Digest) -> Option<Vec<u8>>,
    ) -> Option<String> {
        if !image::is_picture(file.kind) {
            return None;
        }
        if let Some(known) = self.keys.get(&file.id) {
            return known.clone();
        }
        let kind = file.kind;
        let look = read(&file.id).and_then(|bytes| super::parsed(move || Look::of(kind, &bytes)));
        let key = look.map(|look| self.look_up(look));
        self.keys.insert(file.id.clone(), key.clone());
        key
    }

    fn look_up(&mut self, look: Look) -> String {
        let (width, height) = look.size;
        let seen = self.seen.entry(look.size).or_default();
        let found = seen.iter().position(|other| other.is_like(&look));
        let number = found.unwrap_or_else(|| {
            seen.push(look);
            seen.len() - 1
        });
        format!("picture:{width}x{height}/{number}")
    }
}

/// The size of a picture, and its thumbnail in gray.
#[derive(Debug)]
struct Look {
    size: (u32, u32),
    thumbnail: Vec<u8>,
}

impl Look {
    fn of(kind: FileKind, bytes: &[u8]) -> Option<Self> {
        let picture = image::decode(kind, bytes).ok()?;
        Some(Self {
            size: (picture.width(), picture.height()),
            thumbnail: picture.thumbnail_exact(SIDE, SIDE).into_luma8().into_raw(),
        })
    }

    fn is_like(&self, other: &Self) -> bool {
        let mut pixels = self.thumbnail.iter().zip(&other.thumbnail);
        pixels.all(|(a, b)| a.abs_diff(*b) <= TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use ::image::{DynamicImage, ImageFormat, RgbImage};

    /// A picture of waves with noise, of another pattern for each number.
    fn picture(number: u32) -> DynamicImage {
        let waves = RgbImage::from_fn(128, 96, |x, y| {
            let wave = |rate: u32| (f64::from(x * rate + y * number) / 20.0).sin() * 100.0 + 128.0;
            let noise = (x * 31 + y * 17) % 13;
            ::image::Rgb([1, 2, 3].map(|rate| wave(rate) as u8 ^ noise as u8))
        });
        waves.into()
    }

    fn saved(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn a_picture_has_one_key_in_all_formats() {
        let mut index = PictureIndex::default();
        let mut key = |kind: FileKind, bytes: Vec<u8>| {
            let file = TaskFile {
                name: "x".into(),
                id: Digest::of_bytes(&bytes),
                kind,
                origin: String::new(),
                license: None,
                derived_from: None,
                format: None,
            };
            index.key(&file, |_| Some(bytes))
        };
        let first = key(FileKind::Png, saved(&picture(1), ImageFormat::Png));
        assert!(first.is_some());
        for (kind, format) in [
            (FileKind::Jpeg, ImageFormat::Jpeg),
            (FileKind::Gif, ImageFormat::Gif),
            (FileKind::Bmp, ImageFormat::Bmp),
            (FileKind::Webp, ImageFormat::WebP),
        ] {
            assert_eq!(key(kind, saved(&picture(1), format)), first, "{kind:?}");
        }
        let small = picture(1).thumbnail_exact(64, 48);
        for other in [picture(2), picture(3), small] {
            assert_ne!(key(FileKind::Png, saved(&other, ImageFormat::Png)), first);
        }
        assert_eq!(key(FileKind::Png, b"no picture".to_vec()), None);
        assert_eq!(key(FileKind::Csv, b"a,b\n".to_vec()), None);
    }
}
