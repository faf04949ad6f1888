//! Conversations made into batches, in an order that recipe and step fix.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use tch::{Device, Tensor};

use super::Recipe;
use super::mixture::{Share, chosen, shares};
use crate::data::{
    Bins, Class, Conversation, Facts, Fitting, Overflow, Preflight, Rendered, Renderer, TokenStore,
    fit, judge, pack, tokenize,
};
use crate::model::{Layout, Targets};

/// A document ready for training.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Token numbers.
    pub ids: Vec<i64>,
    /// How much each counts as a target.
    pub weights: Vec<f32>,
    /// Where it came from.
    pub place: String,
}

/// What the tokens that the model does not have to produce count as targets.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weights {
    prompt: f32,
    observation: f32,
}

impl Weights {
    fn of(self, class: u8) -> f32 {
        match class {
            class if class == Class::Trained as u8 => 1.0,
            class if class == Class::Observation as u8 => self.observation,
            _ => self.prompt,
        }
    }
}

/// A source's documents.
#[derive(Debug)]
enum Documents {
    Ready(Vec<Document>),
    Stored(Box<TokenStore>, Weights),
}

impl Documents {
    fn len(&self) -> usize {
        match self {
            Self::Ready(documents) => documents.len(),
            Self::Stored(store, _) => store.len(),
        }
    }

    fn length(&self, number: usize) -> usize {
        match self {
            Self::Ready(documents) => documents[number].ids.len(),
            Self::Stored(store, _) => store.length(number),
        }
    }

    fn get(&self, number: usize) -> Document {
        match self {
            Self::Ready(documents) => documents[number].clone(),
            Self::Stored(store, weights) => {
                let classes = store.classes(number).iter();
                Document {
                    ids: store.ids(number).map(i64::from).collect(),
                    weights: classes.map(|&class| weights.of(class)).collect(),
                    place: store.place(number),
                }
            }
        }
    }
}

#[derive(Debug)]
struct Part {
    documents: Documents,
    /// Number of its first document among those of all sources.
    first: usize,
    weight: f64,
}

/// All documents, and how they are packed. The documents stay on disk until a batch needs them.
#[derive(Debug)]
pub struct Dataset {
    /// What each source gives.
    pub mixture: Vec<Share>,
    /// What tokenising saw, all sources together.
    pub facts: Facts,
    /// What the preflight found.
    pub preflight: Preflight,
    parts: Vec<Part>,
    context: usize,
    seed: u64,
    /// The last epoch that was packed; it takes several steps to go through one.
    packed: Option<(u64, Bins)>,
    /// Rows of each epoch that was ever packed.
    counts: Vec<usize>,
}

/// Tokens that go through the model together.
#[derive(Debug)]
pub struct Batch {
    /// `[rows, width]`.
    pub ids: Tensor,
    /// Where its documents lie.
    pub layout: Arc<Layout>,
    /// What is to be predicted.
    pub targets: Targets,
    /// Numbers of its documents.
    pub documents: Vec<usize>,
    /// Tokens of documents.
    pub tokens: usize,
}

impl Batch {
    /// A batch of rows of documents one after another.
    pub fn new(documents: &[Document], rows: &[Vec<usize>], device: Device) -> Result<Self> {
        let lengths: Vec<Vec<i64>> = rows
            .iter()
            .map(|row| row.iter().map(|&d| documents[d].ids.len() as i64).collect())
            .collect();
        let tokens = |row: &Vec<i64>| row.iter().sum::<i64>();
        let width = lengths.iter().map(tokens).max().unwrap_or(0);
        let Some(layout) = Layout::packed(width, &lengths) else {
            bail!("a batch holds an empty document");
        };
        let size = rows.len() * width as usize;
        // Padding is told by place; its number is any that exists.
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
        })
    }
}

/// Renders conversations and fits them into `context` tokens; only replies count. Errors name the
/// conversation.
pub fn prepare(
    renderer: &Renderer,
    conversations: &[Conversation],
    context: usize,
) -> Result<Vec<Document>> {
    let mut documents = vec![];
    for conversation in conversations {
        let place = &conversation.place;
        let rendered = match renderer.render(&conversation.messages) {
            Ok(rendered) => rendered,
            Err(error) => bail!("{place}: {error}"),
        };
        let fitted = fit(rendered, context, Overflow::CutAtTurn);
        for part in fitted.map(|(parts, _)| parts).unwrap_or_default() {
            documents.push(document(&part, place));
        }
    }
    Ok(documents)
}

fn document(rendered: &Rendered, place: &str) -> Document {
    let weight = |trained: bool| if trained { 1.0 } else { 0.0 };
    Document {
        ids: rendered.ids.iter().map(|&id| id.into()).collect(),
        weights: rendered.spans.iter().map(|s| weight(s.trained)).collect(),
        place: place.to_owned(),
    }
}

