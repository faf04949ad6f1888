//! Operations that end a task with an answer: a table with one column `answer`, whose rows are the answer.

use polars::prelude::*;

use super::aggregate::{AGGREGATES, Aggregate, grouped_by};
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::frame::Class;
use crate::operation::{Operation, Role};

pub(super) fn operations() -> Vec<Operation> {
    let mut all: Vec<Operation> = AGGREGATES
        .iter()
        .map(|aggregate| statistic(*aggregate))
        .collect();
    all.extend(counts());
    all.extend(relations());
    all.extend(extreme_groups());
    all.extend(names());
    all
}

fn answer(
    name: impl Into<String>,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    value: impl Fn(&Arguments) -> Expr + Send + Sync + 'static,
) -> Operation {
    Operation::new(name, Role::Answer, draw, move |a, t| {
        t.select([value(a).alias("answer")])
    })
}

fn column(draw: &mut Draw<'_>) -> Option<Arguments> {
    Some(Arguments::new([(
        "column",
        Argument::Column(draw.number()?),
    )]))
}

fn statistic(of: Aggregate) -> Operation {
    let operation = answer(
        format!("answer_{}", of.name),
        move |draw| column(draw).filter(|_| draw.frame.height() > of.least),
        move |a| of.of(a.name("column")),
    );
    let operation = match of.name {
        "range" => operation.pandas("answer = $t[$column].max() - $t[$column].min()"),
        _ => operation.pandas(format!("answer = $t[$column].{}", of.pandas)),
    };
    let operation = match of.numpy() {
        Some(numpy) => operation.pandas(format!("answer = {numpy}")),
        None => operation,
    };
    let operation = match of.python {
        "" => operation,
        python => operation.python(format!(
            "values = [row[$column] for row in $t if row[$column] is not None]\nanswer = {python}"
        )),
    };
    let operation = match of.sql {
        Some(sql) => operation.sql(format!("SELECT {sql} FROM $t")),
        None => operation,
    };
    let (en, zh) = (of.en, of.zh);
    operation
        .en([
            &format!("report the {en} of $column"),
            &format!("tell me the {en} of $column in what is left"),
            &format!("compute the {en} of $column over the resulting rows"),
        ])
        .zh([
            &format!("求$column的{zh}"),
            &format!("告诉我结果中$column的{zh}"),
        ])
}

fn counts() -> Vec<Operation> {
    vec![
        answer("answer_rows", |_| Some(Arguments::default()), |_| len())
            .pandas("answer = len($t)")
            .pandas("answer = $t.shape[0]")
            .python("answer = len($t)")
            .sql("SELECT COUNT(*) FROM $t")
            .en([
                "report how many rows remain",
                "count the rows that are left",
            ])
            .zh(["求剩余的行数"]),
        answer(
            "answer_distinct",
            |draw| {
                let column = draw.full_text()?;
                Some(Arguments::new([("column", Argument::Column(column))]))
            },
            |a| a.col("column").n_unique(),
        )
        .pandas("answer = $t[$column].nunique()")
        .pandas("answer = len($t[$column].unique())")
        .python("answer = len({row[$column] for row in $t})")
        .sql("SELECT COUNT(DISTINCT $column) FROM $t")
        .en([
            "report how many different values $column has",
            "count the distinct values of $column",
        ])
        .zh(["求$column有多少个不同的取值"]),
        answer(
            "answer_percent_above",
            |draw| {
                let column = draw.full_number()?;
                let share = draw.share(0.25, 0.75);
                let value = draw.threshold(&column, share)?;
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("value", Argument::Number(value)),
                ]))
            },
            |a| lit(100.0) * a.col("column").gt(lit(a.number("value"))).mean(),
        )
        .pandas("answer = 100 * ($t[$column] > $value).mean()")
        .pandas("answer = 100 * ($t[$column] > $value).sum() / len($t)")
        .python("answer = 100 * sum(row[$column] > $value for row in $t) / len($t)")
        .sql("SELECT 100.0 * SUM($column > $value) / COUNT(*) FROM $t")
        .en([
            "report what percentage of the rows has a $column above $value",
            "compute the share of rows with $column greater than $value, in percent",
        ])
        .zh(["求$column大于$value的行所占的百分比"]),
        answer(
            "answer_missing",
            |draw| {
                let column = draw.pick(Class::Number, |draw, name| draw.nulls(name) > 1)?;
                Some(Arguments::new([("column", Argument::Column(column))]))
            },
            |a| a.col("column").null_count(),
        )
        .pandas("answer = int($t[$column].isna().sum())")
        .python("answer = sum(row[$column] is None for row in $t)")
        .sql("SELECT SUM($column IS NULL) FROM $t")
        .en([
            "report in how many rows $column is missing",
            "count the rows without a value in $column",
        ])
        .zh(["求$column缺失的行数"]),
    ]
}

