//! Operations that add a column of numbers or labels, or fill gaps.

use polars::prelude::*;

use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::frame::Class;
use crate::operation::{Operation, Role};

pub(super) fn operations() -> Vec<Operation> {
    let mut all = pairs();
    all.extend(scales());
    all.extend(functions());
    all.extend(labels());
    all.extend(gaps());
    all
}

/// A column and the name of the new one.
fn one(
    patterns: &'static [&'static str],
    fits: fn(&Draw<'_>, &str) -> bool,
) -> impl Fn(&mut Draw<'_>) -> Option<Arguments> {
    move |draw| {
        let column = draw.pick(Class::Number, |draw, name| {
            draw.distinct(name) >= 5 && fits(draw, name)
        })?;
        let new = draw.new_name(patterns, &column)?;
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("new", new),
        ]))
    }
}

/// Arithmetic of two columns.
fn pairs() -> Vec<Operation> {
    let two = |patterns: &'static [&'static str], fits: fn(&Draw<'_>, &str) -> bool| {
        move |draw: &mut Draw<'_>| {
            let column = draw.number()?;
            let other = draw.pick(Class::Number, |draw, name| {
                name != column && draw.distinct(name) >= 5 && fits(draw, name)
            })?;
            let new = draw.new_name(patterns, &column)?;
            Some(Arguments::new([
                ("column", Argument::Column(column)),
                ("other", Argument::Column(other)),
                ("new", new),
            ]))
        }
    };
    let arithmetic = |name, sign: &str, patterns, value: fn(Expr, Expr) -> Expr| {
        let float = if sign == "/" { " * 1.0" } else { "" };
        Operation::derive(name, two(patterns, |_, _| true), move |a| value(a.col("column"), a.col("other")))
            .pandas(format!("$t = $t.assign(**{{$new: $t[$column] {sign} $t[$other]}})"))
            .pandas(format!("$t[$new] = $t[$column] {sign} $t[$other]"))
            .python(format!(
                "for row in $t:\n    row[$new] = None if None in (row[$column], row[$other]) else row[$column] {sign} row[$other]"
            ))
            .sql(format!("SELECT *, $column{float} {sign} $other AS $new FROM $t"))
    };
    vec![
        arithmetic("derive_sum", "+", &["*_sum", "total", "combined"], |a, b| a + b)
            .en([
                "add a column $new that holds $column plus $other",
                "create $new as the sum of $column and $other",
            ])
            .zh(["新增一列$new，等于$column加$other"]),
        arithmetic("derive_difference", "-", &["*_diff", "difference", "gap"], |a, b| a - b)
            .en([
                "add a column $new that holds $column minus $other",
                "create $new as the difference $column - $other",
            ])
            .zh(["新增一列$new，等于$column减$other"]),
        arithmetic("derive_product", "*", &["*_product", "product"], |a, b| a * b)
            .en([
                "add a column $new that holds $column times $other",
                "create $new as the product of $column and $other",
            ])
            .zh(["新增一列$new，等于$column乘以$other"]),
        Operation::derive(
            "derive_ratio",
            two(&["*_ratio", "ratio", "rate"], |draw, name| {
                draw.nulls(name) == 0 && draw.numbers(name).iter().all(|x| x.abs() > 1e-9)
            }),
            |a| a.col("column").cast(DataType::Float64) / a.col("other"),
        )
        .pandas("$t = $t.assign(**{$new: $t[$column] / $t[$other]})")
        .pandas("$t[$new] = $t[$column].div($t[$other])")
        .python("for row in $t:\n    row[$new] = None if row[$column] is None else row[$column] / row[$other]")
        .sql("SELECT *, $column * 1.0 / $other AS $new FROM $t")
        .en([
            "add a column $new that holds $column divided by $other",
            "create $new as the ratio of $column to $other",
        ])
        .zh(["新增一列$new，等于$column除以$other"]),
    ]
}

