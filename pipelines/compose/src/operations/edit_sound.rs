//! Operations that change a sound. Samples are whole numbers of 16 bits in NumPy and in the reference, so both agree on
//! each of them.

use rand::RngExt;
use rand::seq::IndexedRandom;

use crate::argument::{Argument, Arguments};
use crate::content::{Content, Medium};
use crate::draw::{Draw, always};
use crate::operation::Operation;
use crate::sound::Sound;

/// Sample rates of a sound that is resampled.
const RATES: std::ops::RangeInclusive<u32> = 2_000..=96_000;
/// Longest sound that is lengthened, in seconds.
const MAX_SECONDS: f64 = 15.0;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = times();
    all.extend(levels());
    all.extend(channels());
    all.extend(rates());
    all.push(
        Operation::save(Medium::Sound, "save_wav")
            .code("sf.write($path, $source, rate, subtype=\"PCM_16\")")
            .code("import wave\nwith wave.open($path, \"wb\") as file:\n    file.setnchannels($source.shape[1])\n    file.setsampwidth(2)\n    file.setframerate(rate)\n    file.writeframes($source.tobytes())")
            .en([
                "save the resulting sound as a WAV file with samples of 16 bits",
                "write what you get to a 16-bit PCM WAV file",
            ])
            .zh(["把得到的声音保存为16位PCM的WAV文件"])
            .counted_as("convert audio"),
    );
    all
}

fn edit(
    name: &str,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    meaning: impl Fn(&Arguments, &Sound) -> Option<Sound> + Send + Sync + 'static,
) -> Operation {
    Operation::edit(Medium::Sound, name, draw, move |a, content| {
        let sound = meaning(a, content.sound()?)?;
        Some(Content::Sound(sound.into()))
    })
}

fn short(draw: &mut Draw<'_>) -> Option<Arguments> {
    (draw.sound()?.seconds() * 2.0 <= MAX_SECONDS).then(Arguments::default)
}

fn stereo(draw: &mut Draw<'_>) -> Option<Arguments> {
    (draw.sound()?.channels == 2).then(Arguments::default)
}

/// The nearest sample value.
fn sample(value: f64) -> i16 {
    value
        .round_ties_even()
        .clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16
}

/// The index of the first value at a time, in all channels together.
fn index(sound: &Sound, seconds: f64) -> usize {
    let frame = (seconds * f64::from(sound.rate)).round_ties_even().max(0.0) as usize;
    frame.min(sound.frames()) * sound.channels
}

/// A time with one decimal between two shares of a sound.
fn time(draw: &mut Draw<'_>, from: f64, to: f64) -> Option<f64> {
    let seconds = draw.sound()?.seconds();
    let tenths = draw.rng.random_range(from..to) * seconds * 10.0;
    let time = tenths.round().max(1.0) / 10.0;
    (time < seconds).then_some(time)
}

/// Two times of a sound.
fn range(draw: &mut Draw<'_>) -> Option<Arguments> {
    let (from, to) = (time(draw, 0.05, 0.4)?, time(draw, 0.6, 0.98)?);
    (from < to).then(|| {
        Arguments::new([
            ("from", Argument::Number(from)),
            ("to", Argument::Number(to)),
        ])
    })
}

/// One short time.
fn duration(draw: &mut Draw<'_>) -> Option<Arguments> {
    let seconds = time(draw, 0.1, 0.5)?;
    Some(Arguments::new([("seconds", Argument::Number(seconds))]))
}