/// Two columns.
fn relations() -> Vec<Operation> {
    let two = |draw: &mut Draw<'_>| {
        let column = draw.full_number()?;
        let other = draw.pick(Class::Number, |draw, name| {
            name != column && draw.distinct(name) >= 5 && draw.nulls(name) == 0
        })?;
        (draw.frame.height() >= 8).then(|| {
            Arguments::new([
                ("column", Argument::Column(column)),
                ("other", Argument::Column(other)),
            ])
        })
    };
    let weighted = move |draw: &mut Draw<'_>| {
        let arguments = two(draw)?;
        let weights = draw.numbers(arguments.name("other"));
        weights
            .first()
            .is_some_and(|least| *least > 0.0)
            .then_some(arguments)
    };
    let slope = |a: &Arguments| {
        let (x, y) = (
            a.col("other").cast(DataType::Float64),
            a.col("column").cast(DataType::Float64),
        );
        let x = x.clone() - x.mean();
        let y = y.clone() - y.mean();
        (x.clone() * y).sum() / (x.clone() * x).sum()
    };
    vec![
        answer("answer_correlation", two, |a| pearson_corr(a.col("column"), a.col("other")))
            .pandas("answer = $t[$column].corr($t[$other])")
            .pandas("answer = np.corrcoef($t[$column], $t[$other])[0, 1]")
            .python(
                "import statistics\n\
                 answer = statistics.correlation([row[$column] for row in $t], [row[$other] for row in $t])",
            )
            .en(["report the Pearson correlation of $column and $other", "compute the Pearson correlation coefficient between $column and $other"])
            .zh(["求$column与$other的皮尔逊相关系数"]),
        answer("answer_slope", two, slope)
            .pandas("answer = np.polyfit($t[$other], $t[$column], 1)[0]")
            .pandas("x, y = $t[$other] - $t[$other].mean(), $t[$column] - $t[$column].mean()\nanswer = (x * y).sum() / (x * x).sum()")
            .python(
                "import statistics\n\
                 answer = statistics.linear_regression([row[$other] for row in $t], [row[$column] for row in $t]).slope",
            )
            .en([
                "report the slope of the least-squares line that predicts $column from $other",
                "fit a straight line to $column as a function of $other (ordinary least squares) and give its slope",
            ])
            .zh(["求以$other预测$column的最小二乘直线的斜率"]),
        answer("answer_weighted_mean", weighted, |a| {
            (a.col("column") * a.col("other")).sum().cast(DataType::Float64) / a.col("other").sum()
        })
        .pandas("answer = ($t[$column] * $t[$other]).sum() / $t[$other].sum()")
        .pandas("answer = np.average($t[$column], weights=$t[$other])")
        .python("answer = sum(row[$column] * row[$other] for row in $t) / sum(row[$other] for row in $t)")
        .sql("SELECT SUM($column * $other) * 1.0 / SUM($other) FROM $t")
        .en(["report the mean of $column weighted by $other", "compute the average $column with $other as weights"])
        .zh(["求以$other为权重的$column加权平均值"]),
    ]
}

