//! Many sessions at a time while sessions, the warm server and the host process are killed at random:
//! every failure has a kind, a session that was spared gives right answers, and nothing stays behind.
//!
//! This program is both the test and, with `SOAK_TODO` in its environment, the host process under test.
//! `just soak` runs it with 1,000 sessions, 64 in flight; `SOAK_SEED` repeats the choices of a run.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt;
use pybench_interpreter::{Interpreter, InterpreterError, SessionSpec};
use pybench_types::observation::{Observation, Output};
use rand::{Rng, RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};

/// How often the host process is killed.
const HOST_KILLS: usize = 3;
/// Memory that the host process may gain over a whole run, MiB.
const MAX_GROWTH: u64 = 64;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match std::env::var("SOAK_TODO") {
        Ok(todo) => runtime.block_on(host(todo.split(',').map(str::to_owned).collect())),
        Err(_)
            if runtime
                .block_on(async { pybench_testing::sessions::interpreter() })
                .is_none() => {}
        Err(_) => soak(),
    }
}

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().unwrap())
}

// --- the host process under test -------------------------------------------------------------------

/// Run these sessions, and kill one of our processes now and then. Prints a line per session.
async fn host(todo: Vec<String>) {
    let interpreter = pybench_testing::sessions::interpreter().unwrap();
    let (at_a_time, every) = (number("SOAK_IN_FLIGHT", 8), number("SOAK_KILL_MILLIS", 300));
    let mut rng = ChaCha8Rng::seed_from_u64(number("SOAK_SEED", 1) ^ todo.len() as u64);
    let begun = Instant::now();
    session(&*interpreter, "warm-up").await; // what is opened once is open now
    // Where a server takes more than two seconds to stand, kills come later: its replacement must live to serve.
    let slower = (begun.elapsed().as_secs_f64() / 2.0).max(1.0);
    let before = footprint();
    let killer = tokio::task::spawn_blocking(move || {
        loop {
            let pause = Duration::from_millis(every / 2 + rng.random_range(0..=every));
            std::thread::sleep(pause.mul_f64(slower));
            kill_one_of_ours(&mut rng);
        }
    });
    let runs = todo.into_iter().map(|name| {
        let interpreter = interpreter.clone();
        async move { println!("session {name} {}", session(&*interpreter, &name).await) }
    });
    let all = futures::stream::iter(runs).buffer_unordered(at_a_time as usize);
    all.collect::<Vec<()>>().await;
    killer.abort();
    session(&*interpreter, "the last").await;
    let mut after = footprint();
    let until = Instant::now() + Duration::from_secs(10);
    while after.0 > before.0 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await; // what was dropped ends later
        after = footprint();
    }
    if after.0 > before.0 {
        for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
            let path = entry.unwrap().path();
            eprintln!("{path:?} {:?}", std::fs::read_link(&path));
        }
    }
    println!("open files {} {}", before.0, after.0);
    println!("memory {} {}", before.1, after.1);
    std::process::exit(0) // the killer's thread never ends
}

/// Five cells. Says how it ended: `whole`, or the kind of the failure. A wrong answer of a session that
/// nobody killed ends the test.
async fn session(interpreter: &dyn Interpreter, name: &str) -> String {
    let ended = five_cells(interpreter, name).await;
    match ended {
        Ok(None) => "whole".to_owned(),
        Ok(Some(stopped)) => stopped,
        Err(InterpreterError::Start(reason)) => {
            eprintln!("{name} did not start: {reason}");
            "start".to_owned()
        }
        Err(InterpreterError::Protocol(_)) => "protocol".to_owned(),
        Err(error) => panic!("{error}"),
    }
}

async fn five_cells(
    interpreter: &dyn Interpreter,
    name: &str,
) -> Result<Option<String>, InterpreterError> {
    let cells = [
        (format!("token = {name:?}"), String::new()),
        (
            "_ = open('output/token', 'w').write(token)".into(),
            String::new(),
        ),
        ("print(token)".into(), format!("{name}\n")),
        (
            "import pandas as pd; print(pd.Series(range(100)).sum())".into(),
            "4950\n".into(),
        ),
        (
            "print(open('output/token').read())".into(),
            format!("{name}\n"),
        ),
    ];
    let mut session = interpreter.start(SessionSpec::default()).await?;
    let mut stopped = None;
    for (code, expected) in cells {
        let seen = session.execute(&code).await?;
        stopped = seen.stopped.map(|how| format!("{how:?}").to_lowercase());
        if stopped.is_some() {
            break; // it starts over, empty
        }
        assert_eq!(printed(&seen), expected, "{name}: {code}: {seen:?}");
    }
    session.close().await?;
    Ok(stopped)
}

