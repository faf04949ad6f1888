//! Reads the container: header, key-value pairs, tensor table. Every count and length is checked against the size
//! of the file before memory is allocated.

use std::collections::BTreeMap;

use pybench_inference::BlockKind;
use thiserror::Error;

/// Nesting of arrays.
const MAX_DEPTH: u32 = 3;
const MAX_DIMENSIONS: u32 = 4;

#[derive(Debug, Error, PartialEq)]
pub enum GgufError {
    #[error("not a GGUF file of version 2 or 3")]
    Magic,
    #[error("the GGUF file is truncated or broken at byte {0}")]
    Broken(usize),
    #[error(
        "tensor {name} has the unsupported type {kind}; supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0"
    )]
    Kind { name: String, kind: u32 },
    #[error("tensor {name} of shape {shape:?} does not fit its type or the file")]
    Tensor { name: String, shape: Vec<u64> },
    #[error("{0} is missing or has the wrong type")]
    Key(String),
    #[error("{0}")]
    Unsupported(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Array(Vec<GgufValue>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Row-major dimensions. The file stores them in reverse order.
    pub shape: Vec<u64>,
    kind: BlockKind,
    start: usize,
    end: usize,
}

#[derive(Debug)]
pub struct Gguf<'a> {
    bytes: &'a [u8],
    values: BTreeMap<String, GgufValue>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl<'a> Gguf<'a> {
    /// Reads header and tensor table; tensor data is read on demand.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, GgufError> {
        let mut cursor = Cursor { bytes, at: 0 };
        if cursor.take(4) != Ok(b"GGUF") || !matches!(cursor.u32(), Ok(2 | 3)) {
            return Err(GgufError::Magic);
        }
        let tensors = cursor.count(24)?;
        let pairs = cursor.count(12)?;
        let mut values = BTreeMap::new();
        for _ in 0..pairs {
            let key = cursor.text()?;
            let kind = cursor.u32()?;
            values.insert(key, cursor.value(kind, MAX_DEPTH)?);
        }
        let mut raw = Vec::new();
        for _ in 0..tensors {
            raw.push(cursor.tensor()?);
        }
        let alignment = match values.get("general.alignment") {
            None => 32,
            Some(GgufValue::Unsigned(n)) if n.is_power_of_two() && *n <= 1 << 20 => *n as usize,
            Some(_) => return Err(GgufError::Key("general.alignment".into())),
        };
        let data = cursor.at.next_multiple_of(alignment);
        let mut table = BTreeMap::new();
        for (name, shape, kind, offset) in raw {
            let info = locate(bytes.len(), data, &name, shape, kind, offset)?;
            table.insert(name, info);
        }
        Ok(Self {
            bytes,
            values,
            tensors: table,
        })
    }

    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// Shape and values of a tensor, row-major.
    pub fn numbers(&self, name: &str) -> Result<(Vec<u64>, Vec<f32>), GgufError> {
        let info = self
            .tensors
            .get(name)
            .ok_or_else(|| GgufError::Key(format!("tensor {name}")))?;
        let bytes = &self.bytes[info.start..info.end];
        Ok((info.shape.clone(), info.kind.decode(bytes)))
    }

    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.values.get(key)
    }

    pub fn text(&self, key: &str) -> Result<&str, GgufError> {
        match self.get(key) {
            Some(GgufValue::Text(text)) => Ok(text),
            _ => Err(GgufError::Key(key.into())),
        }
    }

    pub fn integer(&self, key: &str) -> Result<u64, GgufError> {
        match self.get(key) {
            Some(GgufValue::Unsigned(n)) => Ok(*n),
            Some(GgufValue::Signed(n)) if *n >= 0 => Ok(*n as u64),
            _ => Err(GgufError::Key(key.into())),
        }
    }

    pub fn float(&self, key: &str) -> Result<f64, GgufError> {
        match self.get(key) {
            Some(GgufValue::Float(number)) => Ok(*number),
            _ => Err(GgufError::Key(key.into())),
        }
    }

    pub fn array(&self, key: &str) -> Result<&[GgufValue], GgufError> {
        match self.get(key) {
            Some(GgufValue::Array(items)) => Ok(items),
            _ => Err(GgufError::Key(key.into())),
        }
    }
}

