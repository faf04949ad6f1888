//! `dataset decontaminate`: removes rows that contain tasks of a benchmark.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pybench_datasets::dataset::FILES_DIR;
use pybench_datasets::decontaminate::{
    BenchmarkIndex, Hit, MatchKind, NearDuplicates, fingerprints,
};
use pybench_datasets::{Row, RowFile, parallel, read};
use pybench_run::{RunError, write_output};
use pybench_types::trajectory::Role;
use serde::Serialize;

use super::table_cache::TableCache;
use super::{FromArgs, ToArgs, benchmark, to_run_error, without_rows, write_report};

/// Maximum number of hits of a row, unless more of them contaminate it.
const MAX_HITS: usize = 10;
/// Number of rows whose texts are searched in parallel.
const BATCH: usize = 512;

/// Arguments of `dataset decontaminate`.
#[derive(Clone, Debug, clap::Args)]
pub struct DecontaminateArgs {
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    to: ToArgs,
    /// Benchmark: a list of tasks (JSON or JSON lines), a folder with such a list and the files of the tasks, or a file
    /// of `dataset fingerprint`; here or at an address (hf://, s3://, gs://, az://); can be repeated [default: all
    /// benchmarks that pybench knows]
    #[arg(long, value_name = "PATH")]
    against: Vec<PathBuf>,
    /// Additional folder with input files of the dataset, named by their BLAKE3; here or at an address; can be repeated
    #[arg(long, value_name = "DIR")]
    files: Vec<PathBuf>,
}

impl DecontaminateArgs {
    pub(super) fn source_mut(&mut self) -> &mut PathBuf {
        &mut self.from.dataset
    }

    pub(super) fn inputs_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.against.iter_mut().chain(&mut self.files)
    }
}

/// Arguments of `dataset fingerprint`.
#[derive(Clone, Debug, clap::Args)]
pub struct FingerprintArgs {
    /// Benchmark: a list of tasks (JSON or JSON lines), or a folder with such a list and the files of the tasks; here or at
    /// an address (hf://, s3://, gs://, az://)
    benchmark: PathBuf,
    /// Name of the benchmark [default: name of the list or folder]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// File for the fingerprints
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl FingerprintArgs {
    pub(super) fn benchmark_mut(&mut self) -> &mut PathBuf {
        &mut self.benchmark
    }
}

pub(super) fn fingerprint(args: &FingerprintArgs) -> Result<String, RunError> {
    let mut tasks = benchmark::items(&args.benchmark)?;
    for (task, name) in tasks.iter_mut().zip(args.name.iter().cycle()) {
        task.suite.clone_from(name);
    }
    let text = fingerprints::write(&tasks);
    write_output(&args.out, text.as_bytes())?;
    let (tasks, bytes) = (tasks.len(), text.len());
    let out = args.out.display();
    Ok(format!("{tasks} tasks and files, {bytes} bytes: {out}\n"))
}

/// Report of the search for benchmark tasks in a dataset.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Contamination {
    /// Number of rows searched.
    pub rows: usize,
    /// Number of contaminated rows.
    pub contaminated: usize,
    /// Contaminated rows by kind of match. A row can have several.
    pub by: BTreeMap<MatchKind, usize>,
    /// Rows that are only similar to a task. They are kept.
    pub alike: usize,
    /// Files that are not on this machine, so that only their digests were compared.
    pub unseen_files: usize,
    /// The rows with hits.
    pub verdicts: Vec<RowVerdict>,
}

/// The hits of a row.
#[derive(Clone, Debug, Serialize)]
pub struct RowVerdict {
    /// Number of the row, from 0.
    pub row: usize,
    /// Id of the trajectory.
    pub trajectory: String,
    /// Whether the row is contaminated and therefore removed.
    pub contaminated: bool,
    /// The matching tasks, most serious first: all that contaminate the row, and similar ones up to ten hits in all.
    pub hits: Vec<Hit>,
}

pub(super) fn run(args: &DecontaminateArgs) -> Result<String, RunError> {
    let from = args.from.folder()?;
    args.to.check_differs_from(&from)?;
    let mut items = Vec::new();
    for path in &args.against {
        items.extend(benchmark::items(path)?);
    }
    if args.against.is_empty() {
        items = fingerprints::known_tasks();
    }
    let tasks = items.len();
    let mut stores = args.files.clone();
    stores.push(from.join(FILES_DIR));
    stores.extend(from.parent().map(|run| run.join("files")));
    let near = NearDuplicates::default();
    let found = search(&from, BenchmarkIndex::new(items), &near, &stores)?;
    if let Some(path) = &args.to.report {
        let mut lines = String::new();
        for verdict in &found.verdicts {
            let _ = writeln!(lines, "{}", serde_json::to_string(verdict)?);
        }
        write_report(path, &lines)?;
    }
    let mut text = summary(&found, tasks);
    if let Some(out) = &args.to.out {
        let against = args.against.iter().filter_map(|path| path.file_name());
        let against: Vec<_> = against.map(|name| name.to_string_lossy()).collect();
        let command = match against.is_empty() {
            true => "pybench dataset decontaminate".to_owned(),
            false => format!(
                "pybench dataset decontaminate --against {}",
                against.join(" ")
            ),
        };
        let contaminated = found.verdicts.iter().filter(|verdict| verdict.contaminated);
        let left_out = contaminated.map(|verdict| verdict.row).collect();
        text += &without_rows(&from, out, &command, (found.rows, &left_out))?;
    }
    Ok(text)
}

