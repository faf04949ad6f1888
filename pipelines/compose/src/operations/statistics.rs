//! Tests, regression, principal components, clusters and other statistics of one or two columns.

use polars::prelude::*;

use super::aggregate::{grouped_by, within};
use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::frame::Class;
use crate::operation::{Operation, Role};

/// Rows that a statistic of two columns needs at least.
const MIN_ROWS: usize = 8;
/// Correlations whose sign and size are beyond doubt.
const CORRELATIONS: std::ops::RangeInclusive<f64> = 0.05..=0.999;
/// Most clusters of a column.
const MAX_CLUSTERS: i64 = 6;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = of_one();
    all.extend(of_two());
    all.extend(of_groups());
    all.extend(models());
    all.extend(scales());
    all.push(cluster_by_gap());
    all
}

fn answer(
    name: &str,
    draw: impl Fn(&mut Draw<'_>) -> Option<Arguments> + Send + Sync + 'static,
    value: impl Fn(&Arguments) -> Expr + Send + Sync + 'static,
) -> Operation {
    Operation::new(name, Role::Answer, draw, move |a, t| {
        t.select([value(a).alias("answer")])
    })
}

fn float(a: &Arguments, key: &str) -> Expr {
    a.col(key).cast(DataType::Float64)
}

/// A column without gaps for whose values, ascending, a test holds.
fn one(fits: fn(&[f64]) -> bool) -> impl Fn(&mut Draw<'_>) -> Option<Arguments> {
    move |draw| {
        let column = draw.full_number()?;
        let enough = draw.frame.height() >= MIN_ROWS && fits(&draw.numbers(&column));
        enough.then(|| Arguments::new([("column", Argument::Column(column))]))
    }
}

fn positive(values: &[f64]) -> bool {
    values.first().is_some_and(|least| *least > 1e-6)
}

/// Two columns without gaps.
fn two(draw: &mut Draw<'_>) -> Option<Arguments> {
    let column = draw.full_number()?;
    let other = draw.pick(Class::Number, |draw, name| {
        name != column && draw.distinct(name) >= 5 && draw.nulls(name) == 0
    })?;
    (draw.frame.height() >= MIN_ROWS).then(|| {
        Arguments::new([
            ("column", Argument::Column(column)),
            ("other", Argument::Column(other)),
        ])
    })
}

/// Two columns that are correlated, but not perfectly.
fn correlated(draw: &mut Draw<'_>) -> Option<Arguments> {
    let arguments = two(draw)?;
    let correlation = pearson_corr(arguments.col("column"), arguments.col("other"));
    let found = draw.frame.lazy().select([correlation.alias("r")]);
    let found = found.collect().ok()?;
    let r = Draw::numbers_of(found.column("r").ok()?);
    CORRELATIONS
        .contains(&r.first()?.abs())
        .then_some(arguments)
}

/// As `arguments`, with the name of a new column.
fn with_new(draw: &mut Draw<'_>, mut arguments: Arguments, patterns: &[&str]) -> Option<Arguments> {
    let new = draw.new_name(patterns, arguments.name("column"))?;
    arguments.0.insert("new".to_owned(), new);
    Some(arguments)
}

/// Statistics of one column.
fn of_one() -> Vec<Operation> {
    let skewness = |a: &Arguments| {
        let x = float(a, "column");
        let n = x.clone().count().cast(DataType::Float64);
        let apart = x.clone() - x.mean();
        let square = apart.clone() * apart.clone();
        let third = (square.clone() * apart).mean();
        let root = (n.clone() * (n.clone() - lit(1.0))).sqrt() / (n - lit(2.0));
        root * third / square.mean().pow(lit(1.5))
    };
    let largest = |draw: &mut Draw<'_>| {
        let mut arguments = one(positive)(draw)?;
        let most = (draw.frame.height() as i64 / 3).min(20);
        let count = Argument::Count((most >= 3).then(|| draw.count(3, most))?);
        arguments.0.insert("count".to_owned(), count);
        Some(arguments)
    };
    let value = |draw: &mut Draw<'_>| {
        let column = draw.category()?;
        let value = Argument::Text(draw.value(&column)?);
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("value", value),
        ]))
    };
    let entropy = |a: &Arguments, t: LazyFrame| {
        let counts = grouped_by(t, [a.col("key")]);
        let counts = counts.agg([len().alias("\u{1}n")]);
        let share = col("\u{1}n").cast(DataType::Float64) / col("\u{1}n").sum();
        let bits = share.clone() * share.log(lit(2.0));
        counts.select([(lit(-1.0) * bits.sum()).alias("answer")])
    };
    let key = |draw: &mut Draw<'_>| {
        let key = draw.category()?;
        Some(Arguments::new([("key", Argument::Column(key))]))
    };
    vec![
        answer("answer_skewness", one(|_| true), skewness)
            .pandas("answer = $t[$column].skew()")
            .pandas("from scipy import stats\nanswer = stats.skew($t[$column], bias=False)")
            .python(
                "values = [row[$column] for row in $t]\n\
                 n, mean = len(values), sum(values) / len(values)\n\
                 m2 = sum((v - mean) ** 2 for v in values) / n\n\
                 m3 = sum((v - mean) ** 3 for v in values) / n\n\
                 answer = (n * (n - 1)) ** 0.5 / (n - 2) * m3 / m2 ** 1.5",
            )
            .en([
                "report the sample skewness of $column (adjusted Fisher-Pearson coefficient, as pandas computes it)",
                "compute the bias-corrected skewness of $column (adjusted Fisher-Pearson)",
            ])
            .zh(["求$column的样本偏度（经偏差修正的Fisher-Pearson系数）"]),
        answer("answer_geometric_mean", one(positive), |a| {
            float(a, "column").log(lit(std::f64::consts::E)).mean().exp()
        })
        .pandas("answer = np.exp(np.log($t[$column]).mean())")
        .pandas("from scipy import stats\nanswer = stats.gmean($t[$column])")
        .python("import math\nanswer = math.exp(sum(math.log(row[$column]) for row in $t) / len($t))")
        .en([
            "report the geometric mean of $column",
            "compute the geometric mean of $column over the resulting rows",
        ])
        .zh(["求$column的几何平均值"]),
        answer("answer_percent_from_largest", largest, |a| {
            let order = SortOptions::default().with_order_descending(true);
            let top = float(a, "column").sort(order);
            let top = top.head(Some(a.count("count").max(0) as usize)).sum();
            lit(100.0) * top / a.col("column").sum()
        })
        .pandas("answer = 100 * $t[$column].nlargest($count).sum() / $t[$column].sum()")
        .pandas("top = $t[$column].sort_values(ascending=False).head($count)\nanswer = 100 * top.sum() / $t[$column].sum()")
        .python(
            "values = sorted((row[$column] for row in $t), reverse=True)\n\
             answer = 100 * sum(values[:$count]) / sum(values)",
        )
        .en([
            "report what percentage of the total $column the $count largest values make up",
            "compute the share of the top $count values in the sum of $column, in percent",
        ])
        .zh(["求$column中最大的$count个值占总和的百分比"]),
        answer("answer_percent_of_value", value, |a| {
            lit(100.0) * a.col("column").eq(lit(a.text("value").to_owned())).mean()
        })
        .pandas("answer = 100 * ($t[$column] == $value).mean()")
        .pandas("answer = 100 * $t[$column].value_counts(normalize=True).get($value, 0)")
        .python("answer = 100 * sum(row[$column] == $value for row in $t) / len($t)")
        .sql("SELECT 100.0 * SUM($column = $value) / COUNT(*) FROM $t")
        .en([
            "report what percentage of the rows has $value in $column",
            "compute the share of rows whose $column is $value, in percent",
        ])
        .zh(["求$column为$value的行所占的百分比"]),
        Operation::new("answer_entropy", Role::Answer, key, entropy)
            .pandas("shares = $t[$key].value_counts(normalize=True)\nanswer = -(shares * np.log2(shares)).sum()")
            .pandas("from scipy import stats\nanswer = stats.entropy($t[$key].value_counts(), base=2)")
            .python(
                "import math\n\
                 from collections import Counter\n\
                 shares = [count / len($t) for count in Counter(row[$key] for row in $t).values()]\n\
                 answer = -sum(share * math.log2(share) for share in shares)",
            )
            .en([
                "report the Shannon entropy of the distribution of $key, in bits",
                "compute the entropy (base 2) of the shares of the values of $key",
            ])
            .zh(["求$key取值分布的香农熵（以2为底，单位比特）"]),
    ]
}

