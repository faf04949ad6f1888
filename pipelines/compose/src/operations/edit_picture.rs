//! Operations that move the pixels of a picture: turns, cuts, sizes. Pillow, NumPy and the reference agree on each value.

use rand::RngExt;

use crate::argument::{Argument, Arguments};
use crate::content::{Content, Medium};
use crate::draw::{Draw, always};
use crate::operation::Operation;
use crate::picture::Picture;

/// Sides of a picture that grows, in pixels.
const MAX_SIDE: usize = 1_200;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = turns();
    all.extend(cuts());
    all.extend(sizes());
    all.extend(["png", "bmp"].map(|kind| {
        let upper = kind.to_uppercase();
        Operation::save(Medium::Picture, format!("save_{kind}"))
            .code("$source.save($path)")
            .code(&format!(
                "with open($path, \"wb\") as file:\n    $source.save(file, format=\"{upper}\")"
            ))
            .en([
                &format!("save the resulting picture as a {upper} file"),
                &format!("write what you get to a {upper} file of this size"),
            ])
            .zh([&format!("把得到的图片保存为{upper}文件")])
            .counted_as("convert image")
    }));
    all
}

pub(super) fn edit(
    name: impl Into<String>,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    meaning: impl Fn(&Arguments, &Picture) -> Option<Picture> + Send + Sync + 'static,
) -> Operation {
    Operation::edit(Medium::Picture, name, draw, move |a, content| {
        let picture = meaning(a, content.picture()?)?;
        Some(Content::Picture(picture.into()))
    })
}

pub(super) fn count(value: usize) -> Argument {
    Argument::Count(value as i64)
}

/// An argument as a size or a place.
pub(super) fn size(a: &Arguments, key: &str) -> usize {
    usize::try_from(a.count(key)).unwrap_or(0)
}

/// Rotations and reflections.
fn turns() -> Vec<Operation> {
    let turn = |name: &str, from: fn(&Picture, usize, usize) -> (usize, usize), swaps: bool| {
        edit(name, always, move |_, picture| {
            let (width, height) = match swaps {
                true => (picture.height, picture.width),
                false => (picture.width, picture.height),
            };
            Some(picture.moved(width, height, |x, y| from(picture, x, y)))
        })
    };
    vec![
        turn("rotate_clockwise", |p, x, y| (y, p.height - 1 - x), true)
            .pandas("$source = $source.transpose(Image.Transpose.ROTATE_270)")
            .pandas("$source = $source.rotate(-90, expand=True)")
            .code("$source = Image.fromarray(np.rot90(np.asarray($source), -1))")
            .en(["rotate the picture by 90 degrees clockwise", "turn the picture a quarter to the right (clockwise)"])
            .zh(["把图片顺时针旋转90度"])
            .counted_as("rotate image"),
        turn("rotate_counterclockwise", |p, x, y| (p.width - 1 - y, x), true)
            .pandas("$source = $source.transpose(Image.Transpose.ROTATE_90)")
            .pandas("$source = $source.rotate(90, expand=True)")
            .code("$source = Image.fromarray(np.rot90(np.asarray($source)))")
            .en([
                "rotate the picture by 90 degrees counterclockwise",
                "turn the picture a quarter to the left (counterclockwise)",
            ])
            .zh(["把图片逆时针旋转90度"])
            .counted_as("rotate image"),
        turn("rotate_around", |p, x, y| (p.width - 1 - x, p.height - 1 - y), false)
            .pandas("$source = $source.transpose(Image.Transpose.ROTATE_180)")
            .code("$source = Image.fromarray(np.asarray($source)[::-1, ::-1])")
            .en(["rotate the picture by 180 degrees", "turn the picture upside down by a rotation of 180 degrees"])
            .zh(["把图片旋转180度"])
            .counted_as("rotate image"),
        turn("flip_horizontally", |p, x, y| (p.width - 1 - x, y), false)
            .pandas("$source = $source.transpose(Image.Transpose.FLIP_LEFT_RIGHT)")
            .pandas("from PIL import ImageOps\n$source = ImageOps.mirror($source)")
            .code("$source = Image.fromarray(np.asarray($source)[:, ::-1])")
            .en(["mirror the picture so that left and right change places", "flip the picture horizontally (left becomes right)"])
            .zh(["把图片左右镜像翻转"])
            .counted_as("mirror image"),
        turn("flip_vertically", |p, x, y| (x, p.height - 1 - y), false)
            .pandas("$source = $source.transpose(Image.Transpose.FLIP_TOP_BOTTOM)")
            .pandas("from PIL import ImageOps\n$source = ImageOps.flip($source)")
            .code("$source = Image.fromarray(np.asarray($source)[::-1])")
            .en(["mirror the picture so that top and bottom change places", "flip the picture vertically (top becomes bottom)"])
            .zh(["把图片上下镜像翻转"])
            .counted_as("mirror image"),
        turn("transpose_picture", |_, x, y| (y, x), true)
            .pandas("$source = $source.transpose(Image.Transpose.TRANSPOSE)")
            .code("$source = Image.fromarray(np.swapaxes(np.asarray($source), 0, 1))")
            .en([
                "reflect the picture at its main diagonal, so that rows become columns and the top-left corner stays",
                "exchange rows and columns of the picture (transpose it; the top-left pixel stays where it is)",
            ])
            .zh(["把图片沿主对角线翻转（行列互换，左上角不动）"])
            .counted_as("mirror image"),
    ]
}

