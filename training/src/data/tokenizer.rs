//! A model's tokenizer and chat template, from its own files.

use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;
use tokenizers::Tokenizer;

use super::{ChatTemplate, TemplateError};
use crate::model::{LoadError, read_bounded};

/// Most bytes of a tokenizer file.
const FILE_BYTES: u64 = 256 << 20;

/// Why a tokenizer cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum TokenizerError {
    #[error(transparent)]
    File(#[from] LoadError),
    #[error("{path}: {reason}")]
    Broken { path: PathBuf, reason: String },
    #[error(
        "the model has no chat template (neither chat_template.jinja nor in tokenizer_config.json)"
    )]
    NoTemplate,
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("control token {0} strips its neighbours, which cannot be followed token by token")]
    Strips(String),
    #[error(
        "message {message}: its tool_calls hold a control token, which the template would obey"
    )]
    ControlInCall { message: usize },
    #[error("tokenizing failed: {0}")]
    Encode(String),
}

/// One token and where it starts in the text it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Its number.
    pub id: u32,
    /// First byte of its text.
    pub start: usize,
    /// One past the last.
    pub end: usize,
}

/// Turns text into tokens; control tokens only where asked for.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    /// Control tokens, the longest first.
    controls: Vec<(String, u32)>,
    /// Beginning-of-text token, if the model has one.
    pub bos: Option<u32>,
    /// End-of-text token.
    pub eos: Option<u32>,
    /// Padding token.
    pub pad: Option<u32>,
    digest: String,
}

impl TextTokenizer {
    /// Loads `tokenizer.json`, `tokenizer_config.json` and the chat template of a model directory, or
    /// another template instead of its own.
    pub fn load_with(
        folder: &Path,
        template: Option<&Path>,
    ) -> Result<(Self, ChatTemplate), TokenizerError> {
        let (tokenizer, bos, eos) = Self::load_alone(folder)?;
        let source = match template {
            Some(path) => Some(template_file(path)?),
            None => chat_template(folder)?,
        };
        let template = match source {
            Some(source) => ChatTemplate::new(&source, &bos, &eos)?,
            None => ChatTemplate::absent(),
        };
        Ok((tokenizer, template))
    }

    /// Loads the tokenizer of a model directory, whether or not it has a chat template; with it the
    /// texts of its BOS and EOS.
    pub fn load_alone(folder: &Path) -> Result<(Self, String, String), TokenizerError> {
        let path = folder.join("tokenizer.json");
        let bytes = read_bounded(&path, FILE_BYTES)?;
        let broken = |reason: String| TokenizerError::Broken {
            path: path.clone(),
            reason,
        };
        let mut tokenizer =
            Tokenizer::from_bytes(&bytes).map_err(|error| broken(error.to_string()))?;
        // What a text says is never a control token; see `controls_in` for those of the template.
        tokenizer.set_encode_special_tokens(true);
        let added = tokenizer.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special);
        if let Some((_, token)) = special.clone().find(|(_, t)| t.lstrip || t.rstrip) {
            return Err(TokenizerError::Strips(token.content.clone()));
        }
        let mut controls: Vec<_> = special
            .map(|(&id, token)| (token.content.clone(), id))
            .collect();
        controls.sort_by_key(|(text, id)| (std::cmp::Reverse(text.len()), *id));
        let path = folder.join("tokenizer_config.json");
        let config = parse_config(&path)?;
        let text = |key: &str| named_token(&config, key);
        let id = |key: &str| tokenizer.token_to_id(&text(key));
        let (bos, eos, pad) = (id("bos_token"), id("eos_token"), id("pad_token"));
        let texts = (text("bos_token"), text("eos_token"));
        let tokenizer = Self {
            tokenizer,
            controls,
            bos,
            eos,
            pad,
            digest: blake3::hash(&bytes).to_hex().to_string(),
        };
        Ok((tokenizer, texts.0, texts.1))
    }

    /// The first control token in a text: its place and number.
    pub(super) fn control_in(&self, text: &str) -> Option<Encoded> {
        text.char_indices().find_map(|(start, _)| {
            let rest = &text[start..];
            let found = self
                .controls
                .iter()
                .find(|(control, _)| rest.starts_with(control.as_str()))?;
            Some(Encoded {
                id: found.1,
                start,
                end: start + found.0.len(),
            })
        })
    }

    /// Whether a number is a control token's.
    pub fn is_control(&self, id: u32) -> bool {
        self.controls.iter().any(|&(_, control)| control == id)
    }

    /// The tokens of a text without control tokens.
    pub fn encode(&self, text: &str) -> Result<Vec<Encoded>, TokenizerError> {
        let encoding = self
            .tokenizer
            .encode(text, false)
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        let tokens = encoding.get_ids().iter().zip(encoding.get_offsets());
        Ok(tokens
            .map(|(&id, &(start, end))| Encoded { id, start, end })
            .collect())
    }

    /// The tokens of a text in which control tokens count wherever they stand, as transformers has
    /// it: what the renderer is compared with.
    pub(super) fn encode_with_controls(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut open = self.tokenizer.clone();
        open.set_encode_special_tokens(false);
        let encoding = open
            .encode(text, false)
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens, control tokens included.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.tokenizer
            .decode(ids, false)
            .map_err(|error| TokenizerError::Encode(error.to_string()))
    }

    /// A hash of its file.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// One past the largest token number.
    pub fn size(&self) -> usize {
        let ids = self.tokenizer.get_vocab(true).into_values();
        ids.max().map_or(0, |id| id as usize + 1)
    }
}

fn parse_config(path: &Path) -> Result<Value, TokenizerError> {
    serde_json::from_slice(&read_bounded(path, FILE_BYTES)?).map_err(|error| {
        TokenizerError::Broken {
            path: path.into(),
            reason: error.to_string(),
        }
    })
}

/// A token of `tokenizer_config.json`, which is a text or an object with one.
fn named_token(config: &Value, key: &str) -> String {
    let token = &config[key];
    let text = token.as_str().or(token["content"].as_str());
    text.unwrap_or_default().to_owned()
}

fn template_file(path: &Path) -> Result<String, TokenizerError> {
    let bytes = read_bounded(path, 1 << 20)?;
    String::from_utf8(bytes).map_err(|error| TokenizerError::Broken {
        path: path.into(),
        reason: error.to_string(),
    })
}

/// The chat template of a model directory, if it has one.
pub(crate) fn chat_template(folder: &Path) -> Result<Option<String>, TokenizerError> {
    let config = parse_config(&folder.join("tokenizer_config.json"))?;
    template_source(folder, &config)
}

fn template_source(folder: &Path, config: &Value) -> Result<Option<String>, TokenizerError> {
    let path = folder.join("chat_template.jinja");
    if path.exists() {
        return template_file(&path).map(Some);
    }
    let template = &config["chat_template"];
    let named = template.as_array().and_then(|all| {
        all.iter()
            .find(|one| one["name"] == "default")
            .and_then(|one| one["template"].as_str())
    });
    Ok(template.as_str().or(named).map(str::to_owned))
}
