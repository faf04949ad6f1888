//! Writes the rows of a split dataset, several shards in parallel. Each row is made, scrubbed, counted, written and
//! dropped: at most a batch of rows per shard is in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use pybench_types::held_out::Unseen;
use pybench_types::id::{CompactDigest, Digest};
use pybench_types::task::TaskFile;

use crate::row_hashes::{DatasetDigest, row_digest};
use crate::row_source::RowSource;
use crate::scrub::{ScrubReport, Scrubber};
use crate::shards::{ShardSettings, SplitShards, concurrency};
use crate::split::{Assignment, Split};
use crate::stats::Stats;
use crate::{DatasetError, Row, RowFile};

/// What was written.
pub(crate) struct WrittenRows {
    pub(crate) train: Stats,
    pub(crate) test: Stats,
    pub(crate) digest: Digest,
    pub(crate) scrub: ScrubReport,
    /// Input files of the written rows, by digest.
    pub(crate) files: BTreeMap<Digest, TaskFile>,
}

/// Writes the shards of both splits to the folder. Without test rows there is no test shard.
pub(crate) fn write(
    folder: &Path,
    rows: &impl RowSource,
    split: &Split,
    scrubber: &Scrubber,
    settings: &ShardSettings,
) -> Result<WrittenRows, DatasetError> {
    let writer = RowWriter {
        rows,
        split,
        scrubber,
    };
    let jobs = jobs(folder, split, settings)?;
    let next = AtomicUsize::new(0);
    let counted: Mutex<BTreeMap<usize, RowCounts>> = Mutex::default();
    let work = || -> Result<(), DatasetError> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else {
                return Ok(());
            };
            let counts = writer.run(job)?;
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.insert(number, counts);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..concurrency().min(jobs.len()))
            .map(|_| scope.spawn(work))
            .collect();
        // Propagate a panic of a worker.
        let joined = workers.into_iter().map(|worker| {
            let ended = worker.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect::<Result<(), _>>()
    })?;
    let counted = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(total(&jobs, counted))
}

/// Rows that one thread handles: those of a shard, or the ones in no split, which are only scrubbed and counted.
struct Job {
    assignment: Assignment,
    /// Numbers of the rows.
    rows: Vec<u32>,
    /// The shard, unless the rows are dropped.
    shard: Option<(std::sync::Arc<SplitShards>, usize)>,
}

fn jobs(folder: &Path, split: &Split, settings: &ShardSettings) -> Result<Vec<Job>, DatasetError> {
    let mut jobs = Vec::new();
    for (assignment, name) in [(Assignment::Train, "train"), (Assignment::Test, "test")] {
        let rows = numbers(split, assignment);
        if rows.is_empty() && assignment == Assignment::Test {
            continue;
        }
        let shards = SplitShards::new(folder, name, rows.len(), settings)?;
        let shards = std::sync::Arc::new(shards);
        for index in 0..shards.count {
            let own = rows.iter().skip(index * settings.shard_rows);
            jobs.push(Job {
                assignment,
                rows: own.take(settings.shard_rows).copied().collect(),
                shard: Some((shards.clone(), index)),
            });
        }
    }
    jobs.push(Job {
        assignment: Assignment::Dropped,
        rows: numbers(split, Assignment::Dropped),
        shard: None,
    });
    Ok(jobs)
}

fn numbers(split: &Split, assignment: Assignment) -> Vec<u32> {
    let rows = split.assignments.iter().zip(0..);
    rows.filter_map(|(of_row, number)| (*of_row == assignment).then_some(number))
        .collect()
}

struct RowWriter<'a, R> {
    rows: &'a R,
    split: &'a Split,
    scrubber: &'a Scrubber,
}

