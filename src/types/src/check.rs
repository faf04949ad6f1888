//! Declarative specifications of checks. The checker evaluates them in a fresh sandbox, never in the agent's
//! process.
//!
//! `expected` names a variable that the task's reference code defines. `path` is relative to the workspace
//! (`output/result.csv`). `marker` is the label that the query requests for the answer: the value is read
//! from the last line of the final message that starts with it (`Mean: 12.5`), so that a list of guesses does
//! not count.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One executable check. All tolerances are inclusive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "check", rename_all = "snake_case", deny_unknown_fields)]
pub enum CheckSpec {
    /// A table file (csv, tsv, xlsx, json records, jsonl, parquet, sqlite) equals the reference:
    /// a list of dicts, or a pandas DataFrame.
    Table {
        /// The output file.
        path: String,
        /// Sheet or table, where the format has several.
        #[serde(default)]
        sheet: Option<String>,
        /// Reference variable.
        expected: String,
        /// Whether the order of rows counts.
        #[serde(default)]
        rows: RowOrder,
        /// Relative tolerance for numbers.
        #[serde(default = "tolerance")]
        rtol: f64,
        /// Absolute tolerance for numbers.
        #[serde(default)]
        atol: f64,
        /// Columns beyond the expected ones (such as a written index) are tolerated.
        #[serde(default)]
        extra_columns: bool,
    },
    /// A number stated in the final message equals the reference number.
    Number {
        /// Label of the answer.
        marker: String,
        /// Reference variable.
        expected: String,
        /// Relative tolerance.
        #[serde(default = "tolerance")]
        rtol: f64,
        /// Absolute tolerance.
        #[serde(default)]
        atol: f64,
    },
    /// A comma-separated list (or a single word) stated in the final message equals the reference
    /// list of strings or numbers.
    Values {
        /// Label of the answer.
        marker: String,
        /// Reference variable.
        expected: String,
        /// Whether the order counts.
        #[serde(default)]
        ordered: bool,
        /// Relative tolerance for numbers.
        #[serde(default = "tolerance")]
        rtol: f64,
    },
    /// A text file equals the reference string, ignoring line endings and trailing white space.
    Text {
        /// The output file.
        path: String,
        /// Reference variable.
        expected: String,
    },
    /// A JSON file equals the reference value; numbers within tolerance, keys in any order.
    Json {
        /// The output file.
        path: String,
        /// Reference variable.
        expected: String,
        /// Relative tolerance for numbers.
        #[serde(default = "tolerance")]
        rtol: f64,
        /// Absolute tolerance for numbers.
        #[serde(default, skip_serializing_if = "is_zero")]
        atol: f64,
    },
    /// A picture equals the reference picture (a PIL image), pixel by pixel.
    Image {
        /// The output file.
        path: String,
        /// Reference variable.
        expected: String,
        /// Mean absolute difference allowed per channel, of 255 (lossy formats, resampling).
        #[serde(default = "image_tolerance")]
        mean_difference: f64,
        /// Compare as grayscale, so that mode `L` and a gray `RGB` are equal.
        #[serde(default)]
        gray: bool,
        /// File format required (`PNG`, `JPEG`, …), as PIL names it.
        #[serde(default)]
        format: Option<String>,
    },
    /// An animation equals the reference: a list of PIL images and frame durations.
    Frames {
        /// The output file.
        path: String,
        /// Reference variable: list of PIL images.
        expected: String,
        /// Mean absolute difference allowed per channel, of 255.
        #[serde(default = "image_tolerance")]
        mean_difference: f64,
        /// Reference variable: milliseconds per frame.
        #[serde(default)]
        duration: Option<String>,
    },
    /// A sound equals the reference: a pair of a float array (samples, channels) and a rate.
    Audio {
        /// The output file.
        path: String,
        /// Reference variable.
        expected: String,
        /// Seconds by which the duration may differ.
        #[serde(default = "audio_duration")]
        duration: f64,
        /// Decibels by which the level may differ.
        #[serde(default = "audio_level")]
        level: f64,
        /// Minimum correlation of the samples, after the best shift of at most 50 ms.
        #[serde(default = "audio_correlation")]
        correlation: f64,
    },
    /// A picture holds a QR code that decodes to the reference string.
    Qr {
        /// The output file.
        path: String,
        /// Reference variable.
        expected: String,
    },
    /// A PDF contains the reference strings in order and, optionally, has the expected number of pages.
    Pdf {
        /// The output file.
        path: String,
        /// Reference variable: list of strings.
        contains: String,
        /// Reference variable: number of pages.
        #[serde(default)]
        pages: Option<String>,
    },
    /// A docx contains the reference: `{"headings": [...], "paragraphs": [...], "tables": [[[cell]]]}`,
    /// each key optional.
    Docx {
        /// The output file.
        path: String,
        /// Reference variable.
        contains: String,
    },
    /// An HTML file parses and contains the reference: `{"title": …, "tables": [[[cell]]], "texts": [...], "selectors": {css: count}}`.
    Html {
        /// The output file.
        path: String,
        /// Reference variable.
        contains: String,
    },
    /// A picture shows a chart whose data equal the reference. The figure data that the agent's process
    /// recorded count only if the picture confirms them.
    Plot {
        /// The output file.
        path: String,
        /// What kind of chart.
        kind: PlotKind,
        /// Reference variable: list of series, each `{"name": str|None, "x": [...], "y": [...]}`;
        /// for pies `{"labels": [...], "values": [...]}` in shares; for a histogram bin edges in
        /// `x` and counts in `y`.
        expected: String,
        /// Relative tolerance for numbers.
        #[serde(default = "plot_tolerance")]
        rtol: f64,
        /// Words the title must contain, without regard to case.
        #[serde(default)]
        title: Option<String>,
        /// Words the x-axis label must contain, without regard to case.
        #[serde(default)]
        x_label: Option<String>,
        /// Words the y-axis label must contain, without regard to case.
        #[serde(default)]
        y_label: Option<String>,
        /// Whether the order of categories counts.
        #[serde(default)]
        ordered: bool,
    },
    /// A model (a pickle, run in a sandbox that holds neither reference nor checker) predicts the
    /// held-out rows better than a baseline by a margin.
    Model {
        /// The pickle: an object with `predict(DataFrame)`.
        path: String,
        /// Name of the held-out table under `./held_out`.
        held_out: String,
        /// The column to predict.
        target: String,
        /// How predictions are scored.
        metric: Metric,
        /// Reference variable: the minimum score (accuracy, R²) that passes.
        least: String,
    },
    /// A Python program (run in a sandbox that holds neither reference nor checker) gives the expected output
    /// for each standard input of the reference: list of `{"args": [...], "stdin": str, "stdout": str}`.
    Program {
        /// The program.
        path: String,
        /// Reference variable.
        expected: String,
        /// Whether the output only needs to contain the expected text instead of being equal to it.
        #[serde(default)]
        contains: bool,
    },
    /// A function of the reference, `holds(work)`, reports what is wrong; `work` is the API in the checker's
    /// `judge.py`. With `held_out`, the model at `path` is run first, as in `model`.
    Property {
        /// The function of the reference.
        holds: String,
        /// The output file or folder that the function inspects, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Name of a table under `./held_out` that the pickle at `path` predicts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held_out: Option<String>,
        /// The column to predict, which the model does not see.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
}

/// Whether the order of rows counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowOrder {
    #[default]
    Exact,
    Any,
}

/// Type of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    Bar,
    Line,
    Scatter,
    Histogram,
    Pie,
}

/// How predictions are scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    Accuracy,
    R2,
}

fn tolerance() -> f64 {
    1e-6
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn plot_tolerance() -> f64 {
    1e-3
}

fn image_tolerance() -> f64 {
    2.0
}

fn audio_duration() -> f64 {
    0.05
}

fn audio_level() -> f64 {
    0.5
}

fn audio_correlation() -> f64 {
    0.99
}