/// Values compared with their column.
fn scales() -> Vec<Operation> {
    let varied = |_: &Draw<'_>, _: &str| true;
    vec![
        Operation::derive("derive_percent_of_total", one(&["*_percent", "percent"], |draw, name| {
            draw.numbers(name).iter().sum::<f64>().abs() > 1e-6
        }), |a| lit(100.0) * a.col("column") / a.col("column").sum())
        .pandas("$t = $t.assign(**{$new: 100 * $t[$column] / $t[$column].sum()})")
        .pandas("$t[$new] = $t[$column] / $t[$column].sum() * 100")
        .python(
            "total = sum(row[$column] for row in $t if row[$column] is not None)\n\
             for row in $t:\n    row[$new] = None if row[$column] is None else 100 * row[$column] / total",
        )
        .sql("SELECT *, 100.0 * $column / (SELECT SUM($column) FROM $t) AS $new FROM $t")
        .en([
            "add a column $new with the share of each $column in the column's total, in percent",
            "create $new: what percentage of the sum of $column the row's $column is",
        ])
        .zh(["新增一列$new，表示$column占该列总和的百分比"]),
        Operation::derive("derive_z_score", one(&["*_z", "z_score"], varied), |a| {
            (a.col("column") - a.col("column").mean()) / a.col("column").std(1)
        })
        .pandas("$t = $t.assign(**{$new: ($t[$column] - $t[$column].mean()) / $t[$column].std()})")
        .pandas("$t[$new] = $t[$column].sub($t[$column].mean()).div($t[$column].std(ddof=1))")
        .python(
            "import statistics\n\
             values = [row[$column] for row in $t if row[$column] is not None]\n\
             mean, spread = statistics.fmean(values), statistics.stdev(values)\n\
             for row in $t:\n    row[$new] = None if row[$column] is None else (row[$column] - mean) / spread",
        )
        .en([
            "add a column $new with the z-scores of $column (sample standard deviation, n - 1)",
            "standardize $column into $new: subtract the mean and divide by the sample standard deviation (n - 1)",
        ])
        .zh(["新增一列$new，为$column的z分数（样本标准差，分母n-1）"]),
        Operation::derive("derive_min_max", one(&["*_scaled", "scaled"], varied), |a| {
            let (low, high) = (a.col("column").min(), a.col("column").max());
            (a.col("column").cast(DataType::Float64) - low.clone()) / (high - low)
        })
        .pandas("low, high = $t[$column].min(), $t[$column].max()\n$t[$new] = ($t[$column] - low) / (high - low)")
        .python(
            "values = [row[$column] for row in $t if row[$column] is not None]\n\
             low, high = min(values), max(values)\n\
             for row in $t:\n    row[$new] = None if row[$column] is None else (row[$column] - low) / (high - low)",
        )
        .sql("SELECT *, ($column - (SELECT MIN($column) FROM $t)) * 1.0 / ((SELECT MAX($column) FROM $t) - (SELECT MIN($column) FROM $t)) AS $new FROM $t")
        .en([
            "add a column $new with $column scaled to the range 0 to 1 (min-max)",
            "rescale $column linearly into $new so that its smallest value becomes 0 and its largest 1",
        ])
        .zh(["新增一列$new，把$column按最小最大值线性缩放到0到1"]),
        Operation::derive("derive_from_median", one(&["*_from_median", "distance"], varied), |a| {
            a.col("column") - a.col("column").median()
        })
        .pandas("$t[$new] = $t[$column] - $t[$column].median()")
        .python(
            "import statistics\n\
             middle = statistics.median(row[$column] for row in $t if row[$column] is not None)\n\
             for row in $t:\n    row[$new] = None if row[$column] is None else row[$column] - middle",
        )
        .en([
            "add a column $new with $column minus the median of $column",
            "create $new as the deviation of $column from its median",
        ])
        .zh(["新增一列$new，等于$column减去其中位数"]),
        Operation::derive("derive_rank", one(&["*_rank", "rank"], varied), |a| {
            let options = RankOptions { method: RankMethod::Min, descending: true };
            a.col("column").rank(options, None)
        })
        .pandas("$t[$new] = $t[$column].rank(ascending=False, method=\"min\")")
        .python(
            "for row in $t:\n    \
             row[$new] = None if row[$column] is None else 1 + sum(other[$column] is not None and other[$column] > row[$column] for other in $t)",
        )
        .en([
            "add a column $new with the rank of $column, the largest value being 1 and equal values sharing the best rank",
            "rank the rows by $column in descending order into $new (ties get the smallest rank)",
        ])
        .zh(["新增一列$new，为$column的降序名次（最大为1，并列取最小名次）"]),
    ]
}

