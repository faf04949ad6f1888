//! Rows that are tasks of a benchmark.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pybench::id::Digest;
use pybench::run::{ContentStore, RunError};
use pybench::task::TaskFile;
use pybench::trajectory::Role;
use pybench_datasets::dataset::FILES;
use pybench_datasets::decontaminate::{By, Hit, Index, Table};
use pybench_datasets::rewrite::rewrite;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::{Row, RowFile, parallel, read};
use serde::Serialize;

use super::{FromArgs, ToArgs, about, bad, benchmark, put};

/// Largest file looked into.
const FILE: u64 = 256 << 20;
/// Rows whose texts are looked at together, on all cores.
const AT_ONCE: usize = 512;

/// Leave out rows that are tasks of a benchmark: by file, by table, by the words of query and answer.
#[derive(Clone, Debug, clap::Args)]
pub struct DecontaminateArgs {
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    to: ToArgs,
    /// A benchmark: a list of tasks (JSON or JSON lines), or a folder with one and the files of the
    /// tasks; may be given several times
    #[arg(long, value_name = "PATH", required = true)]
    against: Vec<PathBuf>,
    /// More folders with files under their BLAKE3
    #[arg(long, value_name = "DIR")]
    files: Vec<PathBuf>,
}

/// What was found in a dataset.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Contamination {
    /// Rows looked at.
    pub rows: usize,
    /// Rows that are tasks of a benchmark.
    pub contaminated: usize,
    /// Of these, by what they were recognised; one may be by several.
    pub by: BTreeMap<By, usize>,
    /// Rows that merely resemble a task; they are kept.
    pub alike: usize,
    /// Files that rows name and that are not on this machine: only their digests were compared.
    pub unseen_files: usize,
    /// Every hit, by row.
    pub verdicts: Vec<Verdict>,
}

/// What was found in a row.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Number of the row, from 0.
    pub row: usize,
    /// Its trajectory.
    pub trajectory: String,
    /// Whether it is left out.
    pub contaminated: bool,
    /// Why.
    pub hits: Vec<Hit>,
}

pub(super) fn run(args: &DecontaminateArgs) -> Result<String, RunError> {
    let from = args.from.folder()?;
    args.to.apart_from(&from)?;
    let mut items = Vec::new();
    for path in &args.against {
        items.extend(benchmark::items(path)?);
    }
    let tasks = items.len();
    let mut stores = args.files.clone();
    stores.push(from.join(FILES));
    stores.extend(from.parent().map(|run| run.join("files")));
    let found = search(&from, Index::new(items), &stores)?;
    if let Some(path) = &args.to.report {
        let mut lines = String::new();
        for verdict in &found.verdicts {
            let _ = writeln!(lines, "{}", serde_json::to_string(verdict)?);
        }
        put(path, &lines)?;
    }
    let mut text = tell(&found, tasks);
    if let Some(out) = &args.to.out {
        let against = args.against.iter().filter_map(|path| path.file_name());
        let against: Vec<_> = against.map(|name| name.to_string_lossy()).collect();
        let command = format!(
            "pybench dataset decontaminate --against {}",
            against.join(" ")
        );
        let kept = found.rows - found.contaminated;
        let about = about(&from, &command, found.rows, kept);
        let out_rows: std::collections::HashSet<usize> = found
            .verdicts
            .iter()
            .filter(|verdict| verdict.contaminated)
            .map(|verdict| verdict.row)
            .collect();
        let keep = |row: usize, _: &Row| !out_rows.contains(&row);
        let written = rewrite(&from, out, keep, &ShardSettings::default(), &about);
        let digest = written.map_err(bad)?.digest;
        let _ = writeln!(text, "{}: {digest}", out.display());
    }
    Ok(text)
}

fn tell(found: &Contamination, tasks: usize) -> String {
    let mut text = format!(
        "{} rows against {tasks} tasks and files: {} are of a benchmark, {} merely resemble a task\n",
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
            "{count} files are not here: only their digests were compared"
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

/// Look at every row of a dataset, twice: what all queries have, then what each has of a benchmark.
///
/// # Errors
/// What is wrong with the shards.
pub fn search(
    from: &Path,
    mut index: Index,
    stores: &[PathBuf],
) -> Result<Contamination, RunError> {
    for row in read::dataset(from).map_err(bad)? {
        index.observe(&row.map_err(bad)?.1.query);
    }
    let mut tables = Tables::new(stores)?;
    let mut found = Contamination::default();
    let mut rows = read::dataset(from).map_err(bad)?;
    loop {
        let some = rows
            .by_ref()
            .take(AT_ONCE)
            .map(|row| Ok(row.map_err(bad)?.1));
        let some = some.collect::<Result<Vec<Row>, RunError>>()?;
        if some.is_empty() {
            break;
        }
        let by_text = parallel::map(&some, |row| texts(row, &index));
        for (row, by_text) in some.iter().zip(by_text) {
            found.add(row, hits(row, by_text, &index, &mut tables));
        }
    }
    found.unseen_files = tables.unseen();
    Ok(found)
}

impl Contamination {
    /// The next row, and what it has of tasks.
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
        let by: BTreeSet<By> = judged.map(|hit| hit.by).collect();
        for by in by {
            *self.by.entry(by).or_default() += 1;
        }
        self.verdicts.push(Verdict {
            row: number,
            trajectory: row.trajectory_id.to_string(),
            contaminated,
            hits,
        });
    }
}

/// What the words of a row have of tasks.
fn texts(row: &Row, index: &Index) -> Vec<Hit> {
    let mut hits = index.query(&row.query);
    let replies = row.messages.iter().filter(|m| m.role == Role::Assistant);
    let replies: Vec<&str> = replies.map(|m| m.content.as_str()).collect();
    hits.extend(index.answer(&replies.join("\n")));
    hits
}

/// What a row has of tasks by its words and its files, the gravest first.
fn hits(row: &Row, by_text: Vec<Hit>, index: &Index, tables: &mut Tables) -> Vec<Hit> {
    let mut hits = by_text;
    let shown = row.files.iter().map(RowFile::as_task_file);
    for file in shown.chain(row.grading.held_out.iter().cloned()) {
        let by_file = index.file(&file.id);
        let same = !by_file.is_empty();
        hits.extend(by_file);
        if let Some(table) = tables.get(&file)
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
    hits.truncate(10);
    hits
}

/// Tables behind digests, each read once.
struct Tables {
    stores: Vec<ContentStore>,
    known: HashMap<Digest, Option<Table>>,
    missing: usize,
}

impl Tables {
    fn new(stores: &[PathBuf]) -> Result<Self, RunError> {
        let there = stores.iter().filter(|store| store.is_dir());
        Ok(Self {
            stores: there
                .map(|s| ContentStore::open(s))
                .collect::<Result<_, _>>()?,
            known: HashMap::new(),
            missing: 0,
        })
    }

    fn get(&mut self, file: &TaskFile) -> Option<&Table> {
        if !self.known.contains_key(&file.id) {
            let paths = self.stores.iter().map(|store| store.path(&file.id));
            let small = |path: &PathBuf| {
                std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= FILE)
            };
            let bytes = paths
                .filter(small)
                .find_map(|path| std::fs::read(path).ok());
            self.missing += usize::from(bytes.is_none());
            let name = format!("x.{}", file.kind.name());
            let table = bytes.and_then(|bytes| benchmark::table(&name, &bytes));
            self.known.insert(file.id.clone(), table);
        }
        self.known.get(&file.id)?.as_ref()
    }

    fn unseen(&self) -> usize {
        self.missing
    }
}
