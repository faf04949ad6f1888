//! Operations that keep some rows.

use polars::prelude::*;

use super::aggregate::within;
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::frame::Class;
use crate::operation::{Operation, Order, Role};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = comparisons();
    all.extend(statistics());
    all.extend(categories());
    all.extend(presence());
    all.extend(positions());
    all
}

/// An operation that keeps the rows for which an expression is true.
pub(super) fn filter(
    name: &str,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    holds: impl Fn(&Arguments) -> Expr + Send + Sync + 'static,
) -> Operation {
    Operation::new(name, Role::Filter, draw, move |a, t| t.filter(holds(a)))
}

/// A numeric column and a threshold inside its range.
fn column_and_value(draw: &mut Draw<'_>) -> Option<Arguments> {
    let column = draw.number()?;
    let share = draw.share(0.2, 0.8);
    let value = Argument::Number(draw.threshold(&column, share)?);
    Some(Arguments::new([
        ("column", Argument::Column(column)),
        ("value", value),
    ]))
}

/// Comparisons with a number, and of two columns.
fn comparisons() -> Vec<Operation> {
    type Compare = fn(Expr, f64) -> Expr;
    let compare = |name, sign: &str, compare: Compare, en: [&str; 3], zh: [&str; 2]| {
        filter(name, column_and_value, move |a| {
            compare(a.col("column"), a.number("value"))
        })
        .pandas(format!("$t = $t[$t[$column] {sign} $value]"))
        .pandas(format!("$t = $t.loc[$t[$column].{}($value)]", method(sign)))
        .python(format!(
            "$t = [row for row in $t if row[$column] is not None and row[$column] {sign} $value]"
        ))
        .sql(format!("SELECT * FROM $t WHERE $column {sign} $value"))
        .en(en)
        .zh(zh)
    };
    let mut all = vec![
        compare(
            "filter_above",
            ">",
            |c, x| c.gt(lit(x)),
            [
                "keep only the rows whose $column is above $value",
                "restrict the table to rows with $column greater than $value",
                "use only records where $column exceeds $value",
            ],
            [
                "只保留$column大于$value的行",
                "筛选出$column超过$value的记录",
            ],
        ),
        compare(
            "filter_at_least",
            ">=",
            |c, x| c.gt_eq(lit(x)),
            [
                "keep only the rows whose $column is at least $value",
                "restrict the table to rows with $column of $value or more",
                "use only records where $column is not less than $value",
            ],
            [
                "只保留$column不小于$value的行",
                "筛选出$column至少为$value的记录",
            ],
        ),
        compare(
            "filter_below",
            "<",
            |c, x| c.lt(lit(x)),
            [
                "keep only the rows whose $column is below $value",
                "restrict the table to rows with $column less than $value",
                "use only records where $column is under $value",
            ],
            [
                "只保留$column小于$value的行",
                "筛选出$column低于$value的记录",
            ],
        ),
        compare(
            "filter_at_most",
            "<=",
            |c, x| c.lt_eq(lit(x)),
            [
                "keep only the rows whose $column is at most $value",
                "restrict the table to rows with $column of $value or less",
                "use only records where $column does not exceed $value",
            ],
            [
                "只保留$column不大于$value的行",
                "筛选出$column至多为$value的记录",
            ],
        ),
    ];
    all.push(
        filter(
            "filter_between",
            |draw| {
                let column = draw.number()?;
                let (low, high) = (draw.share(0.1, 0.4), draw.share(0.6, 0.9));
                let (low, high) = (draw.threshold(&column, low)?, draw.threshold(&column, high)?);
                (low < high).then(|| {
                    Arguments::new([
                        ("column", Argument::Column(column)),
                        ("low", Argument::Number(low)),
                        ("high", Argument::Number(high)),
                    ])
                })
            },
            |a| {
                let (low, high) = (lit(a.number("low")), lit(a.number("high")));
                a.col("column").is_between(low, high, ClosedInterval::Both)
            },
        )
        .pandas("$t = $t[$t[$column].between($low, $high)]")
        .pandas("$t = $t[($t[$column] >= $low) & ($t[$column] <= $high)]")
        .python("$t = [row for row in $t if row[$column] is not None and $low <= row[$column] <= $high]")
        .sql("SELECT * FROM $t WHERE $column BETWEEN $low AND $high")
        .en([
            "keep only the rows whose $column lies between $low and $high (both included)",
            "restrict the table to $column from $low to $high inclusive",
        ])
        .zh(["只保留$column在$low到$high之间（含两端）的行"]),
    );
    all.push(
        filter(
            "filter_compare_columns",
            |draw| {
                let column = draw.number()?;
                let other = draw.other_number(&column)?;
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("other", Argument::Column(other)),
                ]))
            },
            |a| a.col("column").gt(a.col("other")),
        )
        .pandas("$t = $t[$t[$column] > $t[$other]]")
        .pandas("$t = $t.loc[$t[$column].gt($t[$other])]")
        .python("$t = [row for row in $t if None not in (row[$column], row[$other]) and row[$column] > row[$other]]")
        .sql("SELECT * FROM $t WHERE $column > $other")
        .en([
            "keep only the rows in which $column is greater than $other",
            "use only records whose $column exceeds their $other",
        ])
        .zh(["只保留$column大于$other的行"]),
    );
    all
}