fn summary(found: &Contamination, tasks: usize) -> String {
    let mut text = format!(
        "compared {} rows with {tasks} benchmark tasks and files: {} contaminated, {} similar to a task but kept\n",
        found.rows, found.contaminated, found.alike
    );
    for (by, count) in &found.by {
        let by = format!("{by:?}").to_lowercase();
        let _ = writeln!(text, "{count:>8}  by {by}");
    }
    if found.unseen_files > 0 {
        let count = found.unseen_files;
        let _ = writeln!(
            text,
            "{count} files are not on this machine: only their digests were compared"
        );
    }
    for verdict in found.verdicts.iter().filter(|v| v.contaminated).take(20) {
        let hits = verdict.hits.iter().filter(|hit| hit.contaminated);
        let hits: Vec<_> = hits
            .map(|h| format!("{}: {}", h.task, h.evidence))
            .collect();
        let _ = writeln!(text, "{}  {}", &verdict.trajectory[..12], hits.join("; "));
    }
    text
}

/// Search a dataset for benchmark tasks. The dataset is read twice: first to learn common n-grams, then to search.
/// `stores` are content stores with input files.
///
/// # Errors
/// Invalid shards; I/O errors.
pub fn search(
    from: &Path,
    mut index: BenchmarkIndex,
    near: &NearDuplicates,
    stores: &[PathBuf],
) -> Result<Contamination, RunError> {
    for row in read::dataset(from).map_err(to_run_error)? {
        index.observe(&row.map_err(to_run_error)?.1.query);
    }
    let mut tables = TableCache::new(stores)?;
    let mut found = Contamination::default();
    let mut rows = read::dataset(from).map_err(to_run_error)?;
    loop {
        let some = rows
            .by_ref()
            .take(BATCH)
            .map(|row| Ok(row.map_err(to_run_error)?.1));
        let some = some.collect::<Result<Vec<Row>, RunError>>()?;
        if some.is_empty() {
            break;
        }
        let by_text = parallel::map(&some, |row| text_hits(row, &index, near));
        for (row, by_text) in some.iter().zip(by_text) {
            found.add(row, all_hits(row, by_text, &index, &mut tables));
        }
    }
    found.unseen_files = tables.missing();
    Ok(found)
}

impl Contamination {
    fn add(&mut self, row: &Row, hits: Vec<Hit>) {
        let number = self.rows;
        self.rows += 1;
        if hits.is_empty() {
            return;
        }
        let contaminated = hits.iter().any(|hit| hit.contaminated);
        self.contaminated += usize::from(contaminated);
        self.alike += usize::from(!contaminated);
        let judged = hits.iter().filter(|hit| hit.contaminated);
        let by: BTreeSet<MatchKind> = judged.map(|hit| hit.by).collect();
        for by in by {
            *self.by.entry(by).or_default() += 1;
        }
        self.verdicts.push(RowVerdict {
            row: number,
            trajectory: row.trajectory_id.to_string(),
            contaminated,
            hits,
        });
    }
}

fn text_hits(row: &Row, index: &BenchmarkIndex, near: &NearDuplicates) -> Vec<Hit> {
    let mut hits = index.query(&row.query);
    hits.extend(near.query(&row.query));
    let replies = row.messages.iter().filter(|m| m.role == Role::Assistant);
    let replies: Vec<&str> = replies.map(|m| m.content.as_str()).collect();
    hits.extend(index.answer(&replies.join("\n")));
    hits
}

/// All hits of a row, in its texts and its files, most serious first.
fn all_hits(
    row: &Row,
    by_text: Vec<Hit>,
    index: &BenchmarkIndex,
    tables: &mut TableCache,
) -> Vec<Hit> {
    let mut hits = by_text;
    let shown = row.files.iter().map(RowFile::as_task_file);
    for file in shown.chain(row.grading.held_out.iter().cloned()) {
        let by_file = index.file(&file.id);
        let same = !by_file.is_empty();
        hits.extend(by_file);
        let name = format!("x.{}", file.kind.name());
        if let Some(table) = tables.get(&file.id, &name)
            && !same
        {
            hits.extend(index.table(table));
        }
    }
    hits.sort_by(|a, b| {
        b.contaminated
            .cmp(&a.contaminated)
            .then(b.share.total_cmp(&a.share))
    });
    let contaminating = hits.iter().filter(|hit| hit.contaminated).count();
    hits.truncate(contaminating.max(MAX_HITS));
    hits
}