fn printed(seen: &Observation) -> String {
    let text = |output: &Output| match output {
        Output::Stream { text, .. } => Some(text.clone()),
        _ => None,
    };
    seen.outputs.iter().filter_map(text).collect()
}

/// A process that descends from this one: mostly a session's, now and then of the warm server, which
/// takes longer to stand than a session.
fn kill_one_of_ours(rng: &mut impl Rng) {
    let own = std::process::id();
    let (mut family, parents) = (HashSet::from([own]), parents());
    while let Some(more) = descend(&parents, &family) {
        family = more;
    }
    family.remove(&own);
    let (servers, sessions) = apart(family, &parents, own);
    let chosen = if rng.random_bool(0.1) {
        servers
    } else {
        sessions
    };
    if let Some(pid) = chosen
        .choose(rng)
        .and_then(|pid| Pid::from_raw(pid.cast_signed()))
    {
        // It may be gone.
        if kill_process(pid, Signal::KILL).is_ok() {
            println!("killed {}", pid.as_raw_nonzero());
        }
    }
}

/// The processes of the warm server, and those of sessions. Below us come the one that waits for a
/// namespace, its first process, and then the server, which is older than its sessions.
fn apart(family: HashSet<u32>, parents: &HashMap<u32, u32>, own: u32) -> (Vec<u32>, Vec<u32>) {
    let depth = |pid: u32| {
        let above = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        above.take_while(|pid| *pid != own).count()
    };
    let third = family.iter().copied().filter(|pid| depth(*pid) == 3);
    // Field 22 is when it started; process ids are reused.
    let oldest = third
        .filter_map(|pid| Some((stat::<u64>(pid, 22)?, pid)))
        .min()
        .map(|(_, pid)| pid);
    let ordered = family.into_iter().collect::<BTreeSet<_>>().into_iter();
    ordered.partition(|pid| depth(*pid) < 3 || Some(*pid) == oldest)
}

/// The family and its children; `None` when there are no more.
fn descend(parents: &HashMap<u32, u32>, family: &HashSet<u32>) -> Option<HashSet<u32>> {
    let children = parents.iter().filter(|(_, parent)| family.contains(parent));
    let more: HashSet<u32> = children
        .map(|(pid, _)| *pid)
        .chain(family.iter().copied())
        .collect();
    (more.len() > family.len()).then_some(more)
}

/// Each process's parent.
fn parents() -> HashMap<u32, u32> {
    processes()
        .filter_map(|pid| Some((pid, stat::<u32>(pid, 4)?)))
        .collect()
}

/// A field of `/proc/PID/stat`, by its number in proc(5), from 3 on: the second may hold anything.
fn stat<T: std::str::FromStr>(pid: u32, field: usize) -> Option<T> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(field - 3)?.parse().ok()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Open files, and resident memory in MiB.
fn footprint() -> (usize, u64) {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    (
        files,
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024,
    )
}

// --- the test ----------------------------------------------------------------------------------------

/// How one life of the host process went.
struct Life {
    pid: u32,
    ended: BTreeMap<String, String>,
    footprint: Vec<String>,
}

