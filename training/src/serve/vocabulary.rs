//! The bytes of each token; a character may consist of several tokens.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pybench_training_data::{FileError, read_bounded};
use serde_json::Value;
use thiserror::Error;
use tokenizers::Tokenizer;

use crate::exit::ExitCode;

const MAX_FILE_BYTES: u64 = 256 << 20;

#[derive(Debug, Error)]
pub enum VocabularyError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path}: {reason}")]
    Broken { path: PathBuf, reason: String },
}

impl VocabularyError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::File(error) => error.exit_code(),
            Self::Broken { .. } => ExitCode::BadInput,
        }
    }
}

#[derive(Debug)]
pub struct Vocabulary {
    tokenizer: Tokenizer,
    bytes: Vec<Vec<u8>>,
    special: Vec<bool>,
    /// `eos_token_id` of the configuration files.
    pub eos_ids: Vec<u32>,
    /// SentencePiece puts a space before the first word, which must be removed.
    pub marks_words: bool,
}

impl Vocabulary {
    /// Reads `tokenizer.json` and `eos_token_id` of a model directory.
    pub fn load(folder: &Path) -> Result<Self, VocabularyError> {
        let path = folder.join("tokenizer.json");
        let file = read_bounded(&path, MAX_FILE_BYTES)?;
        let broken = |reason: String| VocabularyError::Broken {
            path: path.clone(),
            reason,
        };
        let tokenizer = Tokenizer::from_bytes(&file).map_err(|error| broken(error.to_string()))?;
        let json: Value = serde_json::from_slice(&file).map_err(|e| broken(e.to_string()))?;
        let byte_level = json["decoder"].to_string().contains("ByteLevel");
        let letters = letters_of_bytes();
        let vocabulary = tokenizer.get_vocab(true);
        let size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        let added = tokenizer.get_added_tokens_decoder();
        let (mut bytes, mut special) = (vec![vec![]; size], vec![false; size]);
        for (text, id) in vocabulary {
            let is_added = added.get(&id);
            special[id as usize] = is_added.is_some_and(|token| token.special);
            bytes[id as usize] = match (is_added, byte_level) {
                (Some(_), _) => text.into_bytes(),
                (None, true) => from_letters(&text, &letters),
                (None, false) => from_piece(&text),
            };
        }
        Ok(Self {
            tokenizer,
            bytes,
            special,
            eos_ids: eos_ids(folder)?,
            marks_words: !byte_level,
        })
    }

    /// The bytes of a token; none for ids beyond the vocabulary, as in models with a padded embedding.
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether the token is a control token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(true)
    }

    /// A control token that occurs in a text.
    pub fn control_in<'a>(&'a self, text: &str) -> Option<&'a str> {
        let controls = self
            .bytes
            .iter()
            .zip(&self.special)
            .filter(|(_, special)| **special);
        let mut names = controls.filter_map(|(bytes, _)| std::str::from_utf8(bytes).ok());
        names.find(|name| !name.is_empty() && text.contains(name))
    }

    /// The largest token id plus one.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Encodes text and recognizes control tokens in it. `add_special_tokens` adds those of the tokenizer (BOS).
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<i64>, String> {
        let encoding = self.tokenizer.encode_fast(text, add_special_tokens);
        let encoding = encoding.map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }
}

/// `eos_token_id` of the configuration files: a number or a list.
fn eos_ids(folder: &Path) -> Result<Vec<u32>, VocabularyError> {
    let mut eos_ids = vec![];
    for name in ["generation_config.json", "config.json"] {
        let path = folder.join(name);
        if !path.exists() {
            continue;
        }
        let json: Value =
            serde_json::from_slice(&read_bounded(&path, MAX_FILE_BYTES)?).map_err(|error| {
                VocabularyError::Broken {
                    path,
                    reason: error.to_string(),
                }
            })?;
        let value = &json["eos_token_id"];
        let several = value.as_array().map_or(&[] as &[Value], Vec::as_slice);
        eos_ids.extend(several.iter().chain([value]).filter_map(Value::as_u64));
    }
    Ok(eos_ids.into_iter().map(|id| id as u32).collect())
}

/// GPT-2's mapping of bytes to characters: printable bytes map to themselves, the others to U+0100 and above.
fn letters_of_bytes() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut next = 256;
    let letter = |byte: u8| {
        let code = match printable(byte) {
            true => u32::from(byte),
            false => {
                next += 1;
                next - 1
            }
        };
        (char::from_u32(code).unwrap_or_default(), byte)
    };
    (0..=255).map(letter).collect()
}

fn from_letters(text: &str, letters: &HashMap<char, u8>) -> Vec<u8> {
    let mut bytes = vec![];
    for letter in text.chars() {
        match letters.get(&letter) {
            Some(&byte) => bytes.push(byte),
            None => bytes.extend(letter.to_string().bytes()),
        }
    }
    bytes
}

/// The bytes of a SentencePiece token: `▁` is a space, `<0xE4>` a byte.
fn from_piece(text: &str) -> Vec<u8> {
    let byte = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
    match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        Some(byte) => vec![byte],
        None => text.replace('▁', " ").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_for_all_bytes() {
        let letters = letters_of_bytes();
        assert_eq!(letters.len(), 256);
        assert_eq!(from_letters("ĠaĊ", &letters), b" a\n");
        assert_eq!(from_letters("ä½ł", &letters), "你".as_bytes());
    }

    #[test]
    fn pieces_are_spaces_and_bytes() {
        assert_eq!(from_piece("▁a"), b" a");
        assert_eq!(from_piece("<0xE4>"), [0xe4]);
        assert_eq!(from_piece("<0xZZ>"), b"<0xZZ>");
    }
}
