//! The trajectories of a source in SQLite, so that a page of a million rows is read as fast as one of ten.
//!
//! The file is in the cache; it is made again when the source has changed. It holds what the list shows in columns,
//! each record as JSON, and an index of the words of users, models and interpreter. The turns of long trajectories are rows
//! of their own, so that a page of them is read without the others.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pybench_run::RunError;
use pybench_show::TrajectorySource;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params_from_iter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evaluation::each_record;
use crate::prices::Prices;
use crate::record::Record;
use crate::review::IdFilter;
use crate::row::{Row, cost};
use crate::search;
use crate::view::{PAGE_TURNS, View};

/// Changes whenever the tables, or what is written to them, change.
const VERSION: i64 = 4;
/// Rows of a page, unless the query says.
const DEFAULT_PAGE: u64 = 100;
/// Maximum number of rows of a page.
const MAX_PAGE: u64 = 500;
/// Maximum number of values of a facet.
const MAX_VALUES: usize = 200;

const TABLES: &str = "
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
const COLUMNS: [&str; 21] = [
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
const FACETS: [&str; 14] = [
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
    pub(crate) rejected_by: String,
    pub(crate) upstream: String,
    pub(crate) fixed: String,
    pub(crate) strict: String,
    pub(crate) end: String,
    pub(crate) error: String,
    pub(crate) min_turns: u64,
    pub(crate) max_turns: u64,
    pub(crate) min_tokens: u64,
    pub(crate) max_tokens: u64,
    /// US dollars.
    pub(crate) min_usd: f64,
    pub(crate) max_usd: f64,
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

/// An attempt at a task and whether it passed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskOutcome {
    pub(crate) task: String,
    pub(crate) number: u64,
    /// `None` if it has no result.
    pub(crate) passed: Option<bool>,
}

/// A part of the list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Page {
    /// Number of rows that match.
    pub(crate) total: u64,
    pub(crate) rows: Vec<Row>,
    /// Numbers of those that people edited.
    pub(crate) edited: Vec<u64>,
}

/// How often each value of a column occurs, the most frequent first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Facet {
    pub(crate) column: String,
    pub(crate) values: Vec<(String, u64)>,
}

/// A trajectory whose turns are rows of their own.
struct LongTrajectory {
    /// Its page without turns, as JSON.
    head: String,
    /// Id of its first turn.
    first: u64,
    count: u64,
}

/// The trajectories of one source.
pub(crate) struct Index {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Index {
    /// Opens the index at `path`, which is made from `source` if it is missing, damaged or of another version.
    ///
    /// # Errors
    /// The source cannot be read; the file cannot be written.
    pub(crate) fn open(path: &Path, source: &TrajectorySource) -> Result<Self, RunError> {
        if let Some(connection) = existing(path) {
            return Ok(Self::new(path, connection));
        }
        let unfinished = path.with_extension(format!("{}.part", std::process::id()));
        let made = write(&unfinished, source).and_then(|()| {
            let io = RunError::io(path.display().to_string());
            std::fs::rename(&unfinished, path).map_err(io)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        made?;
        let connection = open(path).map_err(|error| failed(path, &error))?;
        Ok(Self::new(path, connection))
    }

    fn new(path: &Path, connection: Connection) -> Self {
        Self {
            path: path.to_owned(),
            connection: Mutex::new(connection),
        }
    }

    /// Reads from the index.
    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RunError> {
        let connection: MutexGuard<'_, Connection> = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        read(&connection).map_err(|error| failed(&self.path, &error))
    }

    /// A part of the list.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the column or the words to search for are invalid.
    pub(crate) fn page(&self, query: &ListQuery) -> Result<Page, RunError> {
        let (matching, values) = matching(query)?;
        let (order, columns) = (order(query)?, quoted());
        let count = match query.count {
            0 => DEFAULT_PAGE,
            count => count.min(MAX_PAGE),
        };
        let from = query.from.min(i64::MAX as u64);
        self.read(|connection| {
            let count_all = format!("SELECT count(*) FROM {matching}");
            let mut counted = connection.prepare_cached(&count_all)?;
            let total: u64 = counted.query_row(params_from_iter(&values), |row| row.get(0))?;
            let page = match (&*matching, &*query.sort, query.descending) {
                // Numbers have no gaps, so nothing has to be skipped.
                ("row", "" | "number", false) => format!("BETWEEN {} AND {}", from + 1, from + count),
                ("row", "" | "number", true) => {
                    let to = total.saturating_sub(from);
                    format!("BETWEEN {} AND {to}", to.saturating_sub(count) + 1)
                }
                // What is skipped is read from an index, not from the wide rows.
                _ => format!("IN (SELECT number FROM {matching} ORDER BY {order} LIMIT {count} OFFSET {from})"),
            };
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {columns} FROM row WHERE number {page} ORDER BY {order}"
            ))?;
            let rows = statement.query_map(params_from_iter(&values), read_row)?;
            let rows = rows.collect::<Result<_, _>>()?;
            Ok(Page {
                total,
                rows,
                edited: Vec::new(),
            })
        })
    }

