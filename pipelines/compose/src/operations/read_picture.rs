//! Operations that ask for a number of a picture, or read it into a table: tiles, rows, colors.

use std::collections::BTreeMap;

use polars::prelude::{Column, DataFrame};
use rand::seq::IndexedRandom;

use super::color_picture::{CHANNELS, luma};
use crate::argument::{Argument, Arguments};
use crate::content::Medium;
use crate::draw::{Draw, always, only_gray, only_rgb};
use crate::operation::{Operation, Order, Role};
use crate::picture::Picture;

/// Most tiles of a picture.
const MAX_TILES: usize = 2_000;
/// Different colors in a table of colors.
const COLORS: std::ops::RangeInclusive<usize> = 6..=400;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = answers();
    for (channel, (en, zh)) in CHANNELS.into_iter().enumerate() {
        all.push(mean_of(channel, en, zh));
        all.push(pixels_above(channel, en, zh));
    }
    all.extend(tables());
    all
}

/// An operation that ends a task with an answer: one value, or several where the picture has a tie.
fn answer(
    name: impl Into<String>,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    values: impl Fn(&Arguments, &Picture) -> Option<Column> + Send + Sync + 'static,
) -> Operation {
    Operation::read(
        Medium::Picture,
        name,
        Role::Answer,
        draw,
        move |a, content| {
            let column = values(a, content.picture()?)?.with_name("answer".into());
            DataFrame::new(column.len(), vec![column]).ok()
        },
    )
}

fn whole(values: impl IntoIterator<Item = usize>) -> Column {
    let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
    Column::new("answer".into(), values)
}

fn texts(values: impl IntoIterator<Item = String>) -> Column {
    Column::new("answer".into(), values.into_iter().collect::<Vec<String>>())
}

fn decimal(value: f64) -> Column {
    Column::new("answer".into(), vec![value])
}

/// The mean of some values.
fn mean(values: impl Iterator<Item = u8>) -> f64 {
    let (mut sum, mut count) = (0u64, 0u64);
    for value in values {
        sum += u64::from(value);
        count += 1;
    }
    sum as f64 / count.max(1) as f64
}

/// Six hexadecimal digits of a color.
fn hex(color: &[u8]) -> String {
    color.iter().map(|value| format!("{value:02x}")).collect()
}

/// How many pixels each color has.
fn color_counts(picture: &Picture) -> BTreeMap<&[u8], usize> {
    let mut counts = BTreeMap::new();
    for color in picture.colors() {
        *counts.entry(color).or_default() += 1;
    }
    counts
}

/// The places of the largest or smallest of some numbers; several where they are equal.
fn extremes(values: &[u64], largest: bool) -> Vec<usize> {
    let end = match largest {
        true => values.iter().max(),
        false => values.iter().min(),
    };
    let at = (0..values.len()).filter(|at| values.get(*at) == end);
    at.collect()
}

/// The sums of the values in each row.
fn row_sums(picture: &Picture) -> Vec<u64> {
    let rows = picture
        .pixels
        .chunks_exact(picture.width * picture.channels);
    rows.map(|row| row.iter().map(|value| u64::from(*value)).sum())
        .collect()
}

/// The sums of the values in each column.
fn column_sums(picture: &Picture) -> Vec<u64> {
    let mut sums = vec![0; picture.width];
    for (at, color) in picture.colors().enumerate() {
        sums[at % picture.width] += color.iter().map(|value| u64::from(*value)).sum::<u64>();
    }
    sums
}

