//! Operations that sum up rows by the week, the quarter or the year of a day.

use polars::prelude::*;

use super::aggregate::{AGGREGATES, Aggregate, grouped_by};
use super::time::day;
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::operation::{Operation, Order, Role};

/// A length of time, and how a day tells in which one it falls.
#[derive(Clone, Copy)]
struct Period {
    name: &'static str,
    /// Names of the column with the period.
    columns: &'static [&'static str],
    /// The period of a text column of days.
    of: fn(Expr) -> Expr,
    /// The period of the Series `days`.
    pandas: &'static str,
    /// Lines before the statement in plain Python.
    imports: &'static str,
    /// The period of a row in plain Python.
    python: &'static str,
    sql: Option<&'static str>,
    en: &'static str,
    zh: &'static str,
}

const PERIODS: [Period; 3] = [
    Period {
        name: "yearly",
        columns: &["year", "calendar_year"],
        of: |text| day(text).dt().year(),
        pandas: "days.dt.year",
        imports: "",
        python: "int(row[$day][:4])",
        sql: Some("CAST(SUBSTR($day, 1, 4) AS INTEGER)"),
        en: "the year of $day, as a number",
        zh: "$day的年份（数字）",
    },
    Period {
        name: "quarterly",
        columns: &["quarter", "period"],
        of: |text| {
            let year = text.clone().str().head(lit(4));
            year + lit("Q") + day(text).dt().quarter().cast(DataType::String)
        },
        pandas: "days.dt.to_period(\"Q\").astype(str)",
        imports: "",
        python: "row[$day][:4] + \"Q\" + str((int(row[$day][5:7]) + 2) // 3)",
        sql: Some("SUBSTR($day, 1, 4) || 'Q' || ((CAST(SUBSTR($day, 6, 2) AS INTEGER) + 2) / 3)"),
        en: "the calendar quarter of $day, written like 2024Q1",
        zh: "$day所在的季度（写成2024Q1的形式）",
    },
    Period {
        name: "weekly",
        columns: &["week", "week_of"],
        of: monday,
        pandas: "(days - pd.to_timedelta(days.dt.dayofweek, unit=\"D\")).dt.strftime(\"%Y-%m-%d\")",
        imports: "from datetime import date, timedelta\n",
        python: "str(date.fromisoformat(row[$day]) - timedelta(days=date.fromisoformat(row[$day]).weekday()))",
        sql: None,
        en: "the Monday on or before $day, written as YYYY-MM-DD",
        zh: "$day当天或之前最近的周一（写成YYYY-MM-DD）",
    },
];

pub(super) fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    for period in PERIODS {
        all.extend(AGGREGATES.iter().take(2).map(|of| summed(period, *of)));
        all.push(counted(period));
    }
    all
}

/// The Monday of a day's week, as a text.
fn monday(text: Expr) -> Expr {
    let day = day(text);
    let since_monday = day.clone().dt().weekday().cast(DataType::Int32) - lit(1);
    let monday = day.cast(DataType::Int32) - since_monday;
    monday.cast(DataType::Date).cast(DataType::String)
}

/// A name for the column with the period.
fn period_name(period: Period, draw: &mut Draw<'_>) -> Option<Argument> {
    draw.new_name(period.columns, "")
}

fn by_period(period: Period, a: &Arguments, t: LazyFrame, value: Expr) -> LazyFrame {
    let key = (period.of)(a.col("day")).alias(a.name("period"));
    let groups = grouped_by(t, [key]).agg([value.alias(a.name("new"))]);
    groups.sort([a.name("period")], SortMultipleOptions::default())
}

