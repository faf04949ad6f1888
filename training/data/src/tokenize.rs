//! Tokenizes a source once: the result is cached under a hash of everything that determines the tokens.

use std::num::NonZero;
use std::path::Path;
use std::thread;

use pybench_chat_template::Message;
use thiserror::Error;

use pybench_types::exit_code::ExitCode;

use crate::preference::PairError;
use crate::preflight::COMPARED_CONVERSATIONS;
use crate::reader::SourceError;
use crate::record::{Preference, Record};
use crate::render::{Overflow, OverflowReport, Rendered, Renderer, Span, fit_to_length};
use crate::source::Source;
use crate::store::{StoreError, TokenClass, TokenStore, TokenStoreWriter};
use crate::token_stats::TokenStats;
use crate::tokenizer::TokenizerError;

/// Part of the cache key. Increase it when the tokens or the file format change.
const VERSION: u32 = 6;
/// Records that are rendered in parallel.
const BATCH: usize = 256;

#[derive(Debug, Error)]
pub enum TokenizeError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{location}: {error}")]
    Render {
        location: String,
        error: TokenizerError,
    },
    #[error(
        "{location} has {tokens} tokens, more than train.max_seq_len = {max_seq_len}; raise that, or set train.overflow to \"drop\", \"cut_at_turn\" or \"split_with_context\""
    )]
    Overflow {
        location: String,
        tokens: usize,
        max_seq_len: usize,
    },
    #[error("{location}: {reason}")]
    Pair { location: String, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TokenizeError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Source(error) => error.exit_code(),
            Self::Render { error, .. } => error.exit_code(),
            Self::Overflow { .. } | Self::Pair { .. } => ExitCode::BadInput,
            Self::Store(_) => ExitCode::Environment,
        }
    }
}

/// The maximum length of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthLimit {
    pub max_seq_len: usize,
    /// What happens to longer conversations. Longer texts are split without loss.
    pub overflow: Overflow,
}

/// The tokens of a source; read from the folder `cache` if they are there. A pair is two documents, first the chosen
/// conversation.
pub fn tokenize(
    source: &Source,
    renderer: &Renderer,
    limit: LengthLimit,
    cache: &Path,
) -> Result<TokenStore, TokenizeError> {
    let resolved = source.resolve()?;
    let mut hasher = blake3::Hasher::new();
    let (model, data) = (renderer.digest(), resolved.digest()?);
    hasher.update(format!("{VERSION} {model} {data} {limit:?}").as_bytes());
    let key = hasher.finalize().to_hex().to_string();
    let path = cache.join(format!("{}.safetensors", &key[..32]));
    // A missing or broken file is written again.
    if let Ok(store) = TokenStore::open(&path, &key) {
        return Ok(store);
    }
    let mut writer = TokenStoreWriter::new(&path)?;
    let mut stats = TokenStats::default();
    let mut records = resolved.records();
    loop {
        let batch = records
            .by_ref()
            .take(BATCH)
            .collect::<Result<Vec<_>, _>>()?;
        if batch.is_empty() {
            return Ok(writer.finish(&key, &stats)?);
        }
        compare(&batch, renderer, &mut stats)?;
        for (record, tokenized) in batch.iter().zip(parallel_map(&batch, |record| {
            tokenize_record(record, renderer, limit)
        })) {
            let tokenized = tokenized?;
            stats.records += 1;
            stats.overflow += tokenized.overflow;
            let is_conversation = !matches!(record, Record::Text { .. });
            for part in &tokenized.parts {
                stats.add(part, is_conversation, &renderer.tokenizer);
                writer.add(&part.ids, &token_classes(part, record), record.location())?;
            }
        }
    }
}

/// Checks that the first conversations have the tokens of their rendered text.
fn compare(
    batch: &[Record],
    renderer: &Renderer,
    stats: &mut TokenStats,
) -> Result<(), TokenizeError> {
    let left = COMPARED_CONVERSATIONS.saturating_sub(stats.records);
    for record in batch.iter().take(left) {
        let conversations = match record {
            Record::Conversation(conversation) => vec![conversation],
            Record::Preference(pair) => vec![&pair.chosen, &pair.rejected],
            Record::Text { .. } => vec![],
        };
        for conversation in conversations {
            let matches = renderer.matches_rendered_text(conversation);
            let location = &conversation.location;
            if !matches.map_err(|error| at(location, error))? && stats.mismatch.is_none() {
                stats.mismatch = Some(location.clone());
            }
        }
    }
    Ok(())
}

