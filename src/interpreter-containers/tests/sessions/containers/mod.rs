//! The tiers `docker`, `podman` and `kubernetes`: live where an engine answers, and with stand-ins that make
//! their containers with bubblewrap everywhere else. A stand-in shows that sessions run, over the very
//! commands and manifests that are issued; it enforces no limit and proves nothing of an engine.
#[path = "way.rs"]
mod way_docker;
#[path = "way.rs"]
mod way_live;
#[path = "way.rs"]
mod way_podman;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pybench_interpreter::{
    Interpreter, InterpreterError, LocalInterpreter, Network, SessionSpec, environment_python,
};
use pybench_interpreter_containers::{ClusterSettings, EngineSettings};
use pybench_testing::podman::{Podman, answers};
use pybench_testing::sessions::*;
use pybench_types::observation::Stopped;

/// What a session must be able to do, whatever carries it.
async fn works(interpreter: &dyn Interpreter, remote: bool) {
    let spec = SessionSpec {
        inputs: [("data/given.toml".to_owned(), "Cargo.toml".into())].into(),
        ..with_limits(|limits| {
            limits.cell_seconds = 30;
            limits.output_chars = 1000;
            limits.file_mib = 8;
        })
    };
    let inner = interpreter.start(spec).await.unwrap();
    let mut session = Live { inner };
    talks(&mut session).await;
    stops(&mut session).await;
    keeps_files(&mut session).await;
    is_powerless(&mut session).await;
    let mut sibling = Live {
        inner: session.inner.sibling().await.unwrap(),
    };
    assert_eq!(
        sibling.run("open('output/made').read()").await.plain(),
        "'made'"
    );
    assert_eq!(sibling.run("'x' in globals()").await.plain(), "False");
    sibling.close().await;
    assert_eq!(session.inner.files().is_none(), remote);
    session.close().await;
}

async fn talks(session: &mut Live) {
    let seen = session
        .run("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')\nx = 20\nx + 1")
        .await;
    let expected = [
        ("stdout", "a\n"),
        ("stderr", "b\n"),
        ("stdout", "c\n"),
        ("result", "21"),
    ];
    assert_eq!(seen.brief(), expected);
    let error = session.run("1 / 0").await.error.unwrap();
    assert_eq!(error.ename, "ZeroDivisionError");
    let seen = session.run("!echo from a child").await;
    assert_eq!(seen.text("stdout"), "from a child\n");
    for _ in 0..3 {
        // More than is kept between cells, so that the streams are cut on both sides.
        let seen = session.run("print('y' * (2 << 20))").await;
        let text = seen.text("stdout");
        assert!(text.len() < 2000 && text.contains("yyyy"), "{}", text.len());
    }
    assert_eq!(
        session.run("print('after', x)").await.text("stdout"),
        "after 20\n"
    );
}

async fn stops(session: &mut Live) {
    let handle = session.inner.interrupt_handle();
    let interrupt = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        handle.interrupt();
    });
    let seen = session.run("while True: pass").await;
    interrupt.await.unwrap();
    assert_eq!(seen.stopped, Some(Stopped::Interrupted), "{seen:?}");
    assert_eq!(session.run("x").await.plain(), "20");
    assert_eq!(
        session
            .run("open('output/made', 'w').write('made')")
            .await
            .error,
        None
    );
    let seen = session.run("print('last'); import os; os._exit(3)").await;
    assert_eq!(seen.stopped, Some(Stopped::Died), "{seen:?}");
    assert_eq!(seen.text("stdout"), "last\n");
    let seen = session
        .run("'x' in globals(), open('output/made').read()")
        .await;
    assert_eq!(seen.plain(), "(False, 'made')", "{seen:?}");
}

async fn keeps_files(session: &mut Live) {
    let seen = session
        .run("len(open('data/given.toml').read()) > 100")
        .await;
    assert_eq!(seen.plain(), "True");
    for code in [
        "open('data/new', 'w')",
        "open('data/given.toml', 'a')",
        "open('/usr/x', 'w')",
        "open('/opt/pybench/x', 'w')",
        "open('/x', 'w')",
    ] {
        let error = session.run(code).await.error.unwrap();
        assert!(
            ["OSError", "PermissionError"].contains(&error.ename.as_str()),
            "{error:?}"
        );
    }
    session
        .run("import os\nos.symlink('/etc/passwd', 'output/link'); os.mkfifo('output/pipe')")
        .await;
    let outputs = session.outputs().await;
    let files: Vec<(&str, &[u8])> = outputs
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.bytes.as_slice()))
        .collect();
    assert_eq!(files, [("output/made", b"made".as_slice())]);
    let refused: Vec<&str> = outputs
        .refused
        .iter()
        .filter_map(|r| r.split(':').next())
        .collect();
    assert_eq!(refused, ["output/link", "output/pipe"]);
}

