//! Looks for tasks of the known benchmarks in rows, by the fingerprints that the program carries.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::{FileKind, TaskFile};
use serde::Serialize;

use super::{
    BenchmarkIndex, Hit, MIN_REPORTED_SHARE, MatchKind, Table, TextPrint,
    fingerprints::{self, known_titles, title},
};
use crate::Row;
use crate::row::FILES_DIR;

/// Maximum number of rows or tasks that a warning lists.
const MAX_LISTED: usize = 10;
/// Maximum size of a file that is searched for a table, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// For looking up texts and files; it observes none.
static KNOWN: LazyLock<BenchmarkIndex> = LazyLock::new(fingerprints::known);

/// Reads a file of this kind as a table; `None` for any other file.
pub type ReadTable = fn(FileKind, &[u8]) -> Option<Table>;

/// Compares input files with those of the known benchmarks. Each file is read once.
#[derive(Default)]
pub struct FileSearch {
    stores: Vec<ContentStore>,
    read_table: Option<ReadTable>,
    known: Mutex<HashMap<Digest, FileHits>>,
}

/// The hits of a file; `None` if it could not be read, so that only its digest was compared.
type FileHits = Option<Arc<[Hit]>>;

impl FileSearch {
    /// Compares the files of these stores. Those that do not exist are left out.
    ///
    /// # Errors
    /// A store cannot be opened.
    pub fn new(stores: &[PathBuf], read_table: ReadTable) -> Result<Self, RunError> {
        let existing = stores.iter().filter(|store| store.is_dir());
        let stores = existing.map(|store| ContentStore::open(store));
        Ok(Self {
            stores: stores.collect::<Result<_, _>>()?,
            read_table: Some(read_table),
            known: Mutex::default(),
        })
    }

    /// Compares the input files of a dataset: those that it ships, and those of the run that it lies in.
    ///
    /// # Errors
    /// As [`FileSearch::new`].
    pub fn of_dataset(folder: &Path, read_table: ReadTable) -> Result<Self, RunError> {
        let mut stores = vec![folder.join(FILES_DIR)];
        stores.extend(folder.parent().map(|run| run.join("files")));
        Self::new(&stores, read_table)
    }

    fn hits(&self, file: &TaskFile) -> Vec<Hit> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = KNOWN.file(&file.id);
        if !same.is_empty() {
            return same;
        }
        let found = known().get(&file.id).cloned();
        // Two threads may read the same file.
        let found = found.unwrap_or_else(|| {
            let read = self.read(file);
            known().insert(file.id.clone(), read.clone());
            read
        });
        found.map_or(Vec::new(), |hits| hits.to_vec())
    }

    fn read(&self, file: &TaskFile) -> FileHits {
        if !is_table(file.kind) {
            return Some(Arc::default());
        }
        let small = |store: &&ContentStore| {
            fs::metadata(store.path(&file.id))
                .is_ok_and(|found| found.is_file() && found.len() <= MAX_FILE_BYTES)
        };
        let mut bytes = self
            .stores
            .iter()
            .filter(small)
            .flat_map(|store| store.get(&file.id));
        let (read_table, bytes) = (self.read_table?, bytes.next()?);
        let table = read_table(file.kind, &bytes);
        Some(table.map_or_else(Arc::default, |table| KNOWN.table(&table).into()))
    }

    /// Number of tables of which only the digests were compared.
    fn unread(&self) -> usize {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().filter(|hits| hits.is_none()).count()
    }
}

fn is_table(kind: FileKind) -> bool {
    use FileKind::{Csv, Json, Jsonl, Parquet, Sqlite, Tsv, Xlsx};
    matches!(kind, Csv | Tsv | Xlsx | Json | Jsonl | Parquet | Sqlite)
}

/// What a row shows of itself to a search.
pub struct RowPrint {
    trajectory: Digest,
    query: TextPrint,
    /// Whether the query has enough n-grams of any task.
    is_suspect: bool,
    by_file: Vec<Hit>,
}

impl RowPrint {
    /// The print of a row with this trajectory, query and input files.
    pub fn new(
        trajectory: &Digest,
        query: &str,
        inputs: impl IntoIterator<Item = TaskFile>,
        files: &FileSearch,
    ) -> Self {
        let query = KNOWN.print(query);
        let candidates = KNOWN.texts_with(&query.found, MIN_REPORTED_SHARE, |_| true);
        let inputs = inputs.into_iter();
        Self {
            trajectory: trajectory.clone(),
            is_suspect: !candidates.is_empty(),
            query,
            by_file: inputs.flat_map(|file| files.hits(&file)).collect(),
        }
    }

    /// The print of a row of a dataset.
    pub fn of(row: &Row, files: &FileSearch) -> Self {
        Self::new(&row.trajectory_id, &row.query, row.all_files(), files)
    }
}

/// Searches rows for tasks of the known benchmarks. Most rows take some bytes.
pub struct BenchmarkSearch {
    /// Counts how common the n-grams are.
    index: BenchmarkIndex,
    rows: usize,
    /// Rows that may match, by number.
    suspects: Vec<(usize, RowPrint)>,
}

/// A row that matches a task of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchmarkMatch {
    /// Number of the row among those that were compared, from 0.
    pub row: usize,
    pub trajectory: Digest,
    /// Its most serious hit.
    #[serde(flatten)]
    pub hit: Hit,
}

