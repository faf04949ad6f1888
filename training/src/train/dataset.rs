//! Batches of packed documents, in an order that recipe and step determine.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use pybench_training_data::{
    Bins, Conversation, LengthLimit, Overflow, Preflight, RecordKind, Rendered, Renderer, Source,
    TokenClass, TokenStats, TokenStore, TokenizeError, difficulties, fit_to_length, judge, pack,
    tokenize,
};
use tch::{Device, Tensor};

use super::dpo::{DpoConfig, Pair, PreferenceSums};
use super::mixture::{SourceShare, sample_documents, source_shares};
use super::recipe::{Curriculum, Recipe};
use crate::model::{DocumentLoss, Layout, Targets};

/// A tokenized document with loss weights.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizedDocument {
    pub ids: Vec<i64>,
    /// Loss weight of each token as a target.
    pub weights: Vec<f32>,
    /// `file:row` of the source.
    pub location: String,
}

/// Loss weights of tokens that the model does not have to produce.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LossWeights {
    prompt: f32,
    observation: f32,
}

impl LossWeights {
    fn of(self, class: u8) -> f32 {
        match class {
            class if class == TokenClass::Trained as u8 => 1.0,
            class if class == TokenClass::Observation as u8 => self.observation,
            class if class == TokenClass::Context as u8 => 0.0,
            _ => self.prompt,
        }
    }
}

#[derive(Debug)]
enum Documents {
    InMemory(Vec<TokenizedDocument>),
    Stored(Box<TokenStore>, LossWeights),
}

impl Documents {
    fn len(&self) -> usize {
        match self {
            Self::InMemory(documents) => documents.len(),
            Self::Stored(store, _) => store.len(),
        }
    }

    fn length(&self, number: usize) -> usize {
        match self {
            Self::InMemory(documents) => documents[number].ids.len(),
            Self::Stored(store, _) => store.length(number),
        }
    }

    fn location(&self, number: usize) -> String {
        match self {
            Self::InMemory(documents) => documents[number].location.clone(),
            Self::Stored(store, _) => store.location(number),
        }
    }

    fn get(&self, number: usize) -> TokenizedDocument {
        match self {
            Self::InMemory(documents) => documents[number].clone(),
            Self::Stored(store, weights) => {
                let classes = store.classes(number).iter();
                TokenizedDocument {
                    ids: store.ids(number).map(i64::from).collect(),
                    weights: classes.map(|&class| weights.of(class)).collect(),
                    location: store.location(number),
                }
            }
        }
    }
}

#[derive(Debug)]
struct SourceDocuments {
    documents: Documents,
    /// Index of the first document among those of all sources.
    first: usize,
    weight: f64,
    /// The difficulty of each document, if the first epoch is ordered by it.
    levels: Vec<u32>,
}

/// The documents of all sources and their packing. Documents stay on disk until a batch needs them.
#[derive(Debug)]
pub struct Dataset {
    pub mixture: Vec<SourceShare>,
    /// All sources together.
    pub stats: TokenStats,
    pub preflight: Preflight,
    parts: Vec<SourceDocuments>,
    max_seq_len: usize,
    seed: u64,
    /// The last epoch that was packed.
    packed: Option<(u64, Bins)>,
    /// Number of rows of each epoch that has been packed.
    counts: Vec<usize>,
    /// Whether two documents at a time are a pair, the chosen conversation first.
    pairs: bool,
    /// The log-probabilities of the reference model for each pair, once they are known.
    pub(super) reference: Vec<Pair<f64>>,
}

/// Tokens of one forward pass.
#[derive(Debug)]
pub struct Batch {
    /// `[rows, width]`.
    pub ids: Tensor,
    pub layout: Arc<Layout>,
    pub targets: Targets,
    /// Indices of the documents.
    pub documents: Vec<usize>,
    /// Number of tokens, without padding.
    pub tokens: usize,
    /// The log-probabilities of the reference model for the pair in each row; empty for other batches.
    pub reference: Vec<Pair<f64>>,
}