async fn is_powerless(session: &mut Live) {
    let status = "{l.split()[0]: l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp:'))}";
    let seen = session.run(status).await.plain();
    assert!(
        seen.contains("'NoNewPrivs:': '1'") && seen.contains("'Seccomp:': '2'"),
        "{seen}"
    );
    assert!(seen.contains("'CapEff:': '0000000000000000'"), "{seen}");
    assert_eq!(session.run("os.getuid() != 0").await.plain(), "True");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)");
    assert!(session.run(&connect).await.error.is_some());
    // Neither what carries the session nor anything of the host can be reached.
    let relay = "import signal\n[p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid() and os.access(f'/proc/{p}/fd', os.R_OK)]";
    assert_eq!(session.run(relay).await.plain(), "[]");
    let seen = session
        .run("'CARGO' in os.environ, os.path.exists('/root/.bashrc'), os.path.exists('/var/lib')")
        .await;
    assert_eq!(seen.plain(), "(False, False, False)");
}

/// A folder in which a stand-in stands under the engine's name, and keeps its state.
fn stand_in(script: &str, name: &str) -> Option<tempfile::TempDir> {
    interpreter_of(pybench_interpreter::Tier::Bwrap)?; // it says why
    let folder = shared_folder();
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/sessions/containers")
        .join(script);
    symlink(script, folder.path().join(name)).unwrap();
    Some(folder)
}