fn locate(
    file: usize,
    data: usize,
    name: &str,
    shape: Vec<u64>,
    kind: u32,
    offset: u64,
) -> Result<TensorInfo, GgufError> {
    let block = BlockKind::from_code(kind).ok_or_else(|| GgufError::Kind {
        name: name.into(),
        kind,
    })?;
    let fit = || {
        let elements = shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n))?;
        let row = *shape.last().unwrap_or(&1);
        if elements == 0 || !row.is_multiple_of(block.elements() as u64) {
            return None;
        }
        let size = (elements / block.elements() as u64).checked_mul(block.bytes() as u64)?;
        let start = (data as u64).checked_add(offset)?;
        let end = start.checked_add(size)?;
        (end <= file as u64).then_some((start as usize, end as usize))
    };
    match fit() {
        Some((start, end)) => Ok(TensorInfo {
            shape,
            kind: block,
            start,
            end,
        }),
        None => Err(GgufError::Tensor {
            name: name.into(),
            shape,
        }),
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], GgufError> {
        let end = self.at.checked_add(count);
        let slice = end.and_then(|end| self.bytes.get(self.at..end));
        let slice = slice.ok_or(GgufError::Broken(self.at))?;
        self.at += count;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let at = self.at;
        self.take(N)?.try_into().map_err(|_| GgufError::Broken(at))
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a count of items of at least `min_bytes` each, which must fit into the rest of the file.
    fn count(&mut self, min_bytes: usize) -> Result<usize, GgufError> {
        let at = self.at;
        let count = self.u64()?;
        let max = (self.bytes.len() - self.at) / min_bytes;
        if count > max as u64 {
            return Err(GgufError::Broken(at));
        }
        Ok(count as usize)
    }

    fn text(&mut self) -> Result<String, GgufError> {
        let length = self.count(1)?;
        let at = self.at;
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| GgufError::Broken(at))?;
        Ok(text.to_owned())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<GgufValue, GgufError> {
        Ok(match kind {
            0 => GgufValue::Unsigned(u8::from_le_bytes(self.array()?).into()),
            1 => GgufValue::Signed(i8::from_le_bytes(self.array()?).into()),
            2 => GgufValue::Unsigned(u16::from_le_bytes(self.array()?).into()),
            3 => GgufValue::Signed(i16::from_le_bytes(self.array()?).into()),
            4 => GgufValue::Unsigned(self.u32()?.into()),
            5 => GgufValue::Signed(i32::from_le_bytes(self.array()?).into()),
            6 => GgufValue::Float(f32::from_le_bytes(self.array()?).into()),
            7 => GgufValue::Bool(self.array::<1>()? != [0]),
            8 => GgufValue::Text(self.text()?),
            9 if depth > 0 => {
                let kind = self.u32()?;
                let count = self.count(1)?;
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(self.value(kind, depth - 1)?);
                }
                GgufValue::Array(items)
            }
            10 => GgufValue::Unsigned(self.u64()?),
            11 => GgufValue::Signed(i64::from_le_bytes(self.array()?)),
            12 => GgufValue::Float(f64::from_le_bytes(self.array()?)),
            _ => return Err(GgufError::Broken(self.at)),
        })
    }

    fn tensor(&mut self) -> Result<(String, Vec<u64>, u32, u64), GgufError> {
        let name = self.text()?;
        let at = self.at;
        let dimensions = self.u32()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(GgufError::Broken(at));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            shape.push(self.u64()?);
        }
        shape.reverse();
        Ok((name, shape, self.u32()?, self.u64()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(1u64.to_le_bytes());
        file.extend(1u64.to_le_bytes());
        file.extend(4u64.to_le_bytes());
        file.extend(b"name");
        file.extend(8u32.to_le_bytes());
        file.extend(2u64.to_le_bytes());
        file.extend(b"me");
        file.extend(1u64.to_le_bytes());
        file.extend(b"w");
        file.extend(2u32.to_le_bytes());
        file.extend(2u64.to_le_bytes());
        file.extend(1u64.to_le_bytes());
        file.extend(0u32.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend([1f32, 2.0].map(f32::to_le_bytes).concat());
        file
    }

    #[test]
    fn a_file_is_read() {
        let file = small();
        let gguf = Gguf::parse(&file).unwrap();
        assert_eq!(gguf.text("name").unwrap(), "me");
        assert_eq!(gguf.numbers("w").unwrap(), (vec![1, 2], vec![1.0, 2.0]));
    }

    #[test]
    fn truncated_files_are_rejected() {
        let file = small();
        for length in 0..file.len() {
            assert!(Gguf::parse(&file[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn fuzz_gguf() {
        let seed = small();
        bolero::check!().for_each(|noise: &[u8]| {
            let _ = Gguf::parse(noise);
            // Noise in a valid file gets past the magic number.
            let mut file = seed.clone();
            for pair in noise.chunks_exact(2).take(16) {
                let index = pair[0] as usize % file.len();
                file[index] = pair[1];
            }
            if let Ok(gguf) = Gguf::parse(&file) {
                for name in gguf.tensors().keys() {
                    let _ = gguf.numbers(name);
                }
            }
        });
    }
}
