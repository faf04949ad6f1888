//! The tier `gvisor`: the same runner and protocol, in a kernel of its own. What its engine does; the
//! attack suite runs in it as well (`attack`).

use std::time::Duration;

use pybench_interpreter::SessionSpec;
use pybench_interpreter::Tier;
use pybench_testing::sessions::*;
use pybench_types::observation::Stopped;

fn spec() -> SessionSpec {
    SessionSpec {
        inputs: [("data/given.toml".to_owned(), "Cargo.toml".into())].into(),
        ..SessionSpec::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_live_are_interrupted_and_end() {
    let Some(mut session) = start_in(Tier::Gvisor, spec()).await else {
        return;
    };
    let seen = session
        .run("import sys\nprint('a')\nprint('b', file=sys.stderr)\nx = 20\nx + 1")
        .await;
    let expected = [("stdout", "a\n"), ("stderr", "b\n"), ("result", "21")];
    assert_eq!(seen.brief(), expected);
    let error = session.run("1 / 0").await.error.unwrap();
    assert_eq!(error.ename, "ZeroDivisionError");

    let handle = session.inner.interrupt_handle();
    let interrupt = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        handle.interrupt();
    });
    let seen = session.run("while True: pass").await;
    interrupt.await.unwrap();
    assert_eq!(seen.stopped, Some(Stopped::Interrupted), "{seen:?}");
    assert_eq!(session.run("x").await.plain(), "20");

    let devices = "import os, subprocess\nsubprocess.run(['true'], stderr=subprocess.DEVNULL).returncode, open('/dev/null', 'w').write('x')";
    assert_eq!(session.run(devices).await.plain(), "(0, 1)");

    let seen = session.run("import os; os._exit(3)").await;
    assert_eq!(seen.stopped, Some(Stopped::Died), "{seen:?}");
    assert_eq!(session.run("'x' in globals()").await.plain(), "False");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_in_and_out_and_inputs_stay() {
    let Some(mut session) = start_in(Tier::Gvisor, spec()).await else {
        return;
    };
    let seen = session
        .run("len(open('data/given.toml').read()) > 100")
        .await;
    assert_eq!(seen.plain(), "True");
    for code in [
        "open('data/new', 'w')",
        "open('data/given.toml', 'a')",
        "open('/usr/x', 'w')",
    ] {
        let error = session.run(code).await.error.unwrap();
        assert!(
            ["OSError", "PermissionError"].contains(&error.ename.as_str()),
            "{error:?}"
        );
    }
    session
        .run("open('output/made.txt', 'w').write('made')")
        .await;
    let outputs = session.outputs().await;
    assert_eq!(outputs.files[0].bytes, b"made");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_the_host_nor_a_network_is_seen() {
    let Some(mut session) = start_in(Tier::Gvisor, spec()).await else {
        return;
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!("import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)");
    assert!(session.run(&code).await.error.is_some());
    let seen = session
        .run("import os; sorted(p for p in os.listdir('/proc') if p.isdigit())")
        .await;
    assert_eq!(seen.plain(), "['1', '2']");
    let seen = session.run("[p for p in ['/root', '/home', '/var', '/etc/shadow', '/etc/machine-id'] if os.path.exists(p)]").await;
    assert_eq!(seen.plain(), "[]");
    let seen = session
        .run("'gVisor' in os.popen('dmesg').read() or os.uname().release")
        .await;
    assert!(!seen.plain().is_empty());
    let seen = session
        .run("sorted(os.environ.get(n, '-') for n in ['HOME', 'CARGO', 'USER'])")
        .await;
    assert_eq!(seen.plain(), "['-', '/tmp', 'agent']");
    session.close().await;
}

/// The way out, as in the tiers of `interpreter`.
#[path = "interpreter/network.rs"]
mod network;

async fn start() -> Option<Live> {
    start_with(SessionSpec::default()).await
}

async fn start_with(spec: SessionSpec) -> Option<Live> {
    start_in(Tier::Gvisor, spec).await
}