/// The method of a pandas column that compares like this.
fn method(sign: &str) -> &'static str {
    match sign {
        ">" => "gt",
        ">=" => "ge",
        "<" => "lt",
        _ => "le",
    }
}

/// Comparisons with a statistic of the column.
fn statistics() -> Vec<Operation> {
    let column = |draw: &mut Draw<'_>| {
        Some(Arguments::new([(
            "column",
            Argument::Column(draw.number()?),
        )]))
    };
    vec![
        filter("filter_above_mean", column, |a| a.col("column").gt(a.col("column").mean()))
            .compares_computed()
            .pandas("$t = $t[$t[$column] > $t[$column].mean()]")
            .python(
                "values = [row[$column] for row in $t if row[$column] is not None]\n\
                 mean = sum(values) / len(values)\n\
                 $t = [row for row in $t if row[$column] is not None and row[$column] > mean]",
            )
            .sql("SELECT * FROM $t WHERE $column > (SELECT AVG($column) FROM $t)")
            .en([
                "keep only the rows whose $column is above the mean of $column at that point",
                "restrict the remaining rows to those with a $column above its average",
            ])
            .zh(["只保留$column高于当前数据中$column平均值的行"]),
        filter("filter_below_median", column, |a| a.col("column").lt(a.col("column").median()))
            .pandas("$t = $t[$t[$column] < $t[$column].median()]")
            .python(
                "import statistics\n\
                 middle = statistics.median(row[$column] for row in $t if row[$column] is not None)\n\
                 $t = [row for row in $t if row[$column] is not None and row[$column] < middle]",
            )
            .en([
                "keep only the rows whose $column is below the median of $column at that point",
                "restrict the remaining rows to those with a $column under its median",
            ])
            .zh(["只保留$column低于当前数据中$column中位数的行"]),
        filter(
            "filter_above_quantile",
            |draw| {
                let column = draw.number()?;
                let percent = draw.count(12, 18) * 5;
                // A percentile that is a value of the column may be rounded to one beside it.
                let between = (draw.numbers(&column).len() as i64 - 1) * percent % 100 != 0;
                between.then(|| Arguments::new([
                    ("column", Argument::Column(column)),
                    ("percent", Argument::Count(percent)),
                ]))
            },
            |a| {
                let share = lit(a.number("percent") / 100.0);
                a.col("column").gt(a.col("column").quantile(share, QuantileMethod::Linear))
            },
        )
        .pandas("$t = $t[$t[$column] > $t[$column].quantile($percent / 100)]")
        .pandas("cutoff = $t[$column].quantile($percent / 100)\n$t = $t[$t[$column] > cutoff]")
        .en([
            "keep only the rows whose $column is above the ${percent}th percentile of $column (linear interpolation)",
        ])
        .zh(["只保留$column高于其第$percent百分位数（线性插值）的行"]),
        filter("filter_without_outliers", column, |a| {
            let quantile = |share: f64| a.col("column").quantile(lit(share), QuantileMethod::Linear);
            let reach = (quantile(0.75) - quantile(0.25)) * lit(1.5);
            let (low, high) = (quantile(0.25) - reach.clone(), quantile(0.75) + reach);
            a.col("column").is_between(low, high, ClosedInterval::Both)
        })
        .compares_computed()
        .pandas(
            "q1, q3 = $t[$column].quantile(0.25), $t[$column].quantile(0.75)\n\
             reach = 1.5 * (q3 - q1)\n\
             $t = $t[$t[$column].between(q1 - reach, q3 + reach)]",
        )
        .pandas("q1, q3 = np.nanpercentile($t[$column], [25, 75])\nreach = 1.5 * (q3 - q1)\n$t = $t[($t[$column] >= q1 - reach) & ($t[$column] <= q3 + reach)]")
        .en([
            "drop the outliers of $column: keep the rows from Q1 - 1.5 IQR to Q3 + 1.5 IQR, with quartiles by linear interpolation",
            "remove rows whose $column is an outlier by the 1.5 IQR rule (quartiles by linear interpolation; missing values go too)",
        ])
        .zh(["去掉$column的离群值：只保留在Q1-1.5×IQR到Q3+1.5×IQR之间（含两端）的行，四分位数用线性插值"]),
        filter(
            "filter_above_group_mean",
            |draw| {
                let (key, column) = draw.grouped(2)?;
                Some(Arguments::new([
                    ("key", Argument::Column(key)),
                    ("column", Argument::Column(column)),
                ]))
            },
            |a| a.col("column").gt(within(a.col("column").mean(), a.col("key"))),
        )
        .compares_computed()
        .pandas("$t = $t[$t[$column] > $t.groupby($key)[$column].transform(\"mean\")]")
        .sql("SELECT * FROM $t AS a WHERE $column > (SELECT AVG($column) FROM $t AS b WHERE b.$key = a.$key)")
        .en([
            "keep only the rows whose $column is above the mean $column of their $key group",
            "use only records that beat the average $column within the same $key",
        ])
        .zh(["只保留$column高于其所在$key组平均值的行"]),
    ]
}