/// Parts of a picture.
fn cuts() -> Vec<Operation> {
    let area = |draw: &mut Draw<'_>| {
        let picture = draw.picture()?;
        let mut range = |side: usize| {
            let from = draw.rng.random_range(0..side / 3);
            (from, draw.rng.random_range(side * 2 / 3..=side))
        };
        let ((left, right), (top, bottom)) = (range(picture.width), range(picture.height));
        (picture.width >= 24 && picture.height >= 24).then(|| {
            Arguments::new([
                ("left", count(left)),
                ("top", count(top)),
                ("right", count(right)),
                ("bottom", count(bottom)),
            ])
        })
    };
    let margin = |draw: &mut Draw<'_>| {
        let picture = draw.picture()?;
        let side = picture.width.min(picture.height);
        let margin = draw.count(2, (side as i64 / 6).clamp(2, 40));
        (side >= 24).then(|| Arguments::new([("count", Argument::Count(margin))]))
    };
    vec![
        edit("crop_box", area, |a, picture| {
            let (left, top) = (size(a, "left"), size(a, "top"));
            let (right, bottom) = (size(a, "right").min(picture.width), size(a, "bottom").min(picture.height));
            let (width, height) = (right.checked_sub(left)?, bottom.checked_sub(top)?);
            Some(picture.moved(width, height, |x, y| (x + left, y + top)))
        })
        .pandas("$source = $source.crop(($left, $top, $right, $bottom))")
        .code("$source = Image.fromarray(np.asarray($source)[$top:$bottom, $left:$right])")
        .en([
            "crop the picture to the columns $left up to but not including $right and the rows $top up to but not including $bottom, counted from 0 at the top left",
            "cut out the box with the left edge $left, upper edge $top, right edge $right and lower edge $bottom in pixels (right and lower edge not included, as Pillow counts)",
        ])
        .zh(["裁剪图片：左边界$left、上边界$top、右边界$right、下边界$bottom（像素，从左上角0起，不含右、下边界）"])
        .counted_as("crop image"),
        edit("crop_margin", margin, |a, picture| {
            let margin = size(a, "count");
            let (width, height) = (picture.width.checked_sub(2 * margin)?, picture.height.checked_sub(2 * margin)?);
            Some(picture.moved(width, height, |x, y| (x + margin, y + margin)))
        })
        .pandas("$source = $source.crop(($count, $count, $source.width - $count, $source.height - $count))")
        .pandas("from PIL import ImageOps\n$source = ImageOps.crop($source, $count)")
        .code("$source = Image.fromarray(np.asarray($source)[$count:-$count, $count:-$count])")
        .en(["cut off $count pixels on each of the four sides", "remove a margin of $count pixels all around the picture"])
        .zh(["四边各裁去$count个像素"])
        .counted_as("crop image"),
        edit("crop_square", always, |_, picture| {
            let side = picture.width.min(picture.height);
            let (left, top) = ((picture.width - side) / 2, (picture.height - side) / 2);
            Some(picture.moved(side, side, |x, y| (x + left, y + top)))
        })
        .pandas(
            "side = min($source.size)\n\
             left, top = ($source.width - side) // 2, ($source.height - side) // 2\n\
             $source = $source.crop((left, top, left + side, top + side))",
        )
        .code(
            "side = min($source.size)\n\
             left, top = ($source.width - side) // 2, ($source.height - side) // 2\n\
             $source = Image.fromarray(np.asarray($source)[top:top + side, left:left + side])",
        )
        .en([
            "crop the largest centered square; where the rest is odd, the right or lower side loses one pixel more",
            "cut the picture to a square of its shorter side in the middle (left or upper offset = half of the difference, rounded down)",
        ])
        .zh(["居中裁剪出以短边为边长的正方形（左、上偏移为差值的一半，向下取整）"])
        .counted_as("crop image"),
    ]
}

