//! What is asked of the list, as conditions of SQL.

use pybench_run::RunError;
use rusqlite::types::Value as SqlValue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::schema::{COLUMNS, FACETS, has_value};
use crate::review::IdFilter;
use crate::search;

/// What is asked of the list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Number of rows before the page.
    pub(crate) from: u64,
    /// Rows of the page, at most 500; 0 for 100.
    pub(crate) count: u64,
    /// Column to sort by; empty for the order of the source.
    pub(crate) sort: String,
    pub(crate) descending: bool,
    pub(crate) category: String,
    pub(crate) keyword: String,
    pub(crate) origin: String,
    pub(crate) kinds: String,
    pub(crate) language: String,
    pub(crate) teacher: String,
    pub(crate) format: String,
    pub(crate) verdict: String,
    /// Only those that did not pass this filter or check.
    pub(crate) rejected_by: String,
    pub(crate) upstream: String,
    pub(crate) fixed: String,
    pub(crate) strict: String,
    pub(crate) end: String,
    pub(crate) error: String,
    pub(crate) min_turns: u64,
    pub(crate) max_turns: Option<u64>,
    pub(crate) min_tokens: u64,
    pub(crate) max_tokens: Option<u64>,
    /// US dollars.
    pub(crate) min_usd: f64,
    pub(crate) max_usd: Option<f64>,
    /// Words that the texts contain, `"a phrase"`, or the start of a word with `*`.
    pub(crate) search: String,
    /// Searches only in texts of `user`, `assistant` or `tool`, which is the interpreter.
    pub(crate) role: String,
    /// Only attempts at this task.
    pub(crate) task: String,
    /// Only trajectories with a larger number.
    pub(crate) after: u64,
    /// Only those on which people decided so: `undecided`, `accepted`, `rejected`, or `disputed`, on which they disagree.
    pub(crate) review: String,
    /// Whose decisions `review` is about; empty for those of all.
    pub(crate) reviewer: String,
    /// Only those that a person gave this label.
    pub(crate) label: String,
    /// Only those that people edited.
    pub(crate) edited: bool,
    /// Only trajectories that are in all of these; what `review`, `label` and `edited` mean is known from the journal.
    #[serde(skip)]
    pub(crate) ids: Vec<IdFilter>,
}

/// The rows that match a query, as what follows `FROM`, and its values.
pub(super) fn matching(query: &ListQuery) -> Result<(String, Vec<SqlValue>), RunError> {
    let (mut parts, mut values) = condition(query)?;
    if let Some(words) = search::condition(&query.search, &query.role)? {
        values.push(SqlValue::Text(words));
        let found = format!("WHERE words MATCH ?{}", values.len());
        if parts.is_empty() && matches!(&*query.sort, "" | "number") {
            // The full-text index is in this order; nothing else is needed to count and to skip.
            return Ok((
                format!("(SELECT rowid AS number FROM words {found})"),
                values,
            ));
        }
        parts.push(format!("number IN (SELECT rowid FROM words {found})"));
    }
    Ok(match parts.is_empty() {
        true => ("row".to_owned(), values),
        false => (format!("row WHERE {}", parts.join(" AND ")), values),
    })
}

/// The conditions of a query but for its search, and their values.
fn condition(query: &ListQuery) -> Result<(Vec<String>, Vec<SqlValue>), RunError> {
    let (mut parts, mut values) = (Vec::new(), Vec::new());
    let wanted = [
        &query.verdict,
        &query.rejected_by,
        &query.upstream,
        &query.fixed,
        &query.strict,
        &query.category,
        &query.keyword,
        &query.origin,
        &query.kinds,
        &query.language,
        &query.teacher,
        &query.format,
        &query.end,
        &query.error,
    ];
    for (column, value) in FACETS
        .into_iter()
        .zip(wanted)
        .filter(|(_, value)| !value.is_empty())
    {
        values.push(SqlValue::Text(value.clone()));
        parts.push(has_value(column, values.len()));
    }
    if !query.task.is_empty() {
        values.push(SqlValue::Text(query.task.clone()));
        parts.push(format!("task = ?{}", values.len()));
    }
    if query.after > 0 {
        parts.push(format!("number > {}", query.after.min(i64::MAX as u64)));
    }
    for filter in &query.ids {
        let (relation, ids) = match filter {
            IdFilter::Among(ids) => ("IN", ids),
            IdFilter::Except(ids) => ("NOT IN", ids),
        };
        values.push(SqlValue::Text(serde_json::to_string(ids)?));
        parts.push(format!(
            "id <> '' AND id {relation} (SELECT value FROM json_each(?{}))",
            values.len()
        ));
    }
    parts.extend(ranges(query));
    Ok((parts, values))
}

/// The conditions on numbers. Unknown tokens and costs are in no range.
fn ranges(query: &ListQuery) -> impl Iterator<Item = String> {
    // The cast saturates.
    let micro = |usd: f64| (usd * 1e6).round() as u64;
    let least = |bound: u64| (bound > 0).then_some(bound);
    let max_usd = query.max_usd.filter(|usd| !usd.is_nan());
    let bounds = [
        ("turns >=", least(query.min_turns)),
        ("turns <=", query.max_turns),
        ("tokens >=", least(query.min_tokens)),
        ("tokens BETWEEN 1 AND", query.max_tokens),
        ("micro_usd >=", least(micro(query.min_usd))),
        ("micro_usd <=", max_usd.map(micro)),
    ];
    let condition = |(compare, bound): (&str, Option<u64>)| {
        bound.map(|bound| format!("{compare} {}", bound.min(i64::MAX as u64)))
    };
    bounds.into_iter().filter_map(condition)
}

/// The order of the rows, as what follows `ORDER BY`.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such column.
pub(super) fn order(query: &ListQuery) -> Result<String, RunError> {
    let direction = if query.descending { "DESC" } else { "ASC" };
    match &*query.sort {
        "" | "number" => Ok(format!("number {direction}")),
        sort if COLUMNS.contains(&sort) => Ok(format!("\"{sort}\" {direction}, number")),
        sort => Err(RunError::BadInput(format!(
            "`sort`: there is no column `{sort}`; the columns are {}",
            COLUMNS.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_of_turns_tokens_and_cost() {
        let query = ListQuery {
            min_turns: 2,
            max_turns: Some(0),
            max_tokens: Some(9),
            min_usd: 1.001,
            max_usd: Some(1e300),
            ..ListQuery::default()
        };
        let found: Vec<String> = ranges(&query).collect();
        let largest = format!("micro_usd <= {}", i64::MAX);
        let expected = [
            "turns >= 2",
            "turns <= 0",
            "tokens BETWEEN 1 AND 9",
            "micro_usd >= 1001000",
            &*largest,
        ];
        assert_eq!(found, expected);
    }
}
