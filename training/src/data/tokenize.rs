//! A source made into tokens, once: what was tokenised before is read from the cache, which is keyed
//! by all that the tokens depend on.

use std::num::NonZero;
use std::path::Path;
use std::thread;

use thiserror::Error;

use super::preflight::COMPARED;
use super::store::Writer;
use super::{
    Class, Facts, Message, Overflow, OverflowReport, Record, Rendered, Renderer, Source,
    SourceError, StoreError, TokenStore, TokenizerError, fit,
};

/// Goes into the key: raise it with every change of what is rendered or kept.
const VERSION: u32 = 2;
/// Records that are rendered together.
const BATCH: usize = 256;

/// Why a source cannot be tokenised.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum TokenizeError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{place}: {error}")]
    Render {
        place: String,
        error: TokenizerError,
    },
    #[error(
        "{place} has {tokens} tokens, more than train.context = {context}; raise it, or choose train.overflow = \"drop\", \"cut_at_turn\" or \"split_with_context\""
    )]
    Overflow {
        place: String,
        tokens: usize,
        context: usize,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The length of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitting {
    /// Most tokens of a document.
    pub context: usize,
    /// What becomes of longer conversations. Texts are cut into pieces; nothing of them is lost.
    pub overflow: Overflow,
}

/// The tokens of a source's records, from the folder `cache` where it has them.
pub fn tokenize(
    source: &Source,
    renderer: &Renderer,
    fitting: Fitting,
    cache: &Path,
) -> Result<TokenStore, TokenizeError> {
    let located = source.locate()?;
    let mut hasher = blake3::Hasher::new();
    let (model, data) = (renderer.digest(), located.digest()?);
    hasher.update(format!("{VERSION} {model} {data} {fitting:?}").as_bytes());
    let key = hasher.finalize().to_hex().to_string();
    let path = cache.join(format!("{}.safetensors", &key[..32]));
    // A file that is broken is made anew.
    if let Ok(store) = TokenStore::open(&path, &key) {
        return Ok(store);
    }
    let mut writer = Writer::new(&path)?;
    let mut facts = Facts::default();
    let mut records = located.records();
    loop {
        let batch = records
            .by_ref()
            .take(BATCH)
            .collect::<Result<Vec<_>, _>>()?;
        if batch.is_empty() {
            return Ok(writer.finish(&key, &facts)?);
        }
        compare(&batch, renderer, &mut facts)?;
        for (record, made) in batch.iter().zip(in_parallel(&batch, |record| {
            make(record, renderer, fitting)
        })) {
            let made = made?;
            facts.records += 1;
            facts.overflow += made.overflow;
            let talk = matches!(record, Record::Conversation(_));
            for part in &made.parts {
                facts.see(part, talk, &renderer.tokenizer);
                writer.add(&part.ids, &classes(part, record), record.place())?;
            }
        }
    }
}

/// The first conversations must have the tokens of their rendered text.
fn compare(batch: &[Record], renderer: &Renderer, facts: &mut Facts) -> Result<(), TokenizeError> {
    let left = COMPARED.saturating_sub(facts.records);
    for record in batch.iter().take(left) {
        let Record::Conversation(conversation) = record else {
            continue;
        };
        let agrees = renderer.agrees(&conversation.messages);
        let place = &conversation.place;
        if !agrees.map_err(|error| at(place, error))? && facts.disagrees.is_none() {
            facts.disagrees = Some(place.clone());
        }
    }
    Ok(())
}

fn at(place: &str, error: TokenizerError) -> TokenizeError {
    TokenizeError::Render {
        place: place.into(),
        error,
    }
}

/// The results for all items, in their order, made by as many threads as there are cores.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
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

struct Made {
    parts: Vec<Rendered>,
    overflow: OverflowReport,
}

fn make(record: &Record, renderer: &Renderer, fitting: Fitting) -> Result<Made, TokenizeError> {
    let place = record.place();
    match record {
        Record::Text { text, .. } => {
            let whole = renderer.text(text).map_err(|error| at(place, error))?;
            Ok(Made {
                parts: whole.pieces(fitting.context),
                overflow: OverflowReport::default(),
            })
        }
        Record::Conversation(conversation) => {
            let rendered = renderer.render(&conversation.messages);
            let rendered = rendered.map_err(|error| at(place, error))?;
            let tokens = rendered.ids.len();
            let fitted = fit(rendered, fitting.context, fitting.overflow);
            let (parts, overflow) = fitted.ok_or_else(|| TokenizeError::Overflow {
                place: place.into(),
                tokens,
                context: fitting.context,
            })?;
            Ok(Made { parts, overflow })
        }
    }
}

/// What each token is to the loss.
fn classes(part: &Rendered, record: &Record) -> Vec<u8> {
    let observed: Vec<bool> = match record {
        Record::Conversation(one) => one.messages.iter().map(Message::is_observation).collect(),
        Record::Text { .. } => vec![],
    };
    let class = |span: &super::Span| match span.trained {
        true => Class::Trained as u8,
        false if observed.get(span.message) == Some(&true) => Class::Observation as u8,
        false => Class::Prompt as u8,
    };
    part.spans.iter().map(class).collect()
}
