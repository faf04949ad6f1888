//! Operations that end a task with two or three numbers: a table with one column `answer`, whose rows are the numbers in
//! the order in which the query names them.

use polars::prelude::*;

use super::aggregate::{AGGREGATES, Aggregate};
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::operation::{Operation, Role, SEVERAL_NUMBERS};

/// Statistics of one column that are asked for together. Some differ in their last statistic only, so that each is
/// mistaken for the other when a task is proven.
const TOGETHER: [&[&str]; 8] = [
    &["mean", "median"],
    &["mean", "max"],
    &["mean", "min"],
    &["sum", "mean"],
    &["sum", "median"],
    &["min", "max"],
    &["min", "median", "max"],
    &["mean", "median", "std"],
];

/// The values of a column in plain Python.
const VALUES: &str = "values = [row[$column] for row in $t if row[$column] is not None]";

pub(super) fn operations() -> Vec<Operation> {
    let mut all: Vec<Operation> = TOGETHER.into_iter().map(statistics).collect();
    all.extend(["sum", "mean"].map(|name| rows_and(named(name))));
    all.extend([quartiles(), means_of_two(), line()]);
    all
}

/// The statistic of this name; the first one if there is none.
fn named(name: &str) -> Aggregate {
    let mut all = AGGREGATES.into_iter();
    all.find(|aggregate| aggregate.name == name)
        .unwrap_or(AGGREGATES[0])
}

/// An ending with these numbers, one row each.
fn numbers(
    name: &str,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    values: impl Fn(&Arguments) -> Vec<Expr> + Send + Sync + 'static,
) -> Operation {
    let name = format!("{SEVERAL_NUMBERS}{name}");
    Operation::new(name, Role::Answer, draw, move |a, t| {
        let row = |value: Expr| t.clone().select([value.alias("answer")]);
        let rows: Vec<LazyFrame> = values(a).into_iter().map(row).collect();
        let options = UnionArgs {
            to_supertypes: true,
            ..UnionArgs::default()
        };
        // Only an empty list of rows is an error.
        concat(rows, options).unwrap_or(t)
    })
}

/// A numeric column, if there are more rows than `least`.
fn column(draw: &mut Draw<'_>, least: usize) -> Option<Arguments> {
    let column = Argument::Column(draw.number()?);
    (draw.frame.height() > least).then(|| Arguments::new([("column", column)]))
}

/// Several statistics of one column.
fn statistics(names: &'static [&'static str]) -> Operation {
    let of: Vec<Aggregate> = names.iter().map(|name| named(name)).collect();
    let least = of.iter().map(|of| of.least).max().unwrap_or(1);
    let joined = |part: fn(&Aggregate) -> String| {
        let parts: Vec<String> = of.iter().map(part).collect();
        parts.join(", ")
    };
    let pandas = joined(|of| format!("$t[$column].{}", of.pandas));
    let python = joined(|of| of.python.to_owned());
    let sql: Option<Vec<&str>> = of.iter().map(|of| of.sql).collect();
    let en = listed(of.iter().map(|of| of.en));
    let zh: Vec<&str> = of.iter().map(|of| of.zh).collect();
    let zh = zh.join("、");
    let operation = numbers(
        &names.join("_"),
        move |draw| column(draw, least),
        move |a| of.iter().map(|of| of.of(a.name("column"))).collect(),
    );
    let operation = match sql {
        Some(sql) => operation.sql(format!("SELECT {} FROM $t", sql.join(", "))),
        None => operation,
    };
    let methods: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    operation
        .pandas(format!("answer = [{pandas}]"))
        .pandas(format!(
            "answer = $t[$column].agg([{}]).tolist()",
            methods.join(", ")
        ))
        .python(format!("{VALUES}\nanswer = [{python}]"))
        .en([
            &format!("report {en} of $column, in this order"),
            &format!("compute for $column, in this order, {en}"),
        ])
        .zh([
            &format!("依次求$column的{zh}"),
            &format!("按顺序给出$column的{zh}"),
        ])
}

/// `the mean, the median and the sum`.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("the {name}")).collect();
    match names.as_slice() {
        [start @ .., last] if !start.is_empty() => format!("{} and {last}", start.join(", ")),
        _ => names.concat(),
    }
}

/// The number of rows and a statistic.
fn rows_and(of: Aggregate) -> Operation {
    let (en, zh) = (of.en, of.zh);
    let operation = numbers(
        &format!("rows_{}", of.name),
        move |draw| column(draw, of.least),
        move |a| vec![len(), of.of(a.name("column"))],
    );
    let operation = match of.sql {
        Some(sql) => operation.sql(format!("SELECT COUNT(*), {sql} FROM $t")),
        None => operation,
    };
    operation
        .pandas(format!("answer = [len($t), $t[$column].{}]", of.pandas))
        .pandas(format!("answer = [$t.shape[0], $t[$column].{}]", of.pandas))
        .python(format!("{VALUES}\nanswer = [len($t), {}]", of.python))
        .en([
            &format!("report how many rows remain and the {en} of $column, in this order"),
            &format!(
                "give two numbers: the number of rows that are left, then the {en} of their $column"
            ),
        ])
        .zh([&format!("依次求剩余的行数和$column的{zh}")])
}

