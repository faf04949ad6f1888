//! `just bench rollout`: an endpoint that answers every request after two seconds, however many there are, and tasks of
//! four turns: three cells and an answer. The time of a rollout against the time that its true bottleneck needs: four
//! replies one after another, or the work of this machine (sessions, cells, HTTP, journal), which is measured with an
//! endpoint that answers at once. Also the memory of a session, which bounds the trajectories in flight.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use pybench_agent::{Format, PybenchFormat, Solver};
use pybench_attempts::{AttemptStage, RolloutConfig, teacher};
use pybench_interpreter::{Interpreter, SessionSpec};
use pybench_interpreter_containers::paced;
use pybench_llm::OpenAiOptions;
use pybench_run::{
    Budget, Executor, ExecutorOptions, Interrupt, LocalExecutor, Price, Progress, Rollout,
    RunFolder, cores,
};
use pybench_testing::endpoint::{Answer, Endpoint};
use pybench_testing::task::task;
use pybench_types::id::Digest;
use pybench_types::task::Task;
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Replies of a trajectory; the last one is the answer.
const TURNS: usize = 4;
const CELL: &str =
    "import pandas as pd\ntable = pd.DataFrame({'a': range(1000)})\nint(table['a'].sum())";
/// What a session does whose memory is measured.
const CHART: &str = "import pandas as pd\nimport matplotlib.pyplot as plt\n\
    table = pd.DataFrame({'a': range(10000), 'b': range(10000)})\ntable.to_csv('output/t.csv')\n\
    table = pd.read_csv('output/t.csv')\ntable.plot(x='a', y='b')\nplt.savefig('output/p.png')";
/// Sessions whose memory is measured.
const SESSIONS: u64 = 20;

#[derive(Parser)]
struct Args {
    /// Number of tasks
    #[arg(long, default_value_t = 500)]
    tasks: usize,
    /// Seconds until the endpoint answers
    #[arg(long, default_value_t = 2.0)]
    delay: f64,
    /// Also measure the rollout with this fixed number of trajectories in flight
    #[arg(long)]
    concurrency: Option<usize>,
}

/// A rollout that has ended.
struct Measured {
    seconds: f64,
    /// Most requests in flight.
    most: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let sessions = paced(&Default::default())?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    println!(
        "rollout: {} tasks · {} cores · load {load}",
        args.tasks,
        cores()
    );
    println!(
        "memory of a session: {} MiB\n",
        session_bytes(&sessions).await? >> 20
    );
    rollout(&sessions, 2 * cores(), Duration::ZERO, None).await?; // the page cache is warm
    let work = rollout(&sessions, args.tasks, Duration::ZERO, None).await?;
    let delay = Duration::from_secs_f64(args.delay);
    let replies = TURNS as f64 * args.delay;
    let ideal = work.seconds.max(replies);
    println!(
        "| | seconds | most requests in flight | of the ideal |\n| --- | ---: | ---: | ---: |"
    );
    println!("| {TURNS} replies | {replies:.1} | | |");
    println!(
        "| the machine's work | {:.1} | {} | |",
        work.seconds, work.most
    );
    for given in [None].into_iter().chain(args.concurrency.map(Some)) {
        let name = given.map_or("default".to_owned(), |n| format!("concurrency = {n}"));
        let Measured { seconds, most } = rollout(&sessions, args.tasks, delay, given).await?;
        println!(
            "| rollout, {name} | {seconds:.1} | {most} | {:.2} × |",
            seconds / ideal
        );
    }
    Ok(())
}

