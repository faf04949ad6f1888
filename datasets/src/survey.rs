//! What a dataset of conversations looks like: the paper's table and its plots.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::samples::Sample;
use crate::stats::{TURN_CLASSES, turn_class};
use crate::svg::bars;
use crate::tokens::Counter;

/// Most rows of a plot.
const MOST_ROWS: usize = 30;
/// Bins of the plot of tokens.
const BINS: u64 = 16;

/// The table, and what the plots show.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Survey {
    /// Conversations.
    pub instructions: usize,
    /// Conversations by replies of the model: up to 3, 4 to 6, 7 to 9, 10 and more.
    pub turns: [usize; 4],
    /// Mean tokens of a conversation: contents of messages, without a template.
    pub tokens_each: f64,
    /// Who counted them.
    pub tokenizer: String,
    /// Conversations by exact number of replies.
    pub replies: BTreeMap<usize, usize>,
    /// Conversations by category, where rows say it.
    pub categories: BTreeMap<String, usize>,
    /// Conversations by type of an input file, where rows say it.
    pub kinds: BTreeMap<String, usize>,
    /// Conversations by keyword, where rows say it.
    pub keywords: BTreeMap<String, usize>,
    /// Tokens of each conversation.
    #[serde(skip)]
    tokens: Vec<u64>,
}

impl Survey {
    /// A survey of nothing yet, counted by that tokenizer.
    pub fn new(counter: &Counter) -> Self {
        Self {
            tokenizer: counter.name(),
            ..Self::default()
        }
    }

    /// Adds a conversation.
    pub fn add(&mut self, sample: &Sample, counter: &Counter) {
        let turns = sample.turns();
        self.instructions += 1;
        self.turns[turn_class(u32::try_from(turns).unwrap_or(u32::MAX))] += 1;
        *self.replies.entry(turns).or_default() += 1;
        let messages = sample.messages.iter();
        let tokens: u64 = messages.map(|m| counter.count(&m.content)).sum();
        self.tokens_each += (tokens as f64 - self.tokens_each) / self.instructions as f64;
        self.tokens.push(tokens);
        for (column, counts) in [
            ("category", &mut self.categories),
            ("keyword", &mut self.keywords),
        ] {
            if let Some(value) = sample.fact(column) {
                *counts.entry(value.to_owned()).or_default() += 1;
            }
        }
        for kind in &sample.kinds {
            *self.kinds.entry(kind.clone()).or_default() += 1;
        }
    }

    /// The plots by file name; those of columns that the rows lack are left out.
    pub fn plots(&self) -> Vec<(&'static str, String)> {
        let count = |value: f64| format!("{value:.0}");
        let rows = |counts: Vec<(String, usize)>| -> Vec<(String, f64)> {
            counts
                .into_iter()
                .map(|(name, n)| (name, n as f64))
                .collect()
        };
        let replies = self.replies.iter().take(MOST_ROWS);
        let replies = replies.map(|(turns, n)| (turns.to_string(), *n)).collect();
        let mut plots = vec![
            (
                "turns.svg",
                bars("Conversations by turns", &rows(replies), count),
            ),
            (
                "tokens.svg",
                bars("Conversations by tokens", &rows(self.bins()), count),
            ),
        ];
        for (file, title, counts) in [
            (
                "categories.svg",
                "Conversations by category",
                &self.categories,
            ),
            (
                "types.svg",
                "Conversations by type of input file",
                &self.kinds,
            ),
            ("keywords.svg", "Conversations by keyword", &self.keywords),
        ] {
            if !counts.is_empty() {
                plots.push((file, bars(title, &rows(most_frequent(counts)), count)));
            }
        }
        plots
    }

    /// Conversations by tokens, in classes of equal width.
    fn bins(&self) -> Vec<(String, usize)> {
        let Some(most) = self.tokens.iter().max() else {
            return Vec::new();
        };
        let width = (most / BINS + 1).next_multiple_of(10);
        let mut bins = vec![0; usize::try_from(most / width + 1).unwrap_or(1)];
        for tokens in &self.tokens {
            if let Some(bin) = usize::try_from(tokens / width)
                .ok()
                .and_then(|at| bins.get_mut(at))
            {
                *bin += 1;
            }
        }
        let name = |at: usize| format!("{} to {}", at as u64 * width, (at as u64 + 1) * width - 1);
        bins.into_iter()
            .enumerate()
            .map(|(at, n)| (name(at), n))
            .collect()
    }
}

/// The most frequent first; equal ones by name.
fn most_frequent(counts: &BTreeMap<String, usize>) -> Vec<(String, usize)> {
    let mut counts: Vec<_> = counts.iter().map(|(name, n)| (name.clone(), *n)).collect();
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    counts.truncate(MOST_ROWS);
    counts
}

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "instructions           {}", self.instructions)?;
        for (class, count) in TURN_CLASSES.iter().zip(self.turns) {
            let share = 100.0 * count as f64 / self.instructions.max(1) as f64;
            writeln!(f, "turns {class:<16} {count} ({share:.1} %)")?;
        }
        writeln!(f, "tokens per trajectory  {:.0}", self.tokens_each)?;
        writeln!(f, "counted by             {}", self.tokenizer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_every_conversation() {
        let mut survey = Survey::new(&Counter::QuarterOfBytes);
        survey.tokens = vec![0, 9, 10, 155, 1600];
        let bins = survey.bins();
        assert_eq!(bins.iter().map(|(_, n)| n).sum::<usize>(), 5);
        assert_eq!(bins[0], ("0 to 109".to_owned(), 3));
        assert!(Survey::default().bins().is_empty());
    }

    #[test]
    fn the_most_frequent_come_first() {
        let counts = [("b", 1), ("a", 1), ("c", 3)].map(|(name, n)| (name.to_owned(), n));
        let order: Vec<_> = most_frequent(&counts.into())
            .into_iter()
            .map(|(n, _)| n)
            .collect();
        assert_eq!(order, ["c", "a", "b"]);
    }
}