/// Statistics of two columns of numbers.
fn of_two() -> Vec<Operation> {
    let ranked = |a: &Arguments, key: &str| {
        let options = RankOptions {
            method: RankMethod::Average,
            descending: false,
        };
        a.col(key).rank(options, None)
    };
    let intercept = |a: &Arguments| {
        let (x, y) = (float(a, "other"), float(a, "column"));
        let (dx, dy) = (x.clone() - x.clone().mean(), y.clone() - y.clone().mean());
        let slope = (dx.clone() * dy).sum() / (dx.clone() * dx).sum();
        y.mean() - slope * x.mean()
    };
    vec![
        answer("answer_rank_correlation", two, move |a| {
            pearson_corr(ranked(a, "column"), ranked(a, "other"))
        })
        .counted_as("correlation")
        .pandas("answer = $t[$column].rank().corr($t[$other].rank())")
        .pandas("from scipy import stats\nanswer = stats.spearmanr($t[$column], $t[$other]).statistic")
        .en([
            "report the Spearman rank correlation of $column and $other",
            "compute Spearman's rho between $column and $other (average ranks for ties)",
        ])
        .zh(["求$column与$other的斯皮尔曼等级相关系数"]),
        answer("answer_r_squared", correlated, |a| {
            pearson_corr(a.col("column"), a.col("other")).pow(lit(2.0))
        })
        .counted_as("linear regression")
        .pandas("from scipy import stats\nanswer = stats.linregress($t[$other], $t[$column]).rvalue ** 2")
        .pandas("answer = $t[$column].corr($t[$other]) ** 2")
        .python("import statistics\nanswer = statistics.correlation([row[$column] for row in $t], [row[$other] for row in $t]) ** 2")
        .en([
            "report R squared of the least-squares line that predicts $column from $other",
            "fit a straight line to $column as a function of $other (ordinary least squares) and give its coefficient of determination",
        ])
        .zh(["求以$other预测$column的最小二乘直线的决定系数R²"]),
        answer("answer_intercept", correlated, intercept)
            .counted_as("linear regression")
            .pandas("from scipy import stats\nanswer = stats.linregress($t[$other], $t[$column]).intercept")
            .pandas(
                "slope = $t[$column].cov($t[$other]) / $t[$other].var()\n\
                 answer = $t[$column].mean() - slope * $t[$other].mean()",
            )
            .python("import statistics\nanswer = statistics.linear_regression([row[$other] for row in $t], [row[$column] for row in $t]).intercept")
            .en([
                "report the intercept of the least-squares line that predicts $column from $other",
                "fit a straight line to $column as a function of $other (ordinary least squares) and give its intercept",
            ])
            .zh(["求以$other预测$column的最小二乘直线的截距"]),
        answer("answer_principal_share", correlated, |a| {
            let r = pearson_corr(a.col("column"), a.col("other"));
            lit(50.0) * (lit(1.0) + r.abs())
        })
        .counted_as("principal components")
        .pandas(
            "values = np.linalg.eigvalsh($t[[$column, $other]].corr().to_numpy())\n\
             answer = 100 * values[-1] / values.sum()",
        )
        .pandas(
            "from sklearn.decomposition import PCA\n\
             from sklearn.preprocessing import StandardScaler\n\
             scaled = StandardScaler().fit_transform($t[[$column, $other]].to_numpy())\n\
             answer = 100 * PCA().fit(scaled).explained_variance_ratio_[0]",
        )
        .en([
            "standardize $column and $other and report what percentage of their variance the first principal component explains",
            "run a PCA on the standardized columns $column and $other and give the share of variance of the first component, in percent",
        ])
        .zh(["把$column和$other标准化后做主成分分析，求第一主成分解释的方差百分比"]),
    ]
}

