//! What is measured of ours: each phase in a process of its own.

#![allow(unreachable_pub)]

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use pybench_datasets::decontaminate::BenchmarkIndex;
use pybench_datasets::dedup::{DedupField, DedupSettings, Deduplicator};
use pybench_datasets::parallel;
use pybench_datasets::shards::{self, ShardSettings};
use pybench_datasets::survey::Survey;
use pybench_datasets::tokens::TokenCounter;
use pybench_datasets::{Row, read, samples};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rivals::Result;
use crate::rows;

/// Shards made at a time; their rows are made before, while no clock runs.
const SHARDS: usize = 4;

/// Lines of texts read at a time.
const LINES: usize = 2048;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Phase {
    Write,
    Read,
    Statistics,
    Minhash,
    Decontaminate,
    /// Near duplicates among as many queries as there are rows, made one by one
    Queries,
}

impl Phase {
    /// Those that read what [`Phase::Write`] leaves.
    pub const READING: [Self; 4] = [
        Self::Read,
        Self::Statistics,
        Self::Minhash,
        Self::Decontaminate,
    ];

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Statistics => "statistics",
            Self::Minhash => "minhash",
            Self::Decontaminate => "decontaminate",
            Self::Queries => "queries",
        }
    }

    /// For the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Write => "records to shards",
            Self::Read => "shards to records",
            Self::Statistics => "statistics of shards",
            Self::Minhash => "near duplicates of code, MinHash",
            Self::Decontaminate => "decontamination against 143 tasks",
            Self::Queries => "near duplicates of queries, making them included",
        }
    }
}

/// What a phase took; theirs say the same.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub seconds: f64,
    /// Of all cores together.
    pub cpu: f64,
    /// Most memory of the process, and of those it started.
    pub peak_mib: f64,
    /// What came of it.
    #[serde(default)]
    pub found: Value,
}

impl Measured {
    pub fn time(&self) -> String {
        format!("{:.2} s | {:.2} s", self.seconds, self.cpu)
    }

    pub fn memory(&self) -> String {
        format!("{:.0} MiB", self.peak_mib)
    }
}

/// What counts of the time.
#[derive(Default)]
struct Clock {
    wall: Duration,
    cpu: f64,
}

impl Clock {
    fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (begun, used) = (Instant::now(), cpu()?);
        let made = work()?;
        self.wall += begun.elapsed();
        self.cpu += cpu()? - used;
        Ok(made)
    }
}

/// Seconds that this process had of all cores so far.
fn cpu() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let mut ticks = 0.0;
    for field in after_name.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<f64>()?;
    }
    Ok(ticks / 100.0) // Linux counts in hundredths wherever it runs
}

/// Do one.
pub fn run(phase: Phase, place: &Path, count: usize) -> Result<Measured> {
    let mut clock = Clock::default();
    let found = match phase {
        Phase::Write => write(place, count, &mut clock)?,
        Phase::Read => clock.time(|| read(place))?,
        Phase::Statistics => clock.time(|| statistics(place))?,
        Phase::Minhash => clock.time(|| minhash(place))?,
        Phase::Decontaminate => clock.time(|| decontaminate(place))?,
        Phase::Queries => clock.time(|| queries(place, count))?,
    };
    Ok(Measured {
        seconds: clock.wall.as_secs_f64(),
        cpu: clock.cpu,
        peak_mib: peak_mib()?,
        found,
    })
}

fn peak_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next());
    Ok(kib.ok_or("no VmHWM")?.parse::<f64>()? / 1024.0)
}

/// Rows that a place holds, where it is whole.
pub fn written(place: &Path) -> Option<usize> {
    fs::read_to_string(place.join("rows")).ok()?.parse().ok()
}

/// Shards; and beside them, while no clock runs, the texts that MinHash and decontamination read, in two files, and
/// the benchmark.
fn write(place: &Path, count: usize, clock: &mut Clock) -> Result<Value> {
    let whole = place.join("rows");
    if whole.exists() {
        fs::remove_file(&whole)?;
    }
    for folder in ["data", "texts", "benchmark"] {
        let folder = place.join(folder);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
    }
    let halves = ["texts/0.jsonl", "texts/1.jsonl"].map(|name| File::create(place.join(name)));
    let [first, second] = halves;
    let mut halves = [BufWriter::new(first?), BufWriter::new(second?)];
    let mut tasks = BufWriter::new(File::create(place.join("benchmark/tasks.jsonl"))?);
    for item in rows::benchmark() {
        let line = json!({"id": item.index, "query": item.query, "text": item.answers.join("\n")});
        writeln!(tasks, "{line}")?;
    }
    tasks.flush()?;
    let settings = ShardSettings::default();
    let all = count.div_ceil(settings.shard_rows);
    let (mut written, mut bytes) = (0, 0);
    let some = SHARDS * settings.shard_rows;
    for start in (0..count).step_by(some) {
        let made: Vec<Row> = (start..(start + some).min(count)).map(rows::row).collect();
        for (row, number) in made.iter().zip(start..) {
            let half = &mut halves[usize::from(number >= count / 2)];
            writeln!(half, "{}", text(row, number))?;
        }
        let scratch = tempfile::tempdir_in(place)?;
        let shards =
            clock.time(|| Ok(shards::write(scratch.path(), "train", &made, &settings)?))?;
        for shard in shards {
            bytes += fs::metadata(&shard)?.len();
            let name = format!("data/train-{written:05}-of-{all:05}.parquet");
            fs::rename(shard, place.join(name))?;
            written += 1;
        }
    }
    halves.iter_mut().try_for_each(Write::flush)?;
    fs::write(whole, count.to_string())?;
    Ok(json!({"bytes": bytes}))
}

