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
        #[serde(default = "file_tolerance")]
        rtol: f64,
        /// Absolute tolerance for numbers.
        #[serde(default = "file_tolerance")]
        atol: f64,
        /// Columns beyond the expected ones (such as a written index) are tolerated.
        #[serde(default)]
        extra_columns: bool,
        /// Whether the columns stand in the order of the reference.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        column_order: bool,
        /// All sheets or tables of the file; empty allows others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        only_sheets: Vec<String>,
        /// The column that is the table's primary key (sqlite).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        primary_key: Option<String>,
    },
    /// A number stated in the final message equals the reference number.
    Number {
        /// Label of the answer.
        marker: String,
        /// Reference variable.
        expected: String,
        /// Relative tolerance; not used where a precision is given.
        #[serde(default = "tolerance")]
        rtol: f64,
        /// Absolute tolerance.
        #[serde(default)]
        atol: f64,
        /// The answer is rounded to so many significant digits or is more precise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digits: Option<u8>,
        /// The answer is rounded to so many decimals or is more precise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decimals: Option<u8>,
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
        /// Relative tolerance for numbers; not used where a precision is given.
        #[serde(default = "tolerance")]
        rtol: f64,
        /// As in `Number`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digits: Option<u8>,
        /// As in `Number`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decimals: Option<u8>,
    },
    /// The values stated in the final message, separated by `|`, are the reference's: a set of texts, numbers and dates
    /// that is compared as WikiTableQuestions defines it.
    Denotation {
        /// Label of the answer.
        marker: String,
        /// Reference variable: a list of texts, or of pairs of a text and its canonical form (`["17 years", "17"]`).
        expected: String,
    },
    /// The mathematical answer stated in the final message equals the reference's, in whatever form both are written
    /// (LaTeX or plain notation).
    Symbolic {
        /// Label of the answer.
        marker: String,
        /// Reference variable: a text.
        expected: String,
    },
    /// A text file in UTF-8 equals the reference string, ignoring line endings and trailing white space.
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
        #[serde(default = "file_tolerance")]
        rtol: f64,
        /// Absolute tolerance for numbers.
        #[serde(default = "file_tolerance")]
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
        /// Channels and bit depth required, as the file's header gives them: `L`, `RGB`, `RGBA` (8 bits per channel).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// Quality required of a JPEG, read from its quantization tables. The picture is then compared with the
        /// reference after a round trip at this quality.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quality: Option<u8>,
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
        /// Whether it must repeat for ever.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        endless: bool,
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
        /// Minimum correlation of the samples, after the best shift.
        #[serde(default = "audio_correlation")]
        correlation: f64,
        /// Seconds by which the samples may be shifted.
        #[serde(default = "audio_shift")]
        shift: f64,
        /// Sample format required, as the file's header gives it and libsndfile names it (`PCM_16`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subtype: Option<String>,
    },
    /// A picture holds a QR code that decodes to the reference string.
    Qr {
        /// The output file.
        path: String,
        /// Reference variable.
        expected: String,
        /// Width of the light margin required around the code, in modules.
        #[serde(default)]
        quiet_zone: f64,
    },
    /// A PDF visibly contains the reference strings in order and, optionally, has the expected number of pages.
    Pdf {
        /// The output file.
        path: String,
        /// Reference variable: list of strings, or one list of strings for each page.
        contains: String,
        /// Reference variable: number of pages.
        #[serde(default)]
        pages: Option<String>,
        /// Whether each string is a line of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lines: bool,
    },
    /// A docx visibly contains the reference: `{"headings": [...], "paragraphs": [...], "tables": [[[cell]]]}`,
    /// or `{"parts": [{"heading": text}, {"paragraph": text}, {"table": [[cell]]}]}` in this order; each key optional.
    Docx {
        /// The output file.
        path: String,
        /// Reference variable.
        contains: String,
    },
    /// An HTML file parses and visibly contains the reference: `{"title": …, "tables": [[[cell]]], "texts": [...],
    /// "selectors": {css: count, or the texts of all such elements in order}}`.
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
        /// Whether the order of categories counts: from left to right, or from top to bottom.
        #[serde(default)]
        ordered: bool,
        /// Which way bars must stand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        orientation: Option<Orientation>,
    },
    /// A model (a pickle, run in a sandbox that holds neither reference nor checker) predicts the
    /// held-out rows better than a baseline by a margin.
    Model {
        /// The pickle: an object whose `predict` takes a DataFrame with the file's columns except the target.
        path: String,
        /// Name of the held-out table under `./held_out`.
        held_out: String,
        /// The column to predict.
        target: String,
        /// How predictions are scored.
        metric: Metric,
        /// Reference variable: the minimum score (accuracy, R²) that passes.
        least: String,
        /// Whether a model also counts that was saved by joblib or with its scaler, or trained on prepared rows or on
        /// classes encoded as numbers: for queries that say nothing of how it will be used.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        any_use: bool,
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
        /// Whether it may import the standard library only.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        standard_library: bool,
    },
    /// Functions of a Python program (called in a sandbox that holds neither reference nor checker) return what the
    /// reference says: a list that `ref.assertions` or `ref.calls_of` makes.
    Calls {
        /// The program.
        path: String,
        /// Reference variable.
        expected: String,
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

/// Which way bars stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Orientation {
    Horizontal,
    Vertical,
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

/// Files are asked for at full precision: what is left is the order of summation.
fn file_tolerance() -> f64 {
    1e-10
}

fn plot_tolerance() -> f64 {
    1e-3
}

fn image_tolerance() -> f64 {
    2.0
}

// Tolerances of lossless sound: rounding to 16 bits, and of a time to samples.
fn audio_duration() -> f64 {
    0.002
}

fn audio_level() -> f64 {
    0.05
}

fn audio_correlation() -> f64 {
    0.9999
}

fn audio_shift() -> f64 {
    0.001
}
