//! Conversations made into batches, in an order that recipe and step fix.

use std::sync::Arc;

use anyhow::{Result, bail};
use tch::{Device, Tensor};

use super::Recipe;
use crate::data::{
    Bins, Conversation, Overflow, OverflowReport, Preflight, Rendered, Renderer, fit, pack,
    preflight, read,
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

/// All documents, and how they are packed.
#[derive(Debug)]
pub struct Dataset {
    /// The documents.
    pub documents: Vec<Document>,
    /// What did not fit.
    pub overflow: OverflowReport,
    /// What the preflight found.
    pub preflight: Preflight,
    lengths: Vec<usize>,
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

/// Renders conversations and fits them into `context` tokens. Errors name the conversation.
pub fn prepare(
    renderer: &Renderer,
    conversations: &[Conversation],
    context: usize,
    overflow: Overflow,
    prompt_weight: f32,
) -> Result<(Vec<Document>, Vec<Rendered>, OverflowReport)> {
    let (mut documents, mut parts_seen) = (vec![], vec![]);
    let mut report = OverflowReport::default();
    for conversation in conversations {
        let place = &conversation.place;
        let rendered = match renderer.render(&conversation.messages) {
            Ok(rendered) => rendered,
            Err(error) => bail!("{place}: {error}"),
        };
        let tokens = rendered.ids.len();
        let Some((parts, lost)) = fit(rendered, context, overflow) else {
            bail!(
                "{place} has {tokens} tokens, more than train.context = {context}; raise it, or choose train.overflow = \"drop\", \"cut_at_turn\" or \"split_with_context\""
            );
        };
        report += lost;
        for part in parts {
            documents.push(document(&part, prompt_weight, place));
            parts_seen.push(part);
        }
    }
    Ok((documents, parts_seen, report))
}

fn document(rendered: &Rendered, prompt_weight: f32, place: &str) -> Document {
    let weight = |trained: bool| if trained { 1.0 } else { prompt_weight };
    Document {
        ids: rendered.ids.iter().map(|&id| id.into()).collect(),
        weights: rendered.spans.iter().map(|s| weight(s.trained)).collect(),
        place: place.to_owned(),
    }
}

impl Dataset {
    /// Reads and renders the recipe's sources; `vocab` is the number of rows of the embedding.
    pub fn load(recipe: &Recipe, renderer: &Renderer, vocab: i64) -> Result<Self> {
        let mut conversations = vec![];
        for source in &recipe.data {
            conversations.extend(weighted(read(source)?, source.weight));
        }
        let train = &recipe.train;
        let (documents, rendered, overflow) = prepare(
            renderer,
            &conversations,
            train.context,
            train.overflow,
            train.prompt_weight,
        )?;
        let preflight = preflight(renderer, &conversations, &rendered, vocab)?;
        Ok(Self {
            lengths: documents.iter().map(|d| d.ids.len()).collect(),
            documents,
            overflow,
            preflight,
            context: train.context,
            seed: recipe.seed,
            packed: None,
            counts: vec![],
        })
    }

    /// A dataset of ready documents.
    pub fn of(documents: Vec<Document>, context: usize, seed: u64) -> Self {
        Self {
            lengths: documents.iter().map(|d| d.ids.len()).collect(),
            documents,
            overflow: OverflowReport::default(),
            preflight: Preflight::default(),
            context,
            seed,
            packed: None,
            counts: vec![],
        }
    }

    /// Tokens, and trained ones.
    pub fn tokens(&self) -> (usize, usize) {
        let trained = |d: &Document| d.weights.iter().filter(|&&w| w > 0.0).count();
        let all = self.documents.iter();
        (self.lengths.iter().sum(), all.map(trained).sum())
    }

    /// Packed rows of an epoch.
    pub fn rows(&mut self, epoch: u64) -> &Bins {
        let packed = match self.packed.take() {
            Some((number, bins)) if number == epoch => (number, bins),
            _ => (epoch, pack(&self.lengths, self.context, self.seed, epoch)),
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

/// The conversations as often as the weight says; of a fraction the first ones.
fn weighted(conversations: Vec<Conversation>, weight: f64) -> Vec<Conversation> {
    let count = (conversations.len() as f64 * weight).round() as usize;
    let all = conversations.iter().cycle();
    all.take(count).cloned().collect()
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
}
