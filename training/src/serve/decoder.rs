//! What computes the next tokens: libtorch, or on CPUs the kernels of `pybench-inference`.

use std::fmt::Debug;

use crate::model::{Extension, KvCache, Model};
use crate::torch::floats;

/// A model with a key-value cache for each sequence.
pub(super) trait Decoder {
    type Cache: SequenceCache;

    /// Computes new tokens of several sequences together and appends them to their caches. Each sequence has at least
    /// one token, and each token is in the vocabulary.
    fn extend(&mut self, sequences: Vec<(&mut Self::Cache, &[i64])>);

    /// The logits after the last token of the `sequence`th sequence of the last pass.
    fn logits(&self, sequence: usize) -> &[f32];
}

/// Keys and values of the tokens of one sequence.
pub(super) trait SequenceCache: Debug + Default {
    /// Number of tokens.
    fn len(&self) -> usize;

    /// Keeps only the first `length` tokens.
    fn truncate(&mut self, length: usize);

    /// The first `length` tokens, as a cache of their own.
    fn prefix(&self, length: usize) -> Self;
}

/// The forward pass of the trainer.
#[derive(Debug)]
pub(super) struct TorchDecoder {
    model: Model,
    /// `[sequences, vocab]`.
    logits: Vec<f32>,
}

impl TorchDecoder {
    pub(super) fn new(model: Model) -> Self {
        Self {
            model,
            logits: vec![],
        }
    }
}

impl Decoder for TorchDecoder {
    type Cache = KvCache;

    fn extend(&mut self, sequences: Vec<(&mut KvCache, &[i64])>) {
        let sequences = sequences.into_iter();
        let mut extensions: Vec<_> = sequences
            .map(|(cache, ids)| Extension { cache, ids })
            .collect();
        let logits = self.model.extend(&mut extensions);
        self.logits = floats(&logits);
    }

    fn logits(&self, sequence: usize) -> &[f32] {
        let vocab = self.model.config.vocab as usize;
        &self.logits[sequence * vocab..(sequence + 1) * vocab]
    }
}

impl SequenceCache for KvCache {
    fn len(&self) -> usize {
        self.len()
    }

    fn truncate(&mut self, length: usize) {
        self.truncate(length);
    }

    fn prefix(&self, length: usize) -> Self {
        self.prefix(length)
    }
}

impl Decoder for pybench_inference::Model {
    type Cache = pybench_inference::KvCache;

    fn extend(&mut self, sequences: Vec<(&mut Self::Cache, &[i64])>) {
        let sequences = sequences.into_iter();
        let mut extensions: Vec<_> = sequences
            .map(|(cache, ids)| pybench_inference::Extension { cache, ids })
            .collect();
        self.extend(&mut extensions);
    }

    fn logits(&self, sequence: usize) -> &[f32] {
        self.logits(sequence)
    }
}

impl SequenceCache for pybench_inference::KvCache {
    fn len(&self) -> usize {
        self.len()
    }

    fn truncate(&mut self, length: usize) {
        self.truncate(length);
    }

    fn prefix(&self, length: usize) -> Self {
        self.prefix(length)
    }
}
