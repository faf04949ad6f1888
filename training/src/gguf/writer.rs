//! Writes the container: header, table, then the data tensor by tensor.

use std::io::{Error, Result, Write};

use pybench_inference::BlockKind;

use super::reader::GgufValue;

/// Alignment of tensor data.
const ALIGNMENT: u64 = 32;

#[derive(Clone, Debug)]
pub(super) struct TensorEntry {
    pub(super) name: String,
    /// Row-major dimensions.
    pub(super) shape: Vec<u64>,
    pub(super) kind: BlockKind,
}

impl TensorEntry {
    fn bytes(&self) -> u64 {
        let elements: u64 = self.shape.iter().product();
        elements / self.kind.elements() as u64 * self.kind.bytes() as u64
    }
}

/// Takes the values of a tensor, in parts of whole rows.
pub(super) type Emit<'a> = &'a mut dyn FnMut(&[f32]) -> Result<()>;

/// Writes a file of version 3. `data` passes on the values of the tensor with that number.
pub(super) fn write<E: From<Error>>(
    out: &mut impl Write,
    pairs: &[(String, GgufValue)],
    entries: &[TensorEntry],
    mut data: impl FnMut(usize, Emit<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut header = b"GGUF".to_vec();
    header.extend(3u32.to_le_bytes());
    header.extend((entries.len() as u64).to_le_bytes());
    header.extend((pairs.len() as u64).to_le_bytes());
    for (key, value) in pairs {
        text(&mut header, key);
        header.extend(code(value).to_le_bytes());
        put(&mut header, value)?;
    }
    let mut offset = 0u64;
    for entry in entries {
        text(&mut header, &entry.name);
        header.extend((entry.shape.len() as u32).to_le_bytes());
        for size in entry.shape.iter().rev() {
            header.extend(size.to_le_bytes());
        }
        header.extend(entry.kind.code().to_le_bytes());
        header.extend(offset.to_le_bytes());
        offset += entry.bytes().next_multiple_of(ALIGNMENT);
    }
    pad(&mut header);
    out.write_all(&header)?;
    for (number, entry) in entries.iter().enumerate() {
        let mut written = 0;
        data(number, &mut |values| {
            let bytes = entry.kind.encode(values);
            let bytes =
                bytes.map_err(|reason| Error::other(format!("tensor {}: {reason}", entry.name)))?;
            written += bytes.len() as u64;
            out.write_all(&bytes)
        })?;
        if written != entry.bytes() {
            let text = format!("tensor {} has the wrong size", entry.name);
            return Err(Error::other(text).into());
        }
        let padding = written.next_multiple_of(ALIGNMENT) - written;
        out.write_all(&[0; ALIGNMENT as usize][..padding as usize])?;
    }
    Ok(())
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// The type codes that llama.cpp expects; numbers have 32 bits.
fn code(value: &GgufValue) -> u32 {
    match value {
        GgufValue::Unsigned(_) => 4,
        GgufValue::Signed(_) => 5,
        GgufValue::Float(_) => 6,
        GgufValue::Bool(_) => 7,
        GgufValue::Text(_) => 8,
        GgufValue::Array(_) => 9,
    }
}

fn put(out: &mut Vec<u8>, value: &GgufValue) -> Result<()> {
    let large = |_| Error::other("a number in the header does not fit 32 bits");
    match value {
        GgufValue::Unsigned(n) => out.extend(u32::try_from(*n).map_err(large)?.to_le_bytes()),
        GgufValue::Signed(n) => out.extend(i32::try_from(*n).map_err(large)?.to_le_bytes()),
        GgufValue::Float(number) => out.extend((*number as f32).to_le_bytes()),
        GgufValue::Bool(flag) => out.push(u8::from(*flag)),
        GgufValue::Text(string) => text(out, string),
        GgufValue::Array(items) => {
            out.extend(items.first().map_or(4, code).to_le_bytes());
            out.extend((items.len() as u64).to_le_bytes());
            for item in items {
                put(out, item)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::reader::Gguf;
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = GgufValue> {
        let leaf = prop_oneof![
            any::<u32>().prop_map(|n| GgufValue::Unsigned(n.into())),
            any::<i32>().prop_map(|n| GgufValue::Signed(n.into())),
            (-1e6f32..1e6).prop_map(|x| GgufValue::Float(x.into())),
            any::<bool>().prop_map(GgufValue::Bool),
            ".{0,12}".prop_map(GgufValue::Text),
        ];
        let texts = prop::collection::vec(".{0,6}".prop_map(GgufValue::Text), 0..5);
        prop_oneof![leaf, texts.prop_map(GgufValue::Array)]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            pairs in prop::collection::btree_map("[a-z.]{1,10}", value(), 0..6),
            rows in 1u64..4,
            numbers in prop::collection::vec(-100f32..100.0, 96),
        ) {
            prop_assume!(!pairs.contains_key("general.alignment"));
            let pairs: Vec<_> = pairs.into_iter().collect();
            let entry = |name: &str, kind| TensorEntry { name: name.into(), shape: vec![rows, 32], kind };
            let entries = [entry("a", BlockKind::F32), entry("b", BlockKind::F16), entry("c", BlockKind::Q8_0)];
            let mut file = vec![];
            let numbers = &numbers[..rows as usize * 32];
            let data = |_, emit: Emit<'_>| numbers.chunks(32).try_for_each(emit);
            write(&mut file, &pairs, &entries, data).unwrap();
            let gguf = Gguf::parse(&file).unwrap();
            for (key, value) in &pairs {
                prop_assert_eq!(gguf.get(key), Some(value));
            }
            prop_assert_eq!(gguf.numbers("a").unwrap(), (vec![rows, 32], numbers.to_vec()));
            for (name, step) in [("b", 1.0 / 2048.0), ("c", 0.5 / 127.0 + 1.0 / 2048.0)] {
                let found = gguf.numbers(name).unwrap().1;
                for (block, wanted) in found.chunks(32).zip(numbers.chunks(32)) {
                    let max = wanted.iter().fold(0f32, |m, x| m.max(x.abs()));
                    for (a, b) in block.iter().zip(wanted) {
                        prop_assert!((a - b).abs() <= step * max + 1e-6, "{name}: {a} for {b}");
                    }
                }
            }
        }
    }
}