/// The order and the length of the samples.
fn times() -> Vec<Operation> {
    let silence = |a: &Arguments, sound: &Sound| {
        let frames = (a.number("seconds") * f64::from(sound.rate)).round_ties_even();
        vec![0; frames.max(0.0) as usize * sound.channels]
    };
    let backwards = |sound: &Sound| -> Vec<i16> {
        sound
            .samples
            .rchunks_exact(sound.channels)
            .flatten()
            .copied()
            .collect()
    };
    vec![
        edit("trim_sound", range, |a, sound| {
            let (from, to) = (index(sound, a.number("from")), index(sound, a.number("to")));
            Some(sound.with(sound.samples.get(from..to)?.to_vec()))
        })
        .code("$source = $source[round($from * rate):round($to * rate)]")
        .code("$source = np.split($source, [round($from * rate), round($to * rate)])[1]")
        .en([
            "keep only the part from second $from to second $to",
            "cut the sound to what lies between $from s and $to s from its start",
        ])
        .zh(["只保留从第$from秒到第$to秒的部分"])
        .counted_as("trim audio"),
        edit("drop_sound_range", range, |a, sound| {
            let (from, to) = (index(sound, a.number("from")), index(sound, a.number("to")));
            Some(sound.with([sound.samples.get(..from)?, sound.samples.get(to..)?].concat()))
        })
        .code("$source = np.concatenate([$source[:round($from * rate)], $source[round($to * rate):]])")
        .code("$source = np.delete($source, slice(round($from * rate), round($to * rate)), axis=0)")
        .en([
            "cut out the part from second $from to second $to and join what is before and after it",
            "remove what lies between $from s and $to s, so that the rest follows directly",
        ])
        .zh(["剪掉从第$from秒到第$to秒的部分，把前后两段接起来"])
        .counted_as("trim audio"),
        edit("mute_sound_range", range, |a, sound| {
            let (from, to) = (index(sound, a.number("from")), index(sound, a.number("to")));
            let mut samples = sound.samples.clone();
            samples.get_mut(from..to)?.fill(0);
            Some(sound.with(samples))
        })
        .code("$source = $source.copy()\n$source[round($from * rate):round($to * rate)] = 0")
        .code("places = np.arange(len($source))\nsilent = (places >= round($from * rate)) & (places < round($to * rate))\n$source = np.where(silent[:, None], 0, $source).astype(np.int16)")
        .en([
            "silence the part from second $from to second $to (set its samples to 0; the duration stays)",
            "set all samples between $from s and $to s to 0",
        ])
        .zh(["把从第$from秒到第$to秒的采样全部置为0（时长不变）"])
        .counted_as("volume"),
        edit("reverse_sound", always, move |_, sound| Some(sound.with(backwards(sound))))
            .code("$source = $source[::-1]")
            .code("$source = np.flip($source, axis=0)")
            .en(["reverse the sound in time", "play the sound backwards: the last sample comes first"])
            .zh(["把声音在时间上倒放"])
            .counted_as("reverse audio"),
        edit("repeat_sound", short, |_, sound| {
            Some(sound.with([sound.samples.as_slice(), &sound.samples].concat()))
        })
        .code("$source = np.concatenate([$source, $source])")
        .code("$source = np.tile($source, (2, 1))")
        .en(["repeat the sound once, directly after its end", "append a second copy of the sound to it without a gap"])
        .zh(["在声音之后紧接着再重复一遍"])
        .counted_as("join audio"),
        edit("append_reversed_sound", short, move |_, sound| {
            Some(sound.with([sound.samples.clone(), backwards(sound)].concat()))
        })
        .code("$source = np.concatenate([$source, $source[::-1]])")
        .code("$source = np.vstack([$source, np.flipud($source)])")
        .en([
            "append the sound in reverse directly after its end",
            "let the sound be followed by itself played backwards, without a gap",
        ])
        .zh(["在声音之后紧接其倒放"])
        .counted_as("join audio"),
        edit("append_silence", duration, move |a, sound| {
            Some(sound.with([sound.samples.clone(), silence(a, sound)].concat()))
        })
        .code("$source = np.concatenate([$source, np.zeros((round($seconds * rate), $source.shape[1]), dtype=np.int16)])")
        .code("$source = np.pad($source, ((0, round($seconds * rate)), (0, 0)))")
        .en(["add $seconds s of silence at the end", "append $seconds s of zero samples"])
        .zh(["在末尾加上$seconds秒静音"])
        .counted_as("join audio"),
        edit("prepend_silence", duration, move |a, sound| {
            Some(sound.with([silence(a, sound), sound.samples.clone()].concat()))
        })
        .code("$source = np.concatenate([np.zeros((round($seconds * rate), $source.shape[1]), dtype=np.int16), $source])")
        .code("$source = np.pad($source, ((round($seconds * rate), 0), (0, 0)))")
        .en(["add $seconds s of silence at the start", "put $seconds s of zero samples before the sound"])
        .zh(["在开头加上$seconds秒静音"])
        .counted_as("join audio"),
    ]
}