fn answers() -> Vec<Operation> {
    let level = |draw: &mut Draw<'_>| {
        only_gray(draw)?;
        above(draw, 0)
    };
    vec![
        answer("answer_gray_mean", only_gray, |_, picture| {
            Some(decimal(mean(picture.pixels.iter().copied())))
        })
        .pandas("answer = float(np.asarray($source).mean())")
        .code("answer = sum(level * count for level, count in enumerate($source.histogram())) / ($source.width * $source.height)")
        .en(["report the mean gray level of the picture", "compute the average of all pixel values"])
        .zh(["求图片灰度值的平均值"]),
        answer("answer_gray_above", level, |a, picture| {
            let above = picture.pixels.iter().filter(|v| i64::from(**v) > a.count("count"));
            Some(whole([above.count()]))
        })
        .pandas("answer = int((np.asarray($source) > $count).sum())")
        .code("answer = sum($source.histogram()[$count + 1:])")
        .en(["report how many pixels have a gray level above $count", "count the pixels that are brighter than $count"])
        .zh(["求灰度值大于$count的像素个数"]),
        answer("answer_luma_mean", only_rgb, |_, picture| {
            Some(decimal(mean(picture.colors().map(luma))))
        })
        .code("answer = float(np.asarray($source.convert(\"L\")).mean())")
        .code("from PIL import ImageStat\nanswer = ImageStat.Stat($source.convert(\"L\")).mean[0]")
        .en([
            "report the mean brightness: the average of the gray levels that Pillow's mode L gives (0.299 R + 0.587 G + 0.114 B, each rounded)",
            "convert a copy to Pillow's mode L (0.299 R + 0.587 G + 0.114 B, rounded) and report its mean",
        ])
        .zh(["求平均亮度：按Pillow的L模式（0.299 R + 0.587 G + 0.114 B，逐像素取整）转换后的灰度平均值"]),
        answer("answer_different_colors", always, |_, picture| {
            Some(whole([color_counts(picture).len()]))
        })
        .pandas("pixels = np.asarray($source)\nanswer = len(np.unique(pixels.reshape(-1, *pixels.shape[2:]), axis=0))")
        .code("answer = len($source.getcolors($source.width * $source.height))")
        .en(["report how many different colors (or gray levels) the picture has", "count the distinct pixel values of the picture"])
        .zh(["求图片中不同颜色（或灰度值）的个数"]),
        answer("answer_common_color", only_rgb, |_, picture| {
            let counts = color_counts(picture);
            let most = counts.values().max().copied();
            let common = counts.into_iter().filter(|(_, count)| Some(*count) == most);
            Some(texts(common.map(|(color, _)| hex(color))))
        })
        .code("count, color = max($source.getcolors($source.width * $source.height))\nanswer = \"%02x%02x%02x\" % color")
        .code("colors, counts = np.unique(np.asarray($source).reshape(-1, 3), axis=0, return_counts=True)\nanswer = \"%02x%02x%02x\" % tuple(colors[counts.argmax()].tolist())")
        .en([
            "report the color that most pixels have, as six lower-case hexadecimal digits for red, green and blue without `#`",
            "name the most frequent color as rrggbb in lower-case hexadecimal digits (no `#` before it)",
        ])
        .zh(["求像素最多的颜色，写成六位小写十六进制数rrggbb（不带“#”）"]),
        answer("answer_brightest_row", always, |_, picture| {
            Some(whole(extremes(&row_sums(picture), true)))
        })
        .code("rows = np.asarray($source).astype(int).reshape($source.height, -1).sum(axis=1)\nanswer = int(rows.argmax())")
        .code("sums = [int(row.sum()) for row in np.asarray($source).astype(int)]\nanswer = sums.index(max(sums))")
        .en([
            "report the number of the row of pixels with the largest sum of all its channel values, counting from 0 at the top",
            "find the row whose channel values add up to the most and give its index (0 is the top row)",
        ])
        .zh(["求各通道值总和最大的像素行的行号（最上一行为0）"]),
        answer("answer_darkest_column", always, |_, picture| {
            Some(whole(extremes(&column_sums(picture), false)))
        })
        .code("columns = np.asarray($source).astype(int).reshape($source.height, $source.width, -1).sum(axis=(0, 2))\nanswer = int(columns.argmin())")
        .code("columns = np.asarray($source).astype(int).swapaxes(0, 1)\nsums = [int(column.sum()) for column in columns]\nanswer = sums.index(min(sums))")
        .en([
            "report the number of the column of pixels with the smallest sum of all its channel values, counting from 0 at the left",
            "find the column whose channel values add up to the least and give its index (0 is the leftmost)",
        ])
        .zh(["求各通道值总和最小的像素列的列号（最左一列为0）"]),
        answer("answer_pixel_count", always, |_, picture| {
            Some(whole([picture.width * picture.height]))
        })
        .pandas("answer = $source.width * $source.height")
        .code("answer = $source.size[0] * $source.size[1]")
        .en(["report how many pixels the picture has now (width times height)", "give the number of pixels of the result, width times height"])
        .zh(["求图片现在的像素总数（宽乘高）"])
        .counted_as("image information"),
    ]
    .into_iter()
    .map(colored)
    .collect()
}

fn colored(operation: Operation) -> Operation {
    match operation.name == "answer_pixel_count" {
        true => operation,
        false => operation.counted_as("colour statistics"),
    }
}

