//! The trajectories of a source in SQLite, so that a page of a million rows is read as fast as one of ten.
//!
//! The file lies in the cache and is made anew when the source has changed. It holds what the list shows in columns, what
//! the page of a trajectory shows as JSON, and an index of the words by role.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pybench_run::RunError;
use pybench_show::TrajectorySource;
use pybench_types::trajectory::Role;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::row::{Record, Row};

/// Changes whenever the tables change.
const VERSION: i64 = 1;
/// Maximum number of rows of a page.
const MAX_PAGE: u64 = 500;

const TABLES: &str = "
CREATE TABLE row (
    number INTEGER PRIMARY KEY, id TEXT, category TEXT, keyword TEXT, origin TEXT, language TEXT, teacher TEXT, format TEXT,
    verdict TEXT, rejected_by TEXT, \"end\" TEXT, turns INTEGER, tokens INTEGER, query TEXT, view TEXT
) STRICT;
CREATE VIRTUAL TABLE words USING fts5 (user, assistant, tool, content='', tokenize='unicode61');
";

const COLUMNS: &str = "number, id, category, keyword, origin, language, teacher, format, verdict, rejected_by, \"end\", turns, \
                       tokens, query";

/// What is asked of the list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    /// Rows before the page.
    pub from: u64,
    /// Rows of the page, at most 500; 0 for 100.
    pub count: u64,
    /// Column to sort by; empty for the order of the source.
    pub sort: String,
    pub descending: bool,
    pub category: String,
    pub keyword: String,
    pub origin: String,
    pub language: String,
    pub teacher: String,
    pub format: String,
    pub verdict: String,
    pub rejected_by: String,
    pub end: String,
    pub min_turns: u64,
    /// Words that the messages contain, in SQLite's FTS5 syntax or plain.
    pub search: String,
    /// Searches only in messages of this role: `user`, `assistant`, `tool`.
    pub role: String,
}

/// A part of the list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Page {
    /// Number of rows that match.
    pub total: u64,
    pub rows: Vec<Row>,
}

/// How often each value of a column occurs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Facet {
    pub column: &'static str,
    pub values: Vec<(String, u64)>,
}

/// The columns that filters offer values of.
const FACETS: [&str; 8] = [
    "category",
    "keyword",
    "origin",
    "language",
    "teacher",
    "verdict",
    "rejected_by",
    "end",
];
/// Maximum number of values of a facet.
const MAX_VALUES: usize = 200;

/// The trajectories of one source.
pub struct Index(Mutex<Connection>);

impl Index {
    /// Opens the index at `path`, which is made from `source` if it is missing or of another version.
    ///
    /// # Errors
    /// The source cannot be read; the file cannot be written.
    pub fn open(path: &Path, source: &TrajectorySource) -> Result<Self, RunError> {
        if let Some(index) = Self::existing(path)? {
            return Ok(index);
        }
        let unfinished = path.with_extension("part");
        let _ = std::fs::remove_file(&unfinished);
        let connection = Connection::open(&unfinished)?;
        fill(&connection, source)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        drop(connection);
        let io = RunError::io(path.display().to_string());
        std::fs::rename(&unfinished, path).map_err(io)?;
        Ok(Self(Mutex::new(Connection::open(path)?)))
    }

