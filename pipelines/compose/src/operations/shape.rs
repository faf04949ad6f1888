//! Operations that change the shape of a table: group, pivot, sort, select.

use polars::prelude::*;

use super::aggregate::{AGGREGATES, Aggregate, grouped_by};
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::frame::Class;
use crate::operation::{Operation, Order, Role};

/// Most columns of a pivoted table.
const MAX_PIVOTED: usize = 6;

pub(super) fn operations() -> Vec<Operation> {
    let mut all: Vec<Operation> = AGGREGATES
        .iter()
        .map(|aggregate| group(*aggregate))
        .collect();
    all.extend(counts());
    all.extend(
        AGGREGATES
            .iter()
            .take(2)
            .map(|aggregate| group_by_two(*aggregate)),
    );
    all.extend(
        AGGREGATES
            .iter()
            .take(2)
            .map(|aggregate| monthly(*aggregate)),
    );
    all.extend(AGGREGATES.iter().take(2).map(|aggregate| pivot(*aggregate)));
    all.push(cross_table());
    all.extend(sorts());
    all.extend(columns());
    all
}

fn shape(
    name: impl Into<String>,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    meaning: impl Fn(&Arguments, LazyFrame) -> LazyFrame + Send + Sync + 'static,
) -> Operation {
    Operation::new(name, Role::Shape, draw, meaning).order(Order::Loses)
}

fn sorted(t: LazyFrame, keys: Vec<PlSmallStr>) -> LazyFrame {
    t.sort(keys, SortMultipleOptions::default())
}

/// One row for each value of a text column, with a statistic of a numeric one.
fn group(of: Aggregate) -> Operation {
    let draw = move |draw: &mut Draw<'_>| {
        let (key, column) = draw.grouped(of.least)?;
        let new = draw.new_name(&[&format!("{}_*", of.name), of.name, "value"], &column)?;
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("column", Argument::Column(column)),
            ("new", new),
        ]))
    };
    let meaning = move |a: &Arguments, t: LazyFrame| {
        let value = of.of(a.name("column")).alias(a.name("new"));
        sorted(
            grouped_by(t, [a.col("key")]).agg([value]),
            vec![a.name("key").into()],
        )
    };
    let operation = shape(format!("group_{}", of.name), draw, meaning)
        .pandas(format!(
            "$t = $t.groupby($key)[$column].{}.reset_index(name=$new)",
            of.pandas
        ))
        .pandas(format!(
            "$t = $t.groupby($key, as_index=False)[$column].{}.rename(columns={{$column: $new}})",
            of.pandas
        ));
    let operation = match of.python {
        "" => operation,
        python => operation.python(format!(
            "groups = {{}}\n\
             for row in $t:\n    groups.setdefault(row[$key], []).append(row[$column])\n\
             $t = []\n\
             for name in sorted(groups):\n    \
             values = [value for value in groups[name] if value is not None]\n    \
             $t.append({{$key: name, $new: {python}}})"
        )),
    };
    let operation = match of.sql {
        None => operation,
        Some(sql) => operation.sql(format!("SELECT $key, {sql} AS $new FROM $t GROUP BY $key")),
    };
    let (en, zh) = (of.en, of.zh);
    operation
        .en([
            &format!("group the rows by $key and compute the {en} of $column for each group as $new"),
            &format!("build a table with one row per $key: the columns $key and $new, where $new is the {en} of $column"),
            &format!("summarize by $key, taking the {en} of $column as $new"),
        ])
        .zh([
            &format!("按$key分组，计算每组$column的{zh}，列名为$new"),
            &format!("生成每个$key一行的汇总表，列为$key和$new，其中$new是$column的{zh}"),
        ])
}

