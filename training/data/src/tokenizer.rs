//! The tokenizer and the chat template of a model directory.

use std::path::{Path, PathBuf};

use pybench_chat_template::{ChatTemplate, TemplateError};
use serde_json::Value;
use thiserror::Error;
use tokenizers::Tokenizer;

use crate::file::{FileError, read_bounded};
use pybench_types::exit_code::ExitCode;

const MAX_FILE_BYTES: u64 = 256 << 20;

#[derive(Debug, Error)]
pub enum TokenizerError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path}: {reason}")]
    Broken { path: PathBuf, reason: String },
    #[error(
        "the model has no chat template (neither in chat_template.jinja nor in tokenizer_config.json)"
    )]
    NoTemplate,
    #[error(
        "message {message} is code for Llama 3.1's built-in interpreter, but the chat template writes <|python_tag|> as text; set chat_template = \"code_interpreter\""
    )]
    NoInterpreter { message: usize },
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("control token {0} has lstrip or rstrip set, which is not supported")]
    Strips(String),
    #[error("tokenizing failed: {0}")]
    Encode(String),
}

impl TokenizerError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::File(error) => error.exit_code(),
            _ => ExitCode::BadInput,
        }
    }
}

/// A token and its byte range in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub id: u32,
    pub start: usize,
    pub end: usize,
}

/// Encodes text. Control tokens in the text are encoded as plain text.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    /// Text and id of the control tokens, the longest text first.
    controls: Vec<(String, u32)>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub pad: Option<u32>,
    digest: String,
}

impl TextTokenizer {
    /// Loads `tokenizer.json`, `tokenizer_config.json` and the chat template of a model directory. The file
    /// `template` replaces the model's own template.
    pub fn load_with(
        folder: &Path,
        template: Option<&Path>,
    ) -> Result<(Self, ChatTemplate), TokenizerError> {
        let (tokenizer, bos, eos) = Self::load_without_template(folder)?;
        let source = match template {
            Some(path) => Some(template_file(path)?),
            None => chat_template(folder)?,
        };
        let template = match source {
            Some(source) => {
                let controls = tokenizer.controls.iter().map(|(text, _)| text.clone());
                ChatTemplate::new(&source, &bos, &eos)?.with_controls(controls)?
            }
            None => ChatTemplate::absent(),
        };
        Ok((tokenizer, template))
    }

    /// Loads the tokenizer without a chat template. Also returns the texts of BOS and EOS.
    pub fn load_without_template(folder: &Path) -> Result<(Self, String, String), TokenizerError> {
        let path = folder.join("tokenizer.json");
        let bytes = read_bounded(&path, MAX_FILE_BYTES)?;
        let broken = |reason: String| TokenizerError::Broken {
            path: path.clone(),
            reason,
        };
        let mut tokenizer =
            Tokenizer::from_bytes(&bytes).map_err(|error| broken(error.to_string()))?;
        // Text never becomes a control token; `control_in` finds those of the template.
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

    /// Whether a text spells a control token.
    pub(crate) fn spells_control(&self, text: &str) -> bool {
        self.controls
            .iter()
            .any(|(control, _)| text.contains(control))
    }

    /// The id of a control token.
    pub fn control(&self, text: &str) -> Option<u32> {
        let found = self.controls.iter().find(|(control, _)| control == text);
        found.map(|&(_, id)| id)
    }

    pub fn is_control(&self, id: u32) -> bool {
        self.controls.iter().any(|&(_, control)| control == id)
    }

    /// Encodes text; control tokens in it are encoded as plain text.
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

    /// Encodes text and recognizes control tokens in it, as transformers does.
    pub(crate) fn encode_with_controls(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut tokenizer = self.tokenizer.clone();
        tokenizer.set_encode_special_tokens(false);
        let encoding = tokenizer
            .encode(text, false)
            .map_err(|error| TokenizerError::Encode(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens, including control tokens.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.tokenizer
            .decode(ids, false)
            .map_err(|error| TokenizerError::Encode(error.to_string()))
    }

    /// The hash of `tokenizer.json`.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// The largest token id plus one.
    pub fn size(&self) -> usize {
        let ids = self.tokenizer.get_vocab(true).into_values();
        ids.max().map_or(0, |id| id as usize + 1)
    }
}

fn parse_config(path: &Path) -> Result<Value, TokenizerError> {
    serde_json::from_slice(&read_bounded(path, MAX_FILE_BYTES)?).map_err(|error| {
        TokenizerError::Broken {
            path: path.into(),
            reason: error.to_string(),
        }
    })
}

/// A token of `tokenizer_config.json`: a string, or an object with a `content`.
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

pub fn chat_template(folder: &Path) -> Result<Option<String>, TokenizerError> {
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
