//! `just bench data`: writing and reading shards, statistics, near duplicates and decontamination of synthetic
//! trajectories against what people use in Python, each in a process of its own, all in one run, as ratios.
//!
//! `--rows N` takes another number than 100,000; `--only PHASE` does one phase alone, and may be repeated; `--ours`
//! leaves the rivals out and measures a tenth of the rows first, so that it shows how time and memory grow;
//! `--place DIR` keeps what is written, some 6 KB a row, and takes what is there of as many rows.

#[path = "data/phases.rs"]
mod phases;
#[path = "rivals.rs"]
mod rivals;
#[path = "data/rows.rs"]
mod rows;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use phases::{Measured, Phase};
use rivals::{Result, Rivals, load};
use serde_json::Value;

#[derive(Parser)]
struct Args {
    /// Trajectories
    #[arg(long, default_value_t = 100_000)]
    rows: usize,
    /// Leave the rivals out, and measure a tenth of the rows first
    #[arg(long)]
    ours: bool,
    /// Only this phase; may be repeated
    #[arg(long, value_name = "PHASE")]
    only: Vec<Phase>,
    /// Where shards and texts go [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,
    /// One phase in this process: what the others are started with
    #[arg(long, hide = true)]
    phase: Option<Phase>,
}

/// What each phase is compared with: the rival's name for people, and its phase in `data.py`.
const RIVALS: [(Phase, &[(&str, &str)]); 6] = [
    (
        Phase::Write,
        &[
            ("pyarrow, from records", "write_pyarrow"),
            ("datasets, from records", "write_datasets"),
            ("pyarrow, a table that is ready", "write_table"),
        ],
    ),
    (
        Phase::Read,
        &[
            ("pyarrow, to records", "read_pyarrow"),
            ("datasets, to records", "read_datasets"),
            ("pyarrow, to columns alone", "read_table"),
        ],
    ),
    (Phase::Statistics, &[("datasets", "statistics")]),
    (
        Phase::Minhash,
        &[
            ("datasketch", "minhash_datasketch"),
            ("datatrove, all cores", "minhash_datatrove"),
        ],
    ),
    (
        Phase::Decontaminate,
        &[("datatrove, all cores", "decontaminate")],
    ),
    // Ours alone, where it is asked for by name.
    (Phase::Queries, &[]),
];

fn main() -> Result<()> {
    let args = Args::parse();
    if let (Some(phase), Some(place)) = (args.phase, &args.place) {
        println!(
            "{}",
            serde_json::to_string(&phases::run(phase, place, args.rows)?)?
        );
        return Ok(());
    }
    let temporary = tempfile::tempdir()?;
    let place = args
        .place
        .clone()
        .unwrap_or_else(|| temporary.path().into());
    let cores = std::thread::available_parallelism()?.get();
    println!(
        "data: {} rows · {cores} cores · load {}\n",
        args.rows,
        load()?
    );
    let chosen = |phase: Phase| match args.only.is_empty() {
        true => phase != Phase::Queries,
        false => args.only.contains(&phase),
    };
    match args.ours {
        true => growth(&place, args.rows, chosen),
        false => against(&place, args.rows, chosen),
    }
}

/// What other phases read, where it is not there yet.
fn prepare(place: &Path, rows: usize, chosen: impl Fn(Phase) -> bool) -> Result<()> {
    let reads = Phase::READING.into_iter().any(&chosen);
    if reads && !chosen(Phase::Write) && phases::written(place) != Some(rows) {
        apart(Phase::Write, place, rows)?;
    }
    Ok(())
}

/// Ours against theirs.
fn against(place: &Path, rows: usize, chosen: impl Fn(Phase) -> bool) -> Result<()> {
    prepare(place, rows, &chosen)?;
    let rivals = Rivals::of_data(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../benches"
    )))?;
    println!(
        "| | ours | all cores | memory | | theirs | all cores | memory | ours is |\n\
         | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |"
    );
    for (phase, theirs) in RIVALS.iter().filter(|(phase, _)| chosen(*phase)) {
        let phase = *phase;
        let ours = apart(phase, place, rows)?;
        for (number, (name, script)) in theirs.iter().enumerate() {
            let (place, rows) = (place.display().to_string(), rows.to_string());
            let measured: Measured =
                serde_json::from_value(rivals.report(&[script, &place, &rows])?)?;
            let (what, own) = match number {
                0 => (
                    phase.title(),
                    format!("{} | {}", ours.time(), ours.memory()),
                ),
                _ => ("", " | | ".to_owned()),
            };
            println!(
                "| {what} | {own} | {name} | {} | {} | {:.1} × |",
                measured.time(),
                measured.memory(),
                measured.seconds / ours.seconds
            );
            note(name, &measured.found);
        }
        note("ours", &ours.found);
    }
    Ok(())
}

/// What a phase found besides, on a line that is no part of the table.
fn note(who: &str, found: &Value) {
    if !found.is_null() {
        eprintln!("  {who}: {found}");
    }
}

/// Ours alone, at a tenth of the rows and at all.
fn growth(place: &Path, rows: usize, chosen: impl Fn(Phase) -> bool) -> Result<()> {
    println!(
        "| | rows | time | all cores | memory at most | rows | time | all cores | memory at most | grown, bytes a row |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let few = (rows / 10).max(1);
    let (tenth, whole) = (place.join("tenth"), place.join("whole"));
    prepare(&tenth, few, &chosen)?;
    prepare(&whole, rows, &chosen)?;
    for phase in RIVALS
        .map(|(phase, _)| phase)
        .into_iter()
        .filter(|phase| chosen(*phase))
    {
        let small = apart(phase, &tenth, few)?;
        let large = apart(phase, &whole, rows)?;
        let grown =
            (large.peak_mib - small.peak_mib) * f64::from(1 << 20) / (rows - few).max(1) as f64;
        println!(
            "| {} | {few} | {} | {} | {rows} | {} | {} | {grown:.0} |",
            phase.title(),
            small.time(),
            small.memory(),
            large.time(),
            large.memory()
        );
        note("ours", &large.found);
    }
    Ok(())
}

/// A phase of ours in a process of its own, so that its memory is its own.
fn apart(phase: Phase, place: &Path, rows: usize) -> Result<Measured> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "--phase",
        phase.name(),
        "--rows",
        &rows.to_string(),
        "--place",
    ]);
    let output = command.arg(place).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {said}", phase.name(), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
