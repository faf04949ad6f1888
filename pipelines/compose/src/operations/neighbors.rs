//! Windows over the rows before a row, in the table or in the row's group, and gaps that are filled from them.

use polars::prelude::*;

use super::aggregate::within;
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::frame::Class;
use crate::operation::{Operation, Role};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = rolling();
    all.extend(running());
    all.extend(in_groups());
    all.extend(beside_group());
    all.extend(filled());
    all
}

type Rolled = fn(Expr, RollingOptionsFixedWindow) -> Expr;

/// A statistic of the row and the rows before it.
fn rolling() -> Vec<Operation> {
    let rolled = |name: &'static str, of: Rolled, patterns: &'static [&'static str]| {
        let draw = move |draw: &mut Draw<'_>| {
            let column = draw.full_number()?;
            let count = draw.count(2, 6);
            let new = draw.new_name(patterns, &column)?;
            (draw.frame.height() as i64 > 3 * count).then(|| {
                Arguments::new([
                    ("column", Argument::Column(column)),
                    ("count", Argument::Count(count)),
                    ("new", new),
                ])
            })
        };
        let value = move |a: &Arguments| {
            let window = a.count("count").max(1) as usize;
            let options = RollingOptionsFixedWindow {
                window_size: window,
                min_periods: window,
                ..RollingOptionsFixedWindow::default()
            };
            of(a.col("column").cast(DataType::Float64), options)
        };
        Operation::derive(format!("rolling_{name}"), draw, value)
            .needs_order()
            .pandas(format!("$t[$new] = $t[$column].rolling($count).{name}()"))
            .pandas(format!(
                "windows = $t[$column].rolling(window=$count, min_periods=$count)\n\
                 $t = $t.assign(**{{$new: windows.{name}()}})"
            ))
            .python(format!(
                "values = [row[$column] for row in $t]\n\
                 for i, row in enumerate($t):\n    \
                 row[$new] = None if i + 1 < $count else {name}(values[i + 1 - $count:i + 1])"
            ))
    };
    vec![
        rolled("sum", |c, options| c.rolling_sum(options), &["*_window", "recent_total"])
            .en([
                "add a column $new with the sum of $column over the row and the rows before it, $count in all (missing where there are fewer)",
                "compute a trailing rolling sum of $column over $count rows as $new; the rows before the window is full stay empty",
            ])
            .zh([
                "新增一列$new，为$column在包含当前行的最近$count行上的和（不足$count行为空）",
                "计算$column的滚动求和（窗口$count行，窗口未满时为空），存为$new",
            ]),
        rolled("max", |c, options| c.rolling_max(options), &["*_recent_max", "recent_high"])
            .en([
                "add a column $new with the largest $column among the row and the rows before it, $count in all (missing where there are fewer)",
                "compute a trailing rolling maximum of $column over $count rows as $new; the rows before the window is full stay empty",
            ])
            .zh([
                "新增一列$new，为$column在包含当前行的最近$count行中的最大值（不足$count行为空）",
                "计算$column的滚动最大值（窗口$count行，窗口未满时为空），存为$new",
            ]),
    ]
}

/// A column without gaps, and the name of a new one.
fn full(patterns: &'static [&'static str]) -> impl Fn(&mut Draw<'_>) -> Option<Arguments> {
    move |draw| {
        let column = draw.full_number()?;
        let new = draw.new_name(patterns, &column)?;
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("new", new),
        ]))
    }
}

/// A statistic of all rows so far.
fn running() -> Vec<Operation> {
    vec![
        Operation::derive("running_min", full(&["*_floor", "lowest_so_far"]), |a| {
            a.col("column").cum_min(false)
        })
        .needs_order()
        .pandas("$t[$new] = $t[$column].cummin()")
        .pandas("$t = $t.assign(**{$new: np.minimum.accumulate($t[$column].to_numpy())})")
        .python(
            "least = None\n\
             for row in $t:\n    \
             least = row[$column] if least is None else min(least, row[$column])\n    \
             row[$new] = least",
        )
        .en([
            "add a column $new with the smallest $column seen so far, from the first row down",
            "track the running minimum of $column, in the current order, in $new",
        ])
        .zh(["新增一列$new，为$column按当前行序的累计最小值"]),
        Operation::derive("running_mean", full(&["*_mean_so_far", "mean_so_far"]), |a| {
            let total = a.col("column").cum_sum(false).cast(DataType::Float64);
            total / a.col("column").cum_count(false)
        })
        .needs_order()
        .pandas("$t[$new] = $t[$column].expanding().mean()")
        .pandas("$t[$new] = $t[$column].cumsum() / np.arange(1, len($t) + 1)")
        .python(
            "total = 0\n\
             for i, row in enumerate($t):\n    \
             total += row[$column]\n    \
             row[$new] = total / (i + 1)",
        )
        .en([
            "add a column $new with the mean of $column over all rows from the first one to the row itself",
            "compute the expanding mean of $column, in the current order, as $new",
        ])
        .zh(["新增一列$new，为从第一行到当前行的$column平均值"]),
    ]
}

