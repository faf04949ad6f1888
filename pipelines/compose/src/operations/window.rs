//! Operations that look at neighboring rows or at the row's group.

use polars::prelude::*;

use super::aggregate::within;
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::operation::Operation;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = groups();
    all.extend(neighbors());
    all
}

/// The row's value beside those of its group.
fn groups() -> Vec<Operation> {
    let grouped = |patterns: &'static [&'static str], fits: fn(&Draw<'_>, &str) -> bool| {
        move |draw: &mut Draw<'_>| {
            let (key, column) = draw.grouped(2)?;
            let new = draw.new_name(patterns, &column)?;
            fits(draw, &column).then(|| {
                Arguments::new([
                    ("key", Argument::Column(key)),
                    ("column", Argument::Column(column)),
                    ("new", new),
                ])
            })
        }
    };
    let any = |_: &Draw<'_>, _: &str| true;
    let positive =
        |draw: &Draw<'_>, name: &str| draw.numbers(name).first().is_some_and(|x| *x > 0.0);
    vec![
        Operation::derive("group_share", grouped(&["*_share", "share"], positive), |a| {
            lit(100.0) * a.col("column") / within(a.col("column").sum(), a.col("key"))
        })
        .pandas("$t[$new] = 100 * $t[$column] / $t.groupby($key)[$column].transform(\"sum\")")
        .python(
            "totals = {}\n\
             for row in $t:\n    totals[row[$key]] = totals.get(row[$key], 0) + (row[$column] or 0)\n\
             for row in $t:\n    row[$new] = None if row[$column] is None else 100 * row[$column] / totals[row[$key]]",
        )
        .sql("SELECT *, 100.0 * $column / SUM($column) OVER (PARTITION BY $key) AS $new FROM $t")
        .en([
            "add a column $new with the share of each $column in the total of its $key group, in percent",
            "create $new: the row's $column as a percentage of the sum of $column within its $key",
        ])
        .zh(["新增一列$new，为$column占其所在$key组总和的百分比"]),
        Operation::derive("group_mean_beside", grouped(&["*_group_mean", "group_mean"], any), |a| {
            within(a.col("column").mean(), a.col("key"))
        })
        .pandas("$t[$new] = $t.groupby($key)[$column].transform(\"mean\")")
        .pandas("$t[$new] = $t[$key].map($t.groupby($key)[$column].mean())")
        .sql("SELECT *, AVG($column) OVER (PARTITION BY $key) AS $new FROM $t")
        .en([
            "add a column $new that repeats, in every row, the mean $column of the row's $key group",
            "write the average $column of each $key next to its rows as $new",
        ])
        .zh(["新增一列$new，为该行所在$key组的$column平均值"]),
        Operation::derive("group_deviation", grouped(&["*_deviation", "deviation"], any), |a| {
            a.col("column") - within(a.col("column").mean(), a.col("key"))
        })
        .pandas("$t[$new] = $t[$column] - $t.groupby($key)[$column].transform(\"mean\")")
        .sql("SELECT *, $column - AVG($column) OVER (PARTITION BY $key) AS $new FROM $t")
        .en([
            "add a column $new with $column minus the mean $column of the row's $key group",
            "center $column within each $key (subtract the group's mean) and store it as $new",
        ])
        .zh(["新增一列$new，为$column减去其所在$key组的平均值"]),
        Operation::derive("group_rank", grouped(&["*_place", "place"], any), |a| {
            let options = RankOptions { method: RankMethod::Min, descending: true };
            within(a.col("column").rank(options, None), a.col("key"))
        })
        .pandas("$t[$new] = $t.groupby($key)[$column].rank(ascending=False, method=\"min\")")
        .pandas("$t[$new] = $t.groupby($key)[$column].transform(lambda values: values.rank(ascending=False, method=\"min\"))")
        .en([
            "add a column $new with the rank of $column within its $key group, 1 for the largest, equal values sharing the best rank",
            "rank $column in descending order inside every $key (ties get the smallest rank) as $new",
        ])
        .zh(["新增一列$new，为$column在其$key组内的降序名次（最大为1，并列取最小名次）"]),
        Operation::derive(
            "group_size_beside",
            |draw| {
                let key = draw.category()?;
                let new = draw.new_name(&["*_count", "group_size"], &key)?;
                Some(Arguments::new([("key", Argument::Column(key)), ("new", new)]))
            },
            |a| within(len(), a.col("key")).cast(DataType::Int64),
        )
        .pandas("$t[$new] = $t.groupby($key)[$key].transform(\"size\")")
        .pandas("$t[$new] = $t[$key].map($t[$key].value_counts())")
        .python(
            "from collections import Counter\n\
             sizes = Counter(row[$key] for row in $t)\n\
             for row in $t:\n    row[$new] = sizes[row[$key]]",
        )
        .sql("SELECT *, COUNT(*) OVER (PARTITION BY $key) AS $new FROM $t")
        .en([
            "add a column $new with the number of rows that share the row's $key",
            "write the size of each $key group next to its rows as $new",
        ])
        .zh(["新增一列$new，为与该行$key相同的行数"]),
    ]
}

