//! Makes the index of a source: a row for each trajectory, its words, and the values that filters offer.

use std::path::Path;

use pybench_run::RunError;
use pybench_show::TrajectorySource;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, params_from_iter};

use super::schema::{COLUMNS, FACETS, TABLES, VERSION, failed_checks, values_of};
use super::{Facet, failed};
use crate::evaluation::each_record;
use crate::prices::Prices;
use crate::record::Record;
use crate::row::{Row, cost};
use crate::search;
use crate::view::{PAGE_TURNS, View};

/// Maximum number of values of a facet.
const MAX_VALUES: usize = 200;

/// Writes the index of `source` to `path`, where no file is.
///
/// # Errors
/// The source cannot be read; the file cannot be written.
pub(super) fn write(path: &Path, source: &TrajectorySource) -> Result<(), RunError> {
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
        &failed_checks(row),
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
        "SELECT \"{column}\", count(*) FROM {} WHERE \"{column}\" <> '' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MAX_VALUES}",
        values_of(column)
    ))?;
    let values = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Facet {
        column: column.to_owned(),
        values: values.collect::<Result<_, _>>()?,
    })
}