/// Tests of columns by groups.
fn of_groups() -> Vec<Operation> {
    // Groups of equal values have no spread, or one of rounding errors, by which these statistics divide.
    let varied = |draw: &mut Draw<'_>| {
        let (key, column) = draw.grouped(3)?;
        let fits = draw.nulls(&column) == 0 && draw.fewest_in_group(&key, &column) >= 2;
        fits.then_some((key, column))
    };
    let groups = move |draw: &mut Draw<'_>| {
        let (key, column) = varied(draw)?;
        let mut names = draw.values(&key);
        (names.len() >= 2).then_some(())?;
        let last = names.len() as i64 - 1;
        let first = names.remove(draw.count(0, last) as usize);
        let second = names.remove(draw.count(0, last - 1) as usize);
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("column", Argument::Column(column)),
            ("first", Argument::Text(first)),
            ("second", Argument::Text(second)),
        ]))
    };
    let welch = |a: &Arguments| {
        let of = |group: &str| {
            let here = a.col("key").eq(lit(a.text(group).to_owned()));
            float(a, "column").filter(here)
        };
        let mean = |group: &str| of(group).mean();
        let spread = |group: &str| of(group).var(1) / of(group).count().cast(DataType::Float64);
        (mean("first") - mean("second")) / (spread("first") + spread("second")).sqrt()
    };
    let all_groups = move |draw: &mut Draw<'_>| {
        let (key, column) = varied(draw)?;
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("column", Argument::Column(column)),
        ]))
    };
    let anova = |a: &Arguments| {
        let (x, groups) = (float(a, "column"), a.col("key").n_unique());
        let mean = within(x.clone().mean(), a.col("key"));
        let square = |apart: Expr| (apart.clone() * apart).sum();
        let between = square(mean.clone() - x.clone().mean());
        let inside = square(x - mean);
        let groups = groups.cast(DataType::Float64);
        let rows = len().cast(DataType::Float64);
        (between / (groups.clone() - lit(1.0))) / (inside / (rows - groups))
    };
    let two_keys = |draw: &mut Draw<'_>| {
        let key = draw.category()?;
        let second = draw.pick(Class::Text, |draw, name| {
            name != key && draw.nulls(name) == 0 && (2..=12).contains(&draw.distinct(name))
        })?;
        Some(Arguments::new([
            ("key", Argument::Column(key)),
            ("second", Argument::Column(second)),
        ]))
    };
    // n (sum of O² / (row total × column total) - 1), which equals the sum of (O - E)² / E over all cells.
    let chi_square = |a: &Arguments, t: LazyFrame| {
        let totals = t.with_columns([
            within(len(), a.col("key"))
                .cast(DataType::Float64)
                .alias("\u{1}row"),
            within(len(), a.col("second"))
                .cast(DataType::Float64)
                .alias("\u{1}column"),
        ]);
        let keys = [a.col("key"), a.col("second")];
        let cells = grouped_by(totals, keys).agg([
            len().cast(DataType::Float64).alias("\u{1}n"),
            col("\u{1}row").first(),
            col("\u{1}column").first(),
        ]);
        let n = col("\u{1}n");
        let share = n.clone() * n.clone() / (col("\u{1}row") * col("\u{1}column"));
        cells.select([(n.sum() * (share.sum() - lit(1.0))).alias("answer")])
    };
    vec![
        answer("answer_welch_t", groups, welch)
            .counted_as("hypothesis test")
            .pandas(
                "from scipy import stats\n\
                 first, second = ($t.loc[$t[$key] == name, $column] for name in ($first, $second))\n\
                 answer = stats.ttest_ind(first, second, equal_var=False).statistic",
            )
            .pandas(
                "first, second = $t[$t[$key] == $first][$column], $t[$t[$key] == $second][$column]\n\
                 answer = (first.mean() - second.mean()) / np.sqrt(first.var() / len(first) + second.var() / len(second))",
            )
            .python(
                "import statistics\n\
                 first, second = ([row[$column] for row in $t if row[$key] == name] for name in ($first, $second))\n\
                 spread = statistics.variance(first) / len(first) + statistics.variance(second) / len(second)\n\
                 answer = (statistics.fmean(first) - statistics.fmean(second)) / spread ** 0.5",
            )
            .en([
                "report Welch's t statistic for $column between the rows whose $key is $first and those whose $key is $second (first minus second)",
                "compare the mean $column of $first with that of $second (values of $key) by a t-test without equal variances and give the t statistic, $first minus $second",
            ])
            .zh(["对$key为$first与$second的两组的$column做Welch t检验，求t统计量（前者减后者）"]),
        answer("answer_anova_f", all_groups, anova)
            .counted_as("hypothesis test")
            .pandas(
                "from scipy import stats\n\
                 answer = stats.f_oneway(*(values for _, values in $t.groupby($key)[$column])).statistic",
            )
            .pandas(
                "means = $t.groupby($key)[$column].transform(\"mean\")\n\
                 groups = $t[$key].nunique()\n\
                 between = ((means - $t[$column].mean()) ** 2).sum() / (groups - 1)\n\
                 answer = between / ((($t[$column] - means) ** 2).sum() / (len($t) - groups))",
            )
            .en([
                "report the F statistic of a one-way analysis of variance of $column over the groups of $key",
                "run a one-way ANOVA of $column by $key and give F",
            ])
            .zh(["以$key为分组对$column做单因素方差分析，求F统计量"]),
        Operation::new("answer_chi_square", Role::Answer, two_keys, chi_square)
            .counted_as("hypothesis test")
            .pandas(
                "from scipy import stats\n\
                 answer = stats.chi2_contingency(pd.crosstab($t[$key], $t[$second]), correction=False).statistic",
            )
            .pandas(
                "counts = pd.crosstab($t[$key], $t[$second]).to_numpy()\n\
                 expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()\n\
                 answer = ((counts - expected) ** 2 / expected).sum()",
            )
            .en([
                "report the chi-square statistic of the contingency table of $key and $second, without continuity correction",
                "test $key and $second for independence and give Pearson's chi-square statistic (no continuity correction)",
            ])
            .zh(["求$key与$second列联表的卡方统计量（不做连续性校正）"]),
    ]
}

