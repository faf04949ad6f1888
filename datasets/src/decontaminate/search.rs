//! Looks for tasks of PyBench in rows that are read or written anyway, by the fingerprints that the program carries.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use pybench_types::id::Digest;

use super::{BenchmarkIndex, Hit, MatchKind, TextPrint, fingerprints};
use crate::{Row, RowFile};

/// Maximum number of rows that a warning lists.
const MAX_LISTED: usize = 10;

/// For looking up texts; it observes none.
static PYBENCH: LazyLock<BenchmarkIndex> = LazyLock::new(fingerprints::pybench);

/// What rows have in common with PyBench. Most rows take eight bytes.
#[derive(Clone, Debug, Default)]
pub struct BenchmarkSearch {
    /// The query of each row, hashed: what is common in a dataset depends on how many there are.
    queries: Vec<u64>,
    /// Rows with a file or a sequence of words of PyBench.
    suspects: Vec<Suspect>,
}

#[derive(Clone, Debug)]
struct Suspect {
    trajectory: Digest,
    query: TextPrint,
    by_file: Vec<Hit>,
}

/// The rows that match tasks of PyBench.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchmarkMatches {
    /// Number of rows that were compared.
    pub rows: usize,
    /// Trajectory and its most serious hit.
    pub matches: Vec<(Digest, Hit)>,
}

impl BenchmarkSearch {
    pub fn add(&mut self, row: &Row) {
        let query = PYBENCH.print(&row.query);
        let shown = row.files.iter().map(RowFile::as_task_file);
        let files = shown.chain(row.grading.held_out.iter().cloned());
        let by_file: Vec<Hit> = files.flat_map(|file| PYBENCH.file(&file.id)).collect();
        self.queries.push(query.key);
        if !(query.found.is_empty() && by_file.is_empty()) {
            self.suspects.push(Suspect {
                trajectory: row.trajectory_id.clone(),
                query,
                by_file,
            });
        }
    }

    /// Adds the rows of another part of the dataset.
    pub fn merge(&mut self, other: Self) {
        self.queries.extend(other.queries);
        self.suspects.extend(other.suspects);
    }

    /// The rows that count as contaminated, in order.
    pub fn finish(self) -> BenchmarkMatches {
        let mut index = fingerprints::pybench();
        for suspect in &self.suspects {
            index.observe_print(suspect.query.clone());
        }
        let rows = self.queries.len();
        index.observed.extend(self.queries);
        let worst = |suspect: Suspect| {
            let hits = index.look_up(&suspect.query, MatchKind::Query);
            let hits = suspect.by_file.into_iter().chain(hits);
            let hits = hits.filter(|hit| hit.contaminated);
            let worst = hits.max_by(|a, b| a.share.total_cmp(&b.share))?;
            Some((suspect.trajectory, worst))
        };
        BenchmarkMatches {
            rows,
            matches: self.suspects.into_iter().filter_map(worst).collect(),
        }
    }
}

impl BenchmarkMatches {
    /// A warning in one line; `None` if no row matches.
    pub fn warning(&self) -> Option<String> {
        let mut tasks: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, hit) in &self.matches {
            *tasks.entry(&hit.task).or_default() += 1;
        }
        let shown: Vec<&str> = tasks.keys().take(MAX_LISTED).copied().collect();
        let more = match tasks.len() > shown.len() {
            true => ", …",
            false => "",
        };
        (!self.matches.is_empty()).then(|| {
            format!(
                "{} of {} rows match tasks or files of PyBench ({}{more}): a model trained on them cannot be evaluated \
                 on PyBench",
                self.matches.len(),
                self.rows,
                shown.join(", ")
            )
        })
    }

    /// The section of the card.
    pub(crate) fn section(&self) -> String {
        let mut text = "## Benchmarks\n\n".to_owned();
        let Some(warning) = self.warning() else {
            let _ = writeln!(
                text,
                "No row matches a task or a file of PyBench, by hashes of word sequences and files. Other benchmarks were \
                 not compared."
            );
            return text;
        };
        let _ = writeln!(
            text,
            "**Warning:** {warning}. `pybench dataset decontaminate` removes them.\n\n| row | PyBench | by |\n| --- | --- | --- |"
        );
        for (trajectory, hit) in self.matches.iter().take(MAX_LISTED) {
            let by = match hit.by {
                MatchKind::File => "an identical file".to_owned(),
                _ => format!("{:.0} % of the query's word sequences", 100.0 * hit.share),
            };
            let _ = writeln!(text, "| `{}` | {} | {by} |", trajectory.short(), hit.task);
        }
        if self.matches.len() > MAX_LISTED {
            let _ = writeln!(text, "\nThe first {MAX_LISTED} are listed.");
        }
        text
    }
}
