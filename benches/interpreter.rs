//! `just bench interpreter`: sessions of ours against nbclient with ipykernel, as PyBench's own agent uses
//! it, and against a cold `python -c` per cell; all in one run, as ratios.
//!
//! `--quick` takes small counts, to try the benchmark itself.

#[path = "rivals.rs"]
mod rivals;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use pybench_interpreter::InterpreterChoice;
use pybench_interpreter::{Interpreter, Session, SessionSpec};
use pybench_interpreter_containers::interpreter;
use rivals::{Result, Rivals, load};

/// The first result: pandas is imported and works.
const CELL: &str = "import pandas as pd\nint(pd.Series([1, 2]).sum())";

#[tokio::main]
async fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let ours = interpreter(&InterpreterChoice::default())?;
    let rivals = Rivals::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/benches")))?;
    let cores = std::thread::available_parallelism()?.get();
    println!(
        "interpreter: {} · {cores} cores · load {}",
        ours.environment(),
        load()?
    );
    println!("\n| | ours | nbclient + ipykernel | cold `python -c` | ours / nbclient |");
    println!("| --- | --- | --- | --- | --- |");
    let (many, few) = if quick { (10, 3) } else { (100, 10) };
    first_result(&*ours, &rivals, many, few).await?;
    cells(&*ours, &rivals, if quick { 50 } else { 500 }).await?;
    sessions(ours.clone(), &rivals, cores, many, 2 * few).await?;
    let counts: &[usize] = if quick { &[1, 5] } else { &[1, 20, 100, 500] };
    for count in counts {
        memory(&*ours, &rivals, *count).await?;
    }
    Ok(())
}

/// One line of the table: a figure of ours against theirs.
fn row(name: &str, unit: &str, ours: f64, theirs: Option<f64>, cold: Option<f64>) {
    let shown = |value: Option<f64>| value.map_or("—".to_owned(), |v| format!("{v:.4} {unit}"));
    let ratio = theirs.map_or("—".to_owned(), |theirs| format!("{:.4}", ours / theirs));
    let (own, theirs, cold) = (shown(Some(ours)), shown(theirs), shown(cold));
    println!("| {name} | {own} | {theirs} | {cold} | {ratio} |");
}

async fn begin(interpreter: &dyn Interpreter) -> Result<Box<dyn Session>> {
    let mut session = interpreter.start(SessionSpec::default()).await?;
    run_cell(&mut *session).await?;
    Ok(session)
}

async fn run_cell(session: &mut dyn Session) -> Result<()> {
    match session.execute(CELL).await?.error {
        None => Ok(()),
        Some(error) => Err(error.traceback.into()),
    }
}

async fn first_result(
    interpreter: &dyn Interpreter,
    rivals: &Rivals,
    many: usize,
    few: usize,
) -> Result<()> {
    begin(interpreter).await?.close().await?; // the page cache is warm for all
    let (mut ours, mut stands, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..many {
        let begun = Instant::now();
        let mut session = interpreter.start(SessionSpec::default()).await?;
        stands.push(begun.elapsed().as_secs_f64());
        run_cell(&mut *session).await?;
        ours.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        session.close().await?;
        ends.push(begun.elapsed().as_secs_f64());
    }
    rivals.seconds(&["first", "1"])?;
    let theirs = rivals.seconds(&["first", &few.to_string()])?;
    let cold = rivals.seconds(&["cold", &few.to_string()])?;
    for (name, share) in [
        ("first result with pandas, median", 0.5),
        ("the same, p99", 0.99),
    ] {
        let (theirs, cold) = (quantile(&theirs, share), quantile(&cold, share));
        row(name, "s", quantile(&ours, share), Some(theirs), Some(cold));
    }
    row(
        "of it, until the session stands, median",
        "s",
        quantile(&stands, 0.5),
        None,
        None,
    );
    row(
        "and to end a session, median",
        "s",
        quantile(&ends, 0.5),
        None,
        None,
    );
    Ok(())
}

async fn cells(interpreter: &dyn Interpreter, rivals: &Rivals, count: usize) -> Result<()> {
    let mut session = begin(interpreter).await?;
    let begun = Instant::now();
    for _ in 0..count {
        session.execute("x = 1").await?;
    }
    let ours = count as f64 / begun.elapsed().as_secs_f64();
    session.close().await?;
    let theirs = count as f64 / rivals.seconds(&["cells", &count.to_string()])?[0];
    let cold = 1.0 / quantile(&rivals.seconds(&["cold", "3"])?, 0.5);
    row(
        "cells per second, one session",
        "/s",
        ours,
        Some(theirs),
        Some(cold),
    );
    Ok(())
}

async fn sessions(
    interpreter: Arc<dyn Interpreter>,
    rivals: &Rivals,
    cores: usize,
    many: usize,
    few: usize,
) -> Result<()> {
    let begun = Instant::now();
    let runs = (0..many).map(|_| {
        let interpreter = interpreter.clone();
        async move {
            begin(&*interpreter)
                .await?
                .close()
                .await
                .map_err(Into::into)
        }
    });
    let ended: Vec<Result<()>> = futures::stream::iter(runs)
        .buffer_unordered(2 * cores)
        .collect()
        .await;
    ended.into_iter().collect::<Result<()>>()?;
    let per_core = |count: usize, seconds: f64| count as f64 / seconds / cores as f64;
    let ours = per_core(many, begun.elapsed().as_secs_f64());
    let width = (2 * cores).to_string();
    let theirs = rivals.seconds(&["sessions", &few.to_string(), &width])?[0];
    let theirs = per_core(few, theirs);
    row(
        "sessions per second and core",
        "/s",
        ours,
        Some(theirs),
        None,
    );
    Ok(())
}

/// Private memory of all processes that came to be, per session; nbclient's up to 100 sessions.
async fn memory(interpreter: &dyn Interpreter, rivals: &Rivals, count: usize) -> Result<()> {
    let before = private_memory()?;
    let mut live = Vec::new();
    for _ in 0..count {
        live.push(begin(interpreter).await?);
    }
    let ours = growth(&before)? / count as f64;
    for session in live {
        session.close().await?;
    }
    let theirs = match count <= 100 {
        true => {
            let before = private_memory()?;
            let held = rivals.hold(count)?;
            let theirs = growth(&before)? / count as f64;
            held.end()?;
            Some(theirs)
        }
        false => None,
    };
    let name = format!("private memory per session, {count} live");
    row(&name, "MiB", ours, theirs, None);
    Ok(())
}

/// MiB in processes that are not in `before`.
fn growth(before: &HashMap<u32, f64>) -> Result<f64> {
    let now = private_memory()?.into_iter();
    Ok(now
        .filter(|(pid, _)| !before.contains_key(pid))
        .map(|(_, mib)| mib)
        .sum())
}

/// MiB that each Python process has for itself.
fn private_memory() -> Result<HashMap<u32, f64>> {
    let mut found = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let pid = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        // Processes come and go while we look.
        if let (Some(pid), Ok(text)) = (pid, std::fs::read_to_string(path.join("smaps_rollup"))) {
            found.insert(pid, private_mib(&text));
        }
    }
    Ok(found)
}

fn private_mib(smaps_rollup: &str) -> f64 {
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<f64>().ok();
    let private = smaps_rollup
        .lines()
        .filter(|line| line.starts_with("Private_"));
    private.filter_map(kib).sum::<f64>() / 1024.0
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    sorted[((last as f64) * share).round() as usize]
}