fn quartiles() -> Operation {
    numbers(
        "quartiles",
        |draw| column(draw, 7),
        |a| {
            let share = |share: f64| a.col("column").quantile(lit(share), QuantileMethod::Linear);
            [0.25, 0.5, 0.75].map(share).into()
        },
    )
    .pandas("answer = $t[$column].quantile([0.25, 0.5, 0.75]).tolist()")
    .pandas("answer = np.nanpercentile($t[$column], [25, 50, 75]).tolist()")
    .python(format!(
        "import statistics\n{VALUES}\nanswer = statistics.quantiles(values, n=4, method=\"inclusive\")"
    ))
    .en([
        "report the three quartiles of $column (linear interpolation), smallest first",
        "compute the 25th, 50th and 75th percentile of $column with linear interpolation, in this order",
    ])
    .zh(["依次求$column的第25、50、75百分位数（线性插值）"])
}

fn means_of_two() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let column = draw.number()?;
        let other = draw.other_number(&column)?;
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("other", Argument::Column(other)),
        ]))
    };
    numbers("means_of_two", draw, |a| {
        vec![a.col("column").mean(), a.col("other").mean()]
    })
    .pandas("answer = [$t[$column].mean(), $t[$other].mean()]")
    .pandas("answer = $t[[$column, $other]].mean().tolist()")
    .python(
        "answer = []\n\
         for name in ($column, $other):\n    \
         values = [row[name] for row in $t if row[name] is not None]\n    \
         answer.append(sum(values) / len(values))",
    )
    .sql("SELECT AVG($column), AVG($other) FROM $t")
    .en([
        "report the mean of $column and the mean of $other, in this order",
        "compute two averages over the resulting rows: that of $column, then that of $other",
    ])
    .zh(["依次求$column的平均值和$other的平均值"])
}

/// A straight line through two columns.
fn line() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let column = draw.full_number()?;
        let other = draw.other_number(&column)?;
        let fits = draw.nulls(&other) == 0 && draw.frame.height() >= 8;
        fits.then(|| {
            Arguments::new([
                ("column", Argument::Column(column)),
                ("other", Argument::Column(other)),
            ])
        })
    };
    numbers("line", draw, |a| {
        let (x, y) = (
            a.col("other").cast(DataType::Float64),
            a.col("column").cast(DataType::Float64),
        );
        let (dx, dy) = (x.clone() - x.clone().mean(), y.clone() - y.clone().mean());
        let slope = (dx.clone() * dy).sum() / (dx.clone() * dx).sum();
        vec![slope.clone(), y.mean() - slope * x.mean()]
    })
    .pandas("answer = np.polyfit($t[$other], $t[$column], 1).tolist()")
    .pandas(
        "x, y = $t[$other] - $t[$other].mean(), $t[$column] - $t[$column].mean()\n\
         slope = (x * y).sum() / (x * x).sum()\n\
         answer = [slope, $t[$column].mean() - slope * $t[$other].mean()]",
    )
    .python(
        "import statistics\n\
         line = statistics.linear_regression([row[$other] for row in $t], [row[$column] for row in $t])\n\
         answer = [line.slope, line.intercept]",
    )
    .en([
        "report slope and intercept of the least-squares line that predicts $column from $other, in this order",
        "fit a straight line to $column as a function of $other (ordinary least squares) and give its slope, then its intercept",
    ])
    .zh(["依次求以$other预测$column的最小二乘直线的斜率和截距"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use crate::graph::Step;

    fn answer(operation: &str, arguments: Arguments) -> Vec<f64> {
        let columns = vec![
            Column::new("x".into(), vec![1_i64, 2, 3, 4, 10]),
            Column::new("y".into(), vec![5.0, 7.0, 9.0, 11.0, 23.0]),
        ];
        let frame = Frame::new(DataFrame::new(5, columns).unwrap());
        let step = Step {
            operation: operation.to_owned(),
            arguments,
        };
        let result = step.apply(&frame).unwrap().data;
        let column = result.column("answer").unwrap();
        let floats = column.cast(&DataType::Float64).unwrap();
        floats.f64().unwrap().iter().flatten().collect()
    }

    #[test]
    fn the_numbers_stand_in_the_order_of_the_query() {
        let column = |name: &str| Argument::Column(name.to_owned());
        let of = |name: &str| Arguments::new([("column", column(name))]);
        let pair = Arguments::new([("column", column("y")), ("other", column("x"))]);
        assert_eq!(
            answer("answer_numbers_min_median_max", of("x")),
            [1.0, 3.0, 10.0]
        );
        assert_eq!(answer("answer_numbers_rows_sum", of("y")), [5.0, 55.0]);
        assert_eq!(answer("answer_numbers_quartiles", of("x")), [2.0, 3.0, 4.0]);
        assert_eq!(
            answer("answer_numbers_means_of_two", pair.clone()),
            [11.0, 4.0]
        );
        assert_eq!(answer("answer_numbers_line", pair), [2.0, 3.0]);
    }
}