/// One row for each value of a text column, with numbers of rows and of distinct values.
fn counts() -> Vec<Operation> {
    let key_only = |draw: &mut Draw<'_>| {
        let key = draw.category()?;
        let new = draw.new_name(&["count", "rows", "n"], &key)?;
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("new", new),
        ]))
    };
    let distinct = |draw: &mut Draw<'_>| {
        let key = draw.category()?;
        let column = draw.pick(Class::Text, |draw, name| {
            name != key && draw.nulls(name) == 0 && draw.distinct(name) >= 2
        })?;
        let new = draw.new_name(&["distinct_*", "different", "kinds"], &column)?;
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("column", Argument::Column(column)),
            ("new", new),
        ]))
    };
    let grouped = |a: &Arguments, t: LazyFrame, value: Expr| {
        let value = value.alias(a.name("new"));
        sorted(
            grouped_by(t, [a.col("key")]).agg([value]),
            vec![a.name("key").into()],
        )
    };
    vec![
        shape("group_count", key_only, move |a, t| grouped(a, t, len()))
            .pandas("$t = $t.groupby($key).size().reset_index(name=$new)")
            .pandas("$t = $t[$key].value_counts().rename_axis($key).reset_index(name=$new)")
            .python(
                "from collections import Counter\n\
                 $t = [{$key: name, $new: count} for name, count in Counter(row[$key] for row in $t).items()]",
            )
            .sql("SELECT $key, COUNT(*) AS $new FROM $t GROUP BY $key")
            .en([
                "count the rows of each $key as $new",
                "build a table with one row per $key and the number of its rows in $new",
            ])
            .zh(["统计每个$key的行数，列名为$new"]),
        shape("group_distinct", distinct, move |a, t| grouped(a, t, a.col("column").n_unique()))
            .pandas("$t = $t.groupby($key)[$column].nunique().reset_index(name=$new)")
            .python(
                "groups = {}\n\
                 for row in $t:\n    groups.setdefault(row[$key], set()).add(row[$column])\n\
                 $t = [{$key: name, $new: len(values)} for name, values in groups.items()]",
            )
            .sql("SELECT $key, COUNT(DISTINCT $column) AS $new FROM $t GROUP BY $key")
            .en([
                "count for each $key how many different values $column has, as $new",
                "build a table with one row per $key and the number of distinct $column values in $new",
            ])
            .zh(["统计每个$key有多少种不同的$column，列名为$new"]),
    ]
}

fn group_by_two(of: Aggregate) -> Operation {
    let draw = move |draw: &mut Draw<'_>| {
        let (key, column) = draw.grouped(of.least)?;
        let second = draw.pick(Class::Text, |draw, name| {
            name != key && draw.nulls(name) == 0 && (2..=12).contains(&draw.distinct(name))
        })?;
        let new = draw.new_name(&[&format!("{}_*", of.name), of.name], &column)?;
        (draw.nulls(&column) == 0).then(|| {
            Arguments::new([
                ("key", Argument::Column(key)),
                ("second", Argument::Column(second)),
                ("column", Argument::Column(column)),
                ("new", new),
            ])
        })
    };
    let meaning = move |a: &Arguments, t: LazyFrame| {
        let keys = [a.col("key"), a.col("second")];
        let value = of.of(a.name("column")).alias(a.name("new"));
        let names = vec![a.name("key").into(), a.name("second").into()];
        sorted(grouped_by(t, keys).agg([value]), names)
    };
    let operation = shape(format!("group_two_{}", of.name), draw, meaning)
        .pandas(format!("$t = $t.groupby([$key, $second])[$column].{}.reset_index(name=$new)", of.pandas))
        .python(format!(
            "groups = {{}}\n\
             for row in $t:\n    groups.setdefault((row[$key], row[$second]), []).append(row[$column])\n\
             $t = [{{$key: a, $second: b, $new: {}}} for (a, b), values in groups.items()]",
            of.python
        ));
    let sql = of.sql.unwrap_or_default();
    let (en, zh) = (of.en, of.zh);
    operation
        .sql(format!("SELECT $key, $second, {sql} AS $new FROM $t GROUP BY $key, $second"))
        .en([
            &format!("group by $key and $second and compute the {en} of $column for each combination that occurs as $new"),
            &format!("build a table with one row per combination of $key and $second in the data, with the {en} of $column in $new"),
        ])
        .zh([&format!("按$key和$second分组，计算每种出现的组合的$column{zh}，列名为$new")])
}

