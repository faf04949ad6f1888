//! Pictures as sixels: bands of six rows, in a palette of 216 colors.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pybench_types::task::FileKind;

/// Larger pictures are scaled down to fit, pixels.
const MAX_WIDTH: u32 = 800;
const MAX_HEIGHT: u32 = 600;
/// Levels of red, green and blue.
const LEVELS: u16 = 6;
/// Rows of a band.
const BAND: usize = 6;
/// Bytes of a pixel: red, green, blue, opacity.
const PIXEL: usize = 4;

/// A PNG or JPEG file as sixels; `None` if it cannot be read.
pub(super) fn sixel(bytes: &[u8]) -> Option<String> {
    let kind = match bytes.starts_with(b"\xff\xd8") {
        true => FileKind::Jpeg,
        false => FileKind::Png,
    };
    let mut picture = pybench_profile::picture(kind, bytes)?;
    if picture.width() > MAX_WIDTH || picture.height() > MAX_HEIGHT {
        picture = picture.thumbnail(MAX_WIDTH, MAX_HEIGHT);
    }
    let width = usize::try_from(picture.width()).ok()?;
    Some(encode(&picture.to_rgba8().into_raw(), width))
}

/// The sixels of pixels, row by row.
fn encode(pixels: &[u8], width: usize) -> String {
    let colors: Vec<u16> = pixels.chunks_exact(PIXEL).map(color).collect();
    let rows: Vec<&[u16]> = colors.chunks_exact(width.max(1)).collect();
    // Writing to a String cannot fail.
    let mut text = String::new();
    let _ = write!(text, "\x1bPq\"1;1;{width};{}", rows.len());
    for number in 0..LEVELS.pow(3) {
        let percent = |level: u16| level * 100 / (LEVELS - 1);
        let [red, green, blue] = levels(number).map(percent);
        let _ = write!(text, "#{number};2;{red};{green};{blue}");
    }
    for band in rows.chunks(BAND) {
        for (number, sixels) in sixels(band, width) {
            let _ = write!(text, "#{number}");
            write_runs(&mut text, &sixels);
            text.push('$');
        }
        text.push('-');
    }
    text + "\x1b\\\n"
}

/// Number of the color that is next to a pixel, on white where the pixel is transparent.
fn color(pixel: &[u8]) -> u16 {
    let [red, green, blue, opacity] = [0, 1, 2, 3].map(|at| u32::from(pixel[at]));
    let level = |value: u32| {
        let on_white = (value * opacity + 255 * (255 - opacity)) / 255;
        // At most the number of levels.
        ((on_white * u32::from(LEVELS - 1) + 127) / 255) as u16
    };
    (level(red) * LEVELS + level(green)) * LEVELS + level(blue)
}

/// Red, green and blue of a color.
fn levels(number: u16) -> [u16; 3] {
    [
        number / LEVELS / LEVELS,
        number / LEVELS % LEVELS,
        number % LEVELS,
    ]
}

/// For each color of a band, which rows of each column have it, as bits.
fn sixels(band: &[&[u16]], width: usize) -> BTreeMap<u16, Vec<u8>> {
    let mut sixels = BTreeMap::<u16, Vec<u8>>::new();
    for (bit, row) in band.iter().enumerate() {
        for (column, color) in row.iter().enumerate() {
            let of_color = sixels.entry(*color).or_insert_with(|| vec![0; width]);
            of_color[column] |= 1 << bit;
        }
    }
    sixels
}

/// Writes columns; equal ones that follow each other are counted.
fn write_runs(text: &mut String, sixels: &[u8]) {
    for run in sixels.chunk_by(|one, other| one == other) {
        let sixel = char::from(b'?' + run[0]);
        let _ = match run.len() {
            count @ 4.. => write!(text, "!{count}{sixel}"),
            count => write!(text, "{}", sixel.to_string().repeat(count)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_become_bands_of_their_colors() {
        // Seven rows: a red column beside five that are white, transparent in the last row.
        let (red, white, clear) = ([255, 0, 0, 255], [255; 4], [0; 4]);
        let mut pixels = Vec::new();
        for row in 0..7 {
            pixels.extend(red);
            for _ in 0..5 {
                pixels.extend(if row < 6 { white } else { clear });
            }
        }
        let text = encode(&pixels, 6);
        assert!(
            text.starts_with("\x1bPq\"1;1;6;7#0;2;0;0;0#1;2;0;0;20"),
            "{text}"
        );
        assert!(text.contains("#180;2;100;0;0") && text.contains("#215;2;100;100;100"));
        let bands = "#180~!5?$#215?!5~$-#180@!5?$#215?!5@$-\x1b\\\n";
        assert!(text.ends_with(bands), "{text}");
    }

    #[test]
    fn what_is_no_picture_has_no_sixels() {
        assert_eq!(sixel(b"\x89PNG\r\n\x1a\nrest"), None);
        assert_eq!(sixel(b""), None);
    }
}
