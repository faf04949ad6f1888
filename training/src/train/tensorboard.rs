//! Writes TensorBoard event files: protocol buffers in TFRecord frames (tensorflow/core/util/event.proto,
//! tensorflow/core/lib/io/record_writer.cc).

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug)]
pub(super) struct EventFile {
    file: File,
}

impl EventFile {
    /// Creates a file in `folder`, one per start of the program. TensorBoard discards events of earlier files after
    /// step `start`.
    pub(super) fn create(folder: &Path, start: u64) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let seconds = now().trunc() as u64;
        let name = format!(
            "events.out.tfevents.{seconds:010}.pybench.{}.{start}",
            std::process::id()
        );
        let mut events = Self {
            file: File::create(folder.join(name))?,
        };
        let mut first = wall_time();
        bytes_field(3, b"brain.Event:2", &mut first);
        events.record(&first)?;
        if start > 0 {
            events.record(&restart(start))?;
        }
        Ok(events)
    }

    pub(super) fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> std::io::Result<()> {
        self.record(&scalar_event(step, values))
    }

    fn record(&mut self, event: &[u8]) -> std::io::Result<()> {
        self.file.write_all(&frame(event))
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |duration| duration.as_secs_f64())
}

fn wall_time() -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend_from_slice(&now().to_le_bytes());
    event
}

/// `SessionLog { status: START }` at a step.
fn restart(step: u64) -> Vec<u8> {
    let mut event = wall_time();
    number_field(2, step, &mut event);
    let mut session = vec![];
    number_field(1, 1, &mut session);
    bytes_field(7, &session, &mut event);
    event
}

fn scalar_event(step: u64, values: &[(&str, f64)]) -> Vec<u8> {
    let mut summary = vec![];
    for (tag, value) in values {
        let mut entry = vec![];
        bytes_field(1, tag.as_bytes(), &mut entry);
        entry.push(2 << 3 | 5);
        entry.extend_from_slice(&(*value as f32).to_le_bytes());
        bytes_field(1, &entry, &mut summary);
    }
    let mut event = wall_time();
    number_field(2, step, &mut event);
    bytes_field(5, &summary, &mut event);
    event
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number_field(field: u64, number: u64, out: &mut Vec<u8>) {
    varint(field << 3, out);
    varint(number, out);
}

fn bytes_field(field: u64, bytes: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Length, its checksum, the data, its checksum.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let checks = [masked(crc32c(&length)), masked(crc32c(data))].map(u32::to_le_bytes);
    [&length[..], &checks[0], data, &checks[1]].concat()
}

/// The masked form in which TFRecord stores a checksum.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli).
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn an_event_has_the_fields_of_the_protocol() {
        let event = scalar_event(300, &[("loss", 1.5)]);
        assert_eq!((event[0], event.len()), (9, 9 + 3 + 2 + 2 + 6 + 5));
        assert_eq!(event[9..12], [2 << 3, 0xac, 0x02]);
        assert_eq!(event[12..14], [5 << 3 | 2, 13]);
        assert_eq!(event[14..22], *b"\x0a\x0b\x0a\x04loss");
        assert_eq!(event[22], 2 << 3 | 5);
        assert_eq!(event[23..], 1.5f32.to_le_bytes());
    }

    #[test]
    fn a_frame_wraps_length_and_data() {
        let framed = frame(b"abc");
        assert_eq!(framed.len(), 8 + 4 + 3 + 4);
        assert_eq!(framed[..8], 3u64.to_le_bytes());
        assert_eq!(framed[12..15], *b"abc");
    }
}
