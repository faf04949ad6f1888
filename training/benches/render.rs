//! `just bench render [COUNT]`: times tokenization, loss masks and packing of conversations against TRL's data
//! preparation, on the same two cores. Reading our cache is timed separately.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use arrow::array::{
    ArrayBuilder, ArrayRef, ListBuilder, RecordBatch, StringBuilder, StructBuilder,
};
use arrow::datatypes::{DataType, Field, Fields};
use parquet::arrow::ArrowWriter;
use pybench_training::catalog;
use pybench_training_data::{
    Conversation, LengthLimit, Message, Overflow, Renderer, Source, pack, read, tokenize,
};

const CONTEXT: usize = 2048;
const SHARDS: &str = "data/runs/quickstart/dataset/data";

fn main() -> Result<()> {
    let count = match std::env::args().nth(1) {
        Some(count) => count.parse().context("COUNT is a number")?,
        None => 10_000,
    };
    let cores = two_cores()?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let scratch = tempfile::tempdir()?;
    let data = scratch.path().join("rows.parquet");
    write_rows(&data, count).context("the rows come from the shards of `just synthesize`")?;
    let model = catalog::find("smollm2-135m-instruct")?;
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    println!("{count} conversations, rows of {CONTEXT} tokens, {cores} cores, load before: {load}");
    let renderer = Renderer::load(&model)?;
    let ours = render_documents(&data, &renderer, &scratch.path().join("cache"))?;
    ours.print("pybench-train");
    let again = render_documents(&data, &renderer, &scratch.path().join("cache"))?;
    ensure!(
        again.trained == ours.trained && again.packed == ours.packed,
        "the cache differs"
    );
    let theirs = trl(&model, &data, cores)?;
    theirs.print("TRL");
    again.print("pybench-train, from its cache");
    println!("ratio to TRL: {:.2}", theirs.seconds / ours.seconds);
    // TRL cuts what is too long in the middle of a turn, we at the end of one.
    let off = (ours.trained as f64 / theirs.trained as f64 - 1.0).abs();
    ensure!(
        off < 0.05,
        "the two train different tokens: {} and {}",
        ours.trained,
        theirs.trained
    );
    Ok(())
}

struct Prepared {
    seconds: f64,
    rows: usize,
    packed: usize,
    trained: usize,
}

impl Prepared {
    fn print(&self, who: &str) {
        let Self {
            seconds,
            rows,
            packed,
            trained,
        } = self;
        let speed = *rows as f64 / seconds;
        println!(
            "{who}: {seconds:.2} s, {speed:.0} conversations/s, {packed} rows, {trained} trained tokens"
        );
    }
}

fn render_documents(data: &Path, renderer: &Renderer, cache: &Path) -> Result<Prepared> {
    let started = Instant::now();
    let fitting = LengthLimit {
        max_seq_len: CONTEXT,
        overflow: Overflow::CutAtTurn,
    };
    let store = tokenize(&Source::from_path(data), renderer, fitting, cache)?;
    let lengths: Vec<usize> = (0..store.len())
        .map(|document| store.length(document))
        .collect();
    let packed = pack(&lengths, CONTEXT, 1, 0).len();
    Ok(Prepared {
        seconds: started.elapsed().as_secs_f64(),
        rows: store.stats().records,
        packed,
        trained: store.stats().trained,
    })
}

fn trl(model: &Path, data: &Path, processes: usize) -> Result<Prepared> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity");
    let venv = Command::new(here.join("venv")).output()?;
    ensure!(
        venv.status.success(),
        "parity/venv: {}",
        String::from_utf8_lossy(&venv.stderr)
    );
    let python = PathBuf::from(String::from_utf8(venv.stdout)?.trim()).join("bin/python");
    let output = Command::new(python)
        .arg(here.join("prepare.py"))
        .args([model, data])
        .args([CONTEXT.to_string(), processes.to_string()])
        .output()?;
    if !output.status.success() {
        bail!("TRL: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
    let number = |key: &str| line[key].as_u64().map(|n| n as usize).context("a number");
    Ok(Prepared {
        seconds: line["seconds"].as_f64().context("seconds")?,
        rows: number("rows")?,
        packed: number("packed")?,
        trained: number("trained")?,
    })
}

/// Restricts this process and its children to two cores.
fn two_cores() -> Result<usize> {
    // SAFETY: the set is this function's own; the calls read and write nothing beyond it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&set);
        ensure!(
            libc::sched_getaffinity(0, size, &mut set) == 0,
            "no affinity"
        );
        let allowed = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set));
        let chosen: Vec<usize> = allowed.take(2).collect();
        let mut two: libc::cpu_set_t = std::mem::zeroed();
        chosen.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut two));
        ensure!(libc::sched_setaffinity(0, size, &two) == 0, "no affinity");
        Ok(chosen.len())
    }
}

/// Repeats the conversations of the dataset, each with a unique number, in one file.
fn write_rows(path: &Path, count: usize) -> Result<()> {
    let source = Source {
        prefix: "train-".into(),
        ..Source::from_path(SHARDS)
    };
    let shards = read(&source)?;
    let fields = ["role", "content"].map(|name| Field::new(name, DataType::Utf8, true));
    let text = || Box::new(StringBuilder::new()) as Box<dyn ArrayBuilder>;
    let rows = StructBuilder::new(Fields::from(fields.to_vec()), vec![text(), text()]);
    let mut list = ListBuilder::new(rows);
    for (number, Conversation { messages, .. }) in shards.iter().cycle().take(count).enumerate() {
        for (place, Message { role, content, .. }) in messages.iter().enumerate() {
            let content = match place {
                0 => format!("{content}\n{number}"),
                _ => content.clone(),
            };
            for (field, value) in [role, &content].into_iter().enumerate() {
                let builder = list.values().field_builder::<StringBuilder>(field);
                builder.context("a text")?.append_value(value);
            }
            list.values().append(true);
        }
        list.append(true);
    }
    let batch = RecordBatch::try_from_iter([("messages", Arc::new(list.finish()) as ArrayRef)])?;
    let mut writer = ArrowWriter::try_new(std::fs::File::create(path)?, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}
