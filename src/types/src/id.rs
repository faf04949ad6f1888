//! Content-based ids: BLAKE3 digests.

use std::{fmt, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A BLAKE3 digest as 64 lowercase hexadecimal digits.
///
/// The id of a file is the digest of its bytes; that of a task covers its query, files and checks; that of a
/// trajectory covers task, teacher, sampling parameters and sample number. Equal work has equal ids.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// The string is not 64 lowercase hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a BLAKE3 digest (64 lowercase hexadecimal digits)")]
pub struct BadDigest(String);

impl Digest {
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).to_hex().to_string())
    }

    /// Digest of all that a reader yields.
    ///
    /// # Errors
    /// Errors of the reader.
    pub fn of_reader(reader: impl io::Read) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(reader)?;
        Ok(Self(hasher.finalize().to_hex().to_string()))
    }

    /// Digest of a value's canonical JSON (object keys sorted, no white space).
    pub fn of_json<T: Serialize>(value: &T) -> Self {
        // Serializing to a JSON value fails only for maps with non-string keys, which our types do not have.
        let value = serde_json::to_value(value).unwrap_or_default();
        let mut text = Vec::new();
        write_canonical(&value, &mut text);
        Self::of_bytes(&text)
    }

    /// All 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits, enough to distinguish the items of a run in output.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }

    /// The first eight bytes as a number: a seed that depends only on the content.
    pub fn seed(&self) -> u64 {
        u64::from_str_radix(&self.0[..16], 16).unwrap_or_default()
    }

    /// A number from 0 to below 1, for random decisions that depend on content only.
    pub fn fraction(&self) -> f64 {
        // The upper 53 bits of the seed, as many as a double holds.
        (self.seed() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Computes the digest of bytes that come in parts.
#[derive(Clone, Debug, Default)]
pub struct DigestBuilder(blake3::Hasher);

impl DigestBuilder {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().to_hex().to_string())
    }
}

/// A digest in 32 bytes without an allocation: for lists with an entry per item of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompactDigest([u8; 32]);

impl From<&Digest> for CompactDigest {
    fn from(digest: &Digest) -> Self {
        let digit = |byte: u8| match byte {
            b'a'..=b'f' => byte - b'a' + 10,
            _ => byte.wrapping_sub(b'0'),
        };
        let digits = digest.0.as_bytes();
        Self(std::array::from_fn(|at| {
            digit(digits[2 * at]) << 4 | digit(digits[2 * at + 1])
        }))
    }
}

impl From<CompactDigest> for Digest {
    fn from(compact: CompactDigest) -> Self {
        Self(blake3::Hash::from_bytes(compact.0).to_hex().to_string())
    }
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push(b'{');
            for (i, (key, item)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_plain(key, out);
                out.push(b':');
                write_canonical(item, out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_canonical(item, out);
            }
            out.push(b']');
        }
        other => write_plain(other, out),
    }
}

/// Writes a scalar as JSON.
fn write_plain<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Writing a string, a number, a Boolean or null into memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(hex) {
            Ok(Self(text))
        } else {
            Err(BadDigest(text))
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_digest_ignores_key_order() {
        assert_eq!(
            Digest::of_json(&json!({"a": 1, "b": [true, null]})),
            Digest::of_json(&json!({"b": [true, null], "a": 1})),
        );
        assert_ne!(
            Digest::of_json(&json!({"a": 1})),
            Digest::of_json(&json!({"a": 2}))
        );
    }

    #[test]
    fn a_compact_digest_is_the_same_digest() {
        let digest = Digest::of_bytes(b"abc");
        assert_eq!(Digest::from(CompactDigest::from(&digest)), digest);
        let other = Digest::of_bytes(b"abd");
        let order = CompactDigest::from(&digest).cmp(&CompactDigest::from(&other));
        assert_eq!(order, digest.cmp(&other));
    }

    #[test]
    fn the_canonical_json_is_stable() {
        // Ids on disk depend on this format.
        let value =
            json!({"b": [1.5, -2, u64::MAX, true, null], "a": {"é\n\"": "tab\t/ \u{1}"}, "": {}});
        let mut text = Vec::new();
        write_canonical(&value, &mut text);
        let wanted =
            r#"{"":{},"a":{"é\n\"":"tab\t/ \u0001"},"b":[1.5,-2,18446744073709551615,true,null]}"#;
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
    }

    #[test]
    fn bad_digests_are_rejected() {
        for text in ["", "abc", &"A".repeat(64), &"g".repeat(64), &"é".repeat(32)] {
            assert!(Digest::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
