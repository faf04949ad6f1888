//! Operations that turn columns into rows and values into columns, and those that sort and summarize by two columns.

use polars::prelude::*;

use super::aggregate::grouped_by;
use crate::argument::{Argument, Arguments};
use crate::draw::{Draw, quotable};
use crate::frame::Class;
use crate::operation::{Operation, Order, Role};

/// Most columns that are turned into rows.
const MAX_MELTED: usize = 4;
/// Most rows of a table whose columns are turned into rows.
const MAX_ROWS: usize = 4_000;
/// Most values that become columns.
const MAX_ENCODED: usize = 5;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        melt(),
        one_hot(),
        drop_columns(),
        sort_two_keys(),
        group_two_functions(),
        group_weighted_mean(),
    ]
}

/// Names of columns that a query can quote, for which a test holds.
fn names(draw: &Draw<'_>, fits: impl Fn(&Column) -> bool) -> Vec<String> {
    let columns = draw.frame.data.columns().iter();
    let fitting = columns.filter(|column| quotable(column.name()) && fits(column));
    fitting.map(|column| column.name().to_string()).collect()
}

/// Columns of numbers of one type become rows.
fn melt() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let key = draw.full_text()?;
        let first = draw.full_number()?;
        let dtype = draw.frame.data.column(&first).ok()?.dtype().clone();
        let mut columns = names(draw, |column| {
            column.dtype() == &dtype && column.null_count() == 0
        });
        columns.truncate(MAX_MELTED);
        let measure = draw.new_name(&["measure", "quantity", "variable"], "")?;
        let new = draw.new_name(&["value", "amount", "reading"], "")?;
        (columns.len() >= 2 && draw.frame.height() <= MAX_ROWS).then(|| {
            Arguments::new([
                ("key", Argument::Column(key)),
                ("columns", Argument::Columns(columns)),
                ("measure", measure),
                ("new", new),
            ])
        })
    };
    let meaning = |a: &Arguments, t: LazyFrame| {
        let part = |name: &String| {
            t.clone().select([
                a.col("key"),
                lit(name.clone()).alias(a.name("measure")),
                col(name.as_str()).alias(a.name("new")),
            ])
        };
        let parts: Vec<LazyFrame> = a.names("columns").iter().map(part).collect();
        // Only an empty list of parts is an error.
        concat(parts, UnionArgs::default()).unwrap_or(t)
    };
    Operation::new("melt", Role::Shape, draw, meaning)
        .counted_as("pivot table")
        .order(Order::Loses)
        .pandas("$t = $t.melt(id_vars=[$key], value_vars=$columns, var_name=$measure, value_name=$new)")
        .pandas(
            "parts = [$t[[$key]].assign(**{$measure: name, $new: $t[name]}) for name in $columns]\n\
             $t = pd.concat(parts, ignore_index=True)",
        )
        .python("$t = [{$key: row[$key], $measure: name, $new: row[name]} for name in $columns for row in $t]")
        .en([
            "turn the columns $columns into rows: a table with $key, a column $measure with the name of the column, and a column $new with its value",
            "melt the table to long form: one row per row and column of $columns, with the columns $key, $measure (the column's name) and $new (the value)",
        ])
        .zh([
            "把$columns这几列转为行：结果有$key、$measure（原列名）和$new（数值）三列",
            "转换为长表：$columns的每个值一行，列为$key、$measure（列名）和$new（值）",
        ])
}

