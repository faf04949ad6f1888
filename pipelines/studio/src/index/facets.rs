//! The values that filters offer: counted while an index grows, and from its columns once it is complete.

use std::collections::HashMap;
use std::slice::from_ref;

use rusqlite::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{FACETS, values_of};
use crate::row::Row;

/// Maximum number of values of a facet.
const MAX_VALUES: usize = 200;
/// Maximum number of values of a column that are counted while the index grows; those that come later are not offered yet.
const MAX_COUNTED: usize = 10_000;

/// How often each value of a column occurs, the most frequent first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Facet {
    pub(crate) column: String,
    pub(crate) values: Vec<(String, u64)>,
}

/// How often each value occurs so far, by column.
#[derive(Default)]
pub(super) struct FacetCounts([HashMap<String, u64>; FACETS.len()]);

impl FacetCounts {
    pub(super) fn add(&mut self, row: &Row) {
        for (counts, values) in self.0.iter_mut().zip(values(row)) {
            for value in values {
                if let Some(count) = counts.get_mut(value) {
                    *count += 1;
                } else if !value.is_empty() && counts.len() < MAX_COUNTED {
                    counts.insert(value.clone(), 1);
                }
            }
        }
    }

    /// The most frequent values of each column.
    pub(super) fn facets(&self) -> Vec<Facet> {
        let facet = |(column, counts): (&str, &HashMap<String, u64>)| {
            let mut values: Vec<(&String, u64)> = counts
                .iter()
                .map(|(value, count)| (value, *count))
                .collect();
            values.sort_by(|(a, many), (b, few)| few.cmp(many).then_with(|| a.cmp(b)));
            values.truncate(MAX_VALUES);
            let values = values.into_iter();
            Facet {
                column: column.to_owned(),
                values: values
                    .map(|(value, count)| (value.clone(), count))
                    .collect(),
            }
        };
        FACETS.into_iter().zip(&self.0).map(facet).collect()
    }
}

/// The values of a row, in the order of [`FACETS`].
fn values(row: &Row) -> [&[String]; FACETS.len()] {
    [
        from_ref(&row.verdict),
        &row.failed_checks,
        from_ref(&row.upstream),
        from_ref(&row.fixed),
        from_ref(&row.strict),
        from_ref(&row.category),
        from_ref(&row.keyword),
        from_ref(&row.origin),
        &row.kinds,
        from_ref(&row.language),
        from_ref(&row.teacher),
        from_ref(&row.format),
        from_ref(&row.end),
        from_ref(&row.error),
    ]
}

/// The facets of a complete index, from its columns.
pub(super) fn read_all(connection: &Connection) -> rusqlite::Result<Vec<Facet>> {
    FACETS
        .into_iter()
        .map(|column| read(connection, column))
        .collect()
}

fn read(connection: &Connection, column: &str) -> rusqlite::Result<Facet> {
    let mut statement = connection.prepare(&format!(
        "SELECT \"{column}\", count(*) FROM {} WHERE \"{column}\" <> '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MAX_VALUES}",
        values_of(column)
    ))?;
    let values = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Facet {
        column: column.to_owned(),
        values: values.collect::<Result<_, _>>()?,
    })
}

/// Replaces the facets that are offered.
pub(super) fn save(connection: &Connection, facets: &[Facet]) -> rusqlite::Result<()> {
    let json = serde_json::to_string(facets)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let update = "UPDATE facet SET json = ?1";
    connection.prepare_cached(update)?.execute([json])?;
    Ok(())
}
