//! Measures the `jail` and `bwrap` tiers: time to the first result, cells and sessions per second,
//! private memory per live session. `benches/interpreter/run` adds the same of nbclient.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pybench::interpreter::{Interpreter, LocalInterpreter, Output, Session, SessionSpec};

const FIRST: &str = "import numpy as np, pandas as pd, matplotlib.pyplot as plt\nint(pd.DataFrame({'a': [40, 2]}).a.sum())";

async fn session(interpreter: &LocalInterpreter) -> Result<Box<dyn Session>> {
    let mut session = interpreter.start(SessionSpec::default()).await?;
    let seen = session.execute(FIRST).await?;
    let right =
        matches!(&seen.outputs[..], [Output::Result { data }] if data["text/plain"] == "42");
    ensure!(right, "{seen:?}");
    Ok(session)
}

fn told(who: &str, what: &str, value: f64, unit: &str) {
    println!("{who:<22} {what:<42} {value:>10.3} {unit}");
}

/// The processes below this one, and the MiB that those not `known` before have for themselves.
fn private_mib(known: &HashSet<u32>) -> (HashSet<u32>, f64) {
    let mut below = HashSet::from([std::process::id()]);
    let mut kib = 0;
    loop {
        let before = below.len();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let read = |name| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            let parent = read("stat")
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
            if parent.is_some_and(|parent| below.contains(&parent)) && below.insert(pid) {
                let private = |line: &str| {
                    let line = line.strip_prefix("Private_")?;
                    line.split_whitespace().nth(1)?.parse::<u64>().ok()
                };
                if !known.contains(&pid) {
                    let text = read("smaps_rollup");
                    kib += text.lines().filter_map(private).sum::<u64>();
                }
            }
        }
        if below.len() == before {
            return (below, kib as f64 / 1024.0);
        }
    }
}

async fn first_results(who: &str, interpreter: &LocalInterpreter, count: usize) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let session = session(interpreter).await?;
        times.push(begun.elapsed().as_secs_f64());
        session.close().await?;
    }
    times.sort_by(f64::total_cmp);
    told(
        who,
        "first result with pandas, median",
        times[count / 2],
        "s",
    );
    told(
        who,
        &format!("first result with pandas, p99 of {count}"),
        times[(count * 99).div_ceil(100) - 1],
        "s",
    );
    Ok(())
}

async fn measure(
    who: &str,
    interpreter: Arc<LocalInterpreter>,
    counts: &[usize],
    fast: bool,
) -> Result<()> {
    session(&interpreter).await?.close().await?; // the server and the page cache are warm from here on
    first_results(who, &interpreter, if fast { 100 } else { 10 }).await?;

    let mut one = session(&interpreter).await?;
    let begun = Instant::now();
    for _ in 0..1000 {
        one.execute("1 + 1").await?;
    }
    told(
        who,
        "cells per second, one session",
        1000.0 / begun.elapsed().as_secs_f64(),
        "/s",
    );
    one.close().await?;

    let cores = std::thread::available_parallelism()?.get();
    let total = if fast { 200 } else { 10 };
    let begun = Instant::now();
    let mut lanes = tokio::task::JoinSet::new();
    for _ in 0..cores {
        let interpreter = interpreter.clone();
        lanes.spawn(async move {
            for _ in 0..total / cores {
                session(&interpreter).await?.close().await?;
            }
            Ok::<(), anyhow::Error>(())
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    let rate = (total / cores * cores) as f64 / begun.elapsed().as_secs_f64() / cores as f64;
    told(who, "sessions per second and core", rate, "/s");

    for &count in counts {
        let (server, _) = private_mib(&HashSet::new());
        let mut live = Vec::new();
        for _ in 0..count {
            live.push(session(&interpreter).await?);
        }
        let each = private_mib(&server).1 / count as f64;
        told(
            who,
            &format!("private memory per session, {count} live"),
            each,
            "MiB",
        );
        for session in live {
            session.close().await?;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let counts: Result<Vec<usize>, _> = std::env::args()
        .skip(1)
        .map(|count| count.parse())
        .collect();
    let counts = counts?;
    let begun = Instant::now();
    let jail = Arc::new(LocalInterpreter::jail()?);
    session(&jail).await?.close().await?;
    told(
        "jail",
        "start of the warm server",
        begun.elapsed().as_secs_f64(),
        "s",
    );
    measure("jail", jail, &counts, true).await?;
    let small: Vec<usize> = counts.into_iter().filter(|count| *count <= 20).collect();
    measure("bwrap", Arc::new(LocalInterpreter::bwrap()?), &small, false).await
}
