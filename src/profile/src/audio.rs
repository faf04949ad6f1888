//! Profiles audio: duration, sample rate, channels and level. Decodes all samples, up to a limit.

use std::io::Cursor;
use std::time::{Duration, Instant};

use pybench_types::task::{AudioProfile, FileKind};
use symphonia::core::codecs::audio::AudioDecoder;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatReader, TrackType};
use symphonia::core::io::MediaSourceStream;

/// Maximum number of samples over all channels: one hour of stereo at 48 kHz.
const MAX_SAMPLES: u64 = 3600 * 2 * 48_000;
const TOO_LONG: &str =
    "too long: it has more than 345.6 million samples (an hour of stereo at 48 kHz)";

/// Maximum number of parts of a waveform; an even number.
const MAX_PEAKS: usize = 1_000;

/// Profiles an audio file.
///
/// # Errors
/// The reason why it is broken.
pub(super) fn profile(kind: FileKind, bytes: &[u8]) -> Result<AudioProfile, String> {
    let (decoded, codec) = read(kind, bytes, MAX_SAMPLES, |_| {})?;
    let frames = decoded.samples / u64::from(decoded.channels.max(1));
    Ok(AudioProfile {
        duration: frames as f64 / f64::from(decoded.rate),
        rate: decoded.rate,
        channels: decoded.channels,
        rms: (decoded.squares / decoded.samples as f64).sqrt(),
        codec,
    })
}

/// The samples of all channels side by side, full scale being 1, their rate, and the number of channels.
///
/// # Errors
/// As [`profile`].
pub(super) fn samples(kind: FileKind, bytes: &[u8]) -> Result<(Vec<f32>, u32, u32), String> {
    let mut samples = Vec::new();
    let (decoded, _) = read(kind, bytes, MAX_SAMPLES, |packet| {
        samples.extend_from_slice(packet);
    })?;
    Ok((samples, decoded.rate, decoded.channels))
}

/// How loud a sound is over its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Waveform {
    /// The loudest sample of each part, from 0 to 1. All parts but the last have the same length.
    pub peaks: Vec<f32>,
    /// Length in seconds.
    pub seconds: f64,
    /// Sample rate in Hz.
    pub rate: u32,
    pub channels: u32,
}

/// The loudest samples of at most [`MAX_PEAKS`] parts.
///
/// # Errors
/// As [`profile`].
pub(super) fn waveform(kind: FileKind, bytes: &[u8]) -> Result<Waveform, String> {
    waveform_within(kind, bytes, MAX_SAMPLES)
}

fn waveform_within(kind: FileKind, bytes: &[u8], max_samples: u64) -> Result<Waveform, String> {
    let mut peaks = Peaks::default();
    let (decoded, _) = read(kind, bytes, max_samples, |packet| {
        packet.iter().for_each(|sample| peaks.take(*sample));
    })?;
    let frames = decoded.samples / u64::from(decoded.channels.max(1));
    Ok(Waveform {
        peaks: peaks.end(),
        seconds: frames as f64 / f64::from(decoded.rate),
        rate: decoded.rate,
        channels: decoded.channels,
    })
}

/// Peaks of a sound whose length is not known: two neighbors become one when there are too many.
struct Peaks {
    peaks: Vec<f32>,
    /// Samples of a part.
    length: usize,
    /// Samples of the part that is not complete, and the loudest of them.
    taken: usize,
    loudest: f32,
}

impl Default for Peaks {
    fn default() -> Self {
        Self {
            peaks: Vec::new(),
            length: 64,
            taken: 0,
            loudest: 0.0,
        }
    }
}

impl Peaks {
    fn take(&mut self, sample: f32) {
        // `max` and `min` leave out what is not a number.
        self.loudest = self.loudest.max(sample.abs().min(1.0));
        self.taken += 1;
        if self.taken < self.length {
            return;
        }
        self.push();
        if self.peaks.len() == MAX_PEAKS {
            let pairs = self.peaks.chunks(2);
            let merged = pairs.map(|pair| pair.iter().copied().fold(0.0, f32::max));
            self.peaks = merged.collect();
            self.length *= 2;
        }
    }

    fn push(&mut self) {
        self.peaks.push(self.loudest);
        (self.taken, self.loudest) = (0, 0.0);
    }

    fn end(mut self) -> Vec<f32> {
        if self.taken > 0 {
            self.push();
        }
        self.peaks
    }
}

/// Decodes a file, packet by packet; also returns the name of its codec. A file that unpacks to more samples is given up, and
/// no more of it than a packet is in memory.
fn read(
    kind: FileKind,
    bytes: &[u8],
    max_samples: u64,
    sink: impl FnMut(&[f32]),
) -> Result<(Decoded, String), String> {
    if kind == FileKind::Wav {
        check_wav_length(bytes)?;
    }
    let unreadable = |e: Error| format!("not a readable sound: {e}");
    let source = MediaSourceStream::new(Box::new(Cursor::new(bytes.to_vec())), Default::default());
    let mut hint = Hint::new();
    hint.with_extension(kind.name());
    let mut format = symphonia::default::get_probe()
        .probe(&hint, source, Default::default(), Default::default())
        .map_err(unreadable)?;
    let track = format
        .default_track(TrackType::Audio)
        .ok_or("no sound track")?;
    let track_id = track.id;
    let parameters = track.codec_params.as_ref().and_then(|c| c.audio());
    let parameters = parameters
        .ok_or("a sound track of an unknown codec")?
        .clone();
    let mut decoder = symphonia::default::get_codecs()
        .make_audio_decoder(&parameters, &Default::default())
        .map_err(unreadable)?;
    let decoded = decode(&mut *format, &mut *decoder, track_id, max_samples, sink)?;
    let frames = decoded.samples / u64::from(decoded.channels.max(1));
    if frames == 0 || decoded.rate == 0 {
        return Err("no samples".into());
    }
    Ok((decoded, decoder.codec_info().short_name.to_owned()))
}

