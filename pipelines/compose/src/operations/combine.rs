//! Operations that bring in another file of the task: joins by a key, and appended rows.

use std::collections::HashSet;

use polars::prelude::*;
use rand::seq::IndexedRandom;

use super::aggregate::grouped_by;
use crate::argument::{Argument, Arguments};
use crate::draw::{Draw, quotable};
use crate::frame::{Class, Frame, OtherTable};
use crate::operation::{OTHER, Operation};

/// A column that no file has, for rows that have a partner.
const FOUND: &str = "\u{1}found";

pub(super) fn operations() -> Vec<Operation> {
    let mut all = joins();
    all.extend(memberships());
    all.extend(totals());
    all.extend(appends());
    all
}

/// What must hold of the keys of both tables.
#[derive(Clone, Copy)]
struct KeyRule {
    /// Each key is in the other file once at most.
    unique: bool,
    /// The other file has nothing but numbers, texts and truth values that the table does not have.
    adds_columns: bool,
}

/// A file and the column that both tables have, for which the rule holds and which leaves some rows without a partner.
fn keyed(draw: &mut Draw<'_>, rule: KeyRule) -> Option<(OtherTable, String)> {
    let other = draw.frame.others.choose(draw.rng)?.clone();
    let names = draw.frame.data.get_column_names_owned();
    let shared = names.iter().filter(|name| quotable(name));
    let shared: Vec<&PlSmallStr> = shared
        .filter(|name| is_key(draw.frame, &other.frame, name, rule))
        .collect();
    let key = shared.choose(draw.rng)?.to_string();
    let clash = |name: &PlSmallStr| {
        let taken = |own: &PlSmallStr| own.to_lowercase() == name.to_lowercase();
        name.as_str() != key && names.iter().any(taken)
    };
    let columns = other.frame.data.get_column_names_owned();
    let adds = columns.iter().all(|name| !clash(name));
    (adds || !rule.adds_columns).then_some((other, key))
}

/// Whether a column is in both tables without gaps, with values of one type, some of them in both and some in one only.
fn is_key(frame: &Frame, other: &Frame, name: &str, rule: KeyRule) -> bool {
    let (Ok(left), Ok(right)) = (frame.data.column(name), other.data.column(name)) else {
        return false;
    };
    let typed =
        left.dtype() == right.dtype() && matches!(left.dtype(), DataType::String | DataType::Int64);
    let full = left.null_count() == 0 && right.null_count() == 0;
    let once = |column: &Column| column.n_unique().is_ok_and(|count| count == column.len());
    // Numbers that repeat in both are quantities, which name nothing.
    let names = left.dtype() == &DataType::String || once(left) || once(right);
    if !typed || !full || !names || (rule.unique && !once(right)) {
        return false;
    }
    let right = values(right);
    let matched = values(left)
        .iter()
        .filter(|key| right.contains(*key))
        .count();
    matched >= 2 && matched < values(left).len()
}

fn values(column: &Column) -> HashSet<String> {
    let texts = column.cast(&DataType::String);
    let texts = texts.as_ref().ok().and_then(|texts| texts.str().ok());
    let texts = texts.into_iter().flat_map(|texts| texts.iter().flatten());
    texts.map(str::to_owned).collect()
}

fn matched(a: &Arguments, t: LazyFrame, other: LazyFrame, how: JoinType) -> LazyFrame {
    let mut args = JoinArgs::new(how);
    args.maintain_order = MaintainOrderJoin::Left;
    t.join(other, [a.col("key")], [a.col("key")], args)
}

fn join(name: &str, how: JoinType) -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let rule = KeyRule {
            unique: true,
            adds_columns: true,
        };
        let (other, key) = keyed(draw, rule)?;
        (other.frame.data.width() >= 2).then(|| {
            Arguments::new([
                (OTHER, Argument::File(other.path)),
                ("key", Argument::Column(key)),
            ])
        })
    };
    Operation::combine(name, draw, move |a, t, other| {
        matched(a, t, other, how.clone())
    })
}

