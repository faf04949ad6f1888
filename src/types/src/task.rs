//! Output of the stages before `rollout`: source files with profiles, and tasks with checks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::CheckSpec;
use crate::id::Digest;
use crate::read_options::ReadOptions;

/// Maximum length of a query, characters.
pub const MAX_QUERY: usize = 4_000;

/// File types that `crawl` recognizes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
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
    Yaml,
    Xml,
    Log,
    Ini,
    Eml,
    Pptx,
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
    /// All kinds, in the order of the enum.
    pub const ALL: [Self; 30] = {
        use FileKind::*;
        [
            Csv, Tsv, Xlsx, Json, Jsonl, Parquet, Sqlite, Txt, Md, Html, Pdf, Docx, Ipynb, Yaml,
            Xml, Log, Ini, Eml, Pptx, Png, Jpeg, Gif, Webp, Bmp, Svg, Wav, Mp3, Flac, Ogg, Mp4,
        ]
    };

    /// The name in recipes, templates and columns, which is also the canonical extension.
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
            Yaml => "yaml",
            Xml => "xml",
            Log => "log",
            Ini => "ini",
            Eml => "eml",
            Pptx => "pptx",
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

/// A file collected by `crawl`. Files are identified by their bytes; duplicates are kept once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// BLAKE3 of the bytes, which the run folder's content store holds under this id.
    pub id: Digest,
    /// Safe file name (no separators, no control characters), as it appears in the task's `./data`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Type, detected from the content if the type has a signature.
    pub kind: FileKind,
    /// Origin: a URL, `purl#member` (`pkg:pypi/vega-datasets@0.9.0#vega_datasets/_data/cars.json`)
    /// or a path relative to the source's folder. Never an absolute path of this machine.
    pub origin: String,
    /// License as found, for example in package metadata; an SPDX id if it could be determined.
    pub license: Option<String>,
    /// Time of the download, RFC 3339. Not part of any id or shard.
    pub fetched: String,
    pub profile: Profile,
}

/// Summary of a file, for writing tasks without opening it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "profile", rename_all = "lowercase")]
pub enum Profile {
    /// csv, tsv, xlsx, parquet, jsonl, sqlite, and json that is an array of flat objects.
    Table(TableProfile),
    /// txt, md, html, pdf, docx, ipynb, yaml, xml, log, ini, eml, pptx, svg, and json of any other shape.
    Document(DocumentProfile),
    /// png, jpeg, gif, webp, bmp.
    Image(ImageProfile),
    /// wav, mp3, flac, ogg, and the sound of mp4.
    Audio(AudioProfile),
    /// The type is known, but the content could not be read.
    Broken {
        /// Readable reason.
        reason: String,
    },
}

/// Profile of a table. For workbooks and databases it describes the first sheet or table; `tables` lists all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableProfile {
    /// Number of data rows, without the header.
    pub rows: u64,
    /// Columns in file order.
    pub columns: Vec<ColumnProfile>,
    /// Number of rows that equal an earlier row.
    pub duplicate_rows: u64,
    /// The first rows, at most 5, with values as text; `None` is a null.
    pub sample: Vec<Vec<Option<String>>>,
    /// Names of all sheets or tables, the profiled one first; empty if the format has only one.
    #[serde(default)]
    pub tables: Vec<String>,
    /// Separator, for csv and tsv.
    #[serde(default)]
    pub delimiter: Option<char>,
    /// Text encoding as a Python codec name (`utf-8`, `latin-1`, `gb18030`, `utf-16`), for text formats.
    #[serde(default)]
    pub encoding: Option<String>,
    /// How the table departs from what pandas assumes.
    #[serde(default, skip_serializing_if = "ReadOptions::is_default")]
    pub read: ReadOptions,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColumnProfile {
    /// Name, exactly as in the header.
    pub name: String,
    pub kind: ColumnKind,
    /// Number of missing values.
    pub nulls: u64,
    /// Number of distinct non-missing values.
    pub distinct: u64,
    /// Smallest value as text (numbers by value, dates in ISO format, others by code point).
    pub min: Option<String>,
    /// Largest value as text.
    pub max: Option<String>,
}

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
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

