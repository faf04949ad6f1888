//! What a stage before `rollout` makes: source files with their profiles, and tasks with checks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grade::CheckSpec;
use crate::id::Digest;

/// The file types that `crawl` recognises.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // each variant is the extension it is named after
pub enum FileKind {
    Csv,
    Tsv,
    Xlsx,
    Json,
    Jsonl,
    Parquet,
    Sqlite,
    Txt,
    Md,
    Html,
    Pdf,
    Docx,
    Ipynb,
    Png,
    Jpeg,
    Gif,
    Webp,
    Bmp,
    Svg,
    Wav,
    Mp3,
    Flac,
    Ogg,
    Mp4,
}

impl FileKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 24] = {
        use FileKind::*;
        [
            Csv, Tsv, Xlsx, Json, Jsonl, Parquet, Sqlite, Txt, Md, Html, Pdf, Docx, Ipynb, Png,
            Jpeg, Gif, Webp, Bmp, Svg, Wav, Mp3, Flac, Ogg, Mp4,
        ]
    };

    /// The name used in recipes, templates and columns; also the canonical extension.
    pub fn name(self) -> &'static str {
        use FileKind::*;
        match self {
            Csv => "csv",
            Tsv => "tsv",
            Xlsx => "xlsx",
            Json => "json",
            Jsonl => "jsonl",
            Parquet => "parquet",
            Sqlite => "sqlite",
            Txt => "txt",
            Md => "md",
            Html => "html",
            Pdf => "pdf",
            Docx => "docx",
            Ipynb => "ipynb",
            Png => "png",
            Jpeg => "jpeg",
            Gif => "gif",
            Webp => "webp",
            Bmp => "bmp",
            Svg => "svg",
            Wav => "wav",
            Mp3 => "mp3",
            Flac => "flac",
            Ogg => "ogg",
            Mp4 => "mp4",
        }
    }
}

/// One file that `crawl` found. Identified by its bytes; duplicates are kept once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// BLAKE3 of the bytes; the bytes lie in the run folder's content store under this id.
    pub id: Digest,
    /// A safe file name (no separators, no control characters), as the task's `./data` shows it.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Type, by content where it has a signature.
    pub kind: FileKind,
    /// Where it came from: a URL, `purl#member` (`pkg:pypi/vega-datasets@0.9.0#vega_datasets/_data/cars.json`)
    /// or a path relative to the source's folder. Never an absolute path of this machine.
    pub origin: String,
    /// Licence as found (SPDX where it could be read), for instance from package metadata.
    pub licence: Option<String>,
    /// When it was fetched, RFC 3339. Never enters an id or a shard.
    pub fetched: String,
    /// What a task writer can know of it.
    pub profile: Profile,
}

/// What a task writer can know of a file without opening it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "profile", rename_all = "lowercase")]
pub enum Profile {
    /// csv, tsv, xlsx, parquet, jsonl, sqlite, and json that is an array of flat objects.
    Table(TableProfile),
    /// txt, md, html, pdf, docx, ipynb, svg, and json of any other shape.
    Document(DocumentProfile),
    /// png, jpeg, gif, webp, bmp.
    Image(ImageProfile),
    /// wav, mp3, flac, ogg, and the sound of mp4.
    Audio(AudioProfile),
    /// The type is known but the content could not be read; the reason in words.
    Broken {
        /// Why, for people.
        reason: String,
    },
}

/// Profile of a table. For workbooks and databases: of the first sheet or table; all names are
/// in `tables`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableProfile {
    /// Data rows, header excluded.
    pub rows: u64,
    /// In file order.
    pub columns: Vec<ColumnProfile>,
    /// Rows that equal an earlier row.
    pub duplicate_rows: u64,
    /// The first rows, at most 5, values as text; `None` is a null.
    pub sample: Vec<Vec<Option<String>>>,
    /// Names of all sheets or tables, the profiled one first; empty where the format has one only.
    #[serde(default)]
    pub tables: Vec<String>,
    /// csv and tsv: the separator.
    #[serde(default)]
    pub delimiter: Option<char>,
    /// Text encoding as a Python codec name (`utf-8`, `latin-1`, `gb18030`, `utf-16`), where it is text.
    #[serde(default)]
    pub encoding: Option<String>,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColumnProfile {
    /// Exactly as in the header.
    pub name: String,
    /// What the values are.
    pub kind: ColumnKind,
    /// Missing values.
    pub nulls: u64,
    /// Distinct values that are not missing.
    pub distinct: u64,
    /// Smallest value as text (numbers by value, dates in ISO form, else by code point).
    pub min: Option<String>,
    /// Largest value as text.
    pub max: Option<String>,
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ColumnKind {
    Integer,
    Float,
    Boolean,
    /// Dates or times that parse as ISO 8601.
    Date,
    Text,
    /// Lists, structs, binary, or all missing.
    Other,
}

/// Profile of a text-like document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentProfile {
    /// Pages, where the format has them (pdf); cells for ipynb.
    pub pages: Option<u64>,
    /// ISO 639-1 code by a simple script heuristic (`en`, `zh`, …), where it can be told.
    pub language: Option<String>,
    /// Headings in order, at most 20.
    pub headings: Vec<String>,
    /// The first characters of the text, at most 500.
    pub excerpt: String,
    /// Characters of the text.
    pub characters: u64,
    /// White-space separated words of the text.
    pub words: u64,
    /// Lines of the text.
    pub lines: u64,
    /// Text encoding as a Python codec name, where the file is plain text.
    #[serde(default)]
    pub encoding: Option<String>,
    /// Tables in it (docx, html).
    #[serde(default)]
    pub tables: u64,
    /// Cells of code that are not blank (ipynb).
    #[serde(default)]
    pub code_cells: u64,
}