/// Pictures of other sizes.
fn sizes() -> Vec<Operation> {
    let enlarged = |draw: &mut Draw<'_>| {
        let picture = draw.picture()?;
        let factor = draw.count(2, 4) as usize;
        let fits = picture.width.max(picture.height) * factor <= MAX_SIDE;
        fits.then(|| Arguments::new([("count", count(factor))]))
    };
    let thinned = |draw: &mut Draw<'_>| {
        let picture = draw.picture()?;
        let factor = draw.count(2, 4) as usize;
        (picture.width.min(picture.height) / factor >= 16)
            .then(|| Arguments::new([("count", count(factor))]))
    };
    let averaged = move |draw: &mut Draw<'_>| {
        let arguments = thinned(draw)?;
        let picture = draw.picture()?;
        let factor = size(&arguments, "count");
        let whole = picture.width.is_multiple_of(factor) && picture.height.is_multiple_of(factor);
        whole.then_some(arguments)
    };
    let doubled = |draw: &mut Draw<'_>| {
        let picture = draw.picture()?;
        (picture.width.max(picture.height) * 2 <= MAX_SIDE).then(Arguments::default)
    };
    vec![
        edit("enlarge_picture", enlarged, |a, picture| {
            let factor = size(a, "count");
            let (width, height) = (picture.width * factor, picture.height * factor);
            (width.max(height) <= 2 * MAX_SIDE).then(|| picture.moved(width, height, |x, y| (x / factor, y / factor)))
        })
        .pandas("$source = $source.resize(($source.width * $count, $source.height * $count), Image.Resampling.NEAREST)")
        .code("$source = Image.fromarray(np.asarray($source).repeat($count, axis=0).repeat($count, axis=1))")
        .en([
            "enlarge the picture by the factor $count without smoothing, so that each pixel becomes a block of $count by $count pixels",
            "make the picture $count times as wide and as high with nearest-neighbor resampling",
        ])
        .zh(["用最近邻插值把图片的宽和高放大为$count倍（每个像素变为$count×$count的方块）"])
        .counted_as("resize image"),
        edit("thin_out_picture", thinned, |a, picture| {
            let factor = size(a, "count").max(1);
            let (width, height) = (picture.width.div_ceil(factor), picture.height.div_ceil(factor));
            Some(picture.moved(width, height, |x, y| (x * factor, y * factor)))
        })
        .code("$source = Image.fromarray(np.asarray($source)[::$count, ::$count])")
        .code("pixels = np.asarray($source)\nrows, columns = range(0, pixels.shape[0], $count), range(0, pixels.shape[1], $count)\n$source = Image.fromarray(pixels[rows][:, columns])")
        .en([
            "keep only the first of every $count rows and of every $count columns of pixels, without averaging",
            "shrink the picture by taking one pixel out of every $count in both directions, beginning with the top-left one, without averaging",
        ])
        .zh(["每$count行、每$count列只保留第一个像素（从左上角开始，不求平均）"])
        .counted_as("resize image"),
        edit("average_blocks", averaged, |a, picture| {
            let factor = size(a, "count");
            let (width, height) = (picture.width / factor, picture.height / factor);
            let whole = picture.width == width * factor && picture.height == height * factor;
            whole.then(|| {
                Picture::from_fn(width, height, picture.channels, |x, y, channel| {
                    let block = (0..factor * factor).map(|at| {
                        u32::from(picture.at(x * factor + at % factor, y * factor + at / factor, channel))
                    });
                    // Halves are rounded up.
                    let n = (factor * factor) as u32;
                    ((block.sum::<u32>() * 2 + n) / (2 * n)) as u8
                })
            })
        })
        .pandas("$source = $source.reduce($count)")
        .code(
            "pixels = np.asarray($source).astype(int)\n\
             blocks = pixels.reshape(pixels.shape[0] // $count, $count, pixels.shape[1] // $count, $count, *pixels.shape[2:])\n\
             $source = Image.fromarray(((blocks.sum(axis=(1, 3)) + $count * $count // 2) // ($count * $count)).astype(np.uint8))",
        )
        .en([
            "shrink the picture to 1/$count of its width and height; each new pixel is the mean of a block of $count by $count pixels, rounded to the nearest whole number (halves up)",
            "replace each block of $count by $count pixels by one pixel with its mean, for each channel, rounded to the nearest integer with halves rounded up",
        ])
        .zh(["把图片的宽和高缩小为1/$count：每个新像素是$count×$count方块的平均值，四舍五入取整"])
        .counted_as("resize image"),
        edit("append_mirror", doubled, |_, picture| {
            let width = picture.width;
            Some(picture.moved(2 * width, picture.height, |x, y| (x.min(2 * width - 1 - x), y)))
        })
        .code("$source = Image.fromarray(np.concatenate([np.asarray($source), np.asarray($source)[:, ::-1]], axis=1))")
        .code("wide = Image.new($source.mode, (2 * $source.width, $source.height))\nwide.paste($source, (0, 0))\nwide.paste($source.transpose(Image.Transpose.FLIP_LEFT_RIGHT), ($source.width, 0))\n$source = wide")
        .en([
            "put the left-right mirror image of the picture directly to its right, which doubles the width",
            "double the width by appending the horizontally mirrored picture on the right",
        ])
        .zh(["在图片右侧紧接其左右镜像，使宽度加倍"])
        .counted_as("image collage"),
        edit("stack_twice", doubled, |_, picture| {
            let height = picture.height;
            Some(picture.moved(picture.width, 2 * height, |x, y| (x, y % height)))
        })
        .code("$source = Image.fromarray(np.concatenate([np.asarray($source)] * 2, axis=0))")
        .code("tall = Image.new($source.mode, ($source.width, 2 * $source.height))\ntall.paste($source, (0, 0))\ntall.paste($source, (0, $source.height))\n$source = tall")
        .en([
            "put a second copy of the picture directly below it, which doubles the height",
            "stack the picture on top of a copy of itself, so that it is twice as high",
        ])
        .zh(["在图片下方紧接一份同样的图片，使高度加倍"])
        .counted_as("image collage"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::named;

    fn changed(operation: &str, arguments: &[(&str, Argument)], picture: &Picture) -> Picture {
        let named = named(operation).unwrap();
        let mut all = Arguments::default();
        for (name, argument) in arguments {
            all.0.insert((*name).to_owned(), argument.clone());
        }
        let crate::operation::Meaning::Edit(meaning) = &named.meaning else {
            panic!("{operation} is no edit");
        };
        let content = meaning(&all, &Content::Picture(picture.clone().into())).unwrap();
        content.picture().unwrap().clone()
    }

    fn gray(width: usize, pixels: &[u8]) -> Picture {
        Picture {
            width,
            height: pixels.len() / width,
            channels: 1,
            pixels: pixels.to_vec(),
        }
    }

    #[test]
    fn turns_are_those_that_their_names_say() {
        let picture = gray(3, &[1, 2, 3, 4, 5, 6]);
        let turned = |name| changed(name, &[], &picture);
        assert_eq!(turned("rotate_clockwise"), gray(2, &[4, 1, 5, 2, 6, 3]));
        assert_eq!(
            turned("rotate_counterclockwise"),
            gray(2, &[3, 6, 2, 5, 1, 4])
        );
        assert_eq!(turned("rotate_around"), gray(3, &[6, 5, 4, 3, 2, 1]));
        assert_eq!(turned("flip_horizontally"), gray(3, &[3, 2, 1, 6, 5, 4]));
        assert_eq!(turned("flip_vertically"), gray(3, &[4, 5, 6, 1, 2, 3]));
        assert_eq!(turned("transpose_picture"), gray(2, &[1, 4, 2, 5, 3, 6]));
        assert_eq!(turned("append_mirror").pixels[..6], [1, 2, 3, 3, 2, 1]);
    }

    #[test]
    fn blocks_are_averaged_with_halves_rounded_up_and_values_are_clipped() {
        let two = [("count", Argument::Count(2))];
        let picture = gray(2, &[1, 2, 3, 4]);
        assert_eq!(changed("average_blocks", &two, &picture), gray(1, &[3]));
        assert_eq!(changed("thin_out_picture", &two, &picture), gray(1, &[1]));
        assert_eq!(
            changed("enlarge_picture", &two, &gray(1, &[7])),
            gray(2, &[7; 4])
        );
        let darker = [("count", Argument::Count(-2))];
        assert_eq!(
            changed("brighten_picture", &darker, &picture),
            gray(2, &[0, 0, 1, 2])
        );
        let border = [
            ("count", Argument::Count(1)),
            ("color", Argument::Color(vec![9])),
        ];
        assert_eq!(
            changed("add_border", &border, &gray(1, &[5])),
            gray(3, &[9, 9, 9, 9, 5, 9, 9, 9, 9])
        );
    }
}