/// Filters by the value of a text column.
fn categories() -> Vec<Operation> {
    let one = |draw: &mut Draw<'_>| {
        let column = draw.category()?;
        let value = Argument::Text(draw.value(&column)?);
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("value", value),
        ]))
    };
    let several = |draw: &mut Draw<'_>| {
        let column = draw.category()?;
        let values = draw.some_values(&column)?;
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("values", values),
        ]))
    };
    let any_of = |a: &Arguments| {
        let mut texts = a.texts("values").iter();
        let first = a
            .col("column")
            .eq(lit(texts.next().cloned().unwrap_or_default()));
        texts.fold(first, |holds, text| {
            holds.or(a.col("column").eq(lit(text.clone())))
        })
    };
    vec![
        filter("filter_equal", one, |a| a.col("column").eq(lit(a.text("value").to_owned())))
            .pandas("$t = $t[$t[$column] == $value]")
            .pandas("$t = $t.loc[$t[$column].eq($value)]")
            .python("$t = [row for row in $t if row[$column] == $value]")
            .sql("SELECT * FROM $t WHERE $column = $value")
            .en([
                "keep only the rows whose $column is $value",
                "look only at records where $column equals $value",
            ])
            .zh(["只保留$column等于$value的行", "只看$column恰好是$value的记录"]),
        filter("filter_not_equal", one, |a| a.col("column").neq(lit(a.text("value").to_owned())))
            .pandas("$t = $t[$t[$column] != $value]")
            .python("$t = [row for row in $t if row[$column] != $value]")
            .sql("SELECT * FROM $t WHERE $column <> $value")
            .en([
                "leave out the rows whose $column is $value",
                "drop all records where $column equals $value",
            ])
            .zh(["去掉$column等于$value的行"]),
        filter("filter_in", several, any_of)
            .pandas("$t = $t[$t[$column].isin($values)]")
            .python("$t = [row for row in $t if row[$column] in $values]")
            .sql("SELECT * FROM $t WHERE $column IN ($values)")
            .en([
                "keep only the rows whose $column is one of $values",
                "look only at records where $column equals one of $values",
            ])
            .zh(["只保留$column等于$values之一的行"]),
        filter("filter_not_in", several, move |a| any_of(a).not())
            .pandas("$t = $t[~$t[$column].isin($values)]")
            .python("$t = [row for row in $t if row[$column] not in $values]")
            .sql("SELECT * FROM $t WHERE $column NOT IN ($values)")
            .en([
                "leave out the rows whose $column is one of $values",
                "drop records where $column equals one of $values",
            ])
            .zh(["去掉$column等于$values之一的行"]),
        filter(
            "filter_group_size",
            |draw| {
                let key = draw.category()?;
                let count = draw.count(3, 30);
                Some(Arguments::new([("key", Argument::Column(key)), ("count", Argument::Count(count))]))
            },
            |a| within(len(), a.col("key")).gt_eq(lit(a.count("count"))),
        )
        .pandas("$t = $t[$t.groupby($key)[$key].transform(\"size\") >= $count]")
        .pandas("$t = $t.groupby($key).filter(lambda group: len(group) >= $count)")
        .python(
            "from collections import Counter\n\
             sizes = Counter(row[$key] for row in $t)\n\
             $t = [row for row in $t if sizes[row[$key]] >= $count]",
        )
        .sql("SELECT * FROM $t WHERE $key IN (SELECT $key FROM $t GROUP BY $key HAVING COUNT(*) >= $count)")
        .en([
            "drop every $key that has fewer than $count rows",
            "keep only the rows of those $key groups that have at least $count rows",
        ])
        .zh(["只保留行数不少于$count的$key组"]),
    ]
}

