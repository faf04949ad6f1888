//! Operations on days.

use polars::prelude::*;

use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::operation::{Operation, Role};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = filters();
    all.extend(parts());
    all
}

/// The column of an argument as days.
fn days(a: &Arguments, key: &str) -> Expr {
    day(a.col(key))
}

/// A text column as days.
pub(super) fn day(text: Expr) -> Expr {
    text.str().to_date(StrptimeOptions {
        format: Some("%Y-%m-%d".into()),
        ..StrptimeOptions::default()
    })
}

fn filters() -> Vec<Operation> {
    let from = |low: f64, high: f64| {
        move |draw: &mut Draw<'_>| {
            let column = draw.date()?;
            let mut values: Vec<String> = draw.texts(&column).into_iter().flatten().collect();
            values.sort();
            let share = draw.share(low, high);
            let value = values.get((values.len() as f64 * share) as usize)?.clone();
            Some(Arguments::new([
                ("column", Argument::Column(column)),
                ("value", Argument::Text(value)),
            ]))
        }
    };
    let by_part = |part: fn(&str) -> Option<i64>| {
        move |draw: &mut Draw<'_>| {
            let column = draw.date()?;
            let count = part(&draw.value(&column)?)?;
            Some(Arguments::new([
                ("column", Argument::Column(column)),
                ("count", Argument::Count(count)),
            ]))
        }
    };
    // Days in ISO 8601 have the order of their texts.
    let text = |a: &Arguments| lit(a.text("value").to_owned());
    vec![
        Operation::new(
            "filter_from_day",
            Role::Filter,
            from(0.2, 0.6),
            move |a, t| t.filter(a.col("column").gt_eq(text(a))),
        )
        .pandas("$t = $t[pd.to_datetime($t[$column]) >= $value]")
        .pandas("$t = $t[pd.to_datetime($t[$column]) >= pd.Timestamp($value)]")
        .python("$t = [row for row in $t if row[$column] >= $value]")
        .sql("SELECT * FROM $t WHERE $column >= $value")
        .en([
            "keep only the rows with a $column of $value or later",
            "use only records from $value on (that day included), by $column",
        ])
        .zh(["只保留$column在$value当天及之后的行"]),
        Operation::new(
            "filter_before_day",
            Role::Filter,
            from(0.4, 0.8),
            move |a, t| t.filter(a.col("column").lt(text(a))),
        )
        .pandas("$t = $t[pd.to_datetime($t[$column]) < $value]")
        .python("$t = [row for row in $t if row[$column] < $value]")
        .sql("SELECT * FROM $t WHERE $column < $value")
        .en([
            "keep only the rows with a $column before $value",
            "use only records dated earlier than $value in $column",
        ])
        .zh(["只保留$column早于$value的行"]),
        Operation::new(
            "filter_year",
            Role::Filter,
            by_part(|day| day.get(..4)?.parse().ok()),
            |a, t| {
                t.filter(
                    days(a, "column")
                        .dt()
                        .year()
                        .eq(lit(a.count("count") as i32)),
                )
            },
        )
        .pandas("$t = $t[pd.to_datetime($t[$column]).dt.year == $count]")
        .python("$t = [row for row in $t if int(row[$column][:4]) == $count]")
        .sql("SELECT * FROM $t WHERE CAST(SUBSTR($column, 1, 4) AS INTEGER) = $count")
        .en([
            "keep only the rows whose $column falls in the year $count",
            "use only the records of $count, by $column",
        ])
        .zh(["只保留$column在$count年的行"]),
        Operation::new(
            "filter_month",
            Role::Filter,
            by_part(|day| day.get(5..7)?.parse().ok()),
            |a, t| {
                t.filter(
                    days(a, "column")
                        .dt()
                        .month()
                        .eq(lit(a.count("count") as i8)),
                )
            },
        )
        .pandas("$t = $t[pd.to_datetime($t[$column]).dt.month == $count]")
        .python("$t = [row for row in $t if int(row[$column][5:7]) == $count]")
        .sql("SELECT * FROM $t WHERE CAST(SUBSTR($column, 6, 2) AS INTEGER) = $count")
        .en([
            "keep only the rows whose $column falls in month number $count, of whatever year",
            "use only records dated in month $count (any year), by $column",
        ])
        .zh(["只保留$column在$count月的行（不限年份）"]),
    ]
}

/// The first day of a day's month, as a text.
fn first_of_month(day: Expr) -> Expr {
    day.cast(DataType::String).str().head(lit(7)) + lit("-01")
}

/// A day that is some days later, as a text.
fn day_plus() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let column = draw.date()?;
        let count = draw.count(3, 45);
        let new = draw.new_name(&["*_due", "due", "*_later"], &column)?;
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("count", Argument::Count(count)),
            ("new", new),
        ]))
    };
    let later = |a: &Arguments| {
        let number = days(a, "column").cast(DataType::Int32) + lit(a.count("count") as i32);
        number.cast(DataType::Date).cast(DataType::String)
    };
    Operation::derive("day_plus", draw, later)
        .pandas("$t[$new] = (pd.to_datetime($t[$column]) + pd.Timedelta(days=$count)).dt.strftime(\"%Y-%m-%d\")")
        .pandas("$t[$new] = (pd.to_datetime($t[$column]) + pd.DateOffset(days=$count)).dt.strftime(\"%Y-%m-%d\")")
        .python("from datetime import date, timedelta\nfor row in $t:\n    row[$new] = str(date.fromisoformat(row[$column]) + timedelta(days=$count))")
        .sql("SELECT *, DATE($column, '+$count days') AS $new FROM $t")
        .en([
            "add a column $new with the day that is $count days after $column, written as YYYY-MM-DD",
            "store $column plus $count days as $new (YYYY-MM-DD)",
        ])
        .zh(["新增一列$new，为$column之后第$count天的日期（写成YYYY-MM-DD）"])
}

