//! Sounds with samples of 16 bits, and what a check can tell apart.

use pybench_types::task::FileKind;

/// Least correlation with another sound at which a check could take one for the other; the check asks for 0.9999.
const CORRELATION: f64 = 0.999;
/// Difference in level up to which a check could take one for the other, in decibels; the check allows 0.05.
const LEVEL: f64 = 0.2;
/// As `LEVEL`, of the duration in seconds; the check allows 0.002.
const DURATION: f64 = 0.005;
/// Seconds by which the check shifts a sound against the other.
const SHIFT: f64 = 0.001;
/// Root mean square of a channel below which it counts as silent, full scale being 1.
const SILENT: f64 = 1e-5;
/// Full scale of a sample.
pub(crate) const FULL: f64 = 32_768.0;

/// A sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sound {
    /// Samples per second.
    pub rate: u32,
    pub channels: usize,
    /// The samples of all channels at one time side by side.
    pub samples: Vec<i16>,
}

impl Sound {
    /// Decodes a file; `None` if it has no samples or more than two channels.
    pub fn read(kind: FileKind, bytes: &[u8]) -> Option<Self> {
        let (samples, rate, channels) = pybench_profile::sound(kind, bytes)?;
        let whole = |sample: &f32| {
            let scaled = (f64::from(*sample) * FULL).round();
            scaled.clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16
        };
        let fits = matches!(channels, 1 | 2) && !samples.is_empty();
        fits.then(|| Self {
            rate,
            channels: channels as usize,
            samples: samples.iter().map(whole).collect(),
        })
    }

    /// The sound as a wav file.
    pub fn wav(&self) -> Vec<u8> {
        let size = (self.samples.len() * 2) as u32;
        let frame = (self.channels * 2) as u16;
        let mut bytes = b"RIFF".to_vec();
        bytes.extend((36 + size).to_le_bytes());
        bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0");
        bytes.extend((self.channels as u16).to_le_bytes());
        bytes.extend(self.rate.to_le_bytes());
        bytes.extend((self.rate * u32::from(frame)).to_le_bytes());
        bytes.extend(frame.to_le_bytes());
        bytes.extend(b"\x10\0data");
        bytes.extend(size.to_le_bytes());
        bytes.extend(self.samples.iter().flat_map(|sample| sample.to_le_bytes()));
        bytes
    }

    /// Number of times at which there are samples.
    pub fn frames(&self) -> usize {
        self.samples.len() / self.channels
    }

    /// Duration in seconds.
    pub fn seconds(&self) -> f64 {
        self.frames() as f64 / f64::from(self.rate)
    }

    /// The samples of a channel.
    pub fn channel(&self, channel: usize) -> impl Iterator<Item = i16> + '_ {
        let frames = self.samples.chunks_exact(self.channels);
        frames.map(move |frame| frame[channel])
    }

    /// A sound of the same rate and channels.
    #[must_use]
    pub fn with(&self, samples: Vec<i16>) -> Self {
        Self {
            samples,
            ..self.clone()
        }
    }

    /// Whether the check of a sound could take one for the other.
    pub(crate) fn resembles(&self, other: &Self) -> bool {
        let alike = (self.rate, self.channels) == (other.rate, other.channels);
        alike
            && (self.seconds() - other.seconds()).abs() <= DURATION
            && (0..self.channels).all(|channel| {
                let one: Vec<f64> = self.channel(channel).map(f64::from).collect();
                let two: Vec<f64> = other.channel(channel).map(f64::from).collect();
                resemble(&one, &two, (SHIFT * f64::from(self.rate)) as isize)
            })
    }
}

fn resemble(one: &[f64], other: &[f64], most: isize) -> bool {
    let energy = |samples: &[f64]| samples.iter().map(|x| x * x).sum::<f64>();
    let level = |samples: &[f64]| (energy(samples) / samples.len().max(1) as f64).sqrt() / FULL;
    let (a, b) = (level(one), level(other));
    if a < SILENT || b < SILENT {
        return (a < SILENT) == (b < SILENT);
    }
    let norm = (energy(one) * energy(other)).sqrt();
    let shifted = |shift: isize| {
        let (one, other) = match shift {
            ..0 => (one, other.get(shift.unsigned_abs()..).unwrap_or_default()),
            _ => (one.get(shift.unsigned_abs()..).unwrap_or_default(), other),
        };
        one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>() / norm
    };
    (20.0 * (a / b).log10()).abs() <= LEVEL
        && (-most..=most).any(|shift| shifted(shift) >= CORRELATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(frames: usize, channels: usize) -> Sound {
        let sample = |at: usize| {
            ((at / channels) as f64 * 0.11).sin() * 9_000.0 * (at % channels + 1) as f64
        };
        Sound {
            rate: 8_000,
            channels,
            samples: (0..frames * channels).map(|at| sample(at) as i16).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for channels in [1, 2] {
            let sound = tone(500, channels);
            assert_eq!(Sound::read(FileKind::Wav, &sound.wav()), Some(sound));
        }
    }

    #[test]
    fn gain_order_and_duration_make_another_sound() {
        let sound = tone(4_000, 1);
        let louder = sound.with(sound.samples.iter().map(|x| x * 2).collect());
        let backwards = sound.with(sound.samples.iter().rev().copied().collect());
        let shorter = sound.with(sound.samples[..3_900].to_vec());
        assert!(sound.resembles(&sound));
        for other in [louder, backwards, shorter] {
            assert!(!sound.resembles(&other));
        }
    }
}
