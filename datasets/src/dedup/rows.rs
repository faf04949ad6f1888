//! Near duplicates among rows, by query, by code, or by both.

use std::collections::HashMap;
use std::path::Path;

use pybench_types::trajectory::{Message, Role};

use super::{Clusters, DedupField, DedupSettings, Deduplicator};
use crate::{DatasetError, Row};

/// The texts that rows are compared by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowTexts {
    query: String,
    /// The cells. Of a row without cells, the replies: all that it has instead.
    code: String,
}

impl RowTexts {
    /// The texts of a row with these cells and messages.
    pub fn new(query: &str, cells: &[impl AsRef<str>], messages: &[Message]) -> Self {
        let cells = cells.iter().map(AsRef::as_ref);
        let replies = messages.iter().filter(|m| m.role == Role::Assistant);
        let texts: Vec<&str> = match cells.len() {
            0 => replies.map(|m| m.content.as_str()).collect(),
            _ => cells.collect(),
        };
        Self {
            query: query.to_owned(),
            code: texts.join("\n"),
        }
    }

    pub fn of(row: &Row) -> Self {
        Self::new(&row.query, &row.cell_texts(), &row.messages)
    }

    pub fn query(&self) -> &str {
        &self.query
    }

    /// The cells, or the replies of a row without cells.
    pub fn code(&self) -> &str {
        &self.code
    }

    fn field(&self, field: DedupField) -> &str {
        match field {
            DedupField::Query => &self.query,
            DedupField::Code => &self.code,
        }
    }
}

/// Collects rows, then clusters those that are near duplicates in every given field.
pub struct RowDeduplicator {
    deduplicators: Vec<(DedupField, Deduplicator)>,
    ranks: Vec<u32>,
}

impl RowDeduplicator {
    /// Temporary files are written to `folder`, as by [`Deduplicator::new`].
    ///
    /// # Errors
    /// As [`Deduplicator::new`].
    pub fn new(folder: &Path, settings: &[DedupSettings]) -> Result<Self, DatasetError> {
        let deduplicators = settings.iter().map(|settings| {
            let folder = folder.join(format!("{:?}", settings.field));
            std::fs::create_dir(&folder).map_err(DatasetError::io(&folder))?;
            Ok((settings.field, Deduplicator::new(&folder, *settings)?))
        });
        Ok(Self {
            deduplicators: deduplicators.collect::<Result<_, DatasetError>>()?,
            ranks: Vec::new(),
        })
    }

    /// Compares by query and code, with the default threshold.
    ///
    /// # Errors
    /// As [`Deduplicator::new`].
    pub fn by_both(folder: &Path) -> Result<Self, DatasetError> {
        Self::new(
            folder,
            &[DedupField::Query, DedupField::Code].map(DedupSettings::of),
        )
    }

    /// Add the next row. In a cluster the row with the highest rank is kept; on a tie, the first one.
    ///
    /// # Errors
    /// As [`Deduplicator::add`].
    pub fn add(&mut self, texts: &RowTexts, rank: u32) -> Result<(), DatasetError> {
        for (field, deduplicator) in &mut self.deduplicators {
            deduplicator.add(texts.field(*field), rank)?;
        }
        self.ranks.push(rank);
        Ok(())
    }

    /// Cluster the rows.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(self) -> Result<Clusters, DatasetError> {
        let fields = self.deduplicators.into_iter();
        let clusterings: Vec<Clusters> = fields
            .map(|(_, deduplicator)| deduplicator.finish())
            .collect::<Result<_, _>>()?;
        Ok(Clusters {
            keeper: intersect(&clusterings, &self.ranks),
        })
    }
}

/// Combine clusterings: rows are duplicates if they share a cluster in every one. Returns the row that is kept for
/// each row.
fn intersect(clusterings: &[Clusters], ranks: &[u32]) -> Vec<u32> {
    let mut best: HashMap<Vec<u32>, u32> = HashMap::new();
    let key = |row: usize| -> Vec<u32> { clusterings.iter().map(|one| one.keeper[row]).collect() };
    for (row, rank) in ranks.iter().enumerate() {
        let kept = best.entry(key(row)).or_insert(row as u32);
        if *rank > ranks[*kept as usize] {
            *kept = row as u32;
        }
    }
    (0..ranks.len()).map(|row| best[&key(row)]).collect()
}