/// One row for each period, with a statistic of a column.
fn summed(period: Period, of: Aggregate) -> Operation {
    let draw = move |draw: &mut Draw<'_>| {
        let day = draw.date()?;
        let column = draw.full_number()?;
        let new = draw.new_name(&[&format!("{}_*", of.name), of.name], &column)?;
        let name = period_name(period, draw)?;
        (name != new).then(|| {
            Arguments::new([
                ("day", Argument::Column(day)),
                ("column", Argument::Column(column)),
                ("period", name),
                ("new", new),
            ])
        })
    };
    let meaning =
        move |a: &Arguments, t: LazyFrame| by_period(period, a, t, of.of(a.name("column")));
    let Period {
        pandas,
        imports,
        python,
        ..
    } = period;
    let (name, value) = (of.name, of.python);
    let operation = Operation::new(format!("{}_{name}", period.name), Role::Shape, draw, meaning)
        .order(Order::Loses)
        .counted_as("resample")
        .pandas(format!(
            "days = pd.to_datetime($t[$day])\n\
             $t = $t.groupby({pandas}.rename($period))[$column].{name}().reset_index(name=$new)"
        ))
        .pandas(format!(
            "days = pd.to_datetime($t[$day])\n\
             $t = $t.assign(**{{$period: {pandas}}}).groupby($period, as_index=False).agg(**{{$new: ($column, \"{name}\")}})"
        ))
        .python(format!(
            "{imports}groups = {{}}\n\
             for row in $t:\n    groups.setdefault({python}, []).append(row[$column])\n\
             $t = [{{$period: period, $new: {value}}} for period, values in sorted(groups.items())]"
        ));
    let operation = match (period.sql, of.sql) {
        (Some(key), Some(value)) => operation.sql(format!(
            "SELECT {key} AS $period, {value} AS $new FROM $t GROUP BY 1"
        )),
        _ => operation,
    };
    let (en, zh) = (of.en, of.zh);
    let (period_en, period_zh) = (period.en, period.zh);
    operation
        .en([
            &format!("group the rows by {period_en}, in a column $period, and compute the {en} of $column for each one that occurs as $new"),
            &format!("resample the table to one row per $period, which is {period_en}, with the {en} of $column as $new (only where there are rows)"),
        ])
        .zh([
            &format!("按{period_zh}分组（列$period，只列有数据的），计算$column的{zh}，列名为$new"),
            &format!("生成每个$period一行的汇总表，$period为{period_zh}，$new为$column的{zh}"),
        ])
}

/// One row for each period, with the number of rows.
fn counted(period: Period) -> Operation {
    let draw = move |draw: &mut Draw<'_>| {
        let day = draw.date()?;
        let new = draw.new_name(&["count", "rows", "entries"], "")?;
        let name = period_name(period, draw)?;
        Some(Arguments::new([
            ("day", Argument::Column(day)),
            ("period", name),
            ("new", new),
        ]))
    };
    let meaning = move |a: &Arguments, t: LazyFrame| by_period(period, a, t, len());
    let Period {
        pandas,
        imports,
        python,
        en,
        zh,
        ..
    } = period;
    let operation = Operation::new(format!("{}_count", period.name), Role::Shape, draw, meaning)
        .order(Order::Loses)
        .counted_as("resample")
        .pandas(format!(
            "days = pd.to_datetime($t[$day])\n\
             $t = $t.groupby({pandas}.rename($period)).size().reset_index(name=$new)"
        ))
        .pandas(format!(
            "days = pd.to_datetime($t[$day])\n\
             $t = {pandas}.value_counts().rename_axis($period).reset_index(name=$new)"
        ))
        .python(format!(
            "{imports}from collections import Counter\n\
             counts = Counter({python} for row in $t)\n\
             $t = [{{$period: period, $new: count}} for period, count in sorted(counts.items())]"
        ));
    let operation = match period.sql {
        Some(key) => operation.sql(format!(
            "SELECT {key} AS $period, COUNT(*) AS $new FROM $t GROUP BY 1"
        )),
        None => operation,
    };
    operation
        .en([
            &format!("count the rows by {en}: one row per $period that occurs, with the number of rows in $new"),
            &format!("build a table with the columns $period ({en}) and $new, the number of rows in it, only where there are rows"),
        ])
        .zh([
            &format!("按{zh}统计行数，列名为$period和$new，只列有数据的"),
            &format!("生成两列的表：$period为{zh}，$new为行数"),
        ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_fall_into_the_week_that_begins_on_their_monday() {
        // A Sunday, a Monday, and days around the turn of a year.
        let days = ["2024-05-05", "2024-05-06", "2023-12-31", "2024-01-01"];
        let columns = vec![Column::new("day".into(), days.to_vec())];
        let t = DataFrame::new(4, columns).unwrap().lazy();
        let keys = PERIODS.map(|period| {
            let key = (period.of)(col("day")).cast(DataType::String);
            key.alias(period.name)
        });
        let data = t.select(keys).collect().unwrap();
        let of = |name: &str| -> Vec<String> {
            let texts = data.column(name).unwrap().str().unwrap();
            texts.iter().flatten().map(str::to_owned).collect()
        };
        assert_eq!(of("yearly"), ["2024", "2024", "2023", "2024"]);
        assert_eq!(of("quarterly"), ["2024Q2", "2024Q2", "2023Q4", "2024Q1"]);
        assert_eq!(
            of("weekly"),
            ["2024-04-29", "2024-05-06", "2023-12-25", "2024-01-01"]
        );
    }
}