/// Functions of one value.
fn functions() -> Vec<Operation> {
    let apply = |operation: Operation, numpy: &str, math: &str| {
        operation
            .pandas(format!("$t = $t.assign(**{{$new: {numpy}}})"))
            .pandas(format!("$t[$new] = {numpy}"))
            .python(format!("import math\nfor row in $t:\n    row[$new] = None if row[$column] is None else {math}"))
    };
    let log = Operation::derive(
        "derive_log",
        one(&["*_log", "log_*"], |draw, name| {
            draw.numbers(name)
                .first()
                .is_some_and(|least| *least > 1e-6)
        }),
        |a| {
            a.col("column")
                .cast(DataType::Float64)
                .log(lit(std::f64::consts::E))
        },
    );
    let sqrt = Operation::derive(
        "derive_sqrt",
        one(&["*_sqrt", "root"], |draw, name| {
            draw.numbers(name)
                .first()
                .is_some_and(|least| *least >= 0.0)
        }),
        |a| a.col("column").cast(DataType::Float64).pow(lit(0.5)),
    );
    let square = Operation::derive(
        "derive_square",
        one(&["*_squared", "square"], |draw, name| {
            draw.numbers(name).iter().all(|x| x.abs() < 1e6)
        }),
        |a| a.col("column") * a.col("column"),
    );
    let absolute = Operation::derive(
        "derive_absolute",
        one(&["*_abs", "size"], |draw, name| {
            draw.numbers(name).first().is_some_and(|least| *least < 0.0)
        }),
        |a| a.col("column").abs(),
    );
    let scaled = Operation::derive(
        "derive_scaled_by",
        |draw: &mut Draw<'_>| {
            let column = draw.number()?;
            let new = draw.new_name(&["*_adjusted", "converted"], &column)?;
            let factor = draw.count(3, 97) as f64 / 20.0;
            Some(Arguments::new([
                ("column", Argument::Column(column)),
                ("factor", Argument::Number(factor)),
                ("new", new),
            ]))
        },
        |a| a.col("column") * lit(a.number("factor")),
    );
    vec![
        apply(log, "np.log($t[$column])", "math.log(row[$column])")
            .en([
                "add a column $new with the natural logarithm of $column",
                "take the natural log of $column as $new",
            ])
            .zh(["新增一列$new，为$column的自然对数"]),
        apply(sqrt, "np.sqrt($t[$column])", "math.sqrt(row[$column])")
            .en(["add a column $new with the square root of $column", "store the square root of $column as $new"])
            .zh(["新增一列$new，为$column的平方根"]),
        apply(square, "$t[$column] ** 2", "row[$column] ** 2")
            .sql("SELECT *, $column * $column AS $new FROM $t")
            .en(["add a column $new with the square of $column", "store $column squared as $new"])
            .zh(["新增一列$new，为$column的平方"]),
        apply(absolute, "$t[$column].abs()", "abs(row[$column])")
            .sql("SELECT *, ABS($column) AS $new FROM $t")
            .en(["add a column $new with the absolute value of $column", "store the absolute $column as $new"])
            .zh(["新增一列$new，为$column的绝对值"]),
        apply(scaled, "$t[$column] * $factor", "row[$column] * $factor")
            .sql("SELECT *, $column * $factor AS $new FROM $t")
            .en(["add a column $new that is $column multiplied by $factor", "convert $column into $new with the factor $factor"])
            .zh(["新增一列$new，等于$column乘以$factor"]),
        Operation::derive("derive_bin", |draw: &mut Draw<'_>| {
            let column = draw.full_number()?;
            let new = draw.new_name(&["*_bin", "bin"], &column)?;
            let values = draw.numbers(&column);
            let range = values.last()? - values.first()?;
            let width = 10f64.powf((range / 4.0).log10().floor());
            (width >= 1.0).then(|| Arguments::new([
                ("column", Argument::Column(column)),
                ("width", Argument::Number(width)),
                ("new", new),
            ]))
        }, |a| (a.col("column").cast(DataType::Float64) / lit(a.number("width"))).floor() * lit(a.number("width")))
        .pandas("$t[$new] = ($t[$column] // $width) * $width")
        .pandas("$t[$new] = np.floor($t[$column] / $width) * $width")
        .python("import math\nfor row in $t:\n    row[$new] = math.floor(row[$column] / $width) * $width")
        .en([
            "add a column $new with the lower edge of the bin of $column, bins being $width wide and starting at 0",
            "round $column down to a multiple of $width and store it as $new",
        ])
        .zh(["新增一列$new，为$column向下取整到$width的倍数"]),
    ]
}

