//! Where files come from, as a recipe names it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::task::FileKind;

/// Where files come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crawl {
    /// In order; a file that two sources have is kept for the first.
    pub sources: Vec<SourceChoice>,
    /// Sources used when none of `sources` gave a file (no network).
    #[serde(default)]
    pub fallback: Vec<SourceChoice>,
    /// Largest single file, MiB.
    #[serde(default = "Crawl::default_file_mib")]
    #[schemars(range(min = 1, max = 65_536))]
    pub file_mib: u64,
    /// All files together, MiB.
    #[serde(default = "Crawl::default_total_mib")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub total_mib: u64,
    /// Files kept per type; types not named have `default_quota`.
    #[serde(default)]
    pub quota: BTreeMap<FileKind, usize>,
    /// Files kept of each type that `quota` does not name.
    #[serde(default = "Crawl::default_quota")]
    pub default_quota: usize,
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
        /// The folder; relative to the recipe's project root.
        path: PathBuf,
        /// Patterns to leave out, as in `.gitignore`.
        #[serde(default)]
        ignore: Vec<String>,
        /// Licence of its files, where known.
        #[serde(default)]
        licence: Option<String>,
    },
    /// A list of URLs.
    Http {
        /// What to get.
        #[schemars(inner(regex(pattern = r"^https?://[^/]+")))]
        urls: Vec<String>,
        /// Licence of these files, where known.
        #[serde(default)]
        licence: Option<String>,
    },
    /// Data files inside sdists and wheels of named packages. Archives are opened, never built.
    Pypi {
        /// `name==version`, each optionally `[sdist]`: `"mutagen==1.47.0"`.
        packages: Vec<PypiPackage>,
    },
    /// Papers of arXiv. One request per three seconds, so a paper takes six to nine.
    Arxiv {
        /// With their versions: `2407.16732v2`.
        #[serde(default)]
        #[schemars(inner(regex(
            pattern = r"^([0-9]{4}\.[0-9]{4,5}|[a-z-]+(\.[A-Z]{2})?/[0-9]{7})v[1-9][0-9]*$"
        )))]
        #[schemars(extend("x-expected-items" = "a paper with its version, such as `2407.16732v2`"))]
        papers: Vec<String>,
        /// In arXiv's own query language: `cat:cs.CL AND ti:benchmark`.
        #[serde(default)]
        searches: Vec<Search>,
        /// What is taken of each paper.
        #[serde(default = "ArxivFormat::usual")]
        #[schemars(length(min = 1))]
        formats: Vec<ArxivFormat>,
    },
    /// Files of repositories on GitHub. `GITHUB_TOKEN` is used where it is set.
    Github {
        /// Each at a commit: `owner/name@<40 hexadecimal digits>`.
        #[schemars(length(min = 1))]
        #[schemars(inner(regex(
            pattern = r"^[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]{1,100}@[0-9a-f]{40}$"
        )))]
        #[schemars(extend("x-expected-items" = "`owner/name@commit`, the commit with all its 40 digits"))]
        repositories: Vec<String>,
        /// Globs of files to take; empty takes every file of a known type.
        #[serde(default)]
        include: Vec<String>,
        /// Most files of each, in the order of their paths.
        #[serde(default = "SourceChoice::usual_files")]
        #[schemars(range(min = 1, max = 10_000))]
        files: usize,
    },
    /// Files of dataset repositories on the Hugging Face Hub. `HF_TOKEN`, or the token that the Hub's own tools
    /// keep, is used where there is one.
    Hub {
        /// Each at a commit: `owner/name@<40 hexadecimal digits>`.
        #[schemars(length(min = 1))]
        #[schemars(inner(regex(
            pattern = r"^([A-Za-z0-9._-]{1,96}/)?[A-Za-z0-9._-]{1,96}@[0-9a-f]{40}$"
        )))]
        #[schemars(extend("x-expected-items" = "`owner/name@commit`, the commit with all its 40 digits"))]
        datasets: Vec<String>,
        /// Globs of files to take; empty takes every file of a known type.
        #[serde(default)]
        include: Vec<String>,
        /// Most files of each, in the order of their paths.
        #[serde(default = "SourceChoice::usual_files")]
        #[schemars(range(min = 1, max = 10_000))]
        files: usize,
    },
    /// Datasets of Kaggle. Needs `KAGGLE_USERNAME` and `KAGGLE_KEY`, or `~/.kaggle/kaggle.json`.
    Kaggle {
        /// Each at a version: `owner/name@3`.
        #[serde(default)]
        #[schemars(inner(regex(
            pattern = r"^[A-Za-z0-9-]{1,60}/[A-Za-z0-9-]{1,100}@[1-9][0-9]{0,8}$"
        )))]
        #[schemars(extend("x-expected-items" = "a dataset with its version, such as `owner/name@3`"))]
        datasets: Vec<String>,
        /// Words; what is found is taken at its current version.
        #[serde(default)]
        searches: Vec<Search>,
        /// Globs of files to take; empty takes every file of a known type.
        #[serde(default)]
        include: Vec<String>,
    },
    /// Files of records on Zenodo.
    Zenodo {
        /// Numbers of records, each of which is one version.
        #[serde(default)]
        records: Vec<u64>,
        /// In Zenodo's own query language: `title:census AND resource_type.type:dataset`.
        #[serde(default)]
        searches: Vec<Search>,
        /// Globs of files to take; empty takes every file of a known type.
        #[serde(default)]
        include: Vec<String>,
        /// Most files of each, in the order of their names.
        #[serde(default = "SourceChoice::usual_files")]
        #[schemars(range(min = 1, max = 10_000))]
        files: usize,
    },
}

impl SourceChoice {
    fn usual_files() -> usize {
        200
    }
}

/// A question to a service. What it finds changes with time; what was found is recorded with its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// What to search for.
    #[schemars(length(min = 1, max = 500))]
    pub text: String,
    /// Most results to take.
    #[schemars(range(min = 1, max = 100))]
    pub most: usize,
}

/// What is taken of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArxivFormat {
    /// The paper.
    Pdf,
    /// What it was made from: figures and data, where the authors gave any.
    Source,
}

impl ArxivFormat {
    fn usual() -> Vec<Self> {
        vec![Self::Pdf]
    }
}

/// One package of the `pypi` source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PypiPackage {
    /// `name==version`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*$"))]
    #[schemars(extend("x-expected" = "`name==version`, such as `mutagen==1.47.0`"))]
    pub requirement: String,
    /// Wheel or source distribution.
    #[serde(default)]
    pub archive: PypiArchive,
    /// SHA-256 of that archive, 64 hexadecimal digits.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    #[schemars(extend("x-expected" = "64 lower-case hexadecimal digits"))]
    pub sha256: String,
    /// Globs of members to take; empty takes every member of a known type.
    #[serde(default)]
    pub include: Vec<String>,
}

/// Which archive of a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum PypiArchive {
    #[default]
    Wheel,
    Sdist,
}