/// A category, a number without gaps, and the name of a new column. `fits` tests the category and the number.
fn grouped(
    patterns: &'static [&'static str],
    least: usize,
    fits: fn(&Draw<'_>, &str, &str) -> bool,
) -> impl Fn(&mut Draw<'_>) -> Option<Arguments> {
    move |draw| {
        let (key, column) = draw.grouped(least)?;
        let new = draw.new_name(patterns, &column)?;
        (draw.nulls(&column) == 0 && fits(draw, &key, &column)).then(|| {
            Arguments::new([
                ("key", Argument::Column(key)),
                ("column", Argument::Column(column)),
                ("new", new),
            ])
        })
    }
}

fn any(_: &Draw<'_>, _: &str, _: &str) -> bool {
    true
}

/// The rows of the same group before the row.
fn in_groups() -> Vec<Operation> {
    vec![
        Operation::derive("group_running_sum", grouped(&["*_so_far", "group_total"], 2, any), |a| {
            within(a.col("column").cum_sum(false), a.col("key"))
        })
        .needs_order()
        .pandas("$t[$new] = $t.groupby($key)[$column].cumsum()")
        .pandas("$t[$new] = $t.groupby($key)[$column].transform(lambda values: values.cumsum())")
        .python(
            "totals = {}\n\
             for row in $t:\n    \
             totals[row[$key]] = totals.get(row[$key], 0) + row[$column]\n    \
             row[$new] = totals[row[$key]]",
        )
        .en([
            "add a column $new with the running total of $column within each $key, in the current order",
            "accumulate $column row by row, separately for every $key, into $new",
        ])
        .zh(["新增一列$new，为$column在各$key组内按当前行序的累计和"]),
        Operation::derive("group_previous_value", grouped(&["previous_*", "*_lag"], 2, any), |a| {
            within(a.col("column").shift(lit(1)), a.col("key"))
        })
        .needs_order()
        .pandas("$t[$new] = $t.groupby($key)[$column].shift(1)")
        .pandas("$t[$new] = $t.groupby($key)[$column].transform(lambda values: values.shift())")
        .python(
            "previous = {}\n\
             for row in $t:\n    \
             row[$new] = previous.get(row[$key])\n    \
             previous[row[$key]] = row[$column]",
        )
        .en([
            "add a column $new with the $column of the previous row with the same $key (missing in the first row of each $key)",
            "lag $column by one row within each $key, in the current order, as $new; the first row of a $key has none",
        ])
        .zh(["新增一列$new，为同一$key中上一行的$column（每组第一行为空）"]),
        Operation::derive("group_change", grouped(&["*_step", "step"], 2, any), |a| {
            let before = within(a.col("column").shift(lit(1)), a.col("key"));
            a.col("column") - before
        })
        .needs_order()
        .pandas("$t[$new] = $t.groupby($key)[$column].diff()")
        .pandas("$t[$new] = $t[$column] - $t.groupby($key)[$column].shift(1)")
        .python(
            "previous = {}\n\
             for row in $t:\n    \
             row[$new] = row[$column] - previous[row[$key]] if row[$key] in previous else None\n    \
             previous[row[$key]] = row[$column]",
        )
        .en([
            "add a column $new with the change of $column from the previous row with the same $key (missing in the first row of each $key)",
            "difference $column within each $key, in the current order, as $new; the first row of a $key has none",
        ])
        .zh(["新增一列$new，为$column与同一$key中上一行之差（每组第一行为空）"]),
    ]
}