/// The columns of the row with the same key.
fn joins() -> Vec<Operation> {
    vec![
        join("join_inner", JoinType::Inner)
            .pandas("$t = $t.merge($file, on=$key)")
            .pandas("$t = pd.merge($t, $file, on=[$key], how=\"inner\")")
            .pandas("$t = $t.join($file.set_index($key), on=$key, how=\"inner\")")
            .python(
                "by_key = {row[$key]: row for row in $file}\n\
                 $t = [{**row, **by_key[row[$key]]} for row in $t if row[$key] in by_key]",
            )
            .sql("SELECT * FROM $t JOIN $file USING ($key)")
            .en([
                "join $file on $key, adding its columns and keeping only rows whose $key occurs in both files",
                "look up the $key of each row in $file, add the other columns found there, and drop the rows whose $key is not listed",
            ])
            .zh(["按$key与 $file 合并，添加其中的列，只保留两个文件中都有该$key的行"]),
        join("join_left", JoinType::Left)
            .pandas("$t = $t.merge($file, on=$key, how=\"left\")")
            .pandas("$t = $t.join($file.set_index($key), on=$key)")
            .python(
                "by_key = {row[$key]: row for row in $file}\n\
                 empty = dict.fromkeys($file[0])\n\
                 $t = [{**empty, **by_key.get(row[$key], {}), **row} for row in $t]",
            )
            .sql("SELECT * FROM $t LEFT JOIN $file USING ($key)")
            .en([
                "add the columns of $file to the rows by matching $key; rows without a match stay, with missing values there",
                "left join $file on $key, so that every row stays and columns without a match are empty",
            ])
            .zh(["按$key左连接 $file，添加其中的列；没有匹配的行保留，相应列为缺失值"]),
    ]
}

/// Rows whose key the other file has, or has not.
fn memberships() -> Vec<Operation> {
    let draw = |draw: &mut Draw<'_>| {
        let rule = KeyRule {
            unique: false,
            adds_columns: false,
        };
        let (other, key) = keyed(draw, rule)?;
        Some(Arguments::new([
            (OTHER, Argument::File(other.path)),
            ("key", Argument::Column(key)),
        ]))
    };
    let kept = |a: &Arguments, t: LazyFrame, other: LazyFrame, found: bool| {
        let keys = other.select([a.col("key")]);
        let keys = keys.unique_stable(None, UniqueKeepStrategy::First);
        let keys = keys.with_column(lit(true).alias(FOUND));
        let joined = matched(a, t, keys, JoinType::Left);
        let rows = match found {
            true => joined.filter(col(FOUND).is_not_null()),
            false => joined.filter(col(FOUND).is_null()),
        };
        rows.drop(cols([FOUND]))
    };
    vec![
        Operation::combine("join_semi", draw, move |a, t, other| kept(a, t, other, true))
            .pandas("$t = $t[$t[$key].isin($file[$key])]")
            .pandas("$t = $t.merge($file[[$key]].drop_duplicates(), on=$key)")
            .python("known = {row[$key] for row in $file}\n$t = [row for row in $t if row[$key] in known]")
            .sql("SELECT * FROM $t WHERE $key IN (SELECT $key FROM $file)")
            .en([
                "keep only the rows whose $key occurs in $file, without adding columns",
                "drop every row whose $key is not listed in $file (no columns are added)",
            ])
            .zh(["只保留$key出现在 $file 中的行，不添加列"]),
        Operation::combine("join_anti", draw, move |a, t, other| kept(a, t, other, false))
            .pandas("$t = $t[~$t[$key].isin($file[$key])]")
            .pandas("$t = $t.loc[~$t[$key].isin(set($file[$key]))].copy()")
            .python("known = {row[$key] for row in $file}\n$t = [row for row in $t if row[$key] not in known]")
            .sql("SELECT * FROM $t WHERE $key NOT IN (SELECT $key FROM $file)")
            .en([
                "drop the rows whose $key occurs in $file",
                "keep only the rows whose $key is not listed in $file, without adding columns",
            ])
            .zh(["去掉$key出现在 $file 中的行"]),
    ]
}