/// The group that stands out by a statistic.
fn extreme_groups() -> Vec<Operation> {
    let mut all = Vec::new();
    for (of, largest) in [
        (AGGREGATES[0], true),
        (AGGREGATES[1], true),
        (AGGREGATES[2], false),
    ] {
        let draw = move |draw: &mut Draw<'_>| {
            let (key, column) = draw.grouped(of.least)?;
            Some(Arguments::new([
                ("key", Argument::Column(key)),
                ("column", Argument::Column(column)),
            ]))
        };
        let meaning = move |a: &Arguments, t: LazyFrame| {
            let groups =
                grouped_by(t, [a.col("key")]).agg([of.of(a.name("column")).alias("value")]);
            extreme(groups, a.name("key"), largest)
        };
        let (name, side, word, zh_word) = match largest {
            true => (
                format!("answer_top_by_{}", of.name),
                "idxmax",
                "highest",
                "最高",
            ),
            false => (
                format!("answer_lowest_by_{}", of.name),
                "idxmin",
                "lowest",
                "最低",
            ),
        };
        let (en, zh) = (of.en, of.zh);
        let operation = Operation::new(name, Role::Answer, draw, meaning)
            .compares_computed()
            .pandas(format!(
                "answer = $t.groupby($key)[$column].{}.{side}()",
                of.pandas
            ));
        let operation = match of.sql {
            Some(sql) if largest => operation.sql(format!(
                "SELECT $key FROM $t GROUP BY $key ORDER BY {sql} DESC LIMIT 1"
            )),
            Some(_) => operation,
            None => operation.pandas(format!(
                "answer = $t.groupby($key)[$column].{}.sort_values(ascending={}).index[0]",
                of.pandas,
                if largest { "False" } else { "True" }
            )),
        };
        all.push(
            operation
                .en([
                    &format!("report which $key has the {word} {en} of $column"),
                    &format!("name the $key whose {en} of $column is {word}"),
                ])
                .zh([&format!("求$column的{zh}{zh_word}的是哪个$key")]),
        );
    }
    all.push(
        Operation::new(
            "answer_most_frequent",
            Role::Answer,
            |draw| {
                let key = draw.category()?;
                Some(Arguments::new([("key", Argument::Column(key))]))
            },
            |a, t| {
                let groups = grouped_by(t, [a.col("key")]).agg([len().alias("value")]);
                extreme(groups, a.name("key"), true)
            },
        )
        .pandas("answer = $t[$key].value_counts().idxmax()")
        .pandas("answer = $t[$key].mode()[0]")
        .python("from collections import Counter\nanswer = Counter(row[$key] for row in $t).most_common(1)[0][0]")
        .sql("SELECT $key FROM $t GROUP BY $key ORDER BY COUNT(*) DESC LIMIT 1")
        .en(["report the most frequent $key", "name the $key that occurs most often"])
        .zh(["求出现次数最多的$key"]),
    );
    all
}

/// The key of the row with an extreme `value`; all of them where several share it, so that a tie shows.
fn extreme(groups: LazyFrame, key: &str, largest: bool) -> LazyFrame {
    let value = col("value");
    let end = if largest {
        value.clone().max()
    } else {
        value.clone().min()
    };
    groups
        .filter(value.eq(end))
        .select([col(key).alias("answer")])
}

/// Whether values of a column can stand in a list with commas between them.
fn is_listable(draw: &Draw<'_>, column: &str) -> bool {
    !draw.values(column).iter().any(|value| value.contains(','))
}