/// Profile of a picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageProfile {
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    /// As PIL names it: `1`, `L`, `LA`, `P`, `RGB`, `RGBA`, `CMYK`, `I;16`, …
    pub mode: String,
    /// 1 unless animated.
    pub frames: u32,
    /// Whether it equals its own mirror image (left to right): a mirror task would be vacuous.
    #[serde(default)]
    pub symmetric: bool,
    /// Whether all pixels have the same colour.
    #[serde(default)]
    pub uniform: bool,
}

/// Profile of a sound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AudioProfile {
    /// Seconds.
    pub duration: f64,
    /// Samples per second.
    pub rate: u32,
    /// Channels.
    pub channels: u32,
    /// Root mean square over all samples, full scale = 1.
    pub rms: f64,
    /// Codec, as ffmpeg names it (`pcm_s16le`, `mp3`, `flac`, `vorbis`, `aac`).
    pub codec: String,
}

/// The paper's five categories.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Category {
    Chart,
    Text,
    ImageAudio,
    Math,
    Software,
}

/// The language of a query.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Language {
    En,
    Zh,
}

/// How hard a task is meant to be; asked of models that write tasks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Difficulty {
    /// One step.
    Easy,
    /// A few steps that build on one another.
    Medium,
    /// Several steps, one of which has to be found out from the data.
    Hard,
}

impl Difficulty {
    /// Every difficulty.
    pub const ALL: [Self; 3] = [Self::Easy, Self::Medium, Self::Hard];
}

/// A file as a task uses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskFile {
    /// File name under `./data`.
    pub name: String,
    /// BLAKE3 of the bytes.
    pub id: Digest,
    /// Type.
    pub kind: FileKind,
    /// As in [`SourceFile::origin`].
    pub origin: String,
    /// As in [`SourceFile::licence`].
    pub licence: Option<String>,
}

/// One task: a query, its files, and the checks that decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Content id; see [`Task::compute_id`].
    pub id: Digest,
    /// Category of the paper.
    pub category: Category,
    /// Subcategory from the keyword dictionary.
    pub subcategory: String,
    /// Keyword from the keyword dictionary.
    pub keyword: String,
    /// Language of `query`.
    pub language: Language,
    /// What the user asks.
    pub query: String,
    /// What the agent finds under `./data`.
    pub files: Vec<TaskFile>,
    /// What only the checker sees (held-out rows), as files under `./held_out` of its sandbox.
    #[serde(default)]
    pub held_out: Vec<TaskFile>,
    /// Paths the query asks for, relative to the workspace, such as `output/result.csv`.
    pub outputs: Vec<String>,
    /// Python source run by the checker, in its own sandbox and never in the agent's: it sees
    /// `./data` (and `./held_out`) and defines the names that `checks` refer to as `expected`.
    pub reference: String,
    /// All must hold.
    pub checks: Vec<CheckSpec>,
    /// Who wrote the task.
    pub origin: TaskOrigin,
}

/// Who wrote a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum TaskOrigin {
    /// A template of the task library.
    Library {
        /// Template id.
        template: String,
        /// The values chosen for its slots (column names, numbers, words).
        slots: BTreeMap<String, serde_json::Value>,
        /// Which of the template's phrasings.
        phrasing: usize,
    },
    /// A model.
    Writer {
        /// Its name as a teacher, such as `openai:gpt-4o`.
        generator: String,
        /// How hard the task was meant to be.
        difficulty: Difficulty,
        /// Which version of the query was accepted, from 1.
        round: u32,
    },
    /// A benchmark.
    Benchmark {
        /// Its name, such as `pybench`.
        suite: String,
        /// The task's name there, such as `42`.
        index: String,
    },
}

impl Task {
    /// The id that these contents have: BLAKE3 over query, files, checks and reference.
    pub fn compute_id(&self) -> Digest {
        let files: Vec<_> = self.files.iter().map(|f| (&f.name, &f.id)).collect();
        let held_out: Vec<_> = self.held_out.iter().map(|f| (&f.name, &f.id)).collect();
        Digest::of_json(&(&self.query, files, held_out, &self.reference, &self.checks))
    }
}