fn at(location: &str, error: TokenizerError) -> TokenizeError {
    TokenizeError::Render {
        location: location.into(),
        error,
    }
}

/// Maps all items in order, on as many threads as there are cores.
fn parallel_map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let work = &work;
    thread::scope(|scope| {
        let chunks = items.chunks(items.len().div_ceil(threads).max(1));
        let started: Vec<_> = chunks
            .map(|chunk| scope.spawn(move || chunk.iter().map(work).collect::<Vec<R>>()))
            .collect();
        let finished = started.into_iter().flat_map(|thread| match thread.join() {
            Ok(results) => results,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        finished.collect()
    })
}

struct TokenizedRecord {
    parts: Vec<Rendered>,
    overflow: OverflowReport,
}

fn tokenize_record(
    record: &Record,
    renderer: &Renderer,
    limit: LengthLimit,
) -> Result<TokenizedRecord, TokenizeError> {
    let location = record.location();
    match record {
        Record::Text { text, .. } => {
            let whole = renderer.text(text).map_err(|error| at(location, error))?;
            Ok(TokenizedRecord {
                parts: whole.chunks(limit.max_seq_len),
                overflow: OverflowReport::default(),
            })
        }
        Record::Conversation(conversation) => {
            let rendered = renderer.render(conversation);
            let rendered = rendered.map_err(|error| at(location, error))?;
            let tokens = rendered.ids.len();
            let fitted = fit_to_length(rendered, limit.max_seq_len, limit.overflow);
            let (parts, overflow) = fitted.ok_or_else(|| TokenizeError::Overflow {
                location: location.into(),
                tokens,
                max_seq_len: limit.max_seq_len,
            })?;
            Ok(TokenizedRecord { parts, overflow })
        }
        Record::Preference(pair) => tokenize_pair(pair, renderer, limit),
    }
}

/// The chosen and the rejected conversation of a pair; nothing if one of them is too long and may be dropped.
fn tokenize_pair(
    pair: &Preference,
    renderer: &Renderer,
    limit: LengthLimit,
) -> Result<TokenizedRecord, TokenizeError> {
    let location = &pair.chosen.location;
    let rendered = renderer.render_pair(pair).map_err(|error| match error {
        PairError::Render(error) => at(location, error),
        PairError::Row(reason) => TokenizeError::Pair {
            location: location.clone(),
            reason,
        },
    })?;
    let parts = Vec::from(rendered);
    let longest = parts.iter().map(|part| part.ids.len()).max().unwrap_or(0);
    if longest <= limit.max_seq_len {
        return Ok(TokenizedRecord {
            parts,
            overflow: OverflowReport::default(),
        });
    }
    if limit.overflow != Overflow::Drop {
        return Err(TokenizeError::Pair {
            location: location.clone(),
            reason: format!(
                "the longer conversation of the pair has {longest} tokens, more than train.max_seq_len = {}; raise that, or set train.overflow to \"drop\"",
                limit.max_seq_len
            ),
        });
    }
    Ok(TokenizedRecord {
        overflow: OverflowReport {
            conversations: 1,
            lost: parts.iter().map(|part| part.ids.len()).sum(),
            lost_trained: parts.iter().map(Rendered::trained).sum(),
            repeated: 0,
        },
        parts: vec![],
    })
}

fn token_classes(part: &Rendered, record: &Record) -> Vec<u8> {
    let messages = match record {
        Record::Conversation(one) => one.messages.as_slice(),
        Record::Text { .. } | Record::Preference(_) => &[],
    };
    let untrained: Vec<TokenClass> = messages.iter().map(untrained_class).collect();
    let class = |span: &Span| match span.trained {
        true => TokenClass::Trained,
        false => *untrained.get(span.message).unwrap_or(&TokenClass::Prompt),
    };
    part.spans.iter().map(|span| class(span) as u8).collect()
}

/// The class of those tokens of a message that the model need not produce.
fn untrained_class(message: &Message) -> TokenClass {
    match (message.is_observation(), message.is_assistant()) {
        (true, _) => TokenClass::Observation,
        (false, true) if !message.is_trained() => TokenClass::Context,
        _ => TokenClass::Prompt,
    }
}
