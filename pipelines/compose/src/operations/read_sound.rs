//! Operations that ask for a number of a sound, or read it into a table of short windows.

use polars::prelude::{Column, DataFrame};
use rand::RngExt;
use rand::seq::IndexedRandom;

use crate::argument::{Argument, Arguments};
use crate::content::Medium;
use crate::draw::{Draw, always};
use crate::operation::{Operation, Role};
use crate::sound::{FULL, Sound};

/// Windows of a table.
const WINDOWS: std::ops::RangeInclusive<usize> = 8..=1_500;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = answers();
    all.push(windows());
    all
}

/// An operation that ends a task with a number; several where there is a tie.
fn answer(
    name: &str,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    value: impl Fn(&Arguments, &Sound) -> Column + Send + Sync + 'static,
) -> Operation {
    Operation::read(
        Medium::Sound,
        name,
        Role::Answer,
        draw,
        move |a, content| {
            let column = value(a, content.sound()?).with_name("answer".into());
            DataFrame::new(column.len(), vec![column]).ok()
        },
    )
    .counted_as("audio statistics")
}

fn decimal(value: f64) -> Column {
    Column::new("answer".into(), vec![value])
}

fn whole(value: usize) -> Column {
    Column::new("answer".into(), vec![value as i64])
}

/// Root mean square, full scale being 1.
fn rms(samples: &[i16]) -> f64 {
    let squares: f64 = samples
        .iter()
        .map(|value| (f64::from(*value) / FULL).powi(2))
        .sum();
    (squares / samples.len().max(1) as f64).sqrt()
}

fn largest(samples: &[i16]) -> usize {
    let sizes = samples
        .iter()
        .map(|value| usize::from(value.unsigned_abs()));
    sizes.max().unwrap_or(0)
}

fn answers() -> Vec<Operation> {
    let level = |draw: &mut Draw<'_>| {
        let largest = largest(&draw.sound()?.samples) as f64;
        let level = (largest * draw.rng.random_range(0.2..0.7) / 50.0).round() * 50.0;
        (level >= 50.0).then(|| Arguments::new([("count", Argument::Count(level as i64))]))
    };
    vec![
        answer("answer_sound_duration", always, |_, sound| decimal(sound.seconds()))
            .code("answer = len($source) / rate")
            .code("frames, channels = $source.shape\nanswer = frames / rate")
            .en(["report the duration of the sound in seconds", "give the length of what is left in seconds"])
            .zh(["求声音的时长（秒）"]),
        answer("answer_sound_rms", always, |_, sound| decimal(rms(&sound.samples)))
            .code("answer = float(np.sqrt(np.mean(($source / 32768) ** 2)))")
            .code("levels = $source.astype(float) / 32768\nanswer = float(np.sqrt((levels ** 2).mean()))")
            .en([
                "report the root mean square of all samples (of all channels), full scale being 1 (divide by 32768)",
                "compute the RMS level over all samples, with the samples divided by 32768",
            ])
            .zh(["求所有采样的均方根（满幅为1，即采样除以32768）"]),
        answer("answer_sound_peak", always, |_, sound| whole(largest(&sound.samples)))
            .code("answer = int(np.abs($source.astype(int)).max())")
            .code("answer = max(int($source.max()), -int($source.min()))")
            .en([
                "report the largest absolute value of a sample, as a 16-bit whole number",
                "find the peak: the largest absolute sample value (whole number, 16 bits)",
            ])
            .zh(["求采样绝对值的最大值（16位整数）"]),
        answer("answer_samples_above", level, |a, sound| {
            let above = sound.channel(0).filter(|value| i64::from(value.unsigned_abs()) > a.count("count"));
            whole(above.count())
        })
        .code("answer = int((np.abs($source[:, 0].astype(int)) > $count).sum())")
        .code("left = $source[:, 0].astype(int)\nanswer = int(np.count_nonzero((left > $count) | (left < -$count)))")
        .en([
            "report how many samples of the first channel have an absolute value above $count (16-bit whole numbers)",
            "count the samples in the first channel whose absolute 16-bit value is greater than $count",
        ])
        .zh(["求第一声道中绝对值大于$count的采样个数（16位整数）"]),
        answer("answer_sign_changes", always, |_, sound| {
            let negative: Vec<bool> = sound.channel(0).map(|value| value < 0).collect();
            whole(negative.windows(2).filter(|two| two[0] != two[1]).count())
        })
        .code("answer = int(np.count_nonzero(np.diff($source[:, 0] < 0)))")
        .code("negative = $source[:, 0] < 0\nanswer = int((negative[1:] != negative[:-1]).sum())")
        .en([
            "report how often neighboring samples of the first channel change between negative and not negative (0 counts as not negative)",
            "count the sign changes between successive samples of the first channel, 0 taken as positive",
        ])
        .zh(["求第一声道相邻采样在负数与非负数之间变化的次数（0视为非负）"]),
        answer("answer_time_of_peak", always, |_, sound| {
            let sizes: Vec<u16> = sound.channel(0).map(i16::unsigned_abs).collect();
            let most = sizes.iter().max();
            let at = (0..sizes.len()).filter(|at| sizes.get(*at) == most);
            let times: Vec<f64> = at.map(|at| at as f64 / f64::from(sound.rate)).collect();
            Column::new("answer".into(), times)
        })
        .code("answer = int(np.abs($source[:, 0].astype(int)).argmax()) / rate")
        .code("left = np.abs($source[:, 0].astype(int))\nanswer = int(np.flatnonzero(left == left.max())[0]) / rate")
        .en([
            "report at how many seconds from the start the first channel has its largest absolute sample",
            "find the sample of the first channel with the largest absolute value and give its time in seconds (its index from 0 divided by the sample rate)",
        ])
        .zh(["求第一声道绝对值最大的采样所在的时间（秒，即从0起的序号除以采样率）"]),
    ]
}