/// One column of zeros and ones for each value of a text column.
fn one_hot() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let column = draw.pick(Class::Text, |draw, name| {
            draw.nulls(name) == 0 && (2..=MAX_ENCODED).contains(&draw.distinct(name))
        })?;
        let values = draw.values(&column);
        let taken = draw.frame.data.get_column_names_owned();
        let fits = |value: &String| {
            let name = format!("{column}_{value}");
            let clashes = |other: &PlSmallStr| other.to_lowercase() == name.to_lowercase();
            quotable(&name) && !taken.iter().any(clashes)
        };
        (values.len() == draw.distinct(&column) && values.iter().all(fits)).then(|| {
            Arguments::new([
                ("column", Argument::Column(column)),
                ("values", Argument::Columns(values)),
            ])
        })
    };
    let meaning = |a: &Arguments, t: LazyFrame| {
        let column = a.name("column");
        let encoded = a.names("values").iter().map(|value| {
            let here = col(column).eq(lit(value.clone())).cast(DataType::Int64);
            here.alias(format!("{column}_{value}"))
        });
        let encoded: Vec<Expr> = encoded.collect();
        t.with_columns(encoded).drop(cols([column]))
    };
    Operation::new("one_hot", Role::Shape, draw, meaning)
        .counted_as("encoding")
        .pandas("$t = pd.get_dummies($t, columns=[$column], dtype=int)")
        .pandas("$t = $t.drop(columns=$column).join(pd.get_dummies($t[$column], prefix=$column, dtype=int))")
        .python(
            "$t = [{**{name: value for name, value in row.items() if name != $column}, \
             **{$column + \"_\" + value: int(row[$column] == value) for value in $values}} for row in $t]",
        )
        .en([
            "one-hot encode $column: replace it by one column for each of its values, named after $column, an underscore and the value, with 1 where the row has the value and 0 elsewhere",
            "turn $column into indicator columns (column name, underscore, value; 1 or 0 as whole numbers), one for every value, and drop $column itself",
        ])
        .zh([
            "对$column做独热编码：每个取值一列（列名为原列名、下划线、取值），有该值为1，否则为0，并去掉$column",
            "把$column换成指示列，每个取值一列，命名为“列名_取值”，取值为0或1",
        ])
}

fn drop_columns() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let mut columns = names(draw, |_| true);
        let dropped = draw.count(1, 2) as usize;
        let stays = draw.frame.data.width() >= dropped + 2;
        while columns.len() > dropped {
            let last = columns.len() as i64 - 1;
            columns.remove(draw.count(0, last) as usize);
        }
        (stays && columns.len() == dropped)
            .then(|| Arguments::new([("columns", Argument::Columns(columns))]))
    };
    let meaning = |a: &Arguments, t: LazyFrame| {
        let names: Vec<&str> = a.names("columns").iter().map(String::as_str).collect();
        t.drop(cols(names))
    };
    Operation::new("drop_columns", Role::Shape, draw, meaning)
        .pandas("$t = $t.drop(columns=$columns)")
        .pandas("$t = $t[[name for name in $t.columns if name not in $columns]]")
        .python("$t = [{name: value for name, value in row.items() if name not in $columns} for row in $t]")
        .en([
            "remove from the table: $columns (the other columns stay)",
            "drop $columns and leave all other columns as they are",
        ])
        .zh(["去掉列$columns，其余列不变", "删除$columns，保留其他所有列"])
}

/// By a category, and within it by a number of which no two are equal.
fn sort_two_keys() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let key = draw.category()?;
        let column = draw.pick(Class::Number, |draw, name| draw.unique(name))?;
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("column", Argument::Column(column)),
        ]))
    };
    let meaning = |a: &Arguments, t: LazyFrame| {
        let order = SortMultipleOptions::default().with_order_descending_multi([false, true]);
        t.sort([a.name("key"), a.name("column")], order)
    };
    Operation::new("sort_two_keys", Role::Shape, draw, meaning)
        .order(Order::Sets)
        .pandas("$t = $t.sort_values([$key, $column], ascending=[True, False])")
        .pandas(
            "$t = $t.sort_values($column, ascending=False).sort_values($key, kind=\"stable\")",
        )
        .python("$t = sorted(sorted($t, key=lambda row: row[$column], reverse=True), key=lambda row: row[$key])")
        .en([
            "sort the rows by $key in code point order (upper case before lower case), and rows of one $key by $column from largest to smallest",
            "order the table by $key (by code point, ascending) and within each $key by $column in descending order",
        ])
        .zh([
            "先按$key（字符编码顺序，升序），同一$key内再按$column降序排列",
            "按$key升序（字符编码顺序）、$column降序排序",
        ])
}