/// Numbers from all rows of the other file with the same key.
fn totals() -> Vec<Operation> {
    let many = KeyRule {
        unique: false,
        adds_columns: false,
    };
    let count = move |draw: &mut Draw<'_>| {
        let (other, key) = keyed(draw, many)?;
        let new = draw.new_name(&["entries", "matches", "n_*"], &key)?;
        Some(Arguments::new([
            (OTHER, Argument::File(other.path)),
            ("key", Argument::Column(key)),
            ("new", new),
        ]))
    };
    let total = move |draw: &mut Draw<'_>| {
        let (other, key) = keyed(draw, many)?;
        let numbers = other.frame.of_class(Class::Number).into_iter();
        let full = |name: &String| {
            let column = other.frame.data.column(name);
            *name != key && quotable(name) && column.is_ok_and(|column| column.null_count() == 0)
        };
        let numbers: Vec<String> = numbers.filter(full).collect();
        let column = numbers.choose(draw.rng)?.clone();
        let new = draw.new_name(&["total_*", "sum_*", "*_there"], &column)?;
        Some(Arguments::new([
            (OTHER, Argument::File(other.path)),
            ("key", Argument::Column(key)),
            ("column", Argument::Column(column)),
            ("new", new),
        ]))
    };
    let looked_up = |a: &Arguments, t: LazyFrame, other: LazyFrame, value: Expr| {
        let new = a.name("new");
        let groups = grouped_by(other, [a.col("key")]).agg([value.alias(new)]);
        let joined = matched(a, t, groups, JoinType::Left);
        joined.with_column(col(new).fill_null(lit(0)))
    };
    vec![
        Operation::combine("lookup_count", count, move |a, t, other| {
            looked_up(a, t, other, len().cast(DataType::Int64))
        })
        .pandas("$t = $t.assign(**{$new: $t[$key].map($file[$key].value_counts()).fillna(0).astype(int)})")
        .pandas(
            "counts = $file.groupby($key).size()\n\
             $t[$new] = [int(counts.get(name, 0)) for name in $t[$key]]",
        )
        .python(
            "from collections import Counter\n\
             counts = Counter(row[$key] for row in $file)\n\
             $t = [{**row, $new: counts[row[$key]]} for row in $t]",
        )
        .sql("SELECT *, (SELECT COUNT(*) FROM $file AS o WHERE o.$key = $t.$key) AS $new FROM $t")
        .en([
            "add a column $new with the number of rows of $file that have the same $key (0 if there are none)",
            "count for each row how many rows of $file share its $key, as $new, with 0 where there is none",
        ])
        .zh(["添加列$new，为 $file 中$key相同的行数（没有则为0）"]),
        Operation::combine("lookup_sum", total, move |a, t, other| {
            looked_up(a, t, other, a.col("column").sum())
        })
        .pandas("$t = $t.assign(**{$new: $t[$key].map($file.groupby($key)[$column].sum()).fillna(0)})")
        .pandas(
            "totals = $file.groupby($key, as_index=False)[$column].sum().rename(columns={$column: $new})\n\
             $t = $t.merge(totals, on=$key, how=\"left\")\n\
             $t[$new] = $t[$new].fillna(0)",
        )
        .python(
            "totals = {}\n\
             for row in $file:\n    totals[row[$key]] = totals.get(row[$key], 0) + row[$column]\n\
             $t = [{**row, $new: totals.get(row[$key], 0)} for row in $t]",
        )
        .sql("SELECT *, COALESCE((SELECT SUM(o.$column) FROM $file AS o WHERE o.$key = $t.$key), 0) AS $new FROM $t")
        .en([
            "add a column $new with the sum of $column over the rows of $file that have the same $key (0 if there are none)",
            "look up in $file the total $column of each row's $key, as $new, with 0 where the $key does not occur",
        ])
        .zh(["添加列$new，为 $file 中$key相同的各行$column之和（没有则为0）"]),
    ]
}