/// A document as everybody reads it: `text` is what is compared.
fn text(row: &Row, number: usize) -> Value {
    json!({
        "id": number.to_string(),
        "query": row.query,
        "text": row.cell_texts().join("\n"),
        "copy": rows::is_copy(number),
        "planted": rows::is_planted(number),
    })
}

fn read(place: &Path) -> Result<Value> {
    let (mut rows, mut bytes) = (0, 0);
    for row in read::dataset(place)? {
        let (_, row) = row?;
        rows += 1;
        bytes += row.bytes();
    }
    Ok(json!({"rows": rows, "bytes": bytes}))
}

fn statistics(place: &Path) -> Result<Value> {
    let counter = TokenCounter::Cl100k;
    let mut survey = Survey::new(&counter);
    samples::read(place, &mut |sample| {
        survey.add(&sample, &counter);
        Ok(())
    })?;
    Ok(json!({
        "rows": survey.instructions, "turns": survey.turns, "categories": survey.categories,
        "tokens": survey.tokens_each.round(),
    }))
}

/// A line of the texts.
#[derive(Deserialize)]
struct Text {
    query: String,
    text: String,
    copy: bool,
    planted: bool,
}

/// The lines of the texts, some at a time.
fn lines(place: &Path, mut take: impl FnMut(&[String]) -> Result<()>) -> Result<()> {
    let mut some = Vec::new();
    for name in ["texts/0.jsonl", "texts/1.jsonl"] {
        let file = File::open(place.join(name))?;
        for line in BufReader::with_capacity(1 << 20, file).lines() {
            some.push(line?);
            if some.len() >= LINES {
                take(&some)?;
                some.clear();
            }
        }
    }
    take(&some)
}

fn parse(line: &str) -> Result<Text> {
    Ok(serde_json::from_str(line)?)
}

fn minhash(place: &Path) -> Result<Value> {
    let scratch = tempfile::tempdir_in(place)?;
    let begun = Instant::now();
    let mut found = Deduplicator::new(scratch.path(), DedupSettings::of(DedupField::Code))?;
    let mut copies = HashSet::new();
    let mut rows = 0;
    lines(place, |lines| {
        for text in parallel::map(lines, |line| parse(line)) {
            let text = text?;
            if text.copy {
                copies.insert(rows);
            }
            found.add(&text.text, 0)?;
            rows += 1;
        }
        Ok(())
    })?;
    let signed = begun.elapsed();
    let clusters = found.finish()?;
    let left_out = (0..rows).filter(|row| !clusters.keeps(*row));
    let (right, wrong): (Vec<_>, Vec<_>) = left_out.partition(|row| copies.contains(row));
    Ok(json!({
        "copies": copies.len(), "found": right.len(), "wrongly": wrong.len(),
        "seconds of signatures": signed.as_secs_f64(),
    }))
}

/// Queries that nothing holds but the deduplicator.
fn queries(place: &Path, count: usize) -> Result<Value> {
    fs::create_dir_all(place)?;
    let scratch = tempfile::tempdir_in(place)?;
    let begun = Instant::now();
    let mut found = Deduplicator::new(scratch.path(), DedupSettings::of(DedupField::Query))?;
    let numbers: Vec<usize> = (0..count).collect();
    for some in numbers.chunks(LINES) {
        for query in parallel::map(some, |number| rows::short_query(*number)) {
            found.add(&query, 0)?;
        }
    }
    let signed = begun.elapsed();
    let clusters = found.finish()?;
    let left_out = (0..count).filter(|row| !clusters.keeps(*row));
    let (right, wrong): (Vec<_>, Vec<_>) = left_out.partition(|row| rows::is_copy(*row));
    let copies = (0..count).filter(|row| rows::is_copy(*row)).count();
    Ok(json!({
        "copies": copies, "found": right.len(), "wrongly": wrong.len(),
        "seconds of signatures": signed.as_secs_f64(),
    }))
}

/// Twice through the texts, as `just dataset decontaminate` does: what queries have in common, then each.
fn decontaminate(place: &Path) -> Result<Value> {
    let mut index = BenchmarkIndex::new(rows::benchmark());
    lines(place, |lines| {
        for text in parallel::map(lines, |line| parse(line)) {
            index.observe(&text?.query);
        }
        Ok(())
    })?;
    let judge = |line: &String| -> Result<(bool, bool)> {
        let text = parse(line)?;
        let mut hits = index.query(&text.query);
        hits.extend(index.answer(&text.text));
        Ok((hits.iter().any(|hit| hit.contaminated), text.planted))
    };
    let (mut planted, mut right, mut wrong) = (0, 0, 0);
    lines(place, |lines| {
        for judged in parallel::map(lines, judge) {
            let (found, is_planted) = judged?;
            planted += usize::from(is_planted);
            right += usize::from(found && is_planted);
            wrong += usize::from(found && !is_planted);
        }
        Ok(())
    })?;
    Ok(json!({"planted": planted, "found": right, "wrongly": wrong}))
}