/// New columns from a model of two columns.
fn models() -> Vec<Operation> {
    let residual = |draw: &mut Draw<'_>| {
        let arguments = correlated(draw)?;
        with_new(draw, arguments, &["*_residual", "residual"])
    };
    let component = |draw: &mut Draw<'_>| {
        let arguments = correlated(draw)?;
        with_new(draw, arguments, &["component", "pc_first", "*_score"])
    };
    vec![
        Operation::derive("derive_residual", residual, |a| {
            let (x, y) = (float(a, "other"), float(a, "column"));
            let (dx, dy) = (x.clone() - x.mean(), y.clone() - y.mean());
            let slope = (dx.clone() * dy.clone()).sum() / (dx.clone() * dx.clone()).sum();
            dy - slope * dx
        })
        .counted_as("linear regression")
        .pandas(
            "from scipy import stats\n\
             line = stats.linregress($t[$other], $t[$column])\n\
             $t[$new] = $t[$column] - (line.intercept + line.slope * $t[$other])",
        )
        .pandas(
            "slope = $t[$column].cov($t[$other]) / $t[$other].var()\n\
             $t[$new] = $t[$column] - $t[$column].mean() - slope * ($t[$other] - $t[$other].mean())",
        )
        .en([
            "add a column $new with the residual of $column from the least-squares line that predicts it from $other (observed minus predicted)",
            "regress $column on $other (ordinary least squares, with an intercept) and store observed minus fitted as $new",
        ])
        .zh(["新增一列$new，为以$other对$column做最小二乘直线拟合的残差（实际值减拟合值）"]),
        Operation::derive("derive_first_component", component, |a| {
            let scaled = |key: &str| {
                let x = float(a, key);
                (x.clone() - x.clone().mean()) / x.std(1)
            };
            let r = pearson_corr(a.col("column"), a.col("other"));
            let sign = when(r.gt(lit(0.0))).then(lit(1.0)).otherwise(lit(-1.0));
            (scaled("column") + sign * scaled("other")) / lit(std::f64::consts::SQRT_2)
        })
        .counted_as("principal components")
        .pandas(
            "scaled = ($t[[$column, $other]] - $t[[$column, $other]].mean()) / $t[[$column, $other]].std()\n\
             axis = np.linalg.eigh(scaled.corr().to_numpy())[1][:, -1]\n\
             $t[$new] = scaled.to_numpy() @ (axis * np.sign(axis[0]))",
        )
        .pandas(
            "scaled = $t[[$column, $other]].apply(lambda values: (values - values.mean()) / values.std()).to_numpy()\n\
             axis = np.linalg.svd(scaled, full_matrices=False)[2][0]\n\
             $t[$new] = scaled @ axis * np.sign(axis[0])",
        )
        .en([
            "standardize $column and $other (sample standard deviation, n - 1) and add their score on the first principal component as $new, with the sign for which it grows with $column",
            "run a PCA on the z-scores (n - 1) of $column and $other and store the first component's score as $new, oriented so that the weight of $column is positive",
        ])
        .zh(["把$column和$other标准化（样本标准差，分母n-1）后做主成分分析，新增一列$new为第一主成分得分（符号取$column的权重为正）"]),
    ]
}