    /// A trajectory: its line of the list, and the record as JSON. `None` if there is no such number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn record(&self, number: u64) -> Result<Option<(Row, String)>, RunError> {
        let Ok(number) = i64::try_from(number) else {
            return Ok(None);
        };
        let columns = quoted();
        self.read(|connection| {
            let row = format!("SELECT {columns} FROM row WHERE number = ?1");
            let row = connection
                .prepare_cached(&row)?
                .query_row([number], read_row)
                .optional()?;
            let json = "SELECT json FROM record WHERE number = ?1";
            let mut statement = connection.prepare_cached(json)?;
            let json = statement.query_row([number], |row| row.get(0)).optional()?;
            Ok(row.zip(json))
        })
    }

    /// The page of a trajectory that has its turn `turn`, from 1; `None` if there is no such number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn view(&self, number: u64, turn: u64) -> Result<Option<View>, RunError> {
        let Some(long) = self.long(number)? else {
            let Some((row, json)) = self.record(number)? else {
                return Ok(None);
            };
            return Ok(Some(View::new(row, serde_json::from_str(&json)?)));
        };
        let mut view: View = serde_json::from_str(&long.head)?;
        let page = PAGE_TURNS as u64;
        let before = turn.clamp(1, long.count.max(1)).saturating_sub(1) / page * page;
        let select = "SELECT json FROM turn WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
        let (from, to) = (
            long.first + before,
            long.first + (before + page).min(long.count) - 1,
        );
        let turns: Vec<String> = self.read(|connection| {
            let mut statement = connection.prepare_cached(select)?;
            let rows = statement.query_map((from, to), |row| row.get(0))?;
            rows.collect()
        })?;
        let turns = turns.iter().map(|json| serde_json::from_str(json));
        view.turns = turns.collect::<Result<_, _>>()?;
        view.first_turn = before + 1;
        Ok(Some(view))
    }

    /// The head of a trajectory whose turns are rows of their own; `None` for other trajectories.
    fn long(&self, number: u64) -> Result<Option<LongTrajectory>, RunError> {
        let Ok(number) = i64::try_from(number) else {
            return Ok(None);
        };
        let select = "SELECT json, first, count FROM head WHERE number = ?1";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(select)?;
            let long = statement.query_row([number], |row| {
                Ok(LongTrajectory {
                    head: row.get(0)?,
                    first: row.get(1)?,
                    count: row.get(2)?,
                })
            });
            long.optional()
        })
    }

    /// The line of the list of a trajectory; `None` if there is no such number.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn row(&self, number: u64) -> Result<Option<Row>, RunError> {
        let select = format!("SELECT {} FROM row WHERE number = ?1", quoted());
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&select)?;
            statement.query_row([number], read_row).optional()
        })
    }

    /// Every attempt at a task, in the order of the source, with its result in a column: `verdict`, or a score. Only those of
    /// `teacher`, unless that is empty.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn outcomes(
        &self,
        column: &'static str,
        teacher: &str,
    ) -> Result<Vec<TaskOutcome>, RunError> {
        let select = format!(
            "SELECT task, number, \"{column}\" FROM row WHERE task <> '' AND (?1 = '' OR teacher = ?1) ORDER BY number"
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&select)?;
            let rows = statement.query_map([teacher], |row| {
                let outcome: String = row.get(2)?;
                Ok(TaskOutcome {
                    task: row.get(0)?,
                    number: row.get(1)?,
                    passed: match &*outcome {
                        "accepted" | "passed" => Some(true),
                        "rejected" | "failed" => Some(false),
                        _ => None,
                    },
                })
            })?;
            rows.collect()
        })
    }

    /// Whether any attempt has a result in this column.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn has_outcomes(
        &self,
        column: &'static str,
        teacher: &str,
    ) -> Result<bool, RunError> {
        let select = format!(
            "SELECT EXISTS (SELECT 1 FROM row WHERE \"{column}\" <> '' AND task <> '' AND (?1 = '' OR teacher = ?1))"
        );
        self.read(|connection| connection.query_row(&select, [teacher], |row| row.get(0)))
    }

    /// The tasks of trajectories, by id.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn tasks_of(&self, ids: &[String]) -> Result<HashMap<String, String>, RunError> {
        let select = "SELECT id, task FROM row WHERE id IN (SELECT value FROM json_each(?1))";
        let ids = serde_json::to_string(ids)?;
        self.read(|connection| {
            let mut statement = connection.prepare_cached(select)?;
            let rows = statement.query_map([ids], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
    }

    /// The values that filters offer.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn facets(&self) -> Result<Vec<Facet>, RunError> {
        let text: String = self.read(|connection| {
            connection.query_row("SELECT json FROM facet", [], |row| row.get(0))
        })?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// The error of an index. The file can be deleted: everything in it is made again.
fn failed(path: &Path, error: &rusqlite::Error) -> RunError {
    RunError::Environment(format!(
        "cannot use the studio's index {}: {error}; check that its disk is writable and has space, or delete the file and \
         start the studio again",
        path.display()
    ))
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// The index at `path`, if it is there, whole and of this version.
fn existing(path: &Path) -> Option<Connection> {
    let connection = open(path).ok()?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    let facets = "SELECT count(*) FROM facet";
    let whole = connection.query_row(facets, [], |row| row.get::<_, i64>(0));
    (version == Ok(VERSION) && whole == Ok(1)).then_some(connection)
}

fn write(path: &Path, source: &TrajectorySource) -> Result<(), RunError> {
    let failed = |error: rusqlite::Error| failed(path, &error);
    let connection = Connection::open(path).map_err(failed)?;
    let pragmas = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;";
    connection.execute_batch(pragmas).map_err(failed)?;
    connection.execute_batch(TABLES).map_err(failed)?;
    let mut number = 0;
    let prices = Prices::of(source);
    each_record(source, &mut |record| {
        number += 1;
        insert(&connection, number, record, &prices)?.map_err(failed)
    })?;
    finish(&connection).map_err(failed)
}

fn insert(
    connection: &Connection,
    number: u64,
    record: Record,
    prices: &Prices,
) -> Result<rusqlite::Result<()>, RunError> {
    let mut row = Row::new(number, &record);
    row.micro_usd = row.micro_usd.or_else(|| cost(&record, prices));
    let json = serde_json::to_string(&record)?;
    let mut view = View::new(row.clone(), record);
    let texts = view.texts();
    if view.turns.len() > PAGE_TURNS {
        let turns = std::mem::take(&mut view.turns);
        let turns = turns.iter().map(serde_json::to_string);
        let turns = turns.collect::<Result<Vec<_>, _>>()?;
        let head = serde_json::to_string(&view)?;
        if let Err(error) = insert_turns(connection, number, &head, &turns) {
            return Ok(Err(error));
        }
    }
    Ok(insert_row(connection, &row, &json, &texts))
}

fn insert_turns(
    connection: &Connection,
    number: u64,
    head: &str,
    turns: &[String],
) -> rusqlite::Result<()> {
    let last = "SELECT coalesce(max(id), 0) FROM turn";
    let last: u64 = connection.query_row(last, [], |row| row.get(0))?;
    let insert = "INSERT INTO turn VALUES (?1, ?2)";
    let mut insert = connection.prepare_cached(insert)?;
    for (id, turn) in (last + 1..).zip(turns) {
        insert.execute((id, turn))?;
    }
    let insert = "INSERT INTO head VALUES (?1, ?2, ?3, ?4)";
    let values = (number, last + 1, turns.len() as u64, head);
    connection.prepare_cached(insert)?.execute(values)?;
    Ok(())
}

fn insert_row(
    connection: &Connection,
    row: &Row,
    json: &str,
    texts: &[String; 3],
) -> rusqlite::Result<()> {
    let places = vec!["?"; COLUMNS.len()].join(", ");
    let insert = format!("INSERT INTO row VALUES ({places})");
    let texts_of_row = [
        &row.id,
        &row.task,
        &row.category,
        &row.keyword,
        &row.origin,
        &row.kinds,
        &row.language,
        &row.teacher,
        &row.format,
        &row.verdict,
        &row.rejected_by,
        &row.upstream,
        &row.fixed,
        &row.strict,
        &row.end,
        &row.error,
    ];
    let text = |text: &&String| SqlValue::Text((*text).clone());
    let number = |number: u64| SqlValue::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let mut values = vec![number(row.number)];
    values.extend(texts_of_row.iter().map(text));
    let cost = row.micro_usd.map_or(SqlValue::Null, number);
    values.extend([
        number(row.turns),
        number(row.tokens),
        cost,
        text(&&row.query),
    ]);
    connection
        .prepare_cached(&insert)?
        .execute(params_from_iter(values))?;
    let insert = "INSERT INTO record VALUES (?1, ?2)";
    connection
        .prepare_cached(insert)?
        .execute((row.number, json))?;
    let [user, assistant, tool] = texts.each_ref().map(|text| search::indexed(text));
    let insert = "INSERT INTO words (rowid, user, assistant, tool) VALUES (?1, ?2, ?3, ?4)";
    connection
        .prepare_cached(insert)?
        .execute((row.number, user, assistant, tool))?;
    Ok(())
}

fn finish(connection: &Connection) -> rusqlite::Result<()> {
    for column in FACETS
        .into_iter()
        .chain(["id", "task", "turns", "tokens", "micro_usd"])
    {
        connection.execute_batch(&format!("CREATE INDEX row_{column} ON row (\"{column}\")"))?;
    }
    let facets = FACETS.map(|column| facet(connection, column));
    let facets = facets.into_iter().collect::<rusqlite::Result<Vec<_>>>()?;
    let json = serde_json::to_string(&facets)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    connection.execute("INSERT INTO facet VALUES (?1)", [json])?;
    connection.pragma_update(None, "user_version", VERSION)?;
    connection.execute_batch("COMMIT")
}

fn facet(connection: &Connection, column: &str) -> rusqlite::Result<Facet> {
    let mut statement = connection.prepare(&format!(
        "SELECT \"{column}\", count(*) FROM row WHERE \"{column}\" <> '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MAX_VALUES}"
    ))?;
    let values = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Facet {
        column: column.to_owned(),
        values: values.collect::<Result<_, _>>()?,
    })
}

fn quoted() -> String {
    COLUMNS.map(|column| format!("\"{column}\"")).join(", ")
}

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
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

/// The rows that match a query, as what follows `FROM`, and its values.
fn matching(query: &ListQuery) -> Result<(String, Vec<SqlValue>), RunError> {
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
        parts.push(format!("\"{column}\" = ?{}", values.len()));
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
    let micro = |usd: f64| (usd * 1e6) as u64;
    let bounds = [
        ("turns >=", query.min_turns),
        ("turns <=", query.max_turns),
        ("tokens >=", query.min_tokens),
        ("tokens BETWEEN 1 AND", query.max_tokens),
        ("micro_usd >=", micro(query.min_usd)),
        ("micro_usd <=", micro(query.max_usd)),
    ];
    let given = bounds.into_iter().filter(|(_, bound)| *bound > 0);
    given.map(|(compare, bound)| format!("{compare} {}", bound.min(i64::MAX as u64)))
}

fn order(query: &ListQuery) -> Result<String, RunError> {
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

    /// An index of these rows: category, query, reply.
    fn index(folder: &Path, rows: &[[&str; 3]]) -> Index {
        let row = |[category, query, reply]: &[&str; 3]| {
            serde_json::json!({"category": category, "messages": [
                {"role": "user", "content": query}, {"role": "assistant", "content": reply}]})
            .to_string()
        };
        let path = folder.join("rows.jsonl");
        let rows: Vec<String> = rows.iter().map(row).collect();
        std::fs::write(&path, rows.join("\n")).unwrap();
        let source = TrajectorySource::open(&path, folder).unwrap();
        Index::open(&folder.join("index.sqlite"), &source).unwrap()
    }

    const ROWS: [[&str; 3]; 4] = [
        ["chart", "Compute the mean.", "print(1)"],
        ["chart", "Draw a line.", "The mean is 2."],
        ["text", "It's 50 % (\"half\")", "no"],
        ["文本", "求平均值", "完成"],
    ];

    fn numbers(index: &Index, change: impl FnOnce(&mut ListQuery)) -> Vec<u64> {
        let mut query = ListQuery::default();
        change(&mut query);
        let page = index.page(&query).unwrap();
        page.rows.iter().map(|row| row.number).collect()
    }

    #[test]
    fn rows_are_filtered_and_sorted_by_page() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), &ROWS);
        let of = |change: fn(&mut ListQuery)| numbers(&index, change);
        assert_eq!(of(|_| {}), [1, 2, 3, 4]);
        assert_eq!(of(|query| query.category = "chart".into()), [1, 2]);
        assert_eq!(of(|query| query.min_turns = 2), [0_u64; 0]);
        assert_eq!(of(|query| query.max_turns = 1), [1, 2, 3, 4]);
        // Tokens and costs of these rows are unknown.
        assert_eq!(of(|query| query.max_tokens = 9), [0_u64; 0]);
        assert_eq!(of(|query| query.max_usd = 9.0), [0_u64; 0]);
        assert_eq!(of(|query| query.min_usd = f64::NAN), [1, 2, 3, 4]);
        let both = |query: &mut ListQuery| {
            let ids = || vec!["x".to_owned()];
            query.ids = vec![IdFilter::Among(ids()), IdFilter::Except(ids())];
        };
        assert_eq!(of(both), [0_u64; 0]);
        let by_query =
            |query: &mut ListQuery| (query.sort, query.descending) = ("query".into(), true);
        assert_eq!(of(by_query), [4, 3, 2, 1]);
        assert_eq!(of(|query| (query.from, query.count) = (1, 2)), [2, 3]);
        let back = |query: &mut ListQuery| {
            (query.from, query.count, query.descending) = (1, 2, true);
        };
        assert_eq!(of(back), [3, 2]);
        let back_from_the_end = |query: &mut ListQuery| {
            (query.from, query.count, query.descending) = (3, 2, true);
        };
        assert_eq!(of(back_from_the_end), [1]);
        assert_eq!(of(|query| query.from = u64::MAX), [0_u64; 0]);
        let page = index
            .page(&ListQuery {
                count: 1,
                ..ListQuery::default()
            })
            .unwrap();
        assert_eq!((page.total, page.rows.len()), (4, 1));
        let facets = index.facets().unwrap();
        let categories = facets
            .iter()
            .find(|facet| facet.column == "category")
            .unwrap();
        assert_eq!(categories.values[0], ("chart".to_owned(), 2));
    }

    #[test]
    fn long_trajectories_are_read_by_page() {
        let folder = tempfile::tempdir().unwrap();
        let message = |role: &str, text: String| serde_json::json!({"role": role, "content": text});
        let mut messages = vec![message("user", "Count.".to_owned())];
        let count = 2 * PAGE_TURNS as u64 + 5;
        for turn in 1..=count {
            messages.push(message("assistant", format!("word{turn}")));
            messages.push(message("user", "Go on.".to_owned()));
        }
        let path = folder.path().join("rows.jsonl");
        let long = serde_json::json!({ "messages": messages });
        let short = serde_json::json!({"messages": messages[..3]});
        std::fs::write(&path, format!("{long}\n{short}\n{long}")).unwrap();
        let source = TrajectorySource::open(&path, folder.path()).unwrap();
        let index = Index::open(&folder.path().join("index.sqlite"), &source).unwrap();
        let page = PAGE_TURNS as u64;
        for number in [1, 3] {
            for (turn, first, last) in [
                (0, 1, page),
                (1, 1, page),
                (page, 1, page),
                (page + 1, page + 1, 2 * page),
                (count, 2 * page + 1, count),
                (u64::MAX, 2 * page + 1, count),
            ] {
                let view = index.view(number, turn).unwrap().unwrap();
                assert_eq!((view.first_turn, view.turn_count), (first, count), "{turn}");
                assert_eq!(view.turns[0].text, format!("word{first}"));
                assert_eq!(view.turns.last().unwrap().text, format!("word{last}"));
                assert_eq!((view.row.number, &*view.query), (number, "Count."));
            }
        }
        let view = index.view(2, 9).unwrap().unwrap();
        assert_eq!(
            (view.first_turn, view.turn_count, view.turns.len()),
            (1, 1, 1)
        );
        assert_eq!(index.view(4, 1).unwrap(), None);
        assert_eq!(
            numbers(&index, |query| query.search = format!("word{count}")),
            [1, 3]
        );
    }

    #[test]
    fn words_are_found_by_role() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), &ROWS);
        let of = |search: &str, role: &str| {
            numbers(&index, |query| {
                (query.search, query.role) = (search.into(), role.into())
            })
        };
        assert_eq!(of("MEAN", ""), [1, 2]);
        assert_eq!(of("mean", "user"), [1]);
        assert_eq!(of("mean", "tool"), [0_u64; 0]);
        assert_eq!(of("mean compute", ""), [1]);
        assert_eq!(of("\"the mean\"", ""), [1, 2]);
        assert_eq!(of("\"mean the\"", ""), [0_u64; 0]);
        assert_eq!(of("comp*", ""), [1]);
        assert_eq!(of("comp", ""), [0_u64; 0]);
        assert_eq!(of("50 % (\"half", ""), [3]);
        // With other orders and filters the search is a condition among others.
        let found = |change: fn(&mut ListQuery)| {
            numbers(&index, |query| {
                query.search = "mean".into();
                change(query);
            })
        };
        assert_eq!(found(|query| query.descending = true), [2, 1]);
        assert_eq!(found(|query| (query.from, query.count) = (1, 1)), [2]);
        assert_eq!(found(|query| query.sort = "query".into()), [1, 2]);
        assert_eq!(found(|query| query.category = "text".into()), [0_u64; 0]);
        assert_eq!(of("平均", ""), [4]);
        assert_eq!(of("均平", ""), [0_u64; 0]);
    }

    #[test]
    fn hostile_queries_find_nothing_and_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), &ROWS);
        let hostile = [
            "x' OR 1=1 --",
            "\" OR user : mean",
            "mean) OR (mean",
            "NEAR(mean, x) NOT",
            "user : {x}",
            "-x",
            "^x",
            "x\0mean",
            "\"\"\"x\"\"\"",
            "x**",
            "x AND",
        ];
        for search in hostile {
            for role in ["", "user"] {
                let query = ListQuery {
                    search: search.into(),
                    role: role.into(),
                    ..ListQuery::default()
                };
                let page = index
                    .page(&query)
                    .unwrap_or_else(|error| panic!("{search:?}: {error}"));
                assert_eq!(page.total, 0, "{search:?}");
            }
            let of = |change: fn(&mut ListQuery, String)| {
                numbers(&index, |query| change(query, search.into()))
            };
            assert_eq!(of(|query, text| query.category = text), [0_u64; 0]);
        }
        for (sort, role, search) in [
            ("number; DROP TABLE row", "", ""),
            ("json", "", ""),
            ("", "nobody", "x"),
            ("", "", "% ("),
            ("", "", &"x ".repeat(2000)),
        ] {
            let query = ListQuery {
                sort: sort.into(),
                role: role.into(),
                search: search.into(),
                ..ListQuery::default()
            };
            let error = index.page(&query).unwrap_err();
            assert!(matches!(error, RunError::BadInput(_)), "{error}");
        }
        assert_eq!(numbers(&index, |_| {}), [1, 2, 3, 4]);
    }

    #[test]
    fn records_are_found_by_number_and_damaged_indexes_are_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (row, json) = index(folder.path(), &ROWS).record(2).unwrap().unwrap();
        assert_eq!(row.query, "Draw a line.");
        let record: Record = serde_json::from_str(&json).unwrap();
        assert_eq!(View::new(row, record).turns[0].text, "The mean is 2.");
        let path = folder.path().join("index.sqlite");
        std::fs::write(&path, "no database").unwrap();
        let index = index(folder.path(), &ROWS);
        assert_eq!(numbers(&index, |_| {}), [1, 2, 3, 4]);
        for number in [0, 5, u64::MAX] {
            assert_eq!(index.record(number).unwrap(), None);
        }
        assert!(
            !folder
                .path()
                .read_dir()
                .unwrap()
                .flatten()
                .any(|entry| { entry.path().extension().is_some_and(|end| end == "part") })
        );
    }
}