/// The code of new samples from an expression of floats.
fn rounded(expression: &str) -> String {
    format!("$source = np.clip(np.rint({expression}), -32768, 32767).astype(np.int16)")
}

/// What a rounded result is, in English and Chinese.
const ROUNDED_EN: &str = "rounded to the nearest whole number and limited to -32768 to 32767";
const ROUNDED_ZH: &str = "四舍五入取整并限制在-32768到32767之间";

/// The size of the samples.
fn levels() -> Vec<Operation> {
    let gain = |draw: &mut Draw<'_>| {
        let decibels = *[-12.0, -9.0, -6.0, -4.5, -3.0, 2.0, 3.0].choose(draw.rng)?;
        Some(Arguments::new([("gain", Argument::Number(decibels))]))
    };
    let peak = |draw: &mut Draw<'_>| {
        let sound = draw.sound()?;
        let level = *[8_000, 12_000, 20_000, 28_000, 32_000].choose(draw.rng)?;
        let silent = sound.samples.iter().all(|sample| *sample == 0);
        (!silent).then(|| Arguments::new([("count", Argument::Count(level))]))
    };
    let limit = |draw: &mut Draw<'_>| {
        let sound = draw.sound()?;
        let largest = sound
            .samples
            .iter()
            .map(|sample| sample.unsigned_abs())
            .max()?;
        let limit = f64::from(largest) * draw.rng.random_range(0.3..0.7);
        let limit = (limit / 100.0).round() * 100.0;
        (limit >= 100.0).then(|| Arguments::new([("count", Argument::Count(limit as i64))]))
    };
    let echo = |draw: &mut Draw<'_>| {
        let seconds = time(draw, 0.1, 0.4)?;
        let factor = *[0.3, 0.4, 0.5, 0.6].choose(draw.rng)?;
        Some(Arguments::new([
            ("seconds", Argument::Number(seconds)),
            ("factor", Argument::Number(factor)),
        ]))
    };
    let faded = |sound: &Sound, seconds: f64, at_end: bool| {
        let length = index(sound, seconds) / sound.channels;
        let frames = sound.frames();
        let factor = |frame: usize| {
            let from_edge = if at_end { frames - 1 - frame } else { frame };
            (from_edge < length).then(|| from_edge as f64 / length as f64)
        };
        let samples = sound.samples.iter().enumerate().map(|(at, value)| {
            factor(at / sound.channels).map_or(*value, |factor| sample(f64::from(*value) * factor))
        });
        sound.with(samples.collect())
    };
    let fade_code = |part: &str, ramp: &str| {
        format!(
            "n = round($seconds * rate)\nfaded = $source.astype(float)\nfaded[{part}] *= ({ramp})[:, None]\n{}",
            rounded("faded")
        )
    };
    vec![
        edit("change_gain", gain, |a, sound| {
            let factor = 10f64.powf(a.number("gain") / 20.0);
            let samples = sound.samples.iter().map(|value| sample(f64::from(*value) * factor));
            Some(sound.with(samples.collect()))
        })
        .code(&rounded("$source * 10 ** ($gain / 20)"))
        .en([
            &format!("change the level by $gain dB (multiply the samples by 10^($gain/20)), {ROUNDED_EN}"),
            &format!("apply a gain of $gain dB to all samples, {ROUNDED_EN}"),
        ])
        .zh([&format!("把音量改变$gain dB（采样乘以10^($gain/20)），{ROUNDED_ZH}")])
        .counted_as("volume"),
        edit("normalize_peak", peak, |a, sound| {
            let largest = sound.samples.iter().map(|sample| sample.unsigned_abs()).max()?;
            let factor = a.count("count") as f64 / f64::from(largest);
            let samples = sound.samples.iter().map(|value| sample(f64::from(*value) * factor));
            (largest > 0).then(|| sound.with(samples.collect()))
        })
        .code(&rounded("$source * ($count / np.abs($source.astype(int)).max())"))
        .en([
            &format!("scale the samples by one factor so that the largest absolute value becomes $count, {ROUNDED_EN}"),
            &format!("normalize the peak to $count (largest absolute sample over all channels), {ROUNDED_EN}"),
        ])
        .zh([&format!("按同一比例缩放所有采样，使最大绝对值变为$count，{ROUNDED_ZH}")])
        .counted_as("volume"),
        edit("clip_sound", limit, |a, sound| {
            let limit = a.count("count").clamp(0, 32_767) as i16;
            Some(sound.with(sound.samples.iter().map(|value| (*value).clamp(-limit, limit)).collect()))
        })
        .code("$source = np.clip($source, -$count, $count)")
        .code("$source = np.minimum(np.maximum($source, -$count), $count)")
        .en([
            "limit all samples to the range from -$count to $count",
            "clip the samples at $count and -$count",
        ])
        .zh(["把所有采样限制在-$count到$count之间"])
        .counted_as("volume"),
        edit("fade_sound_in", duration, move |a, sound| Some(faded(sound, a.number("seconds"), false)))
            .code(&fade_code(":n", "np.arange(n) / n"))
            .en([
                &format!("fade in over the first $seconds s: of the n samples in that time (per channel), multiply number i (from 0) by i/n, {ROUNDED_EN}"),
                &format!("apply a linear fade-in to the first $seconds s, with the factor i/n for sample i = 0 … n-1 of the n samples there, {ROUNDED_EN}"),
            ])
            .zh([&format!("对开头$seconds秒做线性淡入：其中n个采样中的第i个（从0起）乘以i/n，{ROUNDED_ZH}")])
            .counted_as("fade"),
        edit("fade_sound_out", duration, move |a, sound| Some(faded(sound, a.number("seconds"), true)))
            .code(&fade_code("len(faded) - n:", "np.arange(n)[::-1] / n"))
            .en([
                &format!("fade out over the last $seconds s: of the n samples in that time (per channel), multiply the one that is i places before the last by i/n, {ROUNDED_EN}"),
                &format!("apply a linear fade-out to the last $seconds s, with the factor i/n for the sample i places before the very last (i = 0 … n-1), {ROUNDED_EN}"),
            ])
            .zh([&format!("对末尾$seconds秒做线性淡出：其中n个采样里距最后一个i个位置的采样乘以i/n，{ROUNDED_ZH}")])
            .counted_as("fade"),
        edit("add_echo", echo, |a, sound| {
            let delay = index(sound, a.number("seconds"));
            let delayed = |at: usize| at.checked_sub(delay).map_or(0, |at| sound.samples[at]);
            let samples = sound.samples.iter().enumerate().map(|(at, value)| {
                sample(f64::from(*value) + a.number("factor") * f64::from(delayed(at)))
            });
            Some(sound.with(samples.collect()))
        })
        .code(&format!(
            "delay = round($seconds * rate)\nmixed = $source.astype(float)\nmixed[delay:] += $factor * $source[:len($source) - delay]\n{}",
            rounded("mixed")
        ))
        .en([
            &format!("add an echo: to each sample add $factor times the sample $seconds s before it (the duration stays), {ROUNDED_EN}"),
            &format!("mix the sound with a copy of it that is delayed by $seconds s and multiplied by $factor, without making it longer, {ROUNDED_EN}"),
        ])
        .zh([&format!("加入回声：每个采样加上其$seconds秒之前的采样的$factor倍（时长不变），{ROUNDED_ZH}")])
        .counted_as("volume"),
    ]
}

