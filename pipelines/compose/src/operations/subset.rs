//! Filters by two conditions, by the spread of a column, by gaps, by position and by the calendar.

use polars::prelude::*;

use super::filter::filter;
use super::time::day;
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::operation::{Operation, Role};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = conditions();
    all.extend(rows());
    all.extend(calendar());
    all
}

/// Two conditions, and the distance from the mean.
fn conditions() -> Vec<Operation> {
    let two = |draw: &mut Draw<'_>| {
        let column = draw.full_number()?;
        let share = draw.share(0.3, 0.7);
        let value = Argument::Number(draw.threshold(&column, share)?);
        let key = draw.category()?;
        let name = Argument::Text(draw.value(&key)?);
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("value", value),
            ("key", Argument::Column(key)),
            ("name", name),
        ]))
    };
    let above = |a: &Arguments| a.col("column").gt(lit(a.number("value")));
    let named = |a: &Arguments| a.col("key").eq(lit(a.text("name").to_owned()));
    let column = |draw: &mut Draw<'_>| {
        let column = draw.number()?;
        Some(Arguments::new([("column", Argument::Column(column))]))
    };
    vec![
        filter("filter_either", two, move |a| above(a).or(named(a)))
            .pandas("$t = $t[($t[$column] > $value) | ($t[$key] == $name)]")
            .pandas("$t = $t.loc[$t[$column].gt($value) | $t[$key].eq($name)]")
            .python("$t = [row for row in $t if row[$column] > $value or row[$key] == $name]")
            .sql("SELECT * FROM $t WHERE $column > $value OR $key = $name")
            .en([
                "keep the rows whose $column is above $value or whose $key is $name (one of the two is enough)",
                "use only records with a $column greater than $value, or with $name in $key, or both",
            ])
            .zh([
                "保留$column大于$value或$key为$name的行（满足其一即可）",
                "只看$column超过$value，或者$key等于$name的记录",
            ]),
        filter("filter_both", two, move |a| above(a).and(named(a)))
            .pandas("$t = $t[($t[$column] > $value) & ($t[$key] == $name)]")
            .pandas("$t = $t.loc[$t[$column].gt($value) & $t[$key].eq($name)]")
            .python("$t = [row for row in $t if row[$column] > $value and row[$key] == $name]")
            .sql("SELECT * FROM $t WHERE $column > $value AND $key = $name")
            .en([
                "keep only the rows whose $column is above $value and whose $key is $name",
                "use only records that have both a $column greater than $value and $name in $key",
            ])
            .zh([
                "只保留$column大于$value并且$key为$name的行",
                "只看$key等于$name且$column超过$value的记录",
            ]),
        filter("filter_within_two_deviations", column, |a| {
            let distance = a.col("column") - a.col("column").mean();
            distance.abs().lt_eq(lit(2.0) * a.col("column").std(1))
        })
        .compares_computed()
        .pandas("$t = $t[($t[$column] - $t[$column].mean()).abs() <= 2 * $t[$column].std()]")
        .pandas(
            "mean, spread = $t[$column].mean(), $t[$column].std(ddof=1)\n\
             $t = $t[$t[$column].between(mean - 2 * spread, mean + 2 * spread)]",
        )
        .python(
            "import statistics\n\
             known = [row[$column] for row in $t if row[$column] is not None]\n\
             mean, spread = statistics.fmean(known), statistics.stdev(known)\n\
             $t = [row for row in $t if row[$column] is not None and abs(row[$column] - mean) <= 2 * spread]",
        )
        .en([
            "keep only the rows whose $column is at most two sample standard deviations (n - 1) away from its mean at that point",
            "remove the rows whose $column lies more than 2 sample standard deviations (n - 1) from its mean, both computed once before any is removed (missing values go too)",
        ])
        .zh([
            "只保留$column与其当前平均值相差不超过两个样本标准差（分母n-1）的行",
            "去掉$column偏离平均值超过2倍样本标准差（分母n-1，均在去除之前计算一次）的行，缺失值也去掉",
        ]),
    ]
}

