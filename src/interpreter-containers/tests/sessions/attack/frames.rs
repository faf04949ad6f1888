//! What a cell sends the host in the runner's name.

use pybench_interpreter::Tier;
use pybench_testing::sessions::*;
use pybench_types::observation::Stopped;

use super::{PRELUDE, start, start_with, tier};

/// Frames written by the cell itself, past the runner.
pub(super) const SPOOF: &str = "
import json, struct
def frame(body): return struct.pack('>I', len(body)) + body
def say(**fields): os.write(100, frame(json.dumps(fields).encode()))
";

#[tokio::test(flavor = "multi_thread")]
async fn hostile_frames_cost_only_the_session() {
    let Some(mut session) = start().await else {
        return;
    };
    for hostile in [
        "os.write(100, b'\\xff\\xff\\xff\\xff' + b'x' * 100)",
        "os.write(100, frame(b'not json'))",
        "os.write(100, frame(b'[' * 1_000_000))",
        "os.write(100, frame(b'{\"event\": \"stream\"}'))",
        "say(event='chart', cell=1, at=[0, 0], figure=0, path=[])",
        // Small text, much memory once it is parsed: nested, wide, and large.
        "os.write(100, frame(b'{\"event\":\"chart\",\"cell\":1,\"at\":[0,0],\"figure\":' + b'[' * 1_000_000 + b']' * 1_000_000 + b'}'))",
        "os.write(100, frame(b'{\"event\":\"chart\",\"cell\":1,\"at\":[0,0],\"figure\":[0' + b',{}' * 600_000 + b']}'))",
        "os.write(100, frame(b'{\"event\":\"chart\",\"cell\":1,\"at\":[0,0],\"figure\":{\"a\":[0' + b',{\"\":{}}' * 4_000_000 + b']}}'))",
        "say(event='chart', cell=1, at=[0, 0], path=None, figure='x' * (3 << 20))",
        "say(event='display', cell=1, at=[0, 0], data={str(i): '' for i in range(100_000)})",
        "for _ in range(80): say(event='display', cell=1, at=[0, 0], data={'text/html': 'x' * (1 << 20)})",
    ] {
        let seen = session
            .run(&format!("{PRELUDE}{SPOOF}{hostile}\ntime.sleep(1)"))
            .await;
        assert_eq!(seen.stopped, Some(Stopped::Died), "{hostile}: {seen:?}");
        assert_eq!(session.run("'lives'").await.plain(), "'lives'");
    }
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_end_deceives_no_later_cell() {
    let Some(mut session) = start().await else {
        return;
    };
    let forged = format!(
        "{PRELUDE}{SPOOF}say(event='done', cell=1, at=[1 << 60, 0])\nprint('after'); time.sleep(1)\n1"
    );
    session.run(&forged).await;
    let seen = session.run("'second'").await;
    assert_eq!(seen.plain(), "'second'", "{seen:?}");
    let flood = "for i in range(60_000): say(event='display', cell=3, at=[0, 0], data={'text/plain': 'x' * 50})";
    let seen = session.run(flood).await;
    assert!(seen.outputs.len() < 6000);
    session.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tampering_with_its_own_streams_is_harmless() {
    let Some(mut session) = start().await else {
        return;
    };
    for code in [
        "import os; print('x' * 100); os.ftruncate(1, 0); os.pwrite(1, b'y', 1 << 25)",
        "import os; os.close(1); os.close(2); print('gone')",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import fcntl; fcntl.fcntl(1, 1033, 0xf)",
        "import os; os.dup2(os.open('/dev/null', 1), 1); print('nowhere')",
    ] {
        session.run(code).await;
    }
    session.run("import os; os._exit(0)").await;
    assert_eq!(
        session.run("print('again')").await.text("stdout"),
        "again\n"
    );
    session.close().await;
}

/// The runner is Python in the process of the cells, so a cell can break it. The host gets its answers all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_breaks_its_own_runner_is_answered_for() {
    if tier() != Tier::Jail {
        return; // the runner is the same
    }
    let Some(mut other) = start().await else {
        return;
    };
    for code in [
        "import sys; sys.modules.clear()",
        "import builtins; builtins.__dict__.clear()",
        "import json; json.dumps = json.JSONEncoder.encode = None",
        "import gc; [o.clear() for o in gc.get_objects() if isinstance(o, dict)]",
        "import gc; [o.clear() for o in gc.get_objects() if isinstance(o, list)]",
        "get_ipython().run_cell = None",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
        "import os; os.closerange(0, 1024)",
        "import os; [os.dup2(0, fd) for fd in range(1, 200)]",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
        "import shutil; [shutil.rmtree(path, ignore_errors=True) for path in ('/tmp', '/dev/shm', '.')]",
        "import os; os.chmod('output', 0); os.chmod('.', 0)",
        "import ctypes; ctypes.memset(1, 0, 1)",
    ] {
        let spec = with_limits(|limits| limits.cell_seconds = 10);
        let mut session = start_with(spec).await.unwrap();
        for cell in [code, "1", "import os; os._exit(0)", "1"] {
            session.run(cell).await;
        }
        session.outputs().await;
        session.close().await;
        assert_eq!(other.run("'lives'").await.plain(), "'lives'", "{code}");
    }
    other.close().await;
}
