//! What stops a run before it wastes time: mistakes of data and template that a loss curve hides.

use serde::Serialize;

use super::{Conversation, Facts, Rendered, Renderer, TextTokenizer, TokenizerError};

/// Conversations of a source that are compared with the plain tokenization.
pub(super) const COMPARED: usize = 64;

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
    pad_may_be_trained: bool,
) -> Result<Preflight, TokenizerError> {
    let mut facts = Facts::default();
    for one in rendered {
        facts.see(one, true, &renderer.tokenizer);
    }
    for conversation in conversations.iter().take(COMPARED) {
        if !renderer.agrees(&conversation.messages)? {
            facts.disagrees = Some(conversation.place.clone());
            break;
        }
    }
    let tokenizer = &renderer.tokenizer;
    Ok(judge(&facts, tokenizer, vocab, pad_may_be_trained))
}

/// Judges what tokenising saw.
pub fn judge(
    facts: &Facts,
    tokenizer: &TextTokenizer,
    vocab: i64,
    pad_may_be_trained: bool,
) -> Preflight {
    let mut found = Preflight::default();
    trained(facts, &mut found);
    turns(facts, tokenizer, &mut found);
    padding(facts, tokenizer, pad_may_be_trained, &mut found);
    sizes(facts, tokenizer, vocab, &mut found);
    if let Some(place) = &facts.disagrees {
        found.stops.push(format!(
            "{place}: the tokens differ from those of the rendered text; this template or tokenizer cannot be followed token by token"
        ));
    }
    found
}

fn trained(facts: &Facts, found: &mut Preflight) {
    if facts.trained == 0 {
        let text = "no token is trained: no conversation has a message of the assistant";
        found.stops.push(text.into());
    } else if facts.without_trained > 0 {
        found.notes.push(format!(
            "{} of {} documents train nothing",
            facts.without_trained, facts.documents
        ));
    }
    if facts.straddling > 0 {
        let text = "tokens begin in the template's words and end in a reply; they are not trained";
        found.notes.push(format!("{} {text}", facts.straddling));
    }
}

fn turns(facts: &Facts, tokenizer: &TextTokenizer, found: &mut Preflight) {
    if facts.double_bos > 0 {
        let text = "the template writes one and something else another";
        found.stops.push(format!(
            "{} documents begin a text twice (double BOS, token {}): {text}",
            facts.double_bos,
            tokenizer.bos.unwrap_or_default()
        ));
    }
    if facts.ends_turn == 0 && facts.conversations > 0 && facts.trained > 0 {
        let text = "the end of a turn is never trained: the template has no control token after an assistant's message, and the model would never stop";
        found.stops.push(text.into());
    }
}

fn padding(
    facts: &Facts,
    tokenizer: &TextTokenizer,
    pad_may_be_trained: bool,
    found: &mut Preflight,
) {
    if facts.pad_trained == 0 {
        return;
    }
    let pad = tokenizer.pad.unwrap_or_default();
    let text = format!("the padding token {pad} is trained as well");
    if pad_may_be_trained {
        found.notes.push(format!(
            "{text}; here padding is told by place, so it is learned"
        ));
    } else {
        found.stops.push(format!(
            "{text}: trainers that mask padding by its number would never train it. Give the tokenizer another pad_token, or say train.pad_may_be_trained = true (here padding is told by place)"
        ));
    }
}

fn sizes(facts: &Facts, tokenizer: &TextTokenizer, vocab: i64, found: &mut Preflight) {
    if let Some(largest) = facts.largest.filter(|&id| i64::from(id) >= vocab) {
        found.stops.push(format!(
            "token {largest} has no row in the embedding of {vocab}: the tokenizer is another model's"
        ));
    }
    if tokenizer.size() as i64 > vocab {
        found.stops.push(format!(
            "the tokenizer has {} tokens and the embedding {vocab} rows: they belong to different models",
            tokenizer.size()
        ));
    }
}
