//! What stops a run before it wastes time: mistakes of data and template that a loss curve hides.

use serde::Serialize;

use super::{Conversation, Rendered, Renderer, TokenizerError};

/// Conversations compared with the plain tokenization.
const COMPARED: usize = 64;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Preflight {
    /// The run must not start.
    pub stops: Vec<String>,
    /// Worth knowing.
    pub notes: Vec<String>,
}

/// Looks at rendered conversations of a model whose embedding has `vocab` rows.
pub fn preflight(
    renderer: &Renderer,
    conversations: &[Conversation],
    rendered: &[Rendered],
    vocab: i64,
) -> Result<Preflight, TokenizerError> {
    let mut found = Preflight::default();
    trained(rendered, &mut found);
    beginnings(renderer, rendered, &mut found);
    turns(rendered, &mut found);
    padding(renderer, rendered, &mut found);
    sizes(renderer, rendered, vocab, &mut found);
    for conversation in conversations.iter().take(COMPARED) {
        if !renderer.agrees(&conversation.messages)? {
            found.stops.push(format!(
                "{}: the tokens differ from those of the rendered text; this template or tokenizer cannot be followed token by token",
                conversation.place
            ));
            break;
        }
    }
    Ok(found)
}

fn trained(rendered: &[Rendered], found: &mut Preflight) {
    let without = rendered.iter().filter(|one| one.trained() == 0).count();
    if without == rendered.len() {
        let text = "no token is trained: no conversation has a message of the assistant";
        found.stops.push(text.into());
    } else if without > 0 {
        let text = format!("{without} of {} documents train nothing", rendered.len());
        found.notes.push(text);
    }
    let straddling: usize = rendered.iter().map(|one| one.straddling).sum();
    if straddling > 0 {
        let text = "tokens begin in the template's words and end in a reply; they are not trained";
        found.notes.push(format!("{straddling} {text}"));
    }
}

fn beginnings(renderer: &Renderer, rendered: &[Rendered], found: &mut Preflight) {
    let Some(bos) = renderer.tokenizer.bos else {
        return;
    };
    // ChatML models call the token that opens every turn their BOS; only two in a row are a mistake.
    let double = |one: &&Rendered| one.ids.windows(2).any(|pair| pair == [bos, bos]);
    let count = rendered.iter().filter(double).count();
    if count > 0 {
        let text = "the template writes one and something else another";
        found.stops.push(format!(
            "{count} documents begin a text twice (double BOS, token {bos}): {text}"
        ));
    }
}

fn turns(rendered: &[Rendered], found: &mut Preflight) {
    let ends = |one: &Rendered| one.spans.iter().any(|s| s.trained && s.ends_turn);
    let trains = |one: &&Rendered| one.trained() > 0;
    if !rendered.iter().any(ends) && rendered.iter().any(|one| trains(&one)) {
        let text = "the end of a turn is never trained: the template has no control token after an assistant's message, and the model would never stop";
        found.stops.push(text.into());
    }
}

fn padding(renderer: &Renderer, rendered: &[Rendered], found: &mut Preflight) {
    let Some(pad) = renderer.tokenizer.pad else {
        return;
    };
    let trains = |one: &Rendered| {
        let mut pairs = one.ids.iter().zip(&one.spans);
        pairs.any(|(&id, span)| id == pad && span.trained)
    };
    if rendered.iter().any(trains) {
        let text = "is trained as well. Here padding is known by place, so it is learned; trainers that mask by number would not";
        found.notes.push(format!("the padding token {pad} {text}"));
    }
}

fn sizes(renderer: &Renderer, rendered: &[Rendered], vocab: i64, found: &mut Preflight) {
    let largest = rendered.iter().flat_map(|one| &one.ids).max();
    if largest.is_some_and(|&id| i64::from(id) >= vocab) {
        found.stops.push(format!(
            "token {} has no row in the embedding of {vocab}: the tokenizer is another model's",
            largest.copied().unwrap_or_default()
        ));
    }
    if renderer.tokenizer.size() as i64 > vocab {
        found.stops.push(format!(
            "the tokenizer has {} tokens and the embedding {vocab} rows: they belong to different models",
            renderer.tokenizer.size()
        ));
    }
}
