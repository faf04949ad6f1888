//! What tokenising saw: the counts of reports and all that the preflight judges by. Kept with the
//! tokens, so that a run that reads them from the cache is judged like the one that made them.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::{OverflowReport, Rendered, TextTokenizer};

/// Counts over documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Rows of the source.
    pub records: usize,
    /// Documents made of them.
    pub documents: usize,
    /// Of these, parts of conversations.
    pub conversations: usize,
    /// Tokens.
    pub tokens: usize,
    /// Tokens that are trained.
    pub trained: usize,
    /// Documents that train nothing.
    pub without_trained: usize,
    /// Parts of conversations in which the end of a turn is trained.
    pub ends_turn: usize,
    /// Tokens that begin in the template's words and end in a reply.
    pub straddling: usize,
    /// Documents with two beginnings of text in a row.
    pub double_bos: usize,
    /// Documents in which the padding token is trained.
    pub pad_trained: usize,
    /// The largest token.
    pub largest: Option<u32>,
    /// The first conversation whose tokens are not those of its rendered text.
    pub disagrees: Option<String>,
    /// What did not fit.
    pub overflow: OverflowReport,
}

impl Facts {
    /// Counts a document.
    pub fn see(&mut self, rendered: &Rendered, conversation: bool, tokenizer: &TextTokenizer) {
        let trained = rendered.trained();
        self.documents += 1;
        self.conversations += usize::from(conversation);
        self.tokens += rendered.ids.len();
        self.trained += trained;
        self.without_trained += usize::from(trained == 0);
        self.straddling += rendered.straddling;
        let ends = |span: &super::Span| span.trained && span.ends_turn;
        self.ends_turn += usize::from(conversation && rendered.spans.iter().any(ends));
        if let Some(bos) = tokenizer.bos {
            // ChatML models call the token that opens every turn their BOS; only two in a row are a
            // mistake.
            let double = rendered.ids.windows(2).any(|pair| pair == [bos, bos]);
            self.double_bos += usize::from(double);
        }
        if let Some(pad) = tokenizer.pad {
            let mut pairs = rendered.ids.iter().zip(&rendered.spans);
            let found = pairs.any(|(&id, span)| id == pad && span.trained);
            self.pad_trained += usize::from(found);
        }
        self.largest = self.largest.max(rendered.ids.iter().max().copied());
    }
}

impl AddAssign<&Facts> for Facts {
    fn add_assign(&mut self, other: &Self) {
        self.records += other.records;
        self.documents += other.documents;
        self.conversations += other.conversations;
        self.tokens += other.tokens;
        self.trained += other.trained;
        self.without_trained += other.without_trained;
        self.ends_turn += other.ends_turn;
        self.straddling += other.straddling;
        self.double_bos += other.double_bos;
        self.pad_trained += other.pad_trained;
        self.largest = self.largest.max(other.largest);
        self.disagrees = self.disagrees.take().or_else(|| other.disagrees.clone());
        self.overflow += other.overflow;
    }
}
