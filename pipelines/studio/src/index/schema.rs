//! The tables of the index, and the columns of the list.

use rusqlite::Row as SqlRow;

use crate::row::Row;

/// Changes whenever the tables, or what is written to them, change.
pub(super) const VERSION: i64 = 4;

pub(super) const TABLES: &str = "
CREATE TABLE row (
    number INTEGER PRIMARY KEY, id TEXT, task TEXT, category TEXT, keyword TEXT, origin TEXT, kinds TEXT, language TEXT,
    teacher TEXT, format TEXT, verdict TEXT, rejected_by TEXT, upstream TEXT, fixed TEXT, strict TEXT, \"end\" TEXT,
    error TEXT, turns INTEGER, tokens INTEGER, micro_usd INTEGER, query TEXT
) STRICT;
CREATE TABLE record (number INTEGER PRIMARY KEY, json TEXT) STRICT;
CREATE TABLE head (number INTEGER PRIMARY KEY, first INTEGER, count INTEGER, json TEXT) STRICT;
CREATE TABLE turn (id INTEGER PRIMARY KEY, json TEXT) STRICT;
CREATE TABLE facet (json TEXT) STRICT;
CREATE VIRTUAL TABLE words USING fts5 (user, assistant, tool, content='', tokenize='unicode61');
";

/// The columns of the list, in the order of the table.
pub(super) const COLUMNS: [&str; 21] = [
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
        kinds: row.get("kinds")?,
        language: row.get("language")?,
        teacher: row.get("teacher")?,
        format: row.get("format")?,
        verdict: row.get("verdict")?,
        rejected_by: row.get("rejected_by")?,
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