/// Scales and classes by quartiles.
fn scales() -> Vec<Operation> {
    let quantile = |a: &Arguments, share: f64| {
        let x = float(a, "column");
        x.quantile(lit(share), QuantileMethod::Linear)
    };
    let robust = |draw: &mut Draw<'_>| {
        let arguments = one(|_| true)(draw)?;
        with_new(draw, arguments, &["*_robust", "robust"])
    };
    let quartile = |draw: &mut Draw<'_>| {
        let arguments = one(|_| true)(draw)?;
        with_new(draw, arguments, &["*_quartile", "quartile"])
    };
    vec![
        Operation::derive("derive_robust_scale", robust, move |a| {
            let range = quantile(a, 0.75) - quantile(a, 0.25);
            (float(a, "column") - a.col("column").median()) / range
        })
        .pandas(
            "low, middle, high = $t[$column].quantile([0.25, 0.5, 0.75])\n\
             $t[$new] = ($t[$column] - middle) / (high - low)",
        )
        .pandas(
            "low, high = np.percentile($t[$column], [25, 75])\n\
             $t = $t.assign(**{$new: ($t[$column] - $t[$column].median()) / (high - low)})",
        )
        .en([
            "add a column $new with $column minus its median, divided by its interquartile range (quartiles by linear interpolation)",
            "scale $column robustly into $new: subtract the median and divide by Q3 - Q1 (quartiles by linear interpolation)",
        ])
        .zh(["新增一列$new，为$column减去中位数再除以四分位距（四分位数用线性插值）"]),
        Operation::derive("derive_quartile", quartile, move |a| {
            let above = |share: f64| {
                let is_above = float(a, "column").gt(quantile(a, share));
                is_above.cast(DataType::Int64)
            };
            lit(1_i64) + above(0.25) + above(0.5) + above(0.75)
        })
        .counted_as("binning")
        .pandas(
            "edges = $t[$column].quantile([0.25, 0.5, 0.75])\n\
             $t[$new] = 1 + sum(($t[$column] > edge).astype(int) for edge in edges)",
        )
        .pandas(
            "edges = np.percentile($t[$column], [25, 50, 75])\n\
             $t[$new] = np.searchsorted(edges, $t[$column], side=\"left\") + 1",
        )
        .en([
            "add a column $new with the quartile of $column as a number from 1 (lowest) to 4, values equal to a quartile boundary (linear interpolation) belonging to the lower one",
            "divide $column into quarters numbered 1 to 4 in $new, cut at its quartiles (linear interpolation, a value on the cut counts to the lower quarter)",
        ])
        .zh(["新增一列$new，为$column所在的四分位区间编号（1最低，4最高；分界点用线性插值，等于分界点的归入较低的区间）"]),
    ]
}

