//! The types of a template file. `docs/writing-templates.md` is the key reference for authors.

use std::collections::BTreeMap;

use pybench_types::task::{Category, ColumnKind, FileKind, Language};
use serde::Deserialize;
use toml::Spanned;

use super::requirement::{Requirement, Wording};

/// A string of a template, with its position in the file.
pub type Text = Spanned<String>;

/// One template: generates tasks, solves them and checks solutions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Template id; equals the file stem.
    pub id: Text,
    /// Category of the PyBench paper; equals that of the keyword and the folder name.
    pub category: Category,
    /// A keyword of the dictionary.
    pub keyword: Text,
    /// Python packages that the expert uses.
    pub packages: Vec<String>,
    /// Paths of the output files that the query asks for.
    #[serde(default)]
    pub outputs: Vec<Text>,
    /// Conditions on the input files, at most two.
    #[serde(default, rename = "input")]
    pub inputs: Vec<Input>,
    /// Values that are chosen for each task.
    #[serde(default)]
    pub slots: BTreeMap<String, Spanned<Slot>>,
    pub query: Phrasings,
    /// What the query asks for, by id.
    #[serde(default)]
    pub requirements: BTreeMap<String, Spanned<Requirement>>,
    /// The expert's solution, turn by turn.
    #[serde(rename = "turn")]
    pub turns: Vec<Turn>,
    /// The expert's final answer.
    #[serde(rename = "final")]
    pub answer: Bilingual,
    /// Another correct solution.
    pub alternative: Alternative,
    /// Code that only the checker runs.
    pub reference: Reference,
    #[serde(rename = "check")]
    pub checks: Vec<Spanned<Check>>,
    /// Wrong solutions that the checks must reject.
    #[serde(rename = "mutant")]
    pub mutants: Vec<Mutant>,
}

/// A text in English and, if the template has it, in Chinese.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bilingual {
    /// English.
    pub en: Text,
    /// Chinese.
    pub zh: Option<Text>,
}

impl Bilingual {
    /// The text in a language; in English if the template has no other.
    pub fn get(&self, language: Language) -> &Text {
        match (language, &self.zh) {
            (Language::Zh, Some(text)) => text,
            _ => &self.en,
        }
    }

    /// The texts in all languages.
    pub fn all(&self) -> impl Iterator<Item = &Text> {
        std::iter::once(&self.en).chain(&self.zh)
    }
}

/// Phrasings of the query, at least two per language. Chinese is optional.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phrasings {
    /// English.
    pub en: Vec<Wording>,
    /// Chinese.
    #[serde(default)]
    pub zh: Vec<Wording>,
}

impl Phrasings {
    pub fn get(&self, language: Language) -> &[Wording] {
        match language {
            Language::En => &self.en,
            Language::Zh => &self.zh,
        }
    }

    /// The wordings of all languages.
    pub fn all(&self) -> impl Iterator<Item = &Wording> {
        self.en.iter().chain(&self.zh)
    }
}