    fn existing(path: &Path) -> Result<Option<Self>, RunError> {
        if !path.is_file() {
            return Ok(None);
        }
        let connection = Connection::open(path)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((version == VERSION).then(|| Self(Mutex::new(connection))))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of the list.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the column or the words to search for are invalid.
    pub fn page(&self, query: &ListQuery) -> Result<Page, RunError> {
        let (condition, values) = condition(query)?;
        let order = order(query)?;
        let count = if query.count == 0 {
            100
        } else {
            query.count.min(MAX_PAGE)
        };
        let connection = self.lock();
        let total = connection
            .prepare_cached(&format!("SELECT count(*) FROM row WHERE {condition}"))?
            .query_row(params_from_iter(&values), |row| row.get(0))
            .map_err(|error| search_error(query, error))?;
        let sql = format!(
            "SELECT {COLUMNS} FROM row WHERE {condition} ORDER BY {order} LIMIT {count} OFFSET {}",
            query.from.min(i64::MAX as u64)
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map(params_from_iter(&values), read_row)?;
        Ok(Page {
            total,
            rows: rows.collect::<Result<_, _>>()?,
        })
    }

    /// What the page of a trajectory shows; `None` if there is no such number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn view(&self, number: u64) -> Result<Option<Value>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached("SELECT view FROM row WHERE number = ?1")?;
        let text: Option<String> = statement.query_row([number], |row| row.get(0)).optional()?;
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// The values that filters offer.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn facets(&self) -> Result<Vec<Facet>, RunError> {
        let connection = self.lock();
        let facet = |column: &'static str| {
            let sql = format!(
                "SELECT \"{column}\", count(*) FROM row WHERE \"{column}\" <> '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MAX_VALUES}"
            );
            let mut statement = connection.prepare(&sql)?;
            let values = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(Facet {
                column,
                values: values.collect::<Result<_, _>>()?,
            })
        };
        FACETS.into_iter().map(facet).collect()
    }
}

fn fill(connection: &Connection, source: &TrajectorySource) -> Result<(), RunError> {
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    connection.execute_batch(TABLES)?;
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare(
        "INSERT INTO row VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?;
    let mut words = connection
        .prepare("INSERT INTO words (rowid, user, assistant, tool) VALUES (?1, ?2, ?3, ?4)")?;
    let mut number = 0;
    source.each(&mut |record| {
        number += 1;
        let Record { row, view, texts } = Record::new(number, &record);
        insert.execute(params![
            row.number,
            row.id,
            row.category,
            row.keyword,
            row.origin,
            row.language,
            row.teacher,
            row.format,
            row.verdict,
            row.rejected_by,
            row.end,
            row.turns,
            row.tokens,
            row.query,
            view.to_string(),
        ])?;
        let [user, assistant, tool] = texts.map(|(_, text)| text);
        words.execute(params![number, user, assistant, tool])?;
        Ok(())
    })?;
    connection.execute_batch("COMMIT")?;
    for column in FACETS {
        connection.execute_batch(&format!("CREATE INDEX row_{column} ON row (\"{column}\")"))?;
    }
    Ok(())
}

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        number: row.get(0)?,
        id: row.get(1)?,
        category: row.get(2)?,
        keyword: row.get(3)?,
        origin: row.get(4)?,
        language: row.get(5)?,
        teacher: row.get(6)?,
        format: row.get(7)?,
        verdict: row.get(8)?,
        rejected_by: row.get(9)?,
        end: row.get(10)?,
        turns: row.get(11)?,
        tokens: row.get(12)?,
        query: row.get(13)?,
    })
}

/// The condition of a query and its values.
fn condition(query: &ListQuery) -> Result<(String, Vec<SqlValue>), RunError> {
    let (mut parts, mut values) = (vec!["1".to_owned()], Vec::new());
    let columns = [
        ("category", &query.category),
        ("keyword", &query.keyword),
        ("origin", &query.origin),
        ("language", &query.language),
        ("teacher", &query.teacher),
        ("format", &query.format),
        ("verdict", &query.verdict),
        ("rejected_by", &query.rejected_by),
        ("end", &query.end),
    ];
    for (column, value) in columns.into_iter().filter(|(_, value)| !value.is_empty()) {
        values.push(SqlValue::Text(value.clone()));
        parts.push(format!("\"{column}\" = ?{}", values.len()));
    }
    if query.min_turns > 0 {
        parts.push(format!("turns >= {}", query.min_turns.min(i64::MAX as u64)));
    }
    if !query.search.trim().is_empty() {
        values.push(SqlValue::Text(words(query)?));
        parts.push(format!(
            "number IN (SELECT rowid FROM words WHERE words MATCH ?{})",
            values.len()
        ));
    }
    Ok((parts.join(" AND "), values))
}

