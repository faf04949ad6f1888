//! Operations that change the colors of a picture, or paint areas of it. Pillow, NumPy and the reference agree on each value.

use rand::RngExt;
use rand::seq::IndexedRandom;

use super::edit_picture::{count, edit, size};
use crate::argument::{Argument, Arguments};
use crate::draw::{Draw, always, only_gray, only_rgb};
use crate::operation::Operation;
use crate::picture::Picture;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = colors();
    all.extend(paints());
    all
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
        .code("from PIL import ImageOps\n$source = ImageOps.grayscale($source)")
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
        .code("from PIL import ImageOps\nright, below = $width - $left - $source.width, $height - $top - $source.height\n$source = ImageOps.expand($source, ($left, $top, right, below), $color)")
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