/// Conditions on one input file. A condition on a family of files (table, document, image, audio)
/// also requires the file to be of that family.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Input {
    /// Accepted file types.
    pub kinds: Vec<FileKind>,
    /// Largest file size, in bytes.
    pub max_bytes: Option<u64>,
    /// Table: minimum number of data rows.
    pub min_rows: Option<u64>,
    /// Table: maximum number of data rows.
    pub max_rows: Option<u64>,
    /// Table: minimum number of columns.
    pub min_columns: Option<usize>,
    /// Table: maximum number of columns.
    pub max_columns: Option<usize>,
    /// Table: whether it must have duplicate rows or must have none.
    pub duplicates: Option<bool>,
    /// Table: whether the file must have exactly one sheet or table, or more than one.
    pub single_table: Option<bool>,
    /// Document: minimum number of words.
    pub min_words: Option<u64>,
    /// Document: maximum number of words.
    pub max_words: Option<u64>,
    /// Document: minimum number of lines.
    pub min_lines: Option<u64>,
    /// Document: minimum number of pages (notebook: cells).
    pub min_pages: Option<u64>,
    /// Document: maximum number of pages (notebook: cells).
    pub max_pages: Option<u64>,
    /// Document: minimum number of headings.
    pub min_headings: Option<usize>,
    /// Document: minimum number of tables.
    pub min_tables: Option<u64>,
    /// Notebook: minimum number of code cells that are not blank.
    pub min_code_cells: Option<u64>,
    /// Document: accepted languages (ISO 639-1); empty accepts all.
    pub languages: Vec<String>,
    /// Image: accepted PIL modes; empty accepts all.
    pub modes: Vec<String>,
    /// Image: minimum width, in pixels.
    pub min_width: Option<u32>,
    /// Image: minimum height, in pixels.
    pub min_height: Option<u32>,
    /// Image: maximum width times height.
    pub max_pixels: Option<u64>,
    /// Image: whether it must differ from its mirror image or equal it.
    pub asymmetric: Option<bool>,
    /// Image: whether it must have more than one color or only one.
    pub varied: Option<bool>,
    /// Image: minimum number of frames.
    pub min_frames: Option<u32>,
    /// Image: maximum number of frames.
    pub max_frames: Option<u32>,
    /// Audio: minimum duration.
    pub min_seconds: Option<f64>,
    /// Audio: maximum duration.
    pub max_seconds: Option<f64>,
    /// Audio: minimum number of channels.
    pub min_channels: Option<u32>,
    /// Audio: maximum number of channels.
    pub max_channels: Option<u32>,
    /// Audio: whether it must be louder than silence (RMS above 0.01) or silent.
    pub audible: Option<bool>,
    /// This file must share a column name with input 0; the name is bound to the slot `common`.
    pub same_columns_as: Option<usize>,
    /// Withholds rows from the agent.
    pub split: Option<Split>,
}

/// A rule for withholding rows of a csv.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Share of the withheld rows, between 0 and 1 (both exclusive).
    pub fraction: f64,
    /// Name of the slot for the column to predict.
    pub target: String,
}

/// How the value of a slot is chosen: exactly one of `column`, `integer`, `choice`, `words`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slot {
    /// Chooses a column of an input that has one of these kinds.
    pub column: Option<Vec<ColumnKind>>,
    /// Column: index of the input.
    pub input: usize,
    /// Column: minimum number of distinct values.
    pub min_distinct: Option<u64>,
    /// Column: maximum number of distinct values.
    pub max_distinct: Option<u64>,
    /// Column: at least nine of ten values must be distinct, so that ties are rare.
    pub mostly_distinct: bool,
    /// Column: whether values may be missing.
    pub nulls: Nulls,
    /// Column: whether all values must be above zero.
    pub positive: Option<bool>,
    /// Column of dates: whether they must be of more than one day or of only one.
    pub several_days: Option<bool>,
    /// Column: excluded names, case-insensitive.
    pub avoid: Vec<String>,
    /// Column: allowed names, case-insensitive; empty allows all.
    pub only: Vec<String>,
    /// Column: slots whose column it must not share. Has no effect, because all column slots are distinct.
    pub distinct_from: Vec<String>,
    /// Chooses an integer of this inclusive range.
    pub integer: Option<[i64; 2]>,
    /// Chooses one of these values.
    pub choice: Option<Vec<toml::Value>>,
    /// Generates a random lower-case word with this number of letters.
    pub words: Option<usize>,
}

/// Whether a column may have missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nulls {
    /// No missing values.
    None,
    /// At least one missing value.
    Some,
    /// Both are allowed.
    #[default]
    Any,
}