fn monthly(of: Aggregate) -> Operation {
    let draw = move |draw: &mut Draw<'_>| {
        let day = draw.date()?;
        let column = draw.full_number()?;
        let new = draw.new_name(&[&format!("{}_*", of.name), of.name], &column)?;
        let month = draw.new_name(&["month", "*_month"], &day)?;
        (month != new).then(|| {
            Arguments::new([
                ("day", Argument::Column(day)),
                ("column", Argument::Column(column)),
                ("month", month),
                ("new", new),
            ])
        })
    };
    let meaning = move |a: &Arguments, t: LazyFrame| {
        let month = a.col("day").str().head(lit(7)).alias(a.name("month"));
        let value = of.of(a.name("column")).alias(a.name("new"));
        sorted(
            grouped_by(t, [month]).agg([value]),
            vec![a.name("month").into()],
        )
    };
    let (en, zh) = (of.en, of.zh);
    shape(format!("monthly_{}", of.name), draw, meaning)
        .pandas(format!(
            "months = pd.to_datetime($t[$day]).dt.strftime(\"%Y-%m\").rename($month)\n\
             $t = $t.groupby(months)[$column].{}.reset_index(name=$new)",
            of.pandas
        ))
        .python(format!(
            "groups = {{}}\n\
             for row in $t:\n    groups.setdefault(row[$day][:7], []).append(row[$column])\n\
             $t = [{{$month: month, $new: {}}} for month, values in sorted(groups.items())]",
            of.python
        ))
        .sql(format!(
            "SELECT SUBSTR($day, 1, 7) AS $month, {} AS $new FROM $t GROUP BY 1",
            of.sql.unwrap_or_default()
        ))
        .en([
            &format!("group the rows by the calendar month of $day and compute the {en} of $column for each month that occurs; name the columns $month (written like 2024-05) and $new"),
            &format!("summarize by month of $day (column $month, as YYYY-MM, only months with rows), with the {en} of $column as $new"),
        ])
        .zh([&format!("按$day的年月汇总（列$month，写成YYYY-MM，只列有数据的月份），计算$column的{zh}，列名为$new")])
}

/// The rows of a pivoted table: one for each value of `key`, one column for each value of `across`.
fn pivoted(a: &Arguments, t: LazyFrame, cell: impl Fn(Expr) -> Expr) -> LazyFrame {
    let cells = a.names("values").iter().map(|value| {
        let here = a.col("across").eq(lit(value.clone()));
        cell(here).alias(value.as_str())
    });
    let cells: Vec<Expr> = cells.collect();
    sorted(
        grouped_by(t, [a.col("key")]).agg(cells),
        vec![a.name("key").into()],
    )
}

/// A text column whose values can be names of columns, and these values.
fn across(draw: &mut Draw<'_>, key: &str) -> Option<(String, Argument)> {
    let across = draw.pick(Class::Text, |draw, name| {
        name != key && draw.nulls(name) == 0 && (2..=MAX_PIVOTED).contains(&draw.distinct(name))
    })?;
    let values = draw.values(&across);
    let names = draw.frame.data.get_column_names_owned();
    let clash = |value: &String| {
        names
            .iter()
            .any(|name| name.to_lowercase() == value.to_lowercase())
    };
    (values.len() == draw.distinct(&across) && !values.iter().any(clash))
        .then_some((across, Argument::Columns(values)))
}

fn pivot(of: Aggregate) -> Operation {
    let draw = move |draw: &mut Draw<'_>| {
        let (key, column) = draw.grouped(1)?;
        let (across, values) = across(draw, &key)?;
        // Each cell must have values: what an empty one holds differs between tools.
        let cells = draw
            .frame
            .data
            .group_by([key.as_str(), across.as_str()])
            .ok()?;
        let full = cells.get_groups().len() == draw.distinct(&key) * draw.distinct(&across);
        (full && draw.nulls(&column) == 0).then(|| {
            Arguments::new([
                ("key", Argument::Column(key)),
                ("across", Argument::Column(across)),
                ("values", values),
                ("column", Argument::Column(column)),
            ])
        })
    };
    let meaning = move |a: &Arguments, t: LazyFrame| {
        pivoted(a, t, |here| (of.expr)(a.col("column").filter(here)))
    };
    let name = of.name;
    let (en, zh) = (of.en, of.zh);
    shape(format!("pivot_{name}"), draw, meaning)
        .pandas(format!(
            "$t = $t.pivot_table(index=$key, columns=$across, values=$column, aggfunc=\"{name}\").reset_index().rename_axis(columns=None)"
        ))
        .pandas(format!(
            "$t = $t.groupby([$key, $across])[$column].{}.unstack().reset_index().rename_axis(columns=None)",
            of.pandas
        ))
        .en([
            &format!("make a pivot table with one row per $key, one column per value of $across, and the {en} of $column in the cells"),
            &format!("pivot the data: $key down the side, the values of $across as columns, the {en} of $column inside"),
        ])
        .zh([&format!("制作透视表：每个$key一行，$across的每个取值一列，单元格为$column的{zh}")])
}