/// Filters by missing values, booleans and repeated rows.
fn presence() -> Vec<Operation> {
    let with_gaps = |draw: &mut Draw<'_>| {
        let some = |draw: &Draw<'_>, name: &str| draw.nulls(name) > 0;
        let number = draw.pick(Class::Number, some);
        let column = number.or_else(|| draw.pick(Class::Text, some))?;
        Some(Arguments::new([("column", Argument::Column(column))]))
    };
    vec![
        filter("filter_present", with_gaps, |a| {
            a.col("column").is_not_null()
        })
        .pandas("$t = $t.dropna(subset=[$column])")
        .pandas("$t = $t[$t[$column].notna()]")
        .python("$t = [row for row in $t if row[$column] is not None]")
        .sql("SELECT * FROM $t WHERE $column IS NOT NULL")
        .en([
            "drop the rows without a value in $column",
            "keep only the rows in which $column is not missing",
        ])
        .zh(["去掉$column缺失的行"]),
        filter("filter_missing", with_gaps, |a| a.col("column").is_null())
            .pandas("$t = $t[$t[$column].isna()]")
            .python("$t = [row for row in $t if row[$column] is None]")
            .sql("SELECT * FROM $t WHERE $column IS NULL")
            .en([
                "keep only the rows in which $column is missing",
                "look only at records without a value in $column",
            ])
            .zh(["只保留$column缺失的行"]),
        filter(
            "filter_true",
            |draw| {
                let column = draw.pick(Class::Boolean, |draw, name| {
                    draw.nulls(name) == 0 && draw.distinct(name) == 2
                })?;
                Some(Arguments::new([("column", Argument::Column(column))]))
            },
            |a| a.col("column"),
        )
        .pandas("$t = $t[$t[$column]]")
        .pandas("$t = $t.loc[$t[$column].eq(True)]")
        .en([
            "keep only the rows in which $column is true",
            "use only records with a true $column",
        ])
        .zh(["只保留$column为真的行"]),
        Operation::new(
            "drop_duplicate_rows",
            Role::Filter,
            |draw| {
                let names = draw.frame.data.get_column_names_owned();
                let groups = draw.frame.data.group_by(names).ok()?;
                (groups.get_groups().len() < draw.frame.height()).then(Arguments::default)
            },
            |_, t| t.unique_stable(None, UniqueKeepStrategy::First),
        )
        .pandas("$t = $t.drop_duplicates()")
        .sql("SELECT DISTINCT * FROM $t")
        .en([
            "remove repeated rows (a row that equals an earlier one in every column)",
            "drop exact duplicates so that each distinct row stays once",
        ])
        .zh(["删除完全重复的行，每种只保留第一行"]),
    ]
}

