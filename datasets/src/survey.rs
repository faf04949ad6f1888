//! Summarizes a dataset of conversations: the statistics of the paper's table, and plots.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::diversity::Diversity;
use crate::samples::Sample;
use crate::stats::{TURN_CLASSES, turn_class};
use crate::svg::bars;
use crate::tokens::TokenCounter;

/// Maximum number of rows in a plot.
const MAX_ROWS: usize = 30;
/// Number of bins in the plot of tokens.
const BINS: u64 = 16;

/// The statistics of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Survey {
    /// Number of conversations.
    pub instructions: usize,
    /// Conversations by number of assistant messages: up to 3, 4 to 6, 7 to 9, 10 and more.
    pub turns: [usize; 4],
    /// Mean number of tokens in a conversation. Only message contents are counted, without a chat template.
    pub tokens_each: f64,
    /// Description of the tokenizer.
    pub tokenizer: String,
    /// Conversations by exact number of assistant messages.
    pub replies: BTreeMap<usize, usize>,
    /// Conversations by category, if the rows have one.
    pub categories: BTreeMap<String, usize>,
    /// Conversations by type of input file, if the rows have files.
    pub kinds: BTreeMap<String, usize>,
    /// Conversations by keyword, if the rows have one.
    pub keywords: BTreeMap<String, usize>,
    /// How varied the conversations are.
    pub diversity: Diversity,
    /// Number of tokens of each conversation.
    #[serde(skip)]
    tokens: Vec<u64>,
}

impl Survey {
    /// An empty survey. `counter` is only used for its name.
    pub fn new(counter: &TokenCounter) -> Self {
        Self {
            tokenizer: counter.name(),
            ..Self::default()
        }
    }

    /// Add a conversation.
    pub fn add(&mut self, sample: &Sample, counter: &TokenCounter) {
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
            if let Some(value) = sample.metadata(column) {
                *counts.entry(value.to_owned()).or_default() += 1;
            }
        }
        for kind in &sample.kinds {
            *self.kinds.entry(kind.clone()).or_default() += 1;
        }
    }

    /// The plots with their file names. Plots of missing columns are left out.
    pub fn plots(&self) -> Vec<(&'static str, String)> {
        let count = |value: f64| format!("{value:.0}");
        let rows = |counts: Vec<(String, usize)>| -> Vec<(String, f64)> {
            counts
                .into_iter()
                .map(|(name, n)| (name, n as f64))
                .collect()
        };
        let replies = self.replies.iter().take(MAX_ROWS);
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

    /// Conversations by number of tokens, in bins of equal width, each with its name.
    pub fn bins(&self) -> Vec<(String, usize)> {
        let Some(max) = self.tokens.iter().max() else {
            return Vec::new();
        };
        let width = (max / BINS + 1).next_multiple_of(10);
        let mut bins = vec![0; usize::try_from(max / width + 1).unwrap_or(1)];
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

/// Counts in descending order; ties are ordered by name.
fn most_frequent(counts: &BTreeMap<String, usize>) -> Vec<(String, usize)> {
    let mut counts: Vec<_> = counts.iter().map(|(name, n)| (name.clone(), *n)).collect();
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    counts.truncate(MAX_ROWS);
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
        writeln!(f, "counted by             {}", self.tokenizer)?;
        write!(f, "{}", self.diversity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_count_every_conversation() {
        let mut survey = Survey::new(&TokenCounter::Cl100k);
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