impl Batch {
    /// Each row contains consecutive documents.
    pub fn new(
        documents: &[TokenizedDocument],
        rows: &[Vec<usize>],
        device: Device,
    ) -> Result<Self> {
        let lengths: Vec<Vec<i64>> = rows
            .iter()
            .map(|row| row.iter().map(|&d| documents[d].ids.len() as i64).collect())
            .collect();
        let tokens = |row: &Vec<i64>| row.iter().sum::<i64>();
        let width = lengths.iter().map(tokens).max().unwrap_or(0);
        let Some(layout) = Layout::packed(width, &lengths) else {
            bail!("a batch contains an empty document");
        };
        let size = rows.len() * width as usize;
        // Padding is masked by position; its token id does not matter.
        let (mut ids, mut weights) = (vec![0i64; size], vec![0f32; size]);
        for (row, members) in rows.iter().enumerate() {
            let mut at = row * width as usize;
            for &member in members {
                let document = &documents[member];
                let end = at + document.ids.len();
                ids[at..end].copy_from_slice(&document.ids);
                weights[at..end].copy_from_slice(&document.weights);
                at = end;
            }
        }
        Ok(Self {
            targets: Targets::new(&ids, &weights, &layout),
            ids: Tensor::from_slice(&ids)
                .view([rows.len() as i64, width])
                .to_device(device),
            layout: Arc::new(layout),
            documents: rows.concat(),
            tokens: lengths.iter().map(tokens).sum::<i64>() as usize,
            reference: vec![],
        })
    }

    /// What the sum of the loss is divided by: the number of pairs, or the sum of the loss weights.
    pub(super) fn denominator(&self) -> f64 {
        match self.reference.len() {
            0 => self.targets.weight(),
            pairs => pairs as f64,
        }
    }

    /// The loss of the pairs from the log-probabilities of their conversations, and what is measured of them.
    /// `sft_scale` is the number of pairs per chosen token of the whole step.
    pub(super) fn pair_loss(
        &self,
        dpo: &DpoConfig,
        logps: &[f64],
        sft_scale: f64,
    ) -> (DocumentLoss, PreferenceSums) {
        let tokens = self.targets.per_document();
        dpo.batch_loss(logps, tokens, &self.reference, sft_scale)
    }

    /// Number of tokens of the chosen replies.
    pub(super) fn chosen_tokens(&self) -> f64 {
        let pairs = self.reference.len();
        let chosen = self.targets.per_document().iter().step_by(2).take(pairs);
        chosen.sum::<i64>() as f64
    }
}

/// Renders conversations and fits them into `max_seq_len` tokens. Only replies have a loss weight.
pub fn render_documents(
    renderer: &Renderer,
    conversations: &[Conversation],
    max_seq_len: usize,
) -> Result<Vec<TokenizedDocument>> {
    let mut documents = vec![];
    for conversation in conversations {
        let location = &conversation.location;
        let rendered = renderer.render(conversation);
        let rendered = rendered.map_err(|error| TokenizeError::Render {
            location: location.clone(),
            error,
        })?;
        let fitted = fit_to_length(rendered, max_seq_len, Overflow::CutAtTurn);
        for part in fitted.map(|(parts, _)| parts).unwrap_or_default() {
            documents.push(document(&part, location));
        }
    }
    Ok(documents)
}

fn document(rendered: &Rendered, location: &str) -> TokenizedDocument {
    let weight = |trained: bool| if trained { 1.0 } else { 0.0 };
    TokenizedDocument {
        ids: rendered.ids.iter().map(|&id| id.into()).collect(),
        weights: rendered.spans.iter().map(|s| weight(s.trained)).collect(),
        location: location.to_owned(),
    }
}

impl Dataset {
    /// Tokenizes the sources of a recipe, with the cache folder `cache`. `vocab` is the number of rows of the
    /// embedding.
    pub fn load(recipe: &Recipe, renderer: &Renderer, vocab: i64, cache: &Path) -> Result<Self> {
        let mut sources = recipe.data.clone();
        if recipe.dpo.is_some() {
            let kinds = sources.iter_mut().map(|source| &mut source.kind);
            kinds.for_each(|kind| *kind = RecordKind::Preference);
        }
        Self::load_sources(&sources, recipe, renderer, vocab, cache)
    }

