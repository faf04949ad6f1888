//! The statistics of a dataset, as `pybench stats` prints them.

use std::path::Path;

use pybench_datasets::stats::TURN_CLASSES;
use pybench_datasets::survey::Survey;
use pybench_run::RunError;
use pybench_synthesize::stats::{survey, token_counter};
use schemars::JsonSchema;
use serde::Serialize;

/// Maximum number of bars.
const MAX_BARS: usize = 30;

/// How many conversations a dataset has, of which kind, and how varied they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct DatasetStatistics {
    pub(crate) conversations: u64,
    /// Mean number of tokens in a conversation.
    pub(crate) tokens_each: f64,
    pub(crate) tokenizer: String,
    pub(crate) counts: Vec<Distribution>,
    pub(crate) diversity: Vec<Diversity>,
}

/// Numbers of conversations by one property.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Distribution {
    pub(crate) title: String,
    /// At most 30, each with its name.
    pub(crate) bars: Vec<(String, u64)>,
}

/// How varied a group of conversations is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Diversity {
    /// How their tasks were made.
    pub(crate) group: String,
    pub(crate) rows: u64,
    /// Distinct templates or chains of operations.
    pub(crate) graphs: u64,
    /// Distinct queries without names, quoted values, paths and numbers.
    pub(crate) queries: u64,
    /// Distinct programs without texts, numbers and comments.
    pub(crate) programs: u64,
    pub(crate) near_duplicates: u64,
}

impl DatasetStatistics {
    /// Reads all rows of a dataset.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it has no rows, or a row cannot be read.
    pub(crate) fn read(dataset: &Path) -> Result<Self, RunError> {
        Ok(Self::from(&survey(dataset, &token_counter())?))
    }
}

impl From<&Survey> for DatasetStatistics {
    fn from(survey: &Survey) -> Self {
        let bar = |(name, count): (String, usize)| (name, count as u64);
        let in_order = |title: &str, counts: Vec<(String, usize)>| Distribution {
            title: title.to_owned(),
            bars: counts.into_iter().map(bar).take(MAX_BARS).collect(),
        };
        let largest_first = |title: &str, mut counts: Vec<(&String, &usize)>| {
            counts.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
            let counts = counts.into_iter();
            in_order(title, counts.map(|(name, n)| (name.clone(), *n)).collect())
        };
        let classes = TURN_CLASSES.iter().zip(survey.turns);
        let counts = [
            in_order(
                "turns",
                classes.map(|(class, n)| ((*class).to_owned(), n)).collect(),
            ),
            in_order("tokens", survey.bins()),
            largest_first("category", survey.categories.iter().collect()),
            largest_first("type of input file", survey.kinds.iter().collect()),
            largest_first("keyword", survey.keywords.iter().collect()),
        ];
        let diversity = survey.diversity.0.iter().map(|(group, found)| Diversity {
            group: group.name().to_owned(),
            rows: found.rows as u64,
            graphs: found.graphs as u64,
            queries: found.queries as u64,
            programs: found.programs as u64,
            near_duplicates: found.near_duplicates as u64,
        });
        Self {
            conversations: survey.instructions as u64,
            tokens_each: survey.tokens_each,
            tokenizer: survey.tokenizer.clone(),
            counts: counts
                .into_iter()
                .filter(|one| !one.bars.is_empty())
                .collect(),
            diversity: diversity.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_counted_by_what_they_have() {
        let folder = tempfile::tempdir().unwrap();
        let row = |category: &str, query: &str| {
            json!({"category": category, "messages": [
                {"role": "user", "content": query}, {"role": "assistant", "content": "One."}]})
            .to_string()
        };
        let rows = [
            row("math", "Add."),
            row("chart", "Draw."),
            row("math", "Count."),
        ];
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, rows.join("\n")).unwrap();
        let statistics = DatasetStatistics::read(&path).unwrap();
        assert_eq!(statistics.conversations, 3);
        let bars = |title: &str| {
            let found = statistics.counts.iter().find(|one| one.title == title);
            found.map(|one| one.bars.clone())
        };
        let expected = [("math".to_owned(), 2), ("chart".to_owned(), 1)];
        assert_eq!(bars("category").unwrap(), expected);
        let tokens: u64 = bars("tokens").unwrap().iter().map(|(_, n)| n).sum();
        assert_eq!(tokens, 3);
        assert_eq!(bars("keyword"), None);
        assert_eq!(statistics.diversity[0].rows, 3);
    }

    #[test]
    fn a_dataset_without_rows_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.jsonl");
        std::fs::write(&path, "").unwrap();
        let error = DatasetStatistics::read(&path).unwrap_err().to_string();
        assert!(error.contains("has no rows"), "{error}");
    }
}