/// How a text file is read, as its profile says. The query, the expert and the reference read it alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileFormat {
    /// As in [`TableProfile::encoding`] and [`DocumentProfile::encoding`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Separator, for csv and tsv.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<char>,
    /// The columns of csv and tsv in file order; `None` if they are not known, as for a part of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<ColumnFormat>>,
    /// As in [`TableProfile::read`].
    #[serde(default, skip_serializing_if = "ReadOptions::is_default")]
    pub read: ReadOptions,
}

/// How the values of a column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColumnFormat {
    pub kind: ColumnKind,
    /// Number of missing values.
    pub nulls: u64,
}

impl Profile {
    /// How the file is read; `None` if its type says it all.
    pub fn format(&self) -> Option<FileFormat> {
        let format = match self {
            Self::Table(table) => FileFormat {
                encoding: table.encoding.clone(),
                delimiter: table.delimiter,
                columns: table.delimiter.map(|_| {
                    let columns = table.columns.iter();
                    let columns = columns.map(|column| ColumnFormat {
                        kind: column.kind,
                        nulls: column.nulls,
                    });
                    columns.collect()
                }),
                read: table.read.clone(),
            },
            Self::Document(document) => FileFormat {
                encoding: document.encoding.clone(),
                ..FileFormat::default()
            },
            Self::Image(_) | Self::Audio(_) | Self::Broken { .. } => return None,
        };
        (format != FileFormat::default()).then_some(format)
    }
}

/// Profile of a text-like document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentProfile {
    /// Number of pages (pdf), slides (pptx) or cells (ipynb).
    pub pages: Option<u64>,
    /// ISO 639-1 code (`en`, `zh`, …), guessed from the script, if possible.
    pub language: Option<String>,
    /// Headings in order, at most 20.
    pub headings: Vec<String>,
    /// The first characters of the text, at most 500.
    pub excerpt: String,
    /// Number of characters of the text.
    pub characters: u64,
    /// Number of words of the text, separated by white space.
    pub words: u64,
    /// Number of lines of the text.
    pub lines: u64,
    /// Text encoding as a Python codec name, for plain text files.
    #[serde(default)]
    pub encoding: Option<String>,
    /// Number of tables (docx, html).
    #[serde(default)]
    pub tables: u64,
    /// Number of non-blank code cells (ipynb).
    #[serde(default)]
    pub code_cells: u64,
}

/// Profile of a picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageProfile {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// PIL mode: `1`, `L`, `LA`, `P`, `RGB`, `RGBA`, `CMYK`, `I;16`, …
    pub mode: String,
    /// Number of frames, 1 unless animated.
    pub frames: u32,
    /// Whether it equals its left-right mirror image, so that a mirroring task would be trivial.
    #[serde(default)]
    pub symmetric: bool,
    /// Whether all pixels have the same color.
    #[serde(default)]
    pub uniform: bool,
}

/// Profile of a sound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AudioProfile {
    /// Duration in seconds.
    pub duration: f64,
    /// Sample rate, Hz.
    pub rate: u32,
    /// Number of channels.
    pub channels: u32,
    /// Root mean square over all samples, full scale = 1.
    pub rms: f64,
    /// Codec, as ffmpeg names it (`pcm_s16le`, `mp3`, `flac`, `vorbis`, `aac`).
    pub codec: String,
}

/// The five task categories of the PyBench paper.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    Chart,
    Text,
    ImageAudio,
    Math,
    Software,
}

impl Category {
    pub const ALL: [Self; 5] = [
        Self::Chart,
        Self::Text,
        Self::ImageAudio,
        Self::Math,
        Self::Software,
    ];

    /// The name in artifacts, columns and paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chart => "chart",
            Self::Text => "text",
            Self::ImageAudio => "image_audio",
            Self::Math => "math",
            Self::Software => "software",
        }
    }
}

/// Language of a query.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    En,
    Zh,
}

/// Intended difficulty of a task; models that write tasks are asked for it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Difficulty {
    /// One step.
    Easy,
    /// A few steps that build on each other.
    Medium,
    /// Several steps, one of which must be derived from the data.
    Hard,
}