    /// Like [`Self::load`] for other sources, which are all pairs or all none.
    pub(super) fn load_sources(
        sources: &[Source],
        recipe: &Recipe,
        renderer: &Renderer,
        vocab: i64,
        cache: &Path,
    ) -> Result<Self> {
        let train = &recipe.train;
        let limit = LengthLimit {
            max_seq_len: train.max_seq_len,
            overflow: train.overflow,
        };
        let weights = LossWeights {
            prompt: train.prompt_weight,
            observation: train.observation_weight,
        };
        let stores = sources
            .iter()
            .map(|source| tokenize(source, renderer, limit, cache));
        let stores = stores.collect::<Result<Vec<_>, _>>()?;
        let mut stats = TokenStats::default();
        stores.iter().for_each(|store| stats += store.stats());
        let named = sources.iter().zip(&stores);
        let mixture = source_shares(
            named.map(|(source, store)| (source.title(), source.weight, store.stats())),
        );
        let preflight = judge(&stats, &renderer.tokenizer, vocab, train.allow_trained_pad);
        let parts = stores.into_iter().zip(sources);
        let parts = parts
            .map(|(store, source)| (Documents::Stored(Box::new(store), weights), source.weight));
        let mut data = Self::from_sources(parts.collect(), train.max_seq_len, recipe.seed);
        (data.mixture, data.stats, data.preflight) = (mixture, stats, preflight);
        let is_pairs = |source: &Source| source.kind == RecordKind::Preference;
        data.pairs = sources.iter().any(is_pairs);
        if train.curriculum == Some(Curriculum::Difficulty) {
            data.set_levels(sources)?;
        }
        Ok(data)
    }

    /// Orders the first epoch by the difficulty of the documents of these sources.
    fn set_levels(&mut self, sources: &[Source]) -> Result<()> {
        for (part, source) in self.parts.iter_mut().zip(sources) {
            let known = difficulties(source)?;
            let documents = &part.documents;
            let level = |number| known.get(&documents.location(number)).copied().unwrap_or(0);
            part.levels = (0..documents.len()).map(level).collect();
        }
        let mut levels = self.parts.iter().flat_map(|part| &part.levels);
        if levels.all(|level| *level == 0) {
            bail!(
                "train.curriculum = \"difficulty\": no row of [[data]] has a value above 0 in the column `difficulty`, which \
                 datasets with composed tasks have; leave train.curriculum out"
            );
        }
        Ok(())
    }

    /// A dataset of documents in memory.
    pub fn from_documents(
        documents: Vec<TokenizedDocument>,
        max_seq_len: usize,
        seed: u64,
    ) -> Self {
        Self::from_sources(
            vec![(Documents::InMemory(documents), 1.0)],
            max_seq_len,
            seed,
        )
    }

    fn from_sources(sources: Vec<(Documents, f64)>, max_seq_len: usize, seed: u64) -> Self {
        let mut parts: Vec<SourceDocuments> = vec![];
        for (documents, weight) in sources {
            let first = parts
                .last()
                .map_or(0, |last| last.first + last.documents.len());
            parts.push(SourceDocuments {
                documents,
                first,
                weight,
                levels: vec![],
            });
        }
        Self {
            mixture: vec![],
            stats: TokenStats::default(),
            preflight: Preflight::default(),
            parts,
            max_seq_len,
            seed,
            packed: None,
            counts: vec![],
            pairs: false,
            reference: vec![],
        }
    }

    /// Number of pairs.
    pub(super) fn pair_count(&self) -> usize {
        match self.pairs {
            true => {
                self.parts
                    .iter()
                    .map(|part| part.documents.len())
                    .sum::<usize>()
                    / 2
            }
            false => 0,
        }
    }

    /// A dataset of pairs in memory: two documents each, the chosen conversation first, and what the reference model
    /// says of them.
    pub fn from_pairs(
        documents: Vec<TokenizedDocument>,
        reference: Vec<Pair<f64>>,
        seed: u64,
    ) -> Self {
        Self {
            pairs: true,
            reference,
            ..Self::from_documents(documents, usize::MAX, seed)
        }
    }

    pub fn document(&self, number: usize) -> TokenizedDocument {
        let part = self.parts.partition_point(|part| part.first <= number);
        let part = &self.parts[part - 1];
        part.documents.get(number - part.first)
    }

    /// Each row lists the indices of its documents.
    pub fn batch(&self, rows: &[Vec<usize>], device: Device) -> Result<Batch> {
        let numbers = rows.concat();
        let documents: Vec<TokenizedDocument> = numbers.iter().map(|&n| self.document(n)).collect();
        let mut next = 0..;
        let local = rows
            .iter()
            .map(|row| next.by_ref().take(row.len()).collect::<Vec<usize>>());
        let batch = Batch::new(&documents, &local.collect::<Vec<_>>(), device)?;
        let reference = rows.iter().filter_map(|row| {
            let pair = row.first().filter(|_| self.pairs)? / 2;
            self.reference.get(pair).copied()
        });
        Ok(Batch {
            reference: reference.collect(),
            documents: numbers,
            ..batch
        })
    }

