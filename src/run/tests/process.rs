//! Runs as real processes that are killed at random moments, interrupted once, and interrupted twice. This
//! program is the test and, with `CHILD` in its environment, also the process under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench_run::cli;
use pybench_run::cli::LogArgs;
use pybench_run::{
    BudgetCap, CallState, Executor, ExecutorOptions, Failure, Journal, LocalExecutor, Reservation,
    ReserveError, RunError, RunFolder, Stage,
};
use serde_json::{Value, json};

const ITEMS: usize = 150;

fn main() -> ExitCode {
    match std::env::var("CHILD").as_deref() {
        Ok("pay") => child(|folder| Arc::new(Pay(folder)), ITEMS),
        Ok("wait") => child(|folder| Arc::new(Wait(folder)), 3),
        _ => {
            kills_lose_nothing_and_nothing_is_paid_twice();
            one_interrupt_finishes_work_in_flight();
            two_interrupts_stop_now();
            println!("process: 3 tests passed");
            ExitCode::SUCCESS
        }
    }
}

// --- the process under test ----------------------------------------------------------------

fn child(stage: impl FnOnce(Arc<RunFolder>) -> Arc<dyn Stage>, items: usize) -> ExitCode {
    let root = PathBuf::from(std::env::var_os("ROOT").unwrap());
    cli::main_with(LogArgs::default(), |process| async move {
        let folder = Arc::new(RunFolder::open(&root, "")?);
        let options = ExecutorOptions {
            concurrency: Some(2),
            ..ExecutorOptions::default()
        };
        let executor =
            LocalExecutor::new(folder.clone(), options, process.progress, process.interrupt);
        let items: Vec<String> = (0..items).map(|i| format!("item-{i}")).collect();
        let summary = executor.run(stage(folder), &items).await?;
        anyhow::ensure!(summary.failed == 0, "{summary:?}");
        Ok(())
    })
}

/// Makes one paid call per item, as a model would, and records each call in a file outside the journal.
struct Pay(Arc<RunFolder>);

impl Pay {
    /// Simulates the server of a call: works for a while and counts.
    async fn serve(&self, item: &str) -> Value {
        let receipts = self.0.root().join("receipts");
        let mut file = std::fs::OpenOptions::new();
        let mut file = file.create(true).append(true).open(receipts).unwrap();
        writeln!(file, "{item}").unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        json!(format!("reply to {item}"))
    }
}

#[async_trait]
impl Stage for Pay {
    fn name(&self) -> &'static str {
        "pay"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let journal = self.0.journal();
        for attempt in 0.. {
            let id = format!("{item}/{attempt}");
            match journal.call(&id)? {
                Some(call) if call.state == CallState::Settled => {
                    return Ok(call.reply.unwrap());
                }
                Some(_) => continue,
                None => {}
            }
            let one = Reservation {
                micro_usd: 1,
                tokens: 1,
            };
            let reserved = journal.reserve(&id, one, BudgetCap::default());
            reserved.map_err(|error| match error {
                ReserveError::OverBudget(text) => RunError::Budget(text),
                ReserveError::Run(error) => error,
            })?;
            let reply = self.serve(item).await;
            journal.settle(&id, one, &reply)?;
            return Ok(reply);
        }
        unreachable!("attempts do not end")
    }
}

/// Prints that it began, and ends once the file `go` exists.
struct Wait(Arc<RunFolder>);

#[async_trait]
impl Stage for Wait {
    fn name(&self) -> &'static str {
        "wait"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        println!("begun");
        while !self.0.root().join("go").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(json!(item))
    }
}

// --- the tests -------------------------------------------------------------------------------

fn spawn(kind: &str, root: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .env("CHILD", kind)
        .env("ROOT", root)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn kills_lose_nothing_and_nothing_is_paid_twice() {
    let root = tempfile::tempdir().unwrap();
    let mut kills = 0;
    // The moments are arbitrary; the assertions hold for all of them.
    for moment in (0..20).map(|i| 20 + (i * 37) % 90) {
        let mut process = spawn("pay", root.path());
        std::thread::sleep(Duration::from_millis(moment));
        let _ = process.kill();
        kills += u32::from(!process.wait().unwrap().success());
    }
    assert!(kills > 0, "no process was killed in the middle");
    let status = spawn("pay", root.path()).wait().unwrap();
    assert_eq!(status.code(), Some(0));

    let journal = Journal::open_read_only(&root.path().join("journal.sqlite")).unwrap();
    let expected: Vec<String> = (0..ITEMS).map(|i| format!("reply to item-{i}")).collect();
    assert_eq!(journal.outputs::<String>("pay").unwrap(), expected);
    let receipts = std::fs::read_to_string(root.path().join("receipts")).unwrap();
    let (paid, spent) = (receipts.lines().count() as u64, journal.spent().unwrap());
    assert_eq!(
        spent.calls,
        ITEMS as u64 + spent.uncertain,
        "one settled call per item"
    );
    assert!(
        (ITEMS as u64..=spent.calls).contains(&paid),
        "{paid} paid, {spent:?} charged"
    );
    println!(
        "killed {kills} times: {paid} calls served, {} uncertain",
        spent.uncertain
    );
}

fn one_interrupt_finishes_work_in_flight() {
    let root = tempfile::tempdir().unwrap();
    let mut process = spawn("wait", root.path());
    expect(process.stdout.take(), "begun", 2);
    interrupt(&process);
    // Continue only after the signal was handled: the third unit must not begin.
    expect(process.stderr.take(), "finishing work in flight", 1);
    std::fs::write(root.path().join("go"), "").unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130));
    let journal = Journal::open_read_only(&root.path().join("journal.sqlite")).unwrap();
    assert_eq!(
        journal.outputs::<String>("wait").unwrap(),
        ["item-0", "item-1"]
    );
    assert_eq!(spawn("wait", root.path()).wait().unwrap().code(), Some(0));
    assert_eq!(journal.summary("wait").unwrap().done, 3);
}

fn two_interrupts_stop_now() {
    let root = tempfile::tempdir().unwrap();
    let mut process = spawn("wait", root.path());
    expect(process.stdout.take(), "begun", 2);
    // Equal signals that are pending at the same time are merged, so send them until the process ends.
    while process.try_wait().unwrap().is_none() {
        interrupt(&process);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(process.wait().unwrap().code(), Some(130));
    let journal = Journal::open_read_only(&root.path().join("journal.sqlite")).unwrap();
    assert_eq!(journal.summary("wait").unwrap().pending, 3);
}

/// Waits until `times` lines start with `words`.
fn expect(stream: Option<impl Read>, words: &str, times: usize) {
    let lines = BufReader::new(stream.unwrap()).lines();
    let seen = lines
        .map(Result::unwrap)
        .filter(|line| line.starts_with(words));
    assert_eq!(seen.take(times).count(), times, "{words}");
}

fn interrupt(process: &Child) {
    let pid = rustix::process::Pid::from_child(process);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}