/// A number between the gaps of a column that separate clusters and all smaller gaps, in few digits.
fn separating_gap(values: &[f64], clusters: i64) -> Option<f64> {
    let mut gaps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(|a, b| b.total_cmp(a));
    let at = usize::try_from(clusters - 1).ok()?;
    let (narrow, wide) = (*gaps.get(at)?, *gaps.get(at.checked_sub(1)?)?);
    let gap: f64 = format!("{:.2e}", (narrow + wide) / 2.0).parse().ok()?;
    let margin = (wide - narrow) / 10.0;
    (narrow > 0.0 && gap > narrow + margin && gap < wide - margin).then_some(gap)
}

/// Clusters of a column that stand apart by more than a gap: single linkage with a cut.
fn cluster_by_gap() -> Operation {
    let draw = |draw: &mut Draw<'_>| {
        let column = draw.full_number()?;
        let clusters = draw.count(2, MAX_CLUSTERS);
        let gap = separating_gap(&draw.numbers(&column), clusters)?;
        let new = draw.new_name(&["*_cluster", "cluster"], &column)?;
        Some(Arguments::new([
            ("column", Argument::Column(column)),
            ("gap", Argument::Number(gap)),
            ("new", new),
        ]))
    };
    let value = |a: &Arguments| {
        let sorted = float(a, "column").sort(SortOptions::default());
        let gaps = sorted.clone() - sorted.shift(lit(1));
        let starts = gaps.gt(lit(a.number("gap"))).fill_null(lit(false));
        let clusters = starts.cast(DataType::Int64).cum_sum(false) + lit(1_i64);
        let options = RankOptions {
            method: RankMethod::Ordinal,
            descending: false,
        };
        let place = a.col("column").rank(options, None) - lit(1_u32);
        clusters.gather(place, false)
    };
    Operation::derive("cluster_by_gap", draw, value)
        .counted_as("clustering")
        .compares_computed()
        .pandas(
            "ordered = $t[$column].sort_values()\n\
             $t[$new] = (ordered.diff() > $gap).cumsum() + 1",
        )
        .pandas(
            "values = np.unique($t[$column])\n\
             starts = values[1:][np.diff(values) > $gap]\n\
             $t[$new] = np.searchsorted(starts, $t[$column], side=\"right\") + 1",
        )
        .python(
            "values = sorted({row[$column] for row in $t})\n\
             starts = [b for a, b in zip(values, values[1:]) if b - a > $gap]\n\
             for row in $t:\n    row[$new] = 1 + sum(row[$column] >= start for start in starts)",
        )
        .en([
            "cluster the rows by $column: sorted by $column, a new cluster begins wherever a value exceeds the one before it by more than $gap; write the number of the cluster (1 for the smallest values) to a column $new",
            "add a column $new that numbers the clusters of $column from 1 upward in order of their values, where neighboring values more than $gap apart belong to different clusters",
        ])
        .zh(["按$column聚类：将值从小到大排列，相邻两值之差超过$gap处开始新的一类，类别从1开始编号，存为列$new"])
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn value(name: &str, arguments: Arguments) -> f64 {
        let columns = vec![
            Column::new("x".into(), vec![1.0, 2.0, 4.0, 5.0, 9.0, 10.0, 11.0, 14.0]),
            Column::new("y".into(), vec![2.0, 1.0, 5.0, 4.0, 8.0, 12.0, 10.0, 13.0]),
            Column::new("g".into(), vec!["a", "b", "a", "b", "a", "b", "a", "b"]),
            Column::new("h".into(), vec!["u", "u", "u", "v", "v", "v", "v", "v"]),
        ];
        let frame = crate::Frame::new(DataFrame::new(8, columns).unwrap());
        let step = crate::Step {
            operation: name.into(),
            arguments,
        };
        let result = step.apply(&frame).unwrap();
        let answer = result.data.column("answer").unwrap();
        Draw::numbers_of(answer)[0]
    }

    fn of<const N: usize>(columns: [(&str, &str); N]) -> Arguments {
        Arguments::new(columns.map(|(key, name)| (key, Argument::Column(name.into()))))
    }

    #[test]
    fn statistics_agree_with_their_definitions() {
        let pair = || of([("column", "x"), ("other", "y")]);
        let close = |value: f64, expected: f64| {
            assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
        };
        // One swap of neighbors in each of four pairs: 1 - 6 · 6 / (8 · 63).
        close(value("answer_rank_correlation", pair()), 1.0 - 36.0 / 504.0);
        let chi = value("answer_chi_square", of([("key", "g"), ("second", "h")]));
        // Expected 1.5 and 2.5 in each row, 0.5 off everywhere.
        close(chi, 2.0 * (0.25 / 1.5 + 0.25 / 2.5));
        close(value("answer_entropy", of([("key", "g")])), 1.0);
        // Groups of the mean 6.25 and 7.75 around 7.
        let inside = 62.75 + 84.75;
        let f = value("answer_anova_f", of([("key", "g"), ("column", "x")]));
        close(f, 4.5 / (inside / 6.0));
    }

    #[test]
    fn groups_of_equal_values_are_not_compared() {
        let drawn = |first: [f64; 4]| {
            let groups = ["a", "a", "a", "a", "b", "b", "b", "b", "b", "b"];
            let values = first.into_iter().chain([1.0, 2.0, 3.0, 4.0, 5.0, 7.0]);
            let columns = vec![
                Column::new("g".into(), groups.to_vec()),
                Column::new("x".into(), values.collect::<Vec<f64>>()),
            ];
            let frame = crate::Frame::new(DataFrame::new(10, columns).unwrap());
            ["answer_welch_t", "answer_anova_f", "group_z_score"].map(|name| {
                let mut rng = ChaCha8Rng::seed_from_u64(1);
                let operation = crate::operations::named(name).unwrap();
                let arguments = operation.arguments(Draw::new(&frame, &mut rng));
                arguments.is_some()
            })
        };
        assert_eq!(drawn([0.1; 4]), [false; 3]);
        assert_eq!(drawn([0.1, 0.1, 0.1, 0.2]), [true; 3]);
    }

    #[test]
    fn clusters_are_numbered_in_the_order_of_their_values() {
        let columns = vec![Column::new("x".into(), vec![30.0, 2.0, 11.0, 1.0, 10.0])];
        let step = crate::Step {
            operation: "cluster_by_gap".into(),
            arguments: Arguments::new([
                ("column", Argument::Column("x".into())),
                ("gap", Argument::Number(5.0)),
                ("new", Argument::New("cluster".into())),
            ]),
        };
        let frame = crate::Frame::new(DataFrame::new(5, columns).unwrap());
        let result = step.apply(&frame).unwrap();
        let clusters = result.data.column("cluster").unwrap().i64().unwrap();
        let clusters: Vec<i64> = clusters.iter().flatten().collect();
        assert_eq!(clusters, [3, 1, 2, 1, 2]);
    }

    #[test]
    fn a_gap_separates_as_many_clusters_as_asked() {
        let values = [1.0, 2.0, 3.0, 10.0, 11.0, 30.0];
        assert_eq!(separating_gap(&values, 2), Some(13.0));
        assert_eq!(separating_gap(&values, 3), Some(4.0));
        assert_eq!(separating_gap(&values, 4), None, "equal gaps");
    }
}
