//! What a template file says, as types. `docs/task-library.md` tells authors the same in words.

use std::collections::BTreeMap;

use pybench::task::{Category, ColumnKind, FileKind, Language};
use serde::Deserialize;
use toml::Spanned;

/// A string of a template, with its place in the file.
pub type Text = Spanned<String>;

/// One template: a way to write tasks, to solve them, and to check solutions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Equals the file's stem.
    pub id: Text,
    /// Category of the paper; equals the keyword's and the folder's.
    pub category: Category,
    /// A keyword of the dictionary.
    pub keyword: Text,
    /// Python packages the expert exercises.
    pub packages: Vec<String>,
    /// Paths the query asks for.
    #[serde(default)]
    pub outputs: Vec<Text>,
    /// Conditions on the input files, at most two.
    #[serde(default, rename = "input")]
    pub inputs: Vec<Input>,
    /// Values chosen per task.
    #[serde(default)]
    pub slots: BTreeMap<String, Spanned<Slot>>,
    /// Phrasings.
    pub query: Phrasings,
    /// The expert, turn by turn.
    #[serde(rename = "turn")]
    pub turns: Vec<Turn>,
    /// The expert's answer.
    #[serde(rename = "final")]
    pub answer: Bilingual,
    /// Another correct solution.
    pub alternative: Alternative,
    /// What only the checker runs.
    pub reference: Reference,
    /// Checks, as `CheckSpec` after rendering.
    #[serde(rename = "check")]
    pub checks: Vec<Spanned<toml::Table>>,
    /// Wrong solutions.
    #[serde(rename = "mutant")]
    pub mutants: Vec<Mutant>,
}

/// A text in both languages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bilingual {
    /// English.
    pub en: Text,
    /// Chinese.
    pub zh: Text,
}

impl Bilingual {
    /// The text in that language.
    pub fn get(&self, language: Language) -> &Text {
        match language {
            Language::En => &self.en,
            Language::Zh => &self.zh,
        }
    }
}

/// Phrasings of the query, at least two per language.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phrasings {
    /// English.
    pub en: Vec<Text>,
    /// Chinese.
    pub zh: Vec<Text>,
}

impl Phrasings {
    /// The phrasings in that language.
    pub fn get(&self, language: Language) -> &[Text] {
        match language {
            Language::En => &self.en,
            Language::Zh => &self.zh,
        }
    }
}

/// Conditions on one input file. A condition on a family of files (table, document, image, audio)
/// also requires the file to be of that family.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Input {
    /// File types.
    pub kinds: Vec<FileKind>,
    /// Bytes.
    pub max_bytes: Option<u64>,
    /// Table: data rows.
    pub min_rows: Option<u64>,
    /// Table: data rows.
    pub max_rows: Option<u64>,
    /// Table: columns.
    pub min_columns: Option<usize>,
    /// Table: columns.
    pub max_columns: Option<usize>,
    /// Table: has, or has not, duplicate rows.
    pub duplicates: Option<bool>,
    /// Table: has, or has not, only one sheet or table.
    pub single_table: Option<bool>,
    /// Document: words.
    pub min_words: Option<u64>,
    /// Document: words.
    pub max_words: Option<u64>,
    /// Document: lines.
    pub min_lines: Option<u64>,
    /// Document: pages (cells of a notebook).
    pub min_pages: Option<u64>,
    /// Document: pages (cells of a notebook).
    pub max_pages: Option<u64>,
    /// Document: headings.
    pub min_headings: Option<usize>,
    /// Document: tables in it.
    pub min_tables: Option<u64>,
    /// Document: cells of code that are not blank (ipynb).
    pub min_code_cells: Option<u64>,
    /// Document: languages.
    pub languages: Vec<String>,
    /// Image: modes as PIL names them.
    pub modes: Vec<String>,
    /// Image: pixels.
    pub min_width: Option<u32>,
    /// Image: pixels.
    pub min_height: Option<u32>,
    /// Image: width times height.
    pub max_pixels: Option<u64>,
    /// Image: differs, or does not differ, from its mirror image.
    pub asymmetric: Option<bool>,
    /// Image: has, or has not, more than one colour.
    pub varied: Option<bool>,
    /// Image: frames.
    pub min_frames: Option<u32>,
    /// Image: frames.
    pub max_frames: Option<u32>,
    /// Audio: duration.
    pub min_seconds: Option<f64>,
    /// Audio: duration.
    pub max_seconds: Option<f64>,
    /// Audio: channels.
    pub min_channels: Option<u32>,
    /// Audio: channels.
    pub max_channels: Option<u32>,
    /// Audio: is, or is not, louder than silence (rms above 0.01).
    pub audible: Option<bool>,
    /// This file shares a column name with that input; bound as slot `common`.
    pub same_columns_as: Option<usize>,
    /// Rows are withheld from the agent.
    pub split: Option<Split>,
}

