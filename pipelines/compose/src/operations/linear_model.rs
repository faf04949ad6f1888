//! Operations that end a task with a model in a file: a linear regression on up to three columns.

use polars::prelude::*;

use crate::argument::{Argument, Arguments};
use crate::draw::Draw;
use crate::frame::Class;
use crate::least_squares::{Fit, fit, floats};
use crate::operation::{Operation, PREDICTORS, Role};

/// Share of the draws that give such a task: it suits most tables, of which many suit no other ending with a file.
const SHARE: f64 = 0.15;
/// Most predictors.
const MAX_PREDICTORS: i64 = 3;
/// Rows for each coefficient.
const ROWS_FOR_EACH: usize = 10;
/// Sizes of the predictors for which all solvers find the same digits, and how far from zero they are for their spread.
const SIZES: std::ops::RangeInclusive<f64> = 1e-3..=1e6;
const MAX_DISTANCE: f64 = 300.0;
/// As in [`Fit`]: predictors that each count, and a model that is not exact, which one could guess.
const MIN_INDEPENDENCE: f64 = 0.05;
const MIN_WEIGHT: f64 = 0.05;
const MIN_UNEXPLAINED: f64 = 1e-3;
/// An intercept that is smaller than this share of what it is the difference of has fewer digits.
const MIN_INTERCEPT: f64 = 1e-3;

const WRITES_JSON: &str = "with open($path, \"w\", encoding=\"utf-8\") as file:\n    json.dump(model, file, ensure_ascii=False)";
const WRITES_PICKLE: &str = "with open($path, \"wb\") as file:\n    pickle.dump(model, file)";

/// A regression with an intercept, or one through the origin.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    with_intercept: bool,
    en: &'static str,
    zh: &'static str,
    /// The estimator of scikit-learn, and one that scales first.
    estimators: [&'static str; 2],
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "linear_model",
        with_intercept: true,
        en: "with an intercept",
        zh: "含截距",
        estimators: [
            "LinearRegression()",
            "make_pipeline(StandardScaler(), LinearRegression())",
        ],
    },
    Kind {
        name: "origin_model",
        with_intercept: false,
        en: "through the origin, without an intercept",
        zh: "不含截距，过原点",
        estimators: [
            "LinearRegression(fit_intercept=False)",
            "make_pipeline(MaxAbsScaler(), LinearRegression(fit_intercept=False))",
        ],
    },
];

pub(super) fn operations() -> Vec<Operation> {
    let of = |kind: Kind| [as_json(kind), as_pickle(kind), as_joblib(kind)];
    KINDS.into_iter().flat_map(of).collect()
}

impl Kind {
    fn operation(self, format: &str) -> Operation {
        Operation::new(
            format!("{}_{format}", self.name),
            Role::Output,
            move |draw| self.arguments(draw),
            move |a, t| self.terms(a, t),
        )
        .counted_as("linear regression")
    }

    fn arguments(self, draw: &mut Draw<'_>) -> Option<Arguments> {
        if draw.share(0.0, 1.0) >= SHARE {
            return None;
        }
        let column = draw.full_number()?;
        let mut predictors: Vec<String> = Vec::new();
        for _ in 0..draw.count(1, MAX_PREDICTORS) {
            let other = draw.pick(Class::Number, |draw, name| {
                let is_new = name != column && !predictors.iter().any(|known| known == name);
                is_new && draw.distinct(name) >= 5 && draw.nulls(name) == 0
            });
            predictors.extend(other);
        }
        let arguments = Arguments::new([
            ("column", Argument::Column(column)),
            (PREDICTORS, Argument::Columns(predictors)),
        ]);
        self.is_clear(&arguments, &draw.frame.data)
            .then_some(arguments)
    }

    /// Whether all solvers find the same model, in which each predictor counts.
    fn is_clear(self, a: &Arguments, data: &DataFrame) -> bool {
        let names = a.names(PREDICTORS);
        let columns: Option<Vec<Vec<f64>>> = names.iter().map(|name| floats(data, name)).collect();
        let (Some(columns), Some(target)) = (columns, floats(data, a.name("column"))) else {
            return false;
        };
        let enough = !names.is_empty() && data.height() >= ROWS_FOR_EACH * (names.len() + 1);
        let sizes = columns.iter().all(|values| is_of_usual_size(values));
        let found = fit(&columns, &target, self.with_intercept);
        enough
            && sizes
            && found.is_some_and(|found| {
                found.independence >= MIN_INDEPENDENCE
                    && found.unexplained >= MIN_UNEXPLAINED
                    && found.weights.iter().all(|weight| *weight >= MIN_WEIGHT)
                    && has_digits(&found, &columns, &target)
            })
    }