/// One turn of the expert.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The expert's text before the cell.
    pub thought: Bilingual,
    /// The Python code to run.
    pub cell: Text,
    /// Values to extract: name → regex with one group, applied to this turn's observation.
    #[serde(default)]
    pub read: BTreeMap<String, Text>,
    /// Whether the cell raises on purpose; the next turn fixes it.
    #[serde(default)]
    pub mistake: bool,
}

/// Another correct solution, in one cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// The Python code to run.
    pub cell: Text,
    /// As in [`Turn::read`].
    #[serde(default)]
    pub read: BTreeMap<String, Text>,
}

/// Code that only the checker runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Python source.
    pub code: Text,
}

/// A check and the id by which requirements name it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct Check {
    pub id: Option<String>,
    /// A `CheckSpec` after rendering.
    pub spec: toml::Table,
}

impl TryFrom<toml::Table> for Check {
    type Error = &'static str;

    fn try_from(mut spec: toml::Table) -> Result<Self, Self::Error> {
        let id = match spec.remove("id") {
            None => None,
            Some(toml::Value::String(id)) => Some(id),
            Some(_) => return Err("the `id` of a check must be a string"),
        };
        Ok(Self { id, spec })
    }
}

/// A wrong solution: either a replacement in one cell, or a different answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Short description of the error.
    pub name: Text,
    /// Index of the turn whose cell is changed, from 0.
    #[serde(default)]
    pub turn: Option<usize>,
    /// The text to replace; must occur exactly once in the rendered cell.
    #[serde(default)]
    pub find: Option<Text>,
    /// The replacement.
    #[serde(default)]
    pub replace: Option<Text>,
    /// The final answer instead of the template's.
    #[serde(default)]
    pub answer: Option<Text>,
    /// The one requirement that it violates.
    #[serde(default)]
    pub violates: Option<Text>,
    /// Checks that fail with it although they do not decide that requirement.
    #[serde(default)]
    pub also: Vec<Text>,
    /// Whether it fails on every file that fits the template, so that runs can use it as a deliberate fault.
    #[serde(default)]
    pub sure: bool,
}

impl Mutant {
    /// Whether it violates this requirement.
    pub fn violates(&self, requirement: &str) -> bool {
        self.violates
            .as_ref()
            .is_some_and(|violated| violated.get_ref() == requirement)
    }
}

impl Template {
    /// The id.
    pub fn name(&self) -> &str {
        self.id.get_ref()
    }

    /// Whether it has Chinese text. English is always there.
    pub fn has_chinese(&self) -> bool {
        !self.query.zh.is_empty()
    }

    /// The languages that tasks can be in.
    pub fn languages(&self) -> &'static [Language] {
        match self.has_chinese() {
            true => &[Language::En, Language::Zh],
            false => &[Language::En],
        }
    }

    /// Whether its reference may refuse files, so that it must run before a task is made of them.
    pub fn may_refuse(&self) -> bool {
        self.has_conditions(false)
    }

    /// Whether the reference of a task may refuse files; of a task for any use or for the audit.
    pub(crate) fn has_conditions(&self, audited: bool) -> bool {
        let mut requirements = self.requirements.values();
        requirements.any(|requirement| requirement.get_ref().conditions(audited).next().is_some())
            || self.reference.code.get_ref().contains("ref.require(")
    }

    /// The position, among the checker's findings on a candidate, of what an id of a check or a path of an output names.
    pub fn finding(&self, name: &str) -> Option<usize> {
        let output = self.outputs.iter().position(|path| path.get_ref() == name);
        let check = || {
            let mut ids = self
                .checks
                .iter()
                .map(|check| check.get_ref().id.as_deref());
            Some(self.outputs.len() + ids.position(|id| id == Some(name))?)
        };
        output.or_else(check)
    }

    /// The names and regexes of all values that are read before `turn`.
    pub fn reads_before(&self, turn: usize) -> impl Iterator<Item = (&String, &Text)> {
        self.turns.iter().take(turn).flat_map(|t| t.read.iter())
    }
}