/// What happened to the rows that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchAction {
    /// They were left out of the dataset.
    Dropped,
    /// They are in the dataset, because its maker allowed it.
    Allowed,
    /// They are in the dataset.
    #[default]
    Reported,
}

/// The rows that match tasks of the known benchmarks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchmarkMatches {
    /// Number of rows that were compared.
    pub rows: usize,
    /// In the order of the rows.
    pub matches: Vec<BenchmarkMatch>,
    /// Number of tables of which only the digests were compared.
    pub unread: usize,
    pub action: MatchAction,
}

impl Default for BenchmarkSearch {
    fn default() -> Self {
        Self {
            index: KNOWN.for_another_dataset(),
            rows: 0,
            suspects: Vec::new(),
        }
    }
}

impl BenchmarkSearch {
    pub fn add(&mut self, row: RowPrint) {
        self.index.observe_print(row.query.clone());
        if row.is_suspect || !row.by_file.is_empty() {
            self.suspects.push((self.rows, row));
        }
        self.rows += 1;
    }

    /// The rows that count as contaminated, in order.
    pub fn finish(self, files: &FileSearch) -> BenchmarkMatches {
        let worst = |(row, suspect): (usize, RowPrint)| {
            let hits = self.index.look_up(&suspect.query, MatchKind::Query);
            let hits = suspect.by_file.into_iter().chain(hits);
            let hits = hits.filter(|hit| hit.contaminated);
            let hit = hits.max_by(|a, b| a.share.total_cmp(&b.share))?;
            Some(BenchmarkMatch {
                row,
                trajectory: suspect.trajectory,
                hit,
            })
        };
        BenchmarkMatches {
            rows: self.rows,
            matches: self.suspects.into_iter().filter_map(worst).collect(),
            unread: files.unread(),
            action: MatchAction::default(),
        }
    }
}

impl BenchmarkMatch {
    /// The benchmark.
    pub fn suite(&self) -> &str {
        let task = self.hit.task.split_once('/');
        task.map_or(&self.hit.task, |(suite, _)| suite)
    }

    /// How the row was recognized, in words.
    pub fn reason(&self) -> String {
        self.hit.by.reason(self.hit.share)
    }
}

impl BenchmarkMatches {
    /// Number of matching rows by suite.
    pub fn by_suite(&self) -> BTreeMap<&str, usize> {
        let mut suites = BTreeMap::new();
        for found in &self.matches {
            *suites.entry(found.suite()).or_default() += 1;
        }
        suites
    }

    /// Titles of the suites with matches and their numbers of rows: `PyBench 4, QRData 1`.
    pub fn counts(&self) -> String {
        let suites = self.by_suite().into_iter();
        let counts = suites.map(|(suite, rows)| format!("{} {rows}", title(suite)));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// A warning in one line; `None` if no row matches.
    pub fn warning(&self) -> Option<String> {
        let suites: Vec<&str> = self.by_suite().into_keys().map(title).collect();
        (!self.matches.is_empty()).then(|| {
            format!(
                "{} of {} rows match tasks or files of benchmarks ({}): a model trained on them cannot be evaluated on {}",
                self.matches.len(),
                self.rows,
                self.counts(),
                suites.join(", ")
            )
        })
    }

    /// The rows in one line each: trajectory, task, reason. Only the first ones are listed.
    pub fn lines(&self) -> Vec<String> {
        let line = |found: &BenchmarkMatch| {
            let (trajectory, task) = (found.trajectory.short(), &found.hit.task);
            format!("{trajectory}  {task} by {}", found.reason())
        };
        let mut lines: Vec<String> = self.matches.iter().take(MAX_LISTED).map(line).collect();
        if self.matches.len() > MAX_LISTED {
            lines.push(format!("… and {} more", self.matches.len() - MAX_LISTED));
        }
        lines
    }

    /// The section of the card.
    pub fn section(&self) -> String {
        let mut text = "## Benchmarks\n\n".to_owned();
        if self.rows == 0 {
            text += "The rows were not compared with benchmarks.\n";
            return text;
        }
        let _ = writeln!(
            text,
            "{} rows were compared with {} by hashes of word sequences, files and tables (fingerprints `{}`). Other \
             benchmarks were not compared.",
            self.rows,
            known_titles(),
            fingerprints::known_digest().short(),
        );
        if self.unread > 0 {
            let _ = writeln!(
                text,
                "Of {} tables only the digests were compared, because the files were not there.",
                self.unread
            );
        }
        text.push('\n');
        let Some(warning) = self.warning() else {
            text += "No row matches.\n";
            return text;
        };
        let _ = match self.action {
            MatchAction::Dropped => writeln!(
                text,
                "{} of them match tasks or files of a benchmark ({}) and were left out.",
                self.matches.len(),
                self.counts(),
            ),
            MatchAction::Allowed => writeln!(
                text,
                "**Warning:** {warning}. They were kept on purpose (`--allow-contaminated`)."
            ),
            MatchAction::Reported => writeln!(
                text,
                "**Warning:** {warning}. `pybench dataset decontaminate` removes them."
            ),
        };
        text += "\n| row | benchmark task | by |\n| --- | --- | --- |\n";
        for found in self.matches.iter().take(MAX_LISTED) {
            let (trajectory, task) = (found.trajectory.short(), &found.hit.task);
            let _ = writeln!(text, "| `{trajectory}` | {task} | {} |", found.reason());
        }
        if self.matches.len() > MAX_LISTED {
            let _ = writeln!(text, "\nThe first {MAX_LISTED} are listed.");
        }
        text
    }
}