/// A level that some pixels exceed in a channel and others do not.
fn above(draw: &mut Draw<'_>, channel: usize) -> Option<Arguments> {
    let picture = draw.picture()?;
    let mut values: Vec<u8> = picture.channel(channel).collect();
    values.sort_unstable();
    let share = draw.share(0.2, 0.8);
    let level = *values.get((values.len() as f64 * share) as usize)?;
    let divides = values.first() < Some(&level) && values.last() > Some(&level);
    divides.then(|| Arguments::new([("count", Argument::Count(i64::from(level)))]))
}

fn mean_of(channel: usize, en: &str, zh: &str) -> Operation {
    answer(format!("answer_mean_{en}"), only_rgb, move |_, picture| {
        (channel < picture.channels).then(|| decimal(mean(picture.channel(channel))))
    })
    .pandas(format!("answer = float(np.asarray($source)[..., {channel}].mean())"))
    .code(&format!(
        "levels = $source.getchannel({channel}).histogram()\n\
         answer = sum(level * count for level, count in enumerate(levels)) / ($source.width * $source.height)"
    ))
    .en([
        &format!("report the mean of the {en} channel (0 to 255)"),
        &format!("compute the average {en} value over all pixels, on the scale from 0 to 255"),
    ])
    .zh([&format!("求{zh}通道的平均值（0到255）")])
    .counted_as("colour statistics")
}

fn pixels_above(channel: usize, en: &str, zh: &str) -> Operation {
    let level = move |draw: &mut Draw<'_>| {
        only_rgb(draw)?;
        above(draw, channel)
    };
    answer(
        format!("answer_pixels_with_{en}"),
        level,
        move |a, picture| {
            (channel < picture.channels).then(|| {
                let above = picture
                    .channel(channel)
                    .filter(|v| i64::from(*v) > a.count("count"));
                whole([above.count()])
            })
        },
    )
    .pandas(format!(
        "answer = int((np.asarray($source)[..., {channel}] > $count).sum())"
    ))
    .code(&format!(
        "answer = sum($source.getchannel({channel}).histogram()[$count + 1:])"
    ))
    .en([
        &format!("report how many pixels have a {en} value above $count"),
        &format!("count the pixels whose {en} channel is greater than $count"),
    ])
    .zh([&format!("求{zh}值大于$count的像素个数")])
    .counted_as("colour statistics")
}

/// An operation that reads a picture into a table.
fn table(
    name: &str,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    columns: impl Fn(&Arguments, &Picture) -> Option<Vec<Column>> + Send + Sync + 'static,
) -> Operation {
    Operation::read(
        Medium::Picture,
        name,
        Role::Read,
        draw,
        move |a, content| {
            let columns = columns(a, content.picture()?)?;
            DataFrame::new(columns.first().map_or(0, Column::len), columns).ok()
        },
    )
    .counted_as("colour statistics")
}

/// A column of whole numbers with the name of an argument.
fn counts(a: &Arguments, key: &str, values: impl IntoIterator<Item = usize>) -> Column {
    whole(values).with_name(a.name(key).into())
}

/// A column of means with the name of an argument.
fn means(a: &Arguments, key: &str, values: impl IntoIterator<Item = f64>) -> Column {
    Column::new(a.name(key).into(), values.into_iter().collect::<Vec<f64>>())
}

/// Names for the columns of a table.
fn named(draw: &mut Draw<'_>, names: &[(&str, &[&str])]) -> Arguments {
    let mut arguments = Arguments::default();
    for (key, choices) in names {
        let name = choices.choose(draw.rng).copied().unwrap_or(key);
        arguments
            .0
            .insert((*key).to_owned(), Argument::New(name.to_owned()));
    }
    arguments
}

const X: (&str, &[&str]) = ("x", &["column", "x", "tile_x", "col"]);
const Y: (&str, &[&str]) = ("y", &["row", "y", "tile_y", "line"]);
const LEVEL: (&str, &[&str]) = ("level", &["level", "brightness", "gray", "mean"]);
const RED: (&str, &[&str]) = ("red", &["red", "r", "mean_red"]);
const GREEN: (&str, &[&str]) = ("green", &["green", "g", "mean_green"]);
const BLUE: (&str, &[&str]) = ("blue", &["blue", "b", "mean_blue"]);
const COLOR: (&str, &[&str]) = ("color", &["color", "hex", "rgb"]);
const PIXELS: (&str, &[&str]) = ("pixels", &["pixels", "count", "n"]);

