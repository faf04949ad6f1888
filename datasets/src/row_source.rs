//! The rows of a dataset that is being written. They are made when they are needed, so that a dataset can be larger
//! than memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;
use std::rc::Rc;

use pybench_types::held_out::Unseen;
use pybench_types::task::Task;

use crate::dedup::{Clusters, RowDeduplicator, RowTexts};
use crate::diversity::{Diversity, SkeletonCounter};
use crate::row::{self, category_name};
use crate::scrub::Scrubber;
use crate::split::{self, Split, SplitRow, SplitSettings};
use crate::{DatasetError, Row};

/// Rows by number. Making a row again gives an equal row.
pub trait RowSource: Sync {
    /// Number of rows.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row with this number, which is below [`RowSource::len`].
    ///
    /// # Errors
    /// Errors of reading what the row is made of.
    fn row(&self, number: usize) -> Result<Row, DatasetError>;

    /// What the split needs of the row with this number.
    ///
    /// # Errors
    /// As [`RowSource::row`].
    fn split_facts(&self, number: usize) -> Result<SplitFacts, DatasetError> {
        self.row(number).map(|row| SplitFacts::of_row(&row))
    }
}

impl RowSource for Vec<Row> {
    fn len(&self) -> usize {
        self.len()
    }

    fn row(&self, number: usize) -> Result<Row, DatasetError> {
        Ok(self[number].clone())
    }

    fn split_facts(&self, number: usize) -> Result<SplitFacts, DatasetError> {
        Ok(SplitFacts::of_row(&self[number]))
    }
}

/// What the split needs of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitFacts {
    template: String,
    category: &'static str,
    keys: Vec<String>,
    /// For finding near duplicates.
    texts: RowTexts,
    /// Keys of its pictures. Pictures that look the same have the same key.
    pictures: Vec<String>,
    /// What of it is held out of the train split.
    held_out: Option<Unseen>,
}

impl SplitFacts {
    /// The facts of a row of this task, with these texts and keys of pictures. `held_out` is what the recipe keeps out of
    /// the train split of it.
    pub fn of_task(
        task: &Task,
        texts: RowTexts,
        pictures: Vec<String>,
        held_out: Option<Unseen>,
    ) -> Self {
        Self {
            held_out,
            texts,
            pictures,
            template: row::template(task),
            category: category_name(task.category),
            keys: row::shared_keys(task.files.iter().chain(&task.held_out).cloned()),
        }
    }

    fn of_row(row: &Row) -> Self {
        Self {
            template: row.template.clone(),
            category: category_name(row.category),
            keys: row::shared_keys(row.all_files()),
            texts: RowTexts::of(row),
            pictures: Vec::new(),
            held_out: Unseen::named(&row.unseen),
        }
    }
}

/// The split of the rows, and how varied they are. Their templates are scrubbed first, as in the rows that are written. Near duplicates are found with
/// temporary files in `scratch`.
pub(crate) fn split_rows(
    rows: &impl RowSource,
    settings: &SplitSettings,
    scrubber: &Scrubber,
    scratch: &Path,
) -> Result<(Split, Diversity), DatasetError> {
    let mut skeletons = SkeletonCounter::default();
    let (mut templates, mut key_lists) = (Distinct::new(), Distinct::new());
    let mut compact = Vec::with_capacity(rows.len());
    let mut pictures = Vec::with_capacity(rows.len());
    let mut near = RowDeduplicator::by_both(scratch)?;
    for number in 0..rows.len() {
        let mut facts = rows.split_facts(number)?;
        let scrubbed = scrubber.text(&facts.template);
        if scrubbed.found.total() > 0 {
            facts.template = scrubbed.text;
        }
        skeletons.add(Some(&facts.template), &facts.texts);
        let template = templates.number(facts.template);
        let keys = key_lists.number(facts.keys);
        compact.push((template, facts.category, keys, facts.held_out));
        pictures.push(facts.pictures);
        near.add(&facts.texts, 0)?;
    }
    let clusters = near.finish()?;
    let diversity = skeletons.finish(&clusters);
    let near_keys = near_keys(pictures, &clusters);
    let rows = compact.into_iter().zip(&near_keys);
    let rows: Vec<SplitRow<'_>> = rows
        .map(
            |((template, category, keys, held_out), near_keys)| SplitRow {
                template: &templates.values[template as usize],
                category,
                keys: &key_lists.values[keys as usize],
                near_keys,
                held_out,
            },
        )
        .collect();
    Ok((split::split(&rows, settings), diversity))
}

/// For each row the keys of its pictures, and that of its cluster if it has near duplicates.
fn near_keys(pictures: Vec<Vec<String>>, clusters: &Clusters) -> Vec<Vec<String>> {
    let mut keys = pictures;
    for (keeper, members) in clusters.groups() {
        for row in members {
            keys[row as usize].push(format!("near:{keeper}"));
        }
    }
    keys
}

/// Distinct values, numbered. Many rows share a template and input files.
struct Distinct<T> {
    values: Vec<Rc<T>>,
    numbers: HashMap<Rc<T>, u32>,
}

impl<T: Eq + Hash> Distinct<T> {
    fn new() -> Self {
        Self {
            values: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let (value, number) = (Rc::new(value), self.values.len() as u32);
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }
}