/// Filters by rank and by position.
fn positions() -> Vec<Operation> {
    let ranked = |largest: bool| {
        move |draw: &mut Draw<'_>| {
            let column = draw.number()?;
            let most = (draw.frame.height() as i64 / 2).min(50);
            let count = draw.count(5, most.max(5));
            draw.clear_cut(&column, count as usize, largest).then(|| {
                Arguments::new([
                    ("column", Argument::Column(column)),
                    ("count", Argument::Count(count)),
                ])
            })
        }
    };
    let top = |descending: bool| {
        move |a: &Arguments, t: LazyFrame| {
            let options = SortMultipleOptions::default()
                .with_order_descending(descending)
                .with_nulls_last(true);
            t.sort([a.name("column")], options)
                .limit(a.count("count") as IdxSize)
        }
    };
    let one_each = |draw: &mut Draw<'_>| {
        let key = draw.category()?;
        Some(Arguments::new([("key", Argument::Column(key))]))
    };
    vec![
        Operation::new("filter_largest", Role::Filter, ranked(true), top(true))
            .order(Order::Loses)
            .pandas("$t = $t.nlargest($count, $column)")
            .pandas("$t = $t.sort_values($column, ascending=False).head($count)")
            .python("$t = sorted((row for row in $t if row[$column] is not None), key=lambda row: row[$column], reverse=True)[:$count]")
            .sql("SELECT * FROM $t ORDER BY $column DESC LIMIT $count")
            .en([
                "keep only the $count rows with the largest $column",
                "take the top $count records by $column",
            ])
            .zh(["只保留$column最大的$count行"]),
        Operation::new("filter_smallest", Role::Filter, ranked(false), top(false))
            .order(Order::Loses)
            .pandas("$t = $t.nsmallest($count, $column)")
            .pandas("$t = $t.sort_values($column).head($count)")
            .python("$t = sorted((row for row in $t if row[$column] is not None), key=lambda row: row[$column])[:$count]")
            .sql("SELECT * FROM $t WHERE $column IS NOT NULL ORDER BY $column LIMIT $count")
            .en([
                "keep only the $count rows with the smallest $column",
                "take the bottom $count records by $column",
            ])
            .zh(["只保留$column最小的$count行"]),
        Operation::new(
            "filter_head",
            Role::Filter,
            |draw| {
                let rows = draw.frame.height() as i64;
                let count = draw.count(rows / 4, rows * 3 / 4) / 5 * 5;
                (count >= 5).then(|| Arguments::new([("count", Argument::Count(count))]))
            },
            |a, t| t.limit(a.count("count") as IdxSize),
        )
        .needs_order()
        .pandas("$t = $t.head($count)")
        .pandas("$t = $t.iloc[:$count]")
        .python("$t = $t[:$count]")
        .en(["keep only the first $count rows", "take the first $count of these rows"])
        .zh(["只取前$count行"]),
        Operation::new("filter_first_of_each", Role::Filter, one_each, |a, t| {
            t.unique_stable(Some(by_name([a.name("key")], true, false)), UniqueKeepStrategy::First)
        })
        .needs_order()
        .pandas("$t = $t.drop_duplicates(subset=[$key])")
        .pandas("$t = $t.groupby($key, sort=False).head(1)")
        .python(
            "seen, first = set(), []\n\
             for row in $t:\n    if row[$key] not in seen:\n        seen.add(row[$key])\n        first.append(row)\n\
             $t = first",
        )
        .en(["keep only the first row of each $key", "take just the first record for every $key"])
        .zh(["每个$key只保留第一行"]),
        Operation::new("filter_last_of_each", Role::Filter, one_each, |a, t| {
            t.unique_stable(Some(by_name([a.name("key")], true, false)), UniqueKeepStrategy::Last)
        })
        .needs_order()
        .pandas("$t = $t.drop_duplicates(subset=[$key], keep=\"last\")")
        .pandas("$t = $t.groupby($key, sort=False).tail(1)")
        .en(["keep only the last row of each $key", "take just the last record for every $key"])
        .zh(["每个$key只保留最后一行"]),
        Operation::new(
            "filter_top_of_each",
            Role::Filter,
            |draw| {
                let (key, column) = draw.grouped(2)?;
                let count = draw.count(1, 3);
                let fits = draw.distinct(&column) == draw.frame.height() && draw.nulls(&column) == 0;
                fits.then(|| {
                    Arguments::new([
                        ("key", Argument::Column(key)),
                        ("column", Argument::Column(column)),
                        ("count", Argument::Count(count)),
                    ])
                })
            },
            |a, t| {
                let options = RankOptions { method: RankMethod::Ordinal, descending: true };
                let place = within(a.col("column").rank(options, None), a.col("key"));
                t.filter(place.lt_eq(lit(a.count("count"))))
            },
        )
        .order(Order::Loses)
        .pandas("$t = $t.sort_values($column, ascending=False).groupby($key).head($count)")
        .pandas("$t = $t[$t.groupby($key)[$column].rank(ascending=False) <= $count]")
        .en([
            "keep, for each $key, only the $count rows with the largest $column (fewer where a group is smaller)",
            "take the top $count by $column within every $key",
        ])
        .zh(["每个$key只保留$column最大的$count行（不足则全部保留）"]),
    ]
}