    /// A hash of all documents and weights.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            hasher.update(&part.weight.to_le_bytes());
            if !part.levels.is_empty() {
                hasher.update(format!("{:?}", part.levels).as_bytes());
            }
            match &part.documents {
                Documents::Stored(store, weights) => {
                    hasher.update(format!("{} {weights:?}", store.key()).as_bytes());
                }
                Documents::InMemory(documents) => {
                    for document in documents {
                        hasher.update(
                            format!("{:?} {:?}", document.ids, document.weights).as_bytes(),
                        );
                    }
                }
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Indices and lengths of the documents of an epoch.
    fn epoch_documents(&self, epoch: u64) -> (Vec<usize>, Vec<usize>) {
        let mut seen = (vec![], vec![]);
        for (number, part) in self.parts.iter().enumerate() {
            let seed = self.seed.wrapping_add(number as u64);
            for document in sample_documents(part.documents.len(), part.weight, seed, epoch) {
                seen.0.push(part.first + document);
                seen.1.push(part.documents.length(document));
            }
        }
        seen
    }

    fn pack(&self, epoch: u64) -> Bins {
        if self.pairs {
            return self.shuffle_pairs(epoch);
        }
        let (documents, lengths) = self.epoch_documents(epoch);
        let is_ordered = self.parts.iter().any(|part| !part.levels.is_empty());
        let mut bins = match epoch == 0 && is_ordered {
            true => self.pack_by_level(&documents, &lengths),
            false => pack(&lengths, self.max_seq_len, self.seed, epoch),
        };
        bins.iter_mut()
            .flatten()
            .for_each(|index| *index = documents[*index]);
        bins
    }

    /// The packed documents of the first epoch, the easiest rows first. A row has documents of one level.
    fn pack_by_level(&self, documents: &[usize], lengths: &[usize]) -> Bins {
        let levels: Vec<u32> = documents.iter().map(|&number| self.level(number)).collect();
        let distinct: BTreeSet<u32> = levels.iter().copied().collect();
        let rows = distinct.into_iter().flat_map(|level| {
            // Empty documents are left out.
            let own = levels.iter().zip(lengths);
            let own = own.map(|(own, length)| if *own == level { *length } else { 0 });
            pack(&own.collect::<Vec<_>>(), self.max_seq_len, self.seed, 0)
        });
        rows.collect()
    }

    /// The difficulty of a document; 0 if it has none.
    fn level(&self, number: usize) -> u32 {
        let part = self.parts.partition_point(|part| part.first <= number);
        let part = &self.parts[part - 1];
        part.levels
            .get(number - part.first)
            .copied()
            .unwrap_or_default()
    }

    /// The pairs of an epoch, each in a row of its own.
    fn shuffle_pairs(&self, epoch: u64) -> Bins {
        let mut first = vec![];
        for (number, part) in self.parts.iter().enumerate() {
            let seed = self.seed.wrapping_add(number as u64);
            let pairs = sample_documents(part.documents.len() / 2, part.weight, seed, epoch);
            first.extend(pairs.into_iter().map(|pair| part.first + 2 * pair));
        }
        // Rows with room for one each.
        let order = pack(&vec![1; first.len()], 1, self.seed, epoch);
        let pairs = order.concat().into_iter().map(|index| first[index]);
        pairs.map(|first| vec![first, first + 1]).collect()
    }

    /// The packed rows of an epoch.
    pub fn rows(&mut self, epoch: u64) -> &Bins {
        let packed = match self.packed.take() {
            Some((number, bins)) if number == epoch => (number, bins),
            _ => (epoch, self.pack(epoch)),
        };
        &self.packed.insert(packed).1
    }

    fn row_count(&mut self, epoch: u64) -> usize {
        while self.counts.len() as u64 <= epoch {
            let count = self.rows(self.counts.len() as u64).len();
            self.counts.push(count);
        }
        self.counts[epoch as usize]
    }

    /// Number of steps of `rows` rows in `epochs` epochs.
    pub fn steps(&mut self, epochs: f64, rows: usize) -> u64 {
        let whole: usize = (0..epochs as u64).map(|epoch| self.rows(epoch).len()).sum();
        let part = self.rows(epochs as u64).len() as f64 * epochs.fract();
        (whole + part.ceil() as usize).div_ceil(rows) as u64
    }

    /// The rows of a step, counted from 0. Epochs follow each other without a gap. The result depends only on recipe
    /// and step, so a resumed run sees the same data.
    pub fn step_rows(&mut self, step: u64, rows: usize) -> Bins {
        let mut skip = step as usize * rows;
        let mut chosen = vec![];
        for epoch in 0.. {
            let count = self.row_count(epoch);
            if count == 0 {
                break;
            }
            if skip >= count {
                skip -= count;
                continue;
            }
            let bins = self.rows(epoch);
            let upto = (skip + rows - chosen.len()).min(count);
            chosen.extend_from_slice(&bins[skip..upto]);
            skip = 0;
            if chosen.len() == rows {
                break;
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset() -> Dataset {
        let documents = (1..40).map(|n| TokenizedDocument {
            ids: vec![1; 1 + n * 7 % 30],
            weights: vec![1.0; 1 + n * 7 % 30],
            location: String::new(),
        });
        Dataset::from_documents(documents.collect(), 32, 5)
    }

    #[test]
    fn steps_cover_every_epoch_without_gaps() {
        let mut data = dataset();
        let wanted: Bins = (0..3).flat_map(|epoch| data.rows(epoch).clone()).collect();
        let steps = data.steps(3.0, 4);
        let seen: Bins = (0..steps)
            .flat_map(|step| data.step_rows(step, 4))
            .collect();
        assert_eq!(seen[..wanted.len()], wanted);
        assert!(seen.len() - wanted.len() < 4);
    }

    #[test]
    fn the_first_epoch_goes_from_easy_to_difficult_rows() {
        let ordered = || {
            let mut data = dataset();
            data.parts[0].levels = (0..39).map(|number| number * 7 % 4).collect();
            data
        };
        let mut data = ordered();
        let rows = data.rows(0).clone();
        let levels: Vec<u32> = rows.iter().flatten().map(|n| data.level(*n)).collect();
        assert!(levels.is_sorted(), "{levels:?}");
        let mut seen = rows.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..39).collect::<Vec<_>>());
        let mut plain = dataset();
        assert_ne!(&rows, plain.rows(0));
        assert_eq!(data.rows(1), plain.rows(1), "later epochs are random");
        assert_ne!(data.digest(), plain.digest());
        let (steps, rows) = (data.steps(2.0, 2), 2);
        for step in 0..steps {
            let resumed = ordered().step_rows(step, rows);
            assert_eq!(data.step_rows(step, rows), resumed, "step {step}");
        }
    }

    #[test]
    fn every_pair_is_in_one_row_of_an_epoch() {
        let documents = dataset().parts.remove(0).documents;
        let count = documents.len() / 2 * 2;
        let documents = (0..count).map(|number| documents.get(number)).collect();
        let reference = (0..count / 2).map(|pair| Pair {
            chosen: pair as f64,
            rejected: -1.0,
        });
        let mut data = Dataset::from_pairs(documents, reference.collect(), 5);
        assert_eq!(data.pair_count(), count / 2);
        let rows = data.rows(0).clone();
        assert_ne!(&rows, data.rows(1), "each epoch has an order of its own");
        let mut seen = rows.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
        let batch = data.batch(&rows[..3], Device::Cpu).unwrap();
        let wanted = rows[..3].iter().map(|row| (row[0] / 2) as f64);
        let found = batch.reference.iter().map(|pair| pair.chosen);
        assert!(found.eq(wanted));
        assert!(rows.iter().all(|row| row[0] + 1 == row[1]));
        assert_eq!(batch.denominator(), 3.0);
    }

    #[test]
    fn batches_contain_the_documents_of_their_indices() {
        let data = Dataset::from_sources(
            vec![
                (Documents::InMemory(vec![]), 1.0),
                (dataset().parts.remove(0).documents, 0.5),
            ],
            32,
            5,
        );
        let rows = data.pack(1);
        assert_eq!(rows.concat().len(), 20);
        let batch = data.batch(&rows[..2], Device::Cpu).unwrap();
        assert_eq!(batch.documents, rows[..2].concat());
        let lengths = batch.documents.iter().map(|&n| data.document(n).ids.len());
        assert_eq!(batch.tokens, lengths.sum::<usize>());
    }
}