impl Difficulty {
    pub const ALL: [Self; 3] = [Self::Easy, Self::Medium, Self::Hard];

    /// As in recipes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Easy => "easy",
            Self::Medium => "medium",
            Self::Hard => "hard",
        }
    }
}

/// An input file of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskFile {
    /// File name under `./data`.
    pub name: String,
    /// BLAKE3 of the bytes.
    pub id: Digest,
    pub kind: FileKind,
    /// As in [`SourceFile::origin`].
    pub origin: String,
    /// As in [`SourceFile::license`].
    pub license: Option<String>,
    /// For a part of a crawled file (shown or held-out rows): the digest of the whole file, which `origin` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<Digest>,
    /// How the checker reads it, if its profile is known and says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<FileFormat>,
}

impl From<&SourceFile> for TaskFile {
    fn from(file: &SourceFile) -> Self {
        Self {
            name: file.name.clone(),
            id: file.id.clone(),
            kind: file.kind,
            origin: file.origin.clone(),
            license: file.license.clone(),
            derived_from: None,
            format: file.profile.format(),
        }
    }
}

/// A task: a query, its files, and the checks of its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Content id; see [`Task::compute_id`].
    pub id: Digest,
    /// Category, as in the PyBench paper.
    pub category: Category,
    /// Subcategory from the keyword dictionary.
    pub subcategory: String,
    /// Keyword from the keyword dictionary.
    pub keyword: String,
    pub language: Language,
    /// The user's request.
    pub query: String,
    /// Files that the agent finds in `./data`.
    pub files: Vec<TaskFile>,
    /// Files that only the checker sees, in `./held_out` of its sandbox (held-out rows).
    #[serde(default)]
    pub held_out: Vec<TaskFile>,
    /// Output paths that the query requests, relative to the workspace, such as `output/result.csv`.
    pub outputs: Vec<String>,
    /// Python source that the checker runs in its own sandbox, never in the agent's. It sees `./data` (and
    /// `./held_out`) and defines the variables that `checks` name in `expected`.
    pub reference: String,
    /// Checks, all of which must pass.
    pub checks: Vec<CheckSpec>,
    pub origin: TaskOrigin,
}

/// Origin of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum TaskOrigin {
    /// A template of the task library.
    Library {
        /// Template id.
        template: String,
        /// The values chosen for its slots (column names, numbers, words).
        slots: BTreeMap<String, serde_json::Value>,
        /// Index of the template's phrasing.
        phrasing: usize,
    },
    /// Composed of operations on a table.
    Composed {
        /// The operations by name, joined by `>`.
        skeleton: String,
        /// What the expert solves it from: operations with arguments, and how the answer is given.
        plan: serde_json::Value,
        /// The wordings of its query: `filter_above/en/1` is the second one in English of an operation that has
        /// several, `style/en/3` the fourth way to put a request.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        wordings: Vec<String>,
        /// Whether names and values of its files are invented.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        renamed: bool,
    },
    /// Written by a model.
    Writer {
        /// Name of the model, such as `openai:gpt-4o`.
        generator: String,
        /// Intended difficulty.
        difficulty: Difficulty,
        /// Version of the query that was accepted, from 1.
        round: u32,
    },
    /// A row of a task set that the recipe names.
    #[serde(rename = "task_set")]
    TaskSet {
        /// Name of the set.
        set: String,
        /// Name of the row in the set: its id, or `line-12`.
        row: String,
        /// License of the question and the answer.
        license: String,
        /// Where the set comes from.
        source: String,
    },
    /// A task of a benchmark.
    Benchmark {
        /// Name of the benchmark, such as `pybench`.
        suite: String,
        /// Name of the task in the benchmark, such as `42`.
        index: String,
    },
}

impl Task {
    /// The id of this content: BLAKE3 over query, files, checks and reference.
    pub fn compute_id(&self) -> Digest {
        let files: Vec<_> = self.files.iter().map(|f| (&f.name, &f.id)).collect();
        let held_out: Vec<_> = self.held_out.iter().map(|f| (&f.name, &f.id)).collect();
        Digest::of_json(&(&self.query, files, held_out, &self.reference, &self.checks))
    }
}