/// Rows before the row, in the order of the table.
fn neighbors() -> Vec<Operation> {
    let full = |patterns: &'static [&'static str]| {
        move |draw: &mut Draw<'_>| {
            let column = draw.full_number()?;
            let new = draw.new_name(patterns, &column)?;
            Some(Arguments::new([
                ("column", Argument::Column(column)),
                ("new", new),
            ]))
        }
    };
    vec![
        Operation::derive("running_sum", full(&["*_running", "running_total"]), |a| a.col("column").cum_sum(false))
            .needs_order()
            .pandas("$t[$new] = $t[$column].cumsum()")
            .python("total = 0\nfor row in $t:\n    total += row[$column]\n    row[$new] = total")
            .en([
                "add a column $new with the running total of $column, from the first row down",
                "accumulate $column row by row, in the current order, into $new",
            ])
            .zh(["新增一列$new，为$column按当前行序的累计和"]),
        Operation::derive("running_max", full(&["*_peak", "peak"]), |a| a.col("column").cum_max(false))
            .needs_order()
            .pandas("$t[$new] = $t[$column].cummax()")
            .python("peak = None\nfor row in $t:\n    peak = row[$column] if peak is None else max(peak, row[$column])\n    row[$new] = peak")
            .en([
                "add a column $new with the largest $column seen so far, from the first row down",
                "track the running maximum of $column, in the current order, in $new",
            ])
            .zh(["新增一列$new，为$column按当前行序的累计最大值"]),
        Operation::derive("change", full(&["*_change", "change"]), |a| {
            a.col("column") - a.col("column").shift(lit(1))
        })
        .needs_order()
        .pandas("$t[$new] = $t[$column].diff()")
        .pandas("$t[$new] = $t[$column] - $t[$column].shift(1)")
        .python("before = None\nfor row in $t:\n    row[$new] = None if before is None else row[$column] - before\n    before = row[$column]")
        .en([
            "add a column $new with the change of $column from the previous row (missing in the first row)",
            "compute the row-to-row difference of $column, in the current order, as $new; the first row has none",
        ])
        .zh(["新增一列$new，为$column与上一行之差（第一行为空）"]),
        Operation::derive(
            "percent_change",
            |draw| {
                let column = draw.full_number()?;
                let new = draw.new_name(&["*_growth", "growth"], &column)?;
                let positive = draw.numbers(&column).first().is_some_and(|least| *least > 1e-6);
                positive.then(|| Arguments::new([("column", Argument::Column(column)), ("new", new)]))
            },
            |a| {
                let before = a.col("column").shift(lit(1));
                lit(100.0) * (a.col("column") - before.clone()) / before
            },
        )
        .needs_order()
        .pandas("$t[$new] = 100 * $t[$column].pct_change()")
        .pandas("$t[$new] = 100 * ($t[$column] / $t[$column].shift(1) - 1)")
        .en([
            "add a column $new with the percentage change of $column from the previous row (missing in the first row)",
            "compute the growth of $column over the row before, in percent, as $new; the first row has none",
        ])
        .zh(["新增一列$new，为$column相对上一行的百分比变化（第一行为空）"]),
        Operation::derive(
            "rolling_mean",
            |draw| {
                let column = draw.full_number()?;
                let count = draw.count(2, 7);
                let new = draw.new_name(&["*_rolling", "smoothed"], &column)?;
                (draw.frame.height() as i64 > 3 * count).then(|| {
                    Arguments::new([
                        ("column", Argument::Column(column)),
                        ("count", Argument::Count(count)),
                        ("new", new),
                    ])
                })
            },
            |a| {
                let window = a.count("count").max(1) as usize;
                a.col("column").cast(DataType::Float64).rolling_mean(RollingOptionsFixedWindow {
                    window_size: window,
                    min_periods: window,
                    ..RollingOptionsFixedWindow::default()
                })
            },
        )
        .needs_order()
        .pandas("$t[$new] = $t[$column].rolling($count).mean()")
        .pandas("$t = $t.assign(**{$new: $t[$column].rolling(window=$count, min_periods=$count).mean()})")
        .python(
            "values = [row[$column] for row in $t]\n\
             for i, row in enumerate($t):\n    \
             row[$new] = None if i + 1 < $count else sum(values[i + 1 - $count:i + 1]) / $count",
        )
        .en([
            "add a column $new with the rolling mean of $column over the row and the rows before it, $count in all (missing where there are fewer)",
            "smooth $column with a trailing moving average over $count rows as $new; the rows before the window is full stay empty",
        ])
        .zh(["新增一列$new，为$column在包含当前行的最近$count行上的移动平均（不足$count行为空）"]),
        Operation::derive(
            "previous_value",
            |draw| {
                let column = draw.full_number()?;
                let count = draw.count(2, 4);
                let new = draw.new_name(&["*_before", "earlier"], &column)?;
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("count", Argument::Count(count)),
                    ("new", new),
                ]))
            },
            |a| a.col("column").shift(lit(a.count("count"))),
        )
        .needs_order()
        .pandas("$t[$new] = $t[$column].shift($count)")
        .python("values = [row[$column] for row in $t]\nfor at, row in enumerate($t):\n    row[$new] = values[at - $count] if at >= $count else None")
        .pandas("$t = $t.assign(**{$new: $t[$column].shift(periods=$count)})")
        .en([
            "add a column $new with the $column of the row that stands $count places before (missing where there is none)",
            "shift $column down by $count in the current order and store it as $new",
        ])
        .zh(["新增一列$new，为往前第$count行的$column（没有则为空）"]),
        Operation::derive(
            "number_in_group",
            |draw| {
                let key = draw.category()?;
                let new = draw.new_name(&["*_number", "number"], &key)?;
                Some(Arguments::new([("key", Argument::Column(key)), ("new", new)]))
            },
            |a| within(a.col("key").is_not_null().cum_sum(false), a.col("key")),
        )
        .needs_order()
        .pandas("$t[$new] = $t.groupby($key).cumcount() + 1")
        .python(
            "seen = {}\nfor row in $t:\n    seen[row[$key]] = seen.get(row[$key], 0) + 1\n    row[$new] = seen[row[$key]]",
        )
        .en([
            "add a column $new that numbers the rows of each $key from 1 in the current order",
            "count up within every $key, starting at 1, in a column $new",
        ])
        .zh(["新增一列$new，按当前行序给每个$key的行从1开始编号"]),
    ]
}