/// Labels by a threshold.
fn labels() -> Vec<Operation> {
    let by_threshold = |draw: &mut Draw<'_>| {
        let column = draw.full_number()?;
        let share = draw.share(0.3, 0.7);
        let value = draw.threshold(&column, share)?;
        let new = draw.new_name(&["*_level", "level", "*_class"], &column)?;
        let [high, low] = match draw.count(0, 2) {
            0 => ["high", "low"],
            1 => ["above", "below"],
            _ => ["A", "B"],
        };
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("value", Argument::Number(value)),
            ("high", Argument::Text(high.into())),
            ("low", Argument::Text(low.into())),
            ("new", new),
        ]))
    };
    let text = |a: &Arguments, key: &str| lit(a.text(key).to_owned());
    vec![
        Operation::derive("derive_label", by_threshold, move |a| {
            when(a.col("column").gt_eq(lit(a.number("value"))))
                .then(text(a, "high"))
                .otherwise(text(a, "low"))
        })
        .pandas("$t[$new] = np.where($t[$column] >= $value, $high, $low)")
        .pandas("$t = $t.assign(**{$new: [$high if x >= $value else $low for x in $t[$column]]})")
        .python("for row in $t:\n    row[$new] = $high if row[$column] >= $value else $low")
        .sql("SELECT *, CASE WHEN $column >= $value THEN $high ELSE $low END AS $new FROM $t")
        .en([
            "add a column $new that says $high where $column is at least $value and $low elsewhere",
            "label each row in $new: $high from $value of $column upward, otherwise $low",
        ])
        .zh(["新增一列$new：$column不小于$value时为$high，否则为$low"]),
        Operation::derive("derive_clip", |draw: &mut Draw<'_>| {
            let column = draw.number()?;
            let (low, high) = (draw.share(0.05, 0.3), draw.share(0.7, 0.95));
            let (low, high) = (draw.threshold(&column, low)?, draw.threshold(&column, high)?);
            let new = draw.new_name(&["*_clipped", "limited"], &column)?;
            (low < high).then(|| Arguments::new([
                ("column", Argument::Column(column)),
                ("low", Argument::Number(low)),
                ("high", Argument::Number(high)),
                ("new", new),
            ]))
        }, |a| {
            let (c, low, high) = (a.col("column"), a.number("low"), a.number("high"));
            let high_side = when(c.clone().gt(lit(high))).then(lit(high)).otherwise(c.clone());
            when(c.lt(lit(low))).then(lit(low)).otherwise(high_side)
        })
        .pandas("$t[$new] = $t[$column].clip($low, $high)")
        .pandas("$t[$new] = $t[$column].clip(lower=$low, upper=$high)")
        .pandas("$t[$new] = np.clip($t[$column].to_numpy(), $low, $high)")
        .python("for row in $t:\n    row[$new] = None if row[$column] is None else min(max(row[$column], $low), $high)")
        .sql("SELECT *, MIN(MAX($column, $low), $high) AS $new FROM $t")
        .en([
            "add a column $new with $column limited to the range from $low to $high (smaller values become $low, larger ones $high)",
            "clip $column at $low and $high and store the result as $new",
        ])
        .zh(["新增一列$new，把$column限制在$low到$high之间（超出部分取端点值）"]),
    ]
}