/// An edge of square tiles that are neither few nor many.
fn tile(draw: &mut Draw<'_>, names: &[(&str, &[&str])]) -> Option<Arguments> {
    let picture = draw.picture()?;
    let edge = *[4, 5, 8, 10, 12, 16, 20, 25, 32].choose(draw.rng)?;
    let tiles = (picture.width / edge) * (picture.height / edge);
    let mut arguments = named(draw, names);
    arguments
        .0
        .insert("count".into(), Argument::Count(edge as i64));
    (12..=MAX_TILES).contains(&tiles).then_some(arguments)
}

/// The tiles of a picture, row by row: their places and the mean of each channel.
fn tiles(a: &Arguments, picture: &Picture) -> (Vec<(usize, usize)>, Vec<Vec<f64>>) {
    let edge = usize::try_from(a.count("count")).unwrap_or(1).max(1);
    let (across, down) = (picture.width / edge, picture.height / edge);
    let places: Vec<(usize, usize)> = (0..down)
        .flat_map(|y| (0..across).map(move |x| (x, y)))
        .collect();
    let of = |channel: usize| {
        let mean_at = |(x, y): &(usize, usize)| {
            let inside = (0..edge * edge).map(|at| (x * edge + at % edge, y * edge + at / edge));
            mean(inside.map(|(x, y)| picture.at(x, y, channel)))
        };
        places.iter().map(mean_at).collect()
    };
    let means = (0..picture.channels).map(of).collect();
    (places, means)
}