/// Two statistics of two columns.
fn group_two_functions() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let (key, column) = draw.grouped(1)?;
        let other = draw.pick(Class::Number, |draw, name| {
            name != column && draw.distinct(name) >= 5 && draw.smallest_group(&key, name) >= 1
        })?;
        let new = draw.new_name(&["mean_*", "*_mean", "average"], &column)?;
        let second = draw.new_name(&["max_*", "*_max", "largest"], &other)?;
        (new != second).then(|| {
            Arguments::new([
                ("key", Argument::Column(key)),
                ("column", Argument::Column(column)),
                ("other", Argument::Column(other)),
                ("new", new),
                ("second", second),
            ])
        })
    };
    let meaning = |a: &Arguments, t: LazyFrame| {
        let mean = a.col("column").mean().alias(a.name("new"));
        let largest = a.col("other").max().alias(a.name("second"));
        let groups = grouped_by(t, [a.col("key")]).agg([mean, largest]);
        groups.sort([a.name("key")], SortMultipleOptions::default())
    };
    Operation::new("group_two_functions", Role::Shape, draw, meaning)
        .order(Order::Loses)
        .pandas("$t = $t.groupby($key, as_index=False).agg(**{$new: ($column, \"mean\"), $second: ($other, \"max\")})")
        .pandas(
            "groups = $t.groupby($key)\n\
             $t = pd.DataFrame({$new: groups[$column].mean(), $second: groups[$other].max()}).reset_index()",
        )
        .python(
            "groups = {}\n\
             for row in $t:\n    groups.setdefault(row[$key], []).append(row)\n\
             $t = []\n\
             for name, rows in groups.items():\n    \
             known = [row[$column] for row in rows if row[$column] is not None]\n    \
             largest = max(row[$other] for row in rows if row[$other] is not None)\n    \
             $t.append({$key: name, $new: sum(known) / len(known), $second: largest})",
        )
        .sql("SELECT $key, AVG($column) AS $new, MAX($other) AS $second FROM $t GROUP BY $key")
        .en([
            "group the rows by $key and compute the mean of $column as $new and the largest $other as $second",
            "build a table with one row per $key: $key, $new (the average of $column) and $second (the maximum of $other)",
        ])
        .zh([
            "按$key分组，计算$column的平均值（列名$new）和$other的最大值（列名$second）",
            "生成每个$key一行的表，列为$key、$new（$column的平均值）和$second（$other的最大值）",
        ])
}

fn group_weighted_mean() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let (key, column) = draw.grouped(1)?;
        let other = draw.pick(Class::Number, |draw, name| {
            let positive = draw.numbers(name).first().is_some_and(|least| *least > 0.0);
            name != column && draw.distinct(name) >= 5 && draw.nulls(name) == 0 && positive
        })?;
        let new = draw.new_name(&["weighted_*", "weighted_mean"], &column)?;
        (draw.nulls(&column) == 0).then(|| {
            Arguments::new([
                ("key", Argument::Column(key)),
                ("column", Argument::Column(column)),
                ("other", Argument::Column(other)),
                ("new", new),
            ])
        })
    };
    let meaning = |a: &Arguments, t: LazyFrame| {
        let total = (a.col("column") * a.col("other"))
            .sum()
            .cast(DataType::Float64);
        let value = (total / a.col("other").sum()).alias(a.name("new"));
        let groups = grouped_by(t, [a.col("key")]).agg([value]);
        groups.sort([a.name("key")], SortMultipleOptions::default())
    };
    Operation::new("group_weighted_mean", Role::Shape, draw, meaning)
        .order(Order::Loses)
        .pandas(
            "weights = $t.groupby($key)[$other].sum()\n\
             totals = ($t[$column] * $t[$other]).groupby($t[$key]).sum()\n\
             $t = (totals / weights).reset_index(name=$new)",
        )
        .pandas(
            "$t = $t.groupby($key)[[$column, $other]].apply(\
             lambda group: np.average(group[$column], weights=group[$other])).reset_index(name=$new)",
        )
        .python(
            "totals, weights = {}, {}\n\
             for row in $t:\n    \
             totals[row[$key]] = totals.get(row[$key], 0) + row[$column] * row[$other]\n    \
             weights[row[$key]] = weights.get(row[$key], 0) + row[$other]\n\
             $t = [{$key: name, $new: totals[name] / weights[name]} for name in totals]",
        )
        .sql("SELECT $key, SUM($column * $other) * 1.0 / SUM($other) AS $new FROM $t GROUP BY $key")
        .en([
            "group the rows by $key and compute the mean of $column weighted by $other as $new",
            "build a table with one row per $key and, in $new, the average $column with $other as weights",
        ])
        .zh([
            "按$key分组，以$other为权重计算$column的加权平均值，列名为$new",
            "生成每个$key一行的表，$new为以$other加权的$column平均值",
        ])
}