    fn fitted(self, a: &Arguments, data: &DataFrame) -> Option<Fit> {
        let names = a.names(PREDICTORS).iter();
        let columns: Option<Vec<Vec<f64>>> = names.map(|name| floats(data, name)).collect();
        fit(
            &columns?,
            &floats(data, a.name("column"))?,
            self.with_intercept,
        )
    }

    /// The terms of the model: an intercept, whose name is missing, and the coefficient of each predictor.
    fn terms(self, a: &Arguments, t: LazyFrame) -> LazyFrame {
        let data = t.clone().collect().ok();
        let found = data.and_then(|data| table(&self.fitted(a, &data)?, a.names(PREDICTORS)));
        match found {
            Some(terms) => terms.lazy(),
            // A result that is no number ends the evaluation.
            None => t.select([lit(f64::NAN).alias("value")]),
        }
    }

    /// The code that fits an estimator as `model`.
    fn fits(self, estimator: usize) -> String {
        let imports = match estimator {
            0 => "",
            _ if self.with_intercept => {
                "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler\n"
            }
            _ => {
                "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import MaxAbsScaler\n"
            }
        };
        format!(
            "from sklearn.linear_model import LinearRegression\n{imports}model = {}.fit($t[$predictors], $t[$column])",
            self.estimators[estimator]
        )
    }
}

/// Whether the values are neither tiny nor huge, and not all far from zero for their spread.
fn is_of_usual_size(values: &[f64]) -> bool {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = |apart: f64| values.iter().map(|x| (x - apart).powi(2)).sum::<f64>() / count;
    let (size, spread) = (square(0.0).sqrt(), square(mean).sqrt());
    SIZES.contains(&size) && mean.abs() <= MAX_DISTANCE * spread
}

/// Whether the intercept, if there is one, is no difference of nearly equal numbers.
fn has_digits(found: &Fit, columns: &[Vec<f64>], target: &[f64]) -> bool {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let terms = found.coefficients.iter().zip(columns);
    let terms: f64 = terms.map(|(b, values)| (b * mean(values)).abs()).sum();
    let least = MIN_INTERCEPT * (terms + mean(target).abs());
    found
        .intercept
        .is_none_or(|intercept| intercept.abs() > least)
}

fn table(found: &Fit, names: &[String]) -> Option<DataFrame> {
    let terms: Vec<Option<String>> = found
        .intercept
        .map(|_| None)
        .into_iter()
        .chain(names.iter().cloned().map(Some))
        .collect();
    let values = found.intercept.iter().chain(&found.coefficients).copied();
    let values: Vec<f64> = values.collect();
    let columns = vec![
        Column::new("term".into(), terms),
        Column::new("value".into(), values),
    ];
    DataFrame::new(columns[0].len(), columns).ok()
}