/// Missing values.
fn gaps() -> Vec<Operation> {
    let with_gaps = |draw: &mut Draw<'_>| {
        let column = draw.pick(Class::Number, |draw, name| {
            draw.nulls(name) > 0 && draw.distinct(name) >= 5
        })?;
        Some(Arguments::new([("column", Argument::Column(column))]))
    };
    let fill = |name, value: fn(Expr) -> Expr, pandas: &str, python: &str| {
        Operation::new(name, Role::Derive, with_gaps, move |a, t| {
            let filled = a.col("column").fill_null(value(a.col("column")));
            t.with_column(filled.alias(a.name("column")))
        })
        .pandas(format!("$t[$column] = $t[$column].fillna({pandas})"))
        .pandas(format!(
            "$t = $t.assign(**{{$column: $t[$column].fillna({pandas})}})"
        ))
        .python(format!(
            "import statistics\n\
             known = [row[$column] for row in $t if row[$column] is not None]\n\
             for row in $t:\n    row[$column] = {python} if row[$column] is None else row[$column]"
        ))
    };
    vec![
        fill(
            "fill_with_mean",
            |c| c.mean(),
            "$t[$column].mean()",
            "statistics.fmean(known)",
        )
        .en([
            "fill the gaps in $column with the mean of its known values",
            "replace missing $column by the column's average",
        ])
        .zh(["用$column已知值的平均值填补其缺失值"]),
        fill(
            "fill_with_median",
            |c| c.median(),
            "$t[$column].median()",
            "statistics.median(known)",
        )
        .en([
            "fill the gaps in $column with the median of its known values",
            "replace missing $column by the column's median",
        ])
        .zh(["用$column已知值的中位数填补其缺失值"]),
        fill("fill_with_zero", |_| lit(0), "0", "0")
            .en([
                "treat missing $column as 0",
                "fill the gaps in $column with 0",
            ])
            .zh(["把$column的缺失值当作0"]),
        Operation::new(
            "fill_with_text",
            Role::Derive,
            |draw| {
                let column = draw.pick(Class::Text, |draw, name| draw.nulls(name) > 0)?;
                let value = ["unknown", "missing", "n.a.", "other"][draw.count(0, 3) as usize];
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("value", Argument::Text(value.into())),
                ]))
            },
            |a, t| {
                let filled = a.col("column").fill_null(lit(a.text("value").to_owned()));
                t.with_column(filled.alias(a.name("column")))
            },
        )
        .pandas("$t[$column] = $t[$column].fillna($value)")
        .python(
            "for row in $t:\n    row[$column] = $value if row[$column] is None else row[$column]",
        )
        .en([
            "write $value where $column is missing",
            "fill the gaps in $column with $value",
        ])
        .zh(["把$column的缺失值写成$value"]),
        Operation::derive(
            "derive_is_missing",
            |draw| {
                let column = draw.pick(Class::Number, |draw, name| draw.nulls(name) > 0)?;
                let new = draw.new_name(&["*_missing", "no_*"], &column)?;
                Some(Arguments::new([
                    ("column", Argument::Column(column)),
                    ("new", new),
                ]))
            },
            |a| a.col("column").is_null().cast(DataType::Int64),
        )
        .pandas("$t[$new] = $t[$column].isna().astype(int)")
        .python("for row in $t:\n    row[$new] = int(row[$column] is None)")
        .sql("SELECT *, $column IS NULL AS $new FROM $t")
        .en([
            "add a column $new that is 1 where $column is missing and 0 elsewhere",
            "mark the rows without $column in a column $new (1 for missing, 0 for present)",
        ])
        .zh(["新增一列$new，$column缺失为1，否则为0"]),
    ]
}
