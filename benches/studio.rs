//! `just bench studio`: the studio and `inspect view` in Chromium, on the same content in their own formats: a dataset of
//! many rows, and a trajectory of many events. Both are measured in one run, one after the other; then a pair of such
//! trajectories in the studio alone.

#[path = "studio/content.rs"]
mod content;
#[path = "studio/servers.rs"]
mod servers;
#[path = "studio/tasks.rs"]
mod tasks;
#[allow(dead_code)]
#[path = "../src/cli/tests/datasets/studio/webdriver.rs"]
mod webdriver;

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Parser;
use pybench_interpreter::default_cache_dir;

use content::Content;
use servers::{FirstStart, Server};
use tasks::{Measured, Medians, Page};
use webdriver::Browser;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
struct Args {
    /// Rows of the dataset
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Events of the trajectory: replies, and results of code
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// How often each interaction is measured; the table has the median
    #[arg(long, default_value_t = 5)]
    times: usize,
    /// Where the content is kept [default: bench-studio in the cache]. It is made once; making it goes on where it ended
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let place = args
        .place
        .clone()
        .unwrap_or_else(|| default_cache_dir().join("bench-studio"));
    let content = Content::make(&place, args.rows, args.events)?;
    servers::build()?;
    let python = pybench_testing::python::environment("inspect")
        .ok_or("inspect_ai cannot be installed; see the reason above")?;
    let browser = Browser::start().await;
    drop(browser.ok_or("there is no Chromium; see the reason above")?);
    let cores = std::thread::available_parallelism()?.get();
    println!(
        "studio: {} rows, {} events, median of {} · {cores} cores\n",
        args.rows, args.events, args.times
    );
    println!("| | ours | inspect view | ours / inspect |\n| --- | ---: | ---: | ---: |");

    // The index has a copy of the rows, for which a temporary folder in memory may be too small.
    let cache = tempfile::tempdir_in(&place)?;
    first_start("rows", &content.rows, cache.path(), args.rows).await?;
    let ours = Server::ours(&content.rows, cache.path())?;
    let theirs = Server::inspect(&python, &content.rows_log, cache.path()).await?;
    let pages = [ours.rows_page(args.rows), theirs.rows_page(args.rows)];
    compare("rows", &pages, args.times).await;
    drop((ours, theirs));

    first_start("events", &content.long, cache.path(), 1).await?;
    let ours = Server::ours(&content.long, cache.path())?;
    let theirs = Server::inspect(&python, &content.long_log, cache.path()).await?;
    let pages = [ours.long_page(args.events), theirs.long_page(args.events)];
    compare("events", &pages, args.times).await;
    drop((ours, theirs));

    first_start("pair", &content.pair, cache.path(), 2).await?;
    let ours = Server::ours(&content.pair, cache.path())?;
    for (name, time) in measured(&ours.pair_page(), args.times).await {
        println!("| pair: {name} | {} | | |", shown(time));
    }
    Ok(())
}

/// Starts the studio without an index, and prints a line for the first rows and one for the index.
async fn first_start(what: &str, dataset: &Path, cache: &Path, rows: u64) -> Result<()> {
    let start = FirstStart::measure(dataset, cache, rows).await?;
    for (until, time) in [
        ("until the first page of rows", start.rows),
        ("with the index", start.index),
    ] {
        println!(
            "| {what}: first start, {until} | {:.1} s | | |",
            time.as_secs_f64()
        );
    }
    Ok(())
}

/// Measures both sides, and prints a line for each interaction.
async fn compare(what: &str, [ours, theirs]: &[Page; 2], times: usize) {
    let ours = measured(ours, times).await;
    let theirs = measured(theirs, times).await;
    for (name, ours) in &ours {
        let theirs = theirs
            .iter()
            .find(|(other, _)| other == name)
            .and_then(|(_, one)| *one);
        let ratio = match (ours.map(|one| one.value), theirs.map(|one| one.value)) {
            (Some(ours), Some(theirs)) if theirs > 0.0 => format!("{:.2}", ours / theirs),
            _ => String::new(),
        };
        println!(
            "| {what}: {name} | {} | {} | {ratio} |",
            shown(*ours),
            shown(theirs)
        );
    }
}

/// Measures one side in a browser of its own, which a page may end.
async fn measured(page: &Page, times: usize) -> Medians {
    match Browser::start().await {
        Some(browser) => page.measure(&browser, times).await,
        None => Medians::new(),
    }
}

fn shown(measured: Option<Measured>) -> String {
    match measured {
        None => format!("more than {} s, or not possible", tasks::PATIENCE),
        Some(Measured { value, unit }) => format!("{value:.0} {unit}"),
    }
}