/// Rejects a wav whose data chunk is shorter than its header says. Decoders do not report this.
fn check_wav_length(bytes: &[u8]) -> Result<(), String> {
    let mut at = 12;
    while let Some(header) = bytes.get(at..at + 8) {
        let size = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let left = bytes.len() - at - 8;
        // Streaming writers leave the size at its maximum.
        if &header[..4] == b"data" && size > left && size < 0x7fff_0000 {
            return Err(format!(
                "cut off: {size} bytes of sound are announced, {left} are there"
            ));
        }
        at += 8 + size + (size & 1);
    }
    Ok(())
}

#[derive(Default)]
struct Decoded {
    samples: u64,
    squares: f64,
    rate: u32,
    channels: u32,
}

/// Time after which a file is given up: a small one may announce millions of packets that have no samples.
const DECODING: Duration = Duration::from_secs(300);

fn decode(
    format: &mut dyn FormatReader,
    decoder: &mut dyn AudioDecoder,
    track_id: u32,
    max_samples: u64,
    mut sink: impl FnMut(&[f32]),
) -> Result<Decoded, String> {
    let (mut decoded, mut buffer, mut errors) = (Decoded::default(), Vec::<f32>::new(), 0u32);
    let begun = Instant::now();
    loop {
        if begun.elapsed() > DECODING {
            return Err("not decoded within five minutes".into());
        }
        let packet = match format.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(Error::IoError(e)) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                // Some encoders write a partial packet at the end.
                break;
            }
            Err(error) => return Err(format!("not a readable sound: {error}")),
        };
        if packet.track_id != track_id {
            continue;
        }
        match decoder.decode(&packet) {
            Ok(audio) => {
                let spec = audio.spec();
                (decoded.rate, decoded.channels) = (spec.rate(), spec.channels().count() as u32);
                audio.copy_to_vec_interleaved(&mut buffer);
            }
            Err(Error::DecodeError(_)) if errors < 10 => {
                errors += 1;
                continue;
            }
            Err(error) => return Err(format!("not a readable sound: {error}")),
        }
        sink(&buffer);
        decoded.samples += buffer.len() as u64;
        decoded.squares += buffer
            .iter()
            .map(|&s| f64::from(s) * f64::from(s))
            .sum::<f64>();
        if decoded.samples > max_samples {
            return Err(TOO_LONG.into());
        }
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wav(samples: &[i16], rate: u32) -> Vec<u8> {
        let size = samples.len() as u32 * 2;
        let mut bytes = b"RIFF".to_vec();
        bytes.extend((36 + size).to_le_bytes());
        bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
        bytes.extend(rate.to_le_bytes());
        bytes.extend((rate * 2).to_le_bytes());
        bytes.extend(b"\x02\0\x10\0data");
        bytes.extend(size.to_le_bytes());
        bytes.extend(samples.iter().flat_map(|s| s.to_le_bytes()));
        bytes
    }

    #[test]
    fn a_wav_is_measured() {
        let samples: Vec<i16> = (0..8000)
            .map(|i| if i % 2 == 0 { 16384 } else { -16384 })
            .collect();
        let found = profile(FileKind::Wav, &wav(&samples, 8000)).unwrap();
        assert_eq!(
            (found.rate, found.channels, found.codec.as_str()),
            (8000, 1, "pcm_s16le")
        );
        assert!((found.duration - 1.0).abs() < 1e-9 && (found.rms - 0.5).abs() < 1e-4);
    }

    #[test]
    fn a_waveform_has_the_peaks_of_its_parts() {
        let mut samples = vec![0; 200_000];
        samples[150_000] = 16384;
        let found = waveform(FileKind::Wav, &wav(&samples, 8000)).unwrap();
        assert_eq!((found.rate, found.channels, found.seconds), (8000, 1, 25.0));
        assert!((MAX_PEAKS / 2..=MAX_PEAKS).contains(&found.peaks.len()));
        let loud = found.peaks.iter().position(|peak| *peak > 0.4).unwrap();
        let part = loud as f64 / found.peaks.len() as f64;
        assert!((part - 0.75).abs() < 0.01, "{part}");
        assert_eq!(found.peaks.iter().filter(|peak| **peak > 0.0).count(), 1);
        let short = waveform(FileKind::Wav, &wav(&[16384, 0], 8000)).unwrap();
        assert_eq!(short.peaks, [0.5]);
    }

    #[test]
    fn a_file_that_unpacks_to_too_much_is_given_up() {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/samples/files");
        for (name, kind) in [
            ("scale.flac", FileKind::Flac),
            ("tune.mp3", FileKind::Mp3),
            ("bells.ogg", FileKind::Ogg),
        ] {
            let bytes = std::fs::read(format!("{samples}/{name}")).unwrap();
            let whole = waveform(kind, &bytes).unwrap();
            let all = (whole.seconds * f64::from(whole.rate)).round() as u64;
            assert_eq!(waveform_within(kind, &bytes, all).unwrap(), whole);
            let error = waveform_within(kind, &bytes, all - 1).unwrap_err();
            assert!(error.starts_with("too long"), "{name}: {error}");
        }
    }

    #[test]
    fn truncated_and_empty_audio_is_rejected() {
        let whole = wav(&[1; 1000], 8000);
        assert!(
            profile(FileKind::Wav, &whole[..600])
                .unwrap_err()
                .contains("cut off")
        );
        assert!(profile(FileKind::Wav, &wav(&[], 8000)).is_err());
        assert!(profile(FileKind::Mp3, b"ID3\x03\0\0\0\0\0\0").is_err());
    }
}