/// The words to search for. Text that is no query of FTS5 is searched for as a phrase.
fn words(query: &ListQuery) -> Result<String, RunError> {
    let is_plain = |c: char| c.is_alphanumeric() || c.is_whitespace() || c == '*' || c == '"';
    let text = query.search.trim();
    let balanced = text.matches('"').count().is_multiple_of(2);
    let text = match text.chars().all(is_plain) && balanced {
        true => text.to_owned(),
        false => format!("\"{}\"", text.replace('"', "\"\"")),
    };
    match &*query.role {
        "" => Ok(text),
        role if [Role::User, Role::Assistant, Role::Tool]
            .iter()
            .any(|one| one.name() == role) =>
        {
            Ok(format!("{{{role}}} : ({text})"))
        }
        other => Err(RunError::BadInput(format!(
            "`role` is `{other}`; expected user, assistant or tool"
        ))),
    }
}

fn order(query: &ListQuery) -> Result<String, RunError> {
    let direction = if query.descending { "DESC" } else { "ASC" };
    let known = ["", "number"].contains(&&*query.sort)
        || COLUMNS
            .split(", ")
            .any(|column| column.trim_matches('"') == query.sort);
    match (&*query.sort, known) {
        ("" | "number", _) => Ok(format!("number {direction}")),
        (sort, true) => Ok(format!("\"{sort}\" {direction}, number")),
        (sort, false) => Err(RunError::BadInput(format!(
            "there is no column `{sort}` to sort by"
        ))),
    }
}

/// An error of the query's words is the user's, any other is ours.
fn search_error(query: &ListQuery, error: rusqlite::Error) -> RunError {
    match query.search.trim().is_empty() {
        true => error.into(),
        false => RunError::BadInput(format!("`search`: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a dataset, two of three with the word `mean`.
    fn index(folder: &Path) -> Index {
        let row = |category: &str, query: &str, reply: &str| {
            serde_json::json!({"category": category, "messages": [
                {"role": "user", "content": query}, {"role": "assistant", "content": reply}]})
            .to_string()
        };
        let rows = [
            row("chart", "Compute the mean.", "print(1)"),
            row("chart", "Draw a line.", "The mean is 2."),
            row("text", "It's 50 % (\"half\")", "no"),
        ];
        let path = folder.join("rows.jsonl");
        std::fs::write(&path, rows.join("\n")).unwrap();
        let source = TrajectorySource::open(&path, folder).unwrap();
        Index::open(&folder.join("index.sqlite"), &source).unwrap()
    }

    fn numbers(index: &Index, query: ListQuery) -> Vec<u64> {
        let page = index.page(&query).unwrap();
        page.rows.iter().map(|row| row.number).collect()
    }

    #[test]
    fn rows_are_filtered_sorted_and_searched() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path());
        let of = |change: fn(&mut ListQuery)| {
            let mut query = ListQuery::default();
            change(&mut query);
            numbers(&index, query)
        };
        assert_eq!(of(|_| {}), [1, 2, 3]);
        assert_eq!(of(|query| query.category = "chart".into()), [1, 2]);
        assert_eq!(of(|query| query.search = "mean".into()), [1, 2]);
        assert_eq!(of(|query| query.search = "50 % (\"half".into()), [3]);
        assert_eq!(
            of(|query| (query.search, query.role) = ("mean".into(), "user".into())),
            [1]
        );
        assert_eq!(
            of(|query| (query.sort, query.descending) = ("query".into(), true)),
            [3, 2, 1]
        );
        assert_eq!(of(|query| (query.from, query.count) = (1, 1)), [2]);
        for (sort, role) in [("view; DROP TABLE row", ""), ("", "nobody")] {
            let query = ListQuery {
                sort: sort.into(),
                role: role.into(),
                search: "x".into(),
                ..ListQuery::default()
            };
            assert!(matches!(index.page(&query), Err(RunError::BadInput(_))));
        }
        let view = index.view(2).unwrap().unwrap();
        assert_eq!(view["messages"][1]["content"], "The mean is 2.");
        assert_eq!(index.view(9).unwrap(), None);
        let facets = index.facets().unwrap();
        assert_eq!(
            facets[0].values,
            [("chart".to_owned(), 2), ("text".to_owned(), 1)]
        );
    }
}