fn cross_table() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let key = draw.category()?;
        let (across, values) = across(draw, &key)?;
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("across", Argument::Column(across)),
            ("values", values),
        ]))
    };
    shape("cross_table", draw, |a, t| pivoted(a, t, |here| here.sum()))
        .pandas("$t = pd.crosstab($t[$key], $t[$across]).reset_index().rename_axis(columns=None)")
        .pandas("$t = $t.groupby([$key, $across]).size().unstack(fill_value=0).reset_index().rename_axis(columns=None)")
        .en([
            "cross-tabulate $key and $across: one row per $key, one column per value of $across, the number of rows in the cells (0 where there are none)",
            "make a table of counts with $key as rows and the values of $across as columns, 0 where a combination does not occur",
        ])
        .zh(["制作$key与$across的列联表：每个$key一行，$across的每个取值一列，单元格为行数（没有则为0）"])
}

fn sorts() -> Vec<Operation> {
    let unique = |draw: &mut Draw<'_>| {
        let number = draw.pick(Class::Number, |draw, name| draw.unique(name));
        let column = match number {
            Some(column) => column,
            None => draw.pick(Class::Date, |draw, name| draw.unique(name))?,
        };
        Some(Arguments::new([("column", Argument::Column(column))]))
    };
    let sort = |name: &str, descending: bool| {
        Operation::new(name, Role::Shape, unique, move |a, t| {
            let options = SortMultipleOptions::default().with_order_descending(descending);
            t.sort([a.name("column")], options)
        })
        .order(Order::Sets)
    };
    vec![
        sort("sort_ascending", false)
            .pandas("$t = $t.sort_values($column)")
            .pandas("$t = $t.sort_values(by=$column, ascending=True).reset_index(drop=True)")
            .python("$t = sorted($t, key=lambda row: row[$column])")
            .en([
                "sort the rows by $column in ascending order",
                "order the table by $column, smallest first",
            ])
            .zh(["按$column升序排列"]),
        sort("sort_descending", true)
            .pandas("$t = $t.sort_values($column, ascending=False)")
            .pandas("$t = $t.sort_values(by=$column, ascending=False, ignore_index=True)")
            .python("$t = sorted($t, key=lambda row: row[$column], reverse=True)")
            .en([
                "sort the rows by $column in descending order",
                "order the table by $column, largest first",
            ])
            .zh(["按$column降序排列"]),
    ]
}

fn columns() -> Vec<Operation> {
    let all = |draw: &Draw<'_>| -> Vec<String> {
        let names = draw.frame.data.get_column_names_owned();
        let names = names.iter().map(|name| name.to_string());
        names.filter(|name| crate::draw::quotable(name)).collect()
    };
    vec![
        Operation::new(
            "select_columns",
            Role::Shape,
            move |draw| {
                let mut names = all(draw);
                let keep = draw.count(2, 4) as usize;
                if names.len() <= keep {
                    return None;
                }
                while names.len() > keep {
                    let last = names.len() as i64 - 1;
                    names.remove(draw.count(0, last) as usize);
                }
                Some(Arguments::new([("columns", Argument::Columns(names))]))
            },
            |a, t| {
                t.select(
                    a.names("columns")
                        .iter()
                        .map(|name| col(name.as_str()))
                        .collect::<Vec<_>>(),
                )
            },
        )
        .pandas("$t = $t[$columns]")
        .pandas("$t = $t.filter(items=$columns)")
        .python("$t = [{name: row[name] for name in $columns} for row in $t]")
        .sql("SELECT $columns FROM $t")
        .en([
            "keep only the columns $columns",
            "reduce the table to the columns $columns",
        ])
        .zh(["只保留$columns这几列"]),
        Operation::new(
            "rename_column",
            Role::Shape,
            move |draw| {
                let names = all(draw);
                let last = names.len().checked_sub(1)? as i64;
                let column = names[draw.count(0, last) as usize].clone();
                let new = draw.new_name(&["new_*", "renamed", "*_2"], &column)?;
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("new", new),
                ]))
            },
            |a, t| t.rename([a.name("column")], [a.name("new")], true),
        )
        .pandas("$t = $t.rename(columns={$column: $new})")
        .python("for row in $t:\n    row[$new] = row.pop($column)")
        .en([
            "rename the column $column to $new",
            "call the column $column $new from here on",
        ])
        .zh(["把列$column改名为$new"]),
    ]
}