/// The channels. What Python does with a sound of another number of channels holds here, too: a changed graph shows it.
fn channels() -> Vec<Operation> {
    let one = |name: &str, channel: usize, en: &str, zh: &str| {
        edit(name, stereo, move |_, sound| {
            (channel < sound.channels).then(|| Sound {
                channels: 1,
                samples: sound.channel(channel).collect(),
                rate: sound.rate,
            })
        })
        .code(&format!("$source = $source[:, [{channel}]]"))
        .code(&format!("$source = np.take($source, [{channel}], axis=1)"))
        .en([
            &format!("keep only the {en} channel, as a mono sound"),
            &format!("take the {en} channel alone (one channel)"),
        ])
        .zh([&format!("只保留{zh}声道（单声道）")])
        .counted_as("audio channels")
    };
    let mono = |draw: &mut Draw<'_>| (draw.sound()?.channels == 1).then(Arguments::default);
    vec![
        one("keep_channel_left", 0, "left", "左"),
        one("keep_channel_right", 1, "right", "右"),
        edit("mix_to_mono", stereo, |_, sound| {
            let means = sound.samples.chunks_exact(sound.channels).map(|frame| {
                let sum: f64 = frame.iter().map(|value| f64::from(*value)).sum();
                sample(sum / frame.len() as f64)
            });
            Some(Sound {
                channels: 1,
                samples: means.collect(),
                rate: sound.rate,
            })
        })
        .code(&rounded("$source.mean(axis=1, keepdims=True)"))
        .en([
            &format!("mix the two channels to one by their mean, {ROUNDED_EN}"),
            &format!(
                "make the sound mono: each sample is the mean of left and right, {ROUNDED_EN}"
            ),
        ])
        .zh([&format!("把两个声道按平均值混合为单声道，{ROUNDED_ZH}")])
        .counted_as("audio channels"),
        edit("swap_channels", stereo, |_, sound| {
            let frames = sound.samples.chunks_exact(sound.channels);
            let swapped = frames.flat_map(|frame| frame.iter().rev().copied());
            Some(sound.with(swapped.collect()))
        })
        .code("$source = $source[:, ::-1]")
        .code("$source = np.fliplr($source)")
        .en([
            "exchange the left and the right channel",
            "swap the two channels",
        ])
        .zh(["交换左右声道"])
        .counted_as("audio channels"),
        edit("double_channel", mono, |_, sound| {
            let doubled = sound.samples.iter().flat_map(|value| [*value, *value]);
            (sound.channels == 1).then(|| Sound {
                channels: 2,
                samples: doubled.collect(),
                rate: sound.rate,
            })
        })
        .code("$source = np.repeat($source, 2, axis=1)")
        .code("$source = np.hstack([$source, $source])")
        .en([
            "make the sound stereo with the same samples in both channels",
            "copy the one channel to a left and a right one",
        ])
        .zh(["把单声道变为双声道，左右声道相同"])
        .counted_as("audio channels"),
    ]
}