fn parts() -> Vec<Operation> {
    let derive =
        |name: &str, patterns: &'static [&'static str], value: fn(Expr) -> Expr, pandas: &str| {
            let draw = move |draw: &mut Draw<'_>| {
                let column = draw.date()?;
                let new = draw.new_name(patterns, &column)?;
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("new", new),
                ]))
            };
            Operation::new(name, Role::Derive, draw, move |a, t| {
                t.with_column(value(days(a, "column")).alias(a.name("new")))
            })
            .pandas(format!("$t[$new] = pd.to_datetime($t[$column]).{pandas}"))
            .pandas(format!(
                "$t = $t.assign(**{{$new: pd.to_datetime($t[$column]).{pandas}}})"
            ))
        };
    vec![
        derive("day_year", &["*_year", "year"], |d| d.dt().year(), "dt.year")
            .python("for row in $t:\n    row[$new] = int(row[$column][:4])")
            .sql("SELECT *, CAST(SUBSTR($column, 1, 4) AS INTEGER) AS $new FROM $t")
            .en(["add a column $new with the year of $column", "store the year of $column as $new"])
            .zh(["新增一列$new，为$column的年份"]),
        derive("day_month", &["*_month", "month"], |d| d.dt().month(), "dt.month")
            .python("for row in $t:\n    row[$new] = int(row[$column][5:7])")
            .sql("SELECT *, CAST(SUBSTR($column, 6, 2) AS INTEGER) AS $new FROM $t")
            .en(["add a column $new with the month of $column as a number from 1 to 12", "store the month number of $column as $new"])
            .zh(["新增一列$new，为$column的月份（1到12）"]),
        derive("day_quarter", &["*_quarter", "quarter"], |d| d.dt().quarter(), "dt.quarter")
            .python("for row in $t:\n    row[$new] = (int(row[$column][5:7]) + 2) // 3")
            .en(["add a column $new with the quarter of $column as a number from 1 to 4", "store the calendar quarter (1 to 4) of $column as $new"])
            .zh(["新增一列$new，为$column所在季度（1到4）"]),
        derive("day_of_week", &["*_weekday", "weekday"], |d| d.dt().weekday(), "dt.dayofweek + 1")
            .python("from datetime import date\nfor row in $t:\n    row[$new] = date.fromisoformat(row[$column]).isoweekday()")
            .en(["add a column $new with the weekday of $column as a number, Monday being 1 and Sunday 7", "store the ISO weekday (1 = Monday to 7 = Sunday) of $column as $new"])
            .zh(["新增一列$new，为$column的星期几（周一为1，周日为7）"]),
        derive("day_of_year", &["*_dayofyear", "day_of_year"], |d| d.dt().ordinal_day(), "dt.dayofyear")
            .python("from datetime import date\nfor row in $t:\n    row[$new] = date.fromisoformat(row[$column]).timetuple().tm_yday")
            .en(["add a column $new with the day of the year of $column (1 for January 1)", "store the day number within the year of $column as $new"])
            .zh(["新增一列$new，为$column是当年的第几天（1月1日为1）"]),
        derive("day_month_start", &["*_month_start", "month_start"], first_of_month, "dt.strftime(\"%Y-%m-01\")")
            .python("for row in $t:\n    row[$new] = row[$column][:7] + \"-01\"")
            .sql("SELECT *, SUBSTR($column, 1, 7) || '-01' AS $new FROM $t")
            .en([
                "add a column $new with the first day of the month of $column, written as YYYY-MM-DD",
                "move every $column to the first of its month and store that day (YYYY-MM-DD) as $new",
            ])
            .zh(["新增一列$new，为$column所在月份的第一天（写成YYYY-MM-DD）"]),
        derive("day_is_weekend", &["*_weekend", "weekend"], |d| d.dt().weekday().gt_eq(lit(6_i8)).cast(DataType::Int64), "dt.dayofweek.ge(5).astype(int)")
            .python("from datetime import date\nfor row in $t:\n    row[$new] = int(date.fromisoformat(row[$column]).weekday() >= 5)")
            .sql("SELECT *, STRFTIME('%w', $column) IN ('0', '6') AS $new FROM $t")
            .en([
                "add a column $new that is 1 where $column is a Saturday or a Sunday and 0 elsewhere",
                "mark weekends by $column in a column $new (1 for Saturday and Sunday, 0 for other days)",
            ])
            .zh(["新增一列$new，$column为周六或周日时为1，否则为0"]),
        day_plus(),
        Operation::new(
            "days_since_first",
            Role::Derive,
            |draw| {
                let column = draw.date()?;
                let new = draw.new_name(&["*_days", "days"], &column)?;
                Some(Arguments::new([("column", Argument::Column(column)), ("new", new)]))
            },
            |a, t| {
                let number = days(a, "column").cast(DataType::Int32).cast(DataType::Int64);
                t.with_column((number.clone() - number.min()).alias(a.name("new")))
            },
        )
        .pandas("days = pd.to_datetime($t[$column])\n$t[$new] = (days - days.min()).dt.days")
        .python(
            "from datetime import date\n\
             first = min(date.fromisoformat(row[$column]) for row in $t)\n\
             for row in $t:\n    row[$new] = (date.fromisoformat(row[$column]) - first).days",
        )
        .en([
            "add a column $new with the number of days from the earliest remaining $column to the row's $column",
            "count the days since the first $column in the current table into $new (0 for the first)",
        ])
        .zh(["新增一列$new，为$column距当前表中最早日期的天数（最早为0）"]),
    ]
}