fn soak() {
    let (sessions, seed) = (
        number("SOAK_SESSIONS", 80),
        number("SOAK_SEED", rand::random()),
    );
    eprintln!("seed of the choices: {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mounted = mounts(&[]);
    let mut todo: BTreeSet<String> = (0..sessions).map(|n| format!("s{n}")).collect();
    let (mut kinds, mut hosts) = (BTreeMap::<String, usize>::new(), Vec::new());
    let begun = Instant::now();
    while !todo.is_empty() {
        // Killed after some of the sessions, except in its last life.
        let share = (sessions as usize / (HOST_KILLS + 1)).max(1);
        let after = (hosts.len() < HOST_KILLS).then(|| rng.random_range(1..=share));
        let life = live(&todo, seed, after);
        hosts.push(life.pid);
        for (name, how) in life.ended {
            assert!(todo.remove(&name), "{name} ended twice");
            *kinds.entry(how).or_default() += 1;
        }
        check_footprint(&life.footprint);
    }
    eprintln!(
        "{sessions} sessions in {:?}, {} hosts: {kinds:?}",
        begun.elapsed(),
        hosts.len()
    );
    assert!(
        kinds
            .get("whole")
            .is_some_and(|whole| *whole * 2 > sessions as usize),
        "{kinds:?}"
    );
    no_process_is_left(&hosts);
    // What a killed host left of its control groups, the next one sweeps.
    hosts.push(live(&BTreeSet::from(["last".to_owned()]), seed, None).pid);
    no_group_is_left(&hosts);
    assert_eq!(mounts(&hosts), mounted);
    println!("soak: passed");
}

/// Mounts of those hosts' workspaces and of the folder that holds all; others come and go.
fn mounts(hosts: &[u32]) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_ours = |line: &&str| {
        let mut hosts = hosts.iter();
        line.contains("/sessions ")
            || hosts.any(|host| line.contains(&format!("/sessions/{host}-")))
    };
    table.lines().filter(of_ours).map(str::to_owned).collect()
}

/// One host process, killed after that many sessions.
fn live(todo: &BTreeSet<String>, seed: u64, kill_after: Option<usize>) -> Life {
    let names: Vec<&str> = todo.iter().map(String::as_str).collect();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .env("SOAK_TODO", names.join(","))
        .env("SOAK_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = host.stdout.take().unwrap();
    let (ended, footprint) = follow(&mut host, output, kill_after);
    let status = host.wait().unwrap();
    assert!(kill_after.is_some() || status.success(), "{status}");
    Life {
        pid: host.id(),
        ended,
        footprint,
    }
}

fn follow(
    host: &mut Child,
    output: ChildStdout,
    kill_after: Option<usize>,
) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut ended, mut footprint) = (BTreeMap::new(), Vec::new());
    for line in BufReader::new(output).lines().map(Result::unwrap) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["session", name, how] => drop(ended.insert(name.to_owned(), how.to_owned())),
            ["killed", ..] => {}
            _ => footprint.push(line),
        }
        if kill_after.is_some_and(|most| ended.len() >= most) {
            host.kill().unwrap();
        }
    }
    (ended, footprint)
}

/// `what before after`, as the host process printed it.
fn check_footprint(lines: &[String]) {
    for line in lines {
        let mut words = line
            .rsplit(' ')
            .map(|word| word.parse::<u64>().unwrap_or(0));
        let (after, before) = (words.next().unwrap(), words.next().unwrap());
        let most = if line.starts_with("memory") {
            MAX_GROWTH
        } else {
            0
        };
        assert!(after <= before + most, "{line}");
    }
}

/// Waits for what the kernel is still at, then expects nothing.
fn none(left: impl Fn() -> Vec<String>) {
    let until = Instant::now() + Duration::from_secs(30);
    while !left().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(left(), Vec::<String>::new());
}

/// Servers and sessions have their host's number in their command line.
fn no_process_is_left(hosts: &[u32]) {
    let of_ours = |pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let server = line.contains("pybench_runner");
        server
            && hosts
                .iter()
                .any(|host| line.contains(&format!(", {host})")))
    };
    none(|| {
        let left = processes().filter(of_ours);
        left.map(|pid| format!("process {pid}")).collect()
    });
}

fn no_group_is_left(hosts: &[u32]) {
    none(|| groups(Path::new("/sys/fs/cgroup"), hosts, 0));
}

/// Control groups of those hosts, at most four levels down.
fn groups(folder: &Path, hosts: &[u32], depth: usize) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for path in entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
    {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if hosts
            .iter()
            .any(|host| name.starts_with(&format!("pybench-{host}-")))
        {
            found.push(path.display().to_string());
        } else if depth < 4 {
            found.extend(groups(&path, hosts, depth + 1));
        }
    }
    found
}