/// Rows without gaps, and rows by their position from either end.
fn rows() -> Vec<Operation> {
    let incomplete = |draw: &mut Draw<'_>| {
        let columns = draw.frame.data.columns().iter();
        let gaps = columns.filter(|column| column.null_count() > 0).count();
        (gaps > 0).then(Arguments::default)
    };
    let some = |draw: &mut Draw<'_>| {
        let rows = draw.frame.height() as i64;
        let count = draw.count(rows / 4, rows * 3 / 4) / 5 * 5;
        (count >= 5).then(|| Arguments::new([("count", Argument::Count(count))]))
    };
    vec![
        Operation::new("drop_incomplete_rows", Role::Filter, incomplete, |_, t| {
            t.drop_nulls(None)
        })
        .counted_as("missing values")
        .pandas("$t = $t.dropna()")
        .pandas("$t = $t[$t.notna().all(axis=1)]")
        .python("$t = [row for row in $t if None not in row.values()]")
        .en([
            "drop every row that lacks a value in any column",
            "keep only the complete rows, without a missing value anywhere",
        ])
        .zh(["去掉任何一列有缺失值的行", "只保留所有列都有值的完整行"]),
        Operation::new("filter_tail", Role::Filter, some, |a, t| {
            t.tail(a.count("count") as IdxSize)
        })
        .needs_order()
        .pandas("$t = $t.tail($count)")
        .pandas("$t = $t.iloc[-$count:]")
        .python("$t = $t[-$count:]")
        .en([
            "keep only the last $count rows",
            "take the last $count of these rows",
        ])
        .zh(["只取最后$count行", "保留末尾的$count行"]),
        Operation::new("filter_skip_head", Role::Filter, some, |a, t| {
            t.slice(a.count("count"), IdxSize::MAX)
        })
        .needs_order()
        .pandas("$t = $t.iloc[$count:]")
        .pandas("$t = $t.drop(index=$t.index[:$count])")
        .python("$t = $t[$count:]")
        .en([
            "skip the first $count rows and go on with the others",
            "leave out the first $count of these rows",
        ])
        .zh(["跳过前$count行，只用其余的行", "去掉最前面的$count行"]),
    ]
}

/// Days between two others, and weekends.
fn calendar() -> Vec<Operation> {
    let between = |draw: &mut Draw<'_>| {
        let column = draw.date()?;
        let mut values: Vec<String> = draw.texts(&column).into_iter().flatten().collect();
        values.sort();
        let mut at = |from: f64, to: f64| {
            let share = draw.share(from, to);
            values.get((values.len() as f64 * share) as usize).cloned()
        };
        let (first, last) = (at(0.1, 0.4)?, at(0.6, 0.9)?);
        (first < last).then(|| {
            Arguments::new([
                ("column", Argument::Column(column)),
                ("first", Argument::Text(first)),
                ("last", Argument::Text(last)),
            ])
        })
    };
    let date = |draw: &mut Draw<'_>| {
        let column = draw.date()?;
        Some(Arguments::new([("column", Argument::Column(column))]))
    };
    // Days in ISO 8601 have the order of their texts.
    vec![
        filter("filter_between_days", between, |a| {
            let text = |key: &str| lit(a.text(key).to_owned());
            let not_before = a.col("column").gt_eq(text("first"));
            not_before.and(a.col("column").lt_eq(text("last")))
        })
        .pandas("$t = $t[pd.to_datetime($t[$column]).between($first, $last)]")
        .pandas(
            "days = pd.to_datetime($t[$column])\n\
             $t = $t[(days >= pd.Timestamp($first)) & (days <= pd.Timestamp($last))]",
        )
        .python("$t = [row for row in $t if $first <= row[$column] <= $last]")
        .sql("SELECT * FROM $t WHERE $column BETWEEN $first AND $last")
        .en([
            "keep only the rows with a $column from $first to $last (both days included)",
            "use only records dated between $first and $last inclusive, by $column",
        ])
        .zh([
            "只保留$column在$first到$last之间（含首尾两天）的行",
            "筛选出$column从$first到$last（含）的记录",
        ]),
        filter("filter_weekend", date, |a| {
            day(a.col("column")).dt().weekday().gt_eq(lit(6_i8))
        })
        .pandas("$t = $t[pd.to_datetime($t[$column]).dt.dayofweek >= 5]")
        .pandas("$t = $t[pd.to_datetime($t[$column]).dt.day_name().isin([\"Saturday\", \"Sunday\"])]")
        .python("from datetime import date\n$t = [row for row in $t if date.fromisoformat(row[$column]).weekday() >= 5]")
        .sql("SELECT * FROM $t WHERE STRFTIME('%w', $column) IN ('0', '6')")
        .en([
            "keep only the rows whose $column is a Saturday or a Sunday",
            "use only records dated on a weekend (Saturday or Sunday), by $column",
        ])
        .zh([
            "只保留$column为周六或周日的行",
            "筛选出$column是周末（周六、周日）的记录",
        ]),
    ]
}
