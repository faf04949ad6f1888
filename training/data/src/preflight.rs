//! Checks before training: mistakes in data and chat template that a loss curve does not show.

use serde::Serialize;

use crate::record::Conversation;
use crate::render::{Rendered, Renderer};
use crate::token_stats::TokenStats;
use crate::tokenizer::{TextTokenizer, TokenizerError};

/// Conversations per source whose tokens are compared with those of the rendered text.
pub(crate) const COMPARED_CONVERSATIONS: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Preflight {
    /// Reasons not to start the run.
    pub errors: Vec<String>,
    pub notes: Vec<String>,
}

/// Checks rendered conversations for a model whose embedding has `vocab` rows.
pub fn preflight(
    renderer: &Renderer,
    conversations: &[Conversation],
    rendered: &[Rendered],
    vocab: i64,
    allow_trained_pad: bool,
) -> Result<Preflight, TokenizerError> {
    let mut stats = TokenStats::default();
    for one in rendered {
        stats.add(one, true, &renderer.tokenizer);
    }
    for conversation in conversations.iter().take(COMPARED_CONVERSATIONS) {
        if !renderer.matches_rendered_text(conversation)? {
            stats.mismatch = Some(conversation.location.clone());
            break;
        }
    }
    let tokenizer = &renderer.tokenizer;
    Ok(judge(&stats, tokenizer, vocab, allow_trained_pad))
}

/// Evaluates the statistics of tokenization.
pub fn judge(
    stats: &TokenStats,
    tokenizer: &TextTokenizer,
    vocab: i64,
    allow_trained_pad: bool,
) -> Preflight {
    let mut result = Preflight::default();
    trained(stats, &mut result);
    turns(stats, tokenizer, &mut result);
    padding(stats, tokenizer, allow_trained_pad, &mut result);
    sizes(stats, tokenizer, vocab, &mut result);
    if let Some(location) = &stats.mismatch {
        result.errors.push(format!(
            "{location}: the tokens differ from those of the rendered text, so training could not tell which tokens belong to a reply; use another chat template"
        ));
    }
    result
}

fn trained(stats: &TokenStats, result: &mut Preflight) {
    if stats.trained == 0 {
        let text = "no token would be trained: no conversation has a message of the assistant";
        result.errors.push(text.into());
    } else if stats.without_trained > 0 {
        result.notes.push(format!(
            "{} of {} documents have no trained token",
            stats.without_trained, stats.documents
        ));
    }
    if stats.straddling > 0 {
        let text = "tokens start in template text and end in a reply; they are not trained";
        result.notes.push(format!("{} {text}", stats.straddling));
    }
    if stats.left_out > 0 {
        let text = "messages with tool calls also have text, which the chat template leaves out";
        result.notes.push(format!("{} {text}", stats.left_out));
    }
}

fn turns(stats: &TokenStats, tokenizer: &TextTokenizer, result: &mut Preflight) {
    if stats.double_bos > 0 {
        let text = "the chat template and the tokenizer both add one";
        result.errors.push(format!(
            "{} documents have a double BOS (token {}): {text}",
            stats.double_bos,
            tokenizer.bos.unwrap_or_default()
        ));
    }
    if stats.end_of_turn_trained == 0 && stats.conversations > 0 && stats.trained > 0 {
        let text = "the end of a turn is never trained: the chat template has no control token after an assistant message, so the model would never stop";
        result.errors.push(text.into());
    }
}

fn padding(
    stats: &TokenStats,
    tokenizer: &TextTokenizer,
    allow_trained_pad: bool,
    result: &mut Preflight,
) {
    if stats.pad_trained == 0 {
        return;
    }
    let pad = tokenizer.pad.unwrap_or_default();
    let text = format!("the padding token {pad} is also a trained token");
    if allow_trained_pad {
        result.notes.push(format!(
            "{text}; this trainer masks padding by position, so the token is learned"
        ));
    } else {
        result.errors.push(format!(
            "{text}. Trainers that mask padding by token id would never train it; this one masks by position. Set train.allow_trained_pad = true, or give the tokenizer another pad_token"
        ));
    }
}

fn sizes(stats: &TokenStats, tokenizer: &TextTokenizer, vocab: i64, result: &mut Preflight) {
    if let Some(largest) = stats.largest_id.filter(|&id| i64::from(id) >= vocab) {
        result.errors.push(format!(
            "token {largest} has no row in the embedding of {vocab} rows: the tokenizer belongs to another model"
        ));
    }
    if tokenizer.size() as i64 > vocab {
        result.errors.push(format!(
            "the tokenizer has {} tokens and the embedding {vocab} rows: they belong to different models",
            tokenizer.size()
        ));
    }
}