/// Level and peak of windows that follow each other.
fn windows() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let sound = draw.sound()?;
        let milliseconds = *[10, 20, 25, 40, 50, 100, 200].choose(draw.rng)?;
        let size = sound.rate as i64 * milliseconds / 1000;
        let windows = (sound.frames() as i64).checked_div(size)?;
        let exact = (i64::from(sound.rate) * milliseconds) % 1000 == 0;
        let mut name = |names: &[&str]| {
            let name = names.choose(draw.rng).copied().unwrap_or_default();
            Argument::New(name.to_owned())
        };
        let arguments = Arguments::new([
            ("count", Argument::Count(milliseconds)),
            ("window", name(&["window", "part", "n", "frame"])),
            ("rms", name(&["rms", "level", "loudness"])),
            ("peak", name(&["peak", "maximum", "max_abs"])),
        ]);
        (exact && WINDOWS.contains(&(windows as usize))).then_some(arguments)
    };
    Operation::read(Medium::Sound, "read_sound_windows", Role::Read, draw, |a, content| {
        let sound = content.sound()?;
        let frames = i64::from(sound.rate) * a.count("count") / 1000;
        let size = usize::try_from(frames).ok().filter(|size| *size > 0)? * sound.channels;
        let windows: Vec<&[i16]> = sound.samples.chunks_exact(size).collect();
        let numbers: Vec<i64> = (0..windows.len() as i64).collect();
        let levels: Vec<f64> = windows.iter().map(|window| rms(window)).collect();
        let peaks: Vec<i64> = windows.iter().map(|window| largest(window) as i64).collect();
        let columns = vec![
            Column::new(a.name("window").into(), numbers),
            Column::new(a.name("rms").into(), levels),
            Column::new(a.name("peak").into(), peaks),
        ];
        DataFrame::new(windows.len(), columns).ok()
    })
    .rows(
        "size = rate * $count // 1000\n\
         windows = [$source[at:at + size].astype(float) for at in range(0, len($source) - size + 1, size)]\n",
        "[{$window: number, $rms: float(np.sqrt(np.mean((window / 32768) ** 2))), $peak: int(np.abs(window).max())} for number, window in enumerate(windows)]",
    )
    .en([
        "divide the sound into windows of $count ms that follow each other (an incomplete last one is left out) and make a table with the columns $window (from 0), $rms (root mean square of the samples of all channels, divided by 32768) and $peak (largest absolute sample as a 16-bit whole number)",
        "make a table of windows of $count ms, one after the other and without the incomplete last one: $window (number from 0), $rms (RMS over all channels, full scale 32768 being 1) and $peak (largest absolute 16-bit sample)",
    ])
    .zh(["把声音依次划分为$count毫秒的窗口（舍去末尾不完整的），建表，列为$window（从0起）、$rms（所有声道采样除以32768后的均方根）和$peak（采样绝对值的最大值，16位整数）"])
    .counted_as("audio statistics")
}
