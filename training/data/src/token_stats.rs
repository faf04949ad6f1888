//! Statistics of tokenization, for reports and for the preflight checks. They are cached with the tokens, so
//! that a run that reads the cache gets the same checks.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::render::{OverflowReport, Rendered, Span};
use crate::tokenizer::TextTokenizer;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenStats {
    /// Rows of the source.
    pub records: usize,
    pub documents: usize,
    /// Documents that are conversations or parts of one.
    pub conversations: usize,
    pub tokens: usize,
    pub trained: usize,
    /// Documents without a trained token.
    pub without_trained: usize,
    /// Documents in which an end of turn is trained.
    pub end_of_turn_trained: usize,
    /// Tokens that start in template text and end in a reply.
    pub straddling: usize,
    /// Messages with tool calls whose content the chat template leaves out.
    pub left_out: usize,
    /// Documents with two BOS tokens in a row.
    pub double_bos: usize,
    /// Documents in which the padding token is trained.
    pub pad_trained: usize,
    pub largest_id: Option<u32>,
    /// Location of the first conversation whose tokens differ from those of its rendered text.
    pub mismatch: Option<String>,
    pub overflow: OverflowReport,
}

impl TokenStats {
    /// Adds a document.
    pub fn add(&mut self, rendered: &Rendered, conversation: bool, tokenizer: &TextTokenizer) {
        let trained = rendered.trained();
        self.documents += 1;
        self.conversations += usize::from(conversation);
        self.tokens += rendered.ids.len();
        self.trained += trained;
        self.without_trained += usize::from(trained == 0);
        self.straddling += rendered.straddling;
        self.left_out += rendered.left_out;
        let ends = |span: &Span| span.trained && span.ends_turn;
        self.end_of_turn_trained += usize::from(conversation && rendered.spans.iter().any(ends));
        if let Some(bos) = tokenizer.bos {
            // The BOS of ChatML models opens every turn; only two in a row are a mistake.
            let double = rendered.ids.windows(2).any(|pair| pair == [bos, bos]);
            self.double_bos += usize::from(double);
        }
        if let Some(pad) = tokenizer.pad {
            let mut pairs = rendered.ids.iter().zip(&rendered.spans);
            let found = pairs.any(|(&id, span)| id == pad && span.trained);
            self.pad_trained += usize::from(found);
        }
        self.largest_id = self.largest_id.max(rendered.ids.iter().max().copied());
    }
}

impl AddAssign<&TokenStats> for TokenStats {
    fn add_assign(&mut self, other: &Self) {
        self.records += other.records;
        self.documents += other.documents;
        self.conversations += other.conversations;
        self.tokens += other.tokens;
        self.trained += other.trained;
        self.without_trained += other.without_trained;
        self.end_of_turn_trained += other.end_of_turn_trained;
        self.straddling += other.straddling;
        self.left_out += other.left_out;
        self.double_bos += other.double_bos;
        self.pad_trained += other.pad_trained;
        self.largest_id = self.largest_id.max(other.largest_id);
        self.mismatch = self.mismatch.take().or_else(|| other.mismatch.clone());
        self.overflow += other.overflow;
    }
}