/// Another file with the same columns, and their names.
fn same_columns(draw: &mut Draw<'_>) -> Option<(OtherTable, Vec<String>)> {
    let other = draw.frame.others.choose(draw.rng)?.clone();
    let names = draw.frame.data.get_column_names_owned();
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let dtype = |frame: &Frame, name: &str| frame.data.column(name).ok().map(|c| c.dtype().clone());
    let alike = names.iter().all(|name| {
        let one = dtype(draw.frame, name);
        one == dtype(&other.frame, name) && draw.frame.class(name) == other.frame.class(name)
    });
    (alike && names.len() == other.frame.data.width()).then_some((other, names))
}

fn appended(a: &Arguments, t: LazyFrame, other: LazyFrame) -> LazyFrame {
    let names = a.names("columns").iter();
    let columns: Vec<Expr> = names.map(|name| col(name.as_str())).collect();
    let parts = [t.clone(), other.select(columns)];
    // Only an empty list of parts is an error.
    concat(parts, UnionArgs::default()).unwrap_or(t)
}

/// The rows of a file with the same columns.
fn appends() -> Vec<Operation> {
    let plain = |draw: &mut Draw<'_>| {
        let (other, columns) = same_columns(draw)?;
        Some(Arguments::new([
            (OTHER, Argument::File(other.path)),
            ("columns", Argument::Columns(columns)),
        ]))
    };
    let marked = |draw: &mut Draw<'_>| {
        let (other, columns) = same_columns(draw)?;
        let new = draw.new_name(&["part", "origin", "file", "from_file"], "")?;
        let (first, second) = *[
            ("first", "second"),
            ("A", "B"),
            ("old", "new"),
            ("1st", "2nd"),
        ]
        .choose(draw.rng)?;
        Some(Arguments::new([
            (OTHER, Argument::File(other.path)),
            ("columns", Argument::Columns(columns)),
            ("new", new),
            ("here", Argument::Text(first.to_owned())),
            ("there", Argument::Text(second.to_owned())),
        ]))
    };
    vec![
        Operation::combine("append_rows", plain, appended)
            .pandas("$t = pd.concat([$t, $file], ignore_index=True)")
            .pandas("$t = pd.concat([$t, $file[$t.columns]]).reset_index(drop=True)")
            .python("$t = $t + $file")
            .sql("SELECT $columns FROM $t UNION ALL SELECT $columns FROM $file")
            .en([
                "append the rows of $file, which has the same columns",
                "put the rows of $file below (same columns)",
            ])
            .zh(["把 $file 的行（列相同）接在后面"]),
        Operation::combine("append_marked", marked, |a, t, other| {
            let mark = |t: LazyFrame, key: &str| {
                t.with_column(lit(a.text(key).to_owned()).alias(a.name("new")))
            };
            let names = a.names("columns").iter();
            let columns: Vec<Expr> = names.map(|name| col(name.as_str())).collect();
            let parts = [mark(t.clone(), "here"), mark(other.select(columns), "there")];
            concat(parts, UnionArgs::default()).unwrap_or(t)
        })
        .pandas("$t = pd.concat([$t.assign(**{$new: $here}), $file.assign(**{$new: $there})], ignore_index=True)")
        .pandas(
            "$t = pd.concat({$here: $t, $there: $file}, names=[$new, None]).reset_index(level=0).reset_index(drop=True)",
        )
        .python("$t = [{**row, $new: $here} for row in $t] + [{**row, $new: $there} for row in $file]")
        .sql("SELECT $columns, $here AS $new FROM $t UNION ALL SELECT $columns, $there AS $new FROM $file")
        .en([
            "append the rows of $file (same columns), with a new column $new that is $here for the rows so far and $there for the appended ones",
            "stack the rows of $file below and note the origin in a column $new: $here for the rows you had, $there for those of the other file",
        ])
        .zh(["把 $file 的行（列相同）接在后面，并添加列$new：原有的行为$here，接入的行为$there"]),
    ]
}
