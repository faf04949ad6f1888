//! What only the `jail` tier has: the warm server, its death, and its sessions' death with the host.

#[path = "jail/hostile_runner.rs"]
mod hostile_runner;

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use pybench_interpreter::{Interpreter, InterpreterError, LocalInterpreter, SessionSpec};
use pybench_testing::sessions::*;

/// Held by each test, for they all look at the processes below this one.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn jail() -> Option<LocalInterpreter> {
    match LocalInterpreter::jail() {
        Ok(interpreter) => Some(interpreter),
        Err(InterpreterError::Unavailable(reason)) => {
            pybench_testing::skip::missing_tool(reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

async fn start_from(interpreter: &LocalInterpreter) -> Live {
    let inner = interpreter.start(SessionSpec::default()).await.unwrap();
    Live { inner }
}

/// The servers: the topmost processes of the namespace that run its code.
fn servers(root: u32) -> Vec<u32> {
    let all = below(root);
    let is_server = |command: &str| command.contains("pybench_runner import server");
    let first = all.iter().filter(|(_, command)| is_server(command));
    first.map(|(pid, _)| *pid).take(1).collect()
}

fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

async fn gone(pid: u32) -> bool {
    for _ in 0..500 {
        if !alive(pid) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_may_die() {
    let _alone = ALONE.lock().await;
    let Some(interpreter) = jail() else {
        return;
    };
    let mut old = start_from(&interpreter).await;
    old.run("x = 1").await;
    let [server] = servers(std::process::id())[..] else {
        panic!("no server: {:?}", below(std::process::id()));
    };
    Command::new("sh")
        .args(["-c", &format!("kill -9 {server}")])
        .status()
        .unwrap();
    assert!(gone(server).await);
    let mut new = start_from(&interpreter).await;
    assert_eq!(
        old.run("x").await.plain(),
        "1",
        "a session survives its server"
    );
    assert_eq!(new.run("'x' in dir()").await.plain(), "False");
    old.close().await;
    new.close().await;

    let left: Vec<_> = below(std::process::id());
    drop(interpreter);
    for (pid, command) in left {
        assert!(gone(pid).await, "{command} is left");
    }
    assert_eq!(below(std::process::id()), []);
}

#[test]
fn sessions_die_with_the_host() {
    if std::env::var_os("PYBENCH_TEST_HOST").is_some() {
        return host();
    }
    let _alone = ALONE.blocking_lock();
    if jail().is_none() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sessions_die_with_the_host"])
        .env("PYBENCH_TEST_HOST", file.path())
        .spawn()
        .unwrap();
    let started = || {
        std::fs::read_to_string(file.path())
            .unwrap()
            .contains("started")
    };
    for _ in 0..6000 {
        if started() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(started());
    let processes = below(host.id());
    assert!(processes.len() >= 5, "{processes:?}");
    host.kill().unwrap();
    host.wait().unwrap();
    for (pid, command) in processes {
        let died = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            !alive(pid)
        });
        assert!(died, "{command} is left");
    }
}

/// A host that is killed: starts a session with a daemon in it and waits.
fn host() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let interpreter = jail().unwrap();
        let mut session = start_from(&interpreter).await;
        session
            .run("import subprocess\nsubprocess.Popen(['setsid', 'sleep', '600'])")
            .await;
        let file = PathBuf::from(std::env::var_os("PYBENCH_TEST_HOST").unwrap());
        std::fs::write(file, "started").unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_server_is_inside() {
    let _alone = ALONE.lock().await;
    let Some(interpreter) = jail() else {
        return;
    };
    let (mut one, mut two) = (
        start_from(&interpreter).await,
        start_from(&interpreter).await,
    );
    let code = "
import os
print(sorted(p for p in os.listdir('/proc') if p.isdigit()))
print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))
print([line for line in open('/proc/self/mountinfo') if 'session' in line.split(' - ')[0]])
names = ['user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup']
spaces = [os.readlink('/proc/self/ns/' + n) for n in names]
try: os.open('/proc/1/mem', os.O_RDWR)
except OSError as error: print(error.strerror)
try: open('/proc/sys/user/max_user_namespaces').read()
except OSError as error: print(error.strerror)
spaces";
    let (ours, theirs) = (one.run(code).await, two.run(code).await);
    let expected = "['1', '2']\n[0, 1, 2, 3, 4, 5, 100, 101]\n[]\nPermission denied\n";
    assert_eq!(ours.text("stdout"), expected, "{ours:?}");
    let spaces = |seen: &pybench_types::observation::Observation| -> HashSet<String> {
        let text = seen.plain();
        text.split('\'')
            .filter(|part| part.contains(':'))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(spaces(&ours).len(), 7);
    assert!(spaces(&ours).is_disjoint(&spaces(&theirs)));
    let host: HashSet<String> = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
        .iter()
        .filter_map(|name| std::fs::read_link(format!("/proc/self/ns/{name}")).ok())
        .map(|path| path.display().to_string())
        .collect();
    assert!(spaces(&ours).is_disjoint(&host));
    one.close().await;
    two.close().await;
}