/// Solves so many tasks with an endpoint that takes `delay` for each reply.
async fn rollout(
    sessions: &Arc<dyn Interpreter>,
    tasks: usize,
    delay: Duration,
    concurrency: Option<usize>,
) -> Result<Measured> {
    let (endpoint, most) = slow_endpoint(delay).await;
    let place = tempfile::tempdir()?;
    let folder = Arc::new(RunFolder::open(place.path(), "")?);
    let options = OpenAiOptions {
        model: "m".to_owned(),
        base_url: endpoint.base_url(),
        key: None,
        headers: Default::default(),
        price: Some(Price::default()),
        timeout: Duration::from_secs(60),
        extra: Default::default(),
        restore_python_tag: false,
    };
    let (interrupt, budget, format) = (Interrupt::new(), Budget::default(), &PybenchFormat);
    let model = teacher::metered(
        options,
        folder.clone(),
        &budget,
        format.name(),
        None,
        &interrupt,
    )?;
    let config = RolloutConfig {
        rollout: Rollout::default(),
        session: SessionSpec::default(),
        format,
        teacher: Solver::Model(model),
        teacher_mix: Vec::new(),
        escalation: Vec::new(),
        seed: 0,
        interpreter: sessions.clone(),
        feedback: None,
    };
    let all: Vec<_> = (0..tasks)
        .map(|number| Arc::new(numbered(number)))
        .collect();
    let stage = AttemptStage::from_config(folder.clone(), all, config);
    let items = stage.items();
    let options = ExecutorOptions {
        concurrency,
        ..ExecutorOptions::default()
    };
    let executor = LocalExecutor::new(folder, options, Progress::hidden(), interrupt);
    let begun = Instant::now();
    let summary = executor.run(Arc::new(stage), &items).await?;
    let seconds = begun.elapsed().as_secs_f64();
    if summary.done as usize != tasks || endpoint.call_count() as usize != tasks * TURNS {
        return Err(format!("{summary:?} after {} calls", endpoint.call_count()).into());
    }
    let most = most.load(Ordering::Relaxed);
    Ok(Measured { seconds, most })
}

/// An endpoint without a limit, and the most requests that it had at the same time.
async fn slow_endpoint(delay: Duration) -> (Endpoint, Arc<AtomicUsize>) {
    let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let seen = most.clone();
    let endpoint = Endpoint::start(move |request| {
        let (now, most) = (now.clone(), seen.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(delay).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Answer::Content(reply(&request))
        }
    })
    .await;
    (endpoint, most)
}

/// A cell in all replies but the last one.
fn reply(request: &Value) -> String {
    let messages = request["messages"].as_array();
    let replies = messages.into_iter().flatten();
    let replies = replies.filter(|m| m["role"] == "assistant").count();
    match replies + 1 < TURNS {
        true => PybenchFormat.write_step("Analyze: run it", CELL),
        false => PybenchFormat.write_answer("499500"),
    }
}

fn numbered(number: usize) -> Task {
    let mut task = Task {
        query: format!("add the numbers of table {number}"),
        ..task()
    };
    task.id = task.compute_id();
    task
}

/// Memory of a session that has read a table and drawn a chart: what its processes do not share with others.
async fn session_bytes(interpreter: &Arc<dyn Interpreter>) -> Result<u64> {
    let mut live = Vec::new();
    let before = descendants_bytes()?;
    for number in 0..SESSIONS {
        let spec = SessionSpec {
            seed: Digest::of_json(&number).seed(),
            ..SessionSpec::default()
        };
        let mut session = interpreter.start(spec).await?;
        session.execute(CHART).await?;
        live.push(session);
    }
    let taken = descendants_bytes()?.saturating_sub(before);
    for session in live {
        session.close().await?;
    }
    Ok(taken / SESSIONS)
}

/// Proportional memory of all processes below this one.
fn descendants_bytes() -> Result<u64> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1));
        if let Some(parent) = parent.and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(process);
        }
    }
    let (mut open, mut bytes) = (vec![std::process::id()], 0);
    while let Some(parent) = open.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            let path = format!("/proc/{child}/smaps_rollup");
            let text = fs::read_to_string(path).unwrap_or_default();
            bytes += pybench_types::memory::kib_of(&text, "Pss:").unwrap_or(0);
            open.push(child);
        }
    }
    Ok(bytes)
}
