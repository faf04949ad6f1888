//! Statistics of a dataset.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Row;
use crate::row::{category_name, language_code};

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    pub rows: usize,
    /// Rows by number of replies: up to 3, 4 to 6, 7 to 9, 10 and more; the classes of the paper's table.
    pub turns: [usize; 4],
    /// Replies in all rows.
    pub replies: u64,
    /// Prompt tokens of all calls.
    pub prompt_tokens: u64,
    /// Completion tokens of all calls.
    pub completion_tokens: u64,
    /// Rows by the method that counted their tokens.
    pub counted_by: BTreeMap<&'static str, usize>,
    /// UTF-8 bytes of all messages.
    pub bytes: u64,
    /// Rows by category.
    pub categories: BTreeMap<&'static str, usize>,
    /// Rows by language.
    pub languages: BTreeMap<&'static str, usize>,
    /// Rows by type of input file; `none` for tasks without files.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Rows by template.
    pub templates: BTreeMap<String, usize>,
    /// Rows of the test split by what training rows lack of them; see [`Row::unseen`].
    pub unseen: BTreeMap<String, usize>,
    /// Rows by teacher.
    pub teachers: BTreeMap<String, usize>,
    /// Distinct input files by license as found at their origin; `not stated` if there was none.
    pub licenses: BTreeMap<String, usize>,
    /// Rows whose task is one of a task set, by its license.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub task_licenses: BTreeMap<String, usize>,
    /// The same by the source of the set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub task_sources: BTreeMap<String, usize>,
}

/// Names of the four classes of [`Stats::turns`].
pub const TURN_CLASSES: [&str; 4] = ["≤3", "4–6", "7–9", "≥10"];

impl Stats {
    /// Statistics of the rows.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut stats = Self::default();
        let mut seen = std::collections::HashSet::new();
        for row in rows {
            stats.add(row);
            for file in row.files.iter().filter(|file| seen.insert(&file.blake3)) {
                let license = file.license.clone();
                let license = license.unwrap_or_else(|| "not stated".into());
                *stats.licenses.entry(license).or_default() += 1;
            }
        }
        stats
    }

    /// Add the counts of another split. A file that occurs in both would be counted twice; the split keeps
    /// rows that share a file together, so this does not happen.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        for (mine, theirs) in self.turns.iter_mut().zip(other.turns) {
            *mine += theirs;
        }
        self.replies = self.replies.saturating_add(other.replies);
        self.add_tokens(other.prompt_tokens, other.completion_tokens);
        self.bytes += other.bytes;
        merge(&mut self.counted_by, &other.counted_by);
        merge(&mut self.categories, &other.categories);
        merge(&mut self.languages, &other.languages);
        merge(&mut self.kinds, &other.kinds);
        merge(&mut self.templates, &other.templates);
        merge(&mut self.unseen, &other.unseen);
        merge(&mut self.teachers, &other.teachers);
        merge(&mut self.licenses, &other.licenses);
        merge(&mut self.task_licenses, &other.task_licenses);
        merge(&mut self.task_sources, &other.task_sources);
    }

    /// Adds token counts, which a dataset from elsewhere may claim to be anything.
    fn add_tokens(&mut self, prompt: u64, completion: u64) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(prompt);
        self.completion_tokens = self.completion_tokens.saturating_add(completion);
    }

    fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.turns[turn_class(row.turns)] += 1;
        self.replies += u64::from(row.turns);
        self.add_tokens(row.tokens.prompt, row.tokens.completion);
        self.bytes += row.bytes() as u64;
        *self
            .counted_by
            .entry(row.tokens.counted_by.name())
            .or_default() += 1;
        *self
            .categories
            .entry(category_name(row.category))
            .or_default() += 1;
        *self
            .languages
            .entry(language_code(row.language))
            .or_default() += 1;
        *self.templates.entry(row.template.clone()).or_default() += 1;
        if !row.unseen.is_empty() {
            *self.unseen.entry(row.unseen.clone()).or_default() += 1;
        }
        *self.teachers.entry(row.teacher.clone()).or_default() += 1;
        for (counts, value) in [
            (&mut self.task_licenses, &row.task_license),
            (&mut self.task_sources, &row.task_source),
        ] {
            if let Some(value) = value {
                *counts.entry(value.clone()).or_default() += 1;
            }
        }
        let mut kinds: Vec<_> = row.files.iter().map(|file| file.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.is_empty() {
            kinds.push("none");
        }
        for kind in kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }
}

fn merge<K: Ord + Clone>(mine: &mut BTreeMap<K, usize>, theirs: &BTreeMap<K, usize>) {
    for (key, count) in theirs {
        *mine.entry(key.clone()).or_default() += count;
    }
}

pub(crate) fn turn_class(turns: u32) -> usize {
    match turns {
        0..=3 => 0,
        4..=6 => 1,
        7..=9 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_classes_match_the_paper() {
        let classes: Vec<_> = [1, 3, 4, 6, 7, 9, 10, 26].map(turn_class).to_vec();
        assert_eq!(classes, [0, 0, 1, 1, 2, 2, 3, 3]);
    }
}