fn engine(folder: &Path, name: &str) -> EngineSettings {
    EngineSettings {
        program: Some(folder.join(name)),
        ..EngineSettings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_by_a_stand_in() {
    let Some(folder) = stand_in("docker.py", "docker") else {
        return;
    };
    let settings = engine(folder.path(), "docker");
    works(
        &pybench_interpreter_containers::docker(&settings).unwrap(),
        false,
    )
    .await;
    assert_eq!(
        entries(&folder.path().join("containers")),
        0,
        "a container is left"
    );
    let missing = EngineSettings {
        image: Some("not-there:1".to_owned()),
        ..settings
    };
    let error = pybench_interpreter_containers::docker(&missing)
        .err()
        .unwrap()
        .to_string();
    assert!(error.ends_with("docker pull not-there:1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn podman_by_a_stand_in() {
    let Some(folder) = stand_in("docker.py", "podman") else {
        return;
    };
    let settings = engine(folder.path(), "podman");
    works(
        &pybench_interpreter_containers::podman(&settings).unwrap(),
        false,
    )
    .await;
    assert_eq!(
        entries(&folder.path().join("containers")),
        0,
        "a container is left"
    );
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).into_iter().flatten().count()
}

/// The root folder of the only image of the stand-in for a cluster.
fn make_image(folder: &Path) {
    let environment = environment_python()
        .unwrap()
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned();
    let mark = std::fs::read_to_string(environment.join("pybench.json")).unwrap();
    let mark: serde_json::Value = serde_json::from_str(&mark).unwrap();
    let base = PathBuf::from(mark["base"].as_str().unwrap());
    let root = folder.join("root");
    let mut binds = vec![
        ("/usr".into(), "/usr".into()),
        (environment, PathBuf::from("/opt/env")),
    ];
    if !base.starts_with("/usr") {
        binds.push((base.clone(), base));
    }
    let places = ["opt/pybench", "given", "workspace", "tmp", "dev", "proc"].map(PathBuf::from);
    let bound = binds
        .iter()
        .map(|(_, to)| to.strip_prefix("/").unwrap().to_owned());
    for place in places.into_iter().chain(bound) {
        std::fs::create_dir_all(root.join(place)).unwrap();
    }
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    let image = serde_json::json!({"root": root, "binds": binds});
    std::fs::write(folder.join("image"), image.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_by_a_stand_in() {
    let Some(folder) = stand_in("kubectl.py", "kubectl") else {
        return;
    };
    make_image(folder.path());
    let settings = ClusterSettings {
        program: Some(folder.path().join("kubectl")),
        image: Some("registry.example/pybench:1".to_owned()),
        ..ClusterSettings::default()
    };
    let interpreter = pybench_interpreter_containers::kubernetes(&settings).unwrap();
    assert!(
        folder
            .path()
            .join("policies/pybench-sessions.json")
            .exists()
    );
    works(&interpreter, true).await;
    assert_eq!(entries(&folder.path().join("pods")), 0, "a pod is left");

    let mut session = Live {
        inner: interpreter.start(SessionSpec::default()).await.unwrap(),
    };
    let error = session
        .run("import socket; socket.socket(socket.AF_INET)")
        .await
        .error
        .unwrap();
    assert_eq!(
        error.ename, "OSError",
        "no network, whatever the cluster allows: {error:?}"
    );
    session.close().await;
    branches(&interpreter).await;
    assert_eq!(entries(&folder.path().join("pods")), 0, "a pod is left");

    let with_a_list = SessionSpec {
        network: Network::allow(&["a.example".to_owned()]).unwrap(),
        ..SessionSpec::default()
    };
    let refused = interpreter.start(with_a_list).await.err().unwrap();
    assert!(refused.to_string().contains("`kubernetes`"), "{refused}");

    std::fs::write(folder.path().join("forbidden"), "").unwrap();
    let error = pybench_interpreter_containers::kubernetes(&settings)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("may not create pods in the namespace pybench"),
        "{error}"
    );
}

/// A session in a pod is forked by its cells, run again in another pod.
async fn branches(interpreter: &dyn Interpreter) {
    let mut session = Live {
        inner: interpreter.start(SessionSpec::default()).await.unwrap(),
    };
    session
        .run("x = [1]; n = open('output/n', 'w').write('1')")
        .await;
    let inner = session.inner.fork().await.unwrap();
    let mut branch = Live { inner };
    let look = "x.append(2); x, open('output/n').read()";
    assert_eq!(branch.run(look).await.plain(), "([1, 2], '1')");
    assert_eq!(session.run("x").await.plain(), "[1]");
    branch.close().await;
    session
        .run("import time; n = open('output/n', 'w').write(str(time.time()))")
        .await;
    let refused = session.inner.fork().await.err().unwrap().to_string();
    assert!(refused.contains("have other contents"), "{refused}");
    assert_eq!(session.run("x").await.plain(), "[1]");
    session.close().await;
}

#[test]
fn what_is_missing_is_said() {
    let nowhere = EngineSettings {
        program: Some("/nowhere/docker".into()),
        ..EngineSettings::default()
    };
    let error = |made: Result<LocalInterpreter, InterpreterError>| made.err().unwrap().to_string();
    let Some(python) = environment_python().ok() else {
        pybench_testing::skip::missing_tool("no environment; pybench setup makes one");
        return;
    };
    assert!(python.exists());
    assert!(
        error(pybench_interpreter_containers::docker(&nowhere))
            .contains("apt-get install docker.io")
    );
    assert!(
        error(pybench_interpreter_containers::podman(&nowhere)).contains("apt-get install podman")
    );
    let without_image = error(pybench_interpreter_containers::kubernetes(
        &ClusterSettings::default(),
    ));
    assert!(
        without_image.contains("PYBENCH_CONTAINERS"),
        "{without_image}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_live() {
    // It needs a daemon, which set-up does not start.
    if let Err(reason) = answers("docker") {
        return pybench_testing::skip::unavailable(reason);
    }
    let interpreter = pybench_interpreter_containers::docker(&EngineSettings::default()).unwrap();
    works(&interpreter, false).await;
}

/// The podman of this machine as settings name it; `None`, with a printed reason, where there is none.
fn podman_here() -> Option<(EngineSettings, Podman)> {
    let podman = Podman::find()?;
    let settings = EngineSettings {
        program: Some(podman.program()),
        ..EngineSettings::default()
    };
    Some((settings, podman))
}

#[tokio::test(flavor = "multi_thread")]
async fn podman_live() {
    let Some((settings, podman)) = podman_here() else {
        return;
    };
    let interpreter = pybench_interpreter_containers::podman(&settings).unwrap();
    works(&interpreter, false).await;
    let calls = podman.calls();
    let words: Vec<&str> = calls.split_whitespace().collect();
    let started: Vec<&str> = words
        .windows(2)
        .filter(|pair| pair[0] == "--name")
        .map(|pair| pair[1])
        .collect();
    assert!(started.len() >= 2, "{calls}");
    let list = Command::new("podman")
        .args(["ps", "--all", "--format", "{{.Names}}"])
        .output()
        .unwrap();
    let present = String::from_utf8_lossy(&list.stdout);
    let left: Vec<&str> = present
        .lines()
        .filter(|name| started.contains(name))
        .collect();
    assert_eq!(left, [""; 0]);
}
