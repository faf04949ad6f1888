//! Operations that change a picture. Pillow, NumPy and the reference agree on each value.

use rand::RngExt;
use rand::seq::IndexedRandom;

use crate::argument::{Argument, Arguments};
use crate::content::{Content, Medium};
use crate::draw::{Draw, always, only_gray, only_rgb};
use crate::operation::Operation;
use crate::picture::Picture;

/// Sides of a picture that grows, in pixels.
const MAX_SIDE: usize = 1_200;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = turns();
    all.extend(cuts());
    all.extend(sizes());
    all.extend(colors());
    all.extend(paints());
    all.extend(["png", "bmp"].map(|kind| {
        let upper = kind.to_uppercase();
        Operation::save(Medium::Picture, format!("save_{kind}"))
            .code("$source.save($path)")
            .en([
                &format!("save the resulting picture as a {upper} file"),
                &format!("write what you get to a {upper} file of this size"),
            ])
            .zh([&format!("把得到的图片保存为{upper}文件")])
            .counted_as("convert image")
    }));
    all
}

fn edit(
    name: impl Into<String>,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    meaning: impl Fn(&Arguments, &Picture) -> Option<Picture> + Send + Sync + 'static,
) -> Operation {
    Operation::edit(Medium::Picture, name, draw, move |a, content| {
        let picture = meaning(a, content.picture()?)?;
        Some(Content::Picture(picture.into()))
    })
}

fn count(value: usize) -> Argument {
    Argument::Count(value as i64)
}

/// An argument as a size or a place.
fn size(a: &Arguments, key: &str) -> usize {
    usize::try_from(a.count(key)).unwrap_or(0)
}

/// A color of a picture's mode.
fn color(draw: &mut Draw<'_>) -> Option<Argument> {
    let channels = draw.picture()?.channels;
    let values = (0..channels).map(|_| {
        *[0, 32, 64, 90, 128, 180, 200, 230, 255]
            .choose(draw.rng)
            .unwrap_or(&0)
    });
    Some(Argument::Color(values.collect()))
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
        .en([
            "put a second copy of the picture directly below it, which doubles the height",
            "stack the picture on top of a copy of itself, so that it is twice as high",
        ])
        .zh(["在图片下方紧接一份同样的图片，使高度加倍"])
        .counted_as("image collage"),
    ]
}

/// Pillow's gray: ITU-R 601-2 luma in fixed point.
pub(super) fn luma(color: &[u8]) -> u8 {
    match *color {
        [red, green, blue] => {
            let sum = u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471;
            ((sum + 0x8000) >> 16) as u8
        }
        [gray, ..] => gray,
        [] => 0,
    }
}

/// Names of the channels in English and Chinese.
pub(super) const CHANNELS: [(&str, &str); 3] =
    [("red", "红色"), ("green", "绿色"), ("blue", "蓝色")];

