//! Pictures with 8 bits for each of one or three channels, and what a check can tell apart.

use std::io::Cursor;

use image::{DynamicImage, ExtendedColorType, ImageFormat};
use pybench_types::task::FileKind;

/// Mean difference of a channel that the check of a picture allows, of 255: some pixels may be rounded differently.
pub(crate) const TOLERANCE: f64 = 0.25;
/// Edge of the windows that the check looks at, in pixels.
const WINDOW: usize = 8;
/// How much more than the allowed mean a window may differ.
const LOCAL: f64 = 12.0;
/// How much more than a check allows a wrong result has to differ.
const MARGIN: f64 = 2.0;

/// A gray or an RGB picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub width: usize,
    pub height: usize,
    /// 1 (gray) or 3 (red, green, blue).
    pub channels: usize,
    /// Row by row, the channels of a pixel side by side.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// A picture whose values are those of a function of column, row and channel.
    pub fn from_fn(
        width: usize,
        height: usize,
        channels: usize,
        value: impl Fn(usize, usize, usize) -> u8,
    ) -> Self {
        let at = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let at = at.flat_map(|(x, y)| (0..channels).map(move |channel| (x, y, channel)));
        Self {
            width,
            height,
            channels,
            pixels: at.map(|(x, y, channel)| value(x, y, channel)).collect(),
        }
    }

    /// Decodes a file. Other modes than gray and RGB become RGB.
    pub fn read(kind: FileKind, bytes: &[u8]) -> Option<Self> {
        let decoded = pybench_profile::picture(kind, bytes)?;
        let (width, height) = (decoded.width() as usize, decoded.height() as usize);
        let (channels, pixels) = match decoded {
            DynamicImage::ImageLuma8(gray) => (1, gray.into_raw()),
            other => (3, other.into_rgb8().into_raw()),
        };
        Some(Self {
            width,
            height,
            channels,
            pixels,
        })
    }

    /// Encodes the picture without loss.
    pub fn encoded(&self, kind: FileKind) -> Option<Vec<u8>> {
        let format = match kind {
            FileKind::Bmp => ImageFormat::Bmp,
            _ => ImageFormat::Png,
        };
        let color = match self.channels {
            1 => ExtendedColorType::L8,
            _ => ExtendedColorType::Rgb8,
        };
        let mut bytes = Cursor::new(Vec::new());
        let (width, height) = (self.width as u32, self.height as u32);
        image::write_buffer_with_format(&mut bytes, &self.pixels, width, height, color, format)
            .ok()?;
        Some(bytes.into_inner())
    }

    pub fn is_gray(&self) -> bool {
        self.channels == 1
    }

    /// The value of a channel; a gray picture has one.
    pub fn at(&self, x: usize, y: usize, channel: usize) -> u8 {
        self.pixels[(y * self.width + x) * self.channels + channel]
    }

    /// The pixels, each as its channels.
    pub fn colors(&self) -> impl Iterator<Item = &[u8]> {
        self.pixels.chunks_exact(self.channels)
    }

    /// All values of a channel.
    pub fn channel(&self, channel: usize) -> impl Iterator<Item = u8> + '_ {
        self.colors().map(move |color| color[channel])
    }

    /// A picture of the same size whose values are a function of these.
    #[must_use]
    pub fn map(&self, value: impl Fn(u8) -> u8) -> Self {
        let pixels = self.pixels.iter().map(|v| value(*v)).collect();
        Self {
            pixels,
            ..self.clone()
        }
    }

    /// A picture of this size whose pixel at a place is the one of this picture at the place that a function names.
    #[must_use]
    pub fn moved(
        &self,
        width: usize,
        height: usize,
        from: impl Fn(usize, usize) -> (usize, usize),
    ) -> Self {
        Self::from_fn(width, height, self.channels, |x, y, channel| {
            let (x, y) = from(x, y);
            self.at(x, y, channel)
        })
    }

    /// Whether the check of a picture could take one for the other.
    pub(crate) fn resembles(&self, other: &Self) -> bool {
        if (self.width, self.height) != (other.width, other.height) {
            return false;
        }
        let gap = |x, y, channel: usize| {
            let value =
                |picture: &Self| i32::from(picture.at(x, y, channel.min(picture.channels - 1)));
            (value(self) - value(other)).unsigned_abs()
        };
        let mean = |channel: usize| {
            let rows = (0..self.height).flat_map(|y| (0..self.width).map(move |x| (x, y)));
            let sum: u64 = rows.map(|(x, y)| u64::from(gap(x, y, channel))).sum();
            sum as f64 / (self.width * self.height) as f64
        };
        let largest = |x: usize, y: usize| (0..3).map(|channel| gap(x, y, channel)).max();
        (0..3).all(|channel| mean(channel) <= MARGIN * TOLERANCE)
            && self.worst_window(|x, y| largest(x, y).unwrap_or(0)) <= MARGIN * LOCAL * TOLERANCE
    }

    /// The largest mean of a function of the pixels over a window.
    fn worst_window(&self, value: impl Fn(usize, usize) -> u32) -> f64 {
        let (width, height) = (WINDOW.min(self.width), WINDOW.min(self.height));
        let stride = self.width + 1;
        let mut sums = vec![0u64; stride * (self.height + 1)];
        for y in 0..self.height {
            for x in 0..self.width {
                sums[(y + 1) * stride + x + 1] =
                    u64::from(value(x, y)) + sums[y * stride + x + 1] + sums[(y + 1) * stride + x]
                        - sums[y * stride + x];
            }
        }
        let window = |x: usize, y: usize| {
            sums[(y + height) * stride + x + width] + sums[y * stride + x]
                - sums[y * stride + x + width]
                - sums[(y + height) * stride + x]
        };
        let all =
            (0..=self.height - height).flat_map(|y| (0..=self.width - width).map(move |x| (x, y)));
        let worst = all.map(|(x, y)| window(x, y)).max().unwrap_or(0);
        worst as f64 / (width * height) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(width: usize, height: usize, channels: usize) -> Picture {
        Picture::from_fn(width, height, channels, |x, y, channel| {
            (x * 7 + y * 13 + channel * 31) as u8
        })
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        for (channels, kind) in [(1, FileKind::Png), (3, FileKind::Png), (3, FileKind::Bmp)] {
            let picture = ramp(20, 9, channels);
            let bytes = picture.encoded(kind).unwrap();
            assert_eq!(Picture::read(kind, &bytes), Some(picture));
        }
    }

    #[test]
    fn one_other_pixel_column_is_another_picture_and_one_rounded_pixel_is_not() {
        let picture = ramp(40, 30, 3);
        let change = |at: fn(usize, usize) -> bool, by: u8| {
            Picture::from_fn(40, 30, 3, |x, y, channel| {
                picture
                    .at(x, y, channel)
                    .wrapping_add(by * u8::from(at(x, y)))
            })
        };
        assert!(picture.resembles(&picture));
        assert!(picture.resembles(&change(|x, y| x == 3 && y == 4, 1)));
        assert!(!picture.resembles(&change(|x, _| x == 3, 128)));
        assert!(!picture.resembles(&change(
            |x, y| (3..6).contains(&x) && (3..6).contains(&y),
            128
        )));
        assert!(!picture.resembles(&ramp(30, 40, 3)));
    }

    #[test]
    fn a_gray_picture_equals_the_same_in_rgb() {
        let gray = ramp(12, 12, 1);
        let rgb = Picture::from_fn(12, 12, 3, |x, y, _| gray.at(x, y, 0));
        assert!(gray.resembles(&rgb) && !gray.resembles(&ramp(12, 12, 3)));
    }
}