/// The samples per second.
fn rates() -> Vec<Operation> {
    let factor = |fits: fn(&Sound, u32) -> bool| {
        move |draw: &mut Draw<'_>| {
            let factor = *[2, 3, 4].choose(draw.rng)?;
            fits(draw.sound()?.as_ref(), factor)
                .then(|| Arguments::new([("count", Argument::Count(i64::from(factor)))]))
        }
    };
    let of = |a: &Arguments| {
        u32::try_from(a.count("count"))
            .ok()
            .filter(|factor| *factor > 0)
    };
    vec![
        edit(
            "thin_out_sound",
            factor(|sound, factor| sound.rate.is_multiple_of(factor) && RATES.contains(&(sound.rate / factor))),
            move |a, sound| {
                let factor = of(a)?;
                let frames = sound.samples.chunks_exact(sound.channels).step_by(factor as usize);
                Some(Sound {
                    rate: sound.rate / factor,
                    channels: sound.channels,
                    samples: frames.flatten().copied().collect(),
                })
            },
        )
        .code("$source, rate = $source[::$count], rate // $count")
        .code("kept = np.arange(0, len($source), $count)\n$source, rate = $source[kept], rate // $count")
        .en([
            "keep only the first of every $count samples of each channel and divide the sample rate by $count, without a filter",
            "lower the sample rate to 1/$count by taking one sample out of every $count, the first ones, unfiltered",
        ])
        .zh(["每$count个采样只保留第一个，采样率除以$count（不滤波）"])
        .counted_as("resample audio"),
        edit(
            "hold_samples",
            factor(|sound, factor| RATES.contains(&(sound.rate * factor)) && sound.seconds() < MAX_SECONDS),
            move |a, sound| {
                let factor = of(a)?;
                let frames = sound.samples.chunks_exact(sound.channels);
                let held = frames.flat_map(|frame| frame.repeat(factor as usize));
                Some(Sound {
                    rate: sound.rate.checked_mul(factor)?,
                    channels: sound.channels,
                    samples: held.collect(),
                })
            },
        )
        .code("$source, rate = np.repeat($source, $count, axis=0), rate * $count")
        .code("places = np.arange(len($source) * $count) // $count\n$source, rate = $source[places], rate * $count")
        .en([
            "repeat each sample $count times and multiply the sample rate by $count, without a filter",
            "raise the sample rate to $count times its value by writing each sample $count times, unfiltered",
        ])
        .zh(["每个采样重复$count次，采样率乘以$count（不滤波）"])
        .counted_as("resample audio"),
        edit(
            "speed_up_sound",
            factor(|sound, factor| RATES.contains(&(sound.rate * factor)) && sound.seconds() > 0.8),
            move |a, sound| {
                Some(Sound {
                    rate: sound.rate.checked_mul(of(a)?)?,
                    ..sound.clone()
                })
            },
        )
        .code("rate = rate * $count")
        .en([
            "let the sound run $count times as fast: keep the samples and multiply the sample rate by $count",
            "multiply the sample rate by $count without changing any sample, so that it plays $count times as fast",
        ])
        .zh(["采样不变，采样率乘以$count，使播放速度变为$count倍"])
        .counted_as("resample audio"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::named;

    fn changed(operation: &str, arguments: &[(&str, f64)], sound: &Sound) -> Sound {
        let mut all = Arguments::default();
        for (name, value) in arguments {
            all.0.insert((*name).to_owned(), Argument::Number(*value));
        }
        let crate::operation::Meaning::Edit(meaning) = &named(operation).unwrap().meaning else {
            panic!("{operation} is no edit");
        };
        let content = meaning(&all, &Content::Sound(sound.clone().into())).unwrap();
        content.sound().unwrap().clone()
    }

    #[test]
    fn times_fades_and_echoes_are_those_that_the_wordings_say() {
        let sound = Sound {
            rate: 10,
            channels: 1,
            samples: vec![100, 200, 300, 400, 500],
        };
        let samples = |name, arguments: &[(&str, f64)]| changed(name, arguments, &sound).samples;
        let range = [("from", 0.1), ("to", 0.3)];
        assert_eq!(samples("trim_sound", &range), [200, 300]);
        assert_eq!(samples("drop_sound_range", &range), [100, 400, 500]);
        assert_eq!(samples("mute_sound_range", &range), [100, 0, 0, 400, 500]);
        assert_eq!(
            samples("fade_sound_in", &[("seconds", 0.2)]),
            [0, 100, 300, 400, 500]
        );
        assert_eq!(
            samples("fade_sound_out", &[("seconds", 0.2)]),
            [100, 200, 300, 200, 0]
        );
        let echo = [("seconds", 0.1), ("factor", 0.5)];
        assert_eq!(samples("add_echo", &echo), [100, 250, 400, 550, 700]);
        assert_eq!(
            samples("change_gain", &[("gain", 20.0)]),
            [1000, 2000, 3000, 4000, 5000]
        );
    }
}