/// Names and lists.
fn names() -> Vec<Operation> {
    let labeled = |draw: &mut Draw<'_>| {
        let name = draw.pick(Class::Text, |draw, name| {
            draw.unique(name) && draw.values(name).len() == draw.frame.height()
        })?;
        let column = draw.number()?;
        Some(Arguments::new([
            ("name", Argument::Column(name)),
            ("column", Argument::Column(column)),
        ]))
    };
    let top = |descending: bool, count: IdxSize| {
        move |a: &Arguments, t: LazyFrame| {
            let options = SortMultipleOptions::default()
                .with_order_descending(descending)
                .with_nulls_last(true);
            t.sort([a.name("column")], options)
                .limit(count)
                .select([a.col("name").alias("answer")])
        }
    };
    let one = move |largest: bool| {
        move |draw: &mut Draw<'_>| {
            let arguments = labeled(draw)?;
            draw.clear_cut(arguments.name("column"), 1, largest)
                .then_some(arguments)
        }
    };
    let three = move |draw: &mut Draw<'_>| {
        let arguments = labeled(draw)?;
        let column = arguments.name("column");
        let clear = (1..=3).all(|n| draw.clear_cut(column, n, true));
        let listable = is_listable(draw, arguments.name("name"));
        (clear && listable && draw.frame.height() > 4).then_some(arguments)
    };
    vec![
        Operation::new("answer_name_of_largest", Role::Answer, one(true), top(true, 1))
            .pandas("answer = $t.loc[$t[$column].idxmax(), $name]")
            .pandas("answer = $t.nlargest(1, $column)[$name].iloc[0]")
            .python("answer = max((row for row in $t if row[$column] is not None), key=lambda row: row[$column])[$name]")
            .sql("SELECT $name FROM $t ORDER BY $column DESC LIMIT 1")
            .en(["report the $name with the largest $column", "name the $name whose $column is highest"])
            .zh(["求$column最大的$name"]),
        Operation::new("answer_name_of_smallest", Role::Answer, one(false), top(false, 1))
            .pandas("answer = $t.loc[$t[$column].idxmin(), $name]")
            .pandas("answer = $t.nsmallest(1, $column)[$name].iloc[0]")
            .python("answer = min((row for row in $t if row[$column] is not None), key=lambda row: row[$column])[$name]")
            .sql("SELECT $name FROM $t WHERE $column IS NOT NULL ORDER BY $column LIMIT 1")
            .en(["report the $name with the smallest $column", "name the $name whose $column is lowest"])
            .zh(["求$column最小的$name"]),
        Operation::new("answer_top_three", Role::Answer, three, top(true, 3))
            .pandas("answer = $t.nlargest(3, $column)[$name].tolist()")
            .pandas("answer = $t.sort_values($column, ascending=False)[$name].head(3).tolist()")
            .python("answer = [row[$name] for row in sorted((row for row in $t if row[$column] is not None), key=lambda row: -row[$column])[:3]]")
            .en([
                "list the three $name with the largest $column, largest first",
                "name the top three $name by $column in descending order",
            ])
            .zh(["按从大到小列出$column最大的三个$name"]),
        Operation::new(
            "answer_values",
            Role::Answer,
            |draw| {
                let column = draw.pick(Class::Text, |draw, name| {
                    draw.nulls(name) == 0
                        && (2..=8).contains(&draw.distinct(name))
                        && draw.values(name).len() == draw.distinct(name)
                        && is_listable(draw, name)
                })?;
                Some(Arguments::new([("column", Argument::Column(column))]))
            },
            |a, t| {
                t.select([a.col("column").unique().alias("answer")])
                    .sort(["answer"], SortMultipleOptions::default())
            },
        )
        .pandas("answer = sorted($t[$column].unique())")
        .pandas("answer = $t[$column].drop_duplicates().sort_values().tolist()")
        .python("answer = sorted({row[$column] for row in $t})")
        .en([
            "list the different values of $column in code point order (upper case before lower case)",
            "name all values that $column takes, sorted by code point",
        ])
        .zh(["按字符编码顺序列出$column的所有不同取值"]),
    ]
}