/// How rows of a csv are withheld.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Share of the rows held out, above 0 to below 1.
    pub fraction: f64,
    /// The slot that names the column to predict.
    pub target: String,
}

/// How the value of a slot is chosen: exactly one of `column`, `integer`, `choice`, `words`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slot {
    /// A column of an input, of one of these kinds.
    pub column: Option<Vec<ColumnKind>>,
    /// Which input `column` looks at.
    pub input: usize,
    /// Column: distinct values.
    pub min_distinct: Option<u64>,
    /// Column: distinct values.
    pub max_distinct: Option<u64>,
    /// Column: at least nine in ten of its values are distinct, so that ties are rare.
    pub mostly_distinct: bool,
    /// Column: missing values.
    pub nulls: Nulls,
    /// Column: all values above zero.
    pub positive: Option<bool>,
    /// Column: names it must not have, without regard to case.
    pub avoid: Vec<String>,
    /// Column: names it must be among, without regard to case; empty allows all.
    pub only: Vec<String>,
    /// Column: slots whose column it must not share; all column slots are distinct anyway.
    pub distinct_from: Vec<String>,
    /// An integer of this inclusive range.
    pub integer: Option<[i64; 2]>,
    /// One of these.
    pub choice: Option<Vec<toml::Value>>,
    /// A random lower-case word of so many letters.
    pub words: Option<usize>,
}

/// Whether a column has missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nulls {
    /// It must have none.
    None,
    /// It must have some.
    Some,
    /// Either.
    #[default]
    Any,
}

/// One turn of the expert.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// What the expert thinks.
    pub thought: Bilingual,
    /// What it runs.
    pub cell: Text,
    /// Name → regex with one group, applied to this turn's observation.
    #[serde(default)]
    pub read: BTreeMap<String, Text>,
    /// Whether the cell raises on purpose; the next turn repairs it.
    #[serde(default)]
    pub mistake: bool,
}

/// Another correct solution, in one cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// What it runs.
    pub cell: Text,
    /// As in [`Turn::read`].
    #[serde(default)]
    pub read: BTreeMap<String, Text>,
}

/// What only the checker runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Python source.
    pub code: Text,
}

/// A wrong solution: a piece of one cell replaced, or another answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// In words.
    pub name: Text,
    /// Which turn, from 0.
    #[serde(default)]
    pub turn: Option<usize>,
    /// What is replaced; occurs exactly once in the rendered cell.
    #[serde(default)]
    pub find: Option<Text>,
    /// By what.
    #[serde(default)]
    pub replace: Option<Text>,
    /// The final text instead of the template's.
    #[serde(default)]
    pub answer: Option<Text>,
    /// Fails on every file the template admits, so that it may serve as a deliberate fault.
    #[serde(default)]
    pub sure: bool,
}

impl Template {
    /// The id as text.
    pub fn name(&self) -> &str {
        self.id.get_ref()
    }

    /// Every regex that reads a value, with its name, of the turns before `turn`.
    pub fn reads_before(&self, turn: usize) -> impl Iterator<Item = (&String, &Text)> {
        self.turns.iter().take(turn).flat_map(|t| t.read.iter())
    }
}
