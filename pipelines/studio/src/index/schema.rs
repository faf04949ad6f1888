//! The tables of the index, and the columns of the list.

use rusqlite::Row as SqlRow;
use rusqlite::types::Type;
use serde_json::json;

use crate::row::Row;

/// Changes whenever the tables, or what is written to them, change.
pub(super) const VERSION: i64 = 6;

pub(super) const TABLES: &str = "
CREATE TABLE row (
    number INTEGER PRIMARY KEY, id TEXT, task TEXT, category TEXT, keyword TEXT, origin TEXT, kinds TEXT, language TEXT,
    teacher TEXT, format TEXT, verdict TEXT, rejected_by TEXT, failed_checks TEXT, upstream TEXT, fixed TEXT,
    strict TEXT, \"end\" TEXT, error TEXT, turns INTEGER, tokens INTEGER, micro_usd INTEGER, query TEXT
) STRICT;
CREATE TABLE failed_check (name TEXT, number INTEGER, PRIMARY KEY (name, number)) STRICT, WITHOUT ROWID;
CREATE TRIGGER failed_checks AFTER INSERT ON row WHEN new.failed_checks <> '[]' BEGIN
    INSERT INTO failed_check SELECT DISTINCT value, new.number FROM json_each(new.failed_checks);
END;
CREATE TABLE kind (kinds TEXT, name TEXT, PRIMARY KEY (kinds, name)) STRICT, WITHOUT ROWID;
CREATE TRIGGER kinds AFTER INSERT ON row
WHEN new.kinds <> '[]' AND NOT EXISTS (SELECT 1 FROM kind WHERE kinds = new.kinds) BEGIN
    INSERT INTO kind SELECT DISTINCT new.kinds, value FROM json_each(new.kinds);
END;
CREATE TABLE record (number INTEGER PRIMARY KEY, json TEXT) STRICT;
CREATE TABLE head (number INTEGER PRIMARY KEY, first INTEGER, count INTEGER, json TEXT) STRICT;
CREATE TABLE turn (id INTEGER PRIMARY KEY, json TEXT) STRICT;
CREATE TABLE facet (json TEXT) STRICT;
CREATE VIRTUAL TABLE words USING fts5 (user, assistant, tool, content='', tokenize='unicode61');
";

/// The columns of the list, in the order of the table.
pub(super) const COLUMNS: [&str; 22] = [
    "number",
    "id",
    "task",
    "category",
    "keyword",
    "origin",
    "kinds",
    "language",
    "teacher",
    "format",
    "verdict",
    "rejected_by",
    "failed_checks",
    "upstream",
    "fixed",
    "strict",
    "end",
    "error",
    "turns",
    "tokens",
    "micro_usd",
    "query",
];

/// The columns that filters offer values of.
pub(super) const FACETS: [&str; 14] = [
    "verdict",
    "rejected_by",
    "upstream",
    "fixed",
    "strict",
    "category",
    "keyword",
    "origin",
    "kinds",
    "language",
    "teacher",
    "format",
    "end",
    "error",
];

/// What has the values of a facet, as what follows `FROM`. Of `rejected_by` these are all failed checks, not only the first, and
/// of `kinds` the types of all input files, which the table `kind` has for each list of types that occurs.
pub(super) fn values_of(facet: &str) -> &'static str {
    match facet {
        "rejected_by" => "(SELECT name AS rejected_by FROM failed_check)",
        "kinds" => "(SELECT name AS kinds FROM kind JOIN row USING (kinds))",
        _ => "row",
    }
}

/// The condition that a row has the value with the number `at` in a facet.
pub(super) fn has_value(facet: &str, at: usize) -> String {
    match facet {
        "rejected_by" => {
            format!("number IN (SELECT number FROM failed_check WHERE name = ?{at})")
        }
        "kinds" => format!("kinds IN (SELECT kinds FROM kind WHERE name = ?{at})"),
        _ => format!("\"{facet}\" = ?{at}"),
    }
}

/// The value of a column that is a list: `kinds` or `failed_checks`. A trigger copies its items to a table.
pub(super) fn list(items: &[String]) -> String {
    json!(items).to_string()
}

fn read_list(row: &SqlRow<'_>, column: &str) -> rusqlite::Result<Vec<String>> {
    let json: String = row.get(column)?;
    serde_json::from_str(&json)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into()))
}

/// The columns, as SQL names them.
pub(super) fn quoted() -> String {
    COLUMNS.map(|column| format!("\"{column}\"")).join(", ")
}

/// The line of the list that a row of the table has.
pub(super) fn read_row(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        number: row.get("number")?,
        id: row.get("id")?,
        task: row.get("task")?,
        category: row.get("category")?,
        keyword: row.get("keyword")?,
        origin: row.get("origin")?,
        kinds: read_list(row, "kinds")?,
        language: row.get("language")?,
        teacher: row.get("teacher")?,
        format: row.get("format")?,
        verdict: row.get("verdict")?,
        rejected_by: row.get("rejected_by")?,
        failed_checks: read_list(row, "failed_checks")?,
        upstream: row.get("upstream")?,
        fixed: row.get("fixed")?,
        strict: row.get("strict")?,
        end: row.get("end")?,
        error: row.get("error")?,
        turns: row.get("turns")?,
        tokens: row.get("tokens")?,
        micro_usd: row.get("micro_usd")?,
        query: row.get("query")?,
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn every_failed_check_is_found_and_counted() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(TABLES).unwrap();
        for (number, names) in [(1, vec!["a", "b"]), (2, vec![]), (3, vec!["b", "b"])] {
            let row = Row {
                failed_checks: names.into_iter().map(str::to_owned).collect(),
                ..Row::default()
            };
            let insert = "INSERT INTO row (number, failed_checks) VALUES (?1, ?2)";
            let values = (number, list(&row.failed_checks));
            connection.execute(insert, values).unwrap();
        }
        let found = |name: &str| {
            let select = format!(
                "SELECT number FROM row WHERE {}",
                has_value("rejected_by", 1)
            );
            let mut select = connection.prepare(&select).unwrap();
            let numbers = select.query_map([name], |row| row.get(0)).unwrap();
            numbers.collect::<Result<Vec<i64>, _>>().unwrap()
        };
        assert_eq!(found("a"), [1]);
        assert_eq!(found("b"), [1, 3]);
        assert_eq!(found("a, b"), [0_i64; 0]);
        let count = format!("SELECT count(*) FROM {}", values_of("rejected_by"));
        let count: i64 = connection.query_row(&count, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 3);
    }
}