/// Coefficients as an object.
fn as_json(kind: Kind) -> Operation {
    let (first, keys) = match kind.with_intercept {
        true => (
            "\"intercept\": float(fitted.intercept_), ",
            "the key \"intercept\" (a number) and the key \"coefficients\" (an object with the coefficient of each predictor under the name of its column)",
        ),
        false => (
            "",
            "the only key \"coefficients\" (an object with the coefficient of each predictor under the name of its column)",
        ),
    };
    let keys_zh = match kind.with_intercept {
        true => "键intercept为截距，键coefficients为对象，以列名为键、以系数为值",
        false => "唯一的键coefficients为对象，以列名为键、以系数为值",
    };
    let solved = match kind.with_intercept {
        true => {
            "columns = [np.ones(len($t)), *($t[name].to_numpy(dtype=float) for name in $predictors)]\n\
             solution = np.linalg.lstsq(np.column_stack(columns), $t[$column].to_numpy(dtype=float), rcond=None)[0].tolist()\n\
             model = {\"intercept\": solution[0], \"coefficients\": dict(zip($predictors, solution[1:]))}"
        }
        false => {
            "solution = np.linalg.lstsq($t[$predictors].to_numpy(dtype=float), $t[$column].to_numpy(dtype=float), rcond=None)[0]\n\
             model = {\"coefficients\": dict(zip($predictors, solution.tolist()))}"
        }
    };
    let estimated = match kind.with_intercept {
        true => {
            "design = sm.add_constant($t[$predictors].to_numpy(dtype=float))\n\
             solution = sm.OLS($t[$column].to_numpy(dtype=float), design).fit().params.tolist()\n\
             model = {\"intercept\": solution[0], \"coefficients\": dict(zip($predictors, solution[1:]))}"
        }
        false => {
            "solution = sm.OLS($t[$column].to_numpy(dtype=float), $t[$predictors].to_numpy(dtype=float)).fit().params.tolist()\n\
             model = {\"coefficients\": dict(zip($predictors, solution))}"
        }
    };
    kind.operation("json")
        .pandas(format!(
            "import json\n\
             from sklearn.linear_model import LinearRegression\n\
             fitted = {}.fit($t[$predictors], $t[$column])\n\
             model = {{{first}\"coefficients\": dict(zip($predictors, fitted.coef_.tolist()))}}\n{WRITES_JSON}",
            kind.estimators[0]
        ))
        .pandas(format!("import json\n{solved}\n{WRITES_JSON}"))
        .pandas(format!(
            "import json\nimport statsmodels.api as sm\n{estimated}\n{WRITES_JSON}"
        ))
        .en([
            &format!(
                "fit a linear regression by ordinary least squares ({}) that predicts $column from $predictors, and save it as a JSON object with {keys}",
                kind.en
            ),
            &format!(
                "regress $column on $predictors (ordinary least squares, {}) and write the fitted model to JSON: an object with {keys}",
                kind.en
            ),
        ])
        .zh([&format!(
            "以$predictors为自变量、$column为因变量做普通最小二乘线性回归（{}），把模型保存为JSON对象：{keys_zh}",
            kind.zh
        )])
}

/// A pickle of something that predicts.
fn as_pickle(kind: Kind) -> Operation {
    let scaled = format!(
        "import pickle\nfrom pathlib import Path\n{}\nPath($path).write_bytes(pickle.dumps(model))",
        kind.fits(1)
    );
    saved(kind, "pkl", "with pickle", "用pickle")
        .pandas(format!("import pickle\n{}\n{WRITES_PICKLE}", kind.fits(0)))
        .pandas(scaled)
}

/// As [`as_pickle`], saved with joblib.
fn as_joblib(kind: Kind) -> Operation {
    saved(kind, "joblib", "with joblib", "用joblib")
        .pandas(format!(
            "import joblib\n{}\njoblib.dump(model, $path)",
            kind.fits(0)
        ))
        .pandas(format!(
            "import joblib\n{}\njoblib.dump(model, $path, compress=3)",
            kind.fits(1)
        ))
}

fn saved(kind: Kind, format: &str, with: &str, with_zh: &str) -> Operation {
    kind.operation(format)
        .en([
            &format!(
                "fit a linear regression by ordinary least squares ({}) that predicts $column from $predictors, and save the fitted model {with}: an object whose predict method takes a DataFrame with these predictors as its columns, in this order",
                kind.en
            ),
            &format!(
                "train a model that predicts $column from $predictors by ordinary least squares ({}) and save it {with}; its predict method will be given a DataFrame with the columns $predictors only, in this order",
                kind.en
            ),
        ])
        .zh([&format!(
            "以$predictors为自变量、$column为因变量做普通最小二乘线性回归（{}），{with_zh}保存训练好的模型：其predict方法接受一个DataFrame，列依次为这些自变量",
            kind.zh
        )])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::related::related;

    /// Whether a model with an intercept is clear, of `y` on these columns of the first rows.
    fn is_clear(predictors: &[&str], rows: usize) -> bool {
        let names = predictors.iter().map(|name| (*name).to_owned()).collect();
        let arguments = Arguments::new([
            ("column", Argument::Column("y".into())),
            (PREDICTORS, Argument::Columns(names)),
        ]);
        KINDS[0].is_clear(&arguments, &related(rows))
    }

    #[test]
    fn a_model_is_asked_for_if_all_solvers_find_the_same() {
        assert!(is_clear(&["x", "z"], 60));
        assert!(!is_clear(&["x", "z"], 20), "too few rows");
        assert!(!is_clear(&["x", "twice"], 60), "dependent predictors");
        assert!(!is_clear(&["far"], 60), "a predictor far from zero");
        assert!(
            !is_clear(&["exact", "x"], 60),
            "a predictor that hardly counts"
        );
        assert!(!is_clear(&[], 60), "no predictor");
    }
}