/// Pixels that change by their own value. What Python does with a picture of another mode holds here, too: a changed graph
/// shows it.
fn colors() -> Vec<Operation> {
    let step = |draw: &mut Draw<'_>| {
        let by = *[-70, -50, -40, -30, 30, 40, 50, 60].choose(draw.rng)?;
        Some(Arguments::new([("count", Argument::Count(by))]))
    };
    let level = |draw: &mut Draw<'_>| {
        let picture = draw.picture()?;
        let mut values: Vec<u8> = picture.channel(0).collect();
        values.sort_unstable();
        let level = values.get(values.len() * draw.rng.random_range(30..70) / 100)?;
        Some(Arguments::new([(
            "count",
            Argument::Count(i64::from(*level)),
        )]))
    };
    let gray_level = move |draw: &mut Draw<'_>| {
        only_gray(draw)?;
        let arguments = level(draw)?;
        let picture = draw.picture()?;
        let levels: std::collections::BTreeSet<u8> = picture.channel(0).collect();
        (levels.len() > 2).then_some(arguments)
    };
    let bits = |draw: &mut Draw<'_>| {
        let bits = draw.count(1, 4);
        Some(Arguments::new([("count", Argument::Count(bits))]))
    };
    let at_least = |a: &Arguments, v: u8| i64::from(v) >= a.count("count");
    let mut all = vec![
        edit("gray_picture", only_rgb, |_, picture| {
            let pixels = picture.colors().map(luma).collect();
            Some(Picture { channels: 1, pixels, ..picture.clone() })
        })
        .code("$source = $source.convert(\"L\")")
        .en([
            "convert the picture to grayscale (ITU-R 601-2 luma, L = 0.299 R + 0.587 G + 0.114 B, as Pillow's mode L)",
            "turn the picture into one gray channel with Pillow's weights for mode L (0.299 R + 0.587 G + 0.114 B)",
        ])
        .zh(["把图片转换为灰度图（L = 0.299 R + 0.587 G + 0.114 B，同Pillow的L模式）"])
        .counted_as("greyscale"),
        edit("invert_picture", always, |_, picture| Some(picture.map(|v| 255 - v)))
            .pandas("from PIL import ImageOps\n$source = ImageOps.invert($source)")
            .pandas("$source = $source.point(lambda v: 255 - v)")
            .code("$source = Image.fromarray(255 - np.asarray($source))")
            .en(["invert the picture: each channel value v becomes 255 - v", "make a negative of the picture (255 - v for each value v)"])
            .zh(["把图片反色：每个通道值v变为255 - v"])
            .counted_as("invert colours"),
        edit("threshold_picture", gray_level, move |a, picture| {
            Some(picture.map(|v| if at_least(a, v) { 255 } else { 0 }))
        })
        .pandas("$source = $source.point(lambda v: 255 if v >= $count else 0)")
        .code("$source = Image.fromarray(np.where(np.asarray($source) >= $count, 255, 0).astype(np.uint8))")
        .en([
            "turn the gray levels into black and white: from $count on they become 255, below that 0 (keep 8 bits per pixel)",
            "apply a threshold: pixels of at least $count become white (255), all others black (0), still with 8 bits per pixel",
        ])
        .zh(["按阈值二值化：灰度值不小于$count的像素变为255，其余变为0（仍为每像素8位）"])
        .counted_as("threshold"),
        edit("solarize_picture", level, move |a, picture| {
            Some(picture.map(|v| if at_least(a, v) { 255 - v } else { v }))
        })
        .pandas("from PIL import ImageOps\n$source = ImageOps.solarize($source, $count)")
        .code("pixels = np.asarray($source)\n$source = Image.fromarray(np.where(pixels >= $count, 255 - pixels, pixels).astype(np.uint8))")
        .en([
            "invert the channel values that are at least $count (v becomes 255 - v) and leave the smaller ones as they are",
            "solarize the picture with the threshold $count: values of $count and more become 255 minus the value",
        ])
        .zh(["把不小于$count的通道值v变为255 - v，较小的不变"])
        .counted_as("invert colours"),
        edit("brighten_picture", step, |a, picture| {
            let by = a.count("count");
            Some(picture.map(|v| (i64::from(v) + by).clamp(0, 255) as u8))
        })
        .pandas("$source = $source.point(lambda v: max(0, min(255, v + $count)))")
        .code("$source = Image.fromarray(np.clip(np.asarray($source).astype(int) + $count, 0, 255).astype(np.uint8))")
        .en([
            "add $count to every channel value and limit the results to 0 to 255",
            "change the brightness by adding $count to all values, clipped to the range from 0 to 255",
        ])
        .zh(["给每个通道值加上$count，结果限制在0到255之间"])
        .counted_as("brightness and contrast"),
        edit("posterize_picture", bits, |a, picture| {
            let dropped = 8 - a.count("count").clamp(1, 8) as u32;
            Some(picture.map(|v| (v >> dropped) << dropped))
        })
        .pandas("from PIL import ImageOps\n$source = ImageOps.posterize($source, $count)")
        .code("$source = Image.fromarray((np.asarray($source) >> (8 - $count)) << (8 - $count))")
        .en([
            "keep only the $count highest bits of each channel value and set the lower ones to 0",
            "posterize the picture to $count bits per channel (the other bits of each value become 0)",
        ])
        .zh(["每个通道值只保留最高的$count位，其余位置0"])
        .counted_as("palette"),
        edit("rotate_channels", only_rgb, |_, picture| {
            (!picture.is_gray()).then(|| {
                Picture::from_fn(picture.width, picture.height, 3, |x, y, channel| {
                    picture.at(x, y, (channel + 1) % 3)
                })
            })
        })
        .pandas("red, green, blue = $source.split()\n$source = Image.merge(\"RGB\", (green, blue, red))")
        .code("$source = Image.fromarray(np.asarray($source)[..., [1, 2, 0]])")
        .en([
            "exchange the channels: the new red is the old green, the new green the old blue, the new blue the old red",
            "reorder the color channels so that red, green and blue take the values of green, blue and red",
        ])
        .zh(["交换颜色通道：新的红、绿、蓝分别取原来的绿、蓝、红"])
        .counted_as("colour channels"),
        edit("swap_red_and_blue_channel", only_rgb, |_, picture| {
            (!picture.is_gray()).then(|| {
                Picture::from_fn(picture.width, picture.height, 3, |x, y, channel| {
                    picture.at(x, y, 2 - channel)
                })
            })
        })
        .pandas("red, green, blue = $source.split()\n$source = Image.merge(\"RGB\", (blue, green, red))")
        .code("$source = Image.fromarray(np.asarray($source)[..., ::-1])")
        .en(["exchange the red and the blue channel", "swap red and blue in every pixel"])
        .zh(["交换红色和蓝色通道"])
        .counted_as("colour channels"),
    ];
    for (channel, (en, zh)) in CHANNELS.into_iter().enumerate() {
        all.push(
            edit(format!("keep_channel_{en}"), only_rgb, move |_, picture| {
                (channel < picture.channels).then(|| Picture {
                    channels: 1,
                    pixels: picture.channel(channel).collect(),
                    ..picture.clone()
                })
            })
            .pandas(format!("$source = $source.split()[{channel}]"))
            .pandas(format!("$source = $source.getchannel({channel})"))
            .code(&format!(
                "$source = Image.fromarray(np.asarray($source)[..., {channel}])"
            ))
            .en([
                &format!("take the {en} channel alone as a grayscale picture"),
                &format!("keep only the {en} channel, as a gray picture of its values"),
            ])
            .zh([&format!("只取{zh}通道作为灰度图")])
            .counted_as("colour channels"),
        );
        all.push(
            edit(format!("clear_channel_{en}"), only_rgb, move |_, picture| {
                (!picture.is_gray()).then(|| {
                    Picture::from_fn(picture.width, picture.height, 3, |x, y, at| {
                        if at == channel { 0 } else { picture.at(x, y, at) }
                    })
                })
            })
            .pandas(format!(
                "pixels = np.array($source)\npixels[..., {channel}] = 0\n$source = Image.fromarray(pixels)"
            ))
            .code(&format!(
                "channels = list($source.split())\nchannels[{channel}] = channels[{channel}].point(lambda v: 0)\n$source = Image.merge(\"RGB\", channels)"
            ))
            .en([
                &format!("set the {en} channel to 0 everywhere"),
                &format!("remove all {en} from the picture (its {en} values become 0)"),
            ])
            .zh([&format!("把{zh}通道全部置为0")])
            .counted_as("colour channels"),
        );
    }
    all
}

