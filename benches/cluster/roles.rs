//! What coordinator, workers and the local executor do in `just bench cluster`.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pybench_run::artifacts::Artifact;
use pybench_run::log::{self, LogFormat};
use pybench_run::shared::{Member, Round, WorkerSession};
use pybench_run::{
    BudgetCap, Executor, ExecutorOptions, Failure, Interrupt, Items, LocalExecutor, Progress,
    Reservation, RunError, RunFolder, SharedExecutor, Stage, WhenChanged, time_spent,
};
use serde_json::{Value, json};

use super::Args;
use super::rivals::Result;

/// How often processes look for the run.
const POLL: Duration = Duration::from_millis(20);

/// Units from which on the coordinator shows its progress.
const MIN_SHOWN: usize = 200_000;

/// File in the run folder once all units are done, so that workers need not count them.
const ENDED: &str = "bench.ended";

/// Lines of the file that a unit stores, about 1 kB.
const FILE_LINES: usize = 73;

/// What the coordinator stores after the stage.
const OUTPUTS: Artifact<usize> = Artifact::new("outputs.jsonl", "an output", "bench");

/// Units that have no content.
struct Numbered(usize);

impl Items for Numbered {
    fn len(&self) -> usize {
        self.0
    }

    fn get(&self, number: usize) -> Cow<'_, str> {
        Cow::Owned(format!("unit-{number:08}"))
    }
}

/// Times of reserving, settling and appending: how often, and microseconds.
#[derive(Default)]
pub(crate) struct Times([(AtomicU64, AtomicU64); 3]);

impl Times {
    /// Does `work`, which is of the kind `kind`, and adds its time.
    fn of<T>(&self, kind: usize, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (count, sum) = &self.0[kind];
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(micros, Ordering::Relaxed);
        done
    }

    pub(crate) fn mean_ms(&self) -> [f64; 3] {
        self.0.each_ref().map(|(count, sum)| {
            let count = count.load(Ordering::Relaxed).max(1);
            sum.load(Ordering::Relaxed) as f64 / 1e3 / count as f64
        })
    }
}

/// Does nothing, or what an attempt writes that makes one call, or has one output file.
struct Nothing {
    folder: Arc<RunFolder>,
    calls: bool,
    files: bool,
    times: Arc<Times>,
}

#[async_trait]
impl Stage for Nothing {
    fn name(&self) -> &'static str {
        "bench"
    }

    async fn run(&self, item: &str) -> std::result::Result<Value, Failure> {
        if self.calls {
            self.call(item)?;
        }
        if self.files {
            let file = format!("{item}\n").repeat(FILE_LINES);
            self.folder.store().put(file.as_bytes())?;
        }
        Ok(json!({ "unit": item }))
    }
}

impl Nothing {
    fn call(&self, item: &str) -> std::result::Result<(), RunError> {
        let (journal, id) = (self.folder.journal(), format!("{item}/0"));
        if journal.call(&id)?.is_none() {
            let most = Reservation {
                micro_usd: 100,
                tokens: 100,
            };
            let reserve = || journal.reserve(&id, most, BudgetCap::default());
            let reserved = self.times.of(0, reserve);
            reserved.map_err(|error| RunError::Internal(error.to_string()))?;
            let reply = json!("a reply of a few words");
            self.times.of(1, || journal.settle(&id, most, &reply))?;
        }
        for position in journal.count_events(item)?..2 {
            let step = json!({ "step": position });
            self.times.of(2, || journal.append(item, position, &step))?;
        }
        Ok(())
    }
}

/// The options of all processes; the coordinator works on one unit at a time.
fn options(concurrency: usize) -> ExecutorOptions {
    ExecutorOptions {
        concurrency: Some(concurrency),
        ..ExecutorOptions::default()
    }
}

/// What a process has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worked {
    /// Time of the stage, that of earlier processes included.
    pub(crate) seconds: f64,
    /// Units that were not done when this process began.
    pub(crate) units: usize,
}

pub(crate) async fn local(args: &Args, run: &Path, times: &Arc<Times>) -> Result<Worked> {
    let folder = Arc::new(RunFolder::open(run, "")?);
    let (progress, interrupt) = (Progress::hidden(), Interrupt::new());
    let executor = LocalExecutor::new(folder.clone(), options(args.slots), progress, interrupt);
    execute(args, times, &folder, &executor).await
}

pub(crate) async fn coordinate(
    args: &Args,
    run: &Path,
    profile: &Path,
    times: &Arc<Times>,
) -> Result<Worked> {
    let folder = RunFolder::open_in_profile(run, "", &WhenChanged::default(), Some(profile))?;
    let folder = Arc::new(folder);
    let queue = pybench_temporal::connect(folder.queue()).await?;
    let (progress, interrupt) = (progress(args), Interrupt::new());
    let executor = SharedExecutor::new(folder.clone(), options(1), progress, interrupt);
    let worked = execute(args, times, &folder, &executor.with_queue(queue)).await?;
    std::fs::write(run.join(ENDED), "")?;
    let begun = Instant::now();
    if args.store {
        OUTPUTS.write(&folder, (0..args.units).map(Ok))?;
    }
    Ok(Worked {
        seconds: worked.seconds + begun.elapsed().as_secs_f64(),
        ..worked
    })
}

/// Shows how far many units are.
fn progress(args: &Args) -> Progress {
    if args.units < MIN_SHOWN {
        return Progress::hidden();
    }
    let progress = Progress::stderr();
    log::install(0, LogFormat::Text, &progress);
    progress
}

async fn execute(
    args: &Args,
    times: &Arc<Times>,
    folder: &Arc<RunFolder>,
    executor: &dyn Executor,
) -> Result<Worked> {
    let stage = Arc::new(Nothing {
        folder: folder.clone(),
        calls: args.calls,
        files: args.store,
        times: times.clone(),
    });
    let done = folder.journal().summary(stage.name())?.done;
    let (before, begun) = (time_spent(folder.journal())?, Instant::now());
    let summary = executor.run(stage, &Numbered(args.units)).await?;
    if summary.done != args.units as u64 {
        return Err(format!("only {} units are done", summary.done).into());
    }
    Ok(Worked {
        seconds: (before + begun.elapsed()).as_secs_f64(),
        units: usize::try_from(summary.done - done)?,
    })
}

/// Works until the round that it has joined ends.
pub(crate) async fn work(
    args: &Args,
    run: &Path,
    profile: &Path,
    times: &Arc<Times>,
) -> Result<Worked> {
    while !RunFolder::can_join(run)? {
        tokio::time::sleep(POLL).await;
    }
    let folder = Arc::new(RunFolder::join(run, profile)?);
    let member = Member::new(std::process::id().to_string(), vec!["bench".to_owned()]);
    let (options, interrupt) = (options(args.slots), Interrupt::new());
    let queue = pybench_temporal::connect(folder.queue()).await?;
    let session = WorkerSession::start(folder.clone(), member, options.lease)?.with_queue(queue);
    let round = loop {
        match Round::announced(folder.journal())? {
            Some(round) => break round,
            // Others were faster.
            None if run.join(ENDED).exists() => {
                session.leave().await?;
                return Ok(Worked::default());
            }
            None => tokio::time::sleep(POLL).await,
        }
    };
    let stage = Arc::new(Nothing {
        folder: folder.clone(),
        calls: args.calls,
        files: args.store,
        times: times.clone(),
    });
    let begun = Instant::now();
    session
        .work_on((&options, &interrupt), stage, &round)
        .await?;
    session.leave().await?;
    Ok(Worked {
        seconds: begun.elapsed().as_secs_f64(),
        units: 0,
    })
}
