//! Statistics of a column, which groups, pivots, months and answers share.

use polars::prelude::{Expr, LazyFrame, LazyGroupBy, NULL, QuantileMethod, col, lit};

/// One statistic of a numeric column. Missing values do not count.
#[derive(Clone, Copy)]
pub(super) struct Aggregate {
    pub(super) name: &'static str,
    pub(super) en: &'static str,
    pub(super) zh: &'static str,
    /// The pandas method.
    pub(super) pandas: &'static str,
    /// Of a list `values` without missing values.
    pub(super) python: &'static str,
    pub(super) sql: Option<&'static str>,
    pub(super) expr: fn(Expr) -> Expr,
    /// The number of values that it needs.
    pub(super) least: usize,
}

pub(super) const AGGREGATES: [Aggregate; 8] = [
    Aggregate {
        name: "mean",
        en: "mean",
        zh: "平均值",
        pandas: "mean()",
        python: "sum(values) / len(values)",
        sql: Some("AVG($column)"),
        expr: |c| c.mean(),
        least: 1,
    },
    Aggregate {
        name: "sum",
        en: "sum",
        zh: "总和",
        pandas: "sum()",
        python: "sum(values)",
        sql: Some("SUM($column)"),
        expr: |c| c.sum(),
        least: 1,
    },
    Aggregate {
        name: "median",
        en: "median",
        zh: "中位数",
        pandas: "median()",
        python: "sorted(values)[len(values) // 2] if len(values) % 2 else sum(sorted(values)[len(values) // 2 - 1:len(values) // 2 + 1]) / 2",
        sql: None,
        expr: |c| c.median(),
        least: 1,
    },
    Aggregate {
        name: "min",
        en: "smallest value",
        zh: "最小值",
        pandas: "min()",
        python: "min(values)",
        sql: Some("MIN($column)"),
        expr: |c| c.min(),
        least: 1,
    },
    Aggregate {
        name: "max",
        en: "largest value",
        zh: "最大值",
        pandas: "max()",
        python: "max(values)",
        sql: Some("MAX($column)"),
        expr: |c| c.max(),
        least: 1,
    },
    Aggregate {
        name: "std",
        en: "sample standard deviation (n - 1)",
        zh: "样本标准差（分母n-1）",
        pandas: "std()",
        python: "(sum((v - sum(values) / len(values)) ** 2 for v in values) / (len(values) - 1)) ** 0.5",
        sql: None,
        expr: |c| c.std(1),
        least: 3,
    },
    Aggregate {
        name: "range",
        en: "range (largest minus smallest value)",
        zh: "极差（最大值减最小值）",
        pandas: "agg(lambda values: values.max() - values.min())",
        python: "max(values) - min(values)",
        sql: Some("MAX($column) - MIN($column)"),
        expr: |c| c.clone().max() - c.min(),
        least: 2,
    },
    Aggregate {
        name: "quantile",
        en: "90th percentile (linear interpolation)",
        zh: "第90百分位数（线性插值）",
        pandas: "quantile(0.9)",
        python: "",
        sql: None,
        expr: |c| c.quantile(lit(0.9), QuantileMethod::Linear),
        least: 3,
    },
];

impl Aggregate {
    /// The statistic of a column.
    pub(super) fn of(&self, column: &str) -> Expr {
        (self.expr)(col(column))
    }

    /// The statistic in NumPy, which counts missing values unless told otherwise.
    pub(super) fn numpy(&self) -> Option<&'static str> {
        Some(match self.name {
            "mean" => "np.nanmean($t[$column])",
            "sum" => "np.nansum($t[$column])",
            "median" => "np.nanmedian($t[$column])",
            "std" => "np.nanstd($t[$column], ddof=1)",
            "range" => "np.nanmax($t[$column]) - np.nanmin($t[$column])",
            "quantile" => "np.nanpercentile($t[$column], 90)",
            _ => return None,
        })
    }
}

/// An expression within the groups of a key.
pub(super) fn within(value: Expr, key: Expr) -> Expr {
    // Only an empty list of keys is refused.
    value.over([key]).unwrap_or_else(|_| lit(NULL))
}

/// The groups of a table by keys, in the order of their first rows. A row without a key belongs to none, as in pandas.
pub(super) fn grouped_by<const N: usize>(t: LazyFrame, keys: [Expr; N]) -> LazyGroupBy {
    let has_keys = keys.iter().cloned().map(Expr::is_not_null);
    let has_keys = has_keys.reduce(Expr::and).unwrap_or_else(|| lit(true));
    t.filter(has_keys).group_by_stable(keys)
}

#[cfg(test)]
mod tests {
    use polars::prelude::{Column, DataFrame, IntoLazy, len};

    use super::*;

    #[test]
    fn a_row_without_a_key_belongs_to_no_group() {
        let keys = Column::new("key".into(), [Some("b"), None, Some("a"), Some("b")]);
        let table = DataFrame::new(4, vec![keys]).unwrap();
        let counts = grouped_by(table.lazy(), [col("key")]).agg([len().alias("n")]);
        let counts = counts.collect().unwrap();
        let expected = vec![
            Column::new("key".into(), ["b", "a"]),
            Column::new("n".into(), [2u32, 1]),
        ];
        assert_eq!(counts, DataFrame::new(2, expected).unwrap());
    }

    #[test]
    fn numpy_leaves_missing_values_out() {
        let codes: Vec<&str> = AGGREGATES.iter().filter_map(Aggregate::numpy).collect();
        assert_eq!(codes.len(), 6);
        assert!(codes.iter().all(|code| code.starts_with("np.nan")));
    }
}