impl<R: RowSource> RowWriter<'_, R> {
    fn run(&self, job: &Job) -> Result<RowCounts, DatasetError> {
        let mut counts = RowCounts::default();
        let (mut scrub, held_out) = (ScrubReport::default(), &self.split.held_out);
        let rows = job.rows.iter().map(|number| {
            let mut row = self.rows.row(*number as usize)?;
            let found = self.scrubber.row(&mut row);
            scrub.rows += usize::from(found.total() > 0);
            scrub.found.merge(&found);
            row.held_out_template = held_out.contains(&row.template);
            row.unseen = unseen(&row, job.assignment).to_owned();
            Ok(row)
        });
        match &job.shard {
            Some((shards, index)) => {
                let _: PathBuf = shards.stream(*index, rows, |batch| counts.add(batch))?;
            }
            None => rows.into_iter().try_for_each(|row| row.map(drop))?,
        }
        counts.scrub = scrub;
        Ok(counts)
    }
}

/// The value of [`Row::unseen`] of a row with its held-out part, which that column names until then.
fn unseen(row: &Row, assignment: Assignment) -> &'static str {
    if assignment != Assignment::Test {
        return "";
    }
    let template = row.held_out_template.then_some(Unseen::Template);
    let all = [Unseen::named(&row.unseen), template];
    let strongest = all.into_iter().flatten().min();
    strongest.unwrap_or(Unseen::Files).name()
}

/// What is counted over the rows of a job.
#[derive(Default)]
struct RowCounts {
    /// Without licenses, which are counted over all files of a split.
    stats: Stats,
    digests: Vec<CompactDigest>,
    scrub: ScrubReport,
    /// Input files, as in the first row with each.
    files: BTreeMap<Digest, TaskFile>,
    /// Licenses of the files that the model sees.
    licenses: BTreeMap<CompactDigest, Option<String>>,
}

impl RowCounts {
    fn add(&mut self, rows: &[Row]) {
        let mut stats = Stats::of(rows);
        stats.licenses.clear();
        self.stats.merge(&stats);
        for row in rows {
            self.digests.push((&row_digest(row)).into());
            for file in &row.files {
                let license = self.licenses.entry((&file.blake3).into());
                license.or_insert_with(|| file.license.clone());
            }
            let shown = row.files.iter().map(RowFile::as_task_file);
            for file in shown.chain(row.grading.held_out.iter().cloned()) {
                self.files.entry(file.id.clone()).or_insert(file);
            }
        }
    }
}

/// Sums the counts in the order of the rows.
fn total(jobs: &[Job], counted: BTreeMap<usize, RowCounts>) -> WrittenRows {
    let (mut digest, mut files) = (DatasetDigest::default(), BTreeMap::new());
    let (mut train, mut test) = (SplitCounts::default(), SplitCounts::default());
    let mut scrub = ScrubReport::default();
    for (number, counts) in counted {
        scrub.rows += counts.scrub.rows;
        scrub.found.merge(&counts.scrub.found);
        let (name, of_split) = match jobs[number].assignment {
            Assignment::Train => ("train", &mut train),
            Assignment::Test => ("test", &mut test),
            Assignment::Dropped => continue,
        };
        for row in counts.digests {
            digest.add(name, &row.into());
        }
        for (id, file) in counts.files {
            files.entry(id).or_insert(file);
        }
        of_split.stats.merge(&counts.stats);
        for (id, license) in counts.licenses {
            of_split.licenses.entry(id).or_insert(license);
        }
    }
    WrittenRows {
        train: train.stats(),
        test: test.stats(),
        digest: digest.digest(),
        scrub,
        files,
    }
}

#[derive(Default)]
struct SplitCounts {
    stats: Stats,
    licenses: BTreeMap<CompactDigest, Option<String>>,
}

impl SplitCounts {
    fn stats(mut self) -> Stats {
        for license in self.licenses.into_values() {
            let license = license.unwrap_or_else(|| "not stated".into());
            *self.stats.licenses.entry(license).or_default() += 1;
        }
        self.stats
    }
}