fn tables() -> Vec<Operation> {
    let gray_tiles = |draw: &mut Draw<'_>| {
        only_gray(draw)?;
        tile(draw, &[X, Y, LEVEL])
    };
    let color_tiles = |draw: &mut Draw<'_>| {
        only_rgb(draw)?;
        tile(draw, &[X, Y, RED, GREEN, BLUE])
    };
    let rows = |draw: &mut Draw<'_>| {
        only_rgb(draw)?;
        Some(named(draw, &[Y, RED, GREEN, BLUE]))
    };
    let colors = |draw: &mut Draw<'_>| {
        only_rgb(draw)?;
        let few = COLORS.contains(&color_counts(draw.picture()?.as_ref()).len());
        few.then(|| named(draw, &[COLOR, PIXELS, RED, GREEN, BLUE]))
    };
    let levels = |draw: &mut Draw<'_>| {
        only_gray(draw)?;
        Some(named(draw, &[LEVEL, PIXELS]))
    };
    let places = |a: &Arguments, places: &[(usize, usize)]| {
        vec![
            counts(a, "x", places.iter().map(|(x, _)| *x)),
            counts(a, "y", places.iter().map(|(_, y)| *y)),
        ]
    };
    let cut_en = "divide the picture into tiles of $count by $count pixels from the top-left corner on (incomplete tiles at the right and lower edge are left out) and make a table with one row for each tile, row by row";
    let cut_zh = "从左上角起把图片划分为$count×$count像素的方块（舍去右侧和下侧不完整的方块），按行依次建表，每块一行";
    let loop_tiles = "pixels = np.asarray($source).astype(float)\n\
         down, across = pixels.shape[0] // $count, pixels.shape[1] // $count\n\
         blocks = pixels[:down * $count, :across * $count].reshape(down, $count, across, $count, -1).mean(axis=(1, 3))\n";
    vec![
        table("read_gray_tiles", gray_tiles, move |a, picture| {
            let (at, means_of) = tiles(a, picture);
            let mut columns = places(a, &at);
            columns.push(means(a, "level", means_of.into_iter().next()?));
            Some(columns)
        })
        .rows(
            loop_tiles,
            "[{$x: x, $y: y, $level: float(blocks[y, x, 0])} for y in range(down) for x in range(across)]",
        )
        .en([
            &format!("{cut_en}: $x and $y (column and row of the tile, from 0) and $level (mean gray level of its pixels)"),
            &format!("{cut_en}, whose columns are $x (the tile's column from 0), $y (its row from 0) and $level (the mean of its pixels)"),
        ])
        .zh([&format!("{cut_zh}，列为$x、$y（方块的列号和行号，从0起）和$level（块内灰度平均值）")]),
        table("read_color_tiles", color_tiles, move |a, picture| {
            let (at, means_of) = tiles(a, picture);
            let [red, green, blue] = <[Vec<f64>; 3]>::try_from(means_of).ok()?;
            let mut columns = places(a, &at);
            columns.extend([means(a, "red", red), means(a, "green", green), means(a, "blue", blue)]);
            Some(columns)
        })
        .rows(
            loop_tiles,
            "[{$x: x, $y: y, $red: float(blocks[y, x, 0]), $green: float(blocks[y, x, 1]), $blue: float(blocks[y, x, 2])} for y in range(down) for x in range(across)]",
        )
        .en([
            &format!("{cut_en}: $x and $y (column and row of the tile, from 0) and $red, $green, $blue (mean of each channel in it)"),
            &format!("{cut_en}, whose columns are $x (the tile's column from 0), $y (its row from 0) and the channel means $red, $green and $blue"),
        ])
        .zh([&format!("{cut_zh}，列为$x、$y（方块的列号和行号，从0起）以及$red、$green、$blue（块内红、绿、蓝通道的平均值）")]),
        table("read_pixel_rows", rows, |a, picture| {
            let row_mean = |channel: usize| {
                (0..picture.height).map(move |y| mean((0..picture.width).map(|x| picture.at(x, y, channel))))
            };
            (!picture.is_gray()).then(|| {
                vec![
                    counts(a, "y", 0..picture.height),
                    means(a, "red", row_mean(0)),
                    means(a, "green", row_mean(1)),
                    means(a, "blue", row_mean(2)),
                ]
            })
        })
        .rows(
            "means = np.asarray($source).mean(axis=1)\n",
            "[{$y: y, $red: float(red), $green: float(green), $blue: float(blue)} for y, (red, green, blue) in enumerate(means)]",
        )
        .en([
            "make a table with one row for each row of pixels, from top to bottom: $y (from 0) and $red, $green, $blue (mean of each channel over that row)",
            "average each channel along every row of pixels, in a table with the columns $y (0 at the top), $red, $green and $blue",
        ])
        .zh(["从上到下为每一行像素建一行表，列为$y（从0起）以及$red、$green、$blue（该行各通道的平均值）"]),
        table("read_colors", colors, |a, picture| {
            if picture.is_gray() {
                return None;
            }
            let found = color_counts(picture);
            let channel = |at: usize| found.keys().map(move |color| usize::from(color[at]));
            Some(vec![
                Column::new(a.name("color").into(), found.keys().map(|color| hex(color)).collect::<Vec<_>>()),
                counts(a, "pixels", found.values().copied()),
                counts(a, "red", channel(0)),
                counts(a, "green", channel(1)),
                counts(a, "blue", channel(2)),
            ])
        })
        .rows(
            "colors = $source.getcolors($source.width * $source.height)\n",
            "[{$color: \"%02x%02x%02x\" % color, $pixels: count, $red: color[0], $green: color[1], $blue: color[2]} for count, color in colors]",
        )
        .order(Order::Loses)
        .en([
            "make a table of the different colors of the picture: $color (six lower-case hexadecimal digits rrggbb), $pixels (how many pixels have it) and its values $red, $green and $blue",
            "count the pixels of each color, in a table with the columns $color (rrggbb in lower-case hexadecimal digits), $pixels, $red, $green and $blue (the values of the color)",
        ])
        .zh(["统计每种颜色的像素个数，建表，列为$color（六位小写十六进制rrggbb）、$pixels（像素个数）以及颜色的$red、$green、$blue值"]),
        table("read_gray_levels", levels, |a, picture| {
            let found = color_counts(picture);
            picture.is_gray().then(|| {
                vec![
                    counts(a, "level", found.keys().map(|color| usize::from(color[0]))),
                    counts(a, "pixels", found.values().copied()),
                ]
            })
        })
        .rows(
            "",
            "[{$level: level, $pixels: count} for level, count in enumerate($source.histogram()) if count]",
        )
        .en([
            "make a table of the gray levels that occur, ascending, with the columns $level and $pixels (how many pixels have it)",
            "count the pixels of each gray level that occurs: a table with the columns $level (ascending) and $pixels",
        ])
        .zh(["统计出现的每个灰度值的像素个数，按灰度值升序建表，列为$level和$pixels"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_means_and_ties() {
        let picture = Picture {
            width: 3,
            height: 2,
            channels: 1,
            pixels: vec![1, 2, 3, 3, 2, 1],
        };
        assert_eq!(row_sums(&picture), [6, 6]);
        assert_eq!(column_sums(&picture), [4, 4, 4]);
        assert_eq!(extremes(&[6, 7, 7], true), [1, 2]);
        assert_eq!(extremes(&[6, 7, 7], false), [0]);
        assert_eq!(mean(picture.channel(0)), 2.0);
        assert_eq!(hex(&[255, 0, 10]), "ff000a");
        assert_eq!(color_counts(&picture).len(), 3);
    }
}