/// Paints with the argument `color` wherever `from` names no pixel of the picture.
fn painted(
    a: &Arguments,
    (width, height): (usize, usize),
    picture: &Picture,
    from: impl Fn(usize, usize) -> Option<(usize, usize)>,
) -> Option<Picture> {
    let color = a.color("color");
    (color.len() == picture.channels).then(|| {
        Picture::from_fn(width, height, picture.channels, |x, y, channel| {
            from(x, y).map_or(color[channel], |(x, y)| picture.at(x, y, channel))
        })
    })
}

/// Areas of one color: borders, canvases, boxes.
fn paints() -> Vec<Operation> {
    let border = |draw: &mut Draw<'_>| {
        let color = color(draw)?;
        let width = draw.count(3, 30);
        Some(Arguments::new([
            ("count", Argument::Count(width)),
            ("color", color),
        ]))
    };
    let canvas = |draw: &mut Draw<'_>| {
        let picture = draw.picture()?;
        let color = color(draw)?;
        let (right, bottom) = (draw.count(8, 80) as usize, draw.count(8, 80) as usize);
        let left = draw.rng.random_range(0..right);
        let top = draw.rng.random_range(0..bottom);
        Some(Arguments::new([
            ("width", count(picture.width + right)),
            ("height", count(picture.height + bottom)),
            ("left", count(left)),
            ("top", count(top)),
            ("color", color),
        ]))
    };
    let area = |draw: &mut Draw<'_>| {
        let picture = draw.picture()?;
        let color = color(draw)?;
        let mut range = |side: usize| {
            let from = draw.rng.random_range(0..side / 2);
            (from, draw.rng.random_range(from + side / 4..=side))
        };
        let ((left, right), (top, bottom)) = (range(picture.width), range(picture.height));
        Some(Arguments::new([
            ("left", count(left)),
            ("top", count(top)),
            ("right", count(right)),
            ("bottom", count(bottom)),
            ("color", color),
        ]))
    };
    let inside = |picture: &Picture, x: Option<usize>, y: Option<usize>| {
        Some((
            x.filter(|x| *x < picture.width)?,
            y.filter(|y| *y < picture.height)?,
        ))
    };
    vec![
        edit("add_border", border, move |a, picture| {
            let border = size(a, "count");
            let sides = (picture.width + 2 * border, picture.height + 2 * border);
            painted(a, sides, picture, |x, y| inside(picture, x.checked_sub(border), y.checked_sub(border)))
        })
        .pandas("from PIL import ImageOps\n$source = ImageOps.expand($source, border=$count, fill=$color)")
        .code(
            "framed = Image.new($source.mode, ($source.width + 2 * $count, $source.height + 2 * $count), $color)\n\
             framed.paste($source, ($count, $count))\n$source = framed",
        )
        .en([
            "add a border of $count pixels in $color on all four sides, outside of the picture",
            "frame the picture with $count pixels of $color on every side (the picture grows by that)",
        ])
        .zh(["在图片四周外侧各加$count像素的边框，颜色为$color"])
        .counted_as("add border"),
        edit("paste_on_canvas", canvas, move |a, picture| {
            let (left, top) = (size(a, "left"), size(a, "top"));
            let sides = (size(a, "width"), size(a, "height"));
            painted(a, sides, picture, |x, y| inside(picture, x.checked_sub(left), y.checked_sub(top)))
        })
        .code(
            "canvas = Image.new($source.mode, ($width, $height), $color)\n\
             canvas.paste($source, ($left, $top))\n$source = canvas",
        )
        .en([
            "put the picture on a new canvas of $width by $height pixels (width by height) filled with $color, its top-left pixel at column $left and row $top, counted from 0",
            "make a canvas $width pixels wide and $height pixels high in $color and paste the picture onto it with its upper-left corner at x = $left, y = $top",
        ])
        .zh(["新建宽$width、高$height像素、颜色为$color的画布，把图片贴上去，左上角位于x = $left、y = $top"])
        .counted_as("image collage"),
        edit("fill_box", area, move |a, picture| {
            let (left, top) = (size(a, "left"), size(a, "top"));
            let (right, bottom) = (size(a, "right"), size(a, "bottom"));
            let covered = move |x: usize, y: usize| (left..right).contains(&x) && (top..bottom).contains(&y);
            painted(a, (picture.width, picture.height), picture, |x, y| (!covered(x, y)).then_some((x, y)))
        })
        .pandas("$source = $source.copy()\n$source.paste($color, ($left, $top, $right, $bottom))")
        .code("pixels = np.array($source)\npixels[$top:$bottom, $left:$right] = $color\n$source = Image.fromarray(pixels)")
        .en([
            "fill the box from column $left to $right and from row $top to $bottom with $color (counted from 0, the last column and row not included)",
            "paint a filled rectangle in $color over the columns $left up to but not including $right and the rows $top up to but not including $bottom",
        ])
        .zh(["用$color填充矩形区域：列从$left到$right、行从$top到$bottom（从0起，不含右、下边界）"])
        .counted_as("draw shape"),
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