/// The row's value in relation to those of its group.
fn beside_group() -> Vec<Operation> {
    let positive = |draw: &Draw<'_>, _: &str, name: &str| {
        draw.numbers(name).first().is_some_and(|least| *least > 0.0)
    };
    let varied = |draw: &Draw<'_>, key: &str, name: &str| draw.fewest_in_group(key, name) >= 2;
    vec![
        Operation::derive("group_z_score", grouped(&["*_group_z", "group_z"], 3, varied), |a| {
            let mean = within(a.col("column").mean(), a.col("key"));
            (a.col("column") - mean) / within(a.col("column").std(1), a.col("key"))
        })
        .pandas(
            "groups = $t.groupby($key)[$column]\n\
             $t[$new] = ($t[$column] - groups.transform(\"mean\")) / groups.transform(\"std\")",
        )
        .pandas("$t[$new] = $t.groupby($key)[$column].transform(lambda values: (values - values.mean()) / values.std())")
        .python(
            "import statistics\n\
             groups = {}\n\
             for row in $t:\n    groups.setdefault(row[$key], []).append(row[$column])\n\
             for row in $t:\n    \
             values = groups[row[$key]]\n    \
             row[$new] = (row[$column] - statistics.fmean(values)) / statistics.stdev(values)",
        )
        .en([
            "add a column $new with the z-score of $column within the row's $key group (sample standard deviation, n - 1)",
            "standardize $column inside each $key as $new: subtract the group's mean and divide by its sample standard deviation (n - 1)",
        ])
        .zh(["新增一列$new，为$column在其$key组内的z分数（样本标准差，分母n-1）"]),
        Operation::derive("group_median_beside", grouped(&["*_group_median", "group_median"], 2, any), |a| {
            within(a.col("column").median(), a.col("key"))
        })
        .pandas("$t[$new] = $t.groupby($key)[$column].transform(\"median\")")
        .pandas("$t[$new] = $t[$key].map($t.groupby($key)[$column].median())")
        .python(
            "import statistics\n\
             groups = {}\n\
             for row in $t:\n    groups.setdefault(row[$key], []).append(row[$column])\n\
             for row in $t:\n    row[$new] = statistics.median(groups[row[$key]])",
        )
        .en([
            "add a column $new that repeats, in every row, the median $column of the row's $key group",
            "write the median $column of each $key next to its rows as $new",
        ])
        .zh(["新增一列$new，为该行所在$key组的$column中位数"]),
        Operation::derive(
            "group_percent_of_largest",
            grouped(&["*_of_best", "percent_of_best"], 2, positive),
            |a| lit(100.0) * a.col("column") / within(a.col("column").max(), a.col("key")),
        )
        .pandas("$t[$new] = 100 * $t[$column] / $t.groupby($key)[$column].transform(\"max\")")
        .pandas("$t[$new] = 100 * $t[$column] / $t[$key].map($t.groupby($key)[$column].max())")
        .python(
            "best = {}\n\
             for row in $t:\n    best[row[$key]] = max(best.get(row[$key], row[$column]), row[$column])\n\
             for row in $t:\n    row[$new] = 100 * row[$column] / best[row[$key]]",
        )
        .sql("SELECT *, 100.0 * $column / MAX($column) OVER (PARTITION BY $key) AS $new FROM $t")
        .en([
            "add a column $new with $column as a percentage of the largest $column of the row's $key group",
            "create $new: how many percent of the best $column within its $key the row reaches",
        ])
        .zh(["新增一列$new，为$column占其所在$key组最大值的百分比"]),
    ]
}

/// Gaps that are filled from other rows.
fn filled() -> Vec<Operation> {
    let forward = |draw: &mut Draw<'_>| {
        let column = draw.pick(Class::Number, |draw, name| {
            let begins = draw.frame.data.column(name).is_ok_and(|column| {
                column.is_null().get(0) == Some(false) && column.null_count() > 0
            });
            begins && draw.distinct(name) >= 5
        })?;
        Some(Arguments::new([("column", Argument::Column(column))]))
    };
    let by_group = |draw: &mut Draw<'_>| {
        let key = draw.category()?;
        let column = draw.pick(Class::Number, |draw, name| {
            let known = draw.smallest_group(&key, name) >= 1;
            known && draw.nulls(name) > 0 && draw.distinct(name) >= 5
        })?;
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("column", Argument::Column(column)),
        ]))
    };
    vec![
        Operation::new("fill_forward", Role::Derive, forward, |a, t| {
            let strategy = FillNullStrategy::Forward(None);
            t.with_column(a.col("column").fill_null_with_strategy(strategy))
        })
        .needs_order()
        .pandas("$t[$column] = $t[$column].ffill()")
        .pandas("$t = $t.assign(**{$column: $t[$column].ffill()})")
        .python(
            "known = None\n\
             for row in $t:\n    \
             known = row[$column] if row[$column] is not None else known\n    \
             row[$column] = known",
        )
        .en([
            "fill the gaps in $column with the last known value above them, in the current order",
            "carry the last known $column forward into the rows where it is missing",
        ])
        .zh(["用上方最近的已知值填补$column的缺失值（按当前行序）"]),
        Operation::new("fill_with_group_mean", Role::Derive, by_group, |a, t| {
            let mean = within(a.col("column").mean(), a.col("key"));
            t.with_column(a.col("column").fill_null(mean).alias(a.name("column")))
        })
        .pandas("$t[$column] = $t[$column].fillna($t.groupby($key)[$column].transform(\"mean\"))")
        .pandas("$t[$column] = $t[$column].fillna($t[$key].map($t.groupby($key)[$column].mean()))")
        .python(
            "import statistics\n\
             known = {}\n\
             for row in $t:\n    known.setdefault(row[$key], []).append(row[$column])\n\
             means = {name: statistics.fmean(v for v in values if v is not None) for name, values in known.items()}\n\
             for row in $t:\n    row[$column] = means[row[$key]] if row[$column] is None else row[$column]",
        )
        .en([
            "fill the gaps in $column with the mean of the known values of the same $key",
            "replace missing $column by the average $column of the row's $key group",
        ])
        .zh(["用同一$key组中已知值的平均值填补$column的缺失值"]),
    ]
}