impl Dataset {
    /// The recipe's sources as tokens, from the folder `cache` where it has them; `vocab` is the number
    /// of rows of the embedding.
    pub fn load(recipe: &Recipe, renderer: &Renderer, vocab: i64, cache: &Path) -> Result<Self> {
        let train = &recipe.train;
        let fitting = Fitting {
            context: train.context,
            overflow: train.overflow,
        };
        let weights = Weights {
            prompt: train.prompt_weight,
            observation: train.observation_weight,
        };
        let stores = recipe
            .data
            .iter()
            .map(|source| tokenize(source, renderer, fitting, cache));
        let stores = stores.collect::<Result<Vec<_>, _>>()?;
        let mut facts = Facts::default();
        stores.iter().for_each(|store| facts += store.facts());
        let named = recipe.data.iter().zip(&stores);
        let mixture =
            shares(named.map(|(source, store)| (source.title(), source.weight, store.facts())));
        let may = train.pad_may_be_trained;
        let preflight = judge(&facts, &renderer.tokenizer, vocab, may);
        let parts = stores.into_iter().zip(&recipe.data);
        let parts = parts
            .map(|(store, source)| (Documents::Stored(Box::new(store), weights), source.weight));
        let mut data = Self::mixed(parts.collect(), train.context, recipe.seed);
        (data.mixture, data.facts, data.preflight) = (mixture, facts, preflight);
        Ok(data)
    }

    /// A dataset of ready documents.
    pub fn of(documents: Vec<Document>, context: usize, seed: u64) -> Self {
        Self::mixed(vec![(Documents::Ready(documents), 1.0)], context, seed)
    }

    fn mixed(sources: Vec<(Documents, f64)>, context: usize, seed: u64) -> Self {
        let mut parts: Vec<Part> = vec![];
        for (documents, weight) in sources {
            let first = parts
                .last()
                .map_or(0, |last| last.first + last.documents.len());
            parts.push(Part {
                documents,
                first,
                weight,
            });
        }
        Self {
            mixture: vec![],
            facts: Facts::default(),
            preflight: Preflight::default(),
            parts,
            context,
            seed,
            packed: None,
            counts: vec![],
        }
    }

    /// A document by its number.
    pub fn document(&self, number: usize) -> Document {
        let part = self.parts.partition_point(|part| part.first <= number);
        let part = &self.parts[part - 1];
        part.documents.get(number - part.first)
    }

    /// A batch of rows of documents.
    pub fn batch(&self, rows: &[Vec<usize>], device: Device) -> Result<Batch> {
        let numbers = rows.concat();
        let documents: Vec<Document> = numbers.iter().map(|&n| self.document(n)).collect();
        let mut next = 0..;
        let local = rows
            .iter()
            .map(|row| next.by_ref().take(row.len()).collect::<Vec<usize>>());
        let batch = Batch::new(&documents, &local.collect::<Vec<_>>(), device)?;
        Ok(Batch {
            documents: numbers,
            ..batch
        })
    }

    /// A hash of all documents and their weights.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            hasher.update(&part.weight.to_le_bytes());
            match &part.documents {
                Documents::Stored(store, weights) => {
                    hasher.update(format!("{} {weights:?}", store.key()).as_bytes());
                }
                Documents::Ready(documents) => {
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

    /// The documents that an epoch sees, with their lengths.
    fn seen(&self, epoch: u64) -> (Vec<usize>, Vec<usize>) {
        let mut seen = (vec![], vec![]);
        for (number, part) in self.parts.iter().enumerate() {
            let seed = self.seed.wrapping_add(number as u64);
            for document in chosen(part.documents.len(), part.weight, seed, epoch) {
                seen.0.push(part.first + document);
                seen.1.push(part.documents.length(document));
            }
        }
        seen
    }

    fn pack(&self, epoch: u64) -> Bins {
        let (documents, lengths) = self.seen(epoch);
        let mut bins = pack(&lengths, self.context, self.seed, epoch);
        bins.iter_mut()
            .flatten()
            .for_each(|place| *place = documents[*place]);
        bins
    }

    /// Packed rows of an epoch.
    pub fn rows(&mut self, epoch: u64) -> &Bins {
        let packed = match self.packed.take() {
            Some((number, bins)) if number == epoch => (number, bins),
            _ => (epoch, self.pack(epoch)),
        };
        &self.packed.insert(packed).1
    }

    fn count(&mut self, epoch: u64) -> usize {
        while self.counts.len() as u64 <= epoch {
            let count = self.rows(self.counts.len() as u64).len();
            self.counts.push(count);
        }
        self.counts[epoch as usize]
    }

    /// Steps of that many rows in so many epochs.
    pub fn steps(&mut self, epochs: f64, rows: usize) -> u64 {
        let whole: usize = (0..epochs as u64).map(|epoch| self.rows(epoch).len()).sum();
        let part = self.rows(epochs as u64).len() as f64 * epochs.fract();
        (whole + part.ceil() as usize).div_ceil(rows) as u64
    }

    /// The rows of a step, counted from 0: the next `rows` of the epochs one after another. Depends
    /// on nothing but the recipe, so a resumed run goes on where it stopped.
    pub fn step_rows(&mut self, step: u64, rows: usize) -> Bins {
        let mut skip = step as usize * rows;
        let mut chosen = vec![];
        for epoch in 0.. {
            let count = self.count(epoch);
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
        let documents = (1..40).map(|n| Document {
            ids: vec![1; 1 + n * 7 % 30],
            weights: vec![1.0; 1 + n * 7 % 30],
            place: String::new(),
        });
        Dataset::of(documents.collect(), 32, 5)
    }

    #[test]
    fn steps_go_through_every_epoch_without_gaps() {
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
    fn batches_hold_the_documents_of_their_numbers() {
        let data = Dataset::mixed(
            vec![
                (Documents::Ready(vec![]), 1.0),
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
