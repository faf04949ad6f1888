//! The specification language of checks: declarative, evaluated by our own checker in a fresh
//! sandbox, never by the agent's process.
//!
//! `expected` always names a variable that the task's reference code defines. `path` is relative
//! to the workspace (`output/result.csv`). `marker` is the label the query asks the answer to use:
//! the value is read from the last line of the final message that starts with it (`Mean: 12.5`),
//! so that a list of guesses is no answer.

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
    /// A text file equals the reference string, line ends and trailing white space aside.
    Text {
        /// The output file.
        path: String,
        /// Reference variable.
        expected: String,
    },
    /// A JSON file equals the reference value; numbers within tolerance, object order free.
    Json {
        /// The output file.
        path: String,
        /// Reference variable.
        expected: String,
        /// Relative tolerance for numbers.
        #[serde(default = "tolerance")]
        rtol: f64,
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
        /// Compare as greyscale, so that mode `L` and a grey `RGB` are equal.
        #[serde(default)]
        grey: bool,
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
        /// Least correlation of the samples, after the best shift of at most 50 ms.
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
    /// A PDF has so many pages and contains the reference strings in order.
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
    /// A picture shows a chart whose data equal the reference. The recorded figure is a claim; it
    /// counts once the picture itself supports it.
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
        /// Text of the x axis label, compared likewise.
        #[serde(default)]
        x_label: Option<String>,
        /// Text of the y axis label, compared likewise.
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
        /// Reference variable: the least score (accuracy, R²) that passes.
        least: String,
    },
    /// A Python program (run in a sandbox that holds neither reference nor checker) reacts to each
    /// standard input of the reference as it says: list of `{"args": [...], "stdin": str, "stdout": str}`.
    Program {
        /// The program.
        path: String,
        /// Reference variable.
        expected: String,
        /// Whether the expected text may stand anywhere in the output instead of being all of it.
        #[serde(default)]
        contains: bool,
    },
    /// A function of the reference, `holds(work)`, says what is wrong; what `work` offers is the
    /// checker's `judge.py`. With `held_out` the model at `path` is run first, as `model` does.
    Property {
        /// The function of the reference.
        holds: String,
        /// The output file or folder it looks at, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Name of a table under `./held_out` that the pickle at `path` predicts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held_out: Option<String>,
        /// The column of it to predict, which the model does not see.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
}

/// Whether the order of rows counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum RowOrder {
    #[default]
    Exact,
    Any,
}

/// What a chart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
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
#[allow(missing_docs)]
pub enum Metric {
    Accuracy,
    R2,
}

fn tolerance() -> f64 {
    1e-6
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
